"""Make tidy tables in the user's own frame library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from axil.arrays import AnyArray, FloatArray
from axil.attribution import notes
from axil.errors import InputError, shown
from axil.inputs import as_choice
from axil.inputs.libraries import frame_library, is_installed, require_frame_library
from axil.machine.memory import Budget
from axil.reductions import Best
from axil.reductions.groups import Grouped
from axil.scale import TargetScale

COPIES = (
    3.5  # of the columns: in batches, joined, and in the frame; freed memory is not always returned
)
SMALLER = "Ask for fewer rows of X at a time, for fewer lines of each, or raise memory_limit."
LIBRARIES = ("pandas", "polars", "pyarrow", "modin", "cudf")
NOTES = {"exact": notes.NOTE, "additive": notes.ADDITIVE, "derivative": notes.DERIVATIVE}  # by kind


def as_backend(name: Any) -> str:
    """Return the frame library that a file names, or an installed one if that is not installed."""
    if name not in LIBRARIES:
        raise ValueError(f"no frame library: {name!r}")
    if is_installed(name):
        return str(name)
    return frame_library()


def make(columns: dict[str, Any], backend: str) -> Any:
    """Return a frame of this library with these columns."""
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


def note(frame: Any, text: str, **more: Any) -> Any:
    """Return the frame; a pandas frame has the note in ``attrs["axil"]``, and further attributes by name."""
    if isinstance(getattr(frame, "attrs", None), dict):
        frame.attrs.update(axil=text, **more)
    return frame


def check_by(by: str | None) -> None:
    """Raise for an order that tables are not sorted by; None stands for the default."""
    if by is not None:
        as_choice(by, ("weight", "contribution"), "by")


def top_columns(
    query_index: AnyArray,
    outputs: AnyArray | None,
    scale: TargetScale,
    best: Best,
    meant: Mapping[str, FloatArray],
    weighted: bool,
) -> dict[str, Any]:
    """Return query, (output,) prediction, rank, row, weight, target and contribution, with a line for each listed row.

    Parameters
    ----------
    query_index : ndarray of shape (n,)
        The labels of the explained rows.
    outputs : ndarray of shape (K,) or None
        The names of the outputs.
    scale : TargetScale
        The scale of the fit, which the predictions and contributions of ``best`` are on.
    best : Best
        The k listed rows of each prediction.
    meant : mapping
        What scores stand for, (n, K) by name, such as probabilities.
    weighted : bool
        Whether there is a column of weights; contributions of additive models have none.
    """
    predictions = scale.inverse(best.predictions)
    columns = predicted_columns(query_index, outputs, predictions, best.size.shape[2], meant)
    columns["row"] = best.columns["row"].ravel()
    if weighted:
        columns["weight"] = best.columns["effect"].ravel()
    columns["target"] = best.columns["target"].ravel()
    return columns | contribution_columns(best.columns["contribution"].ravel(), scale)


def group_columns(
    query_index: AnyArray,
    outputs: AnyArray | None,
    scale: TargetScale,
    sums: Grouped,
    weighted: bool,
) -> dict[str, Any]:
    """Return query, (output,) group, weight and contribution; contributions of additive models have no weight."""
    columns = label_columns(query_index, outputs, "group", sums.groups)
    if weighted:
        columns["weight"] = sums.effects.ravel()
    return columns | contribution_columns(sums.contributions.ravel(), scale)


def predicted_columns(
    query_index: AnyArray,
    outputs: AnyArray | None,
    predictions: AnyArray,
    k: int,
    meant: Mapping[str, FloatArray],
) -> dict[str, Any]:
    """Return query, (output,) prediction, what it stands for, and rank: the first columns of a table of the k largest."""
    columns = label_columns(query_index, outputs, "rank", np.arange(1, k + 1))
    rank = columns.pop("rank")
    columns["prediction"] = np.repeat(np.ravel(predictions), k)
    for name, values in meant.items():
        columns[name] = np.repeat(np.ravel(values), k)
    columns["rank"] = rank
    return columns


def contribution_columns(values: FloatArray, scale: TargetScale) -> dict[str, FloatArray]:
    """Return the column of contributions, which names the scale of the fit, and for logarithms also factors."""
    columns = {scale.label("contribution"): values}
    if scale.is_log:
        columns["factor"] = scale.factors(values)
    return columns


def label_columns(
    query_index: AnyArray, outputs: AnyArray | None, name: str, values: AnyArray
) -> dict[str, Any]:
    """Return query, (output,) and one more column, with a line for each query, output and value."""
    n = len(query_index)
    if outputs is None:
        n_outputs = 1
    else:
        n_outputs = len(outputs)
    columns = {"query": np.repeat(query_index, n_outputs * len(values))}
    if outputs is not None:
        columns["output"] = np.tile(np.repeat(outputs, len(values)), n)
    return columns | {name: np.tile(values, n * n_outputs)}


def concatenate(parts: list[dict[str, Any]], backend: str) -> Any:
    """Return one frame of the columns of several batches, which are emptied."""
    return make(joined(parts), backend)


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Join the columns of several batches one by one, so that memory never holds all of them twice."""
    return {name: np.concatenate([part.pop(name) for part in parts]) for name in list(parts[0])}


def bytes_of(lines: int, columns: int) -> int:
    """Return the bytes that a table takes while it is made, with 8 per line and column."""
    return int(COPIES * 8 * lines * columns)


def batch_size(budget: Budget, n: int, lines: int, columns: int, working: int) -> int:
    """Return the number of queries per batch, for a table of n queries with ``lines`` lines each.

    Raises if the table and the ``working`` bytes of one query do not fit into memory.
    """
    table = bytes_of(n * lines, columns)
    budget.require(table + working, f"The table of {n * lines} lines", SMALLER)
    return budget.batch_size(working, table)
