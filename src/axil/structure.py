"""The frozen structure of a fitted ensemble: all that decides the weights."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray


def leaf_dtype(most_leaves: int) -> type[np.unsignedinteger[Any]]:
    """The smallest unsigned type that numbers this many leaves from 0."""
    for dtype in (np.uint8, np.uint16):
        if most_leaves - 1 <= np.iinfo(dtype).max:
            return dtype
    return np.uint32


@dataclass(frozen=True)
class Structure:
    """Leaf membership, contributions, rates and base of T trees over N training rows.

    Row j counts ``row_weights[j] * leaf_scale[l]`` in the value of its leaf l; with ``mixing`` a leaf's value is a
    combination of the sums of all leaves of its tree instead (``mixing[t] @ sums``). Memory: N * T leaf numbers.
    """

    leaves: NDArray[np.unsignedinteger[Any]]  #: (T, N) leaf of each training row, packed
    n_leaves: NDArray[np.int64]  #: (T,)
    leaf_weights: NDArray[np.float64]  #: (L,) sum of the row weights in each leaf
    leaf_scale: NDArray[np.float64]  #: (L,) 1 / (leaf weight + l2)
    rates: NDArray[np.float64]  #: (T,)
    base: float | None  #: the constant predictions start from; None: the weighted mean of the targets
    row_weights: NDArray[np.float64] | None = None  #: (N,); None: all one
    offsets: NDArray[np.float64] | None = None  #: (N,) what each training row's prediction starts from besides
    mixing: tuple[NDArray[np.float64], ...] | None = None
    starts: NDArray[np.int64] = field(init=False)  #: (T + 1,) where each tree's leaves begin among all L

    def __post_init__(self) -> None:
        starts = np.concatenate([[0], np.cumsum(self.n_leaves)]).astype(np.int64)
        object.__setattr__(self, "starts", starts)
        self._check()
        for value in vars(self).values():
            for array in value if isinstance(value, tuple) else (value,):
                if isinstance(array, np.ndarray):
                    array.setflags(write=False)

    def _check(self) -> None:
        """Refuse arrays that do not fit each other: the kernels index one with the other unchecked."""
        trees, leaves = (self.n_trees,), (self.total_leaves,)
        rows = (self.n_rows,)
        shapes = {"leaf_weights": leaves, "leaf_scale": leaves, "rates": trees, "row_weights": rows, "offsets": rows}
        for name, shape in shapes.items():
            array = getattr(self, name)
            if array is not None and (array.shape != shape or array.dtype != np.float64):
                raise ValueError(f"{name} is {array.dtype} {array.shape}, expected float64 {shape}")
        if self.leaves.shape != trees + rows or self.leaves.dtype.kind != "u" or not self.leaves.flags.c_contiguous:
            raise ValueError(f"leaves is {self.leaves.dtype} {self.leaves.shape}, expected unsigned {trees + rows}")
        if self.leaves.size and not (self.leaves.max(axis=1) < self.n_leaves).all():
            raise ValueError("a leaf number beyond the leaves of its tree")
        if self.mixing is not None and [m.shape for m in self.mixing] != [(n, n) for n in self.n_leaves]:
            raise ValueError("mixing does not fit the leaves of its trees")

    @property
    def n_trees(self) -> int:
        return len(self.n_leaves)

    @property
    def n_rows(self) -> int:
        return int(self.leaves.shape[1])

    @property
    def total_leaves(self) -> int:
        return int(self.starts[-1])

    @property
    def total_weight(self) -> float:
        return float(self.n_rows if self.row_weights is None else self.row_weights.sum())

    def leaf_values(self, t: int, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """From the weighted residual sums of tree t's leaves, (L_t, S), to its leaf values before the rate."""
        if self.mixing is not None:
            return self.mixing[t] @ sums
        return self.leaf_scale[self.starts[t] : self.starts[t + 1], None] * sums

    def leaf_values_transpose(self, t: int, adjoints: NDArray[np.float64]) -> NDArray[np.float64]:
        """The transpose of `leaf_values`: from adjoints of tree t's leaf values to adjoints of its sums."""
        if self.mixing is not None:
            return self.mixing[t].T @ adjoints
        return self.leaf_scale[self.starts[t] : self.starts[t + 1], None] * adjoints
