"""Errors: how far the training rows are from predictions that did not see them, from the best source that there is."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from axil.arrays import FloatArray
from axil.errors import UnsupportedQuestionError
from axil.machine.progress import track
from axil.methods import leave_one_out
from axil.methods.unseen_predictions import agreeing_values, fold_predictions, number_of_folds
from axil.replay.exact_model import ExactModel
from axil.weights.forest import Forest

PATIENCE = 600.0  # seconds that errors may take, above which a cheaper source is taken


def training_errors(
    proven: ExactModel, out_of_fold: FloatArray | None, method: str
) -> tuple[FloatArray, str]:
    """(N, K): targets less predictions of the training rows, nan where nothing is known of a row; and where these are from.

    They are from out-of-fold predictions (N, K), else out of bag, else without each row, else from
    leverages, else from the fit.

    By "leaves" those of boosted trees are from the fit at once, and where fits without each row
    take longer than those by folds they are from the latter. Intervals hold their coverage with any
    of these: errors that are nearer to those of new rows make them narrower.
    """
    if out_of_fold is not None:
        return proven.targets - out_of_fold, "out-of-fold"
    if is_bagged(proven):
        return proven.targets - out_of_bag(proven), "out-of-bag"
    if method == "leaves" and proven.structures is not None:
        return proven.targets - proven.fitted(), "fit"
    available = proven.budget.available
    if (
        method == "leaves"
        and leave_one_out.seconds_of(proven) > number_of_folds(proven) * proven.pass_seconds
    ):
        with suppress(UnsupportedQuestionError):
            found = proven.targets - fold_predictions(proven)
            if np.isfinite(found).all(axis=1).mean() > 0.5:
                return found, "folds"
    if leave_one_out.seconds_of(proven) <= PATIENCE:
        try:
            found = proven.targets - leave_one_out.predictions(proven)
        except UnsupportedQuestionError:
            found = np.full_like(proven.targets, np.nan)
        if (
            np.isfinite(found).all(axis=1).mean() > 0.5
        ):  # else most rows are alone in one of their leaves
            return found, "leave-one-out"
    if sum(engine.costs(available).leverage for engine in proven.engines) <= PATIENCE:
        found = proven.targets - agreeing_values(proven)
        if np.isfinite(found).any(axis=0).all():
            return found, "leverage"
    return proven.targets - proven.fitted(), "fit"


def is_bagged(proven: ExactModel) -> bool:
    """Whether the model is a forest of which most rows are left out by some tree."""
    forests = [engine for engine in proven.engines if isinstance(engine, Forest)]
    return len(forests) == len(proven.engines) and all(
        forest.structure.has_unsampled_rows for forest in forests
    )


def out_of_bag(proven: ExactModel) -> FloatArray:
    """(N, K): the predictions of each row by the trees that were fitted without it; nan where there is none; made once."""
    return proven.kept.get("out of bag", lambda: _out_of_bag(proven))


def _out_of_bag(proven: ExactModel) -> FloatArray:
    rows = np.arange(len(proven.targets))
    parts = []
    for engine, targets in proven.by_output(proven.targets):
        assert isinstance(engine, Forest)
        step = proven.budget.batch_size(engine.memory.per_query)
        found = np.empty_like(targets)
        for first in track(range(0, len(rows), step), "out of bag"):
            some = rows[first : first + step]
            answer, held = engine.out_of_bag(some)
            found[some] = np.where(
                held[:, None], answer.product(targets) + answer.intercepts, np.nan
            )
        parts.append(found)
    return np.concatenate(parts, axis=1)
