"""Comparison: why predictions changed from one model to another, by training rows and by splits.

With c = F_old(x), k_old the weights of the old fit and k_mid those of the old splits refitted to
the new rows,

    F_mid - F_old = sum over added rows of k_mid (y - c)  -  sum over removed rows of k_old (y - c)
                  + sum over kept rows of k_mid (y' - y) + (k_mid - k_old)(y - c)  +  base

and F_new - F_mid is what the new splits did. The base is the change of intercepts and of sums of
weights times c: none if weights sum to one. Contributions, which are parts of a score whatever
the targets are, are subtracted row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast, overload, runtime_checkable

import numpy as np

from axil import inputs, templates
from axil.aliases import (
    ArrayLike,
    DataFrame,
    FeatureTable,
    ForeignObject,
    LabelsLike,
    PathLike,
    TableLike,
)
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.attribution import Kind
from axil.comparison_page import PageOptions, write_page
from axil.errors import ExactnessError, InputError, counted, shown
from axil.explainer import Explainer
from axil.explanation import Explanation
from axil.inputs.codes import keys
from axil.machine.memory import BATCH_BYTES
from axil.methods.matched_rows import (
    ABSENT,
    ADDED,
    CHANGED,
    KEPT,
    REMOVED,
    STATUS,
    ComparedRows,
    columns_like,
    match_rows,
    refit_to_new_rows,
    with_refit_positions,
)
from axil.methods.method import verified_model
from axil.methods.refit import arguments_of
from axil.methods.what_if import by_label
from axil.methods.without import change_columns
from axil.output import tables
from axil.report.wording import Words
from axil.scale import TargetScale

STATUSES_BY_PART = {
    "targets changed": (CHANGED,),
    "rows added": (ADDED,),
    "rows removed": (REMOVED,),
    "rows kept": (KEPT, CHANGED),
}
PARTS = (*STATUSES_BY_PART, "base", "new splits")
# A base below this share of a prediction is the rounding of sums of weights that are one.
BASE_ROUNDING = 1e-12
# Of the largest prediction: libraries keep the leaf values of a refit in single precision.
REFIT_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Changes of n predictions from one model to another; `axil.compare` makes it."""

    before: FloatArray  #: (n, K) predictions of the old model, on the scale of the fit
    after: FloatArray  #: (n, K) predictions of the new model, on the scale of the fit
    parts: dict[str, FloatArray]  #: (n, K) each: the parts of ``after - before``
    effects: FloatArray  #: (n, K, M) what each training row did
    rows: ComparedRows
    old: Explainer
    new: Explainer
    X: FeatureTable
    new_X: FeatureTable  #: the same rows with the columns of the new model
    _first_columns: dict[str, Any]  # of the table: query, before, after and change
    _weights: dict[
        str, FloatArray
    ]  # "before" and "after", (n, K or 1, M) each; empty of contributions

    def __repr__(self) -> str:
        texts = [text for _, text in self._facts()]
        return f"<axil.Comparison: {'; '.join(texts)}>"

    def _repr_html_(self) -> str:
        return templates.render_facts("axil.Comparison", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        """Return pairs of a name and a text: what is compared, and how the training rows differ."""
        unchanged, changed, added, removed = np.bincount(self.rows.status, minlength=4).tolist()
        rows = (
            f"{unchanged + changed} training rows kept, {changed} of them with other targets, "
            f"{added} added, {removed} removed"
        )
        return [
            ("explained", counted(len(self.before), "prediction")),
            ("training data", rows),
        ]

    @property
    def query_index(self) -> AnyArray:
        """Return the labels of the rows of X, (n,)."""
        return inputs.row_labels(self.X)

    @property
    def outputs(self) -> AnyArray | None:
        """Return the names of the classes or numbers of the outputs, (K,); None for one output."""
        return self.old.outputs

    @property
    def scale(self) -> TargetScale:
        """Return the scale of the fit, on which the parts add up."""
        return self.old.scale

    def table(self) -> DataFrame:
        """Return the parts of each change, with a line per explained row.

        With several outputs there is a line per explained row and output. The columns are query,
        before, after, change, and the parts that sum to it: targets changed, rows added, rows
        removed, rows kept (whose weight changed, as others came or went), base (what no row adds),
        and new splits, what the retraining did beyond the data. Of a model fitted to transformed
        targets, before, after and change are in the targets' own units and the parts on the scale
        of the fit, which their names say.
        """
        columns = dict(self._first_columns)
        for name in PARTS:
            columns[self.scale.label(name)] = self.parts[name].ravel()
        return tables.make(columns, verified_model(self.old).backend)

    def top(self, k: int = 10) -> DataFrame:
        """Return the k training rows that did most to each prediction, with the splits fixed.

        The columns are query, output if there are several, rank, row, status ("kept", "changed",
        "added" or "removed"), target before and after, weight before and after (not of
        contributions), and effect. The effects of all rows sum to the parts of the table that are
        of rows.

        Parameters
        ----------
        k : int, default 10
            How many training rows per prediction.
        """
        n, n_outputs, n_rows = self.effects.shape
        k = min(inputs.as_count(k, "k"), n_rows)
        chosen = np.argsort(-np.abs(self.effects), axis=2, kind="stable")[:, :, :k]
        rows = chosen.ravel()
        outputs = np.tile(np.repeat(np.arange(n_outputs), k), n)
        columns = tables.label_columns(self.query_index, self.outputs, "rank", np.arange(1, k + 1))
        columns["row"] = self.rows.labels[rows]
        columns["status"] = STATUS[self.rows.status[rows]]
        columns["target before"] = _targets_at(self.old, self.rows.before[rows], outputs)
        columns["target after"] = _targets_at(self.new, self.rows.after[rows], outputs)
        for name, weights in self._weights.items():
            weights_by_output = np.broadcast_to(weights, self.effects.shape)
            chosen_weights = np.take_along_axis(weights_by_output, chosen, axis=2)
            columns[f"weight {name}"] = chosen_weights.ravel()
        effects = np.take_along_axis(self.effects, chosen, axis=2)
        columns[self.scale.label("effect")] = effects.ravel()
        return tables.make(columns, verified_model(self.old).backend)

    def group(self, groups: LabelsLike) -> DataFrame:
        """Return the sums of effects of groups of training rows, with the splits fixed.

        The columns are query, output if there are several, group, rows and effect.

        Parameters
        ----------
        groups : Series or mapping of row label to group, or str
            A label for each training row of either model: a year, a region, a source; or the name
            of a column of X_train. Of rows that both models have the new one's value counts.
        """
        labels = self._group_labels(groups)
        codes, names = inputs.group_codes(labels, len(labels), "groups")
        n, n_outputs, _ = self.effects.shape
        group_sizes = np.bincount(codes, minlength=len(names))
        columns = tables.label_columns(self.query_index, self.outputs, "group", names)
        columns["rows"] = np.tile(group_sizes, n * n_outputs)
        columns[self.scale.label("effect")] = self.effects_of_groups(groups)[1].ravel()
        return tables.make(columns, verified_model(self.old).backend)

    def _group_labels(self, groups: Any) -> AnyArray:
        """Return the group of each training row of the comparison, (M,)."""
        rows = self.rows
        if isinstance(groups, str):
            labels = np.empty(len(rows.labels), dtype=object)
            for explainer, positions in ((self.old, rows.before), (self.new, rows.after)):
                model = verified_model(explainer)
                names = model.adapter.feature_names
                values = np.asarray(inputs.row_values(groups, model.features, names, "groups"))
                is_present = positions != ABSENT
                labels[is_present] = values[positions[is_present]]
            return labels
        if not hasattr(groups, "items"):
            raise InputError(
                f"groups is a {type(groups).__name__}; expected a Series or a mapping from row "
                "labels to groups, or the name of a column of both training tables."
            )
        row_labels, row_groups = by_label(groups, "groups", "group")
        group_by_key = dict(zip(keys(np.fromiter(row_labels, dtype=object)), row_groups))
        row_keys = keys(rows.labels)
        missing = [row for row, key in enumerate(row_keys) if key not in group_by_key]
        if missing:
            raise InputError(
                f"groups has no label for row {shown(rows.labels[missing[0]])} "
                f"({len(missing)} rows have none)."
            )
        return np.fromiter((group_by_key[key] for key in row_keys), dtype=object)

    def to_html(
        self,
        path: PathLike | None = None,
        *,
        k: int = 10,
        title: str | None = None,
        target: str | None = None,
        unit: str = "",
        rows: str = "records",
        query: str = "case",
        names: Mapping[str, str] | None = None,
        columns: Sequence[str] = (),
        by: LabelsLike | str | None = None,
        date_format: str = "",
    ) -> str | None:
        """Return or write one self-contained page that says why each value changed.

        The page is for the people whose values these are. Each change has a few parts in the
        targets' own units and in percent, which add up to it in the order of the page: corrected
        targets, training rows that are new, left out or weigh otherwise than before, and what the
        retraining did beyond the data. Parts without effect are left out. Below them stand the
        training rows that did most, and the comparables before and now. A search finds a value.

        Parameters
        ----------
        path : str or path, optional
            The file to write; without one the text of the page is returned.
        k : int, default 10
            How many training rows to show per value.
        title : str, optional
            The title of the page.
        target : str, default "value"
            What the page calls the target, such as "price".
        unit : str, optional
            Its unit; a sign of money, such as "$", goes in front.
        rows : str, default "records"
            What the page calls the training rows, in the plural, such as "sales".
        query : str, default "case"
            What the page calls a row of X, such as "home".
        names : dict, optional
            What the page calls columns: ``{"bldg_sf": "Floor area"}``.
        columns : sequence of str, optional
            Features of the training rows to show.
        by : str, mapping or Series, optional
            A group for each training row, as in `group`, such as its year or area. Each group has
            one part, in place of one part for all training rows.
        date_format : str, optional
            How the page writes dates, as in `Explainer.report`.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> import axil
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> settings = {"n_estimators": 20, "verbose": -1}
        >>> old = axil.Explainer(LGBMRegressor(**settings).fit(X[:380], y[:380]), X[:380], y[:380])
        >>> new = axil.Explainer(LGBMRegressor(**settings).fit(X[20:], y[20:]), X[20:], y[20:])
        >>> page = axil.compare(old, new, X[420:]).to_html(rows="patients", query="patient")
        >>> "New patients, and those left out" in page
        True
        """
        if target is None:
            target = "value"
        if names is None:
            names = {}
        words = Words(
            title="",
            target=target,
            unit=unit,
            rows=rows,
            query=query,
            names=names,
            date_format=date_format,
        )
        count = inputs.as_count(k, "k")
        options = PageOptions(count, words, list(columns), by)
        return write_page(self, path, options, title)

    def effects_of_groups(self, groups: LabelsLike) -> tuple[AnyArray, FloatArray]:
        """Return the names of row groups and the sums (n, K, groups) of their effects."""
        labels = self._group_labels(groups)
        codes, names = inputs.group_codes(labels, len(labels), "groups")
        is_member = np.zeros((len(codes), len(names)))
        is_member[np.arange(len(codes)), codes] = 1.0
        return names, np.asarray(self.effects @ is_member)

    def targets_before(self, rows: IntArray, output: int) -> AnyArray:
        """Return the old targets of some training rows; missing for those that were not there."""
        outputs = np.full(len(rows), output)
        return _targets_at(self.old, self.rows.before[rows], outputs)

    def targets_after(self, rows: IntArray, output: int) -> AnyArray:
        """Return the new targets of some training rows; missing for those that are gone."""
        outputs = np.full(len(rows), output)
        return _targets_at(self.new, self.rows.after[rows], outputs)


ChangesT = TypeVar("ChangesT", covariant=True)


@runtime_checkable
class HasChanges(Protocol[ChangesT]):
    """The protocol of objects with their own rows to compare, such as `axil.forecasts.Forecast`."""

    def changes_since(self, old: ForeignObject, /) -> ChangesT:
        """Return the comparison of an object with an older one of its kind."""


@overload
def compare(
    old: Explainer, new: Explainer, X: TableLike, *, init_score: ArrayLike | None = None
) -> Comparison: ...


@overload
def compare(old: HasChanges[ChangesT], new: HasChanges[ChangesT]) -> ChangesT: ...


def compare(
    old: Explainer | HasChanges[ChangesT],
    new: Explainer | HasChanges[ChangesT],
    X: TableLike | None = None,
    *,
    init_score: ArrayLike | None = None,
) -> Comparison | ChangesT:
    """Explain why predictions of X changed from an old model to a new one, by rows and by splits.

    axil refits the old splits to the new rows (`Explainer.refit`). Every change is then the sum of
    what the data did, by rows, and what the new splits did. Rows are matched by label: rows of one
    label and the same features are kept; with other features they count as removed and added. The
    new model may be of another library. The sums of the parts are compared with the models. The
    cost is that of one refit and two explanations of X, which hold (n, n_train) numbers each.

    Two forecasts of `axil.forecast` are compared without X: the forecasts of the dates that both
    make. The result is an `axil.forecasts.ForecastComparison`.

    Parameters
    ----------
    old : Explainer or Forecast
        The explainer of the model before; of a kind that `refit` takes, with its training rows in
        memory.
    new : Explainer or Forecast
        The explainer of the model after, of the same outputs.
    X : table
        The n rows to explain. A frame may have more columns than either model takes. Leave it out
        for forecasts.
    init_score : array of shape (n,) or (n, K), optional
        Offsets of the rows of X, as in `Explainer.explain`.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> import axil
    >>> from lightgbm import LGBMRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> old_model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X[:380], y[:380])
    >>> old = axil.Explainer(old_model, X[:380], y[:380])
    >>> new_model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X[40:420], y[40:420])
    >>> new = axil.Explainer(new_model, X[40:420], y[40:420])
    >>> found = axil.compare(old, new, X[420:])
    >>> found  # doctest: +NORMALIZE_WHITESPACE
    <axil.Comparison: 22 predictions; 340 training rows kept, 0 of them with other targets,
     40 added, 40 removed>
    >>> table = found.table()
    >>> bool(abs(table["change"] - table.iloc[:, 4:].sum(axis=1)).max() < 1e-9)
    True
    """
    if isinstance(new, HasChanges):
        if X is not None or init_score is not None:
            raise InputError("Forecasts have rows of their own; leave X and init_score out.")
        return new.changes_since(old)
    old_explainer = cast(Explainer, old)
    _check_comparable(old_explainer, new)
    if X is None:
        raise InputError("X is not given; expected the rows whose predictions changed.")
    return _compare_models(old_explainer, new, X, init_score)


def _compare_models(
    old: Explainer, new: Explainer, X: TableLike, init_score: ArrayLike | None
) -> Comparison:
    """Return why predictions of X changed from one model to the next."""
    matched_rows = match_rows(old, new)
    refitted = refit_to_new_rows(old, new, matched_rows)
    rows = with_refit_positions(matched_rows, refitted)
    old_X = columns_like(X, old)
    old_batch = verified_model(old).queries(old_X, init_score)
    new_batch = verified_model(new).queries(columns_like(X, new), init_score)
    after = verified_model(new).predicted(new_batch)
    n_outputs = verified_model(old).shape[1]
    n_rows = len(rows.labels)
    verified_model(old).budget.require(
        2 * 8 * len(old_batch) * n_outputs * n_rows,
        f"The effects of {n_rows} rows",
        "Take fewer rows of X.",
    )
    batch_size = max(1, BATCH_BYTES // (8 * n_outputs * n_rows))
    explanations = zip(
        old.iter(old_X, batch_size, init_score=init_score),
        refitted.iter(old_X, batch_size, init_score=init_score),
    )
    batches = [_change(before, middle, rows) for before, middle in explanations]
    if not batches:
        raise InputError("X has no rows; expected those whose predictions changed.")
    before = np.concatenate([batch.before for batch in batches])
    parts = {name: np.concatenate([batch.parts[name] for batch in batches]) for name in PARTS[:-1]}
    parts["new splits"] = after - np.concatenate([batch.middle for batch in batches])
    _check_sum(before, after, parts, old_batch.labels)
    return Comparison(
        before=before,
        after=after,
        parts=parts,
        effects=np.concatenate([batch.effects for batch in batches]),
        rows=rows,
        old=old,
        new=new,
        X=old_X,
        new_X=columns_like(X, new),
        _first_columns=change_columns(verified_model(old), old_batch, before, after),
        _weights={
            name: np.concatenate([batch.weights[name] for batch in batches])
            for name in batches[0].weights
        },
    )


def _check_comparable(old: Explainer, new: Explainer) -> None:
    """Refuse explainers that cannot be compared."""
    for name, explainer in (("old", old), ("new", new)):
        if not isinstance(explainer, Explainer):
            raise InputError(
                f"{name} is {shown(explainer)}; expected an axil.Explainer of the model."
            )
        verified_model(explainer).capabilities.require("refit")
        arguments_of(explainer)  # raises for an explainer that was loaded
    if verified_model(old).shape[1] != verified_model(new).shape[1]:
        raise InputError(
            f"new has {verified_model(new).shape[1]} outputs and old "
            f"{verified_model(old).shape[1]}; expected models of the same outputs."
        )
    if (old.kind == "exact") != (new.kind == "exact"):
        raise InputError(
            f"old is of kind {old.kind!r} and new of kind {new.kind!r}: their predictions are on "
            "different scales. Compare two models of numbers, or two of scores."
        )
    old_classes = _class_names(old)
    new_classes = _class_names(new)
    if old_classes != new_classes:
        raise InputError(
            f"The classes of the models differ: {shown(old_classes)} and {shown(new_classes)}."
        )
    _check_links(old, new)
    scales = [
        (explainer.scale.name, explainer.scale.base, explainer.scale.shift)
        for explainer in (old, new)
    ]
    if scales[0] != scales[1]:
        old_name = old.scale.name or "the targets themselves"
        new_name = new.scale.name or "the targets themselves"
        raise InputError(
            f"The old model was fitted to {old_name} and the new one to {new_name}; expected one "
            "scale."
        )


def _class_names(explainer: Explainer) -> list[Any] | None:
    classes: AnyArray | None = verified_model(explainer).names.classes
    return None if classes is None else classes.tolist()


def _check_links(old: Explainer, new: Explainer) -> None:
    """Refuse scores with different links, such as logarithms of counts beside numbers."""
    scores = np.add.outer(
        np.linspace(-2.0, 2.0, 9), np.linspace(-0.5, 0.5, verified_model(old).shape[1])
    )
    old_means = verified_model(old).meant(scores)
    new_means = verified_model(new).meant(scores)
    have_same_means = old_means.keys() == new_means.keys() and all(
        np.allclose(old_means[name], new_means[name]) for name in old_means
    )
    if not have_same_means:
        raise InputError(
            f"A score of the old model stands for {_link_words(old)}, one of the new model for "
            f"{_link_words(new)}: they have no common scale. Compare models of one link, such as "
            "two of log-loss, or two of losses of counts."
        )


def _link_words(explainer: Explainer) -> str:
    """Return the meaning of a score of 1 in words: "a mean of 2.72"."""
    score = np.ones((1, verified_model(explainer).shape[1]))
    words = "the prediction itself"
    for name, values in verified_model(explainer).meant(score).items():
        words = f"a {name} (a score of 1 is {values[0, -1]:.3g})"
    loss = ""
    if explainer.verification is not None:
        loss = explainer.verification.details.get("loss", "")
    if loss:
        return f"{words}, by {loss}"
    return words


@dataclass(frozen=True, eq=False)
class _BatchChange:
    """The effect of the data on the predictions of a batch of n rows."""

    before: FloatArray  #: (n, K) predictions of the old model
    middle: FloatArray  #: (n, K) predictions of the old splits refitted to the new rows
    parts: dict[str, FloatArray]  #: (n, K) each: all of `PARTS` but the new splits
    effects: FloatArray  #: (n, K, M)
    weights: dict[str, FloatArray] = field(default_factory=dict)  #: (n, K or 1, M) each


def _change(old: Explanation, middle: Explanation, rows: ComparedRows) -> _BatchChange:
    """Return the effect of the new rows on a batch of predictions, at the old splits."""
    if old.kind == "additive":
        return _change_of_scores(old, middle, rows)
    before = old.predictions.reshape(len(old), -1)
    middle_predictions = middle.predictions.reshape(before.shape)
    old_weights = _weights_at(old, rows.before)
    new_weights = _weights_at(middle, rows.middle)
    new_targets = _at(_targets_by_output(middle), rows.middle)[None]
    old_targets = _at(_targets_by_output(old), rows.before)[None]
    # A row that is added has no old target; its new one stands in.
    old_targets = np.where(rows.before != ABSENT, old_targets, new_targets)
    target_effects = np.where(rows.middle != ABSENT, new_weights * (new_targets - old_targets), 0.0)
    weight_effects = (new_weights - old_weights) * (old_targets - before[:, :, None])
    parts = _sums_by_part(weight_effects, rows)
    parts["targets changed"] = target_effects.sum(axis=2)
    change_of_weight_sums = new_weights.sum(axis=2) - old_weights.sum(axis=2)
    base = _change_of_intercepts(old, middle) + before * change_of_weight_sums
    parts["base"] = _without_rounding(base, before, middle_predictions)
    return _BatchChange(
        before=before,
        middle=middle_predictions,
        parts=parts,
        effects=target_effects + weight_effects,
        weights={
            "before": np.where(rows.before != ABSENT, old_weights, np.nan),
            "after": np.where(rows.middle != ABSENT, new_weights, np.nan),
        },
    )


def _change_of_scores(old: Explanation, middle: Explanation, rows: ComparedRows) -> _BatchChange:
    """Return the differences of the contributions to scores, row by row."""
    before = old.predictions.reshape(len(old), -1)
    middle_scores = middle.predictions.reshape(before.shape)
    shape = (*before.shape, -1)
    old_contributions = _at(old.contributions.reshape(shape), rows.before)
    new_contributions = _at(middle.contributions.reshape(shape), rows.middle)
    effects = new_contributions - old_contributions
    parts = _sums_by_part(effects, rows)
    parts["rows kept"] = effects[:, :, rows.has(KEPT)].sum(axis=2)
    base = _change_of_intercepts(old, middle)
    parts["base"] = _without_rounding(base, before, middle_scores)
    return _BatchChange(before, middle_scores, parts, effects)


def _sums_by_part(effects: FloatArray, rows: ComparedRows) -> dict[str, FloatArray]:
    """Sum effects (n, K, M) over the rows of each part, (n, K) each."""
    return {
        name: effects[:, :, rows.has(*statuses)].sum(axis=2)
        for name, statuses in STATUSES_BY_PART.items()
    }


def _change_of_intercepts(old: Explanation, middle: Explanation) -> FloatArray:
    """Return the differences of the intercepts, (n, K)."""
    shape = (len(old), -1)
    return np.asarray(middle.intercepts.reshape(shape) - old.intercepts.reshape(shape))


def _without_rounding(base: FloatArray, before: FloatArray, after: FloatArray) -> FloatArray:
    """Return the base after replacing numbers that are only rounding by 0."""
    largest = np.maximum(np.abs(before), np.abs(after))
    return np.where(np.abs(base) <= BASE_ROUNDING * largest, 0.0, base)


def _weights_at(explanation: Explanation, positions: IntArray) -> FloatArray:
    """Return the weights of M training rows, (n, K, M), or (n, 1, M) if outputs share them."""
    weights = explanation.weights
    return _at(weights.reshape(len(explanation), -1, weights.shape[-1]), positions)


def _targets_by_output(explanation: Explanation) -> FloatArray:
    """Return the targets of all training rows, (K, N)."""
    targets = explanation.targets
    return np.asarray(targets.reshape(len(targets), -1).T)


def _at(values: FloatArray, positions: IntArray) -> FloatArray:
    """Return the numbers of the rows at these positions, (..., M); 0 for absent rows."""
    is_present = positions != ABSENT
    numbers = np.zeros((*values.shape[:-1], len(positions)))
    numbers[..., is_present] = values[..., positions[is_present]]
    return numbers


def _check_sum(
    before: FloatArray, after: FloatArray, parts: dict[str, FloatArray], labels: AnyArray
) -> None:
    """Raise unless the parts sum to the change of the predictions."""
    sums = before + sum(parts.values())
    largest = max(float(np.abs(before).max()), float(np.abs(after).max()))
    errors = np.abs(sums - after)
    if not (errors <= REFIT_ROUNDING * largest).all():
        worst = np.unravel_index(int(np.nan_to_num(errors, nan=np.inf).argmax()), errors.shape)
        raise ExactnessError(
            f"sum of the parts of row {labels[worst[0]]}",
            float(sums[worst]),
            float(after[worst]),
            "Please report it.",
        )


def _targets_at(explainer: Explainer, positions: IntArray, outputs: IntArray) -> AnyArray:
    """Return targets in the user's units, of classes their names; missing where there is no row."""
    model = verified_model(explainer)
    if model.kind is Kind.ADDITIVE or model.names.classes is not None:
        y = arguments_of(explainer).y
        y = y.reshape(len(y), -1)
        targets = y[positions, np.minimum(outputs, y.shape[1] - 1)]
    else:
        targets = np.array(model.shown[positions, outputs])
    is_absent = positions == ABSENT
    if not is_absent.any():
        return targets
    if targets.dtype.kind in "biuf":
        targets = targets.astype(np.float64)
        targets[is_absent] = np.nan
    else:
        targets = targets.astype(object)
        targets[is_absent] = None
    return targets
