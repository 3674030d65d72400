"""The leaf matrix: the weights' equations among leaves alone, independent of the number of rows.

With C[m, l] the weight of the rows that share leaf m of tree s and leaf l of a later tree t, drawn
as for t, the adjoints of the leaf sums (see `boosting`) obey

    phi_s = P_s' (omega[T, s] z_s - sum_{t > s} omega[t, s] C_st phi_t),     z_s one-hot at the query's leaf

in plain boosting omega[t, s] = eta_s. So M phi = P' omega z with M unit upper triangular, of the
size of the total number of leaves. It is built once. A batch of queries is one triangular solve;
or, with the inverse of M in its place (`inverted`), a query is a sum of T of its rows. A the leaf
matrix never changes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.arrays import FloatArray
from axil.kernels import Backend, Rows, Triangle
from axil.machine.arrays import host, like
from axil.machine.threads import one_blas_thread
from axil.structure import Structure
from axil.weights.answers import dense

# leaves up to which the inverse is made for any number of queries: 512 MiB and some seconds
INVERTED = 8192
LOOKED_UP = 2048  # queries whose adjoints are looked up at a time
# trees with a rate of their own that are corrected for; more of them, and the table is scaled as a
# whole
FEW_RATES = 8
ABREAST = 8  # trees whose adjoints are looked up together


class LeafMatrix:
    """The factor M of one structure, or its inverse."""

    def __init__(
        self,
        structure: Structure,
        factor: Any,
        backend: Backend,
        pulled: FloatArray | None = None,
        responses: Any = None,
        inverts: bool | None = None,
    ):
        """Takes over ``factor`` (L, L), unit upper triangular; None: the identity, as for trees that do not see each other.

        ``pulled`` (L, 1): what the shifts of all earlier trees take from each leaf's sum, where there are shifts.
        ``responses`` (L, L), where they are known, stand for the factor in `adjoints`, not in `leaf_values` of shifted leaves.
        ``inverts``: whether the inverse takes the factor's place; by default up to `INVERTED` leaves.
        """
        self.structure = structure
        self._pulled = pulled
        self.backend = backend
        if factor is None:
            triangle = None
        else:
            triangle = backend.triangle(factor)
        if inverts is None:
            wanted = self.inverts(structure)
        else:
            wanted = inverts
        if wanted:
            self._triangle: Triangle | None = None
        else:
            self._triangle = triangle
        if triangle and wanted:
            self._table = _responses(structure, triangle.inverse(overwrite=True))
        else:
            self._table = responses

    @classmethod
    def build(
        cls, structure: Structure, backend: Backend, rows: Rows, inverts: bool | None = None
    ) -> LeafMatrix:
        """Counts co-occurrences over all pairs of trees: O(T^2 N) time, 8 L^2 bytes."""
        return cls.of(
            structure, cooccurrence(structure, rows, 0, structure.n_trees), backend, inverts
        )

    @classmethod
    def of(
        cls, structure: Structure, together: Any, backend: Backend, inverts: bool | None = None
    ) -> LeafMatrix:
        """Starts from co-occurrences over all rows, (L, L), which are overwritten; the rows themselves are not needed."""
        s = structure
        factor = together
        if s.linear_leaves.shift is None:
            pulled = None
        else:
            pulled = np.zeros((s.total_leaves, 1))
        for t in range(s.n_trees):
            own = slice(s.starts[t], s.starts[t + 1])
            later = slice(s.starts[t + 1], None)
            if s.coefficients is None:
                coefficient: Any = float(s.learning_rates[t])
            else:
                coefficient = like(
                    np.repeat(s.coefficients.omega[t + 1 : -1, t], s.n_leaves[t + 1 :]), factor
                )
            scaled = factor[own, later] * coefficient
            if pulled is not None and s.linear_leaves.shift is not None:
                pulled[later, 0] += host(scaled.T @ like(s.linear_leaves.shift[own], factor))
            factor[own, later] = s.leaf_values_transpose(t, scaled)
        np.fill_diagonal(factor, 1.0)
        return cls(s, factor, backend, pulled, inverts=inverts)

    def inverted(self) -> LeafMatrix:
        """This the leaf matrix with the inverse of its factor in the factor's place, in L^3 / 6 multiplications."""
        if self._table is not None or self._triangle is None:
            return self
        return LeafMatrix(self.structure, None, self.backend, self._pulled, self.responses)

    @staticmethod
    def inverts(structure: Structure) -> bool:
        """Whether the inverse is made for any number of queries."""
        return structure.total_leaves <= INVERTED

    @staticmethod
    def size(structure: Structure) -> int:
        """Bytes that building a leaf matrix takes: the factor, and co-occurrences by draws where rows were sampled."""
        if structure.counts_by_leaf:
            draws = 1
        else:
            draws = len(structure.sample_counts)
        return 8 * structure.total_leaves**2 * (1 if draws == 1 else 1 + draws**2)

    @one_blas_thread()
    def adjoints(self, queries: NDArray[np.integer[Any]]) -> Any:
        """(L, n) adjoints of the leaf sums for predictions in these leaves, (n, T).

        Sums of T rows of `responses`; or a solve of L^2 / 2 multiplications per query, where they
        are not kept.
        """
        if self._table is not None:
            return self._look_up(queries)
        return self._solve(asked(self.structure, queries, self.backend.xp))

    @one_blas_thread()
    def adjoints_of(self, alpha: FloatArray) -> Any:
        """(L, n) adjoints of the leaf sums for any adjoints of the leaf values, (L, n). Cost L^2 multiplications each."""
        alpha = self.backend.xp.asarray(alpha)
        if self._table is None:
            return self._solve(alpha)
        return self._table.T @ alpha

    @one_blas_thread()
    def leaf_values(self, sums: FloatArray, base: FloatArray) -> FloatArray:
        """(L, S): the leaf values, before the rates, of a fit to targets, from the targets' sums over the leaves, (L, S), alone.

        The fit starts from ``base`` (S,). ``M' sigma = sums - base's share of them``, where sigma
        are the sums of the residuals that each tree sees: the targets less what the trees before it
        predict. Cost L^2 multiplications per column.
        """
        s = self.structure
        sums = sums - np.outer(s.initial_in_sums, base)
        if self._pulled is not None:
            sums -= self._pulled
        if self._table is not None:
            values = host(self._table @ like(sums, self._table))
        else:
            if self._triangle is not None:
                self._triangle.solve(sums, transposed=True)
            trees = [
                s.leaf_values(t, sums[first:last])
                for t, (first, last) in enumerate(pairwise(s.starts))
            ]
            values = np.ascontiguousarray(np.concatenate(trees))
        if s.linear_leaves.shift is None:
            return values
        return values + s.linear_leaves.shift[:, None]

    @property
    def responses(self) -> Any:
        """(L, L), an array of the back end: row l has the adjoints of the leaf sums for that of leaf value l.

        Made again each time unless the inverse has taken the factor's place.
        """
        if self._table is not None:
            return self._table
        xp = self.backend.xp
        triangle = self._triangle
        if triangle is None:
            inverse = xp.eye(self.structure.total_leaves)
        else:
            inverse = triangle.inverse(overwrite=False)
        return _responses(self.structure, inverse)

    def _solve(self, alpha: Any) -> Any:
        s = self.structure
        phi = np.empty_like(alpha)
        for t in range(s.n_trees):
            own = slice(s.starts[t], s.starts[t + 1])
            phi[own] = s.leaf_values_transpose(t, alpha[own])
        if self._triangle is not None:
            self._triangle.solve(phi, transposed=False)
        return phi

    def _look_up(self, queries: NDArray[np.integer[Any]]) -> Any:
        s = self.structure
        table = self._table
        rate = float(self.structure.final[-1])
        xp = self.backend.xp
        assert table is not None
        others = np.flatnonzero(s.final != rate)  # often one: a first tree whose rate was recovered
        if len(others) > FEW_RATES:
            table = table * xp.asarray(np.repeat(s.final, s.n_leaves)[:, None])
            rate = 1.0
            others = others[:0]
        phi = xp.empty((s.total_leaves, len(queries)))
        none = xp.zeros(s.total_leaves)
        for first in range(0, len(queries), LOOKED_UP):
            leaves = np.ascontiguousarray(queries[first : first + LOOKED_UP].T, dtype=np.uint32)
            found = xp.empty((leaves.shape[1], s.total_leaves))
            for t in range(0, s.n_trees, ABREAST):  # no adjoint of a tree comes from an earlier one
                own = slice(s.starts[t], s.starts[min(t + ABREAST, s.n_trees)])
                later = table[own.start :, own]
                starts = s.starts[t:] - own.start
                self.backend.rows(leaves[t:], starts).read_out(
                    later, none[own], None, 0, found[:, own]
                )
            part = phi[:, first : first + LOOKED_UP]
            np.multiply(found.T, rate, out=part)
            for other in others:
                met = xp.asarray(s.starts[other] + leaves[other].astype(np.int64))
                end = s.starts[other + 1]
                part[:end] += float(s.final[other] - rate) * table[met, :end].T
        return phi


def asked(structure: Structure, queries: NDArray[np.integer[Any]], xp: Any = np) -> Any:
    """(L, n), an array of this module: the derivatives of the predictions in these leaves, (n, T), by the leaf values."""
    alpha = xp.zeros((structure.total_leaves, len(queries)))
    met = structure.starts[:-1] + queries.astype(np.int64)
    alpha[xp.asarray(met), xp.arange(len(queries))[:, None]] = xp.asarray(structure.final)
    return alpha


def sums_at(met: NDArray[np.int64], n_leaves: int, u: Any, factors: Any = 1.0) -> FloatArray:
    """(L, S): sums over the leaves (n, T), numbered among all, of factors, (n, T) or (T,), times (n, S) u, dense or sparse."""
    found = np.zeros((n_leaves, u.shape[1]))
    ends = np.arange(len(met) + 1)
    for leaves, own in zip(met.T, np.broadcast_to(factors, met.shape).T):
        if len(leaves):
            first, last = (int(leaves.min()), int(leaves.max()) + 1)
        else:
            first, last = (0, 0)
        members = csr_array((own.copy(), leaves - first, ends), shape=(len(leaves), last - first))
        found[first:last] += dense(members.T @ u)
    return found


@one_blas_thread()
def _responses(s: Structure, inverse: Any) -> Any:
    """`LeafMatrix.responses` from the inverse of M', (L, L), in its place."""
    for t, (first, last) in enumerate(pairwise(s.starts)):
        inverse[first:last] = s.leaf_values(t, inverse[first:last])
    return inverse


def cooccurrence(structure: Structure, rows: Rows, first: int, last: int) -> Any:
    """C among trees first..last-1: the weight of the rows in a leaf of one and, drawn, in a leaf of a later one."""
    s = structure
    starts = s.starts[first : last + 1] - s.starts[first]
    draws = len(s.sample_counts)
    if s.counts_by_leaf:
        return rows.xp.asarray(_ranked_together(s, first, last))
    by_cells = rows.xp.empty((int(draws * starts[-1]), int(draws * starts[-1])))
    rows.cooccurrence(first, last, rows.weights, by_cells)
    if draws == 1:
        return by_cells
    out = rows.xp.zeros((int(starts[-1]), int(starts[-1])))
    for a, b in pairwise(starts):
        of_leaves = by_cells[draws * a : draws * b].reshape(draws, b - a, -1).sum(axis=0)
        for c, d in pairwise(starts):
            if c > a:
                part = of_leaves[:, draws * c : draws * d].reshape(b - a, draws, d - c)
                out[a:b, c:d] = np.tensordot(part, like(s.sample_counts, part), (1, 0))
    return out


def _ranked_together(s: Structure, first: int, last: int) -> FloatArray:
    """C among trees first..last-1 where leaves take their values from rows of a certain rank: these alone are looked at."""
    starts = s.starts[first : last + 1] - s.starts[first]
    out = np.zeros((int(starts[-1]), int(starts[-1])))
    for t in range(first + 1, last):
        level, leaf = np.divmod(s.cells[t].astype(np.int64), int(s.n_leaves[t]))
        rows = np.flatnonzero(level)
        share = s.sample_counts[level[rows], s.starts[t] + leaf[rows]]
        n = int(s.n_leaves[t])
        at = starts[t - first]
        for before in range(first, t):
            size = int(s.n_leaves[before])
            start = starts[before - first]
            pair = s.cells[before, rows].astype(np.int64) % size * n + leaf[rows]
            out[start : start + size, at : at + n] = np.bincount(pair, share, size * n).reshape(
                size, n
            )
    return out
