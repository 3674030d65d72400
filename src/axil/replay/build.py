"""The proof that a fitted model and its training data belong together; its result is a `ExactModel`.

First every leaf value, computed from the residuals that the library saw, is compared with the
model's own; a disagreement shows where it arises. Then the linear map alone is run over the targets
in float64 and must arrive at the predictions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.bags import RecordedBags, compact
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
from axil.arrays import FloatArray
from axil.errors import InputError, UnsupportedModelError
from axil.inputs.copies import owned
from axil.kernels.choose import backend_of
from axil.machine.memory import Budget, Limits
from axil.replay.compare import (
    Extent,
    check_leaves,
    check_predictions,
    checked_rows,
    furthest,
    refuse_rows,
    verified,
    with_predictions,
    worse,
)
from axil.replay.exact_model import ExactModel
from axil.replay.members import prove_residual, prove_sum
from axil.replay.radius import Held
from axil.replay.recover import replay, training_leaves
from axil.replay.verification import Verification, worst_of
from axil.replay.walk import ELSEWHERE, Walked, round_to, walk
from axil.structure import Structure, all_n_leaves, output_groups
from axil.weights.boosting import BoostedTrees
from axil.weights.engine import Engine
from axil.weights.forest import Forest, is_forest
from axil.weights.smoother import Smoother

# How many times further than on one set of rows a solver may be off on another, or with another
# seed (measured: up to 8).
SPREAD = 10


def build(
    model: Model, rows: TrainingRows, labels: NDArray[Any], limits: Limits, check: bool = True
) -> ExactModel:
    """Read the model, replay its fit on the rows, as they were given, and return both, proven; raise where they disagree."""
    engines, verification = _prove(model, rows, limits, check)
    about = labels, rows.X, inputs.backend_of(rows.X), limits, verification
    targets = _filled(model, rows.targets)
    return ExactModel(model, *about, engines=engines, targets=targets, rows=_fit_rows(rows))


def _fit_rows(rows: TrainingRows) -> TrainingRows:
    """Return read-only copies of what the rows counted with, without their features."""
    if rows.weights is None:
        weights = None
    else:
        weights = owned(rows.weights)
    if rows.offsets is None:
        offsets = None
    else:
        offsets = owned(rows.offsets)
    if rows.bags is None:
        bags = None
    else:
        bags = owned(compact(rows.bags))
    return TrainingRows(None, rows.targets, weights, offsets, bags)


def _prove(
    model: Model, rows: TrainingRows, limits: Limits, check: bool
) -> tuple[list[Engine], Verification | None]:
    """The engines for the outputs, and the proof."""
    n_rows = len(rows.targets)
    if rows.bags is None and model.refused_draws is not None:
        raise model.refused_draws
    if model.fitted_rows is not None and model.fitted_rows != n_rows:
        refuse_rows(model, n_rows, model.fitted_rows)
    if rows.weights is None:
        weights = None
    else:
        weights = round_to(model.rounding.targets, rows.weights)
    rows = replace(rows, targets=round_to(model.rounding.targets, rows.targets), weights=weights)
    if model.form in (Form.SUM, Form.RESIDUAL):
        if rows.offsets is not None or rows.bags is not None:
            raise InputError(
                "A model of several others takes neither init_score nor in_bag: leave them out."
            )
        inside = partial(_prove, limits=limits, check=check)
        if model.form is Form.RESIDUAL:
            together = cast(ResidualModel, model)
            return prove_residual(
                together, rows, limits.n_threads, inside, partial(tree_engine, limits=limits)
            )
        return prove_sum(cast(SumModel, model), rows, limits.n_threads, check, inside)
    if model.form is Form.SMOOTHER:
        if rows.offsets is not None or rows.bags is not None:
            raise InputError(
                f"This {model.library} model is a linear smoother: it takes neither init_score nor "
                "in_bag. Leave them out."
            )
        return _prove_smoother(cast(SmootherModel, model), rows, check)
    return _prove_trees(cast(Adapter, model), rows, limits, check)


def _prove_smoother(
    model: SmootherModel, rows: TrainingRows, check: bool
) -> tuple[list[Engine], Verification | None]:
    """Solve for the smoother again, without the targets, and compare what it makes of them with the predictions."""
    X = rows.X
    targets = rows.targets
    weights = model.row_weights(targets, rows.weights)
    if check:
        model.check_kept(X, targets, weights)
    engines = _smoother_engines(model.smoother(X, weights), targets.shape[1])
    if not check:
        return engines, None
    each = zip(engines, output_groups(len(engines)))
    found = np.concatenate(
        [engine.predicted(None, targets[:, output]) for engine, output in each], axis=1
    )
    scale = float(np.abs(found).max()) or 1.0
    asked = checked_rows(len(targets))
    miss = furthest(found, with_predictions(model, X, asked, None, found.copy(), slice(None)))
    tolerance = model.tolerance
    if not miss.error <= tolerance * scale / SPREAD:
        again = model.again(X, targets, weights)
        left = SPREAD * (0.0 if again is None else furthest(found, again).error / scale)
        if (
            miss.error <= left * scale
        ):  # the solver itself stays as far from the solution on these very data
            tolerance = max(tolerance, left)
        if tolerance > model.widest:
            raise model.unsolved(X, weights, miss.error / scale)
    check_predictions(model, miss, tolerance * scale)
    return engines, Verification(len(targets), 0, miss.error / scale, 0.0, tolerance, scale)


def _smoother_engines(
    fitted: FittedSmoother | list[FittedSmoother], n_outputs: int
) -> list[Engine]:
    """Return the engine of all outputs, or one for each output where they have different weights."""
    if isinstance(fitted, list):
        return [Smoother(smoother, 1) for smoother in fitted]
    return [Smoother(fitted, n_outputs)]


def _prove_trees(
    adapter: Adapter, rows: TrainingRows, limits: Limits, check: bool
) -> tuple[list[Engine], Verification | None]:
    """One engine for all outputs where they share trees, else one for each output."""
    offsets = None if rows.offsets is None else round_to(adapter.rounding.offsets, rows.offsets)
    rows = replace(rows, offsets=offsets)
    X, targets = rows.X, _filled(adapter, rows.targets)
    engines: list[Engine] = []
    found: list[Verification] = []
    for trees, output, through in walked_trees(adapter, rows, limits):
        own_offsets = None if offsets is None else offsets[:, output]
        walked = replay(trees, through, own_offsets, limits.budget, targets[:, output])
        engine = tree_engine(walked.structure, limits)
        if check:
            extent = Extent.of(
                targets[:, output], trees.weights.row_weights, own_offsets, walked.score
            )
            leaf_error = check_leaves(adapter, trees, walked, extent)
            made, asked = engine.predicted(None, targets[:, output]), checked_rows(len(targets))
            if trees.leaf_rule.ranks is not None:
                _require_stable(adapter, extent, furthest(made, walked.score).error)
            if X is None:
                miss = furthest(made, walked.score)
            elif trees.placement is None:
                miss = furthest(
                    made, with_predictions(adapter, X, asked, own_offsets, walked.score, output)
                )
            else:  # predictions of the same rows are made in other leaves
                some = inputs.take_rows(X, asked)
                predicted = engine.predicted(
                    adapter.coordinates(some, limits.n_threads), targets[:, output]
                )
                miss = furthest(predicted, adapter.predictions(some)[:, output])
                miss = worse(furthest(made, walked.score), replace(miss, row=int(asked[miss.row])))
            held = Held.of(walked, engine, targets[:, output], trees.placement)
            found.append(verified(adapter, trees, walked, extent, leaf_error, miss, held))
        engines.append(engine)
    return engines, worst_of(found) if check else None


def walked_trees(
    adapter: Adapter, rows: TrainingRows, limits: Limits
) -> Iterable[tuple[BoostedFit, slice, Walked]]:
    """The trees with the weights and draws of the rows, the outputs that they serve, and the walk of the rows through them.

    Where an adapter ``settles`` by the leaf totals, it is asked for its trees again: what it
    settles has no part in the walk.
    """
    fitted = adapter.trees(rows)
    targets = _filled(adapter, rows.targets)
    leaves = training_leaves(
        adapter, rows, all_n_leaves([fit.table for fit in fitted]), limits, fitted[0].placement
    )
    outputs = output_groups(len(fitted))
    walks: list[Walked] = []
    for trees, output in zip(fitted, outputs):
        if trees.table.columns is None:
            own_leaves = leaves
        else:
            own_leaves = own_leaves_of(leaves, trees.table.columns, limits.budget)
        if rows.offsets is None:
            own_offsets = None
        else:
            own_offsets = rows.offsets[:, output]
        own = with_rows(trees, rows.weights, rows.bags)
        walks.append(walk(adapter, own, own_leaves, targets[:, output], own_offsets, limits))
    if adapter.settles:
        totals = [LeafTotals(own.leaf_weights, own.sums) for own in walks]
        fitted = adapter.trees(replace(rows, leaf_totals=totals))
    return zip([with_rows(trees, rows.weights, rows.bags) for trees in fitted], outputs, walks)


def _filled(model: Model, targets: FloatArray) -> FloatArray:
    """The targets, with zeros in the place of those that are missing: their rows weigh nothing in these outputs."""
    if model.missing_targets:
        return np.nan_to_num(targets)
    return targets


def _require_stable(adapter: Adapter, extent: Extent, error: float) -> None:
    """Refuse percentiles of rows so close to each other that rounding decides which they are, once every leaf agrees."""
    if error > adapter.tolerance * extent.scale + extent.rounding(adapter, None):
        raise UnsupportedModelError(
            "ranks of rows",
            f"apart by rounding, which moves predictions by {error / extent.scale:.1e} of the largest",
            "leaves take their values from rows with nearly equal residuals, as where targets are whole numbers, and the weights "
            "of these rows grow from tree to tree until rounding shows",
            "Fit with fewer trees or a smaller learning rate, or with squared error.",
        )


def with_rows(trees: BoostedFit, weights: FloatArray | None, bags: FloatArray | None) -> BoostedFit:
    """The trees with the weights that rows counted with, 0 for those held out, and the draws, where they were recorded."""
    if trees.weights.row_weights is None:
        counted = weights
    else:
        counted = trees.weights.row_weights
    if trees.weights.held_out is not None:
        counted = np.where(trees.weights.held_out, 0.0, 1.0 if counted is None else counted)
    sampler = trees.sampler
    if bags is not None:
        based = trees.initial.is_first_tree
        if trees.table.columns is None:
            own_bags = bags
        else:
            own_bags = bags[:, trees.table.columns[based:] - based]
        sampler = RecordedBags(own_bags, len(trees.table.n_leaves) - based)
    return replace(trees, weights=replace(trees.weights, row_weights=counted), sampler=sampler)


def tree_engine(structure: Structure, limits: Limits) -> Engine:
    """The engine for a structure: an inverted index for forests, sweeps and the leaf matrix for all others."""
    if is_forest(structure):
        return Forest(structure)
    return BoostedTrees(structure, backend_of(limits))


def own_leaves_of(
    leaves: NDArray[np.unsignedinteger[Any]], columns: NDArray[np.int64], budget: Budget
) -> NDArray[np.unsignedinteger[Any]]:
    """A copy of the leaf numbers of one output's trees."""
    own = budget.empty(
        (len(columns), leaves.shape[1]), leaves.dtype, "The leaf numbers of one output", ELSEWHERE
    )
    for t, column in enumerate(columns):
        own[t] = leaves[column]
    return own
