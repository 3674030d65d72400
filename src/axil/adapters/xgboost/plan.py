"""From an XGBoost model's settings to the draws of its fit."""

from __future__ import annotations

import numpy as np

from axil.adapters.xgboost.document import Model, Settings
from axil.adapters.xgboost.draws import Dart, Plan, iterations
from axil.errors import UnsupportedModelError
from axil.types import Array


def plan_of(model: Model, said: Settings, n_rows: int) -> Plan:
    """Everything that determines the draws."""
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
    )


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
