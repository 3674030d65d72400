"""Measures of weights, against sums over a dense array, and streamed against those of a whole explanation."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import KNeighborsRegressor

import axil
from axil import InputError
from axil.methods.method import verified_model
from axil.output.tables import NOTES
from tests.contract_models import case_of, explainer_of
from tests.methods import method_models
from tests.methods.method_models import small_batches, weights_of

RNG = np.random.default_rng(11)
X = RNG.normal(size=(90, 3))
Y = X[:, 0] * X[:, 1] + RNG.normal(size=90)
NEW = RNG.normal(size=(9, 3))
MEASURES = ["net", "gross", "short", "top_share", "effective_size", "turnover", "fit", "asymmetry"]


def dense_measures(weights, top):
    """The table's measures of weights (n, n_train), one query after the other."""
    held = int(np.ceil(top * weights.shape[1]))
    lines = []
    for i, own in enumerate(weights):
        sizes = np.sort(np.abs(own))[::-1]
        turnover = np.nan if i == 0 else np.abs(own - weights[i - 1]).sum()
        fit, longs, shorts = (
            np.corrcoef(part, Y)[0, 1] if np.ptp(part) else 0.0
            for part in (own, np.maximum(own, 0), np.minimum(own, 0))
        )
        lines.append(
            {
                "net": own.sum(),
                "gross": sizes.sum(),
                "short": own[own < 0].sum(),
                "top_share": sizes[:held].sum() / sizes.sum(),
                "effective_size": sizes.sum() ** 2 / (own**2).sum(),
                "turnover": turnover,
                "fit": fit**2,
                "asymmetry": (longs - shorts) ** 2 / 2,
            }
        )
    return pd.DataFrame(lines)


MODELS = {
    "boosting": lambda: lgb.LGBMRegressor(
        n_estimators=20, num_leaves=5, min_child_samples=5, verbose=-1, n_jobs=1
    ),
    "kernel ridge": lambda: KernelRidge(
        kernel="rbf", gamma=0.5, alpha=0.1
    ),  # whose weights do not sum to one
    "forest": lambda: RandomForestRegressor(5, random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("top", [0.05, 0.2, 1.0])
def test_measures_are_sums_over_the_weights(name, top, batches):
    explainer = axil.Explainer(MODELS[name]().fit(X, Y), X, Y)
    wanted = dense_measures(explainer(NEW).weights, top)
    for found in (explainer.concentration(NEW, top=top), explainer(NEW).concentration(top=top)):
        assert set(found.columns) == {
            "query",
            "negative_share",
            "rows for 50%",
            "rows for 80%",
            "rows for 95%",
            *MEASURES,
        }
        # Weights of a batch are the same up to rounding, which depends on how many queries are asked together.
        pd.testing.assert_frame_equal(found[MEASURES], wanted, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(found["gross"] + 2 * found["short"], found["net"], rtol=1e-9)
    assert found.attrs["axil"] == "exact with the fitted structure fixed; not a retraining"


def test_sparse_weights_have_the_same_measures(batches):
    explainer = axil.Explainer(KNeighborsRegressor(3).fit(X, Y), X, Y)
    wanted = explainer(NEW).concentration()
    pd.testing.assert_frame_equal(explainer(NEW, sparse=True).concentration(), wanted, rtol=1e-12)
    pd.testing.assert_frame_equal(explainer.concentration(NEW), wanted, rtol=1e-12)
    # 5 % of 90 rows are rounded up to 5, and three neighbours hold everything.
    np.testing.assert_allclose(wanted[["net", "gross", "top_share"]], 1.0, rtol=1e-12)
    np.testing.assert_allclose(wanted["effective_size"], 3.0, rtol=1e-12)


def test_outputs_with_trees_of_their_own_have_measures_of_their_own(batches):
    kinds = np.digitize(Y, [-0.5, 0.5])
    explainer = axil.Explainer(
        lgb.LGBMClassifier(n_estimators=4, verbose=-1, n_jobs=1).fit(X, kinds), X, kinds
    )
    found, pushes = explainer.concentration(NEW), explainer(NEW).contributions
    assert found["output"].tolist() == [0, 1, 2] * len(NEW)
    for k in range(3):
        wanted = dense_measures(pushes[:, k], 0.05)[MEASURES[:-2]]
        own = found[found["output"] == k].reset_index(drop=True)
        pd.testing.assert_frame_equal(own[MEASURES[:-2]], wanted, rtol=1e-9, atol=1e-12)
        assert "fit" not in own
    scores = explainer(NEW).predictions
    np.testing.assert_allclose(
        found["net"], (scores - explainer(NEW).intercepts).ravel(), rtol=1e-9, atol=1e-12
    )  # of pushes: the score without its base


def test_no_weight_at_all_is_zero_in_every_measure():
    explainer = axil.Explainer(MODELS["kernel ridge"]().fit(X, Y), X, Y)
    shares = explainer.concentration(1e3 + NEW[:2])  # so far away that the kernel is 0
    assert (shares[["net", "gross", "short", "top_share", "effective_size"]] == 0).all(axis=None)
    assert shares["turnover"].tolist()[1] == 0


def test_tables_are_of_the_users_library_and_the_order_is_that_of_the_queries(batches):
    frame = pl.DataFrame(X, schema=["a", "b", "c"])
    model = KernelRidge(kernel="rbf", gamma=0.5, alpha=0.1).fit(X, Y)
    shares = axil.Explainer(model, frame, Y).concentration(
        pl.DataFrame(NEW, schema=["a", "b", "c"])
    )
    assert isinstance(shares, pl.DataFrame)
    weights = axil.Explainer(model, X, Y)(NEW[::-1]).weights
    turned = axil.Explainer(model, X, Y).concentration(NEW[::-1])["turnover"]
    np.testing.assert_allclose(turned[1:], np.abs(np.diff(weights, axis=0)).sum(axis=1), rtol=1e-9)


@pytest.mark.parametrize("top", [0.0, -0.1, 1.5, "all", None, [0.1, 0.2]])
def test_a_share_is_above_0_and_up_to_1(top):
    explainer = axil.Explainer(MODELS["kernel ridge"]().fit(X, Y), X, Y)
    for ask in (
        lambda: explainer.concentration(NEW, top=top),
        lambda: explainer(NEW).concentration(top=top),
    ):
        with pytest.raises(axil.InputError, match="top"):
            ask()


@pytest.mark.parametrize(("library", "name"), method_models.MODELS)
def test_sizes_of_weights_are_streamed(library, name, monkeypatch):
    case, explainer = case_of(library, name), explainer_of(library, name)
    explanation = explainer(case.X_new)
    weights = explanation.weights
    small_batches(monkeypatch, explainer)
    size = np.abs(weights).sum(axis=-1)
    expected = {
        "effective_size": size**2 / np.square(weights).sum(axis=-1),
        "negative_share": np.maximum(-weights, 0).sum(axis=-1) / size,
    }
    table = explainer.concentration(case.X_new)
    for what, right in expected.items():
        np.testing.assert_allclose(getattr(explanation, what), right, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(table[what], right.ravel(), rtol=1e-9, atol=1e-12)
    assert len(explainer.concentration(case.X_new[:0])) == 0
    sigma = np.arange(1.0, 1 + verified_model(explainer).targets.shape[1])
    errors = explainer.diagnostics.standard_error(case.X_new, sigma)
    assert errors.shape == explanation.predictions.shape
    right = np.linalg.norm(weights_of(explainer, case.X_new), axis=-1) * sigma
    np.testing.assert_allclose(errors.reshape(right.shape), right)


@pytest.mark.parametrize(("library", "name"), method_models.MODELS)
def test_the_rows_of_a_share_are_the_largest_weights(library, name, monkeypatch):
    case, explainer = case_of(library, name), explainer_of(library, name)
    explanation = explainer(case.X_new)
    small_batches(monkeypatch, explainer)
    shares = (0.5, 0.9, 1.0)
    frame = explainer.concentration(case.X_new, shares=shares)
    weights = np.abs(
        explanation.weights.reshape(len(frame), -1)
    )  # a line for each query, and output with trees of its own
    for i in range(min(15, len(frame))):
        own = np.sort(weights[i])[::-1]
        for share in shares:
            count = frame[f"rows for {share:.0%}"][i]
            assert own[:count].sum() >= share * own.sum() * (1 - 1e-9)
            assert own[: count - 1].sum() < share * own.sum()
    pd.testing.assert_frame_equal(frame, explanation.concentration(shares), rtol=1e-9, atol=1e-12)
    for bad in ((), (0.0,), (1.5,), "half"):
        with pytest.raises(InputError, match="shares is"):
            explainer.concentration(case.X_new, shares=bad)


def test_measures_of_every_kind_and_place(any_explainer, batches):
    rows = method_models.NEW
    whole, found = (
        any_explainer(rows),
        any_explainer.concentration(rows, shares=(0.3, 0.9), top=0.1),
    )
    method_models.same(found, whole.concentration((0.3, 0.9), top=0.1))
    assert found.attrs["axil"].startswith(NOTES[whole.kind])
    assert whole.concentration((0.3, 0.9), top=0.1).attrs == found.attrs
    np.testing.assert_allclose(found["effective_size"], whole.effective_size.ravel(), rtol=1e-9)
    np.testing.assert_allclose(
        found["negative_share"], whole.negative_share.ravel(), rtol=1e-9, atol=1e-12
    )
    assert len(any_explainer.concentration(rows.head(0))) == 0
