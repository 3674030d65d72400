"""The contract of engines: K of a fitted model, however it is computed. No answer changes an engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from axil.errors import ExactnessError
from axil.structure import Structure
from axil.types import Array, Leaves
from axil.weights.answers import Answer, Effects


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


def own_leaves(structure: Structure, queries: Leaves) -> Leaves:
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
