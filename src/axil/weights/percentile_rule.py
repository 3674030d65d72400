"""Fits by percentiles, walked through tree by tree.

Each leaf ranks its remaining rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.arrays import BoolArray, FloatArray, IntArray
from axil.kernels import Backend
from axil.structure import LinearLeaves, Structure
from axil.structure.ancestors import NO_NODE
from axil.structure.nodes import Ids
from axil.structure.ranks import Picks, Positions, RankedFit
from axil.weights import borders
from axil.weights.fit_rules import RankedOrClippedRule, TreeFits, rule_of
from axil.weights.inherited import ancestors_of
from axil.weights.residuals import FittedValues
from axil.weights.sum_rule import NothingLeft, with_emptied_leaves


@dataclass(frozen=True)
class PercentileRule(RankedOrClippedRule):
    """The rule of a fit whose leaf values are percentiles; see `FitRule`."""

    ranks: RankedFit = field(kw_only=True)
    ranks_rows: ClassVar[bool] = True

    @property
    def n_initial_trees(self) -> int:
        """The number of trees, 0 or 1, in the role of the initial prediction."""
        return int(self.ranks.based)

    @property
    def recorded_counts(self) -> NDArray[np.uint8] | None:
        """How often each row was sampled for each tree, (T, N); None if it is not known."""
        return self.ranks.drawn

    def no_first_order(self, structure: Structure) -> str:
        """Return why the derivative by a row's weight is unknown."""
        return (
            "leaves take their values from rows of a certain rank (a median or another "
            "percentile), and that row changes in jumps as weights change"
        )

    def without(
        self, structure: Structure, rows: IntArray, targets: FloatArray, backend: Backend
    ) -> Structure:
        """Return the structure of a fit to these targets without these rows; see `FitRule`."""
        return _with_ranks(self._remaining(structure, rows), targets)

    def fit_without(
        self, structure: Structure, rows: IntArray, targets: FloatArray, backend: Backend
    ) -> FittedValues:
        """Return the fit of `without`. Cost O(T N log N)."""
        return _walked(self._remaining(structure, rows), targets)[0]

    def with_targets(
        self, structure: Structure, targets: FloatArray, backend: Backend
    ) -> Structure:
        """Return the structure of the fit to other targets (N, 1), with its own ranks."""
        ranks = replace(self.ranks, rule=self.ranks.rule.with_targets(targets[:, 0]))
        return _with_ranks(_with_ranked_fit(structure, ranks), targets)

    def _remaining(self, s: Structure, rows: IntArray) -> Structure:
        """Return the structure whose ranks are to be found without these rows."""
        ranks = self.ranks.less(rows, s.n_rows)
        if ranks.rows is not None and not len(ranks.rows):
            raise NothingLeft(
                f"Without {len(rows)} rows no row with a weight is left; ask for a smaller set."
            )
        return _with_ranked_fit(s, ranks)

    def singletons(self, structure: Structure) -> Callable[[slice], BoolArray]:
        """Return the test whether a row is the only one that counts in one of its leaves."""
        is_singleton: BoolArray = self.ranks.last(structure.leaves()).max(axis=0)
        return lambda rows: is_singleton[rows]

    def _follows_targets(self, s: Structure) -> bool:
        """Return whether constants or the weights that rank rows move with the targets."""
        return len(s.sample_counts) > 3 or self.ranks.rule.follows_targets

    def count_changed_leaves(self, trees: TreeFits, before: FloatArray, after: FloatArray) -> int:
        """Return how many leaves have another active set with the targets ``after``."""
        if self._follows_targets(trees.structure):
            return self._count_leaves_beyond(trees, after)
        return borders.count_changed_leaves(trees, before, after)

    def _count_leaves_beyond(self, trees: TreeFits, after: FloatArray) -> int:
        """Return how many leaves have other rows, shares or constants by the rule."""
        s = trees.structure
        if s.linear_leaves.shift is None:
            shift = np.zeros(s.total_leaves)
        else:
            shift = s.linear_leaves.shift
        ranks = replace(self.ranks, rule=self.ranks.rule.with_targets(after[:, 0]))
        n_changed = 0
        for t, residual in zip(range(s.n_trees), trees.tree_residuals(after)):
            level, leaf = np.divmod(s.cells[t].astype(np.int64), int(s.n_leaves[t]))
            picks = ranks.picks(t, leaf, residual)
            places = s.starts[t] + picks.leaves
            is_changed = np.zeros(int(s.n_leaves[t]), dtype=np.bool_)
            is_changed[leaf[picks.codes(s.n_rows) != level]] = True
            shares = s.sample_counts[1 : 1 + len(picks.levels), places]
            apart = np.abs(picks.levels - shares)
            is_changed[picks.leaves[(apart > borders.ROUNDING).any(axis=0)]] = True
            if picks.shifts is not None:
                close = borders.ROUNDING * float(np.abs(residual).max(initial=0.0))
                is_changed[picks.leaves[np.abs(picks.shifts - shift[places]) > close]] = True
            n_changed += int(is_changed.sum())
        return n_changed

    def active_set_counts(
        self, structure: Structure, replayed: Mapping[str, float]
    ) -> dict[str, float]:
        """Return the replay's counts, with the share of rows that do not count in their leaves."""
        if not self.ranks.rule.spreads:
            return dict(replayed)
        first = self.n_initial_trees
        rows = slice(None) if self.ranks.rows is None else self.ranks.rows
        levels = structure.cells[first:, rows] // structure.n_leaves[first:, None]
        return {**replayed, "cut": float(np.mean(levels == 0))}

    def radius(self, trees: TreeFits, targets: FloatArray) -> float:
        """Return the least change of one target that changes the active set, or a lower bound."""
        if self._follows_targets(trees.structure) or self.newton.has_active_set:
            return 0.0
        rows = borders.picked_rows(trees.structure)
        return borders.radius(trees, targets, borders.borders_of(rows))


def ranks_of(s: Structure) -> RankedFit:
    """Return the ranks of a fit by percentiles."""
    rule = rule_of(s)
    assert isinstance(rule, PercentileRule)
    return rule.ranks


def _with_ranked_fit(s: Structure, ranks: RankedFit) -> Structure:
    """Return the structure with other ranks."""
    rule = rule_of(s)
    assert isinstance(rule, PercentileRule)
    return replace(s, leaf_rule=replace(rule, ranks=ranks))


def _with_ranks(structure: Structure, targets: FloatArray) -> Structure:
    """Return the structure of the fit by the ranks of the rows that it has.

    A leaf that no row is left in has the value zero. A leaf of averaged trees has its ancestor's
    value instead, as a shift.
    """
    s = structure
    fitted, picks_of_trees = _walked(s, targets)
    cells = s.leaves().copy()
    shares = np.zeros_like(s.sample_counts)
    shift = np.zeros(s.total_leaves)
    for t, picks in enumerate(picks_of_trees):
        places = s.starts[t] + picks.leaves
        cells[t] += (picks.codes(s.n_rows) * s.n_leaves[t]).astype(cells.dtype)
        shares[1 : 1 + len(picks.levels), places] = picks.levels
        if picks.shifts is not None:
            shift[places] = picks.shifts
    has_rows = fitted.structure.leaf_weights
    emptied = rule_of(fitted.structure).emptied
    has_shift = s.linear_leaves.shift is not None
    ranks = ranks_of(s)
    # A forest that starts from nothing has the rows instead: see `inherited_rows`.
    if emptied is not None and (ranks.based or s.beta.any()):
        shift[emptied] = fitted.values[emptied, 0]
        has_shift = True
    return replace(
        fitted.structure,
        cells=cells,
        sample_counts=shares,
        linear_leaves=LinearLeaves(has_rows, shift if has_shift else None),
    )


def inherited_rows(structure: Structure, targets: FloatArray) -> csr_array:
    """Return the shares (L, N) of rows in the percentiles that leaves without rows inherit."""
    s = structure
    y = ranks_of(s).rounded_targets(targets[:, 0])
    emptied = rule_of(s).emptied
    assert emptied is not None
    leaves = []
    rows = []
    shares = []
    for _, empty_leaves, picks in _inherited(s, y, np.flatnonzero(emptied)):
        for row, share in zip(picks.rows, picks.shares):
            leaves.append(empty_leaves)
            rows.append(row)
            shares.append(share)
    if leaves:
        index = (np.concatenate(leaves), np.concatenate(rows))
    else:
        index = (np.zeros(0, int), np.zeros(0, int))
    if shares:
        data = np.concatenate(shares)
    else:
        data = np.zeros(0)
    return csr_array((data, index), shape=(s.total_leaves, s.n_rows))


def without_each(s: Structure, targets: FloatArray) -> tuple[Positions, Positions, FloatArray]:
    """Return leaves of a forest, rows that count in them, and leaf values without the row.

    All have shape (entries,). It takes as many fits of one tree as its largest leaf has rows: each
    is without one row of every leaf.
    """
    ranks = ranks_of(s)
    y = targets[:, 0]
    ranked_targets = ranks.rounded_targets(y)
    entries = []
    for t, leaf in enumerate(s.leaves()):
        counted = ranks.counted(t, s.n_rows)
        order = counted[np.argsort(leaf[counted], kind="stable")]
        ordered_leaves = leaf[order].astype(np.intp)
        size = np.bincount(ordered_leaves, minlength=int(s.n_leaves[t]))
        place = np.arange(len(order)) - (np.cumsum(size) - size)[ordered_leaves]
        for k in range(int(size.max(initial=0))):
            removed = order[place == k]
            picks = ranks.less(removed, s.n_rows).picks(t, leaf, ranked_targets)
            values = np.zeros(int(s.n_leaves[t]))
            values[picks.leaves] = picks.values(y)
            at = leaf[removed].astype(np.intp)
            after = values[at]
            last = size[at] == 1
            after[last] = _beside(s, t, s.starts[t] + at[last], removed[last], y)
            entries.append((s.starts[t] + at, removed, after))
    leaves, rows, after = (np.concatenate(column) for column in zip(*entries))
    return leaves, rows, after


def _beside(s: Structure, t: int, leaves: Ids, rows: Ids, y: FloatArray) -> FloatArray:
    """Return the values of leaves of tree t, (n,), each without its only row."""
    ancestors = ancestors_of(s)
    values = np.zeros(len(leaves))
    filled = ancestors.totals((s.leaf_weights > 0).astype(np.float64)).astype(np.int64)
    nodes = ancestors.nearest_beside(leaves, filled)
    for place, (node, row) in enumerate(zip(nodes, rows)):
        rest = ranks_of(s).less(np.array([row]), s.n_rows)
        values[place] = _value_of(s, rest, t, int(node), y)
    return values


def _value_of(s: Structure, ranks: RankedFit, t: int, node: int, y: FloatArray) -> float:
    """Return the percentile of the rows of one node of tree t.

    Without a node it is that of all rows. It is nan if no row is left.
    """
    picks = _picks_of(s, ranks, t, np.array([node]), ranks.rounded_targets(y))
    if len(picks.leaves):
        return float(picks.values(y)[0])
    return np.nan


def _picks_of(s: Structure, ranks: RankedFit, t: int, nodes: Ids, y: FloatArray) -> Picks:
    """Return the rows picked for nodes of tree t that have no leaf in common.

    Node -1 stands for all rows, sampled or not.
    """
    if nodes[0] == NO_NODE:
        ranks = replace(ranks, drawn=None)
        label = np.zeros(s.n_rows, dtype=np.int64)
    else:
        tree_leaves = np.arange(s.starts[t], s.starts[t + 1])
        inside = ancestors_of(s).below(nodes, tree_leaves, s.total_leaves).tocoo()
        of_leaves = np.full(len(tree_leaves), NO_NODE)
        of_leaves[inside.col - s.starts[t]] = inside.row
        label = of_leaves[s.leaves()[t].astype(np.intp)]
        ranks = ranks.less(np.flatnonzero(label == NO_NODE), s.n_rows)
        label = np.maximum(label, 0)
    if ranks.rows is not None and not len(ranks.rows):
        none = np.zeros(0, dtype=np.int64)
        return Picks(none, np.zeros((2, 0), dtype=np.int64), np.zeros((2, 0)))
    return ranks.picks(t, label, y)


def _inherited(s: Structure, y: FloatArray, emptied: Ids) -> Iterator[tuple[int, Ids, Picks]]:
    """Yield trees with leaves that have no rows, groups of these leaves, and each group's picks.

    The leaves of a group have one ancestor. ``y`` (N,) has the targets of the trees. A tree without
    any row and without an initial prediction has the percentile of all rows.
    """
    ranks = ranks_of(s)
    ancestors = ancestors_of(s)
    nodes = ancestors.nearest(emptied, ancestors.totals(s.leaf_weights) > 0)
    trees = np.searchsorted(s.starts, emptied, side="right") - 1
    for tree, node in sorted(set(zip(trees.tolist(), nodes.tolist()))):
        if node == NO_NODE and (ranks.based or s.beta.any()):
            continue
        picks = _picks_of(s, ranks, tree, np.array([node]), y)
        if not len(picks.leaves):
            continue
        leaves = emptied[(trees == tree) & (nodes == node)]
        first_pick = np.zeros(len(leaves), dtype=np.int64)
        yield tree, leaves, Picks(leaves, picks.rows[:, first_pick], picks.shares[:, first_pick])


def _walked(s: Structure, targets: FloatArray) -> tuple[FittedValues, list[Picks]]:
    """Return the fit by the ranks of the rows that it has, and the rows picked for every tree.

    Rows are ranked by the targets as the library keeps them, and give their residuals of the
    targets as they are.
    """
    ranks = ranks_of(s)
    assert s.initial is not None  # a percentile is in the first tree
    leaves = s.leaves()
    has_rows = np.zeros(s.total_leaves)
    picks_of_trees = []
    fits = []
    for fit_targets in (targets, ranks.rounded_targets(targets)):
        values = np.zeros((s.total_leaves, 1))
        fits.append(FittedValues(s, fit_targets, s.initial, values, values))
    if fits[1].targets is targets:
        fits.pop()
    walks = zip(*[fit.residuals(leaves, fit.started()) for fit in fits])
    first_residuals = np.empty((0, 0))  # after the initial prediction, where that is a tree
    for t, residuals in zip(range(s.n_trees), walks):
        picks = ranks.picks(t, leaves[t], residuals[-1][:, 0])
        places = s.starts[t] + picks.leaves
        for fit, fit_residuals in zip(fits, residuals):
            fit.values[places, 0] = picks.values(fit_residuals[:, 0])
            if picks.shifts is not None:
                fit.values[places, 0] += picks.shifts
        has_rows[places] = 1.0
        picks_of_trees.append(picks)
        if t == int(ranks.based):
            first_residuals = np.stack([residuals[0][:, 0], residuals[-1][:, 0]])
    fitted = fits[0]
    remaining = replace(s, leaf_weights=has_rows)
    if s.averages:
        rule = with_emptied_leaves(rule_of(s), (s.leaf_weights > 0) & (has_rows == 0))
        remaining = replace(remaining, leaf_rule=rule)
        if rule.emptied is not None:
            emptied = np.flatnonzero(rule.emptied)
            for _, places, picks in _inherited(remaining, first_residuals[1], emptied):
                fitted.values[places, 0] = picks.values(first_residuals[0])
    return replace(fitted, structure=remaining), picks_of_trees
