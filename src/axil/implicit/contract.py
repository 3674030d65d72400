"""The contract of a differentiated model, whichever way it was differentiated."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from axil.machine.limits import Limits
from axil.replay.checks import Verification
from axil.types import Array

OUTPUTS = ("raw", "probability")


class Differentiated(Protocol):
    """One fitted model on its training data, ready to give derivatives of its predictions. Construction verifies it."""

    library: str  #: for messages
    n_features: int
    feature_names: list[str] | None
    takes_text: bool
    outputs: NDArray[Any] | None  #: (K,) names of classes or numbers of outputs; None for one output
    targets: Array  #: (N, K) the numbers that predictions are differentiated by; 0 and 1 for classes
    verification: Verification | None  #: findings of the replay, or of the check of the optimum; None: not asked for

    def spelling(self, name: str) -> str:
        """How the library writes a column's name."""

    def predictions(self, X: Any) -> Array:
        """(n, K): raw scores or probabilities, as asked for."""

    def target_derivatives(self, X: Any) -> Array:
        """(K, n, N): of output k's prediction by column k of the targets."""

    def weight_derivatives(self, X: Any) -> Array:
        """(K, n, N): of output k's prediction by the row weights."""

    def bytes_per_query(self) -> int:
        """Bytes that one query's derivatives take while they are computed."""


class Reader(Protocol):
    """A module that reads some kind of model."""

    def read(
        self,
        model: Any,
        X: Any,
        y: Any,
        sample_weight: Any,
        init_score: Any,
        output: str,
        loss: Any,
        *,
        limits: Limits,
        verify: bool,
    ) -> Differentiated | None:
        """The model on its training data, all as the user gave them; None for a model of another kind."""
