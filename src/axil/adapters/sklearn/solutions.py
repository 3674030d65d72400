"""Linear smoothers: learners whose predictions are ``features(x) @ solution @ y`` with both factors free of the targets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg
from scipy.sparse import csr_array

from axil.arrays import FloatArray


def least_squares(
    X: FloatArray, weights: FloatArray | None, l2: float | FloatArray, intercept: bool
) -> FloatArray:
    """Return the linear map from targets to intercept and coefficients of weighted (ridge) regression.

    With an intercept columns and targets are centred at their weighted means, as the intercept is not penalised.

    Parameters
    ----------
    X : array of shape (N, p)
        The features.
    weights : array of shape (N,), optional
        The sample weights.
    l2 : float, or array of shape (p,)
        The penalty of all coefficients, or of each of them. Where it is infinite, the coefficient is zero. Without any
        penalty the coefficients are those of minimum norm.
    intercept : bool
        Whether there is an intercept.

    Returns
    -------
    array of shape (p + 1, N)
    """
    w = np.ones(len(X)) if weights is None else weights
    root = np.sqrt(w)[:, None]
    centre = w @ X / w.sum() if intercept else np.zeros(X.shape[1])
    Z = (X - centre) * root
    if np.ndim(l2):  # one penalty of 1, once each column is divided by the root of its own
        shrink = 1.0 / np.sqrt(l2)
        coefficients = shrink[:, None] * _ridge(Z * shrink, 1.0)
    else:
        coefficients = _ridge(Z, float(l2))
    coefficients = coefficients * root.T
    if not intercept:
        return np.vstack([np.zeros(len(X)), coefficients])
    mean = w / w.sum()
    coefficients = coefficients - np.outer(coefficients.sum(axis=1), mean)  # centring the targets
    return np.vstack([mean - centre @ coefficients, coefficients])


def _ridge(Z: FloatArray, l2: float) -> FloatArray:
    """Return the map (p, N) from targets to the coefficients of ridge regression without an intercept."""
    if l2 > 0:
        U, s, Vt = linalg.svd(Z, full_matrices=False)
        return np.asarray((Vt.T * (s / (s**2 + l2))) @ U.T)
    return np.asarray(linalg.pinv(Z))


def with_ones(X: FloatArray) -> FloatArray:
    """X with a first column of ones, for the intercept."""
    return np.hstack([np.ones((len(X), 1)), X])


def kernel_ridge(gram: FloatArray, weights: FloatArray | None, l2: float) -> FloatArray:
    """(N, N): from targets to dual coefficients, with the Gram matrix of the training rows."""
    root = np.ones(len(gram)) if weights is None else np.sqrt(weights)
    regular = gram * np.outer(root, root) + l2 * np.eye(len(gram))
    return np.asarray(root[:, None] * linalg.solve(regular, np.diag(root), assume_a="pos"))


def neighbour_weights(
    distances: Any, neighbours: Any, rule: str | Callable[[Any], Any], n_rows: int
) -> csr_array:
    """(n, N): each query's neighbours, weighted equally, by inverse distance or by the user's function, to sum one."""
    data, columns, ends = [], [], [0]
    for distance, found in zip(distances, neighbours):
        weight = np.ones(len(found))
        if rule == "distance":
            near = distance == 0
            weight = near.astype(float) if near.any() else 1.0 / distance
        elif callable(rule):
            with np.errstate(
                divide="ignore", invalid="ignore"
            ):  # one divided by a distance of zero, say
                weight = np.asarray(rule(distance), dtype=float)
        with np.errstate(
            invalid="ignore", divide="ignore"
        ):  # infinite shares, which the caller refuses
            data.append(weight / weight.sum() if len(weight) else weight)
        columns.append(found)
        ends.append(ends[-1] + len(found))
    return csr_array(
        (np.concatenate(data), np.concatenate(columns), ends), shape=(len(data), n_rows)
    )
