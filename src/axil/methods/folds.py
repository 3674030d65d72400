"""Folds: training rows predicted by refits without their fold, with the tree structure fixed."""

from __future__ import annotations

import numpy as np

from axil.arrays import FloatArray, IntArray
from axil.machine.progress import track
from axil.replay.verified_model import Refittable, VerifiedModel

FEW_ROWS = 2_000
MANY_ROWS = 20_000
BY_FOLDS = (
    "by {} fits with the fitted structure fixed, each without one fold of the rows; "
    "not a retraining"
)


def number_of_folds(model: VerifiedModel) -> int:
    """Return the number of folds, such that all fits take at most some five times the set-up.

    Of few rows each fold is a larger part of what the fit knows, so there are more. Leaves that
    rank rows, or cut residuals off, take longer to fit again, so there are fewer.
    """
    n_rows = model.shape[0]
    if n_rows > MANY_ROWS or model.deletions.ranks_or_clips:
        return 5
    if n_rows > FEW_ROWS:
        return 10
    return 20


def fold_numbers(model: Refittable) -> IntArray:
    """Return the fold of each training row, always the same.

    Each class is spread evenly over the folds. Rows of equal features and targets are not kept
    together: a fold that has one of them leaves the other in the fit, as a deletion of one row
    does.
    """
    n_rows = model.shape[0]
    order = np.random.default_rng(0).permutation(n_rows)
    if model.names.classes is not None:
        if model.targets.shape[1] > 1:
            classes = model.targets.argmax(axis=1)
        else:
            classes = model.targets[:, 0]
        order = order[np.argsort(classes[order], kind="stable")]
    folds = np.empty(n_rows, dtype=np.intp)
    folds[order] = np.arange(n_rows) % number_of_folds(model)
    return folds


def fold_predictions(model: Refittable) -> FloatArray:
    """Return each training row's out-of-fold prediction, or score, (N, K); computed once.

    It is nan if no row of any weight is left outside the fold.
    """
    predictions: FloatArray = model.kept.get("fold predictions", lambda: _fold_predictions(model))
    return predictions


def _fold_predictions(model: Refittable) -> FloatArray:
    folds = fold_numbers(model)
    predictions = np.full(model.shape, np.nan)
    sets_of_rows = []
    for fold in range(number_of_folds(model)):
        rows = np.flatnonzero(folds == fold)
        if len(rows) and np.delete(model.row_weights, rows).any():
            sets_of_rows.append(rows)
    replays = model.deletions.own_predictions(sets_of_rows)
    for rows, fold_scores in zip(track(sets_of_rows, "folds"), replays):
        predictions[rows] = fold_scores
    return predictions
