"""Calibration rows: which rows are used, and which of them the model was fitted on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from axil import inputs
from axil.aliases import ArrayLike, FeatureTable, LabelsLike, TableLike
from axil.arrays import FloatArray, IntArray
from axil.attribution import Kind
from axil.errors import InputError
from axil.inputs.columns import Keys, occurrences
from axil.methods.intervals.calibration_groups import CalibrationGroups
from axil.methods.method import warn_without_offsets
from axil.replay.queries import QueryBatch
from axil.replay.rows_of_the_fit import rows_of_the_fit, twins_among

MOST_ROWS = 5000  # calibration rows: more would change the coverage by less than half a percent


@dataclass(frozen=True)
class RepeatedRowsMessage:
    """The words of messages about calibration rows that are rows of the fit."""

    alike: str  #: in what they equal training rows
    harm: str  #: what they would do
    instead: str  #: what the user can pass instead


@dataclass(frozen=True)
class NewRows:
    """The sampled calibration rows that the model was not fitted on."""

    queries: QueryBatch
    targets: FloatArray  #: (n, K)
    groups: CalibrationGroups | None


def new_rows(
    model: Any,
    X: TableLike,
    y: ArrayLike | None,
    init_score: ArrayLike | None,
    groups: LabelsLike | None,
    targets_of: Callable[[int], FloatArray],
    wording: RepeatedRowsMessage,
) -> NewRows:
    """Return the calibration rows to use; leave out, or raise for, rows of the fit.

    Parameters
    ----------
    model : ExactModel or AdditiveModel
    X, y, init_score, groups
        As `Explainer.calibrate` takes them.
    targets_of : callable
        Returns the checked targets of that many rows, (n, K), as they are in the fit.
    wording : RepeatedRowsMessage
    """
    inputs.refuse_other_order(X, y, "y_cal", "X_cal")
    warn_without_offsets(model, init_score, "X_cal", "y_cal")
    queries = model.queries(X, init_score)
    n = len(queries)
    grouped = CalibrationGroups.of(groups, queries.rows, model, n, "calibration")
    rows = calibration_rows(n, grouped)
    targets = targets_of(n)
    n_equal, twins = equal_rows(model, inputs.take_rows(queries.rows, rows), targets[rows])
    is_of_fit = rows_of_the_fit(
        n_equal, twins, "calibration", wording.alike, wording.harm, wording.instead
    )
    rows = rows[~is_of_fit]
    if len(rows) < n:
        offsets = None
        if init_score is not None:
            offsets = queries.offsets.values[rows]
        queries = model.queries(inputs.take_rows(queries.rows, rows), offsets)
    return NewRows(queries, targets[rows], groups_of(grouped, rows))


def fit_targets(model: Any, y: ArrayLike | None, n: int, argument: str, rows: str) -> FloatArray:
    """Return the user's targets of n rows on the scale of the fit, (n, K), checked.

    ``argument`` is the parameter that they come from, and ``rows`` the word for its rows.
    """
    if model.kind is Kind.ADDITIVE:
        targets: FloatArray = model.changes.as_targets(y, n, argument, rows)
    else:
        table = inputs.as_table(y, n, model.shape[1], argument, rows)
        targets = model.scale.checked_forward(table, argument)
    return targets


def calibration_rows(n: int, grouped: CalibrationGroups | None) -> IntArray:
    """Return the positions of the sampled calibration rows among n, always the same."""
    if not n:
        raise InputError(
            "X_cal has no rows; expected rows that the model was not fitted on, with their targets."
        )
    return chosen_rows(np.arange(n), grouped)


def equal_rows(model: Any, X: FeatureTable, truth: FloatArray) -> tuple[IntArray, tuple[int, int]]:
    """Return how many training rows equal each of these rows in features and targets.

    Also return `twins_among` some of the training rows.

    Rows of weight zero took no part in the fit. Without features only targets are compared, and
    only if no two training rows share one: otherwise equal targets say little.
    """
    features = model.features
    shards = model.shards
    if features is None:
        X = np.empty((len(truth), 0))
    single = inputs.is_single(X) or (
        features is not None and inputs.is_single(getattr(features, "_meta", features))
    )
    keys = shards.each(keys_of, single, model.training.by_shard)
    starts = np.cumsum(
        [0, *shards.collected(lambda shard, _, shard_keys: len(shard_keys), None, keys)]
    )
    rows = chosen_rows(np.arange(starts[-1]))
    chosen = [rows[(rows >= first) & (rows < last)] - first for first, last in pairwise(starts)]
    some = shards.collected(
        lambda shard, _, shard_keys: shard_keys[0][shard_keys[1]],
        None,
        [list(pair) for pair in zip(keys, chosen)],
    )
    row_keys = np.concatenate([inputs.row_keys(X, truth, single), *some])
    twins, shard_keys = np.split(
        shards.total(
            lambda shard, every, shard_keys: occurrences(shard_keys, every), row_keys, keys
        ),
        [len(truth)],
    )
    says_nothing = features is None and (shard_keys > 1).any()
    return np.zeros_like(twins) if says_nothing else twins, twins_among(shard_keys)


def keys_of(shard: Any, single: bool, X: FeatureTable) -> Keys:
    """Return `inputs.row_keys` of the rows of a shard that took part in the fit.

    Without features X they are keys of the targets alone.
    """
    if X is None:
        X = np.empty((len(shard.targets), 0))
    row_keys: Keys = inputs.row_keys(X, shard.targets, single)[shard.row_weights != 0]
    return row_keys


def groups_of(grouped: CalibrationGroups | None, rows: IntArray) -> CalibrationGroups | None:
    if grouped is None:
        return None
    return grouped[rows]


def chosen_rows(rows: IntArray, grouped: CalibrationGroups | None = None) -> IntArray:
    """Return these rows, or a sample of them that is always the same, per group."""
    if grouped is not None:
        of_rows = grouped.codes[rows]
        return np.sort(
            np.concatenate([chosen_rows(rows[of_rows == g]) for g in range(len(grouped.names))])
        )
    if len(rows) <= MOST_ROWS:
        return rows
    return np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))
