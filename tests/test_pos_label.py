"""pos_label: the class of two that scores, probabilities and contributions are of."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from catboost import CatBoostClassifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

import axil
from axil.errors import InputError

N = 160
NAMES = np.array(["bad", "good"])


def data(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=list("abc"))
    X.index = [f"row {i}" for i in range(n)]
    is_good = (X["a"] + X["b"] * X["c"] + rng.normal(scale=0.7, size=n) > 0).astype(int)
    return X, NAMES[is_good]


X, Y = data()
NEW = data(7, seed=1)[0].set_index(pd.Index([f"new {i}" for i in range(7)]))
NUMBERS = (Y == "good").astype(int)


def lightgbm_booster():
    parameters = {"objective": "binary", "verbose": -1, "num_threads": 1}
    return lgb.train(parameters, lgb.Dataset(X, NUMBERS), 8)


ADDITIVE = {
    "lightgbm": lambda: lgb.LGBMClassifier(n_estimators=8, verbose=-1, n_jobs=1).fit(X, Y),
    "lightgbm booster": lightgbm_booster,
    "xgboost": lambda: xgb.XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1).fit(X, NUMBERS),
    "catboost": lambda: CatBoostClassifier(
        iterations=8, depth=3, verbose=0, allow_writing_files=False, boosting_type="Plain"
    ).fit(X, Y),
    "gradient boosting": lambda: GradientBoostingClassifier(n_estimators=8).fit(X, Y),
    "histograms": lambda: HistGradientBoostingClassifier(max_iter=8).fit(X, Y),
}
SMOOTH = {
    "logistic": lambda: LogisticRegression(tol=1e-10).fit(X, Y),
    "network": lambda: MLPClassifier(
        (3,), activation="tanh", alpha=1.0, solver="lbfgs", tol=1e-9, max_iter=5000, random_state=0
    ).fit(X, Y),
}
SEVERAL = {
    "voting": lambda: VotingClassifier(
        [("a", LogisticRegression(tol=1e-10)), ("b", RandomForestClassifier(5, random_state=0))],
        voting="soft",
    ).fit(X, Y),
    "calibrated": lambda: CalibratedClassifierCV(
        lgb.LGBMClassifier(n_estimators=8, verbose=-1, n_jobs=1), ensemble=True, cv=3
    ).fit(X, Y),
}
MODELS = ADDITIVE | SMOOTH | SEVERAL


def targets_of(name):
    if name in ("lightgbm booster", "xgboost"):
        return NUMBERS, (0, 1)
    return Y, ("bad", "good")


def explainers(name, **options):
    model = MODELS[name]()
    targets, (first, second) = targets_of(name)
    pair = [axil.Explainer(model, X, targets, pos_label=k, **options) for k in (first, second)]
    return model, targets, (first, second), *pair


def probabilities_of(model):
    if isinstance(model, lgb.Booster):
        second = model.predict(NEW)
        return np.column_stack([1 - second, second])
    return model.predict_proba(NEW)


@pytest.mark.parametrize("name", MODELS)
def test_columns_are_of_the_class_chosen(name):
    model, targets, (first, second), of_first, of_second = explainers(name)
    assert (of_first.pos_label, of_second.pos_label) == (first, second)
    probabilities = probabilities_of(model)
    for place, explainer in enumerate((of_first, of_second)):
        table = explainer.top(NEW, 1)
        assert list(table["output"]) == [(first, second)[place]] * len(NEW)
        np.testing.assert_allclose(table["probability"], probabilities[:, place], rtol=1e-5)
        predicted = np.array([first, second])[probabilities.argmax(axis=1)]
        assert list(table["prediction"]) == list(predicted)
        pd.testing.assert_frame_equal(table, explainer(NEW).top(1))
    assert list(axil.Explainer(model, X, targets).top(NEW, 1)["output"]) == [second] * len(NEW)


@pytest.mark.parametrize("name", ADDITIVE | SMOOTH)
def test_scores_and_contributions_have_the_other_sign(name):
    _, _, _, of_first, of_second = explainers(name)
    first = of_first(NEW)
    second = of_second(NEW)
    np.testing.assert_allclose(first.predictions, -second.predictions, rtol=1e-12)
    np.testing.assert_allclose(first.targets, 1 - second.targets)
    np.testing.assert_allclose(first.weights, second.weights, rtol=1e-9, atol=1e-15)
    if name in ADDITIVE:
        np.testing.assert_allclose(first.contributions, -second.contributions, rtol=1e-12)
        np.testing.assert_allclose(first.intercepts, -second.intercepts, rtol=1e-12)
    sums = first.intercepts + first.contributions.sum(axis=-1)
    np.testing.assert_allclose(sums, first.predictions, rtol=1e-6)
    by_weight = of_first.jacobian.by_sample_weight(NEW)
    np.testing.assert_allclose(by_weight, -of_second.jacobian.by_sample_weight(NEW), rtol=1e-9)
    v = np.arange(N) / N
    np.testing.assert_allclose(
        of_first.jacobian.operator @ v, of_second.jacobian.operator @ v, rtol=1e-9, atol=1e-15
    )


@pytest.mark.parametrize("name", ADDITIVE)
def test_changes_of_the_training_rows(name):
    _, targets, (first, _), of_first, of_second = explainers(name)
    rows = list(X.index[[3, 40]])
    labels = dict.fromkeys(rows, first)
    groups = np.arange(N) % 3
    for tables in (
        [explainer.without(NEW, rows) for explainer in (of_first, of_second)],
        [explainer.what_if(NEW, labels) for explainer in (of_first, of_second)],
        [explainer.removal(NEW, groups=groups) for explainer in (of_first, of_second)],
    ):
        for column in ("before", "after", "change"):
            np.testing.assert_allclose(tables[0][column], -tables[1][column], rtol=1e-9, atol=1e-12)
        if "probability after" in tables[0]:
            sums = tables[0]["probability after"] + tables[1]["probability after"]
            np.testing.assert_allclose(sums, 1.0)
    effects = [e.removal(NEW, 3, method="first-order") for e in (of_first, of_second)]
    assert list(effects[0]["row"]) == list(effects[1]["row"])
    np.testing.assert_allclose(effects[0]["effect"], -effects[1]["effect"], rtol=1e-9)
    sums = [e.group(NEW, groups)["contribution"] for e in (of_first, of_second)]
    np.testing.assert_allclose(sums[0], -sums[1], rtol=1e-9)
    pd.testing.assert_frame_equal(of_first.find_label_issues(), of_second.find_label_issues())
    pd.testing.assert_frame_equal(
        of_first.influence(X[:20], targets[:20]), of_second.influence(X[:20], targets[:20])
    )


@pytest.mark.parametrize("name", ADDITIVE)
def test_similar_rows_speak_for_the_same_side(name):
    _, _, _, of_first, of_second = explainers(name)
    tables = [e.similar(NEW, 4, columns=[]) for e in (of_first, of_second)]
    assert list(tables[0]["row"]) == list(tables[1]["row"])
    np.testing.assert_allclose(tables[0]["target"], 1 - tables[1]["target"])
    for_it = [e.similar(NEW, 4, by="contribution", columns=[]) for e in (of_first, of_second)]
    assert list(for_it[0]["row"]) == list(for_it[1]["row"])


def test_a_refit_and_a_file_keep_the_class(tmp_path):
    model, _, _, of_first, _ = explainers("lightgbm")
    again = of_first.refit(drop=list(X.index[:5]))
    assert again.pos_label == "bad"
    after = of_first.without(NEW, list(X.index[:5]))
    expected = again.model.predict_proba(NEW)[:, 0]
    np.testing.assert_allclose(after["probability after"], expected, rtol=1e-5)
    of_first.save(tmp_path / "explainer.npz")
    loaded = axil.load(tmp_path / "explainer.npz", model)
    assert loaded.pos_label == "bad"
    pd.testing.assert_frame_equal(loaded.top(NEW, 2), of_first.top(NEW, 2))


def test_a_model_with_an_output_for_each_class(tmp_path):
    forest = RandomForestClassifier(5, random_state=0).fit(X, Y)
    explainer = axil.Explainer(forest, X, Y, pos_label="bad")
    assert explainer.pos_label == "bad"
    table = explainer.top(NEW, 1)
    assert list(table["output"]) == ["bad", "good"] * len(NEW)
    np.testing.assert_allclose(table["probability"], forest.predict_proba(NEW).ravel())
    assert list(table["prediction"]) == list(np.repeat(forest.predict(NEW), 2))
    explainer.save(tmp_path / "forest.npz")
    assert axil.load(tmp_path / "forest.npz", forest).pos_label == "bad"
    assert axil.Explainer(forest, X, Y).pos_label == "good"


def test_derivatives_of_probabilities():
    model, _, _, of_first, of_second = explainers("lightgbm", output="probability")
    first, second = (e(NEW).weights for e in (of_first, of_second))
    np.testing.assert_allclose(first, second)
    table = of_first.top(NEW, 1, by="weight")
    np.testing.assert_allclose(table["probability"], model.predict_proba(NEW)[:, 0])


def test_sums_of_scores_have_no_class():
    explainer = axil.Explainer(MODELS["lightgbm"](), X, Y, pos_label="bad")
    total = explainer.aggregate(NEW, "sum").top(1)
    assert list(total.columns[:3]) == ["query", "output", "score"]
    np.testing.assert_allclose(total["score"], explainer(NEW).predictions.sum())


@pytest.mark.parametrize("name", ["lightgbm", "logistic"])
def test_a_name_that_is_no_class(name):
    with pytest.raises(
        InputError, match="'worse'; expected a class of this model: 'bad' or 'good'"
    ):
        axil.Explainer(MODELS[name](), X, Y, pos_label="worse")


def test_models_without_two_classes():
    y = X["a"].to_numpy()
    with pytest.raises(InputError, match="this model predicts numbers"):
        axil.Explainer(lgb.LGBMRegressor(n_estimators=2).fit(X, y), X, y, pos_label=1)
    three = np.digitize(y, [-0.5, 0.5])
    model = lgb.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, three)
    with pytest.raises(InputError, match="this model predicts 3 classes"):
        axil.Explainer(model, X, three, pos_label=1)
