"""ExactDeletions: refits without some rows.

The predictions of these models are weighted sums of the targets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from axil.arrays import FloatArray, IntArray
from axil.machine.progress import track
from axil.reductions.top import Best
from axil.replay.deletions import ReplayedDeletions, WithoutRows
from axil.replay.queries import QueryBatch
from axil.replay.radius import rows_replayed
from axil.replay.training_columns import Positions
from axil.weights.answers import gathered
from axil.weights.engine import Engine, all_structures, by_output
from axil.weights.fit_rules import needs_walk, rule_of
from axil.weights.forest import Forest
from axil.weights.smoother import Smoother
from axil.weights.sum_rule import couples_leaves
from axil.weights.work import GROUP_SECONDS, REPLAYS

if TYPE_CHECKING:
    from axil.replay.exact_model import ExactModel


@dataclass(frozen=True, eq=False)
class ExactDeletions(ReplayedDeletions):
    """Deletions by the engines, which compute the fit again."""

    model: ExactModel

    @property
    def has_first_order(self) -> bool:
        return not any(rule_of(s).no_first_order(s) for s in all_structures(self.model.engines))

    @property
    def has_active_set(self) -> bool:
        return any(map(needs_walk, all_structures(self.model.engines)))

    @property
    def ranks_or_clips(self) -> bool:
        rules = map(rule_of, all_structures(self.model.engines))
        return any(rule.ranks_rows or rule.clips_residuals for rule in rules)

    @property
    def is_exact_fast(self) -> bool:
        return all(isinstance(engine, Forest) for engine in self.model.engines)

    @property
    def n_emptied(self) -> int:
        emptied = [rule_of(s).emptied for s in all_structures(self.model.engines)]
        return sum(int(leaves.sum()) for leaves in emptied if leaves is not None)

    @property
    def pass_seconds(self) -> float:
        available = self.model.budget.available
        columns = sum(engine.costs(available).column for engine in self.model.engines)
        n_trees = sum(s.n_trees for s in all_structures(self.model.engines))
        return GROUP_SECONDS * n_trees + REPLAYS * columns

    def seconds(self, available: int) -> tuple[float, bool]:
        costs = [engine.costs(available) for engine in self.model.engines]
        seconds = sum(min(cost.deletion, cost.replays) for cost in costs)
        return seconds, all(cost.deletion < np.inf for cost in costs)

    def n_replayed(self) -> int:
        share = self.model.budget.available // len(self.model.engines)
        pairs = by_output(self.model.engines, self.model.targets)
        return max(rows_replayed(engine, targets, share) for engine, targets in pairs)

    def share_of(self, rows: Positions) -> float:
        if isinstance(self.model.engines[0], Smoother):
            return 0.0
        return super().share_of(rows)

    def predicted_without(self, queries: QueryBatch, rows: IntArray) -> FloatArray:
        return self.refit(rows).predicted(queries)

    def without(self, queries: QueryBatch, rows: Positions) -> WithoutRows:
        before = self.model.predicted(queries)  # which compares them with the model
        refit = self.refit(rows)
        n_emptied = refit.deletions.n_emptied - self.n_emptied
        return WithoutRows(before, refit.predicted(queries), n_emptied)

    def refit(self, rows: IntArray) -> ExactModel:
        """Return the refit without these rows.

        There is no model to compare its predictions with.
        """
        engines = [
            engine.deletable("without").without(rows, targets)
            for engine, targets in by_output(self.model.engines, self.model.targets)
        ]
        return replace(self.model, engines=engines, verification=None)

    def own_predictions(self, sets_of_rows: Sequence[IntArray]) -> Iterator[FloatArray]:
        for rows in sets_of_rows:
            yield self.refit(rows).fitted()[rows]

    def in_turn(self, batch: QueryBatch, best: Best) -> Best:
        size = np.zeros_like(best.size)
        columns = {name: column.copy() for name, column in best.columns.items()}
        outputs = [
            (engine, targets, column)
            for engine, targets in by_output(self.model.engines, self.model.targets)
            for column in range(targets.shape[1])
        ]
        for i in track(range(len(batch)), "greedy sets"):
            query = batch.coordinates[i : i + 1]
            for output, (engine, targets, column) in enumerate(outputs):
                first_effects = best.columns["effect"][i, output][best.size[i, output] > 0]
                rows, effects = rows_in_turn(engine, query, targets, column, first_effects)
                n_rows = len(rows)
                size[i, output, :n_rows] = np.abs(effects)
                columns["effect"][i, output, :n_rows] = effects
                columns["row"][i, output, :n_rows] = self.model.index[rows]
        return replace(best, size=size, columns=columns)


def rows_in_turn(
    engine: Engine, query: Any, targets: FloatArray, output: int, first_effects: FloatArray
) -> tuple[list[int], list[float]]:
    """Choose rows one by one: each has the largest effect after those before were deleted.

    After each row the fit to one output of the targets is computed again, with the splits fixed:
    some four passes over the trees.

    Parameters
    ----------
    engine : Engine
    query : array of shape (1, T)
        The coordinates of the explained row.
    targets : array of shape (N, K)
    output : int
        The output that is explained.
    first_effects : array of shape (k,)
        The effects of k rows in the fit with all rows. Their sign is the direction of the set, and
        k its largest size.

    Returns
    -------
    rows, effects : list of int, list of float
    """
    sign = float(np.sign(first_effects[:1].sum()))
    rows = list[int]()
    effects = list[float]()
    refit = engine
    before = float(refit.predicted(query, targets)[0, output])
    for _ in first_effects:
        gains = sign * np.nan_to_num(_single_effects(refit, query, targets, output))
        gains[rows] = 0.0  # which are gone
        best = int(gains.argmax())
        if gains[best] <= 0:
            break
        refit = engine.deletable("removal").without(np.array([*rows, best]), targets)
        after = float(refit.predicted(query, targets)[0, output])
        if np.isnan(after):
            break
        rows.append(best)
        effects.append(after - before)
        before = after
    return rows, effects


def _single_effects(engine: Engine, query: Any, targets: FloatArray, output: int) -> FloatArray:
    """Return the effect of deleting each row, (N,).

    It is exact if that takes no longer than first order.

    Bounds and ranks have no effects of first order. nan: nothing is left without the row.
    """
    is_exact = isinstance(engine, Forest) or any(
        couples_leaves(s) or rule_of(s).ranks_rows for s in engine.structures
    )
    deletable = engine.deletable("removal")
    if is_exact:
        effects = deletable.deletion(query, targets, 0)
    else:
        effects = deletable.removal(query, targets)
    numbers: FloatArray = gathered(effects[output], len(targets))[0]
    return numbers
