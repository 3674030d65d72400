"""From an XGBoost model's settings to the draws of its fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from axil.adapters.xgboost.document import ModelDocument, Tree, XGBoostSettings
from axil.adapters.xgboost.draws import (
    ColumnDraws,
    DrawPlan,
    Singles,
    Subsample,
    XGBoostDart,
    iterations,
)
from axil.arrays import FloatArray
from axil.errors import UnsupportedModelError

COMPARED_TREES = 4  # whose weights show where rows were drawn


def plan_of(model: ModelDocument, said: XGBoostSettings, n_rows: int) -> DrawPlan:
    """Everything that determines the draws, where the settings say on which device it was.

    Draws are those of the XGBoost that is installed, unless DART's weights say that an older one trained the model.
    """
    plans = _plans(model, said, n_rows)
    return next((plan for plan in plans if plan.dart is None or _ends(plan, model)), plans[0])


def _plans(model: ModelDocument, said: XGBoostSettings, n_rows: int) -> list[DrawPlan]:
    """The draws that each version of XGBoost would make, the installed one first: a file may come from another."""
    dart = XGBoostDart(
        rate_drop=said.number("rate_drop"),
        skip_drop=said.number("skip_drop"),
        one_drop=said.text("one_drop") == "1",
        weighted=said.text("sample_type") == "weighted",
        forest=said.text("normalize_type") == "forest",
        rate=said.number("learning_rate"),
    )
    oldest = DrawPlan(
        updater=next((name for name in said.updaters if name.startswith("grow")), ""),
        subsample=said.number("subsample"),
        seed=int(said.text("seed") or 0),
        seed_per_iteration=said.text("seed_per_iteration") == "1",
        n_rows=n_rows,
        n_parallel=model.n_parallel,
        n_groups=int(model.groups.max()) + 1,
        dart=None if model.weight_drop is None else dart,
        gpu=said.device != "cpu",
    )
    newer = replace(oldest, columns=columns_of(model.trees, said))
    plans = [oldest, newer]
    if newer.dart is not None:
        plans.append(replace(newer, dart=replace(dart, shares=False)))
    own = sum(model.version >= since for since in ((3, 3), (3, 4))[: len(plans) - 1])
    return [plans[own], *plans[:own][::-1], *plans[own + 1 :]]


def columns_of(trees: Sequence[Tree], said: XGBoostSettings) -> ColumnDraws:
    """Draws of columns from XGBoost 3.3 on; a node is drawn for where depth and max_leaves let it have children."""
    shares = (said.number(f"colsample_by{what}") for what in ("tree", "level", "node"))
    by_tree, by_level, by_node = (bool(np.float32(share) < 1) for share in shares)
    if not (by_level or by_node):
        return ColumnDraws(by_tree, by_level, by_node)
    max_depth, max_leaves = int(said.number("max_depth")), int(said.number("max_leaves"))
    levels, nodes = [], []
    for tree in trees:
        depths = tree.depths
        last = depths == depths.max()  # the nodes that were added last
        if said.text("grow_policy") == "lossguide":
            last = np.arange(len(depths)) >= len(depths) - 2
        tried = np.ones(len(depths), dtype=np.bool_) if max_depth == 0 else depths < max_depth
        if max_leaves and len(depths) > 1 and (len(depths) + 1) // 2 >= max_leaves:
            tried &= ~last
        levels.append(len(np.unique(depths[tried])))
        nodes.append(int(tried.sum()))
    return ColumnDraws(by_tree, by_level, by_node, tuple(levels), tuple(nodes))


def plan_of_draws(
    model: ModelDocument, said: XGBoostSettings, n_rows: int, weights: FloatArray | None
) -> DrawPlan:
    """Everything that determines the draws, where the first trees say by which version and on which device it was.

    A machine without a GPU reads "cpu" from every model. The root of a tree of squared error has the weight of its rows.
    """
    plan = plan_of(model, said, n_rows)
    versions = _plans(model, said, n_rows)
    others = [other for one in versions for other in _devices(one)]
    likely = (one for one in others if one.samples and (one.dart is None or _ends(one, model)))
    found = next((one for one in likely if _drew(one, model, weights)), None)
    if found is None and plan.gpu and plan.samples:
        raise UnsupportedModelError(
            "subsample",
            f"{plan.subsample:g} with device={said.device}",
            "its rows were drawn from another stream than those of XGBoost up to 3.4, which axil replays",
            'Fit with subsample=1, or with device="cpu".',
        )
    return plan if found is None else found


def _devices(plan: DrawPlan) -> list[DrawPlan]:
    """The plan on each device that it may have been carried out on."""
    on_gpu = replace(plan, gpu=True)
    newer = [] if plan.columns is None else [replace(on_gpu, philox=True)]
    return ([] if plan.gpu else [plan]) + [on_gpu, *newer]


def _ends(plan: DrawPlan, model: ModelDocument) -> bool:
    """Whether DART's weights of all trees come out of these draws."""
    found = next(islice(iterations(plan), int(model.iterations[-1]), None)).after
    return model.weight_drop is None or _same(found, model.weight_drop)


def _same(found: Singles, expected: FloatArray) -> bool:
    return len(found) == len(expected) and bool(np.abs(found - expected).max() <= 1e-6)


def _drew(plan: DrawPlan, model: ModelDocument, weights: FloatArray | None) -> bool:
    """Whether the first trees have the weights that these draws give them."""
    sampler = Subsample(plan, np.arange(len(model.trees)))
    for t, tree in enumerate(model.trees[:COMPARED_TREES]):
        if tree.node_hessians is None:
            return not plan.gpu
        drawn = sampler.bag(t)
        total = float(drawn.sum() if weights is None else weights[drawn].sum())
        if abs(total - float(tree.node_hessians[0])) > 1e-5 * total:
            return False
    return True


def drop_factors(model: ModelDocument, plan: DrawPlan, n_iterations: int) -> FloatArray:
    """(n_iterations + 1, T): DART's factor of every tree as each iteration, and at last the prediction, sees it.

    All iterations of the model are replayed, also those that predictions leave out, and must end in its weight_drop.
    """
    expected = np.zeros(0) if model.weight_drop is None else model.weight_drop
    n_trees = int(np.searchsorted(model.iterations, n_iterations))
    table = np.zeros((n_iterations + 1, n_trees))
    found = np.zeros(0, dtype=np.float32)
    for number, drawn in zip(range(int(model.iterations[-1]) + 1), iterations(plan)):
        found = drawn.after
        if number < n_iterations:
            table[number, : len(drawn.factors)] = drawn.factors
    if not _same(found, expected):
        raise UnsupportedModelError(
            "booster",
            "dart",
            f"its weight_drop does not follow from rate_drop={plan.dart.rate_drop if plan.dart else 0:g} and "
            f"seed={plan.seed}: a model file keeps neither, and continued training, slices and rate schedules are "
            "not replayed",
            "Pass the model in memory or pickled, trained in one go with one learning_rate.",
        )
    table[-1] = expected[:n_trees]
    return table
