"""Comparisons of predictions and scores with those of the fitted model, once its leaves agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from typing import NoReturn

import numpy as np

from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import Adapter, Model
from axil.aliases import FeatureTable
from axil.arrays import AnyArray, FloatArray, IntArray, LeafArray
from axil.errors import ExactnessError
from axil.inputs import take_rows
from axil.replay.replayed_stages import leaf_scores
from axil.replay.verification import Verification

# The library predicts some training rows. For all others its leaf values are added up.
CHECKED_ROWS = 1000
COMPARED_ROWS = 1 << 16  # whose errors are in memory at a time
FAR_OFF = (
    "This row is far from all training rows, and the fit kept rounding errors that grow with the "
    "distance, as happens if columns vary little relative to their size. Centre and scale the "
    "columns, and fit again."
)  # for smoothers alone: trees do not extrapolate


@dataclass(frozen=True)
class Miss:
    """The largest difference between two predictions of the same rows."""

    error: float
    row: int
    found: float
    expected: float


def checked_rows(n_rows: int) -> IntArray:
    """Return the training rows, evenly spread, that the library predicts for the comparison."""
    return np.arange(0, n_rows, -(-n_rows // CHECKED_ROWS))


def with_predictions(
    model: Model,
    X: FeatureTable,
    rows: IntArray,
    offsets: FloatArray | None,
    score: FloatArray,
    outputs: slice,
) -> FloatArray:
    """Return predictions (N, K): those of the library for some rows, otherwise sums of leaf values.

    The result is ``score``, the sums of leaf values, overwritten at these ``rows``.
    """
    score[rows] = model.predictions(take_rows(X, rows))[:, outputs]
    if offsets is not None:
        score[rows] += offsets[rows]
    return score


def furthest(found: FloatArray, expected: FloatArray) -> Miss:
    """Return the largest difference of predictions (N, K); nan counts as the largest."""
    misses = []
    for start in range(0, max(len(found), 1), COMPARED_ROWS):
        rows = slice(start, start + COMPARED_ROWS)
        misses.append(_furthest_of_block(found[rows], expected[rows], start))
    return reduce(worse, misses)


def _furthest_of_block(found: FloatArray, expected: FloatArray, start: int) -> Miss:
    """Return the largest difference in a block of rows that begins at row ``start``."""
    errors = np.abs(found - expected)
    place = np.unravel_index(int(errors.argmax()), errors.shape)  # nan before all others
    row = start + int(place[0])
    return Miss(float(errors[place]), row, float(found[place]), float(expected[place]))


def worse(first: Miss, second: Miss) -> Miss:
    """Return the larger miss; nan is the largest."""
    return max(first, second, key=lambda miss: np.nan_to_num(miss.error, nan=np.inf))


def check_predictions(model: Model, miss: Miss, allowed: float) -> None:
    """Raise if predictions of training rows differ from the model's by more than the tolerance."""
    if not miss.error <= allowed:
        _refuse_prediction(model, miss, "prediction")


def _refuse_prediction(model: Model, miss: Miss, quantity: str) -> NoReturn:
    """Raise `ExactnessError`: the prediction or the score of a training row differs."""
    of_row = f"{quantity} of training row {miss.row} (from 0)"
    raise ExactnessError(of_row, miss.found, miss.expected, model.causes("values"))


def check_scores(
    adapter: Adapter, X: FeatureTable, fit: BoostedFit, leaves: LeafArray
) -> tuple[float, float | None]:
    """Compare sums of leaf values of training rows with the scores that the library gives.

    Parameters
    ----------
    leaves : array of shape (T, N)

    Returns
    -------
    error : float
        The largest difference, relative to the largest score.
    rounding_error : float or None
        The same of sums in float64, such as contributions add up to, where the library adds in
        single precision.
    """
    rows = checked_rows(leaves.shape[1])
    expected = adapter.scores(take_rows(X, rows))
    if fit.placement is None:
        leaves_of_rows = leaves[:, rows].T
    else:
        leaves_of_rows = adapter.coordinates(take_rows(X, rows))
    scale = float(np.abs(expected).max()) or 1.0
    miss = furthest(leaf_scores(fit, leaves_of_rows, rounded=True), expected)
    error = check_score(adapter, replace(miss, row=int(rows[miss.row])), scale)
    if fit.score_precision is np.float64:
        return error, None
    return error, furthest(leaf_scores(fit, leaves_of_rows), expected).error / scale


def check_score(adapter: Adapter, miss: Miss, scale: float) -> float:
    """Raise if the score of a training row is further from the model's than allowed.

    Returns
    -------
    float
        The difference, relative to ``scale``.
    """
    error = miss.error / scale
    if not error <= adapter.gradient_tolerance:
        _refuse_prediction(adapter, miss, "score")
    return error


def check_answer(
    verification: Verification | None,
    predictions: FloatArray,
    labels: AnyArray,
    model_predictions: Callable[[], FloatArray],
    sizes: FloatArray | float = 1.0,
) -> FloatArray | None:
    """Compare predictions that weights make of the targets with the model's, on every use.

    Parameters
    ----------
    predictions : array of shape (n, K)
    labels : array of shape (n,)
        The names of the rows, for messages.
    model_predictions : callable
        Returns the model's own predictions (n, K).
    sizes : array of shape (n, 1) or float
        The numbers that errors of sums of predictions count by.

    Returns
    -------
    array of shape (n, K) or None
        The model's own predictions; None if nothing is compared.
    """
    if verification is None or not len(predictions):
        return None
    expected = model_predictions()
    miss = furthest(predictions / sizes, expected / sizes)
    scale = max(verification.scale, float(np.abs(expected / sizes).max()))
    if not miss.error <= verification.tolerance * scale + verification.rounding:
        cause = "The model may have changed since the explainer was made: make a new one."
        if not verification.n_trees:
            cause = f"{FAR_OFF}\n{cause}"
        raise ExactnessError(
            f"prediction of row {labels[miss.row]}", miss.found, miss.expected, cause
        )
    return expected
