"""Distances between tensors, against `math.nextafter`'s idea of a neighbour and small cases by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.tensor_difference import tensor_difference, ulp_distances

numbers = st.floats(width=32, allow_nan=False)


@example(float(np.finfo(np.float32).max), 1, np.inf)
@example(1e-45, 2, -np.inf)
@given(numbers, st.integers(0, 50), st.sampled_from([-np.inf, np.inf]))
def test_the_distance_counts_neighbours(start: float, steps: int, towards: float) -> None:
    first = value = np.float32(start)
    taken = 0
    with np.errstate(all="ignore"):  # the largest number has infinity as its neighbour
        while taken < steps and value != np.float32(towards):
            value, taken = np.nextafter(value, np.float32(towards)), taken + 1
    assert ulp_distances(np.array([first]), np.array([value])).tolist() == [taken]


@given(numbers, numbers)
def test_the_distance_is_symmetric_and_zero_for_equal_values_alone(a: float, b: float) -> None:
    one, two = np.array([a], np.float32), np.array([b], np.float32)
    assert ulp_distances(one, two) == ulp_distances(two, one)
    assert (ulp_distances(one, two)[0] == 0) == (one[0] == two[0])


def compared(first: Any, second: Any, dtype: str = "float32") -> Any:
    return tensor_difference("t", np.array(first, dtype), np.array(second, dtype))


def test_the_largest_difference_is_named_with_its_place_and_values() -> None:
    found = compared([[1, 2], [3, 4]], [[1, np.nextafter(np.float32(2), np.float32(3))], [3, 4.5]])
    assert (found.elements, found.differing, found.shape) == (4, 2, [2, 2])
    # 0.5 above 4 in steps of 2^-21.
    assert (found.largest_ulp_distance, found.index) == (2**20, [1, 1])
    assert (found.first, found.second) == ("4.0", "4.5")


def test_another_sign_of_zero_is_a_difference_of_no_distance() -> None:
    found = compared([1, 0.0], [1, -0.0])
    assert (found.differing, found.largest_ulp_distance, found.index) == (1, 0, [1])
    assert (found.first, found.second) == ("0.0", "-0.0")


def test_equal_bits_are_no_difference() -> None:
    assert compared([1, -0.0], [1, -0.0]) is None


def test_integers_and_nan_have_no_distance() -> None:
    found = compared([3, 7], [3, 8], "int64")
    assert (found.largest_ulp_distance, found.index, found.first, found.second) == (None, [1], "7", "8")
    assert compared([1, np.nan], [1, 2]).largest_ulp_distance is None


def test_numbers_are_written_so_that_they_read_back() -> None:
    found = compared([np.float32(0.1)], [np.nextafter(np.float32(0.1), np.float32(1))])
    assert np.float32(found.first) == np.float32(0.1)
    assert np.float32(found.second) == np.nextafter(np.float32(0.1), np.float32(1))


def test_other_shapes_are_refused() -> None:
    with pytest.raises(ValueError, match="t: float32"):
        compared([1.0], [1.0, 2.0])
