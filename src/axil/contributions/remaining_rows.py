"""Remaining rows: what rows count with in fits without some others.

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
from axil.replay.replayed_stages import ReplayedStages

AGREES = 1e-6  # relative: class weights that a model states are in single precision


@dataclass(frozen=True)
class RemainingRows:
    """The rows of C fits, each without some rows of the N that the model was fitted to."""

    weights: FloatArray  #: (C, N) as the base counts rows; deleted rows have none
    factors: (
        FloatArray | None
    )  #: (C, N) what multiplies them in leaves, or (1, N) in all fits; None: ones
    l2_factors: FloatArray  #: (C,) what l2 is multiplied by

    @classmethod
    def all_of(cls, walked: ReplayedStages, factors: FloatArray | None) -> RemainingRows:
        """Return the rows of one fit to all rows, whose factors (N,) may be others."""
        return cls(walked.weights[None], None if factors is None else factors[None], np.ones(1))


@dataclass(frozen=True)
class LabelWeights:
    """How the weights of a fit follow from the labels of its rows."""

    adapter: Adapter
    rows: TrainingRows  #: with the weights that they count with, those of their classes included
    counts_classes: bool  #: whether these weights were multiplied by those of the model's classes

    @property
    def are_counted(self) -> bool:
        """Whether some weights are counted from the labels of all rows."""
        return self._has_rule or self._balances_labels

    @property
    def _has_rule(self) -> bool:
        return self.counts_classes and class_weight_rule(self.adapter) is not None

    @property
    def _balances_labels(self) -> bool:
        return self.adapter.balances_labels

    @cached_property
    def _hot(self) -> FloatArray:
        return one_hot(self.rows.targets)

    @cached_property
    def _by_class(self) -> FloatArray:
        """(C,): the weights of the classes in the fit to all rows."""
        found = weights_of_classes(self.adapter, self.rows.targets, None)
        assert found is not None
        return found

    @cached_property
    def _own(self) -> FloatArray:
        """(N,): the rows' own weights, without those of their classes."""
        weights = self.rows.weights
        assert weights is not None
        by_class = self._hot @ self._by_class
        return np.divide(weights, by_class, out=np.zeros_like(weights), where=by_class != 0)

    def require_rule(self, question: str) -> None:
        """Raise where the class weights that the model states do not follow from the labels by the library's rule."""
        if not self._has_rule:
            return
        again = weights_of_classes(self.adapter, self.rows.targets, self._own, count=True)
        assert again is not None
        if not np.allclose(again, self._by_class, rtol=AGREES, atol=0.0):
            raise UnsupportedQuestionError(
                question,
                f"the model states class weights {self._by_class.tolist()}, and its library's rule makes {again.tolist()} of "
                "these labels, so it is not known what becomes of them without some rows",
                "Fit with class_weights of your own, or multiply them into sample_weight.",
            )

    def of_classes(self, present: BoolArray) -> FloatArray | None:
        """Return what row weights (N,) change by where only these rows remain; None: nothing."""
        if not self._has_rule:
            return None
        found = weights_of_classes(
            self.adapter, self.rows.targets[present], self._own[present], count=True
        )
        assert found is not None
        return np.asarray(self._hot @ (found / self._by_class))

    def factors(self, present: BoolArray) -> FloatArray:
        """Return the factors of labels, (N,), where only these rows remain; 0 of the others."""
        found = np.zeros(len(present))
        made = self.adapter.label_factors(self.rows.targets[present])
        if made is None:
            found[present] = 1.0
        else:
            found[present] = made
        return found

    def with_targets(
        self, walked: ReplayedStages, targets: FloatArray, factors: FloatArray | None
    ) -> RemainingRows:
        """Return the rows of one fit to other targets (N, K), whose factors are (N,): rows weigh what their new classes do."""
        remaining = RemainingRows.all_of(walked, factors)
        if not self.counts_classes or np.array_equal(targets, self.rows.targets):
            return remaining
        if weights_of_classes(self.adapter, self.rows.targets, None) is None:
            return remaining
        self.require_rule("what_if")
        before = self._hot @ self._by_class
        by_class = weights_of_classes(self.adapter, targets, self._own, count=True)
        assert by_class is not None
        after = one_hot(targets) @ by_class
        if (after[before == 0] != 0).any():
            raise UnsupportedQuestionError(
                "what_if",
                "some rows whose class has the weight zero would be of a class that has one, and their own weights are not known",
                "Use explainer.refit(targets=), which knows the sample weights.",
            )
        ratio = np.divide(after, before, out=np.zeros_like(after), where=before != 0)
        weights = walked.weights * ratio
        l2_factors = np.ones(1)
        if walked.fit.leaf_rule.l2_by_weight:
            l2_factors[0] = weights.mean() / walked.weights.mean()
        return RemainingRows(weights[None], remaining.factors, l2_factors)

    def without(self, walked: ReplayedStages, gone: Sequence[IntArray]) -> RemainingRows:
        """Return the rows of fits without these, one for each of C sets."""
        weights = np.tile(walked.weights, (len(gone), 1))
        l2_factors = np.ones(len(gone))
        factors = walked.fit.weights.leaf_factors
        if factors is None and self._balances_labels:  # as many rows of each label
            factors = np.ones(len(walked.weights))
        if factors is None:
            every = None
        else:
            every = factors[None]
        if factors is not None and self._balances_labels:
            every = np.tile(factors, (len(gone), 1))
        before = walked.weights.mean()
        for fit, rows in enumerate(gone):
            if not len(rows):
                continue
            present = np.ones(len(walked.weights), dtype=np.bool_)
            present[rows] = False
            weights[fit, rows] = 0.0
            changed = self.of_classes(present)
            if changed is not None:
                weights[fit] *= changed
            if every is not None and self._balances_labels:
                every[fit] = self.factors(present)
            if walked.fit.leaf_rule.l2_by_weight and present.any():
                l2_factors[fit] = weights[fit].sum() / present.sum() / before
        return RemainingRows(weights, every, l2_factors)
