"""The one gate for records: round trips, kinds and versions, and whose fault an unreadable file is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import codec, models
from orchestrator.codec import KINDS
from orchestrator.errors import EvidenceError, ExitCode, InputError
from orchestrator.json_text import canonical_text
from tests import strategies as samples
from tests.strategies import DRAWS, SEED, Json

SHARED = Path(__file__).parents[2].parent / "shared" / "seed"

BUILDERS: dict[str, Callable[[], Json]] = {
    "run-record.v2": samples.run_record,
    "run-record.v2-cuda": samples.cuda_run_record,
    "run-record.v2-profile": samples.profile_run_record,
    "run-record.v2-ncu": samples.ncu_run_record,
    "run-record.v2-failed": samples.failed_run_record,
    "fixture-result.v1": lambda: samples.seed_run()["result"],
    "fixture-result.v2": samples.fixture_result,
    "qualification.v1": samples.qualification,
    "protocol.v1": samples.protocol,
    "qualification-plan.v1": samples.qualification_plan,
    "qualification-scores.v1": samples.qualification_scores,
    "qualification-verdict.v1": samples.qualification_verdict,
    "published-draws.v1": samples.published_draws,
    "data.v1": samples.data_manifest,
    "verdict.v1": samples.verdict,
    "audit.v1": samples.audit_report,
    "study.v1": samples.study,
    "config.v1": lambda: dict(samples.CONFIG),
}
every_record = pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)


def broken(value: Any) -> str:
    """What is said against a parsed value, as one line."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    with pytest.raises(EvidenceError) as caught:
        codec.decode(data, "record.json")
    message = str(caught.value)
    assert caught.value.exit_code is ExitCode.EVIDENCE_BROKEN
    assert message.startswith("record.json: at $")
    assert message.splitlines() == [message]
    return message


# --- round trips ---------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [SEED, DRAWS], ids=lambda path: path.name)
def test_the_committed_seed_is_the_published_one(path: Path) -> None:
    published = SHARED / path.name
    if not published.exists():
        pytest.skip("the published records are not beside this checkout")
    assert path.read_bytes() == published.read_bytes()


def test_the_seed_survives_a_load_and_a_save_byte_for_byte() -> None:
    record = codec.load(SEED)
    assert isinstance(record, models.RunRecordV1)
    assert codec.encode(record) == SEED.read_bytes()
    assert not codec.encode(record).endswith(b"\n")


def test_numbers_keep_the_form_that_they_had() -> None:
    # 400.0 and 3 are both numbers of watts and seconds in the seed; neither becomes the other.
    energy = codec.load_as(SEED, models.RunRecordV1).result.energy
    assert energy is not None
    assert repr(energy.hardware.power_limit_w) == "400.0"
    assert repr(energy.trials[0].idle_before.settle_seconds) == "3"


@every_record
def test_any_other_record_is_read_and_written_as_canonical_text(build: Callable[[], Json]) -> None:
    text = canonical_text(build())
    record = codec.decode(text, "record.json")
    assert codec.encode(record) == text
    assert text.endswith(b"}\n")


@every_record
def test_a_record_written_in_any_layout_is_the_same_record(build: Callable[[], Json]) -> None:
    compact = json.dumps(build(), separators=(",", ":")).encode()
    indented = json.dumps(build(), indent="\t").encode() + b"\n\n"
    assert codec.decode(compact, "a") == codec.decode(indented, "b")


@settings(deadline=None, max_examples=30)
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**15), 10**15))
def test_no_number_loses_a_digit_in_a_record(power: float, time: int) -> None:
    value = samples.cuda_run_record()
    trial = value["result"]["energy"]["trials"][0]
    trial["paired_idle_w"] = power
    trial["active"]["start"]["time_s"] = time
    text = canonical_text(value)
    assert codec.encode(codec.decode(text, "record.json")) == text


def test_encoding_refuses_a_record_that_would_not_be_read_back() -> None:
    # model_copy and model_construct skip validation: the gate on the way out does not.
    record = codec.load_as(SEED, models.RunRecordV1)
    damaged = record.model_copy(update={"returncode": "0"})
    with pytest.warns(UserWarning), pytest.raises(EvidenceError, match=r"to be written: at \$\.returncode"):
        codec.encode(damaged)


def test_encoding_refuses_a_number_that_json_lacks() -> None:
    config = models.Config.model_validate(samples.CONFIG).model_copy(update={"alpha": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        codec.encode(config)


# --- kinds and versions --------------------------------------------------------------------------


@pytest.mark.parametrize("name", BUILDERS)
def test_the_kind_and_version_are_told_by_the_content(name: str) -> None:
    value = BUILDERS[name]()
    kind = codec.detect(value, "record.json")
    assert name.startswith(f"{kind.name}.v{kind.version}")
    assert type(codec.decode(canonical_text(value), "record.json")) is kind.model


def test_the_seed_is_a_run_record_of_version_1() -> None:
    kind = codec.detect(samples.seed_run(), "seed.json")
    assert (kind.name, kind.version, kind.model) == ("run-record", 1, models.RunRecordV1)


def test_every_kind_has_its_own_model_and_schema_file() -> None:
    assert len({kind.model for kind in KINDS}) == len({kind.schema_file for kind in KINDS}) == len(KINDS)
    assert [codec.kind_of_model(kind.model) for kind in KINDS] == list(KINDS)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        pytest.param([], "at $: found an array of 0 items, expected an object", id="array"),
        pytest.param("run", 'at $: found "run", expected an object', id="text"),
        pytest.param(None, "at $: found null, expected an object", id="null"),
        pytest.param({}, "at $: found an object of no known kind, expected a qualgate record", id="empty"),
        pytest.param({"kind": "walk"}, "at $: found an object of no known kind", id="unknown-kind"),
        pytest.param({"kind": ["run"]}, "at $: found an object of no known kind", id="kind-is-an-array"),
        pytest.param(
            {"kind": "run", "schema_version": 3},
            "at $.schema_version: found 3, expected 1 or 2 for a run-record",
            id="a-later-version",
        ),
        pytest.param(
            {"kind": "qualification", "schema_version": 2},
            "at $.schema_version: found 2, expected 1 for a qualification",
            id="a-later-version-of-another-kind",
        ),
        pytest.param(
            {"kind": "run", "schema_version": True}, "at $.schema_version: found true, expected", id="true"
        ),
        pytest.param({"kind": "run", "schema_version": 2.0}, "found 2.0, expected 1 or 2", id="2.0"),
        pytest.param({"kind": "run", "schema_version": "2"}, 'found "2", expected 1 or 2', id="text-2"),
        pytest.param(
            {"kind": "run", "schema_version": None}, "found null, expected 1 or 2", id="null-version"
        ),
        pytest.param(
            {"kind": "run"}, "at $.schema_version: found nothing, expected the required key", id="no-version"
        ),
        pytest.param(
            {"predictions_file": "a.npy"},
            "at $.schema_version: found nothing, expected the required key",
            id="a-result-without-a-version",
        ),
    ],
)
def test_an_unknown_kind_or_version_is_told(value: Any, message: str) -> None:
    assert message in broken(value)


def test_a_version_2_field_in_a_version_1_record_is_refused() -> None:
    value = {**samples.seed_run(), "kind": "run", "schema_version": 1}
    assert "at $.kind: found the key, expected no such key" in broken(value)


def test_one_kind_is_not_taken_for_another(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(canonical_text(samples.CONFIG))
    with pytest.raises(InputError) as caught:
        codec.load_as(path, models.QualificationRecord)
    assert caught.value.exit_code is ExitCode.USAGE
    assert str(caught.value) == f"{path}: found a config, expected a qualification"


# --- whose fault it is ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        pytest.param(lambda path: None, "No such file or directory", id="missing"),
        pytest.param(lambda path: path.mkdir(), "Is a directory", id="folder"),
        pytest.param(lambda path: path.symlink_to(path), "Too many levels of symbolic links", id="link-loop"),
    ],
)
def test_a_file_that_cannot_be_read_is_wrong_use(
    make: Callable[[Path], object], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "record.json"
    make(path)
    with pytest.raises(InputError) as caught:
        codec.load(path)
    assert caught.value.exit_code is ExitCode.USAGE
    assert str(caught.value) == f"{path}: cannot be read: {reason}"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(b"", "at $: found the end of the file at line 1 column 1, expected JSON", id="empty"),
        pytest.param(SEED.read_bytes()[:-1], "found the end of the file at line 1517 column 1", id="cut"),
        pytest.param(b"\x00" * 40, "found a syntax error at line 1 column 1", id="zeros"),
        pytest.param(b"\x80PNG", "found byte 0x80 at offset 0, expected UTF-8 text", id="binary"),
        pytest.param(
            SEED.read_bytes().replace(b'"returncode": 0', b'"returncode": 0, "returncode": 0'),
            "at $.returncode: found the key twice, expected every key once",
            id="key-twice",
        ),
        pytest.param(
            SEED.read_bytes().replace(b'"returncode": 0', b'"returncode": NaN'),
            "at $.returncode: found NaN, expected a finite number",
            id="nan",
        ),
        pytest.param(
            SEED.read_bytes().replace(b'"returncode": 0', b'"returncode": "0"'),
            'at $.returncode: found "0", expected type',
            id="wrong-type",
        ),
    ],
)
def test_a_file_that_is_read_and_not_sound_is_broken_evidence(
    data: bytes, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "record.json"
    path.write_bytes(data)
    with pytest.raises(EvidenceError) as caught:
        codec.load(path)
    assert caught.value.exit_code is ExitCode.EVIDENCE_BROKEN
    assert str(caught.value).startswith(f"{path}: at $")
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "text",
    ["a\nb", "a\r\nb", "\u2028", "\x85", "\x1b[31m", "x" * 10_000],
    ids=["newline", "crlf", "line-separator", "next-line", "escape", "long"],
)
@pytest.mark.parametrize("as_key", [False, True], ids=["value", "key"])
def test_a_message_is_one_printable_line_whatever_the_record_holds(text: str, as_key: bool) -> None:
    value = samples.seed_run()
    value |= {text: 1} if as_key else {"action": text}
    message = broken(value)
    assert message.isprintable()
    assert as_key or len(message) < 300


def test_a_fault_in_a_file_of_the_users_own_is_wrong_use() -> None:
    error = EvidenceError("at $.depth: found 0", where="config.json", remedy="say how many")
    as_input = codec.as_input(error)
    assert as_input.exit_code is ExitCode.USAGE
    assert str(as_input) == str(error) == "config.json: at $.depth: found 0; say how many"


# --- places --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "place"),
    [
        pytest.param({"input_sha256": {}}, "$.input_sha256.train_images", id="member"),
        pytest.param({"command": ["python", 3]}, "$.command[1]", id="item"),
        pytest.param({"sur plus": 1}, '$["sur plus"]', id="odd-key"),
    ],
)
def test_a_fault_has_one_path_in_both_checkers(change: Json, place: str) -> None:
    value = {**samples.seed_run(), **change}
    kind = codec.detect(value, "seed.json")
    for check in (
        lambda: codec.check_model(value, kind.model, "seed.json"),
        lambda: codec.check_schema(value, kind, "seed.json"),
    ):
        with pytest.raises(EvidenceError) as caught:
            check()
        assert str(caught.value).startswith(f"seed.json: at {place}: found ")


def test_the_schemas_are_read_from_the_package_and_not_from_the_network() -> None:
    for kind in KINDS:
        assert codec.schema_validator(kind).schema["$id"] == f"urn:qualgate:schema:{kind.name}:{kind.version}"


def test_the_text_of_the_seeds_configuration_has_the_hash_that_the_seed_says() -> None:
    result = samples.seed_run()["result"]
    text = codec.encode(models.Config.model_validate(result["config"]))
    assert hashlib.sha256(text).hexdigest() == result["config_file_sha256"]
