"""Weights of many predictions at once: which training rows, or groups of them, carry all predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, issparse

from axil.arrays import FloatArray
from axil.errors import InputError, counted, shown
from axil.explanation import Explanation
from axil.inputs import as_choice, as_count, as_flag, as_list, group_codes
from axil.plots import canvas, marks
from axil.plots.sources import group_labels, largest, output_position, text

if TYPE_CHECKING:
    from axil.plots.canvas import Axes

MOST_POINTS = 1000  # of one row or group in a swarm; of more predictions `MOST_POINTS` are drawn, evenly spaced


def overall(
    explanation: Any,
    groups: Any = None,
    k: int = 15,
    *,
    by: str | None = None,
    swarm: bool = False,
    output: Any = None,
    ax: Axes | None = None,
) -> Axes:
    """The training rows, or groups of them, that carry all predictions of an explanation: the mean |weight| of each.

    The mean is over the explained rows. A group's weight in a prediction is the sum over its rows, as `Explanation.group` has it.
    The title says which share of the mean ``sum |weight|`` the rows or groups drawn hold.

    Parameters
    ----------
    explanation : Explanation
        Of as many predictions as you like.
    groups : str or sequence of length n_train, optional
        A label for each training row: a year, a region, a source; or the name of a feature. Without them each row is by itself.
    k : int, default 15
        How many rows or groups to draw, the largest on top.
    by : "weight" or "contribution", optional
        What to draw: weights, or weight × (target − mean target), what each row moves predictions by. Weights by default; of
        pushes, which have no weights, contributions.
    swarm : bool, default False
        A point for each prediction instead of a bar for all; points right of 0 are positive.
    output : optional
        The name of one of several outputs.
    ax : matplotlib axes, optional
        Where to draw; a new figure of pyplot's by default.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from axil import Explainer, plots
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> forest = RandomForestRegressor(20, min_samples_leaf=5, random_state=0).fit(X[:300], y[:300])
    >>> ax = plots.overall(Explainer(forest, X[:300], y[:300])(X[300:]), groups=X["sex"][:300] > 0)
    >>> ax.get_xlabel()
    'mean |weight|'
    """
    if not isinstance(explanation, Explanation):
        raise InputError(
            f"explanation is {shown(explanation)}; expected an axil.Explanation: explainer(X)."
        )
    if not len(explanation):
        raise InputError(
            "The explanation is of no rows, so there is nothing to draw; expected some."
        )
    k, swarm = as_count(k, "k"), as_flag(swarm, "swarm")
    by = None if by is None else as_choice(by, ("weight", "contribution"), "by")
    place = output_position(output, explanation.outputs)
    parts, quantity = _parts(explanation, by, place)
    labels, member = explanation.index, "training row"
    if groups is not None:
        codes, labels = group_codes(group_labels(explanation, groups), parts.shape[1], "groups")
        member, n = "group", len(codes)
        parts = parts @ csr_array((np.ones(n), (np.arange(n), codes)), shape=(n, len(labels)))
    sizes = np.asarray(abs(parts).mean(axis=0)).ravel()
    chosen = largest(sizes, k)
    names = [text(name) for name in as_list(np.asarray(labels)[chosen])]
    ax = marks.bar_axes(ax, names, canvas.LINE * (1.8 if swarm else 1))
    if swarm:
        some = parts[:, chosen]
        _draw_swarm(ax, some.toarray() if issparse(some) else some)
        marks.label_bars(ax, names)
        below = quantity
    else:
        marks.sign_bars(ax, names, sizes[chosen])
        below = f"mean |{quantity}|"
    whole = sizes.sum()
    held = sizes[chosen].sum() / whole if whole else 1.0
    title = "" if explanation.outputs is None else f"Output {text(explanation.outputs[place])}\n"
    title += f"{len(sizes):,} {member}s in {counted(len(explanation), 'prediction', ',')}"
    if len(chosen) < len(sizes):
        title += f"\nThe {len(chosen)} largest hold {held:.0%} of the mean |{quantity}|"
    canvas.few_ticks(ax)
    return canvas.dress(ax, title, below, member, grid="x")


def _parts(explanation: Explanation, by: str | None, k: int) -> tuple[Any, str]:
    """(n, n_train): weights, or contributions from the mean target, of the output at a place; and their name."""
    additive = explanation.kind == "additive"
    if additive and by == "weight":
        raise InputError("Pushes are contributions and have no weights; leave out by.")
    every = explanation.contributions if additive else explanation.weights
    own = every[k] if isinstance(every, list) else every[:, k] if every.ndim == 3 else every
    if not additive and by == "contribution":
        targets = explanation.targets.reshape(len(explanation.targets), -1)[:, k]
        from_mean = targets - targets.mean()
        own = own.multiply(from_mean).tocsr() if issparse(own) else own * from_mean
    word = "weight" if explanation.kind == "exact" else "derivative"
    return (
        own,
        "contribution"
        if additive
        else f"{word} × (target − mean)"
        if by == "contribution"
        else word,
    )


def _draw_swarm(ax: Axes, parts: FloatArray) -> None:
    """The parts (n, chosen) as points, those of each row or group on a line of their own."""
    rows = np.linspace(0, len(parts) - 1, min(len(parts), MOST_POINTS)).astype(np.intp)
    across = parts[rows]
    down = np.tile(np.arange(across.shape[1], dtype=np.float64), (len(across), 1))
    down += (
        0.3 * np.sin(2.4 * np.arange(len(across)))[:, None]
    )  # the golden angle: neighbours end up far apart
    marks.sign_points(ax, across.ravel(), down.ravel(), np.sign(across.ravel()))
    ax.axvline(0.0, color=canvas.colours(ax).ink, linewidth=0.8)
