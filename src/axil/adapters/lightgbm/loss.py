"""LightGBM's objectives whose gradients axil knows, and the refusals of all others.

Formulas: src/objective/*_objective.hpp.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from axil.adapters.lightgbm.ranking import RANKING
from axil.adapters.lightgbm.reading import LightGBMReading
from axil.adapters.lightgbm.refusals import REFUSALS
from axil.adapters.lightgbm.text import LightGBMSettings
from axil.adapters.refusals import Refusal, gradient_refusals
from axil.arrays import IntArray
from axil.trees.coupled_losses import require_groups
from axil.trees.losses import Logistic, Loss, Softmax, Squared, gamma, poisson, tweedie
from axil.trees.residual_losses import Fair, Huber

EPSILON = float(np.float32(1e-15))  # kEpsilon, include/LightGBM/meta.h

OF_CLASSES = ("multiclass", "multiclassova")


@dataclass(frozen=True)
class LightGBMObjective:
    """The objective that a model was fitted with, and its settings."""

    name: str  #: "custom" where it is a function of the user's
    options: Mapping[str, str]  #: those that the line of the objective states
    settings: LightGBMSettings
    n_outputs: int

    @classmethod
    def of(cls, reading: LightGBMReading) -> LightGBMObjective:
        """Return what a model states."""
        name, *options = (reading.text.objective or "custom").split()
        pairs = (option.split(":", 1) for option in options if ":" in option)
        n_outputs = int(reading.text.header.get("num_tree_per_iteration", "1"))
        return cls(name, dict(pairs), reading.settings, n_outputs)

    def option(self, name: str) -> float:
        """Return a number that the line of the objective states; 1 if it does not."""
        return float(self.options.get(name, 1.0))

    def setting(self, name: str) -> float:
        """Return a number among the settings."""
        return float(self.settings.precisely(name)[0])

    @property
    def ranks_rows(self) -> bool:
        """Whether rows are ranked within groups."""
        return self.name in RANKING

    def loss(self, groups: IntArray | None) -> Loss:
        """Return the loss of an objective that is LightGBM's own, for rows of these groups (N,)."""
        if self.ranks_rows:
            return RANKING[self.name](self.settings, require_groups(groups, self.name))
        return _LOSSES[self.name](self)


_LOSSES: dict[str, Callable[[LightGBMObjective], Loss]] = {
    "regression": lambda objective: Squared(),
    "cross_entropy": lambda objective: Logistic(near=EPSILON),
    **dict.fromkeys(
        ("binary", "multiclassova"),
        lambda objective: Logistic(scale=objective.option("sigmoid"), near=EPSILON),
    ),
    "multiclass": lambda objective: Softmax(
        factor=objective.n_outputs / (objective.n_outputs - 1), near=EPSILON
    ),
    "poisson": lambda objective: poisson(
        float(np.exp(objective.setting("poisson_max_delta_step")))
    ),
    "gamma": lambda objective: gamma(),
    "tweedie": lambda objective: tweedie(objective.setting("tweedie_variance_power")),
    "huber": lambda objective: Huber(delta=objective.setting("alpha")),
    "fair": lambda objective: Fair(c=objective.setting("fair_c")),
}


def name_of(model: LightGBMReading) -> str:
    """Return the name of a model's objective; empty for a function of the user's."""
    if model.text.objective:
        return model.text.objective.split()[0]
    return ""


def _by_class(setting: str, model: LightGBMReading) -> str:
    """Return a weight for the rows of each of several classes; empty if there is none."""
    settings = model.settings
    if name_of(model) != "multiclassova":
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
    """Return the value of boost_from_average if some classes start later than others."""
    n_outputs = int(model.text.header.get("num_tree_per_iteration", "1"))
    first = model.text.trees[:n_outputs]
    constants = [tree.n_leaves == 1 and tree.floats("leaf_value")[0] != 0 for tree in first]
    if model.settings.flag("boost_from_average") or all(constants) or not any(constants):
        return ""
    return "False, where the first trees of some classes find a split and those of others do not"


def _constant_classes(model: LightGBMReading) -> str:
    """Return why a forest has classes without trees: no row or every row is of them; else empty."""
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
            and name_of(model) not in (*_LOSSES, *RANKING)
            and (model.text.objective or "custom")
        ),
        "axil does not know its gradient",
        "Pass the function that it was fitted with as objective=, or fit with objective binary, "
        "cross_entropy, multiclass, poisson, gamma, tweedie, huber, fair, lambdarank or "
        "rank_xendcg.",
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
        "boosting",
        lambda model: model.dart and name_of(model) == "lambdarank" and "dart with lambdarank",
        "removing trees from the scores and adding them back changes the rounding of scores, and "
        "ranks depend on it",
        'Fit with boosting="gbdt", or with objective="rank_xendcg".',
    ),
    Refusal(
        "pred_early_stop",
        lambda model: name_of(model) in _STOPPABLE and model.stops_early,
        "the model's predict leaves out later trees once a score is far from 0, so that its "
        "scores are not sums over all trees",
        "Call set_params(pred_early_stop=False) on the model, or pass its booster_, which "
        "predicts with all trees.",
    ),
    Refusal(
        "linear_tree",
        lambda model: model.linear,
        "a leaf's coefficients are not sums of gradients, and axil keeps one value per leaf with "
        "this loss",
        "Fit with linear_tree=False, or with squared error.",
    ),
    Refusal(
        "boost_from_average",
        _some_start_later,
        "LightGBM then starts the other classes from their shares of the rows, one iteration later",
        "Fit with boost_from_average=True.",
    ),
    Refusal(
        "boosting",
        _constant_classes,
        "LightGBM grows no trees for such a class, and averages one constant with zeros",
        "Fit with the classes that have rows, and with more than one of them.",
    ),
    *(
        Refusal(
            name,
            partial(_by_class, name),
            "a row has another weight for each class, and axil replays one weight for each row",
            "Fit with class_weight or sample_weight in its place, or explain a binary model for "
            "each class.",
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
