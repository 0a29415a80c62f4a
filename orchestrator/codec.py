"""Bytes to records and back: the one gate through which every record passes.

A record is read in four steps, each of which can refuse it with its file, JSON path, what was found and
what was expected: strict JSON text (`json_text`), the record's kind and version, its JSON Schema as
shipped in `schemas/`, and its pydantic model. The two checks are independent on purpose: a record that
one accepts and the other does not is a defect of ours, and both are asked every time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator import models
from orchestrator.errors import EvidenceError, InputError, QualgateError
from orchestrator.hashing import bytes_sha256
from orchestrator.json_text import JsonTextError, canonical_text, member, parse

Record = TypeVar("Record", bound=BaseModel)


@dataclass(frozen=True)
class RecordKind:
    """One kind and version of record: its name, its model, and the form of its text."""

    name: str
    version: int
    model: type[models.Strict]
    final_newline: bool = True

    @property
    def schema_file(self) -> str:
        """The file in `schemas/` that describes it."""
        return f"{self.name}.v{self.version}.schema.json"


# The registry: a new record kind or version is one line here. The seed's tool wrote no final newline,
# so version 1 of the run record keeps that form: what was loaded is what is saved.
KINDS = (
    RecordKind("run-record", 1, models.RunRecordV1, final_newline=False),
    RecordKind("run-record", 2, models.RunRecord),
    RecordKind("fixture-result", 1, models.FixtureResultV1),
    RecordKind("fixture-result", 2, models.FixtureResult),
    RecordKind("qualification", 1, models.QualificationRecord),
    RecordKind("protocol", 1, models.Protocol),
    RecordKind("qualification-plan", 1, models.QualificationPlan),
    RecordKind("qualification-scores", 1, models.QualificationScores),
    RecordKind("qualification-verdict", 1, models.QualificationVerdict),
    RecordKind("retirement", 1, models.Retirement),
    RecordKind("published-draws", 1, models.PublishedDraws),
    RecordKind("data", 1, models.DataManifest),
    RecordKind("verdict", 1, models.Verdict),
    RecordKind("bisection", 1, models.Bisection),
    RecordKind("audit", 1, models.AuditReport),
    RecordKind("study", 1, models.StudyReport),
    RecordKind("validation", 1, models.ValidationReport),
    RecordKind("config", 1, models.Config),
)


def kind_of_model(model: type[BaseModel]) -> RecordKind:
    """The registered kind of a model."""
    return next(kind for kind in KINDS if kind.model is model)


def _named(name: str, version: int) -> RecordKind:
    return next(kind for kind in KINDS if kind.name == name and kind.version == version)


# Which kind an object is, told by keys that no other kind has.
_MARKS = (
    ("workspace", "run-record"),
    ("predictions_file", "fixture-result"),
    ("draws", "published-draws"),
    ("learning_rate", "config"),
)


def detect(value: Any, source: str) -> RecordKind:
    """The kind and version that a parsed JSON value claims to be.

    Raises:
        EvidenceError: for a value of no known kind, or of a version that this qualgate cannot read.
    """
    if not isinstance(value, dict):
        raise _broken(source, "$", _name_of(value), "an object")
    declared = value.get("kind")
    names = {
        "run": "run-record",
        "qualification": "qualification",
        "retirement": "retirement",
        "protocol": "protocol",
        "qualification-plan": "qualification-plan",
        "qualification-scores": "qualification-scores",
        "qualification-verdict": "qualification-verdict",
        "data": "data",
        "verdict": "verdict",
        "bisection": "bisection",
        "audit": "audit",
        "study": "study",
        "validation": "validation",
    }
    name = names.get(declared) if isinstance(declared, str) else None
    if name is None:
        name = next((name for key, name in _MARKS if key in value), None)
    if name is None:
        raise _broken(source, "$", "an object of no known kind", "a qualgate record")
    known = [kind for kind in KINDS if kind.name == name]
    if "schema_version" not in value and (declared or "schema_version" in known[0].model.model_fields):
        raise _broken(source, "$.schema_version", "nothing", "the required key")
    version = value.get("schema_version", 1)
    for kind in known:
        if type(version) is int and kind.version == version:
            return kind
    readable = " or ".join(str(kind.version) for kind in known)
    raise _broken(source, "$.schema_version", _name_of(version), f"{readable} for a {name}")


def load(path: Path) -> models.Strict:
    """Read a record of any kind.

    Raises:
        InputError: when the file cannot be read.
        EvidenceError: when it is not a sound record.
    """
    return decode(read_bytes(path), str(path))


def load_as(path: Path, expected: type[Record]) -> Record:
    """Read a record that must be of the expected model.

    Raises:
        InputError: when the file cannot be read, or is a sound record of another kind.
        EvidenceError: when it is not a sound record.
    """
    record = load(path)
    if not isinstance(record, expected):
        wanted = kind_of_model(expected).name
        raise InputError(f"found a {kind_of_model(type(record)).name}, expected a {wanted}", where=str(path))
    return record


def read_bytes(path: Path) -> bytes:
    """The bytes of a file that the user named.

    Raises:
        InputError: when the file cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error


def decode(data: bytes, source: str) -> models.Strict:
    """Parse and check the bytes of a record of any kind; `source` names them in errors.

    Raises:
        EvidenceError: with `source`, the JSON path, what was found and what was expected.
    """
    value = parse_text(data, source)
    kind = detect(value, source)
    check_schema(value, kind, source)
    return check_model(value, kind.model, source)


def parse_text(data: bytes, source: str) -> Any:
    """Parse strict JSON text.

    Raises:
        EvidenceError: with `source` and the JSON path.
    """
    try:
        return parse(data)
    except JsonTextError as error:
        raise _broken(source, error.path, error.found, error.expected) from error


def check_model(value: Any, model: type[Record], source: str) -> Record:
    """Validate a parsed value with its pydantic model.

    Raises:
        EvidenceError: with `source`, the JSON path, what was found and what was expected.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise _from_pydantic(error, value, source) from error


def check_schema(value: Any, kind: RecordKind, source: str) -> None:
    """Validate a parsed value with its shipped JSON Schema.

    Raises:
        EvidenceError: with `source`, the JSON path, what was found and what was expected.
    """
    error = _best_error(schema_validator(kind), value)
    if error is not None:
        raise _broken(source, *_explain_schema_error(error))


def encode(record: BaseModel) -> bytes:
    """The canonical text of a record, in the form that its version has.

    Raises:
        EvidenceError: when the record would not be read back as it is (a defect, caught before writing).
    """
    kind = kind_of_model(type(record))
    data = canonical_text(record.model_dump())
    if not kind.final_newline:
        data = data.removesuffix(b"\n")
    # What is written must be readable: the same gate, on the way out.
    decode(data, f"the {kind.name} to be written")
    return data


def content_sha256(
    record: models.QualificationRecord | models.QualificationPlan | models.Retirement,
) -> str:
    """SHA-256 of a record's canonical text without `content_sha256` itself."""
    return bytes_sha256(canonical_text(record.model_dump(exclude={"content_sha256"})))


# --- JSON Schema --------------------------------------------------------------------------------


@cache
def schema_validator(kind: RecordKind) -> Any:
    """A strict JSON Schema validator for a kind, from the shipped schema file.

    Stricter than jsonschema's defaults where these differ from JSON: `2.0` is no integer, a pattern's
    `$` does not pass a final newline, and date-time is checked.
    """
    import json

    from jsonschema import Draft202012Validator, FormatChecker, validators

    checker = FormatChecker(formats=[])
    checker.checks("date-time", raises=ValueError)(models.is_utc_time)
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", lambda _, v: type(v) is int)
    strict = validators.extend(Draft202012Validator, type_checker=types)  # type: ignore[no-untyped-call]
    text = resources.files("schemas").joinpath(kind.schema_file).read_text(encoding="utf-8")
    return strict(_with_absolute_ends(json.loads(text)), format_checker=checker)


def _with_absolute_ends(schema: Any) -> Any:
    """The schema with each pattern's final `$`, in values and in keys, as Python's absolute end."""
    if isinstance(schema, list):
        return [_with_absolute_ends(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {key: _with_absolute_ends(item) for key, item in schema.items()}
    if isinstance(changed.get("pattern"), str):
        changed["pattern"] = _absolute(changed["pattern"])
    if "patternProperties" in changed:
        named = changed["patternProperties"]
        changed["patternProperties"] = {_absolute(pattern): item for pattern, item in named.items()}
    return changed


def _absolute(pattern: str) -> str:
    return pattern[:-1] + r"\Z" if pattern.endswith("$") else pattern


def _best_error(validator: Any, value: Any) -> Any:
    from jsonschema.exceptions import relevance

    errors = list(validator.iter_errors(value))
    error = max(errors, key=relevance, default=None)
    # A union that fails hides the true fault in its branches.
    while error is not None and error.context:
        error = max(_meant_branch(error), key=relevance)
    return error


def _meant_branch(union: Any) -> list[Any]:
    """The errors of the branch that a value was meant for."""
    here = len(union.absolute_path)
    branches: dict[int, list[_Complaint]] = {}
    for error in union.context:
        depth = len(error.absolute_path)
        in_member = error.validator in ("required", "additionalProperties")
        wrong_type = depth == here and error.validator == "type"
        # The tag of a discriminated union says which branch was meant.
        is_tag = error.validator == "const" and isinstance(error.validator_value, str)
        wrong_tag = depth == here + 1 and is_tag
        complaint = _Complaint(error, depth + in_member, wrong_type or wrong_tag)
        branches.setdefault(error.schema_path[0], []).append(complaint)
    return [complaint.fault for complaint in min(branches.values(), key=_distance)]


def _explain_schema_error(error: Any) -> tuple[str, str, str]:
    """JSON path, what was found, what was expected; in the words that a pydantic fault gets."""
    path = "$"
    for part in error.absolute_path:
        path = member(path, part)
    if error.validator == "required":
        missing = next(key for key in error.validator_value if key not in error.instance)
        return member(path, missing), "nothing", "the required key"
    if error.validator == "additionalProperties":
        known = error.schema.get("properties", {})
        patterns = error.schema.get("patternProperties", {})
        extra = next(
            key for key in error.instance if key not in known and not any(re.search(p, key) for p in patterns)
        )
        return member(path, extra), "the key", "no such key"
    if "propertyNames" in error.absolute_schema_path:
        path = member(path, error.instance)
    return path, _name_of(error.instance), f"{error.validator} {error.validator_value!r}"


# --- pydantic -----------------------------------------------------------------------------------


def _from_pydantic(error: ValidationError, value: Any, source: str) -> EvidenceError:
    faults = error.errors(include_url=False)
    chosen = _clearest([_locate(value, fault) for fault in faults])
    path, fault = chosen.path, chosen.fault
    if fault["type"] in ("missing", "union_tag_not_found"):
        return _broken(source, path, "nothing", "the required key")
    if fault["type"] == "extra_forbidden":
        return _broken(source, path, "the key", "no such key")
    if fault["type"] == "union_tag_invalid":
        tag = fault["input"][_discriminator(fault)]
        return _broken(source, path, _name_of(tag), f"one of {fault['ctx']['expected_tags']}")
    expected = fault["msg"]
    for prefix in ("Value error, ", "Input should be ", "String should "):
        expected = expected.removeprefix(prefix)
    return _broken(source, path, _name_of(fault["input"]), expected)


@dataclass(frozen=True)
class _Located:
    """A pydantic fault at its JSON path, and the branches of the unions that it lies in."""

    path: str
    depth: int
    branches: tuple[tuple[str, int, str], ...]  # (path of the union, its depth, the branch's tag)
    fault: Any


def _locate(value: Any, fault: Any) -> _Located:
    """Places a fault: in pydantic's location, union tags and `[key]` marks stand between the members."""
    path, depth = "$", 0
    branches = []
    location, kind = fault["loc"], fault["type"]
    for index, part in enumerate(location):
        is_last = index == len(location) - 1
        in_object = isinstance(value, dict) and part in value
        in_array = isinstance(value, list) and isinstance(part, int) and part < len(value)
        if in_object or in_array:
            value = value[part]
        elif not (is_last and kind == "missing"):
            if part != "[key]":
                branches.append((path, depth, str(part)))
            continue
        path, depth = member(path, part), depth + 1
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        path, depth = member(path, _discriminator(fault)), depth + 1
    return _Located(path, depth, tuple(branches), fault)


def _discriminator(fault: Any) -> str:
    return str(fault["ctx"]["discriminator"]).strip("'")


def _clearest(faults: list[_Located], level: int = 0) -> _Located:
    """The first fault outside any union, or else the one in the branch that the value was meant for."""
    certain = next((fault for fault in faults if len(fault.branches) == level), None)
    if certain is not None:
        return certain
    union, here, _ = faults[0].branches[level]
    branches: dict[str, list[_Complaint]] = {}
    for fault in faults:
        if fault.branches[level][0] == union:
            wrong_type = fault.depth == here and fault.fault["type"].endswith("_type")
            complaint = _Complaint(fault, fault.depth, wrong_type)
            branches.setdefault(fault.branches[level][2], []).append(complaint)
    meant = min(branches.values(), key=lambda branch: _distance(_once_a_union(branch, level + 1)))
    return _clearest([complaint.fault for complaint in meant], level + 1)


def _once_a_union(branch: list[_Complaint], level: int) -> list[_Complaint]:
    """A branch's complaints with those from inside a further union as one, as jsonschema has them.

    Else a single fault in a union in a union would count once for each of its branches, and the wrong outer
    branch would seem nearer.
    """
    counted: list[_Complaint] = []
    unions: set[str] = set()
    for complaint in branch:
        if len(complaint.fault.branches) == level:
            counted.append(complaint)
            continue
        path, depth, _ = complaint.fault.branches[level]
        if path not in unions:
            unions.add(path)
            counted.append(_Complaint(complaint.fault, depth, wrong_type=False))
    return counted


# --- both ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Complaint:
    """What one branch of a union says against a value; `wrong_type` is about the value as a whole."""

    fault: Any
    depth: int
    wrong_type: bool


def _distance(branch: list[_Complaint]) -> tuple[bool, int, int]:
    """How far a branch is from the value: every branch complains, the one that was meant the least."""
    return (
        any(complaint.wrong_type for complaint in branch),
        len(branch),
        -max(complaint.depth for complaint in branch),
    )


def _name_of(value: Any) -> str:
    if isinstance(value, dict):
        return f"an object of {len(value)} keys"
    if isinstance(value, list):
        return f"an array of {len(value)} items"
    text = canonical_text(value).decode().strip()
    return text if len(text) <= 80 else text[:77] + "..."


def _broken(source: str, path: str, found: str, expected: str) -> EvidenceError:
    return EvidenceError(f"at {path}: found {found}, expected {expected}", where=source)


def as_input(error: QualgateError) -> InputError:
    """The same fault in a file that the user wrote by hand (a configuration): wrong use, not evidence."""
    return InputError(error.what, where=error.where, remedy=error.remedy)
