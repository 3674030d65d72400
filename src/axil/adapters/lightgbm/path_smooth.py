"""path_smooth where rows weigh differently: the row counts that LightGBM smoothed by.

These counts are LightGBM's own estimates.

A node of raw value r below a parent of value p has the value ``(n r + s p) / (n + s)`` with s =
path_smooth and n its rows. Where all second derivatives are the same, n is their number. Else
LightGBM multiplies each bin's part of the parent's second derivatives by the parent's rows, rounds,
and adds up one side (FindBestThresholdSequentially, src/treelearner/feature_histogram.hpp): of a
split of m rows n falls to the left, m - n to the right. The model keeps neither bins nor n, but n
is a whole number near the left side's share of the second derivatives, and the values of leaves, of
17 digits, show which.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

import numpy as np

from axil.adapters.contract import Nodes
from axil.adapters.lightgbm.reading import LightGBMReading
from axil.adapters.lightgbm.rule import LightGBMRule
from axil.adapters.refusals import Refusal, refuse
from axil.arrays import BoolArray, FloatArray
from axil.errors import UnsupportedModelError
from axil.structure import NodeRule
from axil.structure.nodes import Ids

SURE = 0.01  # how closely a whole number must be shown to be told by its digits
ROUND = 0.05  # likewise to SURE, where the values of all leaves tell a number together
MOST_STEPS = 60  # of one fit to all leaves
MOST_FITS = 5  # each from the whole numbers that the one before ended at
ENOUGH = 100.0  # squared slacks per node: such values agree
UNTOLD = 1e-6  # of the largest value of a tree: what counts that are not told can be off by


_UNEVEN = (
    "LightGBM smooths by row counts that it estimates from row weights, or from the factors of "
    "GOSS, "
)


def _bounded(model: LightGBMReading) -> str:
    on = f"{model.settings.text('path_smooth')} with rows of different weights and "
    if model.monotone_signs.any():
        return on + "monotone_constraints"
    if model.cuda:
        return on + "device_type=cuda"
    return ""


#: Of models whose rows weigh differently.
ESTIMATES: tuple[Refusal[LightGBMReading], ...] = (
    Refusal(
        "path_smooth",
        _bounded,
        _UNEVEN + "and bounds, or the sums of this device, do not show these counts",
        "Fit with path_smooth=0, without sample_weight and GOSS, or without monotone_constraints "
        'and with device_type="cpu".',
    ),
)


@dataclass(frozen=True)
class PathSmooth:
    """The nodes of all trees of a model, with their recorded numbers."""

    rule: NodeRule
    smooth: float  #: path_smooth
    counts: FloatArray  #: (M,) rows
    rates: FloatArray  #: (T,)
    tolerance: float  #: of leaf values, relative to the largest of a tree
    rounding: (
        float  #: how far leaf values are off for sums that are rounded otherwise, relative likewise
    )
    #: how far the roundings of all bins may lead an estimate away from the share of second
    #: derivatives
    most: float
    lost: list[int] = field(default_factory=list)  #: trees whose values no counts lead to

    @classmethod
    def of(
        cls, rule: LightGBMRule, rates: FloatArray, nodes: Nodes, tolerance: float, rounding: float
    ) -> PathSmooth:
        """Return the search for row counts, from nodes without the initial prediction.

        Raise for settings that hide the counts.
        """
        reading = rule.reading
        refuse(ESTIMATES, reading)
        if np.isnan(rates).any():
            raise UnsupportedModelError(
                "path_smooth",
                f"{rule.smooth:g} with a learning-rate schedule and rows of different weights",
                _UNEVEN
                + (
                    "and axil infers these counts from the leaf values only if it knows the "
                    "learning rates"
                ),
                "Fit with one learning rate, with path_smooth=0, or without sample_weight and "
                "GOSS.",
            )
        counts = nodes.totals(
            np.concatenate([tree.leaf_counts(1) for tree in reading.text.trees]).astype(np.float64)
        )
        bins = max([reading.settings.number("max_bin"), *reading.text.category_counts.values()])
        l2 = rule.leaf_denominators()
        node_rule = NodeRule(l2, np.ones_like(l2), False, rule.l1, rule.max_step, nodes=nodes)
        return cls(node_rule, rule.smooth, counts, rates, tolerance, rounding, bins / 2 + 1)

    def own(
        self,
        tree: int,
        sums: FloatArray,
        weights: FloatArray,
        values: FloatArray,
        hidden: float = 0.0,
    ) -> FloatArray:
        """Return the share of each node's raw value in its value, (M_t,).

        It follows from the sums, second derivatives and values of the leaves. ``hidden`` is an
        initial prediction that was subtracted from the values.
        """
        rule = self._rule(tree, len(sums))
        rate = self.rates[tree]
        nodes = rule.nodes
        if len(sums) == 1 or not rate:
            return np.ones(len(nodes.leaf))
        hessians, (ends, leaves) = nodes.totals(weights), nodes.ends
        node_values = nodes.values / rate
        slack = np.broadcast_to(nodes.slack / rate, nodes.values.shape).copy()
        node_values[ends] = values[leaves] / rate
        largest = float(np.abs(node_values[ends]).max())
        slack[ends] = self.rounding * largest + 4 * float(
            np.finfo(np.float64).eps * abs(hidden / rate)
        )
        counts = self.counts[self._nodes.starts[tree] : self._nodes.starts[tree + 1]]
        raw = rule.step(nodes.totals(sums), hessians + nodes.l2)
        close = self.tolerance * largest
        smoothed = SmoothedNodes(
            nodes, self.smooth, counts, hessians, raw, node_values, slack, self.most
        )

        def error_of(shares: FloatArray) -> float:
            replayed = replace(rule, nodes=replace(nodes, own=shares)).leaf_values(sums, weights)
            return float(np.abs(replayed[leaves] - node_values[ends]).max())

        left_counts, is_determined = smoothed.likely()
        node_shares = smoothed.shares(left_counts)
        if (error := error_of(node_shares)) > close and not self.lost:
            together = smoothed.shares(smoothed.solved(left_counts))
            if error_of(together) <= close:
                return together
            self.lost.append(tree)  # other data, most likely: no further tree is worth the time
        if not is_determined and close < error < UNTOLD * largest:  # too close for other data
            raise UnsupportedModelError(
                "path_smooth",
                f"{self.smooth:g} with rows of different weights",
                _UNEVEN + "and the leaf values of this model do not show these counts",
                "Fit with a larger path_smooth or with none, or without sample_weight and GOSS.",
            )
        return node_shares

    @property
    def _nodes(self) -> Nodes:
        return self.rule.nodes

    def _rule(self, tree: int, n_leaves: int) -> NodeRule:
        """Return the rule of one tree."""
        first = int((self._nodes.starts[tree] + tree) // 2)  # a tree of L leaves has 2 L - 1 nodes
        return self.rule.tree(tree, slice(first, first + n_leaves))


@dataclass(frozen=True)
class SmoothedNodes:
    """The M nodes of all trees, their values before the rate."""

    nodes: Nodes
    smooth: float  #: path_smooth
    counts: FloatArray  #: (M,) rows, of a split as many as its children have
    weights: FloatArray  #: (M,) second derivatives
    raw: FloatArray  #: (M,) values before smoothing
    values: FloatArray  #: (M,) by the model's own account; nan where it does not say
    slack: FloatArray  #: (M,) how far these may be off
    most: float  #: how far the roundings of all bins may lead an estimate away

    def likely(self) -> tuple[FloatArray, bool]:
        """Return the rows to the left of each split by the values of its two children, (S,).

        Also return whether these values determine all of them.
        """
        left_counts = np.empty(len(self.splits))
        replayed = self.raw.copy()
        is_determined = True
        for k, split in enumerate(self.splits.tolist()):
            parent_value = float(replayed[split])
            left_counts[k], is_only_one = self._left(k, parent_value)
            is_determined &= is_only_one
            for child, n in zip(
                self.nodes.children[split].tolist(), (left_counts[k], self.rows[k] - left_counts[k])
            ):
                replayed[child] = (n * self.raw[child] + self.smooth * parent_value) / (
                    n + self.smooth
                )
        return left_counts, is_determined

    def _shown(self, node: int, parent_value: float) -> tuple[float, float]:
        """Return the number of rows that the value of a node implies, and the error of that number.

        ``above`` is the value of its parent.
        """
        value = float(self.values[node])
        raw = float(self.raw[node])
        if np.isnan(value) or value == raw or parent_value == raw:
            return 0.0, np.inf
        count = self.smooth * (parent_value - value) / (value - raw)
        error = (
            float(self.slack[node])
            * (count + self.smooth) ** 2
            / (self.smooth * abs(parent_value - raw))
        )
        # else it is not in proportion to the slack
        if error < (count + self.smooth) / 4:
            return (count, error)
        return (0.0, np.inf)

    def _left(self, k: int, parent_value: float) -> tuple[float, bool]:
        """Return the number of rows left of a split, and whether no other number is possible.

        It is the only one if no other whole number agrees with the values of the split's children.
        ``above`` is the value of the split.
        """
        rows = float(self.rows[k])
        expected = float(self.expected[k])
        (left_count, left_error), (right_count, right_error) = (
            self._shown(child, parent_value)
            for child in self.nodes.children[self.splits[k]].tolist()
        )
        if right_error < left_error:
            left_count = rows - right_count
            left_error = right_error
        if left_error < SURE:
            return min(
                max(
                    round(left_count if abs(left_count - expected) <= self.most else expected), 0.0
                ),
                rows,
            ), True
        first = np.ceil(max(0.0, expected - self.most, left_count - left_error))
        last = np.floor(min(rows, expected + self.most, left_count + left_error))
        if first > last:
            nearest = round(expected)
        else:
            nearest = min(max(round(expected), first), last)
        return float(nearest), bool(first >= last)

    @cached_property
    def splits(self) -> Ids:
        """The splits, (S,), each parent before its children."""
        return np.flatnonzero(self.nodes.leaf < 0)

    @cached_property
    def rows(self) -> FloatArray:
        """The number of rows of each split, (S,)."""
        return self.counts[self.splits]

    @cached_property
    def expected(self) -> FloatArray:
        """The rows to the left of each split by their share of the second derivatives, (S,)."""
        total = self.weights[self.splits]
        share = self.weights[self.nodes.children[self.splits, 0]] / np.where(total > 0, total, 1.0)
        return np.asarray(self.rows * share)

    def shares(self, left_counts: FloatArray) -> FloatArray:
        """Return the share of each node's raw value in its value, (M,).

        ``left_counts`` (S,) has the rows to the left of each split.
        """
        counts = self.counts.copy()
        counts[self.nodes.children[self.splits]] = np.stack(
            [left_counts, self.rows - left_counts], axis=1
        )
        return np.asarray(counts / (counts + self.smooth))

    def solved(self, left_counts: FloatArray) -> FloatArray:
        """Return the rows to the left of each split that fit the values of all nodes, (S,).

        Newton steps start from ``taken``. Numbers that the values determine are rounded. The
        others, on which no value depends, are solved for again.
        """
        for _ in range(MOST_FITS):
            free = np.ones(len(left_counts), dtype=np.bool_)
            left_counts, spread = self._fit(left_counts, free)
            while (sure := free & (spread < ROUND)).any():
                left_counts[sure], free[sure] = np.round(left_counts[sure]), False
                left_counts, spread = self._fit(left_counts, free)
            if self._misfit(left_counts) < ENOUGH * len(self.values):
                break
        return left_counts

    def _fit(self, left_counts: FloatArray, free: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Fit the free numbers of rows to the left of splits to the values, (S,).

        Return all numbers and their possible errors, (S,).
        """
        low = np.maximum(self.expected - self.most, 0.0)
        high = np.minimum(self.expected + self.most, self.rows)
        strain = self._misfit(left_counts)
        damping = 1.0
        for _ in range(MOST_STEPS if free.any() else 0):
            step, _ = self._step(left_counts, free, damping)
            tried = np.where(free, np.clip(left_counts + step, low, high), left_counts)
            after = self._misfit(tried)
            if after < strain:
                moved = float(np.abs(tried - left_counts).max())
                left_counts = tried
                strain = after
                damping = damping / 30
                if moved < SURE:
                    break
            elif damping > 1e9:
                break
            else:
                damping = max(damping, 1e-12) * 10
        return left_counts, self._step(left_counts, free, 0.0)[1]

    def _made(self, left_counts: FloatArray) -> FloatArray:
        """Return the values of all nodes, (M,)."""
        replayed = self.raw.copy()
        for split, n, rows in zip(self.splits.tolist(), left_counts.tolist(), self.rows.tolist()):
            for child, child_count in zip(self.nodes.children[split].tolist(), (n, rows - n)):
                replayed[child] += (
                    self.smooth / (child_count + self.smooth) * (replayed[split] - replayed[child])
                )
        return replayed

    def _misfit(self, left_counts: FloatArray) -> float:
        """Return the sum of squared errors of node values and row counts.

        Values are relative to their slacks, and numbers to the expected ones.
        """
        apart = (self.values - self._made(left_counts)) / self.slack
        return float(
            np.nansum(apart[1:] ** 2) + (((left_counts - self.expected) / self.most) ** 2).sum()
        )

    def _step(
        self, left_counts: FloatArray, free: BoolArray, damping: float
    ) -> tuple[FloatArray, FloatArray]:
        """Return a Newton step of all row counts, (S,), and bounds of their errors, (S,).

        Values depend on nothing above except their parent's. So least squares are solved from the
        leaves up, where each node has a best change of its value and a precision, and then from the
        root down.
        """
        s = self.smooth
        replayed = self._made(left_counts)
        precision = np.where(np.isnan(self.values), 0.0, 1.0 / self.slack**2)
        best = np.where(np.isnan(self.values), 0.0, self.values - replayed)
        passed: list[list[tuple[float, float, float, float]]] = []
        for k in range(len(left_counts) - 1, -1, -1):
            split = int(self.splits[k])
            # weight, change with the parent's value, change with the rows to the left, what is left
            # over
            lines = []
            for child, n, side in zip(
                self.nodes.children[split].tolist(),
                (left_counts[k], self.rows[k] - left_counts[k]),
                (1.0, -1.0),
            ):
                share = s / (n + s)
                slope = side * share * (self.raw[child] - replayed[split]) / (n + s)
                lines.append(
                    (float(precision[child]), float(share), float(slope), float(best[child]))
                )
            if free[k]:
                by_rows = sum(w * d * d for w, _, d, _ in lines)
                prior = 1.0 / self.most**2
                lines.append((prior, 0.0, 1.0, float(self.expected[k] - left_counts[k])))
                lines.append((damping * (by_rows + prior), 0.0, 1.0, 0.0))
                total = sum(w * d * d for w, _, d, _ in lines)
                pairs = [
                    (w * v / total, a * e - b * d, m * e - n * d)
                    for (w, a, d, m), (v, b, e, n) in combinations(lines, 2)
                ]
                curvature = sum(w * x * x for w, x, _ in pairs)
                pull = sum(w * x * y for w, x, y in pairs)
            else:
                curvature = sum(w * a * a for w, a, _, _ in lines)
                pull = sum(w * a * m for w, a, _, m in lines)
            passed.append(lines)
            both = precision[split] + curvature
            if both > 0:
                best[split] = (precision[split] * best[split] + pull) / both
                precision[split] = both
        step = np.zeros(len(left_counts))
        spread = np.zeros(len(left_counts))
        moved = np.zeros(len(replayed))
        variance = np.zeros(len(replayed))
        for k, lines in enumerate(reversed(passed)):
            split = int(self.splits[k])
            up = 0.0
            alone = 0.0
            if free[k]:
                total = sum(w * d * d for w, _, d, _ in lines)
                step[k] = sum(w * d * (m - a * moved[split]) for w, a, d, m in lines) / total
                up = sum(w * d * a for w, a, d, _ in lines) / total
                alone = 1.0 / total
                spread[k] = np.sqrt(alone + up * up * variance[split])
            for child, (_, a, d, _) in zip(self.nodes.children[split].tolist(), lines):
                moved[child] = a * moved[split] + d * step[k]
                variance[child] = (a - d * up) ** 2 * variance[split] + d * d * alone
        return step, spread
