"""Plot coverage by area on a map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from axil.errors import InputError, shown
from axil.inputs import as_frame, as_list, as_number
from axil.plots import canvas
from axil.plots.sources import numbers_in

if TYPE_CHECKING:
    from axil.plots.canvas import Axes

NUMBERS = ("rows", "covered", "lower", "upper", "latitude", "longitude")
LARGEST = 500.0  # points squared, of the circle of most rows
SMALLEST = 12.0


def coverage_map(frame: Any, *, confidence_level: float = 0.9, ax: Axes | None = None) -> Axes:
    """Plot the coverage of groups at their places.

    ``frame`` is what `Predictive.coverage` returns with coordinates. The area of a circle is in
    proportion to the rows of its group. Groups whose upper bound is below ``confidence_level`` are
    orange and have their label: the chance in their rows does not explain that too few targets are
    inside. Others are blue, paler where fewer targets are inside.
    """
    table = as_frame(frame)
    missing = [name for name in NUMBERS if table is None or name not in table.columns]
    if table is None or missing:
        column_names = shown(list(getattr(table, "columns", ())))
        raise InputError(
            f"The table has the columns {column_names}; expected those of predictive.coverage(X, "
            "y, coordinates=(latitude, longitude))."
        )
    promised = as_number(confidence_level, "confidence_level")
    columns = {name: table[name].to_numpy() for name in table.columns}
    rows, covered, _, upper, latitude, longitude = (numbers_in(columns, name) for name in NUMBERS)
    ax = canvas.new_axes(ax, height=4.8)
    palette = canvas.colours(ax)
    sizes = np.maximum(SMALLEST, LARGEST * rows / rows.max())
    is_low = upper < promised
    alphas = 0.25 + 0.6 * np.clip(covered, 0.0, 1.0) ** 4
    for mask, colour, name in (
        (~is_low, palette.positive, "within chance"),
        (is_low, palette.negative, "too low"),
    ):
        if not mask.any():
            continue
        ax.scatter(
            longitude[mask],
            latitude[mask],
            s=sizes[mask],
            c=canvas.faded(colour, alphas[mask]),
            linewidths=0,
            label=name,
        )
    labels = as_list(table["group"].to_numpy())
    for place in np.flatnonzero(is_low):
        text = f"{canvas.shorten(labels[place])} {covered[place]:.0%}"
        ax.annotate(text, (longitude[place], latitude[place]), fontsize=8, color=palette.ink)
    ax.set_aspect(1.0 / np.cos(np.radians(latitude.mean())))
    share = (covered * rows).sum() / rows.sum()
    title = f"Targets inside their intervals, by area\n{share:.1%} of all {int(rows.sum()):,}, "
    title += f"{promised:.0%} promised; {int(is_low.sum())} of {len(rows)} areas too low"
    return canvas.dress(ax, title, "longitude", "latitude")
