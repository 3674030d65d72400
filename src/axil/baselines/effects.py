"""Sums over trees of training rows' effects on their leaves, for BoostIn and LeafInfluence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from axil.baselines.trees import Trees
from axil.types import Array
from axil.weights.residuals import ResidualStep

BLOCK_NUMBERS = 1 << 16  # of scores held at a time, so that they stay in the cache from tree to tree


def add_effects(trees: Trees, table: Array, brings: Callable[[ResidualStep], Array], out: Array) -> None:
    """``out[i, j] += w_j sum_t table[leaf_t(j), i] brings_t(j)`` for all training rows j.

    ``table`` (L, n), ``out`` (n, N); ``brings`` gives (rows,) for one tree and a block of rows. Cost O(T N n).
    """
    n_rows, n = trees.fit.structure.n_rows, table.shape[1]
    size = max(1, BLOCK_NUMBERS // max(n, 1))
    for first in range(0, n_rows, size):
        rows = slice(first, min(first + size, n_rows))
        sums = np.zeros((rows.stop - first, n))
        one = np.empty_like(sums)
        for step in trees.fit.steps(rows):
            np.take(table, step.leaf, axis=0, out=one, mode="clip")  # leaves are in range; this mode takes no copy
            one *= brings(step)[:, None]
            sums += one
        out[:, rows] += (sums * trees.row_weights[rows, None]).T
