"""Loops in which every row needs the rows before it, against their definitions in Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from axil import _core
from axil.kernels.cpu import exchanged, number_keys, sums_before


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3), max_size=60))
def test_keys_are_numbered_in_the_order_they_are_met(keys):
    numbers, count = number_keys(np.array(keys, dtype=np.uint64))
    met = list(dict.fromkeys(keys))
    assert count == len(met)
    assert numbers.tolist() == [met.index(key) for key in keys]


@pytest.mark.parametrize("single", [True, False])
def test_sums_before_are_those_of_a_loop(single):
    rng, n = np.random.default_rng(0), 500
    numbers, order = rng.integers(0, 7, n), rng.permutation(n)
    values = (rng.integers(0, 6, n) / np.float32(5)).astype(np.float32)
    kind = np.float32 if single else np.float64
    sums, counts = np.zeros(7, dtype=kind), np.zeros(7)
    expected = np.empty((2, n), dtype=np.float32)
    for row in order:
        expected[:, row] = sums[numbers[row]], counts[numbers[row]]
        sums[numbers[row]] += kind(values[row])
        counts[numbers[row]] += 1
    np.testing.assert_array_equal(sums_before(numbers, 7, order, values, single), expected)


def test_exchanges_follow_each_other():
    assert exchanged(np.array([0, 0, 1, 0])).tolist() == [3, 2, 0, 1]


def test_numbers_out_of_range_are_refused():
    order, values, out = np.arange(3), np.zeros(3, dtype=np.float32), np.zeros(3, dtype=np.float32)
    with pytest.raises(ValueError, match="numbers has 2"):
        _core.sums_before(np.array([0, 1, 2]), 2, order, values, True, out, out.copy())
    with pytest.raises(ValueError, match="order has -1"):
        _core.sums_before(order, 3, np.array([0, -1, 2]), values, True, out, out.copy())
    with pytest.raises(ValueError, match="values has length 2"):
        _core.sums_before(order, 3, order, values[:2].copy(), True, out, out.copy())
    with pytest.raises(ValueError, match="partners has 3"):
        _core.exchange(np.array([0, 3, 1]), order)
    with pytest.raises(ValueError, match="numbers has length 2"):
        _core.number_keys(np.zeros(3, dtype=np.uint64), np.zeros(2, dtype=np.int64))
