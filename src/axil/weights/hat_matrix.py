"""The matrix K of the training rows' own weights as a hat matrix: its diagonal and its squares.

In the leaf matrix a training row's adjoints are the sum of the columns of Q = M^-1 P' omega[T] at
its leaves (see `leaf_matrix`), and

    K[j, j] = w_j (sum_{s <= t} b_sj Q[leaf_s(j), leaf_t(j)] + beta_j / W)
    sum_ij K[i, j]^2 = <Q' (U U') Q, Z'Z>

with U U' and Z'Z the co-occurrence of leaves, with sample counts and squared weights or plain. The
initial prediction is one more leaf, which holds every row. So neither needs the (N, N) matrix. If
the leaf matrix does not fit into memory, or N is small, K is computed in batches of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from axil.arrays import FloatArray, LeafArray
from axil.kernels import Rows
from axil.machine.arrays import AnyPlaceArray, host, like
from axil.machine.blocks import spans
from axil.machine.progress import track
from axil.machine.threads import one_blas_thread
from axil.structure import RowTotals, Structure
from axil.weights.leaf_matrix import LeafMatrix
from axil.weights.passes import leaf_sums

BATCH_ENTRIES = 1 << 24  # of K held at a time
FACTOR_ROWS = 1 << 14  # rows whose sample counts are looked up at a time
BLOCK = 512  # leaves of a product between two moments at which Ctrl-C takes effect


def batches(
    structure: Structure, weights: Callable[[LeafArray], FloatArray], available: int
) -> Iterator[tuple[int, FloatArray]]:
    """Yield K in batches of rows, (rows, N), with the number of the first row. Cost O(T N^2).

    ``weights`` returns the weights of rows in leaves (n, T).
    """
    s = structure
    leaves = structure.leaves()
    step = int(max(1, min(BATCH_ENTRIES, available // 32) // s.n_rows, 1))
    for first in track(range(0, s.n_rows, step), "training rows"):
        yield first, weights(leaves[:, first : first + step].T)


@one_blas_thread()
def leverage_in_leaf_matrix(space: LeafMatrix, training: Rows) -> FloatArray:
    """Return ``K[j, j]``, (N,), by look-ups of pairs of leaves. Cost O(T^2 N)."""
    s = space.structure
    Q = _responses(space)
    # what each leaf subtracts from the adjoint of the initial prediction
    of_base = (like(s.initial_in_sums, Q) @ Q)[:, None]
    leverages = np.empty(s.n_rows)
    if len(s.sample_counts) == 1:
        step = s.n_rows
    else:
        step = FACTOR_ROWS
    for first in range(0, s.n_rows, step):
        counts, rows = _counted_rows(space, training, slice(first, first + step))
        block = leverages[first : first + step]
        subtracted = np.empty((rows.n_rows, 1))
        rows.pair_sums(Q, counts, 0, block)
        rows.read_out(of_base, np.zeros(1), None, 0, subtracted)
        block += s.mean_weight * (s.initial_in_fit * s.beta[-1] - subtracted[:, 0])
    if s.row_weights is None:
        return leverages
    return leverages * s.row_weights


@dataclass(frozen=True)
class RowGrams(RowTotals):
    """Sums over training rows from which their squared weights follow; those of shards add up."""

    n_rows: int
    base: float  #: of squared weights in the initial prediction
    with_base: FloatArray  #: (L,) of these, by the sampled rows of each leaf
    sampled: FloatArray  #: (L, L) of squared weights and sample counts, by pairs of leaves
    plain: FloatArray  #: (L, L) the rows that each two leaves share

    @classmethod
    def of(cls, s: Structure, training: Rows) -> RowGrams:
        """Return the sums over the rows of a structure, or of one shard of it."""
        if s.row_weights is None:
            weights = np.ones(s.n_rows)
        else:
            weights = s.row_weights
        base_weights = weights * s.mean_weight
        with_base = leaf_sums(s, training, base_weights[:, None])[:, 0]
        base = float(np.sum(base_weights**2))
        sampled = gram(s, training, weights**2, counted=True)
        return cls(s.n_rows, base, with_base, sampled, gram(s, training, None, counted=False))


def squares_in_leaf_matrix(space: LeafMatrix, training: Rows) -> float:
    """Return ``sum_ij K[i, j]^2`` from matrices of leaves by leaves. Cost O(T^2 N + L^3)."""
    return squares_of(space, RowGrams.of(space.structure, training))


@one_blas_thread()
def squares_of(space: LeafMatrix, grams: RowGrams) -> float:
    """Return ``sum_ij K[i, j]^2`` from sums over all rows. Cost O(L^3).

    The initial prediction is a last leaf. Q, apart from it, is upper triangular and both
    co-occurrences are symmetric, so only a part of each product is computed, in blocks, between
    which Ctrl-C takes effect. ``grams.sampled`` is overwritten.
    """
    s = space.structure
    Q = host(_responses(space))
    of_base = -s.initial_in_sums @ Q  # Q[base, :]; Q[base, base] is beta and Q[:, base] is 0
    blocks = spans(s.total_leaves, BLOCK)
    sampled = grams.sampled
    for rows in track(blocks, "squares"):  # sampled @ Q, in place of sampled
        for columns in reversed(blocks):
            product = sampled[rows, : columns.stop] @ Q[: columns.stop, columns]
            sampled[rows, columns] = product + np.outer(grams.with_base[rows], of_base[columns])
    sampled_base = grams.with_base @ Q + grams.base * of_base  # the row of the initial prediction
    total = 0.0
    # Q' (sampled @ Q), which is symmetric, on and right of the diagonal
    for columns in track(blocks, "squares"):
        product = Q[: columns.stop, columns].T @ sampled[: columns.stop, columns.start :]
        product = product + np.outer(of_base[columns], sampled_base[columns.start :])
        product *= grams.plain[columns, columns.start :]
        size = columns.stop - columns.start
        total += float(product[:, :size].sum() + 2 * product[:, size:].sum())
    beta = s.initial_in_fit * s.beta[-1]
    last = beta * sampled_base  # of the row or the column of the initial prediction
    of_last = grams.n_rows * beta**2 * grams.base
    return float(total + 2 * np.diagonal(grams.plain) @ last + of_last)


def gram(s: Structure, rows: Rows, weights: FloatArray | None, counted: bool) -> FloatArray:
    """Return the weight of the rows that each two leaves share, (L, L).

    With ``counted``, it is times the sample counts of the rows for either tree.
    """
    cells = np.empty((rows.n_cells, rows.n_cells))
    rows.cooccurrence(0, s.n_trees, weights, cells)
    if weights is None:
        sums = rows.leaf_sums(np.ones((s.n_rows, 1)), None)
    else:
        sums = rows.leaf_sums(weights[:, None], None)
    # A tree's leaves share no rows; half of what each holds, as the other half is added below.
    np.fill_diagonal(cells, sums[:, 0] / 2)
    for axis in range(2):
        of_leaves = s.by_leaves(np.moveaxis(cells, axis, 0), counted)
        cells = np.moveaxis(of_leaves, 0, axis)
    return np.asarray(cells + cells.T)


def _responses(space: LeafMatrix) -> AnyPlaceArray:
    """Return Q, (L, L), on the back end.

    Column l has the adjoints of the leaf sums for a prediction that meets leaf l alone.
    """
    s = space.structure
    table = space.responses
    final = like(np.repeat(s.final, s.n_leaves), table)
    return np.multiply(table.T, final, out=space.backend.xp.empty(table.shape))


def _counted_rows(space: LeafMatrix, training: Rows, rows: slice) -> tuple[FloatArray | None, Rows]:
    """Return the sample counts of rows in each tree, (T, rows), and the rows by leaves.

    None: all rows count once.
    """
    s = space.structure
    if len(s.sample_counts) == 1:
        return None, training
    leaf = np.ascontiguousarray(s.leaves(rows))
    return s.row_counts(rows), space.backend.rows(leaf, s.starts)
