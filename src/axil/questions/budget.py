"""Budget: the fewest training targets, each within its range, that move a prediction across a line.

Predictions are linear in the targets, so what row j can add towards the line is the largest of ``k_j (lowest_j - y_j)`` and
``k_j (highest_j - y_j)``, or minus the smallest, whatever the others do. The m rows that can add most are therefore the best m,
and the fewest are counted by sorting. A group of rows adds what its rows add.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from axil import inputs
from axil.errors import InputError, shown
from axil.output import tables
from axil.output.sums import WeightedSums
from axil.questions.explain import batches
from axil.questions.targets import on_scale
from axil.replay.proven import ProvenModel
from axil.replay.queries import Queries
from axil.types import Array

Groups = tuple[NDArray[np.intp], NDArray[Any]]

WORK = 5  # arrays of one number per training row, for each query, besides its weights


@dataclass(frozen=True)
class Ranges:
    """How far each training target may move, (N, K), on the scale of the fit."""

    down: Array  #: to the lowest target
    up: Array  #: to the highest

    @classmethod
    def of(cls, given: Any, proven: ProvenModel) -> Ranges:
        """A number or (N,) of them: either way; a pair: the lowest and the highest targets; all as ``y_train`` was given."""
        targets = proven.targets if proven.scale.onward is None else proven.shown
        n, n_outputs = targets.shape
        if isinstance(given, tuple):
            if len(given) != 2:
                raise InputError(f"ranges has {len(given)} parts; expected a pair: the lowest and the highest targets.")
            low, high = (_spread(part, n, n_outputs, "ranges") for part in given)
            outside = np.flatnonzero(((targets < low) | (targets > high)).any(axis=1))
            if len(outside):
                row = int(outside[0])
                raise InputError(
                    f"The target of training row {row} is {shown(targets[row].tolist())}, beyond its range from "
                    f"{shown(low[row].tolist())} to {shown(high[row].tolist())}; expected ranges that hold the targets."
                )
            return cls._between(low, high, proven)
        far = _spread(given, n, n_outputs, "ranges")
        if (far < 0).any():
            raise InputError(
                f"ranges has {shown(far.min())}; expected numbers from 0 up: how far each target may move."
            )
        return cls(-far, far) if proven.scale.onward is None else cls._between(targets - far, targets + far, proven)

    @classmethod
    def _between(cls, low: Array, high: Array, proven: ProvenModel) -> Ranges:
        return cls(*(on_scale(proven, edge, "ranges") - proven.targets for edge in (low, high)))


def _spread(given: Any, n: int, n_outputs: int, what: str) -> Array:
    """(N, K) from one number, (N,) or (N, K)."""
    if isinstance(given, (int, float, np.number)):
        return np.full((n, n_outputs), inputs.as_number(given, what))
    return np.broadcast_to(inputs.as_table(given, n, _width(given, n_outputs), what), (n, n_outputs))


def _width(given: Any, n_outputs: int) -> int:
    """How many columns are expected: one for all outputs, unless there are two dimensions."""
    return n_outputs if getattr(given, "ndim", 1) == 2 else 1


@dataclass(frozen=True)
class Found:
    """The answer about one prediction."""

    prediction: float
    furthest: float  #: the prediction with every target moved as far as it helps
    #: the rows or groups that cross the line, those that add most first; none if it cannot be crossed
    players: NDArray[np.intp]
    added: Array  #: what each of them adds
    crosses: bool


def search(prediction: float, line: float, can_add: Array) -> Found:
    """The fewest players that together add ``line - prediction``, where each can add so much towards it, (players,) from 0 up."""
    needed, sign = abs(line - prediction), 1.0 if line > prediction else -1.0
    furthest = prediction + sign * float(can_add.sum())
    none = np.zeros(0, dtype=np.intp)
    if needed == 0:
        return Found(prediction, furthest, none, np.zeros(0), True)
    order = np.argsort(-can_add, kind="stable")
    order = order[can_add[order] > 0]
    total = np.cumsum(can_add[order])
    count = int(np.searchsorted(total, needed)) + 1
    if count > len(order):
        return Found(prediction, furthest, none, np.zeros(0), False)
    return Found(prediction, furthest, order[:count], sign * can_add[order[:count]], True)


def budget(
    proven: ProvenModel, queries: Queries, line: Array, ranges: Ranges, groups: Groups | None, listed: bool
) -> Any:
    """The table of `Questions.budget`."""
    found, k = [], proven.targets.shape[1]
    size = proven.budget.batch_size(proven.dense_bytes() + WORK * 8 * len(proven.targets))
    for part in batches(proven, queries, size, proven.is_sparse):
        found += list(_search_all(part, line, ranges, groups))
    labels = np.repeat(queries.labels, k)
    outputs = None if proven.outputs is None else np.tile(proven.outputs, len(queries))
    sizes = np.array([len(one.players) if listed else 1 for one in found], dtype=np.intp)
    columns: dict[str, Any] = {"query": np.repeat(labels, sizes)}
    if outputs is not None:
        columns["output"] = np.repeat(outputs, sizes)
    columns |= _listed(proven, found, groups) if listed else _counted(proven, found)
    return tables.note(tables.make(columns, proven.backend), tables.NOTE)


def _search_all(part: WeightedSums, line: Array, ranges: Ranges, groups: Groups | None) -> Iterator[Found]:
    """One for each prediction, output by output."""
    predictions = part.predictions.reshape(len(part.query_index), -1)
    n, n_outputs = predictions.shape
    for i in range(n):
        for k in range(n_outputs):
            weights = (
                part.weights[k if part.weights.shape[0] > 1 else 0, i] if part.weights.ndim == 3 else part.weights[[i]]
            )
            row = np.asarray(weights.toarray() if issparse(weights) else weights).ravel()
            sign = 1.0 if line[k] > predictions[i, k] else -1.0
            can_add = np.maximum(sign * row * ranges.down[:, k], sign * row * ranges.up[:, k])
            if groups is not None:
                can_add = np.bincount(groups[0], can_add, len(groups[1]))
            yield search(float(predictions[i, k]), float(line[k]), can_add)


def _as_read(proven: ProvenModel, values: Array, outputs: NDArray[np.intp]) -> Array:
    """(m,): predictions of these outputs on the scale of the fit, as people read them."""
    every = np.repeat(values[:, None], proven.targets.shape[1], axis=1)
    return np.asarray(proven.scale.inverse(every)[np.arange(len(values)), outputs])


def _counted(proven: ProvenModel, found: list[Found]) -> dict[str, Any]:
    outputs = np.arange(len(found)) % proven.targets.shape[1]
    before = np.array([one.prediction for one in found], dtype=np.float64)
    furthest = np.array([one.furthest for one in found], dtype=np.float64)
    return {
        "prediction": _as_read(proven, before, outputs),
        "fewest": np.array([len(one.players) if one.crosses else np.nan for one in found], dtype=np.float64),
        "furthest": _as_read(proven, furthest, outputs),
    }


def _listed(proven: ProvenModel, found: list[Found], groups: Groups | None) -> dict[str, Any]:
    def joined(parts: list[Any], dtype: Any) -> NDArray[Any]:
        return np.concatenate(parts) if parts else np.zeros(0, dtype=dtype)

    players = joined([one.players for one in found], np.intp).astype(np.intp)
    names = proven.index if groups is None else groups[1]
    after = joined([one.prediction + np.cumsum(one.added) for one in found], np.float64)
    outputs = joined([np.full(len(one.players), i) for i, one in enumerate(found)], np.intp) % proven.targets.shape[1]
    return {
        "rank": joined([np.arange(1, len(one.players) + 1) for one in found], np.int64),
        "row" if groups is None else "group": names[players],
        proven.scale.label("change"): joined([one.added for one in found], np.float64),
        "prediction": _as_read(proven, after, outputs),
    }
