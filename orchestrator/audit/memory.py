"""Memory: what the counts around preparation and first invocation must be to each other. Pure."""

from __future__ import annotations

from orchestrator.audit.findings import Findings
from orchestrator.models import (
    CacheReference,
    CudaMemory,
    FixtureResult,
    FixtureResultV1,
    ProcessMemory,
    Unavailable,
)


def audit_memory(result: FixtureResultV1 | FixtureResult, path: str, found: Findings) -> None:
    """Whatever the device's kind of memory lets one derive."""
    place = f"{path}.memory"
    match result.memory:
        case CudaMemory() as memory:
            found.equal("memory.device", place, "cuda", _device(result))
            _audit_allocator(memory, place, found)
            found.equal(
                "memory.inventory-live",
                f"{path}.buffer_inventory.allocator_allocated_bytes",
                result.buffer_inventory.allocator_allocated_bytes,
                memory.allocated_after_invoke_bytes,
            )
        case ProcessMemory() as memory:
            found.equal("memory.device", place, "cpu", _device(result))
            _audit_resident(memory, place, found)
        case Unavailable():
            found.equal("memory.device", place, "cpu", _device(result))


def audit_cache_reference(result: FixtureResultV1 | FixtureResult, path: str, found: Findings) -> None:
    """The capacity in the unit that a person reads."""
    reference = result.cache_reference
    if isinstance(reference, CacheReference):
        size = reference.bytes
        unit = f"{size / 2**20:g} MiB" if size >= 2**20 else f"{size // 1024} KiB"
        found.equal("memory.cache-unit", f"{path}.cache_reference.unit", reference.unit, unit)


def _device(result: FixtureResultV1 | FixtureResult) -> str:
    return result.device if isinstance(result, FixtureResult) else "cuda"


def _audit_allocator(memory: CudaMemory, path: str, found: Findings) -> None:
    before, prepared = memory.allocated_before_prepare_bytes, memory.allocated_after_prepare_bytes
    after, peak = memory.allocated_after_invoke_bytes, memory.prepare_and_invoke_peak_allocated_bytes
    reserved, reserved_peak = (
        memory.reserved_after_invoke_bytes,
        memory.prepare_and_invoke_peak_reserved_bytes,
    )

    for name in ("allocated_before_prepare_bytes", "reserved_before_prepare_bytes"):
        found.equal("memory.fresh-allocator", f"{path}.{name}", getattr(memory, name), 0)
    for name in (
        "allocated_before_prepare_bytes",
        "allocated_after_prepare_bytes",
        "allocated_after_invoke_bytes",
    ):
        found.at_most("memory.live-at-most-peak", f"{path}.{name}", getattr(memory, name), peak, "the peak")
    # A captured task is replayed in the memory that its capture took.
    found.equal("memory.replay-allocates-nothing", f"{path}.allocated_after_invoke_bytes", after, prepared)
    found.at_most(
        "memory.live-at-most-reserved",
        f"{path}.allocated_after_invoke_bytes", after, reserved, "what is reserved",
    )  # fmt: skip
    found.at_most(
        "memory.peak-at-most-reserved-peak",
        f"{path}.prepare_and_invoke_peak_allocated_bytes", peak, reserved_peak, "the reserved peak",
    )  # fmt: skip
    found.at_most(
        "memory.reserved-at-most-reserved-peak",
        f"{path}.reserved_after_invoke_bytes", reserved, reserved_peak, "the reserved peak",
    )  # fmt: skip
    found.equal(
        "memory.added-peak",
        f"{path}.added_peak_over_entry_allocated_bytes",
        memory.added_peak_over_entry_allocated_bytes,
        peak - before,
    )


def _audit_resident(memory: ProcessMemory, path: str, found: Findings) -> None:
    peak = memory.prepare_and_invoke_peak_resident_bytes
    counted = (
        "resident_before_prepare_bytes",
        "resident_after_prepare_bytes",
        "resident_after_invoke_bytes",
        "prepare_and_invoke_peak_resident_bytes",
    )
    for name in counted:
        value = getattr(memory, name)
        found.at_most("memory.live-at-most-peak", f"{path}.{name}", value, peak, "the peak")
        found.require(  # proc(5): VmRSS and VmHWM are in kB
            "memory.whole-kibibytes", f"{path}.{name}", value % 1024 == 0, value, "whole kibibytes"
        )
        found.require(
            "memory.resident", f"{path}.{name}", value > 0, value, "more than 0: a process is running"
        )
    found.equal(
        "memory.added-peak",
        f"{path}.added_peak_over_entry_resident_bytes",
        memory.added_peak_over_entry_resident_bytes,
        peak - memory.resident_before_prepare_bytes,
    )
