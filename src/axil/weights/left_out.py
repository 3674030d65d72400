"""Left out: each training row in the fit without it, after the last tree and after every number of trees.

Row j in the fit without it has the residuals r_t of `deletion`: r_t is what t trees leave over, wherever tree t was fitted to
what the model of the trees before it leaves over. So one pass over the rows gives the squared errors after every such number of
trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.machine.progress import track
from axil.types import Array
from axil.weights.deletion import Alone, Block, Deletion, blocks_of
from axil.weights.residuals import FittedValues

LEAST_LEFT = 1e-6  # of 1 - leverage: below it a row's own prediction says nothing that its own target does not


@dataclass(frozen=True)
class Curve:
    """Mean squared errors after numbers of trees, over the rows that have a prediction without themselves."""

    trees: NDArray[np.int64]  #: (S,)
    left_out: Array  #: (S, K) of each row in the fit without it
    fitted: Array  #: (S, K) of the same rows in the fit with all
    rows: int


@dataclass(frozen=True)
class LeftOut:
    """Each training row in the fit without it."""

    predictions: Array  #: (N, K); nan: no other row says anything of it
    curve: Curve | None = None  #: None: there is none, as the trees are not fitted one after the other


def left_out(deletion: Deletion, own: Array) -> LeftOut:
    """Each training row in the fit without it, in one pass over the rows; ``own`` (K,): what predictions have besides.

    A row that no other row shares one of its leaves with has no prediction, nor one whose deletion leaves no weight.
    """
    fitted = deletion.fitted
    s, weights = fitted.structure, fitted.structure.row_weights
    trees = stages(fitted, own)
    found, sums, total, rows_counted = np.empty_like(fitted.targets), np.zeros((2, len(trees), len(own))), 0.0, 0
    for rows in track(blocks_of(s), "training rows"):
        block, alone = Block.of(s, rows), deletion.alone(rows)
        lonely = ((block.left(s) == 0) & (block.weight > 0) & (s.leaf_scale[block.leaf] > 0)).any(axis=0)
        kept = ~(lonely | np.isnan(alone.base).any(axis=0))
        counted = kept.astype(float) if weights is None else kept * weights[rows]
        before = Alone(np.moveaxis(fitted.values[block.leaf], -1, 0), fitted.base[:, None] + np.zeros_like(alone.base))
        for i, fit in enumerate((alone, before)):
            for at, residual in zip(trees, _residuals(fitted, block, fit, trees)):
                left = residual - own[:, None] if at == s.n_trees else residual
                if i == 0 and at == s.n_trees:
                    found[rows] = np.where(kept, fitted.targets[rows].T - left, np.nan).T
                sums[i, np.searchsorted(trees, at)] += np.where(kept, np.square(left), 0.0) @ counted
        total, rows_counted = total + counted.sum(), rows_counted + int(kept.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = sums / total
    in_turn = s.coefficients is None or len(trees) > 2  # else the base alone and all trees
    return LeftOut(found, Curve(trees, errors[0], errors[1], rows_counted) if in_turn else None)


def _residuals(fitted: FittedValues, block: Block, fit: Alone, trees: NDArray[np.int64]) -> Iterator[Array]:
    """Yield what these numbers of trees leave over of the rows, (K, rows) each."""
    s = fitted.structure
    residual = fitted.started(block.rows).T - s.beta[0] * fit.base
    for t in range(s.n_trees + 1):
        if t in trees:
            yield residual
        if t < s.n_trees:
            residual = block.residual(s, t, residual, fit.values, fit.base)


def stages(fitted: FittedValues, own: Array) -> NDArray[np.int64]:
    """(S,): the numbers of trees t after which predictions are those that tree t was fitted to; and that of all trees."""
    s, c = fitted.structure, fitted.structure.coefficients
    if c is None:
        return np.arange(s.n_trees + 1)

    def agrees(t: int) -> bool:
        started = c.beta[t] == c.beta[-1] or (
            s.base is not None and np.array_equal(c.beta[t] * s.base, c.beta[-1] * s.base + own)
        )
        return bool(started and np.array_equal(c.omega[t, :t], c.omega[-1, :t]))

    return np.array([*(t for t in range(s.n_trees) if agrees(t)), s.n_trees])
