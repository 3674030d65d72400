"""Random scores: the least that a method has to beat."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axil.baselines.base import Baseline
from axil.baselines.classifier import ClassQueries, FittedClassifier
from axil.inputs import as_count
from axil.replay.queries import Queries
from axil.types import Array


@dataclass(frozen=True)
class Random(Baseline):
    """Independent standard normal numbers: row i of a call has the same scores however many rows follow it.

    The same seed gives the same scores in every call; y is not looked at.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        as_count(self.seed, "seed", least=0)

    def _scores(self, queries: Queries, targets: Array | None) -> Array:
        return self._drawn(len(queries), len(self.proven.targets))

    def _class_scores(self, fit: FittedClassifier, queries: ClassQueries) -> Array:
        return self._drawn(len(queries), fit.n_rows)

    def _drawn(self, n: int, n_rows: int) -> Array:
        return np.random.default_rng(self.seed).standard_normal((n, n_rows))
