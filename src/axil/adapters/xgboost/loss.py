"""XGBoost's objectives whose gradients axil knows, and the refusals of all others.

Formulas: src/objective/regression_loss.h, regression_obj.cu, multiclass_obj.cu.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from axil.adapters.contract import TargetForm, TrainingRows
from axil.adapters.refusals import Refusal, gradient_refusals
from axil.adapters.xgboost.document import ModelDocument
from axil.adapters.xgboost.failure_time import DISTRIBUTIONS, AcceleratedFailureTime
from axil.adapters.xgboost.percentile import PERCENTILES, alphas
from axil.adapters.xgboost.ranking import RANKING, check_group_weights, ranking_loss
from axil.adapters.xgboost.refusals import REFUSALS, SPLIT_BY_OTHERS, SQUARED_ERROR, XGBoostReading
from axil.adapters.xgboost.smoothed import SmoothedAbsoluteError, SmoothedQuantile
from axil.adapters.xgboost.survival import XGBoostCox
from axil.arrays import FloatArray
from axil.trees.coupled_losses import require_groups
from axil.trees.losses import NEAR_SINGLE, Logistic, Loss, Softmax, Squared, gamma, poisson, tweedie
from axil.trees.residual_losses import PseudoHuber, SquaredLog

CLASSES = "multi:softprob", "multi:softmax"
FAILURE_TIME = "survival:aft"
FROM_STEP = "pseudo-huber", "squared-log"
OWN_START = *FROM_STEP, "custom", FAILURE_TIME, *RANKING


@dataclass(frozen=True)
class XGBoostObjective:
    """The objective that a model was fitted with, and its settings."""

    reading: XGBoostReading
    model: ModelDocument

    @property
    def name(self) -> str:
        """The name of the objective that the settings state, also beside a user's function."""
        return str(self.reading.settings.learner["objective"]["name"])

    @property
    def has_smoothed_loss(self) -> bool:
        """Whether the loss is one that XGBoost smooths on the scale of the residuals."""
        return self.name in _SMOOTHED

    @property
    def ranks_rows(self) -> bool:
        """Whether rows are ranked within groups."""
        return self.name in RANKING

    @property
    def target_form(self) -> TargetForm:
        """The form of its targets."""
        if self.name == FAILURE_TIME:
            return TargetForm.BOUNDS
        if self.name == "survival:cox":
            return TargetForm.TIMES
        return TargetForm.NUMBERS

    def loss(self, rows: TrainingRows) -> Loss:
        """Return the loss of a fit to these rows."""
        if self.has_smoothed_loss:
            return _SMOOTHED[self.name](self, rows.weights is not None)
        if self.ranks_rows:
            groups = require_groups(rows.groups, self.name)
            check_group_weights(groups, rows.weights)
            settings = self.reading.objective_settings["lambdarank_param"]
            seed = int(self.reading.settings.number("seed"))
            return ranking_loss(self.name, settings, self.model, seed, groups)
        if self.name == FAILURE_TIME:
            settings = self.reading.objective_settings["aft_loss_param"]
            return AcceleratedFailureTime(
                bounds=rows.targets,
                distribution=DISTRIBUTIONS[settings["aft_loss_distribution"]],
                sigma=float(np.float32(settings["aft_loss_distribution_scale"])),
            )
        return _LOSSES[self.name](self)

    def link_beside_function(self, base_score: FloatArray) -> FloatArray:
        """Return the scores of base_score (K,) by the link of the objective that is named.

        It is named beside a user's function.
        """
        if self.name in LOGARITHMIC:
            create_loss = _LOSSES["count:poisson"]
        elif self.name in CLASSES or self.name not in _LOSSES:  # whose base_score is a score
            return base_score
        else:
            create_loss = _LOSSES[self.name]
        return create_loss(self).stored_link(base_score)

    def parameter(self, group: str, name: str) -> float:
        """Return a number of the objective."""
        return float(self.reading.settings.learner["objective"][group][name])

    @property
    def positive_factor(self) -> float:
        """The setting scale_pos_weight, a factor of the weight of rows with label 1."""
        return float(self.reading.settings.text("scale_pos_weight") or 1.0)

    @property
    def logistic_newton(self) -> bool:
        """Whether a fit to the logistic loss starts from one Newton step."""
        return not self.recent or self.positive_factor != 1

    @property
    def recent(self) -> bool:
        """Whether XGBoost 3.1 or later fitted the model, which starts from the link of the mean.

        base_score is then a list.

        Before, they started from one Newton step, and several classes from a constant.
        """
        return self.model.parameters["base_score"].startswith("[")


_LOSSES: dict[str, Callable[[XGBoostObjective], Loss]] = {
    **dict.fromkeys(
        SQUARED_ERROR,
        lambda objective: Squared(single=True, newton_start=objective.positive_factor != 1),
    ),
    **dict.fromkeys(
        ("binary:logistic", "reg:logistic"),
        lambda objective: Logistic(single=True, newton_start=objective.logistic_newton),
    ),
    # takes base_score, a mean, for a score
    "binary:logitraw": lambda objective: Logistic(
        single=True, newton_start=objective.logistic_newton, from_mean=True
    ),
    **dict.fromkeys(
        CLASSES, lambda objective: Softmax(single=True, factor=2.0, centred=True, added=NEAR_SINGLE)
    ),
    "count:poisson": lambda objective: poisson(
        float(np.exp(objective.parameter("poisson_regression_param", "max_delta_step"))),
        single=True,
        newton_start=not objective.recent,
    ),
    "reg:gamma": lambda objective: gamma(single=True, newton_start=not objective.recent),
    "reg:tweedie": lambda objective: tweedie(
        objective.parameter("tweedie_regression_param", "tweedie_variance_power"),
        single=True,
        newton_start=not objective.recent,
    ),
    "reg:pseudohubererror": lambda objective: PseudoHuber(
        single=True, slope=objective.parameter("pseudo_huber_param", "huber_slope")
    ),
    "reg:squaredlogerror": lambda objective: SquaredLog(single=True),
    "survival:cox": lambda objective: XGBoostCox(),
}
#: losses of XGBoost 3.4 and later, by the model and whether the rows of its fit have weights
_SMOOTHED: dict[str, Callable[[XGBoostObjective, bool], Loss]] = {
    "reg:absoluteerror": lambda objective, weighted: SmoothedAbsoluteError(
        single=True, weighted=weighted
    ),
    "reg:quantileerror": lambda objective, weighted: SmoothedQuantile(
        single=True,
        weighted=weighted,
        alphas=tuple(alphas(objective.reading.objective_settings, objective.model.n_outputs)),
    ),
}
LOGARITHMIC = "survival:cox", FAILURE_TIME  # besides those whose gradients are known
UNESTIMATED = 0.5  # base_score where nobody gave one and XGBoost estimates none
FROM_ZERO = "the initial score is one step from 0, and its gradient depends on all targets"


def _several_targets(reading: XGBoostReading) -> str:
    """Return the number of targets if they share their initial score or have weights by class."""
    model = reading.model
    if model is None or model.n_outputs == 1 or reading.objective in CLASSES:
        return ""
    has_one_start = len(model.base_score) == 1 and model.base_estimated
    if reading.weighs_classes:
        return f"{model.n_outputs} with scale_pos_weight"
    if has_one_start:
        return str(model.n_outputs)
    return ""


def _ranked(reading: XGBoostReading) -> str:
    """Return the name of an objective whose leaves are percentiles, with any gradients."""
    is_ranked = (
        reading.objective in PERCENTILES
        and reading.model is not None
        and not reading.model.is_stepped
    )
    if is_ranked:
        return f"{reading.objective} beside a function of your own"
    return ""


def _unbiased(reading: XGBoostReading) -> str:
    """Return lambdarank_unbiased if a ranking estimates the bias of positions."""
    if _ranking_setting(reading, "lambdarank_unbiased") == "1":
        return "True"
    return ""


def _ranking_setting(reading: XGBoostReading, name: str) -> str:
    """Return a setting of a ranking objective; empty for others."""
    if reading.objective not in RANKING:
        return ""
    return str(reading.objective_settings.get("lambdarank_param", {}).get(name, ""))


def _dropped(reading: XGBoostReading) -> str:
    """Return the booster of dropped trees, if the loss turns on the rounding of scores."""
    model = reading.model
    if (
        reading.objective not in (*RANKING, FAILURE_TIME)
        or model is None
        or model.weight_drop is None
    ):
        return ""
    if (model.weight_drop == 1).all():
        return ""
    return f"dart with {reading.objective}"


def _mixed_draws(reading: XGBoostReading) -> str:
    """Return the pair method if its generator also samples rows or columns; else empty."""
    draws_pairs = _ranking_setting(reading, "lambdarank_pair_method") == "mean"
    model = reading.model
    if not draws_pairs or model is None:
        return ""
    if model.version < (3, 0):
        return "mean of XGBoost before 3.0"
    if model.version < (3, 4):
        return ""
    settings = reading.settings
    shares = ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode")
    names = [name for name in shares if settings.number(name) < 1]
    if settings.text("seed_per_iteration") == "1":
        names.append("seed_per_iteration")
    if "grow_colmaker" in settings.updaters:
        names.append("tree_method=exact")
    if names:
        return f"mean with {names[0]}"
    return ""


GRADIENT_REFUSALS = gradient_refusals(
    REFUSALS,
    Refusal(
        "lambdarank_unbiased",
        _unbiased,
        "gradients are divided by the bias of positions, which each round estimates anew",
        "Fit with lambdarank_unbiased=False.",
    ),
    Refusal(
        "booster",
        _dropped,
        "removing trees from the scores and adding them back changes the rounding of scores, and "
        "the gradients of this loss depend on it",
        'Fit with booster="gbtree".',
    ),
    Refusal(
        "lambdarank_pair_method",
        _mixed_draws,
        "random pairs are replayed from XGBoost 3.0 on, and from 3.4 on where one generator does "
        "not sample rows or columns besides",
        'Fit with lambdarank_pair_method="topk", or without the other setting.',
    ),
    Refusal(
        "objective",
        lambda reading: (
            reading.objective not in (*_LOSSES, *_SMOOTHED, *RANKING, FAILURE_TIME)
            and (reading.objective or "none")
        ),
        "axil does not know its gradient",
        "Fit with objective binary:logistic, multi:softprob, count:poisson, reg:gamma, "
        "reg:tweedie, reg:pseudohubererror or rank:ndcg.",
    ),
    Refusal(
        "num_target",
        _several_targets,
        "axil does not replay several targets that start from one number, or whose rows have "
        "another weight for each target",
        "Fit one model per target, use XGBoost 3.1 or later, or give base_score.",
    ),
)

#: Of models that were fitted with a function of the user's.
OWN_OBJECTIVE_REFUSALS: tuple[Refusal[XGBoostReading], ...] = (
    *(
        row
        for row in GRADIENT_REFUSALS
        if row is SPLIT_BY_OTHERS or row.setting not in ("objective", "num_target")
    ),
    Refusal(
        "objective",
        _ranked,
        "XGBoost up to 3.3 replaced the steps of your function by percentiles",
        "Fit with your function alone, without an objective beside it.",
    ),
)
