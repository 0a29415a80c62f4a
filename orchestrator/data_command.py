"""What `qualgate data` writes: an input archive, the query labels beside it, and a manifest of both."""

from __future__ import annotations

import io
from pathlib import Path

from orchestrator import models
from orchestrator.cases import named_case
from orchestrator.codec import encode
from orchestrator.datasets.dataset import write_archive
from orchestrator.errors import UsageError
from orchestrator.hashing import array_sha256, file_sha256
from orchestrator.runner import RunOptions, input_hashes, load_dataset
from orchestrator.store import make_folder, write_atomically

_ARCHIVE, _LABELS, _MANIFEST = "input.npz", "query_labels.npy", "data.json"


def source_of(name: str, draw: int, seed: int | None, train: int | None, query: int) -> models.DataSource:
    """The data source that the arguments mean.

    Raises:
        UsageError: for an unknown source or a number out of range.
    """
    if seed is not None and seed < 0:
        raise UsageError(f"--seed: found {seed}, expected at least 0")
    for option, value in (("--draw", draw), ("--train", train), ("--query", query)):
        if value is not None and value < (0 if option == "--draw" else 1):
            raise UsageError(f"{option}: found {value}, expected a number in range")
    match name:
        case "digits":
            default = named_case("digits").data
            assert isinstance(default, models.DigitsSource)  # noqa: S101  the case named digits is
            return models.DigitsSource(
                kind="digits",
                seed=default.seed if seed is None else seed,
                train_count=default.train_count if train is None else train,
            )
        case "mnist":
            return models.MnistSource(kind="mnist", draw=draw)
        case "synthetic":
            return models.SyntheticSource(
                kind="synthetic", seed=seed or 0, train_count=train or 1000, query_count=query
            )
        case _:
            raise UsageError(f"found source {name!r}, expected digits, mnist or synthetic")


def write_data(source: models.DataSource, options: RunOptions, out: Path) -> models.DataManifest:
    """Write the archive, the query labels and the manifest into `out`; the manifest comes last.

    Raises:
        InputError: when the source cannot be read.
        StorageError: when a file cannot be written.
    """
    import numpy as np

    dataset = load_dataset(source, options)
    make_folder(out)
    write_archive(dataset, out / _ARCHIVE)
    stream = io.BytesIO()
    np.save(stream, dataset.query_labels, allow_pickle=False)
    write_atomically(out / _LABELS, stream.getvalue())
    indices = (dataset.train_indices, dataset.test_indices)
    train_indices, test_indices = (None if i is None else array_sha256(i) for i in indices)
    manifest = models.DataManifest(
        kind="data",
        schema_version=1,
        data=source,
        train_count=len(dataset.train_images),
        test_count=len(dataset.test_images),
        input_sha256=input_hashes(dataset),
        archive_file=_ARCHIVE,
        archive_sha256=file_sha256(out / _ARCHIVE),
        query_labels_file=_LABELS,
        query_labels_sha256=array_sha256(dataset.query_labels),
        train_indices_sha256=train_indices,
        test_indices_sha256=test_indices,
    )
    write_atomically(out / _MANIFEST, encode(manifest))
    return manifest
