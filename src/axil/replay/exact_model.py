"""ExactModel: a fitted model whose predictions are verified weighted sums of its targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from axil.adapters.contract import Adapter, Model, OffsetRule, TrainingRows
from axil.arrays import BoolArray, FloatArray
from axil.attribution import WEIGHTS, Capabilities, Kind, Quantity, Source
from axil.attribution.capabilities import MISSING_TARGETS, Refusal
from axil.inputs.copies import frozen
from axil.replay.compare_predictions import check_answer
from axil.replay.exact_attribution import ExactAttribution
from axil.replay.exact_deletions import ExactDeletions
from axil.replay.fitted_trees import ExactTrees, boosted_structures
from axil.replay.queries import Combination, QueryBatch
from axil.replay.refit import RefitInputs, refit_exact
from axil.replay.target_changes import ExactTargetChanges
from axil.replay.verification import Verification
from axil.replay.verified_model import FitOffsets, Refittable, WeightLayout
from axil.scale import FittedTargets
from axil.structure import Structure, output_groups
from axil.structure.leaves import LeafFit
from axil.weights.engine import Engine, TreeEngine, across, all_structures, by_output
from axil.weights.fit_rules import rule_of
from axil.weights.percentile_rule import PercentileRule
from axil.weights.sum_rule import estimates_rows

DELETIONS = (
    "without",
    "removal",
    "diagnostics.leave_one_out",
    "diagnostics.leave_one_out_curve",
    "find_label_issues",
    "calibrate",
)
ESTIMATED_COUNTS = (
    "Leaves of this model are smoothed by numbers of rows that the library estimated from bins of "
    "feature values, which the model does not keep. Without some rows they are estimated by "
    "weight, as far off as with all rows: deletions are close, not exact. For exact ones fit with "
    "path_smooth=0, or without sample_weight and GOSS."
)
# the part of the user's own limit that the leaf matrix may take: batches of queries take the rest
LIMITED = 16


@dataclass(frozen=True, eq=False, repr=False)
class ExactModel(Refittable):
    """A fitted model whose predictions are weighted sums of its targets.

    It has the training rows, and the engines that compute the weights.

    Nothing in it changes. `prepared` and `ready` give another one, which shares what is kept. Only
    they choose how queries are answered, so no batch of a request is answered in another way than
    the others.
    """

    adapter: Model
    verification: Verification | None
    _: KW_ONLY
    engines: list[Engine]  #: one for all outputs that share trees, else one for each
    targets: FloatArray
    rows: TrainingRows  #: as they were given, without features: what a file keeps of them
    is_prepared: bool = False  #: whether by `prepared`

    kind = Kind.EXACT
    source = WEIGHTS

    def __post_init__(self) -> None:
        """Make the targets, which all explanations share, read-only; show missing ones as nan."""
        super().__post_init__()
        object.__setattr__(self, "targets", frozen(self.targets))
        if self.missing is not None and self.seen is None:
            object.__setattr__(self, "seen", frozen(np.where(self.missing, np.nan, self.targets)))

    def on(self, fitted: FittedTargets) -> ExactModel:
        """Return this model with its targets on the scale of the fit and in the user's units."""
        if fitted.scale.is_identity:
            shown_targets = None
        else:
            shown_targets = frozen(fitted.shown)
        return replace(self, scale=fitted.scale, seen=shown_targets)

    @cached_property
    def capabilities(self) -> Capabilities:
        approximate: dict[str, str] = {}
        if any(map(estimates_rows, all_structures(self.engines))):
            approximate = dict.fromkeys(DELETIONS, ESTIMATED_COUNTS)
        return replace(super().capabilities, approximate=approximate)

    def own_refusals(self) -> dict[str, Refusal]:
        refused = super().own_refusals()
        if self.missing is None:
            return refused
        return refused | MISSING_TARGETS

    @property
    def missing(self) -> BoolArray | None:
        """A mask of missing targets, (N, K); None if all are present.

        A missing target is stored as 0 and has no weight.
        """
        if not self.adapter.missing_targets or len(self.engines) < self.targets.shape[1]:
            return None
        weights = [engine.structure.row_weights for engine in self.engines]
        if weights[0] is None:
            return None
        return np.stack([row_weights == 0 for row_weights in weights], axis=1)

    def times(self, v: FloatArray) -> FloatArray:
        """Return K v, (N, S).

        If outputs have trees of their own, v has one column per output.
        """
        return across(self.engines, v, lambda engine, columns: engine.matvec(None, columns))

    def times_transposed(self, u: FloatArray) -> FloatArray:
        """Return K' u, (N, S)."""
        return across(self.engines, u, lambda engine, columns: engine.rmatvec(None, columns))

    @property
    def deletions(self) -> ExactDeletions:
        return ExactDeletions(self)

    # -- engines and outputs -----------------------------------------------------------------------

    @property
    def weight_layout(self) -> WeightLayout:
        is_shared = len(self.engines) == 1
        is_sparse = is_shared and self.engines[0].is_sparse
        return WeightLayout(output_groups(len(self.engines)), is_shared, is_sparse)

    def own_targets(self) -> list[FloatArray]:
        """Return the targets of each engine.

        They are always the same arrays, because engines cache sums of them.
        """
        return self.kept.get(
            "targets",
            lambda: [
                np.ascontiguousarray(self.targets[:, outputs])
                for outputs in self.weight_layout.output_groups
            ],
        )

    def prepared(self) -> ExactModel:
        """Return this model with everything computed that makes later requests cheaper.

        Refuse if it does not fit into memory.
        """
        needed = sum(engine.memory.preparation for engine in self.engines)
        self.budget.require(
            needed, "The leaf matrix", "Explanations work without it, by backward passes."
        )
        return replace(
            self, engines=[engine.prepared() for engine in self.engines], is_prepared=True
        )

    # -- queries -----------------------------------------------------------------------------------

    def ready(self, source: Source, n_queries: int) -> ExactModel:
        """Return this model with the algorithm for a request of this many rows.

        axil chooses backward passes or the leaf matrix: the faster one of those that fit into
        memory.
        """
        if source.quantity not in (Quantity.WEIGHT, Quantity.FIRST_ORDER):
            return self
        if self.budget.limit is None:
            divisor = 2
        else:
            divisor = LIMITED
        share = self.budget.available // (divisor * len(self.engines))
        return replace(self, engines=[engine.prepared(n_queries, share) for engine in self.engines])

    @property
    def attribution(self) -> ExactAttribution:
        """The numbers of explained rows and training rows."""
        return ExactAttribution(self)

    @property
    def trees(self) -> ExactTrees | None:
        if all(isinstance(engine, TreeEngine) for engine in self.engines):
            return ExactTrees(self)
        return None

    def verify_predictions(self, batch: QueryBatch, predictions: FloatArray | None) -> None:
        if predictions is None:
            self.predicted(batch)
        else:
            self.check(batch, predictions)

    def has_link_of(self, source: Source) -> bool:
        return self.adapter.classes is not None and not self.adapter.predicts_probabilities

    def meant(self, scores: FloatArray) -> dict[str, FloatArray]:
        calibration = self.adapter.calibration
        if calibration is None:
            probabilities = None
        else:
            probabilities = calibration.probabilities(scores, scores)
        if probabilities is None:
            return {}
        return {"probability": probabilities}

    def meant_by(self, batch: QueryBatch | Combination) -> dict[str, FloatArray]:
        if self.adapter.calibration is not None and not isinstance(batch, Combination):
            probabilities = self.adapter.mean_probabilities(batch.rows)
            if probabilities is not None:
                return {"probability": probabilities}
        return super().meant_by(batch)

    def bytes_per_query(self, source: Source, whole: bool = False) -> int:
        if whole:
            least = 8 * len(self.targets)
        else:
            least = 0
        return sum(max(least, engine.memory.per_query) for engine in self.engines)

    def check(
        self, queries: QueryBatch | Combination, predictions: FloatArray
    ) -> FloatArray | None:
        """Compare predictions (n, K), offsets included, with the model's own, and return those.

        axil compares them on every use.
        """
        sizes = queries.sizes
        return check_answer(
            self.verification, predictions, queries.labels, lambda: queries.predictions, sizes
        )

    def predicted(self, queries: QueryBatch) -> FloatArray:
        """Return the predictions (n, K), offsets included, as weighted sums of the targets.

        Raise unless they agree with the model's own predictions. One replay of the fit computes
        them. The order of summation is always the same; the threads of a library do not promise
        that.
        """
        coordinates = queries.coordinates
        predictions = across(
            self.engines,
            self.targets,
            lambda engine, columns: engine.predicted(coordinates, columns),
        )
        predictions = predictions + queries.offsets.values
        if queries.offsets.replace_base:
            predictions -= self.base_numbers()
        self.check(queries, predictions)
        return predictions

    def base_numbers(self) -> FloatArray:
        """Return the part of the initial prediction in every prediction of trees, (K,)."""
        parts = []
        for engine, targets in by_output(self.engines, self.targets):
            s = engine.structure
            if s.initial is None:
                mean = np.average(targets, axis=0, weights=s.row_weights)
            else:
                mean = s.initial
            parts.append(np.broadcast_to(s.beta[-1] * mean, targets.shape[1:]))
        return np.concatenate(parts)

    def fitted(self) -> FloatArray:
        """Return the predictions of the training rows, (N, K).

        They include the offsets of the fit, which may replace the initial prediction.
        """
        fitted_values = across(
            self.engines, self.targets, lambda engine, columns: engine.predicted(None, columns)
        )
        if self.base_offsets() is None:
            return fitted_values
        return fitted_values - self.base_numbers()

    def with_residuals(self, allowed: Sequence[Any]) -> Sequence[Any]:
        """Return the training rows that may be listed, with their residuals."""
        residuals = self.kept.get(
            "residuals", lambda: self.targets - self.kept.get("fitted", self.fitted)
        )
        return [replace(allowed_rows, residuals=residuals) for allowed_rows in allowed]

    @property
    def structures(self) -> Sequence[Structure] | None:
        """The boosted trees of each group of outputs, as every shard has them; else None."""
        return boosted_structures(self.trees)

    @property
    def fit_offsets(self) -> FitOffsets:
        were_given = any(s.offsets is not None for s in self.structures or ())
        replaced_initial = (
            self.adapter.offset_rule is not OffsetRule.ADDED
            and not self.engines[0].structure.initial_in_fit
        )
        return FitOffsets(were_given, replaced_initial)

    def base_offsets(self) -> FloatArray | None:
        """Return the offsets (N, K) that replaced the initial prediction in the fit.

        Return None if the fit started from the initial prediction.
        """
        if not self.fit_offsets.replaced_initial:
            return None
        return np.concatenate(
            [cast(FloatArray, engine.structure.offsets) for engine in self.engines], axis=1
        )

    # -- changes of the training rows --------------------------------------------------------------

    @property
    def changes(self) -> ExactTargetChanges:
        return ExactTargetChanges(self)

    @property
    def row_weights(self) -> FloatArray:
        first = self.engines[0]
        if not isinstance(first, TreeEngine):
            return np.ones(len(self.targets))
        if self.missing is not None:
            return np.asarray(
                np.max([cast(FloatArray, e.structure.row_weights) for e in self.engines], axis=0)
            )
        s = first.structure
        rule = rule_of(s)
        if isinstance(rule, PercentileRule) and rule.ranks.rows is not None:
            return np.bincount(rule.ranks.rows, minlength=s.n_rows).astype(np.float64)
        if s.row_weights is None:
            return np.ones(s.n_rows)
        return s.row_weights

    def refit_leaves(self, refit_inputs: RefitInputs) -> tuple[list[LeafFit], FloatArray | None]:
        return refit_exact(cast(Adapter, self.adapter), self.engines, self.limits, refit_inputs)

    # -- memory ------------------------------------------------------------------------------------

    def require(self, n: int, instead: str) -> None:
        n_train = len(self.targets)
        self.budget.require(
            8 * n * n_train * len(self.engines), f"The weights of {n} x {n_train} rows", instead
        )
