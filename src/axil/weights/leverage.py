"""The matrix K of the training rows' own weights, seen as the hat matrix of statistics: its diagonal and its squares.

In leaf space a training row's adjoints are the sum of the columns of Q = M^-1 P' omega[T] at its leaves (see `leaf_space`), and

    K[j, j] = w_j (sum_{s <= t} b_sj Q[leaf_s(j), leaf_t(j)] + beta_j / W)
    sum_ij K[i, j]^2 = <Q' (U U') Q, Z'Z>

with U U' and Z'Z the co-occurrence of leaves, drawn and weighted squared or plain. The base is one more leaf, which holds every
row. So neither needs the (N, N) matrix. Where leaf space does not fit, or N is small, K is computed in batches of rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from axil.errors import InputError
from axil.kernels import Rows
from axil.machine.memory import in_words
from axil.machine.progress import track
from axil.machine.shared import one_blas_thread
from axil.structure import Structure
from axil.types import Array
from axil.weights.boosting import Operators
from axil.weights.leaf_space import LeafSpace

MATRICES = 4  # of leaves by leaves that the squares hold at a time
MOST_WORK = 2e12  # visits of rows by trees and queries
BATCH_ENTRIES = 1 << 24  # of K held at a time
FACTOR_ROWS = 1 << 14  # rows whose draws are looked up at a time
BLOCK = 512  # leaves of a product between two moments at which Ctrl-C takes effect


def leverage(operators: Operators, available: int) -> Array:
    """(N,): K[j, j]. Cost O(T^2 N + L^3) in leaf space, O(T N^2) otherwise, whichever is less of what fits."""
    if not _leaf_space_pays(operators, available, 1):
        return np.concatenate([_diagonal(first, block) for first, block in _batches(operators, available)])
    return leverage_in_leaf_space(operators)


def squares(operators: Operators, available: int) -> float:
    """The sum of all squared entries of K. Cost O(T^2 N + L^3) in leaf space or O(T N^2), whichever is less of what fits."""
    if not _leaf_space_pays(operators, available, MATRICES):
        return float(sum(np.square(block).sum() for _, block in _batches(operators, available)))
    return squares_in_leaf_space(operators)


@one_blas_thread()
def leverage_in_leaf_space(operators: Operators) -> Array:
    """The diagonal by look-ups of pairs of leaves."""
    s, Q = operators.structure, _responses(operators)
    of_base = (operators.base_share @ Q)[:, None]  # what each leaf met subtracts from the base's adjoint
    out = np.empty(s.n_rows)
    step = s.n_rows if len(s.draws) == 1 else FACTOR_ROWS
    for first in range(0, s.n_rows, step):
        draw, rows = _drawn_rows(operators, slice(first, first + step))
        own, taken = out[first : first + step], np.empty((rows.n_rows, 1))
        rows.pair_sums(Q, draw, 0, own)
        rows.read_out(of_base, np.zeros(1), None, 0, taken)
        own += operators.mean_weight * (s.beta[-1] - taken[:, 0])
    return out if s.row_weights is None else out * s.row_weights


@one_blas_thread()
def squares_in_leaf_space(operators: Operators) -> float:
    """The squares from matrices of leaves by leaves alone, the base as a last leaf.

    Q, apart from the base, is upper triangular and both co-occurrences are symmetric, so only a part of each product is computed,
    in blocks, between which Ctrl-C takes effect.
    """
    s, n = operators.structure, operators.structure.total_leaves
    Q = _responses(operators)
    w = np.ones(s.n_rows) if s.row_weights is None else s.row_weights
    of_base = -operators.base_share @ Q  # Q[base, :]; Q[base, base] is beta and Q[:, base] is 0
    with_base = operators.leaf_sums((w * operators.mean_weight)[:, None])[:, 0]  # drawn, the base with each leaf
    base = np.sum((w * operators.mean_weight) ** 2)
    seen = gram(s, operators.rows, w**2, s.draws)
    for rows in track(_blocks(n), "squares"):  # drawn @ Q, in place of drawn
        for own in reversed(_blocks(n)):
            seen[rows, own] = seen[rows, : own.stop] @ Q[: own.stop, own] + np.outer(with_base[rows], of_base[own])
    seen_base = with_base @ Q + base * of_base  # of the base's row
    plain = gram(s, operators.rows, None, np.ones_like(s.draws))
    total = 0.0
    for own in track(_blocks(n), "squares"):  # Q' (drawn @ Q), which is symmetric, on and right of the diagonal
        made = Q[: own.stop, own].T @ seen[: own.stop, own.start :] + np.outer(of_base[own], seen_base[own.start :])
        made *= plain[own, own.start :]
        size = own.stop - own.start
        total += float(made[:, :size].sum() + 2 * made[:, size:].sum())
    last = s.beta[-1] * seen_base  # of the base's row, or column
    return float(total + 2 * np.diagonal(plain) @ last + s.n_rows * s.beta[-1] ** 2 * base)


def _blocks(n: int) -> list[slice]:
    return [slice(first, min(first + BLOCK, n)) for first in range(0, n, BLOCK)]


def gram(s: Structure, rows: Rows, weights: Array | None, draws: Array) -> Array:
    """(L, L): the weight of the rows that each two leaves share, times the factors of their draws for either tree."""
    levels = len(draws)
    cells = np.empty((rows.n_cells, rows.n_cells))
    rows.cooccurrence(0, s.n_trees, weights, cells)
    sums = rows.leaf_sums(np.ones((s.n_rows, 1)) if weights is None else weights[:, None], None)
    # A tree's leaves share no rows; half of what each holds, as the other half is added below.
    np.fill_diagonal(cells, sums[:, 0] / 2)
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
    s, space = operators.structure, operators.prepared().leaf_space
    assert space is not None
    return np.multiply(space.responses.T, np.repeat(s.final, s.n_leaves), order="C")


def _drawn_rows(operators: Operators, rows: slice) -> tuple[Array | None, Rows]:
    """How often each of these rows was drawn for each tree, (T, rows), None for once; and the rows by leaves."""
    s = operators.structure
    if len(s.draws) == 1:
        return None, operators.rows
    code, leaf = np.divmod(s.cells[:, rows], s.n_leaves[:, None].astype(s.cells.dtype))
    return s.draws[code], operators.backend.rows(leaf, s.starts)


@dataclass(frozen=True)
class _Costs:
    """The costs of leverage, or with more matrices of the squares: visits on the scale of `Costs`, and bytes of leaf space."""

    in_leaf_space: float
    by_rows: float
    needed: int


def _costs(operators: Operators, matrices: int) -> _Costs:
    s, ready, each = operators.structure, operators.leaf_space is not None, operators.backend.costs
    pairs = each.pair * s.n_rows * s.n_trees**2 / 2  # to build leaf space, to look at its pairs, or for a co-occurrence
    cubes = each.inverse * (1 - ready) + (each.product if matrices > 1 else 0.0)
    in_leaf_space = pairs * (1 - ready + (2 if matrices > 1 else 1)) + cubes * s.total_leaves**3
    by_rows = (each.read if ready else each.sweep) * s.n_trees * s.n_rows**2
    needed = LeafSpace.size(s) * (1 - ready) + 8 * matrices * s.total_leaves**2 * len(s.draws) ** 2
    return _Costs(in_leaf_space, by_rows, needed)


def seconds(operators: Operators, available: int, matrices: int) -> float:
    """The seconds that leverage (of one matrix) or squares (of `MATRICES`) take, roughly; inf where they are refused."""
    costs = _costs(operators, matrices)
    ways = [costs.in_leaf_space] * (costs.needed <= available) + [costs.by_rows] * (costs.by_rows <= MOST_WORK)
    return operators.backend.costs.visit_seconds * min(ways, default=np.inf)


def _leaf_space_pays(operators: Operators, available: int, matrices: int) -> bool:
    """Whether leaf space is the cheaper way of those that fit; raises if neither does."""
    s, costs = operators.structure, _costs(operators, matrices)
    fits = costs.needed <= available
    if fits and (costs.in_leaf_space <= costs.by_rows or costs.by_rows > MOST_WORK):
        return True
    if costs.by_rows <= MOST_WORK:
        return False
    raise InputError(
        f"All {s.n_rows} training rows' own weights take {in_words(costs.needed)} in leaf space ({s.total_leaves} leaves), "
        f"where {in_words(available)} are allowed, or {costs.by_rows:.1e} visits of rows without it, some "
        f"{costs.by_rows * operators.backend.costs.visit_seconds / 60:.0f} minutes on two cores. "
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
