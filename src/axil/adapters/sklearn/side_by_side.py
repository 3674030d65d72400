"""Models side by side, one for each class, label or output.

These are OneVsRestClassifier, MultiOutputClassifier and MultiOutputRegressor. Each model inside is
fitted to targets of its own, so each score or probability is explained by the model of its class.
Boosted ones are read as one model of several outputs, whose trees come one output after the other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from axil.adapters.boosted_fit import BoostedFit, RowGradients, Sampler, Schedule, TreeTable
from axil.adapters.boundary import Around
from axil.adapters.contract import Adapter, Defaults, Kind, Model, TrainingRows
from axil.adapters.members import Member, SumModel
from axil.adapters.routes import FeatureTests, Routes, Ways
from axil.adapters.sklearn.adapter import reader_of
from axil.adapters.sklearn.base import protected_copy, require_no_offsets
from axil.aliases import FeatureTable, ForeignModel, ForeignObject, TableLike
from axil.arrays import AnyArray, Cells, FloatArray, LeafArray
from axil.errors import UnsupportedModelError
from axil.inputs.copies import owned
from axil.kernels import Backend

Number = TypeVar("Number", bound=np.generic)

#: From a model inside to its adapter, whatever its library.
Read = Callable[[ForeignModel], Model | None]


@dataclass(frozen=True)
class Normalised:
    """Probabilities of classes against the rest, divided by their sum (OneVsRestClassifier)."""

    notes: ClassVar[dict[str, str]] = {
        "exact": "probabilities are those of each class against the rest, before they are divided "
        "by their sum",
        "additive": "scores are those of each class against the rest, and probabilities are "
        "divided by their sum",
    }

    def probabilities(self, scores: FloatArray, means: FloatArray) -> FloatArray:
        """Return probabilities, (n, K), from those of each class against the rest."""
        total = means.sum(axis=1, keepdims=True)
        return np.asarray(np.divide(means, total, out=means.copy(), where=total != 0))


@dataclass(frozen=True)
class Classifiers:
    """The classifiers inside a model, or its regressors."""

    model: ForeignModel
    inside: list[ForeignObject]
    classes: AnyArray | None  #: of the whole; None: labels that a row may have several of

    @property
    def normalised(self) -> Normalised | None:
        """Return the normalisation of their probabilities; None if there is none."""
        if self.classes is None or len(self.inside) == 1:
            return None
        return Normalised()

    def refuse(self, reason: str) -> UnsupportedModelError:
        """Return the error for models that are not read together.

        It has the lines that explain one of them.
        """
        targets = "y[:, 0]"
        if self.classes is not None:
            targets = "(y == model.classes_[0]).astype(int)"
        return UnsupportedModelError(
            "estimator",
            type(self.inside[0]).__name__,
            f"{reason}, and axil reads such models one output at a time",
            "Explain the models inside one by one:\n"
            f"    axil.Explainer(model.estimators_[0], X, {targets})",
        )


def classifiers_of(model: ForeignModel) -> Classifiers | None:
    """Return the models inside one that has a model for each class, label or output.

    None stands for any other object.
    """
    reader = reader_of(model, _READERS)
    if reader is None:
        return None
    return reader(model)


def _one_vs_rest(model: ForeignModel) -> Classifiers:
    if model.multilabel_:
        names = None
    else:
        names = owned(np.asarray(model.classes_))
    classifiers = Classifiers(model, list(model.estimators_), names)
    if any(type(inside).__name__ == "_ConstantPredictor" for inside in classifiers.inside):
        raise classifiers.refuse("a label that all rows or none have")
    return classifiers


def _multi_output(model: ForeignModel) -> Classifiers:
    classifiers = Classifiers(model, list(model.estimators_), None)
    if not all(np.array_equal(inside.classes_, [0, 1]) for inside in classifiers.inside):
        raise classifiers.refuse("an output of other classes than 0 and 1")
    return classifiers


_READERS: dict[str, Callable[[ForeignModel], Classifiers]] = {
    "OneVsRestClassifier": _one_vs_rest,
    "MultiOutputClassifier": _multi_output,
    "MultiOutputRegressor": lambda model: Classifiers(model, list(model.estimators_), None),
}


def read_classifiers(model: ForeignModel, inside: Read) -> Model:
    """Return the adapter of classifiers side by side; ``inside`` reads each of them."""
    classifiers = classifiers_of(model)
    assert classifiers is not None
    members = [inside(classifier) for classifier in classifiers.inside]
    if any(member is not None and member.kind is Kind.ADDITIVE for member in members):
        return read_scores(classifiers, members)
    return _read_exact(classifiers, members)


def _read_exact(classifiers: Classifiers, members: Sequence[Model | None]) -> Model:
    """Return the adapter of classifiers with exact weights, from their own adapters."""
    adapters = [member for member in members if member is not None and member.n_outputs == 2]
    if len(adapters) < len(members):
        raise classifiers.refuse("a classifier that is not read by itself")
    if not all(hasattr(classifier, "predict_proba") for classifier in classifiers.inside):
        raise classifiers.refuse("a classifier without probabilities")
    if len(adapters) == 1 and classifiers.classes is not None:
        adapters[0].classes = classifiers.classes
        return adapters[0]
    outputs = [
        Member(f"estimators_[{k}]", OfSecond(adapter), output=k)
        for k, adapter in enumerate(adapters)
    ]
    predict = partial(_second, [protected_copy(classifier) for classifier in classifiers.inside])
    whole = SumModel(predict, outputs, adapters[0], classifiers.classes)
    whole.calibration = classifiers.normalised
    return whole


def _second(classifiers: list[ForeignObject], X: FeatureTable) -> FloatArray:
    """Return the probability of the second class of each classifier, (n, K)."""
    return np.stack([np.asarray(inside.predict_proba(X))[:, 1] for inside in classifiers], axis=1)


class OfSecond(Around):
    """The adapter of the second class of two, whose target is one."""

    n_outputs = 1
    classes: AnyArray | None = None

    def __init__(self, inside: Model):
        self._inside = inside

    def __getattr__(self, name: str) -> ForeignObject:
        """Return a member of the adapter inside; its trees have one output."""
        attribute = super().__getattr__(name)
        if name == "trees":
            return partial(self._trees, attribute)
        return attribute

    def check_kept(self, X: FeatureTable, targets: FloatArray, weights: FloatArray | None) -> None:
        """Raise unless the training data agree with those that the model stores."""
        self._inside.check_kept(X, _both(targets), weights)

    def _trees(
        self, read_trees: Callable[[TrainingRows], list[BoostedFit]], rows: TrainingRows
    ) -> list[BoostedFit]:
        """Return the trees of the second class, from those of both that ``read_trees`` returns."""
        fits = []
        for fit in read_trees(replace(rows, targets=_both(rows.targets))):
            table = replace(fit.table, leaf_values=fit.table.leaf_values[:, 1:])
            initial = replace(fit.initial, values=fit.initial.values[1:])
            fits.append(replace(fit, table=table, initial=initial))
        return fits

    def predictions(self, X: FeatureTable) -> FloatArray:
        """Return the probability of the second class, (n, 1)."""
        return np.asarray(self._inside.predictions(X)[:, 1:])


def _both(targets: FloatArray) -> FloatArray:
    """Return the targets of both classes, (N, 2), from those of the second."""
    return np.hstack([1 - targets, targets])


def read(model: ForeignModel, inside: Read) -> Model | None:
    """Return the adapter of boosted models side by side, which ``inside`` reads by gradients.

    None stands for any other object.
    """
    classifiers = classifiers_of(model)
    if classifiers is None:
        return None
    return read_scores(classifiers, [inside(classifier) for classifier in classifiers.inside])


def read_scores(classifiers: Classifiers, members: Sequence[Model | None]) -> Model:
    """Return the adapter of boosted models side by side, some without exact weights.

    ``members`` are their own adapters.
    """
    adapters = [member for member in members if member is not None and member.n_outputs == 1]
    if len(adapters) < len(members):
        raise classifiers.refuse("a model without trees, or with several scores")
    if any(adapter.kind is Kind.EXACT for adapter in adapters):
        raise classifiers.refuse("settings that differ from output to output")
    boosted = cast("list[Adapter]", adapters)  # as their kind says
    if len(boosted) == 1 and classifiers.classes is not None:
        boosted[0].classes = classifiers.classes
        return boosted[0]
    if any(adapter.class_weight is not None for adapter in boosted):
        raise classifiers.refuse("class_weight, which gives a row another weight for each class")
    settings = (adapter.single_output_setting for adapter in boosted)
    setting = next(filter(None, settings), "")
    if setting:
        raise classifiers.refuse(setting)
    # It has scores, no predictions.
    whole = SideBySide(classifiers, boosted)  # type: ignore[abstract]
    reasons = (adapter.not_exact for adapter in boosted)
    whole.not_exact = next((reason for reason in reasons if reason is not None), None)
    return whole


class SideBySide(Defaults, Adapter):
    """The adapter of boosted models, each of which has one output."""

    library = "scikit-learn"
    kind = Kind.ADDITIVE

    def __init__(self, classifiers: Classifiers, members: list[Adapter]):
        self._classifiers = classifiers
        self._members = members
        first = members[0]
        self.n_features = first.n_features
        self.feature_names = first.feature_names
        self.takes_text = first.takes_text
        self.spelling = first.spelling  # type: ignore[method-assign]
        self.rounding = first.rounding
        self.score_precision = first.score_precision
        self.gradient_tolerance = max(member.gradient_tolerance for member in members)
        refused_draws = (member.refused_draws for member in members)
        self.refused_draws = next((error for error in refused_draws if error is not None), None)
        self.classes = classifiers.classes
        self.n_outputs = len(members)
        self.calibration = classifiers.normalised
        self.encodings = sum(member.encodings for member in members)
        fingerprints = "\n".join(member.fingerprint for member in members)
        self.fingerprint = hashlib.sha256(fingerprints.encode()).hexdigest()
        self._ends: NDArray[np.int64] | None = None  # of each member's trees

    @property
    def routes(self) -> Routes | Ways | None:
        """Return the routes of the first member, because those of all are equal."""
        return self._members[0].routes

    def feature_tests(self) -> FeatureTests | None:
        """Return the tests of all trees, member after member, on the same columns."""
        routes: list[Routes] = []
        for member in self._members:
            tests = member.feature_tests()
            if tests is None or tests.sources is not None:
                return None
            routes += tests.routes
        return FeatureTests(routes)

    def tested_values(self, X: TableLike) -> FloatArray | None:
        """Return the numbers that these tests look at, (n, columns)."""
        return self._members[0].tested_values(X)

    def coordinates(self, X: FeatureTable, n_threads: int = 1) -> LeafArray:
        """Return the leaves of the rows, member after member, (n, T)."""
        return np.hstack([member.coordinates(X, n_threads) for member in self._members])

    def leaves(self, X: FeatureTable) -> LeafArray:
        """Return the leaves that the library itself finds, (n, T)."""
        return np.hstack([member.leaves(X) for member in self._members])

    def assign(
        self,
        X: FeatureTable,
        out: Cells,
        n_threads: int,
        backend: Backend | None = None,
    ) -> None:
        """Fill ``out`` (T, n) with the leaves."""
        assert self._ends is not None  # trees are read first
        for member, leaves in zip(self._members, np.split(out, self._ends[:-1])):
            member.assign(X, leaves, n_threads, backend)

    def scores(self, X: FeatureTable) -> FloatArray:
        """Return the score of each member, (n, K)."""
        return np.hstack([member.scores(X) for member in self._members])

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return the trees of all members as one entry.

        Outputs do not see each other, so the iterations of one member follow those of another.
        """
        require_no_offsets(rows)
        fits = []
        for k, member in enumerate(self._members):
            targets = np.ascontiguousarray(rows.targets[:, [k]])
            fits += member.trees(replace(rows, targets=targets, leaves=None))
        self._ends = np.cumsum([len(fit.table.n_leaves) for fit in fits])
        self._require_alike(fits)
        return [_joined(fits, self._ends)]

    def _require_alike(self, fits: list[BoostedFit]) -> None:
        """Raise for members that differ in more than their trees.

        Raise also for what belongs to one output alone.
        """
        for fit in fits:
            if name := _belongs_to_one_output(fit):
                raise self._classifiers.refuse(f"trees with {name}")
        if not all(fit.schedule.is_plain for fit in fits):
            raise self._classifiers.refuse(
                "trees that are scaled again after later ones were fitted"
            )
        if not all(_are_alike(fits[0], fit) for fit in fits[1:]):
            raise self._classifiers.refuse(
                "settings, or rows held out, that differ from output to output"
            )

    def causes(self, mismatch: str) -> str:
        """Return the most likely reasons for a disagreement."""
        return self._members[0].causes(mismatch)


def _belongs_to_one_output(fit: BoostedFit) -> str:
    """Return the name of a part that belongs to one output, such as ranks; or empty.

    `Adapter.single_output_setting` knows the settings that lead to it.
    """
    rule = fit.leaf_rule
    records = {
        "leaf_factors": fit.weights.leaf_factors,
        "smoothing": rule.smoothing,
        "nodes": rule.nodes,
        "chains": rule.chains,
        "columns": fit.table.columns,
        "placement": fit.placement,
        "ranks": rule.ranks,
    }
    return next((name for name, record in records.items() if record is not None), "")


def _shared_settings(fit: BoostedFit) -> tuple[object, ...]:
    """Return the settings that all members must share."""
    rule = fit.leaf_rule
    initial = fit.initial
    return (
        fit.loss,
        fit.score_precision,
        fit.no_derivative,
        fit.sampler is None,
        (rule.l1, rule.max_step, rule.min_hessian, rule.l2_by_weight),
        (initial.follows_targets, initial.fixed_reason),
    )


def _are_alike(first: BoostedFit, fit: BoostedFit) -> bool:
    """Return whether two fits differ in nothing but their trees."""
    has_same_rows = all(
        np.array_equal(getattr(fit.weights, name), getattr(first.weights, name))
        for name in ("row_weights", "held_out", "recorded_by")
    )
    return has_same_rows and _shared_settings(fit) == _shared_settings(first)


class MemberSampler:
    """The samplers of several members, each of which samples for its own trees."""

    def __init__(self, samplers: list[Sampler], ends: NDArray[np.int64]):
        self._samplers = samplers
        self._ends = ends  # (members,) the number of trees up to the end of each member's
        self.name = samplers[0].name
        self.needs_gradients = any(sampler.needs_gradients for sampler in samplers)
        self.dtype: type[np.generic] = np.result_type(*[sampler.dtype for sampler in samplers]).type

    def draw(self, trees: range, leaves: LeafArray, gradients: RowGradients | None) -> AnyArray:
        """Return how often each row was sampled for these trees of one member, (len(trees), N)."""
        member = int(np.searchsorted(self._ends, trees.start, side="right"))
        if member == 0:
            first = 0
        else:
            first = int(self._ends[member - 1])
        if gradients is not None:
            output = slice(member, member + 1)
            if gradients.hessians is None:
                hessians = None
            else:
                hessians = gradients.hessians[:, output]
            gradients = RowGradients(gradients.negative[:, output], hessians)
        return self._samplers[member].draw(
            range(trees.start - first, trees.stop - first), leaves, gradients
        )


def _concatenated(arrays: Sequence[NDArray[Number] | None]) -> NDArray[Number] | None:
    """Return the arrays of all members, one after the other; None if a member has none."""
    stated = [array for array in arrays if array is not None]
    if len(stated) < len(arrays):
        return None
    return np.concatenate(stated)


def _joined(fits: list[BoostedFit], ends: NDArray[np.int64]) -> BoostedFit:
    """Return the trees of all members, one after the other, as one fit with an output for each."""
    tables = [fit.table for fit in fits]
    rules = [fit.leaf_rule for fit in fits]

    def by_leaf(values: list[FloatArray | int | float]) -> FloatArray:
        pairs = zip(values, tables)
        return np.concatenate(
            [np.broadcast_to(value, len(table.leaf_values)) for value, table in pairs]
        )

    table = TreeTable(
        n_leaves=np.concatenate([table.n_leaves for table in tables]),
        leaf_values=np.concatenate([table.leaf_values for table in tables]),
        leaf_counts=_concatenated([table.leaf_counts for table in tables]),
        leaf_weights=_concatenated([table.leaf_weights for table in tables]),
        leaf_hessians=_concatenated([table.leaf_hessians for table in tables]),
        printed_shift=by_leaf([table.printed_shift for table in tables]),
        value_slack=by_leaf([table.value_slack for table in tables]),
    )
    leaf_rule = replace(
        rules[0],
        l2=np.concatenate([rule.l2 for rule in rules]),
        steps=by_leaf([rule.steps for rule in rules]),
    )
    initial_values = np.concatenate([fit.initial.values for fit in fits])
    samplers = [fit.sampler for fit in fits if fit.sampler is not None]
    sampler = None
    if samplers:
        sampler = MemberSampler(samplers, ends)
    first_rounds = np.cumsum([0, *(fit.schedule.n_rounds for fit in fits)])
    rounds = [fit.schedule.rounds + first for fit, first in zip(fits, first_rounds)]
    schedule = Schedule(
        learning_rates=np.concatenate([fit.learning_rates for fit in fits]),
        rounds=np.concatenate(rounds),
        outputs=np.repeat(np.arange(len(fits)), np.diff(ends, prepend=0)),
    )
    return replace(
        fits[0],
        table=table,
        leaf_rule=leaf_rule,
        schedule=schedule,
        initial=replace(fits[0].initial, values=initial_values),
        sampler=sampler,
        explain_mismatch=None,
    )
