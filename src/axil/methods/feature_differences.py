"""How much each feature puts into the difference of two predictions of one model.

The model's score of a row that has some features of row x and all others of row z is the worth of
these features. Their Shapley values sum to ``F(x) - F(z)``:

    phi_g = sum over sets S of other groups   |S|! (G - |S| - 1)! / G!  (v(S and g) - v(S))

A tree is split by `_core.feature_differences`. A linear model has a column for each coefficient.
Where every column follows from features of one group, ``phi_g`` is the sum of
``coefficient * difference`` over the columns of the group. Transformers stay as they are fitted.
Which feature a transformed column follows from is seen by exchanging features between x and z.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Protocol, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import Form, Kind, TrainingRows
from axil.adapters.routes import FeatureTests
from axil.arrays import BoolArray, FloatArray, IntArray
from axil.errors import ExactnessError, UnsupportedQuestionError
from axil.kernels.cpu import feature_differences
from axil.machine.blocks import spans
from axil.replay.members import rows_of_member
from axil.replay.queries import QueryBatch
from axil.weights.members import Residual

#: A checked table of any library, and an engine or a replayed fit of any kind.
Table: TypeAlias = Any
Replayed: TypeAlias = Any

METHOD = "adjustments"
ENTRIES = 1 << 22  # numbers of one batch of pairs
TOGETHER = 1 << 14  # mixed rows that are transformed together
GroupNumbers = NDArray[np.int32]
CHECKED = 4  # pairs whose exchanges must agree with the columns that are known
UNKNOWN = -1  # the group of a column that no exchange has changed
OTHER_MODEL = (
    "Fit boosted trees, a forest or a linear model, or ask similar(X, adjust=True) for whole "
    "adjustments."
)


@dataclass(frozen=True)
class FeatureGroups:
    """The groups whose parts of a difference are reported; a feature by itself is a group too."""

    names: list[str]  #: (G,)
    group_of_feature: IntArray  #: (features,)
    feature_names: list[str]

    def features(self, group: int) -> list[int]:
        """Return the features of a group, by position."""
        return self._features_of_groups[group]

    @cached_property
    def _features_of_groups(self) -> list[list[int]]:
        """The features of each group, by position."""
        features: list[list[int]] = [[] for _ in self.names]
        for feature, group in enumerate(self.group_of_feature.tolist()):
            features[group].append(feature)
        return features

    def named(self, features: Sequence[int]) -> str:
        """Return the names of features for a message."""
        return " and ".join(repr(self.feature_names[i]) for i in features)


@dataclass(frozen=True)
class RowPairs:
    """Pairs of an explained row and a training row."""

    queries: QueryBatch
    rows: QueryBatch  #: the training rows, each once
    places: IntArray  #: (P, 2) of the explained row and of the training row

    def __getitem__(self, block: slice) -> RowPairs:
        """Return some of the pairs."""
        return replace(self, places=self.places[block])

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.places)


class Summand(Protocol):
    """A model, or one of several that add up to a score."""

    def differences(self, pairs: RowPairs, groups: FeatureGroups) -> FloatArray:
        """Return the part of each group in the difference of each pair, (P, G, K)."""


def differences(model: Replayed, pairs: RowPairs, groups: FeatureGroups) -> FloatArray:
    """Return the part of each group in the difference of two predictions, (P, G, K).

    The numbers are on the scale of the fit. Raises `ExactnessError` unless the parts of each pair
    sum to the difference of the model's own predictions.
    """
    score = model.kept.get("parts by feature", lambda: _summand_of(model))
    n_outputs = model.shape[1]
    differences_of_pairs = np.empty((len(pairs), len(groups.names), n_outputs))
    size = max(1, ENTRIES // (len(groups.names) * n_outputs))
    for place in spans(len(pairs), size):
        differences_of_pairs[place] = score.differences(pairs[place], groups)
    if model.is_reflected:
        differences_of_pairs *= -1.0
    _check_sums(model, pairs, differences_of_pairs)
    return differences_of_pairs


def _check_sums(model: Replayed, pairs: RowPairs, differences: FloatArray) -> None:
    """Raise unless the parts sum to the differences of the model's own predictions."""
    verification = model.verification
    if verification is None or not len(pairs):
        return
    of_queries = pairs.queries.predictions
    of_rows = pairs.rows.predictions
    expected = of_queries[pairs.places[:, 0]] - of_rows[pairs.places[:, 1]]
    sums = differences.sum(axis=1)
    largest = max(np.abs(of_queries).max(), np.abs(of_rows).max(), verification.scale)
    slack = 2 * (verification.tolerance * largest + verification.rounding)
    errors = np.abs(sums - expected).max(axis=1)
    worst = int(np.argmax(np.where(np.isnan(errors), np.inf, errors)))
    if errors[worst] <= slack:
        return
    output = int(np.argmax(np.abs(sums[worst] - expected[worst])))
    query, row = pairs.places[worst]
    raise ExactnessError(
        f"the sum of the adjustments of row {pairs.rows.labels[row]} to row "
        f"{pairs.queries.labels[query]}",
        float(sums[worst, output]),
        float(expected[worst, output]),
        "The model may have changed since the explainer was made: make a new one.",
    )


# -- reading the model -----------------------------------------------------------------------------


@dataclass(frozen=True)
class RecordedModel:
    """A fitted model, or one inside it, with the record of its replay."""

    adapter: Replayed
    engines: Sequence[Replayed]
    rows: TrainingRows
    read: Callable[[Table], Table]  #: from rows as users pass them to the rows of this model
    is_inside: bool  #: whether the rows may have other columns than those of users


def _summand_of(model: Replayed) -> Summand:
    """Return the model as a `Summand`; refuse models that axil cannot split over features."""
    if model.fit_offsets.were_given:
        raise UnsupportedQuestionError(
            METHOD,
            "training rows of this model start from offsets (init_score), which are no feature",
            "Fit with the offset as a feature, or without it.",
        )
    if model.kind is Kind.ADDITIVE:
        fits = [model.boosting.contributions.walked.fit]
        return _trees(model.adapter, _as_they_are, False, fits, model.n_threads)
    rows = replace(model.rows, X=model.features)
    source = RecordedModel(model.adapter, model.engines, rows, _as_they_are, False)
    return _summand_of_source(source, model.n_threads)


def _summand_of_source(source: RecordedModel, n_threads: int) -> Summand:
    """Return an exact model, or one inside it, as a `Summand`."""
    form = source.adapter.form
    if form is Form.TREES:
        fits = source.adapter.trees(source.rows)
        return _trees(source.adapter, source.read, source.is_inside, fits, n_threads)
    if form is Form.SMOOTHER:
        return _linear(source)
    return _sum(source, n_threads)


def _as_they_are(X: Table) -> Table:
    return X


# -- trees -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SplitTrees:
    """All trees of a model, with the addend of each leaf to the score."""

    adapter: Replayed
    read: Callable[[Table], Table]  #: see `RecordedModel`
    tests: FeatureTests
    has_other_columns: bool  #: whether the trees may test other columns than the features
    leaf_values: FloatArray  #: (L, K)
    n_threads: int

    def differences(self, pairs: RowPairs, groups: FeatureGroups) -> FloatArray:
        """Return the part of each group in the difference of each pair, (P, G, K)."""
        columns = self._groups_of_columns(pairs, groups)
        query_values = self._values(pairs.queries.rows)
        row_values = self._values(pairs.rows.rows)
        totals = np.zeros((len(pairs), len(groups.names), self.leaf_values.shape[1]))
        first = 0
        for routes in self.tests.routes:
            n_leaves = int(routes.starts[-1]) + routes.n_trees
            feature_differences(
                query_values,
                row_values,
                pairs.places,
                routes.columns,
                routes.thresholds,
                routes.views,
                routes.outcomes,
                routes.nodes,
                routes.starts,
                routes.single,
                routes.strict,
                routes.zero,
                columns,
                self.leaf_values[first : first + n_leaves],
                totals,
                self.n_threads,
            )
            first += n_leaves
        return totals

    def _values(self, X: Table) -> FloatArray:
        """Return the numbers that the trees test, (n, columns)."""
        values = self.adapter.tested_values(self.read(X))
        if values is None:
            raise _unknown_tests(self.adapter.library)
        return np.require(values, np.float64, "A")

    def _groups_of_columns(self, pairs: RowPairs, groups: FeatureGroups) -> GroupNumbers:
        """Return the group of each tested column, (columns,).

        Where the columns are known, exchanges between some rows must agree with them.
        """
        if self.has_other_columns:
            return ColumnGroups(self._values, pairs, groups).numbers()
        sources = self.tests.sources
        if sources is None:
            sources = [(feature,) for feature in range(len(groups.feature_names))]
        columns = np.empty(len(sources), dtype=np.int32)
        for i, features in enumerate(sources):
            groups_of_column = set(groups.group_of_feature[list(features)].tolist())
            if len(groups_of_column) > 1:
                raise _mixed_columns(self.adapter.library, groups.named(features))
            columns[i] = groups_of_column.pop()
        if not ColumnGroups(self._values, pairs[:CHECKED], groups).agree_with(columns):
            raise _unknown_tests(self.adapter.library)
        return columns


def _trees(
    adapter: Replayed,
    read: Callable[[Table], Table],
    is_inside: bool,
    fits: Sequence[BoostedFit],
    n_threads: int,
) -> SplitTrees:
    """Return the trees of a model with their leaf values."""
    tests = adapter.feature_tests()
    if tests is None:
        raise _unknown_tests(adapter.library)
    sizes = np.concatenate([np.diff(routes.starts) + 1 for routes in tests.routes])
    values = np.zeros((int(sizes.sum()), adapter.n_outputs))
    starts = np.cumsum(sizes) - sizes
    for k, fit in enumerate(fits):
        outputs = slice(None)
        if len(fits) > 1:
            outputs = slice(k, k + 1)
        _place_values(values[:, outputs], fit, starts)
    has_other_columns = is_inside or adapter.transforms_columns
    return SplitTrees(adapter, read, tests, has_other_columns, values, n_threads)


def _place_values(values: FloatArray, fit: BoostedFit, starts: IntArray) -> None:
    """Put the leaf values of a fit in their places among those of all trees, (L, outputs)."""
    table = fit.table
    first_tree = int(fit.initial.is_first_tree)  # which is no tree of the model
    columns = np.arange(len(table.n_leaves) - first_tree)
    if table.columns is not None:
        columns = table.columns[first_tree:] - first_tree
    for tree, column in enumerate(columns.tolist(), first_tree):
        leaves = slice(table.starts[tree], table.starts[tree + 1])
        place = slice(starts[column], starts[column] + int(table.n_leaves[tree]))
        values[place, fit.schedule.outputs_served(tree)] += table.leaf_values[leaves]


# -- linear models ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class SplitColumns:
    """A linear model: the score is a sum of columns times coefficients."""

    adapter: Replayed
    read: Callable[[Table], Table]  #: see `RecordedModel`
    coefficients: FloatArray  #: (columns, K)

    def differences(self, pairs: RowPairs, groups: FeatureGroups) -> FloatArray:
        """Return the part of each group in the difference of each pair, (P, G, K)."""
        columns = ColumnGroups(self._values, pairs, groups).numbers()
        queries = self._values(pairs.queries.rows)
        rows = self._values(pairs.rows.rows)
        totals = np.zeros((len(pairs), len(groups.names), self.coefficients.shape[1]))
        for group in np.unique(columns).tolist():
            is_of_group = columns == group
            apart = (
                queries[pairs.places[:, 0]][:, is_of_group]
                - rows[pairs.places[:, 1]][:, is_of_group]
            )
            totals[:, group] = apart @ self.coefficients[is_of_group]
        return totals

    def _values(self, X: Table) -> FloatArray:
        """Return the columns that the coefficients belong to, (n, columns)."""
        return np.asarray(dense(self.adapter.coordinates(self.read(X))), dtype=np.float64)


def _linear(source: RecordedModel) -> SplitColumns:
    """Return a smoother as a linear model of its columns; refuse one without coefficients."""
    coefficients = []
    for k, engine in enumerate(source.engines):
        solution = engine.fitted.solution
        if solution is None:
            raise UnsupportedQuestionError(
                METHOD, "neighbours have weights, and no coefficients of features", OTHER_MODEL
            )
        targets = source.rows.targets
        if len(source.engines) > 1:
            targets = targets[:, [k]]
        coefficients.append(np.asarray(solution @ targets))
    return SplitColumns(source.adapter, source.read, np.concatenate(coefficients, axis=1))


# -- sums of models --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScaledModel:
    """One model of a sum."""

    summand: Summand
    coefficient: float
    outputs: slice  #: that it predicts


@dataclass(frozen=True)
class SumOfModels:
    """A sum of models: the differences of predictions add up as the predictions do."""

    terms: list[ScaledModel]
    n_outputs: int

    def differences(self, pairs: RowPairs, groups: FeatureGroups) -> FloatArray:
        """Return the part of each group in the difference of each pair, (P, G, K)."""
        totals = np.zeros((len(pairs), len(groups.names), self.n_outputs))
        for term in self.terms:
            totals[:, :, term.outputs] += term.coefficient * term.summand.differences(pairs, groups)
        return totals


def _sum(source: RecordedModel, n_threads: int) -> SumOfModels:
    """Return a sum of models; the second of two may be fitted to the residuals of the first."""
    adapter = source.adapter
    is_residual = adapter.form is Form.RESIDUAL
    if is_residual:
        members = adapter.members
    else:
        members = adapter.members_on(source.rows)
    terms = []
    for i, (member, X) in enumerate(zip(members, adapter.rows_of(source.rows.X))):
        rows = rows_of_member(member, X, source.rows)
        engines = [term.engine for engine in source.engines for term in _terms_of(engine, i)]
        if is_residual and i == 0:
            fitted_rows = adapter.kept_rows(len(source.rows.targets))
            rows = rows_of_member(replace(member, rows=fitted_rows), X, source.rows)
            first_predictions = member.model.predictions(X)
        elif is_residual:
            rows = replace(source.rows, X=X, offsets=first_predictions)
        read = partial(_rows_of_member, adapter, source.read, i)
        summand = _summand_of_source(
            RecordedModel(member.model, engines, rows, read, True), n_threads
        )
        outputs = slice(None)
        if member.output is not None:
            outputs = slice(member.output, member.output + 1)
        terms.append(ScaledModel(summand, member.coefficient, outputs))
    return SumOfModels(terms, adapter.n_outputs)


def _terms_of(engine: Replayed, member: int) -> list[Replayed]:
    """Return the terms of an engine of several models that belong to one of them."""
    if isinstance(engine, Residual):
        engine = engine.first
    return [term for term in engine.terms if term.member == member]


def _rows_of_member(
    adapter: Replayed, read: Callable[[Table], Table], member: int, X: Table
) -> Table:
    """Return rows as one model of a sum gets them."""
    return adapter.rows_of(read(X))[member]


# -- which features a column follows from ----------------------------------------------------------


class ColumnGroups:
    """The group of features behind each column, found by exchanging groups between rows."""

    def __init__(
        self, values_of: Callable[[Table], FloatArray], pairs: RowPairs, groups: FeatureGroups
    ):
        self._values_of = values_of
        self._pairs = pairs
        self._groups = groups

    def numbers(self) -> GroupNumbers:
        """Return the group of each column, (columns,); any for a column that never differs."""
        return np.maximum(self.columns(), 0).astype(np.int32)

    def columns(self) -> IntArray:
        """Return the group of each column, (columns,); `UNKNOWN` for one that never differs."""
        step = max(1, TOGETHER // (2 * len(self._groups.names)))
        columns: IntArray | None = None
        for place in spans(len(self._pairs), step):
            columns = self._of_some(self._pairs[place], columns)
        if columns is None:
            values = self._values_of(self._pairs.queries.rows)
            columns = np.full(values.shape[1], UNKNOWN)
        return columns

    def agree_with(self, columns: GroupNumbers) -> bool:
        """Return whether each column follows from the features of one group alone.

        axil exchanges many groups at a time: those whose number has a certain binary digit. Any two
        groups differ in a digit, so a column that follows from both takes a value in one of the
        exchanges that neither row has.

        Parameters
        ----------
        columns : ndarray of shape (columns,)
            The group of each column.
        """
        queries = inputs.take_rows(self._pairs.queries.rows, self._pairs.places[:, 0])
        rows = inputs.take_rows(self._pairs.rows.rows, self._pairs.places[:, 1])
        of_queries = self._values_of(queries)
        of_rows = self._values_of(rows)
        group_of_feature = self._groups.group_of_feature
        for digit in range(len(self._groups.names).bit_length()):
            features = np.flatnonzero(group_of_feature >> digit & 1).tolist()
            is_exchanged = (columns >> digit & 1).astype(bool)
            expected = np.where(is_exchanged, of_rows, of_queries)
            if _differ(self._values_of(exchanged(queries, rows, features)), expected).any():
                return False
            expected = np.where(is_exchanged, of_queries, of_rows)
            if _differ(self._values_of(exchanged(rows, queries, features)), expected).any():
                return False
        return True

    def _of_some(self, pairs: RowPairs, columns: IntArray | None) -> IntArray:
        """Return the groups of the columns that differ within these pairs, and of earlier ones."""
        queries = inputs.take_rows(pairs.queries.rows, pairs.places[:, 0])
        rows = inputs.take_rows(pairs.rows.rows, pairs.places[:, 1])
        of_queries = self._values_of(queries)
        of_rows = self._values_of(rows)
        if columns is None:
            columns = np.full(of_queries.shape[1], UNKNOWN)
        for group in range(len(self._groups.names)):
            features = self._groups.features(group)
            if _are_equal(queries, rows, features):
                continue
            changed = _differ(self._values_of(exchanged(queries, rows, features)), of_queries)
            changed |= _differ(self._values_of(exchanged(rows, queries, features)), of_rows)
            known_groups = columns[changed]
            conflicts = known_groups[(known_groups != UNKNOWN) & (known_groups != group)]
            if len(conflicts):
                names = [self._groups.names[conflicts[0]], self._groups.names[group]]
                raise _mixed_columns("A transformer or the model", " and ".join(map(repr, names)))
            columns[changed] = group
        unexplained = _differ(of_queries, of_rows) & (columns == UNKNOWN)
        if unexplained.any():
            raise _mixed_columns("A transformer or the model", "several features")
        return columns


def _differ(a: FloatArray, b: FloatArray) -> BoolArray:
    """Return which columns differ in any row, (columns,); missing values are equal."""
    return np.asarray(((a != b) & ~(np.isnan(a) & np.isnan(b))).any(axis=0))


def _are_equal(first: Table, second: Table, features: list[int]) -> bool:
    """Return whether two tables have the same values of some features, row by row."""
    places = np.arange(first.shape[0])
    for a, b in zip(
        inputs.feature_columns(first, places, features),
        inputs.feature_columns(second, places, features),
    ):
        if not np.array_equal(a, b):
            return False
    return True


def exchanged(table: Table, source: Table, features: list[int]) -> Table:
    """Return a table with some columns of another table that has as many rows."""
    frame = inputs.as_frame(table)
    if frame is None:
        changed = np.array(dense(table))
        columns = inputs.feature_columns(source, np.arange(source.shape[0]), features)
        changed = changed.astype(np.result_type(changed, *columns), copy=False)
        for i, column in zip(features, columns):
            changed[:, i] = column
        return changed
    source_frame = inputs.as_frame(source)
    names = [frame.columns[i] for i in features]
    if source_frame is not None and source_frame.implementation is frame.implementation:
        other_columns = [source_frame[:, i].alias(name) for i, name in zip(features, names)]
    else:
        values = inputs.feature_columns(source, np.arange(source.shape[0]), features)
        other_columns = [
            nw.new_series(name, column.tolist(), backend=frame.implementation)
            for name, column in zip(names, values)
        ]
    return frame.with_columns(*other_columns).to_native()


def dense(table: Table) -> Table:
    """Return a sparse table as an array, and other tables unchanged."""
    if inputs.is_sparse(table):
        return table.toarray()
    return np.asarray(table)


# -- refusals --------------------------------------------------------------------------------------


def _unknown_tests(library: str) -> UnsupportedQuestionError:
    return UnsupportedQuestionError(
        METHOD,
        f"axil does not know how {library} tests these rows: texts, embeddings, or a table that "
        "only the library reads",
        OTHER_MODEL,
    )


def _mixed_columns(who: str, names: str) -> UnsupportedQuestionError:
    return UnsupportedQuestionError(
        METHOD,
        f"{who} makes one number of {names}, which has no part for each of them",
        f"Put {names} in one group: feature_groups={{'together': [...]}}.",
    )
