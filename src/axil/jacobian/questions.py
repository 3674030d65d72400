"""Questions about the targets of boosted models of any loss: other ones, labels to blame, derivatives by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from axil import inputs
from axil.errors import InputError, UnsupportedQuestionError, counted, shown
from axil.jacobian.boosting import Boosting
from axil.jacobian.rows import RowQuestions, changes
from axil.output import tables
from axil.types import Array


class BoostedQuestions(RowQuestions):
    """Questions that need boosted trees, as methods of `JacobianExplainer`."""

    @inputs.table_first("targets")
    def what_if(self, X: Any, targets: Mapping[Any, Any], init_score: Any = None) -> Any:
        """The scores of X if some training rows, by label, had other targets or classes, structure held fixed.

        Exact, and not linear: the fit is replayed with the new targets, every leaf value computed again from gradients that
        follow them. Splits, rates, draws, sample weights, and which leaves the library set to zero, are held fixed. A frame with
        the columns query, before, after, change, then probability (or mean) before and after, and output if there are several.
        Cost of one replay, O(T N).

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        targets : mapping of row label to target
            The new targets, or classes.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `JacobianExplainer.explain`.
        """
        model, X = self._boosted("what_if", X, init_score)
        changed = changed_targets(model, self.index, targets)
        return what_if(model, X, inputs.row_labels(X), self.outputs, changed, self._backend)

    def derivatives(self, X: Any, output: Any = None, target: Any = None, init_score: Any = None) -> Array:
        """(n, n_train): how the prediction of one class moves with the labels, moved slightly towards a class.

        Entry (i, j) is ``d prediction_i of output / d target_j``, the target being 1 where row j is of class ``target`` and 0
        else; structure held fixed, for small changes. ``explainer(X).weights`` has the blocks whose class is the same on both
        sides. A label that moves from class a to class b has the derivative of b less that of a. One sweep backwards for all
        classes, O(T N K) per row of X.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        output : class or number of an output, optional
            Whose prediction, as ``explainer.outputs`` has it; left out for a model with one output.
        target : class or number of an output, optional
            Whose label; by default all of them: (K, n, n_train) where there are several outputs.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `JacobianExplainer.explain`.

        Examples
        --------
        >>> from lightgbm import LGBMClassifier
        >>> from sklearn.datasets import load_wine
        >>> from axil import JacobianExplainer
        >>> X, y = load_wine(return_X_y=True, as_frame=True)
        >>> explainer = JacobianExplainer(LGBMClassifier(n_estimators=5, verbose=-1).fit(X, y), X, y)
        >>> explainer.derivatives(X.head(2), output=0, target=2).shape
        (2, 178)
        >>> explainer.derivatives(X.head(2), output=0).shape
        (3, 2, 178)
        """
        model, X = self._boosted("derivatives", X, init_score)
        if self.outputs is None:
            if output is not None or target is not None:
                raise InputError("This model has one output: leave output and target out.")
            own, columns = 0, [0]
        else:
            own = self._output(output, "output")
            columns = list(range(len(self.outputs))) if target is None else [self._output(target, "target")]
        n_rows, n_outputs = self._targets.shape
        needed = 8 * X.shape[0] * n_rows * (n_outputs + 2 * len(columns) + 1)
        what = f"The derivatives of {counted(X.shape[0], 'prediction')} by {counted(n_rows, 'training row')}"
        self._budget.require(needed, what, "Ask for fewer rows at a time, or raise memory_limit.")
        found = model.crossed_derivatives(X, own, columns)
        return found if self.outputs is not None and target is None else found[0]

    def _output(self, name: Any, what: str) -> int:
        """The number of an output that the user names."""
        assert self.outputs is not None
        found = inputs.position_of(name, self.outputs.tolist())
        if found is None:
            names = ", ".join(map(shown, self.outputs.tolist()[:5]))
            raise InputError(f"{what} is {shown(name)}; expected one of explainer.outputs: {names}, ...")
        return found

    @property
    def operator(self) -> LinearOperator:
        """J of the training rows as a linear operator: ``operator @ v`` is one walk, ``operator.T @ u`` one sweep backwards."""
        model, n = self._boosting("operator"), len(self._targets)
        if self.outputs is not None:
            raise UnsupportedQuestionError(
                "operator",
                f"this model has {len(self.outputs)} outputs",
                "Use explainer.derivatives(X, output, target) for the blocks that you need.",
            )
        return LinearOperator(
            (n, n),
            matvec=lambda v: model.along(np.reshape(v, n).astype(float)),
            rmatvec=lambda u: model.across(np.reshape(u, n).astype(float)),
            dtype=np.float64,
        )

    def blame(self, X_val: Any, y_val: Any, init_score: Any = None) -> Any:
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
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the validation rows, as in `JacobianExplainer.explain`.
        """
        model, X_val = self._boosted("blame", X_val, init_score)
        return blame(model, X_val, y_val, self.index, self.outputs, self._backend)


def changed_targets(model: Boosting, index: NDArray[Any], targets: Mapping[Any, Any]) -> Array:
    """(N, K): the training targets, or classes, with {row label: new target} in their place."""
    if not hasattr(targets, "items") or len(getattr(targets, "shape", ())) > 1:
        raise InputError(f"targets is a {type(targets).__name__}; expected {{row label: new target, ...}}.")
    labels, values = [label for label, _ in targets.items()], [value for _, value in targets.items()]
    which, rows = inputs.positions(labels, index, "targets")
    made = model.targets.copy()
    if len(rows):
        made[rows] = model.as_targets(values, len(values), "targets", "changed")[which]
    return made


def what_if(
    model: Boosting, X: Any, labels: NDArray[Any], outputs: NDArray[Any] | None, targets: Array, backend: str
) -> Any:
    """The table of `JacobianExplainer.what_if`."""
    leaves, before = model.located(X)
    change = model.refitted(targets).scores(leaves)[0] - model.refitted(model.targets).scores(leaves)[0]
    return changes(model, labels, outputs, before, change, backend)


def blame(model: Boosting, X: Any, y: Any, index: NDArray[Any], outputs: NDArray[Any] | None, backend: str) -> Any:
    """The table of `JacobianExplainer.blame`."""
    if X.shape[0] == 0:
        raise InputError("X_val has no rows; expected validation rows with their targets.")
    if not model.meaning:
        raise UnsupportedQuestionError(
            "blame", "it is of the deviance of classes, counts and amounts", "Use axil.Explainer for squared error."
        )
    gradient = model.validation_gradient(X, model.as_targets(y, X.shape[0], "y_val", "validation"))  # (N, K)
    if model.class_names is None:
        columns: dict[str, Any] = {"row": index, "target": model.targets[:, 0], "gradient": gradient[:, 0]}
        keys = np.abs(gradient[:, 0])
    else:
        columns, keys = _by_class(model, gradient, index)
    order = np.argsort(-keys, kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    return tables.note(tables.make(columns, backend), tables.FIRST_ORDER)


def _by_class(model: Boosting, gradient: Array, index: NDArray[Any]) -> tuple[dict[str, Any], Array]:
    """Columns and gains: the best other class of each row, to first order."""
    names = model.class_names
    assert names is not None
    full = gradient if gradient.shape[1] > 1 else np.column_stack([np.zeros(len(gradient)), gradient])
    targets = model.targets if gradient.shape[1] > 1 else np.column_stack([1 - model.targets, model.targets])
    own = targets.argmax(axis=1)
    every = np.arange(len(own))
    others = full.copy()
    others[every, own] = np.inf
    best = others.argmin(axis=1)
    gain = full[every, own] - full[every, best]
    columns = {"row": index, "target": names[own], "corrected": names[best], "gain": gain}
    return columns, gain
