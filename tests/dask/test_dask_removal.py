"""Deletions and pushes of squared error over Dask collections: the numbers of one machine, with one row, some, or groups gone."""

import pickle
import warnings

import dask
import dask.array as da
import lightgbm as lgb
import numpy as np
import pytest
from distributed import Client
from sklearn.ensemble import RandomForestRegressor
from test_contract import case_of, explainer_of
from test_dask import QUERIES, WEIGHTS, X, Y, over_dask, partitioned, unequal

import axil
import axil.dask
from axil.dask.cluster import Cluster
from axil.questions.streamed import OTHERS

SAME = [
    ("lightgbm", "lambda_l1=2 lambda_l2=1 weighted scored"),
    pytest.param("lightgbm", "dart", marks=pytest.mark.slow),
    pytest.param("lightgbm", "rf without bagging", marks=pytest.mark.slow),
    pytest.param("lightgbm", "weights some zero", marks=pytest.mark.slow),
    pytest.param("xgboost", "base_margin base_score=2 weighted", marks=pytest.mark.slow),
    ("xgboost", "one_output_per_tree weighted"),
    ("catboost", "baseline weighted steps"),
    pytest.param("catboost", "multi weighted", marks=pytest.mark.slow),
    ("sklearn", "hist early stopping weighted"),
    ("sklearn", "ExtraTreesRegressor outputs weighted"),
    pytest.param("sklearn", "DecisionTreeClassifier weighted", marks=pytest.mark.slow),
]


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set(scheduler="synchronous"):
        yield


def close(found, expected):
    """Partitions merely add in another order: 1e-12 of the largest number."""
    slack = 1e-12 * max(1.0, np.nanmax(np.abs(expected), initial=0.0))
    np.testing.assert_allclose(found, expected, rtol=0, atol=slack, equal_nan=True)


def same_table(found, expected, numbers):
    assert list(found.columns) == list(expected.columns)
    for name in expected.columns:
        if name in numbers:
            close(found[name].to_numpy(), expected[name].to_numpy())
        else:
            np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.parametrize(("library", "name"), SAME)
def test_the_numbers_of_one_machine(library, name):
    case = case_of(library, name)
    explainer, whole, X = over_dask(case), explainer_of(library, name), case.X_new[:4]
    n = len(case.y)
    for method in ("exact", "first-order"):
        close(explainer.removal(X, method).compute(), whole.removal(X, method))
    close(explainer.pushes(X).compute(), whole.pushes(X))
    gone = whole.index[[0, n // 2, n - 1]].tolist()
    found, expected = explainer.without(X, gone), whole.without(X, gone)
    same_table(found, expected, ("before", "after", "change"))
    assert found.attrs == expected.attrs
    labels = np.arange(n) % 3
    found = explainer.removal_group(X, da.from_array(labels, chunks=(unequal(n),)))
    same_table(found, whole.removal_group(X, labels), ("before", "after", "change"))
    for ask in ("removal_top", "removal_set"):
        found, expected = getattr(explainer, ask)(X, 3), getattr(whole, ask)(X, 3)
        assert list(found.columns) == list(expected.columns)
        close(found["effect"].abs(), expected["effect"].abs())  # ties may come in another order
    same_table(explainer.leave_one_out().compute(), whole.leave_one_out(), ("target", "prediction", "residual"))


def heavy():
    weights = WEIGHTS.copy()
    weights.iloc[[3, 300]] = 1e7
    return weights


@pytest.fixture(scope="module")
def pair():
    """Labels of a frame, and weights of which some outweigh the rest of their leaves."""
    weights = heavy()
    model = lgb.LGBMRegressor(n_estimators=6, num_leaves=9, n_jobs=1, verbose=-1).fit(X, Y, weights)
    parts = [partitioned(values) for values in (X, Y, weights)]
    with dask.config.set(scheduler="synchronous"):
        return axil.dask.Explainer(model, *parts), axil.Explainer(model, X, Y, weights)


def test_rows_that_outweigh_all_others_are_refitted(pair, monkeypatch):
    explainer, whole = pair
    close(explainer.removal(QUERIES).compute(), whole.removal(QUERIES))
    left, expected = explainer.leave_one_out().compute(), whole.leave_one_out()
    close(left["prediction"], expected["prediction"])
    again = axil.dask.Explainer(explainer._adapter._booster, *(partitioned(v) for v in (X, Y, heavy())))
    monkeypatch.setattr("axil.dask.refits.MOST_REFITS", 1)
    with pytest.raises(axil.UnsupportedQuestionError, match=r"2 training rows outweigh.*first-order"):
        again.removal(QUERIES)


def test_rows_are_named_by_their_labels(pair):
    explainer, whole = pair
    gone = ["patient 300", "patient 7"]
    same_table(explainer.without(QUERIES, gone), whole.without(QUERIES, gone), ("before", "after", "change"))
    for rows, message in (
        (["patient 300", "nobody"], r"names row 'nobody' \(1 of 2 are unknown\)"),
        (["patient 7"] * 2, "twice"),
        ("patient 7", "expected a list of labels"),
        ([True], "unknown"),
        (list(X.index), "none of any weight is left"),
    ):
        with pytest.raises(axil.InputError, match=message):
            explainer.without(QUERIES, rows)
    shared = X.set_axis(np.arange(len(X)) % 50, axis=0).sort_index()
    model = lgb.LGBMRegressor(n_estimators=2, n_jobs=1, verbose=-1).fit(shared, Y)
    alike = axil.dask.Explainer(model, partitioned(shared), partitioned(Y))
    expected = axil.Explainer(model, shared, Y).without(shared.iloc[:3], [7, 30])
    same_table(alike.without(shared.iloc[:3], [7, 30]), expected, ("before", "after", "change"))


def test_a_group_of_all_rows(pair):
    explainer, whole = pair
    labels = np.zeros(len(X))
    found = explainer.removal_group(QUERIES, da.from_array(labels, chunks=(unequal(len(X)),)))
    same_table(found, whole.removal_group(QUERIES, labels), ("before", "after", "change"))
    assert found["after"].isna().all()


def test_sets_by_pushes_and_greedy_ones(pair):
    explainer, _ = pair
    found, expected = (one.removal_set(QUERIES, 4, by="pushes") for one in pair)
    same_table(found, expected, ("push",))
    found, expected = (one.removal_set(QUERIES, 4, method="first-order") for one in pair)
    same_table(found, expected, ("effect",))
    assert found.attrs == expected.attrs
    with pytest.raises(axil.UnsupportedQuestionError, match="greedy"):
        explainer.removal_set(QUERIES, 4, greedy=True)


def test_draws_that_were_recorded():
    forest = RandomForestRegressor(6, min_samples_leaf=3, random_state=0).fit(X, Y)
    bagged = lgb.LGBMRegressor(n_estimators=8, subsample=0.6, subsample_freq=1, verbose=-1, n_jobs=1).fit(X, Y, WEIGHTS)
    for model, data in ((forest, (X, Y)), (bagged, (X, Y, WEIGHTS))):
        whole = axil.Explainer(model, *data)
        s = whole.proven.engines[0].structure
        bags = partitioned(s.draws[s.cells // s.n_leaves[:, None]].T)
        explainer = axil.dask.Explainer(model, *map(partitioned, data), bags=bags)
        for method in ("exact", "first-order"):
            close(explainer.removal(QUERIES, method).compute(), whole.removal(QUERIES, method))
        close(explainer.pushes(QUERIES).compute(), whole.pushes(QUERIES))
        gone = list(X.index[:9])
        close(explainer.without(QUERIES, gone)["after"], whole.without(QUERIES, gone)["after"])
        left, expected = explainer.leave_one_out().compute(), whole.leave_one_out()
        close(left["prediction"], expected["prediction"])


def test_what_is_refused_by_name(pair):
    explainer, _ = pair
    there = (
        "removal",
        "without",
        "removal_set",
        "removal_top",
        "removal_group",
        "pushes",
        "leave_one_out",
        "calibrate",
    )
    for name in OTHERS:
        if name in there:
            assert callable(getattr(explainer, name))
        else:
            with pytest.raises(
                axil.UnsupportedQuestionError, match=rf"{name} has no answer here.*(Use|use|Multiply|With|Sort)"
            ):
                getattr(explainer, name)
    smoothed = lgb.LGBMRegressor(n_estimators=3, path_smooth=2.0, n_jobs=1, verbose=-1).fit(X, Y)
    other = axil.dask.Explainer(smoothed, partitioned(X), partitioned(Y))
    for ask in (
        lambda: other.removal(QUERIES),
        lambda: other.without(QUERIES, ["patient 7"]),
        lambda: other.leave_one_out(),
        lambda: other.removal_group(QUERIES, partitioned(Y)),
    ):
        with pytest.raises(axil.UnsupportedQuestionError, match="path_smooth"):
            ask()
    close(other.pushes(QUERIES).compute(), axil.Explainer(smoothed, X, Y).pushes(QUERIES))
    with pytest.raises(axil.InputError, match='device is "cuda"'):
        axil.dask.Explainer(smoothed, partitioned(X), partitioned(Y), device="cuda")


def test_nothing_of_the_size_of_the_training_set_is_gathered(monkeypatch):
    """Nor does it reach the client while collections are asked for that nobody computes."""
    A = np.random.default_rng(0).normal(size=(40_000, 3))
    y = A.sum(axis=1)
    model = lgb.LGBMRegressor(n_estimators=3, num_leaves=4, verbose=-1, n_jobs=1).fit(A, y)
    explainer = axil.dask.Explainer(model, da.from_array(A, chunks=(5000, 3)), da.from_array(y, chunks=5000))
    received = []

    def collect(self, parts, collected=Cluster.collect):
        found = collected(self, parts)
        received.extend(len(pickle.dumps(part)) for part in found)
        return found

    monkeypatch.setattr(Cluster, "collect", collect)
    explainer.similar(A[:4], 3, adjust=True, among=lambda rows: rows[:, 0] > 0, sign="positive")
    explainer.removal_top(A[:4], 3)
    explainer.removal_set(A[:4], 3)
    explainer.without(A[:4], [7, 30_000])
    explainer.removal(A[:4])
    explainer.pushes(A[:4])
    explainer.leave_one_out()
    explainer.calibrate(A[:50] + 0.1, y[:50]).interval(A[:4], 0.8)
    assert received
    assert max(received) < 6000  # a byte a row would be seven times as much


def test_with_a_client(pair):
    explainer, whole = pair
    with Client(n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None) as client:
        parts = [partitioned(values) for values in (X, Y, heavy())]
        spread = axil.dask.Explainer(explainer._adapter._booster, *parts, client=client)
        close(client.compute(spread.removal(QUERIES)).result(), whole.removal(QUERIES))
        found, expected = spread.without(QUERIES, ["patient 7"]), whole.without(QUERIES, ["patient 7"])
        same_table(found, expected, ("before", "after", "change"))
        assert list(spread.similar(QUERIES, 3)["row"]) == list(whole.similar(QUERIES, 3)["row"])
        assert len(client.compute(spread.leave_one_out()).result()) == len(X)


def test_trees_that_lost_their_rows_are_no_part_of_the_mean():
    model = RandomForestRegressor(6, bootstrap=False, max_features=1, random_state=0, n_jobs=1).fit(X, Y)
    explainer, whole = axil.dask.Explainer(model, partitioned(X), partitioned(Y)), axil.Explainer(model, X, Y)
    gone, groups = list(X.index[::2]), np.arange(len(X)) % 3 > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        same_table(explainer.without(QUERIES, gone), whole.without(QUERIES, gone), ("before", "after", "change"))
        found = explainer.removal_group(QUERIES, da.from_array(groups, chunks=(unequal(len(X)),)))
        same_table(found, whole.removal_group(QUERIES, groups), ("before", "after", "change"))
        np.testing.assert_allclose(explainer.removal(QUERIES).compute(), whole.removal(QUERIES), rtol=0, atol=1e-9)
    with pytest.warns(UserWarning, match="no tree has a training row left"):
        explainer.without(QUERIES, list(X.index[:-2]))
