"""why: the training rows whose errors make an interval wide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from axil.aliases import DataFrame
from axil.arrays import FloatArray
from axil.attribution import WEIGHTS, Effects, Shard, notes
from axil.methods.intervals.local import Surroundings, filled
from axil.methods.method import AnyModel
from axil.output import tables
from axil.reductions import Best, Moments, Reduction, TopRows, answer
from axil.replay.queries import QueryBatch


@dataclass(frozen=True)
class Widest(Reduction[Best]):
    """Choose the k rows of largest ``abs(weight * error)``.

    The column has the errors of the rows (rows, K), nan if one is not known.
    """

    k: int
    filling: FloatArray  #: (K,) an error of usual size
    n_threads: int = 1

    def of(self, shard: Shard, effects: Effects, column: Any) -> Best:
        """Return the rows of one shard, with their errors."""
        best = TopRows(self.k, n_threads=self.n_threads).of(
            shard, effects, np.abs(filled(column, self.filling))
        )
        rows = best.columns["position"] - shard.start
        outputs = np.arange(effects.shape[1])[:, None]
        if len(column):
            errors = column[rows, outputs]
        else:
            errors = np.zeros(rows.shape)
        return replace(best, columns=best.columns | {"error": errors})


def reasons(
    model: AnyModel, surroundings: Surroundings, queries: QueryBatch, k: int
) -> Iterator[tuple[QueryBatch, Best]]:
    """Yield the k rows of largest ``abs(weight * error)``, with their error and share of the sum.

    No array of shape (n, n_train) is held.
    """
    model = model.ready(WEIGHTS, len(queries))
    lines = min(k, model.shape[0]) * model.shape[1]
    size = tables.batch_size(
        model.budget, len(queries), lines, 7, model.bytes_per_query(WEIGHTS) + 12 * 8 * lines
    )
    reduction = Widest(k, surroundings.filling, model.n_threads)
    largest = answer(model, queries, WEIGHTS, reduction, size, surroundings.errors)
    nearby = answer(model, queries, WEIGHTS, Moments(), size, surroundings.values)
    for (batch, best), (_, moments) in zip(largest, nearby):
        local = surroundings.usual.local(
            moments.sums, model.weight_layout.output_groups, best.predictions
        )
        total = local.nearby[..., None]
        shares = np.divide(best.size, total, out=np.zeros_like(best.size), where=total > 0)
        yield batch, replace(best, columns=best.columns | {"share": shares})


def table(model: AnyModel, surroundings: Surroundings, queries: QueryBatch, k: int) -> DataFrame:
    """Return the table of `Predictive.why`."""
    batch_columns = []
    names = {
        "row": "row",
        "effect": "weight",
        "error": model.scale.label("error"),
        "share": "share",
    }
    for batch, best in reasons(model, surroundings, queries, k):
        ranks = np.arange(1, best.size.shape[2] + 1)
        columns = tables.label_columns(batch.labels, model.names.outputs, "rank", ranks)
        for best_name, name in names.items():
            columns[name] = best.columns[best_name].ravel()
        batch_columns.append(columns)
    return tables.note(tables.concatenate(batch_columns, model.backend), notes.NOTE)
