"""LabelWeights: what rows count in fits to other labels, or without some rows.

Deleted rows are gone. What a library derives from its rows follows those that remain: weights that
balance classes, factors that balance labels, an l2 in proportion to the mean weight. A row that the
fit itself gave no weight remains.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from axil.adapters.class_weights import class_weight_rule, one_hot, weights_of_classes
from axil.adapters.contract import Adapter, TrainingRows
from axil.arrays import BoolArray, FloatArray, IntArray
from axil.errors import UnsupportedQuestionError
from axil.replay.computed_walk import RowWeights
from axil.replay.replayed_stages import ReplayedStages

AGREES = 1e-6  # relative: class weights that a model states are in single precision


@dataclass(frozen=True)
class LabelWeights:
    """The rule from the labels of rows to the weights of a fit."""

    adapter: Adapter
    rows: TrainingRows  #: with the weights that they count with, those of their classes included
    counts_classes: bool  #: whether these weights were multiplied by those of the model's classes

    @property
    def are_counted(self) -> bool:
        """Whether some weights are counted from the labels of all rows."""
        return self._has_class_rule or self._balances_labels

    @property
    def _has_class_rule(self) -> bool:
        return self.counts_classes and class_weight_rule(self.adapter) is not None

    @property
    def _balances_labels(self) -> bool:
        return self.adapter.balances_labels

    @cached_property
    def _one_hot(self) -> FloatArray:
        """The classes of the rows as indicators, (N, C)."""
        return one_hot(self.rows.targets)

    @cached_property
    def _class_weights(self) -> FloatArray:
        """The weights of the classes in the fit to all rows, (C,)."""
        class_weights = weights_of_classes(self.adapter, self.rows.targets, None)
        assert class_weights is not None
        return class_weights

    @cached_property
    def _sample_weights(self) -> FloatArray:
        """The weights of the rows without those of their classes, (N,)."""
        weights = self.rows.weights
        assert weights is not None
        of_class = self._one_hot @ self._class_weights
        return np.divide(weights, of_class, out=np.zeros_like(weights), where=of_class != 0)

    def require_rule(self, question: str) -> None:
        """Raise unless the class weights of the model follow from the labels by a rule."""
        if not self._has_class_rule:
            return
        by_rule = weights_of_classes(
            self.adapter, self.rows.targets, self._sample_weights, count=True
        )
        assert by_rule is not None
        if not np.allclose(by_rule, self._class_weights, rtol=AGREES, atol=0.0):
            raise UnsupportedQuestionError(
                question,
                f"the model states class weights {self._class_weights.tolist()}, and its "
                f"library's rule makes {by_rule.tolist()} of these labels, so the class weights "
                "without some rows are unknown",
                "Fit with class_weights of your own, or multiply them into sample_weight.",
            )

    def _class_ratios(self, is_present: BoolArray) -> FloatArray | None:
        """Return the factors by which row weights change if only some rows remain, (N,).

        It is None if they do not change.
        """
        if not self._has_class_rule:
            return None
        class_weights = weights_of_classes(
            self.adapter,
            self.rows.targets[is_present],
            self._sample_weights[is_present],
            count=True,
        )
        assert class_weights is not None
        return np.asarray(self._one_hot @ (class_weights / self._class_weights))

    def _label_factors(self, is_present: BoolArray) -> FloatArray:
        """Return the factors of labels, (N,), if only some rows remain; 0 for the others."""
        factors = np.zeros(len(is_present))
        of_present = self.adapter.label_factors(self.rows.targets[is_present])
        if of_present is None:
            factors[is_present] = 1.0
        else:
            factors[is_present] = of_present
        return factors

    def with_targets(
        self, replayed: ReplayedStages, targets: FloatArray, factors: FloatArray | None
    ) -> RowWeights:
        """Return the weights of one fit to other targets (N, K).

        Rows weigh what their new classes do. ``factors`` (N,) multiply them in leaves.
        """
        row_weights = RowWeights.of_one_fit(replayed.weights, factors)
        if not self.counts_classes or np.array_equal(targets, self.rows.targets):
            return row_weights
        if weights_of_classes(self.adapter, self.rows.targets, None) is None:
            return row_weights
        self.require_rule("what_if")
        before = self._one_hot @ self._class_weights
        class_weights = weights_of_classes(self.adapter, targets, self._sample_weights, count=True)
        assert class_weights is not None
        after = one_hot(targets) @ class_weights
        if (after[before == 0] != 0).any():
            raise UnsupportedQuestionError(
                "what_if",
                "some rows would move from a class of weight zero to another class, and their "
                "sample weights are unknown",
                "Use explainer.refit(targets=), which knows the sample weights.",
            )
        ratios = np.divide(after, before, out=np.zeros_like(after), where=before != 0)
        weights = replayed.weights * ratios
        l2_factors = np.ones(1)
        if replayed.fit.leaf_rule.l2_by_weight:
            l2_factors[0] = weights.mean() / replayed.weights.mean()
        return RowWeights(weights[None], row_weights.factors, l2_factors)

    def without(self, replayed: ReplayedStages, sets_of_rows: Sequence[IntArray]) -> RowWeights:
        """Return the weights of refits without these rows, one for each of C sets."""
        n_fits = len(sets_of_rows)
        n_rows = len(replayed.weights)
        weights = np.tile(replayed.weights, (n_fits, 1))
        l2_factors = np.ones(n_fits)
        factors = self._factors_of_fits(replayed, n_fits)
        mean_before = replayed.weights.mean()
        are_present = np.ones((n_fits, n_rows), dtype=np.bool_)
        for fit, rows in enumerate(sets_of_rows):
            if not len(rows):
                continue
            is_present = are_present[fit]
            is_present[rows] = False
            weights[fit, rows] = 0.0
            ratios = self._class_ratios(is_present)
            if ratios is not None:
                weights[fit] *= ratios
            if factors is not None and self._balances_labels:
                factors[fit] = self._label_factors(is_present)
            if replayed.fit.leaf_rule.l2_by_weight and is_present.any():
                mean_after = weights[fit].sum() / is_present.sum()
                l2_factors[fit] = mean_after / mean_before
        return RowWeights(weights, factors, l2_factors, are_present)

    def _factors_of_fits(self, replayed: ReplayedStages, n_fits: int) -> FloatArray | None:
        """Return the factors of rows in leaves, (C, N), or (1, N) if all fits have the same."""
        factors = replayed.fit.weights.leaf_factors
        if self._balances_labels:
            if factors is None:  # as many rows of each label
                factors = np.ones(len(replayed.weights))
            return np.tile(factors, (n_fits, 1))
        if factors is None:
            return None
        return factors[None]
