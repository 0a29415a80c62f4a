"""Reads the sidecar of a record's trace, and checks that it is the one that the record names."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import EvidenceError
from orchestrator.hashing import bytes_sha256
from orchestrator.models import FrozenTrace, TraceFacts
from orchestrator.trace import Trace, parse_trace


def load_trace(folder: Path, facts: TraceFacts | FrozenTrace | None) -> Trace | None:
    """The trace that a record names, from the folder of that record.

    A sidecar that is not there leaves what the record itself holds: the chain heads.

    Raises:
        EvidenceError: when the sidecar is not the one that the record names.
    """
    if facts is None:
        return None
    path = folder / facts.file
    tensors, heads = tuple(facts.tensors), tuple(facts.chain_heads)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Trace(facts.epochs, facts.steps_per_epoch, tensors, heads, None)
    except OSError as error:
        raise EvidenceError(f"cannot be read: {error.strerror}", where=str(path)) from error
    found = bytes_sha256(data)
    if found != facts.file_sha256:
        raise EvidenceError(f"found SHA-256 {found}, expected {facts.file_sha256}", where=str(path))
    trace = parse_trace(data, str(path))
    named = Trace(facts.epochs, facts.steps_per_epoch, tensors, heads, trace.digests)
    if trace != named:
        raise EvidenceError("the trace is not the one whose chain heads the record holds", where=str(path))
    return trace
