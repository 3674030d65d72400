"""RowScores: scores of training rows on their way through a fit, and sums of gradients.

The walk with recorded leaf values (`gradient_walk`) and the walk with computed ones
(`computed_walk`) both move scores through a fit. This module holds what they share: the scores in
double precision and as the library rounds them, the gradients of the loss at these scores, and
their sums over the leaves of one tree.
"""

from __future__ import annotations

import numpy as np

from axil.adapters.boosted_fit import BoostedFit, Shrinkage
from axil.arrays import AnyArray, BoolArray, FloatArray
from axil.kernels import NONE, Backend, Cells
from axil.machine.blocks import BlockWorker
from axil.trees.losses import Loss, RoundRows


class RowScores:
    """The scores of the rows of C fits on the same trees, fit after fit.

    Parameters
    ----------
    fit : BoostedFit
        The fit, whose loss gives the gradients.
    targets : array of shape (C * N, K)
    initial : array that broadcasts to (C * N, K)
        The scores before the first round.
    weights : array of shape (C, N)
        Row weights without ``factors``.
    factors : array of shape (C, N) or (1, N), or None
        What multiplies row weights in leaves.
    rounded : bool
        Whether gradients and scores are rounded as the library rounds them.
    each_block : callable
        Has some work done on every block of rows; see `axil.machine.blocks.row_blocks`.
    backend : Backend
        Where the leaf sums are computed.
    """

    def __init__(
        self,
        fit: BoostedFit,
        targets: FloatArray,
        initial: FloatArray,
        weights: FloatArray,
        factors: FloatArray | None,
        rounded: bool,
        each_block: BlockWorker,
        backend: Backend,
    ):
        self.loss = fit.loss
        self.targets = targets
        self.weights = weights
        self.current: FloatArray = initial + np.zeros_like(targets)
        self._each_block = each_block
        self._backend = backend
        leaf_weights = weights
        if factors is not None:
            leaf_weights = weights * factors
        leaf_weights = leaf_weights.ravel()
        #: (C * N,) what gradients are multiplied by before they are rounded; None: they are not
        self.rounded_weights: FloatArray | None = None
        #: (C * N,) what gradients are multiplied by in leaf sums
        self.sum_weights = leaf_weights
        if rounded and fit.loss.single:
            self.rounded_weights = leaf_weights
        if (rounded and fit.loss.single) or fit.loss.recorded:
            self.sum_weights = np.ones(len(targets))
        self._is_rounded = rounded
        self._leaf_weights = leaf_weights.reshape(len(weights), -1)
        #: (C, N) the rows that each fit has, for gradients that depend on other rows; None: all
        self.is_present: BoolArray | None = None
        self._n_computed = 0  # how often gradients were computed
        self.has_unit_weights = bool(np.all(self.sum_weights == 1))
        # Ranks turn on ties, and rounding decides what is tied.
        keeps_rounding = rounded or fit.loss.couples_rows
        #: (C * N, K) the scores as the library keeps them, if otherwise. Where trees are dropped,
        #: the library adds up all scores again, so they are not rounded tree by tree.
        self.as_kept: AnyArray | None = None
        if keeps_rounding and fit.schedule.is_plain and fit.score_precision is not np.float64:
            self.as_kept = self.current.astype(fit.score_precision)
        n_outputs = targets.shape[1]
        #: (K, C * N, 2) the gradients and hessians at the current scores, filled round by round
        self.gradients = np.empty((n_outputs, len(targets), 2))
        #: (C * N, 1) of the scores from the sums of their trees, where a shrinkage leaves one
        self.deviation = np.zeros((len(targets), 1))
        #: the loss of each round, where it depends on all rows
        self.round_losses: list[Loss] = []

    def compute_gradients(self) -> None:
        """Compute the gradients and hessians at the current scores.

        They are multiplied by ``rounded_weights``, if there are any. Threads share blocks of rows,
        unless the loss is a function of all rows at once.
        """
        scores: AnyArray = self.current
        if self.as_kept is not None:
            scores = self.as_kept
        if self.loss.pooled:
            self._compute_pooled_gradients(scores)
        elif self.loss.recorded:
            self._compute_fit_gradients(scores)
        else:
            self._each_block(lambda rows: self._compute_block(self.loss, scores, rows))

    def _compute_pooled_gradients(self, scores: AnyArray) -> None:
        """Compute the gradients of a loss that depends on all rows of a fit together."""
        n_rows = self.weights.shape[1]
        for copy, weights in enumerate(self.weights):
            rows = slice(copy * n_rows, (copy + 1) * n_rows)
            loss = self.loss.of_round(self.targets[rows], scores[rows], weights)
            self.round_losses.append(loss)
            self._compute_block(loss, scores, rows)

    def _compute_fit_gradients(self, scores: AnyArray) -> None:
        """Compute the gradients of a loss that needs all rows of a fit at once."""
        n_rows = self.weights.shape[1]
        for copy, weights in enumerate(self._leaf_weights):
            rows = slice(copy * n_rows, (copy + 1) * n_rows)
            is_present = None
            if self.is_present is not None:
                is_present = self.is_present[copy]
            round_rows = RoundRows(
                self.targets[rows],
                scores[rows],
                weights,
                self._n_computed,
                is_present,
                self._is_rounded,
            )
            g, h = self.loss.fit_gradients(round_rows)
            self.gradients[:, rows, 0] = np.transpose(g)
            self.gradients[:, rows, 1] = np.transpose(h)
        self._n_computed += 1

    def total_loss(self) -> float:
        """Return the loss of all rows of a single fit at the current scores."""
        (weights,) = self._leaf_weights
        return self.loss.total(RoundRows(self.targets, self.current, weights, self._n_computed))

    def _compute_block(self, loss: Loss, scores: AnyArray, rows: slice) -> None:
        """Compute the gradients of some rows."""
        block = scores[rows]
        if self.rounded_weights is None:
            g, h = loss.leaf_slopes(self.targets[rows], block.astype(np.float64, copy=False))
        else:
            g, h = loss.weighted_slopes(self.targets[rows], block, self.rounded_weights[rows])
        self.gradients[:, rows, 0] = np.transpose(g)
        self.gradients[:, rows, 1] = np.transpose(h)

    def shrink(self, shrinkage: Shrinkage, tree: int) -> None:
        """Shrink the scores, which then deviate from the sums of their trees."""
        sums = self.current - self.deviation
        self.deviation = shrinkage.deviation(tree, sums, self.deviation)
        self.current = sums + self.deviation

    @property
    def g(self) -> FloatArray:
        """The gradients at the scores of the round, (C * N, K)."""
        return self.gradients[:, :, 0].T

    @property
    def h(self) -> FloatArray:
        """The hessians at the scores of the round, (C * N, K)."""
        return self.gradients[:, :, 1].T

    def leaf_sums(
        self, leaves: Cells, n_leaves: int, output: int, sample_counts: FloatArray | None
    ) -> tuple[FloatArray, FloatArray]:
        """Return the sums G and H of weighted gradients and hessians over the leaves of one tree.

        Parameters
        ----------
        leaves : unsigned array of shape (1, C * N)
        n_leaves : int
            The number of leaves, those of all fits.
        output : int
        sample_counts : array of shape (C * N,) or None
            How often each row was sampled for the tree; None: once.

        Returns
        -------
        tuple of arrays of shape (n_leaves,)
        """
        weights: FloatArray | None = self.sum_weights
        if sample_counts is not None:
            weights = self.sum_weights * sample_counts
        elif self.has_unit_weights:
            weights = None
        rows = self._backend.rows(leaves, np.array([0, n_leaves]))
        sums = np.empty((rows.n_cells, 2))
        rows.sweep(self.gradients[output], NONE, sums, None, rows.every, sums, weights)
        return sums[:, 0], sums[:, 1]

    def add(self, leaves: Cells, output: int, values: FloatArray) -> None:
        """Add to the scores of an output the values (L,) of the leaves (C * N,) of the rows."""

        def add_block(rows: slice) -> None:
            self.current[rows, output] += values[leaves[rows]]
            if self.as_kept is not None:
                kept_values = values.astype(self.as_kept.dtype)
                self.as_kept[rows, output] += kept_values[leaves[rows]]

        self._each_block(add_block)
