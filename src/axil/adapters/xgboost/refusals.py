"""Which XGBoost models axil does not explain, and why.

The refusals are a table that is tried in order and that also makes the documentation.

Condition (i): the first prediction is linear in the targets. Condition (ii): residuals are linear
in the targets and leaf values linear in the residuals. A setting is refused if it breaks one for
some targets, not only if it binds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from axil.adapters.refusals import (
    AT_RISK,
    DAMPED,
    EXPONENTIAL,
    GROUPED,
    LOGIT,
    OTHER_GRADIENTS,
    OTHER_ROWS,
    OTHER_TARGETS,
    OTHER_WEIGHTS,
    SOFTMAX,
    Refusal,
    by_name,
)
from axil.adapters.xgboost.document import ModelDocument, XGBoostSettings, root_hessians
from axil.adapters.xgboost.percentile import PERCENTILES
from axil.arrays import BoolArray
from axil.errors import UnsupportedModelError


@dataclass(frozen=True)
class XGBoostReading:
    """The facts about the fit of a model that refusals use."""

    settings: XGBoostSettings
    model: ModelDocument | None  #: None for a booster without trees
    estimator: str  #: the name of the scikit-learn class, "Booster" for a native one
    custom: str  #: the name of a custom objective, as far as it is known

    @property
    def objective_settings(self) -> dict[str, Any]:
        """The settings of the objective."""
        return dict(self.settings.learner.get("objective", {}))

    @property
    def weighs_classes(self) -> bool:
        """Whether rows whose target is exactly 1 have another weight."""
        return float(self.settings.text("scale_pos_weight") or 1.0) != 1

    @property
    def objective(self) -> str:
        """The name of the objective."""
        return str(self.objective_settings.get("name", ""))


SQUARED_ERROR = ("reg:squarederror", "reg:linear")
_L2 = 'Fit with objective="reg:squarederror" instead.'
_WITH_GRADIENTS = {  # losses whose gradients are replayed: reason, condition
    "reg:squaredlogerror": ("residuals are taken between logarithms", "(ii)"),
    "reg:pseudohubererror": (DAMPED, "(ii)"),
    **dict.fromkeys(("reg:logistic", "binary:logistic", "binary:logitraw"), (LOGIT, "(i)")),
    **dict.fromkeys(("multi:softmax", "multi:softprob"), (SOFTMAX, "(ii)")),
    **dict.fromkeys(("count:poisson", "reg:gamma", "reg:tweedie"), (EXPONENTIAL, "(i)")),
    **dict.fromkeys(("rank:ndcg", "rank:map", "rank:pairwise"), (GROUPED, "(ii)")),
    "survival:cox": (AT_RISK, "(ii)"),
    "survival:aft": ("targets are intervals and residuals pass through a density", "(ii)"),
}
_OTHERS = {
    "reg:expectileerror": ("residuals are weighted by their sign", "(ii)"),
    "binary:hinge": ("residuals are cut off at a margin", "(ii)"),
}
_GROWERS = {
    "grow_quantile_histmaker",
    "grow_histmaker",
    "grow_colmaker",
    "grow_gpu_hist",
    "grow_gpu_approx",
}


def _is_stepped(reading: XGBoostReading) -> bool:
    """Return whether leaves are Newton steps of an objective once fitted by percentiles.

    XGBoost fitted it so until 3.3.
    """
    if reading.model is None or reading.objective not in PERCENTILES:
        return False
    return reading.model.is_stepped


def _smoothed_steps(reading: XGBoostReading) -> str:
    """Return the objective of a model whose leaves are Newton steps of a smoothed loss.

    There are such models from XGBoost 3.4 on.
    """
    if not _is_stepped(reading) or _corner_steps(reading):
        return ""
    return f"{reading.objective} of XGBoost 3.4 or later"


def _corner_steps(reading: XGBoostReading) -> str:
    """Return the objective if leaves are steps with second derivatives of 1; else empty.

    That is so with tree_method="exact" up to XGBoost 3.3.
    """
    model = reading.model
    if model is None or not _is_stepped(reading):
        return ""
    is_older = model.version < (3, 4) and "grow_colmaker" in reading.settings.updaters
    if not is_older and not model.has_unit_hessians:
        return ""
    return f"{reading.objective} with grow_colmaker"


def _shared_monotone(reading: XGBoostReading) -> str:
    """Return the monotone constraints of trees for several outputs."""
    is_shared = reading.model is not None and reading.model.shared
    if not is_shared or not any(reading.settings.monotone_signs):
        return ""
    return f"{reading.settings.text('monotone_constraints')} with multi_output_tree"


def _updater(reading: XGBoostReading) -> str:
    """Return the updaters that do not grow trees, or all of them if none grows trees."""
    updaters = reading.settings.updaters
    changing = [name for name in updaters if name not in _GROWERS | {"prune", "sync"}]
    if changing:
        return ",".join(changing)
    if any(name in _GROWERS for name in updaters):
        return ""
    return ",".join(updaters) or "none"


def _lost_subsample(reading: XGBoostReading) -> str:
    """Return the unstated sampling of trees that were fitted on other numbers of rows."""
    subsample = reading.settings.number("subsample")
    if reading.model is None or subsample < 1:
        return ""
    hessians = root_hessians(reading.model.trees)
    if len(hessians) == 0 or float(np.ptp(hessians)) <= 1e-5 * float(hessians.max()):
        return ""
    return f"{subsample:g}, but its trees saw different rows"


def _shared_base(reading: XGBoostReading) -> str:
    """Return the value of base_score if it is one estimate for several outputs; else empty."""
    model = reading.model
    if model is None or model.n_outputs == 1 or len(model.base_score) > 1:
        return ""
    if model.base_estimated:
        return "estimated, one number for all outputs"
    return ""


def _both_strategies(reading: XGBoostReading) -> str:
    """Return both values of multi_strategy if the model has trees of both kinds."""
    if reading.model is None or len({tree.n_outputs for tree in reading.model.trees}) == 1:
        return ""
    return "one_output_per_tree and multi_output_tree in turns"


def _by_others(reading: XGBoostReading) -> str:
    """Return the objective if a custom one chose the splits of shared trees; else empty."""
    trees = () if reading.model is None else reading.model.trees
    if any(tree.n_outputs > 1 and tree.split_by_others for tree in trees):
        return "custom, with split_grad"
    return ""


#: Settings that change how leaves are made and are replayed exactly; those that only choose splits
#: are not listed.
EXACT = (
    "`objective` reg:squarederror; reg:absoluteerror and reg:quantileerror fitted by XGBoost "
    "up to 3.3",
    "`booster` gbtree and dart; `tree_method` hist, approx and exact; `device` cpu and cuda",
    "`subsample`: axil samples the same rows again; `num_parallel_tree`",
    "learning-rate schedules, early stopping, continued training, `base_score`, `base_margin`",
    "`reg_alpha`, `reg_lambda`, `min_child_weight`, `max_delta_step`, `monotone_constraints`",
    "`sample_weight`, missing values, categories",
    "several outputs by either `multi_strategy`",
)

CONTINUED: Refusal[XGBoostReading] = Refusal(
    "objective",
    lambda reading: False,  # which its rows show
    "XGBoost up to 3.3 took percentiles for leaf values and later versions take Newton steps; axil "
    "replays one kind per model",
    "Fit all trees with one version of XGBoost.",
    "(ii)",
)


def continued(first: int, agree: BoolArray) -> UnsupportedModelError | None:
    """Return the refusal of a model that XGBoost 3.4 continued from percentiles.

    ``first`` is the first tree of steps.
    """
    if agree.all() or not agree[:first].all():
        return None
    return CONTINUED.error(f"Newton steps from tree {first} on, percentiles before it")


UPDATED: Refusal[XGBoostReading] = Refusal(
    "updater",
    _updater,
    "its trees were changed after they had been grown (process_type=update)",
    "Explain the model as it was before, or fit a new one on the new data.",
    "(ii)",
)

SPLIT_BY_OTHERS: Refusal[XGBoostReading] = Refusal(
    "objective", _by_others, OTHER_GRADIENTS, _L2, "(ii)"
)


def pruned(first: int, agree: BoolArray) -> UnsupportedModelError | None:
    """Return the refusal of trees that were pruned after the fit, which no model records.

    ``first`` is the first tree that lacks nodes.

    A tree that was pruned keeps what its nodes were fitted to, but those after it were fitted to
    what it had left over before: the data agree up to it and not beyond. Other data than those of
    the fit would not agree from the start.
    """
    if agree.all() or not agree[: first + 1].all():
        return None
    return UPDATED.error(f"prune, as of tree {first}")


REFUSALS: tuple[Refusal[XGBoostReading], ...] = (
    Refusal(
        "booster",
        lambda reading: (
            reading.settings.learner["gradient_booster"].get("name") == "gblinear" and "gblinear"
        ),
        "it is a linear model fitted by coordinate descent, not trees",
        'Fit with booster="gbtree", or explain a ridge regression.',
        "(ii)",
    ),
    Refusal(
        "objective", lambda reading: reading.custom, OTHER_GRADIENTS, _L2, "(ii)", derivative=True
    ),
    SPLIT_BY_OTHERS,
    *by_name(
        "objective", lambda reading: [reading.objective], _WITH_GRADIENTS, _L2, derivative=True
    ),
    *by_name("objective", lambda reading: [reading.objective], _OTHERS, _L2),
    Refusal(
        "objective",
        lambda reading: (
            reading.objective not in (*SQUARED_ERROR, *PERCENTILES)
            and (reading.objective or "none")
        ),
        OTHER_GRADIENTS,
        _L2,
        "(ii)",
        linear_only=True,
    ),
    Refusal(
        "objective",
        _smoothed_steps,
        "leaf values are Newton steps of a loss that is smoothed on the scale of all residuals",
        _L2,
        "(ii)",
        derivative=True,
    ),
    Refusal(
        "objective",
        _corner_steps,
        "leaf values are then steps along the gradient of a loss with a corner, and no percentiles",
        'Fit with tree_method="hist", or with objective="reg:squarederror".',
        "(ii)",
    ),
    Refusal(
        "estimator",
        lambda reading: reading.estimator in ("XGBClassifier", "XGBRanker") and reading.estimator,
        "what it predicts is not the sum of its trees",
        "Fit an XGBRegressor.",
        derivative=True,
    ),
    Refusal(
        "scale_pos_weight",
        lambda reading: reading.weighs_classes and reading.settings.text("scale_pos_weight"),
        "rows are weighted by whether their target is exactly 1",
        "Fit with scale_pos_weight=1 and pass sample_weight.",
        "(ii)",
        derivative=True,
    ),
    Refusal(
        "monotone_constraints",
        _shared_monotone,
        "trees for several outputs pool the values of two children that are out of order, which "
        "axil does not replay",
        'Fit with multi_strategy="one_output_per_tree".',
    ),
    UPDATED,
    Refusal(
        "sampling_method",
        lambda reading: (
            reading.settings.number("subsample") < 1
            and reading.settings.text("sampling_method") == "gradient_based"
            and "gradient_based"
        ),
        "which rows a tree is fitted on, and with what weight, depends on their residuals",
        'Fit with sampling_method="uniform".',
        "(ii)",
    ),
    Refusal(
        "subsample",
        _lost_subsample,
        "a model file does not keep subsample and seed, without which the rows cannot be known",
        'Set them on the loaded booster, as in booster.set_param({"subsample": 0.8, "seed": 0}), '
        "or pickle models.",
        linear_only=True,
    ),
    Refusal(
        "multi_strategy",
        _both_strategies,
        "predictions are linear in the targets, but axil does not read trees for one output and "
        "trees for all in one model",
        "Fit with one multi_strategy.",
    ),
    Refusal(
        "base_score",
        _shared_base,
        "each output starts from the mean of the targets of all of them",
        "Fit with base_score=0, fit one model per output, or use XGBoost 3.1 or later.",
        linear_only=True,
    ),
)

_COUNTS = (
    OTHER_ROWS,
    "Columns were scaled or otherwise changed for the fit, or categories and missing values were "
    "encoded otherwise (a Booster does not know DMatrix's `missing`: pass nan).",
)
_SAMPLED = (
    "The rows are in another order than in the fit: the rows that subsample took are sampled again "
    "by their position.",
    "Other rows were sampled than axil replayed: training was continued (xgb_model), two boosters "
    "were trained in turns, or the model was loaded and seed or subsample set to other values.",
)
_VALUES = (
    OTHER_TARGETS,
    "The fit used another base_margin (pass it as init_score), or another sample_weight.",
    "The model was loaded from a file that keeps neither reg_alpha, max_delta_step and "
    "monotone_constraints nor learning_rate and reg_lambda, which trees of one or two leaves are "
    "too few to show. Pickle the model, which keeps all of them: `axil` on the command line reads "
    "it with --trust. Or set them on the loaded booster in Python.",
    "A custom objective, training continued with other data (xgb_model), trees changed after the "
    "fit (refresh), several machines.",
)


def causes(mismatch: str, sampled: bool) -> str:
    """Return the most likely reasons for a disagreement, one per line.

    The disagreement is in "counts", "weights" or "values".
    """
    first, *rest = {"counts": _COUNTS, "weights": (OTHER_WEIGHTS,)}.get(mismatch, _VALUES)
    if sampled:
        reasons = [first, *_SAMPLED, *rest]
    else:
        reasons = [first, *rest]
    return "\n".join(reasons)
