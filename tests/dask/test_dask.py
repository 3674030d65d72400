"""The same numbers over Dask collections as on one machine, and the same refusals; also where a worker dies on the way."""

import os
import pickle
import signal
from itertools import pairwise

import dask
import dask.array as da
import dask.dataframe as dd
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from distributed import Client, LocalCluster
from scipy import sparse
from sklearn.datasets import load_diabetes
from sklearn.ensemble import VotingRegressor
from sklearn.linear_model import Ridge
from test_contract import TREES, case_of, explainer_of, offsets_of

import axil
import axil.dask
from axil.dask.cluster import Cluster

SAME = [
    ("lightgbm", "regressor"),
    ("lightgbm", "regressor weighted scored"),
    ("lightgbm", "weights some zero"),
    ("lightgbm", "categorical frame"),
    ("lightgbm", "path_smooth=5 categorical"),
    ("lightgbm", "targets constant"),
    ("lightgbm", "rate schedule"),
    ("lightgbm", "early stopping"),
    ("lightgbm", "dart"),
    ("lightgbm", "rf without bagging"),
    ("xgboost", "regressor weighted"),
    ("xgboost", "base_margin base_score=2 weighted"),
    ("xgboost", "categorical frame regressor"),
    ("xgboost", "one_output_per_tree weighted"),
    ("xgboost", "base_margin multi_output_tree"),
    ("xgboost", "dart weighted"),
    ("xgboost", "one_output_per_tree loaded"),
    ("xgboost", "rate schedule"),
    ("catboost", "defaults"),
    ("catboost", "baseline weighted steps"),
    ("catboost", "one-hot category dtype weighted"),
    ("catboost", "shrink weighted steps"),
    ("catboost", "multi weighted"),
    ("catboost", "continued other settings"),
    ("sklearn", "stages n_iter_no_change weighted"),
    ("sklearn", "hist early stopping weighted"),
    ("sklearn", "hist categorical frame"),
    ("sklearn", "ExtraTreesRegressor outputs weighted"),
    ("sklearn", "DecisionTreeClassifier weighted"),
]


def unequal(n):
    """Five partitions, one of them empty and one of a single row."""
    first = n // 2 - 7
    return (first, 0, 1, n - first - 17, 16)


def partitioned(values, sizes=None):
    """A Dask collection of these rows."""
    sizes = unequal(len(values)) if sizes is None else sizes
    if isinstance(values, (pd.DataFrame, pd.Series)):
        ends = np.cumsum((0, *sizes))
        return dd.from_map(lambda part: part, [values.iloc[a:b] for a, b in pairwise(ends)], meta=values.iloc[:0])
    values = np.asarray(values)
    return da.from_array(values, chunks=(sizes, *values.shape[1:]))


def over_dask(case, **arguments):
    given = (case.X, case.y, case.sample_weight, offsets_of(case))
    return axil.dask.Explainer(case.model, *(None if v is None else partitioned(v) for v in given), **arguments)


@pytest.fixture(autouse=True)
def in_this_thread():
    """Where no client is given; a cluster's client is always passed on."""
    with dask.config.set(scheduler="synchronous"):
        yield


def same_numbers(explainer, whole, X):
    """Weights, intercepts, predictions and tables agree to 1e-12; these partitions merely add in another order."""
    found, expected = explainer(X), whole(X)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=0, atol=1e-12)
    slack = 1e-12 * max(1.0, np.abs(expected.predictions).max())
    np.testing.assert_allclose(found.intercepts, expected.intercepts, rtol=0, atol=slack)
    np.testing.assert_allclose(found.predictions, expected.predictions, rtol=0, atol=slack)
    np.testing.assert_array_equal(found.index, expected.index)
    np.testing.assert_allclose(
        explainer.weights(X).compute(scheduler="synchronous"), expected.weights, rtol=0, atol=1e-12
    )
    for by in ("weight", "contribution"):
        ours, theirs = explainer.top(X, 4, by=by), whole.top(X, 4, by=by)
        assert list(ours.columns) == list(theirs.columns)
        np.testing.assert_allclose(
            ours[by].abs(), theirs[by].abs(), rtol=0, atol=slack
        )  # ties may come in another order
    labels = np.arange(len(expected.targets)) % 3
    chunks = unequal(len(labels))
    ours, theirs = explainer.group(X, da.from_array(labels, chunks=(chunks,))), expected.group(labels)
    assert list(ours.columns) == list(theirs.columns)
    np.testing.assert_array_equal(ours["group"], theirs["group"])
    np.testing.assert_allclose(ours["weight"], theirs["weight"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(ours["contribution"], theirs["contribution"], rtol=0, atol=slack)


@pytest.mark.parametrize(("library", "name"), SAME)
def test_the_same_numbers_as_on_one_machine(library, name):
    case = case_of(library, name)
    explainer, whole = over_dask(case), explainer_of(library, name)
    same_numbers(explainer, whole, case.X_new[:9])
    ours, theirs = explainer.verification, whole.verification
    assert (ours.n_rows, ours.n_trees, ours.compared) == (theirs.n_rows, theirs.n_trees, theirs.compared)
    assert ours.max_error <= ours.tolerance == theirs.tolerance
    assert ours.leaf_error == pytest.approx(theirs.leaf_error, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("library", "name"), TREES)
def test_every_model_is_the_same_or_refused_by_name(library, name):
    case = case_of(library, name)
    if sparse.issparse(case.X):
        pytest.skip("Dask arrays of dense blocks only")
    try:
        explainer = over_dask(case)
    except axil.UnsupportedModelError as error:
        named = error.setting
    else:
        named = None
    if named is not None:
        assert named in ("row sampling", "training rows")
        return
    same_numbers(explainer, explainer_of(library, name), case.X_new[:5])


# -- one small model for all else -------------------------------------------------------------------------------------

X, Y = load_diabetes(return_X_y=True, as_frame=True)
X.index = Y.index = [f"patient {i}" for i in range(len(X))]
WEIGHTS = pd.Series(np.random.default_rng(0).uniform(0.5, 2, len(Y)), index=X.index)
QUERIES = X.iloc[[5, 17, 200]]


@pytest.fixture(scope="module")
def model():
    return lgb.LGBMRegressor(n_estimators=25, num_leaves=9, n_jobs=1, verbose=-1).fit(X, Y)


@pytest.fixture(scope="module")
def explainer(model):
    with dask.config.set(scheduler="synchronous"):
        return axil.dask.Explainer(model, partitioned(X), partitioned(Y))


@pytest.fixture(scope="module")
def whole(model):
    return axil.Explainer(model, X, Y)


def test_labels_are_those_of_the_frame(explainer, whole):
    table = explainer.top(QUERIES, 6)
    pd.testing.assert_frame_equal(table, whole.top(QUERIES, 6))
    assert list(explainer.index.compute()) == list(X.index)
    np.testing.assert_array_equal(explainer.targets.compute(), Y)


def test_rows_of_an_array_are_numbered_throughout(model):
    explainer = axil.dask.Explainer(model, partitioned(X.to_numpy()), partitioned(Y.to_numpy()))
    expected = axil.Explainer(model, X.to_numpy(), Y.to_numpy()).top(QUERIES.to_numpy(), 6)
    pd.testing.assert_frame_equal(explainer.top(QUERIES.to_numpy(), 6), expected)


def test_many_queries_go_in_batches(explainer, whole, monkeypatch):
    expected = whole(X)
    monkeypatch.setattr("axil.dask.weighted.ASKED_BYTES", 8 * 9 * 25 * 100)  # a hundred queries at a time
    np.testing.assert_allclose(explainer(X).weights, expected.weights, rtol=0, atol=1e-14)
    assert explainer.weights(X).numblocks[0] == 5
    pd.testing.assert_frame_equal(explainer.top(X, 3), whole.top(X, 3))
    batches = list(explainer.iter(X, batch_size=200))
    assert [len(batch) for batch in batches] == [200, 200, 42]
    np.testing.assert_allclose(np.concatenate([b.weights for b in batches]), expected.weights, rtol=0, atol=1e-14)


def test_fewer_rows_than_asked_for(model, explainer, whole):
    pd.testing.assert_frame_equal(explainer.top(QUERIES, 600), whole.top(QUERIES, 600))


def test_no_queries(explainer):
    nothing = X.iloc[:0]
    assert explainer(nothing).weights.shape == explainer.weights(nothing).shape == (0, len(X))
    assert list(explainer.top(nothing).columns) == list(explainer.top(QUERIES).columns)
    assert len(explainer.top(nothing)) == len(list(explainer.iter(nothing))) == 0


def test_groups_by_any_labels(explainer, whole):
    labels = pd.Series(np.where(np.arange(len(X)) % 5 == 0, "north", "south"), index=X.index)
    pd.testing.assert_frame_equal(explainer.group(QUERIES, partitioned(labels)), whole(QUERIES).group(labels))
    with pytest.raises(axil.InputError, match="labels has 2 partitions and X has 5"):
        explainer.group(QUERIES, partitioned(labels, (100, 342)))


def test_nothing_of_the_size_of_the_training_set_is_gathered(monkeypatch):
    rng = np.random.default_rng(0)
    A = rng.normal(size=(40_000, 3))
    model = lgb.LGBMRegressor(n_estimators=3, num_leaves=4, verbose=-1).fit(A, A.sum(axis=1))
    received = []

    def collect(self, parts, collected=Cluster.collect):
        found = collected(self, parts)
        received.extend(len(pickle.dumps(part)) for part in found)
        return found

    monkeypatch.setattr(Cluster, "collect", collect)
    explainer = axil.dask.Explainer(
        model, da.from_array(A, chunks=(5000, 3)), da.from_array(A.sum(axis=1), chunks=5000)
    )
    explainer.top(A[:4], 3)
    explainer.group(A[:4], da.from_array(np.arange(40_000) % 2, chunks=5000))
    explainer.weights(A[:4])
    assert received
    assert max(received) < 4000  # a byte a row would be ten times as much


def test_recorded_draws(model):
    bagged = lgb.LGBMRegressor(n_estimators=12, subsample=0.6, subsample_freq=1, verbose=-1).fit(X, Y, WEIGHTS)
    whole = axil.Explainer(bagged, X, Y, WEIGHTS)
    s = whole.proven.engines[0].structure
    bags = s.draws[s.cells // s.n_leaves[:, None]].T
    parts = [partitioned(values) for values in (X, Y, WEIGHTS)]
    with pytest.raises(axil.UnsupportedModelError, match=r"LightGBM bagging.*bags="):
        axil.dask.Explainer(bagged, *parts)
    explainer = axil.dask.Explainer(bagged, *parts, bags=partitioned(bags))
    np.testing.assert_allclose(explainer(QUERIES).weights, whole(QUERIES).weights, rtol=0, atol=1e-14)
    with pytest.raises(axil.ExactnessError, match="row count"):
        axil.dask.Explainer(bagged, *parts, bags=partitioned(bags[::-1]))


# -- wrong data -------------------------------------------------------------------------------------------------------


def changed(row, by):
    targets = Y.copy()
    targets.iloc[row] += by
    return targets


WRONG = {
    "targets in another order": lambda: (X, Y.iloc[::-1].set_axis(X.index)),
    "one target": lambda: (X, changed(300, 1.0)),
    "all targets moved": lambda: (X, Y + 3.0),
    "one row less": lambda: (X.iloc[1:], Y.iloc[1:]),
    "a column reversed": lambda: (X.assign(bmi=X["bmi"].to_numpy()[::-1]), Y),
    "weights": lambda: (X, Y, WEIGHTS),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_data_raise_the_same_error_as_on_one_machine(model, what):
    data = WRONG[what]()
    with pytest.raises(axil.ExactnessError) as alone:
        axil.Explainer(model, *data)
    with pytest.raises(axil.ExactnessError) as over:
        axil.dask.Explainer(model, *map(partitioned, data))
    names = ("what", "tree", "leaf", "cause")[
        : 3 if what == "weights" else 4
    ]  # with all rows here a mistake is tried out
    assert [getattr(over.value, name) for name in names] == [getattr(alone.value, name) for name in names]
    assert over.value.found == pytest.approx(alone.value.found, rel=1e-12)


def test_a_map_that_misses_the_predictions_is_noticed(model, monkeypatch):
    """The last check by itself: leaf values as they should be, but another base to start from."""
    import axil.dask.build as module

    solve = module.LeafSpace.leaf_values
    monkeypatch.setattr(module.LeafSpace, "leaf_values", lambda self, sums, base: solve(self, sums, base + 1.0))
    with pytest.raises(axil.ExactnessError, match="prediction of training row"):
        axil.dask.Explainer(model, partitioned(X), partitioned(Y))
    assert axil.dask.Explainer(model, partitioned(X), partitioned(Y), verify=False).verification is None


def test_a_model_that_changed_is_noticed(model):
    """The explainer has a copy of the model: the check is the last resort, for what no copy protects."""
    explainer = axil.dask.Explainer(model, partitioned(X), partitioned(Y))
    explainer._adapter._booster.set_leaf_output(0, 0, 1e4)
    for ask in (explainer, explainer.top, explainer.weights, lambda q: explainer.group(q, partitioned(Y))):
        with pytest.raises(axil.ExactnessError, match="may have changed"):
            ask(X)


def test_unverified_explainers_prepare_on_their_own(model, whole):
    explainer = axil.dask.Explainer(model, partitioned(X), partitioned(Y), verify=False)
    np.testing.assert_allclose(explainer(QUERIES).weights, whole(QUERIES).weights, rtol=0, atol=1e-14)
    assert explainer.prepare() is explainer
    assert "not verified" in repr(explainer)


# -- bad input --------------------------------------------------------------------------------------------------------

BAD = {
    "data in memory": (lambda: (X, Y), "X is a pandas.*use axil.Explainer"),
    "targets in memory": (lambda: (partitioned(X), Y), "y is a pandas"),
    "no targets": (lambda: (partitioned(X), None), "y is None"),
    "fewer partitions": (lambda: (partitioned(X), partitioned(Y, (42, 400))), "y has 2 partitions and X has 5"),
    "other chunks": (
        lambda: (partitioned(X.to_numpy()), partitioned(Y.to_numpy(), (0, *unequal(len(Y))[1:-1], 230))),
        "y has 0 rows in partition 0",
    ),
    "other rows in a partition": (
        lambda: (partitioned(X), partitioned(Y, (*unequal(len(Y))[:3], 100, 127))),
        r"In partition [34] \(from 0\): X has (211|16) rows and y (100|127)",
    ),
    "narrow": (lambda: (partitioned(X.iloc[:, 1:]), partitioned(Y)), r"In partition \d.*missing \['age'\]"),
    "nan": (
        lambda: (partitioned(X), partitioned(Y.where(Y.index != "patient 300"))),
        "In partition 3.*nan at position",
    ),
    "no weight": (lambda: (partitioned(X), partitioned(Y), partitioned(0 * Y)), "sample_weight is zero everywhere"),
    "negative": (lambda: (partitioned(X), partitioned(Y), partitioned(-Y)), "not negative"),
    "no rows": (lambda: (partitioned(X.iloc[:0], (0, 0)), partitioned(Y.iloc[:0], (0, 0))), "no rows in any partition"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(model, what):
    data, message = BAD[what]
    with pytest.raises(axil.InputError, match=message):
        axil.dask.Explainer(model, *data())


def test_bad_questions(explainer):
    with pytest.raises(axil.UnsupportedQuestionError, match=r"not made over Dask.*explainer\.weights"):
        explainer.matrix()
    with pytest.raises(axil.UnsupportedQuestionError, match=r"explainer\.weights"):
        _ = explainer.operator
    with pytest.raises(axil.InputError, match=r"X\.compute\(\)"):
        explainer(partitioned(X))
    with pytest.raises(axil.InputError, match="X has 1 columns"):
        explainer.top(np.zeros((2, 1)))
    with pytest.raises(axil.InputError, match="k is 0"):
        explainer.top(QUERIES, 0)


def test_smoothers_are_refused():
    with pytest.raises(axil.UnsupportedModelError, match=r"linear smoother.*Use axil\.Explainer"):
        axil.dask.Explainer(Ridge().fit(X, Y), partitioned(X), partitioned(Y))
    with pytest.raises(axil.UnsupportedModelError, match=r"several models in one.*Use axil\.Explainer"):
        axil.dask.Explainer(VotingRegressor([("a", Ridge())]).fit(X, Y), partitioned(X), partitioned(Y))


def test_what_does_not_fit_is_refused_with_its_size(model):
    leaves = 25 * 9
    with pytest.raises(axil.InputError, match=rf"Leaf space would take {16 * leaves**2 / 1024:.1f} KiB"):
        axil.dask.Explainer(model, partitioned(X), partitioned(Y), memory_limit=8 * leaves**2)
    explainer = axil.dask.Explainer(model, partitioned(X), partitioned(Y), memory_limit=16 * leaves**2)
    with pytest.raises(axil.InputError, match=r"1\.5 MiB.*explainer\.weights"):
        explainer(X)
    assert len(explainer.top(X, 2)) == 2 * len(X)


# -- a cluster of two processes ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": ":0"}
    with LocalCluster(**options, silence_logs=50) as cluster, Client(cluster) as client:
        yield client


def kill_a_worker(client):
    """The worker that holds most, without a farewell."""
    held = {worker: len(keys) for worker, keys in client.has_what().items()}
    pids = client.run(os.getpid)
    os.kill(pids[max(held, key=held.get)], signal.SIGKILL)


def test_results_do_not_depend_on_who_did_what(client, model):
    """Here or there; asked alike, for after many questions leaf space is inverted."""
    spread, here = (axil.dask.Explainer(model, partitioned(X), partitioned(Y), client=c) for c in (client, None))
    np.testing.assert_array_equal(spread(QUERIES).weights, here(QUERIES).weights)
    pd.testing.assert_frame_equal(spread.top(QUERIES), here.top(QUERIES), check_exact=True)
    assert spread.verification == here.verification
    with pytest.raises(axil.ExactnessError, match="one"):  # as raised on a worker or here, and not wrapped
        axil.dask.Explainer(model, partitioned(X), partitioned(changed(300, 1.0)), client=client)
    with pytest.raises(axil.InputError, match=r"In partition \d"):
        axil.dask.Explainer(model, partitioned(X.iloc[:, 1:]), partitioned(Y), client=client)


def test_a_worker_that_dies_is_made_up_for(client, model, whole, monkeypatch):
    """One is killed during construction, with leaves and sums on it, and one after, between two questions."""
    import axil.dask.build as module

    killed = []

    def prepared(*arguments, original=module.prepared):
        kill_a_worker(client)
        killed.append(True)
        return original(*arguments)

    monkeypatch.setattr(module, "prepared", prepared)
    persisted = [client.persist(partitioned(values)) for values in (X, Y)]
    explainer = axil.dask.Explainer(model, *persisted, client=client)
    assert killed
    kill_a_worker(client)
    found, expected = explainer(QUERIES), whole(QUERIES)
    np.testing.assert_allclose(found.weights, expected.weights, rtol=0, atol=1e-12)
    pd.testing.assert_frame_equal(explainer.top(QUERIES), whole.top(QUERIES))
    client.wait_for_workers(2)


def lightgbm_on_both(client, parts, **settings):
    """LightGBM runs on the workers that the scheduler gave the data to: fit until these are both."""
    for _ in range(10):
        model = lgb.DaskLGBMRegressor(client=client, verbose=-1, **settings)
        model.fit(parts[0], parts[1], sample_weight=parts[2])
        if "[num_machines: 2]" in model.booster_.model_to_string():
            return model
    pytest.skip("the scheduler gave all of the data to one worker")


def trained(client, kind, sizes, weighted):
    """A model that Dask trained, and its data, over Dask and not."""
    values = (X.to_numpy(), Y.to_numpy(), WEIGHTS.to_numpy() if weighted else None)
    parts = [None if v is None else partitioned(v, sizes) for v in values]
    settings = {"n_estimators": 8, "max_depth": 3}
    if kind.startswith("lightgbm"):
        return lightgbm_on_both(client, parts, **settings, boost_from_average="from zero" not in kind), parts, values
    from xgboost import dask as dxgb

    if kind == "xgboost dictionary":
        matrix = dxgb.DaskDMatrix(client, parts[0], parts[1], weight=parts[2])
        return dxgb.train(client, {"max_depth": 3, "eta": 0.2}, matrix, num_boost_round=8), parts, values
    model = dxgb.DaskXGBRegressor(**settings)
    model.client = client
    return model.fit(parts[0], parts[1], sample_weight=parts[2]), parts, values


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "sizes", "weighted"),
    [
        ("lightgbm", (221, 221), False),
        ("lightgbm from zero", (300, 100, 42), True),
        ("xgboost", (300, 142), True),
        ("xgboost dictionary", (300, 100, 42), False),
    ],
)
def test_models_that_dask_trained(client, kind, sizes, weighted):
    model, parts, values = trained(client, kind, sizes, weighted)
    explainer = axil.dask.Explainer(model, *parts, client=client)
    local = model["booster"] if isinstance(model, dict) else model.to_local() if kind.startswith("lightgbm") else model
    whole = axil.Explainer(local.get_booster() if kind == "xgboost" else local, *values)
    queries = values[0][:5]
    np.testing.assert_allclose(explainer(queries).weights, whole(queries).weights, rtol=0, atol=1e-12)
    assert explainer.verification.max_error < 1e-6


@pytest.mark.filterwarnings("ignore")
def test_lightgbm_on_unequal_machines_starts_from_no_mean_of_all_targets(client):
    """Network::GlobalSyncUpByMean, include/LightGBM/network.h: the plain mean of the machines' own means.

    However these partitions are parted among two machines, one has more rows than the other.
    """
    model, parts, _ = trained(client, "lightgbm", (200, 120, 80, 42), False)
    with pytest.raises(axil.ExactnessError, match=r"trained on 2 machines.*boost_from_average=False"):
        axil.dask.Explainer(model, *parts, client=client)
