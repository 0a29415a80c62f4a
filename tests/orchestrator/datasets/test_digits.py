"""The bundled digits against scikit-learn's own, the split, and the refusal of a damaged file."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from orchestrator.datasets import digits
from orchestrator.datasets.digits import load_digits_split
from orchestrator.errors import InputError, UsageError
from orchestrator.hashing import array_sha256


def test_images_and_labels_are_those_of_scikit_learn() -> None:
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
    original = datasets.load_digits()
    split = load_digits_split(seed=7, train_count=1000)
    assert split.train_indices is not None
    assert split.test_indices is not None
    for images, labels, rows in (
        (split.train_images, split.train_labels, split.train_indices),
        (split.test_images, split.query_labels, split.test_indices),
    ):
        np.testing.assert_array_equal(images[:, 0, :8, :8] * 16, original.images[rows])
        np.testing.assert_array_equal(labels, original.target[rows])


def test_form_and_padding() -> None:
    split = load_digits_split(seed=7, train_count=1000)
    assert split.train_images.shape == (1000, 1, 9, 9)
    assert split.test_images.shape == (797, 1, 9, 9)
    assert split.train_images.dtype == split.test_images.dtype == np.float32
    assert split.train_labels.dtype == split.query_labels.dtype == np.int64
    assert not split.train_images[:, :, 8, :].any()
    assert not split.train_images[:, :, :, 8].any()
    assert split.train_images.max() == 1


def test_the_order_is_a_permutation_of_all_images() -> None:
    split = load_digits_split(seed=3, train_count=1297)
    assert split.train_indices is not None
    assert split.test_indices is not None
    order = np.concatenate([split.train_indices, split.test_indices])
    assert order.dtype == np.int64
    np.testing.assert_array_equal(order, np.random.Generator(np.random.PCG64(3)).permutation(1797))


def test_golden_bits_of_the_default_split() -> None:
    split = load_digits_split(seed=2026091400, train_count=1297)
    assert {
        name: array_sha256(getattr(split, name))
        for name in ("train_images", "train_labels", "test_images", "query_labels")
    } == GOLDEN


@pytest.mark.parametrize("count", [1, 1796])
def test_both_parts_may_be_as_small_as_one(count: int) -> None:
    split = load_digits_split(seed=0, train_count=count)
    assert (len(split.train_images), len(split.test_images)) == (count, 1797 - count)


@pytest.mark.parametrize("count", [-1, 0, 1797, 10**9])
def test_a_count_that_leaves_a_part_empty_is_refused(count: int) -> None:
    with pytest.raises(UsageError, match=f"training images: found {count}, expected 1 to 1796"):
        load_digits_split(seed=0, train_count=count)


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(UsageError, match="seed: found -1"):
        load_digits_split(seed=-1, train_count=10)


@pytest.mark.parametrize("damage", ["edited", "truncated", "not gzip", "missing"])
def test_a_damaged_installation_is_told(damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = (Path(digits.__file__).parent / "digits.csv.gz").read_bytes()
    text = gzip.decompress(shipped)
    damaged = {
        "edited": gzip.compress(text.replace(b"16", b"15", 1)),
        "truncated": shipped[:-100],
        "not gzip": text,
    }
    if damage in damaged:
        (tmp_path / "digits.csv.gz").write_bytes(damaged[damage])
    monkeypatch.setattr("importlib.resources.files", lambda _: tmp_path)
    with pytest.raises(InputError, match="install qualgate again"):
        load_digits_split(seed=0, train_count=10)


# From x86-64, NumPy 2.4; the arithmetic is exact, so only another permutation could change them.
GOLDEN = {
    "train_images": "8f68e4a7640bb028c2509576e513c2dee7fb33fa7c4551679e1c5046b0d56f34",
    "train_labels": "dd4896a11c091b4c7e88b54ce8bcf47a2677e61e93ebd555b6cc451a25e5daec",
    "test_images": "2c8e282f8c60007356b3fe7766c557f64bb89ad3d375eb333076e071481864ae",
    "query_labels": "dc6be3f1b52e6850600541d80860c2152cea0110f067b14e7f878ef951a73060",
}
