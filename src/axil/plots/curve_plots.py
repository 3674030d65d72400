"""Curves: how few rows hold how much weight, the total effect of removing rows, errors by trees, leverage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from axil.effects import notes
from axil.errors import InputError
from axil.explanation import Explanation
from axil.inputs import as_flag, as_frame, as_numbers, as_vector
from axil.output.predictions import ROUNDING
from axil.plots import canvas, marks
from axil.plots.sources import labelled, one_output, one_query, one_row, says, whole_prediction
from axil.types import Array

if TYPE_CHECKING:
    from axil.plots.canvas import Axes


MARKED = (0.5, 0.8, 0.95)  # the shares that `Explanation.concentration` counts rows for


def concentration(
    source: Any, *, query: Any = 0, output: Any = None, exact: bool = True, ax: Axes | None = None
) -> Axes:
    """The share of one prediction's ``sum |weight|`` that its m largest rows hold, for every m.

    ``source``: an explanation or weights (n_train,). Marks show how many rows hold 50, 80 and 95 %.
    """
    one = whole_prediction(source, query, output, exact)
    sizes = np.sort(np.abs(one.weights))[::-1]
    if not len(sizes) or sizes[0] == 0:
        raise InputError(
            "All weights are zero, so no row has a share of them; expected a prediction that rests on rows."
        )
    share = np.concatenate([[0.0], np.cumsum(sizes) / sizes.sum()])
    ax = canvas.new_axes(ax)
    ax.plot(np.arange(len(share)), share, color=canvas.colours(ax).positive, linewidth=1.8)
    counts = []
    for mark in MARKED:
        rows = int(np.searchsorted(share, mark - ROUNDING))
        counts.append(f"{mark:.0%}: {rows:,} row{'s' * (rows != 1)}")
        ax.plot([rows, rows, 0], [0, share[rows], share[rows]], color=canvas.GREY, linewidth=0.8, linestyle=":")
        ax.plot(rows, share[rows], "o", color=canvas.colours(ax).ink, markersize=4)
    marks.corner(ax, "\n".join(counts))
    ax.set_xlim(0, 1.02 * len(sizes))
    ax.set_ylim(0, 1.03)
    title = f"{canvas.head(one)}How few rows hold how much of the {one.quantity}s"
    canvas.dress(
        ax,
        title,
        f"training rows, largest |{one.quantity}| first",
        f"share of the sum of |{one.quantity}|",
    )
    ax.yaxis.set_major_formatter("{x:.0%}")
    canvas.few_ticks(ax)
    return ax


def removal(
    curves: Any,
    *,
    query: Any = 0,
    output: Any = None,
    cumulative: bool = False,
    retrained: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """Effect of removing the first m rows on a prediction, for every m: one curve, or ``{name: curve, ...}``.

    A curve is a frame of `removal` or an array (m,) of the effects of rows in the order of their removal, which are added up;
    ``cumulative=True``: arrays are total changes already. ``retrained=True``: arrays were measured by refitting, and the axis
    says so.
    """
    cumulative, retrained = as_flag(cumulative, "cumulative"), as_flag(retrained, "retrained")
    named = dict(curves) if isinstance(curves, Mapping) else {"": curves}
    if not named:
        raise InputError("curves is empty; expected a frame of removal, an array or {name: curve, ...}.")
    read = {name: _effects(curve, query, output) for name, curve in named.items()}
    heads, fitted = {head for _, head, _ in read.values() if head}, {name for *_, name in read.values() if name}
    if retrained and heads:
        raise InputError("A frame of removal holds the structure fixed; retrained=True is for measured arrays alone.")
    ax = canvas.new_axes(ax)
    ax.axhline(0.0, color=canvas.colours(ax).ink, linewidth=0.8)
    lines_of = canvas.colours(ax).lines
    for i, (name, (effects, head, _)) in enumerate(read.items()):
        total = effects if cumulative and not head else np.cumsum(effects)
        style: dict[str, Any] = {
            "color": lines_of[i % len(lines_of)],
            "linestyle": canvas.DASHES[i % len(canvas.DASHES)],
        }
        marker = "o" if len(total) <= 30 else None
        line = np.concatenate([[0.0], total])
        ax.plot(np.arange(len(line)), line, label=str(name), linewidth=1.8, marker=marker, markersize=3, **style)
    title = (canvas.shorten(heads.pop(), canvas.TITLE) + "\n" if len(heads) == 1 else "") + "Removal of training rows"
    if all(says(curve, notes.FIRST_ORDER) for curve in named.values()):
        title += ", to first order"
    kept = "model retrained" if retrained else canvas.FIXED
    canvas.dress(
        ax, title, "rows removed", f"change of the prediction{f' ({min(fitted)})' if fitted else ''}\n({kept})"
    )
    canvas.whole_ticks(ax)
    if len(read) > 1 or "" not in read:
        marks.key(ax)
    return ax


def _effects(curve: Any, query: Any, output: Any) -> tuple[Array, str, str]:
    """(m,) effects in the order of removal, and of a frame what to call the prediction and the scale of the fit."""
    if isinstance(curve, Explanation):
        raise InputError(
            "A curve is an axil.Explanation; expected a frame of removal or an array: explainer.removal(X, k=10, same_sign=True)."
        )
    if as_frame(curve) is None:
        effects = as_numbers(curve, "a curve", "a frame of removal or an array (m,) of effects")
        return as_vector(effects, effects.shape[0] if effects.ndim else 1, "a curve", "removed"), "", ""
    column, fitted = labelled(curve, "effect")
    lines, name = one_query(curve, query, output, ("query", "rank", column))
    order = np.argsort(lines["rank"], kind="stable")
    return as_vector(lines[column][order], len(order), f'the column "{column}"', "removed"), name, fitted


def loo_curve(frame: Any, *, output: Any = None, ax: Axes | None = None) -> Axes:
    """The leave-one-out error and the training error after every number of trees.

    ``frame``: what ``explainer.loo_curve()`` returns. No mark where it is lowest: that is no rule for when to stop.
    """
    (error, fitted), (training_error, _) = labelled(frame, "error"), labelled(frame, "training_error")
    lines, of = one_output(frame, output, ("trees", error, training_error), "explainer.loo_curve()")
    name = "" if of is None else f"Output {of}\n"
    ax = canvas.new_axes(ax)
    for i, (column, label) in enumerate({error: "without the row", training_error: "with all rows"}.items()):
        style: dict[str, Any] = {"color": canvas.colours(ax).lines[i], "linestyle": canvas.DASHES[i]}
        ax.plot(lines["trees"], lines[column], label=label, linewidth=1.8, **style)
    size = canvas.fixed(f"mean squared error{f' ({fitted})' if fitted else ''}")
    canvas.dress(ax, f"{name}Errors of training rows after every number of trees", "trees", size)
    canvas.whole_ticks(ax)
    marks.key(ax)
    return ax


def leverage(values: Any, *, output: int = 0, ranked: bool = False, ax: Axes | None = None) -> Axes:
    """How the leverages, each training row's weight in its own prediction, spread around their mean, trace K / n_train.

    ``values``: ``explainer.leverage()``, (n_train,) or (outputs, n_train) with the position ``output``. A histogram, or with
    ``ranked=True`` the leverages from the largest down.
    """
    found, ranked = one_row(values, output, "leverages", "output"), as_flag(ranked, "ranked")
    mean = float(found.mean())
    ax = canvas.new_axes(ax)
    freedom = f"{canvas.number(found.sum())} degrees of freedom / {len(found):,}"
    title = f"Leverage of {len(found):,} training rows\nDashed: mean {canvas.number(mean)} = {freedom}"
    name = "weight of a row in its own prediction"
    if ranked:
        ax.plot(np.arange(1, len(found) + 1), np.sort(found)[::-1], color=canvas.colours(ax).positive, linewidth=1.8)
        ax.axhline(mean, color=canvas.colours(ax).ink, linestyle="--", linewidth=1.0)
        canvas.dress(ax, title, "training rows, largest leverage first", name)
    else:
        ax.hist(
            found,
            bins=min(40, max(5, int(np.sqrt(len(found)) * 2))),
            color=canvas.colours(ax).positive,
            alpha=0.7,  # so that the mean is seen before it
            edgecolor=canvas.colours(ax).ground,
            linewidth=0.4,
        )
        ax.axvline(mean, color=canvas.colours(ax).ink, linestyle="--", linewidth=1.0)
        canvas.dress(ax, title, name, "training rows", grid="y")
    canvas.few_ticks(ax)
    return ax
