"""aggregate: sums, means and differences of predictions, and each training row's effect on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from scipy.sparse import csr_array

from axil import inputs
from axil.aliases import ArrayLike, LabelsLike, TableLike
from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError, counted, shown
from axil.explanation import Explanation
from axil.machine.arrays import module_of
from axil.methods.method import ExplainedRows, Method
from axil.replay.queries import Combination
from axil.scale import TargetScale

ROUNDING = 1e-9  # of sums of coefficients


class Aggregate(Method):
    """Provide `Explainer.aggregate`."""

    def aggregate(
        self,
        X: TableLike,
        coefficients: Literal["mean", "sum"] | ArrayLike = "mean",
        *,
        by: LabelsLike | None = None,
        init_score: ArrayLike | None = None,
    ) -> Explanation:
        """Explain sums of predictions: the total of a district, or why A is dearer than B.

        The weights of ``sum_i u_i F(x_i)`` are ``sum_i u_i k(x_i)``. One backward pass through the
        trees computes them for all n rows, so 100,000 rows take little longer than one.
        Contributions and intercepts are computed likewise. The difference of the means of two
        groups of rows is such a sum; its contributions say which training rows make the gap.

        If the model was fitted to logarithms, means are geometric means and differences are ratios.
        The notes of tables and the page say so; axil refuses other sums. For additive models,
        contributions are to sums of scores, which have no probability.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        coefficients : "mean", "sum" or array of shape (m, n) or (n,), default "mean"
            The mean or the sum of the predictions, or the coefficients of m sums of them, such as
            ``[1, -1]`` for the difference of two. The index of a frame names the sums.
        by : sequence of length n, or str, optional
            Labels of the rows of X, or the name of a column: a mean, or a sum, for each of them.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> mean = explainer.aggregate(X, by=X["sex"] > 0)
        >>> mean.query_index.tolist(), mean.weights.shape
        ([False, True], (2, 442))
        >>> gap = explainer.aggregate(X.head(2), [1, -1])
        >>> bool(abs(gap.contributions.sum() + gap.intercepts[0] - gap.predictions[0]) < 1e-9)
        True
        """
        explained = self._explained_rows("aggregate", X, init_score)
        model = explained.model
        n = len(explained)
        if isinstance(coefficients, str):
            if coefficients not in ("mean", "sum"):
                expected = f'"mean", "sum" or numbers, a column for each of the {n} rows of X'
                raise InputError(f"coefficients is {shown(coefficients)}; expected {expected}.")
            matrix, names = _by(explained, by, coefficients)
        else:
            if by is not None:
                raise InputError(
                    'by is for coefficients of "mean" or "sum"; with an array leave it out.'
                )
            matrix, names = _checked_coefficients(coefficients, n)
        check_scale(model.scale, matrix)
        model.require(len(names), "Ask for fewer sums at a time, or raise memory_limit.")
        combination = ExplainedRows(model, Combination(explained.queries, matrix, names))
        (sums,) = combination.whole(max(len(names), 1))
        if not model.scale.is_identity and sums.context is not None:
            words, sentence = _meanings(model.scale, matrix)
            context = replace(sums.context, combined=words)
            sums = replace(sums, note=f"{sums.note}; {sentence}", context=context)
        return Explanation(sums, module_of(X))


def _by(explained: ExplainedRows, by: LabelsLike | None, word: str) -> tuple[csr_array, AnyArray]:
    """Return the coefficients of the mean or sum of the rows of each label, and the labels.

    Parameters
    ----------
    explained : ExplainedRows
        The n explained rows.
    by : labels, str or None
        The label of each row, or the name of a column; None for one sum of all rows.
    word : "mean" or "sum"

    Returns
    -------
    coefficients : csr_array of shape (m, n)
    names : ndarray of shape (m,)
    """
    n = len(explained)
    if not n:
        raise InputError(f"X has no rows, so there is nothing to take the {word} of.")
    codes = np.zeros(n, dtype=np.intp)
    names = np.array([word], dtype=object)
    if by is not None:
        values = inputs.row_values(
            by, explained.queries.rows, explained.model.adapter.feature_names, "by", "explained"
        )
        codes, names = inputs.group_codes(values, n, "by")
    counts = np.bincount(codes, minlength=len(names))
    if word == "mean":
        coefficients = 1.0 / counts[codes]
    else:
        coefficients = np.ones(n)
    return csr_array((coefficients, (codes, np.arange(n))), shape=(len(names), n)), names


def _checked_coefficients(coefficients: Any, n: int) -> tuple[csr_array, AnyArray]:
    """Check the user's own coefficients, and return them, (m, n), with the names of the sums."""
    expected = f"a number for each of the {n} rows of X, ({n},) or (m, {n})"
    if inputs.is_sparse(coefficients):
        dense = coefficients.toarray()
    else:
        dense = coefficients
    numbers = np.atleast_2d(inputs.as_numbers(dense, "coefficients", expected))
    if numbers.ndim != 2 or numbers.shape[1] != n:
        raise InputError(f"coefficients has shape {numbers.shape}; expected {expected}.")
    bad = numbers[~np.isfinite(numbers)]
    if len(bad):
        raise InputError(
            f"coefficients holds {bad[0]}; expected finite numbers, 0 for rows that do not count."
        )
    frame = inputs.as_frame(coefficients)
    if frame is not None:
        names = inputs.row_labels(coefficients)
    else:
        names = np.arange(len(numbers))
    return csr_array(numbers), names


def _meanings(scale: TargetScale, coefficients: csr_array) -> tuple[AnyArray, str]:
    """Return the meaning of each sum in the targets' own units, in words.

    Returns
    -------
    words : ndarray of shape (m,)
        Such as "geometric mean of 4 predictions".
    sentence : str
        All of them in one sentence.
    """
    where = f" on the scale of the fit ({scale.name})"
    if scale.is_log:
        if scale.shift:
            where = f", {scale.shift:g} added to each"
        else:
            where = ""
    parts = np.split(coefficients.data, coefficients.indptr[1:-1])
    kinds = [_kind(scale, row_coefficients) for row_coefficients in parts]
    counts = np.diff(coefficients.indptr)
    words = [
        f"{kind} of {counted(n, 'prediction')}{where}" for kind, n in zip(kinds, counts.tolist())
    ]
    low = counts.min(initial=coefficients.shape[1])
    high = counts.max(initial=0)
    if low >= high:
        number = counted(high, "prediction")
    else:
        number = f"{low} to {high} predictions"
    sentence = f"each prediction is the {' or '.join(dict.fromkeys(kinds))} of {number}{where}"
    return np.array(words, dtype=object), sentence


def _kind(scale: TargetScale, coefficients: FloatArray) -> str:
    """Return the name of a sum with these coefficients.

    They sum to 1, or to 0 for logarithms.
    """
    if scale.is_log:
        mean = "geometric mean"
    else:
        mean = "mean"
    if abs(coefficients.sum()) <= ROUNDING:
        if len(coefficients) == 2:
            return "ratio"
        return f"ratio of {mean}s"
    if np.ptp(coefficients) <= ROUNDING:
        return mean
    return f"weighted {mean}"


def check_scale(scale: TargetScale, coefficients: csr_array) -> None:
    """Raise for sums that have no meaning on the scale of the targets."""
    if scale.is_identity:
        return
    totals = np.asarray(coefficients.sum(axis=1)).ravel()
    is_meaningful = np.abs(totals - 1) <= ROUNDING
    if scale.is_log and not scale.shift:
        is_meaningful |= np.abs(totals) <= ROUNDING
    if not is_meaningful.all():
        total = float(totals[~is_meaningful][0])
        difference = ""
        if scale.is_log and not scale.shift:
            difference = ", or a difference, which is shown as a ratio"
        raise InputError(
            f"The model was fitted to {scale.name} of the targets, and a sum with coefficients "
            f"that add up to {shown(total)} has no meaning in the units of the targets. Take the "
            'mean, which is shown in the targets\' own units, or "mean" by '
            f"groups{difference}."
        )
