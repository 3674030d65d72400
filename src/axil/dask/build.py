"""The proven model of a fitted model and training rows in Dask collections."""

from __future__ import annotations

from typing import Any, cast

from axil import adapters
from axil.adapters.contract import GradientTrees, Kind
from axil.dask import build_pushes, build_weights
from axil.dask.build_weights import Collections
from axil.dask.cluster import Cluster, layout
from axil.dask.partitioned_model import PartitionedModel
from axil.dask.partitioned_pushes import PartitionedPushes
from axil.dask.partitioned_weights import PartitionedWeights
from axil.errors import InputError, UnsupportedModelError
from axil.machine.memory import Limits


def proven(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    init_score: Any,
    bags: Any,
    client: Any,
    limits: Limits,
    verify: bool,
) -> PartitionedModel:
    """The model, replayed on the partitions; exact weights where it has them, else pushes."""
    given = model["booster"] if isinstance(model, dict) and "booster" in model else model
    cluster = Cluster(client)
    reading = adapters.examine(given)
    adapter = reading.adapter
    if adapter is None and reading.not_exact is None:
        raise adapters.unread(given)
    if adapter is None:
        raise InputError(
            f"The model is a {type(given).__module__}.{type(given).__qualname__}; over Dask collections expected trees. Use "
            "training rows in memory."
        ) from reading.not_exact
    if adapter.kind is Kind.ADDITIVE:
        if bags is not None:
            raise InputError(
                "bags are draws of rows for models whose predictions are weighted sums. Leave it out."
            )
        data = Collections.of(X, y, sample_weight, init_score)
        boosted = cast(GradientTrees, adapter)
        held, found = build_pushes.build(boosted, data, cluster, limits, verify)
        return PartitionedPushes(
            boosted, held, cluster, limits, found, X, data.X, layout(X), verify=verify
        )
    if not adapter.scale.is_identity:
        raise UnsupportedModelError(
            "transform of the targets",
            adapter.scale.name,
            "axil does not transform the targets of Dask collections",
            "Transform them yourself and explain the model inside on those: regressor_ of a TransformedTargetRegressor.",
        )
    data = Collections.of(X, y, sample_weight, init_score, bags)
    kept, verification = build_weights.build(adapter, data, cluster, limits, verify)
    return PartitionedWeights(adapter, kept, cluster, limits, verification, X, data.X, layout(X))
