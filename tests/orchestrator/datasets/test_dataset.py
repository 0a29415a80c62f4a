"""The input archive: what is in it, what is not, and that its bytes depend on its arrays alone."""

from __future__ import annotations

import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fixture.inputs import read_archive
from orchestrator.datasets.dataset import Dataset, write_archive
from orchestrator.datasets.synthetic import make_synthetic
from orchestrator.errors import StorageError
from orchestrator.hashing import file_sha256


@pytest.fixture
def dataset() -> Dataset:
    return make_synthetic(30, 20, seed=5)


def test_the_task_process_reads_back_the_same_arrays(dataset: Dataset, tmp_path: Path) -> None:
    write_archive(dataset, tmp_path / "input.npz")
    inputs = read_archive(tmp_path / "input.npz")
    np.testing.assert_array_equal(inputs.train_images, dataset.train_images, strict=True)
    np.testing.assert_array_equal(inputs.train_labels, dataset.train_labels, strict=True)
    np.testing.assert_array_equal(inputs.test_images, dataset.test_images, strict=True)


def test_numpy_reads_exactly_three_uncompressed_arrays(dataset: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "input.npz"
    write_archive(dataset, path)
    with np.load(path, allow_pickle=False) as archive:
        assert list(archive) == ["train_images", "train_labels", "test_images"]
    with zipfile.ZipFile(path) as archive:
        assert {member.compress_type for member in archive.infolist()} == {zipfile.ZIP_STORED}


def test_query_labels_never_change_the_archive(dataset: Dataset, tmp_path: Path) -> None:
    write_archive(dataset, tmp_path / "a.npz")
    write_archive(replace(dataset, query_labels=9 - dataset.query_labels, name="x"), tmp_path / "b.npz")
    assert file_sha256(tmp_path / "a.npz") == file_sha256(tmp_path / "b.npz")


def test_equal_arrays_give_equal_bytes_at_any_time_and_in_any_layout(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_archive(dataset, tmp_path / "a.npz")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    monkeypatch.setattr("time.time", lambda: 1_900_000_000.0)
    other = replace(
        dataset,
        train_images=np.asfortranarray(dataset.train_images),
        train_labels=dataset.train_labels.astype(">i8"),
    )
    write_archive(other, tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_failure_names_the_file_and_leaves_nothing(dataset: Dataset, tmp_path: Path) -> None:
    (tmp_path / "input.npz").mkdir()
    with pytest.raises(StorageError, match=r"input\.npz"):
        write_archive(dataset, tmp_path / "input.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["input.npz"]


def test_inputs_are_the_same_arrays_without_query_labels(dataset: Dataset, tmp_path: Path) -> None:
    inputs = dataset.inputs()
    assert vars(inputs).keys() == vars(dataset).keys() - {"query_labels"}
    write_archive(dataset, tmp_path / "a.npz")
    write_archive(inputs, tmp_path / "b.npz")
    assert file_sha256(tmp_path / "a.npz") == file_sha256(tmp_path / "b.npz")
