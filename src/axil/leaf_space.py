"""Leaf space: the weights' equations among leaves alone, independent of the number of rows.

With C[m, l] the weight of the rows that share leaf m of tree s and leaf l of a later tree t, drawn as for t, the adjoints of
the leaf sums (see `operators`) obey

    phi_s = P_s' (omega[T, s] z_s - sum_{t > s} omega[t, s] C_st phi_t),     z_s one-hot at the query's leaf

in plain boosting omega[t, s] = eta_s. So M phi = P' omega z with M unit upper triangular, of the size of the total number of
leaves. It is built once; a batch of queries is one triangular solve.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas
from threadpoolctl import ThreadpoolController

from axil import _core
from axil.structure import Structure

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LeafSpace:
    """The factor M of one structure."""

    structure: Structure
    factor: Array  #: (L, L), unit upper triangular

    @classmethod
    def build(cls, structure: Structure, n_threads: int) -> LeafSpace:
        """Count co-occurrences over all pairs of trees: O(T^2 N) time, 8 L^2 bytes."""
        s = structure
        factor = cooccurrence(s, 0, s.n_trees, n_threads)
        for t in range(s.n_trees):
            own, later = slice(s.starts[t], s.starts[t + 1]), slice(s.starts[t + 1], None)
            if s.coefficients is None:
                coefficient: float | Array = s.rates[t]
            else:
                coefficient = np.repeat(s.coefficients.omega[t + 1 : -1, t], s.n_leaves[t + 1 :])
            factor[own, later] = s.leaf_values_transpose(t, factor[own, later] * coefficient)
        np.fill_diagonal(factor, 1.0)
        return cls(s, factor)

    @staticmethod
    def size(structure: Structure) -> int:
        """Bytes that building a leaf space takes: the factor, and co-occurrences by draws where rows were sampled."""
        draws = len(structure.draws)
        return 8 * structure.total_leaves**2 * (1 if draws == 1 else 1 + draws**2)

    def adjoints(self, alpha: Array) -> Array:
        """(L, n) adjoints of the leaf sums for adjoints of the leaf values. Cost L^2 multiplications a query."""
        s = self.structure
        phi = np.zeros(alpha.shape[::-1]).T  # column-major, as BLAS wants it
        for t in range(s.n_trees):
            own = slice(s.starts[t], s.starts[t + 1])
            phi[own] = s.leaf_values_transpose(t, alpha[own])
        if alpha.size:
            # The row-major factor is, to BLAS, its own transpose. One thread: BLAS's idle ones spin on for a while and would
            # take the cores from the read-out that follows.
            with _blas().limit(limits=1):
                phi = blas.dtrsm(1.0, self.factor.T, phi, lower=1, trans_a=1, diag=1, overwrite_b=1)
        return np.ascontiguousarray(phi)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def cooccurrence(structure: Structure, first: int, last: int, n_threads: int) -> Array:
    """C among trees first..last-1: the weight of the rows in a leaf of one and, drawn, in a leaf of a later one."""
    s = structure
    starts = s.starts[first : last + 1] - s.starts[first]
    draws = len(s.draws)
    by_cells = np.empty((draws * starts[-1], draws * starts[-1]))
    _core.cooccurrence(s.cells[first:last], draws * starts, s.row_weights, by_cells, n_threads)
    if draws == 1:
        return by_cells
    out = np.zeros((starts[-1], starts[-1]))
    for a, b in pairwise(starts):
        rows = by_cells[draws * a : draws * b].reshape(draws, b - a, -1).sum(axis=0)
        for c, d in pairwise(starts):
            if c > a:
                part = rows[:, draws * c : draws * d].reshape(b - a, draws, d - c)
                out[a:b, c:d] = np.tensordot(part, s.draws, (1, 0))
    return out
