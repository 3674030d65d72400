"""Points: the weights of one prediction against a column of the training data, and targets against weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from axil.errors import InputError, shown
from axil.explanation import Explanation
from axil.inputs import as_labels, as_vector, group_codes, position_of
from axil.inputs.codes import keys, missing
from axil.plots import canvas, marks
from axil.plots.sources import along, one_prediction, query_position, whole_prediction

if TYPE_CHECKING:
    from axil.plots.canvas import Axes


MOST_GROUPS = 12  # of text side by side on one axis


def weights_against(
    source: Any,
    values: Any,
    *,
    query: Any = 0,
    output: Any = None,
    name: str | None = None,
    own: Any = None,
    exact: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """The weights of one prediction against time or any other column of the training data, a point for each training row.

    A dashed line marks the explained row's own value. Where many rows share few values, such as years, points of one value
    stand side by side. Rows without a value are left out and counted; dates with a time zone are shown in UTC.

    Parameters
    ----------
    source : Explanation or array of shape (n_train,)
        An explanation, or weights.
    values : str or sequence of length n_train
        A column of the training data: the name of a feature of the explanation, or numbers, dates, or text of few kinds, as an
        array or a column of any frame library.
    query : int or label, default 0
        The prediction, by its position or by its label.
    output : optional
        The name of one of several outputs.
    name : str, optional
        The name of the axis, if the column has none.
    own : number, date or text, optional
        The explained row's own value. Known without it where ``values`` is a feature of the explanation.
    exact : bool, default True
        False where an array holds derivatives.
    ax : matplotlib axes, optional
        Where to draw; a new figure of pyplot's by default.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from axil import Explainer, plots
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> forest = RandomForestRegressor(20, min_samples_leaf=5, random_state=0).fit(X[:300], y[:300])
    >>> ax = plots.weights_against(Explainer(forest, X[:300], y[:300])(X[300:310]), "bmi", query=2)
    >>> ax.get_xlabel()
    "bmi (dashed: the explained row's own)"
    """
    one = whole_prediction(source, query, output, exact)
    below, column, value = _column(source, values, query, name, own)
    x, ticks = _positions(column, len(one.weights))
    known = ~(np.isnat(x) if x.dtype.kind == "M" else np.isnan(x))
    at = None if value is None else _position_of(value, x, ticks)
    ax = canvas.new_axes(ax)
    apart = x[known] if x.dtype.kind == "M" or ticks is not None else marks.spread(x[known])
    marks.sign_points(ax, apart, one.weights[known], np.sign(one.weights[known]))
    ax.axhline(0.0, color=canvas.colours(ax).ink, linewidth=0.8)
    if at is not None:
        ax.axvline(at, color=canvas.colours(ax).ink, linewidth=1.2, linestyle="--", zorder=0.9)
        below += " (dashed: the explained row's own)"
    if not known.all():
        below += f" ({(~known).sum():,} rows without one are left out)"
    title = f"{canvas.head(one)}{one.quantity.capitalize()}s of {known.sum():,} training rows"
    canvas.dress(ax, title, below, one.long_name)
    if ticks is not None:
        ax.set_xticks(
            range(len(ticks)),
            [canvas.shorten(tick, 72 // len(ticks)) for tick in ticks],
            parse_math=False,
        )
        ax.grid(visible=False, axis="x")
    elif x.dtype.kind == "M":
        canvas.date_ticks(ax)
    elif np.array_equal(x[known], np.round(x[known])):  # no half years
        canvas.whole_ticks(ax)
    else:
        canvas.few_ticks(ax)
    return ax


def _column(
    source: Any, values: Any, query: Any, name: str | None, own: Any
) -> tuple[str, Any, Any]:
    """The name of the column given or named, (n_train,) its values, and the explained row's own; None: not known."""
    named = str(name or getattr(values, "name", None) or "value")
    if not isinstance(source, Explanation):
        return named, values, own
    place = query_position(query, source.query_index)
    if isinstance(values, str):
        trained, asked = source.column(values)
        if trained is None:
            raise InputError(
                "The explanation keeps no features of training rows; pass values as an array (n_train,)."
            )
        return str(name or values), trained, asked[place] if own is None else own
    known = getattr(values, "name", None)
    if own is None and known in source.feature_names:
        trained, asked = source.column(known)
        # Not another column of the same name
        if trained is not None and keys(as_labels(values, len(trained), "values")) == keys(trained):
            own = asked[place]
    return named, values, own


def _positions(values: Any, n: int) -> tuple[NDArray[Any], list[Any] | None]:
    """Where the rows stand along the axis, numbers or dates; for text, where each kind stands and what it is called."""
    x = along(values, n, "values")
    if x is not None:
        return x, None
    found = as_labels(values, n, "values")
    known = ~missing(found)
    codes, groups = group_codes(found[known], int(known.sum()))
    if len(groups) > MOST_GROUPS:
        raise InputError(
            f"values has {len(groups)} kinds of text; expected up to {MOST_GROUPS}. Use axil.plots.group, or parse dates first."
        )
    x = np.full(n, np.nan)
    x[known] = codes + np.linspace(
        -0.3, 0.3, len(codes)
    )  # rows of one kind side by side, in their order
    return x, groups.tolist()


def _position_of(own: Any, x: NDArray[Any], ticks: list[Any] | None) -> Any:
    """Where one value stands along an axis; None where it is missing, or text that no training row has."""
    if ticks is not None:
        return position_of(own, ticks)
    place = along([own], 1, "own")
    if place is None or (place.dtype.kind == "M") != (x.dtype.kind == "M"):
        raise InputError(
            f"own is {shown(own)}; expected a value as those of the training rows: a number or a date."
        )
    return None if missing(place)[0] else place[0]


def targets(
    source: Any,
    targets: Any = None,
    *,
    query: Any = 0,
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
        raise InputError(
            f"targets are to be given with an array of weights, and only then; {found}."
        )
    y = as_vector(one.targets if targets is None else targets, len(one.weights), "targets")
    ax = canvas.new_axes(ax)
    marks.sign_points(ax, one.weights, y, np.sign(one.weights))
    ax.axvline(0.0, color=canvas.colours(ax).ink, linewidth=0.8)
    name = "target"
    if one.value is not None:
        ax.axhline(one.value, color=canvas.colours(ax).ink, linewidth=1.0, linestyle="--")
        name = "target (dashed: the prediction)"
    title = f"{canvas.head(one)}Targets and {one.quantity}s of {len(y):,} training rows"
    canvas.dress(ax, title, one.long_name, name)
    canvas.few_ticks(ax)
    return ax
