"""The contract of engines: K of a fitted model, however it is computed. No answer changes an engine.

QueryBatch are given by their coordinates: leaves in all the model's trees, (n, T), or features; None: the training
rows themselves.
k_j(x) is the weight of training row j in the prediction of query x, and ``K[i, j] = k_j(x_i)`` for the training rows x_i.
``base``, where it is asked for, is how often the base counts in a prediction: 0 where an offset of the query stands in for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


@dataclass(frozen=True)
class Seconds:
    """The time that work on all training rows takes on two cores, roughly; inf where it is refused."""

    leverage: float
    squares: float
    column: float  #: of K v, for each of its vectors
    deletion: (
        float  #: of exact deletions of every row by itself; inf where they do not fit into memory
    )
    replays: float  #: of the same by one replay per row


@dataclass(frozen=True)
class Memory:
    """Bytes that an engine takes."""

    per_query: int  #: while a query's answer is handed on block by block
    preparation: int  #: of `Engine.prepared`


class Engine(Protocol):
    """K of a fitted model, however it is computed."""

    is_sparse: bool = False  #: whether most weights are zero and known to be
    structure: Structure  #: that the weights are computed from

    @property
    def structures(self) -> Sequence[Structure]:
        """The structures of all trees that the engine is made of."""
        return ()

    def weight_rows(self, queries: Any, base: float = 1.0) -> Answer:
        """The weights of the queries, ``k_j(x)``, and the part of their predictions that no target makes."""

    def matvec(self, queries: Any, v: FloatArray, base: float = 1.0) -> FloatArray:
        """(n, S): ``sum_j k_j(x) v_j`` for (N, S) vectors, the linear map alone; of the training rows K v."""

    def rmatvec(self, queries: Any, u: FloatArray, base: float = 1.0) -> FloatArray:
        """(N, S): ``sum_x k_j(x) u_x`` for (n, S) vectors, the transpose of `matvec`; of the training rows K'u."""

    def row_sum(self, queries: Any, u: Any, base: float = 1.0) -> Answer:
        """The weights of the S sums ``sum_x u_x F(x)`` and their part that no target makes, for (n, S) u, dense or sparse."""

    def predicted(self, queries: Any, targets: FloatArray) -> FloatArray:
        """(n, K): ``F(x) = intercept(x) + sum_j k_j(x) y_j`` with y the targets (N, K): the map with its constants.

        Offsets of queries are left out; predictions of the training rows have the offsets of the
        fit.
        """

    def leverage(self, available: int) -> FloatArray:
        """(N,): ``K[j, j]``, the weight of each training row in its own prediction, within ``available`` bytes."""

    def squares(self, available: int) -> float:
        """``sum_ij K[i, j]^2``, within ``available`` bytes."""

    def approximate_matvec(self, v: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """B v, (N, S), and the diagonal of B, (N,), for a matrix B that is close to K and quick to apply.

        None: there is none, or leverages take no more time than an estimate.
        """
        return None

    def costs(self, available: int) -> Seconds:
        """The time of work on all training rows within ``available`` bytes."""

    def around(self, queries: Any, values: FloatArray) -> FloatArray:
        """(n, S): the means of values (N, S) over the training rows around each query; see `spread`.

        A training row is not among those around itself. Values that are nan do not count; nan: no
        row is there.
        """

    @property
    def memory(self) -> Memory:
        """Bytes that queries and `prepared` take."""

    def prepared(self, n_queries: int | None = None, available: int | None = None) -> Engine:
        """An engine with what makes queries cheaper done ahead; this one stays as it is.

        Given numbers, only if that pays for this many queries, with what is kept already, and fits
        into these bytes; else it is this one.
        """
        return self

    def with_targets(self, targets: FloatArray) -> Engine:
        """Return the engine of the fit to other targets (N, K): the tree structure is fixed, the active set computed again."""
        return self

    def deletable(self, question: str) -> Deletable:
        """This engine, where fits without some training rows are known; else refuses the question by name."""


class Deletable(Engine, Protocol):
    """An engine of whose fit it is known what becomes of it without some training rows."""

    def deletable(self, question: str) -> Deletable:
        return self

    def removal(self, queries: Any, targets: FloatArray) -> Sequence[RowEffects]:
        """For each column of the targets (N, K) the effects ``-w_j dF(x) / dw_j`` of deleting training rows; see `removal`."""

    def deletion(self, queries: Any, targets: FloatArray, available: int) -> Sequence[RowEffects]:
        """For each column of the targets (N, K) the exact changes ``F(x) without row j - F(x)``, within ``available`` bytes.

        The structure is held fixed. nan where without row j no weight is left. See `deletion`.
        """

    def left_out(self, targets: FloatArray, available: int) -> LeftOut:
        """Each row in the fit to the targets (N, K) without it, with the offsets of the fit."""

    def pushes(self, queries: Any, targets: FloatArray) -> Sequence[RowEffects]:
        """For each column of the targets (N, K) what training rows put into the trees' steps; see `removal.pushes`.

        ``s_j(x) = sum_t final_t w_j b_tj r_tj [leaf_t(j) = leaf_t(x)] / (W + l2)``.
        """

    def without(self, rows: IntArray, targets: FloatArray) -> Engine:
        """The engine of a fit to the targets (N, K) with ``w_j = 0`` for these rows j; refused where that is not known."""


CLASS_WEIGHTS_UNKNOWN = (
    "class weights are counted from the labels of each tree's sample, or of rows with other sample weights, and what becomes of "
    "them without some rows is not computed",
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
        return (self.structure,)

    def deletable(self, question: str) -> Deletable:
        """Return this engine; refuses deletions after which class weights that are counted from labels are not known."""
        leaf_rule = self.structure.leaf_rule
        if leaf_rule is None or leaf_rule.class_counts is None:
            return self
        counts = leaf_rule.class_counts
        if question == "pushes" or (counts.is_known and question == "without"):
            return self
        if not counts.is_known:
            raise UnsupportedQuestionError(question, *CLASS_WEIGHTS_UNKNOWN)
        raise UnsupportedQuestionError(
            question,
            "class weights are counted from the labels, so without one row the weights of all others change",
            "Ask without(X, rows), which counts them again; or fit with class weights of your own (a dict).",
        )

    def around(self, queries: Any, values: FloatArray) -> FloatArray:
        if queries is None:
            own = None
        else:
            own = own_leaves(self.structure, queries)
        return around_leaves(self.structure, self.rows, own, values)


def own_leaves(structure: Structure, queries: LeafArray | None) -> LeafArray:
    """The leaves, (n, T), of an engine's own trees among those of all the model's; the kernels trust them to be there."""
    if queries is None:
        return structure.leaves().T
    if structure.columns is None:
        known = structure.n_trees
    else:
        known = int(structure.columns.max()) + 1
    changed = "The model may have changed since the explainer was made: make a new one."
    if queries.shape[1] < known or (structure.columns is None and queries.shape[1] > known):
        raise ExactnessError("number of trees", known, queries.shape[1], changed)
    if structure.columns is None:
        own = queries
    else:
        own = queries[:, structure.columns]
    if len(own):
        beyond = np.flatnonzero(own.max(axis=0) >= structure.n_leaves)
        if len(beyond):
            tree = int(beyond[0])
            raise ExactnessError(
                "largest leaf number",
                structure.n_leaves[tree] - 1,
                int(own[:, tree].max()),
                changed,
                tree,
            )
    return own


def rows_of_weights(engine: Engine, n_rows: int) -> Iterator[tuple[int, FloatArray]]:
    """K of an engine in blocks of its rows (rows, N), with the number of their first."""
    step = max(1, BATCH_ENTRIES // n_rows)
    for rows in spans(n_rows, step):
        units = np.zeros((n_rows, rows.stop - rows.start))
        units[rows] = np.eye(units.shape[1])
        yield rows.start, engine.rmatvec(None, units).T


def diagonal(rows: Iterator[tuple[int, FloatArray]]) -> FloatArray:
    """(N,): ``K[j, j]``, from blocks of rows of K with the number of their first."""
    return np.concatenate([np.diagonal(block[:, first:]).copy() for first, block in rows])


def sum_of_squares(rows: Iterator[tuple[int, FloatArray]]) -> float:
    """``sum_ij K[i, j]^2``, from blocks of rows of K."""
    return float(sum(np.square(block).sum() for _, block in rows))
