"""The MNIST draws against the published hashes, and the resize against rational arithmetic."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from orchestrator.datasets import mnist
from orchestrator.datasets.dataset import Dataset
from orchestrator.datasets.idx import PinnedFile, find_pinned, read_pinned
from orchestrator.datasets.mnist import IMAGES, load_mnist_draw, resize
from orchestrator.errors import InputError, UsageError
from orchestrator.hashing import array_sha256

SHARED = Path(__file__).parents[3].parent / "shared"
IDX_DIR = SHARED / "mnist"
needs_mnist = pytest.mark.skipif(not IDX_DIR.is_dir(), reason="no MNIST files in ../shared/mnist")

# From x86-64, NumPy 2.4. Whole numbers and one division: every machine must agree.
DRAW_0_TRAIN_IMAGES = "459ecf92cd517b95ba5e4a16bf319900b210736e0ac631f3a3f8ac5112fd2bb9"
PATTERN = "febeed57bebe41a2c72d108b7d964b03d40c18f3fe6d174d6f7bd0cc354630f3"


def draw(number: int, tmp_path: Path) -> Dataset:
    return load_mnist_draw(number, IDX_DIR, tmp_path / "unused")


# --- draws ---------------------------------------------------------------------------------------


@needs_mnist
@pytest.mark.parametrize("number", range(6))
def test_indices_and_labels_have_the_published_hashes(number: int, tmp_path: Path) -> None:
    table: list[dict[str, Any]] = json.loads((SHARED / "seed" / "mnist-medium-draws.json").read_text())[
        "draws"
    ]
    published = next(entry for entry in table if entry["draw"] == number)
    dataset = draw(number, tmp_path)
    assert dataset.train_indices is not None
    assert dataset.test_indices is not None
    assert array_sha256(dataset.train_indices) == published["train_indices_sha256"]
    assert array_sha256(dataset.test_indices) == published["test_indices_sha256"]
    assert array_sha256(dataset.train_labels) == published["train_labels_sha256"]
    assert not (tmp_path / "unused").exists()


@needs_mnist
def test_images_have_their_form_and_golden_bits(tmp_path: Path) -> None:
    dataset = draw(0, tmp_path)
    for images in (dataset.train_images, dataset.test_images):
        assert images.shape == (10_000, 1, 9, 9)
        assert images.dtype == np.float32
        assert images.min() == 0
        assert 0.9 < images.max() <= 1
    assert dataset.query_labels.shape == (10_000,)
    assert array_sha256(dataset.train_images) == DRAW_0_TRAIN_IMAGES


@needs_mnist
def test_images_are_near_those_of_a_float32_matrix_product(tmp_path: Path) -> None:
    # The seed record's way: its own images are known by their hash only, and machines differ.
    dataset = draw(0, tmp_path)
    assert dataset.test_indices is not None
    raw = read_pinned(find_pinned(IDX_DIR, IMAGES), IMAGES)
    pixels = raw[dataset.test_indices].astype(np.float32) / np.float32(255)
    weights = np.array([[float(share(b, p)) for p in range(28)] for b in range(9)]).astype(np.float32)
    product = np.clip(weights @ pixels @ weights.T, 0, 1)
    assert np.abs(product - dataset.test_images[:, 0]).max() < 2.5e-7


@pytest.mark.parametrize("number", [-1, 1000])
def test_a_draw_out_of_range_is_refused_before_any_file(number: int, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"draw: found {number}, expected 0 to 999"):
        load_mnist_draw(number, tmp_path / "missing", tmp_path / "missing")


def test_an_empty_folder_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train-labels-idx1-ubyte.*--idx-dir"):
        load_mnist_draw(0, tmp_path, tmp_path / "cache")


def test_without_a_folder_the_cache_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, Path, object]] = []

    def fetch(pin: PinnedFile, cache_dir: Path, *, progress: object) -> npt.NDArray[np.uint8]:
        asked.append((pin.name, cache_dir, progress))
        raise InputError("no network")

    def progress(received: int, total: int | None) -> None:
        raise AssertionError((received, total))

    monkeypatch.setattr(mnist, "fetch", fetch)
    with pytest.raises(InputError, match="no network"):
        load_mnist_draw(0, None, tmp_path, progress)
    assert asked == [("train-labels-idx1-ubyte", tmp_path, progress)]


# --- resize --------------------------------------------------------------------------------------


def share(target: int, source: int) -> Fraction:
    """The part of a bin that a pixel covers, straight from the definition: bins are 28/9 pixels wide."""
    width = Fraction(28, 9)
    overlap = min(Fraction(source + 1), (target + 1) * width) - max(Fraction(source), target * width)
    return max(overlap, Fraction(0)) / width


def test_every_pixel_is_the_rational_average_rounded_once() -> None:
    image = np.random.Generator(np.random.PCG64(1)).integers(0, 256, (28, 28)).astype(np.uint8)
    resized = resize(image[np.newaxis])[0, 0]
    half_step = Fraction(1, 2**25)  # of float32 below 1
    for row in range(9):
        for column in range(9):
            exact = sum(
                share(row, i) * share(column, j) * Fraction(int(image[i, j]), 255)
                for i in range(28)
                for j in range(28)
                if share(row, i) and share(column, j)
            )
            assert abs(Fraction(float(resized[row, column])) - exact) <= half_step


@pytest.mark.parametrize("value", [0, 1, 127, 255])
def test_a_plain_image_stays_plain(value: int) -> None:
    resized = resize(np.full((3, 28, 28), value, dtype=np.uint8))
    assert (resized == np.float32(value) / np.float32(255)).all()


def test_golden_bits_over_more_than_one_chunk() -> None:
    pattern = (np.arange(2500 * 28 * 28, dtype=np.int64) * 2654435761 >> 7).astype(np.uint8)
    resized = resize(pattern.reshape(2500, 28, 28))
    assert resized.flags.c_contiguous
    assert array_sha256(resized) == PATTERN


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.Generator(np.random.PCG64(2)).integers(0, 256, (10, 28, 28)).astype(np.uint8)
    whole = resize(images)
    monkeypatch.setattr(mnist, "_IMAGES_PER_CHUNK", 3)
    np.testing.assert_array_equal(resize(images), whole)
