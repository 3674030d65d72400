"""Comparison of the rows that a model keeps of its fit with the rows given."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.arrays import FloatArray
from axil.errors import ExactnessError

SAME = 1e-6  # of a column's range: a transformer may compute the rows it is fitted on otherwise than later ones
ROUNDING = 1e3  # roundings of the largest value, which a transformer may mix into any column


def check_rows(kept: Any, given: Any) -> None:
    """Raise unless the features given, (N, p), are those that the model keeps, row by row."""
    shape = given.shape
    if kept.shape != shape:
        raise ExactnessError(
            "number of features",
            shape[1],
            kept.shape[1],
            "Pass the rows that the model was fitted on.",
        )
    if sparse.issparse(kept) or sparse.issparse(given):
        apart = _apart_sparse(sparse.csr_matrix(kept), sparse.csr_matrix(given))
    else:
        apart = _apart(np.asarray(kept), np.asarray(given))
    if apart is None:
        return
    row, column = apart
    dense = [
        part.toarray() if sparse.issparse(part) else np.asarray(part) for part in (given, kept)
    ]
    same = bool(
        np.array_equal(np.sort(dense[0], axis=0), np.sort(dense[1], axis=0), equal_nan=True)
    )
    cause = (
        "Every feature has the same values as in the fit, so the rows are in another order: pass them, and their targets, in the "
        "order of the fit."
        if same
        else "The model keeps the rows that it was fitted on, and these are others: pass those of the fit, in its order."
    )
    what = f"feature {column} of training row {row} (both from 0)"
    raise ExactnessError(what, float(dense[0][row, column]), float(dense[1][row, column]), cause)


def check_targets(kept: FloatArray, given: FloatArray) -> None:
    """Raise unless the targets, both (N, K), are those that the model keeps."""
    slack = SAME * (float(np.abs(kept).max(initial=0.0)) or 1.0)
    apart = np.argwhere(~(np.abs(kept - given) <= slack))
    for row, output in apart[:1]:
        same = bool(np.array_equal(np.sort(kept, axis=0), np.sort(given, axis=0)))
        cause = (
            "The model keeps the same targets in another order: pass y_train in the order of X_train."
            if same
            else "The model keeps the targets that it was fitted on, and these are others: pass those of the fit."
        )
        what = f"target of training row {row} (from 0)"
        raise ExactnessError(what, float(given[row, output]), float(kept[row, output]), cause)


def _apart(kept: NDArray[Any], given: NDArray[Any]) -> tuple[int, int] | None:
    """The first place where the two differ."""
    if kept.dtype.kind not in "biuf":
        differ = np.asarray(kept != given)
    else:
        kept = kept.astype(np.float64) if kept.dtype.kind == "b" else kept
        given = given.astype(kept.dtype)  # as the fit rounded them
        with np.errstate(invalid="ignore"):
            low, high, largest = (
                np.nanmin(kept, axis=0),
                np.nanmax(kept, axis=0),
                np.nanmax(np.abs(kept)),
            )
            close = np.abs(np.subtract(kept, given, dtype=np.float64)) <= _slack(
                kept.dtype, high - low, largest
            )
        differ = ~(close | ((kept == given) | (np.isnan(kept) & np.isnan(given))))
    found = np.argwhere(differ)
    return None if not len(found) else (int(found[0, 0]), int(found[0, 1]))


def _apart_sparse(kept: Any, given: Any) -> tuple[int, int] | None:
    """Comparison of sparse rows."""
    kept = kept.astype(np.float64) if kept.dtype.kind == "b" else kept
    low, high = (
        np.asarray(side.toarray()).ravel() for side in (kept.min(axis=0), kept.max(axis=0))
    )
    largest = float(np.abs(kept.data).max(initial=0.0))
    difference = (kept - given.astype(kept.dtype)).tocoo()
    far = np.flatnonzero(
        np.abs(difference.data) > _slack(kept.dtype, high - low, largest)[difference.col]
    )
    return None if not len(far) else (int(difference.row[far[0]]), int(difference.col[far[0]]))


def _slack(dtype: Any, spread: NDArray[Any], largest: float) -> FloatArray:
    """(p,): how far apart equal rows may be."""
    rounding = float(np.finfo(dtype).eps) if np.dtype(dtype).kind == "f" else 0.0
    return np.asarray(SAME * spread.astype(np.float64) + ROUNDING * rounding * float(largest))
