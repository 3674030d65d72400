"""Which LightGBM models axil does not explain, and why.

The refusals are a table that is tried in order and that also makes the documentation.

Condition (i): the first prediction is linear in the targets. Condition (ii): residuals are linear
in the targets and leaf values linear in the residuals. A setting is refused if it breaks one for
some targets, not only if it binds.
"""

from __future__ import annotations

from axil.adapters.lightgbm.percentile import PERCENTILES
from axil.adapters.lightgbm.reading import LightGBMReading
from axil.adapters.refusals import (
    DAMPED,
    EXPONENTIAL,
    GROUPED,
    LOGIT,
    OTHER_COLUMNS,
    OTHER_GRADIENTS,
    OTHER_ROWS,
    OTHER_TARGETS,
    OTHER_WEIGHTS,
    SOFTMAX,
    Refusal,
    by_name,
)

EXACT_OBJECTIVES = ("regression", "regression sqrt", "huber", *PERCENTILES)  # "sqrt": with reg_sqrt
_L2 = 'Fit with objective="regression" (squared error) instead.'

_WITH_GRADIENTS = {  # losses whose gradients are replayed: reason, condition
    "fair": (DAMPED, "(ii)"),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), (EXPONENTIAL, "(i)")),
    **dict.fromkeys(("binary", "multiclassova", "cross_entropy"), (LOGIT, "(i)")),
    "multiclass": (SOFTMAX, "(i)"),
    **dict.fromkeys(("lambdarank", "rank_xendcg"), (GROUPED, "(ii)")),
}
_OTHERS = {
    "cross_entropy_lambda": ("residuals pass through a logarithm", "(ii)"),
}


def _objective(model: LightGBMReading) -> list[str]:
    """Return the name of the objective, without its options."""
    return model.text.objective.split()[:1]


def _other_objective(model: LightGBMReading) -> str:
    """Return the objective if leaf values are no sums or percentiles of its residuals."""
    name = model.text.objective
    if not name or name.startswith(("none", "custom")):
        return "custom"
    if name in EXACT_OBJECTIVES:
        return ""
    return name


def _changed_signs(model: LightGBMReading) -> str:
    """Return the constraints of the first and the last iterations if they differ.

    The header keeps those of the first.
    """
    first = model.text.header.get("monotone_constraints", "")
    last = model.settings.text("monotone_constraints")
    are_none = not model.monotone_signs.any() and not last.strip("0,")
    if not last or are_none or first.split() == last.split(","):
        return ""
    return f"{first.replace(' ', ',') or 'none'}, then {last}"


def _missing_rightward(model: LightGBMReading) -> str:
    """Return the method of constraints if its bounds depend on the order of the search for splits.

    Splits that send missing values to the right are searched from left to right, where advanced
    bounds are those of the first bin (feature_histogram.hpp).
    """
    if not model.monotone_signs.any() or model.monotone_method != "advanced":
        return ""
    if any(tree.sends_missing_right.any() for tree in model.text.trees):
        return "advanced with missing values"
    return ""


def _linear_beside(model: LightGBMReading) -> str:
    """Return the first setting beside which linear leaves are not replayed."""
    if not model.linear:
        return ""
    return model.beside(
        "True",
        "objective",
        "boosting=dart",
        "boosting=rf",
        "GOSS",
        "Booster.refit",
        "monotone_constraints",
        "use_quantized_grad",
        "device_type",
        "lambda_l1",
        "max_delta_step",
        "path_smooth",
    )


def _quantized(model: LightGBMReading) -> str:
    """Return the setting by which residuals are rounded and leaves are not renewed."""
    renews_leaves = model.settings.flag("quant_train_renew_leaf") or model.ranked
    if renews_leaves or not model.settings.flag("use_quantized_grad"):
        return ""
    return "True without quant_train_renew_leaf"


def _refit_beside(model: LightGBMReading) -> str:
    """Return the first setting beside which a refit is not replayed.

    With path_smooth LightGBM takes the number of a parent for its value (FitByExistingTree,
    src/treelearner/serial_tree_learner.cpp); a refit knows neither drops nor averages of trees.
    lambda_l1 and max_delta_step would hide wrong targets: no inner values.
    """
    if not model.refitted:
        return ""
    return model.beside(
        model.refit,
        "path_smooth",
        "lambda_l1",
        "max_delta_step",
        "objective",
        "boosting=dart",
        "boosting=rf",
    )


def _wide_bins(model: LightGBMReading) -> str:
    """Return max_bin if the leaf counts of a tree do not sum to its root's, beyond rounding."""
    if not model.cuda or model.settings.number("max_bin") <= 255:
        return ""
    for tree in model.text.trees:
        if tree.n_leaves == 1:
            continue
        counts = tree.integers("leaf_count")
        root_count = tree.integers("internal_count")[0]
        if abs(int(counts.sum()) - int(root_count)) > len(counts):
            return f"{model.settings.text('max_bin')} with device_type=cuda"
    return ""


def _forced(model: LightGBMReading) -> str:
    """Return the file of forced splits if LightGBM computes the leaves below them differently.

    They ignore cat_l2 and smooth towards 0 (GatherInfoForThreshold,
    src/treelearner/feature_histogram.hpp).
    """
    if model.splits_subsets or model.settings.number("path_smooth") > 0:
        return model.settings.text("forcedsplits_filename")
    return ""


def _several_trees(model: LightGBMReading) -> str:
    """Return the number of trees per iteration if it is more than one."""
    number = model.text.header.get("num_tree_per_iteration", "1")
    if number == "1":
        return ""
    return number


#: Settings that change how leaves are made and are replayed exactly; those that only choose splits
#: are not listed.
EXACT = (
    "`objective` regression under all its names, quantile, regression_l1, mape and huber; "
    "`reg_sqrt`: weights are of the roots of the targets",
    "`boosting` gbdt, dart and rf; bagging and GOSS: axil samples the same rows again",
    "learning-rate schedules, early stopping, `init_model`, `boost_from_average`",
    "`lambda_l1`, `lambda_l2`, `max_delta_step`, `path_smooth`, `monotone_constraints`, "
    "`use_quantized_grad` with renewed leaves",
    "`sample_weight`, `init_score`, missing values, categories, `cat_l2`, `max_cat_to_onehot`",
    "`linear_tree`, but for deletions",
    "`device_type` cpu, gpu and cuda: as exact as the sums of the device, 1e-8 with `gpu_use_dp`",
    "`Booster.refit` with `decay_rate=0`, on the data of the refit",
)

REFUSALS: tuple[Refusal[LightGBMReading], ...] = (
    *by_name("objective", _objective, _WITH_GRADIENTS, _L2, derivative=True),
    *by_name("objective", _objective, _OTHERS, _L2),
    Refusal(
        "objective",
        lambda model: _other_objective(model) == "custom" and "custom",
        OTHER_GRADIENTS,
        _L2,
        "(ii)",
        derivative=True,
    ),
    Refusal(
        "objective",
        _other_objective,
        OTHER_GRADIENTS,
        _L2,
        "(ii)",
        linear_only=True,
    ),
    Refusal(
        "objective",
        lambda model: (
            model.cuts
            and model.beside(
                "huber", "device_type", "num_machines", "boosting=rf", "use_quantized_grad"
            )
        ),
        "huber clips residuals, and axil keeps the set of clipped residuals fixed only for fits "
        "on the CPU of one machine, not with rf or use_quantized_grad",
        _L2,
        "(ii)",
        derivative=True,
    ),
    Refusal(
        "objective",
        lambda model: (
            model.ranked and model.beside(model.text.objective, "device_type=cuda", "num_machines")
        ),
        "percentiles of residuals are then computed in another way, or are means over machines",
        'Fit on one machine with device_type="cpu".',
    ),
    Refusal(
        "num_tree_per_iteration",
        _several_trees,
        "axil expects one tree an iteration",
        "Fit one model per output.",
        linear_only=True,
    ),
    Refusal(
        "linear_tree",
        _linear_beside,
        "axil replays linear leaves for boosting of squared error on a CPU, with sample_weight, "
        "bagging and lambda_l2 alone",
        "Fit with linear_tree=False, or without the other setting.",
        linear_only=True,
    ),
    Refusal(
        "monotone_constraints",
        _changed_signs,
        "the constraints changed while it was trained, and it does not record when",
        "Fit with the same monotone_constraints throughout.",
    ),
    Refusal(
        "monotone_constraints_method",
        # Forced splits are neither bounded nor bound others (GatherInfoForThreshold,
        # src/treelearner/feature_histogram.hpp).
        lambda model: (
            model.monotone_signs.any()
            and model.beside(model.monotone_method, "forcedsplits_filename")
        ),
        "forced splits are not bounded, and the model does not record which splits were forced",
        "Fit without forced splits, or without monotone_constraints.",
    ),
    Refusal(
        "monotone_constraints_method",
        # Splits that are searched again smooth towards another value (RecomputeBestSplitForLeaf,
        # src/treelearner/serial_tree_learner.cpp), and are not where the histograms were dropped.
        lambda model: (
            model.monotone_signs.any()
            and model.monotone_method != "basic"
            and model.beside(model.monotone_method, "path_smooth", "histogram_pool_size")
        ),
        "LightGBM searches some splits again when other leaves change, and with this setting it "
        "does not record how",
        'Fit with monotone_constraints_method="basic", the default, or without the other setting.',
    ),
    Refusal(
        "monotone_constraints_method",
        _missing_rightward,
        "bounds then depend on which threshold of a feature comes first, and the model does not "
        "record it",
        'Fit with monotone_constraints_method="intermediate".',
    ),
    Refusal(
        "use_quantized_grad",
        _quantized,
        "leaf values are sums of residuals that were rounded to a few levels",
        "Fit with quant_train_renew_leaf=True or use_quantized_grad=False.",
        "(ii)",
    ),
    Refusal(
        "use_quantized_grad",
        lambda model: (
            model.settings.flag("use_quantized_grad") and model.beside("True", "device_type=cuda")
        ),
        "its trees send rows into other leaves than the fit did (seen in LightGBM 4.7)",
        'Fit with use_quantized_grad=False, or with device_type="cpu".',
    ),
    Refusal(
        "max_bin",
        _wide_bins,
        "the leaves of a tree count other rows than its root: LightGBM adds wrong sums (seen in "
        "4.7, above 256 bins)",
        'Fit with max_bin=255, or with device_type="cpu".',
    ),
    Refusal(
        "refit_decay_rate",
        lambda model: not model.refitted and model.refit,
        "Booster.refit mixed its leaf values from those of two fits",
        "Refit with decay_rate=0, explain the model as it was before refit, or fit a new one on "
        "the new data.",
        "(ii)",
    ),
    Refusal(
        "refit_decay_rate",
        _refit_beside,
        "a refit is replayed for plain boosting, regularised by lambda_l2 alone",
        "Refit a model without that setting, or fit a new one on the new data.",
    ),
    Refusal(
        "boosting",
        lambda model: model.forest and model.goss and "rf with GOSS",
        "LightGBM multiplies the same residuals again for every tree",
        'Fit with data_sample_strategy="bagging".',
    ),
    Refusal(
        "bagging_by_query",
        lambda model: model.samples_rows and model.settings.flag("bagging_by_query"),
        "rows are sampled by groups, which the model does not record",
        "Fit with bagging_by_query=False.",
    ),
    Refusal(
        "forcedsplits_filename",
        _forced,
        "the model does not record which splits were forced, and those ignore cat_l2 and "
        "path_smooth",
        "Fit without forced splits, or without path_smooth and categorical features of many "
        "categories.",
    ),
)


_SAMPLED = (
    "The rows are in another order than in the fit: the model was fitted on rows sampled at random "
    "(bagging or GOSS), which axil samples "
    "again by their position.",
    "Settings changed while the model was trained, so that other rows were sampled.",
)
_BUNDLES = (
    "LightGBM bundled sparse columns that overlap in a few rows: fit again with "
    "enable_bundle=False."
)
_VALUES = (
    OTHER_TARGETS,
    "The fit used another init_score, or another sample_weight.",
    "The model was changed after its fit (refit, set_leaf_output, shuffle_models), or continued "
    "from one with other data or settings (init_model), or settings changed while it was trained.",
)
_MACHINES = (
    "The model was trained on {} machines: LightGBM then starts from the plain mean of the "
    "machines' own means, which is the mean of all targets only where every machine had the same "
    "number of rows (the same total weight). Fit with as many rows on each machine, or with "
    "boost_from_average=False."
)
_TURNED = (
    "Training of DART ended in the middle of a drop: LightGBM left trees in the model with the "
    "opposite sign, a fault of LightGBM. Fit with fewer iterations or a smaller min_split_gain, "
    "so that all find a split."
)
_SINGLE = (
    "A GPU added in single precision, too roughly for this many rows in so small leaves: fit with "
    "gpu_use_dp=True, or with "
    'device_type="cpu".'
)
_DIGITS = (
    "The model was loaded from text, which keeps six digits of lambda_l2, cat_l2, path_smooth and "
    "alpha, and of learning_rate, which DART needs: pass the model in memory, or pickle it."
)
_PERCENTILES = (
    "LightGBM 4.7 changed how it computes weighted percentiles: explain the model with a version "
    "on the same side of that as the one that fitted it."
)


def cause(model: LightGBMReading, mismatch: str, digits_lost: bool) -> str:
    """Return the most likely reasons for a disagreement, one per line.

    The disagreement is in "counts", "weights" or "values".
    """
    samples = model.samples_rows or model.goss
    if mismatch == "counts":
        reasons = [OTHER_ROWS, OTHER_COLUMNS]
        if samples:
            reasons = [_SAMPLED[0], *reasons, *_SAMPLED[1:]]
        if model.settings.flag("enable_bundle"):
            reasons.append(_BUNDLES)
    elif mismatch == "weights":
        reasons = [OTHER_WEIGHTS]
        if samples:
            reasons.extend(_SAMPLED)
    else:
        reasons = _causes_of_values(model, digits_lost)
    return "\n".join(reasons)


def _causes_of_values(model: LightGBMReading, digits_lost: bool) -> list[str]:
    """Return the most likely reasons for a disagreement in leaf values."""
    reasons = []
    if model.dart and any(float(tree.shrinkage) < 0 for tree in model.text.trees):
        reasons.append(_TURNED)
    if model.machines > 1 and model.settings.flag("boost_from_average"):
        reasons.append(_MACHINES.format(model.machines))
    reasons.extend(_VALUES)
    if digits_lost:
        reasons.append(_DIGITS)
    if model.adds_in_single:
        reasons.append(_SINGLE)
    if model.ranked:
        reasons.append(_PERCENTILES)
    return reasons
