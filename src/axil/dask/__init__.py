"""Training rows that do not fit, or do not lie, on one machine: Dask collections.

Workers assign leaves, walk rows through the fit and read out what each row adds, partition by
partition. Only sums over leaves travel. docs/production.md says which methods work, and what they
cost. Needs the extra ``axil[dask]``.
"""

from __future__ import annotations

from axil import adapters
from axil.adapters.contract import Kind, Model
from axil.dask.build_additive import AdditiveBuilder
from axil.dask.build_exact import ExactBuilder
from axil.dask.cluster import Client, Cluster
from axil.dask.model import PartitionedModel
from axil.dask.training_rows import Collections
from axil.errors import InputError, UnsupportedModelError
from axil.implicit.readers import FitInputs


def build(fit_inputs: FitInputs, client: Client) -> PartitionedModel:
    """Return the verified model of a fitted model and training rows in Dask collections.

    It has exact weights where the model has them, else contributions. The client is None for
    Dask's own scheduler in this process.
    """
    model = fit_inputs.model
    if isinstance(model, dict) and "booster" in model:  # what xgboost.dask.train returns
        model = model["booster"]
    cluster = Cluster(client)
    adapter = _read(model)
    if adapter.kind is Kind.ADDITIVE:
        if fit_inputs.in_bag is not None:
            raise InputError(
                "in_bag counts how often each tree sampled each row, and this model is not a "
                "weighted sum of training targets. Leave it out."
            )
        builder_class: type[AdditiveBuilder | ExactBuilder] = AdditiveBuilder
    else:
        _refuse_transform(adapter)
        builder_class = ExactBuilder
    collections = Collections.of(
        fit_inputs.X,
        fit_inputs.y,
        fit_inputs.sample_weight,
        fit_inputs.init_score,
        fit_inputs.in_bag,
    )
    builder = builder_class(
        adapter, fit_inputs.X, collections, cluster, fit_inputs.limits, fit_inputs.verify
    )
    return builder.build()


def _read(model: object) -> Model:
    """Return the adapter of a model of trees; refuse any other model."""
    reading = adapters.examine(model)
    if reading.adapter is not None:
        return reading.adapter
    if reading.not_exact is None:
        raise adapters.unread(model)
    raise InputError(
        f"The model is a {type(model).__module__}.{type(model).__qualname__}; over Dask "
        "collections expected trees. Use training rows in memory."
    ) from reading.not_exact


def _refuse_transform(adapter: Model) -> None:
    """Refuse a model that transforms its targets itself."""
    if not adapter.scale.is_identity:
        raise UnsupportedModelError(
            "transform of the targets",
            adapter.scale.name,
            "axil does not transform the targets of Dask collections",
            "Transform them yourself and explain the model inside on those: regressor_ of a "
            "TransformedTargetRegressor.",
        )
