"""Prediction sets and calibrated probabilities of classifiers, against their definitions."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

import axil

NAMES = np.array(["low", "middle", "top"])


def data(n, n_classes, seed):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    X["d"] = (X["d"] > 0).map({True: "north", False: "south"}).astype("category").cat.codes
    signal = X["a"] + X["b"] * X["c"] + rng.normal(scale=0.8, size=n)
    if n_classes == 2:
        return X, NAMES[[0, 2]][np.digitize(signal, [0.0])]
    return X, NAMES[np.digitize(signal, [-0.7, 0.9])]


LGB = {"n_estimators": 15, "num_leaves": 7, "verbose": -1, "n_jobs": 1}
MODELS = {
    "lightgbm": (lambda: lgb.LGBMClassifier(**LGB), 2),
    "lightgbm, three classes": (lambda: lgb.LGBMClassifier(**LGB), 3),
    "forest": (lambda: RandomForestClassifier(30, min_samples_leaf=3, random_state=0), 2),
    "forest, three classes": (
        lambda: RandomForestClassifier(30, min_samples_leaf=3, random_state=0),
        3,
    ),
}


@pytest.fixture(params=MODELS, scope="module")
def case(request):
    make, n_classes = MODELS[request.param]
    X, y = data(300, n_classes, 0)
    held_out, y_held_out = data(120, n_classes, 1)
    new, y_new = data(200, n_classes, 2)
    model = make().fit(X, y)
    explainer = axil.Explainer(model, X, y)
    predictive = explainer.calibrate(held_out, y_held_out)
    return model, explainer, predictive, (held_out, y_held_out), (new, y_new)


def codes_of(model, y):
    return np.searchsorted(model.classes_, y)


def scores_of(probabilities, method):
    """Return the scores of conformal prediction by their definitions, class by class."""
    if method == "lac":
        return 1 - probabilities
    at_least = probabilities[:, None, :] >= probabilities[:, :, None]
    return (at_least * probabilities[:, None, :]).sum(axis=2)


@pytest.mark.parametrize("per_class", [False, True])
@pytest.mark.parametrize("method", ["lac", "aps"])
def test_sets_by_their_definition(case, method, per_class):
    model, _, predictive, (held_out, y_held_out), (new, _) = case
    table = predictive.predict_set(new, 0.8, method=method, per_class=per_class)
    codes = codes_of(model, y_held_out)
    known = scores_of(model.predict_proba(held_out), method)[np.arange(len(codes)), codes]
    probabilities = model.predict_proba(new)
    asked = scores_of(probabilities, method)
    n_classes = len(model.classes_)
    p_values = np.empty_like(asked)
    for k in range(n_classes):
        compared = known
        if per_class:
            compared = known[codes == k]
        # of scores that are equal but for rounding
        at_least = (compared[None, :] >= asked[:, [k]] - 1e-9).sum(axis=1)
        p_values[:, k] = (1 + at_least) / (len(compared) + 1)
    np.testing.assert_allclose(table["p_value"].to_numpy().reshape(-1, n_classes), p_values)
    in_set = table["in_set"].to_numpy().reshape(-1, n_classes)
    np.testing.assert_array_equal(in_set, p_values > 0.2 + 1e-9)
    np.testing.assert_array_equal(table["set_size"], np.repeat(in_set.sum(axis=1), n_classes))
    assert list(table["output"]) == list(np.tile(model.classes_, len(new)))
    assert list(table["prediction"]) == list(np.repeat(model.predict(new), n_classes))
    np.testing.assert_allclose(table["probability"], probabilities.ravel(), rtol=1e-6, atol=1e-12)


def coverage(table, y):
    held = table[table["output"] == np.repeat(y, len(table) // len(y))]
    return held["in_set"].to_numpy()


def test_sets_hold_the_class_as_often_as_asked_for(case):
    _, _, predictive, _, (new, y_new) = case
    for method in ("lac", "aps"):
        held = coverage(predictive.predict_set(new, 0.9, method=method), y_new)
        # 200 rows, 120 calibration rows: four standard deviations of both
        assert held.mean() > 0.9 - 4 * np.sqrt(0.09 / 200 + 0.09 / 120)


def test_probabilities_by_their_definition(case):
    model, _, predictive, (held_out, y_held_out), (new, _) = case
    table = predictive.probability(new.head(15))
    n_classes = len(model.classes_)
    known = model.predict_proba(held_out)
    codes = codes_of(model, y_held_out)
    asked = model.predict_proba(new.head(15))
    bounds = np.empty((2, *asked.shape))
    for k in range(n_classes):
        for i, score in enumerate(asked[:, k]):
            for label in (0, 1):
                isotonic = IsotonicRegression()
                is_class = (codes == k).astype(float)
                scores = np.round(np.append(known[:, k], score), 10)
                isotonic.fit(scores, np.append(is_class, label))
                bounds[label, i, k] = isotonic.predict([np.round(score, 10)])[0]
    for name, own, others in (("lower", *bounds), ("upper", *bounds[::-1])):
        extreme = np.empty_like(asked)
        for k in range(n_classes):
            mixed = others.copy()
            mixed[:, k] = own[:, k]
            extreme[:, k] = mixed[:, k] / mixed.sum(axis=1)
        np.testing.assert_allclose(table[name], extreme.ravel(), atol=1e-9)
        if n_classes == 2:
            np.testing.assert_allclose(table[name], own.ravel(), atol=1e-9)
    expected = bounds[1] / (1 - bounds[0] + bounds[1])
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(table["probability"], expected.ravel(), atol=1e-9)
    np.testing.assert_allclose(table["uncalibrated"], asked.ravel(), rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("load", [load_iris, load_wine, load_digits, load_breast_cancer])
def test_probabilities_lie_between_their_bounds(load):
    X, y = load(return_X_y=True)
    fitted, calibration, new = (np.arange(len(y)) % 3 == part for part in range(3))
    model = RandomForestClassifier(10, max_leaf_nodes=12, random_state=0).fit(X[fitted], y[fitted])
    explainer = axil.Explainer(model, X[fitted], y[fitted])
    table = explainer.calibrate(X[calibration], y[calibration]).probability(X[new])
    assert (table["lower"] >= 0).all()
    assert (table["lower"] < table["probability"] + 1e-12).all()
    assert (table["probability"] < table["upper"] + 1e-12).all()
    assert (table["upper"] <= 1).all()
    sums = table.groupby("query")["probability"].sum()
    np.testing.assert_allclose(sums, 1.0)


def test_why_lists_rows_against_the_predicted_class(case):
    model, explainer, predictive, _, (new, _) = case
    table = predictive.why(new.head(6), 3)
    assert list(table["query"]) == list(np.repeat(new.index[:6], 3))
    if explainer.kind == "exact":
        predicted = table["prediction"].to_numpy()
        assert (table["target"].to_numpy() != predicted).all()
        weights = explainer(new.head(6)).weights
        targets = explainer.targets
        place = {name: k for k, name in enumerate(model.classes_)}
        for i in range(6):
            own = table.iloc[3 * i : 3 * i + 3]
            of_others = targets[:, place[own["prediction"].iloc[0]]] == 0
            largest = np.sort(weights[i][of_others])[::-1][:3]
            np.testing.assert_allclose(own["weight"], largest)
        return
    contributions = explainer(new.head(6)).contributions.reshape(6, -1, 300)
    for i in range(6):
        own = table.iloc[3 * i : 3 * i + 3]
        if contributions.shape[1] == 1:
            sign = -1
            if own["prediction"].iloc[0] == model.classes_[1]:
                sign = 1
            of_class = sign * contributions[i, 0]
        else:
            of_class = contributions[i, list(model.classes_).index(own["prediction"].iloc[0])]
        np.testing.assert_allclose(np.abs(own["contribution"]), -np.sort(of_class)[:3], rtol=1e-9)


def test_groups_are_calibrated_by_their_own_rows(case):
    _, explainer, _, (held_out, y_held_out), (new, _) = case
    grouped = explainer.calibrate(held_out, y_held_out, groups="d")
    assert "in 2 groups" in repr(grouped)
    for label in (0, 1):
        mine = (held_out["d"] == label).to_numpy()
        alone = explainer.calibrate(held_out[mine], y_held_out[mine])
        rows = new[new["d"] == label]
        pd.testing.assert_frame_equal(grouped.predict_set(rows, 0.8), alone.predict_set(rows, 0.8))
        pd.testing.assert_frame_equal(grouped.probability(rows), alone.probability(rows))


def test_the_class_of_pos_label_changes_nothing(case):
    model, _, predictive, (held_out, y_held_out), (new, _) = case
    if len(model.classes_) > 2:
        return
    X, y = data(300, 2, 0)
    other = axil.Explainer(model, X, y, pos_label=model.classes_[0])
    again = other.calibrate(held_out, y_held_out)
    pd.testing.assert_frame_equal(again.predict_set(new), predictive.predict_set(new))
    pd.testing.assert_frame_equal(again.probability(new), predictive.probability(new))


def test_out_of_fold_probabilities():
    X, y = data(300, 3, 0)
    new, y_new = data(200, 3, 2)
    model = lgb.LGBMClassifier(**LGB).fit(X, y)
    unseen = cross_val_predict(model, X, y, method="predict_proba")
    predictive = axil.Explainer(model, X, y).calibrate(out_of_fold=unseen)
    assert repr(predictive) == (
        "<axil.ClassPredictive: 3 classes, 300 calibration rows, out-of-fold>"
    )
    assert coverage(predictive.predict_set(new, 0.9), y_new).mean() > 0.83


def test_a_forest_is_calibrated_by_the_trees_that_left_a_row_out():
    X, y = data(300, 2, 0)
    new, y_new = data(200, 2, 2)
    forest = RandomForestClassifier(60, min_samples_leaf=3, oob_score=True, random_state=0)
    forest.fit(X, y)
    predictive = axil.Explainer(forest, X, y).calibrate()
    assert predictive.source == "out-of-bag"
    assert predictive.n_calibration == 300
    table = predictive.predict_set(new, 0.9)
    assert coverage(table, y_new).mean() > 0.83
    codes = codes_of(forest, y)
    known = 1 - forest.oob_decision_function_[np.arange(300), codes]
    threshold = np.sort(known)[int(np.ceil(301 * 0.9)) - 1]
    expected = 1 - forest.predict_proba(new) <= threshold + 1e-12
    np.testing.assert_array_equal(table["in_set"], expected.ravel())


def test_a_booster_and_a_file_have_the_same_sets(tmp_path):
    X, y = data(300, 2, 0)
    held_out, y_held_out = data(120, 2, 1)
    numbers, numbers_held_out = ((labels == "top").astype(int) for labels in (y, y_held_out))
    model = xgb.XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1).fit(X, numbers)
    explainer = axil.Explainer(model, X, numbers)
    expected = explainer.calibrate(held_out, numbers_held_out).predict_set(X.head(9))
    booster = axil.Explainer(model.get_booster(), X, numbers)
    predictive = booster.calibrate(held_out, numbers_held_out).predict_set(X.head(9))
    pd.testing.assert_frame_equal(predictive, expected)
    explainer.save(tmp_path / "explainer.npz")
    loaded = axil.load(tmp_path / "explainer.npz", model)
    predictive = loaded.calibrate(held_out, numbers_held_out).predict_set(X.head(9))
    pd.testing.assert_frame_equal(predictive, expected)


def test_what_is_refused():
    X, y = data(300, 2, 0)
    held_out, y_held_out = data(120, 2, 1)
    explainer = axil.Explainer(lgb.LGBMClassifier(**LGB).fit(X, y), X, y)
    with pytest.raises(axil.InputError, match="nothing to calibrate with"):
        explainer.calibrate()
    with pytest.raises(axil.InputError, match="of intervals of numbers"):
        explainer.calibrate(held_out, y_held_out, method="exact")
    with pytest.raises(axil.InputError, match="calibration rows"):
        explainer.calibrate(X, y)
    predictive = explainer.calibrate(held_out, y_held_out)
    with pytest.raises(axil.UnsupportedQuestionError, match="predict_set or probability"):
        predictive.interval(X)
    with pytest.raises(axil.InputError, match="expected a number between 0 and 1"):
        predictive.predict_set(X, 90)
    with pytest.raises(axil.InputError, match="takes at least 199 calibration rows"):
        predictive.predict_set(X, 0.995)
    few = explainer.calibrate(held_out.head(12), y_held_out[:12])
    with pytest.warns(UserWarning, match="Sets of every row hold"):
        few.predict_set(X.head(3), 0.9, per_class=True)
    numbers = lgb.LGBMRegressor(**LGB).fit(X, X["a"])
    of_numbers = axil.Explainer(numbers, X, X["a"]).calibrate(held_out, held_out["a"])
    with pytest.raises(axil.UnsupportedQuestionError, match="this model predicts numbers"):
        of_numbers.predict_set(X)
    with pytest.raises(axil.UnsupportedQuestionError, match="this model predicts numbers"):
        of_numbers.probability(X)
    logistic = axil.Explainer(LogisticRegression(tol=1e-10).fit(X, y), X, y)
    with pytest.raises(axil.UnsupportedQuestionError, match="calibrate"):
        logistic.calibrate(held_out, y_held_out)
