"""Pushes of training rows in partitions: batches of queries, and the check of every answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.dask.additive import HeldPushes
from axil.dask.cluster import literal, task
from axil.dask.comparables import Chosen, Compared, compared_pushes
from axil.dask.gradients import AskedPushes, read_pushes
from axil.dask.similar import Comparable
from axil.errors import InputError, UnsupportedQuestionError
from axil.jacobian.agreement import leaf_scores
from axil.jacobian.pushes import CHANGED, EXACT, NOT_ADDED_UP, check_sums, sizes_of
from axil.output import tables
from axil.output.account import Account
from axil.output.context import Context
from axil.output.sums import WeightedSums
from axil.questions.stream import Stream
from axil.types import Array

ASKED_QUERIES = 1024  # sent to the workers at a time


class Pushed(Comparable):
    """Training rows in partitions whose gradients make the scores."""

    _held: HeldPushes
    _verify: bool

    @property
    def base(self) -> Array:
        """(K,): the score that every row starts from; with the pushes it adds up to a row's score."""
        return self._held.walked.smooth.trees.base_value.copy()

    @property
    def _trees(self) -> tuple[NDArray[np.int64], list[Any]]:
        return self._held.walked.smooth.trees.n_leaves, [slice(None)]

    def _compare(
        self, X: Any, init_score: Any, chosen: list[Chosen], adjust: bool
    ) -> Iterator[tuple[NDArray[Any], Array, Compared]]:
        X, start = self._taken(X, init_score), 0
        labels, held = inputs.row_labels(X), self._held
        for batch, asked in self._batches(X):
            shared, n = literal(asked), batch.shape[0]
            pairs = zip(held.partitions, chosen)
            tasks = [task(compared_pushes, part, one.delayed(), shared, held.shared) for part, one in pairs]
            found: Compared = self._cluster.total(tasks)
            self._check(batch, asked, found.made)
            yield labels[start : start + n], self.base + found.made, found
            start += n

    def _taken(self, X: Any, init_score: Any) -> Any:
        if init_score is not None:
            raise InputError(
                "init_score is not taken here: over Dask pushes are of the model's own scores. Leave it out, or use "
                "axil.JacobianExplainer on training rows in memory, which takes it."
            )
        return self._in_memory(X)

    def _batches(self, X: Any) -> Iterator[tuple[Any, AskedPushes]]:
        """Batches of X and their leaves; at least one batch."""
        for start in range(0, max(X.shape[0], 1), ASKED_QUERIES):
            batch = inputs.take_rows(X, slice(start, start + ASKED_QUERIES))
            leaves = self._adapter.coordinates(batch, self._limits.n_threads)
            yield batch, AskedPushes(np.ascontiguousarray(leaves), self._limits.n_threads)

    def _check(self, X: Any, asked: AskedPushes, made: Array) -> Array:
        """(n, K): scores of the model, once base and pushes ``made`` of all rows add up to them."""
        scores: Array = self._adapter.scores(X)
        if not self._verify or not len(scores):
            return scores
        held, smooth = self._held, self._held.walked.smooth
        of_leaves, as_added = (leaf_scores(smooth, asked.leaves, rounded=rounded) for rounded in (False, True))
        sizes = sizes_of(smooth, self.base, held.leaf_sizes, asked.leaves)
        check_sums(as_added, scores, sizes, self._adapter.smooth_tolerance, held.largest, CHANGED)
        check_sums(self.base + made, of_leaves, sizes, EXACT, held.largest, NOT_ADDED_UP)
        return scores

    def _sums(self, X: Any, labels: NDArray[Any]) -> WeightedSums:
        """The pushes of a batch, gathered partition by partition."""
        targets, index = self._gathered
        starts, n = self._held.starts, X.shape[0]
        whole = np.empty((self._adapter.n_outputs, self._n_rows, n))
        scores, done = np.empty((n, self._adapter.n_outputs)), 0
        for batch, asked in self._batches(X):
            columns, shared = slice(done, done + batch.shape[0]), literal(asked)
            tasks = [task(read_pushes, part, self._held.shared, shared) for part in self._held.partitions]
            for p, block in enumerate(self._cluster.each(tasks)):
                whole[:, starts[p] : starts[p + 1], columns] = block
            scores[columns] = self._check(batch, asked, whole[:, :, columns].sum(axis=1).T)
            done += batch.shape[0]
        loss, single, base = self._held.walked.loss, self.outputs is None, np.tile(self.base, (n, 1))
        pushes = whole.swapaxes(1, 2)
        return WeightedSums(
            weights=pushes[0] if single else pushes,
            intercepts=base[:, 0] if single else base,
            targets=np.ones(len(targets)) if single else np.ones_like(targets),
            index=index,
            query_index=labels,
            kind="additive",
            outputs=self.outputs,
            n_threads=self._limits.n_threads,
            context=Context(X, None, self._adapter.feature_names, scores),
            seen=targets,
            account=Account(loss.meaning, loss.mean(scores) if loss.meaning else None, self._derive),
        )

    @property
    def _note(self) -> str:
        """What the numbers of tables are; of the score of one of two classes, also which."""
        names = self._adapter.classes
        return tables.of_class(tables.ADDITIVE, None if names is None or self.outputs is not None else names[1])

    def _meant(self, scores: Array) -> dict[str, Array]:
        loss = self._held.walked.loss
        return {loss.meaning: loss.mean(scores)} if loss.meaning else {}

    def _derive(self, X: Any, offsets: Any) -> Any:
        raise self._underived()

    def _underived(self) -> UnsupportedQuestionError:
        return UnsupportedQuestionError(
            "weights",
            "derivatives by the targets are not computed over training rows in Dask collections",
            "Use contributions, the pushes, or axil.JacobianExplainer on training rows in memory.",
        )

    def _parts(self, X: Any, size: int, even_empty: bool = False) -> Iterator[WeightedSums]:
        n, labels = X.shape[0], inputs.row_labels(X)
        for start in range(0, max(n, 1) if even_empty else n, size):
            part = slice(start, start + size)
            yield self._sums(inputs.take_rows(X, part), labels[part])

    @property
    def _bytes_per_query(self) -> int:
        return 16 * self._n_rows * int(self._adapter.n_outputs)

    def _stream(self, X: Any, init_score: Any) -> Stream:
        rows = self._taken(X, init_score)
        return Stream(
            rows=rows,
            batches=lambda size: self._parts(rows, size, even_empty=True),
            n_targets=(self._n_rows, self._adapter.n_outputs),
            index=lambda: self._gathered[1],
            outputs=self.outputs,
            backend="pandas",
            budget=self._limits.budget,
            bytes_per_query=self._bytes_per_query,
            feature_names=self._adapter.feature_names,
            note=self._note,
        )

    def _require(self, n: int, instead: str) -> None:
        self._limits.budget.require(n * self._bytes_per_query, f"The pushes of {n} x {self._n_rows} rows", instead)
