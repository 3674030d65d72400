"""Loops in which every row needs the rows before it, against their definitions in Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from axil import _core
from axil.kernels.cpu import encodings_before, exchanged, number_keys


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3), max_size=60))
def test_keys_are_numbered_in_the_order_they_are_met(keys):
    numbers, count = number_keys(np.array(keys, dtype=np.uint64))
    met = list(dict.fromkeys(keys))
    assert count == len(met)
    assert numbers.tolist() == [met.index(key) for key in keys]


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_encodings_before_are_those_of_a_loop(kind):
    rng, n = np.random.default_rng(0), 2500
    numbers = rng.integers(0, 7, n).astype(np.uint32)
    values = (
        rng.integers(0, 2, n).astype(kind)
        if kind == np.uint8
        else (rng.integers(0, 6, n) / kind(5)).astype(kind)
    )
    scales = np.array(
        [[0, 0, 1, 15], [0.5, 0, 1, 255], [-1, -1, 2, 30], [3, 0, 3, 45]], dtype=np.float32
    )
    sums, counts = (
        np.zeros(7, dtype=np.float32 if kind == np.float32 else np.int64),
        np.zeros(7, dtype=np.float32),
    )
    expected = np.empty((len(scales), n), dtype=np.uint8)
    prior, left, norm, n_bins = scales.T
    for j, own in enumerate(numbers):
        expected[:, j] = (
            ((np.float32(sums[own]) + prior) / (counts[own] + np.float32(1)) - left) / norm * n_bins
        )
        sums[own] += values[j]
        counts[own] += 1
    np.testing.assert_array_equal(encodings_before(numbers, 7, values, scales), expected)


def test_exchanges_follow_each_other():
    assert exchanged(np.array([0, 0, 1, 0])).tolist() == [3, 2, 0, 1]


def test_numbers_out_of_range_are_refused():
    order, values, numbers = (
        np.arange(3),
        np.zeros(3, dtype=np.uint8),
        np.arange(3, dtype=np.uint32),
    )
    scales, bins = np.zeros((1, 4), dtype=np.float32), np.zeros((1, 3), dtype=np.uint8)
    with pytest.raises(ValueError, match="numbers has 2"):
        _core.encodings_before(numbers, 2, values, scales, bins)
    with pytest.raises(ValueError, match="values has length 2"):
        _core.encodings_before(numbers, 3, values[:2].copy(), scales, bins)
    with pytest.raises(ValueError, match="scales has shape"):
        _core.encodings_before(numbers, 3, values, scales[:, :3].copy(), bins)
    with pytest.raises(ValueError, match="partners has 3"):
        _core.exchange(np.array([0, 3, 1]), order)
    with pytest.raises(ValueError, match="numbers has length 2"):
        _core.number_keys(np.zeros(3, dtype=np.uint64), np.zeros(2, dtype=np.int64))
