"""Deletions of training rows from boosted models of any loss: exact by replays, to first order, or by pushes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.errors import ApproximationWarning, InputError, warn
from axil.jacobian.boosting import Boosting
from axil.machine.arrays import host
from axil.machine.memory import Budget
from axil.machine.progress import in_time, track
from axil.output import tables
from axil.questions.noise import PATIENCE, announce
from axil.questions.removal import SignedSet, set_columns
from axil.types import Array

METHODS = ("exact", "first-order")
INSTEAD = "Use explainer.removal_set(X, m) for the largest, or raise memory_limit."

TOGETHER = 1 << 15  # rows of all copies that replays walk together: their scores stay in the cache
WORKING = 30 * 8  # bytes of such a row and output, while it is walked
SECONDS = 6e-8  # of one row in one step of a tree, with its gradient; measured on one core


@dataclass(frozen=True)
class Kept:
    """Parts of an explainer that tables are made with."""

    model: Boosting
    index: NDArray[Any]
    outputs: NDArray[Any] | None
    budget: Budget
    backend: str
    n_threads: int


class Way(Protocol):
    """One number about every training row and score, in blocks of training rows."""

    name: str  #: its column
    note: str

    def blocks(self, model: Boosting, X: Any) -> Iterator[tuple[int, list[Array]]]:
        """The first row of each block, and for each output (rows, n)."""

    def bytes_per_query(self, model: Boosting) -> int:
        """Bytes that one query takes meanwhile."""


@dataclass(frozen=True)
class ByPushes:
    """What each row's own gradients put into a score."""

    name = "push"
    note = tables.ADDITIVE

    def blocks(self, model: Boosting, X: Any) -> Iterator[tuple[int, list[Array]]]:
        for first, blocks in model.pushes.blocks(model.located(X)[0]):
            yield first, [host(block) for block in blocks]

    def bytes_per_query(self, model: Boosting) -> int:
        return model.pushes.bytes_per_query()


@dataclass(frozen=True)
class FirstOrder:
    """``-w_j dF(x) / dw_j``."""

    name = "effect"
    note = tables.FIRST_ORDER

    def blocks(self, model: Boosting, X: Any) -> Iterator[tuple[int, list[Array]]]:
        yield 0, [each.T for each in model.deletions(X)]

    def bytes_per_query(self, model: Boosting) -> int:
        return model.bytes_per_query()


@dataclass(frozen=True)
class Exact:
    """The change of a score in a replay of the fit in which the row has no weight; many replays at a time."""

    name = "effect"
    note = tables.NOTE

    def blocks(self, model: Boosting, X: Any) -> Iterator[tuple[int, list[Array]]]:
        leaves, n_rows = model.located(X)[0], len(model.targets)
        before = model.deleted([np.zeros(0, dtype=np.intp)], "removal").scores(leaves)[0]
        counted = np.flatnonzero(model.row_weights)
        step = together(model)
        for first in track(range(0, n_rows, step), "removal"):
            rows = np.arange(first, min(first + step, n_rows))
            left = [row[:0] if len(counted) == 1 else row for row in rows[:, None]]
            change = model.deleted(left, "removal").scores(leaves) - before  # (rows, n, K)
            if len(counted) == 1:
                change[np.isin(rows, counted)] = np.nan
            yield first, list(change.transpose(2, 0, 1))

    def bytes_per_query(self, model: Boosting) -> int:
        n_outputs = int(model.targets.shape[1])
        return 8 * n_outputs * (3 * together(model) + 2)


def together(model: Boosting) -> int:
    """How many replays are made at a time."""
    return max(1, TOGETHER // int(model.targets.size))


def way_of(model: Boosting, method: str | None) -> Way:
    """The way to compute effects by this method; None: exact where that takes `PATIENCE`."""
    if method is not None:
        inputs.as_choice(method, METHODS, "method")
    n_rows = len(model.targets)
    seconds = SECONDS * n_rows * n_rows * model.n_steps
    if method == "first-order" or (method is None and seconds > PATIENCE and not model.underived):
        if method is None:
            warn(
                f"Exact deletions of {n_rows} training rows, a replay of the fit for each, take {in_time(seconds)}: the effects "
                'are first-order ones. Wait for exact ones with method="exact", or pass method="first-order".',
                ApproximationWarning,
            )
        return FirstOrder()
    announce(f"Exact deletions of {n_rows} training rows take", seconds, 'method="first-order" takes less.')
    return Exact()


def without(kept: Kept, X: Any, rows: NDArray[np.intp]) -> tuple[Array, Array]:
    """Scores (n, K) of the model, and by how much they change without these rows."""
    model = kept.model
    left = model.row_weights.copy()
    left[rows] = 0.0
    if not left.any():
        raise InputError(f"Without {len(rows)} rows none of any weight is left; ask for a smaller set.")
    leaves, before = model.located(X)
    found = model.deleted([rows[:0], rows], "without").scores(leaves)
    return before, found[1] - found[0]


def dense(kept: Kept, X: Any, way: Way) -> Array:
    """(K, n, N): one number about every training row and score of X."""
    model, n = kept.model, X.shape[0]
    n_rows, n_outputs = model.targets.shape
    array, each = 8 * n * n_rows * n_outputs, way.bytes_per_query(model)
    room = WORKING * max(TOGETHER, model.targets.size) if isinstance(way, Exact) else 0
    kept.budget.require(array + each + room, f"An array of {n} predictions by {n_rows} rows", INSTEAD)
    found = np.empty((n_outputs, n, n_rows))
    size = kept.budget.batch_size(each, array + room)
    for start in range(0, n, size):
        own = slice(start, start + size)
        for first, blocks in way.blocks(model, inputs.take_rows(X, own)):
            for k, block in enumerate(blocks):
                found[k, own, first : first + len(block)] = block.T
    return found


def removal_set(kept: Kept, X: Any, m: int, way: Way) -> Any:
    """The table of `JacobianExplainer.removal_set`."""
    model, outputs = kept.model, kept.outputs
    n, (n_train, n_outputs) = X.shape[0], model.targets.shape
    lines = min(m, n_train) * n_outputs
    size = tables.batch_size(kept.budget, n, lines, 7, way.bytes_per_query(model) + 12 * 8 * lines)
    found: list[tuple[Any, Any, NDArray[np.int64], Array]] = []
    for start in range(0, n, size):
        batch = inputs.take_rows(X, slice(start, start + size))
        sets = [SignedSet(batch.shape[0], m, n_train, kept.n_threads) for _ in range(n_outputs)]
        for first, blocks in way.blocks(model, batch):
            for one, block in zip(sets, blocks):
                one.add(block, first)
        for i in range(batch.shape[0]):
            for k, one in enumerate(sets):
                found.append((start + i, k if outputs is None else outputs[k], *one.chosen(i)))
    columns = set_columns(found, way.name, kept.index, inputs.row_labels(X), outputs is not None)
    return tables.note(tables.make(columns, kept.backend), tables.of_class(way.note, kept.model.scored))
