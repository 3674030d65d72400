"""Leaf space: the weights' equations among leaves alone, independent of the number of rows.

With C[m, l] the weight of the rows that share leaf m of tree s and leaf l of a later tree t, the adjoints of the leaf sums
(see `operators`) obey

    phi_s = E_s (z_s - sum_{t > s} C_st phi_t),     E_s = eta_s P_s',   z_s one-hot at the query's leaf

so (I + E C) phi = E z: unit upper triangular, of the size of the total number of leaves. It is built once; a batch of queries
is one triangular solve.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas

from axil import _core
from axil.structure import Structure


@dataclass(frozen=True)
class LeafSpace:
    """The factor I + E C of one structure."""

    structure: Structure
    factor: NDArray[np.float64]  #: (L, L), unit upper triangular

    @classmethod
    def build(cls, structure: Structure, n_threads: int) -> LeafSpace:
        """Count co-occurrences over all pairs of trees: O(T^2 N) time, 8 L^2 bytes."""
        s = structure
        factor = np.empty((s.total_leaves, s.total_leaves))
        _core.cooccurrence(s.leaves, s.starts, s.row_weights, factor, n_threads)
        for t in range(s.n_trees):
            own = slice(s.starts[t], s.starts[t + 1])
            factor[own, own.stop :] = s.rates[t] * s.leaf_values_transpose(t, factor[own, own.stop :])
        np.fill_diagonal(factor, 1.0)
        return cls(s, factor)

    @staticmethod
    def size(total_leaves: int) -> int:
        """Bytes that a leaf space of this many leaves takes."""
        return 8 * total_leaves**2

    def adjoints(self, queries: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """(L, n) adjoints of the leaf sums for predictions in these leaves, (n, T). Cost L^2 multiplications a query."""
        s = self.structure
        n = len(queries)
        phi = np.zeros((n, s.total_leaves)).T  # column-major, as BLAS wants it
        for t in range(s.n_trees):
            z = np.zeros((s.n_leaves[t], n))
            z[queries[:, t], np.arange(n)] = 1.0
            phi[s.starts[t] : s.starts[t + 1]] = s.rates[t] * s.leaf_values_transpose(t, z)
        if n and s.total_leaves:
            # the row-major factor is, to BLAS, its own transpose
            phi = blas.dtrsm(1.0, self.factor.T, phi, lower=1, trans_a=1, diag=1, overwrite_b=1)
        return np.ascontiguousarray(phi)
