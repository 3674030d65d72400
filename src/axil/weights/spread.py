"""Spread: the mean of a quantity of the training rows around a row.

The quantity may be the size of their residuals. Of trees the rows around x are those that share its
leaves. Every tree with such rows counts once, or by its weight:

    around(x) = mean over the trees t of the mean of v_i over the training rows i in leaf_t(x)

The v of a training row itself does not count in its own mean. Leaves are counted by membership:
neither sample weights nor sample counts take part, so rows that a tree did not sample say as much
of the noise in their leaf as those that made its value. That is two passes over the rows, O(T N S),
and nothing of size (N, N) or (T, N) exists. Means by |weight| need all of K and find no more wrong
labels (experiments/label_noise.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.arrays import BoolArray, FloatArray, LeafArray
from axil.kernels import Rows
from axil.structure import Structure


def around_leaves(
    structure: Structure,
    rows: Rows,
    queries: LeafArray | None,
    values: FloatArray,
    tree_weights: FloatArray | None = None,
) -> FloatArray:
    """Return the means of values around each row, (n, S).

    A mean is nan if no tree has another row whose value is known.

    Parameters
    ----------
    structure : Structure
    rows : Rows
        The training rows by cells.
    queries : array of shape (n, T), optional
        The leaves of the rows. Default: the training rows themselves.
    values : array of shape (N, S)
        A training row with a nan has no known value, and no mean counts it.
    tree_weights : array of shape (T,), optional
        The weights of the trees in the mean over them. Default: all one.
    """
    sums = known_leaf_sums(structure, rows, values)
    if queries is not None:
        means = _weighted_means(structure, sums, 0.0, tree_weights)
        return _looked_up(structure, means, queries)
    return around_training_rows(structure, rows, sums, values, tree_weights)


def known_leaf_sums(structure: Structure, rows: Rows, values: FloatArray) -> FloatArray:
    """Return the leaf sums of known values (N, S), and the numbers of these values, (L, S + 1).

    A row of values with a nan is not known. Sums of several shards of the rows add up.
    """
    return by_leaf(structure, rows, _with_counts(values))


def around_training_rows(
    structure: Structure,
    rows: Rows,
    sums: FloatArray,
    values: FloatArray,
    tree_weights: FloatArray | None = None,
) -> FloatArray:
    """Return the means of values over the other rows in each row's leaves, (N, S).

    Parameters
    ----------
    structure : Structure
        The structure of the rows, which may be those of one shard.
    rows : Rows
    sums : array of shape (L, S + 1)
        `known_leaf_sums` of all rows.
    values : array of shape (N, S)
    tree_weights : array of shape (T,), optional
        As in `around_leaves`.
    """
    is_known = _is_known(values)
    means = np.empty((structure.n_rows, values.shape[1]))
    if not is_known.all():
        of_all = _read_out(structure, rows, _weighted_means(structure, sums, 0.0, tree_weights))
        means[~is_known] = _over_trees(of_all, 0.0)[~is_known]
    of_others = _read_out(structure, rows, _weighted_means(structure, sums, 1.0, tree_weights))
    means[is_known] = _over_trees(of_others, _with_counts(values)[:, :-1])[is_known]
    return means


def _with_counts(values: FloatArray) -> FloatArray:
    """Return values (N, S) with a last column of ones; unknown values are 0."""
    is_known = _is_known(values)
    return np.column_stack([np.where(is_known[:, None], values, 0.0), is_known])


def _is_known(values: FloatArray) -> BoolArray:
    """Return which rows of values have no nan."""
    return np.asarray(~np.isnan(values).any(axis=1))


def by_leaf(structure: Structure, rows: Rows, values: FloatArray) -> FloatArray:
    """Return sums of values (N, S) over the rows in each leaf, (L, S)."""
    sums: FloatArray = structure.by_leaves(rows.leaf_sums(values, None), drawn=False)
    return sums


def leaf_moments(
    sums: FloatArray, met: NDArray[np.int64], own_values: FloatArray | None
) -> FloatArray:
    """Return sums over the trees of the means in each row's leaf, and of means over leaf sizes.

    Parameters
    ----------
    sums : array of shape (L, M)
        `by_leaf` of values (N, M) whose first column is one.
    met : array of shape (n, T)
        The leaves of the rows, numbered among all L.
    own_values : array of shape (n, M), optional
        The values of the rows if they are training rows. They do not count.

    Returns
    -------
    array of shape (2, n, M)
    """
    if own_values is None:
        n, n_trees = met.shape
        ends = np.arange(0, met.size + 1, n_trees)
        leaves = csr_array((np.ones(met.size), met.ravel(), ends), shape=(n, len(sums)))
        totals = leaves @ np.concatenate(_leaf_means(sums), axis=1)
        return np.asarray(np.stack(np.split(totals, 2, axis=1)))
    total = np.zeros((2, len(met), sums.shape[1]))
    for leaves in met.T:
        total += _leaf_means(sums[leaves] - own_values)
    return total


def _leaf_means(sums: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return sums over their first column, a number of rows, and over its square, (L, M) each.

    0 if there are no rows.
    """
    count = sums[:, :1]
    has_rows = count > 0.5
    means = np.divide(sums, count, out=np.zeros_like(sums), where=has_rows)
    return means, np.divide(means, count, out=np.zeros_like(sums), where=has_rows)


def _means(sums: FloatArray, n_left_out: float) -> FloatArray:
    """Return the columns that `_over_trees` adds: means, 1 / count, and whether there are rows.

    ``sums`` (L, S) has the number of rows in its last column, ``n_left_out`` of which do not count.
    """
    count = sums[:, -1:] - n_left_out
    has_rows = count > 0.5
    share = np.divide(1.0, count, out=np.zeros_like(count), where=has_rows)
    return np.column_stack([sums[:, :-1] * share, share, has_rows])


def _weighted_means(
    structure: Structure, sums: FloatArray, n_left_out: float, tree_weights: FloatArray | None
) -> FloatArray:
    """Return `_means`, (L, S + 1), times the weight of each leaf's tree."""
    means = _means(sums, n_left_out)
    if tree_weights is None:
        return means
    return np.asarray(means * np.repeat(tree_weights, structure.n_leaves)[:, None])


def _read_out(structure: Structure, rows: Rows, table: FloatArray) -> FloatArray:
    """Return sums over the trees of a table by leaves, (L, S), for training rows, (N, S)."""
    sums = np.empty((structure.n_rows, table.shape[1]))
    by_cells = np.ascontiguousarray(structure.by_cells(table, drawn=False))
    rows.read_out(by_cells, np.zeros(table.shape[1]), None, 0, sums)
    return sums


def _looked_up(structure: Structure, table: FloatArray, queries: LeafArray) -> FloatArray:
    """Return means over the trees of a table by leaves, for rows in these leaves (n, T)."""
    sums = np.zeros((len(queries), table.shape[1]))
    for t, start in enumerate(structure.starts[:-1]):
        sums += table[start + queries[:, t].astype(np.int64)]
    return _over_trees(sums, 0.0)


def _over_trees(sums: FloatArray, own_values: FloatArray | float) -> FloatArray:
    """Return the means over the trees that count, (n, S), less the part of the row itself."""
    total = sums[:, :-2] - own_values * sums[:, -2:-1]
    n_trees = sums[:, -1:]
    return np.asarray(np.divide(total, n_trees, out=np.full_like(total, np.nan), where=n_trees > 0))


def around_weights(weights: csr_array, values: FloatArray, own: bool) -> FloatArray:
    """Return the means of values (N, S) by the sizes of sparse weights (n, N), (n, S).

    With ``own``, row i is training row i, and does not count in its own mean. Values that are nan,
    and rows without any other weight, are as in `around_leaves`.
    """
    is_known = _is_known(values)
    size = csr_array(abs(weights))
    if own:
        places = (range(size.shape[0]),) * 2
        size = csr_array(size - csr_array((size.diagonal(), places), shape=size.shape))
    sums = size @ np.column_stack([np.where(is_known[:, None], values, 0.0), is_known])
    total = np.asarray(sums[:, :-1])
    weight = np.asarray(sums[:, -1:])
    return np.asarray(np.divide(total, weight, out=np.full_like(total, np.nan), where=weight > 0))


def everywhere(n: int, values: FloatArray) -> FloatArray:
    """Return the mean of all known values (N, S) for n rows without neighbours."""
    known_values = values[_is_known(values)]
    if len(known_values):
        mean = known_values.mean(axis=0)
    else:
        mean = np.full(values.shape[1], np.nan)
    return np.tile(mean, (n, 1))
