"""Tidy tables in the user's own frame library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from axil.errors import InputError, shown
from axil.inputs import as_choice
from axil.inputs.libraries import frame_library, is_installed, require_frame_library
from axil.kernels import Backend
from axil.kernels.cpu import Cpu
from axil.machine.arrays import is_host
from axil.machine.memory import Budget
from axil.scale import TargetScale
from axil.types import Array


def as_backend(name: Any) -> str:
    """The name of a frame library as a file has it; where that is not installed, one that is."""
    if name not in ("pandas", "polars", "pyarrow", "modin", "cudf"):
        raise ValueError(f"no frame library: {name!r}")
    return str(name) if is_installed(name) else frame_library()


def make(columns: dict[str, Any], backend: str) -> Any:
    """A frame of this library with these columns."""
    require_frame_library(backend)
    try:
        return nw.from_dict(columns, backend=nw.Implementation.from_string(backend)).to_native()  # type: ignore[arg-type]
    except MemoryError:
        raise
    except Exception as error:  # pyarrow takes no labels of mixed kinds
        raise InputError(
            f"{backend} makes no table of these columns ({shown(error, 200)}); expected labels of one kind: all numbers, all "
            "text or all dates. Turn them into text, or pass X_train as a frame of pandas or polars."
        ) from error


COPIES = 3.5  # the columns of all batches, joined, and in the frame: freed memory is not always given back
SMALLER = "Ask for fewer rows of X at a time, for fewer lines of each, or raise memory_limit."

NOTE = "exact with the fitted structure held fixed; not a retraining"
DERIVATIVE = "a derivative by the targets with the fitted structure held fixed; not a decomposition of the prediction"
ADDITIVE = "pushes: what each row's own gradients put into the score; with the base they add up to it, exactly"
HELD = (
    "with the fitted structure and its pattern held fixed (sums that L1 moves or puts to zero, clips, bounds), but a refit on "
    "the same splits would change that pattern; not a retraining"
)
FIRST_ORDER = "a first-order effect with the fitted structure held fixed; not a retraining"


NOTES = {"exact": NOTE, "additive": ADDITIVE, "jacobian": DERIVATIVE}  # by what the weights are


def of_class(text: str, scored: Any) -> str:
    """A note that names the class which scores are of, where one score stands for two classes; None: there are not two."""
    return text if scored is None else f"{text}; scores are of class {scored}, whose rows have target 1"


def note(frame: Any, text: str, **more: Any) -> Any:
    """The frame itself; pandas frames say what their numbers are in ``attrs["axil"]``, and more under other names."""
    if isinstance(getattr(frame, "attrs", None), dict):
        frame.attrs.update(axil=text, **more)
    return frame


def check_by(by: str | None) -> None:
    """Refuse an order that tables are not sorted by; None leaves it open."""
    if by is not None:
        as_choice(by, ("weight", "contribution"), "by")


def check_per_class(per_class: Any) -> None:
    """Refuse a parameter that only tables of explanations at hand have."""
    if per_class is not True:
        raise InputError(
            f"per_class is {shown(per_class)}; top of an explainer has a line for each class. For one line per training row, "
            "with classes by name: explainer.explain(X).top(k, per_class=False), or explainer.similar(X, k, per_class=False)."
        )


class Largest:
    """The k largest |weight| (or |weight * target|) of each of n predictions, gathered block by block.

    The predictions are some of ``n_queries``, and ``room`` bytes may be taken to find the largest sooner. Blocks are the host's,
    or of the ``backend`` that is given.
    """

    def __init__(
        self,
        n: int,
        k: int,
        targets: Array,
        by: str,
        n_threads: int,
        n_queries: int | None = None,
        room: int = 0,
        backend: Backend | None = None,
    ):
        self.k = k = min(k, len(targets))
        self.n_queries, self.room = n if n_queries is None else n_queries, room
        self.targets = np.ascontiguousarray(targets)
        self.scale = self.targets if by == "contribution" else None
        self.backend: Backend = backend or Cpu(n_threads)
        self.values: Array = np.zeros((n, k))
        self.rows: NDArray[np.int64] = np.full((n, k), -1, dtype=np.int64)

    @classmethod
    def of(cls, weights: Any, k: int, targets: Array, by: str, n_threads: int) -> Largest:
        """The largest of these weights (n, N), dense or sparse."""
        found = cls(weights.shape[0], k, targets, by, n_threads)
        if issparse(weights):
            found.add_sparse(weights)
        else:
            found.add(weights.T, 0)
        return found

    def add(self, block: Any, first: int) -> None:
        """Take in the weights, (rows, n), of the training rows from ``first`` on."""
        own = np.ascontiguousarray(block) if is_host(block) else block
        self.backend.top(own, first, self.scale, self.values, self.rows)

    def merge(self, values: Array, rows: NDArray[np.int64]) -> None:
        """Take in the largest, (n, k), of other training rows, and their row numbers; free places have row -1."""
        if (self.rows < 0).all():
            self.values, self.rows = values, rows
            return
        values, rows = np.append(self.values, values, axis=1), np.append(self.rows, rows, axis=1)
        size = np.where(rows < 0, -1.0, np.abs(values if self.scale is None else values * self.scale[rows]))
        order = np.lexsort((rows, -size))[:, : self.k]
        self.values = np.take_along_axis(values, order, axis=1)
        self.rows = np.take_along_axis(rows, order, axis=1)

    def add_sparse(self, weights: csr_array) -> None:
        """Take in all weights, (n, N), at once; a prediction with fewer than k of them is filled up with zeros."""
        k = self.values.shape[1]
        for i in range(weights.shape[0]):
            own = slice(weights.indptr[i], weights.indptr[i + 1])
            values, rows = weights.data[own], weights.indices[own].astype(np.int64)
            size = np.abs(values if self.scale is None else values * self.scale[rows])
            order = np.lexsort((rows, -size))[:k]
            if len(order) < k:
                others = np.setdiff1d(np.arange(min(k + len(rows), len(self.targets))), rows)[: k - len(order)]
                values, rows = np.append(values[order], np.zeros(len(others))), np.append(rows[order], others)
                order = np.arange(k)
            self.values[i], self.rows[i] = values[order], rows[order]


def top_columns(
    largest: list[Largest],
    index: NDArray[Any],
    query_index: NDArray[Any],
    outputs: NDArray[Any] | None,
    scale: TargetScale,
    shown: Array,
    predictions: Array,
    meant: Mapping[str, Array],
) -> dict[str, Any]:
    """query, (output,) prediction, rank, row, weight, target, contribution: k lines per query and output, the largest first.

    Targets (n_train, K) are those shown; predictions (n, K), as contributions, are on the scale of the fit. ``meant`` has what
    scores stand for, (n, K) by name, which comes after them.
    """
    rows, weights = (np.stack([getattr(one, name) for one in largest], axis=1) for name in ("rows", "values"))
    k = rows.shape[2]
    targets = np.stack([one.targets[one.rows] for one in largest], axis=1)
    seen = np.stack([column[one.rows] for column, one in zip(shown.T, largest)], axis=1)
    return predicted_columns(query_index, outputs, scale.inverse(predictions), k, meant) | {
        "row": index[rows.ravel()],
        "weight": weights.ravel(),
        "target": seen.ravel(),
        **contribution_columns((weights * targets).ravel(), scale),
    }


def predicted_columns(
    query_index: NDArray[Any],
    outputs: NDArray[Any] | None,
    predictions: NDArray[Any],
    k: int,
    meant: Mapping[str, Array],
) -> dict[str, Any]:
    """query, (output,) prediction, what it stands for and rank: the first columns of a table of the k largest, for (n, K)."""
    columns = label_columns(query_index, outputs, "rank", np.arange(1, k + 1))
    rank = columns.pop("rank")
    each = {"prediction": predictions, **meant}
    return columns | {name: np.repeat(np.ravel(values), k) for name, values in each.items()} | {"rank": rank}


def contribution_columns(values: Array, scale: TargetScale) -> dict[str, Array]:
    """The column of contributions, which names the scale of the fit, and for logarithms that of factors."""
    columns = {scale.label("contribution"): values}
    return columns | {"factor": scale.factors(values)} if scale.is_log else columns


def label_columns(
    query_index: NDArray[Any], outputs: NDArray[Any] | None, name: str, values: NDArray[Any]
) -> dict[str, Any]:
    """query, (output,) and one column more: the first columns of a table with a line for each query, output and value."""
    n, n_outputs = len(query_index), 1 if outputs is None else len(outputs)
    columns = {"query": np.repeat(query_index, n_outputs * len(values))}
    if outputs is not None:
        columns["output"] = np.tile(np.repeat(outputs, len(values)), n)
    return columns | {name: np.tile(values, n * n_outputs)}


def concatenate(parts: list[dict[str, Any]], backend: str) -> Any:
    """One frame from the columns of several batches, which are used up."""
    return make(joined(parts), backend)


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The columns of several batches, one by one, so that all of them are never held twice."""
    return {name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])}


def bytes_of(lines: int, columns: int) -> int:
    """Bytes that a table takes while it is made, with 8 per line and column."""
    return int(COPIES * 8 * lines * columns)


def batch_size(budget: Budget, n: int, lines: int, columns: int, working: int) -> int:
    """How many of n queries to ask at a time for a table of so many lines each, once it and one query's work fit in memory."""
    table = bytes_of(n * lines, columns)
    budget.require(table + working, f"The table of {n * lines} lines", SMALLER)
    return budget.batch_size(working, table)
