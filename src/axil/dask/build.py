"""The verified model of a fitted model and training rows in Dask collections."""

from __future__ import annotations

from typing import Any

from axil import adapters
from axil.adapters.contract import Kind
from axil.dask.build_additive import AdditiveBuilder
from axil.dask.build_exact import ExactBuilder
from axil.dask.cluster import Cluster
from axil.dask.model import PartitionedModel
from axil.dask.training_rows import Collections
from axil.errors import InputError, UnsupportedModelError
from axil.machine.memory import Limits


def build(
    model: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    init_score: Any,
    in_bag: Any,
    client: Any,
    limits: Limits,
    verify: bool,
) -> PartitionedModel:
    """Return the model, replayed on the partitions: with exact weights where it has them, else with contributions."""
    if isinstance(model, dict) and "booster" in model:  # what xgboost.dask.train returns
        model = model["booster"]
    cluster = Cluster(client)
    reading = adapters.examine(model)
    adapter: Any = reading.adapter
    if adapter is None and reading.not_exact is None:
        raise adapters.unread(model)
    if adapter is None:
        raise InputError(
            f"The model is a {type(model).__module__}.{type(model).__qualname__}; over Dask collections expected trees. Use "
            "training rows in memory."
        ) from reading.not_exact
    if adapter.kind is Kind.ADDITIVE:
        if in_bag is not None:
            raise InputError(
                "in_bag counts how often each tree drew each row, and this model is not a weighted "
                "sum of "
                "training targets. Leave it out."
            )
        data = Collections.of(X, y, sample_weight, init_score)
        return AdditiveBuilder(adapter, X, data, cluster, limits, verify).build()
    _refuse_transform(adapter)
    data = Collections.of(X, y, sample_weight, init_score, in_bag)
    return ExactBuilder(adapter, X, data, cluster, limits, verify).build()


def _refuse_transform(adapter: Any) -> None:
    """Refuse a model that transforms its targets itself."""
    if not adapter.scale.is_identity:
        raise UnsupportedModelError(
            "transform of the targets",
            adapter.scale.name,
            "axil does not transform the targets of Dask collections",
            "Transform them yourself and explain the model inside on those: regressor_ of a TransformedTargetRegressor.",
        )
