"""Plot weights, targets and labels as points.

Weights are drawn against a column of the training data, targets against weights, and labels against
expectations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from axil.arrays import AnyArray, BoolArray, FloatArray
from axil.errors import InputError, shown
from axil.explanation import Explanation
from axil.inputs import as_frame, as_labels, as_numbers, as_vector, group_codes, position_of
from axil.inputs.codes import keys, missing
from axil.plots import canvas, marks
from axil.plots.sources import (
    along,
    one_prediction,
    one_query,
    query_position,
    says,
    whole_prediction,
)

if TYPE_CHECKING:
    from axil.plots.canvas import Axes


MOST_GROUPS = 12  # of text side by side on one axis
OF_THE_FIT = "not a retraining"  # in the notes of tables with the tree structure fixed
LABEL_NAMES = ("no label issue", "label issue")
ISSUE_AREA = 32  # square points of a mark in the legend


def weights_against(
    source: Any,
    values: Any,
    *,
    query: object = 0,
    output: object = None,
    name: str | None = None,
    own: object = None,
    exact: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Plot the weights of one prediction against a column of the training data, such as dates.

    There is a point per training row. A dashed line marks the value of the explained row. If many
    rows share few values, such as years, points with the same value stand side by side. Rows
    without a value are left out and counted. Dates with a time zone are shown in UTC.

    Parameters
    ----------
    source : Explanation or array of shape (n_train,)
        An explanation, or weights.
    values : str or sequence of length n_train
        A column of the training data: the name of a feature of the explanation, or numbers, dates,
        or text of few kinds, as an array or a column of any frame library.
    query : int or label, default 0
        The prediction, by its position or by its label.
    output : optional
        The name of one of several outputs.
    name : str, optional
        The name of the axis, if the column has none.
    own : number, date or text, optional
        The explained row's own value. Known without it where ``values`` is a feature of the
        explanation.
    exact : bool, default True
        False if an array holds derivatives.
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
    prediction = whole_prediction(source, query, output, exact)
    below, column, explained_value = _column(source, values, query, name, own)
    x, kinds = _positions(column, len(prediction.weights))
    has_dates = x.dtype.kind == "M"
    is_known = ~missing(x)
    marked = None
    if explained_value is not None:
        marked = _position_of(explained_value, x, kinds)
    ax = canvas.new_axes(ax)
    ink = canvas.colours(ax).ink
    known_x = x[is_known]
    weights = prediction.weights[is_known]
    is_plain = not has_dates and kinds is None
    marks.sign_points(ax, marks.spread(known_x) if is_plain else known_x, weights, np.sign(weights))
    ax.axhline(0.0, color=ink, linewidth=0.8)
    if marked is not None:
        ax.axvline(marked, color=ink, linewidth=1.2, linestyle="--", zorder=0.9)
        below += " (dashed: the explained row's own)"
    if not is_known.all():
        below += f" ({(~is_known).sum():,} rows without one are left out)"
    quantity = prediction.quantity.capitalize()
    title = f"{canvas.head(prediction)}{quantity}s of {is_known.sum():,} training rows"
    canvas.dress(ax, title, below, prediction.long_name)
    if kinds is not None:
        texts = [canvas.shorten(kind, 72 // len(kinds)) for kind in kinds]
        ax.set_xticks(range(len(kinds)), texts, parse_math=False)
        ax.grid(visible=False, axis="x")
    elif has_dates:
        canvas.date_ticks(ax)
    elif np.array_equal(known_x, np.round(known_x)):  # no half years
        canvas.whole_ticks(ax)
    else:
        canvas.few_ticks(ax)
    return ax


def _column(
    source: Any, values: Any, query: object, name: str | None, own: object
) -> tuple[str, Any, Any]:
    """Return a column's name, its values (n_train,), and the value of the explained row or None."""
    axis_name = str(name or getattr(values, "name", None) or "value")
    if not isinstance(source, Explanation):
        return axis_name, values, own
    place = query_position(query, source.query_index)
    if isinstance(values, str):
        trained, explained = source.column(values)
        if trained is None:
            raise InputError(
                "The explanation keeps no features of training rows; pass values as an array "
                "(n_train,)."
            )
        return str(name or values), trained, explained[place] if own is None else own
    column_name = getattr(values, "name", None)
    if own is None and column_name in source.feature_names:
        trained, explained = source.column(column_name)
        # another column may have the same name
        if trained is not None and keys(as_labels(values, len(trained), "values")) == keys(trained):
            own = explained[place]
    return axis_name, values, own


def _positions(values: Any, n: int) -> tuple[AnyArray, list[Any] | None]:
    """Return the positions of the rows along the axis, numbers or dates.

    For text, the second result is the names of its kinds.
    """
    x = along(values, n, "values")
    if x is not None:
        return x, None
    labels = as_labels(values, n, "values")
    is_known = ~missing(labels)
    codes, groups = group_codes(labels[is_known], int(is_known.sum()))
    if len(groups) > MOST_GROUPS:
        raise InputError(
            f"values has {len(groups)} kinds of text; expected up to {MOST_GROUPS}. Use "
            "axil.plots.group, or parse dates first."
        )
    positions = np.full(n, np.nan)
    positions[is_known] = codes + np.linspace(-0.3, 0.3, len(codes))  # side by side, in their order
    return positions, groups.tolist()


def _position_of(own: object, x: AnyArray, kinds: list[Any] | None) -> Any:
    """Return the position of one value along an axis.

    The position is None for a missing value, or text that no training row has.
    """
    if kinds is not None:
        return position_of(own, kinds)
    place = along([own], 1, "own")
    if place is None or (place.dtype.kind == "M") != (x.dtype.kind == "M"):
        raise InputError(
            f"own is {shown(own)}; expected a value as those of the training rows: a number or a "
            "date."
        )
    if missing(place)[0]:
        return None
    return place[0]


def targets(
    source: Any,
    targets: Any = None,
    *,
    query: object = 0,
    output: object = None,
    exact: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Plot the targets of the training rows against their weights in one prediction.

    A line marks the prediction. ``source`` is an explanation, a frame of `top` or `similar`, or
    weights (n_train,) with ``targets`` (n_train,).
    """
    prediction = one_prediction(source, query, output, None, exact)
    if (prediction.targets is None) == (targets is None):
        if targets is None:
            reason = "none were found"
        else:
            reason = "the source has its own"
        raise InputError(
            f"targets are to be given with an array of weights, and only then; {reason}."
        )
    if targets is None:
        targets = prediction.targets
    y = as_vector(targets, len(prediction.weights), "targets")
    ax = canvas.new_axes(ax)
    ink = canvas.colours(ax).ink
    marks.sign_points(ax, prediction.weights, y, np.sign(prediction.weights))
    ax.axvline(0.0, color=ink, linewidth=0.8)
    name = "target"
    if prediction.value is not None:
        ax.axhline(prediction.value, color=ink, linewidth=1.0, linestyle="--")
        name = "target (dashed: the prediction)"
    title = (
        f"{canvas.head(prediction)}Targets and {prediction.quantity}s of {len(y):,} training rows"
    )
    canvas.dress(ax, title, prediction.long_name, name)
    canvas.few_ticks(ax)
    return ax


def label_issues(frame: Any, *, output: object = None, ax: Axes | None = None) -> Axes:
    """Plot given labels against expected labels; orange triangles are label issues.

    ``frame`` is what ``explainer.find_label_issues()`` returns. For numbers the plot shows given
    labels against expected ones, which are equal on the dashed line. A row far from it is no issue
    if the rows around it scatter as much. For classes it shows the quality of each label, the
    lowest first. Rows without a quality are left out and counted.
    """
    table = as_frame(frame)
    has_numbers = table is not None and "studentised" in table.columns
    measures = (
        ("given_label", "expected_label", "label_quality") if has_numbers else ("label_quality",)
    )
    required = {"given_label", "expected_label", "label_quality", "is_label_issue"}
    if table is None or not required <= set(table.columns) or not len(table):
        raise InputError(
            f"frame is {shown(frame)}; expected what explainer.find_label_issues() returns, with "
            "at least one row."
        )
    lines, _ = one_query(frame, 0, output, (*measures, "is_label_issue"))
    is_issue = _issue_mask(lines["is_label_issue"])
    values = {name: as_numbers(lines[name], f'the column "{name}"') for name in measures}
    is_judged = np.logical_and.reduce([np.isfinite(column) for column in values.values()])
    values = {name: column[is_judged] for name, column in values.items()}
    is_issue = is_issue[is_judged]
    ax = canvas.new_axes(ax)
    is_of_fit = says(frame, OF_THE_FIT)
    if has_numbers:
        finding = "look wrong"
        x_name = canvas.fixed("expected label, without the row") if is_of_fit else "expected label"
        y_name = "given label"
        _draw_against_expected(ax, values["given_label"], values["expected_label"], is_issue)
    else:
        finding = "are not of the class expected"
        x_name = "training rows, lowest quality first"
        y_name = "quality of the label"
        if is_of_fit:
            y_name = canvas.fixed("share of the row's class around it")
        _draw_quality(ax, values["label_quality"], is_issue)
    for handle, name in zip(*ax.get_legend_handles_labels()):
        if name == LABEL_NAMES[1]:
            handle.set(sizes=[ISSUE_AREA], alpha=1.0)  # few among many
    title = f"{is_issue.sum():,} of {len(is_judged):,} training labels {finding}"
    if output is not None:
        title = f"Output {canvas.shorten(output)}\n{title}"
    if not is_judged.all():
        title += f"\nNot judged, as no other row is in a leaf of theirs: {(~is_judged).sum():,}"
    canvas.dress(ax, title, x_name, y_name)
    canvas.few_ticks(ax)
    if len(is_issue):
        marks.key(ax)
    return ax


def _draw_against_expected(
    ax: Axes, targets: FloatArray, expected: FloatArray, is_issue: BoolArray
) -> None:
    """Plot given labels against expected ones, and the line where both are equal."""
    marks.sign_points(ax, expected, targets, np.where(is_issue, -1.0, 1.0), LABEL_NAMES)
    low = max(targets.min(initial=np.inf), expected.min(initial=np.inf))
    high = min(targets.max(initial=-np.inf), expected.max(initial=-np.inf))
    if low < high:
        ends = [low, high]
        ink = canvas.colours(ax).ink
        ax.plot(ends, ends, color=ink, linewidth=1.0, linestyle="--", label="as expected")


def _draw_quality(ax: Axes, quality: FloatArray, is_issue: BoolArray) -> None:
    """Plot the qualities of labels in ascending order."""
    order = np.argsort(quality, kind="stable")
    ranks = np.arange(1, len(order) + 1, dtype=np.float64)
    signs = np.where(is_issue[order], -1.0, 1.0)
    marks.sign_points(ax, ranks, quality[order], signs, LABEL_NAMES)
    ax.set_ylim(-0.03, 1.03)


def _issue_mask(column: AnyArray) -> BoolArray:
    """Check that a column holds truth values, and return it as such."""
    if not all(isinstance(mark, (bool, np.bool_)) for mark in column.tolist()):
        raise InputError(
            'The column "is_label_issue" holds other things than True and False; expected the '
            "table of explainer.find_label_issues()."
        )
    return column.astype(bool)
