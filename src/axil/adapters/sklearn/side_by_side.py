"""Models side by side, one for each class, label or output: OneVsRestClassifier, MultiOutputClassifier, MultiOutputRegressor.

Each is fitted to targets of its own, so each score or probability is explained by the model of its class. Boosted ones are read
as one model of several outputs, whose trees come one output after the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import BoostedFit, RowGradients, Sampler, Schedule
from axil.adapters.boundary import Around
from axil.adapters.contract import Defaults, GradientTrees, Kind, TrainingRows
from axil.adapters.members import Member, SumModel
from axil.adapters.sklearn.adapter import reader_of
from axil.adapters.sklearn.base import protected_copy, require_no_offsets
from axil.arrays import FloatArray
from axil.errors import UnsupportedModelError
from axil.inputs.copies import owned
from axil.kernels import Backend

Read = Callable[[Any], Any]


@dataclass(frozen=True)
class Normalised:
    """Probabilities of classes against the rest, divided by their sum, as OneVsRestClassifier does."""

    notes: ClassVar[dict[str, str]] = {
        "exact": "probabilities are those of each class against the rest, before they are divided by their sum",
        "additive": "scores are those of each class against the rest, and probabilities are divided by their sum",
    }

    def probabilities(self, scores: FloatArray, means: FloatArray) -> FloatArray:
        """(n, K): from the probabilities of each class."""
        total = means.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(means, total, out=means.copy(), where=total != 0))


@dataclass(frozen=True)
class Classifiers:
    """The classifiers inside, or regressors, and what is made of their probabilities."""

    model: Any
    inside: list[Any]
    classes: NDArray[Any] | None  #: of the whole; None: labels that a row may have several of

    @property
    def normalised(self) -> Normalised | None:
        """The normalisation of their probabilities; None: there is none."""
        return None if self.classes is None or len(self.inside) == 1 else Normalised()

    def refuse(self, what: str) -> UnsupportedModelError:
        """The error for models that are not read together, with the lines that explain one of them."""
        own = "y[:, 0]" if self.classes is None else "(y == model.classes_[0]).astype(int)"
        return UnsupportedModelError(
            "estimator",
            type(self.inside[0]).__name__,
            f"{what}, which is read of one output at a time",
            f"Explain the models inside one by one:\n    axil.Explainer(model.estimators_[0], X, {own})",
        )


def classifiers_of(model: Any) -> Classifiers | None:
    """The classifiers of a fitted model that has one for each class or label, None for any other object."""
    read = reader_of(model, _KINDS)
    return None if read is None else read(model)


def _one_vs_rest(model: Any) -> Classifiers:
    found = Classifiers(
        model,
        list(model.estimators_),
        None if model.multilabel_ else owned(np.asarray(model.classes_)),
    )
    if any(type(part).__name__ == "_ConstantPredictor" for part in found.inside):
        raise found.refuse("a label that all rows or none have")
    return found


def _multi_output(model: Any) -> Classifiers:
    found = Classifiers(model, list(model.estimators_), None)
    if not all(np.array_equal(part.classes_, [0, 1]) for part in found.inside):
        raise found.refuse("an output of other classes than 0 and 1")
    return found


_KINDS: dict[str, Callable[[Any], Classifiers]] = {
    "OneVsRestClassifier": _one_vs_rest,
    "MultiOutputClassifier": _multi_output,
    "MultiOutputRegressor": lambda model: Classifiers(model, list(model.estimators_), None),
}


def read_classifiers(model: Any, inside: Read) -> Any:
    """Return the adapter of classifiers side by side; ``inside`` reads each of them."""
    classifiers = classifiers_of(model)
    assert classifiers is not None
    members = [inside(part) for part in classifiers.inside]
    if any(member is not None and member.kind is Kind.ADDITIVE for member in members):
        return read_scores(classifiers, members)
    return _read_exact(classifiers, members)


def _read_exact(found: Classifiers, members: list[Any]) -> Any:
    """Return the adapter of classifiers with exact weights, from their own adapters."""
    if any(member is None or member.n_outputs != 2 for member in members):
        raise found.refuse("a classifier that is not read by itself")
    if not all(hasattr(part, "predict_proba") for part in found.inside):
        raise found.refuse("a classifier without probabilities")
    if len(members) == 1 and found.classes is not None:
        members[0].classes = found.classes
        return members[0]
    parts = [
        Member(f"estimators_[{k}]", OfSecond(member), output=k) for k, member in enumerate(members)
    ]
    kept = [protected_copy(part) for part in found.inside]
    whole = SumModel(partial(_second, kept), parts, members[0], found.classes)
    whole.calibration = found.normalised
    return whole


def _second(inside: list[Any], X: Any) -> FloatArray:
    """(n, K): the probability of the second class of each classifier."""
    return np.stack([np.asarray(part.predict_proba(X))[:, 1] for part in inside], axis=1)


class OfSecond(Around):
    """The adapter of the second class of two, whose target is one."""

    n_outputs = 1
    classes: NDArray[Any] | None = None

    def __init__(self, inside: Any):
        self._inside = inside

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        return partial(self._read_rows, found) if name == "trees" else found

    def check_kept(self, X: Any, targets: FloatArray, weights: FloatArray | None) -> None:
        """Raise unless the training data are what the model itself keeps of them."""
        self._inside.check_kept(X, _both(targets), weights)

    def _read_rows(
        self, read: Callable[[TrainingRows], list[BoostedFit]], rows: TrainingRows
    ) -> list[BoostedFit]:
        both = replace(rows, targets=_both(rows.targets))
        return [
            replace(
                trees,
                leaf_values=trees.leaf_values[:, 1:],
                base=None if trees.base is None else trees.base[1:],
                base_value=trees.base_value[1:],
            )
            for trees in read(both)
        ]

    def predictions(self, X: Any) -> FloatArray:
        """(n, 1)."""
        return np.asarray(self._inside.predictions(X)[:, 1:])


def _both(targets: FloatArray) -> FloatArray:
    """(N, 2): the targets of both classes, from those of the second."""
    return np.hstack([1 - targets, targets])


def read(model: Any, inside: Read) -> Any:
    """Return the adapter of boosted models side by side, which ``inside`` reads by their gradients; None for other objects."""
    found = classifiers_of(model)
    return None if found is None else read_scores(found, [inside(part) for part in found.inside])


def read_scores(found: Classifiers, members: list[Any]) -> Any:
    """Return the adapter of boosted models side by side, from their own adapters, some of which have no exact weights."""
    if any(member is None or member.n_outputs != 1 for member in members):
        raise found.refuse("a model without trees, or with several scores")
    if any(member.kind is Kind.EXACT for member in members):
        raise found.refuse("settings that differ from output to output")
    not_exact = next((m.not_exact for m in members if m.not_exact is not None), None)
    if len(members) == 1 and found.classes is not None:
        members[0].classes = found.classes
        return members[0]
    if any(member.class_weight is not None for member in members):
        raise found.refuse("class_weight, by which rows weigh otherwise for each class")
    settings = [member.single_output_setting for member in members if member.single_output_setting]
    if settings:
        raise found.refuse(settings[0])
    whole = SideBySide(found, members)  # type: ignore[abstract]  # it has scores, no predictions
    whole.not_exact = not_exact
    return whole


class SideBySide(Defaults, GradientTrees):
    """The adapter of boosted models, each of which has one output."""

    library = "scikit-learn"

    def __init__(self, classifiers: Classifiers, members: list[GradientTrees]):
        self._classifiers, self._members, first = classifiers, members, members[0]
        self.n_features, self.feature_names = first.n_features, first.feature_names
        self.takes_text, self.spelling = first.takes_text, first.spelling  # type: ignore[method-assign]
        self.precision, self.offset_precision = first.precision, first.offset_precision
        self.gradient_tolerance = max(member.gradient_tolerance for member in members)
        self.refused_draws = next(
            (m.refused_draws for m in members if m.refused_draws is not None), None
        )
        self.classes, self.n_outputs, self.calibration = (
            classifiers.classes,
            len(members),
            classifiers.normalised,
        )
        self.encodings = sum(member.encodings for member in members)
        stated = "\n".join(member.fingerprint for member in members)
        self.fingerprint = hashlib.sha256(stated.encode()).hexdigest()
        self._ends: NDArray[np.int64] | None = None  # of each member's trees

    @property
    def routes(self) -> Any:
        """The routes of the first member, as all are alike."""
        return self._members[0].routes

    def coordinates(self, X: Any, n_threads: int = 1) -> NDArray[Any]:
        """(n, T): the leaves, member after member."""
        return np.hstack([member.coordinates(X, n_threads) for member in self._members])

    def leaves(self, X: Any) -> NDArray[Any]:
        """(n, T), by the library's own account."""
        return np.hstack([member.leaves(X) for member in self._members])

    def assign(
        self,
        X: Any,
        out: NDArray[np.unsignedinteger[Any]],
        n_threads: int,
        backend: Backend | None = None,
    ) -> None:
        """Fill ``out`` (T, n) with the leaves."""
        assert self._ends is not None  # trees are read first
        for member, part in zip(self._members, np.split(out, self._ends[:-1])):
            member.assign(X, part, n_threads, backend)

    def scores(self, X: Any) -> FloatArray:
        """(n, K)."""
        return np.hstack([member.scores(X) for member in self._members])

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return the trees of all members; outputs do not see each other, so their iterations follow one another."""
        require_no_offsets(rows)
        fits = []
        for k, member in enumerate(self._members):
            targets = np.ascontiguousarray(rows.targets[:, [k]])
            fits += member.trees(replace(rows, targets=targets, leaves=None))
        self._ends = np.cumsum([len(fit.n_leaves) for fit in fits])
        self._require_alike(fits)
        return [_joined(fits, self._ends)]

    def _require_alike(self, parts: list[BoostedFit]) -> None:
        """Refuse members that differ in more than their trees, or have what belongs to one output alone."""
        for name in _ALONE:
            if any(getattr(part, name) is not None for part in parts):
                raise self._classifiers.refuse(f"trees with {name}")
        if not all(part.schedule.is_plain for part in parts):
            raise self._classifiers.refuse(
                "trees that are scaled again after later ones were fitted"
            )
        first = parts[0]
        for part in parts[1:]:
            same = [getattr(part, name) == getattr(first, name) for name in _SAME]
            same += [
                np.array_equal(getattr(part, name), getattr(first, name)) for name in _SAME_ROWS
            ]
            same.append((part.base is None) == (first.base is None))
            same.append((part.sampler is None) == (first.sampler is None))
            if not all(same):
                raise self._classifiers.refuse(
                    "settings, or rows held out, that differ from output to output"
                )

    def causes(self, what: str) -> str:
        """The most likely reasons for a disagreement."""
        return self._members[0].causes(what)


#: What belongs to the trees of one output; `GradientTrees.single_output_setting` knows the settings that lead to it.
_ALONE = ("leaf_factors", "smoothing", "nodes", "chains", "columns", "placement", "ranks")
_SAME = (
    "loss",
    "l1",
    "max_step",
    "min_hessian",
    "l2_by_weight",
    "score_precision",
    "initial_held",
    "no_derivative",
)
_SAME_ROWS = ("row_weights", "held_out", "recorded_by")
_STACKED = (
    "n_leaves",
    "leaf_values",
    "leaf_counts",
    "leaf_weights",
    "leaf_hessians",
    "l2",
    "base",
    "base_value",
)
_STACKED_BY_LEAF = ("steps", "printed_shift", "value_slack")


class MemberSampler:
    """The samplers of several members, each of which draws for its own trees."""

    def __init__(self, samplers: list[Sampler], ends: NDArray[np.int64]):
        self._samplers = samplers
        self._ends = ends  # (members,) the number of trees up to the end of each member's
        self.name = samplers[0].name
        self.needs_gradients = any(sampler.needs_gradients for sampler in samplers)
        self.dtype: type[np.generic] = np.result_type(*[sampler.dtype for sampler in samplers]).type

    def draw(
        self, trees: range, leaves: NDArray[np.integer[Any]], gradients: RowGradients | None
    ) -> NDArray[Any]:
        """Return how often each row was drawn for these trees of one member, (len(trees), N)."""
        member = int(np.searchsorted(self._ends, trees.start, side="right"))
        first = 0 if member == 0 else int(self._ends[member - 1])
        if gradients is not None:
            output = slice(member, member + 1)
            hessians = None if gradients.hessians is None else gradients.hessians[:, output]
            gradients = RowGradients(gradients.negative[:, output], hessians)
        return self._samplers[member].draw(
            range(trees.start - first, trees.stop - first), leaves, gradients
        )


def _joined(parts: list[BoostedFit], ends: NDArray[np.int64]) -> BoostedFit:
    """Return the trees of all members, one member after the other, as one fit with an output for each."""

    def stacked(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return None if any(value is None for value in values) else np.concatenate(values)

    def stacked_by_leaf(name: str) -> Any:
        values = [np.broadcast_to(getattr(part, name), len(part.leaf_values)) for part in parts]
        return np.concatenate(values)

    samplers = [part.sampler for part in parts if part.sampler is not None]
    first_rounds = np.cumsum([0, *(part.schedule.n_rounds for part in parts)])
    schedule = Schedule(
        learning_rates=np.concatenate([part.learning_rates for part in parts]),
        rounds=np.concatenate(
            [part.schedule.rounds + first for part, first in zip(parts, first_rounds)]
        ),
        outputs=np.repeat(np.arange(len(parts)), np.diff(ends, prepend=0)),
    )
    return replace(
        parts[0],
        **{name: stacked(name) for name in _STACKED},
        **{name: stacked_by_leaf(name) for name in _STACKED_BY_LEAF},
        schedule=schedule,
        sampler=MemberSampler(samplers, ends) if samplers else None,
        explain_mismatch=None,
    )
