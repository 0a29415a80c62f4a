"""What an audit collects: each rule that was applied, and each place where one does not hold. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from orchestrator.json_text import member
from orchestrator.models import Finding, Strict

_LONGEST_TEXT = 240


class Findings:
    """The rules that were applied so far, and what they found.

    A rule has one stable name, `subject.what-holds`, and may be applied in many places.
    """

    def __init__(self) -> None:
        self.rules: set[str] = set()
        self.checks = 0
        self.found: list[Finding] = []

    def equal(self, rule: str, path: str, found: object, expected: object) -> None:
        """The value at `path` must be the one that was derived."""
        self.require(rule, path, found == expected, found, expected)

    def require(self, rule: str, path: str, holds: bool, found: object, expected: object) -> None:
        """`holds` must be true; `expected` says in words, or as a value, what would make it so."""
        self.rules.add(rule)
        self.checks += 1
        if not holds:
            self.found.append(Finding(rule=rule, path=path, expected=_text(expected), found=_text(found)))

    def same_keys(
        self, rule: str, path: str, found: Mapping[str, object], expected: Mapping[str, object]
    ) -> None:
        """Two objects must have the same keys, whatever their values."""
        self.same_fields(rule, path, dict.fromkeys(found, "a value"), dict.fromkeys(expected, "a value"))

    def same_items(self, rule: str, path: str, found: Sequence[object], expected: Sequence[object]) -> None:
        """Two lists must have the same items in the same order; the first that differs is the finding."""
        self.rules.add(rule)
        nothing, none_more = "nothing", "no more items"
        for index, (held, wanted) in enumerate(zip_longest(found, expected, fillvalue=None)):
            if held != wanted:
                held = held if index < len(found) else nothing
                wanted = wanted if index < len(expected) else none_more
                self.require(rule, member(path, index), False, held, wanted)
                return
        self.checks += 1

    def derived(self, rule: str, path: str, found: object, derive: Callable[[], object]) -> None:
        """The value at `path` must be what `derive` gives; numbers beyond float64 derive nothing."""
        try:
            expected = derive()
        except ArithmeticError as error:
            self.require(rule, path, False, found, f"what can be derived ({error})")
        else:
            self.equal(rule, path, found, expected)

    def at_most(self, rule: str, path: str, found: float, bound: float, bound_name: str) -> None:
        """The number at `path` must not exceed a bound that has a name."""
        self.require(rule, path, found <= bound, found, f"at most {bound_name}, {bound}")

    def same_fields(
        self, rule: str, path: str, found: Mapping[str, Any], expected: Mapping[str, Any]
    ) -> None:
        """Two objects must have the same keys with the same values; one finding a key that differs."""
        self.rules.add(rule)
        for key in [*expected, *(key for key in found if key not in expected)]:
            if key not in found:
                self.require(rule, member(path, key), False, "nothing", expected[key])
            elif key not in expected:
                self.require(rule, member(path, key), False, found[key], "no such key")
            else:
                self.equal(rule, member(path, key), found[key], expected[key])


def fields(record: Strict, *names: str) -> dict[str, Any]:
    """Some fields of a record as an object, to be compared with another."""
    return {name: getattr(record, name) for name in names}


def _text(value: object) -> str:
    if isinstance(value, Strict):
        value = value.model_dump()
    text = str(value)
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "..."
