"""The residuals that each tree was fitted to, and what each training row adds to its leaf.

With the leaf values v_t of the fit, replayed in float64, the residuals of any row follow from its
leaves alone:

    r^(t) = y - offset - beta[t] * base - sum_{s < t} omega[t, s] * v_s[leaf_s],     t = 0..T

In plain boosting ``omega[t, s]`` is the learning rate of tree s, and beta = 1. ``r^(t)`` is what
tree t saw of the row, or would have seen of a row that was not sampled, and ``r^(T)`` is what the
prediction leaves over. No row depends on another, so blocks of rows can be walked.
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
    """A fit in float64, for K outputs that share their trees."""

    structure: Structure
    targets: FloatArray  #: (N, K)
    base: FloatArray  #: (K,) the initial prediction
    values: FloatArray  #: (L, K) leaf values before any learning rate
    sums: FloatArray  #: (L, K) of row weight * sample count * residual

    def started(self, rows: slice = slice(None)) -> FloatArray:
        """Return the targets of training rows less their offsets, (rows, K)."""
        offsets = self.structure.offsets
        if offsets is None:
            return self.targets[rows]
        return self.targets[rows] - offsets[rows]

    def residuals(self, leaves: LeafArray, targets: FloatArray) -> Iterator[FloatArray]:
        """Yield r^(0) .. r^(T), (n, K) each, of rows in these leaves. Cost O(T n K).

        The array is always the same one, changed in place: copy what you keep. As in the libraries,
        the sum of the trees is subtracted from the targets. So targets keep their digits where
        trees of huge values cancel.

        Parameters
        ----------
        leaves : array of shape (T, n)
        targets : array of shape (n, K)
            The targets less the offsets.
        """
        s = self.structure
        scores = np.tile(s.beta[0] * self.base, (len(targets), 1))
        residual = targets - scores
        yield residual
        for group in groups_of(s):
            for _ in range(group.first, group.last):  # these trees saw the same
                yield residual
            for t, coefficient in group.changes:
                scores += coefficient * self.values[s.entries(t, leaves[t])]
            scores += (s.beta[group.last + 1] - s.beta[group.last]) * self.base
            np.subtract(targets, scores, out=residual)
            yield residual

    def predictions(self, leaves: LeafArray) -> FloatArray:
        """Return the predictions of rows in these leaves, (T, n), without offsets, (n, K)."""
        return predictions(self.structure, self.base, self.values, leaves)

    @property
    def added(self) -> FloatArray:
        """What each leaf adds to the predictions of its rows, (L, K)."""
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
        """Yield residuals of a block of training rows before each tree, and the tree's values."""
        s = self.structure
        leaves = s.leaves(rows)
        if s.leaf_rule is not None and s.leaf_rule.clips_residuals:
            counts = s.sampled_counts(rows)
        elif len(s.sample_counts) > 1:
            counts = s.row_counts(rows)
        else:
            counts = np.full((s.n_trees, 1), s.sample_counts[0])
        for t, residual in zip(range(s.n_trees), self.residuals(leaves, self.started(rows))):
            leaf = s.entries(t, leaves[t])
            counted = residual
            if s.leaf_rule is not None:
                counted = s.leaf_rule.counted_residuals(residual)
            yield ResidualStep(t, leaf, counts[t], counted, self.values[leaf])


def predictions(
    structure: Structure, base: FloatArray, values: FloatArray, leaves: LeafArray
) -> FloatArray:
    """Return the predictions of rows in these leaves, (n, K), without offsets.

    Parameters
    ----------
    structure : Structure
    base : array of shape (K,)
        The initial prediction.
    values : array of shape (L, K)
        The leaf values before any learning rate.
    leaves : array of shape (T, n)
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
    count: FloatArray  #: (rows,), or (1,) where it is that of all rows: how often each was sampled
    residual: FloatArray  #: (rows, K) before the tree; changed in place afterwards
    value: FloatArray  #: (rows, K) of the row's leaf, before the learning rate

    def gradient(self, output: int) -> FloatArray:
        """Return ``count_j * (r_j - v[leaf(j)])``, (rows,).

        Times the scale of the leaf it is ``d v[leaf(j)] / d w_j`` with l2 fixed. ``v = S / (W +
        l2)`` with S the leaf's sum of w * count * r and W that of w * count. So a row raises its
        leaf's value as far as its residual is above it.
        """
        return np.asarray(self.count * (self.residual[:, output] - self.value[:, output]))
