"""Boosted trees as an engine: the operators of `boosting`, with what is asked of them in leaves of the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.structure import Structure
from axil.types import Array, Leaves
from axil.weights import leverage as hat
from axil.weights import removal
from axil.weights.answers import Answer, DenseAnswer, Effects, ReadOutAnswer
from axil.weights.boosting import Operators
from axil.weights.contract import Engine, own_leaves
from axil.weights.leaf_space import LeafSpace
from axil.weights.residuals import FittedValues


@dataclass(frozen=True)
class TreeEngine:
    """Boosted trees: sweeps, or leaf space where that pays."""

    operators: Operators
    is_sparse: bool = False

    @property
    def structure(self) -> Structure:
        return self.operators.structure

    def ask(self, queries: Leaves, base: float = 1.0) -> Answer:
        return self._ask(own_leaves(self.structure, queries), base)

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
        return FittedValues.of(self.operators, targets).predictions(own_leaves(self.structure, queries).T)

    def forward(self, v: Array) -> Array:
        return self.operators.forward(v)

    def backward(self, u: Array) -> Array:
        return self.operators.backward(u)

    def apply(self, queries: Leaves, v: Array, base: float = 1.0) -> Array:
        """The linear map alone, in O(T (N + n) S): a constant base and offsets take no part."""
        start = self.operators.mean(v) if self.structure.base is None else np.zeros(v.shape[1])
        fit = FittedValues(self.structure, v, base * start, self.operators.leaf_values(v))
        return fit.predictions(own_leaves(self.structure, queries).T)

    def combine(self, queries: Leaves, u: Array, base: float = 1.0) -> Array:
        return self.operators.combine(own_leaves(self.structure, queries), u, base)

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
        fits, own = removal.fits(self.operators, targets), own_leaves(self.structure, queries)
        ready = self.operators.leaf_space is not None
        adjoints = self.operators.adjoints(own) if ready else self.operators.weights(own)[1]
        return [removal.ReadOutEffects(fit, adjoints) for fit in fits]

    def steps(self, queries: Leaves, targets: Array) -> Sequence[Effects]:
        return removal.steps(self.operators, targets, own_leaves(self.structure, queries))

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
