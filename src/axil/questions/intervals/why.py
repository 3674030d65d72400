"""why: the training rows whose errors make an interval wide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.effects import WEIGHTS, Best, Effects, Moments, Reduction, Shard, TopRows, answer, notes
from axil.output import tables
from axil.questions.intervals.local import Surroundings, filled
from axil.replay.queries import Queries
from axil.types import Array


@dataclass(frozen=True)
class Widest(Reduction[Best]):
    """The k rows of largest |weight * error|; the column has the errors (rows, K), nan where one is not known."""

    k: int
    filling: Array  #: (K,) an error of usual size
    n_threads: int = 1

    def of(self, shard: Shard, effects: Effects, column: Any) -> Best:
        best = TopRows(self.k, n_threads=self.n_threads).of(shard, effects, np.abs(filled(column, self.filling)))
        rows, outputs = best.columns["position"] - shard.start, np.arange(effects.shape[1])[:, None]
        own = column[rows, outputs] if len(column) else np.zeros(rows.shape)
        return replace(best, columns=best.columns | {"error": own})


@dataclass(frozen=True, eq=False)
class Reasons:
    """The k rows of largest |weight * error| of n queries with K outputs, the largest first."""

    labels: NDArray[Any]  #: (n,) of the queries
    positions: NDArray[np.intp]  #: (n, K, k) of the training rows
    rows: NDArray[Any]  #: (n, K, k) their labels
    weights: Array  #: (n, K, k)
    errors: Array  #: (n, K, k) on the scale of the fit
    shares: Array  #: (n, K, k) of the sum over all rows


def reasons(model: Any, known: Surroundings, queries: Queries, k: int) -> Iterator[Reasons]:
    """Batch by batch: never holds an (n, n_train) array."""
    model = model.ready(WEIGHTS, len(queries))
    lines = min(k, model.shape[0]) * model.shape[1]
    size = tables.batch_size(model.budget, len(queries), lines, 7, model.bytes_per_query(WEIGHTS) + 12 * 8 * lines)
    want = Widest(k, known.filling, model.n_threads)
    largest = answer(model, queries, WEIGHTS, want, size, known.errors)
    nearby = answer(model, queries, WEIGHTS, Moments(), size, known.values)
    for (batch, best), (_, found) in zip(largest, nearby):
        total = known.usual.local(found.sums, model.served(), best.predictions).nearby[..., None]
        shares = np.divide(best.size, total, out=np.zeros_like(best.size), where=total > 0)
        columns = best.columns
        yield Reasons(batch.labels, columns["position"], columns["row"], columns["effect"], columns["error"], shares)


def joined(parts: list[Reasons]) -> Reasons:
    """All batches together."""
    columns = ([getattr(part, field.name) for part in parts] for field in fields(Reasons))
    return Reasons(*map(np.concatenate, columns))


def table(model: Any, known: Surroundings, queries: Queries, k: int) -> Any:
    """The table of `Predictive.why`."""
    parts = []
    for part in reasons(model, known, queries, k):
        ranks = np.arange(1, part.rows.shape[2] + 1)
        columns = tables.label_columns(part.labels, model.outputs, "rank", ranks) | {
            "row": part.rows.ravel(),
            "weight": part.weights.ravel(),
            model.scale.label("error"): part.errors.ravel(),
            "share": part.shares.ravel(),
        }
        parts.append(columns)
    return tables.note(tables.concatenate(parts, model.backend), notes.NOTE)
