"""The heat map of K."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from axil.arrays import FloatArray, IntArray
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
    output: Any = None,
    labels: Any = None,
    cluster: bool = True,
    most: int = 1000,
    exact: bool = True,
    colorbar: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """K, or the weights of many predictions, as colours: explained rows down, training rows across.

    ``source``: an explanation, its `to_frame` in pandas, or an array (n, n_train) such as ``explainer.matrix()``. Rows are put
    in the order of a hierarchical clustering (Ward's, of the rows of weights), columns in that of theirs; a square K has one
    order for both, that of its rows. ``cluster=False`` keeps the order given. Blue is positive, red negative; colours end at
    the 99th percentile of |weight|, so that the largest do not hide the others. Of more than ``most`` rows or columns ``most``
    are drawn, evenly spaced, and the title says so. ``labels`` (n_train,): names of the columns, and of the rows of a square K.
    """
    most, cluster, colorbar = (
        as_count(most, "most"),
        as_flag(cluster, "cluster"),
        as_flag(colorbar, "colorbar"),
    )
    K, rows, columns, exact = _read(source, output, exact)
    square = K.shape[0] == K.shape[1] and not isinstance(source, Explanation)
    if labels is not None:
        columns = row_labels(labels, K.shape[1])
        rows = columns if square else rows
    down, across = _spaced(K.shape[0], most), _spaced(K.shape[1], most)
    part = K[down][:, across]
    part = np.ascontiguousarray(part.toarray() if issparse(part) else part, dtype=np.float64)
    if not np.isfinite(part).all():
        raise InputError("The weights hold nan or infinite values; expected finite ones.")
    if cluster:
        first = _cluster_order(part)
        second = first if square else _cluster_order(part.T)
        part, down, across = part[first][:, second], down[first], across[second]
    ax = canvas.new_axes(ax, 5.0)
    sizes = np.abs(part)
    # Where colours end; the largest where almost all weights are zero
    limit = float(np.percentile(sizes, SATURATED)) or float(sizes.max()) or 1.0
    image = ax.imshow(
        part,
        cmap=canvas.diverging(ax),
        vmin=-limit,
        vmax=limit,
        aspect="auto",
        interpolation="nearest",
    )
    name = "weight" if exact else "derivative"
    title = f"{name}s".capitalize() + f"\n{K.shape[0]:,} explained × {K.shape[1]:,} training rows"
    if part.shape != K.shape:
        title += f"\n{part.shape[0]:,} × {part.shape[1]:,} drawn, evenly spaced"
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


def _read(source: Any, output: Any, exact: bool) -> tuple[Any, NDArray[Any], NDArray[Any], bool]:
    """Weights (n, n_train), the labels of both and whether they are exact."""
    exact = as_flag(exact, "exact")
    if isinstance(source, Explanation):
        weights = source.weights
        k = (
            output_position(output, source.outputs)
            if weights.ndim == 3 or output is not None
            else 0
        )
        if not len(source):
            raise InputError(
                "The explanation is of no rows, so there is nothing to draw; expected some."
            )
        return (
            weights[:, k] if weights.ndim == 3 else weights,
            source.query_index,
            source.index,
            source.exact,
        )
    K = source
    frame = as_frame(source)
    index, columns = getattr(source, "index", None), getattr(source, "columns", None)
    if frame is not None and (index is None or columns is None):
        raise InputError(
            "Only pandas keeps labels of both sides in its frames; pass the explanation or its .weights."
        )
    if not issparse(K):
        K = as_numbers(K, "What to draw", "weights (n, n_train)")
    if K.ndim == 3:
        K = K[:, output_position(output, np.arange(K.shape[1]))]
    elif output is not None:
        raise InputError(f"output is {shown(output)}, but there is one matrix only; leave it out.")
    if K.ndim != 2 or 0 in K.shape or K.dtype.kind not in "biuf":
        raise InputError(
            f"The weights have shape {K.shape} and dtype {K.dtype}; expected numbers (n, n_train)."
        )
    K = K.tocsr() if issparse(K) else K
    if frame is not None:
        return (
            K,
            np.asarray(index),
            np.asarray(columns),
            exact and not says(source, notes.DERIVATIVE),
        )
    return K, np.arange(K.shape[0]), np.arange(K.shape[1]), exact


def _spaced(n: int, most: int) -> IntArray:
    """Up to ``most`` positions among n, evenly spaced."""
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.intp)


def _cluster_order(rows: FloatArray) -> IntArray:
    """The rows in the order of the leaves of their clustering; O(n^2) times their length."""
    if len(rows) < 3:
        return np.arange(len(rows))
    from scipy.cluster.hierarchy import leaves_list, linkage
    from scipy.spatial.distance import pdist

    return np.asarray(leaves_list(linkage(pdist(rows), method="ward")), dtype=np.intp)
