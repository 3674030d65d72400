"""Audit of boosted models of any loss: which training labels look wrong, by what the other rows in their leaves say.

Of classes a row's quality is the share of its class among the other rows in its leaves, a tree at a time. On nine of
eighteen data sets that found more flipped labels than the row's push on its own score, its score without that push, or BoostIn's
score of a row for itself, so it was chosen; experiments/label_noise_classes.py counts the others by themselves.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.errors import UnsupportedQuestionError
from axil.jacobian.boosting import Boosting
from axil.questions.audit import BY_PREDICTION, ClassAudit, Studentised, as_probabilities, class_table, numbers_table
from axil.structure import Structure
from axil.types import Array
from axil.weights.spread import around_leaves

BY_PUSHES = "by the mean of each row's score without its own push; not a retraining"


class LabelAudit(ABC):
    """The question about wrong labels, as a method of `JacobianExplainer`."""

    index: NDArray[Any]
    _backend: str

    @abstractmethod
    def _boosting(self, question: str) -> Boosting:
        """The model, where it is boosted: what `question` needs."""

    def audit(self, out_of_fold: Any = None) -> Any:
        """Which training labels look wrong, the most suspicious first, and how many; no validation rows, no refit.

        Of classes a frame with the columns row, target, expected (the class that most other rows in the row's leaves have),
        probability (of target, from the row's score without its own push), quality (from 0 to 1: the share of target among these
        other rows), suspect (expected is another class; where classes overlap that is so of many right labels too).

        Of counts and amounts the columns are those of `Explainer.audit`, with expected the mean of the row's score without its
        own push. Other rows saw the row's label too, so that is nearer to it than a refit would be.

        Rows that are alone in all their leaves have nan and come last. O(T N), nothing of size (n_train, n_train).

        Parameters
        ----------
        out_of_fold : array of shape (n_train, K) or (n_train,), optional
            Probabilities of the classes, or predictions, of your own cross-validation; of two classes the second's will do.
            Quality is then the probability of target, and suspect rows are those where another class is at least as probable
            as it is on average for the rows that are of it.

        Examples
        --------
        >>> from lightgbm import LGBMClassifier
        >>> from sklearn.datasets import load_breast_cancer
        >>> from axil import JacobianExplainer
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> y[11:13] = 1 - y[11:13]
        >>> table = JacobianExplainer(LGBMClassifier(n_estimators=20, verbose=-1).fit(X, y), X, y).audit()
        >>> {11, 12} <= set(table["row"].head(5))
        True
        """
        model = self._boosting("audit")
        if not model.meaning:
            raise UnsupportedQuestionError(
                "audit", "it is of classes, counts and amounts", "Use axil.Explainer for squared error."
            )
        if model.classes is None:
            return _numbers(model, out_of_fold, self.index, self._backend)
        labels = _both(model.targets)
        without = model.means(model.fitted - model.pushes.on_itself())
        assert without is not None  # there is a meaning
        if out_of_fold is None:
            found, probabilities = (
                ClassAudit.of_neighbours(labels, around(model, labels)),
                _both(without),
            )
        else:
            probabilities = as_probabilities(out_of_fold, *labels.shape)
            found = ClassAudit.of_probabilities(labels, probabilities)
        columns = found.columns(self.index, model.classes, probabilities)
        return class_table(columns, out_of_fold is not None, self._backend)


def _both(second: Array) -> Array:
    """(N, K): of two classes both columns, where there is one for the second."""
    return np.column_stack([1 - second, second]) if second.shape[1] == 1 else second


def around(model: Boosting, values: Array) -> Array:
    """(N, S): the means of values (N, S) over the other rows in each row's leaves, of the trees of all outputs."""
    walked = model.pushes.walked
    n_leaves = np.diff(walked.starts)
    ones, trees = np.ones(int(walked.starts[-1])), np.ones(len(n_leaves))
    membership = Structure(walked.leaves, n_leaves, ones, ones.copy(), trees, np.zeros(1))
    return around_leaves(membership, model.backend.rows_of(membership), None, values)


def _numbers(model: Boosting, out_of_fold: Any, index: NDArray[Any], backend: str) -> Any:
    """The table for counts and amounts."""
    targets = model.targets
    if out_of_fold is None:
        means = model.means(model.fitted - model.pushes.on_itself())
        assert means is not None
        expected, basis = means, BY_PUSHES
    else:
        n, n_outputs = targets.shape
        expected, basis = inputs.as_table(out_of_fold, n, n_outputs, "out_of_fold"), BY_PREDICTION
    residuals = targets - expected
    columns: dict[str, Any] = {"row": index, "target": targets[:, 0], "expected": expected[:, 0]}
    columns |= {"residual": residuals[:, 0]}
    columns |= Studentised.of(residuals, around(model, np.abs(residuals))).columns("scale")
    return numbers_table(columns, basis, backend)
