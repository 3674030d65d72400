"""Refit: the leaves of the fit again at its own splits, on other rows, to other targets or with other weights.

Every leaf value is computed anew by the library's own rule and with its rounding: L1, clipped steps
and bounds follow the rows that are there. Splits, rates, draws and drops are held fixed. Cost O(T
N).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.bags import RecordedBags
from axil.adapters.boosted_fit import (
    BoostedFit,
    InitialPrediction,
    LeafRule,
    Schedule,
    TreeTable,
    WeightRule,
)
from axil.adapters.contract import Adapter, TrainingRows
from axil.arrays import BoolArray, FloatArray, IntArray
from axil.errors import InputError, UnsupportedQuestionError
from axil.machine.memory import Budget, Limits
from axil.replay.recover import assign_leaves
from axil.replay.walk import Leaves, TreeWalk, Walked, round_to
from axil.structure import Cut, NewtonRule, NodeRule, Ranks, Structure, all_n_leaves
from axil.structure.leaves import LeafFit
from axil.weights.engine import CLASS_WEIGHTS_UNKNOWN, TreeEngine
from axil.weights.fit_rules import rule_of
from axil.weights.huber_rule import HuberRule
from axil.weights.inherited import inherited_values, inheriting


@dataclass(frozen=True, eq=False)
class Change:
    """The rows of a fit that is made again, as users give them: some of the old ones, then new ones."""

    kept: IntArray  #: positions among the training rows
    added: Any  #: the new rows' features; None: there is none
    X: Any  #: of all
    y: NDArray[Any]
    targets: FloatArray  #: (N, K) on the scale of the fit
    weights: FloatArray | None  #: (N,) sample weights
    offsets: FloatArray | None  #: (N,) or (N, K)


@dataclass(frozen=True)
class RefitRows:
    """The rows of a fit that is made again: some of the old ones, then new ones, as the library keeps them."""

    kept: IntArray  #: positions among the training rows
    added: Leaves | None  #: (T, n) leaves of the new rows in all trees; None: there is none
    targets: FloatArray  #: (N, K) on the scale of the fit
    weights: FloatArray | None  #: (N,)
    offsets: FloatArray | None  #: (N, K)

    @classmethod
    def of(
        cls, change: Change, adapter: Any, weights: FloatArray | None, n_leaves: Any, limits: Limits
    ) -> RefitRows:
        """The rows of a change, with the weights that they count with."""
        own = inputs.as_offsets(change.offsets, len(change.y), adapter.n_outputs, "training")
        new = None
        if change.added is not None:
            new = assign_leaves(adapter, change.added, change.added.shape[0], n_leaves, limits)
        return cls(
            kept=change.kept,
            added=new,
            targets=round_to(adapter.precision, change.targets),
            weights=None if weights is None else round_to(adapter.precision, weights),
            offsets=None if own is None else round_to(adapter.offset_precision, own),
        )

    def output_groups(self, output: slice) -> RefitRows:
        """The rows with the columns of some outputs."""
        if self.offsets is None:
            offsets = None
        else:
            offsets = self.offsets[:, output]
        return replace(self, targets=self.targets[:, output], offsets=offsets)

    def leaves(self, old: Leaves, trees: Any = None) -> Leaves:
        """(T, N): in some of the trees, or in all, from the leaves of all old rows in them."""
        kept = old[:, self.kept]
        if self.added is None:
            return kept
        if trees is None:
            own = self.added
        else:
            own = self.added[trees]
        return np.concatenate([kept, own.astype(old.dtype)], axis=1)

    def draws(self, old: NDArray[Any]) -> NDArray[Any]:
        """(T, N): how often each row is drawn for each tree, from the draws of the old ones; new rows are in every bag, once."""
        new = np.ones((len(old), len(self.targets) - len(self.kept)), dtype=old.dtype)
        return np.concatenate([old[:, self.kept], new], axis=1)


def _draws(s: Structure, rows: RefitRows) -> FloatArray | None:
    """(N, T): how often each row is drawn for each tree; None: all are, once."""
    rule = rule_of(s)
    if rule.ranks_rows:
        if rule.recorded_counts is None:
            return None
        return rows.draws(rule.recorded_counts[rule.n_initial_trees :]).T.astype(np.float64)
    if len(s.sample_counts) == 1:
        return None
    return rows.draws(s.sampled_counts()).T


def leaf_fit(
    adapter: Adapter, s: Structure, rows: RefitRows, budget: Budget, ranks: Ranks | None
) -> LeafFit:
    """The leaves of one structure's trees, fitted to these rows; by the ranks of the rows where there is a rule for them."""
    weights = rows.weights
    total = float(len(rows.targets) if weights is None else weights.sum())
    if not total > 0:
        raise InputError("No row of any weight is left to fit again; keep some.")
    rule = _rule(s).reached(s.leaf_weights == 0)
    if rule.by_weight:
        rule = replace(
            rule, l2=adapter.l2_at(rule.l2, s.total_weight / s.n_rows, total / len(rows.targets))
        )
    if s.initial is None:
        base = np.average(rows.targets, axis=0, weights=weights)
    else:
        base = s.initial
    base = (
        np.broadcast_to(base, rows.targets.shape[1:])
        .astype(adapter.base_precision)
        .astype(np.float64)
    )
    draws = _draws(s, rows)
    trees = BoostedFit(
        table=TreeTable(
            n_leaves=s.n_leaves,
            leaf_values=np.zeros((s.total_leaves, rows.targets.shape[1])),
            leaf_counts=None,
            leaf_weights=None,
        ),
        leaf_rule=LeafRule(l2=rule.l2, cut=_cut_of(s), ranks=ranks),
        initial=InitialPrediction(
            follows_targets=s.initial is None,
            values=base,
            is_first_tree=rule_of(s).n_initial_trees > 0,
        ),
        weights=WeightRule(row_weights=weights),
        schedule=Schedule.one_by_one(s.learning_rates, s.coefficients),
        sampler=None if draws is None else RecordedBags(draws, draws.shape[1]),
    )
    walk = _TreeRefit(
        adapter, trees, rows.leaves(s.leaves(), s.columns), rows.targets, rows.offsets, budget
    )
    walk.rule, walk.final = rule, s.final
    found = walk.run()
    emptied = _emptied(s, found)
    if emptied.any() and (ranks is not None or rule_of(s).clips_residuals):
        raise UnsupportedQuestionError(
            "refit",
            f"{emptied.sum()} of {s.total_leaves} leaves of averaged trees would lose all rows, and the values of the nodes "
            "above them follow from ranks of rows, or from residuals that are cut off, so the new model could not be verified",
            "Ask explainer.without(X, rows); or fit with larger leaves.",
        )
    if ranks is not None:
        return _ranked_fit(s, found, walk.raw, trees.initial.is_first_tree, len(rows.targets))
    rule = rule.emptied(found.drawn_weights == 0)
    if s.columns is None:
        columns = np.arange(s.n_trees)
    else:
        columns = s.columns
    raw = walk.raw
    parts = (found.sums, found.drawn_weights, found.counts)
    if emptied.any():
        leaf_rule = replace(rule_of(s), emptied=emptied, newton=rule)
        left = replace(s, leaf_weights=found.leaf_weights, leaf_rule=leaf_rule)
        raw = inherited_values(
            left, raw, found.sums, np.average(rows.targets, axis=0, weights=weights)
        )
        if isinstance(rule, NodeRule):
            rule = inheriting(left).newton_rule
    made = LeafFit(
        s.n_leaves,
        columns,
        s.final,
        raw,
        *parts,
        base,
        float(s.beta[-1]),
        s.initial is None,
        len(rows.targets),
        rule,
    )
    made = replace(made, inherits=s.averages)
    if trees.leaf_rule.cut is None or trees.leaf_rule.cut.weighs:
        return made
    # rows that are cut off count in the weights that a library records
    return replace(made, hessians=found.leaf_weights)


def _cut_of(s: Structure) -> Cut | None:
    """Return where the residuals of a fit are clipped; None: nowhere."""
    rule = rule_of(s)
    if isinstance(rule, HuberRule):
        return rule.cut
    return None


def _emptied(s: Structure, found: Walked) -> BoolArray:
    """Return which leaves of averaged trees, (L,), have no rows any more."""
    had_rows = s.leaf_weights > 0
    emptied = rule_of(s).emptied
    if emptied is not None:
        had_rows = had_rows | emptied
    if not s.averages:
        had_rows = np.zeros_like(had_rows)
    return np.asarray(had_rows & (found.drawn_weights == 0))


def _ranked_fit(s: Structure, found: Walked, raw: FloatArray, based: bool, n_rows: int) -> LeafFit:
    """The leaves of percentiles, after the base, which is a tree of the walk; inner nodes are written as means of leaves."""
    first = int(based)
    if s.columns is None:
        columns = np.arange(s.n_trees)
    else:
        columns = s.columns
    base = np.asarray(s.initial)
    share = float(s.beta[-1])
    estimated = False
    if based and s.final[0]:
        base = raw[0]
        share = float(s.final[0])
        estimated = True
    weights = found.drawn_weights[first:]
    counts = found.counts[first:]
    raw = raw[first:]
    plain = NewtonRule(np.zeros(len(raw)), np.ones(len(raw)))
    parts = (
        s.n_leaves[first:],
        columns[first:] - first,
        s.final[first:],
        raw,
        raw * weights[:, None],
        weights,
        counts,
    )
    return LeafFit(*parts, base, share, estimated, n_rows, plain)


class _TreeRefit(TreeWalk):
    """The walk with leaf values that it makes itself."""

    rule: NewtonRule
    final: FloatArray  #: (T,) what each tree's values are multiplied by in a prediction

    def run(self) -> Any:
        self.raw = np.zeros_like(self.trees.table.leaf_values)
        return super().run()

    def _advance(self, t: int) -> None:
        own = slice(int(self.starts[t]), int(self.starts[t + 1]))
        self.raw[own] = self._values(t, own)
        self.trees.table.leaf_values[own] = self.final[t] * self.raw[own]
        super()._advance(t)

    def _values(self, t: int, own: slice) -> FloatArray:
        """(L_t, K): the values of tree t's leaves before the rate."""
        rule = self.rule
        sums = self.sums
        weights = self.leaf_weights
        if self.trees.leaf_rule.ranks is not None and self.trees.initial.is_first_tree and t == 0:
            targets = self._seen(0)[:, 0]
            ranks = self.trees.leaf_rule.ranks
            picked = ranks.picks(self.leaves[0], targets, np.ones(len(targets)), True)
            return (
                np.array([[ranks.base(targets, picked)]])
                .astype(self.adapter.base_precision)
                .astype(np.float64)
            )
        if self.trees.leaf_rule.ranks is not None:
            if self.shift is None:
                return sums[own]
            return sums[own] + self.shift[own, None]
        one = rule.tree(t, own).emptied(weights[own] == 0)
        if (
            rule.is_monotone and sums.shape[1] > 1
        ):  # shares of two classes, whose bounds are those of the first
            linear = one.linearise(sums[own, 0], weights[own])
            return linear.values(self.trees.table.n_leaves[[t]], sums[own])
        if rule.has_active_set or rule.couples_leaves:
            return np.stack(
                [one.leaf_values(column, weights[own]) for column in sums[own].T], axis=1
            )
        return np.asarray(one.scale(weights[own])[:, None] * sums[own])


def _rule(s: Structure) -> NewtonRule:
    if s.newton_rule.smooths_nodes:
        raise UnsupportedQuestionError(
            "refit",
            "with path_smooth a leaf's value depends on the numbers of rows in the nodes above it",
            "Ask what_if for other targets, or fit with path_smooth=0.",
        )
    return s.newton_rule


def leaf_fits(model: Any, change: Change) -> tuple[list[LeafFit], FloatArray | None]:
    """The leaves of each engine of a proven model, fitted to other rows, and how often each row was drawn for each tree."""
    adapter, engines = model.adapter, model.engines
    if not all(isinstance(engine, TreeEngine) for engine in engines):
        raise UnsupportedQuestionError(
            "refit",
            "models of several others are not written",
            "Refit its members, each as a model of its own.",
        )
    if change.weights is not None and getattr(adapter, "weights_drawn", False):
        raise UnsupportedQuestionError(
            "refit",
            "its bags were drawn in proportion to the weights, which count in no leaf",
            "Leave sample_weight out, or fit again.",
        )
    structures = [engine.structure for engine in engines]
    class_counts = [rule_of(s).class_counts for s in structures]
    if any(counts is not None and not counts.is_known for counts in class_counts):
        raise UnsupportedQuestionError("refit", *CLASS_WEIGHTS_UNKNOWN)
    columns = [np.arange(s.n_trees) if s.columns is None else s.columns for s in structures]
    n_leaves = all_n_leaves(structures)
    weights = change.weights
    if hasattr(adapter, "counted_weights"):  # those of classes are counted from the new labels
        weights = adapter.counted_weights(
            TrainingRows(change.X, change.targets, change.weights, change.offsets)
        )
    rows = RefitRows.of(change, adapter, weights, n_leaves, model.limits)
    first, rules = _rules(adapter, structures, columns, change, rows)
    recorded_by = _recorded_by(adapter, change, rows)
    found, bags = [], np.ones((len(rows.targets), len(n_leaves) - first))
    for s, own, output, ranks in zip(structures, columns, model.output_groups(), rules):
        made = leaf_fit(adapter, s, rows.output_groups(output), model.budget, ranks)
        if recorded_by is not None:
            leaves = rows.leaves(s.leaves(), s.columns)[
                -len(made.n_leaves) :
            ]  # without the base, if that is a tree
            made = replace(made, weights=_leaf_sums(leaves, made.n_leaves, recorded_by))
        found.append(replace(made, row_weights=rows.weights))
        drawn = _draws(s, rows)
        bags[:, own[first:] - first] = 1.0 if drawn is None else drawn
    return found, None if (bags == 1).all() else bags


def _recorded_by(adapter: Adapter, change: Change, rows: RefitRows) -> FloatArray | None:
    """Return the weights (N,) that the library records sums of, where they are not the rows' own."""
    if rows.weights is None or not getattr(adapter, "records_other_weights", False):
        return None
    fitted = adapter.trees(TrainingRows(change.X, rows.targets, rows.weights, rows.offsets))
    return fitted[0].weights.recorded_by


def _leaf_sums(leaves: Leaves, n_leaves: NDArray[np.int64], weights: FloatArray) -> FloatArray:
    """Return the sum of these weights (N,) in each leaf, (L,), of trees of these sizes (T,) with these leaves (T, N)."""
    return np.concatenate([np.bincount(own, weights, n) for own, n in zip(leaves, n_leaves)])


def _rules(
    adapter: Adapter,
    structures: list[Structure],
    columns: list[NDArray[Any]],
    change: Change,
    rows: RefitRows,
) -> tuple[int, list[Ranks | None]]:
    """How many trees are the base, and for each structure the rule of its percentiles for these rows; None: it has means."""
    if not any(rule_of(s).ranks_rows for s in structures):
        return 0, [None] * len(structures)
    first = max(rule_of(s).n_initial_trees for s in structures)
    trees = np.concatenate([own[first:] for own in columns])
    if len(np.unique(trees)) < len(trees):
        raise UnsupportedQuestionError(
            "refit",
            "percentiles of several outputs share their trees",
            "Ask explainer.without(X, rows).",
        )
    fitted = adapter.trees(TrainingRows(change.X, rows.targets, rows.weights, rows.offsets))
    return first, [own.leaf_rule.ranks for own in fitted]
