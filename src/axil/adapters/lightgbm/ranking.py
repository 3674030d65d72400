"""LightGBM's ranking objectives: lambdarank and rank_xendcg.

Formulas: src/objective/rank_objective.hpp, src/metric/dcg_calculator.cpp. Gradients are float32
sums, pair after pair; what a pair adds is computed in float64.

lambdarank, with D the discounts 1 / log2(2 + rank) and G the gains of labels (2^label - 1, or
label_gain):

    delta = |G_i - G_j| |D_i - D_j| / (largest DCG of the group at truncation_level)
    lambda = sigmoid delta p,   mu = sigmoid^2 delta p (1 - p),   p = 1 / (1 + exp(sigmoid d))

Pairs have a row among the first truncation_level ranks. With lambdarank_norm delta is divided by
0.01 + |d|, unless all scores are equal, and a group's sums are multiplied by log2(1 + S) / S, where
S is twice the sum of its lambdas. p comes from a table of 2^20 steps.

rank_xendcg draws a number per row and round: a generator for each group, seeded objective_seed +
group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from axil.adapters.lightgbm.text import LightGBMSettings
from axil.aliases import ForeignObject
from axil.arrays import FloatArray, IntArray
from axil.errors import InputError
from axil.trees.coupled_losses import (
    CoupledLoss,
    GroupedLoss,
    LabelPairs,
    PairSums,
    RankedRows,
    norm_factors,
    weighted,
)
from axil.trees.losses import RoundRows

TABLE_STEPS = 1 << 20  # of the table of sigmoids
LARGEST_INPUT = 50.0  # its largest |d|, times sigmoid / 2
ADDED_DISTANCE = float(np.float32(0.01))
MIN_SUM = 1e-15  # of the terms of rank_xendcg (kEpsilon, include/LightGBM/meta.h)


@dataclass(frozen=True, kw_only=True, eq=False)
class LambdaRank(GroupedLoss):
    """Pairs weighted by the change of NDCG that swapping them makes."""

    gains: FloatArray  #: by label
    sigmoid: float
    top: int  #: truncation_level
    is_normalised: bool

    name = "lambdarank"

    def check(self, y: FloatArray, argument: str = "y_train", whole: bool = True) -> None:
        """Require labels that have a gain."""
        check_labels(y, argument, len(self.gains))

    @cached_property
    def _table(self) -> FloatArray:
        """Sigmoids at the steps between -LARGEST_INPUT and LARGEST_INPUT, over 2 * sigmoid."""
        steps = np.arange(TABLE_STEPS) / self._steps_per_unit
        return np.asarray(1 / (1 + np.exp((steps + self._lowest) * self.sigmoid)))

    @property
    def _lowest(self) -> float:
        """The difference of scores at which the table begins."""
        return -LARGEST_INPUT / self.sigmoid / 2

    @property
    def _steps_per_unit(self) -> float:
        return TABLE_STEPS / (-2 * self._lowest)

    def _probabilities(self, differences: FloatArray) -> FloatArray:
        """Return the table's sigmoids, rounded down to a step."""
        steps = (differences - self._lowest) * self._steps_per_unit
        places = np.clip(steps, 0, TABLE_STEPS - 1).astype(np.intp)
        places[differences >= -self._lowest] = TABLE_STEPS - 1
        return self._table[places]

    def fit_gradients(self, rows: RoundRows) -> tuple[ForeignObject, ForeignObject]:
        """Return g and h (N, 1), with the row weights in them."""
        scores = rows.scores[:, 0].astype(np.float64)
        ranked = RankedRows.of(self.groups, scores, rows.present)
        group_sums = np.zeros(ranked.n_groups)
        sums = PairSums(len(scores), rows.precision)
        terms = _LambdaTerms(self, ranked, rows.targets[ranked.rows, 0], scores[ranked.rows])
        for pairs in ranked.pairs(terms.labels, self.top):
            delta, probabilities = terms.of(pairs)
            lambdas = probabilities * (-self.sigmoid * delta)
            hessians = probabilities * (1 - probabilities) * (self.sigmoid**2 * delta)
            sums.add(ranked.rows[pairs.better], ranked.rows[pairs.worse], lambdas, hessians)
            group_sums += np.bincount(ranked.group[pairs.better], -2 * lambdas, ranked.n_groups)
        g = sums.g
        h = sums.h
        if self.is_normalised:
            factors = norm_factors(group_sums)[self.groups]
            g = (g.astype(np.float64) * factors).astype(rows.precision)
            h = (h.astype(np.float64) * factors).astype(rows.precision)
        return weighted(rows, g, h)


class _LambdaTerms:
    """The terms of rows in pairs of one round, in the order of the ranking."""

    def __init__(
        self, loss: LambdaRank, ranked: RankedRows, labels: FloatArray, scores: FloatArray
    ):
        self.loss = loss
        self.group = ranked.group
        self.labels = labels
        self.scores = scores
        self.gains = loss.gains[labels.astype(np.intp)]
        self.discounts = 1 / np.log2(2.0 + ranked.ranks)
        largest = ranked.best_sums(labels, self.gains, self.discounts, loss.top)
        self.inverse_largest = np.divide(
            1.0, largest, out=np.zeros_like(largest), where=largest > 0
        )
        self.is_divided = loss.is_normalised & ~ranked.have_one_score(scores)

    def of(self, pairs: LabelPairs) -> tuple[FloatArray, FloatArray]:
        """Return the weights of pairs and their sigmoids."""
        better = pairs.better
        worse = pairs.worse
        group = self.group[better]
        differences = self.scores[better] - self.scores[worse]
        gain = self.gains[better] - self.gains[worse]
        discount = np.abs(self.discounts[better] - self.discounts[worse])
        delta = gain * discount * self.inverse_largest[group]
        divisors = np.where(self.is_divided[group], ADDED_DISTANCE + np.abs(differences), 1.0)
        return delta / divisors, self.loss._probabilities(differences)


@dataclass(frozen=True, kw_only=True, eq=False)
class XeNdcg(GroupedLoss):
    """The cross entropy of softmax scores and random relevances, with two terms of higher order."""

    seed: int  #: objective_seed

    name = "rank_xendcg"
    draws_numbers = True

    def check(self, y: FloatArray, argument: str = "y_train", whole: bool = True) -> None:
        """Require labels from 0 up."""
        check_labels(y, argument, 31)

    @cached_property
    def _numbers(self) -> NDArray[np.int64]:
        """How many random numbers each row uses in the first round, (N,)."""
        starts = np.flatnonzero(np.diff(self.groups, prepend=-1))
        return np.asarray(np.arange(len(self.groups)) - starts[self.groups] + 1)

    def _uniforms(self, number: int) -> FloatArray:
        """Return the random numbers (N,) of the rows in a round, also those of absent rows.

        Groups of one row draw none; what stands there is not used.
        """
        sizes = np.bincount(self.groups)[self.groups]
        words = (self.seed + self.groups).astype(np.uint32)
        return _uniforms_after(words, (number * sizes + self._numbers).astype(np.uint32))

    def fit_gradients(self, rows: RoundRows) -> tuple[ForeignObject, ForeignObject]:
        """Return g and h (N, 1), with the row weights in them."""
        present = rows.present
        group = self.groups[present]
        n_groups = int(self.groups[-1]) + 1
        scores = rows.scores[present, 0].astype(np.float64)

        def sums(values: FloatArray) -> FloatArray:
            return np.bincount(group, values, n_groups)[group]

        largest = np.full(n_groups, -np.inf)
        np.maximum.at(largest, group, scores)
        shares = np.exp(scores - largest[group])
        shares = shares / sums(shares)
        labels = rows.targets[present, 0].astype(np.intp)
        relevance = 2.0**labels - self._uniforms(rows.number)[present]
        terms = shares - relevance / np.maximum(MIN_SUM, sums(relevance))
        gradients = terms.astype(rows.precision)
        with np.errstate(divide="ignore", invalid="ignore"):
            for _ in range(2):
                ratios = terms / (1 - shares)
                terms = shares * (sums(ratios) - ratios)
                gradients = gradients + terms.astype(rows.precision)
        has_others = np.bincount(group, minlength=n_groups)[group] > 1
        g = np.zeros(len(rows.targets), dtype=rows.precision)
        h = np.zeros_like(g)
        g[present] = np.where(has_others, gradients, 0)
        h[present] = np.where(has_others, shares * (1 - shares), 0)
        return weighted(rows, g, h)


def _uniforms_after(words: NDArray[np.uint32], n_steps: NDArray[np.uint32]) -> FloatArray:
    """Return the numbers from 0 up to 1 of generators in these states after so many steps, (N,).

    k steps of ``x <- 214013 x + 2531011`` are one such step with other constants, which are
    squared together bit by bit.
    """
    factor = np.uint32(214013)
    term = np.uint32(2531011)
    states = words.copy()
    remaining = n_steps.copy()
    with np.errstate(over="ignore"):
        while remaining.any():
            is_odd = (remaining & np.uint32(1)).astype(np.bool_)
            states[is_odd] = states[is_odd] * factor + term
            term = factor * term + term
            factor = factor * factor
            remaining >>= np.uint32(1)
    return np.asarray(((states >> np.uint32(16)) & np.uint32(0x7FFF)) / 32768.0)


def check_labels(y: FloatArray, argument: str, n_labels: int) -> None:
    """Raise for labels that are not whole numbers from 0 up to the largest that has a gain."""
    is_label = (y >= 0) & (y < n_labels) & (y == np.rint(y))
    if not is_label.all():
        wrong = float(y[~is_label][0])
        raise InputError(
            f"{argument} holds {wrong:g}; this ranking objective takes relevance labels, whole "
            f"numbers from 0 to {n_labels - 1}."
        )


def _gains(settings: LightGBMSettings) -> FloatArray:
    """Return the gain of each label: label_gain, by default 2^label - 1."""
    for gains in settings.given("label_gain"):
        if isinstance(gains, str):
            gains = gains.split(",")
        return np.array([float(gain) for gain in gains])
    printed = settings.text("label_gain")
    if printed:
        return np.array([float(gain) for gain in printed.split(",")])
    return np.asarray(2.0 ** np.arange(31) - 1, dtype=np.float64)


def lambdarank(settings: LightGBMSettings, groups: IntArray) -> LambdaRank:
    """Return the loss of objective lambdarank."""
    return LambdaRank(
        groups=groups,
        gains=_gains(settings),
        sigmoid=settings.precisely("sigmoid")[0],
        top=int(settings.number("lambdarank_truncation_level")),
        is_normalised=settings.flag("lambdarank_norm"),
    )


def rank_xendcg(settings: LightGBMSettings, groups: IntArray) -> XeNdcg:
    """Return the loss of objective rank_xendcg."""
    return XeNdcg(groups=groups, seed=int(settings.number("objective_seed")))


RANKING: dict[str, Callable[[LightGBMSettings, IntArray], CoupledLoss]] = {
    "lambdarank": lambdarank,
    "rank_xendcg": rank_xendcg,
}
