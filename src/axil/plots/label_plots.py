"""Labels: which training labels look wrong, against what is expected of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray
from axil.errors import InputError, shown
from axil.inputs import as_frame, as_numbers
from axil.plots import canvas, marks
from axil.plots.sources import Columns, one_query, says

if TYPE_CHECKING:
    from axil.plots.canvas import Axes

OF_THE_FIT = "not a retraining"  # said by the notes of audits that rest on the fitted structure
NAMES = "not suspect", "suspect"
SUSPECT = 32  # square points of a mark


def audit(frame: Any, *, output: Any = None, ax: Axes | None = None) -> Axes:
    """Training labels against what is expected of them; orange triangles look wrong.

    ``frame``: what ``explainer.audit()`` returns. Of numbers: targets against the values expected, which are equal on the dashed
    line. A row far off it is no suspect where the rows around it scatter as much. Of classes: the quality of each label, the
    lowest first. Rows that are not judged are left out and counted.
    """
    read = as_frame(frame)
    numbers = read is not None and "studentised" in read.columns
    needed = ("target", "expected", "quality", "suspect") if numbers else ("quality", "suspect")
    if read is None or not {"target", "expected", *needed} <= set(read.columns) or not len(read):
        raise InputError(
            f"frame is {shown(frame)}; expected what explainer.audit() returns, with at least one row."
        )
    lines, _ = one_query(frame, 0, output, needed)
    suspect = _marks(lines["suspect"])
    values = {name: as_numbers(lines[name], f'the column "{name}"') for name in needed[:-1]}
    known = np.logical_and.reduce([np.isfinite(column) for column in values.values()])
    values, suspect = {name: column[known] for name, column in values.items()}, suspect[known]
    ax, fixed = canvas.new_axes(ax), says(frame, OF_THE_FIT)
    names = (_against_expected if numbers else _by_quality)(ax, values, suspect, fixed)
    for handle, name in zip(*ax.get_legend_handles_labels()):
        if name == NAMES[1]:
            handle.set(sizes=[SUSPECT], alpha=1.0)  # few among many
    found = "look wrong" if numbers else "are not of the class expected"
    title = f"{suspect.sum():,} of {len(known):,} training labels {found}"
    if output is not None:
        title = f"Output {canvas.shorten(output)}\n{title}"
    if not known.all():
        title += f"\nNot judged, as no other row is in a leaf of theirs: {(~known).sum():,}"
    canvas.dress(ax, title, *names)
    canvas.few_ticks(ax)
    if len(suspect):
        marks.key(ax)
    return ax


def _against_expected(
    ax: Axes, values: Columns, suspect: BoolArray, fixed: bool
) -> tuple[str, str]:
    """Draws targets against the values expected, and names the axes."""
    marks.sign_points(ax, values["expected"], values["target"], np.where(suspect, -1.0, 1.0), NAMES)
    ends = [
        (column.min(initial=np.inf), column.max(initial=-np.inf)) for column in values.values()
    ][:2]
    low, high = max(low for low, _ in ends), min(high for _, high in ends)
    if low < high:
        ax.plot(
            [low, high],
            [low, high],
            color=canvas.colours(ax).ink,
            linewidth=1.0,
            linestyle="--",
            label="as expected",
        )
    return canvas.fixed("expected without the row") if fixed else "expected", "target"


def _by_quality(ax: Axes, values: Columns, suspect: BoolArray, fixed: bool) -> tuple[str, str]:
    """Draws the qualities of labels in order, and names the axes."""
    quality = values["quality"]
    order = np.argsort(quality, kind="stable")
    at = np.arange(1, len(order) + 1, dtype=np.float64)
    marks.sign_points(ax, at, quality[order], np.where(suspect[order], -1.0, 1.0), NAMES)
    ax.set_ylim(-0.03, 1.03)
    name = "share of the row's class around it"
    return "training rows, lowest quality first", canvas.fixed(
        name
    ) if fixed else "quality of the label"


def _marks(column: NDArray[Any]) -> BoolArray:
    if not all(isinstance(mark, (bool, np.bool_)) for mark in column.tolist()):
        raise InputError(
            'The column "suspect" holds other things than True and False; expected explainer.audit().'
        )
    return column.astype(bool)
