"""XGBoost models whose gradient is known: logistic, softmax, Poisson, gamma, Tweedie, pseudo-Huber, squared (log) error.

Formulas: src/objective/regression_loss.h, regression_obj.cu, multiclass_obj.cu; leaf values:
CalcWeight, src/tree/param.h. All is kept in float32 and added in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from axil.adapters.boosted_fit import BoostedFit, InitialPrediction, Schedule
from axil.adapters.class_weights import WEIGHS_CLASSES, label_factors
from axil.adapters.contract import Kind, TrainingRows
from axil.adapters.objective import Objective, as_objective
from axil.adapters.refusals import Refusal, first_of, gradient_refusals
from axil.adapters.xgboost.adapter import OpenedBooster, XGBoostAdapter
from axil.adapters.xgboost.document import Tree
from axil.adapters.xgboost.draws import Subsample
from axil.adapters.xgboost.percentile import PERCENTILES, alphas
from axil.adapters.xgboost.plan import plan_of
from axil.adapters.xgboost.rates import (
    confirmed,
    is_clipped,
    is_silent,
    rate_of_clip,
    rate_of_gain,
    shows_rate,
)
from axil.adapters.xgboost.refusals import REFUSALS, SPLIT_BY_OTHERS, SQUARED_ERROR, XGBoostReading
from axil.adapters.xgboost.smoothed import SmoothedAbsoluteError, SmoothedQuantile
from axil.arrays import FloatArray
from axil.errors import InputError
from axil.trees.losses import NEAR_SINGLE, Logistic, Loss, Softmax, Squared, gamma, poisson, tweedie
from axil.trees.residual_losses import PseudoHuber, SquaredLog

_CLASSES = "multi:softprob", "multi:softmax"
_FROM_STEP = "pseudo-huber", "squared-log"
_OWN_START = *_FROM_STEP, "custom"
_LOSSES: dict[str, Callable[[XGBoostWithLoss], Loss]] = {
    **dict.fromkeys(
        SQUARED_ERROR, lambda model: Squared(single=True, newton_start=model.positive_factor != 1)
    ),
    **dict.fromkeys(
        ("binary:logistic", "reg:logistic"),
        lambda model: Logistic(single=True, newton_start=model.logistic_newton),
    ),
    # takes base_score, a mean, for a score
    "binary:logitraw": lambda model: Logistic(
        single=True, newton_start=model.logistic_newton, from_mean=True
    ),
    **dict.fromkeys(
        _CLASSES, lambda model: Softmax(single=True, factor=2.0, centred=True, added=NEAR_SINGLE)
    ),
    "count:poisson": lambda model: poisson(
        float(np.exp(model.parameter("poisson_regression_param", "max_delta_step"))),
        single=True,
        newton_start=not model.recent,
    ),
    "reg:gamma": lambda model: gamma(single=True, newton_start=not model.recent),
    "reg:tweedie": lambda model: tweedie(
        model.parameter("tweedie_regression_param", "tweedie_variance_power"),
        single=True,
        newton_start=not model.recent,
    ),
    "reg:pseudohubererror": lambda model: PseudoHuber(
        single=True, slope=model.parameter("pseudo_huber_param", "huber_slope")
    ),
    "reg:squaredlogerror": lambda model: SquaredLog(single=True),
}
#: losses of XGBoost 3.4 and later, by the model and whether the rows of its fit have weights
_SMOOTHED: dict[str, Callable[[XGBoostWithLoss, bool], Loss]] = {
    "reg:absoluteerror": lambda model, weighted: SmoothedAbsoluteError(
        single=True, weighted=weighted
    ),
    "reg:quantileerror": lambda model, weighted: SmoothedQuantile(
        single=True,
        weighted=weighted,
        alphas=tuple(alphas(model.objective_settings, model.n_outputs)),
    ),
}
_LOGARITHMIC = "survival:cox", "survival:aft"  # besides those whose gradients are known
UNESTIMATED = 0.5  # base_score where nobody gave one and XGBoost estimates none
_FROM_ZERO = "the fit starts from a step from 0 that takes all targets through its gradient"


def read_with_loss(model: Any, booster: OpenedBooster, objective: Any) -> XGBoostWithLoss:
    """Return the adapter of a model, whose booster this is, by its gradients; ``objective`` is the user's own function."""
    stated = getattr(model, "objective", None)
    custom = as_objective(objective, stated, native=stated is None)
    if custom is None:
        adapter = XGBoostWithLoss(booster)
    else:
        adapter = XGBoostWithOwnObjective(custom, booster)
    if adapter.has_labels:
        adapter.classes = None
    else:
        adapter.classes = getattr(model, "classes_", adapter.classes)
    return adapter


def _several_targets(reading: XGBoostReading) -> str:
    """Return the number of targets where they have one start together, or weights of rows by class."""
    model = reading.model
    if model is None or model.n_outputs == 1 or reading.objective in _CLASSES:
        return ""
    has_one_start = len(model.base_score) == 1 and model.base_estimated
    if reading.weighs_classes:
        return f"{model.n_outputs} with scale_pos_weight"
    if has_one_start:
        return str(model.n_outputs)
    return ""


def _ranked(reading: XGBoostReading) -> str:
    """Return the name of an objective whose leaves are percentiles, whatever their gradients came from."""
    is_ranked = (
        reading.objective in PERCENTILES
        and reading.model is not None
        and not reading.model.is_stepped
    )
    if is_ranked:
        return f"{reading.objective} beside a function of your own"
    return ""


GRADIENT_REFUSALS = gradient_refusals(
    REFUSALS,
    Refusal(
        "objective",
        lambda reading: (
            reading.objective not in (*_LOSSES, *_SMOOTHED) and (reading.objective or "none")
        ),
        "axil does not know its gradient",
        "Fit with objective binary:logistic, multi:softprob, count:poisson, reg:gamma, reg:tweedie or reg:pseudohubererror.",
    ),
    Refusal(
        "num_target",
        _several_targets,
        "targets that start from one number, or whose rows weigh otherwise for each target, are not replayed together",
        "Fit one model per target, use XGBoost 3.1 or later, or give base_score.",
    ),
)


class XGBoostWithLoss(XGBoostAdapter):
    """An XGBoost booster read by the gradients of its objective."""

    refusals = GRADIENT_REFUSALS
    kind = Kind.ADDITIVE
    gradient_tolerance = (
        1e-5  # scores are float32 sums over the trees, and gradients are computed from those
    )

    def __init__(self, opened_booster: OpenedBooster):
        super().__init__(opened_booster)
        self._objective = str(self._settings.learner["objective"]["name"])
        self.starts_with_base = self.starts_with_percentile = False
        n_classes = int(self._model.parameters.get("num_class", "0"))
        if self._objective in _CLASSES:
            self.n_outputs = n_classes
            self.classes = np.arange(n_classes)

    def scores(self, X: Any, offsets: FloatArray | None = None) -> FloatArray:
        """(n, K): with offsets for base_margin."""
        return self.predictions(X, offsets, output_margin=True)

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return all trees; those of one iteration, for several classes or in parallel, see the same scores."""
        plan = plan_of(self._model, self._settings, rows.totals.n_rows)
        l2 = self._settings.number("reg_lambda")
        n_iterations = self._n_iterations
        rates = self._rates_of_trees(l2)
        omega = None
        factors = self._drop_factors(plan)
        if factors is not None:
            omega = rates * factors  # 0 for trees that come later
            rates = omega[-1].copy()
        every = np.arange(self._n_trees)
        l2_of_leaves = [np.where(self._zero(tree), np.inf, l2) for tree in self._trees]
        entry = self._entry(
            every,
            np.arange(self.n_outputs if self._model.shared else 1),
            rates,
            l2_of_leaves,
            rows.totals.weighted,
        )
        loss = self._loss(rows)
        softmax = isinstance(loss, Softmax)
        estimated = self._model.base_estimated and loss.name not in _OWN_START
        base = np.broadcast_to(self._model.base_score, (self.n_outputs,)).copy()
        if not softmax:
            base = self._link(loss, base)
        several = self.n_outputs > 1
        hessians = None
        if (
            entry.table.leaf_weights is not None and omega is None
        ):  # DART rounds scores far from zero otherwise, and hessians with them
            hessians = entry.table.leaf_weights * (self.n_outputs if self._model.shared else 1)
        outputs = None
        if not self._model.shared:
            if several:
                outputs = self._groups
            else:
                outputs = np.zeros_like(self._groups)
        initial_shares = None
        if rows.totals.offset:  # the base is that of predictions without base_margin
            initial_shares = np.append(np.zeros(n_iterations), 1.0)
        schedule = Schedule(rates, self._iterations, outputs, omega, initial_shares)
        slack: FloatArray | float = 0.0
        if omega is not None:
            slack = np.repeat(
                rates * self._residual_errors(rows.totals.largest), entry.table.n_leaves
            )
        fit = replace(
            entry,
            table=replace(
                entry.table,
                leaf_counts=None,
                leaf_weights=None,
                value_slack=slack,
                leaf_hessians=hessians,
            ),
            initial=InitialPrediction(
                follows_targets=estimated and (self.recent or not softmax),
                values=base,
                fixed_reason=_FROM_ZERO
                if loss.name in _FROM_STEP and self._model.base_estimated
                else "",
            ),
            leaf_rule=replace(
                entry.leaf_rule,
                nodes=self._rule.nodes(self._trees, 0, l2_of_leaves, np.nan_to_num(rates, nan=1.0))
                if self._rule.signs.any()
                else None,
                l1=self._settings.number("reg_alpha"),
                max_step=self._settings.max_step or np.inf,
                min_hessian=self._lightest,
            ),
            weights=replace(
                entry.weights, leaf_factors=None if loss.recorded else self._factors(rows.targets)
            ),
            sampler=Subsample(plan, every) if plan.samples else None,
            loss=loss,
            schedule=schedule,
            score_precision=np.float32,
            no_derivative=self._underived(loss),
        )
        return [fit]

    @property
    def single_output_setting(self) -> str:
        """The setting that belongs to one output."""
        signs = self._rule.signs.any()
        return first_of(
            {
                WEIGHS_CLASSES: self.positive_factor != 1,
                "DART": self._drops,
                "monotone constraints": signs,
            }
        )

    @property
    def has_labels(self) -> bool:
        """Return whether it has several targets, which are numbers, of a classifier a label each."""
        return self._model.n_outputs > 1 and self._objective not in _CLASSES

    @property
    def objective_settings(self) -> dict[str, Any]:
        """The settings of the objective."""
        return self._reading.objective_settings

    def _loss(self, rows: TrainingRows) -> Loss:
        if self._objective in _SMOOTHED:
            return _SMOOTHED[self._objective](self, rows.weights is not None)
        return _LOSSES[self._objective](self)

    def _link(self, loss: Loss, base: FloatArray) -> FloatArray:
        """(K,): the scores of base_score, which is kept as a mean, but for several classes."""
        return loss.kept_link(base)

    def _underived(self, loss: Loss) -> str:
        """Why there are no derivatives; XGBoost's other starts are one Newton step from 0 of all rows (src/objective)."""
        if loss.pooled:
            return "in every round its gradients are scaled by the residuals of all rows, which axil does not differentiate"
        if loss.name in _OWN_START and self._model.base_estimated:
            return _FROM_ZERO
        return ""

    def _rates_of_trees(self, l2: float) -> FloatArray:
        """(T,): the rate of the settings; nan, for the replay to find, where a tree of three values and more does not show it.

        So it is in schedules and in models that were loaded from a file, which does not keep the
        rate. Two values have some rate for any targets: there the gain of a split, which XGBoost
        keeps, says what it was.
        """
        rate = self._stated_rate
        rates = np.full(self._n_trees, rate)
        if self._drops:
            return rates
        most = self._settings.max_step or np.inf
        negligible = 1e-5 * max(float(np.abs(tree.values).max()) for tree in self._trees)
        for t, tree in enumerate(self._trees):
            if is_silent(tree):
                rates[t] = 0.0
            elif not tree.values.any() or confirmed(tree, rate, l2):
                continue
            elif len(np.unique(np.abs(tree.values[np.abs(tree.values) > negligible]))) > 2:
                rates[t] = np.nan
            elif not shows_rate(tree, rate, l2):
                rates[t] = self._shown_rate(tree, l2, most)
        return rates

    def _shown_rate(self, tree: Tree, l2: float, most: float) -> float:
        """Return the rate that a tree of two values shows, else the stated one; nan where that is zero."""
        shown = np.nan
        has_alpha = self._settings.number("reg_alpha") > 0
        signs = self._settings.monotone_signs
        # which are in gains; with constraints, be they all 0, XGBoost takes gains from values,
        # without reg_alpha
        bends_gains = has_alpha and (most < np.inf or len(signs) > 0)
        if not (bends_gains or any(signs) or is_clipped(tree, most)):
            shown = rate_of_gain(tree, l2)
        # Any value is near some rate of few digits times max_delta_step, so there must be another
        # sign of a clip.
        if np.isnan(shown):
            rate = self._stated_rate
        else:
            rate = shown
        reaches_limit = np.abs(tree.values).max() >= (1 - 1e-5) * rate * most
        if reaches_limit or (np.isnan(shown) and is_clipped(tree, most)):
            shown = rate_of_clip(tree, most)
        if np.isnan(shown) and self._stated_rate > 0:
            shown = self._stated_rate
        return shown

    @property
    def _lightest(self) -> float:
        """Below which weight XGBoost sets one class of a leaf for all to zero: min_child_weight (CalcWeight, src/tree/param.h).

        Files lose it, but without reg_alpha nothing else leads to zeros. From XGBoost 3.4 on, which
        has smoothed losses, no value is set to zero; but 3.4 may have saved a model of an older
        version, which has such zeros.
        """
        if not self._model.shared or self._objective in _SMOOTHED:
            return 0.0
        has_zeros = any((tree.values == 0).any() for tree in self._trees)
        if self._model.version >= (3, 4) and not has_zeros:
            return 0.0
        if self._settings.number("reg_alpha"):
            return self._settings.number("min_child_weight")
        return np.inf

    def _factors(self, targets: FloatArray) -> FloatArray | None:
        """scale_pos_weight, which weighs rows whose label is exactly 1."""
        return label_factors((targets == 1).astype(float), self.positive_factor)

    def parameter(self, group: str, name: str) -> float:
        """A number of the objective."""
        return float(self._settings.learner["objective"][group][name])

    @property
    def positive_factor(self) -> float:
        """scale_pos_weight."""
        return float(self._settings.text("scale_pos_weight") or 1.0)

    @property
    def logistic_newton(self) -> bool:
        """Whether a fit to the logistic loss starts from one Newton step."""
        return not self.recent or self.positive_factor != 1

    @property
    def recent(self) -> bool:
        """Whether it is from XGBoost 3.1 on, where fits start from the link of the mean and base_score is a list.

        Before, they started from one Newton step, and several classes from a constant.
        """
        return self._model.parameters["base_score"].startswith("[")


class XGBoostWithOwnObjective(XGBoostWithLoss):
    """A booster that was fitted with a user's own objective; its settings name an objective, of XGBoost or of the user, too."""

    refusals = (
        *(
            row
            for row in GRADIENT_REFUSALS
            if row is SPLIT_BY_OTHERS or row.setting not in ("objective", "num_target")
        ),
        Refusal(
            "objective",
            _ranked,
            "XGBoost up to 3.3 put percentiles in the place of the steps that your function led to",
            "Fit with your function alone, without an objective beside it.",
        ),
    )

    def __init__(self, custom: Objective, opened_booster: OpenedBooster):
        super().__init__(opened_booster)
        # XGBoost estimates a start where the objective is its own, and starts from this number
        # where it is a function.
        if self._model.base_estimated and np.any(self._model.base_score != UNESTIMATED):
            raise InputError(
                f"objective is given, but this XGBoost model was fitted with objective={self._objective}: leave it out."
            )
        self._custom = custom

    def _loss(self, rows: TrainingRows) -> Loss:
        return self._custom.loss(rows.targets, rows.weights, np.float32, np.zeros(0, np.float32))

    def _link(self, loss: Loss, base: FloatArray) -> FloatArray:
        """The scores of base_score by the link of the objective that is named beside the function."""
        named = _LOSSES.get("count:poisson" if self._objective in _LOGARITHMIC else self._objective)
        if named is None or self._objective in _CLASSES:  # whose base_score is a score
            return base
        return named(self).kept_link(base)

    def causes(self, what: str) -> str:
        """See `XGBoostAdapter.causes`; the function given comes first."""
        given = f"The objective given is not the function of the fit; a fit with objective={self._objective!r} itself takes none."
        return f"{given}\n{super().causes(what)}"

    def _underived(self, loss: Loss) -> str:
        return "how the gradients of a user's own objective move with the targets is not known"
