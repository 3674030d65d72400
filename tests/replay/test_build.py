"""A wrong training set, target or weight never passes."""

import pickle
from dataclasses import astuple

import lightgbm as lgb
import numpy as np
import pytest
from sklearn.datasets import load_diabetes

import axil
from axil import ExactnessError
from axil.methods.method import verified_model
from axil.replay import compare_predictions
from tests.adapters.xgboost_models import VERSION

X, Y = load_diabetes(return_X_y=True, as_frame=True)
Y = Y.to_numpy()
PARAMS = {
    "objective": "regression",
    "num_leaves": 15,
    "learning_rate": 0.1,
    "verbose": -1,
    "seed": 1,
}
WEIGHTS = np.random.default_rng(0).uniform(0.5, 2, len(Y))


@pytest.fixture(scope="module")
def model():
    return lgb.train(PARAMS, lgb.Dataset(X, Y), 40)


@pytest.fixture(scope="module")
def weighted():
    return lgb.train(PARAMS, lgb.Dataset(X, Y, weight=WEIGHTS), 40)


def test_the_right_data_pass(model):
    found = axil.Explainer(model, X, Y).verification
    assert found.max_error < 1e-7
    assert found.leaf_error < 1e-12
    assert (found.n_rows, found.n_trees, found.tolerance) == (len(Y), 40, 1e-6)
    assert found.recovered["rates"] == [[0, pytest.approx(0.1, rel=1e-12)]]
    assert "40 trees replayed on 442 training rows" in repr(found)


def test_rows_may_come_in_any_order_together(model):
    order = np.random.default_rng(1).permutation(len(Y))
    shuffled = axil.Explainer(model, X.iloc[order], Y[order])(X.head(3))
    np.testing.assert_allclose(
        shuffled.weights, axil.Explainer(model, X, Y)(X.head(3)).weights[:, order], atol=1e-14
    )
    assert list(shuffled.index) == list(X.index[order])


def test_a_shortened_training_set(model):
    with pytest.raises(ExactnessError, match="fitted on 442 rows") as caught:
        axil.Explainer(model, X.iloc[:-1], Y[:-1])
    assert (caught.value.replayed, caught.value.expected) == (441, 442)


def test_other_features(model):
    other = X.copy()
    other["bmi"] = other["bmi"].to_numpy()[::-1]
    with pytest.raises(ExactnessError, match="not the rows and columns") as caught:
        axil.Explainer(model, other, Y)
    assert caught.value.quantity == "row count"
    assert caught.value.tree == 0


def test_shuffled_targets(model):
    with pytest.raises(ExactnessError, match="in another order") as caught:
        axil.Explainer(model, X, np.random.default_rng(0).permutation(Y))
    assert (caught.value.quantity, caught.value.tree, caught.value.leaf) == ("value", 0, 0)


@pytest.mark.parametrize(("size", "message"), [(1e-3, "single ones differ"), (1.0, "mean differs")])
def test_one_wrong_target(model, size, message):
    wrong = Y.copy()
    wrong[100] += size
    with pytest.raises(ExactnessError, match=message) as caught:
        axil.Explainer(model, X, wrong)
    assert caught.value.tree == 0


def test_two_targets_exchanged(model):
    wrong = Y.copy()
    i, j = (
        3,
        int(
            np.flatnonzero(
                model.predict(X, pred_leaf=True)[:, 0] != model.predict(X, pred_leaf=True)[3, 0]
            )[0]
        ),
    )
    wrong[[i, j]] = wrong[[j, i]]
    with pytest.raises(ExactnessError, match="mean agrees"):
        axil.Explainer(model, X, wrong)


def test_one_wrong_target_among_many_rows():
    rng = np.random.default_rng(0)
    many = rng.random((60_000, 4))
    y = many[:, 0] + rng.normal(size=60_000)
    model = lgb.train(PARAMS, lgb.Dataset(many, y), 5)
    axil.Explainer(model, many, y)
    y[30_000] += 0.001
    with pytest.raises(ExactnessError):
        axil.Explainer(model, many, y)


def test_missing_weights(weighted):
    with pytest.raises(ExactnessError, match="sample_weight") as caught:
        axil.Explainer(weighted, X, Y)
    assert caught.value.quantity == "sample weight"


def test_wrong_weights(weighted):
    wrong = WEIGHTS.copy()
    wrong[7] *= 1.01
    with pytest.raises(ExactnessError, match="sample_weight"):
        axil.Explainer(weighted, X, Y, sample_weight=wrong)


def test_weights_where_there_were_none(model):
    with pytest.raises(ExactnessError, match="sample_weight"):
        axil.Explainer(model, X, Y, sample_weight=WEIGHTS)


def test_missing_init_score():
    offsets = Y * 0.3
    model = lgb.train(PARAMS, lgb.Dataset(X, Y, init_score=offsets), 20)
    axil.Explainer(model, X, Y, init_score=offsets)
    with pytest.raises(ExactnessError, match="init_score"):
        axil.Explainer(model, X, Y)
    with pytest.raises(ExactnessError, match="init_score"):
        axil.Explainer(model, X, Y, init_score=offsets + 1e-3)


def test_a_leaf_set_by_hand():
    changed = lgb.train(PARAMS, lgb.Dataset(X, Y), 10).set_leaf_output(6, 3, 0.5)
    with pytest.raises(ExactnessError, match="set_leaf_output") as caught:
        axil.Explainer(changed, X, Y)
    assert (caught.value.tree, caught.value.leaf) == (6, 3)
    assert caught.value.expected == 0.5


def test_a_refit_model_loaded_from_text(model):
    text = model.refit(X, Y + 1).model_to_string()
    with pytest.raises(ExactnessError, match="refit"):
        axil.Explainer(lgb.Booster(model_str=text), X, Y)


def test_verification_can_be_left_out(model):
    wrong = Y.copy()
    wrong[0] += 10
    explainer = axil.Explainer(model, X, wrong, verify=False)
    assert explainer.verification is None
    assert "not verified" in repr(explainer)
    weights = explainer(X.head(3)).weights
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-12)


def test_refusals_stand_without_verification():
    model = lgb.train({**PARAMS, "linear_tree": True, "lambda_l1": 1.0}, lgb.Dataset(X, Y), 5)
    with pytest.raises(axil.UnsupportedModelError, match="linear_tree"):
        axil.Explainer(model, X, Y, verify=False)


def test_targets_beyond_the_librarys_range(model):
    with pytest.raises(axil.InputError, match="float32"):
        axil.Explainer(model, X, Y * 1e40)


def test_every_explanation_is_checked_again(model):
    explainer = axil.Explainer(model, X, Y)
    verified_model(explainer).adapter.predictions = lambda X: model.predict(X)[:, None] + 0.01
    for ask in (explainer, explainer.top, explainer.precompute().top):
        with pytest.raises(ExactnessError, match="prediction of row"):
            ask(X.head(2))


def test_a_wrong_mean_far_from_zero():
    """Weights left out shift the mean by far less than a prediction's tolerance; the mean itself is compared."""
    from xgboost import XGBRegressor

    far = Y + 1e6
    fitted = XGBRegressor(n_estimators=1, learning_rate=1e-6, n_jobs=1).fit(
        X, far, sample_weight=WEIGHTS
    )
    with pytest.raises(ExactnessError):
        axil.Explainer(fitted, X, far)


def test_a_rate_that_cannot_be_told_from_the_targets():
    """Two leaves balance each other: with some rate any targets of the same mean lead to them."""
    stump = lgb.train({**PARAMS, "num_leaves": 2}, lgb.Dataset(X, Y), 1)
    assert axil.Explainer(stump, X, Y).verification.recovered == {}
    with pytest.raises(ExactnessError):
        axil.Explainer(stump, X, np.random.default_rng(0).permutation(Y))
    schedule = lgb.reset_parameter(learning_rate=lambda i: 0.1 / (i + 3))
    scheduled = lgb.train({**PARAMS, "num_leaves": 2}, lgb.Dataset(X, Y), 3, callbacks=[schedule])
    with pytest.raises((axil.UnsupportedModelError, ExactnessError)):
        axil.Explainer(scheduled, X, Y)


def test_single_leaves_of_zero_are_not_taken_for_any_targets():
    """A file has lost min_child_weight, which set all leaves to zero; without it any targets would seem to fit.

    From XGBoost 3.4 on a single leaf keeps its value, here next to zero, which these targets lead to.
    """
    from xgboost import Booster, DMatrix, train

    fitted = train({"min_child_weight": 1000, "nthread": 1}, DMatrix(X, Y), 3)
    np.testing.assert_allclose(
        axil.Explainer(fitted, X, Y)(X.head(2)).weights, 1 / len(Y), rtol=1e-6
    )
    loaded = Booster(model_file=fitted.save_raw("json"))
    if VERSION >= (3, 4):
        np.testing.assert_allclose(
            axil.Explainer(loaded, X, Y)(X.head(2)).weights, 1 / len(Y), rtol=1e-6
        )
    else:
        with pytest.raises(ExactnessError):
            axil.Explainer(loaded, X, Y)


def test_errors_come_back_from_another_process():
    for error in (
        ExactnessError("value", 1.0, 2.0, "Why.", tree=3, leaf=4),
        axil.UnsupportedModelError(
            "lambda_l1", 1, "it is not linear", "Fit without.", "(ii)", derivative=True
        ),
        axil.UnsupportedQuestionError("removal", "it has no weights", "Use what_if."),
    ):
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error)
        assert vars(again) == vars(error)


@pytest.mark.parametrize("bad", [None, 0, 4, 10])
def test_the_furthest_row_is_the_same_in_whatever_blocks(bad, monkeypatch):
    rng = np.random.default_rng(0)
    found, expected = rng.normal(size=(2, 11, 2))
    if bad is not None:
        found[bad, 1] = np.nan
    whole = compare_predictions.furthest(found, expected)
    monkeypatch.setattr(compare_predictions, "COMPARED_ROWS", 3)
    np.testing.assert_equal(astuple(compare_predictions.furthest(found, expected)), astuple(whole))
    assert bad is None or whole.row == bad
