"""Why: the training rows whose errors make an interval wide."""

from __future__ import annotations

from typing import Any

import numpy as np

from axil.intervals.errors import TrainingErrors
from axil.intervals.local import Surroundings
from axil.output import tables
from axil.questions.explain import answered
from axil.replay.proven import ProvenModel
from axil.replay.queries import Queries


def table(proven: ProvenModel, known: Surroundings, errors: TrainingErrors, queries: Queries, k: int) -> Any:
    """The table of `Predictive.why`."""
    n, outputs = len(queries), proven.outputs
    lines = min(k, len(proven.targets)) * proven.targets.shape[1]
    proven = proven.prepared_for(n, tables.bytes_of(n * lines, 7))
    working = proven.streamed_bytes() + 12 * 8 * lines
    size, parts, squares = tables.batch_size(proven.budget, n, lines, 7, working), [], np.square(known.errors)
    for _, batch in proven.batches(queries, size, "why", even_empty=True):
        largest = [tables.Largest(len(batch), k, column, "contribution", proven.n_threads) for column in squares.T]
        answers, made = answered(proven, batch)
        for own, answer in zip(proven.served(), answers):
            for one in largest[own]:
                answer.hand_to(one)
        total = known.local(answers, proven.served(), made).nearby
        rows, weights = (np.stack([getattr(one, name) for one in largest], axis=1) for name in ("rows", "values"))
        made = np.abs(weights) * np.stack([column[one.rows] for column, one in zip(squares.T, largest)], axis=1)
        share = np.divide(made, total[..., None], out=np.zeros_like(made), where=total[..., None] > 0)
        error = np.stack([column[one.rows] for column, one in zip(errors.values.T, largest)], axis=1)
        columns = tables.label_columns(batch.labels, outputs, "rank", np.arange(1, rows.shape[2] + 1)) | {
            "row": proven.index[rows.ravel()],
            "weight": weights.ravel(),
            proven.scale.label("error"): error.ravel(),
            "share": share.ravel(),
        }
        parts.append(columns)
    return tables.note(tables.concatenate(parts, proven.backend), tables.NOTE)
