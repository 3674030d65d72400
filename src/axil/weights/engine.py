"""The contract of engines: K of a fitted model, however it is computed.

``k_j(x)`` is the weight of training row j in the prediction of the explained row x, and ``K[i, j] =
k_j(x_i)`` for the training rows x_i. No answer changes an engine.

Explained rows are passed by their coordinates: their leaves in all trees of the model, (n, T), or
their features. None stands for the training rows themselves. ``base`` is how often the initial
prediction counts in a prediction: 0 if an offset of the explained row replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from axil.arrays import FloatArray, IntArray, LeafArray
from axil.errors import ExactnessError, UnsupportedQuestionError
from axil.kernels import Backend, Rows
from axil.machine.blocks import spans
from axil.structure import Structure
from axil.weights.answers import Answer, RowEffects
from axil.weights.left_out import LeftOut
from axil.weights.spread import around_leaves

BATCH_ENTRIES = 1 << 22  # weights of training rows held at a time

#: Explained rows as an engine takes them: leaves (n, T), features, or the parts of several models.
ExplainedRows = Any


@dataclass(frozen=True)
class Seconds:
    """The estimated seconds of work on all training rows on two cores; inf if it is refused."""

    leverage: float
    squares: float
    column: float  #: of K v, for each vector
    deletion: float  #: of exact deletions of each row; inf where they do not fit into memory
    replays: float  #: of the same deletions by one replay per row


@dataclass(frozen=True)
class Memory:
    """Bytes that an engine takes."""

    per_query: int  #: while the answer of one explained row is handed on block by block
    preparation: int  #: of `Engine.prepared`


class Engine(Protocol):
    """The linear map K from targets to predictions of a fitted model, by any algorithm."""

    is_sparse: bool = False  #: whether most weights are known to be zero
    structure: Structure  #: that the weights are computed from

    @property
    def structures(self) -> Sequence[Structure]:
        """The structures of all trees of the engine."""
        return ()

    def weight_rows(self, queries: ExplainedRows, base: float = 1.0) -> Answer:
        """Return the weights ``k_j(x)`` of explained rows and their predictions' constants."""

    def matvec(self, queries: ExplainedRows, v: FloatArray, base: float = 1.0) -> FloatArray:
        """Return ``sum_j k_j(x) v_j``, (n, S), for vectors (N, S); K v for the training rows.

        This is the linear map alone, without constants.
        """

    def rmatvec(self, queries: ExplainedRows, u: FloatArray, base: float = 1.0) -> FloatArray:
        """Return ``sum_x k_j(x) u_x``, (N, S), for vectors (n, S); K'u for the training rows."""

    def row_sum(self, queries: ExplainedRows, u: FloatArray, base: float = 1.0) -> Answer:
        """Return the weights and constants of the S sums ``sum_x u_x F(x)``.

        ``u`` (n, S) is dense or sparse.
        """

    def predicted(self, queries: ExplainedRows, targets: FloatArray) -> FloatArray:
        """Return ``F(x) = intercept(x) + sum_j k_j(x) y_j``, (n, K), for targets y (N, K).

        Offsets of explained rows are not added. Predictions of the training rows have the offsets
        of the fit.
        """

    def leverage(self, available: int) -> FloatArray:
        """Return ``K[j, j]``, (N,), within ``available`` bytes.

        It is the weight of each training row in its own prediction.
        """

    def squares(self, available: int) -> float:
        """Return ``sum_ij K[i, j]^2``, within ``available`` bytes."""

    def approximate_matvec(self, v: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """Return B v, (N, S), and the diagonal of B, (N,), for a cheap matrix B close to K.

        None if there is no such matrix, or if leverages take no more time than an estimate.
        """
        return None

    def costs(self, available: int) -> Seconds:
        """Return the time of work on all training rows within ``available`` bytes."""

    def around(self, queries: ExplainedRows, values: FloatArray) -> FloatArray:
        """Return means of values (N, S) over the training rows around each explained row, (n, S).

        See `spread`. A training row is not among those around itself. Values that are nan do not
        count. A mean is nan if there is no row around.
        """

    @property
    def memory(self) -> Memory:
        """The bytes that explained rows and `prepared` take."""

    def prepared(self, n_queries: int | None = None, available: int | None = None) -> Engine:
        """Return an engine with everything computed that makes explanations cheaper.

        This engine stays as it is. With a number of explained rows or bytes, the engine itself is
        returned unless the preparation pays for this many rows and fits into these bytes.
        """
        return self

    def with_targets(self, targets: FloatArray) -> Engine:
        """Return the engine of the fit to other targets (N, K), with the tree structure fixed.

        The active set is computed again.
        """
        return self

    def deletable(self, question: str) -> Deletable:
        """Return the engine if it has refits without some training rows; else refuse the method."""


class Deletable(Engine, Protocol):
    """An engine that can compute refits without some training rows."""

    def deletable(self, question: str) -> Deletable:
        """Return the engine."""
        return self

    def removal(self, queries: ExplainedRows, targets: FloatArray) -> Sequence[RowEffects]:
        """Return the effects ``-w_j dF(x) / dw_j`` for each column of the targets (N, K).

        These are the first-order effects of deleting training rows; see `removal`.
        """

    def deletion(
        self, queries: ExplainedRows, targets: FloatArray, available: int
    ) -> Sequence[RowEffects]:
        """Return the changes ``F(x) without row j - F(x)`` for each column of the targets (N, K).

        They are exact with the tree structure fixed; see `deletion`. They take at most
        ``available`` bytes, and are nan if no weight remains without row j.
        """

    def left_out(self, targets: FloatArray, available: int) -> LeftOut:
        """Return each training row's prediction by the fit to targets (N, K) without it.

        Predictions have the offsets of the fit.
        """

    def gradient_contributions(
        self, queries: ExplainedRows, targets: FloatArray
    ) -> Sequence[RowEffects]:
        """Return the contributions of training rows for each column of the targets (N, K).

        ``s_j(x) = sum_t final_t w_j b_tj r_tj [leaf_t(j) = leaf_t(x)] / (W + l2)``; see
        `removal.contributions`.
        """

    def without(self, rows: IntArray, targets: FloatArray) -> Engine:
        """Return the engine of a fit to targets (N, K) without these rows, or refuse it."""


CLASS_WEIGHTS_UNKNOWN = (
    "class weights are counted from the labels of each tree's sample, or of rows with other "
    "sample weights, and axil does not compute these weights without some rows",
    "Weights and influence work for it. Fit with class weights of your own (a dict), which no "
    "deletion changes.",
)


class TreeEngine(Deletable):
    """The engine of the trees of one structure."""

    backend: Backend
    rows: Rows  #: the training rows by cells
    moves_other_residuals = True  #: whether a target moves the residuals of other rows

    @property
    def structures(self) -> Sequence[Structure]:
        """The structure."""
        return (self.structure,)

    def deletable(self, question: str) -> Deletable:
        """Return the engine, or refuse deletions that change class weights in an unknown manner."""
        leaf_rule = self.structure.leaf_rule
        if leaf_rule is None or leaf_rule.class_counts is None:
            return self
        counts = leaf_rule.class_counts
        if question == "jacobian.gradient_contributions" or (
            counts.is_known and question == "without"
        ):
            return self
        if not counts.is_known:
            raise UnsupportedQuestionError(question, *CLASS_WEIGHTS_UNKNOWN)
        raise UnsupportedQuestionError(
            question,
            "class weights are counted from the labels, so without one row the weights of all "
            "others change",
            "Ask without(X, rows), which counts them again; or fit with class weights of your own "
            "(a dict).",
        )

    def around(self, queries: LeafArray | None, values: FloatArray) -> FloatArray:
        """Return means of values (N, S) over the training rows in each row's leaves, (n, S)."""
        if queries is None:
            return around_leaves(self.structure, self.rows, None, values)
        leaves = own_leaves(self.structure, queries)
        return around_leaves(self.structure, self.rows, leaves, values)


def by_output(engines: Sequence[Engine], columns: FloatArray) -> list[tuple[Engine, FloatArray]]:
    """Return each engine with the columns, (., K), of the outputs that it serves.

    A single engine serves all outputs.
    """
    if len(engines) == 1:
        return [(engines[0], columns)]
    return [(engine, columns[:, [output]]) for output, engine in enumerate(engines)]


def across(
    engines: Sequence[Engine],
    columns: FloatArray,
    compute: Callable[[Engine, FloatArray], FloatArray],
) -> FloatArray:
    """Return the results of each engine for the columns of its outputs, side by side, (., K)."""
    return np.concatenate(
        [compute(engine, own_columns) for engine, own_columns in by_output(engines, columns)],
        axis=1,
    )


def all_structures(engines: Sequence[Engine]) -> list[Structure]:
    """Return the structures of all trees of every output and member."""
    return [structure for engine in engines for structure in engine.structures]


def own_leaves(structure: Structure, queries: LeafArray | None) -> LeafArray:
    """Return the leaves of a structure's own trees, (n, T), from those of all trees.

    Kernels rely on leaf numbers, so leaves that the trees do not have raise `ExactnessError`.
    """
    if queries is None:
        return structure.leaves().T
    columns = structure.columns
    advice = "The model may have changed since the explainer was made: make a new one."
    if columns is None:
        expected_trees = structure.n_trees
        leaves = queries
    else:
        expected_trees = int(columns.max()) + 1
        leaves = queries[:, columns] if queries.shape[1] >= expected_trees else queries
    n_trees = queries.shape[1]
    if n_trees < expected_trees or (columns is None and n_trees > expected_trees):
        raise ExactnessError("number of trees", expected_trees, n_trees, advice)
    if not len(leaves):
        return leaves
    largest = leaves.max(axis=0)
    beyond = np.flatnonzero(largest >= structure.n_leaves)
    if len(beyond):
        tree = int(beyond[0])
        last_leaf = structure.n_leaves[tree] - 1
        raise ExactnessError("largest leaf number", last_leaf, int(largest[tree]), advice, tree)
    return leaves


def rows_of_weights(engine: Engine, n_rows: int) -> Iterator[tuple[int, FloatArray]]:
    """Yield K of an engine in blocks of rows, (rows, N), with the number of the first row."""
    step = max(1, BATCH_ENTRIES // n_rows)
    for rows in spans(n_rows, step):
        units = np.zeros((n_rows, rows.stop - rows.start))
        units[rows] = np.eye(units.shape[1])
        yield rows.start, engine.rmatvec(None, units).T


def diagonal(blocks: Iterator[tuple[int, FloatArray]]) -> FloatArray:
    """Return ``K[j, j]``, (N,), from blocks of rows of K with the number of their first row."""
    return np.concatenate([np.diagonal(block[:, first:]).copy() for first, block in blocks])


def sum_of_squares(blocks: Iterator[tuple[int, FloatArray]]) -> float:
    """Return ``sum_ij K[i, j]^2`` from blocks of rows of K."""
    return float(sum(np.square(block).sum() for _, block in blocks))
