"""XGBoost's ranking objectives: rank:ndcg, rank:map and rank:pairwise.

Formulas: src/objective/lambdarank_obj.h, lambdarank_obj.cc, src/common/ranking_utils.h. Scores and
sigmoids are float32, what a pair adds is computed in float64, and gradients are float32 sums, pair
after pair. With d the difference of two scores and s its sigmoid

    lambda = (1 - s) delta,   mu = 2 max(s (1 - s), 1e-16) delta

where delta is the change of NDCG or of the average precision that a swap of the two rows makes, or
1. With lambdarank_score_normalization delta is divided by 0.01 + |d|, unless all scores are equal.
With lambdarank_normalization the sums of a group are multiplied by log2(1 + S) / S, where S is
twice the sum of its lambdas. The weight of a group multiplies them too, over the mean of all.

Pairs are those with a row among the first num_pair_per_sample ranks (topk), or each row with so
many rows of other labels, sampled at random (mean). The sums of a group are then divided by that
number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.xgboost.document import ModelDocument
from axil.adapters.xgboost.draws import Stream, gpu_powers
from axil.aliases import ForeignObject
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.errors import InputError
from axil.trees.coupled_losses import (
    GroupedLoss,
    LabelPairs,
    PairSums,
    RankedRows,
    norm_factors,
)
from axil.trees.losses import RoundRows

RANKING = ("rank:ndcg", "rank:map", "rank:pairwise")
UNSET = 4294967295  # lambdarank_num_pair_per_sample where nobody set it
DEFAULT_TOP = 32
MIN_CURVATURE = 1e-16
ADDED_DISTANCE = 0.01
MINSTD_MODULUS = 2**31 - 1


@dataclass(frozen=True)
class PairDraws:
    """The seeds of the generators that sample pairs, one for each group and round."""

    n_groups: int
    #: words of the generator of the training, one for each round; None: seeds count on (XGBoost up
    #: to 3.3)
    words: NDArray[np.uint32] | None = None

    @classmethod
    def of(cls, model: ModelDocument, seed: int, n_groups: int) -> PairDraws:
        """Return the generators of a model that was trained with this seed."""
        if model.version < (3, 4):
            return cls(n_groups)
        n_before = int(model.base_estimated)  # the initial prediction takes a word as well
        words = Stream(seed).words(n_before + int(model.iterations[-1]) + 1)
        return cls(n_groups, words[n_before:])

    def seeds(self, number: int) -> NDArray[np.uint64]:
        """Return the initial states of the generators of a round, (Q,)."""
        groups = np.arange(self.n_groups, dtype=np.uint64)
        if self.words is None:
            seeds = np.uint64((number + 1) * self.n_groups) + groups
        else:
            seeds = np.uint64(self.words[number]) + groups
        states = (seeds & np.uint64(0xFFFFFFFF)) % np.uint64(MINSTD_MODULUS)
        return np.where(states == 0, np.uint64(1), states)


@dataclass(frozen=True, kw_only=True, eq=False)
class XGBoostRanking(GroupedLoss):
    """Pairs of rows weighted by the change of a measure that swapping them makes."""

    name: str
    n_pairs: int  #: lambdarank_num_pair_per_sample
    is_normalised: bool
    divides_by_distance: bool
    has_exponential_gain: bool
    draws: PairDraws | None  #: None: pairs of the first ranks

    @property
    def draws_numbers(self) -> bool:  # type: ignore[override]
        """Whether pairs are sampled at random."""
        return self.draws is not None

    def check(self, y: FloatArray, argument: str = "y_train", whole: bool = True) -> None:
        """Require labels that the measure takes."""
        if self.name == "rank:map" and not np.isin(y, (0, 1)).all():
            raise InputError(
                f"{argument} holds {y[~np.isin(y, (0, 1))][0]:g}; rank:map takes labels of 0 and 1."
            )
        is_large = self.name == "rank:ndcg" and self.has_exponential_gain and (y > 31).any()
        if (y < 0).any() or is_large:
            raise InputError(
                f"{argument} goes from {y.min():g} to {y.max():g}; {self.name} takes relevance "
                "labels from 0 to 31."
            )

    def fit_gradients(self, rows: RoundRows) -> tuple[ForeignObject, ForeignObject]:
        """Return g and h (N, 1), with the group weights in them."""
        scores = rows.scores[:, 0].astype(np.float32)
        ranked = RankedRows.of(self.groups, scores, rows.present)
        terms = _PairTerms(self, ranked, rows.targets[ranked.rows, 0], scores[ranked.rows])
        sums = PairSums(len(scores), rows.precision)
        group_sums = np.zeros(ranked.n_groups)
        for pairs in self._pairs(ranked, terms.labels, rows.number):
            lambdas, hessians = terms.of(pairs)
            lambdas = lambdas.astype(rows.precision)
            sums.add(ranked.rows[pairs.better], ranked.rows[pairs.worse], lambdas, hessians)
            group = ranked.group[pairs.better]
            group_sums += np.bincount(group, -2.0 * lambdas, ranked.n_groups)
        factors = self._factors(group_sums).astype(rows.precision)[self.groups]
        weights, scale = self._group_weights(ranked, rows)
        g = sums.g * factors * weights * scale
        h = sums.h * factors * weights * scale
        return g[:, None], h[:, None]

    def _pairs(self, ranked: RankedRows, labels: FloatArray, number: int) -> Iterator[LabelPairs]:
        if self.draws is None:
            return ranked.pairs(labels, self.n_pairs)
        seeds = self.draws.seeds(number)
        return iter([_drawn_pairs(ranked, labels, self.n_pairs, seeds)])

    def _factors(self, group_sums: FloatArray) -> FloatArray:
        """Return the factors of lambdarank_normalization for the gradients of each group, (Q,)."""
        if not self.is_normalised:
            return np.ones_like(group_sums)
        if self.draws is not None:
            return np.full_like(group_sums, 1 / self.n_pairs)
        return norm_factors(group_sums)

    def _group_weights(self, ranked: RankedRows, rows: RoundRows) -> tuple[AnyArray, Any]:
        """Return the weight of each row's group, (N,), and the inverse of their mean.

        The mean is that of all group weights.
        """
        filled = np.flatnonzero(ranked.sizes)
        weights = np.zeros(ranked.n_groups)
        weights[filled] = rows.weights[ranked.rows[ranked.starts[filled]]]
        total = float(np.cumsum(weights[filled])[-1])
        scale = rows.precision(len(filled) / total)
        return weights.astype(rows.precision)[self.groups], scale


class _PairTerms:
    """The terms of rows in pairs of one round, in the order of the ranking."""

    def __init__(
        self, loss: XGBoostRanking, ranked: RankedRows, labels: FloatArray, scores: AnyArray
    ):
        self.loss = loss
        self.ranked = ranked
        self.labels = labels
        self.scores = scores
        self.is_divided = loss.divides_by_distance & ~ranked.have_one_score(scores)

    def of(self, pairs: LabelPairs) -> tuple[FloatArray, FloatArray]:
        """Return minus lambda and mu of pairs."""
        differences = self.scores[pairs.better] - self.scores[pairs.worse]
        sigmoids = _sigmoids(differences).astype(np.float64)
        delta = np.abs(self._deltas(pairs))
        is_divided = self.is_divided[self.ranked.group[pairs.better]]
        distances = np.abs(differences).astype(np.float64) + ADDED_DISTANCE
        delta = delta / np.where(is_divided, distances, 1.0)
        curvatures = np.maximum(sigmoids * (1 - sigmoids), MIN_CURVATURE)
        return (sigmoids - 1) * delta, curvatures * delta * 2

    def _deltas(self, pairs: LabelPairs) -> FloatArray:
        """Return the change of the measure for each pair."""
        if self.loss.name == "rank:ndcg":
            return self._changes_of_ndcg(pairs)
        if self.loss.name == "rank:map":
            return self._changes_of_precision(pairs)
        return np.ones(len(pairs.better))

    @cached_property
    def _gains(self) -> FloatArray:
        if self.loss.has_exponential_gain:
            return np.asarray(2.0**self.labels - 1)
        return self.labels

    @cached_property
    def _discounts(self) -> FloatArray:
        return np.asarray(1 / np.log2(self.ranked.ranks + 2.0))

    @cached_property
    def _inverse_largest(self) -> FloatArray:
        """One over the largest DCG of each group, (Q,); 0 if that is 0."""
        top = self.loss.n_pairs
        if self.loss.draws is not None:
            top = len(self.labels)
        largest = self.ranked.best_sums(self._gains, self._gains, self._discounts, top)
        return np.divide(1.0, largest, out=np.zeros_like(largest), where=largest > 0)

    def _changes_of_ndcg(self, pairs: LabelPairs) -> FloatArray:
        gain_of_better = self._gains[pairs.better]
        gain_of_worse = self._gains[pairs.worse]
        discount_of_better = self._discounts[pairs.better]
        discount_of_worse = self._discounts[pairs.worse]
        before = gain_of_better * discount_of_better + gain_of_worse * discount_of_worse
        after = gain_of_worse * discount_of_better + gain_of_better * discount_of_worse
        return (before - after) * self._inverse_largest[self.ranked.group[pairs.better]]

    @cached_property
    def _relevant_so_far(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Sums of labels, and of labels over ranks, and the labels of each group.

        The sums go up to each place.
        """
        ranked = self.ranked
        counts = np.zeros_like(self.labels)
        precisions = np.zeros_like(self.labels)
        for group in np.flatnonzero(ranked.sizes):
            places = slice(ranked.starts[group], ranked.starts[group + 1])
            counts[places] = np.cumsum(self.labels[places])
            precisions[places] = np.cumsum(self.labels[places] / (ranked.ranks[places] + 1))
        totals = np.bincount(ranked.group, self.labels, ranked.n_groups)
        return counts, precisions, totals

    def _changes_of_precision(self, pairs: LabelPairs) -> FloatArray:
        counts, precisions, totals = self._relevant_so_far
        upper = np.minimum(pairs.better, pairs.worse)
        lower = np.maximum(pairs.better, pairs.worse)
        upper_rank = self.ranked.ranks[upper] + 1.0
        lower_rank = self.ranked.ranks[lower] + 1.0
        between = precisions[lower - 1] - precisions[upper]
        rises = counts[lower] / lower_rank - (counts[upper] + 1) / upper_rank - between
        falls = counts[upper] / upper_rank - counts[lower] / lower_rank + between
        is_rise = self.labels[upper] < self.labels[lower]
        return np.asarray(np.where(is_rise, rises, falls) / totals[self.ranked.group[upper]])


def _sigmoids(differences: AnyArray) -> AnyArray:
    """Return the sigmoids of float32 numbers, in float32 as XGBoost computes them."""
    exponents = np.minimum(-differences, np.float32(88.7)).astype(np.float64)
    powers = np.exp(exponents).astype(np.float32)
    sigmoids: AnyArray = np.float32(1) / (powers + np.float32(1) + np.float32(MIN_CURVATURE))
    return sigmoids


def _drawn_pairs(
    ranked: RankedRows, labels: FloatArray, n_pairs: int, seeds: NDArray[np.uint64]
) -> LabelPairs:
    """Return the pairs of each row with random rows of its group that have other labels.

    Rows come by label, the largest first, and rows of one label by rank. Each label in turn draws
    a partner for all of its rows, ``n_pairs`` times.
    """
    by_label = np.lexsort((-labels, ranked.group))
    is_first = np.append(True, (np.diff(labels[by_label]) != 0) | (np.diff(ranked.group) != 0))
    starts = np.flatnonzero(is_first)
    sizes = np.diff(np.append(starts, len(labels)))
    group = ranked.group[starts]
    n_others = ranked.sizes[group] - sizes
    n_draws = np.where(n_others > 0, n_pairs * sizes, 0)
    bucket = np.repeat(np.arange(len(starts)), n_draws)
    draw_in_bucket = np.arange(len(bucket)) - np.repeat(np.cumsum(n_draws) - n_draws, n_draws)
    draws_before_group = np.cumsum(np.bincount(group, n_draws, ranked.n_groups)).astype(np.intp)
    first_draws = np.concatenate([[0], draws_before_group])[ranked.group[starts[bucket]]]
    numbers = np.arange(len(bucket)) - first_draws
    partners = _minstd_below(n_others[bucket], numbers, seeds[group[bucket]], group[bucket])
    place_in_bucket = draw_in_bucket % np.maximum(sizes[bucket], 1)
    bucket_start = starts[bucket] - ranked.starts[group[bucket]]
    is_before = partners < bucket_start
    partner_in_group = np.where(is_before, partners, partners + sizes[bucket])
    rows = by_label[starts[bucket] + place_in_bucket]
    partner_rows = by_label[ranked.starts[group[bucket]] + partner_in_group]
    return LabelPairs.of_unequal(rows, partner_rows, labels)


def _minstd_below(
    limits: IntArray, numbers: IntArray, seeds: NDArray[np.uint64], group: IntArray
) -> IntArray:
    """Return samples of std::uniform_int_distribution below these limits, from minstd_rand.

    Parameters
    ----------
    limits : array of shape (draws,)
    numbers : array of shape (draws,)
        How many numbers of the same generator were sampled before.
    seeds : array of shape (draws,)
    group : array of shape (draws,)
        Which generator draws.
    """
    if not len(limits):
        return np.zeros(0, dtype=np.intp)
    powers = gpu_powers(int(numbers.max()) + 1)
    states = seeds * powers[numbers] % np.uint64(MINSTD_MODULUS)
    sizes = (MINSTD_MODULUS - 2) // limits
    drawn = (states.astype(np.int64) - 1) // sizes
    for number in np.unique(group[drawn >= limits]):  # a word in a billion is drawn again
        of_group = np.flatnonzero(group == number)
        drawn[of_group] = _one_by_one(limits[of_group], int(seeds[of_group[0]]))
    return drawn.astype(np.intp)


def _one_by_one(limits: IntArray, state: int) -> IntArray:
    """Return numbers below these limits from one generator, which repeats rejected samples."""
    drawn = []
    for limit in limits.tolist():
        size = (MINSTD_MODULUS - 2) // limit
        number = limit
        while number >= limit:
            state = state * 48271 % MINSTD_MODULUS
            number = (state - 1) // size
        drawn.append(number)
    return np.array(drawn)


def ranking_loss(
    name: str, settings: Mapping[str, str], model: ModelDocument, seed: int, groups: IntArray
) -> XGBoostRanking:
    """Return the loss of a ranking objective.

    Parameters
    ----------
    name : str
        Of `RANKING`.
    settings : mapping
        The section lambdarank_param of the objective.
    model : ModelDocument
    seed : int
        Of the training.
    groups : array of shape (N,)
    """
    draws = None
    if settings["lambdarank_pair_method"] == "mean":
        draws = PairDraws.of(model, seed, int(groups[-1]) + 1)
    n_pairs = int(settings["lambdarank_num_pair_per_sample"])
    if n_pairs == UNSET and draws is None:
        n_pairs = DEFAULT_TOP
    elif n_pairs == UNSET:
        n_pairs = 1
    return XGBoostRanking(
        name=name,
        groups=groups,
        n_pairs=n_pairs,
        is_normalised=settings.get("lambdarank_normalization", "1") == "1",
        divides_by_distance=settings.get("lambdarank_score_normalization", "1") == "1",
        has_exponential_gain=settings["ndcg_exp_gain"] == "1",
        draws=draws,
    )


def check_group_weights(groups: IntArray, weights: FloatArray | None) -> None:
    """Raise for row weights (N,) that differ within a group: XGBoost takes one weight for each."""
    if weights is None:
        return
    differs = (np.diff(groups) == 0) & (np.diff(weights) != 0)
    if differs.any():
        row = int(np.flatnonzero(differs)[0])
        raise InputError(
            f"sample_weight differs between rows {row} and {row + 1} (from 0) of one group; "
            "XGBoost takes one weight for each group in a ranking. Pass the weights of the groups."
        )
