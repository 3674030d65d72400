"""Comparables: training rows listed beside predictions, and their targets adjusted to these by the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.arrays import BoolArray, FloatArray, IntArray
from axil.errors import InputError, counted, shown, warn
from axil.output import tables
from axil.output.shown_columns import Columns
from axil.reductions.choice import Compared
from axil.scale import TargetScale

NAMED = 3  # labels in a warning


@dataclass(frozen=True, eq=False)
class Predicted:
    """Predictions that rows are listed beside, and how people read them."""

    labels: NDArray[Any]  #: (n,) the user's
    outputs: NDArray[Any] | None
    scale: TargetScale
    meant: Mapping[str, FloatArray]  #: what scores stand for, (n, K) by name
    weighted: bool  #: whether the numbers are weights of targets, not pushes
    classes: NDArray[Any] | None = None


@dataclass(frozen=True, eq=False)
class Listed:
    """The comparables of a batch of predictions."""

    columns: dict[str, Any]  #: a line for each row listed
    summary: dict[str, Any]  #: a line for each prediction and output; none without adjusted targets


def listed(about: Predicted, found: Compared, per_class: bool = True, first: int = 0) -> Listed:
    """The columns of `top` for the rows chosen, with the share of ``sum |weight|`` down to each row.

    Where residuals are known, also targets as the model itself adjusts them to a query: ``y_j + F(x) - F(x_j)``. Two more
    columns: ``position`` of each row among the training rows, and ``asked``, that of the prediction, the first of which is
    ``first``.
    """
    best, share = found.best, found.shares
    if not per_class:
        return _by_row(about, found, first)
    lines = tables.top_columns(
        about.labels, about.outputs, about.scale, best, about.meant, about.weighted
    )
    made: dict[str, Any] = {}
    before = "weight" if about.weighted else "contribution"  # of the share
    alike = best.columns.get("similarity")
    for name, column in lines.items():
        made |= {name: column, "share": share.ravel()} if name == before else {name: column}
        if name == "row" and alike is not None:
            made["similarity"] = alike.ravel()
    summary: dict[str, Any] = {}
    if "residual" in best.columns:
        predictions = found.predictions
        mean = _inverse(
            about.scale, predictions + _over(found.bias, found.weights, found.weights > 0)
        )
        adjusted = _inverse(about.scale, predictions[:, :, None] + best.columns["residual"])
        repeated = np.broadcast_to(mean[:, :, None], best.size.shape)
        made |= {"adjusted": adjusted.ravel(), "adjusted (all)": repeated.ravel()}
        summary = tables.label_columns(about.labels, about.outputs, "share", np.zeros(1)) | {
            "share": share[:, :, -1].ravel(),
            "value share": _value_share(about.scale, found).ravel(),
            "prediction": _inverse(about.scale, predictions).ravel(),
            "mean": mean.ravel(),
            about.scale.label("bias"): found.bias.ravel(),
        }
    return Listed(_filled(made, found, first), summary)


def _by_row(about: Predicted, found: Compared, first: int) -> Listed:
    """One line per row where classes share weights: the class predicted, its probability, the row's own class."""
    assert about.classes is not None
    best, predictions = found.best, found.predictions
    likely, k = predictions.argmax(axis=1), best.size.shape[2]
    probabilities = {"probability": predictions[np.arange(len(likely)), likely]}
    made = tables.predicted_columns(about.labels, None, about.classes[likely], k, probabilities) | {
        "row": best.columns["row"][:, 0].ravel(),
        **(
            {"similarity": best.columns["similarity"][:, 0].ravel()}
            if "similarity" in best.columns
            else {}
        ),
        "weight": best.columns["effect"][:, 0].ravel(),
        "share": found.shares[:, 0].ravel(),
        "target": about.classes[best.columns["target"].argmax(axis=1).ravel()],
    }
    return Listed(_filled(made, found, first, 1), {})


def _filled(
    made: dict[str, Any], found: Compared, first: int, n_outputs: int | None = None
) -> dict[str, Any]:
    """The columns without free places, with positions of rows and predictions."""
    positions = found.best.columns["position"][:, :n_outputs]
    asked = np.broadcast_to(first + np.arange(len(positions))[:, None, None], positions.shape)
    made |= {"position": positions.ravel(), "asked": asked.ravel()}
    filled = made["position"] >= 0
    return made if filled.all() else {name: column[filled] for name, column in made.items()}


def _inverse(scale: TargetScale, values: FloatArray) -> FloatArray:
    """Numbers (n, K) or (n, K, k) of the scale of the fit, as people read them."""
    moved = np.moveaxis(values, 1, -1)
    return np.moveaxis(
        scale.inverse(moved.reshape(-1, moved.shape[-1])).reshape(moved.shape), -1, 1
    )


def _over(above: FloatArray, below: FloatArray, known: BoolArray) -> FloatArray:
    """The quotient; nan where it is not known."""
    return np.asarray(np.divide(above, below, out=np.full_like(above, np.nan), where=known))


def _value_share(scale: TargetScale, found: Compared) -> FloatArray:
    """(n, K): the percentage that a prediction rises by where the targets of the rows listed rise by one percent.

    As people read both: ``sum k_j y_j / F``; of logarithms ``sum k_j``. nan for a prediction of zero and on other scales.
    """
    best = found.best
    if not (scale.is_identity or scale.is_log):
        return np.full(best.size.shape[:2], np.nan)
    targets, made = best.columns["target"], _inverse(scale, found.predictions)
    if scale.is_log:
        slopes, made = targets / (targets + scale.shift), made / (made + scale.shift)
    else:
        slopes = targets
    moved = np.where(best.size < 0, 0.0, best.columns["effect"] * slopes).sum(axis=2)
    return _over(moved, made, made != 0)


@dataclass(frozen=True, eq=False)
class Beside:
    """Training rows and the rows that they are listed beside."""

    known: Columns  #: features and further columns of both
    n_targets: tuple[int, int]  #: (N, K)
    backend: str
    note: str  #: what the numbers are


def as_per_class(per_class: Any, is_shared: bool) -> bool:
    """Whether tables have a line for each class, checked: one for all classes needs weights that they share."""
    each = inputs.as_flag(per_class, "per_class")
    if not each and not is_shared:
        raise InputError(
            "per_class=False is for classifiers whose classes share their weights, such as forests; this model has one output, "
            "numbers for targets, or weights for each output. Leave it out."
        )
    return each


def similar_table(
    parts: Iterable[tuple[Predicted, Compared]],
    beside: Beside,
    chosen: list[int],
    per_class: bool,
    features: Callable[[IntArray, list[int]], list[Any]],
    suspects: BoolArray | None = None,
) -> Any:
    """The table of `similar` from predictions that come batch by batch, with these columns.

    ``features`` has these columns of training rows by position; ``suspects`` (N,) marks those whose targets look wrong.
    """
    found, summaries, first, adjusted, unlisted = [], [], 0, False, list[Any]()
    for about, compared in parts:
        if not compared.allowed:
            n = beside.n_targets[0]
            raise InputError(
                f"among allows none of the {n} training rows; expected a mask that is True for some."
            )
        lines = listed(about, compared, per_class, first)
        found.append(lines.columns)
        summaries.append(lines.summary)
        adjusted = "residual" in compared.best.columns
        asked = first + np.arange(len(about.labels))
        unlisted += inputs.as_list(about.labels[~np.isin(asked, lines.columns["asked"])])
        first += len(about.labels)
    _warn_of(unlisted, first)
    made = tables.joined(found)
    positions = made.pop("position")
    if suspects is not None:
        made["suspect"] = suspects[positions]
    known = beside.known
    for i, own, queried in zip(
        chosen, features(positions, chosen), known.of_queries(made.pop("asked"), chosen)
    ):
        both = {f"{known.names[i]} (row)": own, f"{known.names[i]} (query)": queried}
        made |= {name: column for name, column in both.items() if column is not None}
        numbers = [
            one.astype(float)
            for one in both.values()
            if one is not None and one.dtype.kind in "iuf"
        ]
        if adjusted and len(numbers) == 2:
            made[f"{known.names[i]} (difference)"] = numbers[0] - numbers[1]
    frame = tables.make(made, beside.backend)
    return (
        _footed(frame, tables.joined(summaries), beside)
        if adjusted
        else tables.note(frame, beside.note)
    )


def _warn_of(labels: list[Any], n: int) -> None:
    """Warn of those of n queries that have no line in the table."""
    if labels:
        more = f" and {len(labels) - NAMED} more" if len(labels) > NAMED else ""
        named = ", ".join(shown(label) for label in labels[:NAMED]) + more
        warn(
            f"No training row meets the conditions for {len(labels)} of {counted(n, 'row')} of X, which the table leaves out: "
            f"{named}. Widen within, asof or among, or leave out sign and suspects, to see comparables of them.",
            UserWarning,
        )


def _footed(frame: Any, summary: dict[str, Any], beside: Beside) -> Any:
    """The frame, with a footer where its library has a place for one."""
    lines = [
        dict(zip(summary, line)) for line in zip(*(column.tolist() for column in summary.values()))
    ]
    *_, named = summary
    fitted = named.removeprefix("bias").strip(" ()")
    text = f"{beside.note}; adjusted = target + F(query) - F(row)"
    if fitted:
        text += f", taken on the scale of the fit ({fitted}) and shown in the targets' own units"
    if len(lines) == 1:
        *_, prediction, mean, bias = lines[0].values()
        share, value_share = lines[0]["share"], lines[0].get("value share", np.nan)
        held = "" if np.isnan(value_share) else f" and {value_share:.1%} of the value"
        text += (
            f"; the rows listed hold {share:.1%} of the weight{held}; all {beside.n_targets[0]:,} training rows, adjusted, "
            f"average {mean:.6g} by their weights; the prediction is {prediction:.6g}, the local {named} {bias:.3g}"
        )
    return tables.note(frame, text, comparables=lines)
