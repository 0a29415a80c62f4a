"""Draws from the MNIST training images, resized from 28x28 to 9x9: the data of the seed record.

Draw d takes `order = Generator(PCG64(2026091400 + d)).permutation(60000)`: the first 10,000 rows of it
are for training, the next 10,000 are the queries.

The resize averages by area. In each axis, nine bins of 28/9 pixels lie over 28 pixels, and a pixel
weighs in a bin by their overlap: a whole number of ninths of a pixel, divided by the 28 ninths of a bin.
Its result is the same on every machine, because it is made only of elementwise float32 multiplications
and additions in an order that this file fixes (rows before columns, ascending), and IEEE 754 gives each
of them one result. NumPy runs every multiplication and addition as a loop of its own that stores its
result, so a compiler cannot fuse a pair into one rounding; a matrix product or `sum` promises no order.
The seed record's images came from a matrix product; these differ from them by at most 1.2e-7.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from orchestrator.datasets.dataset import Dataset
from orchestrator.datasets.download import fetch
from orchestrator.datasets.idx import PinnedFile, find_pinned, read_pinned
from orchestrator.errors import UsageError

IMAGES = PinnedFile(
    name="train-images-idx3-ubyte",
    sha256="ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    shape=(60_000, 28, 28),
)
LABELS = PinnedFile(
    name="train-labels-idx1-ubyte",
    sha256="65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    shape=(60_000,),
)

_FIRST_SEED = 2026091400
_DRAWS = 1000
_TRAIN = _QUERY = 10_000
_SIDE_IN, _SIDE_OUT = 28, 9
_IMAGES_PER_CHUNK = 2000  # 6 MB of float32 pixels


def load_mnist_draw(
    draw: int,
    idx_dir: Path | None,
    cache_dir: Path,
    progress: Callable[[int, int | None], None] | None = None,
) -> Dataset:
    """Draw `draw`: 10,000 training and 10,000 query images; the indices are rows of the source.

    Args:
        draw: 0 to 999.
        idx_dir: A folder with MNIST's training images and labels; None takes them from the cache, and
            downloads what is not there.
        cache_dir: Where downloads are kept.
        progress: Called while a file downloads, with its bytes so far and in all, if they are known.

    Raises:
        UsageError: for a draw out of range.
        InputError: when a file is missing, is not the pinned one, or cannot be downloaded.
        StorageError: when a download cannot be kept.
    """
    if not 0 <= draw < _DRAWS:
        raise UsageError(f"draw: found {draw}, expected 0 to {_DRAWS - 1}")
    # The small file first: without a network it is the one to fail on.
    labels = _source(LABELS, idx_dir, cache_dir, progress).astype(np.int64)
    images = _source(IMAGES, idx_dir, cache_dir, progress)
    generator = np.random.Generator(np.random.PCG64(_FIRST_SEED + draw))
    order = generator.permutation(len(images)).astype(np.int64)
    train, query = order[:_TRAIN], order[_TRAIN : _TRAIN + _QUERY]
    return Dataset(
        name=f"mnist-{draw}",
        train_images=resize(images[train]),
        train_labels=labels[train],
        test_images=resize(images[query]),
        query_labels=labels[query],
        train_indices=train,
        test_indices=query,
    )


def _source(
    pin: PinnedFile,
    idx_dir: Path | None,
    cache_dir: Path,
    progress: Callable[[int, int | None], None] | None,
) -> npt.NDArray[np.uint8]:
    if idx_dir is not None:
        return read_pinned(find_pinned(idx_dir, pin), pin)
    return fetch(pin, cache_dir, progress=progress)


def resize(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """Scale to [0, 1] and average by area: uint8 (N, 28, 28) to float32 (N, 1, 9, 9)."""
    resized = np.empty((len(images), 1, _SIDE_OUT, _SIDE_OUT), dtype=np.float32)
    for start in range(0, len(images), _IMAGES_PER_CHUNK):
        part = slice(start, start + _IMAGES_PER_CHUNK)
        # Images go last, so that each operation runs over contiguous memory: (28, 28, n).
        pixels = images[part].transpose(1, 2, 0).astype(np.float32) / np.float32(255)
        by_rows = _average(pixels)  # (9, 28, n)
        by_columns = _average(by_rows.transpose(1, 0, 2))  # (9 columns, 9 rows, n)
        resized[part, 0] = by_columns.transpose(2, 1, 0)
    # Nine weights rounded to float32 may add up to a little more than one.
    return np.clip(resized, np.float32(0), np.float32(1))


def _average(pixels: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Average along the first axis by area: float32 (28, A, n) to (9, A, n)."""
    bins = np.zeros((_SIDE_OUT, *pixels.shape[1:]), dtype=np.float32)
    for target, source, weight in _weights():
        bins[target] += weight * pixels[source]
    return bins


def _weights() -> list[tuple[int, int, np.float32]]:
    """(bin, pixel, weight) for every overlap, in the order of the additions.

    In ninths of a pixel, pixel p covers [9p, 9p + 9) and bin b covers [28b, 28b + 28). The quotient of
    two exact float32 integers is the rational weight, rounded once.
    """
    overlaps = (
        (b, p, min(9 * p + 9, 28 * b + 28) - max(9 * p, 28 * b))
        for b in range(_SIDE_OUT)
        for p in range(_SIDE_IN)
    )
    return [(b, p, np.float32(size) / np.float32(28)) for b, p, size in overlaps if size > 0]
