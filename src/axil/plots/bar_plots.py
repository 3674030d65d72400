"""Plot bars: the largest weights, sums by group, influence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from axil.aliases import Ranking
from axil.arrays import FloatArray, IntArray
from axil.attribution import notes
from axil.errors import InputError
from axil.explanation import Explanation
from axil.forecasts import Forecast
from axil.inputs import as_choice, as_count, as_flag, as_frame, as_list, as_numbers, group_codes
from axil.plots import canvas, marks
from axil.plots.forecast_plots import forecast_shares
from axil.plots.sources import (
    Columns,
    group_labels,
    labelled,
    largest,
    numbers_in,
    one_prediction,
    one_query,
    row_labels,
    says,
)

if TYPE_CHECKING:
    from axil.plots.canvas import Axes


def weights(
    source: Any,
    k: int = 10,
    *,
    query: object = 0,
    output: object = None,
    labels: Any = None,
    exact: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Plot the k largest |weights| of one prediction as bars, the largest on top.

    ``source`` is an explanation, a frame of `top` or `similar`, or weights (n_train,). ``labels``
    (n_train,) are names to show instead of the row labels. ``exact=False`` says that the frame or
    array holds derivatives.
    """
    k = as_count(k, "k")
    prediction = one_prediction(source, query, output, labels, exact)
    chosen = largest(prediction.weights, k)
    title = f"{canvas.head(prediction)}{len(chosen)} largest {prediction.quantity}s"
    if prediction.complete:
        total = np.abs(prediction.weights).sum()
        if total:
            share = np.abs(prediction.weights[chosen]).sum() / total
        else:
            share = 1.0
        title += f" of {len(prediction.weights):,}, {share:.0%} of the absolute sum"
    names = as_list(prediction.labels[chosen])
    ax = marks.bar_axes(ax, names)
    marks.sign_bars(ax, names, prediction.weights[chosen])
    canvas.few_ticks(ax)
    return canvas.dress(ax, title, prediction.long_name, "training row", grid="x")


# What approximate sums are called, in the place of exact ones
DERIVATIVE_OF = {"weight": "derivative", "contribution": "derivative × target"}


@dataclass(frozen=True, eq=False)
class GroupSums:
    """The sums of weights or contributions of each group in one prediction."""

    names: list[Any]
    sums: FloatArray
    head: str  #: the line of a title that names the prediction
    is_exact: bool
    scale: str  #: of the fit, "" if there is none to name


def group(
    source: Any,
    groups: Any = None,
    *,
    by: Ranking = "weight",
    k: int = 10,
    query: object = 0,
    output: object = None,
    exact: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Plot the sums of weights, or contributions, of each group of training rows as bars.

    The largest bar is on top. ``source`` is a frame of `group`, or an explanation with ``groups``:
    labels (n_train,), or the name of a feature. If there are more than k groups, the k largest have
    bars, and one more bar is the sum over all others.

    For an `axil.forecast` the bars are shares in percent, in the order of the groups, by default
    years, for a reader who knows neither weights nor models. ``query`` is the series, by name or
    position, and ``output`` the step, by default 1.
    """
    if isinstance(source, Forecast):
        return forecast_shares(source, groups, query, output, as_count(k, "k"), ax)
    as_choice(by, ("weight", "contribution"), "by")
    k = as_count(k, "k")
    is_additive = isinstance(source, Explanation) and source.kind == "additive"
    if is_additive or says(source, notes.ADDITIVE):
        by = "contribution"  # there are no weights
    if isinstance(source, Explanation):
        group_sums = _sums_of_explanation(source, groups, by, query, output, exact)
    else:
        group_sums = _sums_of_frame(source, groups, by, query, output, exact)
    quantity: str = by
    if not group_sums.is_exact:
        quantity = DERIVATIVE_OF[by]
    sums = group_sums.sums
    chosen = largest(sums, k)
    n_others = len(sums) - len(chosen)
    names = [group_sums.names[i] for i in chosen]
    values = sums[chosen]
    title = f"{group_sums.head}Sums of {quantity}s by group"
    if n_others:
        title += f", {len(chosen)} largest of {len(sums):,}"
        names.append(f"{n_others:,} other group{'s' * (n_others > 1)}")
        values = np.append(values, sums.sum() - values.sum())
    ax = marks.bar_axes(ax, names)
    marks.sign_bars(ax, names, values, rest=len(chosen) if n_others else None)
    canvas.few_ticks(ax)
    below = canvas.with_scale(f"sum of {quantity}s", group_sums.scale)
    return canvas.dress(ax, title, below, "group", grid="x")


def _sums_of_frame(
    source: Any, groups: Any, by: str, query: object, output: object, exact: bool
) -> GroupSums:
    """Return the sums of a frame of `group`."""
    if groups is not None:
        raise InputError(
            "A frame of `group` has its groups already; leave out groups, or pass an "
            "axil.Explanation."
        )
    exact = as_flag(exact, "exact")
    column, scale = labelled(source, by)
    lines, name = one_query(source, query, output, ("group", column))
    return GroupSums(
        names=lines["group"].tolist(),
        sums=numbers_in(lines, column),
        head=canvas.shorten(name, canvas.TITLE) + "\n",
        is_exact=exact and not says(source, notes.DERIVATIVE),
        scale=scale,
    )


def _sums_of_explanation(
    explanation: Explanation, groups: Any, by: str, query: object, output: object, exact: bool
) -> GroupSums:
    """Return the sums of an explanation by the labels of groups."""
    if groups is None:
        raise InputError(
            "An explanation has no groups of its own; pass groups, a label for each training row."
        )
    prediction = one_prediction(explanation, query, output, None, exact)
    labels = group_labels(explanation, groups)
    codes, names = group_codes(labels, len(prediction.weights), "groups")
    values = prediction.weights
    scale = ""
    if by == "contribution":
        values = np.asarray(prediction.contributions)
        scale = prediction.scale.name
    return GroupSums(
        names=names.tolist(),
        sums=np.bincount(codes, values, len(names)).astype(np.float64),
        head=canvas.head(prediction),
        is_exact=prediction.exact,
        scale=scale,
    )


GAIN_OR_GRADIENT: tuple[Literal["gain", "gradient"], ...] = ("gain", "gradient")
INFLUENCE_AXES = {
    "gain": "fall of the {error}\nif this target were corrected",
    "gradient": "derivative of the {error}\nby this target",
    "class": (
        "fall of the mean validation log-loss\n"
        "per unit that this label moves to the corrected class"
    ),
}


def influence(
    source: Any,
    k: int = 10,
    *,
    by: Literal["gain", "gradient"] | None = None,
    output: object = None,
    labels: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the k training rows with the most influence as bars.

    ``source`` is a frame of `influence`. ``by`` is "gain", largest first and the default where the
    frame has it, or "gradient", largest size first. ``labels`` are names for the lines of the
    frame. The target stands beside each bar, and with gains also what it would be corrected to.
    Rows with an unknown gain (nan) are left out. The axis names the error: squared, the log-loss of
    classes, or the deviance.
    """
    k = as_count(k, "k")
    if by is None:
        frame = as_frame(source)
        has_gain = frame is None or labelled(source, "gain")[0] in frame.columns
        by = "gain" if has_gain else "gradient"
    by = as_choice(by, GAIN_OR_GRADIENT, "by")
    column, scale = labelled(source, by)
    lines, _ = one_query(source, 0, output, ("row", column))
    values = as_numbers(lines[column], f'the column "{column}"')
    chosen = _largest_first(values, by)[:k]
    if not len(chosen):
        raise InputError(
            f"No {by} in the frame is known; expected some. Try by='gradient', which always is."
        )
    names = lines["row"] if labels is None else row_labels(labels, len(values))
    chosen_names = as_list(names[chosen])
    targets = _target_texts(lines, chosen, corrected=by == "gain")
    texts = [f"{number}{target}" for number, target in zip(canvas.numbers(values[chosen]), targets)]
    ax = marks.bar_axes(ax, chosen_names)
    marks.sign_bars(ax, chosen_names, values[chosen], texts=texts)
    canvas.few_ticks(ax)
    title = f"Influence: {len(chosen)} largest {by}s of {len(values):,} training rows"
    if targets[0]:
        arrow = " → corrected target" if "→" in targets[0] else ""
        title += f"\nIn brackets: target{arrow}"
    below = canvas.fixed(canvas.with_scale(_error_axis(source, lines, by), scale))
    return canvas.dress(ax, title, below, "training row", grid="x")


def _largest_first(values: FloatArray, by: str) -> IntArray:
    """Return the positions of the known gains, or gradients by size, in descending order."""
    if by == "gain":
        keys = values
    else:
        keys = np.abs(values)
    is_unknown = np.isnan(values)
    order = np.argsort(-np.where(is_unknown, -np.inf, keys), kind="stable")
    return order[~is_unknown[order]]


def _error_axis(source: Any, lines: Columns, by: str) -> str:
    """Return the label of the axis, with the error that `influence` measured."""
    has_gain = labelled(lines, "gain")[0] in lines
    has_gradient = labelled(lines, "gradient")[0] in lines
    # Tables of label issues have "expected_label" instead of "corrected".
    if has_gain and not has_gradient and "corrected" in lines:
        return INFLUENCE_AXES["class"]
    if says(source, notes.FIRST_ORDER):
        error = "mean validation deviance"
    elif has_gain or says(source, notes.NOTE):
        error = "mean squared validation error"
    else:
        error = "mean validation error"
    return INFLUENCE_AXES[by].format(error=error)


def _target_texts(lines: Columns, chosen: IntArray, corrected: bool) -> list[str]:
    """Return the target of each row in brackets, with its correction if there is one.

    It is "" for an unknown target.
    """
    if "given_label" in lines:  # a table of label issues
        target_name = "given_label"
        corrected_name = "expected_label"
    else:
        target_name = "target"
        corrected_name = "corrected"
    if target_name not in lines:
        return [""] * len(chosen)
    columns = [lines[target_name][chosen]]
    if corrected and corrected_name in lines:
        columns.append(lines[corrected_name][chosen])
    if all(column.dtype.kind == "f" for column in columns):
        numbers = canvas.numbers(np.ravel(columns))  # all with the same decimals
        texts = np.reshape(numbers, np.shape(columns)).tolist()
    else:  # classes
        texts = [[canvas.shorten(label) for label in column] for column in columns]
    return [f"  ({' → '.join(parts)})" for parts in zip(*texts)]
