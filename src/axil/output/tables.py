"""Tidy tables in the user's own frame library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray
from axil.attribution import notes
from axil.errors import InputError, shown
from axil.inputs import as_choice
from axil.inputs.libraries import frame_library, is_installed, require_frame_library
from axil.machine.memory import Budget
from axil.reductions import Best
from axil.reductions.groups import Grouped
from axil.scale import TargetScale


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

NOTES = {
    "exact": notes.NOTE,
    "additive": notes.ADDITIVE,
    "derivative": notes.DERIVATIVE,
}  # by what the weights are


def note(frame: Any, text: str, **more: Any) -> Any:
    """The frame itself; pandas frames say what their numbers are in ``attrs["axil"]``, and more under other names."""
    if isinstance(getattr(frame, "attrs", None), dict):
        frame.attrs.update(axil=text, **more)
    return frame


def check_by(by: str | None) -> None:
    """Refuse an order that tables are not sorted by; None leaves it open."""
    if by is not None:
        as_choice(by, ("weight", "contribution"), "by")


def top_columns(
    query_index: NDArray[Any],
    outputs: NDArray[Any] | None,
    scale: TargetScale,
    best: Best,
    meant: Mapping[str, FloatArray],
    weighted: bool,
) -> dict[str, Any]:
    """query, (output,) prediction, rank, row, weight, target, contribution: a line for each of the largest.

    Predictions (n, K) of ``best``, as contributions, are on the scale of the fit. ``meant`` has what scores stand for, (n, K) by
    name, which comes after them. Pushes, which are no weights, have no column of these.
    """
    found = predicted_columns(
        query_index, outputs, scale.inverse(best.predictions), best.size.shape[2], meant
    )
    found["row"] = best.columns["row"].ravel()
    if weighted:
        found["weight"] = best.columns["effect"].ravel()
    found["target"] = best.columns["target"].ravel()
    return found | contribution_columns(best.columns["contribution"].ravel(), scale)


def group_columns(
    query_index: NDArray[Any],
    outputs: NDArray[Any] | None,
    scale: TargetScale,
    found: Grouped,
    weighted: bool,
) -> dict[str, Any]:
    """query, (output,) group, weight and contribution; pushes have no weight."""
    made = label_columns(query_index, outputs, "group", found.groups)
    if weighted:
        made["weight"] = found.effects.ravel()
    return made | contribution_columns(found.contributions.ravel(), scale)


def predicted_columns(
    query_index: NDArray[Any],
    outputs: NDArray[Any] | None,
    predictions: NDArray[Any],
    k: int,
    meant: Mapping[str, FloatArray],
) -> dict[str, Any]:
    """query, (output,) prediction, what it stands for and rank: the first columns of a table of the k largest, for (n, K)."""
    columns = label_columns(query_index, outputs, "rank", np.arange(1, k + 1))
    rank = columns.pop("rank")
    each = {"prediction": predictions, **meant}
    return (
        columns
        | {name: np.repeat(np.ravel(values), k) for name, values in each.items()}
        | {"rank": rank}
    )


def contribution_columns(values: FloatArray, scale: TargetScale) -> dict[str, FloatArray]:
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
    """The number of queries to ask at a time for a table of n queries with ``lines`` lines each.

    Raises where the table and one query's work do not fit in memory.
    """
    table = bytes_of(n * lines, columns)
    budget.require(table + working, f"The table of {n * lines} lines", SMALLER)
    return budget.batch_size(working, table)
