"""Which CatBoost models axil does not explain, and why: a table, tried in order, that also makes the documentation.

Condition (i): the first prediction is linear in the targets. Condition (ii): residuals are linear in the targets and
leaf values linear in the residuals. A setting is refused if it breaks one for some targets, not only where it binds.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil.adapters.catboost.blob import ModelBlob
from axil.adapters.catboost.encodings import classifications, encodings
from axil.adapters.catboost.monotone import signs_of
from axil.adapters.catboost.percentile import PERCENTILES
from axil.adapters.refusals import (
    EXPONENTIAL,
    LOGIT,
    OTHER_GRADIENTS,
    SOFTMAX,
    Refusal,
    by_name,
    first_of,
    refusal,
)
from axil.arrays import BoolArray
from axil.errors import UnsupportedModelError
from axil.structure import Cut


@dataclass(frozen=True)
class CatBoostReading:
    """All that a refusal may look at."""

    blob: ModelBlob

    @property
    def last(self) -> dict[str, Any]:
        """The settings of the last fit."""
        return self.blob.settings[-1] if self.blob.settings else {}

    def values(self, group: str, name: str) -> list[Any]:
        """A setting in each fit that made the model, None where it is not stated."""
        return [settings.get(group, {}).get(name) for settings in self.blob.settings]

    @property
    def losses(self) -> list[str]:
        """The loss of each fit, "RMSE" say."""
        return [str(settings["loss_function"]["type"]) for settings in self.blob.settings]

    @property
    def on_gpu(self) -> bool:
        """Whether any fit ran on a GPU."""
        return any(settings.get("task_type") == "GPU" for settings in self.blob.settings)

    @property
    def continued(self) -> bool:
        """Whether training went on from another model."""
        last = self.last["boosting_options"]
        started_before = bool(np.any(self.blob.bias != 0)) and not last.get(
            "boost_from_average", False
        )
        return (
            len(self.blob.settings) > 1
            or len(self.blob.depths) > int(last["iterations"])
            or started_before
        )

    @property
    def ranked(self) -> bool:
        """Whether leaf values are percentiles of residuals in every fit."""
        return {*self.losses} <= {*PERCENTILES} and {*self.methods} == {"Exact"} and not self.on_gpu

    @property
    def linear(self) -> bool:
        """Whether another loss than squared error is linear in the targets with a pattern held."""
        return self.ranked or self.cut is not None

    @property
    def cut(self) -> Cut | None:
        """Where Huber's loss cuts residuals off, if one step of one fit on a processor makes each leaf; None: of any other."""
        plain = self.losses == ["Huber"] and self.steps == 1 and not self.on_gpu
        if not plain or any(self.shrink_rates) or self.monotone:
            return None
        delta, newton = (
            float(self.last["loss_function"]["params"]["delta"]),
            self.methods == ["Newton"],
        )
        return Cut(delta, weighs=not newton, closed=False)

    @property
    def bundles(self) -> bool:
        """Whether columns that overlap may have been bundled."""
        return any(self.values("tree_learner_options", "sparse_features_conflict_fraction"))

    @property
    def methods(self) -> list[Any]:
        """The leaf_estimation_method of each fit."""
        return self.values("tree_learner_options", "leaf_estimation_method")

    @property
    def steps(self) -> int:
        """How many steps make a leaf: in the first fit of more than one, if there is any."""
        stated = self.values("tree_learner_options", "leaf_estimation_iterations")
        return next((int(n) for n in stated if n and int(n) > 1), 1)

    @property
    def shrink_rates(self) -> list[Any]:
        """The model_shrink_rate of each fit."""
        return self.values("boosting_options", "model_shrink_rate")

    @property
    def monotone(self) -> str:
        """The first monotone constraints of a fit, "0: 1" say."""
        found: dict[int, int] = next(filter(None, map(signs_of, self.blob.settings)), {})
        return ", ".join(f"{feature}: {sign}" for feature, sign in found.items())

    @property
    def pools(self) -> bool:
        """Whether monotone constraints pool leaves; MultiRMSE does not enforce them."""
        return bool(self.monotone) and "RMSE" in self.losses

    @property
    def encoded(self) -> str:
        """How many encodings of categories by the targets splits use, in words; empty: none."""
        n = self.blob.features("target statistics")
        return f"{n} encodings of categories by the targets" if n else ""

    @property
    def summed(self) -> str:
        """How many models it is a sum of, in words; empty: it is no sum."""
        is_sum = any(re.fullmatch(r"(initModel:)*model\d+:params", key) for key in self.blob.info)
        return f"{sum(key.endswith(':params') for key in self.blob.info)} models" if is_sum else ""


MISSING = "MultiRMSEWithMissingValues"
_RMSE = 'Fit with loss_function="RMSE" (or "MultiRMSE") instead.'
_SIGNS = "with other leaves than Exact, or on a GPU, residuals count by their sign", "(ii)"
_SMOOTH = {  # losses whose gradients are replayed: reason, condition
    **dict.fromkeys(("MAE", "Quantile"), _SIGNS),
    **dict.fromkeys(("Poisson", "Tweedie"), (EXPONENTIAL, "(ii)")),
    "Huber": (
        "residuals are cut off, and which are is held for one step of plain boosting without monotone_constraints",
        "(ii)",
    ),
    "LogCosh": ("residuals pass through a hyperbolic tangent", "(ii)"),
    **dict.fromkeys(
        ("Logloss", "CrossEntropy", "MultiClassOneVsAll", "MultiLogloss", "MultiCrossEntropy"),
        (LOGIT, "(i)"),
    ),
    "MultiClass": (SOFTMAX, "(i)"),
}
_OTHERS = {
    **dict.fromkeys(("MultiQuantile", "MAPE"), _SIGNS),
    "GroupQuantile": ("leaf values are quantiles of the residuals of groups", "(ii)"),
    **dict.fromkeys(("LogLinQuantile", "Cox", "SurvivalAft"), (EXPONENTIAL, "(ii)")),
    "Lq": ("residuals are raised to a power", "(ii)"),
    "Expectile": ("residuals above and below zero weigh differently", "(ii)"),
    "RMSPE": ("rows are weighted by their own targets", "(ii)"),
    "RMSEWithUncertainty": (
        "residuals are divided by a variance that is fitted to the targets",
        "(ii)",
    ),
    "Focal": (LOGIT, "(i)"),
    **dict.fromkeys(
        (
            *(
                "YetiRank",
                "YetiRankPairwise",
                "PairLogit",
                "PairLogitPairwise",
                "QuerySoftMax",
                "QueryCrossEntropy",
            ),
            *("StochasticFilter", "StochasticRank", "LambdaMart"),
        ),
        ("residuals depend on how the rows compare with each other", "(ii)"),
    ),
}


def _losses(model: CatBoostReading) -> list[str]:
    return [] if model.linear else model.losses


def _other_loss(model: CatBoostReading) -> str:
    return next((loss for loss in _losses(model) if loss not in ("RMSE", "MultiRMSE", MISSING)), "")


def _missing_otherwise(model: CatBoostReading) -> str:
    """The setting beside targets that may be missing which is not replayed for each output."""
    ways = {
        f"leaf_estimation_method={model.methods[-1]}": model.methods != ["Newton"],
        "init_model": model.continued,
        "model_shrink_rate": any(model.shrink_rates),
        "encodings of categories by the targets": model.encoded,
    }
    found = first_of(ways) if MISSING in model.losses else ""
    return f"{MISSING} with {found}" if found else ""


def _held_out(model: CatBoostReading) -> str:
    return next(
        (
            f"{share:g}"
            for share in model.values("data_processing_options", "eval_fraction")
            if share
        ),
        "",
    )


def _flag(name: str) -> Callable[[CatBoostReading], str]:
    return lambda model: "True" if any(model.values("boosting_options", name)) else ""


def _continued_shrinkage(model: CatBoostReading) -> str:
    return next((f"{rate:g} with init_model" for rate in model.shrink_rates[:-1] if rate), "")


def _lost_classes(model: CatBoostReading) -> str:
    """Return how many classifications of the targets a JSON file lost the numbers of.

    With several of them CatBoost itself may predict otherwise than the fitted model.
    """
    if not model.encoded:
        return ""
    n_classifications = len(classifications(model.last, model.blob.n_outputs))
    is_lost = any(
        encoding.statistic.needs_targets and not encoding.statistic.classification
        for encoding in encodings(model.blob)
    )
    if not is_lost or n_classifications <= 1:
        return ""
    return f"{n_classifications} ways to part the targets, in a file of JSON"


def _method(model: CatBoostReading) -> str:
    refused = ("Exact", "Simple") if model.on_gpu else () if model.ranked else ("Exact",)
    return next((str(method) for method in model.methods if method in refused), "")


def _backtracks(model: CatBoostReading) -> str:
    steps = model.values("tree_learner_options", "leaf_estimation_iterations")
    backtracking = model.values("tree_learner_options", "leaf_estimation_backtracking")
    found = (
        f"{how} of {n} steps on a GPU"
        for n, how in zip(steps, backtracking)
        if n and int(n) > 1 and how != "No"
    )
    return next(found, "")


@dataclass(frozen=True)
class Agreement:
    """Known facts where some trees disagree with the data."""

    trees: BoolArray  #: (T,) those that agree
    continued: bool  #: whether training went on from another model, for sure
    sparse: int | None  #: the first column of sparse features with zeros above negative numbers


def _continued(found: Agreement) -> str:
    """Other targets would show in every tree, so whole trees of one fit that agree show another fit."""
    agree, last = found.trees, len(found.trees) - int(found.trees.argmax())
    parted = 2 <= last <= len(agree) - 2 and agree[-last:].all()
    known = found.continued and agree[[0, -1]].any()
    return (
        f"a model, with {int(agree.sum())} of {len(agree)} trees that agree with these data"
        if known or parted
        else ""
    )


#: Asked where some trees disagree with the data.
DOUBTS: tuple[Refusal[Agreement], ...] = (
    Refusal(
        "init_model",
        _continued,
        "the other trees were fitted to another loss, on other rows, or with settings that the model has lost",
        "Fit all trees at once, or go on from a model of the same rows, columns, loss and settings; if that changes nothing, see "
        "that rows, targets and weights are those of the fit.",
    ),
    Refusal(
        "features",
        lambda found: (
            found.sparse is not None
            and f"sparse, with zeros above negative numbers in column {found.sparse} (from 0)"
        ),
        "when it fits, CatBoost can put such zeros into other leaves than when it predicts, and its leaves disagree with "
        "these rows",
        "Fit on dense features; if that changes nothing, see that rows, targets and weights are those of the fit.",
    ),
)


def doubt(continued: bool, sparse: int | None, agree: BoolArray) -> UnsupportedModelError | None:
    """Why only these trees (T,) agree with the data, as far as it is known."""
    return refusal(DOUBTS, Agreement(agree, continued, sparse))


#: Settings that change how leaves are made and are replayed exactly; those that only choose splits are not listed.
EXACT = (
    "loss_function: RMSE, MultiRMSE, MultiRMSEWithMissingValues; MAE, Quantile, MultiQuantile and MAPE with Exact leaves, with "
    "the ranks of the rows held",
    "loss_function: Huber with leaf_estimation_iterations=1, with the residuals held that delta cuts off",
    "boosting_type Plain and Ordered, every bootstrap_type, every grow_policy: all rows count in every leaf",
    "boost_from_average, baseline, sample_weight, learning_rate (also the one CatBoost picks)",
    "l2_leaf_reg, leaf_estimation_method Newton and Gradient, leaf_estimation_iterations",
    "model_shrink_rate, model_shrink_mode",
    "monotone_constraints with leaf_estimation_iterations=1, with the pattern held: which leaves are pooled",
    "early stopping (use_best_model), continued training (init_model)",
    "missing values (nan_mode); categories, one-hot or encoded by the targets, with the encodings held (Borders, Buckets, "
    "BinarizedTargetMeanValue, Counter; combinations; has_time)",
    "task_type CPU and GPU",
)

REFUSALS: tuple[Refusal[CatBoostReading], ...] = (
    Refusal(
        "loss_function",
        lambda model: (
            model.on_gpu and "MultiClass" in model.losses and "MultiClass with task_type=GPU"
        ),
        "a GPU makes leaves of several classes of other second derivatives than a CPU, which axil does not replay",
        'Fit with task_type="CPU".',
    ),
    Refusal(
        "sum_models",
        lambda model: model.summed,
        "predictions are linear in the targets of each model's own fit, and the sum does not keep whose trees are which",
        """Explain the models that were summed, and add their weights:
    each = [axil.Explainer(part, X_train, y_train).explain(X).weights for part in models]
    weights = sum(share * own for share, own in zip(shares, each))
The shares are the weights that sum_models was given.""",
    ),
    Refusal(
        "params",
        lambda model: not model.blob.settings and "none",
        "the model keeps no settings of its fit, so how its leaves were regularised cannot be known",
        "Pass the model as CatBoost fitted it, or a .cbm or .json file that save_model made from it.",
    ),
    Refusal(
        "eval_fraction",
        _held_out,
        "CatBoost held rows out that took no part in the fit, and the model does not record which",
        "Split the rows yourself: fit on one part without eval_fraction, with the other part as eval_set.",
    ),
    *by_name("loss_function", _losses, _SMOOTH, _RMSE, derivative=True),
    *by_name("loss_function", _losses, _OTHERS, _RMSE),
    Refusal(
        "loss_function",
        _missing_otherwise,
        "linear in the targets, but rows without a target of an output are replayed for Newton's leaves of one plain fit",
        'Fit with leaf_estimation_method="Newton", the default, and all trees at once; or one model for each output.',
    ),
    Refusal(
        "loss_function",
        lambda model: (
            any(loss.startswith(("PythonUser", "UserPer", "UserQuery")) for loss in model.losses)
            and "custom"
        ),
        OTHER_GRADIENTS,
        _RMSE,
        "(ii)",
    ),
    Refusal(
        "loss_function", _other_loss, "it is not squared error", _RMSE, "(ii)", linear_only=True
    ),
    *(
        Refusal(
            name,
            _flag(name),
            "noise that does not come from the targets is added to leaf values",
            f"Fit with {name}=False.",
            "(ii)",
        )
        for name in ("posterior_sampling", "langevin")
    ),
    Refusal(
        "leaf_estimation_iterations",
        lambda model: model.ranked and model.steps > 1 and f"{model.steps} with Exact leaves",
        "CatBoost then adds the same percentile to a leaf several times, or a part of it, and does not record how often",
        "Fit with leaf_estimation_iterations=1, the default.",
        "(ii)",
    ),
    Refusal(
        "leaf_estimation_iterations",
        lambda model: (
            model.pools and model.steps > 1 and f"{model.steps} with monotone_constraints"
        ),
        "leaves are pooled again after each step, and axil replays the pools of one step only",
        "Fit with leaf_estimation_iterations=1.",
        linear_only=True,
    ),
    Refusal(
        "leaf_estimation_method",
        lambda model: (
            model.pools and "Simple" in model.methods and "Simple with monotone_constraints"
        ),
        "with monotone_constraints, CatBoost divides the sum of such a leaf by l2_leaf_reg alone, not by the weight of its rows",
        'Fit with leaf_estimation_method="Newton" or "Gradient", or without monotone_constraints.',
        linear_only=True,
    ),
    Refusal(
        "monotone_constraints",
        lambda model: model.monotone and model.continued and f"{model.monotone} with init_model",
        "a model that was continued does not record which of its trees had the constraints",
        "Fit all trees at once, or without monotone_constraints.",
        linear_only=True,
    ),
    Refusal(
        "leaf_estimation_method",
        _method,
        "leaf values are not sums of the residuals of all rows over their weights",
        'Fit with leaf_estimation_method="Newton" or "Gradient".',
        "(ii)",
    ),
    Refusal(
        "leaf_estimation_backtracking",
        lambda model: model.on_gpu and _backtracks(model),
        "a GPU compares losses of seven digits, so that rounding decides which steps it keeps, and the model records none",
        'Fit with leaf_estimation_iterations=1, leaf_estimation_backtracking="No", or task_type="CPU".',
    ),
    Refusal(
        "model_shrink_rate",
        _continued_shrinkage,
        "linear in the targets, but the model does not record how many of its trees were shrunk",
        "Fit with model_shrink_rate=0, or all trees at once.",
    ),
    Refusal(
        "task_type",
        lambda model: model.encoded and model.on_gpu and f"GPU with {model.encoded}",
        "a GPU draws another order of the rows by which categories are encoded, which is not replayed",
        'Fit with task_type="CPU", or with one_hot_max_size of at least the number of categories.',
    ),
    Refusal(
        "init_model",
        lambda model: model.encoded and model.continued and f"a model with {model.encoded}",
        "the fit went on from predictions, in which all rows encode categories, and not from its own scores of the rows",
        "Fit all trees at once, or with one_hot_max_size of at least the number of categories.",
    ),
    Refusal(
        "simple_ctr, combinations_ctr",
        lambda model: next(
            (f"of type {own.statistic.kind}" for own in encodings(model.blob) if not own.is_known),
            "",
        ),
        "axil does not know how training rows are encoded by it",
        "Fit with encodings of types Borders, Buckets, BinarizedTargetMeanValue and Counter.",
    ),
    Refusal(
        "target_border",
        _lost_classes,
        "JSON does not keep by which targets, or between which borders of targets, each encoding of categories counts",
        "Save the model as .cbm, or pickle it.",
    ),
    Refusal(
        "text_features, embedding_features",
        lambda model: (n := model.blob.features("texts and embeddings")) and f"{n} of them",
        "embeddings are encoded by the targets of the rows before them, and axil does not distinguish texts from them",
        "Encode them without the targets and pass the numbers as features.",
        "(ii)",
    ),
)
