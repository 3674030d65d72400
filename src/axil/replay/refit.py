"""Refit: new leaf values at the splits of the fit, for other rows, targets or weights.

Every leaf value is computed anew by the library's own rule and with its rounding: L1, clipped steps
and bounds follow the rows that are there. Splits, learning rates, sample counts and dropped trees
are fixed. Cost O(T N).

There are two strategies. `refit_by_gradients` takes the walk with computed leaf values
(`computed_walk`), for every loss. `refit_exact` takes the walk of residuals (`walk`) with leaf
values that it computes itself: it rounds residuals in the order in which libraries round those of
squared error, and knows percentiles, Huber's loss and averaged trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.boosted_fit import (
    BoostedFit,
    InitialPrediction,
    LeafRule,
    Schedule,
    TreeTable,
    WeightRule,
)
from axil.adapters.contract import Adapter, TrainingRows
from axil.adapters.sample_counts import RecordedCounts
from axil.aliases import FeatureTable
from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.errors import InputError, UnsupportedQuestionError
from axil.machine.memory import Budget, Limits
from axil.replay.computed_walk import (
    ComputedWalk,
    FitRows,
    RowWeights,
    require_rows_in_leaves,
)
from axil.replay.recover import assign_leaves
from axil.replay.replayed_stages import ReplayedStages
from axil.replay.walk import Leaves, TreeWalk, Walked, round_to
from axil.structure import Cut, NewtonRule, NodeRule, Ranks, Structure, all_n_leaves, output_groups
from axil.structure.leaves import LeafFit
from axil.weights.engine import CLASS_WEIGHTS_UNKNOWN, Engine, TreeEngine
from axil.weights.fit_rules import rule_of
from axil.weights.huber_rule import HuberRule
from axil.weights.inherited import inherited_values, inheriting

NO_ROWS = "No row of any weight is left to fit again; keep some."


@dataclass(frozen=True, eq=False)
class RefitInputs:
    """The rows of a refit as the user passes them: some of the old ones, then new ones."""

    old_rows: IntArray  #: positions among the training rows
    new_X: FeatureTable  #: the features of the new rows; None: there is none
    X: FeatureTable  #: of all
    y: AnyArray
    targets: FloatArray  #: (N, K) on the scale of the fit
    weights: FloatArray | None  #: (N,) sample weights
    offsets: FloatArray | None  #: (N,) or (N, K)
    groups: IntArray | None = None  #: (N,) the number of each row's group, of a ranking model
    #: training rows that the new rows stand for, whose sample counts they take; None: for no row
    replaced_rows: IntArray | None = None


@dataclass(frozen=True)
class RefitRows:
    """The rows of a refit as the library uses them: some of the old ones, then new ones."""

    old_rows: IntArray  #: positions among the training rows
    new_leaves: Leaves | None  #: (T, n) leaves of the new rows in all trees; None: there is none
    targets: FloatArray  #: (N, K) on the scale of the fit
    weights: FloatArray | None  #: (N,)
    offsets: FloatArray | None  #: (N, K)
    replaced_rows: IntArray | None  #: as in `RefitInputs`

    @classmethod
    def of(
        cls,
        refit_inputs: RefitInputs,
        adapter: Adapter,
        weights: FloatArray | None,
        n_leaves: NDArray[np.int64],
        limits: Limits,
    ) -> RefitRows:
        """Return the rows of a refit, with the weights (N,) that they count with."""
        n_rows = len(refit_inputs.y)
        offsets = inputs.as_offsets(refit_inputs.offsets, n_rows, adapter.n_outputs, "training")
        if offsets is not None:
            offsets = round_to(adapter.rounding.offsets, offsets)
        if weights is not None:
            weights = round_to(adapter.rounding.targets, weights)
        new_leaves = None
        if refit_inputs.new_X is not None:
            n_new = refit_inputs.new_X.shape[0]
            new_leaves = assign_leaves(adapter, refit_inputs.new_X, n_new, n_leaves, limits)
        return cls(
            old_rows=refit_inputs.old_rows,
            new_leaves=new_leaves,
            targets=round_to(adapter.rounding.targets, refit_inputs.targets),
            weights=weights,
            offsets=offsets,
            replaced_rows=refit_inputs.replaced_rows,
        )

    @property
    def total_weight(self) -> float:
        """The sum of the weights of all rows."""
        if self.weights is None:
            return float(len(self.targets))
        return float(self.weights.sum())

    def of_outputs(self, outputs: slice) -> RefitRows:
        """Return the rows with the columns of some outputs."""
        offsets = self.offsets
        if offsets is not None:
            offsets = offsets[:, outputs]
        return replace(self, targets=self.targets[:, outputs], offsets=offsets)

    def leaves(self, old_leaves: Leaves, trees: IntArray | None = None) -> Leaves:
        """Return the leaves (T, N) of the rows in these trees.

        ``old_leaves`` has those of all old rows.
        """
        leaves = old_leaves[:, self.old_rows]
        if self.new_leaves is None:
            return leaves
        new_leaves = self.new_leaves
        if trees is not None:
            new_leaves = new_leaves[trees]
        return np.concatenate([leaves, new_leaves.astype(old_leaves.dtype)], axis=1)

    def sample_counts(self, old_counts: AnyArray) -> AnyArray:
        """Return how often each row is sampled for each tree, (T, N).

        New rows are in the sample of every tree, once, unless they stand for old ones.
        """
        if self.replaced_rows is not None:
            new_counts = old_counts[:, self.replaced_rows]
        else:
            n_new = len(self.targets) - len(self.old_rows)
            new_counts = np.ones((len(old_counts), n_new), dtype=old_counts.dtype)
        return np.concatenate([old_counts[:, self.old_rows], new_counts], axis=1)


# -- by gradients, for every loss ------------------------------------------------------------------


def refit_by_gradients(
    adapter: Adapter,
    replayed: ReplayedStages,
    rows: TrainingRows,
    leaves: Leaves,
    sample_counts: AnyArray | None,
    n_threads: int,
) -> LeafFit:
    """Return the leaves of boosted trees of any loss, fitted to these rows.

    Parameters
    ----------
    rows : TrainingRows
    leaves : unsigned array of shape (T, N)
    sample_counts : array of shape (T, N) or None
        How often each row is sampled for each tree.
    """
    n_rows = len(rows.targets)
    (fit,) = adapter.trees(rows)
    weights = rows.weights
    if weights is None:
        weights = np.ones(n_rows)
    if not weights.any():
        raise InputError(NO_ROWS)
    was_empty = _leaves_without_rows(replayed)
    newton_rule = NewtonRule(fit.leaf_rule.l2, np.ones_like(fit.leaf_rule.l2))
    fit = replace(
        fit,
        leaf_rule=replace(fit.leaf_rule, l2=newton_rule.reached(was_empty).l2),
        schedule=replace(fit.schedule, learning_rates=final_rates(replayed)),
    )
    row_weights = RowWeights.of_one_fit(weights, fit.weights.leaf_factors)
    contiguous_leaves = np.ascontiguousarray(leaves)
    targets = adapter.replayed_targets(rows.targets)
    fit_rows = FitRows(targets, contiguous_leaves, sample_counts, rows.offsets, row_weights)
    walk = ComputedWalk(replayed, fit, fit_rows, n_threads, is_rounded=True)
    walk.run()
    leaf_counts, leaf_weights = _leaf_totals(fit, leaves, sample_counts, weights)
    if fit.leaf_rule.averages:
        require_rows_in_leaves(int(((leaf_counts == 0) & ~was_empty).sum()))
    rule = NewtonRule(
        fit.leaf_rule.l2,
        np.ones_like(fit.leaf_rule.l2),
        False,
        fit.leaf_rule.l1,
        fit.leaf_rule.max_step,
    )
    if fit.leaf_rule.coupling_rule is not None:
        rule = fit.leaf_rule.coupling_rule.emptied(leaf_weights == 0)
    (in_initial,) = row_weights.in_initial(fit.loss.newton_start)
    return LeafFit(
        n_leaves=fit.table.n_leaves,
        columns=np.arange(len(leaves)),
        rates=fit.learning_rates,
        raw=walk.raw_values,
        sums=walk.leaf_sums,
        weights=leaf_weights,
        counts=leaf_counts,
        base=walk.initial[0],
        share=float(fit.schedule.shares_of_initial[-1]),
        estimated=fit.initial.follows_targets,
        n_rows=n_rows,
        rule=rule,
        outputs=fit.schedule.outputs,
        hessians=walk.leaf_hessians,
        means=fit.loss.stored_means(targets, in_initial),
    )


def _leaves_without_rows(replayed: ReplayedStages) -> BoolArray:
    """Return which leaves (L,) no row of the replay fell into, sampled or not."""
    is_empty = []
    for leaves, n_leaves in zip(replayed.leaves, replayed.fit.table.n_leaves):
        is_empty.append(np.bincount(leaves, minlength=int(n_leaves)) == 0)
    return np.concatenate(is_empty)


def _leaf_totals(
    fit: BoostedFit, leaves: Leaves, sample_counts: AnyArray | None, weights: FloatArray
) -> tuple[NDArray[np.int64], FloatArray]:
    """Return the number of sampled rows of each leaf, (L,), and the sum of their weights, (L,)."""
    counts = []
    totals = []
    for tree, n_leaves in enumerate(fit.table.n_leaves.tolist()):
        tree_counts = np.ones(len(weights))
        if sample_counts is not None:
            tree_counts = sample_counts[tree]
        counts.append(np.bincount(leaves[tree], tree_counts > 0, n_leaves))
        totals.append(np.bincount(leaves[tree], weights * tree_counts, n_leaves))
    return np.concatenate(counts).astype(np.int64), np.concatenate(totals)


def final_rates(replayed: ReplayedStages) -> FloatArray:
    """Return the final factor of each tree's values, (T,)."""
    added = np.zeros(len(replayed.leaves))
    for step_round in replayed.rounds:
        for stage, coefficient in step_round.changes:
            added[replayed.stage_tree[stage]] += coefficient
    n_stages = np.bincount(replayed.stage_tree, minlength=len(added))
    return np.asarray(added / np.maximum(n_stages, 1))


# -- by residuals, for exact weights ---------------------------------------------------------------


def refit_exact(
    adapter: Adapter, engines: Sequence[Engine], limits: Limits, refit_inputs: RefitInputs
) -> tuple[list[LeafFit], FloatArray | None]:
    """Return the leaves of each engine of an exact model, fitted to other rows.

    Returns
    -------
    leaf_fits : list of LeafFit
        One of each engine.
    sample_counts : array of shape (N, T) or None
        How often each row is sampled for each tree; None: once, for all.
    """
    structures = _structures_of(engines)
    _require_known_weights(adapter, structures, refit_inputs)
    columns = [_columns_of(structure) for structure in structures]
    n_leaves = all_n_leaves(structures)
    weights = adapter.counted_weights(
        TrainingRows(
            refit_inputs.X, refit_inputs.targets, refit_inputs.weights, refit_inputs.offsets
        )
    )
    rows = RefitRows.of(refit_inputs, adapter, weights, n_leaves, limits)
    structures = _with_all_bounds(adapter, structures, refit_inputs, rows)
    n_base_trees, percentile_rules = _percentile_rules(
        adapter, structures, columns, refit_inputs, rows
    )
    recorded_weights = _recorded_weights(adapter, refit_inputs, rows)
    leaf_fits = []
    sample_counts = np.ones((len(rows.targets), len(n_leaves) - n_base_trees))
    groups = zip(structures, columns, output_groups(len(engines)), percentile_rules)
    for structure, trees, outputs, ranks in groups:
        leaf_fit = _refit_structure(
            adapter, structure, rows.of_outputs(outputs), limits.budget, ranks
        )
        if recorded_weights is not None:
            leaves = rows.leaves(structure.leaves(), structure.columns)
            leaves = leaves[-len(leaf_fit.n_leaves) :]  # without the base, if that is a tree
            leaf_weights = _sums_over_leaves(leaves, leaf_fit.n_leaves, recorded_weights)
            leaf_fit = replace(leaf_fit, weights=leaf_weights)
        leaf_fits.append(replace(leaf_fit, row_weights=rows.weights))
        counts_of_structure = _sample_counts(structure, rows)
        if counts_of_structure is not None:
            sample_counts[:, trees[n_base_trees:] - n_base_trees] = counts_of_structure
    if (sample_counts == 1).all():
        return leaf_fits, None
    return leaf_fits, sample_counts


def _structures_of(engines: Sequence[Engine]) -> list[Structure]:
    """Return the structure of each engine; refuse models of several others."""
    structures = []
    for engine in engines:
        if not isinstance(engine, TreeEngine):
            raise UnsupportedQuestionError(
                "refit",
                "models of several others are not written",
                "Refit its members, each as a model of its own.",
            )
        structures.append(engine.structure)
    return structures


def _with_all_bounds(
    adapter: Adapter,
    structures: Sequence[Structure],
    refit_inputs: RefitInputs,
    rows: RefitRows,
) -> list[Structure]:
    """Return the structures with the bounds of all monotone splits.

    A structure has no bounds of splits below which leaves have no rows. Other rows may reach these
    leaves again.
    """
    if not any(_lacks_bounds(structure) for structure in structures):
        return list(structures)
    fits = adapter.trees(TrainingRows(refit_inputs.X, rows.targets, rows.weights, rows.offsets))
    complete = []
    for structure, fit in zip(structures, fits):
        rule = rule_of(structure)
        nodes = fit.leaf_rule.nodes
        if isinstance(rule.newton, NodeRule) and nodes is not None:
            bounded = replace(rule.newton.nodes, signs=nodes.signs, rivals=nodes.rivals)
            newton = replace(rule.newton, nodes=bounded)
            structure = replace(structure, leaf_rule=replace(rule, newton=newton))
        complete.append(structure)
    return complete


def _lacks_bounds(structure: Structure) -> bool:
    """Return whether leaves of trees with nodes have no rows, which takes bounds off splits."""
    has_nodes = isinstance(structure.newton_rule, NodeRule)
    return has_nodes and bool((structure.leaf_weights == 0).any())


def _require_known_weights(
    adapter: Adapter, structures: Sequence[Structure], refit_inputs: RefitInputs
) -> None:
    """Raise if the row weights in the leaves of another fit are unknown."""
    if refit_inputs.weights is not None and adapter.weights_drawn:
        raise UnsupportedQuestionError(
            "refit",
            "its rows were sampled in proportion to the weights, which count in no leaf",
            "Leave sample_weight out, or fit again.",
        )
    for structure in structures:
        class_counts = rule_of(structure).class_counts
        if class_counts is not None and not class_counts.is_known:
            raise UnsupportedQuestionError("refit", *CLASS_WEIGHTS_UNKNOWN)


def _columns_of(structure: Structure) -> NDArray[np.int64]:
    """Return the positions of a structure's trees among all trees of the model."""
    if structure.columns is None:
        return np.arange(structure.n_trees)
    return structure.columns


def _recorded_weights(
    adapter: Adapter, refit_inputs: RefitInputs, rows: RefitRows
) -> FloatArray | None:
    """Return the weights (N,) that the library records sums of, if they are not the rows' own."""
    if rows.weights is None or not adapter.records_other_weights:
        return None
    fits = adapter.trees(TrainingRows(refit_inputs.X, rows.targets, rows.weights, rows.offsets))
    return fits[0].weights.recorded_by


def _sums_over_leaves(
    leaves: Leaves, n_leaves: NDArray[np.int64], weights: FloatArray
) -> FloatArray:
    """Return the sum of the weights (N,) in each leaf, (L,), of trees with these leaves (T, N)."""
    sums = [np.bincount(of_tree, weights, size) for of_tree, size in zip(leaves, n_leaves)]
    return np.concatenate(sums)


def _percentile_rules(
    adapter: Adapter,
    structures: Sequence[Structure],
    columns: Sequence[NDArray[np.int64]],
    refit_inputs: RefitInputs,
    rows: RefitRows,
) -> tuple[int, Sequence[Ranks | None]]:
    """Return the number of base trees, and the rule of percentiles of each structure.

    The rules are those for these rows. A rule is None where leaf values are means.
    """
    rules = [rule_of(structure) for structure in structures]
    if not any(rule.ranks_rows for rule in rules):
        return 0, [None] * len(structures)
    n_base_trees = max(rule.n_initial_trees for rule in rules)
    trees = np.concatenate([of_structure[n_base_trees:] for of_structure in columns])
    if len(np.unique(trees)) < len(trees):
        raise UnsupportedQuestionError(
            "refit",
            "percentiles of several outputs share their trees",
            "Ask explainer.without(X, rows).",
        )
    fits = adapter.trees(TrainingRows(refit_inputs.X, rows.targets, rows.weights, rows.offsets))
    return n_base_trees, [fit.leaf_rule.ranks for fit in fits]


def _sample_counts(structure: Structure, rows: RefitRows) -> FloatArray | None:
    """Return how often each row is sampled for each tree, (N, T); None stands for once each."""
    rule = rule_of(structure)
    if rule.ranks_rows:
        if rule.recorded_counts is None:
            return None
        old_counts = rule.recorded_counts[rule.n_initial_trees :]
        return rows.sample_counts(old_counts).T.astype(np.float64)
    if len(structure.sample_counts) == 1:
        return None
    return rows.sample_counts(structure.sampled_counts()).T


def _refit_structure(
    adapter: Adapter, structure: Structure, rows: RefitRows, budget: Budget, ranks: Ranks | None
) -> LeafFit:
    """Return the leaves of a structure, fitted to these rows; ``ranks``: for percentiles."""
    rule = _rule_for(adapter, structure, rows)
    fit = _fit_of_rows(adapter, structure, rows, rule, ranks)
    leaves = rows.leaves(structure.leaves(), structure.columns)
    walk = _ComputedTreeWalk(adapter, fit, leaves, rows.targets, rows.offsets, budget)
    walk.rule = rule
    walk.final_shares = structure.final
    walked = walk.run()
    is_emptied = _emptied_leaves(structure, walked)
    if is_emptied.any() and (ranks is not None or rule_of(structure).clips_residuals):
        raise UnsupportedQuestionError(
            "refit",
            f"{is_emptied.sum()} of {structure.total_leaves} leaves of averaged trees would lose "
            "all "
            "rows, and the values of the nodes above them follow from ranks of rows, or from "
            "residuals "
            "that are cut off, so the new model could not be verified",
            "Ask explainer.without(X, rows); or fit with larger leaves.",
        )
    if ranks is not None:
        return _percentile_fit(
            structure, walked, walk.raw_values, fit.initial.is_first_tree, len(rows.targets)
        )
    rule = rule.emptied(walked.drawn_weights == 0)
    raw_values = walk.raw_values
    if is_emptied.any():
        leaf_rule = replace(rule_of(structure), emptied=is_emptied, newton=rule)
        remaining = replace(structure, leaf_weights=walked.leaf_weights, leaf_rule=leaf_rule)
        mean = np.average(rows.targets, axis=0, weights=rows.weights)
        raw_values = inherited_values(remaining, raw_values, walked.sums, mean)
        if isinstance(rule, NodeRule):
            rule = inheriting(remaining).newton_rule
    hessians = None
    cut = fit.leaf_rule.cut
    if cut is not None and not cut.weighs:
        # Rows that are cut off count in the weights that a library records.
        hessians = walked.leaf_weights
    return LeafFit(
        n_leaves=structure.n_leaves,
        columns=_columns_of(structure),
        rates=structure.final,
        raw=raw_values,
        sums=walked.sums,
        weights=walked.drawn_weights,
        counts=walked.counts,
        base=fit.initial.values,
        share=float(structure.beta[-1]),
        estimated=structure.initial is None,
        n_rows=len(rows.targets),
        rule=rule,
        hessians=hessians,
        inherits=structure.averages,
    )


def _rule_for(adapter: Adapter, structure: Structure, rows: RefitRows) -> NewtonRule:
    """Return the leaf rule for the sums and weights of these rows."""
    if not rows.total_weight > 0:
        raise InputError(NO_ROWS)
    rule = _known_rule(structure).reached(structure.leaf_weights == 0)
    if not rule.by_weight:
        return rule
    mean_before = structure.total_weight / structure.n_rows
    mean_after = rows.total_weight / len(rows.targets)
    return replace(rule, l2=adapter.l2_at(rule.l2, mean_before, mean_after))


def _known_rule(structure: Structure) -> NewtonRule:
    """Return the leaf rule of a structure; refuse refits if it is unknown for other rows."""
    rule = structure.newton_rule
    if rule.smooths_nodes:
        raise UnsupportedQuestionError(
            "refit",
            "with path_smooth a leaf's value depends on the numbers of rows in the nodes above it",
            "Ask what_if for other targets, or fit with path_smooth=0.",
        )
    return rule


def _fit_of_rows(
    adapter: Adapter,
    structure: Structure,
    rows: RefitRows,
    rule: NewtonRule,
    ranks: Ranks | None,
) -> BoostedFit:
    """Return the fit of a structure to these rows, before its leaf values are computed."""
    initial = structure.initial
    if initial is None:
        initial = np.average(rows.targets, axis=0, weights=rows.weights)
    initial = np.broadcast_to(initial, rows.targets.shape[1:]).astype(adapter.rounding.initial)
    sample_counts = _sample_counts(structure, rows)
    sampler = None
    if sample_counts is not None:
        sampler = RecordedCounts(sample_counts, sample_counts.shape[1])
    fitted_rule = rule_of(structure)
    return BoostedFit(
        table=TreeTable(
            n_leaves=structure.n_leaves,
            leaf_values=np.zeros((structure.total_leaves, rows.targets.shape[1])),
            leaf_counts=None,
            leaf_weights=None,
        ),
        leaf_rule=LeafRule(l2=rule.l2, cut=_cut_of(structure), ranks=ranks),
        initial=InitialPrediction(
            follows_targets=structure.initial is None,
            values=initial.astype(np.float64),
            is_first_tree=fitted_rule.n_initial_trees > 0,
        ),
        weights=WeightRule(row_weights=rows.weights),
        schedule=Schedule.one_by_one(structure.learning_rates, structure.coefficients),
        sampler=sampler,
        score_precision=adapter.score_precision,
    )


def _cut_of(structure: Structure) -> Cut | None:
    """Return the thresholds at which the residuals of a fit are clipped; None if they are not."""
    rule = rule_of(structure)
    if isinstance(rule, HuberRule):
        return rule.cut
    return None


def _emptied_leaves(structure: Structure, walked: Walked) -> BoolArray:
    """Return which leaves of averaged trees, (L,), have no rows any more."""
    if not structure.averages:
        return np.zeros(structure.total_leaves, dtype=np.bool_)
    had_rows = structure.leaf_weights > 0
    emptied_before = rule_of(structure).emptied
    if emptied_before is not None:
        had_rows = had_rows | emptied_before
    return np.asarray(had_rows & (walked.drawn_weights == 0))


def _percentile_fit(
    structure: Structure, walked: Walked, raw_values: FloatArray, has_base_tree: bool, n_rows: int
) -> LeafFit:
    """Return the leaves of percentiles; inner nodes are written as means of leaves.

    With ``has_base_tree`` the initial prediction is the first tree of the walk.
    """
    n_base_trees = int(has_base_tree)
    trees = slice(n_base_trees, None)
    base = np.asarray(structure.initial)
    share = float(structure.beta[-1])
    is_estimated = False
    if has_base_tree and structure.final[0]:
        base = raw_values[0]
        share = float(structure.final[0])
        is_estimated = True
    leaf_values = raw_values[trees]
    leaf_weights = walked.drawn_weights[trees]
    return LeafFit(
        n_leaves=structure.n_leaves[trees],
        columns=_columns_of(structure)[trees] - n_base_trees,
        rates=structure.final[trees],
        raw=leaf_values,
        sums=leaf_values * leaf_weights[:, None],
        weights=leaf_weights,
        counts=walked.counts[trees],
        base=base,
        share=share,
        estimated=is_estimated,
        n_rows=n_rows,
        rule=NewtonRule(np.zeros(len(leaf_values)), np.ones(len(leaf_values))),
    )


class _ComputedTreeWalk(TreeWalk):
    """The walk of residuals with leaf values that it computes itself."""

    rule: NewtonRule
    final_shares: FloatArray  #: (T,) what each tree's values are multiplied by in a prediction
    raw_values: FloatArray  #: (L, K) leaf values before the rate

    def run(self) -> Walked:
        self.raw_values = np.zeros_like(self.fit.table.leaf_values)
        return super().run()

    def _advance(self, t: int) -> None:
        place = slice(int(self.starts[t]), int(self.starts[t + 1]))
        self.raw_values[place] = self._computed_values(t, place)
        self.fit.table.leaf_values[place] = self.final_shares[t] * self.raw_values[place]
        super()._advance(t)

    def _computed_values(self, t: int, place: slice) -> FloatArray:
        """Return the values of tree t's leaves before the rate, (L_t, K)."""
        sums = self.sums[place]
        weights = self.leaf_weights[place]
        if self.fit.leaf_rule.ranks is not None:
            return self._percentiles(t, self.fit.leaf_rule.ranks, place)
        rule = self.rule.tree(t, place).emptied(weights == 0)
        if rule.is_monotone and sums.shape[1] > 1:
            # They are shares of two classes, whose bounds are those of the first class.
            linear_leaves = rule.linearise(sums[:, 0], weights)
            return linear_leaves.values(self.fit.table.n_leaves[[t]], sums)
        if rule.has_active_set or rule.couples_leaves:
            return np.stack([rule.leaf_values(column, weights) for column in sums.T], axis=1)
        return np.asarray(rule.scale(weights)[:, None] * sums)

    def _percentiles(self, t: int, ranks: Ranks, place: slice) -> FloatArray:
        """Return the percentiles of tree t's leaves, (L_t, 1); the first tree may be the base."""
        if self.fit.initial.is_first_tree and t == 0:
            targets = self.residuals_before(0)[:, 0]
            picked = ranks.picks(self.leaves[0], targets, np.ones(len(targets)), True)
            initial = np.array([[ranks.base(targets, picked)]])
            return initial.astype(self.adapter.rounding.initial).astype(np.float64)
        if self.shift is None:
            return self.sums[place]
        return self.sums[place] + self.shift[place, None]
