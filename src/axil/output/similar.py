"""Similar: the table of training rows listed beside the rows that they explain."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.effects.comparables import Compared
from axil.errors import InputError
from axil.output import comparables, tables
from axil.output.columns import Columns
from axil.output.comparables import Predicted

NOT_ADJUSTED = (
    "this model's score is not a weighted sum of targets, so no target can be moved along with it",
    "Leave adjust out, or fit with squared error.",
)  # the reason that adjust gives where targets do not make the prediction, and what to do


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


def listed(
    parts: Iterable[tuple[Predicted, Compared]],
    beside: Beside,
    chosen: list[int],
    per_class: bool,
    features: Callable[[NDArray[np.intp], list[int]], list[Any]],
    suspects: NDArray[np.bool_] | None = None,
) -> Any:
    """The table of `similar` from predictions that come batch by batch, with these columns.

    ``features`` has these columns of training rows by position; ``suspects`` (N,) marks those whose targets look wrong.
    """
    found, summaries, first, adjusted = [], [], 0, False
    for about, compared in parts:
        if not compared.allowed:
            n = beside.n_targets[0]
            raise InputError(f"among allows none of the {n} training rows; expected a mask that is True for some.")
        lines = comparables.listed(about, compared, per_class, first)
        found.append(lines.columns)
        summaries.append(lines.summary)
        adjusted = "residual" in compared.best.columns
        first += len(about.labels)
    made = tables.joined(found)
    positions = made.pop("position")
    if suspects is not None:
        made["suspect"] = suspects[positions]
    of_rows = features(positions, chosen)
    return finished(beside, made, tables.joined(summaries), chosen, of_rows, adjusted)


def finished(
    beside: Beside, made: dict[str, Any], summary: dict[str, Any], chosen: list[int], of_rows: list[Any], adjust: bool
) -> Any:
    """The table of the columns of `comparables.listed`, with these features of the rows listed beside those of the queries."""
    known = beside.known
    for i, own, queried in zip(chosen, of_rows, known.of_queries(made.pop("asked"), chosen)):
        both = {f"{known.names[i]} (row)": own, f"{known.names[i]} (query)": queried}
        made |= {name: column for name, column in both.items() if column is not None}
        if own is None or queried is None:
            continue
        if adjust and own.dtype.kind in "iuf" and queried.dtype.kind in "iuf":
            made[f"{known.names[i]} (difference)"] = own.astype(float) - queried.astype(float)
    frame = tables.make(made, beside.backend)
    return _footed(frame, summary, beside) if adjust else tables.note(frame, beside.note)


def _footed(frame: Any, summary: dict[str, Any], beside: Beside) -> Any:
    """The frame, with a footer where its library has a place for one."""
    lines = [dict(zip(summary, line)) for line in zip(*(column.tolist() for column in summary.values()))]
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
