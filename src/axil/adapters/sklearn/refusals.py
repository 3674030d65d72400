"""The scikit-learn models that axil does not explain, and why.

The tables are tried in order and also make the documentation. Condition (i): the first prediction
is linear in the targets. Condition (ii): residuals are linear in the targets and leaf values linear
in the residuals. A setting is refused if it breaks one for some targets, not only if it binds.
"""

from __future__ import annotations

from numbers import Integral

import numpy as np

from axil.adapters.pipeline import last_step
from axil.adapters.refusals import EXPONENTIAL, ONE_OUTPUT, Refusal, refuse
from axil.adapters.searches import unwrapped
from axil.adapters.sklearn.percentile import PERCENTILES
from axil.aliases import ForeignModel
from axil.arrays import BoolArray

_LOGIT = (
    "its initial prediction is the logarithm of the odds of a mean, which is not a linear "
    "function of the targets"
)
_FOREST = "A RandomForestClassifier has exact weights."
_BENT = "a neural network's predictions respond to its targets along a curve"
_MARGIN = "it solves a quadratic program with bounds on the coefficient of each row"
_SPARSE = "its coefficients are shrunk to zero by a threshold"
_LINK = "its coefficients are found by iteration through a non-linear link"
_BASE = "Explain a model inside it, which was fitted to all rows (estimators_)."
_MEANS = (
    "Explain a model of means instead: trees, forests, boosting with squared error, ridge "
    "regression."
)


#: Why a learner whose predictions have derivatives has no exact weights.
SMOOTH_REASONS = (_BENT, _LINK)


def _never(
    reason: str,
    instead: str = _MEANS,
    condition: str = "(ii)",
) -> Refusal[str]:
    """Return the refusal of a class whose models never have exact weights."""
    return Refusal(
        "class", str, reason, instead, condition, derivative=reason in (_LOGIT, _BENT, _LINK)
    )


CLASSES: dict[str, Refusal[str]] = {
    "GradientBoostingClassifier": _never(_LOGIT, _FOREST, "(i)"),
    "HistGradientBoostingClassifier": _never(_LOGIT, _FOREST, "(i)"),
    "AdaBoostRegressor": _never("its prediction is a weighted median of its trees' predictions"),
    "AdaBoostClassifier": _never(
        "its trees vote with weights that depend on their errors", _FOREST
    ),
    "StackingClassifier": _never(
        "its last model is fitted to predictions of the others, which change with the targets",
        _BASE,
    ),
    **dict.fromkeys(
        ("RegressorChain", "ClassifierChain"),
        _never(
            "each of its models uses the targets, or predictions, of the previous outputs as "
            "features",
            "Fit a MultiOutputRegressor, or explain estimators_[0].",
        ),
    ),
    "OneVsOneClassifier": _never(
        "its classifiers, each fitted to the rows of two classes, vote",
        "Fit a OneVsRestClassifier, or explain one of estimators_ on the rows of its two classes.",
    ),
    "OutputCodeClassifier": _never(
        "it predicts the class whose code, sampled at random, is nearest to the predictions of its "
        "classifiers",
        "Fit a OneVsRestClassifier, or explain one of estimators_.",
    ),
    "IsotonicRegression": _never("which targets it pools depends on their order"),
    "MLPRegressor": _never(_BENT),
    "MLPClassifier": _never(_BENT),
    **dict.fromkeys(("SVR", "NuSVR", "LinearSVR", "SVC", "NuSVC", "LinearSVC"), _never(_MARGIN)),
    **dict.fromkeys(
        (
            "Lasso",
            "LassoCV",
            "ElasticNet",
            "ElasticNetCV",
            "LassoLars",
            "LassoLarsCV",
            "LassoLarsIC",
        ),
        _never(_SPARSE),
    ),
    **dict.fromkeys(
        (
            "LogisticRegression",
            "LogisticRegressionCV",
            "PoissonRegressor",
            "GammaRegressor",
            "TweedieRegressor",
        ),
        _never(_LINK),
    ),
    "GaussianProcessClassifier": _never(
        "its probabilities are integrals over a posterior that is approximated around its mode",
        "A kernel (Nystroem) before a LogisticRegression in a pipeline has derivatives.",
    ),
    "HuberRegressor": _never("residuals are clipped"),
    "QuantileRegressor": _never("its predictions are quantiles"),
    "TheilSenRegressor": _never("its coefficients are medians"),
    "RANSACRegressor": _never("which rows it keeps depends on their residuals"),
}

#: Settings that change how leaves are made, or weights, and are exact. Those that only choose
#: splits are not listed.
EXACT = (
    "gradient boosting: `loss` squared_error, absolute_error, quantile, and huber without "
    "`sample_weight`; `init`; `subsample` with an integer seed; early stopping",
    "histogram gradient boosting: `loss` squared_error, `l2_regularization`, categories, "
    "missing values, early stopping, `interaction_cst`",
    "trees, forests and bagging: `criterion` squared_error, absolute_error and those of "
    "classes; `bootstrap`, `max_samples`, `class_weight`, several outputs",
    "`monotonic_cst`; `sample_weight`",
    "linear models: penalties, precisions and kernels that the fit chose stay fixed",
    "`RidgeClassifier`: (1 + decision_function) / 2",
    "neighbours, by number or within a radius, with any weights",
    "voting (of classifiers: soft), bagging and `MultiOutputRegressor` over any of these "
    "models: each member is verified on its own rows",
    "`OneVsRestClassifier` and `MultiOutputClassifier` of outputs 0 and 1",
    "`StackingRegressor` with a linear `final_estimator`, whose coefficients stay fixed",
    "pipelines, skrub's and feature-engine's too: transformers stay fixed; one whose fit "
    "needs the targets is refused",
    "searches: the `best_estimator_`; `FrozenEstimator`: the model inside",
    "`FixedThresholdClassifier` and `TunedThresholdClassifierCV`: the model inside; "
    "`prediction` is its class of largest probability, without the threshold",
    "`CalibratedClassifierCV`: the score before calibration, with the calibrated probability "
    "beside it",
    "`TransformedTargetRegressor` whose function keeps the order of the targets and has an inverse",
)

_L2 = 'Fit with loss="squared_error" instead.'
_MEAN = 'Fit with init=None (the mean), init="zero" or a model that axil reads.'
SEED = "Fit again with an integer random_state."


def _other_loss(model: ForeignModel) -> str:
    is_known = isinstance(model.loss, str) and model.loss in ("squared_error", *PERCENTILES)
    if is_known:
        return ""
    return str(model.loss)


def fits_init(model: ForeignModel) -> bool:
    """Return whether gradient boosting starts from the predictions of another model."""
    return not isinstance(model.init_, str) and type(model.init_).__name__ != "DummyRegressor"


def unknown_init(model: ForeignModel) -> str:
    """Return an initial prediction that is neither the mean, a constant nor that of another model.

    Fits to percentiles start from the same percentile, or from a constant.
    """
    init = model.init_
    strategy = getattr(init, "strategy", "")
    if model.loss in PERCENTILES:
        starts_alike = model.init is None or isinstance(model.init_, str)
        if not fits_init(model) and (starts_alike or strategy == "constant"):
            return ""
        return f"{init} with {model.loss}"
    if fits_init(model) or isinstance(init, str) or strategy in ("mean", "constant"):
        return ""
    return str(init)


def _unseeded(model: ForeignModel) -> bool:
    return not isinstance(model.random_state, (Integral, np.integer))


def _unknown_split(model: ForeignModel) -> str:
    if model.n_iter_no_change is None or not _unseeded(model):
        return ""
    return f"{model.random_state} with n_iter_no_change"


def _unseeded_subsample(model: ForeignModel) -> str:
    if model.subsample >= 1 or not _unseeded(model):
        return ""
    return f"{model.random_state} with subsample={model.subsample:g}"


def _subsampled_huber(model: ForeignModel) -> str:
    if model.loss != "huber" or model.subsample >= 1 or model.n_iter_no_change is None:
        return ""
    return f"{model.subsample:g} with huber and n_iter_no_change"


def _monotonic(tree: ForeignModel) -> bool:
    signs = getattr(tree, "monotonic_cst", None)
    return signs is not None and bool(np.any(signs))


_CRITERIA = (
    "squared_error",
    "friedman_mse",
    "poisson",
    "gini",
    "entropy",
    "log_loss",
    "absolute_error",
)


def _other_criterion(tree: ForeignModel) -> str:
    is_known = isinstance(tree.criterion, str) and tree.criterion in _CRITERIA
    if is_known:
        return ""
    return str(tree.criterion)


def _monotonic_medians(tree: ForeignModel) -> str:
    if tree.criterion != "absolute_error" or not _monotonic(tree):
        return ""
    return "absolute_error with monotonic_cst"


#: Of gradient boosting, with and without histograms.
LOSSES: tuple[Refusal[ForeignModel], ...] = (
    Refusal(
        "loss",
        lambda model: model.loss in ("poisson", "gamma") and model.loss,
        EXPONENTIAL,
        _L2,
        "(ii)",
        derivative=True,
    ),
    Refusal(
        "loss",
        _other_loss,
        "its leaf values are not means of residuals of squared error",
        _L2,
        "(ii)",
    ),
)

UNKNOWN_SPLIT: Refusal[ForeignModel] = Refusal(
    "random_state",
    _unknown_split,
    "predictions are linear in the targets, but which rows early stopping held out cannot be "
    "sampled again",
    SEED,
)

#: Of GradientBoostingRegressor.
STAGES: tuple[Refusal[ForeignModel], ...] = (
    *LOSSES,
    Refusal(
        "init",
        unknown_init,
        "its initial prediction is a quantile of the targets, or another percentile than its "
        "leaf values",
        _MEAN,
        "(i)",
    ),
    Refusal(
        "subsample",
        _subsampled_huber,
        "the clipping threshold then follows from other rows than those of the stage and those "
        "held out",
        "Fit with subsample=1.0, with n_iter_no_change=None, or with loss='absolute_error'.",
    ),
    UNKNOWN_SPLIT,
)

#: Of GradientBoostingRegressor, unless the user recorded the sampled rows.
DRAWS: tuple[Refusal[ForeignModel], ...] = (
    Refusal(
        "random_state",
        _unseeded_subsample,
        "predictions are linear in the targets, but which rows each tree was fitted on cannot be "
        "sampled again",
        f"{SEED[:-1]}, or pass the sample counts as in_bag=.",
    ),
)

#: Of every kind of tree outside boosting; they look at one tree, all trees of a model being alike.
TREES: tuple[Refusal[ForeignModel], ...] = (
    Refusal(
        "criterion",
        _monotonic_medians,
        "medians that are clipped to keep predictions monotone are not replayed",
        'Fit without monotonic_cst, or with criterion="squared_error".',
    ),
    Refusal(
        "criterion",
        _other_criterion,
        "its leaf values are not known to be means or medians",
        'Fit with criterion="squared_error" or, for classes, "gini".',
        "(ii)",
    ),
)


POSITIVE: Refusal[ForeignModel] = Refusal(
    "positive",
    lambda model: getattr(model, "positive", False),
    "coefficients are clipped at zero",
    "Fit with positive=False.",
    "(ii)",
)

#: Of linear models and kernel ridge.
SMOOTHERS: tuple[Refusal[ForeignModel], ...] = (POSITIVE,)

#: Of RidgeClassifier and RidgeClassifierCV, besides those of linear models.
RIDGE_CLASSIFIERS: tuple[Refusal[ForeignModel], ...] = (
    Refusal(
        "fit_intercept",
        lambda model: not model.fit_intercept and "False",
        "its classes are coded as -1 and 1, so without an intercept its decisions are no weighted "
        "sum of targets 0 and 1",
        "Fit with fit_intercept=True, or explain a Ridge that is fitted to numbers -1 and 1.",
    ),
)


def _folds_drawn_anew(model: ForeignModel) -> str:
    """Return the ``cv`` of a calibrated ensemble if its folds cannot be made again.

    It may split the rows otherwise each time, or by something that the model does not keep.
    """
    splitter = model.cv
    if splitter is None or isinstance(splitter, (Integral, list, tuple, np.ndarray)):
        return ""
    if not hasattr(splitter, "split"):
        return f"{type(splitter).__name__} of splits, which the fit has used up"
    kinds = {kind.__name__ for kind in type(splitter).__mro__}
    if "GroupsConsumerMixin" in kinds:
        return f"{type(splitter).__name__} by groups"
    draws = hasattr(splitter, "random_state") and bool(getattr(splitter, "shuffle", True))
    if draws and _unseeded(splitter):
        return str(splitter)
    return ""


#: Of CalibratedClassifierCV.
CALIBRATION: tuple[Refusal[ForeignModel], ...] = (
    Refusal(
        "cv",
        _folds_drawn_anew,
        "the rows of each of its classifiers are unknown, because cv would now split them "
        "differently",
        "Fit with cv=5, with an integer random_state, or with the splits themselves: "
        "cv=list(splitter.split(X, y, groups)). Or fit with ensemble=False.",
    ),
)


def _grown_on(agrees: BoolArray) -> str:
    """Return the number of last trees that agree with the data, if all before them disagree.

    Single wrong targets miss trees here and there.
    """
    n_last = len(agrees) - int(agrees.argmax())
    only_last_agree = agrees[-n_last:].all() and not agrees[:-n_last].any()
    if not only_last_agree or not 2 <= n_last <= len(agrees) - 2:
        return ""
    return f"True and {n_last} last trees that agree with these data"


#: Of forests and bagging with warm_start. They look at which trees (T,) agree with the data, where
#: some do not.
STEPS: tuple[Refusal[BoolArray], ...] = (
    Refusal(
        "warm_start",
        _grown_on,
        "its first trees were fitted on other rows or with other settings than its last, and the "
        "model keeps only the settings of the last",
        "Fit all trees at once, or with the same rows and settings at each step.",
    ),
)


def refuse_class(name: str) -> None:
    """Raise for a class that is never explained."""
    if name in CLASSES:
        raise CLASSES[name].error(name)


LBFGS = (
    'Fit with solver="lbfgs", a small tol (1e-8), a large max_iter and max_fun (100000), and alpha '
    "well above 0."
)


def _l1(model: ForeignModel) -> str:
    """Return the L1 penalty, by the setting penalty, or by l1_ratio in versions that drop it."""
    penalty = getattr(model, "penalty", "deprecated")
    if penalty is None or penalty == "l2":
        return ""
    # The ratio that was chosen, or set.
    ratio = getattr(model, "l1_ratio_", getattr(model, "l1_ratio", None))
    ratios = np.asarray(ratio, dtype=object).ravel()
    has_l1 = any(ratio is not None and ratio > 0 for ratio in ratios)
    if penalty not in ("l1", "elasticnet") and not has_l1:
        return ""
    return f"{penalty}, l1_ratio={ratios[0]}"


def _one_by_one(model: ForeignModel) -> str:
    has_several_classes = hasattr(model, "coef_") and len(getattr(model, "classes_", ())) > 2
    fits_each_class = getattr(model, "multi_class", None) == "ovr" or _has_binary_solver(model)
    if has_several_classes and fits_each_class:
        return "one against the rest"
    return ""


def _has_binary_solver(model: ForeignModel) -> bool:
    """Return whether the solver is for two classes alone.

    newton-cholesky was before scikit-learn 1.6.
    """
    import sklearn

    version = tuple(int(number) for number in sklearn.__version__.split(".")[:2])
    solver = getattr(model, "solver", None)
    return solver == "liblinear" or (solver == "newton-cholesky" and version < (1, 6))


def _unpenalised_network(model: ForeignModel) -> str:
    is_network = hasattr(model, "coefs_")
    if is_network and not model.alpha > 0:
        return str(model.alpha)
    return ""


def _multilabel(model: ForeignModel) -> str:
    if isinstance(getattr(model, "classes_", None), list):
        return "multilabel"
    binarizer = getattr(model, "_label_binarizer", None)
    is_multilabel = binarizer is not None and str(binarizer.y_type_).startswith("multilabel")
    if is_multilabel:
        return "multilabel"
    return ""


#: Of learners whose predictions have derivatives by the targets.
LEARNERS: tuple[Refusal[ForeignModel], ...] = (
    Refusal("penalty", _l1, "an L1 penalty is not smooth", "Fit with an L2 penalty (l1_ratio=0)."),
    Refusal(
        "multi_class",
        _one_by_one,
        "its probabilities are those of several fits put together",
        "Fit one multinomial model, or explain one binary model for each class.",
    ),
    Refusal(
        "refit",
        lambda model: getattr(model, "refit", True) is False and "False",
        "its coefficients are means of those of several fits",
        "Fit with refit=True.",
    ),
    POSITIVE,
    Refusal(
        "early_stopping",
        lambda model: getattr(model, "early_stopping", False),
        "a network stopped on held-out rows is at no stationary point of its training loss",
        LBFGS,
    ),
    Refusal(
        "alpha",
        _unpenalised_network,
        "without a penalty a network's training loss is flat along some directions, so the "
        "derivative is not determined",
        "Fit with alpha > 0.",
    ),
    Refusal("classes", _multilabel, ONE_OUTPUT, "Fit one classifier for each label."),
)


def refuse_learners(model: ForeignModel) -> None:
    """Raise for a fitted learner, or the last step of a pipeline, without derivatives."""
    model = unwrapped(model)
    last = last_step(model)
    if last is not None:
        model = last
    refuse(LEARNERS, model)
