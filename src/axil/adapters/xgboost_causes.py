"""Why a replay may disagree with an XGBoost model."""

from __future__ import annotations


def likeliest(what: str, sampled: bool) -> str:
    """The likeliest reason for a disagreement in "counts", "weights" or "values"."""
    return {"counts": _COUNTS, "weights": _WEIGHTS}.get(what, _VALUES) + (_SAMPLED if sampled else "")


_COUNTS = (
    "Most likely these are not the rows and columns that the model was fitted on: other rows, columns in another "
    "order, or categories and missing values encoded otherwise (a Booster does not know DMatrix's `missing`: pass nan). "
)
_SAMPLED = (
    "Or the rows that subsample drew are not those that axil replayed, as when training was continued (xgb_model), two "
    "boosters were trained in turns, or the model was loaded and seed or subsample set to other values. "
)
_WEIGHTS = (
    "Most likely sample_weight is not what the fit was given: pass the same weights, in the order of the rows, "
    "or none if there were none. "
)
_VALUES = (
    "Most likely the targets are not those of the fit, or in another order, or the fit was given another base_margin. "
    "Other reasons: a custom objective, training continued with other data (xgb_model), trees that were changed after "
    "the fit (refresh), several machines; or the model was loaded from a file, which does not keep reg_alpha, "
    "max_delta_step and monotone_constraints, and was trained with one of them; nor does it keep learning_rate and "
    "reg_lambda, which trees of one or two leaves are too few to show: set them on the loaded booster. "
)
