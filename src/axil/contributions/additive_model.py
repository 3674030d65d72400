"""AdditiveModel: boosted trees of any loss that were shown to belong to their training data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from axil.adapters.contract import Model, OffsetRule
from axil.aliases import ArrayLike, FeatureTable
from axil.arrays import BoolArray, FloatArray
from axil.attribution import CONTRIBUTIONS, Kind, Quantity, Source
from axil.attribution.capabilities import (
    HELD_OUT_ALONE,
    INTERVALS_OF_SCORES,
    ORDERED_ON_DEVICE,
    REPORT_OF_SCORES,
    SCORES_ALONE,
    TREES_BY_ERRORS,
    WITHOUT_HELD_OUT,
    Refusal,
)
from axil.attribution.leaf_matches import TreeWeights, count_rows
from axil.contributions.additive_attribution import AdditiveAttribution
from axil.contributions.boosting import Boosting
from axil.contributions.contributions import Contributions
from axil.contributions.deletions import AdditiveDeletions, replays_together
from axil.contributions.leaf_order import bytes_per_query
from axil.implicit.readers import as_rows
from axil.inputs.copies import frozen
from axil.machine.arrays import is_host
from axil.replay.fitted_trees import FittedTrees
from axil.replay.output_names import OutputNames, in_order
from axil.replay.queries import Combination, QueryBatch, reflected
from axil.replay.refit import RefitInputs
from axil.replay.target_changes import TargetChanges
from axil.replay.verified_model import FitOffsets, Refittable
from axil.structure.leaves import LeafFit
from axil.trees.losses import Deviance


@dataclass(frozen=True, eq=False)
class AdditiveTrees(FittedTrees):
    """The trees of a model whose contributions add up to scores."""

    contributions: Contributions

    @property
    def are_rescaled(self) -> bool:
        return self.contributions.walked.fit.schedule.tree_shares is not None

    def weights(self, rule: str) -> TreeWeights:
        contributions = self.contributions
        if rule == "variance":
            walked = contributions.walked
            return TreeWeights([contributions.spreads(count_rows(walked.leaves, walked.starts))])
        return TreeWeights(None, lambda rows: [contributions.reductions(rows)], rule == "improved")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AdditiveModel(Refittable):
    """Boosted trees of any loss, whose scores are sums of the contributions of training rows."""

    boosting: Boosting

    kind = Kind.ADDITIVE
    source = CONTRIBUTIONS

    @property
    def targets(self) -> FloatArray:
        """The targets of the fit, (N, K); for two classes, whether a row is of the second."""
        return frozen(self.labels_in_order(self.boosting.targets))

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of training rows and of outputs."""
        return len(self.boosting.targets), self.adapter.n_outputs

    @property
    def names(self) -> OutputNames:
        """The names of the outputs, and of the classes that the model predicts."""
        class_names = in_order(self.boosting.class_names, self.is_reflected)
        return replace(super().names, class_names=class_names)

    @property
    def variance_power(self) -> float | None:
        if isinstance(self.boosting.loss, Deviance):
            return self.boosting.loss.power
        return None

    def has_link_of(self, source: Source) -> bool:
        if source.quantity is Quantity.DERIVATIVE and self.boosting.differentiates != "raw":
            return False
        return bool(self.boosting.loss.meaning)

    @property
    def is_prepared(self) -> bool:
        """Whether `prepared` stored the contributions in the order of the leaves."""
        return self.boosting.leaf_order is not None

    def prepared(self) -> AdditiveModel:
        """Return this model with its contributions in the order of the leaves.

        Refuse if they do not fit into memory.
        """
        return replace(self, boosting=self.boosting.in_leaf_order())

    @property
    def fit_offsets(self) -> FitOffsets:
        were_given = self.boosting.rows.offsets is not None
        replaced_initial = self.adapter.offset_rule is not OffsetRule.ADDED and were_given
        return FitOffsets(were_given, replaced_initial)

    def queries(self, X: FeatureTable, init_score: Any = None) -> QueryBatch:
        return super().queries(as_rows(X), init_score)

    @property
    def trees(self) -> AdditiveTrees:
        return AdditiveTrees(self.boosting.contributions)

    def with_offsets_of(self, batch: QueryBatch) -> Boosting:
        """Return the model with the offsets of these rows."""
        return self.boosting.shifted(batch.offsets)

    @property
    def attribution(self) -> AdditiveAttribution:
        """The numbers of explained rows and training rows."""
        return AdditiveAttribution(self)

    def verify_predictions(
        self, batch: QueryBatch | Combination, predictions: FloatArray | None
    ) -> None:
        if isinstance(batch, Combination):
            rows = batch.queries
        else:
            rows = batch
        if predictions is not None:
            predictions = reflected(predictions, self.reflection)
        self.with_offsets_of(rows).verify_predictions(batch, predictions)

    # -- changes of the training rows --------------------------------------------------------------

    @property
    def deletions(self) -> AdditiveDeletions:
        return AdditiveDeletions(self)

    def times(self, v: FloatArray) -> FloatArray:
        """Return J v, (N, S), with J the derivatives of the training rows' predictions.

        They are derivatives by the targets. For K outputs v is one vector, (N, K).
        """
        return by_columns(self.boosting.along, v, self.shape[1])

    def times_transposed(self, u: FloatArray) -> FloatArray:
        """Return J'u, (N, S); see `times`."""
        return by_columns(self.boosting.across, u, self.shape[1])

    def own_refusals(self) -> dict[str, Refusal]:
        refused = super().own_refusals()
        if not self.adapter.is_written:
            reason = f"models of {self.adapter.library} are not written"
            refused["refit"] = (reason, "Ask explainer.without(X, rows) or what_if(X, targets).")
        if not is_host(self.boosting.contributions.rows.cells):
            refused["precompute"] = ORDERED_ON_DEVICE
        if self.names.class_names is None:
            refused["report"] = REPORT_OF_SCORES
            if self.variance_power is None:
                refused["calibrate"] = INTERVALS_OF_SCORES
            else:
                refused[WITHOUT_HELD_OUT] = HELD_OUT_ALONE
        if self.boosting.loss.predicts_targets:
            return refused
        methods = ("diagnostics.leave_one_out", "find_label_issues", TREES_BY_ERRORS)
        return refused | dict.fromkeys(methods, SCORES_ALONE)

    @property
    def changes(self) -> AdditiveTargetChanges:
        return AdditiveTargetChanges(self)

    @property
    def row_weights(self) -> FloatArray:
        return self.boosting.walked.weights

    def held_out(self, sample_weight: FloatArray | None) -> BoolArray:
        return super().held_out(self.boosting.rows.weights)  # classes may have no weight either

    def refit_leaves(self, refit_inputs: RefitInputs) -> tuple[list[LeafFit], FloatArray | None]:
        targets = self.labels_in_order(refit_inputs.targets)
        leaf_fit, sample_counts = self.boosting.refit_leaves(replace(refit_inputs, targets=targets))
        return [leaf_fit], sample_counts

    def meant(self, scores: FloatArray) -> dict[str, FloatArray]:
        own_scores = reflected(scores, self.reflection)
        means = self.boosting.means(own_scores)
        if means is None:
            return {}
        probabilities = calibrated(self.adapter, own_scores, means)
        if self.is_reflected:
            probabilities = reflected(probabilities, 1.0)
        return {self.boosting.loss.meaning: probabilities}

    def for_method(self, method: str) -> AdditiveModel:
        # These tables name classes, so they are the same for either score.
        if method in ("find_label_issues", "influence"):
            return self.as_fitted  # type: ignore[no-any-return]
        return self

    def bytes_per_query(self, source: Source, whole: bool = False) -> int:
        if source.quantity in (Quantity.DERIVATIVE, Quantity.FIRST_ORDER):
            return self.boosting.bytes_per_query()
        if source.quantity is Quantity.DELETION:
            return 8 * self.shape[1] * (3 * replays_together(self.boosting) + 2)
        if whole:
            return 16 * self.targets.size
        n_bytes = self.boosting.contributions.bytes_per_query()
        if self.is_prepared:
            n_bytes += bytes_per_query(*self.shape)
        return n_bytes


@dataclass(frozen=True, eq=False)
class AdditiveTargetChanges(TargetChanges):
    """Other targets of boosted trees, by replays of the fit."""

    model: AdditiveModel

    def as_targets(self, values: ArrayLike, n: int, name: str, rows: str) -> FloatArray:
        targets = self.model.boosting.as_targets(values, n, name, rows)
        return self.model.labels_in_order(targets)

    def moved(self, queries: QueryBatch, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        self.model.verify_predictions(queries, None)
        boosting = self.model.with_offsets_of(queries)
        leaves = queries.coordinates
        refitted = boosting.refitted(self.model.labels_in_order(targets))
        change = refitted.scores(leaves)[0] - boosting.refitted_as_before().scores(leaves)[0]
        return queries.predictions, reflected(change, self.model.reflection)

    def loss_slopes(self, queries: QueryBatch, y: FloatArray) -> FloatArray:
        return self.model.with_offsets_of(queries).loss_slopes(queries.rows, y)

    def pulled_back(self, queries: QueryBatch, u: FloatArray) -> FloatArray:
        return self.model.with_offsets_of(queries).pulled_back(queries.coordinates, u)


def by_columns(
    multiply: Callable[[FloatArray], FloatArray], values: FloatArray, n_outputs: int
) -> FloatArray:
    """Return the products of a matrix with the values.

    For K outputs the values (N, K) are one vector. For one output each column of (N, S) is a
    vector.
    """
    if n_outputs > 1:
        return multiply(values)
    return np.concatenate([multiply(column[:, None]) for column in values.T], axis=1)


def calibrated(adapter: Model, scores: FloatArray, means: FloatArray) -> FloatArray:
    """Return the probabilities that a calibration makes of scores, (n, K).

    Without a calibration these are the means that belong to the scores by the link.
    """
    if adapter.calibration is None:
        return means
    probabilities = adapter.calibration.probabilities(scores, means)
    assert probabilities is not None  # only those of sums of models follow from no score
    return probabilities
