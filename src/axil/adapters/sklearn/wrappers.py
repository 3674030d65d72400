"""scikit-learn's models of several others: voting, bagging, one model for each output, boosting after another model."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from axil.adapters.contract import Model
from axil.adapters.members import Member, ResidualModel, SumModel
from axil.adapters.searches import unwrapped
from axil.adapters.sklearn.adapter import reader_of
from axil.adapters.sklearn.boosting import StagesAfterInit
from axil.adapters.sklearn.calibration import read_ensemble
from axil.adapters.sklearn.refusals import fits_init
from axil.adapters.sklearn.side_by_side import read_exact
from axil.adapters.sklearn.trees import SklearnAdapter, as_it_is, bags, numbers, with_bags
from axil.errors import ExactnessError, InputError, UnsupportedModelError
from axil.inputs.copies import owned
from axil.types import Array

SAME = 1e-9  # of a row's chance to be drawn
Read = Callable[[Any], Model | None]  # from a model inside to its adapter, whatever its library


def read(model: Any, inside: Read) -> SumModel | None:
    """The adapter for such a model, None for any other object; ``inside`` reads the models that it consists of."""
    reader = reader_of(model, WRAPPERS)
    return None if reader is None else reader(model, inside)


def _voting(model: Any, inside: Read) -> SumModel:
    """The mean of the members' predictions, or of their probabilities, by the weights."""
    if getattr(model, "voting", "soft") != "soft":
        raise UnsupportedModelError(
            "voting",
            model.voting,
            "it predicts the class that most of its members predict, not a mean of their probabilities",
            'Fit with voting="soft", or explain the members one by one (estimators_).',
            "(ii)",
        )
    used = [(name, weight) for (name, part), weight in zip(model.estimators, _weights(model)) if not _dropped(part)]
    classes = getattr(model, "classes_", None)
    targets = "y" if classes is None else "model.le_.transform(y)"
    shares = np.array([weight for _, weight in used]) / sum(weight for _, weight in used)
    members = [
        Member(name, _read(inside, estimator, f"named_estimators_[{name!r}]", targets), float(share))
        for (name, _), share, estimator in zip(used, shares, model.estimators_)
    ]
    kept = as_it_is(model)
    predict = kept.predict if classes is None else kept.predict_proba
    return SumModel(predict, members, members[0].model, None if classes is None else owned(np.asarray(classes)))


def _weights(model: Any) -> list[float]:
    return [1.0] * len(model.estimators) if model.weights is None else [float(weight) for weight in model.weights]


def _dropped(estimator: Any) -> bool:
    return isinstance(estimator, str) and estimator == "drop"


def _stacking(model: Any, inside: Read) -> SumModel:
    """The members' predictions times the coefficients of a linear last model, which are held fixed as splits are.

    Those were fitted to predictions of folds that cannot be drawn again, so they are read and not proven.
    """
    last = unwrapped(model.final_estimator_)
    coefficients = np.asarray(getattr(last, "coef_", np.zeros((0, 0))), dtype=np.float64)
    if coefficients.ndim != 1 or not hasattr(last, "intercept_"):
        raise UnsupportedModelError(
            "final_estimator",
            type(last).__name__,
            "predictions are no linear function of those of the models inside",
            "Fit with a linear final_estimator, such as RidgeCV, the default; or explain a model inside (estimators_).",
            "(ii)",
        )
    if model.passthrough:
        raise UnsupportedModelError(
            "passthrough",
            True,
            "the last model looks at the features as well, and what they add is not read",
            "Fit with passthrough=False.",
        )
    used = [name for name, part in model.estimators if not _dropped(part)]
    members = [
        Member(name, _read(inside, estimator, f"named_estimators_[{name!r}]", "y"), float(coefficient))
        for name, estimator, coefficient in zip(used, model.estimators_, coefficients, strict=True)
    ]
    return SumModel(as_it_is(model).predict, members, members[0].model, constant=float(np.ravel(last.intercept_)[0]))


def _each_output(model: Any, inside: Read) -> SumModel:
    """One model for each output, side by side."""
    members = [
        Member(f"output {k}", _read(inside, estimator, f"estimators_[{k}]", f"y[:, {k}]", True), output=k)
        for k, estimator in enumerate(model.estimators_)
    ]
    return SumModel(as_it_is(model).predict, members, members[0].model)


class BaggingModel(SumModel):
    """Bagging, which from scikit-learn 1.8 on keeps the sample weights."""

    kept_weights: Array | None = None  #: (N,)
    keeps_weights = False  #: whether rows were drawn in proportion to their weights, which have no other use then

    def check_kept(self, X: Any, targets: Array, weights: Array | None) -> None:
        """Raise unless the weights are those that the rows were drawn by: nothing else would show it."""
        kept = self.kept_weights
        if not self.keeps_weights or (kept is None and (weights is None or np.ptp(weights) == 0)):
            return
        if kept is None:
            raise InputError("This model was fitted without sample_weight: leave it out.")
        if weights is None:
            raise InputError("The rows of this model's bags were drawn by sample_weight: pass the same.")
        found, expected = weights / weights.sum(), kept / kept.sum()
        for row in np.flatnonzero(~(np.abs(found - expected) <= SAME * expected))[:1]:
            cause = "sample_weight is not what the fit was given: pass the same weights, in the order of the rows."
            what = f"chance of training row {row} (from 0) to be drawn"
            raise ExactnessError(what, float(found[row]), float(expected[row]), cause)


def _bagging(model: Any, inside: Read) -> SumModel:
    """The mean of models fitted to rows and columns that were drawn."""
    outer = SklearnAdapter(model)  # type: ignore[abstract]  # its columns alone are meant
    by_weight = _takes_weights(model.estimators_[0])
    classes = getattr(model, "classes_", None)
    drawn_by_weight = hasattr(model, "_sample_weight")  # from 1.8 on weights decide what is drawn, and nothing else
    every = np.arange(outer.n_features)
    if classes is not None and not hasattr(model.estimators_[0], "predict_proba"):
        raise UnsupportedModelError(
            "estimator",
            type(model.estimators_[0]).__name__,
            "it has no probabilities, so its bags vote for classes",
            "Bag classifiers that have predict_proba, or explain the models of estimators_ one by one.",
            "(ii)",
        )
    members = []
    for i, (estimator, features, bag) in enumerate(
        zip(model.estimators_, model.estimators_features_, bags(with_bags(model, model.estimators_)))
    ):
        found = _read(inside, estimator, f"estimators_[{i}]")
        if classes is not None and found.n_outputs != len(classes):
            raise UnsupportedModelError(
                "estimator",
                type(estimator).__name__,
                "one of its bags lacks some class, and axil reads such bags of trees alone",
                "Fit with more rows in each bag, or explain the models of estimators_ one by one.",
            )
        members.append(
            Member(
                f"estimators_[{i}]",
                found,
                1 / len(model.estimators_),
                columns=None if np.array_equal(features, every) else np.asarray(features),
                rows=None if by_weight else np.asarray(bag),
                draws=np.bincount(bag, minlength=model._n_samples) if by_weight else None,
                weighted=not drawn_by_weight,
            )
        )
    kept = as_it_is(model)
    vars(kept).pop("feature_names_in_", None)  # rows reach it as an array, so it must not look for names
    predict = kept.predict if classes is None else kept.predict_proba
    names, read = None if classes is None else owned(np.asarray(classes)), partial(numbers, dtype=np.float64)
    found = BaggingModel(predict, members, outer, names, read=read)
    found.fitted_rows = int(model._n_samples)
    found.keeps_weights = drawn_by_weight
    weights = getattr(model, "_sample_weight", None)
    found.kept_weights = None if weights is None else owned(np.asarray(weights, dtype=np.float64))
    return found


def _takes_weights(estimator: Any) -> bool:
    """Whether bagging hands a model the draws as weights: it does not where metadata is routed and none were requested."""
    from sklearn import get_config
    from sklearn.utils.metadata_routing import get_routing_for_object
    from sklearn.utils.validation import has_fit_parameter

    if get_config().get("enable_metadata_routing"):
        return bool(get_routing_for_object(estimator).consumes("fit", ("sample_weight",)))
    return bool(has_fit_parameter(estimator, "sample_weight"))


WIDEST_INIT = 1e-3  # of predictions of an init: float32 times the condition numbers of common tables


def _after_init(model: Any, inside: Read) -> SumModel | None:
    """Gradient boosting of what another model leaves over, both on rows in float32; None where it starts from a number."""
    if not fits_init(model):
        return None
    stages = StagesAfterInit(model)
    first = _read(inside, model.init_, "init")
    _allow_single_precision(first)
    members, read = [Member("init", first), Member("the trees", stages)], partial(numbers, dtype=np.float32)
    found = ResidualModel(stages.whole, members, stages, read=read)
    found.stages = stages
    return found


def _allow_single_precision(model: Any) -> None:
    """Let a smoother, and smoothers inside a model, stay as far from the solution as float32 leaves an init.

    scikit-learn always hands init its features in float32. The trees show other data: they are fitted to what init itself
    predicts, in float64.
    """
    if hasattr(model, "widest"):
        model.widest = WIDEST_INIT
    for member in getattr(model, "members", ()):
        _allow_single_precision(member.model)


def _calibrated(model: Any, inside: Read) -> SumModel:
    """The mean of calibrated classifiers, each fitted to all folds but its own."""
    return read_ensemble(model, lambda estimator, name: _read(inside, estimator, name))


WRAPPERS: dict[str, Callable[[Any, Read], SumModel | None]] = {
    "VotingRegressor": _voting,
    "VotingClassifier": _voting,
    "StackingRegressor": _stacking,
    "MultiOutputRegressor": _each_output,
    "MultiOutputClassifier": read_exact,
    "OneVsRestClassifier": read_exact,
    "BaggingRegressor": _bagging,
    "BaggingClassifier": _bagging,
    "GradientBoostingRegressor": _after_init,
    "CalibratedClassifierCV": _calibrated,
}


def _read(inside: Read, estimator: Any, name: str, targets: str = "", alone: bool = False) -> Model:
    """The adapter of a model inside; what is refused says which. ``targets``: those of its fit, where its rows were all.

    ``alone``: nothing is added to its predictions, so what explains it explains the whole.
    """
    try:
        found = inside(estimator)
    except UnsupportedModelError as error:
        if error.derivative and alone:
            raise
        instead = error.instead
        if error.derivative:  # of the model inside alone: a sum of such ones is not read
            instead = (
                "The predictions of members are added up, not their scores, and this sum adds up from no score. Fit the whole "
                f"with members that have exact weights, such as forests. Or explain {name} by itself"
            )
            instead += (
                f":\n    axil.Explainer(model.{name}, X, {targets})" if targets else ", on the rows of its own fit."
            )
        raise UnsupportedModelError(
            f"{name}.{error.setting}", error.value, error.reason, instead, error.condition
        ) from None
    if found is None:
        raise UnsupportedModelError(
            name,
            type(estimator).__name__,
            "axil does not read this model, and a sum is exact only where all its members are",
            "Fit it with models that axil reads, or explain the others one by one (estimators_).",
        )
    if getattr(found, "calibration", None) is not None:
        raise UnsupportedModelError(
            name,
            type(estimator).__name__,
            "its probabilities are calibrated by a curve, or divided by their sum, so a sum of them is not linear in the targets",
            "Calibrate the whole: CalibratedClassifierCV(VotingClassifier(...), ensemble=False). Or explain it by itself.",
        )
    if not found.scale.is_identity:
        raise UnsupportedModelError(
            name,
            type(estimator).__name__,
            "it transforms its targets, and a sum of predictions is not linear in targets on several scales",
            "Transform the targets of the whole: TransformedTargetRegressor(VotingRegressor(...), ...).",
        )
    return found
