"""LightGBM's samplers: against loops in plain Python, and against the bags and drops of real models."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
from numpy.typing import NDArray

from axil import Explainer
from axil.adapters import read
from axil.adapters.lightgbm.draw_replay import DrawReplay, LeafEvidence, histories
from axil.adapters.lightgbm.samplers import (
    Bagging,
    Goss,
    IterationGradients,
    LightGBMDart,
    goss,
    streams,
)
from axil.errors import UnsupportedModelError
from axil.structure import NewtonRule
from tests.adapters.common import drawn_rows
from tests.adapters.lightgbm_models import (
    BAG,
    DART,
    QUIET,
    Case,
    booster,
    read_trees,
    replay,
    table,
)

Array = NDArray[np.float64]


def grid(**axes: Any) -> list[dict[str, Any]]:
    """All combinations of these settings; what is not a list is the same for all."""
    lists = [values if isinstance(values, list) else [values] for values in axes.values()]
    return [dict(zip(axes, combination)) for combination in product(*lists)]


def check(case: Case) -> None:
    """The replay arrives at the model's counts, leaf values and predictions; draws and all."""
    adapter = read(case.model)
    trees = read_trees(case, adapter)
    counts, weights, values, score = replay(case, trees, adapter.leaves(case.X))
    predictions = case.model.predict(case.X)
    scale = np.abs(predictions).max() or 1.0
    np.testing.assert_array_equal(counts, trees.table.leaf_counts)
    if trees.table.leaf_weights is not None:
        np.testing.assert_allclose(
            weights, trees.table.leaf_weights, rtol=0, atol=1e-14 * weights.sum()
        )
    np.testing.assert_allclose(
        values, trees.table.leaf_values[:, 0], rtol=0, atol=adapter.leaf_tolerance * scale
    )
    np.testing.assert_allclose(score, predictions, rtol=0, atol=1e-14 * scale)


# -- loops ------------------------------------------------------------------------------------------------------------


def generator(seed: int) -> Iterator[float]:
    x = seed % 2**32
    while True:
        x = (214013 * x + 2531011) % 2**32
        yield (x >> 16 & 0x7FFF) / 32768


@pytest.mark.parametrize(
    ("n_rows", "seed"), [(1, 3), (1000, 0), (1024, 7), (1025, 32766), (2500, -5)]
)
def test_bagging_against_a_loop(n_rows: int, seed: int) -> None:
    generators = [generator(seed + block) for block in range(-(-n_rows // 1024))]
    state = Bagging(0.37, 2, streams(seed, n_rows), n_rows)
    for tree in range(7):
        bag, state = state.attempt(False, None)
        if tree % 2 == 0:
            expected = [next(generators[row // 1024]) < 0.37 for row in range(n_rows)]
        np.testing.assert_array_equal(bag, expected)
        state = state.grown()


def goss_loop(size: Array, part: int, top_rate: float, other_rate: float, generators: Any) -> Array:
    """Row after row (Helper, src/boosting/goss.hpp)."""
    drawn = np.zeros(len(size))
    for start in range(0, len(size), part):
        own = size[start : start + part]
        n = len(own)
        top, others = max(1, int(n * top_rate)), int(n * other_rate)
        threshold, big, sampled = np.sort(own)[-top], 0, 0
        for i in range(n):
            if own[i] >= threshold:
                drawn[start + i], big = 1, big + 1
            elif next(generators[(start + i) // 1024]) < (others - sampled) / (
                (n - i) - (top - big)
            ):
                drawn[start + i], sampled = np.float32(n - top) / np.float32(others), sampled + 1
    return drawn


@pytest.mark.parametrize("n_rows", [1, 10, 1024, 5000, 9000])
@pytest.mark.parametrize("rates", [(0.2, 0.1), (0.5, 0.5), (0.01, 0.9), (0.4, 0.0005)])
@pytest.mark.parametrize("digits", [8, 0])  # 0: many residuals are the same
def test_goss_against_a_loop(n_rows: int, rates: tuple[float, float], digits: int) -> None:
    rng = np.random.default_rng(n_rows)
    for state in goss(*rates, 11, n_rows, 0)[:3]:
        generators = [generator(11 + block) for block in range(-(-n_rows // 1024))]
        for _ in range(2):
            residuals = rng.normal(size=(n_rows, 1)).round(digits)
            size = np.abs(residuals[:, 0]).astype(np.float32)
            drawn, state = state.attempt(False, IterationGradients(residuals))
            np.testing.assert_array_equal(
                drawn, goss_loop(size, state.rows_per_thread, *rates, generators)
            )


def test_goss_parts() -> None:
    assert [state.rows_per_thread for state in goss(0.2, 0.1, 0, 1024, 8)] == [1024]
    assert [state.rows_per_thread for state in goss(0.2, 0.1, 0, 3000, 8)] == [1024, 2048, 3000]
    assert next(iter(goss(0.2, 0.1, 0, 3000, 1))).rows_per_thread == 3000


# -- real models ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_rows", [50, 400, 1024, 1025, 4999])
def test_bagging(n_rows: int) -> None:
    for how in grid(
        bagging_fraction=[0.3, 2 / 3, 0.9], bagging_freq=[1, 3], seed=[1, 2], n_trees=8
    ):
        check(booster(table(n_rows), **how))


def test_bagging_seeds_and_threads() -> None:
    data = table(1500)
    for how in (
        {"seed": 5},
        {"bagging_seed": 5},
        {"seed": 5, "bagging_seed": 99},
        *grid(num_threads=[2, 4]),
    ):
        check(booster(data, **BAG, **{"n_trees": 5, **how}))


@pytest.mark.parametrize("n_rows", [400, 3000])
def test_bagging_with_weights(n_rows: int) -> None:
    for how in grid(
        bagging_fraction=[0.5, 0.9], lambda_l2=[0.0, 1.5], bagging_freq=1, weighted=True, n_trees=8
    ):
        check(booster(table(n_rows), **how))


@pytest.mark.parametrize("n_rows", [14, 50, 60, 100])
def test_iterations_that_find_no_split(n_rows: int) -> None:
    """About every other iteration drops its tree, and its draws with it; in rf mode it leaves a tree of one leaf."""
    failed = 0
    for boosting, fractions in {"gbdt": [0.5, 0.7], "rf": [0.5, 0.7], "dart": [0.7]}.items():
        for how in grid(
            bagging_fraction=fractions, bagging_freq=[1, 2], seed=[1, 2, 3], n_trees=40
        ):
            case = booster(
                table(n_rows), boosting=boosting, min_data_in_leaf=3 if n_rows == 14 else 18, **how
            )
            failed += case.model.num_trees() < 40
            check(case)
    assert failed > 4 or n_rows != 60


@pytest.mark.parametrize("n_rows", [300, 1024, 1500, 5000])
def test_goss(n_rows: int) -> None:
    data, threads = table(n_rows), [1, 2, 4] if n_rows > 1024 else [1]
    for how in grid(seed=[1, 2], num_threads=threads, weighted=[False, True]):
        check(booster(data, data_sample_strategy="goss", learning_rate=0.4, n_trees=8, **how))
    for how in grid(
        top_rate=[0.1, 0.4], other_rate=[0.05, 0.3], learning_rate=[0.3, 0.9], lambda_l2=1.0
    ):
        check(booster(data, boosting="goss", n_trees=6, **how))


def test_goss_begins_anew_where_the_rate_changes() -> None:
    rate = lgb.reset_parameter(learning_rate=lambda i: 0.5 * 0.99**i)
    for n_rows in (
        400,
        3000,
    ):  # rates that make it copy rows, 0.5 together or less, crash LightGBM here
        strategy = {"data_sample_strategy": "goss", "top_rate": 0.4, "other_rate": 0.3}
        check(booster(table(n_rows), callbacks=[rate], n_trees=10, **strategy))


def test_goss_where_most_leaves_are_zero() -> None:
    """L1 leaves trees of one value that is not zero: with any rate they would agree with any draw of the same counts."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(70, 2))
        y = 2 * X[:, 0] + rng.normal(size=70)
        how = {
            "learning_rate": 1.0,
            "reg_alpha": 8.0,
            "min_child_samples": 5,
            "num_leaves": 3,
            "random_state": seed,
        }
        model = lgb.LGBMRegressor(
            n_estimators=20, data_sample_strategy="goss", **how, verbose=-1, n_jobs=1
        ).fit(X, y)
        np.testing.assert_allclose(
            Explainer(model, X, y)(X).predictions, model.predict(X), rtol=0, atol=1e-5
        )


@pytest.mark.parametrize(
    "max_drop", [50, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, -1))]
)
def test_dart(max_drop: int) -> None:
    for how in grid(
        xgboost_dart_mode=[False, True],
        uniform_drop=[False, True],
        skip_drop=[0.0, 0.5],
        drop_rate=[0.1, 0.5],
        seed=[1, 2],
    ):
        check(booster(**{**DART, "max_drop": max_drop, **how}))


@pytest.mark.parametrize("xgboost", [False, True])
def test_dart_with_bags(xgboost: bool) -> None:
    for how in grid(
        boost_from_average=[False, True], weighted=[False, True], learning_rate=[0.1, 1 / 3, 1.0]
    ):
        check(booster(table(1500), **BAG, **DART, xgboost_dart_mode=xgboost, **how))


@pytest.mark.parametrize("n_rows", [60, 400, 3000])
def test_forests(n_rows: int) -> None:
    for how in grid(
        bagging_fraction=[0.5, 0.8],
        bagging_freq=[1, 2],
        weighted=[False, True],
        lambda_l2=[0.0, 2.0],
    ):
        for from_average in (False, True):
            check(
                booster(
                    table(n_rows), boosting="rf", boost_from_average=from_average, n_trees=8, **how
                )
            )


def test_attempts_of_dart_are_found_out() -> None:
    """Which iterations found no split is not in the model, but bags and final scales tell."""
    params = {
        "objective": "l2",
        "min_data_in_leaf": 18,
        **QUIET,
        **BAG,
        **DART,
        "num_iterations": 30,
    }
    data = table(60)
    model = lgb.Booster(
        {key: value for key, value in params.items() if key != "n_trees"},
        lgb.Dataset(data.X, data.y),
    )
    outcomes = [not model.update() for _ in range(30)]
    n_trees = sum(outcomes) + (not outcomes[0])
    assert n_trees < 30
    settings = LightGBMDart(0.1, 0.4, 0.2, 50, _drop_seed(model), False, False)
    omega, beta = settings.run([outcomes], n_trees)
    case = Case(model, data.X, data.y, None, None, data.X_new)
    found = read_trees(case, read(model)).schedule.coefficients
    assert found is not None
    np.testing.assert_array_equal(found.omega, omega)
    np.testing.assert_array_equal(found.beta, beta)


def _drop_seed(model: Any) -> int:
    text: str = model.model_to_string()
    return int(text.partition("[drop_seed: ")[2].partition("]")[0])


# -- mistakes, repetition and speed -----------------------------------------------------------------------------------


def test_draws_begin_anew_with_the_first_tree() -> None:
    case = booster(**BAG)
    adapter = read(case.model)
    trees, leaves = read_trees(case, adapter), adapter.leaves(case.X)
    first, second = replay(case, trees, leaves), replay(case, trees, leaves)
    for a, b in zip(first, second):
        np.testing.assert_array_equal(a, b)
    assert trees.sampler is not None
    assert trees.sampler.name == "LightGBM bagging"


@pytest.mark.parametrize("how", [BAG, {"data_sample_strategy": "goss", "learning_rate": 0.5}])
def test_rows_in_another_order_show(how: dict[str, Any]) -> None:
    case = booster(table(600), **how)
    order = np.random.default_rng(0).permutation(600)
    other = Case(case.model, case.X[order], case.y[order], None, None, case.X_new)
    adapter = read(case.model)
    trees = read_trees(other, adapter)
    with np.errstate(invalid="ignore"):  # leaves without rows
        counts = replay(other, trees, adapter.leaves(other.X))[0]
    assert (counts != trees.table.leaf_counts).any()


def plain_rule(n_leaves: int) -> NewtonRule:
    return NewtonRule(np.zeros(n_leaves), np.ones(n_leaves))


def test_histories_without_bags_put_failures_last() -> None:
    evidence = LeafEvidence(
        np.array([0, 2, 4]),
        np.zeros(4, dtype=np.int64),
        np.zeros(4),
        np.ones(2),
        plain_rule(4),
        None,
    )
    found = list(histories(None, np.zeros((3, 2), dtype=np.int64), evidence, 1))
    assert found == [[True, True, False], [True, False, True]]


@pytest.mark.slow
def test_a_million_rows_and_a_hundred_trees() -> None:
    n_rows, n_trees, n_leaves = 1_000_000, 100, 31
    leaves = np.random.default_rng(0).integers(0, n_leaves, (n_trees, n_rows), dtype=np.uint8)
    start = Bagging(0.7, 1, streams(3, n_rows), n_rows)
    counts, state = [], start
    for leaf in leaves:
        bag, state = state.attempt(False, None)
        counts.append(np.bincount(leaf[bag], minlength=n_leaves))
    total = n_leaves * n_trees
    starts = np.arange(0, total + 1, n_leaves)
    evidence = LeafEvidence(
        starts,
        np.concatenate(counts),
        np.zeros(total),
        np.ones(len(counts)),
        plain_rule(total),
        None,
    )
    sampler, residuals = DrawReplay("bagging", [start], evidence, 100), np.zeros((n_rows, 1))
    for tree, leaf in enumerate(leaves):
        assert drawn_rows(sampler, tree, leaf, residuals).sum() == counts[tree].sum()


def test_states_are_never_changed() -> None:
    seen = IterationGradients(np.random.default_rng(0).normal(size=(3000, 1)))
    for state in (Bagging(0.5, 1, streams(1, 3000), 3000), Goss(0.2, 0.1, 1024, streams(1, 3000))):
        first, second = state.attempt(False, seen), state.attempt(False, seen)
        np.testing.assert_array_equal(first[0], second[0])
        assert (first[1].attempt(False, seen)[0] != first[0]).any()


def test_drops_that_are_not_found_out_name_iterations_without_a_split() -> None:
    data = table(60)
    how = {
        "boosting_type": "dart",
        "drop_rate": 0.5,
        "skip_drop": 0.0,
        "n_estimators": 6,
        "num_leaves": 3,
    }
    text = (
        lgb.LGBMRegressor(**how, verbose=-1, n_jobs=1)
        .fit(data.X, data.y)
        .booster_.model_to_string()
    )
    assert "[drop_seed: 4]" in text
    for n, found in (("6", "dart"), ("7", "dart with 6 trees of 7 iterations")):
        changed = text.replace("[drop_seed: 4]", "[drop_seed: 9]")
        model = lgb.Booster(
            model_str=changed.replace("[num_iterations: 6]", f"[num_iterations: {n}]")
        )
        with pytest.raises(UnsupportedModelError) as caught:
            Explainer(model, data.X, data.y)
        assert (caught.value.setting, caught.value.value) == ("boosting", found)


def test_several_orders_of_iterations_without_a_split_lead_to_the_same_scales() -> None:
    """The first order that leads to them disagrees with the data, which are not to blame."""
    rng = np.random.default_rng(11)
    X = rng.normal(size=(120, 2)).round(1)
    y = 100 + rng.normal(size=120)
    model = lgb.LGBMRegressor(
        boosting_type="dart",
        n_estimators=15,
        learning_rate=1.0,
        num_leaves=30,
        min_child_samples=1,
        min_split_gain=5.0,
        skip_drop=0.3,
        xgboost_dart_mode=True,
        extra_trees=True,
        random_state=11,
        verbose=-1,
        n_jobs=1,
    )
    model.fit(X, y)
    with pytest.raises(UnsupportedModelError, match="Several orders of them give"):
        Explainer(model, X, y)
