"""The leaves of a fit along a gradient again at its own splits, on other rows, to other targets or with other weights.

The walk of the proof, rounded as the library rounds, with leaf values that it makes itself. Splits,
rates, draws, drops and halved steps are held fixed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.bags import RecordedBags
from axil.adapters.contract import Adapter, TrainingRows
from axil.arrays import BoolArray, FloatArray
from axil.contributions.fits_again import require_rows_in_leaves
from axil.errors import InputError
from axil.kernels.choose import host_backend
from axil.machine.blocks import row_blocks
from axil.replay.gradient_walk import GradientWalk, Leaves
from axil.replay.replayed_stages import ReplayedStages, start_factors
from axil.structure import NewtonRule
from axil.structure.leaves import LeafFit


def leaf_fit(
    adapter: Adapter,
    walked: ReplayedStages,
    rows: TrainingRows,
    leaves: Leaves,
    drawn: NDArray[Any] | None,
    n_threads: int,
) -> LeafFit:
    """The leaves of the trees, fitted to these rows, which fall into these leaves (T, N) and were drawn so often, (T, N)."""
    targets = rows.targets
    (fit,) = adapter.trees(rows)
    weights = np.ones(len(targets)) if rows.weights is None else rows.weights
    if not weights.any():
        raise InputError("No row of any weight is left to fit again; keep some.")
    base, estimated = fit.initial.values, fit.initial.follows_targets
    counted = weights * start_factors(fit, len(targets))
    if estimated:
        base = np.asarray(fit.loss.start_of(targets, counted), dtype=np.float64)
    old, starts = walked.leaves, walked.starts
    empty = np.concatenate(
        [np.bincount(leaf, minlength=int(n)) == 0 for leaf, n in zip(old, np.diff(starts))]
    )
    fit = replace(
        fit,
        leaf_rule=replace(
            fit.leaf_rule,
            l2=NewtonRule(fit.leaf_rule.l2, np.ones_like(fit.leaf_rule.l2)).reached(empty).l2,
        ),
        table=replace(fit.table, leaf_values=np.zeros_like(fit.table.leaf_values)),
        initial=replace(fit.initial, values=base),
        weights=replace(fit.weights, row_weights=rows.weights, held_out=None),
        schedule=replace(fit.schedule, learning_rates=_rates(walked)),
        sampler=None if drawn is None else RecordedBags(drawn.T.astype(np.float64), len(leaves)),
    )
    with row_blocks(len(targets), n_threads) as each:
        walk = _StageRefit(
            adapter,
            fit,
            np.ascontiguousarray(leaves),
            targets,
            rows.offsets,
            each,
            host_backend(n_threads),
        )
        walk.old = walked
        if drawn is not None:
            walk.drawn = np.zeros(leaves.shape, dtype=drawn.dtype)
        walk.run(check=False)
    draws = np.broadcast_to(1.0, leaves.shape) if drawn is None else drawn
    parts = list(zip(leaves, draws, fit.table.n_leaves.tolist()))
    counts = np.concatenate([np.bincount(leaf, own > 0, n) for leaf, own, n in parts])
    if fit.leaf_rule.averages:
        require_rows_in_leaves(int(((counts == 0) & ~empty).sum()))
    heavy = np.concatenate([np.bincount(leaf, weights * own, n) for leaf, own, n in parts])
    rule = NewtonRule(
        fit.leaf_rule.l2,
        np.ones_like(fit.leaf_rule.l2),
        False,
        fit.leaf_rule.l1,
        fit.leaf_rule.max_step,
    )
    if fit.leaf_rule.coupling_rule is not None:
        rule = fit.leaf_rule.coupling_rule.emptied(heavy == 0)
    return LeafFit(
        n_leaves=fit.table.n_leaves,
        columns=np.arange(len(leaves)),
        rates=fit.learning_rates,
        raw=walk.replayed,
        sums=walk.pulls,
        weights=heavy,
        counts=counts.astype(np.int64),
        base=base,
        share=float(fit.schedule.shares_of_initial[-1]),
        estimated=estimated,
        n_rows=len(targets),
        rule=rule,
        outputs=fit.schedule.outputs,
        hessians=walk.bent,
        means=fit.loss.kept_means(targets, counted),
    )


def _rates(walked: ReplayedStages) -> FloatArray:
    """(T,): what each tree's values were multiplied by in the end, the same for all its stages."""
    added = np.zeros(len(walked.leaves))
    for one in walked.rounds:
        for stage, coefficient in one.changes:
            added[walked.stage_tree[stage]] += coefficient
    stages = np.bincount(walked.stage_tree, minlength=len(added))
    return np.asarray(added / np.maximum(stages, 1))


class _StageRefit(GradientWalk):
    """The walk with leaf values that it makes itself."""

    old: ReplayedStages

    def run(self, check: bool) -> ReplayedStages:
        self.pulls, self.bent = (
            np.zeros_like(self.fit.table.leaf_values),
            np.zeros_like(self.fit.table.leaf_values),
        )
        return super().run(check)

    def _states(self) -> None:
        """None: leaf values are not known beforehand."""

    def _sums(self, t: int, k: int, w: FloatArray) -> tuple[FloatArray, FloatArray]:
        G, H = super()._sums(t, k, w)
        place = slice(self.starts[t], self.starts[t + 1])
        column = self.fit.schedule.column(k)
        self.pulls[place, column], self.bent[place, column] = -G, H
        return G, H

    def _scales(self, t: int) -> list[float]:
        """The factors of the old fit's steps."""
        own = self.old.scales[self.old.stage_tree == t]
        found: list[float] = own[:: len(self._outputs(t))].tolist()
        return found

    def _zeroed(self, place: slice, column: int, H: FloatArray) -> BoolArray:
        return self.old.zeroed_again(place, column, H)  # it has the same settings

    def _close(self, trees: range) -> None:
        for t in trees:
            place = slice(self.starts[t], self.starts[t + 1])
            self.fit.table.leaf_values[place] = self.fit.learning_rates[t] * self.replayed[place]
