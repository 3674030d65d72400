"""The contract of a baseline, which is made from an explainer; and `Random`, the least of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from axil import inputs
from axil.aliases import ArrayLike, TableLike
from axil.arrays import FloatArray
from axil.baselines.classifier import ClassQueries, FittedClassifier
from axil.contributions.additive_model import AdditiveModel
from axil.errors import InputError, UnsupportedQuestionError
from axil.explainer import Explainer
from axil.inputs import as_count
from axil.methods.kinds import exact_model
from axil.methods.method import verified_model
from axil.replay.exact_model import ExactModel
from axil.replay.queries import QueryBatch
from axil.replay.verification import Verification
from axil.weights.members import Residual, Sum
from axil.weights.smoother import Smoother

FEWER_ROWS = "Score fewer rows of X at a time, or raise memory_limit."


@dataclass(frozen=True)
class Baseline(ABC):
    """Scores of training rows for explained rows; see `axil.baselines` for their sign."""

    explainer: Explainer
    #: the classifier, where the explainer is of one
    classifier: FittedClassifier | None = field(init=False, repr=False, compare=False)

    #: whether scores without y are effects on the prediction, which must then be one number
    scores_predictions: ClassVar[bool] = False

    def __post_init__(self) -> None:
        explainer: Any = self.explainer
        if not isinstance(explainer, Explainer):
            raise InputError(
                f"{self.name} takes an axil.Explainer, not a {type(explainer).__name__}: make one "
                "of the model first."
            )
        model = verified_model(explainer)
        if not isinstance(model, (ExactModel, AdditiveModel)):
            raise UnsupportedQuestionError(
                self.name,
                "it is a baseline for ensembles of trees with their training rows in memory",
                "Use what the explainer itself gives.",
            )
        if isinstance(model, AdditiveModel):
            classifier = FittedClassifier(model)
        else:
            classifier = None
        object.__setattr__(self, "classifier", classifier)
        if isinstance(model, ExactModel) and isinstance(
            model.engines[0], (Smoother, Sum, Residual)
        ):
            raise UnsupportedQuestionError(
                self.name,
                "it is a baseline for ensembles of trees, and this model is a linear smoother, or "
                "of several models",
                "Use the weights that the explainer itself gives.",
            )

    @property
    def verified_model(self) -> ExactModel:
        """Return the explainer's verified model, if it has exact weights."""
        return exact_model(verified_model(self.explainer))

    @property
    def verification(self) -> Verification | None:
        """Return the verification of the explainer that the baseline was made from."""
        verification: Verification | None = self.explainer.verification
        return verification

    @property
    def name(self) -> str:
        """Return the name of the baseline."""
        return type(self).__name__

    def scores(
        self, X: TableLike, y: ArrayLike | None = None, *, init_score: ArrayLike | None = None
    ) -> FloatArray:
        """Score every training row for every row of X; 8 * n * n_train bytes.

        With y, scores of `BoostIn`, `LeafInfluence` and `TREX` are effects on the loss. Without y
        they are effects on the prediction, on the scale of the raw score: a positive score means
        that having the training row raises the prediction.

        Parameters
        ----------
        X : table
            The n rows to explain.
        y : array of shape (n,) or (n, K), optional
            Their targets, given as ``y_train`` was.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `Explainer.explain`; not for classifiers.

        Returns
        -------
        scores : array of shape (n, n_train)
        """
        if y is None and self.scores_predictions and verified_model(self.explainer).shape[1] > 1:
            raise InputError(
                f"This model has several outputs, and without y {self.name} has no one score for "
                "them: pass y."
            )
        if self.classifier is not None:
            if init_score is not None:
                raise InputError(
                    "init_score is not taken for the rows of a classifier: leave it out."
                )
            class_queries = self.classifier.queries(X, y)
            self._require_memory(len(class_queries))
            return self._class_scores(self.classifier, class_queries)
        queries = self.verified_model.queries(X, init_score)
        if y is None:
            targets = None
        else:
            targets = self._targets(y, queries)
        self._require_memory(len(queries))
        return self._scores(queries.without_offsets(), targets)

    def _targets(self, y: ArrayLike, queries: QueryBatch) -> FloatArray:
        """Return the targets of explained rows, (n, K), less their offsets."""
        model = self.verified_model
        coding = inputs.coding_of(model.adapter)
        values = inputs.as_targets(y, len(queries), model.shape[1], coding, "y", "explained")
        targets = model.scale.checked_forward(values, "y") - queries.offsets.values
        if queries.offsets.replace_base:  # the baselines' predictions have the base
            targets = targets + model.base_numbers()
        return np.asarray(targets)

    def _require_memory(self, n: int) -> None:
        """Refuse scores of n explained rows that would not fit in memory."""
        model = verified_model(self.explainer)
        n_train = model.shape[0]
        model.budget.require(
            8 * n * n_train, f"The {self.name} scores of {n} x {n_train} rows", FEWER_ROWS
        )

    @abstractmethod
    def _class_scores(self, fit: FittedClassifier, queries: ClassQueries) -> FloatArray:
        """Return the scores of checked rows of a classifier, (n, N)."""

    @abstractmethod
    def _scores(self, queries: QueryBatch, targets: FloatArray | None) -> FloatArray:
        """Return the scores of checked rows, (n, N); targets (n, K) are less their offsets."""


@dataclass(frozen=True)
class Random(Baseline):
    """Independent standard normal numbers for any y.

    The same seed gives the same scores in every call. Row i of a call has the same scores however
    many rows follow it.
    """

    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        as_count(self.seed, "seed", least=0)

    def _scores(self, queries: QueryBatch, targets: FloatArray | None) -> FloatArray:
        return self._normal_numbers(len(queries), len(self.verified_model.targets))

    def _class_scores(self, fit: FittedClassifier, queries: ClassQueries) -> FloatArray:
        return self._normal_numbers(len(queries), fit.n_rows)

    def _normal_numbers(self, n: int, n_rows: int) -> FloatArray:
        return np.random.default_rng(self.seed).standard_normal((n, n_rows))
