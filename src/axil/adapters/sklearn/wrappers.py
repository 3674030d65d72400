"""scikit-learn's models of several others: voting, bagging, one model for each output, boosting after another model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from axil.adapters.contract import Kind, Model
from axil.adapters.members import Member, ResidualModel, SumModel
from axil.adapters.refusals import refuse
from axil.adapters.searches import unwrapped
from axil.adapters.sklearn.adapter import reader_of
from axil.adapters.sklearn.base import (
    SklearnAdapter,
    bagged_numbers,
    numbers,
    protected_copy,
    protected_for_arrays,
)
from axil.adapters.sklearn.boosting import StagesAfterInit
from axil.adapters.sklearn.calibration import CalibratedEnsemble, ensemble_members
from axil.adapters.sklearn.parts import (
    bagging_members,
    is_dropped,
    require_soft_voting,
    voting_members,
)
from axil.adapters.sklearn.refusals import CALIBRATION, fits_init
from axil.adapters.sklearn.side_by_side import classifiers_of, read_classifiers, read_scores
from axil.arrays import FloatArray
from axil.errors import ExactnessError, InputError, UnsupportedModelError
from axil.inputs.copies import owned

SAME = 1e-9  # of a row's chance to be drawn
Read = Callable[[Any], Model | None]  # from a model inside to its adapter, whatever its library


def read(model: Any, inside: Read) -> SumModel | None:
    """The adapter for such a model, None for any other object; ``inside`` reads the models that it consists of."""
    reader = reader_of(model, WRAPPERS)
    return None if reader is None else reader(model, inside)


def _voting(model: Any, inside: Read) -> SumModel:
    """The mean of the members' predictions, or of their probabilities, by the weights."""
    require_soft_voting(model)
    members = _read_members(inside, voting_members(model))
    classes, kept = getattr(model, "classes_", None), protected_copy(model)
    predict = kept.predict if classes is None else kept.predict_proba
    return SumModel(
        predict, members, members[0].model, None if classes is None else owned(np.asarray(classes))
    )


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
    used = [name for name, part in model.estimators if not is_dropped(part)]
    members = [
        Member(
            name, _read(inside, estimator, f"named_estimators_[{name!r}]", "y"), float(coefficient)
        )
        for name, estimator, coefficient in zip(used, model.estimators_, coefficients, strict=True)
    ]
    return SumModel(
        protected_copy(model).predict,
        members,
        members[0].model,
        constant=float(np.ravel(last.intercept_)[0]),
    )


def _each_output(model: Any, inside: Read) -> Any:
    """Return the adapter of a model for each output, side by side."""
    adapters = [
        _read(inside, estimator, f"estimators_[{k}]", takes_derivatives=True, takes_scores=True)
        for k, estimator in enumerate(model.estimators_)
    ]
    if any(adapter.kind is Kind.ADDITIVE for adapter in adapters):
        classifiers = classifiers_of(model)
        assert classifiers is not None
        return read_scores(classifiers, adapters)
    members = [Member(f"output {k}", adapter, output=k) for k, adapter in enumerate(adapters)]
    return SumModel(protected_copy(model).predict, members, members[0].model)


class BaggingModel(SumModel):
    """Bagging, which from scikit-learn 1.8 on keeps the sample weights."""

    kept_weights: FloatArray | None = None  #: (N,)
    keeps_weights = False  #: whether rows were drawn in proportion to their weights, which have no other use then

    def check_kept(self, X: Any, targets: FloatArray, weights: FloatArray | None) -> None:
        """Raise unless the weights are those that the rows were drawn by: nothing else would show it."""
        kept = self.kept_weights
        if not self.keeps_weights or (kept is None and (weights is None or np.ptp(weights) == 0)):
            return
        if kept is None:
            raise InputError("This model was fitted without sample_weight: leave it out.")
        if weights is None:
            raise InputError(
                "The rows of this model's bags were drawn by sample_weight: pass the same."
            )
        found, expected = weights / weights.sum(), kept / kept.sum()
        for row in np.flatnonzero(~(np.abs(found - expected) <= SAME * expected))[:1]:
            cause = "sample_weight is not what the fit was given: pass the same weights, in the order of the rows."
            what = f"chance of training row {row} (from 0) to be drawn"
            raise ExactnessError(what, float(found[row]), float(expected[row]), cause)


def _bagging(model: Any, inside: Read) -> SumModel:
    """The mean of models fitted to rows and columns that were drawn."""
    outer = SklearnAdapter(model)  # type: ignore[abstract]  # its columns alone are meant
    classes = getattr(model, "classes_", None)
    if classes is not None and not hasattr(model.estimators_[0], "predict_proba"):
        raise UnsupportedModelError(
            "estimator",
            type(model.estimators_[0]).__name__,
            "it has no probabilities, so its bags vote for classes",
            "Bag classifiers that have predict_proba, or explain the models of estimators_ one by one.",
            "(ii)",
        )
    members = _read_members(inside, bagging_members(model))
    for member, estimator in zip(members, model.estimators_):
        if classes is not None and member.model.n_outputs != len(classes):
            raise UnsupportedModelError(
                "estimator",
                type(estimator).__name__,
                "one of its bags lacks some class, and axil reads such bags of trees alone",
                "Fit with more rows in each bag, or explain the models of estimators_ one by one.",
            )
    kept = protected_for_arrays(model)
    predict = kept.predict if classes is None else kept.predict_proba
    names, read = None if classes is None else owned(np.asarray(classes)), bagged_numbers
    found = BaggingModel(predict, members, outer, names, read=read)
    found.fitted_rows = int(model._n_samples)
    # From 1.8 on weights decide what is drawn, and nothing else.
    found.keeps_weights = hasattr(model, "_sample_weight")
    weights = getattr(model, "_sample_weight", None)
    found.kept_weights = None if weights is None else owned(np.asarray(weights, dtype=np.float64))
    return found


WIDEST_INIT = (
    1e-3  # of predictions of an init: float32 times the condition numbers of common tables
)


def _after_init(model: Any, inside: Read) -> SumModel | None:
    """Gradient boosting of what another model leaves over, both on rows in float32; None where it starts from a number."""
    if not fits_init(model):
        return None
    stages = StagesAfterInit(model)
    first = _read(inside, model.init_, "init")
    _allow_single_precision(first)
    members, read = (
        [Member("init", first), Member("the trees", stages)],
        partial(numbers, dtype=np.float32),
    )
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
    refuse(CALIBRATION, model)
    members = _read_members(inside, ensemble_members(model))
    return CalibratedEnsemble(model, members, members[0].model)


WRAPPERS: dict[str, Callable[[Any, Read], SumModel | None]] = {
    "VotingRegressor": _voting,
    "VotingClassifier": _voting,
    "StackingRegressor": _stacking,
    "MultiOutputRegressor": _each_output,
    "MultiOutputClassifier": read_classifiers,
    "OneVsRestClassifier": read_classifiers,
    "BaggingRegressor": _bagging,
    "BaggingClassifier": _bagging,
    "GradientBoostingRegressor": _after_init,
    "CalibratedClassifierCV": _calibrated,
}


def _read_members(inside: Read, members: list[Member]) -> list[Member]:
    """Return the members with their adapters.

    A member that axil cannot explain at all is told before one that only lacks exact weights.
    """
    found = []
    without_weights: UnsupportedModelError | None = None
    for member in members:
        try:
            found.append(
                replace(
                    member, model=_read(inside, member.model, member.name, takes_derivatives=True)
                )
            )
        except UnsupportedModelError as error:
            if not error.derivative:
                raise
            without_weights = without_weights or error
    if without_weights is not None:
        raise without_weights
    return found


def _read(
    inside: Read,
    estimator: Any,
    name: str,
    targets: str = "",
    takes_derivatives: bool = False,
    takes_scores: bool = False,
) -> Model:
    """Return the adapter of a model inside; what is refused says which.

    Parameters
    ----------
    inside : callable
        From a model to its adapter.
    estimator : fitted model
        The model inside.
    name : str
        What the whole model calls it.
    targets : str
        The targets of its fit, in Python, where its rows were all rows.
    takes_derivatives : bool
        Whether the whole is also explained by members without exact weights; see `parts`.
    takes_scores : bool
        Whether boosted trees without exact weights are returned too, with the reason in ``not_exact``.
    """
    try:
        found = inside(estimator)
    except UnsupportedModelError as error:
        raise _error_of(error, name, targets, takes_derivatives) from None
    if found is not None and found.not_exact is not None:
        found.not_exact = _error_of(found.not_exact, name, targets, takes_derivatives)
        if not takes_scores:
            raise found.not_exact
        return found
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


def _error_of(
    error: UnsupportedModelError, name: str, targets: str, takes_derivatives: bool
) -> UnsupportedModelError:
    """Return the error of a model inside as one of the whole; for the parameters see `_read`."""
    instead, derivative = error.instead, error.derivative and takes_derivatives
    if error.derivative and not takes_derivatives:
        explained = (
            f":\n    axil.Explainer(model.{name}, X, {targets})"
            if targets
            else ", on the rows of its own fit."
        )
        instead = (
            "The sum of these members' predictions is not explained. Fit the whole with members that have exact weights, "
            f"such as forests. Or explain {name} by itself{explained}"
        )
    setting = f"{name}.{error.setting}"
    return UnsupportedModelError(
        setting, error.value, error.reason, instead, error.condition, derivative
    )
