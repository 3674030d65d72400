"""ExactAttribution: the numbers of explained rows and training rows of an `ExactModel`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, cast

from axil.arrays import FloatArray
from axil.attribution import Attribution, Effects
from axil.attribution.block_effects import LeafComparison
from axil.attribution.leaf_matches import SharedLeaves, leaf_rows
from axil.attribution.weight_effects import DeletionEffects, WeightEffects
from axil.kernels.choose import backend_of
from axil.replay.queries import Combination, QueryBatch
from axil.weights.answers import Answer, RowEffects
from axil.weights.engine import Engine, TreeEngine, by_output, own_leaves

if TYPE_CHECKING:
    from axil.replay.exact_model import ExactModel


@dataclass(frozen=True, eq=False)
class ExactAttribution(Attribution["QueryBatch | Combination"]):
    """The numbers of each explained row and training row of a model with exact weights."""

    model: ExactModel

    def weight_effects(self, query_batch: QueryBatch | Combination) -> Effects:
        """Return the weights of the targets."""
        offsets = query_batch.offsets.values
        weights = WeightEffects(
            self._weight_rows(query_batch), self.model.own_targets(), offsets, query_batch.start
        )
        if isinstance(query_batch, QueryBatch) and self.model.trees is not None:
            weights.shared_leaves = partial(self._shared_leaves, query_batch)
        return weights

    def leaf_comparison(self, query_batch: QueryBatch | Combination) -> Effects:
        """Return the leaves that explained rows share with training rows, without weights."""
        assert isinstance(query_batch, QueryBatch)
        shared_leaves = partial(self._shared_leaves, query_batch)
        return LeafComparison(shared_leaves, self.model.shape, len(query_batch), query_batch.start)

    def contribution_effects(self, query_batch: QueryBatch | Combination) -> Effects:
        """Return the rows' own contributions to the scores."""
        leaves = query_batch.coordinates
        return self._row_effects(
            query_batch,
            lambda engine, targets: engine.deletable(
                "jacobian.gradient_contributions"
            ).gradient_contributions(leaves, targets),
        )

    def deletion_effects(self, query_batch: QueryBatch | Combination, available: int) -> Effects:
        """Return the changes of predictions without each row."""
        leaves = query_batch.coordinates
        return self._row_effects(
            query_batch,
            lambda engine, targets: engine.deletable("removal").deletion(
                leaves, targets, available
            ),
        )

    def first_order_effects(self, query_batch: QueryBatch | Combination) -> Effects:
        """Return the first-order changes of predictions without each row."""
        leaves = query_batch.coordinates
        return self._row_effects(
            query_batch,
            lambda engine, targets: engine.deletable("removal").removal(leaves, targets),
        )

    def _row_effects(
        self,
        query_batch: QueryBatch | Combination,
        compute: Callable[[Engine, FloatArray], Sequence[RowEffects]],
    ) -> Effects:
        """Return the results of ``compute`` for each engine and the targets of its outputs."""
        numbers = [
            compute(engine, targets)
            for engine, targets in by_output(self.model.engines, self.model.targets)
        ]
        return DeletionEffects(numbers, self.model.shape, len(query_batch))

    def _weight_rows(self, queries: QueryBatch | Combination) -> list[Answer]:
        """Return the weights of the explained rows, or of sums of them, from each engine."""
        coordinates = queries.coordinates
        base = queries.offsets.base
        if isinstance(queries, Combination):
            return [
                engine.row_sum(coordinates, queries.factors, base) for engine in self.model.engines
            ]
        return [engine.weight_rows(coordinates, base) for engine in self.model.engines]

    def _shared_leaves(self, query_batch: QueryBatch) -> SharedLeaves:
        """Return the leaves that explained rows share with training rows."""
        model = self.model
        structures = [cast(TreeEngine, engine).structure for engine in model.engines]
        # A model may have an initial tree, which its library does not know.
        n_initial = int(model.adapter.has_initial_tree)
        rows = model.kept.get(
            "leaves", lambda: leaf_rows(structures, n_initial, backend_of(model.limits))
        )
        coordinates = query_batch.coordinates
        leaves = [own_leaves(structure, coordinates)[:, n_initial:] for structure in structures]
        return SharedLeaves.of(rows, leaves, model.n_threads)
