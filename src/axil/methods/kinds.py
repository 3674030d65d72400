"""Kinds: the verified models that single methods need, once `Capabilities` has let them through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from axil.aliases import FeatureTable
from axil.arrays import FloatArray
from axil.contributions.additive_model import AdditiveModel
from axil.replay.exact_model import ExactModel
from axil.replay.queries import QueryBatch
from axil.replay.training_columns import AllowedRows
from axil.replay.verified_model import InMemory, Refittable, VerifiedModel


def exact_model(model: VerifiedModel) -> ExactModel:
    """Return a model that has exact weights, with the type of its kind."""
    assert isinstance(model, ExactModel)
    return model


def additive_model(model: VerifiedModel) -> AdditiveModel:
    """Return boosted trees whose contributions add up to scores, with the type of their kind."""
    assert isinstance(model, AdditiveModel)
    return model


def in_memory_model(model: VerifiedModel) -> InMemory:
    """Return a model whose training rows are in this process, with its type."""
    assert isinstance(model, InMemory)
    return model


def refittable_model(model: VerifiedModel) -> Refittable:
    """Return a model that can be fitted to other targets or rows, with the type of its kind."""
    assert isinstance(model, Refittable)
    return model


class LinearMap(Protocol):
    """A model with the matrix of the derivatives of the training rows' own predictions."""

    def times(self, v: FloatArray) -> FloatArray:
        """Return the product with vectors (N, S)."""

    def times_transposed(self, u: FloatArray) -> FloatArray:
        """Return the product of the transposed matrix with vectors (N, S)."""


def linear_map(model: VerifiedModel) -> LinearMap:
    """Return a model as the linear map from targets to the training rows' own predictions."""
    return cast(LinearMap, model)


class Differentiated(Protocol):
    """A fit that has the derivatives of predictions by labels and by sample weights."""

    def crossed_derivatives(
        self, X: FeatureTable, output: int, labels: Sequence[int]
    ) -> FloatArray:
        """Return the derivatives of one output by the labels of several, (labels, n, N)."""

    def weight_derivatives(self, X: FeatureTable) -> FloatArray:
        """Return the derivatives of all outputs by the sample weights, (K, n, N)."""


class HasDerivatives(Protocol):
    """A model whose fit, at explained rows, has derivatives."""

    def with_offsets_of(self, batch: QueryBatch) -> Differentiated:
        """Return the fit with the offsets of these rows."""


def differentiated(model: VerifiedModel, batch: QueryBatch) -> Differentiated:
    """Return the derivatives of a model at explained rows."""
    return cast(HasDerivatives, model).with_offsets_of(batch)


class ListsResiduals(Protocol):
    """A model that lists training rows with their residuals."""

    def with_residuals(self, allowed: Sequence[AllowedRows]) -> Sequence[AllowedRows]:
        """Return the rows that may be listed with their residuals, shard by shard."""


def with_residuals(model: VerifiedModel, allowed: Sequence[AllowedRows]) -> Sequence[AllowedRows]:
    """Return the rows that may be listed with their residuals, shard by shard."""
    return cast(ListsResiduals, model).with_residuals(allowed)


class Preparable(Protocol):
    """A model that can compute in advance what makes explanations cheaper."""

    def prepared(self) -> VerifiedModel:
        """Return the model with its leaf matrix, or its contributions in leaf order."""


def prepared(model: VerifiedModel) -> VerifiedModel:
    """Return a model with everything computed in advance that makes explanations cheaper."""
    return cast(Preparable, model).prepared()
