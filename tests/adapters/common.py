"""What the tests of all adapters share: a table of data, and how a refusal is checked."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import axil
from axil.adapters import read
from axil.adapters.boosted_fit import BoostedFit, RowGradients
from axil.adapters.contract import LeafTotals, TrainingRows
from axil.errors import UnsupportedModelError
from axil.machine.memory import Budget, Limits
from axil.replay.build import walked_trees

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Data:
    X: Array
    y: Array
    weight: Array
    offset: Array
    X_new: Array


def table(n_rows: int, n_new: int, seed: int = 0) -> Data:
    """Eight columns: five numeric, two of categories (3 and 12 of them), one with many zeros; targets around 5."""
    rng = np.random.default_rng(seed)
    n = n_rows + n_new
    X = rng.normal(size=(n, 8))
    X[:, 5], X[:, 6] = rng.integers(0, 3, n), rng.integers(0, 12, n)
    X[:, 7] = np.where(rng.random(n) < 0.7, 0.0, X[:, 7])
    effect = (
        rng.normal(size=12)[X[:, 6].astype(int)] + np.array([0.0, 1.5, -1.0])[X[:, 5].astype(int)]
    )
    y = (
        5.0
        + X[:, 0]
        + np.sin(2 * X[:, 1]) * X[:, 2]
        + effect
        + 0.5 * X[:, 7]
        + rng.normal(size=n) / 2
    )
    weight, offset = rng.gamma(2.0, size=n), rng.normal(size=n) + 4
    return Data(X[:n_rows], y[:n_rows], weight[:n_rows], offset[:n_rows], X[n_rows:])


def as_float32(values: Any) -> Array:
    """Return values rounded to float32, in which libraries keep targets, weights, offsets or residuals."""
    return np.asarray(values).astype(np.float32).astype(np.float64)


def check_refusal(model: Any, setting: str, value: str, condition: str | None) -> None:
    """The model is refused by this setting, with a value that begins so, for breaking this condition."""
    with pytest.raises(UnsupportedModelError) as error:
        read(model)
    assert error.value.setting == setting
    assert str(error.value.value).startswith(value)
    assert error.value.condition == condition
    start = (
        f"This model, of class {value}"
        if setting == "class"
        else f"This model has {setting}={value}"
    )
    assert str(error.value).startswith(start)
    assert ("linear leaf-update criterion" in str(error.value)) == (condition is not None)


def settled(adapter: Any, rows: TrainingRows) -> list[BoostedFit]:
    """The trees as the proof reads them: once more after a walk, where the model does not state all."""
    walks = walked_trees(adapter, rows, Limits(1, Budget(None))) if adapter.settles else ()
    totals = [LeafTotals(through.leaf_weights, through.sums) for _, _, through in walks]
    found: list[BoostedFit] = adapter.trees(replace(rows, leaf_totals=totals or None))
    return found


def check_wrong_targets(case: Any, least: float, error: Any = axil.ExactnessError) -> None:
    """Shuffled targets, one that is changed, and two that are swapped are refused, of rows with weights of ``least`` or more.

    Two rows that share all their leaves may be swapped: nothing changes by that.
    """
    rng, explainer = (
        np.random.default_rng(0),
        axil.Explainer(case.model, case.X, case.y, sample_weight=case.sample_weight),
    )
    weights = explainer(case.X).weights.reshape(-1, len(case.y))
    carried = np.flatnonzero(np.abs(weights).max(axis=0) > least)
    carried = carried[np.unique(weights[:, carried].round(12), axis=1, return_index=True)[1]]
    tried = [rng.permutation(case.y)]
    for one, other in rng.choice(carried, (3, 2), replace=False):
        changed, swapped = case.y.copy(), case.y.copy()
        changed[one] += 0.02 * np.ptp(case.y)
        swapped[[one, other]] = swapped[[other, one]]
        tried += [changed, swapped]
    for wrong in tried:
        with pytest.raises(error):
            axil.Explainer(case.model, case.X, wrong, sample_weight=case.sample_weight)


def drawn_rows(
    sampler: Any, tree: int, leaf: NDArray[Any], residuals: NDArray[Any]
) -> NDArray[Any]:
    """Return how often a sampler draws each row for one tree, (N,), from the leaves (N,) and the residuals before it."""
    (drawn,) = sampler.draw(range(tree, tree + 1), leaf[None], RowGradients(residuals))
    return drawn
