"""Training rows of two models, matched by label and features."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.aliases import FeatureTable
from axil.arrays import AnyArray, BoolArray, IntArray
from axil.errors import InputError, shown
from axil.inputs.codes import keys
from axil.methods.method import verified_model
from axil.methods.refit import Refit, RefitT, again, arguments_of
from axil.scale import ROUND_TRIP

STATUS = np.array(["kept", "changed", "added", "removed"], dtype=object)
KEPT, CHANGED, ADDED, REMOVED = range(4)
ABSENT = -1  # the position of a row that a model does not have


@dataclass(frozen=True, eq=False)
class ComparedRows:
    """The M training rows of both models: those of the old one, then those added."""

    labels: AnyArray  #: (M,)
    status: IntArray  #: (M,) positions in `STATUS`
    before: IntArray  #: (M,) positions in the old data
    middle: IntArray  #: (M,) positions in the old splits refitted to the new data
    after: IntArray  #: (M,) positions in the new data

    def has(self, *statuses: int) -> BoolArray:
        """Return which rows have one of these statuses, (M,)."""
        return np.isin(self.status, statuses)

    def counts(self) -> dict[str, int]:
        """Return how many rows have each status."""
        counts = np.bincount(self.status, minlength=len(STATUS)).tolist()
        return dict(zip(STATUS.tolist(), counts))


def match_rows(old: Refit, new: Refit) -> ComparedRows:
    """Match the rows of two models, before their positions in the refit are known.

    Rows with the same label, features and offsets are kept. With other features they count as
    removed and added.
    """
    position_in_old = _position_by_label(old, "old")
    position_in_new = _position_by_label(new, "new")
    pairs = np.array(
        [
            (position, position_in_new[label])
            for label, position in position_in_old.items()
            if label in position_in_new
        ],
        dtype=np.intp,
    )
    if not len(pairs):
        raise InputError(
            "No training row of the new explainer has a label that the old one has: "
            f"{shown(verified_model(new).index[0])} and {shown(verified_model(old).index[0])} are "
            "their first. Rows are matched by label: make both with the same labels, "
            "axil.Explainer(..., index=labels)."
        )
    have_same_features = (
        _feature_keys(old, old)[pairs[:, 0]] == _feature_keys(new, old)[pairs[:, 1]]
    )
    pairs = pairs[have_same_features]
    n_old = len(position_in_old)
    after = np.full(n_old, ABSENT)
    after[pairs[:, 0]] = pairs[:, 1]
    status = np.where(after == ABSENT, REMOVED, KEPT)
    status[pairs[_have_other_targets(old, new, pairs), 0]] = CHANGED
    added = np.setdiff1d(np.arange(len(position_in_new)), pairs[:, 1])
    n_rows = n_old + len(added)
    return ComparedRows(
        labels=inputs.joined(verified_model(old).index, verified_model(new).index[added]),
        status=np.concatenate([status, np.full(len(added), ADDED)]),
        before=np.concatenate([np.arange(n_old), np.full(len(added), ABSENT)]),
        middle=np.full(n_rows, ABSENT),
        after=np.concatenate([after, added]),
    )


def _position_by_label(explainer: Refit, name: str) -> dict[Hashable, int]:
    """Return the position of the training row of each label, by the key of the label."""
    label_keys = keys(verified_model(explainer).index)
    position_by_key = {key: position for position, key in enumerate(label_keys)}
    if len(position_by_key) < len(label_keys):
        key, n_rows = Counter(label_keys).most_common(1)[0]
        label = verified_model(explainer).index[position_by_key[key]]
        raise InputError(
            f"The label {shown(label)} stands for {n_rows} training rows of the {name} explainer, "
            "and rows are matched by label. Make it with labels that are unique: "
            "axil.Explainer(..., index=labels)."
        )
    return position_by_key


def _have_other_targets(old: Refit, new: Refit, pairs: IntArray) -> BoolArray:
    """Return which pairs of rows have different targets, (n_pairs,)."""
    y_old = arguments_of(old).y
    y_new = _targets_for(old, new)
    y_old = y_old.reshape(len(y_old), -1)[pairs[:, 0]]
    y_new = y_new.reshape(len(y_new), -1)[pairs[:, 1]]
    is_different = y_old != y_new
    if _transforms_differ(old, new):  # a logarithm and its inverse lead back up to rounding
        is_different &= ~np.isclose(y_old, y_new, rtol=ROUND_TRIP, atol=0.0)
    return np.asarray(is_different.any(axis=1))


def _transforms_differ(old: Refit, new: Refit) -> bool:
    """Return whether one model transforms its targets itself and the other got transformed ones."""
    return (verified_model(old).scale.onward is None) != (verified_model(new).scale.onward is None)


def _targets_for(old: Refit, new: Refit) -> AnyArray:
    """Return the targets of the new rows, (N,) or (N, K), in the unit that the old model takes."""
    y = arguments_of(new).y
    if not _transforms_differ(old, new):
        return y
    if verified_model(new).scale.onward is None:
        return verified_model(new).scale.inverse(y)
    return verified_model(new).scale.forward(y)


def _feature_keys(explainer: Refit, like: Refit) -> NDArray[np.uint64]:
    """Return a key for each training row, (N,): rows with equal features and offsets share one."""
    features = columns_like(verified_model(explainer).features, like)
    n_rows = features.shape[0]
    init_score = arguments_of(explainer).init_score
    offsets = np.zeros((n_rows, 1))
    if init_score is not None:
        offsets = init_score.reshape(n_rows, -1)
    return inputs.row_keys(features, offsets, single=True)


def columns_like(X: FeatureTable, explainer: Refit) -> Any:
    """Return X with the columns of the explainer's training rows, if both are frames."""
    frame = inputs.as_frame(X)
    training_frame = inputs.as_frame(verified_model(explainer).features)
    if frame is None or training_frame is None:
        return X
    columns = list(training_frame.columns)
    if list(frame.columns) == columns or not set(columns) <= set(frame.columns):
        return X  # the model says what is missing
    return inputs.in_order(frame, columns).to_native()


def refit_to_new_rows(old: RefitT, new: Refit, rows: ComparedRows) -> RefitT:
    """Return the old splits refitted to the new rows."""
    new_inputs = arguments_of(new)
    y = _targets_for(old, new)
    changes: dict[str, Any] = {}
    removed = rows.has(REMOVED)
    if removed.any():
        drop = np.zeros(len(verified_model(old).index), dtype=bool)
        drop[rows.before[removed]] = True
        changes["drop"] = drop
    changed = rows.has(CHANGED)
    if changed.any():
        labels = inputs.as_list(rows.labels[changed])
        changes["targets"] = dict(zip(labels, list(y[rows.after[changed]])))
    if new_inputs.sample_weight is not None or arguments_of(old).sample_weight is not None:
        weights = np.ones(len(verified_model(old).index))
        if new_inputs.sample_weight is not None:
            both = rows.has(KEPT, CHANGED)
            weights[rows.before[both]] = new_inputs.sample_weight[rows.after[both]]
        changes["sample_weight"] = weights
    added = rows.after[rows.has(ADDED)]
    if len(added):
        changes["add"] = _added_rows(old, new, added)
        changes["added_labels"] = verified_model(new).index[added]
    # `again` does not warn that the splits stay: the new splits are a part of the answer.
    return again(old, **changes)


def _added_rows(old: Refit, new: Refit, positions: IntArray) -> tuple[Any, ...]:
    """Return the new data's rows at these positions as the old explainer's `refit` adds them."""
    new_inputs = arguments_of(new)
    features = columns_like(verified_model(new).features, old)
    rows = (inputs.take_rows(features, positions), _targets_for(old, new)[positions])
    sample_weight = None
    if new_inputs.sample_weight is not None:
        sample_weight = new_inputs.sample_weight[positions]
    if new_inputs.init_score is None:
        return (*rows, sample_weight)
    return (*rows, sample_weight, new_inputs.init_score[positions])


def with_refit_positions(rows: ComparedRows, refitted: Refit) -> ComparedRows:
    """Return the rows with their positions in the refit: kept rows in order, then added ones."""
    added = rows.has(ADDED)
    label_keys = keys(verified_model(refitted).index)
    n_kept = len(label_keys) - int(added.sum())
    position_by_key = {key: position for position, key in enumerate(label_keys[:n_kept])}
    positions = np.array(
        [position_by_key.get(key, ABSENT) for key in keys(rows.labels)], dtype=np.intp
    )
    positions[rows.has(REMOVED)] = ABSENT
    positions[added] = np.arange(n_kept, len(label_keys))
    return replace(rows, middle=positions)
