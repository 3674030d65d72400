"""Which scikit-learn models axil does not explain, and why: tables, tried in order, that also make the documentation.

Condition (i): the first prediction is linear in the targets. Condition (ii): residuals are linear in the targets and
leaf values linear in the residuals. A setting is refused if it breaks one for some targets, not only where it binds.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from axil.adapters.refusals import EXPONENTIAL, Refusal
from axil.adapters.sklearn.percentile import PERCENTILES
from axil.arrays import BoolArray

_LOGIT = "its first prediction is the logarithm of the odds of a mean, which is not a linear function of the targets"
_FOREST = "A RandomForestClassifier has exact weights."
_BENT = "a neural network's predictions respond to its targets along a curve"
_MARGIN = "it solves a quadratic program in which a row's part ends at a bound"
_SPARSE = "its coefficients are shrunk to zero by a threshold"
_LINK = "its coefficients are found by iteration through a non-linear link"
_BASE = "Explain a model inside it, which was fitted to all rows (estimators_)."


SMOOTH_REASONS = (_BENT, _LINK)  #: why a smooth learner has no exact weights


def _never(
    reason: str,
    instead: str = "Explain a model of means instead: trees, forests, boosting with squared error, ridge regression.",
    condition: str = "(ii)",
) -> Refusal[str]:
    """The refusal of a class none of whose models has exact weights."""
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
            "each of its models has the targets, or predictions, of the outputs before among its features",
            "Fit a MultiOutputRegressor, or explain estimators_[0].",
        ),
    ),
    "OneVsOneClassifier": _never(
        "its classifiers, each fitted to the rows of two classes, vote",
        "Fit a OneVsRestClassifier, or explain one of estimators_ on the rows of its two classes.",
    ),
    "OutputCodeClassifier": _never(
        "it predicts the class whose code, drawn at random, is nearest to the predictions of its classifiers",
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

#: Settings that change how leaves are made, or weights, and are exact; those that only choose splits are not listed.
EXACT = (
    "gradient boosting: loss=squared_error, learning_rate, init (mean, constant, zero, or any model of these "
    "libraries), subsample with an integer seed, n_iter_no_change, sample_weight",
    "histogram gradient boosting: loss=squared_error, learning_rate, l2_regularization, categorical features, missing "
    "values, sample_weight, early stopping (rows held out have weight zero), interaction_cst",
    "gradient boosting: loss=absolute_error and quantile; trees and forests: criterion=absolute_error; with the ranks held",
    "gradient boosting: loss=huber without sample_weight, with ranks, delta and the rows beyond it held",
    "trees and forests: bootstrap, max_samples, sample_weight, class_weight, several outputs or labels",
    "bagging over trees: bootstrap, max_samples, max_features",
    "monotonic_cst of histogram gradient boosting (with every loss), trees, forests and bagged trees: with the pattern held",
    "voting (of classifiers voting=soft), bagging over anything else and MultiOutputRegressor, of models of any library here: "
    "each is proven on its own rows, then the sum; derivatives where some member has no weights",
    "OneVsRestClassifier and MultiOutputClassifier of outputs 0 and 1: each class's or label's own probability; of boosted and "
    "smooth members the score",
    "StackingRegressor with a linear final_estimator and passthrough=False: its coefficients are held fixed",
    "linear smoothers; penalties (of each output too), precisions and kernels that the fit chose are held fixed",
    "RidgeClassifier and RidgeClassifierCV: (1 + decision_function) / 2, the ridge regression of targets 0 and 1",
    "neighbours, by number or within a radius: any weights, several outputs or labels; a query without any neighbour is refused",
    "pipelines that end in a model of any library here: transformers (skrub's and feature-engine's too) are held fixed; one "
    "whose fit needs the targets, such as a TargetEncoder, is refused",
    "searches, of and in pipelines too: the best_estimator_; FrozenEstimator, FixedThresholdClassifier and "
    "TunedThresholdClassifierCV: the model inside, on the rows of its own fit",
    "CalibratedClassifierCV: the score before calibration, of an ensemble the mean over its classifiers, each proven on its own "
    "folds; the calibrated probability stands beside it",
    "TransformedTargetRegressor: functions, or a transformer, that keep the order of the targets and lead back to them",
)

_L2 = 'Fit with loss="squared_error" instead.'
_MEAN = 'Fit with init=None (the mean), init="zero" or a model that axil reads.'
SEED = "Fit again with an integer random_state."


def _other_loss(model: Any) -> str:
    return (
        ""
        if isinstance(model.loss, str) and model.loss in ("squared_error", *PERCENTILES)
        else str(model.loss)
    )


def fits_init(model: Any) -> bool:
    """Whether gradient boosting starts from the predictions of another model."""
    return not isinstance(model.init_, str) and type(model.init_).__name__ != "DummyRegressor"


def unknown_init(model: Any) -> str:
    """A first prediction that is neither the mean, a constant nor that of another model."""
    if (
        model.loss in PERCENTILES
    ):  # whose fits start from the same percentile, if not from a constant
        own = not fits_init(model) and (model.init is None or isinstance(model.init_, str))
        constant = not fits_init(model) and getattr(model.init_, "strategy", "") == "constant"
        return "" if own or constant else f"{model.init_} with {model.loss}"
    plain = (
        fits_init(model)
        or isinstance(model.init_, str)
        or model.init_.strategy in ("mean", "constant")
    )
    return "" if plain else str(model.init_)


def _unseeded(model: Any) -> bool:
    return not isinstance(model.random_state, (Integral, np.integer))


def _unknown_split(model: Any) -> str:
    stops = model.n_iter_no_change is not None and _unseeded(model)
    return f"{model.random_state} with n_iter_no_change" if stops else ""


def _monotonic(tree: Any) -> bool:
    signs = getattr(tree, "monotonic_cst", None)
    return signs is not None and bool(np.any(signs))


_KNOWN = (
    "squared_error",
    "friedman_mse",
    "poisson",
    "gini",
    "entropy",
    "log_loss",
    "absolute_error",
)


def _other_criterion(tree: Any) -> str:
    return (
        "" if isinstance(tree.criterion, str) and tree.criterion in _KNOWN else str(tree.criterion)
    )


#: Of gradient boosting, with and without histograms.
LOSSES: tuple[Refusal[Any], ...] = (
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

UNKNOWN_SPLIT: Refusal[Any] = Refusal(
    "random_state",
    _unknown_split,
    "linear in the targets, but which rows early stopping held out cannot be drawn again",
    SEED,
)

#: Of GradientBoostingRegressor.
STAGES: tuple[Refusal[Any], ...] = (
    *LOSSES,
    Refusal(
        "init",
        unknown_init,
        "its first prediction is a quantile of the targets, or is not the percentile that its leaves are",
        _MEAN,
        "(i)",
    ),
    Refusal(
        "subsample",
        lambda model: (
            model.loss == "huber"
            and model.subsample < 1
            and model.n_iter_no_change is not None
            and f"{model.subsample:g} with huber and n_iter_no_change"
        ),
        "where residuals are cut off then follows from other rows than those of the stage and those held out",
        "Fit with subsample=1.0, with n_iter_no_change=None, or with loss='absolute_error'.",
    ),
    UNKNOWN_SPLIT,
)

#: Of GradientBoostingRegressor, unless the user recorded the draws.
DRAWS: tuple[Refusal[Any], ...] = (
    Refusal(
        "random_state",
        lambda model: (
            model.subsample < 1
            and _unseeded(model)
            and f"{model.random_state} with subsample={model.subsample:g}"
        ),
        "linear in the targets, but which rows each tree was fitted on cannot be drawn again",
        f"{SEED[:-1]}, or pass the draws as bags=.",
    ),
)

#: Of every kind of tree outside boosting; they look at one tree, all trees of a model being alike.
TREES: tuple[Refusal[Any], ...] = (
    Refusal(
        "criterion",
        lambda tree: (
            tree.criterion == "absolute_error"
            and _monotonic(tree)
            and "absolute_error with monotonic_cst"
        ),
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


POSITIVE: Refusal[Any] = Refusal(
    "positive",
    lambda model: getattr(model, "positive", False),
    "coefficients are clipped at zero",
    "Fit with positive=False.",
    "(ii)",
)

#: Of linear models and kernel ridge.
SMOOTHERS: tuple[Refusal[Any], ...] = (POSITIVE,)

#: Of RidgeClassifier and RidgeClassifierCV, besides those of linear models.
RIDGE_CLASSIFIERS: tuple[Refusal[Any], ...] = (
    Refusal(
        "fit_intercept",
        lambda model: not model.fit_intercept and "False",
        "its classes are coded as -1 and 1, so without an intercept its decisions are no weighted sum of targets 0 and 1",
        "Fit with fit_intercept=True, or explain a Ridge that is fitted to numbers -1 and 1.",
    ),
)


def _folds_drawn_anew(model: Any) -> str:
    """The ``cv`` of a calibrated ensemble, where it splits the rows otherwise each time, or by what the model does not keep."""
    splitter = model.cv
    if splitter is None or isinstance(splitter, Integral):
        return ""
    if not hasattr(splitter, "split"):
        return (
            ""
            if isinstance(splitter, (list, tuple, np.ndarray))
            else f"{type(splitter).__name__} of splits, used up"
        )
    kinds = {kind.__name__ for kind in type(splitter).__mro__}
    if "GroupsConsumerMixin" in kinds:
        return f"{type(splitter).__name__} by groups"
    draws = hasattr(splitter, "random_state") and bool(getattr(splitter, "shuffle", True))
    return str(splitter) if draws and _unseeded(splitter) else ""


#: Of CalibratedClassifierCV.
CALIBRATION: tuple[Refusal[Any], ...] = (
    Refusal(
        "cv",
        _folds_drawn_anew,
        "which rows each of its classifiers was fitted on cannot be told, as cv would split them otherwise now",
        "Fit with cv=5, with an integer random_state, or with the splits themselves: "
        "cv=list(splitter.split(X, y, groups)). Or fit with ensemble=False.",
    ),
)


def _grown_on(agree: BoolArray) -> str:
    """How many trees at the end agree with the data while none before does; single wrong targets miss trees here and there."""
    last = len(agree) - int(agree.argmax())
    apart = agree[-last:].all() and not agree[:-last].any()
    return (
        f"True and {last} last trees that agree with these data"
        if apart and 2 <= last <= len(agree) - 2
        else ""
    )


#: Of forests and bagging with warm_start, asked with the trees (T,) that agree with the data where some do not.
STEPS: tuple[Refusal[BoolArray], ...] = (
    Refusal(
        "warm_start",
        _grown_on,
        "its first trees were fitted on other rows or with other settings than its last, and a model keeps only these",
        "Fit all trees at once, or with the same rows and settings at each step.",
    ),
)


def refuse_class(name: str) -> None:
    """Raise for a class that is never explained."""
    if name in CLASSES:
        raise CLASSES[name].error(name)
