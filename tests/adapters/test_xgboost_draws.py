"""The replayed draws of XGBoost against what its models record: the number of rows in every leaf, DART's tree weights."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import xgboost as xgb
from numpy.typing import NDArray

import axil
from axil.adapters.xgboost.document import XGBoostSettings, parse
from axil.adapters.xgboost.draws import (
    ColumnDraws,
    DrawPlan,
    Stream,
    Subsample,
    XGBoostDart,
    bag,
    iterations,
    philox_bag,
    powers,
)
from axil.adapters.xgboost.plan import columns_of, plan_of_draws
from tests.adapters.xgboost_models import VERSION

UPDATERS = {"hist": "grow_quantile_histmaker", "approx": "grow_histmaker", "exact": "grow_colmaker"}


def table(n_rows: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 5))
    return X, X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=n_rows)


def trained(
    n_rows: int, n_iterations: int, method: str, outputs: int = 1, **params: Any
) -> tuple[Any, Any, ColumnDraws | None]:
    """A model's trees; of each row, the node it ends in; the draws of columns, from XGBoost 3.3 on."""
    X, y = table(n_rows)
    rows = xgb.DMatrix(X, np.stack([y + k for k in range(outputs)], axis=1))
    model = xgb.train(
        {"nthread": 1, "max_depth": 3, "tree_method": method, **params}, rows, n_iterations
    )
    learner = json.loads(model.save_raw("json"))["learner"]["gradient_booster"]
    nodes = model.predict(rows, pred_leaf=True).reshape(n_rows, -1).astype(int)
    document = parse(model.save_raw("json"))
    assert document is not None
    columns = None if VERSION < (3, 3) else columns_of(document.trees, XGBoostSettings.of(model))
    return learner, nodes, columns


def plan_of(
    method: str,
    n_rows: int,
    outputs: int = 1,
    dart: XGBoostDart | None = None,
    columns: ColumnDraws | None = None,
    **params: Any,
) -> DrawPlan:
    return DrawPlan(
        updater=UPDATERS[method],
        subsample=params.get("subsample", 1.0),
        seed=params.get("seed", 0),
        seed_per_iteration=params.get("seed_per_iteration", False),
        n_rows=n_rows,
        n_parallel=params.get("num_parallel_tree", 1),
        n_groups=outputs,
        dart=dart,
        columns=columns,
    )


def check_counts(booster: Any, nodes: NDArray[np.int64], sampler: Subsample) -> None:
    trees = booster.get("gbtree", booster)["model"]["trees"]
    for t, tree in enumerate(trees):
        drawn = sampler.bag(t)
        counts = np.bincount(nodes[drawn, t], minlength=len(tree["sum_hessian"]))
        ends = np.unique(nodes[:, t])
        np.testing.assert_array_equal(
            counts[ends], np.array(tree["sum_hessian"])[ends], err_msg=f"tree {t}"
        )


@pytest.mark.parametrize("method", UPDATERS)
@pytest.mark.parametrize("subsample", [0.001, 0.5, 0.99])
@pytest.mark.parametrize("seed", [0, 2024, 2**31 - 1, -5])
def test_rows(method: str, subsample: float, seed: int) -> None:
    params: dict[str, Any] = {"subsample": subsample, "seed": seed}
    booster, nodes, columns = trained(500, 4, method, **params)
    check_counts(
        booster, nodes, Subsample(plan_of(method, 500, columns=columns, **params), np.arange(4))
    )


@pytest.mark.parametrize("method", UPDATERS)
@pytest.mark.parametrize(
    "params",
    [
        {"num_parallel_tree": 3},
        {"seed_per_iteration": True, "seed": 11},
        {"seed_per_iteration": True, "num_parallel_tree": 2},
        {"colsample_bytree": 0.5, "colsample_bylevel": 0.5},
        {"colsample_bylevel": 0.5, "num_parallel_tree": 3, "gamma": 20.0},
        {"nthread": 2},
    ],
)
@pytest.mark.parametrize("outputs", [1, 3])
def test_streams(method: str, params: dict[str, Any], outputs: int) -> None:
    params = {"subsample": 0.6, **params}
    booster, nodes, columns = trained(1111, 4, method, outputs, **params)
    plan = plan_of(method, 1111, outputs, columns=columns, **params)
    check_counts(booster, nodes, Subsample(plan, np.arange(nodes.shape[1])))


@pytest.mark.parametrize("method", ["hist", "approx"])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"num_parallel_tree": 2, "colsample_bylevel": 0.7},
        {"max_depth": 0, "gamma": 30.0},
        {"grow_policy": "lossguide", "max_leaves": 6, "max_depth": 0},
        {"grow_policy": "lossguide", "max_leaves": 6, "max_depth": 3, "colsample_bylevel": 0.7},
        {"max_leaves": 6, "max_depth": 5, "colsample_bytree": 0.7},
    ],
)
def test_columns_of_nodes(method: str, params: dict[str, Any]) -> None:
    """Rows come after the columns of all nodes that were tried (from XGBoost 3.3 on), pruned ones among them."""
    params = {"subsample": 0.6, "colsample_bynode": 0.5, **params}
    booster, nodes, columns = trained(600, 4, method, **params)
    plan = plan_of(method, 600, columns=columns, **params)
    check_counts(booster, nodes, Subsample(plan, np.arange(nodes.shape[1])))


DARTS: list[dict[str, Any]] = [
    {"rate_drop": 0.3},
    {"rate_drop": 0.3, "skip_drop": 0.4},
    {"rate_drop": 0.02, "one_drop": 1},
    {"rate_drop": 0.3, "sample_type": "weighted"},
    {"rate_drop": 0.02, "sample_type": "weighted", "one_drop": 1},
    {"rate_drop": 0.3, "normalize_type": "forest", "eta": 0.1},
    {"rate_drop": 0.2, "num_parallel_tree": 2},
    {"rate_drop": 0.2, "seed_per_iteration": True},
]


@pytest.mark.parametrize("method", UPDATERS)
@pytest.mark.parametrize("params", DARTS)
@pytest.mark.parametrize("subsample", [1.0, 0.7])
@pytest.mark.parametrize("outputs", [1, 2])
def test_dart(method: str, params: dict[str, Any], subsample: float, outputs: int) -> None:
    params = {"booster": "dart", "seed": 3, "subsample": subsample, **params}
    booster, nodes, columns = trained(300, 12, method, outputs, **params)
    dart = XGBoostDart(
        rate_drop=params["rate_drop"],
        skip_drop=params.get("skip_drop", 0.0),
        one_drop=bool(params.get("one_drop", 0)),
        weighted=params.get("sample_type") == "weighted",
        forest=params.get("normalize_type") == "forest",
        rate=params.get("eta", 0.3),
        shares=VERSION < (3, 4),
    )
    plan = plan_of(method, 300, outputs, dart, columns, **params)
    check_counts(booster, nodes, Subsample(plan, np.arange(nodes.shape[1])))
    last = next(islice(iterations(plan), 11, None))
    weight_drop = (booster if VERSION < (3, 4) else booster["model"])["weight_drop"]
    np.testing.assert_allclose(last.after, weight_drop, rtol=1e-6)
    assert min(weight_drop) < 1  # something was dropped


@pytest.mark.parametrize("version", [(3, 2, 0), (3, 3, 0), (3, 4, 1)])
@pytest.mark.parametrize(
    "params", [{"subsample": 0.6}, {"booster": "dart", "rate_drop": 0.3, "num_parallel_tree": 2}]
)
def test_the_version_that_trained_is_found(
    version: tuple[int, ...], params: dict[str, Any]
) -> None:
    """A loaded model is written again by the XGBoost that is installed: the version says nothing about its draws."""
    X, y = table(500)
    model = xgb.train({"nthread": 1, "max_depth": 3, **params}, xgb.DMatrix(X, y), 8)
    document = parse(model.save_raw("json"))
    assert document is not None
    plan = plan_of_draws(replace(document, version=version), XGBoostSettings.of(model), 500, None)
    assert (plan.columns is None) == (VERSION < (3, 3))
    assert plan.dart is None or plan.dart.shares == (VERSION < (3, 4))


@pytest.mark.skipif(VERSION < (3, 3), reason="before XGBoost 3.3 only booster=dart drops trees")
@pytest.mark.parametrize("skip_drop", [0.0, 0.4])
def test_gbtree_drops_trees(skip_drop: float) -> None:
    X, y = table(300)
    params = {
        "nthread": 1,
        "max_depth": 3,
        "rate_drop": 0.3,
        "skip_drop": skip_drop,
        "subsample": 0.7,
    }
    model = xgb.train(params, xgb.DMatrix(X, y), 12)
    explained = axil.Explainer(model, X, y)(X[:20])
    np.testing.assert_allclose(
        explained.weights @ y, model.predict(xgb.DMatrix(X[:20])), rtol=1e-4
    )  # sums in float32


def test_trees_may_be_asked_for_in_any_order() -> None:
    for method in UPDATERS:
        plan = plan_of(method, 200, subsample=0.5, seed=4)
        forth, back = (Subsample(plan, np.arange(6)) for _ in range(2))
        drawn = [forth.bag(t) for t in range(6)]
        for t in reversed(range(6)):
            np.testing.assert_array_equal(back.bag(t), drawn[t])
        some = Subsample(plan, np.array([1, 4]))
        np.testing.assert_array_equal(some.bag(1), drawn[4])


def test_stream_is_mt19937() -> None:
    assert Stream(5489).words(1000)[-1] == 1341017984  # of std::mt19937
    assert len(Stream(0).words(0)) == 0
    one, other = Stream(1), Stream(1)
    assert (one.words(0).size, one.words(1)[0]) == (
        0,
        other.words(1)[0],
    )  # asking for none takes none
    assert len({int(Stream(seed).words(1)[0]) for seed in (3, 3 + 2**32)}) == 1


def test_bag_compares_as_doubles_do() -> None:
    """The comparison of integers is that of doubles, also next to the threshold."""
    for share in (0.5, 0.7, 0.1, 1e-9, 0.9999999):
        limit = float(np.float32(share)) * 2.0**63
        near = [
            int(limit) + d
            for d in (*range(-3000, 3000, 7), -1024, -513, -512, -511, -257, -256, -255, -128, 0, 1)
        ]
        x = np.array([value for value in near if 0 < value < 2**63], dtype=np.uint64)
        expected = (x - np.uint64(1)).astype(np.float64) / 2.0**63 < float(np.float32(share))
        np.testing.assert_array_equal(bag(1, share, x), expected)


def test_nothing_is_drawn_where_all_rows_count() -> None:
    assert not plan_of("hist", 100, subsample=1.0).samples
    assert not plan_of("exact", 100, subsample=1.0).samples
    assert plan_of("hist", 100, subsample=0.999).samples


def test_a_million_rows_and_a_hundred_trees() -> None:
    sampler = Subsample(plan_of("hist", 10**6, subsample=0.7), np.arange(100))
    shares = [sampler.bag(t).mean() for t in range(100)]
    assert np.mean(shares) == pytest.approx(0.7, abs=1e-3)
    assert powers(3).tolist() == [16807, 16807**2, 16807**3]


def test_philox_is_that_of_the_standard() -> None:
    """C++ states number 10,000 of std::philox4x64 seeded with 20111115: row 9,999 is drawn from its share of 2^64 on."""
    share = np.float32(3409172418970261260) / np.float32(2.0**64)
    drawn = [
        philox_bag(20111115, float(limit), 10_000)[-1]
        for limit in (np.nextafter(share, np.float32(0)), share)
    ]
    assert drawn == [False, True]
