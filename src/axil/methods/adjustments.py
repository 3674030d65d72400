"""adjustments: the difference of two predictions, F(x) - F(x_j), split over features."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np

from axil import inputs
from axil.adapters.contract import Kind
from axil.aliases import DataFrame, TableLike
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.errors import InputError, shown
from axil.machine.arrays import host
from axil.methods.feature_differences import FeatureGroups, RowPairs, differences
from axil.methods.method import ExplainedRows, Method
from axil.methods.similar import compared, ranked, source_of
from axil.output import tables
from axil.output.rules import Rules
from axil.replay.queries import Offsets, QueryBatch

#: A verified model, a checked table of any library, or a value of any type.
Checked: TypeAlias = Any

EVERY_OUTPUT = -1  # of a line that is about all outputs
NOTE = (
    "amount is the part of F(explained row) - F(row) that belongs to the feature: its Shapley "
    "value with the row as the reference. The amounts of a row sum to the difference of the two "
    "predictions"
)
SCALED = (
    ", taken on the scale of the fit ({scale}) and shown in the targets' own units: added to the "
    "row's target in the order of the lines, the amounts lead to the adjusted target"
)


@dataclass(frozen=True)
class ListedPairs:
    """The training rows that each explained row is compared with."""

    queries: IntArray  #: (lines,) positions in X
    rows: IntArray  #: (lines,) positions among the training rows
    outputs: IntArray  #: (lines,) the output that a line is about; `EVERY_OUTPUT` for all


class Adjustments(Method):
    """Provide `Explainer.adjustments`."""

    def adjustments(
        self,
        X: TableLike,
        comparables: int | Sequence[Hashable] | TableLike = 10,
        *,
        feature_groups: Mapping[str, Sequence[str | int]] | None = None,
    ) -> DataFrame:
        """Split the adjustment of each comparable, F(x) - F(x_j), exactly over features.

        `similar` with ``adjust=True`` moves the target of a comparable by ``F(x) - F(x_j)``, the
        difference of the model's own predictions. This method says which features make it. The
        parts are Shapley values: the features of the explained row replace those of the comparable
        one after the other, and the effect of each is averaged over all orders. They sum to the
        whole difference, which is checked on every call.

        It splits trees of any loss, linear models, and sums of these. Transformers of single
        columns are followed back to the columns. Some models combine several features in one
        number: combinations of categories in CatBoost, products of columns. They are split once
        these features are in one group. Texts, embeddings, neighbours and kernels are refused.

        A frame with a line for each row of X, comparable and feature, the largest first. Features
        without effect are left out. Its columns are query, row, (output,) feature,
        ``value (row)``, ``value (query)``, ``amount`` and ``percent``. Values are text, as features
        are of many kinds. The amount is in the targets' own units; of a model of kind "additive" it
        is a part of the score. ``percent`` is the amount in percent of the comparable's target. Of
        a model of logarithms it is the factor of the feature, less one, in percent. Classifiers and
        additive models have no such column. A pandas frame has the target, the adjusted target, the
        net and the gross adjustment in percent of each comparable in ``attrs["comparables"]``.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        comparables : int, table, or sequence of labels, default 10
            Which training rows: the number that `similar` lists by default, a table that `similar`
            returned, by its columns query and row, or the labels of training rows, which are then
            compared with every row of X.
        feature_groups : mapping from text to columns, optional
            Features that are reported together, by name or position, such as
            ``{"location": ["latitude", "longitude", "zip code"]}``. Others stand for themselves.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y)
        >>> table = Explainer(model, X, y).adjustments(X.head(1), [7])
        >>> parts, whole = table["amount"].sum(), model.predict(X.iloc[[0, 7]])
        >>> bool(abs(parts - (whole[0] - whole[1])) < 1e-9)
        True
        """
        explained = self._explained_rows("adjustments", X)
        names = explained.names()
        groups = as_groups(feature_groups, names)
        listed = _as_listed(explained, comparables)
        pairs = pairs_of(explained, listed.queries, listed.rows)
        parts = differences(explained.model, pairs, groups)
        return _table(explained, pairs, listed, groups, parts)


def pairs_of(explained: ExplainedRows, queries: IntArray, rows: IntArray) -> RowPairs:
    """Return pairs of an explained row and a training row, each by position, (pairs,)."""
    numbers, places = np.unique(rows, return_inverse=True)
    return RowPairs(
        explained.queries,
        training_rows(explained.model, numbers),
        np.stack([queries, places.reshape(-1)], axis=1).astype(np.int64),
    )


def training_rows(model: Checked, numbers: IntArray) -> QueryBatch:
    """Return some training rows, by position, as rows to predict."""
    rows = inputs.take_rows(model.features, numbers)
    zeros = Offsets(np.zeros((len(numbers), model.shape[1])))
    labels = model.index[numbers]
    return QueryBatch(
        model.adapter, rows, zeros, labels, model.n_threads, reflection=model.reflection
    )


# -- what the user passes --------------------------------------------------------------------------


def as_groups(
    feature_groups: Mapping[str, Sequence[str | int]] | None, names: list[str]
) -> FeatureGroups:
    """Return the groups of features: those of the user, and each other feature by itself."""
    if feature_groups is None:
        feature_groups = {}
    if not isinstance(feature_groups, Mapping):
        raise InputError(
            f"feature_groups is {shown(feature_groups)}; expected a mapping from names to columns, "
            'such as {"location": ["latitude", "longitude"]}.'
        )
    group_of_feature = np.full(len(names), -1)
    group_names: list[str] = []
    for name, columns in feature_groups.items():
        features = inputs.chosen_columns(columns, names, f"feature_groups[{name!r}]")
        for feature in features:
            if group_of_feature[feature] >= 0:
                raise InputError(
                    f"feature_groups has {shown(names[feature])} in two places; expected each "
                    "column once."
                )
            group_of_feature[feature] = len(group_names)
        group_names.append(str(name))
    for feature, name in enumerate(names):
        if group_of_feature[feature] >= 0:
            continue
        if name in group_names:
            raise InputError(
                f"feature_groups has a group {shown(name)}, which is also a column outside of it. "
                "Give the group another name."
            )
        group_of_feature[feature] = len(group_names)
        group_names.append(name)
    return FeatureGroups(group_names, group_of_feature, names)


def _as_listed(explained: ExplainedRows, comparables: Checked) -> ListedPairs:
    """Return the training rows that are compared with each row of X."""
    if inputs.is_whole(comparables):
        return _most_similar(explained, inputs.as_count(comparables, "comparables"))
    frame = inputs.as_frame(comparables)
    if frame is not None:
        return _of_table(explained, frame)
    rows = inputs.named_rows(comparables, explained.model.index, "comparables")
    n = len(explained)
    return ListedPairs(
        np.repeat(np.arange(n), len(rows)),
        np.tile(rows, n),
        np.full(n * len(rows), EVERY_OUTPUT),
    )


def _most_similar(explained: ExplainedRows, k: int) -> ListedPairs:
    """Return the rows that `similar` lists by default."""
    model = explained.model
    model.capabilities.require("similar")
    rules = Rules(None, None, None, None, None)
    choice, allowed = model.training.choice(explained.listing().known, k, rules)
    choice = ranked(explained, choice, None)
    queries = []
    rows = []
    outputs = []
    first = 0
    source = source_of(explained, choice)
    for _, comparison in compared(explained, choice, allowed, False, 8, source):
        positions = host(comparison.best.columns["position"])  # (n, K, k)
        query, output, _ = np.nonzero(positions >= 0)
        queries.append(first + query)
        outputs.append(output)
        rows.append(positions[positions >= 0])
        first += len(positions)
    return ListedPairs(np.concatenate(queries), np.concatenate(rows), np.concatenate(outputs))


def _of_table(explained: ExplainedRows, frame: nw.DataFrame[Checked]) -> ListedPairs:
    """Return the pairs that a table of `similar` lists."""
    missing = [name for name in ("query", "row") if name not in frame.columns]
    if missing:
        raise InputError(
            f"comparables is a table without the column {missing[0]}; expected a table of similar."
        )
    queries = _places(frame["query"], explained.queries.labels, "X", "query")
    rows = _places(frame["row"], explained.model.index, "X_train", "row")
    outputs = np.full(len(rows), EVERY_OUTPUT)
    names = explained.model.names.outputs
    if names is not None and "output" in frame.columns:
        outputs = _places(frame["output"], np.asarray(names), "the model's outputs", "output")
    return ListedPairs(queries, rows, outputs)


def _places(series: nw.Series[Checked], labels: AnyArray, where: str, column: str) -> IntArray:
    """Return the place of each label of a column among the labels of rows, all different."""
    place_by_label: dict[Hashable, int] = {}
    for place, label in enumerate(inputs.as_list(labels)):
        if label in place_by_label:
            raise InputError(
                f"Several rows of {where} have the label {shown(label)}, so the column {column} of "
                "comparables does not tell them apart. Give the rows labels of their own."
            )
        place_by_label[label] = place
    named_labels = inputs.as_list(inputs.as_labels(series, len(series), f"The column {column}"))
    unknown = [label for label in named_labels if label not in place_by_label]
    if unknown:
        raise InputError(
            f"The column {column} of comparables has {shown(unknown[0])}, which is no label of "
            f"{where}."
        )
    return np.array([place_by_label[label] for label in named_labels], dtype=np.intp)


# -- the table -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Amounts:
    """The parts of each pair in the user's units."""

    order: IntArray  #: (P, G, K) groups in the order of size
    amounts: FloatArray  #: (P, G, K) in that order
    percents: FloatArray | None  #: likewise
    target: FloatArray | None  #: (P, K) of the comparables
    adjusted: FloatArray | None  #: (P, K)


def amounts_of(model: Checked, rows: IntArray, parts: FloatArray) -> Amounts:
    """Return parts (P, G, K) on the scale of the fit as amounts, the largest first.

    On another scale than that of the targets, a part is what it adds once all larger parts of the
    comparable are added.
    """
    order = np.argsort(-np.abs(parts), axis=1, kind="stable")
    by_size = np.take_along_axis(parts, order, axis=1)
    if model.kind is not Kind.EXACT or model.names.classes is not None:
        return Amounts(order, by_size, None, None, None)
    targets = model.targets[rows]
    scale = model.scale
    if scale.is_identity:
        amounts = by_size
        adjusted = targets + parts.sum(axis=1)
        shown_targets = targets
    else:
        steps = targets[:, None, :] + np.cumsum(by_size, axis=1)
        steps = np.concatenate([targets[:, None, :], steps], axis=1)
        readable = scale.inverse(steps.reshape(-1, steps.shape[2])).reshape(steps.shape)
        amounts = np.diff(readable, axis=1)
        shown_targets = readable[:, 0]
        adjusted = readable[:, -1]
    if scale.is_log:
        percents = 100 * (scale.factors(by_size) - 1)
    else:
        percents = in_percent(amounts, shown_targets[:, None, :])
    return Amounts(order, amounts, percents, shown_targets, adjusted)


def in_percent(amounts: FloatArray, of: FloatArray) -> FloatArray:
    """Return amounts in percent of the size of numbers; nan of zero."""
    base = np.broadcast_to(np.abs(of), amounts.shape)
    percents = np.full(amounts.shape, np.nan)
    return np.asarray(np.divide(100 * amounts, base, out=percents, where=base > 0))


def _table(
    explained: ExplainedRows,
    pairs: RowPairs,
    listed: ListedPairs,
    groups: FeatureGroups,
    parts: FloatArray,
) -> DataFrame:
    """Return the table of the parts of each pair."""
    model = explained.model
    amounts = amounts_of(model, listed.rows, parts)
    pair, output, place = np.nonzero(np.moveaxis(amounts.amounts != 0, 1, 2))
    is_about = (listed.outputs[pair] == EVERY_OUTPUT) | (listed.outputs[pair] == output)
    pair = pair[is_about]
    output = output[is_about]
    place = place[is_about]
    group = amounts.order[pair, place, output]
    columns: dict[str, Checked] = {
        "query": pairs.queries.labels[listed.queries[pair]],
        "row": model.index[listed.rows[pair]],
    }
    if model.names.outputs is not None:
        columns["output"] = np.asarray(model.names.outputs)[output]
    columns["feature"] = np.array(groups.names, dtype=object)[group]
    row_values = _values_of_groups(pairs.rows.rows, groups)
    query_values = _values_of_groups(pairs.queries.rows, groups)
    columns["value (row)"] = row_values[group, pairs.places[pair, 1]]
    columns["value (query)"] = query_values[group, pairs.places[pair, 0]]
    columns["amount"] = amounts.amounts[pair, place, output]
    if amounts.percents is not None:
        columns["percent"] = amounts.percents[pair, place, output]
    text = NOTE
    if not model.scale.is_identity:
        text += SCALED.format(scale=model.scale.name)
    frame = tables.make(columns, model.backend)
    return tables.note(frame, model.note(text), comparables=_summary(explained, listed, amounts))


def _summary(
    explained: ExplainedRows, listed: ListedPairs, amounts: Amounts
) -> list[dict[str, Checked]]:
    """Return the target, the adjusted target, and net and gross adjustment of each comparable."""
    model = explained.model
    if amounts.target is None or amounts.adjusted is None:
        return []
    target = amounts.target
    net = in_percent(amounts.adjusted - target, target)
    gross = in_percent(np.abs(amounts.amounts).sum(axis=1), target)
    query_labels = inputs.as_list(explained.queries.labels)
    row_labels = inputs.as_list(model.index[listed.rows])
    lines = []
    for pair, row_label in enumerate(row_labels):
        for output in range(model.shape[1]):
            if listed.outputs[pair] not in (EVERY_OUTPUT, output):
                continue
            line = {"query": query_labels[listed.queries[pair]], "row": row_label}
            if model.names.outputs is not None:
                line["output"] = inputs.as_list(np.asarray(model.names.outputs))[output]
            line["target"] = float(target[pair, output])
            line["adjusted"] = float(amounts.adjusted[pair, output])
            line["net percent"] = float(net[pair, output])
            line["gross percent"] = float(gross[pair, output])
            lines.append(line)
    return lines


def _values_of_groups(table: Checked, groups: FeatureGroups) -> AnyArray:
    """Return the values of each group in each row as text, (G, rows)."""
    n = table.shape[0]
    columns = inputs.feature_columns(table, np.arange(n), list(range(len(groups.feature_names))))
    texts = [[_as_text(value) for value in inputs.as_list(column)] for column in columns]
    texts_of_groups = np.empty((len(groups.names), n), dtype=object)
    for group in range(len(groups.names)):
        columns_of_group = [texts[feature] for feature in groups.features(group)]
        texts_of_groups[group] = [", ".join(values) for values in zip(*columns_of_group)]
    return texts_of_groups


def _as_text(value: Checked) -> str:
    """Return a value of a feature as text; empty for a missing one."""
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        return f"{value:.10g}"
    return str(value)
