"""Generates `schemas/` from the models: the only way in which those files come to be.

`python -m orchestrator.schema_export schemas` writes them, with `--check` it only compares. The text
depends on pydantic's generator, so the drift test compares meaning, and the Makefile pins the generator.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode
from pydantic_core import core_schema

from orchestrator.codec import KINDS, RecordKind
from orchestrator.json_text import canonical_text
from orchestrator.store import write_atomically

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _ClosedMaps(GenerateJsonSchema):
    """Closes maps with patterned keys: JSON Schema would let any other key pass, pydantic does not."""

    def dict_schema(self, schema: core_schema.DictSchema) -> dict[str, Any]:
        generated = super().dict_schema(schema)
        if "patternProperties" in generated:
            generated.setdefault("additionalProperties", False)
        return generated

    def generate(self, schema: Any, mode: JsonSchemaMode = "validation") -> dict[str, Any]:
        generated = super().generate(schema, mode=mode)
        return _without_titles(generated)  # type: ignore[no-any-return]


def _without_titles(node: Any) -> Any:
    """Drops the titles that pydantic derives from field names: they say nothing that the key does not."""
    if isinstance(node, dict):
        return {
            key: _without_titles(item)
            for key, item in node.items()
            if not (key == "title" and isinstance(item, str))
        }
    return [_without_titles(item) for item in node] if isinstance(node, list) else node


def schema_of(kind: RecordKind) -> dict[str, Any]:
    """The JSON Schema (2020-12) of one record kind and version."""
    body = kind.model.model_json_schema(schema_generator=_ClosedMaps)
    return {
        "$schema": _DIALECT,
        "$id": f"urn:qualgate:schema:{kind.name}:{kind.version}",
        "title": f"qualgate {kind.name}, version {kind.version}",
        **body,
    }


def stale(folder: Path) -> list[str]:
    """The names of schema files in `folder` that are missing, superfluous or not what the models say."""
    wanted = {kind.schema_file: canonical_text(schema_of(kind)) for kind in KINDS}
    present = {path.name: path.read_bytes() for path in folder.glob("*.schema.json")}
    return sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))


def export(folder: Path) -> list[str]:
    """Write every schema that is not up to date, remove superfluous ones, and return their names.

    Raises:
        StorageError: when a file cannot be written.
    """
    changed = stale(folder)
    wanted = {kind.schema_file: kind for kind in KINDS}
    for name in changed:
        if name in wanted:
            write_atomically(folder / name, canonical_text(schema_of(wanted[name])))
        else:
            (folder / name).unlink()
    return changed
