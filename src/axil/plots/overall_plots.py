"""Plot the weights of many predictions at once.

The plots show which training rows, or groups of them, carry all predictions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, issparse

from axil.aliases import Ranking
from axil.arrays import FloatArray, IntArray
from axil.errors import InputError, counted, shown
from axil.explanation import Explanation
from axil.inputs import as_choice, as_count, as_flag, as_list, group_codes
from axil.plots import canvas, marks
from axil.plots.sources import group_labels, largest, output_position, text

if TYPE_CHECKING:
    from axil.plots.canvas import Axes

RANKINGS: tuple[Ranking, ...] = ("weight", "contribution")
MOST_POINTS = 1000  # of one row or group in a swarm, evenly spaced over the predictions


def overall(
    explanation: Any,
    groups: Any = None,
    *,
    k: int = 10,
    by: Ranking | None = None,
    swarm: bool = False,
    output: object = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the training rows, or groups, with the largest mean |weight| in the predictions.

    The mean is over the explained rows. A group's weight in a prediction is the sum over its rows,
    as in `Explanation.group`. The title says which share of the mean ``sum |weight|`` the plotted
    rows or groups have.

    Parameters
    ----------
    explanation : Explanation
        Of as many predictions as you like.
    groups : str or sequence of length n_train, optional
        A label for each training row: a year, a region, a source; or the name of a feature. Without
        them each row is by itself.
    k : int, default 10
        How many rows or groups to draw, the largest on top.
    by : "weight" or "contribution", optional
        What to draw: weights, or weight × (target − mean target), what each row moves predictions
        by. Weights by default, and contributions for an additive explanation, which has no weights.
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
            "The explanation has no explained rows, so there is nothing to draw; expected some."
        )
    k = as_count(k, "k")
    swarm = as_flag(swarm, "swarm")
    if by is not None:
        by = as_choice(by, RANKINGS, "by")
    place = output_position(output, explanation.outputs)
    values, quantity = _values(explanation, by, place)
    labels = explanation.index
    member = "training row"
    if groups is not None:
        codes, labels = group_codes(group_labels(explanation, groups), values.shape[1], "groups")
        values = values @ _membership(codes, len(labels))
        member = "group"
    sizes = np.asarray(abs(values).mean(axis=0)).ravel()
    chosen = largest(sizes, k)
    names = [text(name) for name in as_list(np.asarray(labels)[chosen])]
    if swarm:
        ax = marks.bar_axes(ax, names, 1.8 * canvas.LINE)
        chosen_values = values[:, chosen]
        if issparse(chosen_values):
            chosen_values = chosen_values.toarray()
        _draw_swarm(ax, chosen_values)
        marks.label_bars(ax, names)
        below = quantity
    else:
        ax = marks.bar_axes(ax, names)
        marks.sign_bars(ax, names, sizes[chosen])
        below = f"mean |{quantity}|"
    title = f"{len(sizes):,} {member}s in {counted(len(explanation), 'prediction', ',')}"
    if explanation.outputs is not None:
        title = f"Output {text(explanation.outputs[place])}\n{title}"
    if len(chosen) < len(sizes):
        total = sizes.sum()
        if total:
            share = sizes[chosen].sum() / total
        else:
            share = 1.0
        title += f"\nThe {len(chosen)} largest hold {share:.0%} of the mean |{quantity}|"
    canvas.few_ticks(ax)
    return canvas.dress(ax, title, below, member, grid="x")


def _membership(codes: IntArray, n_groups: int) -> csr_array:
    """Return the matrix (n_train, groups) that has a one where a row belongs to a group."""
    n = len(codes)
    return csr_array((np.ones(n), (np.arange(n), codes)), shape=(n, n_groups))


def _values(explanation: Explanation, by: str | None, k: int) -> tuple[Any, str]:
    """Return the weights (n, n_train) of output k, or its contributions, and their name.

    Contributions are relative to the mean target.
    """
    if explanation.kind == "additive":
        if by == "weight":
            raise InputError(
                "An additive explanation has contributions and no weights; leave out by."
            )
        return _of_output(explanation.contributions, k), "contribution"
    weights = _of_output(explanation.weights, k)
    if explanation.kind == "exact":
        quantity = "weight"
    else:
        quantity = "derivative"
    if by != "contribution":
        return weights, quantity
    targets = explanation.targets.reshape(len(explanation.targets), -1)[:, k]
    deviations = targets - targets.mean()
    if issparse(weights):
        contributions = weights.multiply(deviations).tocsr()
    else:
        contributions = weights * deviations
    return contributions, f"{quantity} × (target − mean)"


def _of_output(values: Any, k: int) -> Any:
    """Return the values (n, n_train) of output k, from one array for all outputs or from a list."""
    if isinstance(values, list):
        return values[k]
    if values.ndim == 3:
        return values[:, k]
    return values


def _draw_swarm(ax: Axes, values: FloatArray) -> None:
    """Plot values (n, chosen) as points, with a line of points for each row or group."""
    rows = np.linspace(0, len(values) - 1, min(len(values), MOST_POINTS)).astype(np.intp)
    x = values[rows]
    y = np.tile(np.arange(x.shape[1], dtype=np.float64), (len(x), 1))
    # steps of the golden angle, which separate neighbours
    y += 0.3 * np.sin(2.4 * np.arange(len(x)))[:, None]
    marks.sign_points(ax, x.ravel(), y.ravel(), np.sign(x.ravel()))
    ax.axvline(0.0, color=canvas.colours(ax).ink, linewidth=0.8)
