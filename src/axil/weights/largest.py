"""Largest: the k largest numbers of each explained row, collected block by block."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from axil.arrays import FloatArray
from axil.kernels import Backend
from axil.kernels.choose import host_backend
from axil.machine.arrays import AnyPlaceArray, is_host

MaybeSparse: TypeAlias = FloatArray | csr_array  #: dense or sparse


class Largest:
    """The k largest ``|number|``, or ``|scale * number|``, of each of n explained rows.

    Parameters
    ----------
    n, k, n_rows : int
        The numbers of explained rows, of places, and of training rows.
    scale : array of shape (N,), optional
        The factors of the numbers by which they are ordered.
    n_threads : int
        The threads of the host.
    n_queries : int, optional
        The number of explained rows of the whole request. Default: n.
    room : int
        The bytes that may be taken to find the largest sooner.
    backend : Backend, optional
        The back end of the blocks. Default: the host.
    """

    def __init__(
        self,
        n: int,
        k: int,
        n_rows: int,
        scale: FloatArray | None = None,
        n_threads: int = 1,
        n_queries: int | None = None,
        room: int = 0,
        backend: Backend | None = None,
    ):
        self.k = min(k, n_rows)
        self.n_rows = n_rows
        self.n_queries = n if n_queries is None else n_queries
        self.room = room
        self.scale = None if scale is None else np.ascontiguousarray(scale)
        self.backend: Backend = backend or host_backend(n_threads)
        self.values: FloatArray = np.zeros((n, self.k))
        self.rows: NDArray[np.int64] = np.full((n, self.k), -1, dtype=np.int64)

    @classmethod
    def of(
        cls, numbers: MaybeSparse, k: int, scale: FloatArray | None = None, n_threads: int = 1
    ) -> Largest:
        """Return the largest of these numbers, (n, N), dense or sparse."""
        collector = cls(numbers.shape[0], k, numbers.shape[1], scale, n_threads)
        collector.add_all(numbers)
        return collector

    def add_all(self, numbers: MaybeSparse) -> None:
        """Add the numbers of all training rows, (n, N), dense or sparse."""
        if issparse(numbers):
            self.add_sparse(numbers)
        else:
            self.add(numbers.T, 0)

    def add(self, block: AnyPlaceArray, first: int) -> None:
        """Add the numbers of the training rows from ``first`` on, (rows, n), host or device."""
        if is_host(block):
            block = np.ascontiguousarray(block)
        self.backend.top(block, first, self.scale, self.values, self.rows)

    def merge(self, values: FloatArray, rows: NDArray[np.int64]) -> None:
        """Add the largest numbers of other training rows, (n, k), and their row numbers.

        Free places have row -1.
        """
        if (self.rows < 0).all():
            self.values = values
            self.rows = rows
            return
        values = np.append(self.values, values, axis=1)
        rows = np.append(self.rows, rows, axis=1)
        sizes = np.where(rows < 0, -1.0, self._sizes(values, rows))
        order = np.lexsort((rows, -sizes))[:, : self.k]
        self.values = np.take_along_axis(values, order, axis=1)
        self.rows = np.take_along_axis(rows, order, axis=1)

    def add_sparse(self, numbers: csr_array) -> None:
        """Add the numbers of all training rows, (n, N).

        An explained row with fewer than k entries is filled up with zeros of other rows.
        """
        k = self.values.shape[1]
        for i in range(numbers.shape[0]):
            entries = slice(numbers.indptr[i], numbers.indptr[i + 1])
            values = numbers.data[entries]
            rows = numbers.indices[entries].astype(np.int64)
            order = np.lexsort((rows, -self._sizes(values, rows)))[:k]
            n_free = k - len(order)
            values = values[order]
            zero_rows = np.zeros(0, dtype=np.int64)
            if n_free > 0:
                candidates = np.arange(min(k + len(rows), self.n_rows))
                zero_rows = np.setdiff1d(candidates, rows)[:n_free]
            self.values[i] = np.append(values, np.zeros(len(zero_rows)))
            self.rows[i] = np.append(rows[order], zero_rows)

    def _sizes(self, values: FloatArray, rows: NDArray[np.int64]) -> FloatArray:
        """Return the sizes by which the numbers of these rows are ordered."""
        if self.scale is None:
            return np.abs(values)
        return np.abs(values * self.scale[rows])
