"""Sampled rows: which training rows each tree saw, and what trees say of rows they did not see."""

from __future__ import annotations

import numpy as np

from axil.aliases import LabelsLike
from axil.arrays import FloatArray, IntArray
from axil.attribution import WEIGHTS, Kind
from axil.errors import InputError, UnsupportedQuestionError, shown
from axil.inputs import named_rows, take_rows
from axil.methods.intervals.training_errors import is_bagged
from axil.methods.kinds import additive_model, exact_model
from axil.output.context import Context
from axil.output.predictions import WeightedSums
from axil.replay.exact_model import ExactModel
from axil.replay.verified_model import VerifiedModel
from axil.weights.engine import TreeEngine
from axil.weights.forest import Forest

OUT_OF_BAG = "diagnostics.out_of_bag"
IN_BAG = "diagnostics.in_bag"


def sample_counts(model: VerifiedModel) -> FloatArray:
    """Return how often each tree was fitted on each training row, (N, T).

    Rows that the fit gave no weight, such as those of early stopping, count 0.
    """
    if model.kind is Kind.ADDITIVE:
        walked = additive_model(model).boosting.walked
        counts = np.ones(walked.leaves.shape)
        if walked.drawn is not None:
            counts = walked.drawn.astype(np.float64)
        return np.asarray((counts * (walked.weights > 0)).T)
    exact = exact_model(model)
    engines = [engine for engine in exact.engines if isinstance(engine, TreeEngine)]
    if len(engines) < len(exact.engines):
        raise UnsupportedQuestionError(
            IN_BAG, "this model has no trees of its own", "Ask it of one of the tree models inside."
        )
    structures = [engine.structure for engine in engines]
    n_trees = sum(structure.n_trees for structure in structures)
    counts = np.empty((n_trees, exact.shape[0]))
    for structure in structures:
        trees: slice | IntArray = slice(None)
        if structure.columns is not None:
            trees = structure.columns
        counts[trees] = structure.sampled_counts()
    n_initial = int(exact.adapter.has_initial_tree)
    return np.asarray((counts[n_initial:] * (exact.row_weights > 0)).T)


def out_of_bag_sums(model: ExactModel, rows: LabelsLike | None) -> WeightedSums:
    """Return the predictions of training rows by the trees that were fitted without them.

    Parameters
    ----------
    model : ExactModel
        A forest.
    rows : labels or truth values, optional
        The training rows; by default all rows that some tree did not see.
    """
    if not is_bagged(model):
        raise UnsupportedQuestionError(
            OUT_OF_BAG,
            "this model is no forest whose trees leave rows out",
            "Fit a forest with bootstrap, or ask diagnostics.leave_one_out.",
        )
    forests = [engine for engine in model.engines if isinstance(engine, Forest)]
    if rows is None:
        positions = np.arange(model.shape[0])
        by_forest = [forest.out_of_bag(positions)[1] for forest in forests]
        positions = np.flatnonzero(np.all(by_forest, axis=0))
    else:
        positions = np.asarray(named_rows(rows, model.index))
    model.require(len(positions), "Name fewer rows, or raise memory_limit.")
    answers = [forest.out_of_bag(positions) for forest in forests]
    has_unseen_tree = np.all([is_out_of_bag for _, is_out_of_bag in answers], axis=0)
    if not has_unseen_tree.all():
        label = model.index[positions[~has_unseen_tree]][0]
        raise InputError(
            f"Every tree was fitted on row {shown(label)}, so no tree says what it would be "
            "without the row. Leave it out, or fit more trees."
        )
    weights = [answer.dense() for answer, _ in answers]
    intercepts = np.broadcast_to(
        np.concatenate([answer.intercepts for answer, _ in answers], axis=1),
        (len(positions), model.shape[1]),
    )
    stacked_weights = weights[0]
    if len(weights) > 1:
        stacked_weights = np.stack(weights)
    features = None
    if model.features is not None:
        features = take_rows(model.features, positions)
    targets = model.targets
    if model.names.outputs is None:
        intercepts = intercepts[:, 0]
        targets = targets[:, 0]
    return WeightedSums(
        weights=stacked_weights,
        intercepts=np.ascontiguousarray(intercepts),
        targets=targets,
        index=model.index,
        query_index=model.index[positions],
        outputs=model.names.outputs,
        backend=model.backend,
        n_threads=model.n_threads,
        context=Context(features, model.features, model.adapter.feature_names, None),
        scale=model.scale,
        seen=model.seen,
        classes=model.names.classes,
        class_names=model.names.class_names,
        has_link=model.has_link_of(WEIGHTS),
        note=model.note("by the trees that were fitted without the row"),
    )
