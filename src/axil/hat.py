"""The matrix K of the training rows' own weights, seen as the hat matrix of statistics: its diagonal and its squares.

In leaf space a training row's adjoints are the sum of the columns of Q = M^-1 P' omega[T] at its leaves (see `leaf_space`), and

    K[j, j] = w_j (sum_{s <= t} b_sj Q[leaf_s(j), leaf_t(j)] + beta_j / W)
    sum_ij K[i, j]^2 = <Q' (U U') Q, Z'Z>

with U U' and Z'Z the co-occurrence of leaves, drawn and weighted squared or plain. The base is one more leaf, which holds every
row. So neither needs the (N, N) matrix; where leaf space does not fit, or N is small, K is made and used up in batches of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from axil import _core
from axil.errors import InputError
from axil.leaf_space import LeafSpace, _blas
from axil.memory import in_words
from axil.operators import PAIR_COST, READ_COST, SOLVE_COST, SWEEP_COST, Operators
from axil.progress import track
from axil.structure import Structure

Array = NDArray[np.float64]

MATRICES = 4  # of leaves by leaves that the squares take at a time
MOST_WORK = 2e12  # visits of rows by trees and queries
VISIT_SECONDS = 3e-10  # of one on two cores; see benchmarks/
BATCH_ENTRIES = 1 << 24  # of K held at a time
FACTOR_ROWS = 1 << 14  # rows whose draws are looked up at a time


def leverage(operators: Operators, available: int) -> Array:
    """(N,): K[j, j]. Cost O(T^2 N) in leaf space, O(T N^2) otherwise, whichever is less of what fits."""
    if not _leaf_space_pays(operators, available, 1):
        return np.concatenate([_diagonal(first, block) for first, block in _batches(operators, available)])
    return leverage_in_leaf_space(operators)


def squares(operators: Operators, available: int) -> float:
    """The sum of all squared entries of K. Cost O(T^2 N + L^3) in leaf space, O(T N^2) otherwise, likewise."""
    if not _leaf_space_pays(operators, available, MATRICES):
        return float(sum(np.square(block).sum() for _, block in _batches(operators, available)))
    return squares_in_leaf_space(operators)


def leverage_in_leaf_space(operators: Operators) -> Array:
    """The diagonal by look-ups of pairs of leaves."""
    s, Q = operators.structure, _responses(operators)
    of_base = np.ascontiguousarray(
        (operators.base_share @ Q)[:, None]
    )  # what each leaf met takes from the base's adjoint
    out = np.empty(s.n_rows)
    step = s.n_rows if len(s.draws) == 1 else FACTOR_ROWS
    for first in range(0, s.n_rows, step):
        draw, leaf = _draws(s, slice(first, first + step))
        own, taken = out[first : first + step], np.empty((leaf.shape[1], 1))
        _core.pair_sums(leaf, s.starts, Q, draw, 0, own, operators.n_threads)
        _core.read_out(leaf, s.starts, of_base, np.zeros(1), None, 0, taken, operators.n_threads)
        own += operators.mean_weight * (s.beta[-1] - taken[:, 0])
    return out if s.row_weights is None else out * s.row_weights


def squares_in_leaf_space(operators: Operators) -> float:
    """The squares from matrices of leaves by leaves alone, the base as a last leaf."""
    s, n = operators.structure, operators.structure.total_leaves
    Q = np.zeros((n + 1, n + 1))
    Q[:n, :n] = _responses(operators)
    Q[n, :n] = -operators.base_share @ Q[:n, :n]
    Q[n, n] = s.beta[-1]
    w = np.ones(s.n_rows) if s.row_weights is None else s.row_weights
    drawn = np.empty_like(Q)
    drawn[:n, :n] = gram(s, w**2, s.draws, operators.n_threads)
    drawn[:n, n] = drawn[n, :n] = operators.leaf_sums((w * operators.mean_weight)[:, None])[:, 0]
    drawn[n, n] = np.sum((w * operators.mean_weight) ** 2)
    with _blas().limit(limits=1):
        product = Q.T @ (drawn @ Q)
    del drawn, Q
    plain = gram(s, None, np.ones_like(s.draws), operators.n_threads)
    counts = np.diagonal(plain)
    edges = counts @ (product[:n, n] + product[n, :n]) + s.n_rows * product[n, n]
    return float(np.vdot(product[:n, :n], plain) + edges)


def gram(s: Structure, weights: Array | None, draws: Array, n_threads: int) -> Array:
    """(L, L): the weight of the rows that each two leaves share, times the factors of their draws for either tree."""
    levels = len(draws)
    cells = np.empty((s.cell_starts[-1],) * 2)
    _core.cooccurrence(s.cells, s.cell_starts, weights, cells, n_threads)
    ones = np.ones((s.n_rows, 1)) if weights is None else weights[:, None].copy()
    sums = np.empty((s.cell_starts[-1], 1))
    none, every = np.empty(0, dtype=np.int64), np.arange(s.n_trees)
    _core.sweep(s.cells, s.cell_starts, ones, none, sums, None, every, sums, None, n_threads)
    np.fill_diagonal(
        cells, sums[:, 0] / 2
    )  # a tree's leaves share no rows; half of it, as the other half is added below
    if levels > 1:
        for axis in range(2):
            parts = [
                np.moveaxis(cells, axis, 0)[a:b].reshape(levels, (b - a) // levels, -1)
                for a, b in pairwise(s.cell_starts)
            ]
            cells = np.moveaxis(np.concatenate([np.tensordot(draws, part, 1) for part in parts]), 0, axis)
    return np.asarray(cells + cells.T)


def _responses(operators: Operators) -> Array:
    """(L, L): Q, column l the adjoints of the leaf sums for a prediction that meets leaf l alone."""
    operators.prepare()
    assert operators.leaf_space is not None
    s = operators.structure
    return np.multiply(operators.leaf_space.responses.T, np.repeat(s.final, s.n_leaves), order="C")


def _draws(s: Structure, rows: slice) -> tuple[Array | None, NDArray[np.unsignedinteger]]:
    """(T, rows): how often each row was drawn for each tree, None for once, and its leaves."""
    if len(s.draws) == 1:
        return None, s.cells
    code, leaf = np.divmod(s.cells[:, rows], s.n_leaves[:, None].astype(s.cells.dtype))
    return s.draws[code], leaf


def _leaf_space_pays(operators: Operators, available: int, matrices: int) -> bool:
    """Whether leaf space is the cheaper way of those that fit; raises if neither can be gone."""
    s, ready = operators.structure, operators.leaf_space is not None
    pairs = PAIR_COST * s.n_rows * s.n_trees**2 / 2
    leaf_work = pairs * (matrices - ready) + SOLVE_COST * matrices / 2 * s.total_leaves**3
    row_work = (READ_COST if ready else SWEEP_COST) * s.n_trees * s.n_rows**2
    needed = LeafSpace.size(s) * (1 - ready) + 8 * matrices * s.total_leaves**2 * len(s.draws) ** 2
    fits = needed <= available
    if fits and leaf_work <= row_work:
        return True
    if row_work <= MOST_WORK:
        return False
    if fits:
        return True
    raise InputError(
        f"All {s.n_rows} training rows' own weights take {in_words(needed)} in leaf space ({s.total_leaves} leaves), where "
        f"{in_words(available)} are allowed, or {row_work:.1e} visits of rows without it, some "
        f"{row_work * VISIT_SECONDS / 60:.0f} minutes on two cores. "
        "Raise memory_limit, or explain a model of fewer leaves."
    )


def _batches(operators: Operators, available: int) -> Iterator[tuple[int, Array]]:
    """K in batches of rows (rows, N), with the number of their first."""
    s = operators.structure
    step = int(max(1, min(BATCH_ENTRIES, available // 32) // s.n_rows, 1))
    leaves = s.leaves()
    for first in track(range(0, s.n_rows, step), "training rows"):
        yield first, operators.weights(leaves[:, first : first + step].T)[0]


def _diagonal(first: int, block: Array) -> Array:
    return np.diagonal(block[:, first:]).copy()
