"""Questions about the training rows of boosted models of any loss: what they pushed, and scores without them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.errors import InputError, UnsupportedQuestionError
from axil.jacobian import deletions
from axil.jacobian.base import Differentiated
from axil.jacobian.boosting import Boosting
from axil.machine.memory import Budget
from axil.output import tables
from axil.questions.explain import STREAM
from axil.types import Array

REPLAYED = "exact with the fitted structure held fixed: every leaf value is computed again; not a retraining"


class RowQuestions(ABC):
    """Questions about training rows that need boosted trees, as methods of `JacobianExplainer`."""

    index: NDArray[Any]
    targets: Array
    outputs: NDArray[Any] | None
    _model: Differentiated
    _targets: Array
    _budget: Budget
    _backend: str
    _n_threads: int

    @abstractmethod
    def _rows(self, X: Any) -> Any:
        """Rows to explain, checked."""

    @property
    def base(self) -> Array:
        """(K,): the score that every row starts from; with the pushes it adds up to a row's score."""
        return self._boosting("base").pushes.base.copy()

    def pushes(self, X: Any) -> Array:
        """(n, n_train) or (K, n, n_train): what each training row's own gradients put into the score of each row of X.

        ``base + pushes.sum(axis=-1)`` is the model's raw score, exactly, for every loss; it is checked on every use. A push is no
        sensitivity: other rows have their part in a row's gradients. 8 * K * n * n_train bytes.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        """
        model, X = self._boosting("pushes"), self._rows(X)
        size = 8 * X.shape[0] * self._targets.size
        self._budget.require(size, f"The pushes of {len(self.targets)} rows on {X.shape[0]} predictions", STREAM)
        found = model.pushes.dense(model.located(X)[0])
        return found[0] if self.outputs is None else found

    @inputs.table_first("rows")
    def without(self, X: Any, rows: Sequence[Any], init_score: Any = None) -> Any:
        """The scores of X if these training rows, by label, were deleted, all of them at once, structure held fixed.

        Exact, and not linear: the fit is replayed with their weights at zero, every leaf value computed again. Splits, rates,
        draws, all other weights, and which leaves the library set to zero, are held fixed; a leaf that no row is left in adds
        nothing. The columns of `what_if`. Cost of two replays, O(T N), whatever the number of rows.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        rows : sequence of labels, or of n_train truth values
            The training rows to delete, by label as in `what_if`, or marked with True, such as ``branch == "North"``. Of a
            label that several rows share, such as a customer's, all of them are deleted.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `JacobianExplainer.explain`.

        Examples
        --------
        >>> from lightgbm import LGBMClassifier
        >>> from sklearn.datasets import load_breast_cancer
        >>> from axil import JacobianExplainer
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> explainer = JacobianExplainer(LGBMClassifier(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> list(explainer.without(X.head(1), [0, 7, 30]).columns)
        ['query', 'before', 'after', 'change', 'probability before', 'probability after']
        """
        model, X = self._boosted("without", X, init_score)
        kept = replace(self._kept("without"), model=model)
        before, change = deletions.without(kept, X, inputs.named_rows(rows, self.index))
        return changes(kept.model, inputs.row_labels(X), self.outputs, before, change, self._backend)

    def removal(self, X: Any, method: str | None = None) -> Array:
        """(n, n_train), or (K, n, n_train): the change of each score on deleting each training row by itself.

        Exact with the structure held fixed, as `without` is: one replay of the fit per training row, O(T N^2) in all, whatever
        the number of rows of X. Positive: without the row the score would be higher. nan where without the row no weight is left
        at all. 8 * K * n * n_train bytes.

        ``method="first-order"``: ``-w_j dF(x) / dw_j``, a derivative, at the cost of one sweep per row of X. That is also the
        answer, with an `ApproximationWarning`, where replays would take more than some 10 seconds; ``method="exact"`` waits for
        them. Losses without derivatives have exact effects alone. Raw scores, whatever ``output`` is.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        method : "exact", "first-order" or None
            How effects are computed; by default exactly where that takes some 10 seconds at most.

        Examples
        --------
        >>> from lightgbm import LGBMClassifier
        >>> from sklearn.datasets import load_breast_cancer
        >>> from axil import JacobianExplainer
        >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
        >>> explainer = JacobianExplainer(LGBMClassifier(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> effects = explainer.removal(X.head(2))
        >>> change = explainer.without(X.head(2), [7])["change"]
        >>> effects.shape, bool(abs(effects[:, 7] - change).max() < 1e-9)
        ((2, 569), True)
        """
        kept, X = self._kept("removal"), self._rows(X)
        found = deletions.dense(kept, X, deletions.way_of(kept.model, method))
        return found[0] if self.outputs is None else found

    def removal_set(self, X: Any, m: int, *, by: str = "pushes", method: str | None = None) -> Any:
        """Up to m training rows that moved each score furthest in one direction.

        A frame with the columns query, rank, row, push, and output if there are several. The direction is the one in which the m
        largest pushes add up to more. Deleting such rows moves refitted scores further than those of the largest derivatives.
        ``by="effect"``: by the effects of deleting each row by itself (`removal`), in the column effect; ``attrs["axil"]`` says
        whether they are exact or first-order. Streamed: never holds an (n, n_train) array.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        m : int
            The largest number of rows in a set.
        by : "pushes" or "effect"
            What rows are chosen by.
        method : "exact", "first-order" or None
            How effects are computed, as in `removal`.
        """
        kept, X, m = self._kept("removal_set"), self._rows(X), inputs.as_count(m, "m")
        if inputs.as_choice(by, ("pushes", "effect"), "by") == "effect":
            return deletions.removal_set(kept, X, m, deletions.way_of(kept.model, method))
        if method is not None:
            raise InputError('method is for by="effect": pushes are computed in one way. Leave it out.')
        return deletions.removal_set(kept, X, m, deletions.ByPushes())

    def _kept(self, question: str) -> deletions.Kept:
        model = self._boosting(question)
        return deletions.Kept(model, self.index, self.outputs, self._budget, self._backend, self._n_threads)

    def _boosted(self, question: str, X: Any, init_score: Any) -> tuple[Boosting, Any]:
        """The model for the rows of X with these offsets, and the rows, checked."""
        model, rows = self._boosting(question), self._rows(X)
        return model.shifted(model.offsets_of(init_score, rows.shape[0])), rows

    def _boosting(self, question: str) -> Boosting:
        """The model, where it is boosted: what `question` needs."""
        if not isinstance(self._model, Boosting):
            raise UnsupportedQuestionError(
                question,
                "this model is not a sum of steps along gradients",
                "Ask for weights, its derivatives by the targets.",
            )
        return self._model


def changes(
    model: Boosting, labels: NDArray[Any], outputs: NDArray[Any] | None, before: Array, change: Array, backend: str
) -> Any:
    """Scores before and after a change, (n, K) each, and what they stand for."""
    after = before + change
    columns: dict[str, Any] = {"query": np.repeat(labels, before.shape[1])}
    if outputs is not None:
        columns["output"] = np.tile(outputs, len(labels))
    columns |= {"before": before.ravel(), "after": after.ravel(), "change": change.ravel()}
    means = [model.means(scores) for scores in (before, after)]
    for name, found in zip(("before", "after"), means):
        if found is not None:
            columns[f"{model.meaning} {name}"] = found.ravel()
    return tables.note(tables.make(columns, backend), tables.of_class(REPLAYED, model.scored))
