"""Tidy tables in the user's own frame library."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from axil import _core
from axil.errors import InputError
from axil.inputs import as_frame

Array = NDArray[np.float64]


def backend_of(X: Any) -> str:
    """The name of the frame library that tables about X are made with; pandas for arrays."""
    frame = as_frame(X)
    return "pandas" if frame is None else str(nw.get_native_namespace(frame).__name__)


def make(columns: dict[str, Any], backend: str) -> Any:
    """A frame of this library with these columns."""
    return nw.from_dict(columns, backend=nw.Implementation.from_string(backend)).to_native()  # type: ignore[arg-type]


def check_by(by: str) -> None:
    """Refuse an order that tables are not sorted by."""
    if by not in ("weight", "contribution"):
        raise InputError(f'by is {by!r}; expected "weight" or "contribution".')


class Largest:
    """The k largest |weight| (or |weight * target|) of each of n predictions, gathered block by block."""

    def __init__(self, n: int, k: int, targets: Array, by: str, n_threads: int):
        k = min(k, len(targets))
        self.targets = targets
        self.scale = targets if by == "contribution" else None
        self.n_threads = n_threads
        self.values = np.zeros((n, k))
        self.rows = np.full((n, k), -1, dtype=np.int64)

    def add(self, block: Array, first: int) -> None:
        """Take in the weights, (rows, n), of the training rows from ``first`` on."""
        _core.top(np.ascontiguousarray(block), first, self.scale, self.values, self.rows, self.n_threads)

    def columns(self, index: NDArray[Any], query_index: NDArray[Any]) -> dict[str, Any]:
        """query, rank, row, weight, target, contribution: k lines a query, the largest first."""
        n, k = self.values.shape
        rows, weights = self.rows.ravel(), self.values.ravel()
        return {
            "query": np.repeat(query_index, k),
            "rank": np.tile(np.arange(1, k + 1), n),
            "row": index[rows],
            "weight": weights,
            "target": self.targets[rows],
            "contribution": weights * self.targets[rows],
        }


def concatenate(parts: list[dict[str, Any]], backend: str) -> Any:
    """One frame from the columns of several batches."""
    return make({name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, backend)
