"""Training rows in partitions on workers, and what every explainer of such rows has in common."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.dask.cluster import Cluster, task
from axil.dask.partitions import row_labels, row_targets
from axil.errors import InputError
from axil.machine.limits import Limits
from axil.questions.streamed import Streamed
from axil.types import Array


@dataclass(frozen=True)
class HeldRows:
    """The training rows on the workers."""

    partitions: list[Any]  #: delayed, held; each with ``targets`` and ``labels``
    sizes: list[int]
    label_dtype: np.dtype[Any]

    @property
    def starts(self) -> NDArray[np.int64]:
        return np.cumsum([0, *self.sizes])


class Partitioned(Streamed):
    """An explainer of training rows in the partitions of Dask collections."""

    _adapter: Any
    _cluster: Cluster
    _limits: Limits
    _held: Any  # HeldRows
    _layout: tuple[float, ...]  # of X, for labels that come later

    @property
    def _n_rows(self) -> int:
        return sum(self._held.sizes)

    @property
    def outputs(self) -> NDArray[Any] | None:
        """(K,): the names of the classes or the numbers of the outputs; None for a single output."""
        if self._adapter.n_outputs == 1:
            return None
        return np.arange(self._adapter.n_outputs) if self._adapter.classes is None else self._adapter.classes

    @property
    def targets(self) -> Any:
        """(n_train,) or (n_train, K) Dask array of the targets as given, in the partitions of X."""
        whole = self._column(row_targets, (self._adapter.n_outputs,), np.float64)
        return whole[:, 0] if self.outputs is None else whole

    @property
    def index(self) -> Any:
        """(n_train,) Dask array of the labels of the training rows, in the partitions of X."""
        return self._column(row_labels, (), self._held.label_dtype)

    def _column(self, column: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        held = zip(self._held.partitions, self._held.sizes)
        return da.concatenate([da.from_delayed(task(column, part), (n, *shape), dtype) for part, n in held if n])

    @cached_property
    def _gathered(self) -> tuple[Array, NDArray[Any]]:
        """Targets and labels of all rows, for explanations that have all their weights anyhow."""
        held = [part for part, size in zip(self._held.partitions, self._held.sizes) if size]
        found = (self._cluster.collect([task(column, part) for part in held]) for column in (row_targets, row_labels))
        whole, names = map(np.concatenate, found)
        return whole, names

    def _in_memory(self, X: Any) -> Any:
        """Rows to explain, checked."""
        if dask.is_dask_collection(X):
            raise InputError(
                "X is a Dask collection; expected the rows to explain in memory. Pass X.compute(), in batches."
            )
        return inputs.as_features(X, self._adapter, "X")

    def _lines(self, labels: NDArray[Any], name: str, of_each: NDArray[Any]) -> dict[str, Any]:
        """The first columns of a table with a line for each query, output and one of these."""
        n_outputs = self._adapter.n_outputs
        columns = {"query": np.repeat(labels, n_outputs * len(of_each))}
        if self.outputs is not None:
            columns["output"] = np.tile(np.repeat(self.outputs, len(of_each)), len(labels))
        return columns | {name: np.tile(of_each, len(labels) * n_outputs)}
