"""The models inside scikit-learn's models of several others, and the rows of their fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from axil.adapters.contract import TrainingRows
from axil.adapters.members import Member
from axil.adapters.pipeline import calibrates, last_step
from axil.adapters.refusals import refuse
from axil.adapters.searches import is_calibrated_ensemble, kinds_of, unwrapped
from axil.adapters.sklearn.adapter import require_fitted
from axil.adapters.sklearn.base import bagged_numbers, protected_copy, protected_for_arrays
from axil.adapters.sklearn.calibration import MeanOfCurves, ensemble_members, members_on_folds
from axil.adapters.sklearn.draws import sampled_rows, samples_trees, with_sampled_rows
from axil.adapters.sklearn.refusals import CALIBRATION, CLASSES, SMOOTH_REASONS
from axil.adapters.sklearn.side_by_side import Classifiers, classifiers_of
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import AnyArray, FloatArray
from axil.errors import UnsupportedModelError
from axil.inputs.copies import owned

#: scikit-learn's learners whose predictions have derivatives by the targets.
SMOOTH_LEARNERS = {name for name, row in CLASSES.items() if row.reason in SMOOTH_REASONS}


@dataclass(frozen=True)
class ModelsInside:
    """The models inside another, with their shares in the sum or their outputs."""

    whole: ForeignModel
    members: list[Member]  #: ``model`` is a fitted model here, not its adapter
    classes: AnyArray | None  #: of the whole
    n_outputs: int  #: columns of targets: classes, labels or numbers
    explained_text: str  #: what is explained, for the note of tables
    #: whether the members' scores are explained, before what the whole makes of them
    of_scores: bool = False
    #: returns what is explained, by the whole's own account; None: it has none
    predict: Callable[[ForeignObject], ForeignObject] | None = None
    #: returns what the whole makes of rows before it hands them on
    read: Callable[[ForeignObject], ForeignObject] | None = None
    #: notes on the probability beside the score
    calibration: MeanOfCurves | None = None

    def members_on(self, rows: TrainingRows) -> list[Member]:
        """Return the members with the rows of their own fits."""
        if not is_calibrated_ensemble(self.whole):
            return self.members
        return members_on_folds(self.whole, self.members, rows)


def parts_of(model: ForeignModel) -> ModelsInside | None:
    """Return the models inside a fitted one whose sum has derivatives or score contributions.

    None stands for other models. Boosted models side by side are read as one model: see
    `side_by_side`.
    """
    reader = next((_READERS[kind] for kind in kinds_of(model) if kind in _READERS), None)
    if reader is None:
        return None
    require_fitted(model)
    return reader(model)


def voting_members(model: ForeignModel) -> list[Member]:
    """Return the members of a voting model with their shares in the mean."""
    weights = [1.0] * len(model.estimators)
    if model.weights is not None:
        weights = [float(weight) for weight in model.weights]
    used = [
        (name, weight)
        for (name, estimator), weight in zip(model.estimators, weights)
        if not is_dropped(estimator)
    ]
    total = sum(weight for _, weight in used)
    return [
        Member(f"named_estimators_[{name!r}]", estimator, weight / total)
        for (name, weight), estimator in zip(used, model.estimators_)
    ]


def is_dropped(estimator: ForeignModel) -> bool:
    """Return whether a member was left out by its setting."""
    return isinstance(estimator, str) and estimator == "drop"


def bagging_members(model: ForeignModel) -> list[Member]:
    """Return the members of a bagging model with the rows and columns sampled for them."""
    counts_as_weights = _takes_weights(model.estimators_[0])
    # From 1.8 on weights decide which rows are sampled, and nothing else.
    is_drawn_by_weight = hasattr(model, "_sample_weight")
    all_features = np.arange(model.n_features_in_)
    rows_drawn = sampled_rows(with_sampled_rows(model, model.estimators_))
    members = []
    for i, rows in enumerate(rows_drawn):
        features = np.asarray(model.estimators_features_[i])
        if np.array_equal(features, all_features):
            columns = None
        else:
            columns = features
        member = Member(
            f"estimators_[{i}]",
            model.estimators_[i],
            1 / len(model.estimators_),
            columns=columns,
            weighted=not is_drawn_by_weight,
        )
        if counts_as_weights:
            member = replace(member, draws=np.bincount(rows, minlength=model._n_samples))
        else:
            member = replace(member, rows=np.asarray(rows))
        members.append(member)
    return members


def _takes_weights(estimator: ForeignModel) -> bool:
    """Return whether bagging hands a model the sample counts as weights.

    It does not where metadata is routed and none were requested.
    """
    from sklearn import get_config
    from sklearn.utils.metadata_routing import get_routing_for_object
    from sklearn.utils.validation import has_fit_parameter

    if get_config().get("enable_metadata_routing"):
        return bool(get_routing_for_object(estimator).consumes("fit", ("sample_weight",)))
    return bool(has_fit_parameter(estimator, "sample_weight"))


def require_soft_voting(model: ForeignModel) -> None:
    """Raise for a voting classifier that counts votes."""
    if getattr(model, "voting", "soft") != "soft":
        raise UnsupportedModelError(
            "voting",
            model.voting,
            "it predicts the class that most of its members predict, not a mean of their "
            "probabilities",
            'Fit with voting="soft", or explain the members one by one (estimators_).',
            "(ii)",
        )


def _voting(model: ForeignModel) -> ModelsInside:
    require_soft_voting(model)
    return _mean(model, voting_members(model), protected_copy(model))


def _bagging(model: ForeignModel) -> ModelsInside | None:
    if samples_trees(model):
        return None
    mean = _mean(model, bagging_members(model), protected_for_arrays(model))
    return replace(mean, read=bagged_numbers)


def _mean(model: ForeignModel, members: list[Member], protected: ForeignObject) -> ModelsInside:
    """Return the models of a mean of predictions, of classifiers of probabilities."""
    classes = getattr(model, "classes_", None)
    if classes is None:
        return ModelsInside(
            model,
            members,
            None,
            _n_outputs(members[0].model),
            "predictions are means of those of the models inside",
            predict=protected.predict,
        )
    names = owned(np.asarray(classes))
    for member in members:
        _require_probabilities(member, len(names))
    return ModelsInside(
        model,
        members,
        names,
        len(names),
        "predictions are probabilities, means of those of the models inside",
        predict=protected.predict_proba,
    )


def _predictor(model: ForeignModel) -> ForeignObject:
    """Return the model that predicts inside searches and pipelines."""
    model = unwrapped(model)
    last = last_step(model)
    if last is None:
        return model
    return last


def _require_probabilities(member: Member, n_classes: int) -> None:
    """Raise for a classifier whose probabilities follow from several of its scores.

    Raise also for one that lacks some class.
    """
    model: ForeignModel = member.model
    divides_by_sum = "OneVsRestClassifier" in kinds_of(_predictor(model)) and n_classes > 2
    if calibrates(model) or divides_by_sum:
        raise UnsupportedModelError(
            member.name,
            type(model).__name__,
            "its probabilities are calibrated by a curve, or divided by their sum, and "
            "derivatives do not include this step",
            "Calibrate the whole: CalibratedClassifierCV(VotingClassifier(...)). Or explain it by "
            "itself.",
        )
    if len(model.classes_) != n_classes:
        raise UnsupportedModelError(
            member.name,
            type(model).__name__,
            "its rows lack some class",
            "Fit with more rows in each sample, or explain the models of estimators_ one by one.",
        )


def _n_outputs(model: ForeignModel) -> int:
    predictor = _predictor(model)
    n_outputs = getattr(predictor, "n_outputs_", None)
    if n_outputs is None and hasattr(predictor, "coef_") and not hasattr(predictor, "coefs_"):
        if np.ndim(predictor.coef_) == 1:
            n_outputs = 1
        else:
            n_outputs = len(predictor.coef_)
    return int(n_outputs or 1)


def _side_by_side(model: ForeignModel) -> ModelsInside | None:
    """Return models for each class, label or output, some of which have derivatives."""
    classifiers = classifiers_of(model)
    if classifiers is None or not any(_is_smooth(inside) for inside in classifiers.inside):
        return None
    is_binary = len(classifiers.inside) == 1 and classifiers.classes is not None
    members = [
        Member(f"estimators_[{k}]", inside, output=k) for k, inside in enumerate(classifiers.inside)
    ]
    n_outputs = len(members)
    if is_binary:
        members = [replace(members[0], output=None)]
        n_outputs = 2
    explained_text = "each output is predicted by a model of its own"
    if classifiers.classes is not None:
        explained_text = "scores are those of each class against the rest, before they are combined"
    return ModelsInside(
        model,
        members,
        classifiers.classes,
        n_outputs,
        explained_text,
        of_scores=True,
        predict=partial(_scores_of_whole, classifiers),
    )


def _scores_of_whole(classifiers: Classifiers, X: FeatureTable) -> FloatArray | None:
    """Return the scores of the members, (n, K), if the whole model computes them."""
    if not hasattr(classifiers.model, "decision_function"):
        return None
    return np.asarray(classifiers.model.decision_function(X))


def _is_smooth(model: ForeignModel) -> bool:
    return bool(SMOOTH_LEARNERS & set(kinds_of(_predictor(model))))


def _calibrated(model: ForeignModel) -> ModelsInside | None:
    if not is_calibrated_ensemble(model):
        return None
    refuse(CALIBRATION, model)
    names = owned(np.asarray(model.classes_))
    return ModelsInside(
        model,
        ensemble_members(model),
        names,
        len(names),
        MeanOfCurves.notes["derivative"],
        of_scores=True,
        calibration=MeanOfCurves(),
    )


_READERS: dict[str, Callable[[ForeignModel], ModelsInside | None]] = {
    "VotingRegressor": _voting,
    "VotingClassifier": _voting,
    "BaggingRegressor": _bagging,
    "BaggingClassifier": _bagging,
    "OneVsRestClassifier": _side_by_side,
    "MultiOutputClassifier": _side_by_side,
    "MultiOutputRegressor": _side_by_side,
    "CalibratedClassifierCV": _calibrated,
}
