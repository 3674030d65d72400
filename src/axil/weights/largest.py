"""Largest: the k largest numbers of each query, gathered block by block."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from axil.arrays import FloatArray
from axil.kernels import Backend
from axil.kernels.choose import host_backend
from axil.machine.arrays import is_host


class Largest:
    """The k largest |number| (or |scale * number|) of each of n queries among N training rows.

    The queries are some of ``n_queries``, and ``room`` bytes may be taken to find the largest
    sooner. Blocks are the host's, or of the ``backend`` that is given.
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
        self.k = k = min(k, n_rows)
        self.n_rows = n_rows
        if n_queries is None:
            self.n_queries = n
        else:
            self.n_queries = n_queries
        self.room = room
        if scale is None:
            self.scale = None
        else:
            self.scale = np.ascontiguousarray(scale)
        self.backend: Backend = backend or host_backend(n_threads)
        self.values: FloatArray = np.zeros((n, k))
        self.rows: NDArray[np.int64] = np.full((n, k), -1, dtype=np.int64)

    @classmethod
    def of(
        cls, numbers: Any, k: int, scale: FloatArray | None = None, n_threads: int = 1
    ) -> Largest:
        """The largest of these numbers (n, N), dense or sparse."""
        found = cls(numbers.shape[0], k, numbers.shape[1], scale, n_threads)
        found.add_all(numbers)
        return found

    def add_all(self, numbers: Any) -> None:
        """Take in the numbers (n, N) of all training rows, dense or sparse."""
        if issparse(numbers):
            self.add_sparse(numbers)
        else:
            self.add(numbers.T, 0)

    def add(self, block: Any, first: int) -> None:
        """Take in the numbers, (rows, n), of the training rows from ``first`` on."""
        if is_host(block):
            own = np.ascontiguousarray(block)
        else:
            own = block
        self.backend.top(own, first, self.scale, self.values, self.rows)

    def merge(self, values: FloatArray, rows: NDArray[np.int64]) -> None:
        """Take in the largest, (n, k), of other training rows, and their row numbers; free places have row -1."""
        if (self.rows < 0).all():
            self.values = values
            self.rows = rows
            return
        values = np.append(self.values, values, axis=1)
        rows = np.append(self.rows, rows, axis=1)
        size = np.where(
            rows < 0, -1.0, np.abs(values if self.scale is None else values * self.scale[rows])
        )
        order = np.lexsort((rows, -size))[:, : self.k]
        self.values = np.take_along_axis(values, order, axis=1)
        self.rows = np.take_along_axis(rows, order, axis=1)

    def add_sparse(self, numbers: csr_array) -> None:
        """Take in all numbers, (n, N), at once; a query with fewer than k of them is filled up with zeros."""
        k = self.values.shape[1]
        for i in range(numbers.shape[0]):
            own = slice(numbers.indptr[i], numbers.indptr[i + 1])
            values = numbers.data[own]
            rows = numbers.indices[own].astype(np.int64)
            size = np.abs(values if self.scale is None else values * self.scale[rows])
            order = np.lexsort((rows, -size))[:k]
            if len(order) < k:
                others = np.setdiff1d(np.arange(min(k + len(rows), self.n_rows)), rows)[
                    : k - len(order)
                ]
                values = np.append(values[order], np.zeros(len(others)))
                rows = np.append(rows[order], others)
                order = np.arange(k)
            self.values[i], self.rows[i] = values[order], rows[order]
