"""Boosting on residuals that are cut off, and the weights that it leads to, in plain NumPy: the oracle for Huber's loss."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def replayed(
    y: Array,
    weights: Array,
    leaves: NDArray[np.integer],  # type: ignore[type-arg]
    rates: Sequence[float],
    delta: float,
    l2: float = 0.0,
    base: float | None = None,
    offsets: Array | float = 0.0,
    newton: bool = False,
    queries: NDArray[np.integer] | None = None,  # type: ignore[type-arg]
) -> tuple[Array, Array, Array]:
    """(n,) predictions, (n, N) weights and (n,) constants of queries in these leaves, tree after tree; leaves are (N, T).

    The base is the mean of the targets where it is not given. ``newton``: rows that are cut off do not count in denominators,
    and a residual of just delta is cut off.
    """
    n, asked = len(y), leaves if queries is None else queries
    mean = np.tile(weights / weights.sum(), (1, 1)) if base is None else np.zeros((1, n))
    start = 0.0 if base is None else base
    K, c = np.repeat(mean, n, axis=0), np.full(n, start) + offsets
    found, constants = np.repeat(mean, len(asked), axis=0), np.full(len(asked), start)
    for leaf, met, rate in zip(leaves.T, asked.T, rates):
        r, made, left = y - K @ y - c, np.eye(n) - K, -c
        off = np.abs(r) >= delta if newton else np.abs(r) > delta
        for number in np.union1d(leaf, met):
            rows, own = leaf == number, met == number
            free, beyond = weights * (rows & ~off), weights * (rows & off)
            total = (free.sum() if newton else weights[rows].sum()) + l2
            if not rows.any() or total == 0:
                continue
            row, constant = (
                rate * free @ made / total,
                rate * (free @ left + delta * beyond @ np.sign(r)) / total,
            )
            K[rows] += row
            c[rows] += constant
            found[own] += row
            constants[own] += constant
    return found @ y + constants, found, constants
