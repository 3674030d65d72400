"""The verification that a fitted model and its training data belong together.

First axil compares every leaf value, computed from the residuals that the library saw, with the
model's own. A disagreement shows where it arises. Then the linear map alone is run over the targets
in float64 and must arrive at the predictions. The result is an `ExactModel`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import (
    Adapter,
    FittedSmoother,
    Form,
    LeafTotals,
    Model,
    SmootherModel,
    TrainingRows,
)
from axil.adapters.members import ResidualModel, SumModel
from axil.adapters.sample_counts import RecordedCounts, compact
from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError, UnsupportedModelError
from axil.inputs.copies import owned
from axil.kernels.choose import backend_of
from axil.machine.memory import Budget, Limits
from axil.replay.compare import Extent, check_leaves, refuse_rows, verified
from axil.replay.compare_predictions import (
    Miss,
    check_predictions,
    checked_rows,
    furthest,
    with_predictions,
    worse,
)
from axil.replay.exact_model import ExactModel
from axil.replay.members import predictions_of, verify_residual, verify_sum
from axil.replay.radius import ActiveSet
from axil.replay.recover import replay, training_leaves
from axil.replay.verification import Verification, worst_of
from axil.replay.walk import ELSEWHERE, Leaves, Walked, round_to, walk
from axil.structure import Structure, all_n_leaves, output_groups
from axil.weights.boosting import BoostedTrees
from axil.weights.engine import Engine
from axil.weights.forest import Forest, is_forest
from axil.weights.smoother import Smoother

# How many times further than on one set of rows a solver may be off on another, or with another
# seed (measured: up to 8).
SPREAD = 10

Verified = tuple[list[Engine], Verification | None]


def build(
    model: Model, rows: TrainingRows, labels: AnyArray, limits: Limits, check: bool = True
) -> ExactModel:
    """Read the model and replay its fit on the user's rows; return both after verification.

    Parameters
    ----------
    labels : array of shape (N,)
        The user's names of the rows.
    check : bool
        Whether the replay is compared with the model.
    """
    engines, verification = _verify(model, rows, limits, check)
    backend = inputs.backend_of(rows.X)
    return ExactModel(
        model,
        labels,
        rows.X,
        backend,
        limits,
        verification,
        engines=engines,
        targets=_without_missing(model, rows.targets),
        rows=_rows_of_the_fit(rows),
    )


def _rows_of_the_fit(rows: TrainingRows) -> TrainingRows:
    """Return read-only copies of the targets, weights and offsets of the rows, without features."""
    weights = rows.weights
    if weights is not None:
        weights = owned(weights)
    offsets = rows.offsets
    if offsets is not None:
        offsets = owned(offsets)
    in_bag = rows.in_bag
    if in_bag is not None:
        in_bag = owned(compact(in_bag))
    return TrainingRows(None, rows.targets, weights, offsets, in_bag)


def _verify(model: Model, rows: TrainingRows, limits: Limits, check: bool) -> Verified:
    """Return the engines for the outputs, and the verification."""
    n_rows = len(rows.targets)
    if rows.in_bag is None and model.refused_draws is not None:
        raise model.refused_draws
    if model.fitted_rows is not None and model.fitted_rows != n_rows:
        refuse_rows(model, n_rows, model.fitted_rows)
    weights = rows.weights
    if weights is not None:
        weights = round_to(model.rounding.targets, weights)
    targets = round_to(model.rounding.targets, rows.targets)
    rows = replace(rows, targets=targets, weights=weights)
    if model.form is Form.TREES:
        return _verify_trees(cast(Adapter, model), rows, limits, check)
    has_offsets_or_in_bag = rows.offsets is not None or rows.in_bag is not None
    if model.form is Form.SMOOTHER:
        if has_offsets_or_in_bag:
            raise InputError(
                f"This {model.library} model is a linear smoother: it takes neither init_score nor "
                "in_bag. Leave them out."
            )
        return _verify_smoother(cast(SmootherModel, model), rows, check)
    if has_offsets_or_in_bag:
        raise InputError(
            "A model of several others takes neither init_score nor in_bag: leave them out."
        )
    verify_member = partial(_verify, limits=limits, check=check)
    if model.form is Form.RESIDUAL:
        engine_of = partial(tree_engine, limits=limits)
        residual_model = cast(ResidualModel, model)
        return verify_residual(residual_model, rows, limits.n_threads, verify_member, engine_of)
    return verify_sum(cast(SumModel, model), rows, limits.n_threads, check, verify_member)


# -- linear smoothers ------------------------------------------------------------------------------


def _verify_smoother(model: SmootherModel, rows: TrainingRows, check: bool) -> Verified:
    """Solve for the smoother again, without the targets, and compare predictions."""
    weights = model.row_weights(rows.targets, rows.weights)
    if check:
        model.check_kept(rows.X, rows.targets, weights)
    engines = _smoother_engines(model.smoother(rows.X, weights), rows.targets.shape[1])
    if not check:
        return engines, None
    predictions = predictions_of(engines, rows.targets)
    scale = float(np.abs(predictions).max()) or 1.0
    checked = checked_rows(len(rows.targets))
    expected = with_predictions(model, rows.X, checked, None, predictions.copy(), slice(None))
    miss = furthest(predictions, expected)
    tolerance = model.tolerance
    if not miss.error <= tolerance * scale / SPREAD:
        tolerance = _tolerance_of_solver(model, rows, weights, predictions, miss.error / scale)
    check_predictions(model, miss, tolerance * scale)
    return engines, Verification(len(rows.targets), 0, miss.error / scale, 0.0, tolerance, scale)


def _tolerance_of_solver(
    model: SmootherModel,
    rows: TrainingRows,
    weights: FloatArray | None,
    predictions: FloatArray,
    error: float,
) -> float:
    """Return the tolerance of a solver that stays away from the solution on these very data.

    ``error`` is that of the predictions, relative to the largest.
    """
    scale = float(np.abs(predictions).max()) or 1.0
    error_of_solver = 0.0
    predictions_again = model.again(rows.X, rows.targets, weights)
    if predictions_again is not None:
        error_of_solver = SPREAD * furthest(predictions, predictions_again).error / scale
    tolerance = model.tolerance
    if error <= error_of_solver:
        tolerance = max(tolerance, error_of_solver)
    if tolerance > model.widest:
        raise model.unsolved(rows.X, weights, error)
    return tolerance


def _smoother_engines(
    fitted: FittedSmoother | list[FittedSmoother], n_outputs: int
) -> list[Engine]:
    """Return one engine for all outputs, or one for each output if their weights differ."""
    if isinstance(fitted, list):
        return [Smoother(smoother, 1) for smoother in fitted]
    return [Smoother(fitted, n_outputs)]


# -- trees -----------------------------------------------------------------------------------------


def _verify_trees(adapter: Adapter, rows: TrainingRows, limits: Limits, check: bool) -> Verified:
    """Return one engine for all outputs if they share trees, otherwise one for each output."""
    if rows.offsets is not None:
        rows = replace(rows, offsets=round_to(adapter.rounding.offsets, rows.offsets))
    targets = _without_missing(adapter, rows.targets)
    engines: list[Engine] = []
    verifications: list[Verification] = []
    for fit, outputs, walked in walked_trees(adapter, rows, limits):
        offsets = rows.offsets
        if offsets is not None:
            offsets = offsets[:, outputs]
        group_rows = replace(rows, targets=targets[:, outputs], offsets=offsets)
        replayed = replay(fit, walked, offsets, limits.budget, group_rows.targets)
        engine = tree_engine(replayed.structure, limits)
        if check:
            row_weights = fit.weights.row_weights
            extent = Extent.of(group_rows.targets, row_weights, offsets, replayed.score)
            leaf_error = check_leaves(adapter, fit, replayed, extent)
            if fit.leaf_rule.ranks is not None:
                predictions = engine.predicted(None, group_rows.targets)
                _require_stable(adapter, extent, furthest(predictions, replayed.score).error)
            miss = _furthest_prediction(
                adapter, fit, engine, group_rows, outputs, replayed.score, limits.n_threads
            )
            active_set = ActiveSet.of(replayed, engine, group_rows.targets, fit.placement)
            verifications.append(
                verified(adapter, fit, replayed, extent, leaf_error, miss, active_set)
            )
        engines.append(engine)
    if not check:
        return engines, None
    return engines, worst_of(verifications)


def _furthest_prediction(
    adapter: Adapter,
    fit: BoostedFit,
    engine: Engine,
    rows: TrainingRows,
    outputs: slice,
    score: FloatArray,
    n_threads: int,
) -> Miss:
    """Return the training row with the largest error of the weights' prediction.

    Parameters
    ----------
    rows : TrainingRows
        With the targets and offsets of these outputs.
    score : array of shape (N, K)
        The sums of the model's leaf values, which are overwritten.
    """
    predictions = engine.predicted(None, rows.targets)
    if rows.X is None:
        return furthest(predictions, score)
    checked = checked_rows(len(rows.targets))
    if fit.placement is None:
        expected = with_predictions(adapter, rows.X, checked, rows.offsets, score, outputs)
        return furthest(predictions, expected)
    # Predictions of the same rows are made in other leaves.
    some_rows = inputs.take_rows(rows.X, checked)
    leaves = adapter.coordinates(some_rows, n_threads)
    model_predictions = adapter.predictions(some_rows)[:, outputs]
    miss = furthest(engine.predicted(leaves, rows.targets), model_predictions)
    return worse(furthest(predictions, score), replace(miss, row=int(checked[miss.row])))


def walked_trees(
    adapter: Adapter, rows: TrainingRows, limits: Limits
) -> Iterable[tuple[BoostedFit, slice, Walked]]:
    """Walk through the trees of each group of outputs.

    Where an adapter ``settles`` by the leaf totals, it is asked for its trees again: what it
    settles has no part in the walk.

    Returns
    -------
    iterable of (fit, outputs, walked)
        The fit with the weights and sample counts of the rows, the outputs that it serves, and the
        walk of the rows through it.
    """
    fits = adapter.trees(rows)
    targets = _without_missing(adapter, rows.targets)
    n_leaves = all_n_leaves([fit.table for fit in fits])
    all_leaves = training_leaves(adapter, rows, n_leaves, limits, fits[0].placement)
    groups = output_groups(len(fits))
    walks: list[Walked] = []
    for fit, outputs in zip(fits, groups):
        leaves = all_leaves
        if fit.table.columns is not None:
            leaves = leaves_of_trees(all_leaves, fit.table.columns, limits.budget)
        offsets = rows.offsets
        if offsets is not None:
            offsets = offsets[:, outputs]
        fit_of_rows = with_rows(fit, rows.weights, rows.in_bag)
        walks.append(walk(adapter, fit_of_rows, leaves, targets[:, outputs], offsets, limits))
    if adapter.settles:
        totals = [LeafTotals(walked.leaf_weights, walked.sums) for walked in walks]
        fits = adapter.trees(replace(rows, leaf_totals=totals))
    return zip([with_rows(fit, rows.weights, rows.in_bag) for fit in fits], groups, walks)


def _without_missing(model: Model, targets: FloatArray) -> FloatArray:
    """Return the targets with zeros in place of missing ones, whose rows weigh nothing."""
    if model.missing_targets:
        return np.nan_to_num(targets)
    return targets


def _require_stable(adapter: Adapter, extent: Extent, error: float) -> None:
    """Refuse percentiles if their rows are so close that rounding decides between them."""
    if error > adapter.tolerance * extent.scale + extent.rounding(adapter, None):
        raise UnsupportedModelError(
            "ranks of rows",
            f"apart by rounding, which moves predictions by {error / extent.scale:.1e} of the "
            "largest",
            "leaves take their values from rows with nearly equal residuals, as where targets are "
            "whole numbers, and the weights of these rows grow from tree to tree until rounding "
            "shows",
            "Fit with fewer trees or a smaller learning rate, or with squared error.",
        )


def with_rows(fit: BoostedFit, weights: FloatArray | None, in_bag: FloatArray | None) -> BoostedFit:
    """Return the fit with the row weights that it used, 0 for rows that it held out.

    Parameters
    ----------
    weights : array of shape (N,) or None
        Sample weights, where the fit has no row weights of its own.
    in_bag : array of shape (N, T) or None
        How often each row was sampled for each tree, where that was recorded.
    """
    row_weights = fit.weights.row_weights
    if row_weights is None:
        row_weights = weights
    if fit.weights.held_out is not None:
        if row_weights is None:
            row_weights = np.ones(len(fit.weights.held_out))
        row_weights = np.where(fit.weights.held_out, 0.0, row_weights)
    sampler = fit.sampler
    if in_bag is not None:
        n_base_trees = int(fit.initial.is_first_tree)
        if fit.table.columns is not None:
            in_bag = in_bag[:, fit.table.columns[n_base_trees:] - n_base_trees]
        sampler = RecordedCounts(in_bag, len(fit.table.n_leaves) - n_base_trees)
    return replace(fit, weights=replace(fit.weights, row_weights=row_weights), sampler=sampler)


def tree_engine(structure: Structure, limits: Limits) -> Engine:
    """Return the engine of a structure: an inverted index for forests, passes for boosted trees."""
    if is_forest(structure):
        return Forest(structure)
    return BoostedTrees(structure, backend_of(limits))


def leaves_of_trees(leaves: Leaves, trees: NDArray[np.int64], budget: Budget) -> Leaves:
    """Return a copy of the leaf numbers, (T, N), of the trees of one output."""
    shape = len(trees), leaves.shape[1]
    copied = budget.empty(shape, leaves.dtype, "The leaf numbers of one output", ELSEWHERE)
    for place, tree in enumerate(trees):
        copied[place] = leaves[tree]
    return copied
