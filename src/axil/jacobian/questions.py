"""Questions about boosted models of any loss, beside explanations: other targets, labels to blame, rows to remove."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from axil import inputs
from axil.errors import InputError, UnsupportedQuestionError
from axil.jacobian.base import Differentiated
from axil.jacobian.boosting import Boosting
from axil.machine.memory import Budget
from axil.output import tables
from axil.questions.explain import STREAM
from axil.questions.removal import SignedSet, set_columns
from axil.types import Array

WHAT_IF = "exact with the fitted structure held fixed: every leaf value is computed again; not a retraining"


class BoostedQuestions(ABC):
    """Questions that need boosted trees, as methods of `JacobianExplainer`."""

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

    def what_if(self, targets: Mapping[Any, Any], X: Any) -> Any:
        """The scores of X if some training rows, by label, had other targets or classes, structure held fixed.

        Exact, and not linear: the fit is replayed with the new targets, every leaf value computed again from gradients that
        follow them. Splits, rates, draws, sample weights, and which leaves the library set to zero, are held fixed. A frame with
        the columns query, before, after, change, then probability (or mean) before and after, and output if there are several.
        Cost of one replay, O(T N).

        Parameters
        ----------
        targets : mapping of row label to target
            The new targets, or classes.
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        """
        model, X = self._boosting("what_if"), self._rows(X)
        changed = changed_targets(model, self.index, targets)
        return what_if(model, X, inputs.row_labels(X), self.outputs, changed, self._backend)

    @property
    def operator(self) -> LinearOperator:
        """J of the training rows as a linear operator: ``operator @ v`` is one walk, ``operator.T @ u`` one sweep backwards."""
        model, n = self._boosting("operator"), len(self._targets)
        if self.outputs is not None:
            raise UnsupportedQuestionError(
                "operator",
                f"this model has {len(self.outputs)} outputs",
                "Use explainer(X).weights for those that you need.",
            )
        return LinearOperator(
            (n, n),
            matvec=lambda v: model.along(np.reshape(v, n).astype(float)),
            rmatvec=lambda u: model.across(np.reshape(u, n).astype(float)),
            dtype=np.float64,
        )

    def blame(self, X_val: Any, y_val: Any) -> Any:
        """Which training labels raise the log-loss, or deviance, on validation rows: to first order, structure held fixed.

        Of classes a frame with the columns row, target, corrected, gain, the largest gain first: by how much the mean loss would
        fall per unit that the row's label moves towards that class. Of other losses row, target and gradient, the derivative of
        the mean loss by the target. One sweep backwards, O(T N K).

        Parameters
        ----------
        X_val : table
            The n validation rows.
        y_val : array of shape (n,)
            Their targets, or classes.
        """
        model, X_val = self._boosting("blame"), self._rows(X_val)
        return blame(model, X_val, y_val, self.index, self.outputs, self._backend)

    def removal_set(self, X: Any, m: int) -> Any:
        """Up to m training rows that pushed each score furthest in one direction, by what they pushed.

        A frame with the columns query, rank, row, push, and output if there are several. The direction is the one in which the m
        largest pushes add up to more. Deleting such rows moves refitted scores further than those of the largest derivatives.
        Streamed: never holds an (n, n_train) array.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        m : int
            The largest number of rows in a set.
        """
        model, X, m = self._boosting("removal_set"), self._rows(X), inputs.as_count(m, "m")
        kept = self.index, self._budget, self._backend, self._n_threads
        return removal_set(model, X, inputs.row_labels(X), self.outputs, m, *kept)

    def _boosting(self, question: str) -> Boosting:
        """The model, where it is boosted: what `question` needs."""
        if not isinstance(self._model, Boosting):
            raise UnsupportedQuestionError(
                question,
                "this model is not a sum of steps along gradients",
                "Ask for weights, its derivatives by the targets.",
            )
        return self._model


def changed_targets(model: Boosting, index: NDArray[Any], targets: Mapping[Any, Any]) -> Array:
    """(N, K): the training targets, or classes, with {row label: new target} in their place."""
    if not hasattr(targets, "items"):
        raise InputError(f"targets is a {type(targets).__name__}; expected {{row label: new target, ...}}.")
    labels, values = [label for label, _ in targets.items()], [value for _, value in targets.items()]
    rows = inputs.positions(labels, index, "targets")
    made = model.targets.copy()
    if len(rows):
        made[rows] = model.as_targets(values, len(values), "targets", "changed")
    return made


def what_if(
    model: Boosting, X: Any, labels: NDArray[Any], outputs: NDArray[Any] | None, targets: Array, backend: str
) -> Any:
    """The table of `JacobianExplainer.what_if`."""
    leaves, before = model.located(X)
    change = model.refitted(targets).scores(leaves) - model.refitted(model.targets).scores(leaves)
    after = before + change
    columns: dict[str, Any] = {"query": np.repeat(labels, before.shape[1])}
    if outputs is not None:
        columns["output"] = np.tile(outputs, len(labels))
    columns |= {"before": before.ravel(), "after": after.ravel(), "change": change.ravel()}
    means = [model.means(scores) for scores in (before, after)]
    for name, found in zip(("before", "after"), means):
        if found is not None:
            columns[f"{model.meaning} {name}"] = found.ravel()
    return tables.note(tables.make(columns, backend), WHAT_IF)


def removal_set(
    model: Boosting,
    X: Any,
    labels: NDArray[Any],
    outputs: NDArray[Any] | None,
    m: int,
    index: NDArray[Any],
    budget: Budget,
    backend: str,
    n_threads: int,
) -> Any:
    """The table of `JacobianExplainer.removal_set`."""
    n, (n_train, n_outputs) = X.shape[0], model.targets.shape
    lines = min(m, n_train) * n_outputs
    size = tables.batch_size(budget, n, lines, 7, model.pushes.bytes_per_query() + 12 * 8 * lines)
    found: list[tuple[Any, Any, NDArray[np.int64], Array]] = []
    for start in range(0, n, size):
        leaves, _ = model.located(inputs.take_rows(X, slice(start, start + size)))
        sets = [SignedSet(len(leaves), m, n_train, n_threads) for _ in range(n_outputs)]
        for first, blocks in model.pushes.blocks(leaves):
            for one, block in zip(sets, blocks):
                one.add(block, first)
        for i in range(len(leaves)):
            for k, one in enumerate(sets):
                found.append((start + i, k if outputs is None else outputs[k], *one.chosen(i)))
    columns = set_columns(found, "push", index, labels, outputs is not None)
    return tables.note(tables.make(columns, backend), tables.ADDITIVE)


def blame(model: Boosting, X: Any, y: Any, index: NDArray[Any], outputs: NDArray[Any] | None, backend: str) -> Any:
    """The table of `JacobianExplainer.blame`."""
    if X.shape[0] == 0:
        raise InputError("X_val has no rows; expected validation rows with their targets.")
    if not model.meaning:
        raise UnsupportedQuestionError(
            "blame", "it is of the deviance of classes, counts and amounts", "Use axil.Explainer for squared error."
        )
    gradient = model.validation_gradient(X, model.as_targets(y, X.shape[0], "y_val", "validation"))  # (N, K)
    if model.classes is None:
        columns: dict[str, Any] = {"row": index, "target": model.targets[:, 0], "gradient": gradient[:, 0]}
        keys = np.abs(gradient[:, 0])
    else:
        columns, keys = _by_class(model, gradient, index)
    order = np.argsort(-keys, kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    return tables.note(tables.make(columns, backend), tables.FIRST_ORDER)


def _by_class(model: Boosting, gradient: Array, index: NDArray[Any]) -> tuple[dict[str, Any], Array]:
    """Columns and gains: the best other class of each row, to first order."""
    assert model.classes is not None
    full = gradient if gradient.shape[1] > 1 else np.column_stack([np.zeros(len(gradient)), gradient])
    targets = model.targets if gradient.shape[1] > 1 else np.column_stack([1 - model.targets, model.targets])
    own = targets.argmax(axis=1)
    every = np.arange(len(own))
    others = full.copy()
    others[every, own] = np.inf
    best = others.argmin(axis=1)
    gain = full[every, own] - full[every, best]
    columns = {"row": index, "target": model.classes[own], "corrected": model.classes[best], "gain": gain}
    return columns, gain
