"""Draws from the MNIST training images, resized from 28x28 to 9x9: the data of the seed record.

Draw d takes `order = Generator(PCG64(2026091400 + d)).permutation(60000)`: the first 10,000 rows of it
are for training, the next 10,000 are the queries.

The resize averages by area. In each axis, nine bins of 28/9 pixels lie over 28 pixels, and a pixel
weighs in a bin by their overlap. Counted in ninths of a pixel, every overlap is a whole number and a bin
has 28 of them, so a resized pixel is a whole number of at most 28 * 28 * 255, divided by 28 * 28 * 255.
It is computed by elementwise float32 multiplications and additions in an order that this file fixes
(rows before columns, ascending) and one division at the end. That gives the same bits on every machine,
and would in any other order and with any fused operation: all numbers before the division are whole and
below 2**24, hence exact in float32, and IEEE 754 gives the division one result.

It is the average itself, rounded once. The seed record's images came from a float32 matrix product,
which rounds at every step, differently on each machine: they differ from these by some 1.2e-7.
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
        # Images go last, so that each operation runs over contiguous memory.
        pixels = images[part].transpose(1, 2, 0).astype(np.float32)  # (28 rows, 28 columns, n)
        by_rows = _add_up(pixels)  # (9 rows, 28 columns, n)
        by_columns = _add_up(by_rows.transpose(1, 0, 2))  # (9 columns, 9 rows, n)
        resized[part, 0] = by_columns.transpose(2, 1, 0) / np.float32(_SIDE_IN * _SIDE_IN * 255)
    return resized


def _add_up(pixels: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Add up the first axis by overlap, in ninths of a pixel: float32 (28, A, n) to (9, A, n)."""
    bins = np.zeros((_SIDE_OUT, *pixels.shape[1:]), dtype=np.float32)
    for target, source, overlap in _OVERLAPS:
        bins[target] += np.float32(overlap) * pixels[source]
    return bins


def _overlap(target: int, source: int) -> int:
    """How much of a bin and a pixel coincide, in ninths of a pixel; not positive where nothing does."""
    # Pixel p covers [9p, 9p + 9) and bin b covers [28b, 28b + 28).
    begin = max(_SIDE_OUT * source, _SIDE_IN * target)
    end = min(_SIDE_OUT * (source + 1), _SIDE_IN * (target + 1))
    return end - begin


# (bin, pixel, overlap), in the order of the additions.
_OVERLAPS = tuple(
    (target, source, _overlap(target, source))
    for target in range(_SIDE_OUT)
    for source in range(_SIDE_IN)
    if _overlap(target, source) > 0
)
