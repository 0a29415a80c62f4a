"""A data set in memory, and the input archive that carries it to the task process."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import numpy.typing as npt

from orchestrator.store import write_atomically

# The earliest time that a ZIP member can have: an archive says nothing about when it was written.
_TIME = (1980, 1, 1, 0, 0, 0)
_MEMBERS = ("train_images", "train_labels", "test_images")


@dataclass(frozen=True, eq=False)
class Inputs:
    """Training images with labels, and query images without: all that predictions are made from.

    name: the source and its choices, for messages.
    train_images: float32 (N, 1, 9, 9) in [0, 1]. train_labels: int64 (N,) in 0..9.
    test_images: float32 (M, 1, 9, 9) in [0, 1].
    train_indices: int64 (N,), test_indices: int64 (M,): rows of the source; None where there is none.
    """

    name: str
    train_images: npt.NDArray[np.float32]
    train_labels: npt.NDArray[np.int64]
    test_images: npt.NDArray[np.float32]
    train_indices: npt.NDArray[np.int64] | None
    test_indices: npt.NDArray[np.int64] | None


@dataclass(frozen=True, eq=False)
class Dataset(Inputs):
    """Inputs with their query labels, which are never archived: the task process does not see them.

    query_labels: int64 (M,) in 0..9.
    """

    query_labels: npt.NDArray[np.int64]

    def inputs(self) -> Inputs:
        """The same without the query labels, for whoever is not to see them yet."""
        return Inputs(**{field.name: getattr(self, field.name) for field in fields(Inputs)})


def write_archive(dataset: Inputs, path: Path) -> None:
    """Write the input archive: an uncompressed `.npz` of exactly the three arrays that the task reads.

    The members are `train_images`, `train_labels` and `test_images`, in this order, little-endian.
    Equal arrays give equal bytes. Holds one copy of the arrays in memory.

    Raises:
        StorageError: when the file cannot be written; nothing is left of the attempt.
    """
    stream = io.BytesIO()
    # `numpy.savez` would do, but promises nothing about the bytes around the arrays.
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name in _MEMBERS:
            array = getattr(dataset, name)
            with archive.open(zipfile.ZipInfo(f"{name}.npy", _TIME), "w", force_zip64=True) as member:
                little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
                np.lib.format.write_array(member, little, version=(1, 0), allow_pickle=False)
    write_atomically(path, stream.getvalue())
