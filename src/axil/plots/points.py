"""Points: the weights of one prediction against a column of the training data, and targets against weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from axil.errors import InputError
from axil.inputs import as_labels, as_vector, group_codes
from axil.plots import canvas
from axil.plots.sources import along, one_prediction, whole_prediction

if TYPE_CHECKING:
    from axil.plots.canvas import Axes


MOST_GROUPS = 12  # of text side by side on one axis


def weights_against(
    source: Any,
    values: Any,
    *,
    query: int = 0,
    output: Any = None,
    name: str | None = None,
    exact: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """The weights of one prediction against time or any other column of the training data, a point for each training row.

    ``source``: an explanation or weights (n_train,). ``values`` (n_train,): numbers, dates, or text of few kinds, as an array or
    a column of any frame library. ``name``: of the axis, if the column has none. Rows without a value are left out and counted;
    dates with a time zone are shown in UTC.
    """
    one = whole_prediction(source, query, output, exact)
    x, ticks = _positions(values, len(one.weights))
    known = ~(np.isnat(x) if x.dtype.kind == "M" else np.isnan(x))
    ax = canvas.new_axes(ax)
    canvas.sign_points(ax, x[known], one.weights[known], np.sign(one.weights[known]))
    ax.axhline(0.0, color=canvas.DARK, linewidth=0.8)
    below = str(name or getattr(values, "name", None) or "value")
    if not known.all():
        below += f" ({(~known).sum():,} rows without one are left out)"
    title = f"{canvas.head(one)}{one.quantity.capitalize()}s of {known.sum():,} training rows"
    canvas.dress(ax, title, below, canvas.fixed(one.long_name))
    if ticks is not None:
        ax.set_xticks(range(len(ticks)), [canvas.shorten(tick, 72 // len(ticks)) for tick in ticks], parse_math=False)
        ax.grid(visible=False, axis="x")
    elif x.dtype.kind == "M":
        canvas.date_ticks(ax)
    else:
        canvas.few_ticks(ax)
    return ax


def _positions(values: Any, n: int) -> tuple[NDArray[Any], list[Any] | None]:
    """Where the rows stand along the axis, numbers or dates; for text, where each kind stands and what it is called."""
    import pandas as pd

    x = along(values, n, "values")
    if x is not None:
        return x, None
    found = as_labels(values, n, "values")
    known = ~pd.isna(found)
    codes, groups = group_codes(found[known], int(known.sum()))
    if len(groups) > MOST_GROUPS:
        raise InputError(
            f"values has {len(groups)} kinds of text; expected up to {MOST_GROUPS}. Use axil.plots.group, or parse dates first."
        )
    x = np.full(n, np.nan)
    x[known] = codes + np.linspace(-0.3, 0.3, len(codes))  # rows of one kind side by side, in their order
    return x, groups.tolist()


def targets(
    source: Any,
    targets: Any = None,
    *,
    query: int = 0,
    output: Any = None,
    exact: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """The targets of the training rows against their weights in one prediction; a line marks the prediction.

    ``source``: an explanation, a frame of `top` or `similar`, or weights (n_train,) with ``targets`` (n_train,).
    """
    one = one_prediction(source, query, output, None, exact)
    if (one.targets is None) == (targets is None):
        found = "none were found" if targets is None else "the source has its own"
        raise InputError(f"targets are to be given with an array of weights, and only then; {found}.")
    y = as_vector(one.targets if targets is None else targets, len(one.weights), "targets")
    ax = canvas.new_axes(ax)
    canvas.sign_points(ax, one.weights, y, np.sign(one.weights))
    ax.axvline(0.0, color=canvas.DARK, linewidth=0.8)
    name = "target"
    if one.value is not None:
        ax.axhline(one.value, color=canvas.DARK, linewidth=1.0, linestyle="--")
        name = "target (dashed: the prediction)"
    title = f"{canvas.head(one)}Targets and {one.quantity}s of {len(y):,} training rows"
    canvas.dress(ax, title, canvas.fixed(one.long_name), name)
    canvas.few_ticks(ax)
    return ax
