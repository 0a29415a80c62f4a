"""Generated images of any size: ten classes that can be learned, the same bits on every machine.

Each class has a prototype of 81 random bytes, and each image mixes its class's prototype with fresh
random bytes, one part to two. Everything up to the last step is integer arithmetic on PCG64's raw
output, whose stream NumPy fixes for good (unlike that of its distributions); the last step divides two
exactly represented float32 integers, which IEEE 754 rounds in one way only.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from orchestrator.datasets.dataset import Dataset
from orchestrator.errors import UsageError

# As many as the task process accepts: 324 MB of float32 pixels.
MAXIMUM_EXAMPLES = 1_000_000

_CLASSES = 10
_PIXELS = 81
_WORDS_PER_IMAGE = 11  # 64-bit words: 88 bytes, of which 81 are pixels
_IMAGES_PER_CHUNK = 65_536


def make_synthetic(train_count: int, query_count: int, seed: int) -> Dataset:
    """Generate a data set; pixels are k/255 with whole k, classes as equal in number as can be.

    The training part depends on `train_count` and `seed` alone.

    Args:
        train_count: Training images, 1 to 1,000,000.
        query_count: Query images, 1 to 1,000,000.
        seed: Of the PCG64 stream, at least 0.

    Raises:
        UsageError: for a count or seed out of range.
    """
    for name, count in (("training", train_count), ("query", query_count)):
        if not 1 <= count <= MAXIMUM_EXAMPLES:
            raise UsageError(f"{name} images: found {count}, expected 1 to {MAXIMUM_EXAMPLES}")
    if seed < 0:
        raise UsageError(f"seed: found {seed}, expected at least 0")
    stream = np.random.PCG64(seed)
    prototypes = _random_images(stream, _CLASSES)
    train_labels, train_images = _examples(stream, prototypes, train_count)
    query_labels, test_images = _examples(stream, prototypes, query_count)
    return Dataset(
        name=f"synthetic-{train_count}-{query_count}",
        train_images=train_images,
        train_labels=train_labels,
        test_images=test_images,
        query_labels=query_labels,
        train_indices=None,
        test_indices=None,
    )


def _examples(
    stream: np.random.PCG64, prototypes: npt.NDArray[np.uint8], count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    # Ranks of random words are a random order; modulo ten, they are labels of equal number.
    ranks = np.argsort(stream.random_raw(count), kind="stable")
    labels = (ranks % _CLASSES).astype(np.int64)
    images = np.empty((count, 1, 9, 9), dtype=np.float32)
    for start in range(0, count, _IMAGES_PER_CHUNK):
        part = slice(start, start + _IMAGES_PER_CHUNK)
        own = prototypes[labels[part]].astype(np.uint16)
        noise = _random_images(stream, len(own)).astype(np.uint16)
        mixed = (own + 2 * noise) // 3
        images[part] = (mixed.astype(np.float32) / np.float32(255)).reshape(-1, 1, 9, 9)
    return labels, images


def _random_images(stream: np.random.PCG64, count: int) -> npt.NDArray[np.uint8]:
    """Uniform bytes (count, 81): the low bytes of each word come first, whatever the machine's order."""
    words = stream.random_raw(count * _WORDS_PER_IMAGE).astype("<u8")
    return words.view(np.uint8).reshape(count, 8 * _WORDS_PER_IMAGE)[:, :_PIXELS]
