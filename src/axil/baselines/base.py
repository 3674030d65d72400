"""The contract of a baseline: made from an explainer, frozen, asked with `Baseline.scores`; and `Random`, the least of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from axil import inputs
from axil.arrays import FloatArray
from axil.baselines.classifier import ClassQueries, FittedClassifier
from axil.contributions.additive_model import AdditiveModel
from axil.errors import InputError, UnsupportedQuestionError
from axil.explainer import Explainer
from axil.inputs import as_count
from axil.methods.question import verified_model
from axil.replay.checks import Verification
from axil.replay.exact_model import ExactModel
from axil.replay.queries import Queries
from axil.weights.members import Residual, Sum
from axil.weights.smoother import Smoother

FEWER = "Score fewer rows of X at a time, or raise memory_limit."


@dataclass(frozen=True)
class Baseline(ABC):
    """Scores of training rows for explained rows; see `axil.baselines` for their sign."""

    explainer: Explainer
    #: the classifier, where the explainer is of one
    classifier: FittedClassifier | None = field(init=False, repr=False, compare=False)

    needs_targets: ClassVar[bool] = False  # whether there is no score without y

    def __post_init__(self) -> None:
        given: Any = self.explainer
        if not isinstance(given, Explainer):
            raise InputError(
                f"{self.name} takes an axil.Explainer, not a {type(given).__name__}: make one of the model first."
            )
        model = verified_model(given)
        if not isinstance(model, (ExactModel, AdditiveModel)):
            raise UnsupportedQuestionError(
                self.name,
                "it is a baseline for ensembles of trees with their training rows in memory",
                "Use what the explainer itself gives.",
            )
        object.__setattr__(
            self,
            "classifier",
            FittedClassifier(model) if isinstance(model, AdditiveModel) else None,
        )
        if isinstance(model, ExactModel) and isinstance(
            model.engines[0], (Smoother, Sum, Residual)
        ):
            raise UnsupportedQuestionError(
                self.name,
                "it is a baseline for ensembles of trees, and this model is a linear smoother, or of several models",
                "Use the weights that the explainer itself gives.",
            )

    @property
    def proven(self) -> ExactModel:
        """The explainer's model and training data, where it has exact weights."""
        found: ExactModel = verified_model(self.explainer)
        return found

    @property
    def verification(self) -> Verification | None:
        """The proof of the explainer that the baseline was made from."""
        found: Verification | None = self.explainer.verification
        return found

    @property
    def name(self) -> str:
        return type(self).__name__

    def scores(self, X: Any, y: Any = None, init_score: Any = None) -> FloatArray:
        """(n, n_train) float64: the score of every training row for every row of X with its target y.

        ``y`` is given as ``y_train`` was. ``init_score`` (n,): offsets of the rows of X, as in `Explainer.explain`; not for
        classifiers. 8 * n * n_train bytes.
        """
        if y is None and self.needs_targets:
            raise InputError(
                f"{self.name} scores the loss of the rows of X, which takes their targets: pass y."
            )
        proven, fit = verified_model(self.explainer), self.classifier
        if fit is not None:
            if init_score is not None:
                raise InputError(
                    "init_score is not taken for the rows of a classifier: leave it out."
                )
            asked = fit.queries(X, y)
            self._require(len(asked))
            return self._class_scores(fit, asked)
        queries = proven.queries(X, init_score)
        n, n_outputs, offsets = len(queries), proven.shape[1], queries.offsets
        targets = None
        if y is not None:
            known = proven.on_scale(
                inputs.as_targets(
                    y, n, n_outputs, inputs.coding_of(proven.adapter), "y", "explained"
                ),
                "y",
            )
            targets = known - offsets.values
            if offsets.replace_base:  # the baselines' predictions have the base
                targets = targets + proven.base_numbers()
        self._require(n)
        return self._scores(queries.without_offsets(), targets)

    def _require(self, n: int) -> None:
        """Refuse scores of n explained rows that would not fit in memory."""
        model = verified_model(self.explainer)
        n_train = model.shape[0]
        model.budget.require(
            8 * n * n_train, f"The {self.name} scores of {n} x {n_train} rows", FEWER
        )

    @abstractmethod
    def _class_scores(self, fit: FittedClassifier, queries: ClassQueries) -> FloatArray:
        """(n, N) for checked rows of a classifier."""

    @abstractmethod
    def _scores(self, queries: Queries, targets: FloatArray | None) -> FloatArray:
        """(n, N) for checked rows, whose targets (n, K) have had their offsets taken off."""


@dataclass(frozen=True)
class Random(Baseline):
    """Independent standard normal numbers: row i of a call has the same scores however many rows follow it.

    The same seed gives the same scores in every call; y is not looked at.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        as_count(self.seed, "seed", least=0)

    def _scores(self, queries: Queries, targets: FloatArray | None) -> FloatArray:
        return self._drawn(len(queries), len(self.proven.targets))

    def _class_scores(self, fit: FittedClassifier, queries: ClassQueries) -> FloatArray:
        return self._drawn(len(queries), fit.n_rows)

    def _drawn(self, n: int, n_rows: int) -> FloatArray:
        return np.random.default_rng(self.seed).standard_normal((n, n_rows))
