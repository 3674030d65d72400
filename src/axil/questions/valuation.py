"""Valuation: exact Shapley values of training targets for an error on validation rows.

A coalition of rows knows its targets; all others have a baseline. With d = target - baseline, e the validation residuals where no
target is known and r those where all are, predictions are linear in the targets, the mean squared error is quadratic in which of
them are known, and the Shapley value of such a game is closed:

    e - sum over the rows j of a coalition of d_j K_j       its residuals
    value_j = d_j [K' (e + r)]_j / n,     sum_j value_j = (|e|^2 - |r|^2) / n

The same holds with groups of rows for players: a group's value is the sum of its rows'.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.errors import InputError, shown
from axil.output import tables
from axil.questions import left_out
from axil.questions.targets import on_scale, warn_beyond
from axil.replay.proven import ProvenModel
from axil.replay.queries import Queries
from axil.types import Array

Groups = tuple[NDArray[np.intp], NDArray[Any]]


def baselines(proven: ProvenModel, baseline: Any) -> Array:
    """(N, K): the targets that unknown rows have; nan: none, and the row's own target stays."""
    n, n_outputs = proven.targets.shape
    if not isinstance(baseline, str):
        return on_scale(proven, inputs.as_table(baseline, n, n_outputs, "baseline"), "baseline")
    if baseline == "mean":
        return np.tile(proven.targets.mean(axis=0), (n, 1))
    if baseline == "others":
        return left_out.predictions(proven)
    raise InputError(
        f'baseline is {shown(baseline)}; expected "mean", "others", or an array with a number for every training row.'
    )


def shapley(proven: ProvenModel, queries: Queries, y: Array, baseline: Array, groups: Groups | None) -> Any:
    """The table of `Questions.shapley` for validation targets (n, K)."""
    known = ~np.isnan(baseline)
    moved = np.where(known, proven.targets - baseline, 0.0)
    after = y - proven.predicted(queries)
    coordinates, base = queries.coordinates, queries.offsets.base
    before = after + proven.across(moved, lambda engine, own: engine.apply(coordinates, own, base))
    seen = proven.across(before + after, lambda engine, own: engine.combine(coordinates, own, base))
    warn_beyond(proven, proven.targets - moved)
    values, name = np.where(known, moved * seen / len(y), np.nan), proven.scale.label("value")
    if groups is not None:
        columns = _group_columns(proven, values, *groups)
    else:
        columns = {"row": np.repeat(proven.index, values.shape[1])}
        if proven.outputs is not None:
            columns["output"] = np.tile(proven.outputs, len(values))
        columns |= {"target": proven.shown.ravel(), "baseline": proven.scale.inverse(baseline).ravel()}
        columns[name] = values.ravel()
    order = np.argsort(-columns[name], kind="stable")  # nan last
    columns = {name: column[order] for name, column in columns.items()}
    note = left_out.note_on(~known.ravel()) if groups is None else tables.NOTE
    return tables.note(tables.make(columns, proven.backend), note)


def _group_columns(proven: ProvenModel, values: Array, codes: NDArray[np.intp], names: NDArray[Any]) -> dict[str, Any]:
    """group, (output,) rows and value."""
    n_outputs = values.shape[1]
    sums = [np.bincount(codes, np.nan_to_num(column), len(names)) for column in values.T]
    columns: dict[str, Any] = {"group": np.repeat(names, n_outputs)}
    if proven.outputs is not None:
        columns["output"] = np.tile(proven.outputs, len(names))
    counts = np.bincount(codes, minlength=len(names))
    value = np.stack(sums, axis=1).ravel()
    return columns | {"rows": np.repeat(counts, n_outputs), proven.scale.label("value"): value}
