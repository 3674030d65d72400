"""Bars: the largest weights, sums by group, blame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from axil.arrays import FloatArray, IntArray
from axil.attribution import notes
from axil.errors import InputError
from axil.explanation import Explanation
from axil.inputs import as_choice, as_count, as_flag, as_frame, as_list, as_numbers, group_codes
from axil.plots import canvas, marks
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
    k: int = 15,
    *,
    query: Any = 0,
    output: Any = None,
    labels: Any = None,
    exact: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """The k largest |weights| of one prediction as bars, the largest on top.

    ``source``: an explanation, a frame of `top` or `similar`, or weights (n_train,). ``labels`` (n_train,): names to show
    instead of the row labels. ``exact=False``: the frame or array holds derivatives.
    """
    k = as_count(k, "k")
    one = one_prediction(source, query, output, labels, exact)
    chosen = largest(one.weights, k)
    title = f"{canvas.head(one)}{len(chosen)} largest {one.quantity}s"
    if one.complete:
        whole = np.abs(one.weights).sum()
        share = np.abs(one.weights[chosen]).sum() / whole if whole else 1.0
        title += f" of {len(one.weights):,}, {share:.0%} of the absolute sum"
    names = as_list(one.labels[chosen])
    ax = marks.bar_axes(ax, names)
    marks.sign_bars(ax, names, one.weights[chosen])
    canvas.few_ticks(ax)
    return canvas.dress(ax, title, one.long_name, "training row", grid="x")


def group(
    source: Any,
    groups: Any = None,
    *,
    by: str = "weight",
    k: int = 20,
    query: Any = 0,
    output: Any = None,
    exact: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """The sums of weights, or contributions, of each group of training rows in one prediction, as bars, the largest on top.

    ``source``: a frame of `group`, or an explanation with ``groups``: (n_train,) labels, or the name of a feature. Of more than
    k groups the k largest are shown and all others are added up in one bar.
    """
    as_choice(by, ("weight", "contribution"), "by")
    k = as_count(k, "k")
    if says(source, notes.ADDITIVE) or (
        isinstance(source, Explanation) and source.kind == "additive"
    ):
        by = "contribution"  # there are no weights
    names, sums, head, exact, fitted = _sums(source, groups, by, query, output, exact)
    derived = "derivative" if by == "weight" else "derivative × target"
    name = by if exact else derived
    shown = largest(sums, k)
    title = f"{head}Sums of {name}s by group" + (
        f", {len(shown)} largest of {len(sums):,}" if len(shown) < len(sums) else ""
    )
    names, rest = [names[i] for i in shown], len(sums) - len(shown)
    values = sums[shown]
    if rest:
        names, values = (
            [*names, f"{rest:,} other group{'s' * (rest > 1)}"],
            np.append(values, sums.sum() - values.sum()),
        )
    ax = marks.bar_axes(ax, names)
    marks.sign_bars(ax, names, values, rest=len(shown) if rest else None)
    canvas.few_ticks(ax)
    return canvas.dress(
        ax, title, f"sum of {name}s{f' ({fitted})' if fitted else ''}", "group", grid="x"
    )


def _sums(
    source: Any, groups: Any, by: str, query: Any, output: Any, exact: bool
) -> tuple[list[Any], FloatArray, str, bool, str]:
    """The groups' names, what each sums up to, whose prediction it is, whether it is exact and on which scale, if named."""
    if not isinstance(source, Explanation):
        if groups is not None:
            raise InputError(
                "A frame of `group` has its groups already; leave out groups, or pass an axil.Explanation."
            )
        exact = as_flag(exact, "exact")
        column, fitted = labelled(source, by)
        lines, name = one_query(source, query, output, ("group", column))
        head = canvas.shorten(name, canvas.TITLE) + "\n"
        sums = numbers_in(lines, column)
        return (
            lines["group"].tolist(),
            sums,
            head,
            exact and not says(source, notes.DERIVATIVE),
            fitted,
        )
    if groups is None:
        raise InputError(
            "An explanation has no groups of its own; pass groups, a label for each training row."
        )
    one = one_prediction(source, query, output, None, exact)
    codes, found = group_codes(group_labels(source, groups), len(one.weights), "groups")
    parts = one.weights if by == "weight" else np.asarray(one.contributions)
    sums = np.bincount(codes, parts, len(found)).astype(np.float64)
    return (
        found.tolist(),
        sums,
        canvas.head(one),
        one.exact,
        one.scale.name if by == "contribution" else "",
    )


BLAME = {
    "gain": "fall of the {error}\nif this target were corrected",
    "gradient": "derivative of the {error}\nby this target",
    "class": "fall of the mean validation log-loss\nper unit that this label moves to the corrected class",
}


def blame(
    source: Any,
    k: int = 15,
    *,
    by: str | None = None,
    output: Any = None,
    labels: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """The k training rows that a frame of `blame` puts on top, as bars.

    ``by``: "gain", largest first and the default where the frame has it, or "gradient", largest size first. ``labels``: names for
    the lines of the frame. Beside each bar stands the target, and with gains what it would be corrected to. Rows whose gain is
    not known (nan) are left out. The axis names the error: squared, the log-loss of classes, or the deviance.
    """
    k = as_count(k, "k")
    if by is None:
        frame = as_frame(source)
        by = "gain" if frame is None or labelled(source, "gain")[0] in frame.columns else "gradient"
    by = as_choice(by, ("gain", "gradient"), "by")
    column, fitted = labelled(source, by)
    lines, _ = one_query(source, 0, output, ("row", column))
    values = as_numbers(lines[column], f'the column "{column}"')
    names = lines["row"] if labels is None else row_labels(labels, len(values))
    keys = np.where(np.isnan(values), -np.inf, values if by == "gain" else np.abs(values))
    chosen = np.argsort(-keys, kind="stable")[:k]
    chosen = chosen[~np.isnan(values[chosen])]
    if not len(chosen):
        raise InputError(
            f"No {by} in the frame is known; expected some. Try by='gradient', which always is."
        )
    shown = as_list(names[chosen])
    ax = marks.bar_axes(ax, shown)
    beside = _beside(lines, chosen, corrected=by == "gain")
    texts = [f"{number}{more}" for number, more in zip(canvas.numbers(values[chosen]), beside)]
    marks.sign_bars(ax, shown, values[chosen], texts=texts)
    canvas.few_ticks(ax)
    title = f"Blame: {len(chosen)} largest {by}s of {len(values):,} training rows"
    title += (
        f"\nIn brackets: target{' → corrected target' if '→' in beside[0] else ''}"
        if beside[0]
        else ""
    )
    name = _error_axis(source, lines, by) + (f" ({fitted})" if fitted else "")
    return canvas.dress(ax, title, canvas.fixed(name), "training row", grid="x")


def _error_axis(source: Any, lines: Columns, by: str) -> str:
    """The name of the axis: what `blame` computed from which error, as far as the frame says it."""
    known = {name for name in ("gain", "gradient") if labelled(lines, name)[0] in lines}
    if (
        known == {"gain"} and "corrected" in lines
    ):  # of classes, by pushes; frames of `audit` say "expected"
        return BLAME["class"]
    if says(source, notes.FIRST_ORDER):
        return BLAME[by].format(error="mean validation deviance")
    squared = "gain" in known or says(source, notes.NOTE)
    return BLAME[by].format(
        error="mean squared validation error" if squared else "mean validation error"
    )


def _beside(lines: Columns, chosen: IntArray, corrected: bool) -> list[str]:
    """Words after the number of each bar: the target, and what it would be corrected to; none where the target is unknown."""
    if "target" not in lines:
        return [""] * len(chosen)
    to = [name for name in ("corrected", "expected") if name in lines][
        :1
    ]  # expected: in a frame of `audit`
    values = [lines[name][chosen] for name in ("target", *(to if corrected else []))]
    if all(column.dtype.kind == "f" for column in values):
        written = np.reshape(canvas.numbers(np.ravel(values)), np.shape(values)).tolist()
    else:  # classes
        written = [[canvas.shorten(label) for label in column] for column in values]
    return [f"  ({' → '.join(one)})" for one in zip(*written)]
