"""AdditiveModel: boosted trees of any loss that were shown to belong to their training data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil.adapters.contract import OffsetRule
from axil.arrays import BoolArray, FloatArray, IntArray, LeafArray
from axil.attribution import CONTRIBUTIONS, Effects, Kind, Quantity, Source
from axil.attribution.block_effects import BlockEffects, derived, mixed
from axil.attribution.leaf_matches import SharedLeaves, TreeWeights, count_rows
from axil.contributions.boosting import Boosting
from axil.contributions.contributions import Contributions
from axil.errors import InputError
from axil.implicit.readers import as_rows
from axil.inputs.copies import frozen
from axil.machine.arrays import have_same_values
from axil.machine.blocks import spans
from axil.machine.memory import BATCH_BYTES
from axil.machine.progress import track
from axil.machine.threads import Cache
from axil.replay.queries import Combination, Offsets, QueryBatch
from axil.replay.refit import RefitInputs
from axil.replay.verified_model import Refittable
from axil.structure.leaves import LeafFit

TOGETHER = 1 << 15  # rows of all copies that replays walk together: their scores stay in the cache
# times the score of a fit without rows: a change of the model's own score to it is not taken, for
# it loses digits
HUGE = 1e3
SECONDS = 6e-8  # of one row in one step of a tree, with its gradient; measured on one core


class ContributionEffects(BlockEffects):
    """The contributions of each training row's own gradients to n scores."""

    def __init__(
        self,
        contributions: Contributions,
        leaves: LeafArray,
        starts: FloatArray,
        cache: Cache,
        first: int = 0,
    ):
        shape = len(contributions.walked.targets), contributions.n_outputs
        super().__init__(
            lambda: contributions.blocks(leaves),
            shape,
            len(leaves),
            starts,
            backend=contributions.backend,
            first=first,
        )
        self._contributions = contributions
        self._leaves = leaves
        self._cache = cache
        self.shared_leaves = self._alike

    def _alike(self) -> SharedLeaves:
        return SharedLeaves.of([self._contributions.rows], [self._leaves])

    def by_group(self, codes: IntArray, n_groups: int) -> tuple[FloatArray, FloatArray] | None:
        """Return the sums by leaf and group, from one walk through the training rows that later batches share."""
        if n_groups * self._contributions.bytes_per_query() > BATCH_BYTES:
            return None
        last = self._cache.known().get("cells by group")
        if last is None or last[0] != n_groups or not have_same_values(last[1], codes):
            last = n_groups, codes, self._contributions.cells_by_group(codes, n_groups)
            self._cache.put("cells by group", last)
        sums = self._contributions.sums_by_group(self._leaves, last[2])
        return sums, sums


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class AdditiveModel(Refittable):
    """Boosted trees of any loss, and the account of their scores: what each training row's own gradients put into them."""

    boosting: Boosting

    kind = Kind.ADDITIVE
    source = CONTRIBUTIONS
    contribution_source = CONTRIBUTIONS
    has_leaves = True

    @property
    def targets(self) -> FloatArray:
        """(N, K): the targets of the fit; of two classes, whether a row is of the second."""
        return frozen(self.boosting.targets)

    @property
    def scored(self) -> Any:
        return self.boosting.scored

    @property
    def starts_elsewhere(self) -> bool:
        return self.adapter.offset_rule is not OffsetRule.ADDED and self.had_offsets

    @property
    def had_offsets(self) -> bool:
        return self.boosting.rows.offsets is not None

    def queries(self, X: Any, init_score: Any = None) -> QueryBatch:
        return super().queries(as_rows(X), init_score)

    @property
    def rescales_trees(self) -> bool:
        return self.boosting.contributions.walked.fit.schedule.tree_shares is not None

    def _tree_weights(self, rule: str) -> TreeWeights:
        pushes = self.boosting.contributions
        if rule == "variance":
            walked = pushes.walked
            return TreeWeights([pushes.spreads(count_rows(walked.leaves, walked.starts))])
        return TreeWeights(None, lambda rows: [pushes.reductions(rows)], rule == "improved")

    def asked_of(self, batch: QueryBatch) -> Boosting:
        """The model for exactly these rows."""
        return self.boosting.shifted(batch.offsets)

    def contribution_effects(self, query_batch: QueryBatch | Combination) -> Effects:
        if isinstance(query_batch, QueryBatch):
            model = self.asked_of(query_batch)
            starts = model.starts(len(query_batch))
            return ContributionEffects(
                model.contributions, query_batch.coordinates, starts, self.kept, query_batch.start
            )
        rows = query_batch.queries
        model = self.asked_of(rows)
        contributions = model.contributions
        # One walk through the training rows makes the tables of all sums.
        tables = contributions.mixed_tables(rows.coordinates, query_batch.factors)
        return BlockEffects(
            lambda: contributions.read(tables),
            self.shape,
            len(query_batch),
            query_batch.of(model.starts(len(rows))),
            backend=contributions.backend,
        )

    def derivative_effects(self, query_batch: QueryBatch | Combination) -> Effects:
        if isinstance(query_batch, QueryBatch):
            model = self.asked_of(query_batch)
            predictions = model.predictions(query_batch.rows)
            return derived(
                model.target_derivatives(query_batch.rows),
                predictions,
                self.targets,
                query_batch.start,
            )
        rows = query_batch.queries
        model = self.asked_of(rows)
        size = self.budget.batch_size(self.boosting.bytes_per_query())
        derivatives = mixed(query_batch, size, lambda part: model.target_derivatives(part.rows))
        return derived(derivatives, query_batch.of(model.predictions(rows.rows)), self.targets)

    def deletion_effects(self, query_batch: QueryBatch | Combination, available: int) -> Effects:
        assert isinstance(query_batch, QueryBatch)
        model = self.asked_of(query_batch)
        rows = query_batch.rows
        return BlockEffects(lambda: by_replay(model, rows), self.shape, len(query_batch))

    def first_order_effects(self, query_batch: QueryBatch | Combination) -> Effects:
        assert isinstance(query_batch, QueryBatch)
        model = self.asked_of(query_batch)
        rows = query_batch.rows
        return BlockEffects(
            lambda: iter([(0, [own.T for own in model.deletions(rows)])]),
            self.shape,
            len(query_batch),
        )

    def verify_predictions(
        self, batch: QueryBatch | Combination, predictions: FloatArray | None
    ) -> None:
        self.asked_of(
            batch.queries if isinstance(batch, Combination) else batch
        ).verify_predictions(batch, predictions)

    # -- changes of the training rows --------------------------------------------------------------

    @property
    def has_first_order(self) -> bool:
        return not self.boosting.underived and not self.boosting.label_weights.are_counted

    @property
    def pass_seconds(self) -> float:
        return SECONDS * self.shape[0] * len(self.boosting.walked.steps)

    def deletion_seconds(self, available: int) -> tuple[float, bool]:
        return self.shape[0] * self.pass_seconds, False

    def times(self, v: FloatArray) -> FloatArray:
        """(N, S): J v, with J the derivatives of the training rows' own predictions; of K outputs v is one, (N, K)."""
        return by_columns(self.boosting.along, v, self.shape[1])

    def times_transposed(self, u: FloatArray) -> FloatArray:
        """(N, S): J'u, likewise."""
        return by_columns(self.boosting.across, u, self.shape[1])

    def as_targets(self, given: Any, n: int, what: str, rows: str) -> FloatArray:
        return self.boosting.as_targets(given, n, what, rows)

    def moved(self, queries: QueryBatch, targets: FloatArray) -> tuple[FloatArray, FloatArray]:
        self.verify_predictions(queries, None)
        model = self.asked_of(queries)
        leaves = queries.coordinates
        change = (
            model.refitted(targets).scores(leaves)[0] - model.refitted_as_before().scores(leaves)[0]
        )
        return queries.predictions, change

    def loss_slopes(self, queries: QueryBatch, y: FloatArray) -> FloatArray:
        return self.asked_of(queries).loss_slopes(queries.rows, y)

    def pulled_back(self, queries: QueryBatch, u: FloatArray) -> FloatArray:
        return self.asked_of(queries).pulled_back(queries.coordinates, u)

    @property
    def row_weights(self) -> FloatArray:
        return self.boosting.walked.weights

    def held_out(self, sample_weight: FloatArray | None) -> BoolArray:
        return super().held_out(self.boosting.rows.weights)  # classes may have no weight either

    def refit_leaves(self, refit_inputs: RefitInputs) -> tuple[list[LeafFit], FloatArray | None]:
        leaf_fit, sample_counts = self.boosting.refit_leaves(refit_inputs)
        return [leaf_fit], sample_counts

    def fitted_without(self, queries: QueryBatch, rows: IntArray) -> FloatArray:
        remaining_weights = self.boosting.walked.weights.copy()
        remaining_weights[rows] = 0.0
        if not remaining_weights.any():
            raise InputError(
                f"Without {len(rows)} rows none of any weight is left; ask for a smaller set."
            )
        model = self.asked_of(queries)
        fits = model.deleted([rows[:0], rows], "without")
        before, without = fits.scores(queries.coordinates)
        change = without - before
        after = without
        if model.offsets is not None:  # of these rows, which both fits leave out
            after = after + model.offsets.values
        is_huge = np.abs(change) > HUGE * np.abs(without)
        return np.asarray(np.where(is_huge, after, queries.predictions + change))

    def own_predictions_without(self, sets_of_rows: Sequence[IntArray]) -> Iterator[FloatArray]:
        offsets = Offsets.of(self.boosting.rows.offsets, self.shape[0], self.adapter)
        model = self.boosting.shifted(
            offsets
        )  # which may stand in for the base, and then it does not move
        leaves = model.walked.leaves.T
        no_rows = np.zeros(0, dtype=np.intp)
        with_all = model.deleted([no_rows], "without").scores(leaves)[0]
        n_together = together(model)
        for first in range(0, len(sets_of_rows), n_together):
            some_sets = sets_of_rows[first : first + n_together]
            fits = model.deleted(some_sets, "without")
            for number, rows in enumerate(some_sets):
                without = fits[number].scores(leaves[rows])[0]
                yield model.fitted[rows] + (without - with_all[rows])

    def meant(self, scores: FloatArray) -> dict[str, FloatArray]:
        means = self.boosting.means(scores)
        if means is None:
            return {}
        return {self.boosting.loss.meaning: self.calibrated(scores, means)}

    def bytes_per_query(self, source: Source, whole: bool = False) -> int:
        if source.quantity in (Quantity.DERIVATIVE, Quantity.FIRST_ORDER):
            return self.boosting.bytes_per_query()
        if source.quantity is Quantity.DELETION:
            return 8 * self.shape[1] * (3 * together(self.boosting) + 2)
        if whole:
            return 16 * self.targets.size
        return self.boosting.contributions.bytes_per_query()


def by_columns(
    multiply: Callable[[FloatArray], FloatArray], values: FloatArray, n_outputs: int
) -> FloatArray:
    """Return the product of a matrix with values (N, K) of K outputs, or, of one output, with each of the columns (N, S)."""
    if n_outputs > 1:
        return multiply(values)
    return np.concatenate([multiply(column[:, None]) for column in values.T], axis=1)


def by_replay(model: Boosting, X: Any) -> Iterator[tuple[int, list[FloatArray]]]:
    """Yield the changes of scores in replays of the fit without one row each, many replays at a time.

    A block has the number of its first training row and, for each output, the changes (rows, n).
    The only row of any weight cannot be deleted: its changes are nan.
    """
    leaves = model.located(X)[0]
    n_rows = len(model.targets)
    no_rows = np.zeros(0, dtype=np.intp)
    before = model.deleted([no_rows], "removal").scores(leaves)[0]
    weighted_rows = np.flatnonzero(model.walked.weights)
    for block in track(spans(n_rows, together(model)), "removal"):
        rows = np.arange(block.start, block.stop)
        if len(weighted_rows) == 1:
            deleted_rows = [no_rows] * len(rows)
        else:
            deleted_rows = list(rows[:, None])
        change = model.deleted(deleted_rows, "removal").scores(leaves) - before  # (rows, n, K)
        if len(weighted_rows) == 1:
            change[np.isin(rows, weighted_rows)] = np.nan
        yield block.start, list(change.transpose(2, 0, 1))


def together(model: Boosting) -> int:
    """Return how many replays are made at a time."""
    return max(1, TOGETHER // int(model.targets.size))
