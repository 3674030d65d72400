"""From an XGBoost model's settings to the draws of its fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from axil.adapters.xgboost.document import Model, Settings
from axil.adapters.xgboost.draws import Dart, Plan, Subsample, iterations
from axil.errors import UnsupportedModelError
from axil.types import Array

COMPARED_TREES = 4  # whose weights tell where rows were drawn


def plan_of(model: Model, said: Settings, n_rows: int) -> Plan:
    """Everything that determines the draws, where the settings say on which device it was."""
    dart = Dart(
        rate_drop=said.number("rate_drop"),
        skip_drop=said.number("skip_drop"),
        one_drop=said.text("one_drop") == "1",
        weighted=said.text("sample_type") == "weighted",
        forest=said.text("normalize_type") == "forest",
        rate=said.number("learning_rate"),
    )
    return Plan(
        updater=next((name for name in said.updaters if name.startswith("grow")), ""),
        subsample=said.number("subsample"),
        seed=int(said.text("seed") or 0),
        seed_per_iteration=said.text("seed_per_iteration") == "1",
        n_rows=n_rows,
        n_parallel=model.n_parallel,
        n_groups=1 if model.shared else model.n_outputs,
        dart=None if model.weight_drop is None else dart,
        gpu=said.device != "cpu",
    )


def plan_of_draws(model: Model, said: Settings, n_rows: int, weights: Array | None) -> Plan:
    """Everything that determines the draws, where the first trees say on which device it was.

    A machine without a GPU reads "cpu" from every model. The root of a tree of squared error has the weight of its rows.
    """
    plan = plan_of(model, said, n_rows)
    others = [plan] if plan.gpu else [plan, replace(plan, gpu=True)]
    found = next((one for one in others if one.samples and _drew(one, model, weights)), None)
    if found is None and plan.gpu and plan.samples:
        raise UnsupportedModelError(
            "subsample",
            f"{plan.subsample:g} with device={said.device}",
            "its rows were drawn from another stream than that of XGBoost up to 3.3, which axil replays",
            'Fit with subsample=1, or with device="cpu".',
        )
    return plan if found is None else found


def _drew(plan: Plan, model: Model, weights: Array | None) -> bool:
    """Whether the first trees have the weights that these draws give them."""
    sampler = Subsample(plan, np.arange(len(model.trees)))
    for t, tree in enumerate(model.trees[:COMPARED_TREES]):
        if tree.node_hessians is None:
            return not plan.gpu
        drawn = sampler.draw(t, np.empty(0, dtype=np.int64), np.empty(0))
        total = float(drawn.sum() if weights is None else weights[drawn].sum())
        if abs(total - float(tree.node_hessians[0])) > 1e-5 * total:
            return False
    return True


def drop_factors(model: Model, plan: Plan, n_iterations: int) -> Array:
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
    if len(found) != len(expected) or np.abs(found - expected).max() > 1e-6:
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
