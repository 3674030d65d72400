"""Spread: the mean of a quantity of the training rows, such as the size of their residuals, around each row or query.

Of trees the rows around x are those that share its leaves. Every tree with such rows counts once:

    around(x) = mean over the trees t of the mean of v_i over the training rows i in leaf_t(x)

and of a training row itself its own v is left out. Leaves are counted by membership: neither sample
weights nor draws take part, so rows that a tree did not draw say as much of the noise in their leaf
as those that made its value. That is two passes over the rows, O(T N S), and nothing of size (N, N)
or (T, N) exists. Means by |weight| need all of K and find no more wrong labels
(experiments/label_noise.py).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.arrays import BoolArray, FloatArray, LeafArray
from axil.kernels import Rows
from axil.structure import Structure


def around_leaves(
    structure: Structure, rows: Rows, queries: LeafArray | None, values: FloatArray
) -> FloatArray:
    """(n, S): the means of values (N, S) around queries in these trees' leaves, (n, T), or around the training rows.

    A row of values with a nan is not known, and no mean counts it. nan where no tree has a row that
    is known, or another one.
    """
    sums = known_leaf_sums(structure, rows, values)
    if queries is not None:
        return _looked_up(structure, _means(sums, 0.0), queries)
    return around_training_rows(structure, rows, sums, values)


def known_leaf_sums(structure: Structure, rows: Rows, values: FloatArray) -> FloatArray:
    """Return the leaf sums of values (N, S) of the rows that are known, and their numbers, (L, S + 1).

    A row of values with a nan is not known. Sums of several shards of the rows add up.
    """
    return by_leaf(structure, rows, _with_counts(values))


def around_training_rows(
    structure: Structure, rows: Rows, sums: FloatArray, values: FloatArray
) -> FloatArray:
    """Return the means of values (N, S) over the other rows in each row's leaves, (N, S).

    Parameters
    ----------
    structure : Structure
        The structure of the rows, which may be those of one shard.
    rows : Rows
    sums : array of shape (L, S + 1)
        `known_leaf_sums` of all rows.
    values : array of shape (N, S)
    """
    known = _known(values)
    around = np.empty((structure.n_rows, values.shape[1]))
    if not known.all():
        means_of_all = _read_out(structure, rows, _means(sums, 0.0))
        around[~known] = _divided(means_of_all, 0.0)[~known]
    means_of_others = _read_out(structure, rows, _means(sums, 1.0))
    around[known] = _divided(means_of_others, _with_counts(values)[:, :-1])[known]
    return around


def _with_counts(values: FloatArray) -> FloatArray:
    """Return values (N, S) and whether they are known, (N, S + 1); 0 where they are not."""
    known = _known(values)
    return np.column_stack([np.where(known[:, None], values, 0.0), known])


def _known(values: FloatArray) -> BoolArray:
    return np.asarray(~np.isnan(values).any(axis=1))


def by_leaf(structure: Structure, rows: Rows, values: FloatArray) -> FloatArray:
    """(L, S): sums of values (N, S) over the rows in each leaf."""
    return structure.by_leaves(rows.leaf_sums(values, None), drawn=False)  # type: ignore[no-any-return]


def leaf_moments(sums: FloatArray, met: NDArray[np.int64], own: FloatArray | None) -> FloatArray:
    """(2, n, M): sums over the trees of the means over the rows in each query's leaf, and of these over the number of rows.

    ``sums`` (L, M): `by_leaf` of values (N, M) whose first column is one. ``met`` (n, T): the queries' leaves among all.
    ``own`` (n, M): the values of queries that are training rows, which are left out.
    """
    if own is None:
        n, trees = met.shape
        ones = np.ones(met.size)
        ends = np.arange(0, met.size + 1, trees)
        found = csr_array((ones, met.ravel(), ends), shape=(n, len(sums))) @ np.concatenate(
            _leaf_means(sums), axis=1
        )
        return np.asarray(np.stack(np.split(found, 2, axis=1)))
    total = np.zeros((2, len(met), sums.shape[1]))
    for leaves in met.T:
        total += _leaf_means(sums[leaves] - own)
    return total


def _leaf_means(sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(L, M) twice: sums whose first column is a number of rows over that number, and over its square; 0 where it is 0."""
    count = sums[:, :1]
    there = count > 0.5
    means = np.divide(sums, count, out=np.zeros_like(sums), where=there)
    return means, np.divide(means, count, out=np.zeros_like(sums), where=there)


def _means(sums: FloatArray, own: float) -> FloatArray:
    """(L, S + 2): sums (L, S) over the count without the row that asks (``own`` 1, or 0), the inverse of that, whether it is."""
    left = sums[:, -1:] - own
    there = left > 0.5
    share = np.divide(1.0, left, out=np.zeros_like(left), where=there)
    return np.column_stack([sums[:, :-1] * share, share, there])


def _read_out(structure: Structure, rows: Rows, table: FloatArray) -> FloatArray:
    out = np.empty((structure.n_rows, table.shape[1]))
    by_cells = np.ascontiguousarray(structure.by_cells(table, drawn=False))
    rows.read_out(by_cells, np.zeros(table.shape[1]), None, 0, out)
    return out


def _looked_up(structure: Structure, table: FloatArray, queries: LeafArray) -> FloatArray:
    found = np.zeros((len(queries), table.shape[1]))
    for t, start in enumerate(structure.starts[:-1]):
        found += table[start + queries[:, t].astype(np.int64)]
    return _divided(found, 0.0)


def _divided(found: FloatArray, own: Any) -> FloatArray:
    """(n, S): the sums over trees, less what the row itself put into them, over the number of trees that count."""
    total = found[:, :-2] - own * found[:, -2:-1]
    trees = found[:, -1:]
    return np.asarray(np.divide(total, trees, out=np.full_like(total, np.nan), where=trees > 0))


def around_weights(weights: csr_array, values: FloatArray, own: bool) -> FloatArray:
    """(n, S): the means of values (N, S) by |weight|, sparse (n, N); ``own``: row i is training row i, and left out of its own.

    Values that are nan, and queries without any other weight, as in `around_leaves`.
    """
    known = _known(values)
    size = csr_array(abs(weights))
    if own:
        size = csr_array(
            size - csr_array((size.diagonal(), (range(size.shape[0]),) * 2), shape=size.shape)
        )
    found = size @ np.column_stack([np.where(known[:, None], values, 0.0), known])
    total = np.asarray(found[:, :-1])
    weight = np.asarray(found[:, -1:])
    return np.asarray(np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0))


def everywhere(n: int, values: FloatArray) -> FloatArray:
    """(n, S): the means of all values (N, S) that are known, for n rows that have no rows around them."""
    known = values[_known(values)]
    return np.tile(known.mean(axis=0) if len(known) else np.full(values.shape[1], np.nan), (n, 1))
