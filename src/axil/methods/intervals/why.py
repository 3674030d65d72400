"""why: the training rows whose errors make an interval wide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from axil.arrays import FloatArray
from axil.attribution import WEIGHTS, Effects, Shard, notes
from axil.methods.intervals.local import Surroundings, filled
from axil.output import tables
from axil.reductions import Best, Moments, Reduction, TopRows, answer
from axil.replay.queries import QueryBatch


@dataclass(frozen=True)
class Widest(Reduction[Best]):
    """The k rows of largest |weight * error|; the column has the errors (rows, K), nan where one is not known."""

    k: int
    filling: FloatArray  #: (K,) an error of usual size
    n_threads: int = 1

    def of(self, shard: Shard, effects: Effects, column: Any) -> Best:
        best = TopRows(self.k, n_threads=self.n_threads).of(
            shard, effects, np.abs(filled(column, self.filling))
        )
        rows = best.columns["position"] - shard.start
        outputs = np.arange(effects.shape[1])[:, None]
        if len(column):
            own = column[rows, outputs]
        else:
            own = np.zeros(rows.shape)
        return replace(best, columns=best.columns | {"error": own})


def reasons(
    model: Any, known: Surroundings, queries: QueryBatch, k: int
) -> Iterator[tuple[QueryBatch, Best]]:
    """The k rows of largest |weight * error|, with their error and share of the sum; never holds an (n, n_train) array."""
    model = model.ready(WEIGHTS, len(queries))
    lines = min(k, model.shape[0]) * model.shape[1]
    size = tables.batch_size(
        model.budget, len(queries), lines, 7, model.bytes_per_query(WEIGHTS) + 12 * 8 * lines
    )
    want = Widest(k, known.filling, model.n_threads)
    largest = answer(model, queries, WEIGHTS, want, size, known.errors)
    nearby = answer(model, queries, WEIGHTS, Moments(), size, known.values)
    for (batch, best), (_, found) in zip(largest, nearby):
        total = known.usual.local(found.sums, model.output_groups(), best.predictions).nearby[
            ..., None
        ]
        shares = np.divide(best.size, total, out=np.zeros_like(best.size), where=total > 0)
        yield batch, replace(best, columns=best.columns | {"share": shares})


def table(model: Any, known: Surroundings, queries: QueryBatch, k: int) -> Any:
    """The table of `Predictive.why`."""
    parts = []
    names = {
        "row": "row",
        "effect": "weight",
        "error": model.scale.label("error"),
        "share": "share",
    }
    for batch, best in reasons(model, known, queries, k):
        ranks = np.arange(1, best.size.shape[2] + 1)
        columns = tables.label_columns(batch.labels, model.outputs, "rank", ranks)
        parts.append(columns | {name: best.columns[own].ravel() for own, name in names.items()})
    return tables.note(tables.concatenate(parts, model.backend), notes.NOTE)
