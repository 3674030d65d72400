"""LightGBM models whose gradient is known: binary, cross-entropy, multiclass, Poisson, gamma, Tweedie, Huber, Fair, squared.

Formulas: src/objective/*_objective.hpp. Gradients and second derivatives are float32; a replay in
float64 meets leaves to that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

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
from axil.adapters.class_weights import WEIGHS_CLASSES, class_weight_advice, label_factors
from axil.adapters.contract import Coefficients, Kind, TrainingRows
from axil.adapters.lightgbm.adapter import LightGBMAdapter
from axil.adapters.lightgbm.draw_replay import DrawReplay, LeafEvidence
from axil.adapters.lightgbm.path_smooth import PathSmooth
from axil.adapters.lightgbm.rates import stated_rates
from axil.adapters.lightgbm.reading import LightGBMReading
from axil.adapters.lightgbm.refusals import REFUSALS
from axil.adapters.objective import Objective, as_objective
from axil.adapters.refusals import Refusal, first_of, gradient_refusals
from axil.arrays import FloatArray
from axil.errors import InputError, UnsupportedModelError
from axil.trees.losses import Logistic, Loss, Softmax, Squared, gamma, poisson, tweedie
from axil.trees.residual_losses import Fair, Huber

EPSILON = float(np.float32(1e-15))  # kEpsilon, include/LightGBM/meta.h

_LOSSES: dict[str, Callable[[LightGBMWithLoss], Loss]] = {
    "regression": lambda model: Squared(),
    "cross_entropy": lambda model: Logistic(near=EPSILON),
    **dict.fromkeys(
        ("binary", "multiclassova"),
        lambda model: Logistic(scale=model.option("sigmoid"), near=EPSILON),
    ),
    "multiclass": lambda model: Softmax(
        factor=model.n_outputs / (model.n_outputs - 1), near=EPSILON
    ),
    "poisson": lambda model: poisson(float(np.exp(model.setting("poisson_max_delta_step")))),
    "gamma": lambda model: gamma(),
    "tweedie": lambda model: tweedie(model.setting("tweedie_variance_power")),
    "huber": lambda model: Huber(delta=model.setting("alpha")),
    "fair": lambda model: Fair(c=model.setting("fair_c")),
}


_OF_CLASSES = ("multiclass", "multiclassova")


@dataclass(frozen=True)
class EstimatorSettings:
    """The settings of an estimator that its booster does not know; empty for a booster alone."""

    classes: NDArray[Any] | None
    class_weight: Any
    objective: Objective | None  #: the user's own; None: it is LightGBM's
    stops_early: str  #: pred_early_stop; empty: its predict takes all trees


def settings_of(model: Any, booster: Any, objective: Any) -> EstimatorSettings:
    """Return what a model, whose booster this is, says of its fit; ``objective`` is the function that the user gives."""
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


def _name(model: LightGBMReading) -> str:
    if model.text.objective:
        return model.text.objective.split()[0]
    return ""


def _by_class(setting: str, model: LightGBMReading) -> str:
    """A weight of the rows of each of several classes."""
    settings = model.settings
    if _name(model) != "multiclassova":
        return ""
    if setting == "is_unbalance":
        if settings.flag(setting):
            return "True with multiclassova"
        return ""
    scale = settings.precisely(setting)[0]
    if scale == 1:
        return ""
    return f"{scale:g} with multiclassova"


def _some_start_later(model: LightGBMReading) -> str:
    """Whether some classes have their start from the first iteration on, and others never."""
    n_outputs = int(model.text.header.get("num_tree_per_iteration", "1"))
    first = model.text.trees[:n_outputs]
    constants = [tree.n_leaves == 1 and tree.floats("leaf_value")[0] != 0 for tree in first]
    if model.settings.flag("boost_from_average") or all(constants) or not any(constants):
        return ""
    return "False, where the first trees of some classes find a split and those of others do not"


def _constant_classes(model: LightGBMReading) -> str:
    """Return whether a forest has classes without trees: those of no row, or of all."""
    if not model.forest:
        return ""
    n_outputs = int(model.text.header.get("num_tree_per_iteration", "1"))
    first = model.text.trees[:n_outputs]
    constants = [tree.n_leaves == 1 and tree.floats("leaf_value")[0] != 0 for tree in first]
    if any(constants):
        return "rf with classes that have no row, or all rows"
    return ""


# Others say that they need accurate predictions (NeedAccuratePrediction, src/objective).
_STOPPABLE = ("binary", "multiclass", "multiclassova")
_PLAIN = "axil replays plain boosting only with this loss"
GRADIENT_REFUSALS = gradient_refusals(
    REFUSALS,
    Refusal(
        "objective",
        lambda model: (
            not model.own_objective
            and _name(model) not in _LOSSES
            and (model.text.objective or "custom")
        ),
        "axil does not know its gradient",
        "Pass the function that it was fitted with as objective=, or fit with objective binary, cross_entropy, multiclass, "
        "poisson, gamma, tweedie, huber or fair.",
    ),
    Refusal(
        "refit_decay_rate",
        lambda model: model.refit,
        _PLAIN,
        "Explain the model as it was before refit, or fit a new one on the new data.",
    ),
    Refusal(
        "reg_sqrt",
        lambda model: "sqrt" in model.text.objective.split()[1:],
        "axil differentiates by the targets themselves, not by their roots",
        "Fit with reg_sqrt=False, or take the roots yourself.",
    ),
    Refusal(
        "pred_early_stop",
        lambda model: _name(model) in _STOPPABLE and model.stops_early,
        "the model's predict leaves out later trees once a score is far from 0, so that its scores are not sums over all trees",
        "Call set_params(pred_early_stop=False) on the model, or pass its booster_, which predicts with all trees.",
    ),
    Refusal(
        "linear_tree",
        lambda model: model.linear,
        "a leaf's coefficients are not sums of gradients, and axil keeps one value per leaf with this loss",
        "Fit with linear_tree=False, or with squared error.",
    ),
    Refusal(
        "boost_from_average",
        _some_start_later,
        "LightGBM then starts the others from the shares of their classes, after one iteration",
        "Fit with boost_from_average=True.",
    ),
    Refusal(
        "boosting",
        _constant_classes,
        "LightGBM grows no trees for them, and averages one constant with zeros",
        "Fit with the classes that have rows, and with more than one of them.",
    ),
    *(
        Refusal(
            name,
            partial(_by_class, name),
            "rows weigh otherwise for each class, and axil replays one weight for each row",
            "Fit with class_weight or sample_weight in its place, or explain a binary model for each class.",
        )
        for name in ("scale_pos_weight", "is_unbalance")
    ),
    Refusal(
        "use_quantized_grad",
        lambda model: model.settings.flag("use_quantized_grad"),
        "axil does not replay rounded gradients",
        "Fit with use_quantized_grad=False.",
    ),
)


class LightGBMWithLoss(LightGBMAdapter):
    """A LightGBM booster read by the gradients of its objective."""

    refusals = GRADIENT_REFUSALS
    kind = Kind.ADDITIVE
    gradient_tolerance = 2e-6

    def __init__(self, booster: Any, reading: LightGBMReading, estimator: EstimatorSettings):
        super().__init__(booster, reading)
        classes = estimator.classes
        class_weight = estimator.class_weight
        custom = estimator.objective
        self._class_weight = class_weight
        self._custom = custom
        self.class_weight = class_weight
        if isinstance(class_weight, dict) and classes is not None:
            self.class_weight = {
                k: class_weight.get(name, 1.0) for k, name in enumerate(classes.tolist())
            }
        self._dropped: Coefficients | None = (
            None  # of DART, once the rows are known; other targets leave it as it is
        )
        if custom is not None and _name(self._reading):
            raise InputError(
                f"objective is given, but this LightGBM model was fitted with objective={_name(self._reading)}: leave it out."
            )
        objective, *options = (self._reading.text.objective or "custom").split()
        self._objective = objective
        self._options = dict(option.split(":", 1) for option in options if ":" in option)
        self.n_outputs = int(self._reading.text.header.get("num_tree_per_iteration", "1"))
        if classes is None:
            self.numbered_classes = {"binary": 2}.get(
                objective, self.n_outputs if objective in _OF_CLASSES else 0
            )
        if objective in _OF_CLASSES:
            if classes is None:
                self.classes = np.arange(self.n_outputs)
            else:
                self.classes = classes
        elif objective in ("binary", "custom") and classes is not None:
            self.classes = classes
        elif objective == "custom" and self.n_outputs > 1:
            self.classes = np.arange(self.n_outputs)

    def scores(self, X: Any) -> FloatArray:
        """(n, K)."""
        found = self._booster.predict(self._rows(X), raw_score=True)
        found = np.asarray(found, dtype=np.float64).reshape(X.shape[0], self.n_outputs)
        # raw scores of forests are sums
        if self._reading.forest:
            return found / self._n_iterations
        return found

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return the trees, their bases taken out of the first iteration's, where LightGBM hides them."""
        targets, weights = rows.targets, rows.weights
        if self._objective == "binary" and not np.isin(targets, (0, 1)).all():
            raise InputError(
                "y_train holds other numbers than 0 and 1: pass the labels as 1 where LightGBM had them above 0."
            )
        n_trees, n_outputs = len(self._trees), self.n_outputs
        numbers = np.arange(n_trees)
        started = self._starts_from_average and not rows.totals.offset
        base = self._start(targets, weights) if started else np.zeros(n_outputs)
        base = np.where(
            np.abs(base) > EPSILON, base, 0.0
        )  # a start this close to zero is left out (src/boosting/gbdt.cpp)
        if self._reading.dart and self._dropped is None:
            self._dropped = self._drops(rows)
        drops = self._dropped
        hidden = np.zeros(n_trees)
        hidden[: min(n_outputs, n_trees)] = (base if drops is None else drops.beta[-1] * base)[
            :n_trees
        ]
        omega = None if drops is None else np.repeat(drops.omega, n_outputs, axis=1)
        if self._reading.forest:
            drops = self._averaged(base)
            omega = drops.omega
            hidden = np.where(self._n_leaves > 1, base[numbers % n_outputs], 0.0)
        values, nodes = self._without_base(hidden)
        mixes = self._reading.monotone_signs.any() or self._rule.smooth > 0
        rates = (
            stated_rates(self._trees, self._settings, n_outputs)
            if omega is None
            else omega[-1].copy()
        )
        alone = self._rule.smooth > 0  # values do not follow from sums by the rule
        evidence = self._evidence(len(targets), weights)
        evidence = replace(evidence, values=np.concatenate(values), rates=rates, counts_alone=alone)
        fit = BoostedFit(
            table=TreeTable(
                n_leaves=self._n_leaves,
                leaf_values=evidence.values[:, None],
                leaf_counts=None if self._reading.cuda else evidence.counts,
                leaf_weights=None,
                value_slack=self._rule.single_slack(evidence.values)
                if self._reading.adds_in_single
                else 0.0,
            ),
            leaf_rule=LeafRule(
                l2=evidence.rule.l2,
                nodes=nodes if mixes else None,
                averages=self._reading.forest,
                l1=self._settings.precisely("lambda_l1")[0],
                max_step=np.inf
                if self._reading.cuda
                else self._settings.precisely("max_delta_step")[0] or np.inf,
            ),
            initial=InitialPrediction(follows_targets=started, values=base),
            weights=WeightRule(leaf_factors=self.label_factors(targets)),
            schedule=Schedule(
                learning_rates=rates,
                rounds=numbers // n_outputs,
                outputs=numbers % n_outputs,
                tree_shares=omega,
                initial_shares=None if drops is None else drops.beta,
            ),
            loss=self._loss
            if self._custom is None
            else self._custom.loss(targets, weights, np.float64, None),
            sampler=self._balanced(evidence, targets) or self._sampler(evidence, len(targets)),
            no_derivative=self._underived,
        )
        return [replace(fit, leaf_rule=replace(fit.leaf_rule, smoothing=self._smoothing(fit)))]

    def _averaged(self, base: FloatArray) -> Coefficients:
        """Return how the trees of a forest add up: each sees the start alone, and their mean is the score.

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
                "trees without a split lack the start, and axil has one share of it for all classes",
                "Fit with fewer trees or smaller leaves, so that all find a split.",
            )
        empty = [tree.n_leaves == 1 and tree.floats("leaf_value")[0] == 0 for tree in self._trees]
        omega = np.vstack([np.zeros((n, n_trees)), np.where(empty, 0.0, 1 / n)])
        return Coefficients(omega, np.append(np.ones(n), shares[0]))

    @property
    def _starts_from_average(self) -> bool:
        """Whether scores start from the targets, where no row has an offset.

        Without boost_from_average, first trees that find no split put them there (TrainOneIter,
        src/boosting/gbdt.cpp).
        """
        if self._custom is not None:
            return False
        if self._reading.forest:
            return self._settings.flag("boost_from_average") or self._reading.no_features
        unsplit = bool((self._n_leaves[: self.n_outputs] == 1).all())
        return unsplit or self._settings.flag("boost_from_average")

    def _smoothing(self, trees: BoostedFit) -> PathSmooth | None:
        """The search for the row counts of path_smooth, which second derivatives lead away from those of the leaves."""
        if not self._rule.smooth or trees.leaf_rule.nodes is None:
            return None
        return PathSmooth.of(
            self._rule,
            trees.learning_rates,
            trees.leaf_rule.nodes,
            self.gradient_tolerance,
            self.gradient_tolerance / 10,
        )

    def causes(self, what: str) -> str:
        """The most likely reason for a disagreement in "counts" or "values"."""
        return f"{class_weight_advice(self._class_weight)}\n{super().causes(what)}"

    def option(self, name: str) -> float:
        """A number that the objective's line states; 1 where it does not."""
        return float(self._options.get(name, 1.0))

    def setting(self, name: str) -> float:
        """A number among the settings."""
        return float(self._settings.precisely(name)[0])

    @property
    def single_output_setting(self) -> str:
        """The setting that belongs to one output."""
        weighs = self.setting("scale_pos_weight") != 1 or self._settings.flag("is_unbalance")
        return first_of(
            {
                WEIGHS_CLASSES: weighs and self._objective == "binary",
                "DART": self._reading.dart,
                "boosting=rf": self._reading.forest,
                "path_smooth": self._rule.smooth > 0,
                "monotone constraints": self._reading.monotone_signs.any(),
            }
        )

    @property
    def _underived(self) -> str:
        """Why there are no derivatives."""
        if self._custom is not None:
            return "how the gradients of a user's own objective move with the targets is not known"
        if self._loss.smooth:
            return ""
        return "its gradient has corners, between which it does not follow the targets"

    @property
    def _loss(self) -> Loss:
        return _LOSSES[self._objective](self)

    def _start(self, targets: FloatArray, weights: FloatArray | None) -> FloatArray:
        """(K,): BoostFromScore of each objective."""
        self._loss.check(targets)
        return self._loss.start(np.average(targets, axis=0, weights=weights))

    @property
    def balances_labels(self) -> bool:  # type: ignore[override]
        """Whether `label_factors` are counted from the labels of all rows."""
        return self._objective == "binary" and self._settings.flag("is_unbalance")

    def label_factors(self, targets: FloatArray) -> FloatArray | None:
        """Return the factors (N,) of scale_pos_weight and is_unbalance, which do not reach the start (binary_objective.hpp)."""
        if self._objective != "binary":
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
        """Bagging with fractions for positive and negative rows, where a fit of two classes has them; they come first."""
        positive, negative = (self.setting(f"{name}_bagging_fraction") for name in ("pos", "neg"))
        whole = positive == negative == 1.0 or self._settings.number("bagging_freq") == 0
        if self._objective != "binary" or whole or self._reading.goss:
            return None
        fractions = np.where(targets[:, 0] > 0, positive, negative)
        state = replace(self._settings.bagging(len(targets)), fraction=fractions)
        return DrawReplay("LightGBM bagging", [state], evidence, 100, self._reading.forest)
