"""Random leaves of ragged trees for tests of the kernels, and their formulas in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from axil.kernels import Backend, Rows

COLUMNS = [0, 1, 2, 3, 7, 10, 16, 17, 33]
DTYPES = [np.uint8, np.uint16, np.uint32]
# The kernels add in another order than NumPy: sums of up to 20,000 numbers of size 1 differ by far less than this.
CLOSE = {"rtol": 1e-11, "atol": 1e-11}


class Forest:
    """Random leaves of ragged trees, without any model behind them."""

    def __init__(self, n_rows: int, n_leaves: list[int], dtype: type, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.n_rows, self.n_leaves = n_rows, n_leaves
        self.starts = np.concatenate([[0], np.cumsum(n_leaves)]).astype(np.int64)
        self.leaves = np.empty((len(n_leaves), n_rows), dtype)
        for t, n in enumerate(n_leaves):
            self.leaves[t] = np.minimum(
                self.rng.geometric(2 / (n + 1), n_rows) - 1, n - 1
            )  # a few large leaves
        self.leaves.setflags(write=False)
        self.starts.setflags(write=False)

    @property
    def total(self) -> int:
        return int(self.starts[-1])

    def normal(self, *shape: int) -> np.ndarray:
        return self.rng.normal(size=shape)

    def weights(self, weighted: bool) -> np.ndarray | None:
        return self.rng.uniform(0.5, 2, self.n_rows) if weighted else None

    def rows(self, backend: Backend, weights: np.ndarray | None = None) -> Rows:
        return backend.rows(self.leaves, self.starts, weights)

    def one_hot(self, t: int) -> np.ndarray:
        return np.eye(self.n_leaves[t])[self.leaves[t]]

    def rows_of(self, table: np.ndarray, t: int) -> np.ndarray:
        """The rows of ``table`` that the training rows look up in tree t."""
        return table[self.starts[t] + self.leaves[t].astype(np.int64)]

    def leaf_sums(self, t: int, values: np.ndarray) -> np.ndarray:
        out = np.zeros((self.n_leaves[t], values.shape[1]))
        np.add.at(out, self.leaves[t], values)
        return out

    def part(self, t: int) -> slice:
        return slice(int(self.starts[t]), int(self.starts[t + 1]))


def forest(dtype: type = np.uint8, n_rows: int = 1003, seed: int = 0) -> Forest:
    most = {np.uint8: 31, np.uint16: 300, np.uint32: 70000}[dtype]
    return Forest(n_rows, [5, 1, most, 17, 2, 31, 8], dtype, seed)


def one(weights: np.ndarray | None) -> Any:
    return 1.0 if weights is None else weights[:, None]


def trees(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def largest(values: np.ndarray, scale: np.ndarray | None, k: int) -> tuple[np.ndarray, np.ndarray]:
    """What `top` must find in all the rows: (values, rows), each (S, k)."""
    sizes = np.abs(values if scale is None else scale[:, None] * values)
    out, rows = np.zeros((values.shape[1], k)), np.full((values.shape[1], k), -1)
    for s in range(values.shape[1]):
        order = np.lexsort([np.arange(len(values)), -sizes[:, s]])[:k]
        out[s, : len(order)], rows[s, : len(order)] = values[order, s], order
    return out, rows
