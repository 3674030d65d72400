"""Comparison of the rows that a model keeps of its fit with the rows given."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from axil.aliases import FeatureTable
from axil.arrays import AnyArray, FloatArray
from axil.errors import ExactnessError

# of a column's range: a transformer may compute the rows it is fitted on otherwise than later ones
SAME = 1e-6
ROUNDING = 1e3  # roundings of the largest value, which a transformer may mix into any column


def check_rows(model_rows: FeatureTable, rows: FeatureTable) -> None:
    """Raise unless the features of rows, (N, p), are those that the model keeps, row by row."""
    if model_rows.shape != rows.shape:
        raise ExactnessError(
            "number of features",
            rows.shape[1],
            model_rows.shape[1],
            "Pass the rows that the model was fitted on.",
        )
    if sparse.issparse(model_rows) or sparse.issparse(rows):
        place = _first_sparse_difference(sparse.csr_matrix(model_rows), sparse.csr_matrix(rows))
    else:
        place = _first_difference(np.asarray(model_rows), np.asarray(rows))
    if place is None:
        return
    dense_rows = _as_dense(rows)
    dense_model_rows = _as_dense(model_rows)
    cause = (
        "The model keeps the rows that it was fitted on, and these are others: pass those of the "
        "fit, in its order."
    )
    if _are_permuted(dense_rows, dense_model_rows):
        cause = (
            "Every feature has the same values as in the fit, so the rows are in another order: "
            "pass them, and their targets, in the order of the fit."
        )
    row, column = place
    place_in_words = f"feature {column} of training row {row} (both from 0)"
    raise ExactnessError(
        place_in_words, float(dense_rows[place]), float(dense_model_rows[place]), cause
    )


def check_targets(model_targets: FloatArray, targets: FloatArray) -> None:
    """Raise unless the targets, both (N, K), are those that the model keeps."""
    slack = SAME * (float(np.abs(model_targets).max(initial=0.0)) or 1.0)
    differ = ~(np.abs(model_targets - targets) <= slack)
    for row, output in np.argwhere(differ)[:1]:
        cause = (
            "The model keeps the targets that it was fitted on, and these are others: pass those "
            "of the fit."
        )
        if _are_permuted(targets, model_targets):
            cause = (
                "The model keeps the same targets in another order: pass y_train in the order of "
                "X_train."
            )
        place_in_words = f"target of training row {row} (from 0)"
        target = float(targets[row, output])
        raise ExactnessError(place_in_words, target, float(model_targets[row, output]), cause)


def _as_dense(rows: FeatureTable) -> AnyArray:
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows)


def _are_permuted(values: AnyArray, other_values: AnyArray) -> bool:
    """Return whether every column has the same values in both, in any order."""
    is_float = values.dtype.kind == "f" and other_values.dtype.kind == "f"
    return bool(
        np.array_equal(np.sort(values, axis=0), np.sort(other_values, axis=0), equal_nan=is_float)
    )


def _first_difference(model_rows: AnyArray, rows: AnyArray) -> tuple[int, int] | None:
    """Return the first place where the two differ; None if they are equal."""
    if model_rows.dtype.kind not in "biuf":
        differ = np.asarray(model_rows != rows)
    else:
        if model_rows.dtype.kind == "b":
            model_rows = model_rows.astype(np.float64)
        rows = rows.astype(model_rows.dtype)  # as the fit rounded them
        with np.errstate(invalid="ignore"):
            spread = np.nanmax(model_rows, axis=0) - np.nanmin(model_rows, axis=0)
            slack = _slack(model_rows.dtype, spread, np.nanmax(np.abs(model_rows)))
            agree = np.abs(np.subtract(model_rows, rows, dtype=np.float64)) <= slack
        agree |= model_rows == rows
        agree |= np.isnan(model_rows) & np.isnan(rows)
        differ = ~agree
    places = np.argwhere(differ)
    if len(places):
        return (int(places[0, 0]), int(places[0, 1]))
    return None


def _first_sparse_difference(
    model_rows: FeatureTable, rows: FeatureTable
) -> tuple[int, int] | None:
    """Return the first place where sparse rows differ; None if they are equal."""
    if model_rows.dtype.kind == "b":
        model_rows = model_rows.astype(np.float64)
    low = np.asarray(model_rows.min(axis=0).toarray()).ravel()
    high = np.asarray(model_rows.max(axis=0).toarray()).ravel()
    largest = float(np.abs(model_rows.data).max(initial=0.0))
    slack = _slack(model_rows.dtype, high - low, largest)
    difference = (model_rows - rows.astype(model_rows.dtype)).tocoo()
    entries = np.flatnonzero(np.abs(difference.data) > slack[difference.col])
    if not len(entries):
        return None
    return int(difference.row[entries[0]]), int(difference.col[entries[0]])


def _slack(dtype: Any, spread: AnyArray, largest: float) -> FloatArray:
    """Return the largest difference of equal rows in each column, (p,)."""
    if np.dtype(dtype).kind == "f":
        rounding = float(np.finfo(dtype).eps)
    else:
        rounding = 0.0
    return np.asarray(SAME * spread.astype(np.float64) + ROUNDING * rounding * float(largest))
