"""The leaf matrix: the weights' equations among leaves alone, independent of the number of rows.

With C[m, l] the weight of the rows that share leaf m of tree s and leaf l of a later tree t,
sampled as for t, the adjoints of the leaf sums (see `boosting`) obey

    phi_s = P_s' (omega[T, s] z_s - sum_{t > s} omega[t, s] C_st phi_t),     z_s one-hot at x's leaf

In plain boosting omega[t, s] is the learning rate of tree s. So M phi = P' omega z with M unit
upper triangular, of the size of the total number of leaves. M is built once. A batch of explained
rows is one triangular solve; or, with the inverse of M in its place (`inverted`), a row is a sum of
T rows of that inverse. A leaf matrix never changes.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.arrays import FloatArray, LeafArray
from axil.kernels import Backend, Rows, Triangle
from axil.machine.arrays import AnyPlaceArray, host, like
from axil.machine.threads import one_blas_thread
from axil.structure import Structure
from axil.weights.answers import dense

# leaves up to which the inverse is made for any number of explained rows: 512 MiB and some seconds
INVERTED = 8192
LOOKED_UP = 2048  # explained rows whose adjoints are looked up at a time
# trees with a rate of their own that are corrected for; more of them, and the table is scaled as a
# whole
FEW_RATES = 8
ABREAST = 8  # trees whose adjoints are looked up together


class LeafMatrix:
    """The factor M of one structure, or its inverse.

    Parameters
    ----------
    structure : Structure
    factor : array of shape (L, L), or None
        M, unit upper triangular; taken over. None: the identity, as for trees that do not see each
        other.
    backend : Backend
    earlier_shifts : array of shape (L, 1), optional
        What the shifts of all earlier trees take from each leaf's sum. Default: no shifts.
    responses : array of shape (L, L), optional
        The inverse, if it is known. It replaces the factor in `adjoints`, but not in `leaf_values`
        of shifted leaves.
    inverts : bool, optional
        Whether the inverse takes the factor's place. Default: up to `INVERTED` leaves.
    """

    def __init__(
        self,
        structure: Structure,
        factor: AnyPlaceArray,
        backend: Backend,
        earlier_shifts: FloatArray | None = None,
        responses: AnyPlaceArray = None,
        inverts: bool | None = None,
    ):
        self.structure = structure
        self._earlier_shifts = earlier_shifts
        self.backend = backend
        if inverts is None:
            inverts = self.inverts(structure)
        triangle = None if factor is None else backend.triangle(factor)
        self._triangle: Triangle | None = None if inverts else triangle
        self._table = responses
        if triangle and inverts:
            self._table = _responses(structure, triangle.inverse(overwrite=True))

    @classmethod
    def build(
        cls, structure: Structure, backend: Backend, rows: Rows, inverts: bool | None = None
    ) -> LeafMatrix:
        """Return the leaf matrix of the rows. O(T^2 N) time, 8 L^2 bytes.

        Co-occurrences are counted over all pairs of trees.
        """
        together = cooccurrence(structure, rows, 0, structure.n_trees)
        return cls.of(structure, together, backend, inverts)

    @classmethod
    def of(
        cls,
        structure: Structure,
        together: AnyPlaceArray,
        backend: Backend,
        inverts: bool | None = None,
    ) -> LeafMatrix:
        """Return the leaf matrix from co-occurrences over all rows, (L, L), which are overwritten.

        The rows themselves are not needed.
        """
        s = structure
        factor = together
        shift = s.linear_leaves.shift
        earlier_shifts = None
        if shift is not None:
            earlier_shifts = np.zeros((s.total_leaves, 1))
        for t in range(s.n_trees):
            leaves = s.leaves_of(t)
            later = slice(s.starts[t + 1], None)
            if s.coefficients is None:
                scaled = factor[leaves, later] * float(s.learning_rates[t])
            else:
                omega = np.repeat(s.coefficients.omega[t + 1 : -1, t], s.n_leaves[t + 1 :])
                scaled = factor[leaves, later] * like(omega, factor)
            if shift is not None and earlier_shifts is not None:
                earlier_shifts[later, 0] += host(scaled.T @ like(shift[leaves], factor))
            factor[leaves, later] = s.leaf_values_transpose(t, scaled)
        np.fill_diagonal(factor, 1.0)
        return cls(s, factor, backend, earlier_shifts, inverts=inverts)

    def inverted(self) -> LeafMatrix:
        """Return the leaf matrix with the inverse in the factor's place, in L^3 / 6 products."""
        if self._table is not None or self._triangle is None:
            return self
        return LeafMatrix(self.structure, None, self.backend, self._earlier_shifts, self.responses)

    @staticmethod
    def inverts(structure: Structure) -> bool:
        """Return whether the inverse is computed for any number of explained rows."""
        return structure.total_leaves <= INVERTED

    @staticmethod
    def size(structure: Structure) -> int:
        """Return the bytes that building a leaf matrix takes.

        These are the factor, and co-occurrences by sample counts where rows were sampled.
        """
        n_copies = 1
        n_levels = len(structure.sample_counts)
        if n_levels > 1 and not structure.counts_by_leaf:
            n_copies += n_levels**2
        return 8 * structure.total_leaves**2 * n_copies

    @one_blas_thread()
    def adjoints(self, queries: LeafArray) -> AnyPlaceArray:
        """Return the adjoints of the leaf sums for predictions in these leaves (n, T), (L, n).

        They are sums of T rows of `responses`; or a solve of L^2 / 2 multiplications per row if
        these are not at hand.
        """
        if self._table is not None:
            return self._look_up(queries)
        return self._solve(value_adjoints(self.structure, queries, self.backend.xp))

    @one_blas_thread()
    def adjoints_of(self, alpha: FloatArray) -> AnyPlaceArray:
        """Return the adjoints of the leaf sums for any adjoints of the leaf values, (L, n).

        Cost L^2 multiplications for each column.
        """
        alpha = self.backend.xp.asarray(alpha)
        if self._table is None:
            return self._solve(alpha)
        return self._table.T @ alpha

    @one_blas_thread()
    def leaf_values(self, sums: FloatArray, base: FloatArray) -> FloatArray:
        """Return the leaf values of a fit to targets before the learning rates, (L, S).

        ``M' sigma = sums - share of the initial prediction``, where sigma are the sums of the
        residuals that each tree sees. Cost L^2 multiplications per column.

        Parameters
        ----------
        sums : array of shape (L, S)
            The sums of the targets over the leaves.
        base : array of shape (S,)
            The initial prediction.
        """
        s = self.structure
        sums = sums - np.outer(s.initial_in_sums, base)
        if self._earlier_shifts is not None:
            sums -= self._earlier_shifts
        if self._table is not None:
            values = host(self._table @ like(sums, self._table))
        else:
            if self._triangle is not None:
                self._triangle.solve(sums, transposed=True)
            of_trees = [s.leaf_values(t, sums[s.leaves_of(t)]) for t in range(s.n_trees)]
            values = np.ascontiguousarray(np.concatenate(of_trees))
        if s.linear_leaves.shift is None:
            return values
        return values + s.linear_leaves.shift[:, None]

    @property
    def responses(self) -> AnyPlaceArray:
        """The adjoints of the leaf sums for leaf value l in row l, (L, L), on the back end.

        They are computed on each use, unless the inverse has replaced the factor.
        """
        if self._table is not None:
            return self._table
        if self._triangle is None:
            inverse = self.backend.xp.eye(self.structure.total_leaves)
        else:
            inverse = self._triangle.inverse(overwrite=False)
        return _responses(self.structure, inverse)

    def _solve(self, alpha: AnyPlaceArray) -> AnyPlaceArray:
        """Return `adjoints_of` by the factor."""
        s = self.structure
        phi = np.empty_like(alpha)
        for t in range(s.n_trees):
            leaves = s.leaves_of(t)
            phi[leaves] = s.leaf_values_transpose(t, alpha[leaves])
        if self._triangle is not None:
            self._triangle.solve(phi, transposed=False)
        return phi

    def _look_up(self, queries: LeafArray) -> AnyPlaceArray:
        """Return `adjoints` by the inverse."""
        s = self.structure
        table = self._table
        xp = self.backend.xp
        assert table is not None
        rate = float(s.final[-1])
        # often one: a first tree whose learning rate was recovered
        other_trees = np.flatnonzero(s.final != rate)
        if len(other_trees) > FEW_RATES:
            table = table * xp.asarray(np.repeat(s.final, s.n_leaves)[:, None])
            rate = 1.0
            other_trees = other_trees[:0]
        phi = xp.empty((s.total_leaves, len(queries)))
        for first in range(0, len(queries), LOOKED_UP):
            leaves = np.ascontiguousarray(queries[first : first + LOOKED_UP].T, dtype=np.uint32)
            block = phi[:, first : first + LOOKED_UP]
            np.multiply(self._sum_rows(table, leaves).T, rate, out=block)
            for t in other_trees:
                met = xp.asarray(s.starts[t] + leaves[t].astype(np.int64))
                end = s.starts[t + 1]
                block[:end] += float(s.final[t] - rate) * table[met, :end].T
        return phi

    def _sum_rows(self, table: AnyPlaceArray, leaves: NDArray[np.uint32]) -> AnyPlaceArray:
        """Return the sums of the rows of a table (L, L) at these leaves (T, n), (n, L)."""
        s = self.structure
        sums = self.backend.xp.empty((leaves.shape[1], s.total_leaves))
        no_constants = self.backend.xp.zeros(s.total_leaves)
        for t in range(0, s.n_trees, ABREAST):  # no adjoint of a tree comes from an earlier one
            columns = slice(s.starts[t], s.starts[min(t + ABREAST, s.n_trees)])
            later = table[columns.start :, columns]
            rows = self.backend.rows(leaves[t:], s.starts[t:] - columns.start)
            rows.read_out(later, no_constants[columns], None, 0, sums[:, columns])
        return sums


def value_adjoints(
    structure: Structure, queries: LeafArray, xp: AnyPlaceArray = np
) -> AnyPlaceArray:
    """Return the derivatives of the predictions in these leaves (n, T) by the leaf values, (L, n).

    ``xp`` is the array module of the result.
    """
    alpha = xp.zeros((structure.total_leaves, len(queries)))
    met = structure.starts[:-1] + queries.astype(np.int64)
    alpha[xp.asarray(met), xp.arange(len(queries))[:, None]] = xp.asarray(structure.final)
    return alpha


def sums_at(
    met: NDArray[np.int64], n_leaves: int, u: FloatArray, factors: FloatArray | float = 1.0
) -> FloatArray:
    """Return sums over leaves of factors times u, (L, S).

    Parameters
    ----------
    met : array of shape (n, T)
        Leaves, numbered among all L.
    n_leaves : int
        L.
    u : array of shape (n, S)
        Dense or sparse.
    factors : array of shape (n, T) or (T,)
    """
    sums = np.zeros((n_leaves, u.shape[1]))
    ends = np.arange(len(met) + 1)
    for leaves, column in zip(met.T, np.broadcast_to(factors, met.shape).T):
        if not len(leaves):
            continue
        first = int(leaves.min())
        last = int(leaves.max()) + 1
        shape = (len(leaves), last - first)
        members = csr_array((column.copy(), leaves - first, ends), shape=shape)
        sums[first:last] += dense(members.T @ u)
    return sums


@one_blas_thread()
def _responses(s: Structure, inverse: AnyPlaceArray) -> AnyPlaceArray:
    """Return `LeafMatrix.responses` from the inverse of M', (L, L), in its place."""
    for t in range(s.n_trees):
        leaves = s.leaves_of(t)
        inverse[leaves] = s.leaf_values(t, inverse[leaves])
    return inverse


def cooccurrence(structure: Structure, rows: Rows, first: int, last: int) -> AnyPlaceArray:
    """Return C among trees first..last-1, (L', L').

    That is the weight of the rows in a leaf of one tree and, by their sample counts, in a leaf of a
    later one.
    """
    s = structure
    if s.counts_by_leaf:
        return rows.xp.asarray(_cooccurrence_of_percentiles(s, first, last))
    starts = s.starts[first : last + 1] - s.starts[first]
    n_levels = len(s.sample_counts)
    n_cells = int(n_levels * starts[-1])
    by_cells = rows.xp.empty((n_cells, n_cells))
    rows.cooccurrence(first, last, rows.weights, by_cells)
    if n_levels == 1:
        return by_cells
    together = rows.xp.zeros((int(starts[-1]), int(starts[-1])))
    for a, b in pairwise(starts):
        cells = by_cells[n_levels * a : n_levels * b]
        of_leaves = cells.reshape(n_levels, b - a, -1).sum(axis=0)
        for c, d in pairwise(starts):
            if c > a:
                later = of_leaves[:, n_levels * c : n_levels * d]
                by_level = later.reshape(b - a, n_levels, d - c)
                counts = like(s.sample_counts, by_level)
                together[a:b, c:d] = np.tensordot(by_level, counts, (1, 0))
    return together


def _cooccurrence_of_percentiles(s: Structure, first: int, last: int) -> FloatArray:
    """Return C if leaves are percentiles: only the rows behind the percentiles count."""
    starts = s.starts[first : last + 1] - s.starts[first]
    together = np.zeros((int(starts[-1]), int(starts[-1])))
    for t in range(first + 1, last):
        n = int(s.n_leaves[t])
        level, leaf = np.divmod(s.cells[t].astype(np.int64), n)
        rows = np.flatnonzero(level)
        share = s.sample_counts[level[rows], s.starts[t] + leaf[rows]]
        columns = slice(starts[t - first], starts[t - first] + n)
        for before in range(first, t):
            size = int(s.n_leaves[before])
            start = starts[before - first]
            pair = s.cells[before, rows].astype(np.int64) % size * n + leaf[rows]
            counts = np.bincount(pair, share, size * n).reshape(size, n)
            together[start : start + size, columns] = counts
    return together
