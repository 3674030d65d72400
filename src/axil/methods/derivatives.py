"""derivatives, weight_derivatives, matrix and operator: how predictions move with targets and weights, as arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from axil import inputs
from axil.arrays import FloatArray
from axil.attribution import DERIVATIVES, WEIGHTS
from axil.errors import InputError, counted, shown
from axil.methods.explain import STREAM
from axil.methods.question import Question

FEWER = "Ask for fewer rows at a time, or raise memory_limit."


class Derivatives(Question):
    """The questions, as methods of `Explainer`."""

    def derivatives(
        self, X: Any, output: Any = None, target: Any = None, init_score: Any = None
    ) -> FloatArray:
        """(n, n_train): how the prediction of one class moves with the labels, moved slightly towards a class.

        Entry (i, j) is ``d prediction_i of output / d target_j``, the target being 1 where row j is
        of class ``target`` and 0 else; structure held fixed, for small changes.
        ``explainer(X).weights`` has the blocks whose class is the same on both sides. A label that
        moves from class a to class b has the derivative of b less that of a. One sweep backwards
        for all classes, O(T N K) per row of X.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        output : class or number of an output, optional
            Whose prediction, as ``explainer.outputs`` has it; left out for a model with one output.
        target : class or number of an output, optional
            Whose label; by default all of them: (n, K, n_train) where there are several outputs.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.

        Examples
        --------
        >>> from lightgbm import LGBMClassifier
        >>> from sklearn.datasets import load_wine
        >>> from axil import Explainer
        >>> X, y = load_wine(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMClassifier(n_estimators=5, verbose=-1).fit(X, y), X, y)
        >>> explainer.derivatives(X.head(2), output=0, target=2).shape
        (2, 178)
        >>> explainer.derivatives(X.head(2), output=0).shape
        (2, 3, 178)
        """
        asked = self._ask("derivatives", X, init_score)
        model, n = asked.model, len(asked)
        if model.outputs is None:
            if output is not None or target is not None:
                raise InputError("This model has one output: leave output and target out.")
            own, columns = 0, [0]
        else:
            own = _output(model, output, "output")
            columns = (
                list(range(len(model.outputs)))
                if target is None
                else [_output(model, target, "target")]
            )
        n_rows, n_outputs = model.shape
        what = f"The derivatives of {counted(n, 'prediction')} by {counted(n_rows, 'training row')}"
        model.budget.require(8 * n * n_rows * (n_outputs + 2 * len(columns) + 1), what, FEWER)
        found = model.asked_of(asked.queries).crossed_derivatives(asked.queries.rows, own, columns)
        return (
            np.swapaxes(found, 0, 1) if model.outputs is not None and target is None else found[0]
        )

    def weight_derivatives(self, X: Any, init_score: Any = None) -> FloatArray:
        """(n, n_train) or (n, K, n_train): how predictions move with each row's sample weight.

        ``-weight * derivative`` is the first-order effect of leaving the row out, the structure held fixed. Where boosted trees
        have a ``class_weight``, the weight is the product of that of the class and that of the row.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`. Of boosted trees only.
        """
        asked = self._ask("weight_derivatives", X, init_score)
        model = asked.model
        what = f"The derivatives of {counted(len(asked), 'prediction')} by {model.shape[0]} training rows"
        model.budget.require(len(asked) * model.bytes_per_query(DERIVATIVES), what, FEWER)
        found = model.asked_of(asked.queries).weight_derivatives(asked.queries.rows)
        return found[0] if model.outputs is None else np.swapaxes(found, 0, 1)

    def matrix(self) -> FloatArray:
        """K (n_train, n_train), or (n_train, K, n_train): row i has the weights of the prediction of training row i."""
        self._model.capabilities.require("matrix")
        model, n = self._model, self._model.shape[0]
        model.require(n, STREAM)
        weights = [engine.weight_rows(None).dense() for engine in model.ready(WEIGHTS, n).engines]
        return weights[0] if len(weights) == 1 else np.stack(weights, axis=1)

    @property
    def operator(self) -> LinearOperator:
        """K as a linear operator: ``operator @ v`` replays the fit with v for targets, ``operator.T @ u`` is K'u.

        Of other explainers the derivatives J of the training rows' predictions by all targets: one
        walk, and one sweep backwards. Where K outputs have trees of their own, or scores of classes
        that move with the labels of all, it is of size n_train * K, for targets (n_train, K) row
        after row.
        """
        model = self._model
        model.capabilities.require("operator")
        n, n_outputs = model.shape
        several = model.outputs is not None and not model.shares_weights
        if several:
            size = n * n_outputs
        else:
            size = n
        times = partial(_by_row, model.times, n)
        transposed = partial(_by_row, model.times_transposed, n)
        if several:
            together = {}
        else:
            together = {"matmat": times, "rmatmat": transposed}
        return LinearOperator(
            (size, size), matvec=times, rmatvec=transposed, dtype=np.float64, **together
        )


def _by_row(multiply: Callable[[FloatArray], FloatArray], n: int, values: Any) -> FloatArray:
    """The product with numbers of n rows, row after row."""
    columns = np.ascontiguousarray(np.reshape(values, (n, -1)), dtype=np.float64)
    return multiply(columns).reshape(np.shape(values))


def _output(model: Any, name: Any, what: str) -> int:
    """The number of an output that the user names."""
    found = inputs.position_of(name, model.outputs.tolist())
    if found is None:
        names = ", ".join(map(shown, model.outputs.tolist()[:5]))
        raise InputError(
            f"{what} is {shown(name)}; expected one of explainer.outputs: {names}, ..."
        )
    return found
