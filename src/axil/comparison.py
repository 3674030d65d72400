"""Comparison: why predictions changed from one model to another, by training rows and by splits.

With c = F_old(x), k_old the weights of the old fit and k_mid those of the old splits refitted to the new rows,

    F_mid - F_old = sum over added rows of k_mid (y - c)  -  sum over removed rows of k_old (y - c)
                  + sum over kept rows of k_mid (y' - y) + (k_mid - k_old)(y - c)  +  base

and F_new - F_mid is what the new splits did. The base is the change of intercepts and of sums of weights times c: none where
weights sum to one. Pushes, which are parts of a score whatever the targets are, are subtracted row by row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.arrays import FloatArray, IntArray
from axil.attribution import Kind
from axil.errors import ExactnessError, InputError, counted, shown
from axil.explainer import Explainer
from axil.explanation import Explanation
from axil.inputs.codes import keys
from axil.machine.memory import BATCH_BYTES
from axil.methods.refit import again, made_of
from axil.methods.what_if import by_label
from axil.methods.without import change_columns
from axil.output import changes_page, tables
from axil.scale import ROUND_TRIP, TargetScale

PARTS = ("targets changed", "rows added", "rows removed", "rows kept", "base", "new splits")
STATUS = np.array(["kept", "changed", "added", "removed"], dtype=object)
KEPT, CHANGED, ADDED, REMOVED = range(4)
NOTHING = 1e-12  # of a prediction: a base of sums of weights that are one
ROUNDING = (
    1e-6  # of the largest prediction: libraries keep the leaf values of a refit in single precision
)


@dataclass(frozen=True, eq=False)
class ComparedRows:
    """The M training rows of both models: those of the old one, then those added."""

    labels: NDArray[Any]  #: (M,)
    status: IntArray  #: (M,) places in `STATUS`
    before: IntArray  #: (M,) positions in the old data; -1: not there
    middle: NDArray[
        np.intp
    ]  #: (M,) positions in the old splits refitted to the new data; -1: not there
    after: IntArray  #: (M,) positions in the new data; -1: not there


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Changes of n predictions from one model to another, and what each training row did to them; made by `axil.compare`."""

    before: FloatArray  #: (n, K) predictions of the old model, on the scale of the fit
    after: FloatArray  #: (n, K) predictions of the new model, on the scale of the fit
    parts: dict[str, FloatArray]  #: (n, K) each: the parts of ``after - before``
    effects: FloatArray  #: (n, K, M) what each training row did
    rows: ComparedRows
    old: Explainer
    new: Explainer
    X: Any
    _shown: Any  # the table's first columns
    _weights: (
        tuple[FloatArray, FloatArray] | None
    )  # (n, K or 1, M) before and after; None of pushes

    def __repr__(self) -> str:
        kept, changed, added, removed = np.bincount(self.rows.status, minlength=4).tolist()
        asked = counted(len(self.before), "prediction")
        rows = f"{kept + changed} training rows kept, {changed} of them with other targets, {added} added, {removed} removed"
        return f"<axil.Comparison: {asked}; {rows}>"

    @property
    def query_index(self) -> NDArray[Any]:
        """(n,): the labels of the rows of X."""
        return inputs.row_labels(self.X)

    @property
    def outputs(self) -> NDArray[Any] | None:
        """(K,): the names of the classes or the numbers of the outputs; None for a single output."""
        return self.old.outputs

    @property
    def scale(self) -> TargetScale:
        """The scale of the fit, on which the parts add up."""
        return self.old.scale

    def table(self) -> Any:
        """The parts of each change: a frame with a line per query, and output if there are several.

        The columns are query, before, after, change, and the parts that sum to it: targets changed, rows added, rows removed,
        rows kept (whose weight changed, as others came or went), base (what no row adds), and new splits, what the retraining
        did beyond the data. Of a model fitted to transformed targets, before, after and change are in the targets' own units and
        the parts on the scale of the fit, which their names say.
        """
        columns = dict(self._shown)
        columns |= {self.scale.label(name): self.parts[name].ravel() for name in PARTS}
        return tables.make(columns, self.old._model.backend)

    def top(self, k: int = 10) -> Any:
        """The k training rows that did most to each prediction, splits kept: a frame with a line for each.

        The columns are query, output if there are several, rank, row, status ("kept", "changed", "added" or "removed"), target
        before and after, weight before and after (not of pushes), and effect. The effects of all rows sum to the parts of the
        table that are of rows.

        Parameters
        ----------
        k : int, default 10
            How many training rows per prediction.
        """
        n, n_outputs, n_rows = self.effects.shape
        k = min(inputs.as_count(k, "k"), n_rows)
        chosen = np.argsort(-np.abs(self.effects), axis=2, kind="stable")[:, :, :k]
        columns = tables.label_columns(self.query_index, self.outputs, "rank", np.arange(1, k + 1))
        rows = chosen.ravel()
        columns |= {"row": self.rows.labels[rows], "status": STATUS[self.rows.status[rows]]}
        outputs = np.tile(np.repeat(np.arange(n_outputs), k), n)
        for when, explainer, places in (
            ("before", self.old, self.rows.before),
            ("after", self.new, self.rows.after),
        ):
            columns[f"target {when}"] = _targets(explainer, places[rows], outputs)
        if self._weights is not None:
            for when, weights in zip(("before", "after"), self._weights):
                own = np.broadcast_to(weights, self.effects.shape)
                columns[f"weight {when}"] = np.take_along_axis(own, chosen, axis=2).ravel()
        columns[self.scale.label("effect")] = np.take_along_axis(
            self.effects, chosen, axis=2
        ).ravel()
        return tables.make(columns, self.old._model.backend)

    def group(self, groups: Any) -> Any:
        """Sums of the effects of groups of training rows on each prediction, splits kept.

        A frame with the columns query, output if there are several, group, rows and effect.

        Parameters
        ----------
        groups : Series or mapping of row label to group, or str
            A label for each training row of either model: a year, a region, a source; or the name of a column of X_train. Of rows
            that both models have the new one's value counts.
        """
        codes, names = inputs.group_codes(self._groups(groups), len(self.rows.labels), "groups")
        member = np.zeros((len(codes), len(names)))
        member[np.arange(len(codes)), codes] = 1.0
        columns = tables.label_columns(self.query_index, self.outputs, "group", names)
        columns["rows"] = np.tile(
            np.bincount(codes, minlength=len(names)), self.effects.shape[0] * self.effects.shape[1]
        )
        columns[self.scale.label("effect")] = (self.effects @ member).ravel()
        return tables.make(columns, self.old._model.backend)

    def _groups(self, groups: Any) -> NDArray[Any]:
        """(M,): the group of each row."""
        rows = self.rows
        if isinstance(groups, str):
            found = np.empty(len(rows.labels), dtype=object)
            for explainer, places in ((self.old, rows.before), (self.new, rows.after)):
                model = explainer._model
                values = inputs.row_values(
                    groups, model.features, model.adapter.feature_names, "groups"
                )
                found[places >= 0] = np.asarray(values)[places[places >= 0]]
            return found
        if not hasattr(groups, "items"):
            raise InputError(
                f"groups is a {type(groups).__name__}; expected a Series or a mapping from row labels to groups, or the name of "
                "a column of both training tables."
            )
        labels, values = by_label(groups, "groups", "group")
        group_by_key = dict(zip(keys(np.fromiter(labels, dtype=object)), values))
        row_keys = keys(rows.labels)
        missing = [i for i, key in enumerate(row_keys) if key not in group_by_key]
        if missing:
            raise InputError(
                f"groups has no label for row {shown(rows.labels[missing[0]])} ({len(missing)} rows have none)."
            )
        return np.fromiter((group_by_key[key] for key in row_keys), dtype=object)

    def to_html(
        self, path: Any = None, *, k: int = 10, title: str | None = None, target: str | None = None
    ) -> str | None:
        """One self-contained page: for each prediction the parts of its change, and the rows that did most.

        Of a model fitted to logarithms the parts and effects are factors.

        Parameters
        ----------
        path : str or path, optional
            The file to write; without one the text of the page is returned.
        k : int, default 10
            How many training rows to show per prediction.
        title : str, optional
            The title of the page.
        target : str, optional
            The name of the targets, such as "price".
        """
        return changes_page.write(self.table(), self.top(k), PARTS, self.scale, path, title, target)


def compare(old: Explainer, new: Explainer, X: Any, init_score: Any = None) -> Comparison:
    """Why predictions of X changed from an old model to a new one: data or retraining, and which rows.

    The old splits are refitted to the new rows (`Explainer.refit`), so that every change falls into what the data did, by rows,
    and what the new splits did. Rows are matched by label: rows of one label and the same features are kept; with other
    features they count as removed and added. The new model may be of another library. The sums of the parts are compared with
    the models. Cost of one refit and of two explanations of X, which hold (n, n_train) numbers each.

    Parameters
    ----------
    old : Explainer
        The explainer of the model before; of a kind that `refit` takes, with its training rows in memory.
    new : Explainer
        The explainer of the model after, of the same outputs.
    X : table
        The n rows to explain. A frame may have more columns than either model takes.
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
    >>> old, new = (axil.Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X[a:b], y[a:b]), X[a:b], y[a:b])
    ...     for a, b in ((0, 380), (40, 420)))
    >>> found = axil.compare(old, new, X[420:])
    >>> found
    <axil.Comparison: 22 predictions; 340 training rows kept, 0 of them with other targets, 40 added, 40 removed>
    >>> table = found.table()
    >>> bool(abs(table["change"] - table.iloc[:, 4:].sum(axis=1)).max() < 1e-9)
    True
    """
    _check(old, new)
    places = _matched(old, new)
    middle = _refitted(old, new, places)
    asked = old._model.queries(own := _columns_like(X, old), init_score)
    after = new._model.predicted(new._model.queries(_columns_like(X, new), init_score))
    rows, n, n_outputs = _with_middle(places, middle), len(asked), old._model.shape[1]
    old._model.budget.require(
        2 * 8 * n * n_outputs * len(rows.labels),
        f"The effects of {len(rows.labels)} rows",
        "Take fewer rows of X.",
    )
    size = max(1, BATCH_BYTES // (8 * n_outputs * len(rows.labels)))
    batches = zip(old.iter(own, size, init_score), middle.iter(own, size, init_score))
    found = [_batch(before, between, rows) for before, between in batches]
    joined = (
        {name: np.concatenate([one[name] for one in found]) for name in found[0]} if found else {}
    )
    if not found:
        raise InputError("X has no rows; expected those whose predictions changed.")
    before, between = joined.pop("before"), joined.pop("between")
    parts = {name: joined[name] for name in PARTS[:-1]} | {"new splits": after - between}
    _prove(before, after, parts, asked.labels)
    shown_columns = change_columns(old._model, asked, before, after)
    weights = (
        (joined["weight before"], joined["weight after"]) if "weight before" in joined else None
    )
    return Comparison(
        before, after, parts, joined["effects"], rows, old, new, own, shown_columns, weights
    )


def _check(old: Any, new: Any) -> None:
    """Refuse explainers that cannot be compared."""
    for what, one in (("old", old), ("new", new)):
        if not isinstance(one, Explainer):
            raise InputError(f"{what} is {shown(one)}; expected an axil.Explainer of the model.")
        one._model.capabilities.require("refit")
        made_of(one)  # which an explainer that was loaded has not
    if old._model.shape[1] != new._model.shape[1]:
        raise InputError(
            f"new has {new._model.shape[1]} outputs and old {old._model.shape[1]}; expected models of the same outputs."
        )
    if (old.kind == "exact") != (new.kind == "exact"):
        raise InputError(
            f"old is of kind {old.kind!r} and new of kind {new.kind!r}: their predictions are on other scales. Compare two "
            "models of numbers, or two of scores."
        )
    names = [
        None if one._model.classes is None else one._model.classes.tolist() for one in (old, new)
    ]
    if names[0] != names[1]:
        raise InputError(
            f"The classes of the models differ: {shown(names[0])} and {shown(names[1])}."
        )
    _check_links(old, new)
    mine, theirs = old.scale, new.scale
    if (mine.name, mine.base, mine.shift) != (theirs.name, theirs.base, theirs.shift):
        words = [one.name or "the targets themselves" for one in (mine, theirs)]
        raise InputError(
            f"The old model was fitted to {words[0]} and the new one to {words[1]}; expected one scale."
        )


def _check_links(old: Explainer, new: Explainer) -> None:
    """Refuse additive models whose scores stand for different means, as logarithms of counts and numbers do."""
    scores = np.add.outer(np.linspace(-2.0, 2.0, 9), np.linspace(-0.5, 0.5, old._model.shape[1]))
    old_means, new_means = old._model.meant(scores), new._model.meant(scores)
    is_same = old_means.keys() == new_means.keys() and all(
        np.allclose(old_means[name], new_means[name]) for name in old_means
    )
    if not is_same:
        old_link, new_link = _link_words(old, old_means), _link_words(new, new_means)
        raise InputError(
            f"A score of the old model stands for {old_link}, one of the new model for {new_link}: they have no common "
            "scale. Compare models of one link, such as two of log-loss, or two of losses of counts."
        )


def _link_words(explainer: Explainer, means: dict[str, FloatArray]) -> str:
    """Return what a score of 1 stands for, in words: "a mean of 2.72"."""
    score = np.ones((1, explainer._model.shape[1]))
    stands_for = explainer._model.meant(score)
    loss = (
        explainer.verification.details.get("loss", "") if explainer.verification is not None else ""
    )
    words = "the prediction itself"
    for name, values in stands_for.items():
        words = f"a {name} (a score of 1 is {values[0, -1]:.3g})"
    return f"{words}, by {loss}" if loss else words


def _labels(explainer: Explainer, which: str) -> dict[Any, int]:
    """Return the position of the training row of each label, by its key."""
    labels = keys(explainer.index)
    position_by_label = {label: place for place, label in enumerate(labels)}
    if len(position_by_label) < len(labels):
        label, n = Counter(labels).most_common(1)[0]
        twice = explainer.index[position_by_label[label]]
        raise InputError(
            f"The label {shown(twice)} stands for {n} training rows of the {which} explainer, and rows are "
            "matched by label. Make it with labels that are unique: axil.Explainer(..., index=labels)."
        )
    return position_by_label


def _matched(old: Explainer, new: Explainer) -> ComparedRows:
    """The rows of both models, matched by label and features."""
    mine, theirs = _labels(old, "old"), _labels(new, "new")
    pairs = np.array(
        [(place, theirs[label]) for label, place in mine.items() if label in theirs], dtype=np.intp
    )
    if not len(pairs):
        raise InputError(
            "No training row of the new explainer has a label that the old one has: "
            f"{shown(new.index[0])} and {shown(old.index[0])} are their first. Rows are matched by label: make both "
            "with the same labels, axil.Explainer(..., index=labels)."
        )
    same = _facts(old, old)[pairs[:, 0]] == _facts(new, old)[pairs[:, 1]]
    pairs = pairs[same]
    added = np.setdiff1d(np.arange(len(theirs)), pairs[:, 1])
    n_old = len(mine)
    after = np.full(n_old, -1)
    after[pairs[:, 0]] = pairs[:, 1]
    status = np.where(after < 0, REMOVED, KEPT)
    y_old = _as_table(made_of(old).y)[pairs[:, 0]]
    y_new = _as_table(_targets_for(old, new))[pairs[:, 1]]
    has_other_target = y_old != y_new
    if _converts(old, new):  # a logarithm and its inverse lead back up to rounding
        has_other_target &= ~np.isclose(y_old, y_new, rtol=ROUND_TRIP, atol=0.0)
    status[pairs[has_other_target.any(axis=1), 0]] = CHANGED
    none = np.full(len(added), -1)
    return ComparedRows(
        inputs.joined(old.index, new.index[added]),
        np.concatenate([status, np.full(len(added), ADDED)]),
        np.concatenate([np.arange(n_old), none]),
        np.full(n_old + len(added), -1),
        np.concatenate([after, added]),
    )


def _as_table(y: NDArray[Any]) -> NDArray[Any]:
    """Return targets, (N,) or (N, K), as (N, K)."""
    return y.reshape(len(y), -1)


def _converts(old: Explainer, new: Explainer) -> bool:
    """Return whether one model transforms its targets itself, and the other was given transformed ones."""
    return (old.scale.onward is None) != (new.scale.onward is None)


def _targets_for(old: Explainer, new: Explainer) -> NDArray[Any]:
    """Return the targets of the new training rows, (N,) or (N, K), in the unit in which the old model takes targets."""
    y = made_of(new).y
    if not _converts(old, new):
        return y
    return new.scale.inverse(y) if new.scale.onward is None else new.scale.forward(y)


def _facts(explainer: Explainer, like: Explainer) -> NDArray[Any]:
    """(N,): a key for each training row, equal where features and offsets are."""
    made, features = made_of(explainer), _columns_like(explainer._model.features, like)
    offsets = (
        np.zeros((features.shape[0], 1))
        if made.init_score is None
        else made.init_score.reshape(features.shape[0], -1)
    )
    return np.asarray(inputs.row_keys(features, offsets, single=True))


def _columns_like(X: Any, explainer: Explainer) -> Any:
    """X with the columns of the explainer's training rows, where both are frames."""
    given, own = inputs.as_frame(X), inputs.as_frame(explainer._model.features)
    if given is None or own is None or list(given.columns) == list(own.columns):
        return X
    if not set(own.columns) <= set(given.columns):
        return X  # the model says what is missing
    return given.select(list(own.columns)).to_native()


def _refitted(old: Explainer, new: Explainer, rows: ComparedRows) -> Explainer:
    """The old splits, refitted to the new rows."""
    made, other, y = made_of(new), made_of(old), _targets_for(old, new)
    kept, added = rows.status < ADDED, rows.after[rows.status == ADDED]
    change: dict[str, Any] = {}
    if (rows.status == REMOVED).any():
        gone = np.zeros(len(old.index), dtype=bool)
        gone[rows.before[rows.status == REMOVED]] = True
        change["drop"] = gone
    changed = rows.status == CHANGED
    if changed.any():
        change["targets"] = dict(
            zip(inputs.as_list(rows.labels[changed]), list(y[rows.after[changed]]))
        )
    if made.sample_weight is not None or other.sample_weight is not None:
        weights = np.ones(len(old.index))
        weights[rows.before[kept]] = (
            1.0 if made.sample_weight is None else made.sample_weight[rows.after[kept]]
        )
        change["sample_weight"] = weights
    if len(added):
        X = inputs.take_rows(_columns_like(new._model.features, old), added)
        more = [None if made.sample_weight is None else made.sample_weight[added]]
        more += [] if made.init_score is None else [made.init_score[added]]
        change["add"] = (X, y[added], *more)
        change["added_labels"] = new.index[added]
    found: Explainer = again(
        old, **change
    )  # no word about splits: the new ones are a part of the answer
    return found


def _with_middle(rows: ComparedRows, middle: Explainer) -> ComparedRows:
    """The rows with their positions in the refit, which has those kept, in their order, and then those added."""
    n_added = int((rows.status == ADDED).sum())
    labels = keys(middle.index)
    known = dict(zip(labels[: len(labels) - n_added], range(len(labels))))
    places = np.array([known.get(label, -1) for label in keys(rows.labels)], dtype=np.intp)
    places[rows.status == REMOVED] = -1
    places[rows.status == ADDED] = np.arange(len(labels) - n_added, len(labels))
    return ComparedRows(rows.labels, rows.status, rows.before, places, rows.after)


def _spread(values: Any, places: IntArray) -> FloatArray:
    """(n, ., M): numbers (n, ., N) of rows at these places; 0 where there is none."""
    found = np.zeros((*values.shape[:-1], len(places)))
    found[..., places >= 0] = values[..., places[places >= 0]]
    return found


def _batch(old: Explanation, middle: Explanation, rows: ComparedRows) -> dict[str, Any]:
    """The predictions before and between (n, K), their parts (n, K) each, and the effects of rows (n, K, M)."""
    n = len(old)
    before, between = (one.predictions.reshape(n, -1) for one in (old, middle))
    bases = [one.intercepts.reshape(before.shape) for one in (old, middle)]
    of = {
        name: np.isin(rows.status, which)
        for name, which in zip(PARTS, ([CHANGED], [ADDED], [REMOVED], [KEPT, CHANGED]))
    }
    found: dict[str, Any] = {"before": before, "between": between}
    if old.kind == "additive":
        shape = (n, before.shape[1], -1)
        pairs = zip((old, middle), (rows.before, rows.middle))
        s_old, s_new = (_spread(one.contributions.reshape(shape), places) for one, places in pairs)
        effects = s_new - s_old
        of["rows kept"] = rows.status == KEPT
        base = bases[1] - bases[0]
        found |= {name: effects[:, :, mask].sum(axis=2) for name, mask in of.items()}
    else:
        k_old, k_new = (
            _spread(one.weights.reshape(n, -1, one.weights.shape[-1]), places)
            for one, places in ((old, rows.before), (middle, rows.middle))
        )
        y_old, y_new = (
            _spread(one.targets.reshape(len(one.targets), -1).T, places)[None]
            for one, places in ((old, rows.before), (middle, rows.middle))
        )
        y_old = np.where(rows.before >= 0, y_old, y_new)  # of rows that are added
        moved = np.where(rows.middle >= 0, k_new * (y_new - y_old), 0.0)
        weighed = (k_new - k_old) * (y_old - before[:, :, None])
        effects = moved + weighed
        base = bases[1] - bases[0] + before * (k_new.sum(axis=2) - k_old.sum(axis=2))
        found["targets changed"] = moved.sum(axis=2)
        found |= {name: weighed[:, :, of[name]].sum(axis=2) for name in PARTS[1:4]}
        there = ((k_old, rows.before), (k_new, rows.middle))
        found |= {
            f"weight {when}": np.where(places >= 0, weights, np.nan)
            for when, (weights, places) in zip(("before", "after"), there)
        }
    nothing = np.abs(base) <= NOTHING * np.maximum(np.abs(before), np.abs(between))
    return found | {"base": np.where(nothing, 0.0, base), "effects": effects}


def _prove(
    before: FloatArray, after: FloatArray, parts: dict[str, FloatArray], labels: NDArray[Any]
) -> None:
    """Raise unless the parts lead from the old predictions to the new ones."""
    made = before + sum(parts.values())
    scale = max(float(np.abs(before).max()), float(np.abs(after).max()))
    error = np.abs(made - after)
    if not (error <= ROUNDING * scale).all():
        worst = np.unravel_index(int(np.nan_to_num(error, nan=np.inf).argmax()), error.shape)
        raise ExactnessError(
            f"sum of the parts of row {labels[worst[0]]}",
            float(made[worst]),
            float(after[worst]),
            "Please report it.",
        )


def _targets(explainer: Explainer, places: IntArray, outputs: IntArray) -> NDArray[Any]:
    """Targets of rows at these places as people read them, of classes their names; missing where there is no row."""
    model, there = explainer._model, places >= 0
    made = made_of(explainer)
    if model.kind is Kind.ADDITIVE or model.classes is not None:
        given = made.y.reshape(len(made.y), -1)
        found = np.asarray(given[places, np.minimum(outputs, given.shape[1] - 1)])
    else:
        found = np.asarray(model.shown[places, outputs])
    if found.dtype.kind in "biuf" and not there.all():
        found = found.astype(np.float64)
    elif not there.all():
        found = found.astype(object)
    found[~there] = np.nan if found.dtype.kind == "f" else None
    return found
