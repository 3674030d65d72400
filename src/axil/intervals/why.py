"""Why: the training rows whose errors make an interval wide."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.intervals.errors import TrainingErrors
from axil.intervals.local import Surroundings
from axil.output import tables
from axil.questions.explain import answered
from axil.replay.proven import ProvenModel
from axil.replay.queries import Queries
from axil.types import Array


@dataclass(frozen=True, eq=False)
class Reasons:
    """The k rows of largest |weight| * error^2 of n queries with K outputs, the largest first."""

    labels: NDArray[Any]  #: (n,) of the queries
    rows: NDArray[np.intp]  #: (n, K, k) positions of the training rows
    weights: Array  #: (n, K, k)
    errors: Array  #: (n, K, k) on the scale of the fit
    shares: Array  #: (n, K, k) of the sum over all rows


def reasons(
    proven: ProvenModel, known: Surroundings, errors: TrainingErrors, queries: Queries, k: int
) -> Iterator[Reasons]:
    """Batch by batch: never holds an (n, n_train) array."""
    n = len(queries)
    proven = proven.for_many()
    lines = min(k, len(proven.targets)) * proven.targets.shape[1]
    working = proven.streamed_bytes() + 12 * 8 * lines
    size, squares = tables.batch_size(proven.budget, n, lines, 7, working), np.square(known.errors)
    for _, batch in proven.batches(queries, size, "why", even_empty=True):
        largest = [tables.Largest(len(batch), k, column, "contribution", proven.n_threads) for column in squares.T]
        answers, made = answered(proven, batch)
        for own, answer in zip(proven.served(), answers):
            for one in largest[own]:
                answer.hand_to(one)
        total = known.local(answers, proven.served(), made).nearby
        rows, weights = (np.stack([getattr(one, name) for one in largest], axis=1) for name in ("rows", "values"))
        made = np.abs(weights) * np.stack([column[one.rows] for column, one in zip(squares.T, largest)], axis=1)
        shares = np.divide(made, total[..., None], out=np.zeros_like(made), where=total[..., None] > 0)
        found = np.stack([column[one.rows] for column, one in zip(errors.values.T, largest)], axis=1)
        yield Reasons(batch.labels, rows, weights, found, shares)


def joined(parts: list[Reasons]) -> Reasons:
    """All batches together."""
    columns = ([getattr(part, field.name) for part in parts] for field in fields(Reasons))
    return Reasons(*map(np.concatenate, columns))


def table(proven: ProvenModel, known: Surroundings, errors: TrainingErrors, queries: Queries, k: int) -> Any:
    """The table of `Predictive.why`."""
    parts = []
    for part in reasons(proven, known, errors, queries, k):
        ranks = np.arange(1, part.rows.shape[2] + 1)
        columns = tables.label_columns(part.labels, proven.outputs, "rank", ranks) | {
            "row": proven.index[part.rows.ravel()],
            "weight": part.weights.ravel(),
            proven.scale.label("error"): part.errors.ravel(),
            "share": part.shares.ravel(),
        }
        parts.append(columns)
    return tables.note(tables.concatenate(parts, proven.backend), tables.NOTE)
