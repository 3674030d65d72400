"""Plot curves of the concentration of weights, removed rows, errors by trees, and leverage.

The concentration is how few rows hold how much weight. The curve of removed rows shows the effect
of removing them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from axil.aliases import FeatureTable
from axil.arrays import FloatArray
from axil.errors import InputError, counted, shown
from axil.explanation import Explanation
from axil.inputs import as_flag, as_frame, as_list, as_numbers, as_vector, row_labels, take_rows
from axil.inputs.codes import keys
from axil.output.predictions import ROUNDING
from axil.plots import canvas, marks
from axil.plots.sources import labelled, one_output, one_query, one_row, whole_prediction

if TYPE_CHECKING:
    from axil.plots.canvas import Axes


MARKED = (0.5, 0.8, 0.95)  # the shares that `Explanation.concentration` counts rows for
MOST_MARKERS = 30  # points of a line that have a marker each


def concentration(
    source: Any,
    *,
    query: object = 0,
    output: object = None,
    exact: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Plot the share of one prediction's ``sum |weight|`` that its largest rows hold.

    The curve has the share of the m largest rows for every m. ``source`` is an explanation or
    weights (n_train,). Marks show how many rows hold 50, 80 and 95 %.
    """
    prediction = whole_prediction(source, query, output, exact)
    quantity = prediction.quantity
    sizes = np.sort(np.abs(prediction.weights))[::-1]
    if not len(sizes) or sizes[0] == 0:
        raise InputError(
            "All weights are zero, so no row has a share of them; expected a prediction that "
            "rests on rows."
        )
    share = np.concatenate([[0.0], np.cumsum(sizes) / sizes.sum()])
    ax = canvas.new_axes(ax)
    palette = canvas.colours(ax)
    ax.plot(np.arange(len(share)), share, color=palette.positive, linewidth=1.8)
    counts = []
    for mark in MARKED:
        rows = int(np.searchsorted(share, mark - ROUNDING))
        counts.append(f"{mark:.0%}: {rows:,} row{'s' * (rows != 1)}")
        guide_x = [rows, rows, 0]
        guide_y = [0, share[rows], share[rows]]
        ax.plot(guide_x, guide_y, color=canvas.GREY, linewidth=0.8, linestyle=":")
        ax.plot(rows, share[rows], "o", color=palette.ink, markersize=4)
    marks.corner(ax, "\n".join(counts))
    ax.set_xlim(0, 1.02 * len(sizes))
    ax.set_ylim(0, 1.03)
    title = f"{canvas.head(prediction)}How few rows hold how much of the {quantity}s"
    below = f"training rows, largest |{quantity}| first"
    canvas.dress(ax, title, below, f"share of the sum of |{quantity}|")
    ax.yaxis.set_major_formatter("{x:.0%}")
    canvas.few_ticks(ax)
    return ax


def removal(
    curves: Any,
    explainer: Any = None,
    *,
    X: FeatureTable = None,
    query: object = 0,
    output: object = None,
    cumulative: bool = False,
    retrained: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Plot how a prediction changes when the first m rows are removed together, for every m.

    A curve is a frame of `Explainer.removal`, or an array (m,). Of a frame the plot draws the
    change that `Explainer.without` gives for the first 1, 2, ... of its rows, one replay each:
    effects of single rows do not add up to that of a set. An array holds your own numbers, such as
    those of refits: what each further row changes, which are added up, or total changes.

    Parameters
    ----------
    curves : frame, array of shape (m,) or {name: curve, ...}
        One curve, or several by name.
    explainer : Explainer, optional
        The explainer that made the frames.
    X : table, optional
        The rows that `removal` was asked about.
    query : int or label, default 0
        The prediction, by its position or by its label.
    output : optional
        The name of one of several outputs.
    cumulative : bool, default False
        Whether arrays hold total changes already.
    retrained : bool, default False
        Whether arrays were measured by refitting; the axis says so.
    ax : matplotlib axes, optional
        Where to draw; a new figure of pyplot's by default.
    """
    cumulative = as_flag(cumulative, "cumulative")
    retrained = as_flag(retrained, "retrained")
    curve_by_name = dict(curves) if isinstance(curves, Mapping) else {"": curves}
    if not curve_by_name:
        raise InputError(
            "curves is empty; expected a frame of removal, an array or {name: curve, ...}."
        )
    if retrained and any(as_frame(curve) is not None for curve in curve_by_name.values()):
        raise InputError(
            "A frame of removal holds the structure fixed; retrained=True is for measured arrays "
            "alone."
        )
    totals = {}
    heads = set()
    for name, curve in curve_by_name.items():
        if as_frame(curve) is None:
            totals[name] = _totals_of_array(curve, cumulative)
        else:
            totals[name], head = _changes_without(curve, explainer, X, query, output)
            heads.add(head)
    ax = canvas.new_axes(ax)
    palette = canvas.colours(ax)
    ax.axhline(0.0, color=palette.ink, linewidth=0.8)
    for i, (name, total) in enumerate(totals.items()):
        line = np.concatenate([[0.0], total])
        ax.plot(
            np.arange(len(line)),
            line,
            label=str(name),
            color=palette.lines[i % len(palette.lines)],
            linestyle=canvas.DASHES[i % len(canvas.DASHES)],
            linewidth=1.8,
            marker="o" if len(total) <= MOST_MARKERS else None,
            markersize=3,
        )
    title = "Removal of training rows"
    if len(heads) == 1:
        title = f"{canvas.shorten(heads.pop(), canvas.TITLE)}\n{title}"
    fixed = "model retrained" if retrained else canvas.FIXED
    canvas.dress(ax, title, "rows removed", f"change of the prediction\n({fixed})")
    canvas.whole_ticks(ax)
    if len(totals) > 1 or "" not in totals:
        marks.key(ax)
    return ax


def _totals_of_array(curve: object, cumulative: bool) -> FloatArray:
    """Return the total changes (m,) of an array of the user's."""
    if isinstance(curve, Explanation):
        raise InputError(
            "A curve is an axil.Explanation; expected a frame of removal or an array: "
            "explainer.removal(X, k=10, same_sign=True)."
        )
    effects = as_numbers(curve, "a curve", "a frame of removal or an array (m,) of effects")
    if effects.ndim:
        n = effects.shape[0]
    else:
        n = 1
    effects = as_vector(effects, n, "a curve", "removed")
    if cumulative:
        return effects
    return np.cumsum(effects)


def _changes_without(
    curve: Any, explainer: Any, X: FeatureTable, query: object, output: object
) -> tuple[FloatArray, str]:
    """Return the changes (m,) of a prediction without the first rows of a frame of `removal`.

    The second result is the name of the prediction.
    """
    if not hasattr(explainer, "without") or X is None:
        raise InputError(
            "A frame of removal says what each row does by itself, and such effects do not add "
            "up. Pass the explainer and the rows that it was asked about: plots.removal(frame, "
            "explainer, X)."
        )
    lines, head = one_query(curve, query, output, ("query", "rank", "row"))
    label = lines["query"][0]
    label_key = keys(np.array([label]))[0]
    places = [i for i, row_key in enumerate(keys(row_labels(X))) if row_key == label_key]
    if len(places) != 1:
        raise InputError(
            f"X has {counted(len(places), 'row')} with the label {shown(label)}, which the frame "
            "is of; expected one: the rows that removal was asked about."
        )
    row = take_rows(X, np.array(places))
    rows = as_list(lines["row"][np.argsort(lines["rank"], kind="stable")])
    changes = []
    for m in range(1, len(rows) + 1):
        table = as_frame(explainer.without(row, rows[:m]))
        assert table is not None
        change_by_output = np.asarray(table["change"].to_numpy())
        place = 0
        if "output" in lines:
            place = table["output"].to_list().index(lines["output"][0])
        changes.append(float(change_by_output[place]))
    return np.array(changes), head


def leave_one_out_curve(frame: Any, *, output: object = None, ax: Axes | None = None) -> Axes:
    """Plot the leave-one-out error and the training error after every number of trees.

    ``frame`` is what ``explainer.diagnostics.leave_one_out_curve()`` returns. The plot does not
    mark the lowest error, which is no rule for when to stop.
    """
    error, scale = labelled(frame, "error")
    training_error, _ = labelled(frame, "training_error")
    needed = ("trees", error, training_error)
    lines, output_name = one_output(
        frame, output, needed, "explainer.diagnostics.leave_one_out_curve()"
    )
    ax = canvas.new_axes(ax)
    curves = ((error, "without the row"), (training_error, "with all rows"))
    for i, (column, label) in enumerate(curves):
        ax.plot(
            lines["trees"],
            lines[column],
            label=label,
            linewidth=1.8,
            color=canvas.colours(ax).lines[i],
            linestyle=canvas.DASHES[i],
        )
    title = "Errors of training rows after every number of trees"
    if output_name is not None:
        title = f"Output {output_name}\n{title}"
    canvas.dress(ax, title, "trees", canvas.fixed(canvas.with_scale("mean squared error", scale)))
    canvas.whole_ticks(ax)
    marks.key(ax)
    return ax


def leverage(values: Any, *, output: int = 0, ranked: bool = False, ax: Axes | None = None) -> Axes:
    """Plot each training row's weight in its own prediction, and the mean, trace K / n_train.

    ``values`` is ``explainer.diagnostics.leverage()``, (n_train,), or (outputs, n_train) with the
    position ``output``. The plot is a histogram, or with ``ranked=True`` a curve from the largest
    leverage down.
    """
    leverages = one_row(values, output, "leverages", "output")
    ranked = as_flag(ranked, "ranked")
    n = len(leverages)
    mean = float(leverages.mean())
    ax = canvas.new_axes(ax)
    palette = canvas.colours(ax)
    freedom = f"{canvas.number(leverages.sum())} degrees of freedom / {n:,}"
    title = f"Leverage of {n:,} training rows\nDashed: mean {canvas.number(mean)} = {freedom}"
    name = "weight of a row in its own prediction"
    if ranked:
        descending = np.sort(leverages)[::-1]
        ax.plot(np.arange(1, n + 1), descending, color=palette.positive, linewidth=1.8)
        ax.axhline(mean, color=palette.ink, linestyle="--", linewidth=1.0)
        canvas.dress(ax, title, "training rows, largest leverage first", name)
    else:
        ax.hist(
            leverages,
            bins=min(40, max(5, int(np.sqrt(n) * 2))),
            color=palette.positive,
            alpha=0.7,  # so that the mean is visible in front of it
            edgecolor=palette.ground,
            linewidth=0.4,
        )
        ax.axvline(mean, color=palette.ink, linestyle="--", linewidth=1.0)
        canvas.dress(ax, title, name, "training rows", grid="y")
    canvas.few_ticks(ax)
    return ax
