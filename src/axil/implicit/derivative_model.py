"""DerivativeModel: a smooth learner that was shown to be at an optimum of its training data."""

from __future__ import annotations

from dataclasses import dataclass, replace

from axil.aliases import FeatureTable, ForeignObject
from axil.arrays import FloatArray
from axil.attribution import DERIVATIVES, Attribution, Effects, Kind, Source
from axil.attribution.block_effects import derived, mixed
from axil.contributions.additive_model import by_columns
from axil.errors import InputError
from axil.implicit.optimum import Implicit
from axil.implicit.readers import as_rows
from axil.inputs.copies import frozen
from axil.replay.output_names import OutputNames, in_order
from axil.replay.queries import Combination, QueryBatch, reflected
from axil.replay.verified_model import InMemory


@dataclass(frozen=True, eq=False, repr=False)
class DerivativeModel(InMemory):
    """A smooth learner at its optimum, with derivatives of its predictions by its targets."""

    adapter: Implicit

    kind = Kind.DERIVATIVE
    source = DERIVATIVES

    @property
    def targets(self) -> FloatArray:
        """The targets of the derivatives, (N, K).

        They are 0 and 1 for classes, with 1 for the scored class.
        """
        return frozen(self.labels_in_order(self.adapter.targets))

    @property
    def names(self) -> OutputNames:
        """The names of the outputs, and of the classes that the model predicts."""
        return replace(
            super().names,
            outputs=self.adapter.outputs,
            class_names=in_order(self.adapter.class_names, self.is_reflected),
        )

    @property
    def explains_scores(self) -> bool:
        """Whether the derivatives are of scores with a meaning of their own."""
        return self.adapter.meaning_of_scores is not None

    def has_link_of(self, source: Source) -> bool:
        """Return whether the explained scores have a link."""
        return self.adapter.meaning_of_scores is not None

    def meant(self, scores: FloatArray) -> dict[str, FloatArray]:
        """Return the means or probabilities of scores, by name; empty without a link."""
        link = self.adapter.meaning_of_scores
        if link is None:
            return {}
        means = link(reflected(scores, self.reflection))[0]
        if self.adapter.class_names is None:
            return {"mean": means}
        if self.is_reflected:
            means = reflected(means, 1.0)
        return {"probability": means}

    def queries(self, X: FeatureTable, init_score: ForeignObject = None) -> QueryBatch:
        """Return the batch of these rows; refuse offsets."""
        if init_score is not None:
            raise InputError(
                f"init_score is not taken here: a {self.adapter.library} model that is not boosted "
                "has no offsets. Leave it out."
            )
        return super().queries(as_rows(X))

    def with_offsets_of(self, batch: QueryBatch) -> Implicit:
        """Return the model with the offsets of these rows; it has none."""
        return self.adapter

    @property
    def attribution(self) -> OptimumAttribution:
        """The derivatives of explained rows by the targets of training rows."""
        return OptimumAttribution(self)

    def times(self, v: FloatArray) -> FloatArray:
        """Return J v, (N, S), with J the derivatives of the training rows' own predictions.

        If there are several outputs, v is a single direction (N, K).
        """
        return by_columns(self.adapter.along, v, self.shape[1])

    def times_transposed(self, u: FloatArray) -> FloatArray:
        """Return J'u, (N, S), for u as in `times`."""
        return by_columns(self.adapter.across, u, self.shape[1])

    def verify_predictions(self, batch: QueryBatch, predictions: FloatArray | None) -> None:
        """Do nothing: derivatives are no decomposition, so there is nothing to compare."""

    def bytes_per_query(self, source: Source, whole: bool = False) -> int:
        return self.adapter.bytes_per_query()


@dataclass(frozen=True, eq=False)
class OptimumAttribution(Attribution["QueryBatch | Combination"]):
    """The derivatives of a smooth learner at its optimum."""

    model: DerivativeModel

    def derivative_effects(self, query_batch: QueryBatch | Combination) -> Effects:
        """Return the derivatives of predictions by the targets of the training rows."""
        optimum = self.model.adapter
        if isinstance(query_batch, QueryBatch):
            derivatives = optimum.target_derivatives(query_batch.rows)
        else:
            size = self.model.budget.batch_size(optimum.bytes_per_query())
            derivatives = mixed(
                query_batch, size, lambda queries: optimum.target_derivatives(queries.rows)
            )
        targets = self.model.targets
        return derived(derivatives, query_batch.predictions, targets, query_batch.start)
