"""Which LightGBM models axil does not explain, and why: a table, tried in order, that also makes the documentation.

Condition (i): the first prediction is linear in the targets. Condition (ii): residuals are linear in the targets and
leaf values linear in the residuals. A setting is refused if it breaks one for some targets, not only where it binds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.adapters.lightgbm.text import ModelText, Settings
from axil.adapters.refusals import Refusal


@dataclass(frozen=True)
class Reading:
    """All that a refusal may look at."""

    text: ModelText
    settings: Settings
    refit: str  #: the decay rate of Booster.refit, empty where the model was not refit as far as can be seen

    @property
    def subset_features(self) -> frozenset[int]:
        """Categorical features whose splits group categories, with cat_l2, rather than split one from the rest.

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

    @property
    def forest(self) -> bool:
        """boosting="rf": predictions are averages over trees."""
        return "average_output" in self.text.header

    @property
    def no_features(self) -> bool:
        """Whether no column can be split: all are constant, or split by fewer rows than a leaf must have."""
        return set(self.text.header.get("feature_infos", "").split()) <= {"none"}

    @property
    def machines(self) -> int:
        """On how many machines it was trained; on several, leaves count rows by their weights, not one by one."""
        return int(self.settings.number("num_machines") or 1)

    @property
    def cuda(self) -> bool:
        """Whether the learner for CUDA grew the trees."""
        return self.settings.text("device_type") == "cuda"

    @property
    def on_gpu(self) -> bool:
        return self.settings.text("device_type") in ("gpu", "cuda")

    @property
    def adds_in_single(self) -> bool:
        """Whether a GPU added up histograms in float32."""
        return self.on_gpu and not self.settings.flag("gpu_use_dp")

    @property
    def counts_rows(self) -> bool:
        """Whether leaves count rows one by one: on several machines, and on CUDA, they do so by weights."""
        return self.machines == 1 and not self.cuda

    @property
    def monotone_signs(self) -> NDArray[np.int64]:
        """(features,): 1 where predictions must rise with a feature, -1 where they must fall, else 0."""
        written = self.text.header.get("monotone_constraints") or self.settings.text("monotone_constraints")
        signs = np.zeros(self.text.n_features, dtype=np.int64)
        if self.cuda:  # which does not enforce them
            return signs
        given = [int(sign) for sign in written.replace(",", " ").split()]
        signs[: len(given)] = given
        return signs

    @property
    def monotone_method(self) -> str:
        """How bounds are kept; LightGBM writes the method that it took, where it did not take the one it was given."""
        return self.settings.text("monotone_constraints_method") or "basic"

    @property
    def refitted(self) -> bool:
        """Whether Booster.refit with decay_rate=0 has computed all leaf values again."""
        return self.refit != "" and float(self.refit) == 0.0

    @property
    def refit_quirk(self) -> str:
        """The setting, if any, with which a refit is not replayed.

        With path_smooth LightGBM takes the number of a parent for its value (FitByExistingTree,
        src/treelearner/serial_tree_learner.cpp); a refit knows neither drops nor averages of trees.
        """
        # lambda_l1 and max_delta_step would hide wrong targets: no inner values.
        for name in ("path_smooth", "lambda_l1", "max_delta_step"):
            if self.settings.number(name) > 0:
                return name
        return "boosting=dart" if self.dart else "boosting=rf" if self.forest else ""

    @property
    def dart(self) -> bool:
        return self.settings.text("boosting") == "dart"

    @property
    def bags(self) -> bool:
        """Whether each tree has rows drawn at random; the fractions of positive and negative rows are for classes only."""
        return self.settings.number("bagging_fraction") < 1 and self.settings.number("bagging_freq") > 0

    @property
    def goss(self) -> bool:
        """Whether rows are drawn by their gradients; before 4.2 the text does not say, but trees of fewer rows do."""
        strategy = self.settings.text("data_sample_strategy")
        if strategy or "goss" in self.settings.given("boosting"):
            return strategy in ("goss", "")
        split = [tree for tree in self.text.trees if tree.n_leaves > 1]
        return not self.bags and len({int(tree.integers("leaf_count").sum()) for tree in split}) > 1


SQUARED = ("regression", "regression sqrt")  # the second with reg_sqrt, of which predictions are squared
_L2 = 'Fit with objective="regression" (squared error) instead.'

_LOGIT = "residuals pass through a sigmoid, and the logit of a mean, where the fit starts, is not linear in the targets"
_EXPONENTIAL = "predictions pass through an exponential, and the fit starts from the logarithm of a mean"
_RANKED = "residuals depend on how the rows of a group are ranked, and axil is not given the groups"
_OWN_RANKING = (
    "Fit with a ranking objective of your own, a function that knows the groups and draws nothing at random: "
    "axil.explain takes it as objective=. Or fit with squared error."
)

_OBJECTIVES = {  # name: reason, condition, whether its gradient is replayed
    "regression_l1": ("leaf values are medians of the residuals", "(ii)", False),
    "huber": ("residuals are clipped", "(ii)", True),
    "fair": ("residuals are damped by a non-linear function", "(ii)", True),
    "quantile": ("leaf values are quantiles of the residuals", "(ii)", False),
    "mape": ("leaf values are weighted medians of the residuals", "(ii)", False),
    "poisson": (_EXPONENTIAL, "(i)", True),
    "gamma": (_EXPONENTIAL, "(i)", True),
    "tweedie": (_EXPONENTIAL, "(i)", True),
    "binary": (_LOGIT, "(i)", True),
    "multiclass": ("residuals pass through a softmax, and the fit starts from logarithms of means", "(i)", True),
    "multiclassova": (_LOGIT, "(i)", True),
    "cross_entropy": (_LOGIT, "(i)", True),
    "cross_entropy_lambda": ("residuals pass through a logarithm", "(ii)", False),
    "lambdarank": (_RANKED, "(ii)", False),
    "rank_xendcg": (_RANKED, "(ii)", False),
}


def _objective(name: str) -> Callable[[Reading], str]:
    return lambda model: model.text.objective if model.text.objective.split()[:1] == [name] else ""


def _other_objective(model: Reading) -> str:
    name = model.text.objective
    return "custom" if not name or name.startswith(("none", "custom")) else "" if name in SQUARED else name


def _positive(name: str) -> Callable[[Reading], str]:
    return lambda model: model.settings.text(name) if model.settings.number(name) > 0 else ""


def _changed_signs(model: Reading) -> str:
    """Constraints of the last iterations that are not those of the first, which the header keeps."""
    first, last = model.text.header.get("monotone_constraints", ""), model.settings.text("monotone_constraints")
    same = first.split() == last.split(",") or (not model.monotone_signs.any() and not last.strip("0,"))
    return f"{first.replace(' ', ',') or 'none'}, then {last or 'none'}" if last and not same else ""


def _unrecorded_bounds(model: Reading) -> str:
    # Forced splits are neither bounded nor bound others (GatherInfoForThreshold, src/treelearner/feature_histogram.hpp).
    forced = model.settings.text("forcedsplits_filename")
    return f"{model.monotone_method} with forcedsplits_filename" if model.monotone_signs.any() and forced else ""


def _other_smoothing(model: Reading) -> str:
    # Splits that are searched again smooth towards another value (RecomputeBestSplitForLeaf, src/treelearner/
    # serial_tree_learner.cpp), and are not where the histograms were dropped.
    if not model.monotone_signs.any() or model.monotone_method == "basic":
        return ""
    smooth, dropped = model.settings.number("path_smooth") > 0, model.settings.number("histogram_pool_size") > 0
    other = "path_smooth" if smooth else "histogram_pool_size" if dropped else ""
    return f"{model.monotone_method} with {other}" if other else ""


def _missing_rightward(model: Reading) -> str:
    # Such splits are searched from left to right, where advanced bounds are those of the first bin (feature_histogram.hpp).
    if not model.monotone_signs.any() or model.monotone_method != "advanced":
        return ""
    return "advanced with missing values" if any(tree.sends_missing_right.any() for tree in model.text.trees) else ""


def _linear_tree(model: Reading) -> str:
    return "True" if model.settings.flag("linear_tree") or any(tree.is_linear for tree in model.text.trees) else ""


def _trees_per_iteration(model: Reading) -> str:
    number = model.text.header.get("num_tree_per_iteration", "1")
    return "" if number == "1" else number


def _quantized(model: Reading) -> str:
    rounded = model.settings.flag("use_quantized_grad") and not model.settings.flag("quant_train_renew_leaf")
    return "True without quant_train_renew_leaf" if rounded else ""


def _quantized_on_cuda(model: Reading) -> str:
    return "True with device_type=cuda" if model.cuda and model.settings.flag("use_quantized_grad") else ""


def _wide_bins(model: Reading) -> str:
    """Trees whose leaves do not add up to their root, by more than rows that are counted by weights are off."""
    if not model.cuda or model.settings.number("max_bin") <= 255:
        return ""
    for tree in model.text.trees:
        counts = tree.integers("leaf_count")
        if tree.n_leaves > 1 and abs(int(counts.sum()) - int(tree.integers("internal_count")[0])) > len(counts):
            return f"{model.settings.text('max_bin')} with device_type=cuda"
    return ""


def _smoothed_goss(model: Reading) -> str:
    return f"{model.settings.text('path_smooth')} with GOSS" if model.goss and _positive("path_smooth")(model) else ""


def _forced(model: Reading) -> str:
    # Forced splits ignore cat_l2 and smooth towards 0 (GatherInfoForThreshold, src/treelearner/feature_histogram.hpp).
    odd = model.splits_subsets or model.settings.number("path_smooth") > 0
    return model.settings.text("forcedsplits_filename") if odd else ""


#: Settings that change how leaves are made and are replayed exactly; those that only choose splits are not listed.
EXACT = (
    "objective: regression under all its names (l2, mse, rmse, ...), reg_sqrt (weights are of the targets' roots)",
    "boost_from_average, learning_rate, learning-rate schedules, early stopping, continued training (init_model)",
    "lambda_l2, cat_l2, max_cat_to_onehot, path_smooth (without sample weights), use_quantized_grad with renewed leaves",
    "lambda_l1, max_delta_step, monotone_constraints by all methods: with the pattern held",
    "sample_weight, init_score",
    "missing values: use_missing, zero_as_missing; categorical features",
    "bagging_fraction, bagging_freq, bagging_seed: the rows are drawn again",
    "data_sample_strategy=goss (boosting=goss): likewise",
    "boosting=dart, with and without bagging: the dropped trees are drawn again",
    "boosting=rf",
    "device_type cpu, gpu and cuda: with gpu_use_dp=True to 1e-8, else as far as sums in single precision go",
    "Booster.refit with decay_rate=0, of plain boosting: on the data of the refit, with its weights and init_score",
)

REFUSALS: tuple[Refusal[Reading], ...] = (
    *(
        Refusal("objective", _objective(name), reason, condition, _OWN_RANKING if reason is _RANKED else _L2, smooth)
        for name, (reason, condition, smooth) in _OBJECTIVES.items()
    ),
    Refusal(
        "objective",
        lambda model: "custom" if _other_objective(model) == "custom" else "",
        "its gradients are not known to be those of squared error",
        "(ii)",
        _L2,
        derivative=True,
    ),
    Refusal(
        "objective",
        _other_objective,
        "its gradients are not known to be those of squared error",
        "(ii)",
        _L2,
        linear_only=True,
    ),
    Refusal(
        "num_tree_per_iteration",
        _trees_per_iteration,
        "axil expects one tree an iteration",
        None,
        "Fit one model per output.",
        linear_only=True,
    ),
    Refusal(
        "linear_tree",
        _linear_tree,
        "linear in the targets, but its leaves predict by the features of each row, where axil keeps one value per leaf",
        None,
        "Fit with linear_tree=False.",
    ),
    Refusal(
        "monotone_constraints",
        _changed_signs,
        "the constraints changed while it was trained, and it does not record when",
        None,
        "Fit with the same monotone_constraints throughout.",
    ),
    Refusal(
        "monotone_constraints_method",
        _unrecorded_bounds,
        "forced splits are not bounded, and the model does not record which splits were forced",
        None,
        "Fit without forced splits, or without monotone_constraints.",
    ),
    Refusal(
        "monotone_constraints_method",
        _other_smoothing,
        "splits that are searched again when other leaves change are then made in another way, which is not recorded",
        None,
        'Fit with monotone_constraints_method="basic", the default, or without the other setting.',
    ),
    Refusal(
        "monotone_constraints_method",
        _missing_rightward,
        "bounds then depend on which thresholds are a feature's first, which is not recorded",
        None,
        'Fit with monotone_constraints_method="intermediate".',
    ),
    Refusal(
        "use_quantized_grad",
        _quantized,
        "leaf values are sums of residuals that were rounded to a few levels",
        "(ii)",
        "Fit with quant_train_renew_leaf=True or use_quantized_grad=False.",
    ),
    Refusal(
        "use_quantized_grad",
        _quantized_on_cuda,
        "its trees send rows into other leaves than the fit did (seen in LightGBM 4.7)",
        None,
        'Fit with use_quantized_grad=False, or with device_type="cpu".',
    ),
    Refusal(
        "max_bin",
        _wide_bins,
        "the leaves of a tree count other rows than its root: LightGBM adds wrong sums (seen in 4.7, above 256 bins)",
        None,
        'Fit with max_bin=255, or with device_type="cpu".',
    ),
    Refusal(
        "refit_decay_rate",
        lambda model: "" if model.refitted else model.refit,
        "Booster.refit mixed its leaf values from those of two fits",
        "(ii)",
        "Refit with decay_rate=0, explain the model as it was before refit, or fit a new one on the new data.",
    ),
    Refusal(
        "refit_decay_rate",
        lambda model: f"{model.refit} with {model.refit_quirk}" if model.refitted and model.refit_quirk else "",
        "a refit is replayed for plain boosting, regularised by lambda_l2 alone",
        None,
        "Refit a model without that setting, or fit a new one on the new data.",
    ),
    Refusal(
        "boosting",
        lambda model: "rf with GOSS" if model.forest and model.goss else "",
        "LightGBM multiplies the same residuals again for every tree",
        None,
        'Fit with data_sample_strategy="bagging".',
    ),
    Refusal(
        "bagging_by_query",
        lambda model: "True" if model.bags and model.settings.flag("bagging_by_query") else "",
        "rows are drawn by groups, which the model does not record",
        None,
        "Fit with bagging_by_query=False.",
    ),
    Refusal(
        "path_smooth",
        _smoothed_goss,
        "LightGBM smooths by row counts that it estimates from the factors of the rows while it grows a tree",
        None,
        'Fit with path_smooth=0 or data_sample_strategy="bagging".',
    ),
    Refusal(
        "forcedsplits_filename",
        _forced,
        "the model does not record which splits were forced, and those ignore cat_l2 and path_smooth",
        None,
        "Fit without forced splits, or without path_smooth and categorical features of many categories.",
    ),
)


_COUNTS = (
    "These are not the rows and columns that the model was fitted on: other rows, or columns in another order.",
    "Columns were scaled or otherwise changed for the fit, or categories and missing values were encoded otherwise.",
)
_SAMPLED = (
    "The rows are in another order than in the fit: the model was fitted on rows drawn at random (bagging or GOSS), "
    "which axil draws "
    "again by their position.",
    "Settings changed while the model was trained, so that other rows were drawn.",
)
_BUNDLES = "LightGBM bundled sparse columns that overlap in a few rows: fit again with enable_bundle=False."
_WEIGHTS = "sample_weight is not what the fit was given: pass the same weights, in the order of the rows, or none if it had none."
_VALUES = (
    "The targets are not those of the fit, or were transformed for it (a logarithm), or are in another order.",
    "The fit was given another init_score, or another sample_weight.",
    "The model was changed after its fit (refit, set_leaf_output, shuffle_models), or continued from one with other data or "
    "settings (init_model), or settings changed while it was trained.",
)
_MACHINES = (
    "The model was trained on {} machines: LightGBM then starts from the plain mean of the machines' own means, which is the "
    "mean of all targets only where every machine had the same number of rows (the same total weight). Fit with as many rows "
    "on each machine, or with boost_from_average=False."
)
_SINGLE = (
    "A GPU added in single precision, too roughly for this many rows in so small leaves: fit with gpu_use_dp=True, or with "
    'device_type="cpu".'
)
_DIGITS = (
    "The model was loaded from text, which keeps six digits of lambda_l2, cat_l2 and path_smooth, and of learning_rate, "
    "which DART needs: pass the model in memory, or pickle it."
)


def cause(model: Reading, what: str, digits_lost: bool) -> str:
    """The most likely reasons for a disagreement in "counts", "weights" or "values", one per line."""
    sampled = _SAMPLED if model.bags or model.goss else ()
    if what == "counts":
        bundles = (_BUNDLES,) if model.settings.flag("enable_bundle") else ()
        return "\n".join((*sampled[:1], *_COUNTS, *sampled[1:], *bundles))
    if what == "weights":
        return "\n".join((_WEIGHTS, *sampled))
    apart = model.machines > 1 and model.settings.flag("boost_from_average")
    machines = (_MACHINES.format(model.machines),) if apart else ()
    single = (_SINGLE,) if model.adds_in_single else ()
    return "\n".join((*machines, *_VALUES, *([_DIGITS] if digits_lost else ()), *single))
