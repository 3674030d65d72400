"""leave_one_out: what tables say of rows that stand alone. tests/weights/test_deletion.py has the numbers."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from catboost import CatBoostRegressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
)
from sklearn.linear_model import RidgeClassifier
from sklearn.tree import DecisionTreeClassifier

import axil
from axil.methods.folds import fold_numbers
from axil.methods.method import verified_model
from tests.contract_models import explainer_of


def test_tables_say_which_rows_stand_alone_and_why():
    X, y = np.arange(10.0)[:, None], np.arange(10.0) ** 2
    X[1] = X[0]  # these two share a leaf of trees grown in full
    model = GradientBoostingRegressor(n_estimators=2, max_depth=None)
    explainer = axil.Explainer(model.fit(X, y), X, y)
    table = explainer.diagnostics.leave_one_out()
    assert list(table["alone"]) == [False, False] + [True] * 8
    assert list(table["prediction"].isna()) == list(table["alone"])
    assert "nan in 8 of 10 lines: no other training row" in table.attrs["axil"]
    loose = explainer_of("lightgbm", "regressor").diagnostics.leave_one_out()
    assert not loose["alone"].any()
    assert "nan" not in loose.attrs["axil"]
    valued = explainer.shapley(X[:2], y[:2], baseline="others")
    assert list(valued["value"].isna()) == [False] * 2 + [True] * 8  # nan last
    assert "nan in 8 of 10 lines: no other training row" in valued.attrs["axil"]


# -- additive models -------------------------------------------------------------------------------

RNG = np.random.default_rng(3)
X = pd.DataFrame(RNG.normal(size=(120, 3)), columns=list("abc"))
X.index = [f"row {i}" for i in range(120)]
SIGNAL = (X["a"] + X["b"] * X["c"]).to_numpy() + RNG.normal(scale=0.5, size=120)
TWO = np.where(SIGNAL > 0, "yes", "no")
THREE = np.digitize(SIGNAL, [-0.6, 0.6])
COUNTS = RNG.poisson(np.exp(0.5 * SIGNAL))
LGB = {"n_estimators": 6, "num_leaves": 6, "min_child_samples": 5, "verbose": -1, "n_jobs": 1}

ADDITIVE = {
    "lightgbm": (lambda: lgb.LGBMClassifier(**LGB), TWO),
    "three classes": (lambda: xgb.XGBClassifier(n_estimators=4, max_depth=3, n_jobs=1), THREE),
    "catboost counts": (
        lambda: CatBoostRegressor(
            iterations=5, depth=3, loss_function="Poisson", boosting_type="Plain", verbose=0,
            allow_writing_files=False,
        ),
        COUNTS,
    ),
    "histograms": (lambda: HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=5), TWO),
    "fair": (
        lambda: lgb.LGBMRegressor(objective="fair", boost_from_average=False, **LGB),
        SIGNAL,
    ),
}  # fmt: skip


@pytest.fixture(params=ADDITIVE)
def additive(request):
    make, y = ADDITIVE[request.param]
    return axil.Explainer(make().fit(X, y), X, y), y


def number_of_outputs(explainer):
    if explainer.outputs is None:
        return 1
    return len(explainer.outputs)


def scores_of(table, n_outputs):
    name = "prediction"
    if "score" in table:
        name = "score"
    return table[name].to_numpy().reshape(len(X), n_outputs)


def test_exact_scores_of_additive_models_are_those_without_the_row(additive):
    explainer, _ = additive
    n_outputs = number_of_outputs(explainer)
    table = explainer.diagnostics.leave_one_out(method="exact")
    assert set(table["method"]) == {"exact"}
    assert not table["alone"].any()
    scores = scores_of(table, n_outputs)
    for place in (0, 17, 60):
        row = X.index[place]
        after = explainer.without(X.loc[[row]], [row])["after"]
        np.testing.assert_allclose(
            scores[place], after, rtol=1e-6, atol=1e-7
        )  # XGBoost has float32
        refitted = explainer.refit(drop=[row])
        expected = refitted(X.loc[[row]]).predictions
        np.testing.assert_allclose(scores[place], np.ravel(expected), rtol=1e-4, atol=1e-5)


def test_folds_of_additive_models_are_fits_without_them(additive):
    explainer, _ = additive
    n_outputs = number_of_outputs(explainer)
    table = explainer.diagnostics.leave_one_out()
    assert set(table["method"]) == {"folds"}
    folds = fold_numbers(verified_model(explainer))
    for fold in (0, 7):
        rows = list(X.index[folds == fold])
        after = explainer.without(X.loc[rows], rows)["after"].to_numpy()
        expected = after.reshape(len(rows), n_outputs)
        found = scores_of(table, n_outputs)[folds == fold]
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)  # XGBoost has float32


def test_residuals_of_additive_models_are_of_what_scores_stand_for(additive):
    explainer, y = additive
    table = explainer.diagnostics.leave_one_out()
    if "probability" in table:
        expected = table["probability"]
        n_classes = len(np.unique(y))
        sums = expected.to_numpy().reshape(len(X), -1).sum(axis=1)
        assert n_classes == 2 or np.allclose(sums, 1.0)
    else:
        expected = table["prediction"]
    np.testing.assert_allclose(table["residual"], table["target"] - expected)


def test_label_issues_by_exact_leave_one_out(additive):
    explainer, _ = additive
    table = explainer.find_label_issues(out_of_fold="leave-one-out").set_index("row")
    left_out = explainer.diagnostics.leave_one_out(method="exact")
    if "probability" not in left_out:
        expected = left_out.set_index("row")["prediction"]
        np.testing.assert_allclose(table["expected_label"], expected[table.index])
        return
    of_given = left_out.copy()
    if explainer.outputs is None:
        of_given["own"] = np.where(
            of_given["target"] == 1, of_given["probability"], 1 - of_given["probability"]
        )
    else:
        of_given = of_given[of_given["target"] == 1].assign(own=lambda t: t["probability"])
    expected = of_given.set_index("row")["own"]
    np.testing.assert_allclose(table["probability"], expected[table.index])


def test_folds_of_exact_models_by_name():
    explainer = axil.Explainer(lgb.LGBMRegressor(**LGB).fit(X, SIGNAL), X, SIGNAL)
    table = explainer.diagnostics.leave_one_out(method="folds")
    assert set(table["method"]) == {"folds"}
    assert set(explainer.diagnostics.leave_one_out()["method"]) == {"exact"}
    expected = explainer.find_label_issues().set_index("row")["expected_label"]
    np.testing.assert_allclose(table["prediction"], expected[table["row"]])


@pytest.mark.parametrize("method", ["exact", "folds"])
@pytest.mark.parametrize("y", [TWO, THREE], ids=["two classes", "three classes"])
def test_classes_of_exact_models_have_the_columns_of_top(y, method):
    model = ExtraTreesClassifier(9, min_samples_leaf=5, random_state=0).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    n_classes = len(model.classes_)
    table = explainer.diagnostics.leave_one_out(method=method)
    assert list(table.columns) == [
        "row", "output", "target", "prediction", "probability", "residual", "alone", "method",
    ]  # fmt: skip
    probabilities = table["probability"].to_numpy().reshape(len(X), n_classes)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    likeliest = model.classes_[probabilities.argmax(axis=1)]
    assert list(table["prediction"]) == list(np.repeat(likeliest, n_classes))
    np.testing.assert_allclose(table["residual"], table["target"] - table["probability"])
    if method == "exact":
        row = X.index[17]
        after = explainer.without(X.loc[[row]], [row])["after"]
        np.testing.assert_allclose(probabilities[17], after)


def test_scores_of_exact_models_are_no_probabilities():
    ridge = axil.Explainer(RidgeClassifier().fit(X, TWO), X, TWO)
    table = ridge.diagnostics.leave_one_out()
    assert "probability" not in table
    np.testing.assert_allclose(table["residual"], table["target"] - table["score"])
    trees = ExtraTreesClassifier(9, min_samples_leaf=5, random_state=0)
    calibrated = CalibratedClassifierCV(trees, ensemble=False).fit(X, TWO)
    table = axil.Explainer(calibrated, X, TWO).diagnostics.leave_one_out()
    assert not np.allclose(table["score"], table["probability"])
    np.testing.assert_allclose(table["residual"], table["target"] - table["probability"])


@pytest.mark.parametrize("y", [TWO, THREE], ids=["text", "numbers"])
def test_the_only_row_of_any_weight_has_no_predicted_class(y):
    weights = np.zeros(len(X))
    weights[17] = 1.0
    tree = DecisionTreeClassifier(random_state=0).fit(X, y, sample_weight=weights)
    explainer = axil.Explainer(tree, X, y, sample_weight=weights)
    table = explainer.diagnostics.leave_one_out()
    assert list(table.loc[table["alone"], "row"].unique()) == [X.index[17]]
    for name in ("prediction", "probability", "residual"):
        assert list(table[name].isna()) == list(table["alone"])


def test_a_method_that_there_is_not():
    explainer = axil.Explainer(lgb.LGBMClassifier(**LGB).fit(X, TWO), X, TWO)
    with pytest.raises(axil.InputError, match='"exact" or "folds"'):
        explainer.diagnostics.leave_one_out(method="jackknife")


def test_an_objective_of_the_user_has_no_residuals():
    def log_loss(scores, data):
        p = 1 / (1 + np.exp(-scores))
        return p - data.get_label(), p * (1 - p)

    labels = (TWO == "yes").astype(float)
    booster = lgb.train({"objective": log_loss, "verbose": -1}, lgb.Dataset(X, labels), 3)
    explainer = axil.Explainer(booster, X, labels, objective=log_loss)
    for ask in (explainer.diagnostics.leave_one_out, explainer.find_label_issues):
        with pytest.raises(axil.UnsupportedQuestionError, match="does not say which target"):
            ask()
