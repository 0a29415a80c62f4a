"""Traces read, checked and compared; the sidecar is written out here, apart from the product's writer."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import EvidenceError
from orchestrator.models import TraceFacts
from orchestrator.trace import Trace, can_compare, first_divergence, parse_trace, place_text
from orchestrator.trace_file import load_trace

NAMES = ("core.final", "gradients.weights.2", "parameters.weights.2")


def sidecar(numbers: list[int], epochs: int = 2, steps: int = 3, names: tuple[str, ...] = NAMES) -> bytes:
    """A sidecar, as the fixture's docstring describes it."""
    header = {
        "format": "qualgate-trace", "version": 1, "epochs": epochs, "steps": steps, "tensors": list(names),
    }  # fmt: skip
    return json.dumps(header).encode() + b"\n" + struct.pack(f"<{len(numbers)}Q", *numbers)


NUMBERS = list(range(2 * 3 * len(NAMES) * 2))


def sound() -> Trace:
    return parse_trace(sidecar(NUMBERS), "t")


def changed(epoch: int, step: int, tensor: int, lane: int = 0) -> Trace:
    numbers = list(NUMBERS)
    numbers[((epoch * 3 + step) * len(NAMES) + tensor) * 2 + lane] ^= 1 << 63
    return parse_trace(sidecar(numbers), "t")


def test_a_sidecar_is_read_as_it_was_written() -> None:
    trace = sound()
    assert (trace.epochs, trace.steps_per_epoch, trace.tensors) == (2, 3, NAMES)
    first = (1 * 3 + 2) * len(NAMES) * 2 + 2
    assert trace.digest(1, 2, 1) == struct.pack("<2Q", first, first + 1).hex()


def test_the_chain_is_the_documented_one() -> None:
    data = sidecar(NUMBERS)
    line, _, numbers = data.partition(b"\n")
    head, heads = hashlib.sha256(line + b"\n").digest(), []
    for step in range(6):
        head = hashlib.sha256(head + numbers[step * 48 : (step + 1) * 48]).digest()
        heads.append(head.hex())
    assert sound().chain_heads == (heads[2], heads[5])


@given(st.integers(0, 1), st.integers(0, 2), st.integers(0, 2), st.integers(0, 1))
def test_the_first_difference_is_found_where_it_is(epoch: int, step: int, tensor: int, lane: int) -> None:
    found = first_divergence(sound(), changed(epoch, step, tensor, lane))
    assert found is not None
    assert (found.epoch, found.step, found.tensor) == (epoch, step, NAMES[tensor])
    assert found.expected == sound().digest(epoch, step, tensor)
    assert place_text(found) == f"epoch {epoch}, step {step}, in {NAMES[tensor]}"


def test_equal_traces_and_missing_ones_have_no_difference() -> None:
    assert first_divergence(sound(), sound()) is None
    assert first_divergence(None, sound()) is None
    assert first_divergence(sound(), None) is None


@pytest.mark.parametrize(("epoch", "found_in"), [(0, 0), (1, 1)])
def test_chain_heads_alone_still_name_the_epoch(epoch: int, found_in: int) -> None:
    bare = replace(sound(), digests=None)
    found = first_divergence(bare, changed(epoch, 1, 0))
    assert found is not None
    assert (found.epoch, found.step, found.tensor) == (found_in, None, None)
    assert found.expected == bare.chain_heads[found_in]
    assert first_divergence(bare, sound()) is None


@pytest.mark.parametrize(
    ("other", "place", "said"),
    [
        pytest.param(
            parse_trace(sidecar(list(range(3 * 3 * 6)), epochs=3), "t"), "epoch 2", "3 epochs", id="epochs"
        ),
        pytest.param(
            parse_trace(sidecar(list(range(12)) + list(range(18, 30)), steps=2), "t"),
            "epoch 0, step 2",
            "2 steps an epoch",
            id="steps",
        ),
        pytest.param(
            parse_trace(sidecar(list(range(2 * 3 * 2)), names=("core.final",)), "t"),
            "epoch 0",
            "1 tensors a step",
            id="tensors",
        ),
    ],
)
def test_a_training_of_another_shape_parts_where_the_shapes_do(other: Trace, place: str, said: str) -> None:
    found = first_divergence(sound(), other)
    assert found is not None
    assert (place_text(found), found.found, found.tensor) == (place, said, None)


NOT_A_HEADER = "not the header"


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(lambda d: d[:-1], "found 287 bytes of digests, expected 288", id="cut"),
        pytest.param(lambda d: d + b"\0", "found 289 bytes of digests, expected 288", id="longer"),
        pytest.param(lambda d: b"", "the first line is not JSON", id="empty"),
        pytest.param(lambda d: d.replace(b"qualgate-trace", b"other-trace"), NOT_A_HEADER, id="format"),
        pytest.param(lambda d: d.replace(b'"version": 1', b'"version": 2'), NOT_A_HEADER, id="version"),
        pytest.param(lambda d: d.replace(b'"epochs": 2', b'"epochs": true'), NOT_A_HEADER, id="bool"),
        pytest.param(lambda d: d.replace(b'"steps": 3', b'"steps": 0'), NOT_A_HEADER, id="zero"),
        pytest.param(lambda d: b"[1]\n" + d, NOT_A_HEADER, id="array"),
    ],
)  # fmt: skip
def test_a_damaged_sidecar_is_refused(damage: Callable[[bytes], bytes], said: str) -> None:
    with pytest.raises(EvidenceError, match=said):
        parse_trace(damage(sidecar(NUMBERS)), "t")


@given(st.binary(max_size=200))
def test_no_bytes_are_anything_but_a_trace_or_refused(data: bytes) -> None:
    with pytest.raises(EvidenceError):
        parse_trace(data, "t")


def facts(data: bytes) -> TraceFacts:
    trace = parse_trace(data, "t")
    return TraceFacts(
        epochs=trace.epochs,
        steps_per_epoch=trace.steps_per_epoch,
        tensors=list(trace.tensors),
        chain_heads=list(trace.chain_heads),
        same_process_chain_heads_matched=True,
        kept_step=None,
        file="result.trace",
        file_sha256=hashlib.sha256(data).hexdigest(),
    )


def test_a_sidecar_is_the_one_that_its_record_names(tmp_path: Path) -> None:
    data = sidecar(NUMBERS)
    (tmp_path / "result.trace").write_bytes(data)
    assert load_trace(tmp_path, facts(data)) == sound()
    assert load_trace(tmp_path, None) is None
    other = sidecar([*NUMBERS[:-1], 0])
    with pytest.raises(EvidenceError, match=r"expected [0-9a-f]{64}"):
        load_trace(tmp_path, facts(other))
    forged = facts(data).model_copy(update={"chain_heads": facts(other).chain_heads})
    with pytest.raises(EvidenceError, match="not the one whose chain heads the record holds"):
        load_trace(tmp_path, forged)


def test_a_missing_sidecar_leaves_what_the_record_holds(tmp_path: Path) -> None:
    trace = load_trace(tmp_path, facts(sidecar(NUMBERS)))
    assert trace == replace(sound(), digests=None)


def test_chain_heads_of_trainings_of_other_lengths_are_not_compared() -> None:
    longer = replace(parse_trace(sidecar(list(range(3 * 3 * 6)), epochs=3), "t"), digests=None)
    assert not can_compare(sound(), longer)
    assert first_divergence(sound(), longer) is None


def test_a_sidecar_that_cannot_be_read_is_broken_evidence(tmp_path: Path) -> None:
    (tmp_path / "result.trace").mkdir()
    with pytest.raises(EvidenceError, match="cannot be read"):
        load_trace(tmp_path, facts(sidecar(NUMBERS)))


def test_a_header_that_is_too_deep_is_refused() -> None:
    with pytest.raises(EvidenceError, match="not JSON"):
        parse_trace(b"[" * 200_000 + b"\n", "t")
