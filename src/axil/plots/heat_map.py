"""Plot the heat map of K, the weights of many predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from axil.arrays import AnyArray, FloatArray, IntArray
from axil.attribution import notes
from axil.errors import InputError, shown
from axil.explanation import Explanation
from axil.inputs import as_count, as_flag, as_frame, as_numbers
from axil.plots import canvas
from axil.plots.sources import output_position, row_labels, says

if TYPE_CHECKING:
    from axil.plots.canvas import Axes


SATURATED = 99.0  # percentile of |weight| at the ends of the colours, as in the paper


def matrix(
    source: Any,
    *,
    output: object = None,
    labels: Any = None,
    cluster: bool = True,
    most: int = 1000,
    exact: bool = True,
    colorbar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Plot K, or the weights of many predictions, as colours.

    Explained rows run down, and training rows run across.

    ``source`` is an explanation, its `to_frame` in pandas, or an array (n, n_train) such as
    ``explainer.jacobian.matrix()``. Rows and columns are in the order of a hierarchical clustering
    (Ward's). A square K has one order for both, that of its rows. ``cluster=False`` keeps the order
    given. Blue is positive, red is negative. Colours end at the 99th percentile of |weight|, so
    that the largest weights do not hide the others. If there are more than ``most`` rows or
    columns, ``most`` of them are drawn, evenly spaced, and the title says so. ``labels`` (n_train,)
    are names of the columns, and of the rows of a square K.
    """
    most = as_count(most, "most")
    cluster = as_flag(cluster, "cluster")
    colorbar = as_flag(colorbar, "colorbar")
    K, rows, columns, exact = _read(source, output, exact)
    is_square = K.shape[0] == K.shape[1] and not isinstance(source, Explanation)
    if labels is not None:
        columns = row_labels(labels, K.shape[1])
        if is_square:
            rows = columns
    down = _spaced(K.shape[0], most)
    across = _spaced(K.shape[1], most)
    weights = K[down][:, across]
    if issparse(weights):
        weights = weights.toarray()
    weights = np.ascontiguousarray(weights, dtype=np.float64)
    if not np.isfinite(weights).all():
        raise InputError("The weights hold nan or infinite values; expected finite ones.")
    if cluster:
        row_order = _cluster_order(weights)
        column_order = row_order if is_square else _cluster_order(weights.T)
        weights = weights[row_order][:, column_order]
        down = down[row_order]
        across = across[column_order]
    ax = canvas.new_axes(ax, 5.0)
    sizes = np.abs(weights)
    # the end of the colours: the largest weight if almost all are zero
    limit = float(np.percentile(sizes, SATURATED)) or float(sizes.max()) or 1.0
    image = ax.imshow(
        weights,
        cmap=canvas.diverging(ax),
        vmin=-limit,
        vmax=limit,
        aspect="auto",
        interpolation="nearest",
    )
    name = "weight" if exact else "derivative"
    title = f"{name.capitalize()}s\n{K.shape[0]:,} explained × {K.shape[1]:,} training rows"
    if weights.shape != K.shape:
        title += f"\n{weights.shape[0]:,} × {weights.shape[1]:,} drawn, evenly spaced"
    order = ", cluster order" if cluster else ""
    canvas.dress(ax, title, f"training rows{order}", f"explained rows{order}")
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    canvas.name_cells(ax, rows[down], columns[across])
    if colorbar:
        beyond = bool(sizes.max() > limit)
        ends = f" (ends: {SATURATED:.0f}th percentile)" if beyond else ""
        canvas.colour_bar(ax, image, name + ends, beyond)
    return ax


def _read(source: Any, output: object, exact: bool) -> tuple[Any, AnyArray, AnyArray, bool]:
    """Return the weights (n, n_train), the labels of both sides, and whether weights are exact."""
    exact = as_flag(exact, "exact")
    if isinstance(source, Explanation):
        return *_read_explanation(source, output), source.exact
    frame = as_frame(source)
    index = getattr(source, "index", None)
    columns = getattr(source, "columns", None)
    if frame is not None and (index is None or columns is None):
        raise InputError(
            "Only pandas keeps labels of both sides in its frames; pass the explanation or its "
            ".weights."
        )
    if issparse(source):
        K: Any = source
    else:
        K = as_numbers(source, "What to draw", "weights (n, n_train)")
    if K.ndim == 3:
        K = K[:, output_position(output, np.arange(K.shape[1]))]
    elif output is not None:
        raise InputError(f"output is {shown(output)}, but there is one matrix only; leave it out.")
    if K.ndim != 2 or 0 in K.shape or K.dtype.kind not in "biuf":
        raise InputError(
            f"The weights have shape {K.shape} and dtype {K.dtype}; expected numbers (n, n_train)."
        )
    if issparse(K):
        K = K.tocsr()
    if frame is None:
        return K, np.arange(K.shape[0]), np.arange(K.shape[1]), exact
    is_derivative = says(source, notes.DERIVATIVE)
    return K, np.asarray(index), np.asarray(columns), exact and not is_derivative


def _read_explanation(explanation: Explanation, output: object) -> tuple[Any, AnyArray, AnyArray]:
    """Return an explanation's weights (n, n_train) for one output, and labels of both sides."""
    weights = explanation.weights
    if weights.ndim == 3 or output is not None:
        k = output_position(output, explanation.outputs)
        if weights.ndim == 3:
            weights = weights[:, k]
    if not len(explanation):
        raise InputError(
            "The explanation has no explained rows, so there is nothing to draw; expected some."
        )
    return weights, explanation.query_index, explanation.index


def _spaced(n: int, most: int) -> IntArray:
    """Return up to ``most`` positions among n, evenly spaced."""
    if n <= most:
        return np.arange(n)
    return np.linspace(0, n - 1, most).astype(np.intp)


def _cluster_order(rows: FloatArray) -> IntArray:
    """Return the order of rows as leaves of their hierarchical clustering.

    This takes O(n^2) times their length.
    """
    if len(rows) < 3:
        return np.arange(len(rows))
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import pdist

    return np.asarray(leaves_list(linkage(pdist(rows), method="ward")), dtype=np.intp)
