"""The contract of a baseline: made from an explainer, frozen, asked with `Baseline.scores`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.errors import InputError, UnsupportedModelError
from axil.explainer import Explainer
from axil.questions.asking import base_numbers
from axil.weights.contract import SmootherEngine

Array = NDArray[np.float64]

FEWER = "Score fewer rows of X at a time, or raise memory_limit."


@dataclass(frozen=True)
class Baseline(ABC):
    """Scores of training rows for explained rows; see `axil.baselines` for their sign."""

    explainer: Explainer

    needs_targets: ClassVar[bool] = False  # whether there is no score without y

    def __post_init__(self) -> None:
        given: Any = self.explainer
        if not isinstance(given, Explainer):
            kind = type(given).__name__
            raise InputError(f"{self.name} takes an axil.Explainer, not a {kind}: make one of the model first.")
        if isinstance(given._engines[0], SmootherEngine):
            raise UnsupportedModelError(
                "kind",
                "linear smoother",
                f"{self.name} is a baseline for ensembles of trees",
                "Use the weights that the explainer itself gives.",
            )

    @property
    def name(self) -> str:
        return type(self).__name__

    def scores(self, X: Any, y: Any = None, init_score: Any = None) -> Array:
        """(n, n_train) float64: the score of every training row for every row of X with its target y.

        ``init_score`` (n,): offsets of the rows of X, as in `Explainer.explain`. 8 * n * n_train bytes.
        """
        X, offsets = self.explainer._queries(X, init_score)
        n, n_train = X.shape[0], len(self.explainer.targets)
        targets = None
        if y is not None:
            n_outputs, classes = self.explainer._targets.shape[1], self.explainer._adapter.classes
            targets = inputs.as_targets(y, n, n_outputs, classes, "y", "explained") - offsets.values
            if offsets.replace_base:  # the baselines' predictions have the base
                targets = targets + base_numbers(self.explainer)
        elif self.needs_targets:
            raise InputError(f"{self.name} scores the loss of the rows of X, which takes their targets: pass y.")
        self.explainer._budget.require(8 * n * n_train, f"The {self.name} scores of {n} x {n_train} rows", FEWER)
        return self._scores(X, targets)

    @abstractmethod
    def _scores(self, X: Any, targets: Array | None) -> Array:
        """(n, N) for checked rows, whose targets (n, K) have had their offsets taken off."""
