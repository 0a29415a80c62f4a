"""Plants lies in records: one value at one JSON path, through the same model that every record passes."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from orchestrator.audit.records import audit_record
from orchestrator.codec import check_model
from orchestrator.models import Finding, Strict

Json = dict[str, Any]
Value = Any | Callable[[Any], Any]

GONE = object()
"""As a value: the key or item is taken out."""


@dataclass(frozen=True)
class Lie:
    """A value at a path, and the rule that must find it.

    `value` is the lie, a function of the truth that makes it, or `GONE`. `place` is the path of the finding
    where that is not the lie's own.
    """

    path: str
    value: Value
    rule: str
    place: str | None = None

    def __str__(self) -> str:
        return f"{self.rule}:{self.path}"

    def found_in(self, findings: list[Finding]) -> bool:
        """Whether the rule found it, at the path that says so."""
        place = self.place or self.path
        return any(item.rule == self.rule and item.path == f"$.{place}" for item in findings)


def planted(record: Json, path: str, value: Value) -> Json:
    """A copy of a parsed record with another value at a path such as `a.b[0].c` or `a["odd key"]`."""
    lying = copy.deepcopy(record)
    *parents, last = _parts(path)
    holder: Any = lying
    for part in parents:
        holder = holder[part]
    truth = holder[last] if not isinstance(holder, dict) else holder.get(last, GONE)
    new = value(truth) if callable(value) else value
    if new is GONE:
        del holder[last]
    else:
        holder[last] = new
    return lying


def _parts(path: str) -> list[str | int]:
    found = re.findall(r'\[(\d+)\]|\["([^"]+)"\]|([^.\[\]]+)', path)
    return [int(index) if index else quoted or name for index, quoted, name in found]


def audit_json(record: Json, model: type[Strict]) -> list[Finding]:
    """The findings in a parsed record."""
    return audit_record(check_model(record, model, "a record")).found


def plus(number: float) -> Callable[[Any], Any]:
    """The truth and a little more."""
    return lambda truth: truth + number


def other_hash(truth: str) -> str:
    """Another digest."""
    return ("0" if truth[0] != "0" else "1") + truth[1:]
