"""Weights of training rows in partitions: batches of queries, their adjoints, and the check of every answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.contract import Model
from axil.dask.answers import Asked, read
from axil.dask.build import Held, prepared
from axil.dask.cluster import literal, task
from axil.dask.similar import Comparable
from axil.output.sums import WeightedSums
from axil.questions.stream import Stream
from axil.replay.checks import Verification, check_answer
from axil.replay.queries import Offsets
from axil.types import Array
from axil.weights.contract import own_leaves
from axil.weights.passes import Adjoints

ASKED_BYTES = 1 << 22  # of adjoints sent to the workers at a time: Dask warns of larger arguments


@dataclass(frozen=True)
class Batch:
    """Some queries; lists have one for each entry of the fitted trees."""

    labels: NDArray[Any]  #: (n,)
    offsets: Offsets
    leaves: list[NDArray[Any]]  #: (n, T)
    adjoints: list[Adjoints]
    asked: Asked
    intercepts: Array  #: (n, K) what no target makes, offsets included
    check: Callable[[Array], Array | None]  #: of predictions (n, K), which must be the model's


class Weighted(Comparable):
    """Training rows in partitions whose targets make the predictions."""

    _adapter: Model
    _held: Held
    verification: Verification | None  #: what the replay found; None with ``verify=False``

    def _prepare(self) -> None:
        """Build leaf space, unless it is there."""
        held, entries = self._held, []
        for e, entry in enumerate(held.entries):
            trees = prepared(self._cluster, held.partitions, entry.trees, e, self._limits.n_threads)
            entries.append(replace(entry, trees=trees))
        self._held = replace(held, entries=entries)

    @property
    def _trees(self) -> tuple[NDArray[np.int64], list[Any]]:
        structures = [entry.trees.structure for entry in self._held.entries]
        owned: list[Any] = [slice(None) if s.columns is None else s.columns for s in structures]
        if structures[0].columns is None:
            return structures[0].n_leaves, owned
        n_leaves = np.zeros(1 + max(int(own.max()) for own in owned), dtype=np.int64)
        for own, s in zip(owned, structures):
            n_leaves[own] = s.n_leaves
        return n_leaves, owned

    def _parts(self, X: Any, offsets: Offsets, size: int, even_empty: bool = False) -> Iterator[WeightedSums]:
        n, labels = X.shape[0], inputs.row_labels(X)
        for start in range(0, max(n, 1) if even_empty else n, size):
            part = slice(start, start + size)
            yield self._sums(inputs.take_rows(X, part), offsets[part], labels[part])

    @property
    def _bytes_per_query(self) -> int:
        return 8 * self._n_rows * len(self._held.entries)

    def _stream(self, X: Any, init_score: Any) -> Stream:
        rows, offsets = self._queries(X, init_score)
        return Stream(
            rows=rows,
            batches=lambda size: self._parts(rows, offsets, size, even_empty=True),
            n_targets=(self._n_rows, self._adapter.n_outputs),
            index=lambda: self._gathered[1],
            outputs=self.outputs,
            backend="pandas",
            budget=self._limits.budget,
            bytes_per_query=self._bytes_per_query,
            feature_names=self._adapter.feature_names,
        )

    def _queries(self, X: Any, init_score: Any) -> tuple[Any, Offsets]:
        """X and the offsets of its rows, checked."""
        X = self._in_memory(X)
        return X, Offsets.of(init_score, X.shape[0], self._adapter)

    def _batches(self, X: Any, offsets: Offsets) -> Iterator[Batch]:
        """Batches of X with their adjoints; at least one batch."""
        self._prepare()
        labels = inputs.row_labels(X)
        total = sum(entry.trees.structure.total_leaves for entry in self._held.entries)
        size = max(1, ASKED_BYTES // (8 * total))
        for start in range(0, max(X.shape[0], 1), size):
            part = slice(start, start + size)
            rows, own = inputs.take_rows(X, part), offsets[part]
            leaves = self._adapter.coordinates(rows, self._limits.n_threads)
            met, adjoints, intercepts = [], [], []
            for entry in self._held.entries:
                met.append(np.ascontiguousarray(own_leaves(entry.trees.structure, leaves)))
                adjoints.append(entry.trees.adjoints(met[-1], offsets.base))
                intercepts.append(entry.trees.intercepts(adjoints[-1], met[-1]))
            constant = [entry.trees.base_weight(one) for entry, one in zip(self._held.entries, adjoints)]
            asked = Asked([one.phi for one in adjoints], constant, self._limits.n_threads)
            parts = np.concatenate(intercepts, axis=1) + own.values
            yield Batch(labels[part], own, met, adjoints, asked, parts, partial(self._check, rows, own, labels[part]))

    def _check(self, X: Any, offsets: Offsets, labels: NDArray[Any], predictions: Array) -> Array | None:
        """Compare with what the model predicts, with offsets, on every use."""
        own = partial(offsets.predictions, self._adapter, X)
        return check_answer(self.verification, predictions, labels, own)

    def _made(self, asked: Asked) -> Array:
        """(n, K): weights times targets, from sums over leaves alone."""
        entries = zip(self._held.entries, asked.phi, asked.constant)
        parts = [phi.T @ entry.target_sums + np.outer(constant, entry.moment) for entry, phi, constant in entries]
        return np.concatenate(parts, axis=1)

    def _sums(self, X: Any, offsets: Offsets, labels: NDArray[Any]) -> WeightedSums:
        """The weights of a batch, gathered partition by partition."""
        targets, index = self._gathered
        starts = self._held.starts
        weights = np.empty((len(self._held.entries), self._n_rows, len(labels)))
        intercepts, done = np.empty_like(offsets.values), 0
        for batch in self._batches(X, offsets):
            shared, columns = literal(batch.asked), slice(done, done + len(batch.labels))
            for e in range(len(weights)):
                tasks = [task(read, part, shared, e) for part in self._held.partitions]
                for p, block in enumerate(self._cluster.each(tasks)):
                    weights[e, starts[p] : starts[p + 1], columns] = block
            intercepts[columns] = batch.intercepts
            done += len(batch.labels)
        whole = weights.transpose(0, 2, 1)
        made = WeightedSums(
            weights=whole[0] if len(whole) == 1 else whole,
            intercepts=intercepts[:, 0] if self.outputs is None else intercepts,
            targets=targets[:, 0] if self.outputs is None else targets,
            index=index,
            query_index=labels,
            outputs=self.outputs,
            n_threads=self._limits.n_threads,
        )
        self._check(X, offsets, labels, made.predictions.reshape(intercepts.shape))
        return made

    def _require(self, n: int, instead: str) -> None:
        self._limits.budget.require(n * self._bytes_per_query, f"The weights of {n} x {self._n_rows} rows", instead)
