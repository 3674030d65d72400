"""Leaf space: the weights' equations among leaves alone, independent of the number of rows.

With C[m, l] the weight of the rows that share leaf m of tree s and leaf l of a later tree t, drawn as for t, the adjoints of
the leaf sums (see `operators`) obey

    phi_s = P_s' (omega[T, s] z_s - sum_{t > s} omega[t, s] C_st phi_t),     z_s one-hot at the query's leaf

in plain boosting omega[t, s] = eta_s. So M phi = P' omega z with M unit upper triangular, of the size of the total number of
leaves. It is built once. Up to `INVERTED` leaves its inverse takes its place at once, and a query is a sum of T of its rows;
beyond, a batch of queries is one triangular solve. So the number of leaves alone says which sums are made.

Everything is worked out in blocks of leaves, so that Ctrl-C takes effect between them, and a leaf space never changes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import blas, lapack

from axil import _core
from axil.machine.progress import track
from axil.machine.shared import one_blas_thread
from axil.structure import Structure

Array = NDArray[np.float64]

INVERTED = 8192  # leaves up to which the inverse is made: 512 MiB and some seconds, which a few hundred queries gain
BLOCK = 256  # leaves worked on between two moments at which Ctrl-C takes effect
LOOKED_UP = 2048  # queries whose adjoints are looked up at a time
ABREAST = 8  # trees whose adjoints are looked up together


class LeafSpace:
    """The factor M of one structure, or what it makes of every leaf, where these are few."""

    def __init__(self, structure: Structure, factor: Array | None, n_threads: int):
        """``factor`` (L, L), unit upper triangular, is used up; None: the identity, as for trees that do not see each other."""
        self.structure = structure
        self.n_threads = n_threads
        inverts = factor is not None and structure.total_leaves <= INVERTED
        self._table = _responses(structure, factor) if factor is not None and inverts else None
        self._factor = None if inverts else factor

    @classmethod
    def build(cls, structure: Structure, n_threads: int) -> LeafSpace:
        """Count co-occurrences over all pairs of trees: O(T^2 N) time, 8 L^2 bytes."""
        return cls.of(structure, cooccurrence(structure, 0, structure.n_trees, n_threads), n_threads)

    @classmethod
    def of(cls, structure: Structure, together: Array, n_threads: int) -> LeafSpace:
        """From co-occurrences over all rows, (L, L), which are overwritten; the rows themselves are not needed."""
        s, factor = structure, together
        for t in range(s.n_trees):
            own, later = slice(s.starts[t], s.starts[t + 1]), slice(s.starts[t + 1], None)
            if s.coefficients is None:
                coefficient: float | Array = s.rates[t]
            else:
                coefficient = np.repeat(s.coefficients.omega[t + 1 : -1, t], s.n_leaves[t + 1 :])
            factor[own, later] = s.leaf_values_transpose(t, factor[own, later] * coefficient)
        np.fill_diagonal(factor, 1.0)
        return cls(s, factor, n_threads)

    @staticmethod
    def size(structure: Structure) -> int:
        """Bytes that building a leaf space takes: the factor, and co-occurrences by draws where rows were sampled."""
        draws = len(structure.draws)
        return 8 * structure.total_leaves**2 * (1 if draws == 1 else 1 + draws**2)

    @one_blas_thread()
    def adjoints(self, queries: NDArray[np.integer[Any]]) -> Array:
        """(L, n) adjoints of the leaf sums for predictions in these leaves, (n, T).

        Sums of T rows of `responses`; or a solve of L^2 multiplications a query, where they are not kept.
        """
        return self._solve(asked(self.structure, queries)) if self._table is None else self._look_up(queries)

    @one_blas_thread()
    def adjoints_of(self, alpha: Array) -> Array:
        """(L, n) the same for any adjoints of the leaf values, (L, n). Cost L^2 multiplications each."""
        return self._solve(alpha) if self._table is None else np.asarray(self._table.T @ alpha)

    @one_blas_thread()
    def leaf_values(self, sums: Array, base: Array) -> Array:
        """(L, S): the leaf values, before the rates, that targets lead to, from their sums over the leaves, (L, S), alone.

        With ``base`` (S,) what the fit starts from, ``M' sigma = sums - base``'s share of them; sigma are the sums of the
        residuals that each tree sees, which lack what the trees before it predict. Cost L^2 multiplications a column.
        """
        s = self.structure
        sums = sums - np.outer(s.leaf_weights * np.repeat(s.beta[:-1], s.n_leaves), base)
        if self._table is not None:
            return np.asarray(self._table @ sums)
        if self._factor is not None and sums.size:
            for own in _blocks(s.total_leaves):
                seen = sums[own] - self._factor[: own.start, own].T @ sums[: own.start]
                sums[own] = blas.dtrsm(1.0, self._factor[own, own].T, seen, lower=1, diag=1)
        trees = [s.leaf_values(t, sums[first:last]) for t, (first, last) in enumerate(pairwise(s.starts))]
        return np.ascontiguousarray(np.concatenate(trees))

    @property
    def responses(self) -> Array:
        """(L, L): row l has the adjoints of the leaf sums for that of leaf value l. Made again each time beyond `INVERTED`."""
        if self._table is not None:
            return self._table
        factor = np.eye(self.structure.total_leaves) if self._factor is None else self._factor.copy()
        return _responses(self.structure, factor)

    def _solve(self, alpha: Array) -> Array:
        s = self.structure
        phi = np.empty_like(alpha)
        for t in range(s.n_trees):
            own = slice(s.starts[t], s.starts[t + 1])
            phi[own] = s.leaf_values_transpose(t, alpha[own])
        if self._factor is not None and alpha.size:
            for own in reversed(_blocks(s.total_leaves)):
                seen = phi[own] - self._factor[own, own.stop :] @ phi[own.stop :]
                phi[own] = blas.dtrsm(1.0, self._factor[own, own].T, seen, lower=1, trans_a=1, diag=1)
        return phi

    def _look_up(self, queries: NDArray[np.integer[Any]]) -> Array:
        s, table, rate = self.structure, self._table, self.structure.final[0]
        assert table is not None
        if (s.final != rate).any():
            table, rate = table * np.repeat(s.final, s.n_leaves)[:, None], 1.0
        phi, none = np.empty((s.total_leaves, len(queries))), np.zeros(s.total_leaves)
        for first in range(0, len(queries), LOOKED_UP):
            leaves = np.ascontiguousarray(queries[first : first + LOOKED_UP].T, dtype=np.uint32)
            found = np.empty((leaves.shape[1], s.total_leaves))
            for t in range(0, s.n_trees, ABREAST):  # no adjoint of a tree comes from an earlier one
                own = slice(s.starts[t], s.starts[min(t + ABREAST, s.n_trees)])
                later, starts = table[own.start :, own], s.starts[t:] - own.start
                _core.read_out(leaves[t:], starts, later, none[own], None, 0, found[:, own], self.n_threads)
            np.multiply(found.T, rate, out=phi[:, first : first + LOOKED_UP])
        return phi


def asked(structure: Structure, queries: NDArray[np.integer[Any]]) -> Array:
    """(L, n): the adjoints of the leaf values that the predictions in these leaves, (n, T), themselves ask for."""
    alpha = np.zeros((structure.total_leaves, len(queries)))
    for t, coefficient in enumerate(structure.final):
        alpha[structure.starts[t] + queries[:, t].astype(np.intp), np.arange(len(queries))] = coefficient
    return alpha


@one_blas_thread()
def _responses(s: Structure, factor: Array) -> Array:
    """`LeafSpace.responses`, in the place of the factor M, (L, L). Cost L^3 / 6 multiplications.

    The inverse X of the lower triangular M' takes the half that M leaves free, block of rows by block of rows:
    ``X[a, c] = -X[a, a] sum_{c <= b < a} M'[a, b] X[b, c]``. Only diagonal blocks, which both want, are kept aside.
    """
    corners: list[tuple[slice, Array]] = []
    for own in track(_blocks(len(factor)), "leaf space"):
        corner = np.tril(lapack.dtrtri(factor[own, own].T, lower=1, unitdiag=1)[0])
        for before, of_before in corners:
            met = factor[before, own].T @ of_before
            met += factor[before.stop : own.start, own].T @ factor[before.stop : own.start, before]
            np.negative(corner @ met, out=factor[own, before])
        corners.append((own, corner))
    for own, corner in corners:
        factor[own, own] = corner
        factor[own, own.stop :] = 0.0
    for t, (first, last) in enumerate(pairwise(s.starts)):
        factor[first:last] = s.leaf_values(t, factor[first:last])
    return factor


def _blocks(n: int) -> list[slice]:
    return [slice(first, min(first + BLOCK, n)) for first in range(0, n, BLOCK)]


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
