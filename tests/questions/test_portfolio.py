"""Portfolios: weights as positions, against sums over a dense array. test_streamed.py asks every explainer, batch by batch."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import KNeighborsRegressor

import axil

RNG = np.random.default_rng(11)
X = RNG.normal(size=(90, 3))
Y = X[:, 0] * X[:, 1] + RNG.normal(size=90)
NEW = RNG.normal(size=(9, 3))
MEASURES = ["net", "gross", "short", "top_share", "effective_size", "turnover"]


def dense_portfolio(weights, top):
    """The table's measures of weights (n, n_train), one query after the other."""
    held = int(np.ceil(top * weights.shape[1]))
    lines = []
    for i, own in enumerate(weights):
        sizes = np.sort(np.abs(own))[::-1]
        turnover = np.nan if i == 0 else np.abs(own - weights[i - 1]).sum()
        lines.append(
            {
                "net": own.sum(),
                "gross": sizes.sum(),
                "short": own[own < 0].sum(),
                "top_share": sizes[:held].sum() / sizes.sum(),
                "effective_size": sizes.sum() ** 2 / (own**2).sum(),
                "turnover": turnover,
            }
        )
    return pd.DataFrame(lines)


MODELS = {
    "boosting": lambda: lgb.LGBMRegressor(n_estimators=20, num_leaves=5, min_child_samples=5, verbose=-1, n_jobs=1),
    "kernel ridge": lambda: KernelRidge(kernel="rbf", gamma=0.5, alpha=0.1),  # whose weights do not sum to one
    "forest": lambda: RandomForestRegressor(5, random_state=0),
}


@pytest.fixture(autouse=True)
def batches(monkeypatch):
    """Four queries at a time, so that turnover has to cross from one batch to the next."""
    monkeypatch.setattr("axil.machine.memory.MOST_QUERIES", 4)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("top", [0.05, 0.2, 1.0])
def test_measures_are_sums_over_the_weights(name, top):
    explainer = axil.Explainer(MODELS[name]().fit(X, Y), X, Y)
    wanted = dense_portfolio(explainer(NEW).weights, top)
    for found in (explainer.portfolio(NEW, top), explainer(NEW).portfolio(top)):
        assert list(found.columns) == ["query", *MEASURES]
        # Weights of a batch are the same up to rounding, which depends on how many queries are asked together.
        pd.testing.assert_frame_equal(found[MEASURES], wanted, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found["gross"] + 2 * found["short"], found["net"], rtol=1e-9)
    assert found.attrs["axil"] == "exact with the fitted structure held fixed; not a retraining"


def test_sparse_weights_have_the_same_portfolio():
    explainer = axil.Explainer(KNeighborsRegressor(3).fit(X, Y), X, Y)
    wanted = explainer(NEW).portfolio()
    pd.testing.assert_frame_equal(explainer(NEW, sparse=True).portfolio(), wanted, rtol=1e-12)
    pd.testing.assert_frame_equal(explainer.portfolio(NEW), wanted, rtol=1e-12)
    # 5 % of 90 rows are rounded up to 5, and three neighbours hold everything.
    np.testing.assert_allclose(wanted[["net", "gross", "top_share"]], 1.0, rtol=1e-12)
    np.testing.assert_allclose(wanted["effective_size"], 3.0, rtol=1e-12)


def test_outputs_with_trees_of_their_own_have_portfolios_of_their_own():
    kinds = np.digitize(Y, [-0.5, 0.5])
    explainer = axil.explain(lgb.LGBMClassifier(n_estimators=4, verbose=-1, n_jobs=1).fit(X, kinds), X, kinds)
    found, pushes = explainer.portfolio(NEW), explainer(NEW).contributions
    assert found["output"].tolist() == [0, 1, 2] * len(NEW)
    for k in range(3):
        wanted = dense_portfolio(pushes[k], 0.05)
        own = found[found["output"] == k].reset_index(drop=True)
        pd.testing.assert_frame_equal(own[MEASURES], wanted, rtol=1e-9, atol=1e-12)
    scores = explainer(NEW).predictions
    np.testing.assert_allclose(
        found["net"], (scores - explainer(NEW).intercepts).ravel(), rtol=1e-9, atol=1e-12
    )  # of pushes: the score without its base


def test_no_weight_at_all_is_no_portfolio():
    explainer = axil.Explainer(MODELS["kernel ridge"]().fit(X, Y), X, Y)
    found = explainer.portfolio(1e3 + NEW[:2])  # so far away that the kernel is 0
    assert (found[["net", "gross", "short", "top_share", "effective_size"]] == 0).all(axis=None)
    assert found["turnover"].tolist()[1] == 0


def test_tables_are_of_the_users_library_and_the_order_is_that_of_the_queries():
    frame = pl.DataFrame(X, schema=["a", "b", "c"])
    model = KernelRidge(kernel="rbf", gamma=0.5, alpha=0.1).fit(X, Y)
    found = axil.Explainer(model, frame, Y).portfolio(pl.DataFrame(NEW, schema=["a", "b", "c"]))
    assert isinstance(found, pl.DataFrame)
    weights = axil.Explainer(model, X, Y)(NEW[::-1]).weights
    turned = axil.Explainer(model, X, Y).portfolio(NEW[::-1])["turnover"]
    np.testing.assert_allclose(turned[1:], np.abs(np.diff(weights, axis=0)).sum(axis=1), rtol=1e-9)


@pytest.mark.parametrize("top", [0.0, -0.1, 1.5, "all", None, [0.1, 0.2]])
def test_a_share_is_above_0_and_up_to_1(top):
    explainer = axil.Explainer(MODELS["kernel ridge"]().fit(X, Y), X, Y)
    for ask in (lambda: explainer.portfolio(NEW, top), lambda: explainer(NEW).portfolio(top)):
        with pytest.raises(axil.InputError, match="top"):
            ask()
