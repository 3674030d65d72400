"""Derivatives and gradient contributions of all training rows, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator

from axil import inputs
from axil.aliases import ArrayLike, TableLike
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.attribution import DERIVATIVES, WEIGHTS
from axil.errors import InputError, counted, shown
from axil.machine.progress import track
from axil.methods.explain import STREAM
from axil.methods.kinds import differentiated, exact_model, linear_map
from axil.methods.method import ExplainedRows, Method
from axil.methods.removal import dense

FEWER = "Explain fewer rows at a time, or raise memory_limit."
COLUMNS = 32  # training rows whose weights are computed together
COPIES = 4  # of their columns while the fit is replayed


class Jacobian(Method):
    """Derivatives of predictions as arrays; ``explainer.jacobian`` makes it.

    K is the matrix of the training rows' weights in their own predictions, and J that of the
    derivatives of predictions by targets, which is K for exact models.
    """

    def matrix(self) -> FloatArray:
        """Return K, the weights of all training rows in the predictions of the training rows.

        Returns
        -------
        array of shape (n_train, n_train), or (n_train, K, n_train)
            Row i has the weights of the prediction of training row i. The axis of length K is there
            where outputs have trees of their own.
        """
        model = self._answering("jacobian.matrix")
        n = model.shape[0]
        model.require(n, STREAM)
        engines = exact_model(model.ready(WEIGHTS, n)).engines
        weights: list[FloatArray] = [engine.weight_rows(None).dense() for engine in engines]
        if len(weights) == 1:
            return weights[0]
        return np.stack(weights, axis=1)

    @property
    def operator(self) -> LinearOperator:
        """K as a linear operator.

        ``operator @ v`` replays the fit with v for targets, and ``operator.T @ u`` is K'u. For
        other explainers it is J, the derivatives of the training rows' predictions by all targets:
        one walk, and one backward pass. Where K outputs have trees of their own, or scores of
        classes that move with the labels of all, its size is n_train * K, for targets (n_train, K)
        row after row.
        """
        model = self._answering("jacobian.operator")
        n, n_outputs = model.shape
        matvec = partial(_by_row, linear_map(model).times, n)
        rmatvec = partial(_by_row, linear_map(model).times_transposed, n)
        if model.names.outputs is not None and not model.weight_layout.is_shared:
            shape = (n * n_outputs, n * n_outputs)
            return LinearOperator(shape, matvec=matvec, rmatvec=rmatvec, dtype=np.float64)
        return LinearOperator(
            (n, n),
            matvec=matvec,
            rmatvec=rmatvec,
            matmat=matvec,
            rmatmat=rmatvec,
            dtype=np.float64,
        )

    def derivatives(
        self,
        X: TableLike,
        output: Any = None,
        *,
        target: Any = None,
        init_score: ArrayLike | None = None,
    ) -> FloatArray:
        """Return the derivatives of the prediction of one class by the labels, (n, n_train).

        Entry (i, j) is ``d prediction_i of output / d target_j``, where the target is 1 if row j is
        of class ``target`` and 0 else. The derivatives are for small changes, with the tree
        structure fixed. ``explainer(X).weights`` has the blocks whose class is the same on both
        sides. A label that moves from class a to class b has the derivative of b less that of a.
        One backward pass serves all classes, O(T N K) per row of X.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        output : class or number of an output, optional
            Whose prediction, as ``explainer.outputs`` has it. Leave it out for a model with one
            output.
        target : class or number of an output, optional
            Whose label. By default the answer has all of them, (n, K, n_train), where there are
            several outputs.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.

        Examples
        --------
        >>> from lightgbm import LGBMClassifier
        >>> from sklearn.datasets import load_wine
        >>> from axil import Explainer
        >>> X, y = load_wine(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMClassifier(n_estimators=5, verbose=-1).fit(X, y), X, y)
        >>> explainer.jacobian.derivatives(X.head(2), output=0, target=2).shape
        (2, 178)
        >>> explainer.jacobian.derivatives(X.head(2), output=0).shape
        (2, 3, 178)
        """
        request = self._explained_rows("jacobian.derivatives", X, init_score)
        model = request.model
        if model.names.outputs is None:
            if output is not None or target is not None:
                raise InputError("This model has one output: leave output and target out.")
            scored = 0
            labels = [0]
        else:
            scored = _output(model.names.outputs, output, "output")
            if target is None:
                labels = list(range(len(model.names.outputs)))
            else:
                labels = [_output(model.names.outputs, target, "target")]
        n_outputs = model.shape[1]
        _require_memory(request, 8 * model.shape[0] * (n_outputs + 2 * len(labels) + 1))
        queries = differentiated(model, request.queries)
        by_label = queries.crossed_derivatives(request.queries.rows, scored, labels)
        if model.names.outputs is not None and target is None:
            return np.swapaxes(by_label, 0, 1)
        return np.asarray(by_label[0])

    def by_sample_weight(self, X: TableLike, *, init_score: ArrayLike | None = None) -> FloatArray:
        """Return the derivatives of predictions by the sample weight of each training row.

        ``-weight * derivative`` is the first-order effect of leaving the row out, with the tree
        structure fixed. If boosted trees have a ``class_weight``, the weight is the product of that
        of the class and that of the row.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`, for boosted trees only.

        Returns
        -------
        array of shape (n, n_train) or (n, K, n_train)
        """
        request = self._explained_rows("jacobian.by_sample_weight", X, init_score)
        model = request.model
        _require_memory(request, model.bytes_per_query(DERIVATIVES))
        queries = differentiated(model, request.queries)
        derivatives = queries.weight_derivatives(request.queries.rows)
        if model.is_reflected:
            derivatives = -derivatives
        if model.names.outputs is None:
            return np.asarray(derivatives[0])
        return np.swapaxes(derivatives, 0, 1)

    def sensitivity(
        self, X: TableLike, rows: Sequence[Any], *, init_score: ArrayLike | None = None
    ) -> FloatArray:
        """Return how much each prediction moves per unit of the targets of some training rows.

        These are columns of K, ``explainer(X).weights[..., rows]`` without the other weights: they
        say whom a training row moves. They are exact with the tree structure fixed.

        Parameters
        ----------
        X : table
            The n rows to explain.
        rows : sequence of labels, or of n_train truth values
            The training rows, by label as in `what_if`, or marked with True.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.

        Returns
        -------
        array of shape (n, rows), or (n, K, rows) where outputs have trees of their own
            One replay of the fit for each row named, O(T (N + n)), 32 of them together.
        """
        request = self._explained_rows("jacobian.sensitivity", X, init_score)
        model = exact_model(request.model)
        positions: IntArray = model.training.positions(rows)
        n = len(request)
        n_train = model.shape[0]
        array = 8 * n * len(positions) * len(model.engines)
        working = COPIES * 8 * COLUMNS * (n + n_train)
        instead = "Name fewer rows of X or fewer training rows at a time, or raise memory_limit."
        model.budget.require(
            array + working, f"The weights of {n} x {len(positions)} rows", instead
        )
        model.predicted(request.queries)  # compares them with the model
        coordinates = request.queries.coordinates
        base = request.queries.offsets.base
        weights = np.empty((n, len(model.engines), len(positions)))
        for start in track(range(0, len(positions), COLUMNS), "sensitivity"):
            batch = positions[start : start + COLUMNS]
            units = np.zeros((n_train, len(batch)))
            units[batch, np.arange(len(batch))] = 1.0
            for k, engine in enumerate(model.engines):
                columns = engine.matvec(coordinates, units, base)
                weights[:, k, start : start + len(batch)] = columns
        if len(model.engines) == 1:
            return weights[:, 0]
        return weights

    def gradient_contributions(self, X: TableLike) -> FloatArray:
        """Return each training row's contribution to each score, through the steps of the trees.

        The contribution of row j to the prediction of x is the sum over trees t of ``rate_t w_j
        b_tj r_tj [leaf_t(j) = leaf_t(x)] / (W + l2)``, with r_tj the residual of row j before tree
        t. For an additive explainer these are the contributions of `explain`. A contribution is no
        sensitivity, because other rows have their part in the residuals of a row. The array takes 8
        * K * n * n_train bytes.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.

        Returns
        -------
        array of shape (n, n_train) or (n, K, n_train)
        """
        return dense(self._explained_rows("jacobian.gradient_contributions", X), None, True)


def _require_memory(request: ExplainedRows, bytes_per_row: int) -> None:
    """Raise `InputError` unless derivatives of all rows of a request fit into memory."""
    n = len(request)
    n_train = request.model.shape[0]
    name = f"The derivatives of {counted(n, 'prediction')} by {counted(n_train, 'training row')}"
    request.model.budget.require(n * bytes_per_row, name, FEWER)


def _by_row(multiply: Callable[[FloatArray], FloatArray], n: int, values: Any) -> FloatArray:
    """Return the product with numbers of n rows, row after row."""
    columns = np.ascontiguousarray(np.reshape(values, (n, -1)), dtype=np.float64)
    return multiply(columns).reshape(np.shape(values))


def _output(names: AnyArray, name: object, parameter: str) -> int:
    """Return the number of the output that the user names."""
    number = inputs.position_of(name, names.tolist())
    if number is None:
        listed = ", ".join(map(shown, names.tolist()[:5]))
        raise InputError(
            f"{parameter} is {shown(name)}; expected one of explainer.outputs: {listed}, ..."
        )
    return number
