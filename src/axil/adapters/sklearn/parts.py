"""The models inside scikit-learn's models of several others, and what each of their fits was given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.contract import TrainingRows
from axil.adapters.members import Member
from axil.adapters.pipeline import calibrates, last_step
from axil.adapters.refusals import refuse
from axil.adapters.searches import is_calibrated_ensemble, kinds_of, unwrapped
from axil.adapters.sklearn.adapter import require_fitted
from axil.adapters.sklearn.base import bagged_numbers, protected_copy, protected_for_arrays
from axil.adapters.sklearn.calibration import MeanOfCurves, ensemble_members, members_on_folds
from axil.adapters.sklearn.draws import bags, bags_trees, with_bags
from axil.adapters.sklearn.refusals import CALIBRATION, CLASSES, SMOOTH_REASONS
from axil.adapters.sklearn.side_by_side import Classifiers, classifiers_of
from axil.arrays import FloatArray
from axil.errors import UnsupportedModelError
from axil.inputs.copies import owned

#: scikit-learn's smooth learners, whose predictions have derivatives.
SMOOTH = {name for name, why in CLASSES.items() if why.reason in SMOOTH_REASONS}


@dataclass(frozen=True)
class ModelsInside:
    """The models inside another, each with its share in the sum, or the output that it alone predicts."""

    whole: Any
    members: list[Member]  #: ``model`` is a fitted model here, not its adapter
    classes: NDArray[Any] | None  #: of the whole
    n_outputs: int  #: columns of targets: classes, labels or numbers
    about: str  #: what is explained, for the note of tables
    of_scores: bool = (
        False  #: whether the members' scores are explained, before what the whole makes of them
    )
    predict: Callable[[Any], Any] | None = (
        None  #: what is explained, by the whole's own account; None: it has none
    )
    read: Callable[[Any], Any] | None = (
        None  #: what the whole makes of rows before it hands them on
    )
    calibration: Any = None  #: notes on the probability beside the score

    def members_on(self, rows: TrainingRows) -> list[Member]:
        """Return the members with the rows of their own fits."""
        if not is_calibrated_ensemble(self.whole):
            return self.members
        return members_on_folds(self.whole, self.members, rows)


def parts_of(model: Any) -> ModelsInside | None:
    """Return the models inside a fitted one whose sum has derivatives or score contributions; None for other models.

    Boosted models side by side are read as one model: see `side_by_side`.
    """
    reader = next((_PARTS[kind] for kind in kinds_of(model) if kind in _PARTS), None)
    if reader is None:
        return None
    require_fitted(model)
    return reader(model)


def voting_members(model: Any) -> list[Member]:
    """Return the members of a voting model with their shares in the mean."""
    used = [
        (name, weight)
        for (name, part), weight in zip(model.estimators, _weights(model))
        if not is_dropped(part)
    ]
    total = sum(weight for _, weight in used)
    return [
        Member(f"named_estimators_[{name!r}]", estimator, weight / total)
        for (name, weight), estimator in zip(used, model.estimators_)
    ]


def _weights(model: Any) -> list[float]:
    return (
        [1.0] * len(model.estimators)
        if model.weights is None
        else [float(weight) for weight in model.weights]
    )


def is_dropped(estimator: Any) -> bool:
    """Return whether a member was left out by its setting."""
    return isinstance(estimator, str) and estimator == "drop"


def bagging_members(model: Any) -> list[Member]:
    """Return the members of a bagging model with the rows and columns that were drawn for them."""
    by_weight = _takes_weights(model.estimators_[0])
    drawn_by_weight = hasattr(
        model, "_sample_weight"
    )  # from 1.8 on weights decide what is drawn, and nothing else
    every = np.arange(model.n_features_in_)
    members = []
    for i, (estimator, features, bag) in enumerate(
        zip(
            model.estimators_, model.estimators_features_, bags(with_bags(model, model.estimators_))
        )
    ):
        members.append(
            Member(
                f"estimators_[{i}]",
                estimator,
                1 / len(model.estimators_),
                columns=None if np.array_equal(features, every) else np.asarray(features),
                rows=None if by_weight else np.asarray(bag),
                draws=np.bincount(bag, minlength=model._n_samples) if by_weight else None,
                weighted=not drawn_by_weight,
            )
        )
    return members


def _takes_weights(estimator: Any) -> bool:
    """Whether bagging hands a model the draws as weights: it does not where metadata is routed and none were requested."""
    from sklearn import get_config
    from sklearn.utils.metadata_routing import get_routing_for_object
    from sklearn.utils.validation import has_fit_parameter

    if get_config().get("enable_metadata_routing"):
        return bool(get_routing_for_object(estimator).consumes("fit", ("sample_weight",)))
    return bool(has_fit_parameter(estimator, "sample_weight"))


def require_soft_voting(model: Any) -> None:
    """Raise for a voting classifier that counts votes."""
    if getattr(model, "voting", "soft") != "soft":
        raise UnsupportedModelError(
            "voting",
            model.voting,
            "it predicts the class that most of its members predict, not a mean of their probabilities",
            'Fit with voting="soft", or explain the members one by one (estimators_).',
            "(ii)",
        )


def _voting(model: Any) -> ModelsInside:
    require_soft_voting(model)
    return _mean(model, voting_members(model), protected_copy(model))


def _bagging(model: Any) -> ModelsInside | None:
    if bags_trees(model):
        return None
    kept = protected_for_arrays(model)
    return replace(_mean(model, bagging_members(model), kept), read=bagged_numbers)


def _mean(model: Any, members: list[Member], kept: Any) -> ModelsInside:
    """The mean of the members' predictions, of classifiers their probabilities."""
    classes = getattr(model, "classes_", None)
    if classes is None:
        about = "predictions are means of those of the models inside"
        return ModelsInside(
            model, members, None, _n_outputs(members[0].model), about, predict=kept.predict
        )
    about = "predictions are probabilities, means of those of the models inside"
    names = owned(np.asarray(classes))
    for member in members:
        _require_probabilities(member, len(names))
    return ModelsInside(model, members, names, len(names), about, predict=kept.predict_proba)


def _require_probabilities(member: Member, n_classes: int) -> None:
    """Raise for a classifier whose probabilities follow from several of its scores, or that lacks some class."""
    model: Any = member.model
    last = last_step(unwrapped(model))
    divides = {"OneVsRestClassifier"} & set(kinds_of(unwrapped(model) if last is None else last))
    if calibrates(model) or (divides and n_classes > 2):
        raise UnsupportedModelError(
            member.name,
            type(model).__name__,
            "its probabilities are calibrated by a curve, or divided by their sum, which derivatives do not know",
            "Calibrate the whole: CalibratedClassifierCV(VotingClassifier(...)). Or explain it by itself.",
        )
    if len(model.classes_) != n_classes:
        raise UnsupportedModelError(
            member.name,
            type(model).__name__,
            "its rows lack some class",
            "Fit with more rows in each bag, or explain the models of estimators_ one by one.",
        )


def _n_outputs(model: Any) -> int:
    last = last_step(unwrapped(model))
    last = unwrapped(model) if last is None else last
    found = getattr(last, "n_outputs_", None)
    if found is None and hasattr(last, "coef_") and not hasattr(last, "coefs_"):
        found = 1 if np.ndim(last.coef_) == 1 else len(last.coef_)
    return int(found or 1)


def _side_by_side(model: Any) -> ModelsInside | None:
    """Models for each class, label or output, some of which are smooth learners."""
    found = classifiers_of(model)
    if found is None or not any(_is_smooth(part) for part in found.inside):
        return None
    output = None if len(found.inside) == 1 and found.classes is not None else 0
    members = [
        Member(f"estimators_[{k}]", part, output=None if output is None else k)
        for k, part in enumerate(found.inside)
    ]
    n_outputs = 2 if output is None else len(members)
    about = (
        "scores are those of each class against the rest, before anything is made of all of them"
    )
    if found.classes is None:
        about = "each output is predicted by a model of its own"
    return ModelsInside(
        model,
        members,
        found.classes,
        n_outputs,
        about,
        of_scores=True,
        predict=partial(_own_scores, found),
    )


def _own_scores(found: Classifiers, X: Any) -> FloatArray | None:
    """Return the scores (n, K) of the models inside by the whole's account, where it has one."""
    if not hasattr(found.model, "decision_function"):
        return None
    return np.asarray(found.model.decision_function(X))


def _is_smooth(model: Any) -> bool:
    model = unwrapped(model)
    last = last_step(model)
    return bool(SMOOTH & set(kinds_of(model if last is None else last)))


def _calibrated(model: Any) -> ModelsInside | None:
    if not is_calibrated_ensemble(model):
        return None
    refuse(CALIBRATION, model)
    names, members = owned(np.asarray(model.classes_)), ensemble_members(model)
    about = MeanOfCurves.notes["derivative"]
    return ModelsInside(
        model, members, names, len(names), about, of_scores=True, calibration=MeanOfCurves()
    )


_PARTS: dict[str, Callable[[Any], ModelsInside | None]] = {
    "VotingRegressor": _voting,
    "VotingClassifier": _voting,
    "BaggingRegressor": _bagging,
    "BaggingClassifier": _bagging,
    "OneVsRestClassifier": _side_by_side,
    "MultiOutputClassifier": _side_by_side,
    "MultiOutputRegressor": _side_by_side,
    "CalibratedClassifierCV": _calibrated,
}
