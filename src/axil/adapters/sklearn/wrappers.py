"""scikit-learn's models of several others.

These are voting, stacking, bagging, calibrated ensembles, one model for each output, and boosting
after another model.
"""

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
from axil.adapters.sklearn.side_by_side import (
    Read,
    classifiers_of,
    read_classifiers,
    read_scores,
)
from axil.aliases import FeatureTable, ForeignModel
from axil.arrays import AnyArray, FloatArray
from axil.errors import ExactnessError, InputError, UnsupportedModelError
from axil.inputs.copies import owned

SAME_CHANCE = 1e-9  # relative difference of a row's chances to be sampled
#: The ``widest`` of an init: float32 times the condition numbers of common tables.
WIDEST_INIT = 1e-3


def read(model: ForeignModel, inside: Read) -> Model | None:
    """Return the adapter for such a model, None for any other object.

    ``inside`` reads the models that it consists of.
    """
    reader = reader_of(model, WRAPPERS)
    if reader is None:
        return None
    return reader(model, inside)


def _classes_of(model: ForeignModel) -> AnyArray | None:
    """Return the names of a model's classes; None for regressors."""
    classes = getattr(model, "classes_", None)
    if classes is None:
        return None
    return owned(np.asarray(classes))


def _voting(model: ForeignModel, inside: Read) -> SumModel:
    """Return the adapter of the weighted mean of the members' predictions, or probabilities."""
    require_soft_voting(model)
    members = _read_members(inside, voting_members(model))
    classes = _classes_of(model)
    protected = protected_copy(model)
    if classes is None:
        predict = protected.predict
    else:
        predict = protected.predict_proba
    return SumModel(predict, members, members[0].model, classes)


def _stacking(model: ForeignModel, inside: Read) -> SumModel:
    """Return the adapter of members whose predictions a linear last model combines.

    Its coefficients stay fixed, as splits do. They were fitted to predictions of folds that cannot
    be sampled again, so they are read and not verified.
    """
    last = unwrapped(model.final_estimator_)
    coefficients = np.asarray(getattr(last, "coef_", np.zeros((0, 0))), dtype=np.float64)
    if coefficients.ndim != 1 or not hasattr(last, "intercept_"):
        raise UnsupportedModelError(
            "final_estimator",
            type(last).__name__,
            "predictions are no linear function of those of the models inside",
            "Fit with a linear final_estimator, such as RidgeCV, the default; or explain a model "
            "inside (estimators_).",
            "(ii)",
        )
    if model.passthrough:
        raise UnsupportedModelError(
            "passthrough",
            True,
            "the final estimator uses the features as well, and axil does not read that part",
            "Fit with passthrough=False.",
        )
    names = [name for name, estimator in model.estimators if not is_dropped(estimator)]
    members = []
    for name, estimator, share in zip(names, model.estimators_, coefficients, strict=True):
        adapter = _read(inside, estimator, f"named_estimators_[{name!r}]", "y")
        members.append(Member(name, adapter, float(share)))
    intercept = float(np.ravel(last.intercept_)[0])
    return SumModel(protected_copy(model).predict, members, members[0].model, constant=intercept)


def _each_output(model: ForeignModel, inside: Read) -> Model:
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
    """Bagging, which from scikit-learn 1.8 on stores the sample weights."""

    stored_weights: FloatArray | None = None  #: (N,)
    #: whether rows were sampled in proportion to their weights, which have no other use then
    draws_by_weight = False

    def check_kept(self, X: FeatureTable, targets: FloatArray, weights: FloatArray | None) -> None:
        """Raise unless the weights are those that the rows were sampled by.

        Nothing else would show it.
        """
        if not self.draws_by_weight:
            return
        if self.stored_weights is None:
            if weights is not None and np.ptp(weights) != 0:
                raise InputError("This model was fitted without sample_weight: leave it out.")
            return
        if weights is None:
            raise InputError("This model sampled its rows by sample_weight: pass the same weights.")
        chances = weights / weights.sum()
        expected = self.stored_weights / self.stored_weights.sum()
        differs = ~(np.abs(chances - expected) <= SAME_CHANCE * expected)
        for row in np.flatnonzero(differs)[:1]:
            raise ExactnessError(
                f"chance of training row {row} (from 0) to be sampled",
                float(chances[row]),
                float(expected[row]),
                "sample_weight is not what the fit was given: pass the same weights, in the order "
                "of the rows.",
            )


def _bagging(model: ForeignModel, inside: Read) -> SumModel:
    """Return the adapter of the mean of models fitted to rows and columns that were sampled."""
    columns = SklearnAdapter(model)  # type: ignore[abstract]  # its columns alone are meant
    classes = _classes_of(model)
    if classes is not None and not hasattr(model.estimators_[0], "predict_proba"):
        raise UnsupportedModelError(
            "estimator",
            type(model.estimators_[0]).__name__,
            "it has no probabilities, so its members vote for classes",
            "Use classifiers that have predict_proba, or explain the models of estimators_ one by "
            "one.",
            "(ii)",
        )
    members = _read_members(inside, bagging_members(model))
    for member, estimator in zip(members, model.estimators_):
        if classes is not None and member.model.n_outputs != len(classes):
            raise UnsupportedModelError(
                "estimator",
                type(estimator).__name__,
                "one of its samples lacks some class, which axil supports for trees alone",
                "Fit with more rows in each sample, or explain the models of estimators_ one by "
                "one.",
            )
    protected = protected_for_arrays(model)
    if classes is None:
        predict = protected.predict
    else:
        predict = protected.predict_proba
    whole = BaggingModel(predict, members, columns, classes, read=bagged_numbers)
    whole.fitted_rows = int(model._n_samples)
    # From 1.8 on weights decide what is sampled, and nothing else.
    whole.draws_by_weight = hasattr(model, "_sample_weight")
    weights = getattr(model, "_sample_weight", None)
    if weights is not None:
        whole.stored_weights = owned(np.asarray(weights, dtype=np.float64))
    return whole


def _after_init(model: ForeignModel, inside: Read) -> SumModel | None:
    """Return the adapter of gradient boosting on the residuals of another model.

    Both take rows in float32. None stands for boosting that starts from a number.
    """
    if not fits_init(model):
        return None
    stages = StagesAfterInit(model)
    initial = _read(inside, model.init_, "init")
    _allow_single_precision(initial)
    members = [Member("init", initial), Member("the trees", stages)]
    read_rows = partial(numbers, dtype=np.float32)
    whole = ResidualModel(stages.whole, members, stages, read=read_rows)
    whole.stages = stages
    return whole


def _allow_single_precision(model: ForeignModel) -> None:
    """Allow smoothers inside a model the solver error of float32, in which an init is fitted.

    scikit-learn always hands init its features in float32. The trees show other data: they are
    fitted to what init itself predicts, in float64.
    """
    if hasattr(model, "widest"):
        model.widest = WIDEST_INIT
    for member in getattr(model, "members", ()):
        _allow_single_precision(member.model)


def _calibrated(model: ForeignModel, inside: Read) -> SumModel:
    """Return the adapter of the mean of calibrated classifiers.

    Each is fitted to all folds but its own.
    """
    refuse(CALIBRATION, model)
    members = _read_members(inside, ensemble_members(model))
    return CalibratedEnsemble(model, members, members[0].model)


WRAPPERS: dict[str, Callable[[Any, Read], Model | None]] = {
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

    The error for a member that axil cannot explain at all comes before the error for one that only
    lacks exact weights.
    """
    read_members = []
    without_weights: UnsupportedModelError | None = None
    for member in members:
        try:
            adapter = _read(inside, member.model, member.name, takes_derivatives=True)
        except UnsupportedModelError as error:
            if not error.derivative:
                raise
            without_weights = without_weights or error
        else:
            read_members.append(replace(member, model=adapter))
    if without_weights is not None:
        raise without_weights
    return read_members


def _read(
    inside: Read,
    estimator: ForeignModel,
    name: str,
    targets: str = "",
    takes_derivatives: bool = False,
    takes_scores: bool = False,
) -> Model:
    """Return the adapter of a model inside; errors name it.

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
        Whether boosted trees without exact weights are returned too, with the reason in
        ``not_exact``.
    """
    try:
        adapter = inside(estimator)
    except UnsupportedModelError as error:
        raise _error_of(error, name, targets, takes_derivatives) from None
    if adapter is None:
        raise UnsupportedModelError(
            name,
            type(estimator).__name__,
            "axil does not read this model, and a sum is exact only where all its members are",
            "Fit it with models that axil reads, or explain the others one by one (estimators_).",
        )
    if adapter.not_exact is not None:
        adapter.not_exact = _error_of(adapter.not_exact, name, targets, takes_derivatives)
        if not takes_scores:
            raise adapter.not_exact
        return adapter
    if getattr(adapter, "calibration", None) is not None:
        raise UnsupportedModelError(
            name,
            type(estimator).__name__,
            "its probabilities are calibrated by a curve, or divided by their sum, so a sum of "
            "them is not linear in the targets",
            "Calibrate the whole: CalibratedClassifierCV(VotingClassifier(...), ensemble=False). "
            "Or explain it by itself.",
        )
    if not adapter.scale.is_identity:
        raise UnsupportedModelError(
            name,
            type(estimator).__name__,
            "it transforms its targets, and a sum of predictions is not linear in targets on "
            "several scales",
            "Transform the targets of the whole: "
            "TransformedTargetRegressor(VotingRegressor(...), ...).",
        )
    return adapter


def _error_of(
    error: UnsupportedModelError, name: str, targets: str, takes_derivatives: bool
) -> UnsupportedModelError:
    """Return the error of a model inside as one of the whole; for the parameters see `_read`."""
    instead = error.instead
    if error.derivative and not takes_derivatives:
        explained = ", on the rows of its own fit."
        if targets:
            explained = f":\n    axil.Explainer(model.{name}, X, {targets})"
        instead = (
            "The sum of these members' predictions is not explained. Fit the whole with members "
            f"that have exact weights, such as forests. Or explain {name} by itself{explained}"
        )
    return UnsupportedModelError(
        f"{name}.{error.setting}",
        error.value,
        error.reason,
        instead,
        error.condition,
        error.derivative and takes_derivatives,
    )
