"""Models over Dask collections: wrong data, bad input and models that Dask trained."""

import catboost as cb
import lightgbm as lgb
import numpy as np
import pytest
from sklearn.ensemble import VotingRegressor
from sklearn.linear_model import Ridge

import axil
from axil.methods.method import verified_model
from tests.dask.dask_models import QUERIES, WEIGHTS, X, Y, changed, partitioned, unequal
from tests.fits import explainer_of_fit


def test_recorded_draws(model):
    bagged = lgb.LGBMRegressor(n_estimators=12, subsample=0.6, subsample_freq=1, verbose=-1).fit(
        X, Y, WEIGHTS
    )
    whole = axil.Explainer(bagged, X, Y, sample_weight=WEIGHTS)
    s = verified_model(whole).engines[0].structure
    bags = s.sample_counts[s.cells // s.n_leaves[:, None]].T
    parts = [partitioned(values) for values in (X, Y, WEIGHTS)]
    with pytest.raises(axil.UnsupportedModelError, match=r"LightGBM bagging.*in_bag="):
        explainer_of_fit(bagged, *parts)
    explainer = explainer_of_fit(bagged, *parts, in_bag=partitioned(bags))
    np.testing.assert_allclose(
        explainer(QUERIES).weights, whole(QUERIES).weights, rtol=0, atol=1e-14
    )
    with pytest.raises(axil.ExactnessError, match="row count"):
        explainer_of_fit(bagged, *parts, in_bag=partitioned(bags[::-1]))


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
        explainer_of_fit(model, *data)
    with pytest.raises(axil.ExactnessError) as over:
        explainer_of_fit(model, *map(partitioned, data))
    names = ("quantity", "tree", "leaf", "cause")[
        : 3 if what == "weights" else 4
    ]  # with all rows here a mistake is tried out
    assert [getattr(over.value, name) for name in names] == [
        getattr(alone.value, name) for name in names
    ]
    assert over.value.replayed == pytest.approx(alone.value.replayed, rel=1e-12)


def test_a_map_that_misses_the_predictions_is_noticed(model, monkeypatch):
    """The last check by itself: leaf values as they should be, but another base to start from."""
    from axil.weights.leaf_matrix import LeafMatrix

    solve = LeafMatrix.leaf_values
    monkeypatch.setattr(
        LeafMatrix, "leaf_values", lambda self, sums, base: solve(self, sums, base + 1.0)
    )
    with pytest.raises(axil.ExactnessError, match="prediction of training row"):
        axil.Explainer(model, partitioned(X), partitioned(Y))
    assert axil.Explainer(model, partitioned(X), partitioned(Y), verify=False).verification is None


BAD = {
    "rows in memory": (lambda: (X, partitioned(Y)), "y_train is a Dask collection"),
    "targets in memory": (lambda: (partitioned(X), Y), "y is a pandas"),
    "no targets": (lambda: (partitioned(X), None), "y is None"),
    "fewer partitions": (
        lambda: (partitioned(X), partitioned(Y, (42, 400))),
        "y has 2 partitions and X has 5",
    ),
    "other chunks": (
        lambda: (
            partitioned(X.to_numpy()),
            partitioned(Y.to_numpy(), (0, *unequal(len(Y))[1:-1], 230)),
        ),
        "y has 0 rows in partition 0",
    ),
    "other rows in a partition": (
        lambda: (partitioned(X), partitioned(Y, (*unequal(len(Y))[:3], 100, 127))),
        r"In partition [34] \(from 0\): X has (211|16) rows and y (100|127)",
    ),
    "narrow": (
        lambda: (partitioned(X.iloc[:, 1:]), partitioned(Y)),
        r"In partition \d.*missing \['age'\]",
    ),
    "nan": (
        lambda: (partitioned(X), partitioned(Y.where(Y.index != "patient 300"))),
        "In partition 3.*nan at position",
    ),
    "no weight": (
        lambda: (partitioned(X), partitioned(Y), partitioned(0 * Y)),
        "sample_weight is zero everywhere",
    ),
    "negative": (lambda: (partitioned(X), partitioned(Y), partitioned(-Y)), "not negative"),
    "no rows": (
        lambda: (partitioned(X.iloc[:0], (0, 0)), partitioned(Y.iloc[:0], (0, 0))),
        "no rows in any partition",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input(model, what):
    data, message = BAD[what]
    with pytest.raises(axil.InputError, match=message):
        explainer_of_fit(model, *data())


def test_smoothers_are_refused():
    with pytest.raises(
        axil.UnsupportedModelError, match=r"linear smoother.*training rows in memory"
    ):
        axil.Explainer(Ridge().fit(X, Y), partitioned(X), partitioned(Y))
    with pytest.raises(
        axil.UnsupportedModelError, match=r"several models in one.*training rows in memory"
    ):
        axil.Explainer(VotingRegressor([("a", Ridge())]).fit(X, Y), partitioned(X), partitioned(Y))


def test_encodings_of_categories_are_refused():
    rows = (200 * X[["bmi"]]).round().astype(int)
    quiet = {
        "iterations": 3,
        "verbose": False,
        "allow_writing_files": False,
        "cat_features": ["bmi"],
    }
    for kind, y in ((cb.CatBoostRegressor, Y), (cb.CatBoostClassifier, (Y > 140).astype(int))):
        with pytest.raises(
            axil.UnsupportedModelError, match=r"encodings by the targets.*rows in memory"
        ):
            axil.Explainer(kind(**quiet).fit(rows, y), partitioned(rows), partitioned(y))


def test_missing_targets_are_refused():
    y = np.stack([Y, np.where(np.arange(len(Y)) % 3, Y, np.nan)], axis=1)
    quiet = {"iterations": 2, "verbose": False, "allow_writing_files": False}
    model = cb.CatBoostRegressor(loss_function="MultiRMSEWithMissingValues", **quiet).fit(X, y)
    with pytest.raises(
        axil.UnsupportedModelError, match=r"may be missing.*training rows in memory"
    ):
        axil.Explainer(model, partitioned(X), partitioned(y))


def test_what_does_not_fit_is_refused_with_its_size(model):
    leaves = 25 * 9
    with pytest.raises(
        axil.InputError, match=rf"The leaf matrix would take {16 * leaves**2 / 1024:.1f} KiB"
    ):
        axil.Explainer(model, partitioned(X), partitioned(Y), memory_limit=8 * leaves**2)
    explainer = axil.Explainer(model, partitioned(X), partitioned(Y), memory_limit=16 * leaves**2)
    with pytest.raises(axil.InputError, match=r"1\.5 MiB.*explainer\.top"):
        explainer(X)
    assert len(explainer.top(X, 2)) == 2 * len(X)


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
        return (
            lightgbm_on_both(client, parts, **settings, boost_from_average="from zero" not in kind),
            parts,
            values,
        )
    from xgboost import dask as dxgb

    if kind == "xgboost dictionary":
        matrix = dxgb.DaskDMatrix(client, parts[0], parts[1], weight=parts[2])
        return (
            dxgb.train(client, {"max_depth": 3, "eta": 0.2}, matrix, num_boost_round=8),
            parts,
            values,
        )
    model = dxgb.DaskXGBRegressor(**settings)
    model.client = client
    return model.fit(parts[0], parts[1], sample_weight=parts[2]), parts, values


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "sizes", "weighted"),
    [
        pytest.param("lightgbm", (221, 221), False, marks=pytest.mark.slow),
        ("lightgbm from zero", (300, 100, 42), True),
        pytest.param("xgboost", (300, 142), True, marks=pytest.mark.slow),
        ("xgboost dictionary", (300, 100, 42), False),
    ],
)
def test_models_that_dask_trained(client, kind, sizes, weighted):
    model, parts, values = trained(client, kind, sizes, weighted)
    explainer = explainer_of_fit(model, *parts, client=client)
    local = (
        model["booster"]
        if isinstance(model, dict)
        else model.to_local()
        if kind.startswith("lightgbm")
        else model
    )
    whole = explainer_of_fit(local.get_booster() if kind == "xgboost" else local, *values)
    queries = values[0][:5]
    np.testing.assert_allclose(
        explainer(queries).weights, whole(queries).weights, rtol=0, atol=1e-12
    )
    assert explainer.verification.max_error < 1e-6


@pytest.mark.slow  # two machines that train together
@pytest.mark.filterwarnings("ignore")
def test_lightgbm_on_unequal_machines_starts_from_no_mean_of_all_targets(client):
    """Network::GlobalSyncUpByMean, include/LightGBM/network.h: the plain mean of the machines' own means.

    However these partitions are parted among two machines, one has more rows than the other.
    """
    model, parts, _ = trained(client, "lightgbm", (200, 120, 80, 42), False)
    with pytest.raises(
        axil.ExactnessError, match=r"trained on 2 machines.*boost_from_average=False"
    ):
        explainer_of_fit(model, *parts, client=client)
