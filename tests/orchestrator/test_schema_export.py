"""`schemas/` is what the models say: nothing by hand, nothing open, nothing that needs a network."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from orchestrator.codec import KINDS, RecordKind
from orchestrator.schema_export import export, schema_of, stale

SCHEMAS = Path(__file__).parents[2] / "schemas"
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.schema_file.split(".schema")[0])


def shipped(kind: RecordKind) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads((SCHEMAS / kind.schema_file).read_bytes())
    return schema


def nodes(value: Any, path: str = "#") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every object of a schema document, with its place."""
    if isinstance(value, dict):
        yield path, value
        for key, item in value.items():
            yield from nodes(item, f"{path}/{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from nodes(item, f"{path}/{index}")


@every_kind
def test_the_shipped_schema_says_what_the_model_says(kind: RecordKind) -> None:
    # Meaning, not text: key order and layout depend on pydantic's generator.
    assert shipped(kind) == json.loads(json.dumps(schema_of(kind))), "run `make schemas`"


def test_every_shipped_schema_belongs_to_a_kind() -> None:
    assert {path.name for path in SCHEMAS.glob("*.json")} == {kind.schema_file for kind in KINDS}


@every_kind
def test_the_shipped_schema_is_a_sound_schema(kind: RecordKind) -> None:
    schema = shipped(kind)
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == Draft202012Validator.META_SCHEMA["$id"]


@every_kind
def test_every_reference_is_local_and_has_a_target(kind: RecordKind) -> None:
    schema = shipped(kind)
    references = [node["$ref"] for _, node in nodes(schema) if isinstance(node.get("$ref"), str)]
    assert {ref for ref in references if not ref.startswith("#/$defs/")} == set()
    assert {ref.removeprefix("#/$defs/") for ref in references} <= set(schema.get("$defs", {}))


@every_kind
def test_no_definition_is_left_over(kind: RecordKind) -> None:
    schema = shipped(kind)
    used = {node["$ref"].removeprefix("#/$defs/") for _, node in nodes(schema) if "$ref" in node}
    assert set(schema.get("$defs", {})) == used


@every_kind
def test_no_object_is_left_open(kind: RecordKind) -> None:
    # An object is closed, or a map whose values have a type; "any key, any value" is neither.
    left_open = [
        path
        for path, node in nodes(shipped(kind))
        if node.get("type") == "object"
        and node.get("additionalProperties") is not False
        and not isinstance(node.get("additionalProperties"), dict)
    ]
    assert left_open == []
    assert [
        path for path, node in nodes(shipped(kind)) if node.get("additionalProperties") in ({}, True)
    ] == []


@every_kind
def test_every_key_of_a_closed_object_is_required(kind: RecordKind) -> None:
    optional = [
        path
        for path, node in nodes(shipped(kind))
        if node.get("type") == "object" and set(node.get("properties", {})) != set(node.get("required", []))
    ]
    assert optional == []


@every_kind
def test_every_value_has_a_form(kind: RecordKind) -> None:
    # `{}` accepts anything: a field whose type the generator could not express would end as that.
    formless = [
        f"{path}/{name}"
        for path, node in nodes(shipped(kind))
        for name, item in node.get("properties", {}).items()
        if not {"type", "$ref", "anyOf", "oneOf", "const", "enum"} & set(item)
    ]
    assert formless == []


@every_kind
def test_every_pattern_is_anchored_at_both_ends(kind: RecordKind) -> None:
    patterns = [node["pattern"] for _, node in nodes(shipped(kind)) if isinstance(node.get("pattern"), str)]
    patterns += [name for _, node in nodes(shipped(kind)) for name in node.get("patternProperties", {})]
    assert [text for text in patterns if not (text.startswith("^") and text.endswith("$"))] == []


# --- the tool ------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    assert len(export(tmp_path)) == len(KINDS)
    return tmp_path


def test_an_exported_folder_is_up_to_date_and_is_not_written_again(folder: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert (stale(folder), export(folder)) == ([], [])
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_a_changed_a_missing_and_a_superfluous_schema_are_found_and_repaired(folder: Path) -> None:
    changed, missing, superfluous = "config.v1.schema.json", "data.v1.schema.json", "old.v0.schema.json"
    text = (folder / changed).read_text()
    (folder / changed).write_text(text.replace('"minimum": 1', '"minimum": 0', 1))
    (folder / missing).unlink()
    (folder / superfluous).write_text("{}")
    wrong = sorted([changed, missing, superfluous])
    assert stale(folder) == wrong
    assert export(folder) == wrong
    assert stale(folder) == []
    assert (folder / changed).read_text() == text
    assert not (folder / superfluous).exists()


def test_files_that_are_no_schemas_are_left_alone(folder: Path) -> None:
    (folder / "README.md").write_text("what is here")
    (folder / "__init__.py").write_text("")
    assert (stale(folder), export(folder)) == ([], [])
    assert (folder / "README.md").exists()


def test_an_exported_schema_is_canonical_text(folder: Path) -> None:
    for path in folder.iterdir():
        assert path.read_bytes() == json.dumps(json.loads(path.read_bytes()), indent=2).encode() + b"\n"
