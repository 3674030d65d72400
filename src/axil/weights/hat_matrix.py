"""The matrix K of the training rows' own weights, seen as the hat matrix of statistics: its diagonal and its squares.

In the leaf matrix a training row's adjoints are the sum of the columns of Q = M^-1 P' omega[T] at its leaves (see
`leaf_matrix`), and

    K[j, j] = w_j (sum_{s <= t} b_sj Q[leaf_s(j), leaf_t(j)] + beta_j / W)
    sum_ij K[i, j]^2 = <Q' (U U') Q, Z'Z>

with U U' and Z'Z the co-occurrence of leaves, drawn and weighted squared or plain. The base is one
more leaf, which holds every row. So neither needs the (N, N) matrix. Where the leaf matrix does not
fit, or N is small, K is computed in batches of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil.arrays import FloatArray, LeafArray
from axil.errors import InputError
from axil.kernels import Costs, Rows
from axil.machine.arrays import host, like
from axil.machine.blocks import spans
from axil.machine.memory import in_words
from axil.machine.progress import track
from axil.machine.threads import one_blas_thread
from axil.structure import RowTotals, Structure
from axil.weights.leaf_matrix import LeafMatrix
from axil.weights.passes import leaf_sums

MATRICES = 4  # of leaves by leaves that the squares hold at a time
MOST_WORK = 2e12  # visits of rows by trees and queries
BATCH_ENTRIES = 1 << 24  # of K held at a time
FACTOR_ROWS = 1 << 14  # rows whose draws are looked up at a time
BLOCK = 512  # leaves of a product between two moments at which Ctrl-C takes effect


@dataclass(frozen=True)
class LeverageWork:
    """The costs of leverage, or with more matrices of the squares: visits on the scale of `Costs`, and bytes of the
    leaf matrix."""

    structure: Structure
    visit_seconds: float
    in_leaf_matrix: float
    by_rows: float
    needed: int

    @classmethod
    def of(cls, structure: Structure, costs: Costs, ready: bool, matrices: int) -> LeverageWork:
        """The work on one matrix for leverage, on `MATRICES` for squares; ``ready``: the leaf matrix is there already."""
        s = structure
        pairs = (
            costs.pair * s.n_rows * s.n_trees**2 / 2
        )  # to build the leaf matrix, to look at its pairs, or to count them
        cubes = costs.inverse * (1 - ready) + (costs.product if matrices > 1 else 0.0)
        in_leaf_matrix = (
            pairs * (1 - ready + (2 if matrices > 1 else 1)) + cubes * s.total_leaves**3
        )
        by_rows = (costs.read if ready else costs.sweep) * s.n_trees * s.n_rows**2
        needed = (
            LeafMatrix.size(s) * (1 - ready)
            + 8 * matrices * s.total_leaves**2 * len(s.sample_counts) ** 2
        )
        return cls(s, costs.visit_seconds, in_leaf_matrix, by_rows, needed)

    def seconds(self, available: int) -> float:
        """The seconds that it takes, roughly; inf where it is refused."""
        ways = [self.in_leaf_matrix] * (self.needed <= available) + [self.by_rows] * (
            self.by_rows <= MOST_WORK
        )
        return self.visit_seconds * min(ways, default=np.inf)

    def leaf_matrix_pays(self, available: int) -> bool:
        """Whether the leaf matrix is the cheaper way of those that fit; raises if neither does."""
        fits = self.needed <= available
        if fits and (self.in_leaf_matrix <= self.by_rows or self.by_rows > MOST_WORK):
            return True
        if self.by_rows <= MOST_WORK:
            return False
        s = self.structure
        raise InputError(
            f"All {s.n_rows} training rows' own weights take {in_words(self.needed)} in the leaf matrix "
            f"({s.total_leaves} leaves), "
            f"where {in_words(available)} are allowed, or {self.by_rows:.1e} visits of rows without it, some "
            f"{self.by_rows * self.visit_seconds / 60:.0f} minutes on two cores. "
            'Ask for an estimate with method="estimate" (of the noise: sigma="estimate"), raise memory_limit, or explain a model '
            "of fewer leaves."
        )


def batches(
    structure: Structure, weights: Callable[[LeafArray], FloatArray], available: int
) -> Iterator[tuple[int, FloatArray]]:
    """K in batches of rows (rows, N), with the number of their first; ``weights`` gives those of queries in leaves (n, T).

    Cost O(T N^2).
    """
    s = structure
    leaves = structure.leaves()
    step = int(max(1, min(BATCH_ENTRIES, available // 32) // s.n_rows, 1))
    for first in track(range(0, s.n_rows, step), "training rows"):
        yield first, weights(leaves[:, first : first + step].T)


@one_blas_thread()
def leverage_in_leaf_matrix(space: LeafMatrix, training: Rows) -> FloatArray:
    """(N,): ``K[j, j]`` by look-ups of pairs of leaves. Cost O(T^2 N)."""
    s = space.structure
    Q = _responses(space)
    of_base = (like(s.initial_in_sums, Q) @ Q)[
        :, None
    ]  # what each leaf met subtracts from the base's adjoint
    out = np.empty(s.n_rows)
    if len(s.sample_counts) == 1:
        step = s.n_rows
    else:
        step = FACTOR_ROWS
    for first in range(0, s.n_rows, step):
        draw, rows = _drawn_rows(space, training, slice(first, first + step))
        own = out[first : first + step]
        taken = np.empty((rows.n_rows, 1))
        rows.pair_sums(Q, draw, 0, own)
        rows.read_out(of_base, np.zeros(1), None, 0, taken)
        own += s.mean_weight * (s.initial_in_fit * s.beta[-1] - taken[:, 0])
    if s.row_weights is None:
        return out
    return out * s.row_weights


@dataclass(frozen=True)
class RowGrams(RowTotals):
    """Sums over training rows that their squared weights follow from; those of shards add up."""

    n_rows: int
    base: float  #: of squared weights in the initial prediction
    with_base: FloatArray  #: (L,) of these, by the sampled rows of each leaf
    sampled: FloatArray  #: (L, L) of squared weights and sample counts, by pairs of leaves
    plain: FloatArray  #: (L, L) the rows that each two leaves share

    @classmethod
    def of(cls, s: Structure, training: Rows) -> RowGrams:
        """Return the sums over the rows of a structure, or of one shard of it."""
        if s.row_weights is None:
            w = np.ones(s.n_rows)
        else:
            w = s.row_weights
        with_base = leaf_sums(s, training, (w * s.mean_weight)[:, None])[:, 0]
        base = float(np.sum((w * s.mean_weight) ** 2))
        sampled = gram(s, training, w**2, drawn=True)
        return cls(s.n_rows, base, with_base, sampled, gram(s, training, None, drawn=False))


def squares_in_leaf_matrix(space: LeafMatrix, training: Rows) -> float:
    """Return ``sum_ij K[i, j]^2`` from matrices of leaves by leaves alone. Cost O(T^2 N + L^3)."""
    return squares_of(space, RowGrams.of(space.structure, training))


@one_blas_thread()
def squares_of(space: LeafMatrix, grams: RowGrams) -> float:
    """Return ``sum_ij K[i, j]^2`` from sums over all rows, with the base as a last leaf. Cost O(L^3).

    Q, apart from the base, is upper triangular and both co-occurrences are symmetric, so only a
    part of each product is computed, in blocks, between which Ctrl-C takes effect.
    ``grams.sampled`` is overwritten.
    """
    s = space.structure
    n = space.structure.total_leaves
    Q = host(_responses(space))
    of_base = -s.initial_in_sums @ Q  # Q[base, :]; Q[base, base] is beta and Q[:, base] is 0
    with_base = grams.with_base
    seen = grams.sampled
    for rows in track(spans(n, BLOCK), "squares"):  # sampled @ Q, in place of sampled
        for own in reversed(spans(n, BLOCK)):
            seen[rows, own] = seen[rows, : own.stop] @ Q[: own.stop, own] + np.outer(
                with_base[rows], of_base[own]
            )
    seen_base = with_base @ Q + grams.base * of_base  # of the base's row
    plain = grams.plain
    total = 0.0
    for own in track(
        spans(n, BLOCK), "squares"
    ):  # Q' (sampled @ Q), which is symmetric, on and right of the diagonal
        made = Q[: own.stop, own].T @ seen[: own.stop, own.start :] + np.outer(
            of_base[own], seen_base[own.start :]
        )
        made *= plain[own, own.start :]
        size = own.stop - own.start
        total += float(made[:, :size].sum() + 2 * made[:, size:].sum())
    beta = s.initial_in_fit * s.beta[-1]
    last = beta * seen_base  # of the base's row, or column
    return float(total + 2 * np.diagonal(plain) @ last + grams.n_rows * beta**2 * grams.base)


def gram(s: Structure, rows: Rows, weights: FloatArray | None, drawn: bool) -> FloatArray:
    """(L, L): the weight of the rows that each two leaves share, times their draws for either tree where ``drawn``."""
    cells = np.empty((rows.n_cells, rows.n_cells))
    rows.cooccurrence(0, s.n_trees, weights, cells)
    sums = rows.leaf_sums(np.ones((s.n_rows, 1)) if weights is None else weights[:, None], None)
    # A tree's leaves share no rows; half of what each holds, as the other half is added below.
    np.fill_diagonal(cells, sums[:, 0] / 2)
    for axis in range(2):
        cells = np.moveaxis(s.by_leaves(np.moveaxis(cells, axis, 0), drawn), 0, axis)
    return np.asarray(cells + cells.T)


def _responses(space: LeafMatrix) -> Any:
    """(L, L), of the back end: Q, column l the adjoints of the leaf sums for a prediction that meets leaf l alone."""
    s = space.structure
    table = space.responses
    return np.multiply(
        table.T,
        like(np.repeat(s.final, s.n_leaves), table),
        out=space.backend.xp.empty(table.shape),
    )


def _drawn_rows(space: LeafMatrix, training: Rows, rows: slice) -> tuple[FloatArray | None, Rows]:
    """How often each of these rows was drawn for each tree, (T, rows), None for once; and the rows by leaves."""
    s = space.structure
    if len(s.sample_counts) == 1:
        return None, training
    leaf = np.ascontiguousarray(s.leaves(rows))
    return s.row_counts(rows), space.backend.rows(leaf, s.starts)
