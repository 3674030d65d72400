"""path_smooth where rows weigh differently: the row counts that LightGBM smoothed by, which are estimates of its own.

A node of raw value r below a parent of value p has the value ``(n r + s p) / (n + s)`` with s = path_smooth and n its rows.
Where all second derivatives are the same, n is their number. Else LightGBM multiplies each bin's part of the parent's second
derivatives by the parent's rows, rounds, and adds up one side (FindBestThresholdSequentially, src/treelearner/
feature_histogram.hpp): of a split of m rows n falls to the left, m - n to the right. The model keeps neither bins nor n, but n
is a whole number near the left side's share of the second derivatives, and the values of leaves, of 17 digits, show which.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from axil.adapters.contract import Nodes
from axil.adapters.lightgbm.reading import LightGBMReading
from axil.adapters.lightgbm.rule import LightGBMRule
from axil.adapters.refusals import Refusal, refuse
from axil.structure import Regularisation
from axil.types import Array

SURE = 0.01  # how closely a whole number must be shown to be told by its digits
MOST_TRIED = 96  # candidates for one split
FEW_TRIED = 16  # and for one below it
MOST_LOOKED_AT = 20000  # splits of one tree that are looked at below others: some 0.3 s
DEEPEST = 2  # levels below a split that are looked at for a leaf that tells
UNTOLD = 1e-6  # of the largest value of a tree: what counts that are not told can be off by


_UNEVEN = "LightGBM smooths by row counts that it estimates from the weights of rows, or the factors of GOSS, "


def _bounded(model: LightGBMReading) -> str:
    on = f"{model.settings.text('path_smooth')} with rows that weigh differently and "
    return on + "monotone_constraints" if model.monotone_signs.any() else on + "device_type=cuda" if model.cuda else ""


#: Of models whose rows weigh differently.
ESTIMATES: tuple[Refusal[LightGBMReading], ...] = (
    Refusal(
        "path_smooth",
        _bounded,
        _UNEVEN + "and which those were cannot be told beside bounds, or from the sums of this device",
        'Fit with path_smooth=0, without sample_weight and GOSS, or without monotone_constraints and with device_type="cpu".',
    ),
)
SCHEDULED: Refusal[LightGBMReading] = Refusal(
    "path_smooth",
    lambda model: "",
    _UNEVEN + "which leaf values show where the rates are known",
    "Fit with one learning rate, with path_smooth=0, or without sample_weight and GOSS.",
)
COUNTS_UNTOLD: Refusal[LightGBMReading] = Refusal(
    "path_smooth",
    lambda model: "",
    _UNEVEN + "and the values of its leaves do not tell which those were",
    "Fit with a larger path_smooth or with none, or without sample_weight and GOSS.",
)


@dataclass(frozen=True)
class PathSmooth:
    """The nodes of all trees of a model, and what its record says of them."""

    rule: Regularisation
    smooth: float  #: path_smooth
    counts: Array  #: (M,) rows
    rates: Array  #: (T,)
    tolerance: float  #: of leaf values, relative to the largest of a tree
    rounding: float  #: how far leaf values are off for sums that are rounded otherwise, relative likewise
    most: float  #: how far the roundings of all bins may lead an estimate away from the share of second derivatives

    @classmethod
    def of(cls, rule: LightGBMRule, rates: Array, nodes: Nodes, tolerance: float, rounding: float) -> PathSmooth:
        """The nodes as they stand once a base is taken out of their values; refuses what hides the counts."""
        reading = rule.reading
        refuse(ESTIMATES, reading)
        if np.isnan(rates).any():
            raise SCHEDULED.error(f"{rule.smooth:g} with a schedule of rates and rows that weigh differently")
        counts = nodes.totals(np.concatenate([tree.leaf_counts(1) for tree in reading.text.trees]).astype(np.float64))
        bins = max([reading.settings.number("max_bin"), *reading.text.category_counts.values()])
        l2 = rule.leaf_denominators()
        own = Regularisation(l2, np.ones_like(l2), False, rule.l1, rule.max_step, nodes)
        return cls(own, rule.smooth, counts, rates, tolerance, rounding, bins / 2 + 1)

    def own(self, tree: int, sums: Array, weights: Array, values: Array, hidden: float = 0.0) -> Array:
        """(M_t,): the share of each node's raw value in its value, from the leaves' sums, second derivatives and values.

        ``hidden``: a base that was taken out of the values.
        """
        rule, rate = self._rule(tree, len(sums)), self.rates[tree]
        nodes = rule.nodes
        assert nodes is not None
        if len(sums) == 1 or not rate:
            return np.ones(len(nodes.leaf))
        hessians, (ends, leaves) = nodes.totals(weights), nodes.ends
        said, slack = nodes.values / rate, np.broadcast_to(nodes.slack / rate, nodes.values.shape).copy()
        said[ends] = values[leaves] / rate
        largest = float(np.abs(said[ends]).max())
        slack[ends] = self.rounding * largest + 4 * float(np.finfo(np.float64).eps * abs(hidden / rate))
        counts = self.counts[self._nodes.starts[tree] : self._nodes.starts[tree + 1]]
        raw = rule.step(nodes.totals(sums), hessians + nodes.l2)
        found, told = SmoothedNodes(
            nodes, self.smooth, counts, hessians, raw, said, slack, self.most, self.tolerance * largest / 4
        ).own()
        made = replace(rule, nodes=replace(nodes, own=found)).leaf_values(sums, weights)
        apart = float(np.abs(made[leaves] - said[ends]).max())
        if not told and self.tolerance * largest < apart < UNTOLD * largest:  # too close for other data
            raise COUNTS_UNTOLD.error(f"{self.smooth:g} with rows that weigh differently")
        return found

    @property
    def _nodes(self) -> Nodes:
        assert self.rule.nodes is not None
        return self.rule.nodes

    def _rule(self, tree: int, n_leaves: int) -> Regularisation:
        """The rule of one tree."""
        first = int((self._nodes.starts[tree] + tree) // 2)  # a tree of L leaves has 2 L - 1 nodes
        return self.rule.tree(tree, slice(first, first + n_leaves))


@dataclass(frozen=True)
class SmoothedNodes:
    """The M nodes of all trees, their values before the rate."""

    nodes: Nodes
    smooth: float  #: path_smooth
    counts: Array  #: (M,) rows, of a split as many as its children have
    weights: Array  #: (M,) second derivatives
    raw: Array  #: (M,) values before smoothing
    values: Array  #: (M,) by the model's own account; nan where it does not say
    slack: Array  #: (M,) how far these may be off
    most: float  #: how far the roundings of all bins may lead an estimate away
    close: float  #: a difference of leaf values that nothing can tell
    looked_at: list[int] = field(default_factory=list)  #: splits below others, so far

    def own(self) -> tuple[Array, bool]:
        """(M,): the share of each node's raw value in its value, see `Nodes`; and whether the values tell all of them."""
        taken, made, told = self.counts.copy(), self.raw.copy(), True
        for split in np.flatnonzero(self.nodes.leaf < 0).tolist():  # a parent comes before its children
            above = float(made[split])
            left, alone = self._left(split, above)
            told &= alone
            for child, n in self._counted(split, left):
                taken[child], made[child] = n, self._value(child, n, above)
        return np.asarray(taken / (taken + self.smooth)), told

    def _counted(self, split: int, n: float) -> list[tuple[int, float]]:
        """The children of a split with n rows on the left, each with its rows."""
        left, right = self.nodes.children[split].tolist()
        rows = float(self.counts[split])
        n = min(max(n, 0.0), rows)
        return [(left, n), (right, rows - n)]

    def _value(self, node: int, n: float, above: float) -> float:
        return float(n * self.raw[node] + self.smooth * above) / (n + self.smooth)

    def _shown(self, node: int, above: float) -> tuple[float, float]:
        """The rows that a node's value shows, below a parent of this value, and how far that may be off."""
        value, raw = float(self.values[node]), float(self.raw[node])
        if np.isnan(value) or value == raw or above == raw:
            return 0.0, np.inf
        n = self.smooth * (above - value) / (value - raw)
        off = float(self.slack[node]) * (n + self.smooth) ** 2 / (self.smooth * abs(above - raw))
        return (n, off) if off < (n + self.smooth) / 4 else (0.0, np.inf)  # else it is not in proportion to the slack

    def _candidates(self, split: int, above: float) -> list[float]:
        """The rows that may have fallen to the left, the likeliest first."""
        (left, _), (right, rows) = self._counted(split, 0.0)
        expected = rows * float(self.weights[left]) / (float(self.weights[split]) or 1.0)
        (n, off), (other, other_off) = self._shown(left, above), self._shown(right, above)
        if other_off < off:
            n, off = rows - other, other_off
        if off < SURE:
            return [round(n)] if abs(n - expected) <= self.most else [round(expected)]
        low, high = max(0.0, expected - self.most, n - off), min(rows, expected + self.most, n + off)
        if not high - low <= MOST_TRIED:
            low, high = expected - MOST_TRIED / 2, expected + MOST_TRIED / 2
        found = [float(n) for n in range(int(np.ceil(low)), int(np.floor(high)) + 1)]
        return sorted(found, key=lambda n: abs(n - expected)) or [round(expected)]

    def _left(self, split: int, above: float) -> tuple[float, bool]:
        """The rows that fell to the left, of several candidates those that leaves below bear out best; and whether these tell."""
        found = self._candidates(split, above)
        if len(found) == 1:
            return found[0], True
        if not self._matters(split, min(found), max(found), above):
            return found[0], True
        strains = [self._strain_below(split, n, above, DEEPEST) for n in found]
        return found[int(np.argmin(strains))], sorted(strains)[1] > 0

    def _matters(self, split: int, low: float, high: float, above: float) -> bool:
        """Whether values further down show which number between these two fell to the left."""
        ends = zip(self._counted(split, low), self._counted(split, high))
        for (child, n), (_, m) in ends:
            if self.nodes.leaf[child] < 0:
                apart = abs(self._value(child, n, above) - self._value(child, m, above))
                fewest = float(self.counts[self.nodes.children[child]].min())
                if apart * self.smooth / (fewest + self.smooth) > self.close:
                    return True
        return False

    def _strain_below(self, split: int, n: float, above: float, deep: int) -> float:
        inner = [(child, self._value(child, k, above)) for child, k in self._counted(split, n)]
        return max((self._strain(c, value, deep) for c, value in inner if self.nodes.leaf[c] < 0), default=0.0)

    def _strain(self, split: int, above: float, deep: int) -> float:
        """How far from whole numbers the rows are that leaves below a split of this value show; 0 where none tells."""
        if len(self.looked_at) > MOST_LOOKED_AT:
            return 0.0
        self.looked_at.append(split)
        shown = [self._shown(child, above) for child in self.nodes.children[split].tolist()]
        sure = [max(abs(n - round(n)) - off, 0.0) for n, off in shown if off < SURE]
        if sure or not deep:
            return max(sure, default=0.0)
        few = self._candidates(split, above)[:FEW_TRIED]
        return min(self._strain_below(split, n, above, deep - 1) for n in few)
