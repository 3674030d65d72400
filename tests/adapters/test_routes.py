"""Leaves by the trees' own tests, against the libraries' answers."""

import pickle
from dataclasses import replace
from functools import cache

import catboost as cb
import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pytest
import xgboost as xgb
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.ensemble import BaggingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

import axil
from axil import InputError, _core, adapters
from axil.adapters.routes import SplitKind, Splits, Ways, make_routes
from axil.kernels.cpu import Cpu
from axil.methods.method import verified_model
from tests.devices import GPU

TINY = float(np.float32(1e-35))  # LightGBM's kZeroThreshold
ODD = [
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -0.0,
    TINY,
    -TINY,
    1e-40,
    -1e-40,
    1e-300,
    5e-324,
    3e38,
    1e39,
    -1e39,
    1e300,
    2.0**31,
    2.0**63,
]


def assigned(adapter, X):
    """The leaves by routes, which must have been taken."""
    table = adapter.table(X)
    assert table is not None
    leaves = np.empty((adapter.routes.n_trees, X.shape[0]), dtype=np.uint16)
    assert adapter.routes.assign(table, leaves, 2)
    return leaves.T


def misaligned(*arrays):
    """Copies that begin at odd addresses."""
    views = [
        np.frombuffer(b"-" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape)
        for a in arrays
    ]
    assert not any(a.flags.aligned for a in views)
    return views


@pytest.mark.parametrize("kind", [lgb.LGBMRegressor, xgb.XGBRegressor])
def test_data_that_are_not_aligned_are_read_as_others_are(kind):
    rng = np.random.default_rng(0)
    X, weights = rng.normal(size=(120, 3)), rng.uniform(1, 2, 120)
    y = X[:, 0] + rng.normal(size=120)
    model = kind(n_estimators=4, max_depth=3, learning_rate=0.3).fit(X, y, sample_weight=weights)
    answers = [
        axil.Explainer(model, data[0], data[1], sample_weight=data[2])(data[0][:5]).weights
        for data in ((X, y, weights), misaligned(X, y, weights))
    ]
    np.testing.assert_array_equal(*answers)


@cache
def data(missing):
    rng = np.random.default_rng(3)
    X = np.round(rng.normal(size=(400, 4)) * 3, 1)
    X[:, 3] = rng.integers(-2, 40, 400)  # categories where the model takes them as such
    X[rng.random(X.shape) < 0.2] = 0.0
    if missing:
        X[rng.random(X.shape) < 0.2] = np.nan
    return X, np.nansum(X, axis=1) + rng.normal(size=400) + 3 * np.isnan(X[:, 0])


@cache
def lightgbm_model(kind):
    X, y = data(kind != "none missing")
    params = {
        "verbose": -1,
        "min_data_in_leaf": 2,
        "num_leaves": 40,
        "num_threads": 1,
        "min_data_per_group": 2,
        "cat_smooth": 1,
    }
    params |= {"zero_as_missing": True} if kind == "zeros missing" else {}
    params |= {"use_missing": False} if kind == "missing as zero" else {}
    categorical = [3] if kind == "categories" else "auto"
    return lgb.train(params, lgb.Dataset(X, y, categorical_feature=categorical), 12)


@cache
def xgboost_model(kind):
    X, y = data(kind != "none missing")
    params = {
        "max_depth": 6,
        "min_child_weight": 0,
        "tree_method": kind if kind in ("exact", "approx") else "hist",
        "nthread": 1,
    }
    return xgb.train(params, xgb.DMatrix(X, y), 12)


def near(thresholds):
    """Thresholds, their neighbours in float64 and in float32, and odd values."""
    with np.errstate(over="ignore"):
        single = thresholds.astype(np.float32)
        close = [np.nextafter(single, np.float32(side)).astype(float) for side in (np.inf, -np.inf)]
    sides = [np.nextafter(thresholds, side) for side in (np.inf, -np.inf)]
    pool = np.concatenate(
        [thresholds, single.astype(float), *close, *sides, ODD, np.arange(-3.0, 45.0), [-0.5, 39.7]]
    )
    return np.unique(pool)  # NaN once


@pytest.mark.parametrize(
    "kind", ["none missing", "missing", "zeros missing", "missing as zero", "categories"]
)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), single=st.booleans(), order=st.sampled_from("CF"))
def test_lightgbm_around_its_thresholds(kind, seed, single, order):
    booster = lightgbm_model(kind)
    adapter = adapters.read(booster)
    rng = np.random.default_rng(seed)
    X = rng.choice(near(adapter.routes.thresholds), size=(int(rng.integers(1, 1200)), 4))
    with np.errstate(over="ignore"):
        X = np.asarray(X, dtype=np.float32 if single else np.float64, order=order)
    np.testing.assert_array_equal(assigned(adapter, X), booster.predict(X, pred_leaf=True))


@pytest.mark.parametrize("kind", ["none missing", "missing", "exact", "approx"])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), single=st.booleans(), order=st.sampled_from("CF"))
def test_xgboost_around_its_thresholds(kind, seed, single, order):
    booster = xgboost_model(kind)
    adapter = adapters.read(booster)
    rng = np.random.default_rng(seed)
    pool = near(adapter.routes.thresholds)
    pool = pool[~(np.abs(pool) > 3e38)]
    X = rng.choice(pool, size=(int(rng.integers(1, 1200)), 4))
    X = np.asarray(X, dtype=np.float32 if single else np.float64, order=order)
    np.testing.assert_array_equal(assigned(adapter, X), adapter.leaves(X))


@cache
def catboost_model(kind, policy="SymmetricTree"):
    X, y = data(kind != "none missing")
    model = cb.CatBoostRegressor(
        iterations=12,
        depth=5,
        grow_policy=policy,
        nan_mode="Max" if kind == "missing high" else "Min",
        verbose=0,
        allow_writing_files=False,
        thread_count=1,
    )
    return model.fit(X, y)


@pytest.mark.parametrize("policy", ["SymmetricTree", "Depthwise", "Lossguide"])
@pytest.mark.parametrize("kind", ["none missing", "missing", "missing high"])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), single=st.booleans(), order=st.sampled_from("CF"))
def test_catboost_around_its_borders(kind, policy, seed, single, order):
    adapter = adapters.read(catboost_model(kind, policy))
    around_thresholds(adapter, seed, single, order)


@cache
def sklearn_model(kind):
    X, y = data(True)
    made = {
        "forest": lambda: RandomForestRegressor(8, max_depth=9, random_state=0, n_jobs=1),
        "best first": lambda: DecisionTreeRegressor(max_leaf_nodes=40, random_state=0),
        "some features": lambda: BaggingRegressor(max_features=0.5, n_estimators=6, random_state=0),
        "histograms": lambda: HistGradientBoostingRegressor(max_iter=12, min_samples_leaf=2),
        "categories": lambda: HistGradientBoostingRegressor(
            max_iter=12, min_samples_leaf=2, categorical_features=[3, 1], max_bins=200
        ),
    }
    return made[kind]().fit(X, y)


@pytest.mark.parametrize(
    "kind", ["forest", "best first", "some features", "histograms", "categories"]
)
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), single=st.booleans(), order=st.sampled_from("CF"))
def test_sklearn_around_its_thresholds(kind, seed, single, order):
    # what encodes categories takes no infinite numbers
    around_thresholds(
        adapters.read(sklearn_model(kind)),
        seed,
        single,
        order,
        3e38 if kind == "categories" else np.inf,
    )


@pytest.mark.parametrize("kind", ["forest", "best first", "some features"])
def test_large_trees_of_sklearn_around_their_thresholds(kind, monkeypatch):
    """Rows of these follow the nodes one by one."""
    monkeypatch.setattr("axil.adapters.sklearn.trees.LARGE", 0)
    adapter = adapters.read(sklearn_model(kind))
    assert isinstance(adapter.routes, Ways)
    members = getattr(adapter.model, "estimators_", [adapter.model])
    thresholds = np.concatenate([member.tree_.threshold for member in members])
    for seed in range(8):
        around_thresholds(adapter, seed, seed % 2 == 0, "CF"[seed // 2 % 2], thresholds=thresholds)


def test_large_trees_can_be_pickled(monkeypatch):
    monkeypatch.setattr("axil.adapters.sklearn.trees.LARGE", 0)
    adapter, X = adapters.read(sklearn_model("forest")), data(True)[0]
    expected = assigned(adapter, X)
    np.testing.assert_array_equal(assigned(pickle.loads(pickle.dumps(adapter)), X), expected)


def around_thresholds(adapter, seed, single, order, largest=np.inf, thresholds=None):
    """Compare leaves of rows on, below and above thresholds."""
    rng = np.random.default_rng(seed)
    pool = near(adapter.routes.thresholds if thresholds is None else thresholds)
    X = rng.choice(pool[~(np.abs(pool) > largest)], size=(int(rng.integers(1, 1200)), 4))
    with np.errstate(over="ignore"):
        X = np.asarray(X, dtype=np.float32 if single else np.float64, order=order)
        np.testing.assert_array_equal(assigned(adapter, X), adapter.leaves(X))


@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "catboost", "sklearn"])
def test_sparse_rows_have_the_leaves_of_the_library(library):
    made = {
        "lightgbm": lambda: lightgbm_model("none missing"),
        "xgboost": lambda: xgboost_model("missing"),
        "catboost": lambda: catboost_model("none missing"),
        "sklearn": lambda: sklearn_model("forest"),
    }
    adapter, X = adapters.read(made[library]()), data(False)[0].copy()
    X[3, 1] = -0.0
    rows = sparse.csr_matrix(X)
    rows.data[5] = 0.0  # written down, so not missing
    np.testing.assert_array_equal(assigned(adapter, rows), adapter.leaves(rows))


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39])
def test_xgboost_itself_refuses_what_is_infinite_in_float32(value):
    adapter = adapters.read(xgboost_model("missing"))
    X = data(True)[0].copy()
    X[7, 0] = value
    with pytest.raises(InputError, match=r"XGBoost cannot read these rows .*inf"):
        adapter.assign(X, np.empty((12, len(X)), dtype=np.uint8), 1)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.uint16, np.float16, bool])
@pytest.mark.parametrize("model", [lightgbm_model, xgboost_model, catboost_model])
def test_other_numbers_are_rounded_as_the_library_does(model, dtype):
    adapter = adapters.read(model("none missing"))
    numbers = np.round(data(False)[0]).astype(np.int64)
    if dtype is np.int64:
        numbers[:50] += 2**53 + np.arange(50)[:, None]  # float32 and float64 round them differently
    X = numbers.astype(dtype)
    frame = pd.DataFrame(X.astype(np.float32) if dtype is np.float16 else X)
    for rows in (X, frame):
        np.testing.assert_array_equal(assigned(adapter, rows), adapter.leaves(rows))


@pytest.mark.parametrize("convert", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize("model", [lightgbm_model, xgboost_model, catboost_model])
def test_frames_of_mixed_columns(model, convert):
    X, adapter = data(True)[0], adapters.read(model("missing"))
    columns = {
        "a": X[:, 0].astype(np.float32),
        "b": X[:, 1],
        "c": np.nan_to_num(X[:, 2]).astype(np.int32),
        "d": X[:, 3],
    }
    frame = convert(columns)
    np.testing.assert_array_equal(assigned(adapter, frame), adapter.leaves(frame))


def test_pandas_categories_are_numbered_as_at_the_fit():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=300), "b": pd.Categorical(rng.choice(list("uvwxyz"), 300))}
    )
    y = frame["b"].cat.codes * 2 + rng.normal(size=300)
    params = {"verbose": -1, "min_data_in_leaf": 2, "min_data_per_group": 2, "cat_smooth": 1}
    adapter = adapters.read(lgb.train(params, lgb.Dataset(frame, y), 5))
    other = frame.assign(b=frame["b"].cat.set_categories(list("zyxvu!")))
    for rows in (frame, other):
        np.testing.assert_array_equal(assigned(adapter, rows), adapter.leaves(rows))
    nullable = frame.assign(a=frame["a"].astype("Float64"))
    assert adapter.table(nullable) is None  # the library's own way
    np.testing.assert_array_equal(adapter.coordinates(nullable), adapter.leaves(nullable))


@pytest.mark.parametrize("onehot", [1, 100])
def test_xgboost_takes_categories_by_the_names_of_the_fit(onehot):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": rng.normal(size=300), "b": pd.Categorical(rng.choice(list("uvwxyz"), 300))}
    )
    frame["c"] = pd.Categorical(rng.choice([30, 10, 20], 300))
    frame.loc[::7, "b"] = np.nan
    y = frame["b"].cat.codes * 2 + 0.1 * frame["c"].astype(int) + rng.normal(size=300)
    settings = {
        "n_estimators": 5,
        "max_cat_to_onehot": onehot,
        "enable_categorical": True,
        "n_jobs": 1,
    }
    adapter = adapters.read(xgb.XGBRegressor(**settings).fit(frame, y))
    if not verified_model(adapter).categories:
        pytest.skip("before 3.1 XGBoost keeps no names of categories")
    turned = frame.assign(
        b=frame["b"].cat.set_categories(list("zyxwvu")),
        c=frame["c"].cat.set_categories([10, 30, 20]),
    )
    for rows in (frame, turned):
        np.testing.assert_array_equal(assigned(adapter, rows), adapter.leaves(rows))
    np.testing.assert_array_equal(assigned(adapter, turned), assigned(adapter, frame))
    assert (
        adapter.table(frame.assign(b=frame["b"].cat.rename_categories({"u": "!"}))) is None
    )  # XGBoost says why


def test_xgboost_takes_categories_that_are_numbers():
    rng = np.random.default_rng(0)
    X, kinds = np.c_[rng.normal(size=300), rng.integers(0, 9, 300)].astype(float), ["q", "c"]
    params = {"max_cat_to_onehot": 1, "nthread": 1}
    booster = xgb.train(params, xgb.DMatrix(X, X[:, 1] % 4 + X[:, 0], feature_types=kinds), 5)
    adapter = adapters.read(booster)
    X[::5, 1], X[1::9, 1] = np.nan, 40.0
    np.testing.assert_array_equal(assigned(adapter, X), adapter.leaves(X))
    X[3, 1] = -0.5
    assert adapter.table(X) is None  # of which it is for XGBoost to say what they are


def walk(nodes, tree, row):
    """One row through one tree, test by test."""
    begin, at = nodes.starts[tree], 0
    if begin == nodes.starts[tree + 1]:
        return 0
    while at >= 0:
        i = begin + at
        value, kind = row[nodes.features[i]], nodes.kinds[i]
        if kind == SplitKind.CATEGORIES:
            table = nodes.outcomes[int(i)]
            known = -1 < value < len(table) - 2
            right = bool(
                table[-1] if np.isnan(value) else table[int(value)] if known else table[-2]
            )
        else:
            zeros = kind in (SplitKind.ZERO_LEFT, SplitKind.ZERO_RIGHT)
            missing = np.isnan(value) or (zeros and value == 0)
            if missing and kind == SplitKind.AS_ZERO:
                value, missing = 0.0, False
            right = (
                kind in (SplitKind.RIGHT, SplitKind.ZERO_RIGHT)
                if missing
                else not value <= nodes.thresholds[i]
            )
        at = nodes.children[i, int(right)]
    return ~at


def random_nodes(rng, n_leaves, n_features, n_thresholds):
    """Trees of these sizes, each grown by splitting a leaf at random, with all kinds of tests."""
    starts, children, pools = [0], [], np.round(rng.normal(size=(n_features, n_thresholds)), 3)
    for n in n_leaves:
        own = np.empty((n - 1, 2), dtype=np.int64)
        places = []  # (node, side) of each leaf
        for i in range(n - 1):
            if i:
                node, side = places.pop(rng.integers(len(places)))
                own[node, side] = i
            places += [(i, 0), (i, 1)]
        for leaf, place in enumerate(rng.permutation(len(places)) if places else []):
            own[places[place]] = ~leaf
        children.append(own)
        starts.append(starts[-1] + n - 1)
    total = starts[-1]
    features, kinds = rng.integers(n_features, size=total), rng.integers(len(SplitKind), size=total)
    kinds[features == 0] = SplitKind.CATEGORIES
    kinds[(features != 0) & (kinds == SplitKind.CATEGORIES)] = SplitKind.RIGHT
    thresholds = pools[features, rng.integers(n_thresholds, size=total)]
    outcomes = {
        int(i): rng.integers(2, size=7).astype(np.uint8)
        for i in np.flatnonzero(kinds == SplitKind.CATEGORIES)
    }
    return Splits(np.array(starts), features, thresholds, kinds, np.concatenate(children), outcomes)


@pytest.mark.parametrize(
    ("n_leaves", "n_thresholds"),
    [([1, 2, 7, 31, 1], 20), ([256, 3], 300), ([257, 40], 30), ([2000], 1000)],
)
@pytest.mark.parametrize("backend", [pytest.param(Cpu, id="cpu"), *GPU])
def test_random_trees_by_a_plain_walk(n_leaves, n_thresholds, backend):
    rng = np.random.default_rng(len(n_leaves))
    nodes = random_nodes(rng, n_leaves, 3, n_thresholds)
    X = np.round(rng.normal(size=(1300, 3)), 3)
    X[:, 0] = rng.integers(-3, 9, len(X)) + rng.choice([0.0, 0.5], len(X))
    X[rng.random(X.shape) < 0.1] = np.nan
    X[rng.random(X.shape) < 0.1] = 0.0
    routes = make_routes(nodes, single=False, strict=False, zero=0.0, infinite=True)
    expected = [[walk(nodes, t, row) for row in X] for t in range(len(n_leaves))]
    for dtype in (np.uint8, np.uint16) if max(n_leaves) <= 256 else (np.uint16,):
        for n_threads in (1, 3):
            whole = np.full((len(n_leaves), len(X) + 5), 99, dtype=dtype)
            assert routes.assign(X, whole[:, 2:-3], n_threads, backend(n_threads))
            np.testing.assert_array_equal(whole[:, 2:-3], expected)
            assert (whole[:, [0, 1, -3, -2, -1]] == 99).all()


def with_leaves(nodes, tree):
    """The nodes of a tree, its leaves after them in their order."""
    own = slice(*nodes.starts[tree : tree + 2])
    n, none = own.stop - own.start, np.full(own.stop - own.start + 1, -1)
    left, right = (
        np.append(np.where(side < 0, n + ~side, side), none) for side in nodes.children[own].T
    )
    kinds = (nodes.kinds[own] == SplitKind.LEFT).astype(np.uint8)
    rest = nodes.features[own], nodes.thresholds[own], kinds
    return left, right, *(np.append(array, none.astype(array.dtype)) for array in rest)


@pytest.mark.parametrize("n_leaves", [[1, 2, 7, 31, 1], [256, 3], [2000, 257]])
@pytest.mark.parametrize("n_rows", [0, 1, 7, 8, 9, 9000])
def test_rows_follow_large_trees_node_by_node(n_leaves, n_rows):
    rng = np.random.default_rng(len(n_leaves))
    nodes = random_nodes(rng, n_leaves, 3, 50)
    nodes = replace(
        nodes, kinds=rng.integers(2, size=len(nodes.kinds)), outcomes={}
    )  # missing values: left or right
    X = np.round(rng.normal(size=(n_rows, 3)), 3).astype(np.float32)
    X[rng.random(X.shape) < (0.0 if n_rows == 9 else 0.1)] = np.nan
    some = np.arange(0, n_rows, 1 if n_rows < 100 else 50)
    expected = [
        [walk(nodes, t, row) for row in X[some].astype(float)] for t in range(len(n_leaves))
    ]
    found, ways = [], Ways(with_leaves(nodes, t) for t in range(len(n_leaves)))
    for dtype in (
        (np.uint8, np.uint16, np.uint32) if max(n_leaves) <= 256 else (np.uint16, np.uint32)
    ):
        for n_threads, table in ((1, X), (3, np.asfortranarray(X))):
            whole = np.full((len(n_leaves), n_rows + 5), 99, dtype=dtype)
            assert ways.assign(table, whole[:, 2:-3], n_threads)
            np.testing.assert_array_equal(
                whole[:, 2:-3][:, some], np.reshape(expected, (len(n_leaves), -1))
            )
            assert (whole[:, [0, 1, -3, -2, -1]] == 99).all()
            found.append(whole)
    assert all(np.array_equal(each, found[0]) for each in found)


def test_too_many_thresholds_or_leaves_are_left_to_the_library():
    n = 70000
    chain = np.stack([~np.arange(n), np.append(np.arange(1, n), ~n)], axis=1)
    kinds = np.full(n, SplitKind.LEFT.value)
    many = Splits(
        np.array([0, n]), np.zeros(n, dtype=np.int64), np.arange(n, dtype=float), kinds, chain, {}
    )
    assert make_routes(many, single=False, strict=False, zero=0.0, infinite=True) is None
    pairs = np.tile([[~0, ~1]], (n, 1))
    many = Splits(
        np.arange(n + 1), np.zeros(n, dtype=np.int64), np.arange(n, dtype=float), kinds, pairs, {}
    )
    assert make_routes(many, single=False, strict=False, zero=0.0, infinite=True) is None


def test_the_core_refuses_trees_that_do_not_fit():
    routes = make_routes(
        random_nodes(np.random.default_rng(0), [5], 3, 4),
        single=False,
        strict=False,
        zero=0.0,
        infinite=True,
    )
    good = {
        name: getattr(routes, name)
        for name in ("columns", "thresholds", "views", "outcomes", "nodes", "starts")
    }
    X, out = np.zeros((4, 3)), np.empty((1, 4), dtype=np.uint8)

    def run(values=X, into=out, **changed):
        return _core.assign(values, *(good | changed).values(), False, False, 0.0, into, 1)

    assert not run()
    loop = routes.nodes.copy()
    loop[1, 2] = 0
    for changed, match in (
        ({"nodes": loop}, "out of order"),
        ({"starts": np.array([0, 9])}, "number of nodes"),
        ({"values": np.zeros((4, 1))}, "feature"),
        ({"into": np.empty((2, 4), dtype=np.uint8)}, "trees, rows"),
        ({"views": routes.views[:1]}, "view"),
    ):
        with pytest.raises(ValueError, match=match):
            run(**changed)


def test_the_core_refuses_large_trees_that_do_not_fit():
    names = ("left", "right", "features", "thresholds", "missing_left")
    good = dict(zip(names, with_leaves(random_nodes(np.random.default_rng(0), [5], 3, 4), 0)))

    def ways(**changed):
        made = _core.Ways()
        made.add(*(good | changed).values())
        return made

    def follow(columns=3, shape=(1, 4), **changed):
        _core.descend(
            ways(**changed), np.zeros((4, columns), np.float32), np.empty(shape, dtype=np.uint8), 1
        )

    follow()
    left = {name: good["left"].copy() for name in ("loop", "beyond", "twice", "half")}
    left["loop"][1], left["beyond"][1], left["twice"][1], left["half"][1] = (
        0,
        9,
        good["right"][0],
        -1,
    )
    none = np.full(9, -1)
    for changed, match in (
        *(({"left": wrong}, "tree 0: its nodes are no tree") for wrong in left.values()),
        ({"left": none, "right": none}, "tree 0: its nodes are no tree"),  # nodes without a parent
        ({"features": none}, "has no feature"),
        ({"right": good["right"][:3]}, "right has length 3 where 9"),
        ({"columns": int(good["features"].max())}, "feature that does not exist"),
        ({"shape": (2, 4)}, "trees, rows"),
    ):
        with pytest.raises(ValueError, match=match):
            follow(**changed)
    many = dict(zip(names, with_leaves(random_nodes(np.random.default_rng(0), [300], 3, 4), 0)))
    with pytest.raises(ValueError, match="wide enough"):
        follow(**many)
