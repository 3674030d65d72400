"""Comparables: training rows listed beside predictions, and their targets adjusted to these by the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.effects.comparables import Compared
from axil.output import tables
from axil.scale import TargetScale
from axil.types import Array


@dataclass(frozen=True, eq=False)
class Predicted:
    """Predictions that rows are listed beside, and how people read them."""

    labels: NDArray[Any]  #: (n,) the user's
    outputs: NDArray[Any] | None
    scale: TargetScale
    meant: Mapping[str, Array]  #: what scores stand for, (n, K) by name
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
    lines = tables.top_columns(about.labels, about.outputs, about.scale, best, about.meant, about.weighted)
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
        mean = _inverse(about.scale, predictions + _over(found.bias, found.weights, found.weights > 0))
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
        **({"similarity": best.columns["similarity"][:, 0].ravel()} if "similarity" in best.columns else {}),
        "weight": best.columns["effect"][:, 0].ravel(),
        "share": found.shares[:, 0].ravel(),
        "target": about.classes[best.columns["target"].argmax(axis=1).ravel()],
    }
    return Listed(_filled(made, found, first, 1), {})


def _filled(made: dict[str, Any], found: Compared, first: int, n_outputs: int | None = None) -> dict[str, Any]:
    """The columns without free places, with positions of rows and predictions."""
    positions = found.best.columns["position"][:, :n_outputs]
    asked = np.broadcast_to(first + np.arange(len(positions))[:, None, None], positions.shape)
    made |= {"position": positions.ravel(), "asked": asked.ravel()}
    filled = made["position"] >= 0
    return made if filled.all() else {name: column[filled] for name, column in made.items()}


def _inverse(scale: TargetScale, values: Array) -> Array:
    """Numbers (n, K) or (n, K, k) of the scale of the fit, as people read them."""
    moved = np.moveaxis(values, 1, -1)
    return np.moveaxis(scale.inverse(moved.reshape(-1, moved.shape[-1])).reshape(moved.shape), -1, 1)


def _over(above: Array, below: Array, known: NDArray[np.bool_]) -> Array:
    """The quotient; nan where it is not known."""
    return np.asarray(np.divide(above, below, out=np.full_like(above, np.nan), where=known))


def _value_share(scale: TargetScale, found: Compared) -> Array:
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
