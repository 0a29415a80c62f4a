"""docs/records.md keeps its word: every kind has its example, and an example is of its kind.

An example is JSON with `//` comments in which `…` stands for what is left out: members of an object, items of
an array, a part of a string. It must fit the schema of its kind: only what is missing is forgiven.
"""

from __future__ import annotations

import json
import re
import tomllib
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from orchestrator.codec import KINDS, RecordKind
from tests.orchestrator.checkout import ROOT
from tests.strategies import DRAWS, SEED

DOCUMENT = (ROOT / "docs" / "records.md").read_text()
_ELIDED = "…"
_STRING = r'"(?:[^"\\]|\\.)*"'


def id_of(kind: RecordKind) -> str:
    return f"{kind.name} v{kind.version}"


@cache
def section(title: str) -> str:
    """The text under a heading of the second level."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", DOCUMENT, flags=re.DOTALL | re.MULTILINE)
    assert found, f"docs/records.md has no section {title!r}"
    return found[1]


def example(kind: RecordKind) -> Any:
    """The one example of a kind, with neither comments nor marks of what is left out."""
    ((language, text),) = re.findall(r"^```(\w+)\n(.*?)^```$", section(id_of(kind)), re.DOTALL | re.MULTILINE)
    return tomllib.loads(text) if language == "toml" else parse(text)


def parse(text: str) -> Any:
    """JSON with comments and marks of what is left out, read without them."""
    bare = re.sub(rf"({_STRING})|//[^\n]*|{_ELIDED}", lambda found: found[1] or "", text)
    without_commas = re.sub(rf"({_STRING})|,(?=[\s,]*[}}\]])", lambda found: found[1] or "", bare)
    return json.loads(without_commas)


def forgiving(schema: Any) -> Any:
    """A schema that takes whatever is a part of what it took before."""
    if isinstance(schema, list):
        return [forgiving(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    # A branch without its required keys may fit beside another one.
    kept = {
        ("anyOf" if key == "oneOf" else key): forgiving(item)
        for key, item in schema.items()
        if key not in ("required", "minItems", "minProperties")
    }
    if kept.get("type") == "string":
        return {"anyOf": [kept, {"type": "string", "pattern": _ELIDED}]}
    return kept


def faults(kind: RecordKind, value: Any) -> list[str]:
    schema = json.loads((ROOT / "schemas" / kind.schema_file).read_text())
    types = {"properties": schema["properties"], "$defs": schema.get("$defs", {})}
    assert schema["additionalProperties"] is False
    validator = Draft202012Validator(forgiving({**types, "type": "object", "additionalProperties": False}))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]


@pytest.mark.parametrize("kind", KINDS, ids=id_of)
def test_every_kind_has_an_example_of_it(kind: RecordKind) -> None:
    value = example(kind)
    assert faults(kind, value) == []
    assert len(value) > 2


def test_every_section_with_an_example_is_a_kind() -> None:
    titles = re.findall(r"^## (.* v\d+)$", DOCUMENT, flags=re.MULTILINE)
    assert sorted(titles) == sorted(map(id_of, KINDS))


def test_the_table_names_every_kind() -> None:
    table = section("Rules for all").replace("`-", "`qualification-")
    named = set(re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE))))
    assert named == {kind.name for kind in KINDS}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"level_reached"', '"level_got"'),
        ('"epoch": 0', '"epoch": "0"'),
        ('"values_equal": false', '"values_equal": 0'),
        ('"group": "input_hashes"', '"group": "inputs"'),
        ('"what": "numerics', '"which": "numerics'),
        ('"first_divergence": null', '"first_divergence": {"place": 1}'),
    ],
)
def test_an_example_that_is_wrong_is_noticed(old: str, new: str) -> None:
    (kind,) = (kind for kind in KINDS if kind.name == "verdict")
    text = section(id_of(kind)).split("```")[1].removeprefix("jsonc\n")
    assert text.count(old) == 1
    assert faults(kind, parse(text)) == []
    assert len(faults(kind, parse(text.replace(old, new)))) == 1


def test_a_url_in_a_string_is_no_comment() -> None:
    assert parse('{"a": "https://b,}",  // c, "d"\n …\n}') == {"a": "https://b,}"}
    assert parse('["x…", …]') == ["x…"]


# --- examples of records that are at hand ---------------------------------------------------------


def differences(shown: Any, whole: Any, path: str = "$") -> list[str]:
    """Where an example is not a part of the record that it is taken from."""
    if isinstance(shown, dict) and isinstance(whole, dict):
        missing = [f"{path}.{key}" for key in shown if key not in whole]
        return missing + [
            fault
            for key, value in shown.items()
            if key in whole
            for fault in differences(value, whole[key], f"{path}.{key}")
        ]
    if isinstance(shown, list) and isinstance(whole, list) and len(shown) <= len(whole):
        pairs = zip(shown, whole[: len(shown)], strict=True)
        return [fault for place, pair in enumerate(pairs) for fault in differences(*pair, f"{path}[{place}]")]
    if isinstance(shown, str) and isinstance(whole, str):
        pattern = shown.replace("[", "[[]").replace("?", "[?]").replace("*", "[*]").replace(_ELIDED, "*")
        return [] if fnmatchcase(whole, pattern) else [f"{path}: {shown} is not {whole}"]
    same = type(shown) is type(whole) and shown == whole
    return [] if same else [f"{path}: {shown} is not {whole}"]


def whole_records() -> dict[str, Any]:
    seed = json.loads(SEED.read_bytes())
    protocol = (ROOT / "orchestrator" / "protocols" / "digits.toml").read_text()
    return {
        "run-record v1": seed,
        "fixture-result v1": seed["result"],
        "config v1": seed["result"]["config"],
        "published-draws v1": json.loads(DRAWS.read_bytes()),
        "protocol v1": tomllib.loads(protocol),
    }


@pytest.mark.parametrize("title", whole_records())
def test_an_example_of_a_record_at_hand_is_a_part_of_it(title: str) -> None:
    (kind,) = (kind for kind in KINDS if id_of(kind) == title)
    assert differences(example(kind), whole_records()[title]) == []


def test_an_example_that_is_no_part_of_its_record_is_noticed() -> None:
    whole = {"a": [1, {"b": "0123"}], "c": 1.0}
    assert differences({"a": [1, {"b": "01…"}]}, whole) == []
    assert differences({"a": [1, {"b": "02…"}]}, whole) == ["$.a[1].b: 02… is not 0123"]
    assert differences({"c": 1}, whole) == ["$.c: 1 is not 1.0"]
    assert differences({"d": 1}, whole) == ["$.d"]
