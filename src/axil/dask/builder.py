"""The steps from a fitted model and training rows in Dask collections to a verified model.

Every kind of model goes through the same steps. The targets are observed partition by partition,
and the model is read with their totals. Each partition then assigns its rows to leaves and walks
them through the fit with the model's own leaf values: given those, rows do not depend on each
other. What the rows put into the leaves is added up over the partitions, and the leaf values that
follow from these sums are compared with the model's. `axil.dask.build_exact` and
`axil.dask.build_additive` say which sums these are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from axil import inputs
from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import TargetForm
from axil.dask.cluster import Cluster, Collection, Delayed, layout, task
from axil.dask.model import PartitionedModel
from axil.dask.training_rows import Collections, SharedFit, TargetFormat, n_checked_rows, places
from axil.errors import UnsupportedModelError
from axil.machine.memory import Limits


@dataclass(frozen=True)
class WalkedPartitions:
    """The training rows after their walk through the fit, on the workers."""

    fits: list[BoostedFit]  #: with what they say of all rows
    rows: list[Delayed]  #: each a `PartitionRows`
    evidence: list[Delayed]  #: what the verification needs of each partition
    sizes: list[int]
    label_dtype: np.dtype[Any]


@dataclass
class Builder(ABC):
    """The steps from training rows in partitions to a verified model."""

    adapter: Any
    X: Collection
    data: Collections
    cluster: Cluster
    limits: Limits
    verify: bool

    of_second_class: ClassVar[bool]  #: whether the target of two classes is one column
    walk_partition: ClassVar[Callable[..., Any]]  #: the work on one partition

    def build(self) -> PartitionedModel:
        """Replay the fit on the workers; raise if model and data disagree."""
        if self.adapter.refused_draws is not None and not self.data.has_sample_counts:
            raise self.adapter.refused_draws
        observed = self.data.observed(self.cluster, self._target_format())
        fits, sizes = self.read(observed)
        return self.settled(self._walked(fits, sizes, observed))

    @abstractmethod
    def read(self, observed: list[Delayed]) -> tuple[list[BoostedFit], list[int]]:
        """Return the fits with their totals over all rows, and the sizes of the partitions."""

    @abstractmethod
    def settled(self, walked: WalkedPartitions) -> PartitionedModel:
        """Return the verified model from the sums over all partitions."""

    @staticmethod
    @abstractmethod
    def without_rows(fit: BoostedFit) -> BoostedFit:
        """Return the part of a fit that all partitions share."""

    def _target_format(self) -> TargetFormat:
        adapter = self.adapter
        if adapter.target_form is TargetForm.BOUNDS:
            raise UnsupportedModelError(
                "targets",
                "bounds of times",
                "gradients are not summed over partitions for this loss",
                "Use training rows in memory.",
            )
        classes = inputs.coding_of(adapter)
        of_second_class = self.of_second_class and classes is not None and adapter.n_outputs == 1
        return TargetFormat(
            adapter.n_outputs,
            classes,
            of_second_class,
            adapter.rounding.targets,
            adapter.rounding.offsets,
        )

    def _walked(
        self, fits: list[BoostedFit], sizes: list[int], observed: list[Delayed]
    ) -> WalkedPartitions:
        """Have every partition walk its rows through the fits."""
        shared_fit = SharedFit(
            self.adapter,
            [self.without_rows(fit) for fit in fits],
            n_checked_rows(sizes),
            self.limits.n_threads,
        )
        shared = self.cluster.share(shared_fit)
        row_weights = [fit.weights.row_weights for fit in fits]
        held_out = [fit.weights.held_out for fit in fits]
        columns = zip(self.data.X, observed, self.data.in_bag, places(sizes, row_weights, held_out))
        walk_partition = type(self).walk_partition
        pairs = [task(walk_partition, *row_values, shared) for row_values in columns]
        results = self.cluster.hold([pair[0] for pair in pairs] + [pair[1] for pair in pairs])
        rows = results[: len(pairs)]
        evidence = results[len(pairs) :]
        label_dtypes = self.cluster.collect([partition.index.dtype for partition in rows])
        label_dtype = next(dtype for dtype, size in zip(label_dtypes, sizes) if size)
        return WalkedPartitions(fits, rows, evidence, sizes, label_dtype)

    @property
    def model_fields(self) -> dict[str, Any]:
        """The fields that every `PartitionedModel` has."""
        return {
            "adapter": self.adapter,
            "cluster": self.cluster,
            "limits": self.limits,
            "features": self.X,
            "parts_of_X": self.data.X,
            "layout": layout(self.X),
        }


def refuse_encoded(fit: BoostedFit) -> None:
    """Refuse encodings of categories, which partitions do not have by themselves."""
    if fit.placement is not None:
        raise UnsupportedModelError(
            "categories",
            f"{fit.placement.encodings} encodings by the targets",
            "a training row is encoded by the rows before it, wherever these are, in a random "
            "order of all rows",
            "Use training rows in memory, in the order of the fit.",
        )
