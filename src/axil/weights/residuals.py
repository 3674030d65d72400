"""The residuals that every tree of a fit was fitted to, and what each training row adds to its leaf's value.

With the leaf values v_t of the fit, replayed in float64, the residuals of any row follow from its
leaves alone:

    r^(t) = y - offset - beta[t] * base - sum_{s < t} omega[t, s] * v_s[leaf_s],     t = 0..T

in plain boosting ``omega[t, s] = rate_s`` and beta = 1. ``r^(t)`` is what tree t saw of the row, or
would have seen of a row that took no part, and ``r^(T)`` is what the prediction leaves over. No row
depends on another, so blocks of rows can be walked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray, LeafArray
from axil.structure import Structure
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
        """Return the targets of training rows less their offsets, (rows, K)."""
        offsets = self.structure.offsets
        if offsets is None:
            return self.targets[rows]
        return self.targets[rows] - offsets[rows]

    def residuals(self, leaves: LeafArray, targets: FloatArray) -> Iterator[FloatArray]:
        """Yield r^(0) .. r^(T), (n, K) each, of rows in these leaves, (T, n), with targets less offsets (n, K).

        O(T n K), more where earlier trees are scaled again (`Coefficients`). The array is one and
        the same, changed in place from one tree to the next: copy what is to be kept. As in the
        libraries, what the trees add up to is subtracted from the targets, which keep their digits
        where trees of huge values cancel.
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
        """Return the predictions of rows in these leaves, (T, n), without offsets, (n, K)."""
        return predictions(self.structure, self.base, self.values, leaves)

    @property
    def added(self) -> FloatArray:
        """(L, K): what each leaf adds to the predictions of its rows in the end."""
        s = self.structure
        return np.repeat(s.final, s.n_leaves)[:, None] * self.values

    def reductions(self, rows: slice) -> FloatArray:
        """Return by how much each tree reduced the absolute error of training rows, (T, rows).

        Errors are summed over all outputs.
        """
        residuals = self.residuals(self.structure.leaves(rows), self.started(rows))
        errors = np.stack([np.abs(residual).sum(axis=1) for residual in residuals])
        return -np.diff(errors, axis=0)

    def steps(self, rows: slice) -> Iterator[ResidualStep]:
        """Yield what each of the trees t = 0..T-1 saw of a block of training rows, and did."""
        s = self.structure
        leaves = s.leaves(rows)
        clips_residuals = s.leaf_rule is not None and s.leaf_rule.clips_residuals
        draws = None
        if clips_residuals:
            draws = s.sampled_counts(rows)
        elif len(s.sample_counts) > 1:
            draws = s.row_counts(rows)
        for t, residual in zip(range(s.n_trees), self.residuals(leaves, self.started(rows))):
            leaf = s.entries(t, leaves[t])
            if draws is None:
                drawn = s.sample_counts[0]
            else:
                drawn = draws[t]
            if s.leaf_rule is not None:
                residual = s.leaf_rule.counted_residuals(residual)
            yield ResidualStep(t, leaf, drawn, residual, self.values[leaf])


def predictions(
    structure: Structure, base: FloatArray, values: FloatArray, leaves: LeafArray
) -> FloatArray:
    """Return the predictions of rows in these leaves, (T, n), without offsets, (n, K).

    ``base`` (K,): where they start. ``values`` (L, K): the leaf values before any learning rate.
    """
    s = structure
    scores = np.tile(s.beta[-1] * base, (leaves.shape[1], 1))
    for t, coefficient in enumerate(s.final):
        scores += coefficient * values[s.entries(t, leaves[t])]
    return scores


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
