"""Removal: the effects of deleting training rows, what they put into the steps of trees, and sets of rows to remove.

Effects are exact wherever leaf space fits into memory, or where replays of the fit, one per training row, take `PATIENCE`.
Otherwise they are taken to first order, unless exact ones are asked for by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.errors import ApproximationWarning, warn
from axil.machine.memory import in_words
from axil.machine.progress import in_time, track
from axil.output import tables
from axil.questions import left_out
from axil.questions.noise import PATIENCE, announce
from axil.questions.targets import change_columns
from axil.replay.held import leaves_beyond
from axil.replay.proven import ProvenModel
from axil.replay.queries import Queries
from axil.types import Array
from axil.weights.answers import Effects
from axil.weights.boosting import BoostedTrees
from axil.weights.contract import Engine
from axil.weights.deletion import GROUP_SECONDS, REPLAYS
from axil.weights.forest import Forest
from axil.weights.removal import BLOCK_ENTRIES
from axil.weights.sums import Sum

Rows = NDArray[np.int64]
Ask = Callable[[Engine, Any, Array], Sequence[Effects]]

INSTEAD = "Use explainer.removal_top(X, k), removal_set(X, m) or removal_group(X, labels), or raise memory_limit."


@dataclass(frozen=True)
class Way:
    """A way to compute one number about every training row and query."""

    name: str
    ask: Ask
    note: str  #: on the numbers
    streams: bool = False  #: whether it asks for weights, which leaf space makes faster


def first_order(engine: Engine, coordinates: Any, targets: Array) -> Sequence[Effects]:
    """For each column of the targets the first-order effects of deleting training rows."""
    return engine.removal(coordinates, targets)


def pushes(engine: Engine, coordinates: Any, targets: Array) -> Sequence[Effects]:
    """For each column of the targets what training rows put into the steps of the trees."""
    return engine.pushes(coordinates, targets)


FIRST_ORDER = Way("removal", first_order, tables.FIRST_ORDER, streams=True)
PUSHES = Way("pushes", pushes, tables.NOTE)


def way_of(proven: ProvenModel, method: str | None, taken: int) -> Way:
    """The way to compute effects by this method, where so many bytes are taken; None: exact where that fits."""
    if method == "first-order":
        return FIRST_ORDER
    available = max(proven.budget.available - taken, 0)
    costs = [engine.costs(available) for engine in proven.engines]
    seconds = sum(min(cost.deletion, cost.replays) for cost in costs)
    fits = all(cost.deletion < np.inf for cost in costs)
    if not (method == "exact" or fits or seconds <= PATIENCE):
        if seconds < np.inf:
            warn(
                f"Exact deletions of {len(proven.targets)} training rows do not fit into {in_words(available)} in leaf space, "
                f"and replays take {in_time(seconds)}: the effects are first-order ones. Raise memory_limit, or wait for exact "
                'ones with method="exact".',
                ApproximationWarning,
            )
        return FIRST_ORDER
    announce(
        f"Exact deletions of {len(proven.targets)} training rows take", seconds, 'method="first-order" takes less.'
    )

    def exact(engine: Engine, coordinates: Any, targets: Array) -> Sequence[Effects]:
        return engine.deletion(coordinates, targets, available)

    return Way("removal", exact, left_out.pattern_note(proven))


def are_forests(proven: ProvenModel) -> bool:
    """Whether exact effects take no longer than first-order ones."""
    return all(isinstance(engine, Forest) for engine in proven.engines)


def without(proven: ProvenModel, queries: Queries, rows: NDArray[np.intp]) -> Any:
    """The table of `Questions.without`."""
    before = proven.predicted(queries)  # which checks them
    left = _left(proven, rows)
    after = left.predicted(queries)
    warn_emptied(int(np.isnan(after).sum()), after.size)
    columns = change_columns(proven, queries, before, after)
    return tables.note(tables.make(columns, proven.backend), _note([_beyond(left)], "these rows"))


def _beyond(left: ProvenModel) -> int:
    """How many leaves would have another pattern in a fit without the rows that are gone."""
    return sum(leaves_beyond(engine, own) for engine, own in left.by_output(left.targets))


def _note(beyond: Sequence[int], what: str) -> str:
    """The note on fits without sets of rows, after a warning where leaves would have another pattern in one of them."""
    if not any(beyond):
        return tables.NOTE
    times = f" ({sum(map(bool, beyond)):,} of {len(beyond):,} times)" if len(beyond) > 1 else ""
    left_out.warn_pattern(f"Without {what} up to {max(beyond):,} leaves would have another pattern{times}")
    return tables.HELD


def warn_emptied(n: int, of: int, what: str = "predictions") -> None:
    """Warn of nan in so many numbers, because no tree has a row left."""
    if n:
        warn(
            f"{n:,} of {of:,} {what} are nan: without the deleted rows no tree has a training row left in the leaf of the query, "
            "so nothing says what the prediction would be. Ask for fewer rows.",
            UserWarning,
        )


def _left(proven: ProvenModel, rows: NDArray[np.intp]) -> ProvenModel:
    """The model of the fit without these rows; there is none to compare it with."""
    return replace(proven, engines=[engine.without(rows) for engine in proven.engines], verification=None)


def dense(proven: ProvenModel, queries: Queries, way: Way) -> Array:
    """(n, N), or (K, n, N): one number about every training row, gathered."""
    n, (n_train, n_outputs) = len(queries), proven.targets.shape
    array = array_bytes(proven, queries)
    working = proven.streamed_bytes()
    room = 3 * 8 * min(n * n_train, BLOCK_ENTRIES)  # for a block of effects, with what they are made of
    proven.budget.require(array + working + room, f"An array of {n} predictions by {n_train} rows", INSTEAD)
    transposed = np.empty((n_outputs, n_train, n))  # as they come, for a block of training rows
    for start, batch, effects in _effects(proven, queries, proven.budget.batch_size(working, array + room), way):
        own = slice(start, start + len(batch))
        for k, first, block in _in_turn(effects):
            transposed[k, first : first + len(block), own] = block
    warn_emptied(int(np.isnan(transposed).sum()), transposed.size, "effects")
    found = transposed.swapaxes(1, 2)
    return found[0] if proven.outputs is None else found


def array_bytes(proven: ProvenModel, queries: Queries) -> int:
    """Bytes of one number for every query, training row and output."""
    return 8 * len(queries) * proven.targets.size


def _effects(
    proven: ProvenModel, queries: Queries, size: int, way: Way
) -> Iterator[tuple[int, Queries, list[Sequence[Effects]]]]:
    """So many queries at a time, with the position of the first; their effects, engine by engine, are read out in blocks."""
    proven = proven.for_many() if way.streams else proven
    for start, batch in proven.batches(queries, size, way.name):
        proven.predicted(batch)  # which checks them
        yield (
            start,
            batch,
            [way.ask(engine, batch.coordinates, own) for engine, own in proven.by_output(proven.targets)],
        )


def _in_turn(effects: list[Sequence[Effects]]) -> Iterator[tuple[int, int, Array]]:
    """Yield output, first row and effects (rows, n): the outputs of one engine in turn, as they share what blocks are made of."""
    before = 0
    for of_engine in effects:
        for blocks in zip(*(one.blocks() for one in of_engine)):
            for k, (first, block) in enumerate(blocks, before):
                yield k, first, block
        before += len(of_engine)


def _read(sets: Sequence[SignedSet | Ranked], effects: list[Sequence[Effects]]) -> None:
    """Take in all effects, each set those of its output."""
    found = [one.sparse() for of_engine in effects for one in of_engine]
    for own, sparse in zip(sets, found):
        if sparse is not None:
            own.add_sparse(sparse)
    if any(sparse is None for sparse in found):
        for k, first, block in _in_turn(effects):
            if found[k] is None:
                sets[k].add(block, first)


def removal_set(proven: ProvenModel, queries: Queries, m: int, greedy: bool, way: Way) -> Any:
    """The table of `Questions.removal_set`."""
    found, (n_train, n_outputs), unranked = [], proven.targets.shape, 0
    lines, outputs = min(m, n_train) * n_outputs, proven.outputs
    working = proven.streamed_bytes() + 6 * 8 * lines
    size = tables.batch_size(proven.budget, len(queries), lines, 6 if outputs is None else 7, working)
    beyond, bends = list[int](), proven.verification is None or proven.verification.held is not None
    if greedy:
        seconds = (
            2 * len(queries) * n_outputs * min(m, n_train) * _refit_seconds(proven)
        )  # and first-order effects of it
        instead = "Fewer predictions, smaller sets or greedy=False take less."
        announce(f"Greedy sets of {len(queries)} predictions take", seconds, instead, once=False)
    served = [(engine, own, k) for engine, own in proven.by_output(proven.targets) for k in range(own.shape[1])]
    for start, batch, effects_of in _effects(proven, queries, size, way):
        sets = [SignedSet(len(batch), m, n_train, proven.n_threads) for _ in range(n_outputs)]
        _read(sets, effects_of)
        unranked += sum(own.unranked for own in sets)
        for i in track(range(len(batch)), "greedy sets") if greedy else range(len(batch)):
            for output, ((engine, own, k), largest) in enumerate(zip(served, sets)):
                rows, effects = largest.chosen(i)
                if greedy:
                    rows, effects = remove_in_turn(engine, batch.coordinates[i : i + 1], own, k, (rows, effects))
                    beyond.append(leaves_beyond(engine.without(rows), own) if len(rows) and bends else 0)
                found.append((start + i, output if outputs is None else outputs[output], rows, effects))
    _warn_unranked(unranked)
    name = proven.scale.label("push" if way is PUSHES else "effect")
    columns = set_columns(found, name, proven.index, queries.labels, outputs is not None)
    return tables.note(tables.make(columns, proven.backend), _note(beyond, "a set") if greedy else way.note)


def _warn_unranked(n: int) -> None:
    """Warn of effects, nan, that no rank can be given."""
    if n:
        warn(
            f"{n:,} effects have no rank, and their rows are not listed: without the row no tree has a training row left in the "
            "leaf of the query, so nothing says what the prediction would be. explainer.removal(X) has nan for them.",
            UserWarning,
        )


class SignedSet:
    """The m largest effects of either sign on each of n predictions, gathered block by block."""

    unranked = 0  #: effects that are nan

    def __init__(self, n: int, m: int, n_train: int, n_threads: int):
        none = np.zeros(n_train)
        self.positive, self.negative = (tables.Largest(n, m, none, "weight", n_threads) for _ in range(2))

    def add_sparse(self, effects: csr_array) -> None:
        """Take in all of them, (n, N)."""
        self.unranked += int(np.isnan(effects.data).sum())
        for side, clip in ((self.positive, np.fmax), (self.negative, np.fmin)):
            side.add_sparse(csr_array((clip(effects.data, 0.0), effects.indices, effects.indptr), effects.shape))

    def add(self, block: Array, first: int) -> None:
        """Take in the effects (rows, n) of the training rows from ``first`` on."""
        self.unranked += int(np.isnan(block).sum())
        for side, clip in ((self.positive, np.fmax), (self.negative, np.fmin)):
            side.add(clip(block, 0.0), first)

    def chosen(self, i: int) -> tuple[Rows, Array]:
        """Rows and effects of the sign that adds up to more for prediction i; rows without effect are left out."""
        falls = -self.negative.values[i].sum() > self.positive.values[i].sum()
        side = self.negative if falls else self.positive
        kept = side.values[i] != 0
        return side.rows[i][kept], side.values[i][kept]


class Ranked:
    """The k largest |effects| on each of n predictions, gathered block by block."""

    unranked = 0  #: effects that are nan

    def __init__(self, n: int, k: int, n_train: int, n_threads: int):
        self._largest = tables.Largest(n, k, np.zeros(n_train), "weight", n_threads)

    def add_sparse(self, effects: csr_array) -> None:
        """Take in all of them, (n, N)."""
        self.unranked += int(np.isnan(effects.data).sum())
        self._largest.add_sparse(
            csr_array((np.nan_to_num(effects.data), effects.indices, effects.indptr), effects.shape)
        )

    def add(self, block: Array, first: int) -> None:
        """Take in the effects (rows, n) of the training rows from ``first`` on; nan is none."""
        self.unranked += int(np.isnan(block).sum())
        self._largest.add(np.where(np.isnan(block), 0.0, block), first)

    def chosen(self, i: int) -> tuple[Rows, Array]:
        """Rows and effects of prediction i, the largest first; rows without effect are left out."""
        kept = self._largest.values[i] != 0
        return self._largest.rows[i][kept], self._largest.values[i][kept]


def removal_top(proven: ProvenModel, queries: Queries, k: int, way: Way) -> Any:
    """The table of `RowQuestions.removal_top`."""
    found, (n_train, n_outputs), unranked = [], proven.targets.shape, 0
    lines, outputs = min(k, n_train) * n_outputs, proven.outputs
    working = proven.streamed_bytes() + 6 * 8 * lines
    size = tables.batch_size(proven.budget, len(queries), lines, 4 if outputs is None else 5, working)
    for start, batch, effects in _effects(proven, queries, size, way):
        ranked = [Ranked(len(batch), k, n_train, proven.n_threads) for _ in range(n_outputs)]
        _read(ranked, effects)
        unranked += sum(own.unranked for own in ranked)
        for i in range(len(batch)):
            for output, own in enumerate(ranked):
                found.append((start + i, output if outputs is None else outputs[output], *own.chosen(i)))
    _warn_unranked(unranked)
    columns = set_columns(found, proven.scale.label("effect"), proven.index, queries.labels, outputs is not None)
    return tables.note(tables.make(columns, proven.backend), way.note)


def removal_group(proven: ProvenModel, queries: Queries, codes: NDArray[np.intp], groups: NDArray[Any]) -> Any:
    """The table of `RowQuestions.removal_group`."""
    n_lines = len(queries) * proven.targets.shape[1] * len(groups)
    proven.budget.require(tables.bytes_of(n_lines, 6), f"The table of {n_lines} lines", tables.SMALLER)
    seconds = len(groups) * _refit_seconds(proven)
    announce(f"Fits without each of {len(groups)} groups take", seconds, "Fewer groups take less.", once=False)
    before = proven.predicted(queries)  # which checks them
    after, emptied, beyond = np.full((*before.shape, len(groups)), np.nan), 0, list[int]()
    for g in track(range(len(groups)), "groups"):
        rows = np.flatnonzero(codes == g)
        if len(rows) < len(codes):
            left = _left(proven, rows)
            after[:, :, g] = left.predicted(queries)
            emptied += int(np.isnan(after[:, :, g]).sum())
            beyond.append(_beyond(left))
    warn_emptied(emptied, after.size)
    shown_before, shown_after = (
        proven.scale.inverse(np.repeat(before.ravel(), len(groups))),
        proven.scale.inverse(after),
    )
    columns = tables.label_columns(queries.labels, proven.outputs, "group", groups)
    columns |= {"rows": np.tile(np.bincount(codes, minlength=len(groups)), before.size), "before": shown_before}
    columns |= {"after": shown_after.ravel(), "change": shown_after.ravel() - shown_before}
    return tables.note(tables.make(columns, proven.backend), _note(beyond, "a group"))


def _refit_seconds(proven: ProvenModel) -> float:
    """The time that a fit without some rows takes, roughly."""
    columns = sum(engine.costs(proven.budget.available).column for engine in proven.engines)
    return GROUP_SECONDS * sum(map(_n_trees, proven.engines)) + REPLAYS * columns


def _n_trees(engine: Engine) -> int:
    if isinstance(engine, Sum):
        return sum(_n_trees(term.engine) for term in engine.terms)
    return engine.structure.n_trees if isinstance(engine, (Forest, BoostedTrees)) else 0


def remove_in_turn(engine: Engine, query: Any, targets: Array, k: int, first: tuple[Rows, Array]) -> tuple[Rows, Array]:
    """A set of rows as large as ``first``, in its direction: each of largest effect once those before are gone; exact effects.

    After each removal the fit to output k of the targets is computed again, structure held fixed: some four passes over trees.
    """
    sign = float(np.sign(first[1][:1].sum()))
    rows, effects, left = list[int](), list[float](), engine
    before = float(left.predicted(query, targets)[0, k])
    for _ in first[0]:
        gains = sign * np.nan_to_num(_gains(left, query, targets)[k].dense()[0])  # nan: without the row nothing is left
        best = int(gains.argmax())  # a row that is gone has weight 0, so effect 0
        if gains[best] <= 0:
            break
        left = engine.without(np.array([*rows, best]))
        after = float(left.predicted(query, targets)[0, k])
        if np.isnan(after):
            break
        rows.append(best)
        effects.append(after - before)
        before = after
    return np.array(rows, dtype=np.int64), np.array(effects, dtype=np.float64)


def _gains(left: Engine, query: Any, targets: Array) -> Sequence[Effects]:
    """The effects that the next row of a set is chosen by: exact where that takes no longer, else first-order ones."""
    return left.deletion(query, targets, 0) if isinstance(left, Forest) else left.removal(query, targets)


def set_columns(
    found: list[tuple[Any, Any, Rows, Array]], name: str, index: NDArray[Any], query_index: NDArray[Any], several: bool
) -> dict[str, Any]:
    """query, (output,) rank, row and ``name`` from (position of the query, output, rows, effects) of each prediction."""
    sizes = [len(rows) for _, _, rows, _ in found]
    rows = np.concatenate([rows for _, _, rows, _ in found] or [np.empty(0, dtype=np.int64)])
    columns: dict[str, Any] = {"query": query_index[np.repeat([i for i, *_ in found], sizes).astype(np.intp)]}
    if several:
        columns["output"] = np.repeat([output for _, output, _, _ in found], sizes)
    return columns | {
        "rank": np.concatenate([np.arange(1, n + 1) for n in sizes] or [rows]),
        "row": index[rows],
        name: np.concatenate([effects for *_, effects in found] or [np.empty(0)]),
    }
