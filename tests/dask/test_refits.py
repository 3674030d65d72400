"""Fits without some rows, over partitions and on one machine."""

import warnings

import dask
import dask.array as da
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from distributed import Client
from sklearn.ensemble import RandomForestRegressor

import axil
from axil.methods.method import verified_model
from tests.contract_models import case_of, explainer_of
from tests.dask.dask_models import (
    QUERIES,
    WEIGHTS,
    X,
    Y,
    close,
    over_dask,
    partitioned,
    same_table,
    unequal,
)
from tests.fits import explainer_of_fit

SAME = [
    ("lightgbm", "lambda_l1=2 lambda_l2=1 weighted scored"),
    pytest.param("lightgbm", "dart", marks=pytest.mark.slow),
    pytest.param("lightgbm", "rf without bagging", marks=pytest.mark.slow),
    pytest.param("lightgbm", "weights some zero", marks=pytest.mark.slow),
    pytest.param("xgboost", "base_margin base_score=2 weighted", marks=pytest.mark.slow),
    pytest.param("xgboost", "one_output_per_tree weighted", marks=pytest.mark.slow),
    ("catboost", "baseline weighted steps"),
    pytest.param("catboost", "multi weighted", marks=pytest.mark.slow),
    pytest.param("sklearn", "hist early stopping weighted", marks=pytest.mark.slow),
    pytest.param("xgboost", "monotone reg_alpha max_delta_step", marks=pytest.mark.slow),
    ("sklearn", "ExtraTreesRegressor outputs weighted"),
    pytest.param("sklearn", "DecisionTreeClassifier weighted", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("library", "name"), SAME)
def test_the_numbers_of_one_machine(library, name):
    case = case_of(library, name)
    explainer, whole, X = over_dask(case), explainer_of(library, name), case.X_new[:4]
    n = len(case.y)
    for method in ("exact", "first-order") if "monotone" not in name else ("exact",):
        close(explainer.removal(X, method=method), whole.removal(X, method=method))
    close(explainer.jacobian.gradient_contributions(X), whole.jacobian.gradient_contributions(X))
    gone = whole.index[[0, n // 2, n - 1]].tolist()
    found, expected = explainer.without(X, gone), whole.without(X, gone)
    same_table(found, expected, ("before", "after", "change"))
    assert found.attrs == expected.attrs
    labels = np.arange(n) % 3
    found = explainer.removal(X, groups=da.from_array(labels, chunks=(unequal(n),)))
    same_table(found, whole.removal(X, groups=labels), ("before", "after", "change"))
    for same_sign in (False, True):
        found, expected = (one.removal(X, k=3, same_sign=same_sign) for one in (explainer, whole))
        assert list(found.columns) == list(expected.columns)
        close(found["effect"].abs(), expected["effect"].abs())  # ties may come in another order
    same_table(
        explainer.diagnostics.leave_one_out(),
        whole.diagnostics.leave_one_out(),
        ("target", "prediction", "residual"),
    )


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
        return explainer_of_fit(model, *parts), axil.Explainer(model, X, Y, sample_weight=weights)


def test_rows_that_outweigh_all_others_are_refitted(pair, monkeypatch):
    explainer, whole = pair
    close(explainer.removal(QUERIES), whole.removal(QUERIES))
    left, expected = explainer.diagnostics.leave_one_out(), whole.diagnostics.leave_one_out()
    close(left["prediction"], expected["prediction"])
    again = explainer_of_fit(
        verified_model(explainer).adapter._booster, *(partitioned(v) for v in (X, Y, heavy()))
    )
    monkeypatch.setattr("axil.dask.deletions.MOST_REFITS", 1)
    with pytest.raises(
        axil.UnsupportedQuestionError, match=r"2 training rows outweigh.*first-order"
    ):
        again.removal(QUERIES)


def test_rows_are_named_by_their_labels(pair):
    explainer, whole = pair
    gone = ["patient 300", "patient 7"]
    same_table(
        explainer.without(QUERIES, gone),
        whole.without(QUERIES, gone),
        ("before", "after", "change"),
    )
    for rows, message in (
        (["patient 300", "nobody"], r"names row 'nobody' \(1 of 2 are unknown\)"),
        (["patient 7"] * 2, "twice"),
        ("patient 7", "expected a list of labels"),
        ([True], "unknown"),
        (list(X.index), "no row with a weight is left"),
    ):
        with pytest.raises(axil.InputError, match=message):
            explainer.without(QUERIES, rows)
    twice = X.set_axis(["a"] * len(X), axis=0)
    model = lgb.LGBMRegressor(n_estimators=2, n_jobs=1, verbose=-1).fit(twice, Y)
    alike = axil.Explainer(model, partitioned(twice), partitioned(Y))
    with pytest.raises(
        axil.InputError, match="no row with a weight is left"
    ):  # the label means all of its rows
        alike.without(twice.iloc[:1], ["a"])


def test_a_group_of_all_rows(pair):
    explainer, whole = pair
    labels = np.zeros(len(X))
    found = explainer.removal(QUERIES, groups=da.from_array(labels, chunks=(unequal(len(X)),)))
    same_table(found, whole.removal(QUERIES, groups=labels), ("before", "after", "change"))
    assert found["after"].isna().all()


def test_a_group_without_which_no_weight_is_left():
    weights = pd.Series(np.arange(len(X)) % 2 * 1.0, index=X.index)
    model = lgb.LGBMRegressor(n_estimators=3, n_jobs=1, verbose=-1).fit(X, Y, sample_weight=weights)
    whole = axil.Explainer(model, X, Y, sample_weight=weights)
    explainer = axil.Explainer(
        model, partitioned(X), partitioned(Y), sample_weight=partitioned(weights)
    )
    labels = np.where(weights > 0, "all that count", "others")
    found = explainer.removal(QUERIES, groups=da.from_array(labels, chunks=(unequal(len(X)),)))
    same_table(found, whole.removal(QUERIES, groups=labels), ("before", "after", "change"))
    assert found["after"].isna().tolist() == [True, False] * len(QUERIES)


def test_sets_by_pushes_and_greedy_ones(pair):
    explainer, _ = pair
    found, expected = (one.removal(QUERIES, k=4, same_sign=True, by="contribution") for one in pair)
    same_table(found, expected, ("contribution",))
    found, expected = (
        one.removal(QUERIES, k=4, same_sign=True, method="first-order") for one in pair
    )
    same_table(found, expected, ("effect",))
    assert found.attrs == expected.attrs
    with pytest.raises(axil.UnsupportedQuestionError, match="greedy"):
        explainer.removal(QUERIES, k=4, same_sign=True, greedy=True)


def test_draws_that_were_recorded():
    forest = RandomForestRegressor(6, min_samples_leaf=3, random_state=0).fit(X, Y)
    bagged = lgb.LGBMRegressor(
        n_estimators=8, subsample=0.6, subsample_freq=1, verbose=-1, n_jobs=1
    ).fit(X, Y, WEIGHTS)
    for model, data in ((forest, (X, Y)), (bagged, (X, Y, WEIGHTS))):
        whole = explainer_of_fit(model, *data)
        s = verified_model(whole).engines[0].structure
        bags = partitioned(s.sample_counts[s.cells // s.n_leaves[:, None]].T)
        explainer = explainer_of_fit(model, *map(partitioned, data), in_bag=bags)
        for method in ("exact", "first-order"):
            close(explainer.removal(QUERIES, method=method), whole.removal(QUERIES, method=method))
        close(
            explainer.jacobian.gradient_contributions(QUERIES),
            whole.jacobian.gradient_contributions(QUERIES),
        )
        gone = list(X.index[:9])
        close(explainer.without(QUERIES, gone)["after"], whole.without(QUERIES, gone)["after"])
        left, expected = explainer.diagnostics.leave_one_out(), whole.diagnostics.leave_one_out()
        close(left["prediction"], expected["prediction"])


def test_with_a_client(pair):
    explainer, whole = pair
    with Client(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as client:
        parts = [partitioned(values) for values in (X, Y, heavy())]
        spread = explainer_of_fit(verified_model(explainer).adapter._booster, *parts, client=client)
        close(spread.removal(QUERIES), whole.removal(QUERIES))
        found, expected = (
            spread.without(QUERIES, ["patient 7"]),
            whole.without(QUERIES, ["patient 7"]),
        )
        same_table(found, expected, ("before", "after", "change"))
        assert list(spread.similar(QUERIES, 3)["row"]) == list(whole.similar(QUERIES, 3)["row"])
        assert len(spread.diagnostics.leave_one_out()) == len(X)


@pytest.mark.parametrize(
    "how", [{"path_smooth": 2.0}, {"objective": "huber", "alpha": 0.5, "reg_alpha": 0.1}]
)
def test_models_whose_rows_cannot_be_deleted(how):
    model = lgb.LGBMRegressor(n_estimators=3, **how, n_jobs=1, verbose=-1).fit(X, Y)
    other = axil.Explainer(model, partitioned(X), partitioned(Y))
    for ask in (
        lambda: other.removal(QUERIES),
        lambda: other.without(QUERIES, ["patient 7"]),
        lambda: other.diagnostics.leave_one_out(),
        lambda: other.removal(QUERIES, groups=partitioned(Y)),
    ):
        with pytest.raises(axil.UnsupportedQuestionError, match=r"path_smooth|Huber"):
            ask()
    close(
        other.jacobian.gradient_contributions(QUERIES),
        axil.Explainer(model, X, Y).jacobian.gradient_contributions(QUERIES),
    )
    with pytest.raises(axil.InputError, match='device is "cuda"'):
        axil.Explainer(model, partitioned(X), partitioned(Y), device="cuda")


def test_leaves_that_lost_their_rows_have_their_ancestors_values():
    model = RandomForestRegressor(6, bootstrap=False, max_features=1, random_state=0, n_jobs=1).fit(
        X, Y
    )
    explainer, whole = (
        axil.Explainer(model, partitioned(X), partitioned(Y)),
        axil.Explainer(model, X, Y),
    )
    gone, groups = list(X.index[::2]), np.arange(len(X)) % 3 > 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        same_table(
            explainer.without(QUERIES, gone),
            whole.without(QUERIES, gone),
            ("before", "after", "change"),
        )
        found = explainer.removal(QUERIES, groups=da.from_array(groups, chunks=(unequal(len(X)),)))
        same_table(found, whole.removal(QUERIES, groups=groups), ("before", "after", "change"))
        np.testing.assert_allclose(
            explainer.removal(QUERIES), whole.removal(QUERIES), rtol=0, atol=1e-9
        )
        gone = list(X.index[:-2])
        same_table(
            explainer.without(QUERIES, gone),
            whole.without(QUERIES, gone),
            ("before", "after", "change"),
        )
