"""Trees whose leaf values are percentiles of residuals: their base, the same percentile of the targets, as a tree of one leaf."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from axil.adapters.boosted_fit import BoostedFit, InitialPrediction, Schedule
from axil.adapters.contract import Coefficients, TrainingRows
from axil.errors import UnsupportedModelError
from axil.structure import Ranks

BY_RANK = "a leaf takes its value from rows by their rank among all rows of the leaf, which lie in several partitions"


def require_rows(rows: TrainingRows, setting: str, value: str) -> None:
    """Refuse rows that lie in several partitions, by the setting and value that need all of them."""
    if not rows.at_hand:
        raise UnsupportedModelError(
            setting, f"{value} over partitions", BY_RANK, "Pass the training rows in memory."
        )


def with_base(
    trees: BoostedFit, ranks: Ranks, rows: TrainingRows, start: float | None, slack: float
) -> BoostedFit:
    """Return the fit with its initial prediction, a percentile of the targets, as a first tree of one leaf.

    None: the fit starts from a constant, which stays the base, and the first tree counts for
    nothing.
    """
    c = trees.schedule.coefficients
    size = len(trees.table.n_leaves)
    if start is None:
        rate = 0.0
    else:
        rate = 1.0
    if c is not None:
        omega = np.zeros((size + 2, size + 1))
        omega[1:, 1:], omega[1:, 0] = c.omega, rate * c.beta
        rate = float(omega[-1, 0])
        c = Coefficients(
            omega, np.zeros(size + 2) if start is not None else np.append(c.beta[0], c.beta)
        )

    def before(first: float, rest: Any) -> Any:
        if rest is None:
            return None
        return np.concatenate([[first], np.broadcast_to(rest, len(trees.table.leaf_values))])

    doubt = trees.explain_mismatch
    n_rows = rows.totals.n_rows
    weight = rows.totals.weight
    if trees.weights.held_out is not None:
        n_rows -= int(trees.weights.held_out.sum())
        weight = float(
            n_rows if rows.weights is None else rows.weights[~trees.weights.held_out].sum()
        )
    return replace(
        trees,
        table=replace(
            trees.table,
            n_leaves=np.append(1, trees.table.n_leaves),
            leaf_values=np.concatenate(
                [[[0.0 if start is None else rate * start]], trees.table.leaf_values]
            ),
            leaf_counts=None
            if trees.table.leaf_counts is None
            else np.append(n_rows, trees.table.leaf_counts),
            leaf_weights=before(weight, trees.table.leaf_weights),
            printed_shift=before(0.0, trees.table.printed_shift),
            value_slack=before(slack, trees.table.value_slack),
            columns=None if trees.table.columns is None else np.append(0, 1 + trees.table.columns),
        ),
        leaf_rule=replace(
            trees.leaf_rule,
            l2=np.zeros(1 + len(trees.table.leaf_values)),
            ranks=ranks,
            ancestors=None
            if trees.leaf_rule.ancestors is None
            else trees.leaf_rule.ancestors.after_a_leaf(),
        ),
        initial=InitialPrediction(
            follows_targets=start is None and trees.initial.follows_targets,
            values=trees.initial.values if start is None else np.zeros(1),
            is_first_tree=True,
        ),
        schedule=Schedule.one_by_one(np.append(rate, trees.learning_rates), c),
        explain_mismatch=None if doubt is None else lambda agree: doubt(agree[1:]),
    )
