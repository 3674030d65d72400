"""Which LightGBM models axil does not explain, and why: a table, tried in order, that also makes the documentation.

Condition (i): the first prediction is linear in the targets. Condition (ii): residuals are linear in the targets and
leaf values linear in the residuals. A setting is refused if it breaks one for some targets, not only where it binds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from axil.adapters.lightgbm_text import ModelText, Settings
from axil.errors import UnsupportedModelError


@dataclass(frozen=True)
class Reading:
    """All that a refusal may look at."""

    text: ModelText
    settings: Settings
    refit: str  #: the decay rate of Booster.refit, empty where the model was not refit as far as can be seen

    @property
    def subset_features(self) -> frozenset[int]:
        """Categorical features whose splits group categories, with cat_l2, rather than part one from the rest.

        LightGBM splits one against the rest iff the feature has at most max_cat_to_onehot bins
        (src/treelearner/feature_histogram.cpp).
        """
        most = self.settings.number("max_cat_to_onehot")
        return frozenset(feature for feature, bins in self.text.category_counts.items() if bins > most)

    @property
    def splits_subsets(self) -> bool:
        """Whether any split groups categories."""
        features = self.subset_features
        return bool(features) and any(tree.splits_on(features).any() for tree in self.text.trees)


@dataclass(frozen=True)
class Refusal:
    """One row of the table: ``found`` returns the offending value, or an empty string."""

    setting: str
    found: Callable[[Reading], str]
    reason: str
    condition: str | None
    instead: str


_L2 = 'Fit with objective="regression" (squared error) instead.'
_LINEAR = "linear in the targets, but axil does not replay yet which {} each tree was fitted on"

_OBJECTIVES = {
    "regression_l1": ("leaf values are medians of the residuals", "(ii)"),
    "huber": ("residuals are clipped", "(ii)"),
    "fair": ("residuals are damped by a non-linear function", "(ii)"),
    "quantile": ("leaf values are quantiles of the residuals", "(ii)"),
    "mape": ("leaf values are weighted medians of the residuals", "(ii)"),
    "poisson": ("predictions pass through an exponential", "(ii)"),
    "gamma": ("predictions pass through an exponential", "(ii)"),
    "tweedie": ("predictions pass through an exponential", "(ii)"),
    "binary": ("residuals pass through a sigmoid", "(ii)"),
    "multiclass": ("residuals pass through a softmax", "(ii)"),
    "multiclassova": ("residuals pass through a sigmoid", "(ii)"),
    "cross_entropy": ("residuals pass through a sigmoid", "(ii)"),
    "cross_entropy_lambda": ("residuals pass through a logarithm", "(ii)"),
    "lambdarank": ("residuals depend on how the rows are ranked", "(ii)"),
    "rank_xendcg": ("residuals depend on how the rows are ranked", "(ii)"),
}


def _objective(name: str) -> Callable[[Reading], str]:
    return lambda model: model.text.objective if model.text.objective.split()[:1] == [name] else ""


def _other_objective(model: Reading) -> str:
    name = model.text.objective
    return "custom" if not name or name.startswith(("none", "custom")) else "" if name == "regression" else name


def _positive(name: str) -> Callable[[Reading], str]:
    return lambda model: model.settings.text(name) if model.settings.number(name) > 0 else ""


def _monotone(model: Reading) -> str:
    signs = model.settings.text("monotone_constraints") or model.text.header.get("monotone_constraints", "")
    return signs if signs.replace("0", "").replace(",", "").strip() else ""


def _linear_tree(model: Reading) -> str:
    return "True" if model.settings.flag("linear_tree") or any(tree.is_linear for tree in model.text.trees) else ""


def _trees_per_iteration(model: Reading) -> str:
    number = model.text.header.get("num_tree_per_iteration", "1")
    return "" if number == "1" else number


def _quantized(model: Reading) -> str:
    rounded = model.settings.flag("use_quantized_grad") and not model.settings.flag("quant_train_renew_leaf")
    return "True without quant_train_renew_leaf" if rounded else ""


def _bagging(model: Reading) -> str:
    fraction, freq = model.settings.number("bagging_fraction"), model.settings.number("bagging_freq")
    return f"{fraction:g} with bagging_freq={freq:g}" if fraction < 1 and freq > 0 else ""


def _goss(model: Reading) -> str:
    settings = model.settings
    return "goss" if settings.text("data_sample_strategy") == "goss" or "goss" in settings.given("boosting") else ""


def _boosting(name: str) -> Callable[[Reading], str]:
    return lambda model: name if model.settings.text("boosting") == name else ""


def _forced(model: Reading) -> str:
    # Forced splits ignore cat_l2 and smooth towards 0 (GatherInfoForThreshold, src/treelearner/feature_histogram.hpp).
    odd = model.splits_subsets or model.settings.number("path_smooth") > 0
    return model.settings.text("forcedsplits_filename") if odd else ""


REFUSALS = (
    *(Refusal("objective", _objective(name), *why, _L2) for name, why in _OBJECTIVES.items()),
    Refusal(
        "reg_sqrt",
        lambda model: "True" if model.text.objective == "regression sqrt" else "",
        "it is fitted to the square roots of the targets",
        "(i)",
        "Fit with reg_sqrt=False, or transform the targets yourself and explain the predicted roots.",
    ),
    Refusal("objective", _other_objective, "its gradients are not known to be those of squared error", "(ii)", _L2),
    Refusal(
        "num_tree_per_iteration",
        _trees_per_iteration,
        "axil expects one tree an iteration",
        None,
        "Fit one output a model.",
    ),
    Refusal(
        "lambda_l1",
        _positive("lambda_l1"),
        "sums of residuals are shrunk towards zero by a threshold",
        "(ii)",
        "Fit with lambda_l1=0 (reg_alpha=0) and regularise with lambda_l2.",
    ),
    Refusal(
        "max_delta_step",
        _positive("max_delta_step"),
        "leaf values are clipped",
        "(ii)",
        "Fit with max_delta_step=0 and a smaller learning_rate.",
    ),
    Refusal(
        "linear_tree",
        _linear_tree,
        "leaves hold linear models of the features, not averages of residuals",
        "(ii)",
        "Fit with linear_tree=False.",
    ),
    Refusal(
        "monotone_constraints",
        _monotone,
        "leaf values are clipped to keep predictions monotone",
        "(ii)",
        "Fit without monotone_constraints.",
    ),
    Refusal(
        "use_quantized_grad",
        _quantized,
        "leaf values are sums of residuals that were rounded to a few levels",
        "(ii)",
        "Fit with quant_train_renew_leaf=True or use_quantized_grad=False.",
    ),
    Refusal(
        "refit_decay_rate",
        lambda model: model.refit,
        "Booster.refit mixed its leaf values from those of two fits",
        "(ii)",
        "Explain the model as it was before refit, or fit a new one on the new data.",
    ),
    Refusal("boosting", _boosting("dart"), _LINEAR.format("earlier trees"), None, 'Fit with boosting="gbdt".'),
    Refusal("boosting", _boosting("rf"), _LINEAR.format("rows"), None, 'Fit with boosting="gbdt" without bagging.'),
    Refusal(
        "data_sample_strategy",
        _goss,
        _LINEAR.format("rows"),
        None,
        'Fit with data_sample_strategy="bagging" and bagging_freq=0.',
    ),
    Refusal("bagging_fraction", _bagging, _LINEAR.format("rows"), None, "Fit with bagging_freq=0 (subsample_freq=0)."),
    Refusal(
        "forcedsplits_filename",
        _forced,
        "the model does not tell which splits were forced, and those ignore cat_l2 and path_smooth",
        None,
        "Fit without forced splits, or without path_smooth and categorical features of many categories.",
    ),
)


def refuse(model: Reading) -> None:
    """Raise for the first row of the table that applies."""
    for refusal in REFUSALS:
        value = refusal.found(model)
        if value:
            raise UnsupportedModelError(refusal.setting, value, refusal.reason, refusal.instead, refusal.condition)
