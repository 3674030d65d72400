"""Trees whose leaf values are percentiles of residuals.

Their initial prediction, the same percentile of the targets, becomes a first tree of one leaf.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from axil.adapters.boosted_fit import BoostedFit, InitialPrediction, Schedule
from axil.adapters.contract import Coefficients, TrainingRows
from axil.arrays import BoolArray, FloatArray
from axil.errors import UnsupportedModelError
from axil.structure import Ranks

#: Returns why trees may disagree with the data, from those (T,) that agree.
ExplainMismatch = Callable[[BoolArray], UnsupportedModelError | None]

BY_RANK = (
    "a leaf takes its value from rows by their rank among all rows of the leaf, which lie in "
    "several partitions"
)


def require_rows(rows: TrainingRows, setting: str, value: str) -> None:
    """Refuse rows that lie in several partitions, by the setting that needs all of them."""
    if not rows.at_hand:
        raise UnsupportedModelError(
            setting, f"{value} over partitions", BY_RANK, "Pass the training rows in memory."
        )


def with_initial_tree(
    fit: BoostedFit, ranks: Ranks, rows: TrainingRows, percentile: float | None, slack: float
) -> BoostedFit:
    """Return the fit with its initial prediction as a first tree of one leaf.

    The initial prediction is a percentile of the targets.

    Parameters
    ----------
    fit : BoostedFit
        The trees of the model.
    ranks : Ranks
        The rule of the leaf values.
    rows : TrainingRows
        The training rows.
    percentile : float or None
        The percentile of the targets. None: the fit starts from a constant, which stays the initial
        prediction, and the first tree counts for nothing.
    slack : float
        The rounding error of the percentile.
    """
    table = fit.table
    n_leaves = len(table.leaf_values)
    share = 1.0
    initial = InitialPrediction(np.zeros(1), is_first_tree=True)
    if percentile is None:
        share = 0.0
        initial = replace(fit.initial, is_first_tree=True)
    shares = _shares_with_first_tree(fit.schedule.coefficients, share, percentile is None)
    if shares is not None:
        share = float(shares.omega[-1, 0])
    n_rows, weight = _rows_in_fit(rows, fit.weights.held_out)

    def before(first: float, values: FloatArray | float) -> FloatArray:
        return np.concatenate([[first], np.broadcast_to(values, n_leaves)])

    leaf_counts = None
    if table.leaf_counts is not None:
        leaf_counts = np.append(n_rows, table.leaf_counts)
    leaf_weights = None
    if table.leaf_weights is not None:
        leaf_weights = before(weight, table.leaf_weights)
    columns = None
    if table.columns is not None:
        columns = np.append(0, 1 + table.columns)
    ancestors = None
    if fit.leaf_rule.ancestors is not None:
        ancestors = fit.leaf_rule.ancestors.after_a_leaf()
    first_value = share * (percentile or 0.0)
    return replace(
        fit,
        table=replace(
            table,
            n_leaves=np.append(1, table.n_leaves),
            leaf_values=np.concatenate([[[first_value]], table.leaf_values]),
            leaf_counts=leaf_counts,
            leaf_weights=leaf_weights,
            printed_shift=before(0.0, table.printed_shift),
            value_slack=before(slack, table.value_slack),
            columns=columns,
        ),
        leaf_rule=replace(
            fit.leaf_rule, l2=np.zeros(1 + n_leaves), ranks=ranks, ancestors=ancestors
        ),
        initial=initial,
        schedule=Schedule.one_by_one(np.append(share, fit.learning_rates), shares),
        explain_mismatch=_of_later_trees(fit.explain_mismatch),
    )


def _rows_in_fit(rows: TrainingRows, held_out: BoolArray | None) -> tuple[int, float]:
    """Return the number and the weight of the rows that took part in the fit."""
    if held_out is None:
        return rows.totals.n_rows, rows.totals.weight
    n_rows = rows.totals.n_rows - int(held_out.sum())
    if rows.weights is None:
        return n_rows, float(n_rows)
    return n_rows, float(rows.weights[~held_out].sum())


def _shares_with_first_tree(
    shares: Coefficients | None, share: float, keeps_initial: bool
) -> Coefficients | None:
    """Return the coefficients of the trees after the initial prediction became the first tree.

    They are None for plain boosting.

    Parameters
    ----------
    shares : Coefficients or None
        How the T trees of the model add up.
    share : float
        How often the first tree counts where the initial prediction counts once.
    keeps_initial : bool
        Whether there is an initial prediction beside the first tree.
    """
    if shares is None:
        return None
    n_trees = len(shares.omega) - 1
    omega = np.zeros((n_trees + 2, n_trees + 1))
    omega[1:, 1:] = shares.omega
    omega[1:, 0] = share * shares.beta
    beta = np.zeros(n_trees + 2)
    if keeps_initial:
        beta = np.append(shares.beta[0], shares.beta)
    return Coefficients(omega, beta)


def _of_later_trees(explain: ExplainMismatch | None) -> ExplainMismatch | None:
    """Return why trees after the initial tree may disagree with the data."""
    if explain is None:
        return None
    return lambda agree: explain(agree[1:])
