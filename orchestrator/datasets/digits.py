"""1,797 real handwritten digits of 8x8 pixels, shipped with the package: the data of the default case.

`digits.csv.gz` is the file that scikit-learn distributes (BSD-3-Clause) as `load_digits`. It is the test
set of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak, UCI Machine Learning
Repository (1998), https://doi.org/10.24432/C50P49, licensed CC BY 4.0, unchanged. A line is one image:
64 pixels of 0..16 and its digit. It is shipped because 57 kB do not justify the dependency on
scikit-learn and SciPy; a test compares the two.
"""

from __future__ import annotations

import gzip
import zlib
from importlib import resources

import numpy as np
import numpy.typing as npt

from orchestrator.datasets.dataset import Dataset
from orchestrator.errors import InputError, UsageError
from orchestrator.hashing import bytes_sha256

_FILE = "digits.csv.gz"
# Of the decompressed text: what a compressor writes is not specified.
_SHA256 = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"
_COUNT = 1797
_PIXELS = 64


def load_digits_split(seed: int, train_count: int) -> Dataset:
    """Split the digits by a seeded permutation: the first `train_count` for training, the rest as queries.

    Pixels are k/16, exact in float32. A row of zeros below and a column of zeros at the right make 9x9
    of 8x8. The indices are rows of the file. The order is `Generator(PCG64(seed)).permutation(1797)`.

    Args:
        seed: Of the permutation, at least 0.
        train_count: Training images, 1 to 1796.

    Raises:
        UsageError: for a seed or count out of range.
        InputError: when the shipped file is damaged.
    """
    if seed < 0:
        raise UsageError(f"seed: found {seed}, expected at least 0")
    if not 1 <= train_count < _COUNT:
        raise UsageError(f"training images: found {train_count}, expected 1 to {_COUNT - 1}")
    images, labels = _load()
    order = np.random.Generator(np.random.PCG64(seed)).permutation(_COUNT).astype(np.int64)
    train, query = order[:train_count], order[train_count:]
    return Dataset(
        name="digits",
        train_images=images[train],
        train_labels=labels[train],
        test_images=images[query],
        query_labels=labels[query],
        train_indices=train,
        test_indices=query,
    )


def _load() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """All images, float32 (1797, 1, 9, 9), and labels, int64 (1797,), in the file's order."""
    text = _text()
    table = np.array([line.split(b",") for line in text.splitlines()]).astype(np.int64)
    images = np.zeros((_COUNT, 1, 9, 9), dtype=np.float32)
    images[:, 0, :8, :8] = table[:, :_PIXELS].reshape(_COUNT, 8, 8).astype(np.float32) / np.float32(16)
    return images, table[:, _PIXELS]


def _text() -> bytes:
    file = resources.files("orchestrator.datasets") / _FILE
    try:
        text = gzip.decompress(file.read_bytes())
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(str(error)) from error
    if (found := bytes_sha256(text)) != _SHA256:
        raise _damaged(f"found SHA-256 {found} of its text, expected {_SHA256}")
    return text


def _damaged(what: str) -> InputError:
    return InputError(what, where=_FILE, remedy="the installation is damaged: install qualgate again")
