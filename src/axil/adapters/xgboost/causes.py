"""Why a replay may disagree with an XGBoost model."""

from __future__ import annotations


def likeliest(what: str, sampled: bool) -> str:
    """The likeliest reasons for a disagreement in "counts", "weights" or "values", one a line."""
    first, *others = {"counts": _COUNTS, "weights": _WEIGHTS}.get(what, _VALUES)
    return "\n".join((first, *(_SAMPLED if sampled else ()), *others))


_COUNTS = (
    "These are not the rows and columns that the model was fitted on: other rows, or columns in another order.",
    "Columns were scaled or otherwise changed for the fit, or categories and missing values were encoded otherwise (a "
    "Booster does "
    "not know DMatrix's `missing`: pass nan).",
)
_SAMPLED = (
    "The rows are in another order than in the fit: the rows that subsample drew are drawn again by their position.",
    "Other rows were drawn than axil replayed: training was continued (xgb_model), two boosters were trained in "
    "turns, or the model "
    "was loaded and seed or subsample set to other values.",
)
_WEIGHTS = (
    "sample_weight is not what the fit was given: pass the same weights, in the order of the rows, or none if it had none.",
)
_VALUES = (
    "The targets are not those of the fit, or were transformed for it (a logarithm), or are in another order.",
    "The fit was given another base_margin, or another sample_weight.",
    "The model was loaded from a file, which does not keep reg_alpha, max_delta_step and monotone_constraints, and "
    "was trained with "
    "one of them; nor does it keep learning_rate and reg_lambda, which trees of one or two leaves are too few to "
    "show: set them on "
    "the loaded booster.",
    "A custom objective, training continued with other data (xgb_model), trees changed after the fit (refresh), "
    "several machines.",
)
