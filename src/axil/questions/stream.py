"""Stream: rows whose weights come batch by batch, in batches that memory allows, and the tables made of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.machine.memory import Budget
from axil.output import similar, tables
from axil.output.columns import columns_of
from axil.output.context import Context
from axil.output.sums import WeightedSums
from axil.types import Array

COPIES = 3  # of a query's weights while some of them are chosen


@dataclass(frozen=True, eq=False)
class Stream:
    """Rows whose weights come batch by batch, and what tables about them need to know."""

    rows: Any  #: (n, features) to explain, checked
    batches: Callable[[int], Iterator[WeightedSums]]  #: so many rows at a time; one empty batch of no rows
    n_targets: tuple[int, int]  #: (N, K)
    index: Callable[[], NDArray[Any]]  #: (N,) the user's labels of the training rows
    outputs: NDArray[Any] | None
    backend: str
    budget: Budget
    bytes_per_query: int  #: that one query's weights take while they are made
    features: Any = None  #: (N, features) the training rows; None where they are not at hand
    feature_names: list[str] | None = None
    note: str = tables.NOTE  #: what the numbers are
    is_shared: bool = False  #: whether there are classes that share their weights
    #: (N, K) the training rows' own predictions; None where weights do not make them
    fitted: Callable[[], Array] | None = None

    def parts(self, more_bytes: int = 0) -> Iterator[WeightedSums]:
        """In batches that memory allows, where each query takes so many bytes more."""
        return self.batches(self.budget.batch_size(self.bytes_per_query + more_bytes))

    def for_table(self, lines: int, columns: int, bytes_per_line: int, more_bytes: int = 0) -> Iterator[WeightedSums]:
        """In batches that leave room for a table of so many lines per query, and for work on each line and each query."""
        working, n = self.bytes_per_query + more_bytes + bytes_per_line * lines, self.rows.shape[0]
        return self.batches(tables.batch_size(self.budget, n, lines, columns, working))

    def table(self, lines: int, columns: int, make: Callable[[WeightedSums], dict[str, Any]]) -> Any:
        """A table of so many lines per query and output and of so many columns, besides that of the output."""
        lines, columns = lines * self.n_targets[1], columns + (self.outputs is not None)
        parts = [make(part) for part in self.for_table(lines, columns, 8 * 8)]
        return tables.note(tables.concatenate(parts, self.backend), self.note)

    def groups(self, labels: Any, what: str = "labels") -> tuple[NDArray[np.intp], NDArray[Any]]:
        """Each training row's group number and the groups' names, from labels or the name of a column of the training rows."""
        values = inputs.row_values(labels, self.features, self.feature_names, what)
        return inputs.group_codes(values, self.n_targets[0], what)

    def listing(self, beside: Any = None) -> similar.Beside:
        """The training rows and those to list them beside, with further columns of both."""
        known = columns_of(self.features, self.rows, self.names(), beside)
        return similar.Beside(known, self.n_targets, self.backend, self.note, self.is_shared)

    def names(self) -> list[str]:
        """The names of the columns."""
        return Context(self.rows, self.features, self.feature_names, None).names()


def measured(parts: Iterable[WeightedSums], measure: Callable[[WeightedSums], Array]) -> Array:
    """(1, n), or (K, n) where outputs have trees of their own: a measure of each prediction's weights."""
    return np.concatenate([np.atleast_2d(measure(part)) for part in parts], axis=1)
