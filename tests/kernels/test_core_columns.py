"""The kernels' columns: none depends, to the last bit, on those beside it; and products and sums that are made so."""

import numpy as np
import pytest

from axil import _core


@pytest.mark.parametrize("leaves", [2, 31, 300])
def test_no_column_depends_on_those_beside_it(leaves):
    """To the last bit, for numbers of columns that take other tiles, joins of trees and strips; in single blocks of rows too."""
    rng = np.random.default_rng(0)
    n, trees, widest = 9001, 9, 120
    cells = rng.integers(0, leaves, (trees, n)).astype(np.uint8 if leaves < 256 else np.uint16)
    starts = leaves * np.arange(trees + 1)
    table, state = rng.normal(size=(trees * leaves, widest)), rng.normal(size=(n, widest))
    values, left = rng.normal(size=(n, 2)), rng.normal(size=(70, 300))
    few = np.array([1, 4, 5])

    def results(own):
        columns = np.ascontiguousarray(table[:, own])
        moved, sums, out = (
            state[:, own].copy(),
            np.zeros_like(columns),
            np.empty((n, columns.shape[1])),
        )
        _core.sweep(cells, starts, moved, few, columns, None, few + 1, sums, values[:, 0].copy(), 2)
        _core.read_out(cells, starts, columns, columns[0].copy(), None, 0, out, 2)
        blocks = [np.empty_like(out[first : first + 1000]) for first in range(0, n, 1000)]
        for first, block in zip(range(0, n, 1000), blocks):
            _core.read_out(cells, starts, columns, columns[0].copy(), None, first, block, 2)
        np.testing.assert_array_equal(np.concatenate(blocks), out)
        largest, rows = np.zeros((out.shape[1], 3)), np.full((out.shape[1], 3), -1)
        _core.top_rows(cells, starts, columns, columns[0].copy(), None, None, largest, rows, 2)
        np.testing.assert_array_equal(out.T[np.arange(len(rows))[:, None], rows], largest)
        products = np.empty((len(left), columns.shape[1]))
        _core.product(
            left[:, : min(300, len(columns))], np.ascontiguousarray(columns[:300]), products, 2
        )
        found = [np.empty((out.shape[1], 2)) for _ in range(3)]
        for measure, one in enumerate(found):
            _core.column_sums(out, values, measure, one, 2)
        both = np.empty((2, out.shape[1], 2))
        _core.moments(cells, starts, columns, columns[0].copy(), None, values, both, 2)
        return [moved.T, sums.T, out.T, products.T, *found, *both]

    expected = results(slice(0, widest))
    for own in (slice(0, 1), slice(7, 8), slice(3, 5), slice(20, 33), slice(40, 56), slice(10, 60)):
        for found, whole in zip(results(own), expected):
            np.testing.assert_array_equal(found, whole[own])


@pytest.mark.parametrize("order", ["C", "F"])
def test_products_and_sums_of_columns(order):
    """NumPy's own products, to the rounding of sums of so many numbers; the layout of a block changes no bit."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(37, 90))[:, :81], rng.normal(size=(81, 19))
    out = np.empty((37, 19))
    _core.product(a, b, out, 2)
    np.testing.assert_allclose(out, a @ b, rtol=0, atol=1e-12)
    block, values = rng.normal(size=(5000, 19)), rng.normal(size=(5000, 3))
    for measure, measured in enumerate((block, np.abs(block), block**2)):
        sums, plain = np.empty((2, 19, 3))
        _core.column_sums(np.asarray(block, order=order), values, measure, sums, 2)
        _core.column_sums(block, values, measure, plain, 1)
        np.testing.assert_allclose(sums, measured.T @ values, rtol=0, atol=1e-10)
        np.testing.assert_array_equal(sums, plain)
    with pytest.raises(ValueError, match="a has shape"):
        _core.product(a[:, :3], b, out, 1)
    with pytest.raises(ValueError, match="measure is 3"):
        _core.column_sums(block, values, 3, np.empty((19, 3)), 1)
