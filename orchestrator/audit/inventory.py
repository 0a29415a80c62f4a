"""The buffer inventory: every tensor a view of a storage, every storage counted once. Pure."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from orchestrator.audit.findings import Findings
from orchestrator.audit.task_layout import ITEM_BYTES, buffers, contiguous_strides
from orchestrator.models import FixtureResult, FixtureResultV1, NamedTensor, Storage, Unavailable

_CUDA_ALIGNMENT = 256
"""What CUDA guarantees of any allocation: CUDA C++ Programming Guide, "Device Memory Accesses"."""

_TRACE = "trace."


def audit_inventory(result: FixtureResultV1 | FixtureResult, path: str, found: Findings) -> None:
    """Tensors against the task's definition, storages against the tensors, sums against both."""
    inventory, place = result.buffer_inventory, f"{path}.buffer_inventory"
    storages = {storage.storage_id: storage for storage in inventory.unique_storages}
    _audit_names(result, place, found)
    for index, tensor in enumerate(inventory.named_tensors):
        _audit_tensor(tensor, storages.get(tensor.storage_id), f"{place}.named_tensors[{index}]", found)
    for index, storage in enumerate(inventory.unique_storages):
        at = f"{place}.unique_storages[{index}]"
        views = [tensor.name for tensor in inventory.named_tensors if tensor.storage_id == storage.storage_id]
        found.equal("inventory.storage-ids", f"{at}.storage_id", storage.storage_id, index)
        found.equal("inventory.aliases", f"{at}.aliases", storage.aliases, views)
        found.equal("inventory.device", f"{at}.device", storage.device, _device(result))
        if storage.device != "cpu":
            found.require(
                "inventory.address-aligned",
                f"{at}.address",
                storage.address % _CUDA_ALIGNMENT == 0,
                storage.address,
                f"a multiple of {_CUDA_ALIGNMENT}",
            )
    _audit_overlap(inventory.unique_storages, place, found)
    _audit_sums(result, place, found)


def _device(result: FixtureResultV1 | FixtureResult) -> str:
    on_cuda = not isinstance(result, FixtureResult) or result.device == "cuda"
    return f"cuda:{result.cuda_device_index}" if on_cuda else "cpu"


def _audit_names(result: FixtureResultV1 | FixtureResult, path: str, found: Findings) -> None:
    tensors = result.buffer_inventory.named_tensors
    wanted = dict(buffers(result.config, result.metadata.train_count, result.metadata.test_count))
    is_traced = isinstance(result, FixtureResult) and result.trace is not None
    names = [tensor.name for tensor in tensors]
    if is_traced:  # a trace records in buffers of its own
        names = [name for name in names if not name.startswith(_TRACE)]
    found.same_items("inventory.names", f"{path}.named_tensors", names, list(wanted))
    for index, tensor in enumerate(tensors):
        if tensor.name in wanted:
            at, array = f"{path}.named_tensors[{index}]", wanted[tensor.name]
            found.equal("inventory.shape", f"{at}.shape", tensor.shape, list(array.shape))
            found.equal("inventory.dtype", f"{at}.dtype", tensor.dtype, f"torch.{array.dtype}")


def _audit_tensor(tensor: NamedTensor, storage: Storage | None, path: str, found: Findings) -> None:
    item_bytes = ITEM_BYTES[tensor.dtype]
    logical = prod(tensor.shape) * item_bytes
    found.equal("inventory.logical-bytes", f"{path}.logical_bytes", tensor.logical_bytes, logical)
    found.equal("inventory.stride", f"{path}.stride", tensor.stride, contiguous_strides(tensor.shape))
    found.require(
        "inventory.storage-known",
        f"{path}.storage_id",
        storage is not None,
        tensor.storage_id,
        "the id of a storage in unique_storages",
    )
    if storage is None:
        return
    found.at_most(
        "inventory.logical-at-most-storage",
        f"{path}.logical_bytes", tensor.logical_bytes, storage.bytes, "the storage's bytes",
    )  # fmt: skip
    last = tensor.storage_offset + sum(
        (size - 1) * step for size, step in zip(tensor.shape, tensor.stride, strict=False)
    )
    end = (last + 1) * item_bytes if logical else 0
    found.require(
        "inventory.view-inside-storage",
        f"{path}.storage_offset",
        end <= storage.bytes,
        f"a view that ends at byte {end}",
        f"one inside its storage of {storage.bytes} bytes",
    )


def _audit_overlap(storages: list[Storage], path: str, found: Findings) -> None:
    """Storages that share bytes would count them twice; an empty one has no place."""
    placed = sorted(
        (storage.address, storage.address + storage.bytes, index)
        for index, storage in enumerate(storages)
        if storage.bytes
    )
    for (_, end, before), (start, _, index) in pairwise(placed):
        found.require(
            "inventory.storages-disjoint",
            f"{path}.unique_storages[{index}].address",
            start >= end,
            start,
            f"{end} or more: behind the storage at unique_storages[{before}]",
        )


def _audit_sums(result: FixtureResultV1 | FixtureResult, path: str, found: Findings) -> None:
    inventory = result.buffer_inventory
    named = inventory.unique_named_storage_bytes
    total = sum(storage.bytes for storage in inventory.unique_storages)
    found.equal("inventory.unique-bytes", f"{path}.unique_named_storage_bytes", named, total)
    live = inventory.allocator_allocated_bytes
    unnamed = inventory.allocated_bytes_without_named_storage_reference
    found.equal(
        "inventory.allocator-counts",
        f"{path}.allocator_allocated_bytes",
        "unavailable" if isinstance(live, Unavailable) else "a count",
        "unavailable" if _device(result) == "cpu" else "a count",
    )
    if isinstance(live, Unavailable):
        found.require(
            "inventory.unnamed-bytes",
            f"{path}.allocated_bytes_without_named_storage_reference",
            isinstance(unnamed, Unavailable),
            unnamed,
            "unavailable, like the allocator's count",
        )
        return
    found.at_most(
        "inventory.named-at-most-live", f"{path}.unique_named_storage_bytes", named, live, "what is live"
    )
    found.equal(
        "inventory.unnamed-bytes",
        f"{path}.allocated_bytes_without_named_storage_reference",
        unnamed,
        live - named,
    )
