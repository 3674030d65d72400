"""Engines: the ways to compute weights, behind one contract. No answer changes an engine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.adapters.contract import FittedSmoother
from axil.errors import ExactnessError, InputError, UnsupportedQuestionError
from axil.kernels.cpu import Cpu
from axil.machine.shared import one_blas_thread
from axil.structure import Structure
from axil.types import Array, Leaves
from axil.weights import leverage as hat
from axil.weights import removal
from axil.weights.answers import Answer, DenseAnswer, Effects, ReadOutAnswer, SparseAnswer
from axil.weights.boosting import Operators
from axil.weights.forest import Forest
from axil.weights.leaf_space import LeafSpace
from axil.weights.residuals import FittedValues

FOREST_SECONDS = 5e-9  # per row, tree and column, or row and pair of trees
PRODUCT_SECONDS = 1e-10  # per multiplication


class Engine(Protocol):
    """K of a fitted model, however it is computed."""

    @property
    def is_sparse(self) -> bool:
        """Whether most weights are zero and known to be."""

    @property
    def structure(self) -> Structure:
        """The structure that the weights are computed from."""

    def ask(self, queries: Any, base: float = 1.0) -> Answer:
        """The weights of queries given by their coordinates: leaves in all the model's trees, (n, T), or features.

        ``base``: how often the base counts in a prediction; 0 where an offset of the query stands in for it.
        """

    def ask_training_rows(self) -> Answer:
        """The weights of the training rows' own predictions."""

    def fitted(self, targets: Array) -> Array:
        """(N, K): the training rows' predictions, as the map from targets (N, K), with its constants, makes them."""

    def forward(self, v: Array) -> Array:
        """K v for (N, S) vectors."""

    def backward(self, u: Array) -> Array:
        """K'u for (N, S) vectors."""

    def apply(self, queries: Any, v: Array, base: float = 1.0) -> Array:
        """(n, S): the weights of the queries times (N, S) vectors."""

    def predicted(self, queries: Any, targets: Array) -> Array:
        """(n, K): the predictions of the queries, as the map from targets (N, K), with its constants, makes them."""

    def combine(self, queries: Any, u: Array, base: float = 1.0) -> Array:
        """(N, S): the transpose of `apply`, for (n, S) vectors."""

    def leverage(self, available: int) -> Array:
        """(N,): the weight of each training row in its own prediction, with so many bytes to work in."""

    def squares(self, available: int) -> float:
        """The sum of the squared weights of all training rows' predictions."""

    def leverage_seconds(self, available: int) -> float:
        """How long `leverage` takes on two cores, roughly; inf where it is refused."""

    def squares_seconds(self, available: int) -> float:
        """Seconds that `squares` takes, likewise."""

    def forward_seconds(self, columns: int) -> float:
        """Seconds that `forward` takes for so many vectors."""

    def removal(self, queries: Any, targets: Array) -> Sequence[Effects]:
        """For each column of the targets (N, K) the effects of deleting training rows; see `removal`."""

    def steps(self, queries: Any, targets: Array) -> Sequence[Effects]:
        """For each column of the targets (N, K) what training rows put into the trees' steps; see `removal.steps`."""

    def without(self, rows: NDArray[np.intp]) -> Engine:
        """The engine of a fit in which these rows have no weight; refused where that is not known."""

    def streamed_bytes(self) -> int:
        """Bytes that one query takes while its answer is handed on block by block."""

    def preparation(self) -> int:
        """Bytes that `prepared` takes."""

    def prepared(self) -> Engine:
        """An engine with what makes queries cheaper done ahead; this one stays as it is."""

    def prepared_for(self, n_queries: int, available: int) -> Engine:
        """`prepared`, if that pays for this many queries and fits into these bytes, whatever was asked before; else this one."""


def _own(structure: Structure, queries: Leaves) -> Leaves:
    """The leaves, (n, T), of an engine's own trees among those of all the model's; the kernels trust them to be there."""
    known = structure.n_trees if structure.columns is None else int(structure.columns.max()) + 1
    changed = "The model may have changed since the explainer was made: make a new one."
    if queries.shape[1] < known or (structure.columns is None and queries.shape[1] > known):
        raise ExactnessError("number of trees", known, queries.shape[1], changed)
    own = queries if structure.columns is None else queries[:, structure.columns]
    if len(own):
        beyond = np.flatnonzero(own.max(axis=0) >= structure.n_leaves)
        if len(beyond):
            tree = int(beyond[0])
            raise ExactnessError("largest leaf number", structure.n_leaves[tree] - 1, own[:, tree].max(), changed, tree)
    return own


@dataclass(frozen=True)
class TreeEngine:
    """Boosted trees: sweeps, or leaf space where that pays."""

    operators: Operators
    is_sparse: bool = False

    @property
    def structure(self) -> Structure:
        return self.operators.structure

    def ask(self, queries: Leaves, base: float = 1.0) -> Answer:
        return self._ask(_own(self.structure, queries), base)

    def ask_training_rows(self) -> Answer:
        return self._ask(self.structure.leaves().T)

    def _ask(self, leaves: Leaves, base: float = 1.0) -> Answer:
        if self.operators.leaf_space is None:
            weights, adjoints = self.operators.weights(leaves, base)
            return DenseAnswer(weights, self.operators.intercepts(adjoints))
        adjoints = self.operators.adjoints(leaves, base)
        return ReadOutAnswer(self.operators, adjoints, self.operators.intercepts(adjoints))

    def fitted(self, targets: Array) -> Array:
        s = self.structure
        base = self.operators.mean(targets) if s.base is None else s.base
        if s.offsets is None:
            return self.operators.forward(targets, base)
        return self.operators.forward(targets - s.offsets, base) + s.offsets

    def predicted(self, queries: Leaves, targets: Array) -> Array:
        return FittedValues.of(self.operators, targets).predictions(_own(self.structure, queries).T)

    def forward(self, v: Array) -> Array:
        return self.operators.forward(v)

    def backward(self, u: Array) -> Array:
        return self.operators.backward(u)

    def apply(self, queries: Leaves, v: Array, base: float = 1.0) -> Array:
        """The linear map alone, in O(T (N + n) S): a constant base and offsets take no part."""
        start = self.operators.mean(v) if self.structure.base is None else np.zeros(v.shape[1])
        fit = FittedValues(self.structure, v, base * start, self.operators.leaf_values(v))
        return fit.predictions(_own(self.structure, queries).T)

    def combine(self, queries: Leaves, u: Array, base: float = 1.0) -> Array:
        return self.operators.combine(_own(self.structure, queries), u, base)

    def leverage(self, available: int) -> Array:
        return hat.leverage(self.operators, available)

    def squares(self, available: int) -> float:
        return hat.squares(self.operators, available)

    def leverage_seconds(self, available: int) -> float:
        return hat.seconds(self.operators, available, 1)

    def squares_seconds(self, available: int) -> float:
        return hat.seconds(self.operators, available, hat.MATRICES)

    def forward_seconds(self, columns: int) -> float:
        costs = self.operators.backend.costs
        return costs.visit_seconds * costs.sweep * columns * self.structure.n_rows * self.structure.n_trees

    def removal(self, queries: Leaves, targets: Array) -> Sequence[Effects]:
        fits, own = removal.fits(self.operators, targets), _own(self.structure, queries)
        ready = self.operators.leaf_space is not None
        adjoints = self.operators.adjoints(own) if ready else self.operators.weights(own)[1]
        return [removal.ReadOutEffects(fit, adjoints) for fit in fits]

    def steps(self, queries: Leaves, targets: Array) -> Sequence[Effects]:
        return removal.steps(self.operators, targets, _own(self.structure, queries))

    def without(self, rows: NDArray[np.intp]) -> Engine:
        return TreeEngine(removal.without(self.structure, rows, self.operators.backend))

    def streamed_bytes(self) -> int:
        s, cells = self.structure, int(self.structure.cell_starts[-1])
        return 8 * (s.n_rows + 2 * s.total_leaves + 2 * cells if self.operators.leaf_space is None else 3 * cells)

    def preparation(self) -> int:
        return LeafSpace.size(self.structure)

    def prepared(self) -> TreeEngine:
        return self if self.operators.leaf_space is not None else TreeEngine(self.operators.prepared())

    def prepared_for(self, n_queries: int, available: int) -> TreeEngine:
        fits = 2 * self.preparation() <= available
        return self.prepared() if fits and self.operators.prepare_pays(n_queries) else self


@dataclass(frozen=True)
class ForestEngine:
    """Forests: an inverted index."""

    forest: Forest
    is_sparse: bool = True

    @property
    def structure(self) -> Structure:
        return self.forest.structure

    def ask(self, queries: Leaves, base: float = 1.0) -> Answer:
        return self._answer(self.forest.weights(_own(self.structure, queries)), base)

    def ask_training_rows(self) -> Answer:
        return self._answer(self.forest.weights(self.structure.leaves().T))

    def _answer(self, weights: csr_array, base: float = 1.0) -> Answer:
        return SparseAnswer(weights, np.tile(base * self._constant, (weights.shape[0], 1)))

    def fitted(self, targets: Array) -> Array:
        return self.forest.forward(targets) + self._constant

    def predicted(self, queries: Leaves, targets: Array) -> Array:
        return self.apply(queries, targets) + self._constant

    @property
    def _constant(self) -> Array:
        s = self.structure
        return np.asarray(s.beta[-1] * (np.zeros(1) if s.base is None else s.base))

    def forward(self, v: Array) -> Array:
        return self.forest.forward(v)

    def backward(self, u: Array) -> Array:
        return self.forest.backward(u)

    def apply(self, queries: Leaves, v: Array, base: float = 1.0) -> Array:
        return self.forest.apply(_own(self.structure, queries), v)

    def combine(self, queries: Leaves, u: Array, base: float = 1.0) -> Array:
        return self.forest.combine(_own(self.structure, queries), u)

    def leverage(self, available: int) -> Array:
        return self.forest.leverage()

    def squares(self, available: int) -> float:
        return self.forest.squares()

    def leverage_seconds(self, available: int) -> float:
        return self.forward_seconds(1)

    def squares_seconds(self, available: int) -> float:
        return FOREST_SECONDS * self.structure.n_rows * self.structure.n_trees**2

    def forward_seconds(self, columns: int) -> float:
        return FOREST_SECONDS * columns * self.structure.n_rows * self.structure.n_trees

    def removal(self, queries: Leaves, targets: Array) -> Sequence[Effects]:
        own, level = _own(self.structure, queries), removal.levels(self.structure)[0]
        none = np.zeros((len(own), 1))
        return [SparseAnswer(self.forest.removal(own, column, level), none) for column in targets.T]

    def steps(self, queries: Leaves, targets: Array) -> Sequence[Effects]:
        """No tree sees another: the residuals are the targets, and the steps weights times targets."""
        weights, none = self.forest.weights(_own(self.structure, queries)), np.zeros((len(queries), 1))
        return [SparseAnswer(csr_array(weights.multiply(column)), none) for column in targets.T]

    def without(self, rows: NDArray[np.intp]) -> Engine:
        return ForestEngine(Forest(removal.without(self.structure, rows, Cpu(1)).structure))

    def streamed_bytes(self) -> int:
        return (
            24
            * self.structure.n_trees
            * -(-self.structure.n_rows * self.structure.n_trees // self.structure.total_leaves)
        )

    def preparation(self) -> int:
        return 0

    def prepared(self) -> ForestEngine:
        return self  # the index is there

    def prepared_for(self, n_queries: int, available: int) -> ForestEngine:
        return self


@dataclass(frozen=True)
class SmootherEngine:
    """Linear smoothers: a product of features and solution, or sparse weights as they are."""

    smoother: FittedSmoother
    n_outputs: int

    @property
    def is_sparse(self) -> bool:
        return self.smoother.solution is None

    @property
    def structure(self) -> Structure:
        raise InputError("An explainer of a linear smoother is not saved: make it again from the model and its data.")

    @one_blas_thread()
    def ask(self, queries: Any, base: float = 1.0) -> Answer:
        intercepts = np.zeros((queries.shape[0], self.n_outputs))
        if self.smoother.solution is None:
            return SparseAnswer(queries, intercepts)
        return DenseAnswer(queries @ self.smoother.solution, intercepts)

    def ask_training_rows(self) -> Answer:
        return self.ask(self.smoother.training)

    def fitted(self, targets: Array) -> Array:
        return self.forward(targets)

    def predicted(self, queries: Any, targets: Array) -> Array:
        return self.apply(queries, targets)

    def forward(self, v: Array) -> Array:
        return self.apply(self.smoother.training, v)

    def backward(self, u: Array) -> Array:
        return self.combine(self.smoother.training, u)

    @one_blas_thread()
    def apply(self, queries: Any, v: Array, base: float = 1.0) -> Array:
        s = self.smoother
        return np.asarray(queries @ (v if s.solution is None else s.solution @ v))

    @one_blas_thread()
    def combine(self, queries: Any, u: Array, base: float = 1.0) -> Array:
        s = self.smoother
        seen = queries.T @ u
        return np.asarray(seen if s.solution is None else s.solution.T @ seen)

    def leverage(self, available: int) -> Array:
        s = self.smoother
        if s.solution is None:
            return np.asarray(s.training.diagonal())
        return np.asarray(np.einsum("ij,ji->i", s.training, s.solution))

    @one_blas_thread()
    def squares(self, available: int) -> float:
        s = self.smoother
        if s.solution is None:
            return float(s.training.multiply(s.training).sum())
        return float(np.vdot(s.training.T @ s.training, s.solution @ s.solution.T))

    def leverage_seconds(self, available: int) -> float:
        return self.forward_seconds(1)

    def squares_seconds(self, available: int) -> float:
        return self.forward_seconds(1 if self.smoother.solution is None else 2 * self.smoother.training.shape[1])

    def forward_seconds(self, columns: int) -> float:
        return PRODUCT_SECONDS * columns * float(math.prod(self.smoother.training.shape))

    def removal(self, queries: Any, targets: Array) -> Sequence[Effects]:
        """Weighted least squares: ``d F(x) / d w_j = k_j(x) / w_j * residual_j``."""
        if not self.smoother.weighs_squares:
            raise UnsupportedQuestionError(
                "removal",
                "neighbours and Gaussian processes have no sample weights, so there is no derivative to take: without a row "
                "others would take its place",
                "Weights, what_if and blame work for it; refit without the row to see what it does.",
            )
        residuals, none = targets - self.fitted(targets), np.zeros((queries.shape[0], 1))
        weights = self.ask(queries).dense()
        return [DenseAnswer(-weights * column, none) for column in residuals.T]

    def steps(self, queries: Any, targets: Array) -> Sequence[Effects]:
        raise UnsupportedQuestionError(
            "steps",
            "they are those of trees, and a linear smoother is fitted at once, not tree by tree",
            "Use the contributions of its explanation: weights times targets.",
        )

    def without(self, rows: NDArray[np.intp]) -> Engine:
        raise UnsupportedQuestionError(
            "removal_set with greedy=True",
            "the solution of a linear smoother is not computed again without rows",
            "Use greedy=False, or refit without the rows: a smoother keeps no structure that a refit would change.",
        )

    def streamed_bytes(self) -> int:
        return 8 * int(self.smoother.training.shape[0])

    def preparation(self) -> int:
        return 0

    def prepared(self) -> SmootherEngine:
        return self  # the solution is there

    def prepared_for(self, n_queries: int, available: int) -> SmootherEngine:
        return self
