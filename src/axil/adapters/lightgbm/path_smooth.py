"""path_smooth where rows weigh differently: the row counts that LightGBM smoothed by, which are estimates of its own.

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


_UNEVEN = "LightGBM smooths by row counts that it estimates from the weights of rows, or the factors of GOSS, "


def _bounded(model: LightGBMReading) -> str:
    on = f"{model.settings.text('path_smooth')} with rows that weigh differently and "
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
        _UNEVEN
        + "and which those were cannot be told beside bounds, or from the sums of this device",
        'Fit with path_smooth=0, without sample_weight and GOSS, or without monotone_constraints and with device_type="cpu".',
    ),
)


@dataclass(frozen=True)
class PathSmooth:
    """The nodes of all trees of a model, and what its record says of them."""

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
                f"{rule.smooth:g} with a schedule of rates and rows that weigh differently",
                _UNEVEN + "which leaf values show where the rates are known",
                "Fit with one learning rate, with path_smooth=0, or without sample_weight and GOSS.",
            )
        counts = nodes.totals(
            np.concatenate([tree.leaf_counts(1) for tree in reading.text.trees]).astype(np.float64)
        )
        bins = max([reading.settings.number("max_bin"), *reading.text.category_counts.values()])
        l2 = rule.leaf_denominators()
        own = NodeRule(l2, np.ones_like(l2), False, rule.l1, rule.max_step, nodes=nodes)
        return cls(own, rule.smooth, counts, rates, tolerance, rounding, bins / 2 + 1)

    def own(
        self,
        tree: int,
        sums: FloatArray,
        weights: FloatArray,
        values: FloatArray,
        hidden: float = 0.0,
    ) -> FloatArray:
        """(M_t,): the share of each node's raw value in its value, from the leaves' sums, second derivatives and values.

        ``hidden``: a base that was taken out of the values.
        """
        rule = self._rule(tree, len(sums))
        rate = self.rates[tree]
        nodes = rule.nodes
        if len(sums) == 1 or not rate:
            return np.ones(len(nodes.leaf))
        hessians, (ends, leaves) = nodes.totals(weights), nodes.ends
        said = nodes.values / rate
        slack = np.broadcast_to(nodes.slack / rate, nodes.values.shape).copy()
        said[ends] = values[leaves] / rate
        largest = float(np.abs(said[ends]).max())
        slack[ends] = self.rounding * largest + 4 * float(
            np.finfo(np.float64).eps * abs(hidden / rate)
        )
        counts = self.counts[self._nodes.starts[tree] : self._nodes.starts[tree + 1]]
        raw = rule.step(nodes.totals(sums), hessians + nodes.l2)
        close = self.tolerance * largest
        smoothed = SmoothedNodes(nodes, self.smooth, counts, hessians, raw, said, slack, self.most)

        def off(own: FloatArray) -> float:
            made = replace(rule, nodes=replace(nodes, own=own)).leaf_values(sums, weights)
            return float(np.abs(made[leaves] - said[ends]).max())

        likely, told = smoothed.likely()
        found = smoothed.shares(likely)
        if (apart := off(found)) > close and not self.lost:
            together = smoothed.shares(smoothed.solved(likely))
            if off(together) <= close:
                return together
            self.lost.append(tree)  # other data, most likely: no further tree is worth the time
        if not told and close < apart < UNTOLD * largest:  # too close for other data
            raise UnsupportedModelError(
                "path_smooth",
                f"{self.smooth:g} with rows that weigh differently",
                _UNEVEN + "and the values of its leaves do not tell which those were",
                "Fit with a larger path_smooth or with none, or without sample_weight and GOSS.",
            )
        return found

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
        """(S,): the rows to the left of each split, by the values of its two children; and whether these tell all of them."""
        taken = np.empty(len(self.splits))
        made = self.raw.copy()
        told = True
        for k, split in enumerate(self.splits.tolist()):
            above = float(made[split])
            taken[k], alone = self._left(k, above)
            told &= alone
            for child, n in zip(
                self.nodes.children[split].tolist(), (taken[k], self.rows[k] - taken[k])
            ):
                made[child] = (n * self.raw[child] + self.smooth * above) / (n + self.smooth)
        return taken, told

    def _shown(self, node: int, above: float) -> tuple[float, float]:
        """Return the number of rows that a node's value shows, and the error of that number.

        ``above`` is the value of its parent.
        """
        value = float(self.values[node])
        raw = float(self.raw[node])
        if np.isnan(value) or value == raw or above == raw:
            return 0.0, np.inf
        n = self.smooth * (above - value) / (value - raw)
        off = float(self.slack[node]) * (n + self.smooth) ** 2 / (self.smooth * abs(above - raw))
        # else it is not in proportion to the slack
        if off < (n + self.smooth) / 4:
            return (n, off)
        return (0.0, np.inf)

    def _left(self, k: int, above: float) -> tuple[float, bool]:
        """Return the number of rows to the left of a split, and whether it is the only one.

        It is the only one if no other whole number agrees with the values of the split's children.
        ``above`` is the value of the split.
        """
        rows = float(self.rows[k])
        expected = float(self.expected[k])
        (n, off), (other, other_off) = (
            self._shown(child, above) for child in self.nodes.children[self.splits[k]].tolist()
        )
        if other_off < off:
            n = rows - other
            off = other_off
        if off < SURE:
            return min(
                max(round(n if abs(n - expected) <= self.most else expected), 0.0), rows
            ), True
        first = np.ceil(max(0.0, expected - self.most, n - off))
        last = np.floor(min(rows, expected + self.most, n + off))
        if first > last:
            nearest = round(expected)
        else:
            nearest = min(max(round(expected), first), last)
        return float(nearest), bool(first >= last)

    @cached_property
    def splits(self) -> Ids:
        """(S,): a parent comes before its children."""
        return np.flatnonzero(self.nodes.leaf < 0)

    @cached_property
    def rows(self) -> FloatArray:
        """(S,): of each split."""
        return self.counts[self.splits]

    @cached_property
    def expected(self) -> FloatArray:
        """(S,): the rows of each split by the share of the left side in the second derivatives."""
        total = self.weights[self.splits]
        share = self.weights[self.nodes.children[self.splits, 0]] / np.where(total > 0, total, 1.0)
        return np.asarray(self.rows * share)

    def shares(self, taken: FloatArray) -> FloatArray:
        """(M,): the share of each node's raw value in its value, with these rows (S,) to the left of each split."""
        counts = self.counts.copy()
        counts[self.nodes.children[self.splits]] = np.stack([taken, self.rows - taken], axis=1)
        return np.asarray(counts / (counts + self.smooth))

    def solved(self, taken: FloatArray) -> FloatArray:
        """(S,): the rows to the left of each split that fit the values of all nodes together.

        Newton steps from ``taken``. Numbers that the values tell are rounded, and the others, on
        which no value depends, are solved for again.
        """
        for _ in range(MOST_FITS):
            free = np.ones(len(taken), dtype=np.bool_)
            taken, spread = self._fit(taken, free)
            while (sure := free & (spread < ROUND)).any():
                taken[sure], free[sure] = np.round(taken[sure]), False
                taken, spread = self._fit(taken, free)
            if self._misfit(taken) < ENOUGH * len(self.values):
                break
        return taken

    def _fit(self, taken: FloatArray, free: BoolArray) -> tuple[FloatArray, FloatArray]:
        """(S,): the rows to the left of each split, those that are free fitted to the values; and how far these may be off."""
        low = np.maximum(self.expected - self.most, 0.0)
        high = np.minimum(self.expected + self.most, self.rows)
        strain = self._misfit(taken)
        damping = 1.0
        for _ in range(MOST_STEPS if free.any() else 0):
            step, _ = self._step(taken, free, damping)
            tried = np.where(free, np.clip(taken + step, low, high), taken)
            after = self._misfit(tried)
            if after < strain:
                moved = float(np.abs(tried - taken).max())
                taken = tried
                strain = after
                damping = damping / 30
                if moved < SURE:
                    break
            elif damping > 1e9:
                break
            else:
                damping = max(damping, 1e-12) * 10
        return taken, self._step(taken, free, 0.0)[1]

    def _made(self, taken: FloatArray) -> FloatArray:
        """(M,): the values of all nodes."""
        made = self.raw.copy()
        for split, n, rows in zip(self.splits.tolist(), taken.tolist(), self.rows.tolist()):
            for child, own in zip(self.nodes.children[split].tolist(), (n, rows - n)):
                made[child] += self.smooth / (own + self.smooth) * (made[split] - made[child])
        return made

    def _misfit(self, taken: FloatArray) -> float:
        """How far the values are from the model's, in their slacks, and the numbers from those expected; squared."""
        apart = (self.values - self._made(taken)) / self.slack
        return float(np.nansum(apart[1:] ** 2) + (((taken - self.expected) / self.most) ** 2).sum())

    def _step(
        self, taken: FloatArray, free: BoolArray, damping: float
    ) -> tuple[FloatArray, FloatArray]:
        """(S,) twice: one Newton step of all numbers together, and how far each may be off.

        Values depend on nothing above but their parent's. So least squares are solved from the
        leaves up, where each node has a best change of its value and a precision, and then from the
        root down.
        """
        s = self.smooth
        made = self._made(taken)
        precision = np.where(np.isnan(self.values), 0.0, 1.0 / self.slack**2)
        best = np.where(np.isnan(self.values), 0.0, self.values - made)
        passed: list[list[tuple[float, float, float, float]]] = []
        for k in range(len(taken) - 1, -1, -1):
            split = int(self.splits[k])
            # weight, change with the parent's value, change with the rows to the left, what is left
            # over
            lines = []
            for child, n, side in zip(
                self.nodes.children[split].tolist(),
                (taken[k], self.rows[k] - taken[k]),
                (1.0, -1.0),
            ):
                share = s / (n + s)
                slope = side * share * (self.raw[child] - made[split]) / (n + s)
                lines.append(
                    (float(precision[child]), float(share), float(slope), float(best[child]))
                )
            if free[k]:
                by_rows = sum(w * d * d for w, _, d, _ in lines)
                prior = 1.0 / self.most**2
                lines.append((prior, 0.0, 1.0, float(self.expected[k] - taken[k])))
                lines.append((damping * (by_rows + prior), 0.0, 1.0, 0.0))
                total = sum(w * d * d for w, _, d, _ in lines)
                pairs = [
                    (w * v / total, a * e - b * d, m * e - n * d)
                    for (w, a, d, m), (v, b, e, n) in combinations(lines, 2)
                ]
                found = sum(w * x * x for w, x, _ in pairs)
                pull = sum(w * x * y for w, x, y in pairs)
            else:
                found = sum(w * a * a for w, a, _, _ in lines)
                pull = sum(w * a * m for w, a, _, m in lines)
            passed.append(lines)
            both = precision[split] + found
            if both > 0:
                best[split] = (precision[split] * best[split] + pull) / both
                precision[split] = both
        step = np.zeros(len(taken))
        spread = np.zeros(len(taken))
        moved = np.zeros(len(made))
        variance = np.zeros(len(made))
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
