"""The residuals that every tree of a fit was fitted to, and what each training row adds to its leaf's value.

With the leaf values v_t of the fit, replayed in float64, the residuals of any row follow from its leaves alone:

    r^(t) = y - offset - beta[t] * base - sum_{s < t} omega[t, s] * v_s[leaf_s],     t = 0..T

in plain boosting ``omega[t, s] = rate_s`` and beta = 1. ``r^(t)`` is what tree t saw of the row, or would have seen of a row that
took no part, and ``r^(T)`` is what the prediction leaves over. No row depends on another, so blocks of rows can be walked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray, LeafArray
from axil.structure import Cut, Structure
from axil.weights.passes import groups_of


@dataclass(frozen=True)
class FittedValues:
    """A fit in float64: where it starts and what its leaves arrive at, for K outputs that share their trees."""

    structure: Structure
    targets: FloatArray  #: (N, K)
    base: FloatArray  #: (K,)
    values: FloatArray  #: (L, K) leaf values before any rate
    sums: FloatArray  #: (L, K) of weight * draw * residual, which they are made of

    def started(self, rows: slice = slice(None)) -> FloatArray:
        """(rows, K): the training rows' targets less their offsets."""
        offsets = self.structure.offsets
        return self.targets[rows] if offsets is None else self.targets[rows] - offsets[rows]

    def residuals(self, leaves: LeafArray, targets: FloatArray) -> Iterator[FloatArray]:
        """Yield r^(0) .. r^(T), (n, K) each, of rows in these leaves, (T, n), with targets less offsets (n, K).

        O(T n K), more where earlier trees are scaled again (`Coefficients`). The array is one and the same, changed in
        place from one tree to the next: copy what is to be kept. As in the libraries, what the trees add up to is subtracted from
        the targets, which keep their digits where trees of huge values cancel.
        """
        s = self.structure
        made = np.tile(s.beta[0] * self.base, (len(targets), 1))
        residual = targets - made
        yield residual
        for group in groups_of(s):
            for _ in range(group.first, group.last):  # these trees saw the same
                yield residual
            for t, coefficient in group.changes:
                made += coefficient * self.values[s.entries(t, leaves[t])]
            made += (s.beta[group.last + 1] - s.beta[group.last]) * self.base
            np.subtract(targets, made, out=residual)
            yield residual

    def predictions(self, leaves: LeafArray) -> FloatArray:
        """(n, K): what the fit predicts in these leaves, (T, n), offsets apart."""
        return predictions(self.structure, self.base, self.values, leaves)

    @property
    def added(self) -> FloatArray:
        """(L, K): what each leaf adds to the predictions of its rows in the end."""
        s = self.structure
        return np.repeat(s.final, s.n_leaves)[:, None] * self.values

    def reductions(self, rows: slice) -> FloatArray:
        """(T, rows): by how much each tree made the training rows' absolute errors smaller, over all outputs."""
        seen = self.residuals(self.structure.leaves(rows), self.started(rows))
        return -np.diff(np.stack([np.abs(residual).sum(axis=1) for residual in seen]), axis=0)

    def steps(self, rows: slice) -> Iterator[ResidualStep]:
        """The steps of the trees t = 0..T-1 on a block of training rows: what each saw and did."""
        s = self.structure
        cells = s.cells[:, rows]
        n_leaves = s.n_leaves[:, None].astype(cells.dtype)
        leaves, draws = (
            (cells, None) if len(s.draws) == 1 else (cells % n_leaves, s.row_draws(rows))
        )
        if s.cut is not None:
            draws = s.whole_draws[cells // n_leaves]
        started = self.started(rows)
        for t, residual in zip(range(s.n_trees), self.residuals(leaves, started)):
            leaf = s.entries(t, leaves[t])
            drawn = s.draws[0] if draws is None else draws[t]
            seen = residual if s.cut is None else s.cut.kept(residual)
            yield ResidualStep(t, leaf, drawn, seen, self.values[leaf])

    def whole(self, cut: Cut) -> tuple[FloatArray, FloatArray]:
        """(L, 1) and (L,): leaf sums with what residuals put into them that are cut off, and the weights of these rows."""
        s, leaves, rows = (
            self.structure,
            self.structure.leaves(),
            self.structure.cells // self.structure.n_leaves[:, None],
        )
        sums, weights = np.zeros((s.total_leaves, 1)), np.zeros(s.total_leaves)
        for t, residual in zip(range(s.n_trees), self.residuals(leaves, self.started())):
            own, n, r = slice(s.starts[t], s.starts[t + 1]), int(s.n_leaves[t]), residual[:, 0]
            drawn = s.whole_draws[rows[t]] * (1.0 if s.row_weights is None else s.row_weights)
            sums[own, 0] = np.bincount(leaves[t], drawn * cut.kept(r), n)
            weights[own] = np.bincount(
                leaves[t], drawn if cut.weighs else drawn * ~cut.beyond(r), n
            )
        return sums, weights


def predictions(
    structure: Structure, base: FloatArray, values: FloatArray, leaves: LeafArray
) -> FloatArray:
    """(n, K): predictions in these leaves, (T, n), from a base (K,) and leaf values (L, K) before any rate."""
    s = structure
    made = np.tile(s.beta[-1] * base, (leaves.shape[1], 1))
    for t, coefficient in enumerate(s.final):
        made += coefficient * values[s.entries(t, leaves[t])]
    return made


@dataclass(frozen=True)
class ResidualStep:
    """One tree and a block of training rows."""

    tree: int
    leaf: NDArray[np.int64]  #: (rows,) numbered among all L leaves
    drawn: FloatArray | np.float64  #: (rows,) how often each row was drawn for the tree
    residual: FloatArray  #: (rows, K) before the tree; changed in place afterwards
    value: FloatArray  #: (rows, K) of the row's leaf, before the rate

    def pull(self, output: int) -> FloatArray:
        """(rows,): ``draw_j * (r_j - v[leaf(j)])``, of which leaf_scale makes d v[leaf(j)] / d w_j where l2 is held fixed.

        ``v = S / (W + l2)`` with S the leaf's sum of w * draw * r and W that of w * draw. So a row raises its leaf's
        value as far as its residual is above it.
        """
        return np.asarray(self.drawn * (self.residual[:, output] - self.value[:, output]))
