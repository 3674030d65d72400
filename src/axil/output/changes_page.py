"""Write the page of a comparison: the parts of each change as bars, and a table of the rows that did most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil.inputs import as_frame
from axil.output.page import document
from axil.output.page.options import as_words
from axil.scale import TargetScale
from axil.templates import render

NOTE = (
    "Rows are matched by label. Effects of rows, and all parts but the last, keep the splits of the old model; new splits are "
    "what the retraining did beyond the data. "
)
NARROWEST = 0.3  # percent of the width that a bar has at least


@dataclass(frozen=True)
class Bar:
    """One part of a change, which starts at ``left``; both are percentages of the width."""

    name: str
    amount: str
    left: float
    width: float
    is_negative: bool


@dataclass(frozen=True)
class ChangeSection:
    """The change of one prediction, as its section of the page shows it."""

    name: str
    summary: str
    bars: list[Bar]
    rows: list[list[object]]


def write(
    changed: Any,
    top: Any,
    parts: Sequence[str],
    scale: TargetScale,
    path: Any,
    title: str | None,
    target: str | None,
) -> str | None:
    """Write the page of a comparison, or return its text if there is no path.

    The parts of a model fitted to logarithms are factors, as in its waterfall plot.

    Parameters
    ----------
    changed : frame
        A line for each prediction, with its parts.
    top : frame
        The training rows that did most for each prediction.
    parts : sequence of str
        The names of the parts.
    scale : TargetScale
        The scale of the fit.
    path : str, path or None
        The file to write.
    title, target : str, optional
        The title of the page, and the name of the target.
    """
    file = document.as_target(path)
    title = as_words(title, "title")
    target = as_words(target, "target")
    if title is None:
        if target is None:
            of_target = ""
        else:
            of_target = f" of {target}"
        title = f"Why predictions{of_target} changed"
    predictions = _columns(changed)
    rows = _columns(top)
    rows_per_prediction = len(rows["query"]) // max(len(predictions["query"]), 1)
    listed = [column for column in rows if column not in ("query", "output", "rank")]
    changes = []
    for i in range(len(predictions["query"])):
        start = i * rows_per_prediction
        stop = min(start + rows_per_prediction, len(rows["query"]))
        cells = [
            [_cell(column, rows[column][j], scale) for column in listed] for j in range(start, stop)
        ]
        changes.append(_change(predictions, i, parts, scale, cells))
    text = render(
        "changes/page.html",
        title=title,
        note=NOTE + _sum_note(scale),
        changes=changes,
        table_caption="Training rows that did most, with the tree structure fixed",
        header=[_head(column, scale) for column in listed],
    )
    return document.saved(text + "\n", file)


def _columns(frame: Any) -> dict[str, list[Any]]:
    """Return the columns of a frame as lists."""
    table = as_frame(frame)
    assert table is not None
    return {name: table[name].to_list() for name in table.columns}


def _sum_note(scale: TargetScale) -> str:
    """Return the sentence on how the parts combine to the change."""
    if scale.is_log:
        if scale.shift:
            shifted = f" of {scale.shift:g} + the prediction"
        else:
            shifted = ""
        return f"The parts are factors{shifted}, and multiply to the change."
    if scale.is_identity:
        return "The parts sum to the change."
    return f"The parts sum to the change, on the scale of the fit: {scale.name}."


def _change(
    predictions: dict[str, list[Any]],
    i: int,
    parts: Sequence[str],
    scale: TargetScale,
    rows: list[list[object]],
) -> ChangeSection:
    """Return the section of prediction i, with the cells of its training rows."""
    name = str(predictions["query"][i])
    if "output" in predictions:
        name += f", output {predictions['output'][i]}"
    before = predictions["before"][i]
    after = predictions["after"][i]
    values = {part: predictions[scale.label(part)][i] for part in parts}
    values = {part: value for part, value in values.items() if value or part != "base"}
    ends = np.cumsum([0.0, *values.values()])  # relative to the old prediction
    lowest = float(ends.min())
    width = float(ends.max()) - lowest or 1.0
    bars = []
    for (part, value), start in zip(values.items(), ends.tolist()):
        if scale.is_log:
            label = part
        else:
            label = scale.label(part)
        left = 100 * (min(start, start + value) - lowest) / width
        size = max(100 * abs(value) / width, NARROWEST)
        bars.append(Bar(label, _amount(value, scale), left, size, value < 0))
    summary = f"{before:,.6g} → {after:,.6g}, a change of {after - before:+,.6g}"
    if scale.is_log:
        summary += f", {_amount(float(ends[-1]), scale)}"
    return ChangeSection(name, summary, bars, rows)


def _amount(value: float, scale: TargetScale) -> str:
    """Return a part of a change as text: a factor for logarithms."""
    if scale.is_log:
        return f"× {_factor(value, scale):,.5g}"
    return f"{value:+,.5g}"


def _factor(value: float, scale: TargetScale) -> float:
    """Return the factor for a difference of logarithms."""
    return float(scale.factors(np.array(value)))


def _head(column: str, scale: TargetScale) -> str:
    """Return the head of a column of training rows."""
    if scale.is_log and column == scale.label("effect"):
        return "factor"
    return column


def _cell(column: str, value: Any, scale: TargetScale) -> object:
    """Return a cell of the table of training rows, empty if the value is missing."""
    if value is None or value != value:
        return ""
    if scale.is_log and column == scale.label("effect"):
        return _factor(value, scale)
    return value
