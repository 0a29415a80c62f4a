"""How far apart two tensors are, bit for bit. Pure: arrays in, a `TensorDifference` out."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from orchestrator.models import TensorDifference


def ulp_distances(first: npt.NDArray[np.float32], second: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """How many steps from one float32 number to the next lie between, element by element, int64.

    The numbers are put in one row by their bits, negative ones mirrored, so that both zeros are the same
    place. NaNs have no place there: their distance says nothing.
    """
    distances: npt.NDArray[np.int64] = np.abs(_places(first) - _places(second))
    return distances


def _places(values: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    bits = values.view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def tensor_difference(
    name: str, first: npt.NDArray[Any], second: npt.NDArray[Any]
) -> TensorDifference | None:
    """Compare two tensors of one shape and dtype, float32 or int64; None where every bit is equal.

    Raises:
        ValueError: for other shapes or dtypes than each other's.
    """
    if (first.dtype, first.shape) != (second.dtype, second.shape):
        raise ValueError(f"{name}: {first.dtype}{first.shape} and {second.dtype}{second.shape}")
    unequal = first.view(f"u{first.itemsize}") != second.view(f"u{first.itemsize}")
    if not unequal.any():
        return None
    largest = None
    sizes = np.where(unequal, 1, 0)
    if first.dtype == np.float32 and not (np.isnan(first[unequal]).any() or np.isnan(second[unequal]).any()):
        distances = ulp_distances(first, second)
        largest = int(distances.max())
        # An element with another sign of zero alone has distance 0, and still counts before equal ones.
        sizes = np.where(unequal, distances + 1, 0)
    index = np.unravel_index(int(sizes.argmax()), sizes.shape)
    return TensorDifference(
        tensor=name,
        dtype=first.dtype.name,
        shape=list(first.shape),
        elements=first.size,
        differing=int(unequal.sum()),
        largest_ulp_distance=largest,
        index=[int(place) for place in index],
        first=str(first[index]),
        second=str(second[index]),
    )
