"""From an XGBoost model's settings to the sampled rows of its fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

import numpy as np

from axil.adapters.xgboost.document import ModelDocument, Tree, XGBoostSettings
from axil.adapters.xgboost.draws import (
    ColumnDraws,
    DrawPlan,
    FloatSingles,
    Subsample,
    XGBoostDart,
    iterations,
)
from axil.arrays import BoolArray, FloatArray
from axil.errors import UnsupportedModelError

COMPARED_TREES = 4  # whose weights show where rows were sampled


def plan_of(model: ModelDocument, settings: XGBoostSettings, n_rows: int) -> DrawPlan:
    """Return everything that determines the sampled rows, if the settings state the device.

    Samples are those of the XGBoost that is installed, unless DART's weights say that an older one
    trained the model.
    """
    plans = _plans(model, settings, n_rows)
    return next((plan for plan in plans if _leads_to_drop_weights(plan, model)), plans[0])


def plan_of_draws(
    model: ModelDocument, settings: XGBoostSettings, n_rows: int, weights: FloatArray | None
) -> DrawPlan:
    """Return everything that determines the sampled rows.

    The first trees tell the version of XGBoost and the device, if they can. A machine without a GPU
    reads "cpu" from every model. The root of a tree of squared error has the weight of its rows.
    """
    for version_plan in _plans(model, settings, n_rows):
        for plan in _plans_of_devices(version_plan):
            is_likely = plan.samples and _leads_to_drop_weights(plan, model)
            if is_likely and _leads_to_first_trees(plan, model, weights):
                return plan
    plan = plan_of(model, settings, n_rows)
    if plan.gpu and plan.samples:
        raise UnsupportedModelError(
            "subsample",
            f"{plan.subsample:g} with device={settings.device}",
            "its rows were sampled from another stream than those of XGBoost up to 3.4, which axil "
            "replays",
            'Fit with subsample=1, or with device="cpu".',
        )
    return plan


def _plans(model: ModelDocument, settings: XGBoostSettings, n_rows: int) -> list[DrawPlan]:
    """Return the samples of each version of XGBoost, the installed one first.

    A file may come from another version.
    """
    dart = XGBoostDart(
        rate_drop=settings.number("rate_drop"),
        skip_drop=settings.number("skip_drop"),
        one_drop=settings.text("one_drop") == "1",
        weighted=settings.text("sample_type") == "weighted",
        forest=settings.text("normalize_type") == "forest",
        rate=settings.number("learning_rate"),
    )
    oldest = DrawPlan(
        updater=next((name for name in settings.updaters if name.startswith("grow")), ""),
        subsample=settings.number("subsample"),
        seed=int(settings.text("seed") or 0),
        seed_per_iteration=settings.text("seed_per_iteration") == "1",
        n_rows=n_rows,
        n_parallel=model.n_parallel,
        n_groups=int(model.groups.max()) + 1,
        dart=None if model.weight_drop is None else dart,
        gpu=settings.device != "cpu",
    )
    newer = replace(oldest, columns=columns_of(model.trees, settings))
    plans = [oldest, newer]
    first_versions = [(3, 3)]
    if newer.dart is not None:
        plans.append(replace(newer, dart=replace(dart, shares=False)))
        first_versions.append((3, 4))
    installed = sum(model.version >= version for version in first_versions)
    return [plans[installed], *plans[:installed][::-1], *plans[installed + 1 :]]


def columns_of(trees: Sequence[Tree], settings: XGBoostSettings) -> ColumnDraws:
    """Return the sampled rows of columns from XGBoost 3.3 on.

    One is for each node that may have children.
    """
    by_tree, by_level, by_node = (
        bool(np.float32(settings.number(f"colsample_by{unit}")) < 1)
        for unit in ("tree", "level", "node")
    )
    if not (by_level or by_node):
        return ColumnDraws(by_tree, by_level, by_node)
    n_levels = []
    n_nodes = []
    for tree in trees:
        may_split = _may_split(tree, settings)
        n_levels.append(len(np.unique(tree.depths[may_split])))
        n_nodes.append(int(may_split.sum()))
    return ColumnDraws(by_tree, by_level, by_node, tuple(n_levels), tuple(n_nodes))


def _may_split(tree: Tree, settings: XGBoostSettings) -> BoolArray:
    """Return which nodes may have children by max_depth and max_leaves, (nodes,)."""
    depths = tree.depths
    max_depth = int(settings.number("max_depth"))
    max_leaves = int(settings.number("max_leaves"))
    may_split = np.ones(len(depths), dtype=np.bool_)
    if max_depth:
        may_split = depths < max_depth
    if max_leaves and len(depths) > 1 and (len(depths) + 1) // 2 >= max_leaves:
        if settings.text("grow_policy") == "lossguide":
            was_added_last = np.arange(len(depths)) >= len(depths) - 2
        else:
            was_added_last = depths == depths.max()
        may_split &= ~was_added_last
    return may_split


def _plans_of_devices(plan: DrawPlan) -> list[DrawPlan]:
    """Return the plan on each device that it may have been carried out on."""
    if plan.gpu:
        plans = []
    else:
        plans = [plan]
    plans.append(replace(plan, gpu=True))
    if plan.columns is not None:
        plans.append(replace(plan, gpu=True, philox=True))
    return plans


def _leads_to_drop_weights(plan: DrawPlan, model: ModelDocument) -> bool:
    """Return whether these samples explain the tree weights of DART; True without DART."""
    if plan.dart is None or model.weight_drop is None:
        return True
    last = next(islice(iterations(plan), int(model.iterations[-1]), None))
    return _are_close(last.after, model.weight_drop)


def _are_close(weights: FloatSingles, expected: FloatArray) -> bool:
    """Return whether DART's weights of trees are those expected."""
    return len(weights) == len(expected) and bool(np.abs(weights - expected).max() <= 1e-6)


def _leads_to_first_trees(plan: DrawPlan, model: ModelDocument, weights: FloatArray | None) -> bool:
    """Return whether these samples explain the weights of the first trees."""
    sampler = Subsample(plan, np.arange(len(model.trees)))
    for t, tree in enumerate(model.trees[:COMPARED_TREES]):
        if tree.node_hessians is None:
            return not plan.gpu
        in_bag = sampler.bag(t)
        total = float(in_bag.sum() if weights is None else weights[in_bag].sum())
        if abs(total - float(tree.node_hessians[0])) > 1e-5 * total:
            return False
    return True


def drop_factors(model: ModelDocument, plan: DrawPlan, n_iterations: int) -> FloatArray:
    """Return DART's factor of every tree, (n_iterations + 1, T).

    The rows are the iterations and then the prediction. All iterations of the model are replayed,
    also those that predictions leave out, and must end in
    its weight_drop.
    """
    assert plan.dart is not None
    if model.weight_drop is None:
        expected = np.zeros(0)
    else:
        expected = model.weight_drop
    n_trees = int(np.searchsorted(model.iterations, n_iterations))
    table = np.zeros((n_iterations + 1, n_trees))
    weights = np.zeros(0, dtype=np.float32)
    for number, iteration in zip(range(int(model.iterations[-1]) + 1), iterations(plan)):
        weights = iteration.after
        if number < n_iterations:
            table[number, : len(iteration.factors)] = iteration.factors
    if not _are_close(weights, expected):
        raise UnsupportedModelError(
            "booster",
            "dart",
            f"its weight_drop does not follow from rate_drop={plan.dart.rate_drop:g} and "
            f"seed={plan.seed}: a model file keeps neither, and continued training, slices and "
            "rate schedules are not replayed",
            "Pass the model in memory or pickled, trained in one go with one learning_rate.",
        )
    table[-1] = expected[:n_trees]
    return table
