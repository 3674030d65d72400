"""LightGBM's boosters read by the gradients of their objective.

Their scores are sums of contributions. Gradients and second derivatives are float32; a replay in
float64 meets leaves to that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import (
    BoostedFit,
    InitialPrediction,
    LeafRule,
    Schedule,
    TreeTable,
    WeightRule,
)
from axil.adapters.class_weights import WEIGHS_CLASSES, label_factors, with_class_weight_advice
from axil.adapters.contract import Coefficients, Kind, Nodes, TrainingRows
from axil.adapters.lightgbm.base import LightGBMAdapter
from axil.adapters.lightgbm.draw_replay import DrawReplay, LeafEvidence
from axil.adapters.lightgbm.loss import EPSILON, OF_CLASSES, LightGBMObjective, name_of
from axil.adapters.lightgbm.path_smooth import PathSmooth
from axil.adapters.lightgbm.rates import stated_rates
from axil.adapters.lightgbm.reading import LightGBMReading
from axil.adapters.objective import Objective, as_objective
from axil.adapters.refusals import OTHER_GROUPS, first_of
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError, UnsupportedModelError
from axil.trees.losses import Loss


@dataclass(frozen=True)
class EstimatorSettings:
    """The settings of an estimator that its booster lacks; empty for a booster alone."""

    classes: AnyArray | None
    class_weight: ForeignObject
    objective: Objective | None  #: the user's own; None: it is LightGBM's
    stops_early: str  #: pred_early_stop; empty: its predict takes all trees


def settings_of(
    model: ForeignModel, booster: ForeignModel, objective: ForeignObject
) -> EstimatorSettings:
    """Return what a model states about its fit.

    ``booster`` is its booster, and ``objective`` the function that the user passes.
    """
    if booster is model:
        settings = {}
    else:
        settings = model.get_params()
    # LightGBM takes an alias before the name itself.
    names = ("objective_type", "app", "application", "loss", "objective")
    stated = next((settings[name] for name in names if settings.get(name) is not None), None)
    stops_early = str(settings.get("pred_early_stop") or "")
    return EstimatorSettings(
        getattr(model, "classes_", None),
        settings.get("class_weight"),
        as_objective(objective, stated, native=booster is model),
        "" if stops_early.lower() in ("false", "0", "-") else stops_early,
    )


class AdditiveLightGBM(LightGBMAdapter):
    """A LightGBM booster read by the gradients of its objective."""

    kind = Kind.ADDITIVE
    gradient_tolerance = 2e-6

    def __init__(
        self, booster: ForeignModel, reading: LightGBMReading, estimator: EstimatorSettings
    ):
        super().__init__(booster, reading)
        self._custom = estimator.objective
        if self._custom is not None and name_of(reading):
            raise InputError(
                "objective is given, but this LightGBM model was fitted with "
                f"objective={name_of(reading)}: leave it out."
            )
        # The drops of DART once the rows are known; other targets leave them as they are.
        self._dropped: Coefficients | None = None
        self._objective = LightGBMObjective.of(reading)
        self.n_outputs = self._objective.n_outputs
        self._stated_class_weight = estimator.class_weight
        self.class_weight = estimator.class_weight
        if isinstance(estimator.class_weight, dict) and estimator.classes is not None:
            names = enumerate(estimator.classes.tolist())
            self.class_weight = {k: estimator.class_weight.get(name, 1.0) for k, name in names}
        self._read_classes(estimator.classes)

    def _read_classes(self, names: AnyArray | None) -> None:
        """Read the classes; a booster alone keeps their number, and no names."""
        objective = self._objective.name
        if names is None and objective == "binary":
            self.numbered_classes = 2
        elif names is None and objective in OF_CLASSES:
            self.numbered_classes = self.n_outputs
        can_have_names = objective in ("binary", "custom", *OF_CLASSES)
        if can_have_names and names is not None:
            self.classes = names
        elif objective in OF_CLASSES or (objective == "custom" and self.n_outputs > 1):
            self.classes = np.arange(self.n_outputs)

    def scores(self, X: FeatureTable) -> FloatArray:
        """Return the raw scores, (n, K)."""
        raw_scores = self._booster.predict(self._rows(X), raw_score=True)
        scores = np.asarray(raw_scores, dtype=np.float64).reshape(X.shape[0], self.n_outputs)
        if self._reading.forest:  # raw scores of forests are sums
            return scores / self._n_iterations
        return scores

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return the trees.

        Those of the first iteration come without the initial prediction that LightGBM hides there.
        """
        targets = rows.targets
        if self._objective.name == "binary" and not np.isin(targets, (0, 1)).all():
            raise InputError(
                "y_train holds other numbers than 0 and 1: pass the labels as 1 where LightGBM "
                "had them above 0."
            )
        n_outputs = self.n_outputs
        numbers = np.arange(len(self._trees))
        follows_targets = self._starts_from_average and not rows.totals.offset
        initial_values = np.zeros(n_outputs)
        if follows_targets:
            initial_values = self._initial_scores(rows)
        shares, hidden = self._shares_and_hidden(rows, initial_values)
        values, nodes = self._without_base(hidden)
        tree_shares = None
        initial_shares = None
        rates = stated_rates(self._trees, self._settings, n_outputs)
        if shares is not None:
            tree_shares = shares.omega
            initial_shares = shares.beta
            rates = tree_shares[-1].copy()
        evidence = replace(
            self._evidence(len(targets), rows.weights),
            values=np.concatenate(values),
            rates=rates,
            counts_alone=self._rule.smooth > 0,  # values do not follow from sums by the rule
        )
        loss = self._loss(rows)
        fit = BoostedFit(
            table=self._tree_table(evidence),
            leaf_rule=self._leaf_rule(evidence, nodes, rates),
            schedule=Schedule(
                learning_rates=rates,
                rounds=numbers // n_outputs,
                outputs=numbers % n_outputs,
                tree_shares=tree_shares,
                initial_shares=initial_shares,
            ),
            initial=InitialPrediction(initial_values, follows_targets),
            loss=loss,
            weights=WeightRule(leaf_factors=self.label_factors(targets)),
            sampler=self._balanced(evidence, targets) or self._sampler(evidence, len(targets)),
            no_derivative=self._no_derivative(loss),
        )
        return [fit]

    def _loss(self, rows: TrainingRows) -> Loss:
        if self._custom is None:
            return self._objective.loss(rows.groups)
        return self._custom.loss(rows.targets, rows.weights, np.float64, None)

    def _shares_and_hidden(
        self, rows: TrainingRows, initial_values: FloatArray
    ) -> tuple[Coefficients | None, FloatArray]:
        """Return the coefficients of the trees, and the initial prediction in their leaves.

        The second array, (T,), says how much of the initial prediction the leaves of each tree
        include. The coefficients are None for plain boosting.
        """
        n_trees = len(self._trees)
        if self._reading.forest:
            own_values = initial_values[np.arange(n_trees) % self.n_outputs]
            hidden = np.where(self._n_leaves > 1, own_values, 0.0)
            return self._averaged(initial_values), hidden
        shares = None
        share_of_initial = 1.0
        if self._reading.dart:
            if self._dropped is None:
                self._dropped = self._drops(rows)
            omega = np.repeat(self._dropped.omega, self.n_outputs, axis=1)
            shares = Coefficients(omega, self._dropped.beta)
            share_of_initial = shares.beta[-1]
        hidden = np.zeros(n_trees)
        n_first = min(self.n_outputs, n_trees)
        hidden[:n_first] = (share_of_initial * initial_values)[:n_first]
        return shares, hidden

    def _tree_table(self, evidence: LeafEvidence) -> TreeTable:
        """Return the leaves of all trees."""
        leaf_counts: NDArray[np.int64] | None = evidence.counts
        if self._reading.cuda:  # there by second derivatives
            leaf_counts = None
        value_slack: FloatArray | float = 0.0
        if self._reading.adds_in_single:
            value_slack = self._rule.single_slack(evidence.values)
        return TreeTable(
            n_leaves=self._n_leaves,
            leaf_values=evidence.values[:, None],
            leaf_counts=leaf_counts,
            value_slack=value_slack,
        )

    def _leaf_rule(
        self, evidence: LeafEvidence, nodes: Nodes | None, rates: FloatArray
    ) -> LeafRule:
        """Return how the leaf values follow from the rows."""
        max_step = np.inf
        if not self._reading.cuda:
            max_step = self._objective.setting("max_delta_step") or np.inf
        mixes_nodes = self._reading.monotone_signs.any() or self._rule.smooth > 0
        if not mixes_nodes:
            nodes = None
        smoothing = None
        if self._rule.smooth and nodes is not None:
            # Second derivatives lead the row counts of path_smooth away from those of the leaves.
            tolerance = self.gradient_tolerance
            smoothing = PathSmooth.of(self._rule, rates, nodes, tolerance, tolerance / 10)
        return LeafRule(
            l2=evidence.rule.l2,
            l1=self._objective.setting("lambda_l1"),
            max_step=max_step,
            nodes=nodes,
            smoothing=smoothing,
            averages=self._reading.forest,
        )

    def _averaged(self, base: FloatArray) -> Coefficients:
        """Return the schedule of a forest, whose score is a mean over independent trees.

        A tree that finds no split has a step of its rows in place of a leaf value, and not the
        start; that of the first iteration has nothing (src/boosting/rf.hpp).
        """
        n_trees = len(self._trees)
        n = self._n_iterations
        splits = (self._n_leaves > 1).reshape(n, self.n_outputs)
        shares = splits.mean(axis=0)
        if base.any() and np.ptp(shares) > 0:
            raise UnsupportedModelError(
                "boosting",
                "rf where the trees of some classes find no split more often than those of others",
                "a tree without a split has no initial score, and axil averages the initial "
                "score with one share for all classes",
                "Fit with fewer trees or smaller leaves, so that all find a split.",
            )
        empty = [tree.n_leaves == 1 and tree.floats("leaf_value")[0] == 0 for tree in self._trees]
        omega = np.vstack([np.zeros((n, n_trees)), np.where(empty, 0.0, 1 / n)])
        return Coefficients(omega, np.append(np.ones(n), shares[0]))

    @property
    def _starts_from_average(self) -> bool:
        """Whether the initial score follows from the targets, if no row has an offset.

        Without boost_from_average, first trees that find no split put them there (TrainOneIter,
        src/boosting/gbdt.cpp).
        """
        if self._custom is not None or self._objective.ranks_rows:
            return False
        if self._reading.forest:
            return self._settings.flag("boost_from_average") or self._reading.no_features
        unsplit = bool((self._n_leaves[: self.n_outputs] == 1).all())
        return unsplit or self._settings.flag("boost_from_average")

    def causes(self, mismatch: str) -> str:
        """Return the most likely reasons for a disagreement in "counts" or "values"."""
        causes = with_class_weight_advice(self._stated_class_weight, super().causes(mismatch))
        if self._objective.ranks_rows and mismatch == "values":
            return f"{OTHER_GROUPS}\n{causes}"
        return causes

    @property
    def single_output_setting(self) -> str:
        """The setting that belongs to one output."""
        weighs = self._objective.setting("scale_pos_weight") != 1 or self._settings.flag(
            "is_unbalance"
        )
        return first_of(
            {
                WEIGHS_CLASSES: weighs and self._objective.name == "binary",
                "DART": self._reading.dart,
                "boosting=rf": self._reading.forest,
                "path_smooth": self._rule.smooth > 0,
                "monotone constraints": self._reading.monotone_signs.any(),
            }
        )

    def _no_derivative(self, loss: Loss) -> str:
        """Return why there are no derivatives by the targets; empty if there are."""
        if self._custom is not None:
            return "how the gradients of a user's own objective move with the targets is not known"
        if loss.couples_rows:
            return loss.no_derivative
        if loss.smooth:
            return ""
        return (
            "its gradient changes in steps, so its derivative by the targets is zero or not defined"
        )

    def _initial_scores(self, rows: TrainingRows) -> FloatArray:
        """Return the scores that the fit starts from, (K,): BoostFromScore of each objective."""
        loss = self._loss(rows)
        loss.check(rows.targets)
        scores = loss.start(np.average(rows.targets, axis=0, weights=rows.weights))
        # Scores this close to zero are left out (src/boosting/gbdt.cpp).
        return np.where(np.abs(scores) > EPSILON, scores, 0.0)

    @property
    def balances_labels(self) -> bool:  # type: ignore[override]
        """Whether `label_factors` are counted from the labels of all rows."""
        return self._objective.name == "binary" and self._settings.flag("is_unbalance")

    def label_factors(self, targets: FloatArray) -> FloatArray | None:
        """Return the factors (N,) of scale_pos_weight and is_unbalance.

        They do not change the initial score (binary_objective.hpp).
        """
        if self._objective.name != "binary":
            return None
        scale = self._settings.precisely("scale_pos_weight")[0]
        balanced = self._settings.flag("is_unbalance")
        positive = float((targets > 0).sum())
        negative = len(targets) - positive
        if not balanced or not positive or not negative:
            return label_factors(targets, scale)
        # The smaller class counts as much more as the larger one has more rows.
        more = max(positive, negative) / np.array([positive, negative])
        return label_factors(targets, scale * more[0], more[1])

    def _balanced(self, evidence: LeafEvidence, targets: FloatArray) -> DrawReplay | None:
        """Return bagging with fractions for positive and negative rows, or None.

        Only a fit of two classes has it. It comes before other bagging.
        """
        positive, negative = (
            self._objective.setting(f"{name}_bagging_fraction") for name in ("pos", "neg")
        )
        whole = positive == negative == 1.0 or self._settings.number("bagging_freq") == 0
        if self._objective.name != "binary" or whole or self._reading.goss:
            return None
        fractions = np.where(targets[:, 0] > 0, positive, negative)
        state = replace(self._settings.bagging(len(targets)), fraction=fractions)
        return DrawReplay("LightGBM bagging", [state], evidence, 100, self._reading.forest)
