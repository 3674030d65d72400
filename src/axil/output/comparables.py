"""List training rows beside predictions, with their targets as the model adjusts them to these."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil import inputs
from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.errors import InputError, counted, shown, warn
from axil.output import tables
from axil.output.near_rules import PlaceRule
from axil.output.shown_columns import Columns
from axil.output.tables import Predicted
from axil.reductions.choice import Compared
from axil.scale import TargetScale

MAX_LABELS = 3  # in a warning


@dataclass(frozen=True, eq=False)
class Listed:
    """The training rows listed beside a batch of predictions."""

    columns: dict[str, AnyArray]  #: a line for each listed row
    #: a line for each prediction and output; empty without adjusted targets
    summary: dict[str, AnyArray]


def listed(
    predicted: Predicted, compared: Compared, per_class: bool = True, first: int = 0
) -> Listed:
    """Return the columns of `top` for the listed rows, and the share of ``sum |weight|`` so far.

    The share of a row is that of all rows down to it. Where residuals are known, the columns also
    have the targets as the model adjusts them to the explained row, ``y_j + F(x) - F(x_j)``. Two
    more columns are ``position``, that of the row among the training rows, and ``asked``, that of
    the prediction.

    Parameters
    ----------
    predicted : Predicted
        The predictions.
    compared : Compared
        The rows to list beside each of them.
    per_class : bool
        Whether each class has lines of its own.
    first : int
        The position of the first prediction.
    """
    if not per_class:
        return _listed_once(predicted, compared, first)
    best = compared.best
    lines = tables.top_columns(predicted, best)
    columns: dict[str, AnyArray] = {}
    if predicted.weighted:
        name_before_share = "weight"
    else:
        name_before_share = "contribution"
    for name, column in lines.items():
        columns[name] = column
        if name == name_before_share and compared.has_effects:
            columns["share"] = compared.shares.ravel()
        if name == "row" and "similarity" in best.columns:
            columns["similarity"] = best.columns["similarity"].ravel()
    summary: dict[str, AnyArray] = {}
    if "residual" in best.columns:
        columns["adjusted"] = _adjusted(predicted.scale, compared).ravel()
    if "residual" in best.columns and compared.has_effects:
        mean = _mean_adjusted(predicted.scale, compared)
        mean_of_line = np.broadcast_to(mean[:, :, None], best.size.shape)
        columns["adjusted (all)"] = mean_of_line.ravel()
        summary = _summary(predicted, compared, mean)
    return Listed(_filled(columns, compared, first), summary)


def _listed_once(predicted: Predicted, compared: Compared, first: int) -> Listed:
    """Return one line per row for classes that share their weights.

    It has the predicted class and the row's own class.
    """
    assert predicted.classes is not None
    best = compared.best
    predictions = compared.predictions
    if predicted.has_link:
        name = "score"
    else:
        name = "probability"
    prediction_columns = {
        "prediction": tables.likeliest(predicted.classes, predictions),
        name: predictions.max(axis=1),
    }
    columns: dict[str, AnyArray] = tables.predicted_columns(
        predicted.labels, None, prediction_columns, best.size.shape[2]
    )
    columns["row"] = best.columns["row"][:, 0].ravel()
    if "similarity" in best.columns:
        columns["similarity"] = best.columns["similarity"][:, 0].ravel()
    if compared.has_effects:
        columns["weight"] = best.columns["effect"][:, 0].ravel()
        columns["share"] = compared.shares[:, 0].ravel()
    columns["target"] = predicted.classes[best.columns["target"].argmax(axis=1).ravel()]
    return Listed(_filled(columns, compared, first, n_outputs=1), {})


def _filled(
    columns: dict[str, AnyArray], compared: Compared, first: int, n_outputs: int | None = None
) -> dict[str, AnyArray]:
    """Add the positions of rows and predictions, and leave out lines without a row."""
    positions = compared.best.columns["position"][:, :n_outputs]
    queries = np.broadcast_to(first + np.arange(len(positions))[:, None, None], positions.shape)
    columns |= {"position": positions.ravel(), "asked": queries.ravel()}
    has_row = columns["position"] >= 0
    if has_row.all():
        return columns
    return {name: column[has_row] for name, column in columns.items()}


def _adjusted(scale: TargetScale, compared: Compared) -> FloatArray:
    """Return the adjusted targets of the listed rows, (n, K, k)."""
    residuals = compared.best.columns["residual"]
    return _inverse(scale, compared.predictions[:, :, None] + residuals)


def _mean_adjusted(scale: TargetScale, compared: Compared) -> FloatArray:
    """Return the mean of all rows' adjusted targets under their weights, (n, K)."""
    bias = _quotient(compared.bias, compared.weights, compared.weights > 0)
    return _inverse(scale, compared.predictions + bias)


def _summary(predicted: Predicted, compared: Compared, mean: FloatArray) -> dict[str, AnyArray]:
    """Return a line per prediction and output, with the mean of all adjusted targets (n, K)."""
    scale = predicted.scale
    columns: dict[str, AnyArray] = tables.label_columns(
        predicted.labels, predicted.outputs, "share", np.zeros(1)
    )
    columns["share"] = compared.shares[:, :, -1].ravel()
    columns["value share"] = _value_share(scale, compared).ravel()
    columns["prediction"] = _inverse(scale, compared.predictions).ravel()
    columns["mean"] = mean.ravel()
    columns[scale.label("bias")] = compared.bias.ravel()
    return columns


def _inverse(scale: TargetScale, values: FloatArray) -> FloatArray:
    """Return numbers (n, K) or (n, K, k) on the scale of the fit in the user's units."""
    outputs_last = np.moveaxis(values, 1, -1)
    readable = scale.inverse(outputs_last.reshape(-1, outputs_last.shape[-1]))
    return np.moveaxis(readable.reshape(outputs_last.shape), -1, 1)


def _quotient(above: FloatArray, below: FloatArray, is_known: BoolArray) -> FloatArray:
    """Return ``above / below``; nan if it is undefined."""
    return np.asarray(np.divide(above, below, out=np.full_like(above, np.nan), where=is_known))


def _value_share(scale: TargetScale, compared: Compared) -> FloatArray:
    """Return the percentage by which predictions rise with one percent of listed targets, (n, K).

    It is ``sum k_j y_j / F`` in the user's units, and ``sum k_j`` for logarithms. It is nan for a
    prediction of zero, and on other scales.
    """
    best = compared.best
    if not (scale.is_identity or scale.is_log):
        return np.full(best.size.shape[:2], np.nan)
    slopes = best.columns["target"]
    predictions = _inverse(scale, compared.predictions)
    if scale.is_log:
        slopes = slopes / (slopes + scale.shift)
        predictions = predictions / (predictions + scale.shift)
    effects = np.where(best.size < 0, 0.0, best.columns["effect"] * slopes)
    return _quotient(effects.sum(axis=2), predictions, predictions != 0)


@dataclass(frozen=True, eq=False)
class Beside:
    """Training rows and the rows that they are listed beside."""

    known: Columns  #: features and further columns of both
    n_targets: tuple[int, int]  #: (N, K)
    backend: str
    note: str  #: on the numbers of the table


def as_per_class(per_class: Any, is_shared: bool) -> bool:
    """Check the option ``per_class``; one line for all classes needs weights that classes share."""
    per_class = inputs.as_flag(per_class, "per_class")
    if not per_class and not is_shared:
        raise InputError(
            "per_class=False is for classifiers whose classes share their weights, such as "
            "forests; this model has one output, numbers for targets, or weights for each output. "
            "Leave it out."
        )
    return bool(per_class)


def similar_table(
    parts: Iterable[tuple[Predicted, Compared]],
    beside: Beside,
    chosen: list[int],
    per_class: bool,
    features: Callable[[IntArray, list[int]], list[Any]],
    suspects: BoolArray | None = None,
    place: PlaceRule | None = None,
    at_least: int = 1,
) -> Any:
    """Return the table of `similar` for batches of predictions.

    Parameters
    ----------
    parts : iterable
        Batches of predictions, with the rows to list beside each.
    beside : Beside
        The training rows and the explained rows.
    chosen : list of int
        The columns of the table, by position.
    per_class : bool
        Whether each class has lines of its own.
    features : callable
        Returns columns of training rows, by their positions.
    suspects : ndarray of shape (N,), optional
        Training rows whose targets look wrong.
    place : PlaceRule, optional
        The coordinates that distances are measured by.
    at_least : int
        The number of rows that each prediction needs.
    """
    batches = []
    summaries = []
    too_few: list[Any] = []  # labels of predictions with fewer rows than they need
    n_queries = 0
    is_adjusted = False
    for predicted, compared in parts:
        if not compared.allowed:
            raise InputError(
                f"among allows none of the {beside.n_targets[0]} training rows; expected a mask "
                "that is True for some."
            )
        batch = listed(predicted, compared, per_class, n_queries)
        batches.append(batch.columns)
        summaries.append(batch.summary)
        is_adjusted = "residual" in compared.best.columns
        n_listed = np.zeros(len(predicted.labels), dtype=np.intp)
        np.maximum.at(n_listed, batch.columns["asked"] - n_queries, batch.columns["rank"])
        too_few += inputs.as_list(predicted.labels[n_listed < at_least])
        n_queries += len(predicted.labels)
    _warn_of_too_few(too_few, n_queries, at_least)
    columns = tables.joined(batches)
    positions = columns.pop("position")
    queries = columns.pop("asked")
    if suspects is not None:
        columns["suspect"] = suspects[positions]
    if place is not None:
        coordinates = features(positions, list(place.columns))
        columns[f"distance ({place.unit})"] = place.distances(queries, coordinates)
    row_columns = features(positions, chosen)
    query_columns = beside.known.of_queries(queries, chosen)
    for i, row_column, query_column in zip(chosen, row_columns, query_columns):
        columns |= _compared_columns(beside.known.names[i], row_column, query_column, is_adjusted)
    frame = tables.make(columns, beside.backend)
    if is_adjusted:
        return _footed(frame, tables.joined(summaries), beside)
    return tables.note(frame, beside.note)


def _compared_columns(
    name: str, row_column: AnyArray | None, query_column: AnyArray | None, with_difference: bool
) -> dict[str, AnyArray]:
    """Return a feature of the listed and of the explained rows, and the difference of numbers."""
    columns = {}
    if row_column is not None:
        columns[f"{name} (row)"] = row_column
    if query_column is not None:
        columns[f"{name} (query)"] = query_column
    are_numbers = all(column.dtype.kind in "iuf" for column in columns.values())
    if with_difference and row_column is not None and query_column is not None and are_numbers:
        difference = row_column.astype(float) - query_column.astype(float)
        columns[f"{name} (difference)"] = difference
    return columns


def _warn_of_too_few(labels: list[Any], n: int, at_least: int) -> None:
    """Warn if some of n explained rows have too few lines in the table."""
    if not labels:
        return
    names = ", ".join(shown(label) for label in labels[:MAX_LABELS])
    if len(labels) > MAX_LABELS:
        names += f" and {len(labels) - MAX_LABELS} more"
    rows = counted(n, "row")
    if at_least == 1:
        message = (
            f"No training row meets the conditions for {len(labels)} of {rows} of X, which the "
            f"table leaves out: {names}."
        )
    else:
        message = (
            f"Fewer than {at_least} training rows meet the conditions for {len(labels)} of {rows} "
            f"of X: {names}."
        )
    warn(
        f"{message} Widen within, asof or among, or leave out sign and suspects, to see "
        "comparables of them.",
        UserWarning,
    )


def _footed(frame: Any, summary: dict[str, AnyArray], beside: Beside) -> Any:
    """Return the frame, with a note and the summary if its library can store them."""
    values = zip(*(column.tolist() for column in summary.values()))
    lines = [dict(zip(summary, line)) for line in values]
    text = f"{beside.note}; adjusted = target + F(query) - F(row)"
    if not summary:
        return tables.note(frame, text)
    bias_name = list(summary)[-1]
    scale_name = bias_name.removeprefix("bias").strip(" ()")
    if scale_name:
        text += (
            f", taken on the scale of the fit ({scale_name}) and shown in the targets' own units"
        )
    if len(lines) == 1:
        line = lines[0]
        value_share = line.get("value share", np.nan)
        if np.isnan(value_share):
            of_value = ""
        else:
            of_value = f" and {value_share:.1%} of the value"
        text += (
            f"; the rows listed hold {line['share']:.1%} of the weight{of_value}; "
            f"all {beside.n_targets[0]:,} training rows, adjusted, average {line['mean']:.6g} by "
            f"their weights; the prediction is {line['prediction']:.6g}, the local {bias_name} "
            f"{line[bias_name]:.3g}"
        )
    return tables.note(frame, text, comparables=lines)
