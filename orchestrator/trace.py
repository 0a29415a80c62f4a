"""Traces of training steps: read, checked, and compared to name the first step at which two runs part.

The sidecar's form and the digest's properties are stated in `fixture/tracing.py`. Epochs and steps are
counted from zero.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import EvidenceError
from orchestrator.models import Divergence

_FORMAT = {"format": "qualgate-trace", "version": 1}
_DIGEST_BYTES = 16


@dataclass(frozen=True)
class Trace:
    """The digests of a task's training steps; `digests` is None where only the chain heads are known."""

    epochs: int
    steps_per_epoch: int
    tensors: tuple[str, ...]
    chain_heads: tuple[str, ...]
    digests: bytes | None

    def step(self, epoch: int, step: int) -> bytes:
        """The digests of one step's tensors, one after the other."""
        assert self.digests is not None  # noqa: S101  the caller has asked
        size = len(self.tensors) * _DIGEST_BYTES
        start = (epoch * self.steps_per_epoch + step) * size
        return self.digests[start : start + size]

    def digest(self, epoch: int, step: int, tensor: int) -> str:
        """One tensor's digest, as 32 lower-case hex digits."""
        start = tensor * _DIGEST_BYTES
        return self.step(epoch, step)[start : start + _DIGEST_BYTES].hex()


def parse_trace(data: bytes, source: str) -> Trace:
    """Read a sidecar and compute its hash chain; `source` names it in errors.

    Raises:
        EvidenceError: when it is not a whole trace.
    """
    line, _, digests = data.partition(b"\n")
    header = _header(line, source)
    epochs, steps, tensors = header["epochs"], header["steps"], tuple(header["tensors"])
    expected = epochs * steps * len(tensors) * _DIGEST_BYTES
    if len(digests) != expected:
        raise EvidenceError(f"found {len(digests)} bytes of digests, expected {expected}", where=source)
    size = steps * len(tensors) * _DIGEST_BYTES
    head, heads = hashlib.sha256(line + b"\n").digest(), []
    for epoch in range(epochs):
        for start in range(epoch * size, (epoch + 1) * size, size // steps):
            head = hashlib.sha256(head + digests[start : start + size // steps]).digest()
        heads.append(head.hex())
    return Trace(epochs, steps, tensors, tuple(heads), digests)


def _header(line: bytes, source: str) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise EvidenceError("the first line is not JSON, expected a trace's header", where=source) from error
    sound = (
        isinstance(header, dict)
        and header.keys() == {*_FORMAT, "epochs", "steps", "tensors"}
        and all(header[key] == value for key, value in _FORMAT.items())
        and all(type(header[key]) is int and header[key] > 0 for key in ("epochs", "steps"))
        and isinstance(header["tensors"], list)
        and len(header["tensors"]) > 0
        and all(isinstance(name, str) for name in header["tensors"])
    )
    if not sound:
        raise EvidenceError("the first line is not the header of a version 1 trace", where=source)
    return header  # type: ignore[no-any-return]  # checked just now


def can_compare(expected: Trace | None, found: Trace | None) -> bool:
    """Whether two traces can be compared: chain heads alone tell nothing of trainings of another length."""
    if expected is None or found is None:
        return False
    same_length = (expected.epochs, expected.steps_per_epoch) == (found.epochs, found.steps_per_epoch)
    return same_length or (expected.digests is not None and found.digests is not None)


def first_divergence(expected: Trace | None, found: Trace | None) -> Divergence | None:
    """Where two traces first differ, in the order of the computation; None where they do not.

    Also None where a side has no trace, or `can_compare` says no. `step` and `tensor` are None where only
    chain heads are known, or where one of the runs takes no such step.
    """
    if expected is None or found is None or expected == found:
        return None
    if expected.tensors != found.tensors:
        return _divergence(0, None, None, _tensors(expected), _tensors(found))
    if not can_compare(expected, found):
        return None
    epochs = min(expected.epochs, found.epochs)
    if expected.digests is None or found.digests is None:
        heads = zip(expected.chain_heads, found.chain_heads, strict=False)
        for epoch, (old, new) in enumerate(heads):
            if old != new:
                return _divergence(epoch, None, None, old, new)
        return None
    steps = min(expected.steps_per_epoch, found.steps_per_epoch)
    for epoch in range(epochs):
        for step in range(steps):
            if expected.step(epoch, step) != found.step(epoch, step):
                return _in_step(epoch, step, expected, found)
        if expected.steps_per_epoch != found.steps_per_epoch:
            counts = (f"{trace.steps_per_epoch} steps an epoch" for trace in (expected, found))
            return _divergence(epoch, steps, None, *counts)
    return _divergence(epochs, None, None, f"{expected.epochs} epochs", f"{found.epochs} epochs")


def _in_step(epoch: int, step: int, expected: Trace, found: Trace) -> Divergence:
    for index, name in enumerate(expected.tensors):
        old, new = (trace.digest(epoch, step, index) for trace in (expected, found))
        if old != new:
            return _divergence(epoch, step, name, old, new)
    raise AssertionError("a step that differs has a tensor that does")


def _divergence(epoch: int, step: int | None, tensor: str | None, old: str, new: str) -> Divergence:
    return Divergence(epoch=epoch, step=step, tensor=tensor, expected=old, found=new)


def _tensors(trace: Trace) -> str:
    return f"{len(trace.tensors)} tensors a step"


def place_text(divergence: Divergence) -> str:
    """Where it is, for people: `epoch 1, step 17, in gradients.weights.2`."""
    step = "" if divergence.step is None else f", step {divergence.step}"
    tensor = "" if divergence.tensor is None else f", in {divergence.tensor}"
    return f"epoch {divergence.epoch}{step}{tensor}"
