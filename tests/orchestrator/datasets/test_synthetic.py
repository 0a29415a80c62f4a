"""Generated data: golden bits, classes that are covered and can be learned, and bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fixture.inputs import MAXIMUM_EXAMPLES as ACCEPTED_BY_THE_TASK
from orchestrator.datasets.synthetic import MAXIMUM_EXAMPLES, make_synthetic
from orchestrator.errors import UsageError
from orchestrator.hashing import array_sha256


def test_golden_bits() -> None:
    dataset = make_synthetic(1000, 500, seed=11)
    assert {
        name: array_sha256(getattr(dataset, name))
        for name in ("train_images", "train_labels", "test_images", "query_labels")
    } == GOLDEN


@settings(max_examples=25, deadline=None)
@given(train=st.integers(1, 300), query=st.integers(1, 300), seed=st.integers(0, 2**70))
def test_form_range_and_balance(train: int, query: int, seed: int) -> None:
    dataset = make_synthetic(train, query, seed)
    for images, labels, count in (
        (dataset.train_images, dataset.train_labels, train),
        (dataset.test_images, dataset.query_labels, query),
    ):
        assert images.shape == (count, 1, 9, 9)
        assert images.dtype == np.float32
        assert labels.shape == (count,)
        assert labels.dtype == np.int64
        steps = np.rint(images.astype(np.float64) * 255)
        assert steps.min() >= 0
        assert steps.max() <= 255
        np.testing.assert_array_equal(images, steps.astype(np.float32) / np.float32(255))
        numbers = np.bincount(labels, minlength=10)
        assert len(numbers) == 10
        assert numbers.max() - numbers.min() <= 1
    assert dataset.train_indices is None
    assert dataset.test_indices is None


def test_the_classes_can_be_learned_and_are_not_given_away_by_the_order() -> None:
    dataset = make_synthetic(1000, 500, seed=3)
    flat = dataset.train_images.reshape(-1, 81)
    means = np.stack([flat[dataset.train_labels == digit].mean(axis=0) for digit in range(10)])
    distances = ((dataset.test_images.reshape(-1, 1, 81) - means) ** 2).sum(axis=2)
    assert np.mean(distances.argmin(axis=1) == dataset.query_labels) > 0.95
    assert np.mean(np.arange(500) % 10 == dataset.query_labels) < 0.3


def test_the_training_part_does_not_depend_on_the_queries() -> None:
    first, second = make_synthetic(40, 1, seed=1), make_synthetic(40, 90, seed=1)
    np.testing.assert_array_equal(first.train_images, second.train_images)
    np.testing.assert_array_equal(first.train_labels, second.train_labels)


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make_synthetic(100, 50, seed=2)
    monkeypatch.setattr("orchestrator.datasets.synthetic._IMAGES_PER_CHUNK", 7)
    chunked = make_synthetic(100, 50, seed=2)
    np.testing.assert_array_equal(whole.train_images, chunked.train_images)
    np.testing.assert_array_equal(whole.test_images, chunked.test_images)


def test_seeds_give_different_data() -> None:
    assert not np.array_equal(make_synthetic(9, 9, 0).train_images, make_synthetic(9, 9, 1).train_images)


@pytest.mark.parametrize(
    ("train", "query", "seed", "said"),
    [
        (0, 1, 0, "training images: found 0, expected 1 to 1000000"),
        (1, 0, 0, "query images: found 0, expected 1 to 1000000"),
        (1_000_001, 1, 0, "training images: found 1000001"),
        (1, 10**30, 0, "query images: found 1000"),
        (1, 1, -1, "seed: found -1, expected at least 0"),
    ],
)
def test_out_of_range(train: int, query: int, seed: int, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        make_synthetic(train, query, seed)


def test_the_bound_is_what_the_task_process_accepts() -> None:
    assert MAXIMUM_EXAMPLES == ACCEPTED_BY_THE_TASK


# From x86-64, NumPy 2.4. Integer arithmetic and one division: every machine must agree.
GOLDEN = {
    "train_images": "b589093a03edd5dd1860e0ac1b3ee10a245f0929870df2d2f3922e814488bcfa",
    "train_labels": "f277790c72997c1ef9b8d189595787f7f662ec1d9bd8bc88a27c8ca80076746c",
    "test_images": "995d551b16469a04b541065af8a823de14e7a34aab5a121835d9bf3906817244",
    "query_labels": "2ab819b928aabd9f6fa326d10e9bd7cbea07d2a813a6ca7438dfd2c3e15e1d3d",
}
