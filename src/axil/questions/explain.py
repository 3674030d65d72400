"""Weights of a proven model's predictions: whole, batch by batch, or the largest weights alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from axil.inputs.owned import owned_rows
from axil.output import tables
from axil.output.context import Context
from axil.output.sums import WeightedSums
from axil.replay.proven import ProvenModel
from axil.replay.queries import Queries
from axil.types import Array
from axil.weights.answers import Answer

STREAM = "Use explainer.top(X) for the largest weights or explainer.iter(X) for batches, or raise memory_limit."


def weighted_sums(proven: ProvenModel, queries: Queries, sparse: bool = False) -> WeightedSums:
    """The weights of the queries, whose sums over the targets must be the model's own predictions."""
    answers = proven.ask(queries)
    if len(answers) > 1:
        weights: Any = np.stack([answer.dense() for answer in answers])
    else:
        known = answers[0].sparse() if sparse else None
        weights = known if known is not None else answers[0].dense()
        weights = csr_array(weights) if sparse else weights
    intercepts = _intercepts(proven, answers) + queries.offsets.values
    single = proven.outputs is None
    made = WeightedSums(
        weights=weights,
        intercepts=intercepts[:, 0] if single else intercepts,
        targets=proven.targets[:, 0] if single else proven.targets,
        index=proven.index,
        query_index=queries.labels,
        outputs=proven.outputs,
        backend=proven.backend,
        n_threads=proven.n_threads,
        scale=proven.scale,
        seen=proven.seen,
        classes=proven.adapter.classes,
    )
    own = proven.check(queries, made.predictions.reshape(intercepts.shape))
    held = "" if proven.verification is None or proven.verification.held is None else str(proven.verification.held)
    context = Context(owned_rows(queries.rows), proven.features, proven.adapter.feature_names, own, held)
    return replace(made, context=context)


def batches(
    proven: ProvenModel, queries: Queries, size: int, sparse: bool = False, even_empty: bool = False
) -> Iterator[WeightedSums]:
    """The weights of so many queries at a time; one batch of no queries where asked for."""
    proven = proven.for_many()
    for _, batch in proven.batches(queries, size, "explain", even_empty):
        yield weighted_sums(proven, batch, sparse)


def top(proven: ProvenModel, queries: Queries, k: int, by: str) -> Any:
    """The table of `Explanation.top`, without the other weights."""
    n, parts, proven = len(queries), [], proven.for_many()
    lines = min(k, len(proven.targets)) * proven.targets.shape[1]
    working = proven.streamed_bytes() + 12 * 8 * lines
    size = tables.batch_size(proven.budget, n, lines, 8 if proven.outputs is None else 9, working)
    room = proven.budget.available - tables.bytes_of(n * lines, 9)
    for _, batch in proven.batches(queries, size, "top", even_empty=True):
        largest = [tables.Largest(len(batch), k, y, by, proven.n_threads, n, room) for y in proven.targets.T]
        made = _hand_over(proven, batch, largest)
        labels = proven.index, batch.labels, proven.outputs
        parts.append(tables.top_columns(largest, *labels, proven.scale, proven.shown, made, {}))
    return tables.concatenate(parts, proven.backend)


def _hand_over(proven: ProvenModel, queries: Queries, largest: list[tables.Largest]) -> Array:
    """Hand the weights to ``largest``, one for each output, and return the predictions (n, K)."""
    answers, made = answered(proven, queries)
    for own, answer in zip(proven.served(), answers):
        for one in largest[own]:
            answer.hand_to(one)
    return made


def answered(proven: ProvenModel, queries: Queries) -> tuple[list[Answer], Array]:
    """The weights of the queries from each engine, and the predictions (n, K) that they make, which must be the model's own."""
    answers = proven.ask(queries)
    made = _intercepts(proven, answers) + queries.offsets.values
    for own, targets, answer in zip(proven.served(), proven.own_targets(), answers):
        made[:, own] += answer.product(targets)
    proven.check(queries, made)
    return answers, made


def _intercepts(proven: ProvenModel, answers: list[Answer]) -> Array:
    """(n, K)."""
    parts = np.concatenate([answer.intercepts for answer in answers], axis=1)
    return np.array(np.broadcast_to(parts, (len(parts), proven.targets.shape[1])))
