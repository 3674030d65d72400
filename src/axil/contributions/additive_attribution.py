"""AdditiveAttribution: the numbers of explained rows and training rows of an `AdditiveModel`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from axil.arrays import FloatArray, IntArray, LeafArray
from axil.attribution import Attribution, Effects
from axil.attribution.block_effects import BlockEffects, LeafComparison, derived, mixed
from axil.attribution.leaf_matches import SharedLeaves
from axil.contributions.boosting import Boosting
from axil.contributions.contributions import Contributions
from axil.contributions.deletions import by_replay
from axil.contributions.leaf_order import LeafOrder
from axil.machine.arrays import have_same_values
from axil.machine.memory import BATCH_BYTES
from axil.machine.threads import Cache
from axil.replay.queries import Combination, QueryBatch, reflected

if TYPE_CHECKING:
    from axil.contributions.additive_model import AdditiveModel


class ContributionEffects(BlockEffects):
    """The contributions of each training row's own gradients to n scores."""

    def __init__(
        self,
        contributions: Contributions,
        leaves: LeafArray,
        starts: FloatArray,
        cache: Cache,
        first: int = 0,
        leaf_order: LeafOrder | None = None,
    ):
        shape = len(contributions.walked.targets), contributions.n_outputs
        stored = contributions if leaf_order is None else leaf_order
        super().__init__(
            lambda: stored.blocks(leaves),
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
        """Return the sums by leaf and group.

        They come from one walk through the training rows, which later batches share.
        """
        if n_groups * self._contributions.bytes_per_query() > BATCH_BYTES:
            return None
        last = self._cache.known().get("cells by group")
        if last is None or last[0] != n_groups or not have_same_values(last[1], codes):
            last = n_groups, codes, self._contributions.cells_by_group(codes, n_groups)
            self._cache.put("cells by group", last)
        sums = self._contributions.sums_by_group(self._leaves, last[2])
        return sums, sums


@dataclass(frozen=True, eq=False)
class AdditiveAttribution(Attribution["QueryBatch | Combination"]):
    """The numbers of each explained row and training row of boosted trees of any loss."""

    model: AdditiveModel

    def contribution_effects(self, query_batch: QueryBatch | Combination) -> Effects:
        """Return the rows' own contributions to the scores."""
        if isinstance(query_batch, QueryBatch):
            boosting = self.model.with_offsets_of(query_batch)
            starts = boosting.starts(len(query_batch))
            return ContributionEffects(
                boosting.contributions,
                query_batch.coordinates,
                starts,
                self.model.kept,
                query_batch.start,
                boosting.leaf_order,
            )
        rows = query_batch.queries
        boosting = self.model.with_offsets_of(rows)
        contributions = boosting.contributions
        # One walk through the training rows makes the tables of all sums.
        tables = contributions.mixed_tables(rows.coordinates, query_batch.factors)
        return BlockEffects(
            lambda: contributions.read(tables),
            self.model.shape,
            len(query_batch),
            query_batch.of(boosting.starts(len(rows))),
            backend=contributions.backend,
        )

    def leaf_comparison(self, query_batch: QueryBatch | Combination) -> Effects:
        """Return the leaves that explained rows share with training rows, without contributions."""
        assert isinstance(query_batch, QueryBatch)
        rows = self.model.boosting.contributions.rows
        leaves = query_batch.coordinates
        return LeafComparison(
            lambda: SharedLeaves.of([rows], [leaves]),
            self.model.shape,
            len(query_batch),
            query_batch.start,
        )

    def derivative_effects(self, query_batch: QueryBatch | Combination) -> Effects:
        """Return the derivatives of the predictions by the targets."""
        if isinstance(query_batch, QueryBatch):
            boosting = self.model.with_offsets_of(query_batch)
            return derived(
                boosting.target_derivatives(query_batch.rows),
                self._differentiated(boosting, query_batch),
                self.model.targets,
                query_batch.start,
            )
        rows = query_batch.queries
        boosting = self.model.with_offsets_of(rows)
        size = self.model.budget.batch_size(self.model.boosting.bytes_per_query())
        derivatives = mixed(
            query_batch, size, lambda batch: boosting.target_derivatives(batch.rows)
        )
        sums = query_batch.of(self._differentiated(boosting, rows))
        return derived(derivatives, sums, self.model.targets)

    def _differentiated(self, boosting: Boosting, batch: QueryBatch) -> FloatArray:
        """Return the numbers that are differentiated, (n, K).

        They are scores, or their means by the link.
        """
        reflection = self.model.reflection
        if reflection is not None and boosting.differentiates == "probability":
            reflection = 1.0
        return reflected(boosting.predictions(batch.rows), reflection)

    def deletion_effects(self, query_batch: QueryBatch | Combination, available: int) -> Effects:
        """Return the changes of predictions without each row."""
        assert isinstance(query_batch, QueryBatch)
        boosting = self.model.with_offsets_of(query_batch)
        rows = query_batch.rows
        return BlockEffects(lambda: by_replay(boosting, rows), self.model.shape, len(query_batch))

    def first_order_effects(self, query_batch: QueryBatch | Combination) -> Effects:
        """Return the first-order changes of predictions without each row."""
        assert isinstance(query_batch, QueryBatch)
        boosting = self.model.with_offsets_of(query_batch)
        rows = query_batch.rows
        return BlockEffects(
            lambda: iter([(0, [of_output.T for of_output in boosting.deletions(rows)])]),
            self.model.shape,
            len(query_batch),
        )
