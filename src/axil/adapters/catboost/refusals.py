"""The CatBoost models that axil does not explain, and why.

The tables are tried in order and also make the documentation. Condition (i): the first prediction
is linear in the targets. Condition (ii): residuals are linear in the targets and leaf values linear
in the residuals. A setting is refused if it breaks one for some targets, not only if it binds.
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
    AT_RISK,
    EXPONENTIAL,
    GROUPED,
    LOGIT,
    OTHER_GRADIENTS,
    SOFTMAX,
    Refusal,
    by_name,
    first_of,
    refusal,
)
from axil.aliases import ForeignObject
from axil.arrays import BoolArray
from axil.errors import UnsupportedModelError
from axil.structure import Cut


@dataclass(frozen=True)
class CatBoostReading:
    """The facts about a model that a refusal may look at."""

    blob: ModelBlob

    @property
    def last(self) -> dict[str, Any]:
        """Return the settings of the last fit."""
        if self.blob.settings:
            return self.blob.settings[-1]
        return {}

    def values(self, group: str, name: str) -> list[ForeignObject]:
        """Return a setting of each fit that made the model, None if it is not stated."""
        return [settings.get(group, {}).get(name) for settings in self.blob.settings]

    @property
    def losses(self) -> list[str]:
        """Return the loss of each fit, such as "RMSE"."""
        return [str(settings["loss_function"]["type"]) for settings in self.blob.settings]

    @property
    def on_gpu(self) -> bool:
        """Return whether any fit ran on a GPU."""
        return any(settings.get("task_type") == "GPU" for settings in self.blob.settings)

    @property
    def is_continued(self) -> bool:
        """Return whether training went on from another model."""
        boosting = self.last["boosting_options"]
        if len(self.blob.settings) > 1 or len(self.blob.depths) > int(boosting["iterations"]):
            return True
        return bool(np.any(self.blob.bias != 0)) and not boosting.get("boost_from_average", False)

    @property
    def has_percentile_leaves(self) -> bool:
        """Return whether leaf values are percentiles of residuals in every fit."""
        return (
            set(self.losses) <= set(PERCENTILES)
            and set(self.methods) == {"Exact"}
            and not self.on_gpu
        )

    @property
    def is_linear(self) -> bool:
        """Return whether a loss other than squared error is linear with the active set fixed."""
        return self.has_percentile_leaves or self.cut is not None

    @property
    def cut(self) -> Cut | None:
        """Return the threshold of Huber's loss; None for other losses.

        None also stands for leaves that are not made by one step of one plain fit on a CPU.
        """
        is_plain = self.losses == ["Huber"] and self.steps == 1 and not self.on_gpu
        if not is_plain or any(self.shrink_rates) or self.monotone:
            return None
        delta = float(self.last["loss_function"]["params"]["delta"])
        return Cut(delta, weighs=self.methods != ["Newton"], closed=False, single=True)

    @property
    def may_bundle(self) -> bool:
        """Return whether columns that overlap may have been bundled."""
        return any(self.values("tree_learner_options", "sparse_features_conflict_fraction"))

    @property
    def methods(self) -> list[ForeignObject]:
        """Return the leaf_estimation_method of each fit."""
        return self.values("tree_learner_options", "leaf_estimation_method")

    @property
    def steps(self) -> int:
        """Return the number of steps of a leaf, the largest over several fits."""
        stated = self.values("tree_learner_options", "leaf_estimation_iterations")
        return next((int(n) for n in stated if n and int(n) > 1), 1)

    @property
    def shrink_rates(self) -> list[ForeignObject]:
        """Return the model_shrink_rate of each fit."""
        return self.values("boosting_options", "model_shrink_rate")

    @property
    def monotone(self) -> str:
        """Return the first monotone constraints of a fit, such as "0: 1"."""
        signs: dict[int, int] = next(filter(None, map(signs_of, self.blob.settings)), {})
        return ", ".join(f"{feature}: {sign}" for feature, sign in signs.items())

    @property
    def pools_leaves(self) -> bool:
        """Return whether monotone constraints pool leaves.

        CatBoost does not enforce them in models of several outputs.
        """
        has_several_outputs = any(loss.startswith("Multi") for loss in self.losses)
        return bool(self.monotone) and not has_several_outputs

    @property
    def encoded(self) -> str:
        """Return how many encodings of categories the splits use, as text; empty for none."""
        n = self.blob.features("target statistics")
        if n:
            return f"{n} encodings of categories by the targets"
        return ""

    @property
    def summed_models(self) -> str:
        """Return how many models the model is a sum of, as text; empty if it is no sum."""
        if not any(re.fullmatch(r"(initModel:)*model\d+:params", key) for key in self.blob.info):
            return ""
        return f"{sum(key.endswith(':params') for key in self.blob.info)} models"


MISSING = "MultiRMSEWithMissingValues"
_RMSE = 'Fit with loss_function="RMSE" (or "MultiRMSE") instead.'
_SIGNS = (
    (
        "unless leaf_estimation_method is Exact on a CPU, leaf values depend on the signs of the "
        "residuals alone"
    ),
    "(ii)",
)
_SMOOTH = {  # losses whose gradients are replayed: reason, condition
    **dict.fromkeys(("MAE", "Quantile"), _SIGNS),
    **dict.fromkeys(("Poisson", "Tweedie"), (EXPONENTIAL, "(ii)")),
    "Huber": (
        "residuals are clipped, and axil keeps the set of clipped residuals fixed only for one "
        "step of plain boosting without monotone_constraints",
        "(ii)",
    ),
    "LogCosh": ("residuals pass through a hyperbolic tangent", "(ii)"),
    **dict.fromkeys(
        ("Logloss", "CrossEntropy", "MultiClassOneVsAll", "MultiLogloss", "MultiCrossEntropy"),
        (LOGIT, "(i)"),
    ),
    "MultiClass": (SOFTMAX, "(i)"),
    "QueryRMSE": (
        "residuals are centred within each group; the derivatives, which axil.Explainer returns, "
        "are its exact weights",
        "(ii)",
    ),
    "PairLogit": (GROUPED, "(ii)"),
    "Cox": (AT_RISK, "(ii)"),
}
_OTHERS = {
    **dict.fromkeys(("MultiQuantile", "MAPE"), _SIGNS),
    "GroupQuantile": ("leaf values are quantiles of the residuals of groups", "(ii)"),
    **dict.fromkeys(("LogLinQuantile", "SurvivalAft"), (EXPONENTIAL, "(ii)")),
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
    if model.is_linear:
        return []
    return model.losses


def _other_loss(model: CatBoostReading) -> str:
    return next((loss for loss in _losses(model) if loss not in ("RMSE", "MultiRMSE", MISSING)), "")


def _missing_otherwise(model: CatBoostReading) -> str:
    """Return the setting that prevents the replay of missing targets of single outputs."""
    if MISSING not in model.losses:
        return ""
    settings = {
        f"leaf_estimation_method={model.methods[-1]}": model.methods != ["Newton"],
        "init_model": model.is_continued,
        "model_shrink_rate": any(model.shrink_rates),
        "encodings of categories by the targets": model.encoded,
    }
    setting = first_of(settings)
    if setting:
        return f"{MISSING} with {setting}"
    return ""


def _held_out(model: CatBoostReading) -> str:
    shares = model.values("data_processing_options", "eval_fraction")
    return next((f"{share:g}" for share in shares if share), "")


def _flag(name: str) -> Callable[[CatBoostReading], str]:
    """Return a function that returns "True" if any fit has a boosting setting switched on."""

    def find_flag(model: CatBoostReading) -> str:
        if any(model.values("boosting_options", name)):
            return "True"
        return ""

    return find_flag


def _continued_shrinkage(model: CatBoostReading) -> str:
    return next((f"{rate:g} with init_model" for rate in model.shrink_rates[:-1] if rate), "")


def _lost_classes(model: CatBoostReading) -> str:
    """Return how many classifications of the targets lack their numbers in a JSON file.

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
    return f"{n_classifications} ways to classify the targets, in a JSON file"


def _method(model: CatBoostReading) -> str:
    refused: tuple[str, ...] = ("Exact",)
    if model.on_gpu:
        refused = ("Exact", "Simple")
    elif model.has_percentile_leaves:
        refused = ()
    return next((str(method) for method in model.methods if method in refused), "")


def _backtracks(model: CatBoostReading) -> str:
    steps = model.values("tree_learner_options", "leaf_estimation_iterations")
    backtracking = model.values("tree_learner_options", "leaf_estimation_backtracking")
    for n_steps, kind in zip(steps, backtracking):
        if n_steps and int(n_steps) > 1 and kind != "No":
            return f"{kind} of {n_steps} steps on a GPU"
    return ""


def _unknown_encoding(model: CatBoostReading) -> str:
    for encoding in encodings(model.blob):
        if not encoding.is_known:
            return f"of type {encoding.statistic.kind}"
    return ""


@dataclass(frozen=True)
class Agreement:
    """Facts about a model some of whose trees disagree with the data."""

    trees: BoolArray  #: (T,) those that agree
    is_continued: bool  #: whether training went on from another model, for sure
    #: the first column of sparse features with zeros above negative numbers
    sparse_column: int | None


def _continued(agreement: Agreement) -> str:
    """Return how many trees agree, if the other trees must come from another fit.

    Other targets would show in every tree.
    """
    agrees = agreement.trees
    n_last = len(agrees) - int(agrees.argmax())
    is_continued = agreement.is_continued and agrees[[0, -1]].any()
    ends_with_fit = 2 <= n_last <= len(agrees) - 2 and agrees[-n_last:].all()
    if not is_continued and not ends_with_fit:
        return ""
    return f"a model, with {int(agrees.sum())} of {len(agrees)} trees that agree with these data"


def _sparse_zeros(agreement: Agreement) -> str:
    column = agreement.sparse_column
    if column is None:
        return ""
    return f"sparse, with zeros above negative numbers in column {column} (from 0)"


#: Tried where some trees disagree with the data.
DOUBTS: tuple[Refusal[Agreement], ...] = (
    Refusal(
        "init_model",
        _continued,
        "the other trees were fitted to another loss, on other rows, or with settings that the "
        "model has lost",
        "Fit all trees at once, or go on from a model of the same rows, columns, loss and "
        "settings; if that changes nothing, see that rows, targets and weights are those of the "
        "fit.",
    ),
    Refusal(
        "features",
        _sparse_zeros,
        "when it fits, CatBoost can put such zeros into other leaves than when it predicts, and "
        "its leaves disagree with these rows",
        "Fit on dense features; if that changes nothing, see that rows, targets and weights are "
        "those of the fit.",
    ),
)


def doubt(
    is_continued: bool, sparse_column: int | None, agrees: BoolArray
) -> UnsupportedModelError | None:
    """Return the known reasons why some trees disagree with the data and these (T,) agree."""
    return refusal(DOUBTS, Agreement(agrees, is_continued, sparse_column))


#: Settings that change how leaves are made and are replayed exactly. Those that only choose splits
#: are not listed.
EXACT = (
    "`loss_function` RMSE, MultiRMSE, MultiRMSEWithMissingValues; MAE, Quantile, "
    "MultiQuantile and MAPE with Exact leaves; Huber with `leaf_estimation_iterations=1`",
    "`boosting_type` Plain and Ordered, every `bootstrap_type`, every `grow_policy`: all rows "
    "count in every leaf",
    "`leaf_estimation_method` Newton and Gradient, `leaf_estimation_iterations`, "
    "`l2_leaf_reg`, `model_shrink_rate`",
    "`monotone_constraints` with `leaf_estimation_iterations=1`; MultiRMSE does not enforce them",
    "early stopping, `init_model`, `boost_from_average`, `baseline`, `sample_weight`",
    "missing values; categories, one-hot or encoded by targets (Borders, Buckets, "
    "BinarizedTargetMeanValue, Counter, combinations, `has_time`)",
    "`task_type` CPU and GPU",
)

REFUSALS: tuple[Refusal[CatBoostReading], ...] = (
    Refusal(
        "loss_function",
        lambda model: (
            model.on_gpu and "MultiClass" in model.losses and "MultiClass with task_type=GPU"
        ),
        "for several classes a GPU computes leaves from other second derivatives than a CPU, and "
        "axil does not replay them",
        'Fit with task_type="CPU".',
    ),
    Refusal(
        "sum_models",
        lambda model: model.summed_models,
        "predictions are linear in the targets of each model's own fit, and the sum does not "
        "record which trees came from which model",
        """Explain the models that were summed, and add their weights:
    each = [axil.Explainer(part, X_train, y_train).explain(X).weights for part in models]
    weights = sum(share * own for share, own in zip(shares, each))
The shares are the weights that sum_models was given.""",
    ),
    Refusal(
        "params",
        lambda model: not model.blob.settings and "none",
        "the model keeps no settings of its fit, so how its leaves were regularised cannot be "
        "known",
        "Pass the model as CatBoost fitted it, or a .cbm or .json file that save_model made from "
        "it.",
    ),
    Refusal(
        "eval_fraction",
        _held_out,
        "CatBoost held rows out that took no part in the fit, and the model does not record which",
        "Split the rows yourself: fit on one part without eval_fraction, with the other part as "
        "eval_set.",
    ),
    *by_name("loss_function", _losses, _SMOOTH, _RMSE, derivative=True),
    *by_name("loss_function", _losses, _OTHERS, _RMSE),
    Refusal(
        "loss_function",
        _missing_otherwise,
        "predictions are linear in the targets, but axil replays missing targets only for "
        "Newton's leaves of one plain fit",
        'Fit with leaf_estimation_method="Newton", the default, and all trees at once; or one '
        "model for each output.",
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
        lambda model: (
            model.has_percentile_leaves and model.steps > 1 and f"{model.steps} with Exact leaves"
        ),
        "CatBoost then adds the same percentile to a leaf several times, or a part of it, and "
        "does not record how often",
        "Fit with leaf_estimation_iterations=1, the default.",
        "(ii)",
    ),
    Refusal(
        "leaf_estimation_iterations",
        lambda model: (
            model.pools_leaves and model.steps > 1 and f"{model.steps} with monotone_constraints"
        ),
        "leaves are pooled again after each step, and axil replays the pools of one step only",
        "Fit with leaf_estimation_iterations=1.",
        linear_only=True,
    ),
    Refusal(
        "leaf_estimation_method",
        lambda model: (
            model.pools_leaves and "Simple" in model.methods and "Simple with monotone_constraints"
        ),
        "with monotone_constraints, CatBoost divides the sum of such a leaf by l2_leaf_reg alone, "
        "not by the weight of its rows",
        'Fit with leaf_estimation_method="Newton" or "Gradient", or without monotone_constraints.',
        linear_only=True,
    ),
    Refusal(
        "monotone_constraints",
        lambda model: model.monotone and model.is_continued and f"{model.monotone} with init_model",
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
        "a GPU compares losses of seven digits, so that rounding decides which steps it keeps, "
        "and the model records none",
        'Fit with leaf_estimation_iterations=1, leaf_estimation_backtracking="No", or '
        'task_type="CPU".',
    ),
    Refusal(
        "model_shrink_rate",
        _continued_shrinkage,
        "predictions are linear in the targets, but the model does not record how many of its "
        "trees were shrunk",
        "Fit with model_shrink_rate=0, or all trees at once.",
    ),
    Refusal(
        "task_type",
        lambda model: model.encoded and model.on_gpu and f"GPU with {model.encoded}",
        "a GPU encodes categories in another random order of the rows, and axil does not replay it",
        'Fit with task_type="CPU", or with one_hot_max_size of at least the number of categories.',
    ),
    Refusal(
        "init_model",
        lambda model: model.encoded and model.is_continued and f"a model with {model.encoded}",
        "the continued fit started from predictions, for which all rows encode the categories, "
        "and not from the scores of the first fit",
        "Fit all trees at once, or with one_hot_max_size of at least the number of categories.",
    ),
    Refusal(
        "simple_ctr, combinations_ctr",
        _unknown_encoding,
        "axil does not know how training rows are encoded by it",
        "Fit with encodings of types Borders, Buckets, BinarizedTargetMeanValue and Counter.",
    ),
    Refusal(
        "target_border",
        _lost_classes,
        "JSON does not record which targets, or which borders between targets, each encoding of "
        "categories uses",
        "Save the model as .cbm, or pickle it.",
    ),
    Refusal(
        "text_features, embedding_features",
        lambda model: (n := model.blob.features("texts and embeddings")) and f"{n} of them",
        "embeddings are encoded by the targets of the rows before them, and axil does not "
        "distinguish texts from them",
        "Encode them without the targets and pass the numbers as features.",
        "(ii)",
    ),
)
