"""The fewest targets that move a prediction across a threshold, against all subsets and against what_if."""

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
)
from sklearn.linear_model import RidgeClassifier

import axil
from axil import InputError
from axil.methods.method import verified_model
from tests.contract_models import case_of, explainer_of


@pytest.fixture(scope="module")
def nine():
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(9, 2)), rng.uniform(1, 5, 9)
    model = GradientBoostingRegressor(n_estimators=6, max_depth=2, random_state=0).fit(X, y)
    return axil.Explainer(model, X, y), rng.normal(size=(4, 2))


def fewest_of(K, y, low, high, predictions, threshold, codes):
    """The smallest number of groups, over all subsets of them, that reach the threshold with each target at its better end."""
    found = []
    for k, prediction in zip(K, predictions):
        sign = 1.0 if threshold > prediction else -1.0
        best = None
        for size in range(codes.max() + 2):
            for chosen in combinations(range(codes.max() + 1), size):
                moved = np.where(np.isin(codes, chosen), np.where(sign * k > 0, high, low), y)
                if sign * (prediction + k @ (moved - y)) >= sign * threshold:
                    best = size
                    break
            if best is not None:
                break
        found.append(np.nan if best is None else best)
    return found


@pytest.mark.parametrize("threshold", [2.0, 2.9, 3.3, 9.0])
@pytest.mark.parametrize("codes", [np.arange(9), np.arange(9) % 4], ids=["rows", "groups"])
@pytest.mark.parametrize("pair", [False, True])
def test_no_smaller_set_crosses_the_threshold(nine, threshold, codes, pair):
    explainer, X = nine
    explanation = explainer(X)
    y = explainer.targets
    far = np.linspace(0.0, 2.0, 9)
    low, high = (np.full(9, 1.0), np.full(9, 5.0)) if pair else (y - far, y + far)
    groups = None if codes.max() == 8 else codes
    frame = explainer.min_label_changes(
        X, threshold, (1.0, np.full(9, 5.0)) if pair else far, groups=groups
    )
    expected = fewest_of(
        explanation.weights, y, low, high, explanation.predictions, threshold, codes
    )
    np.testing.assert_array_equal(frame["fewest"], expected)
    np.testing.assert_allclose(frame["prediction"], explanation.predictions)
    assert "exact" in frame.attrs["axil"]


@pytest.mark.parametrize(
    ("library", "name"),
    [("lightgbm", "weighted"), ("xgboost", "one_output_per_tree"), ("smoother", "neighbours")],
)
def test_listed_rows_move_predictions_as_what_if_says(library, name):
    case, explainer = case_of(library, name), explainer_of(library, name)
    X, n_outputs = case.X_new[:3], verified_model(explainer).targets.shape[1]
    queries = verified_model(explainer).queries(X)
    predictions = verified_model(explainer).predicted(queries)
    threshold = float(predictions.max() + 0.2 * np.ptp(verified_model(explainer).targets[:, 0]))
    far = 0.5 * np.ptp(verified_model(explainer).targets[:, 0])
    counted = explainer.min_label_changes(X, threshold, far)
    listed = explainer.min_label_changes(X, threshold, far, listed=True)
    assert counted["fewest"].notna().any()
    for i in range(3):
        for k in range(n_outputs):
            own = listed[listed["query"] == queries.labels[i]]
            own = own if n_outputs == 1 else own[own["output"] == k]
            fewest = counted["fewest"][i * n_outputs + k]
            assert len(own) == (0 if np.isnan(fewest) else fewest)
            if not len(own):
                continue
            weights = explainer.jacobian.sensitivity(X, list(own["row"]))
            weights = weights if weights.ndim == 2 else weights[:, k]
            new = {}
            for row, weight in zip(own["row"], weights[i]):
                new[row] = verified_model(explainer).targets[row].copy()
                new[row][k] += far * np.sign(weight)
            new = {row: value if n_outputs > 1 else value[0] for row, value in new.items()}
            change = explainer.what_if(X, new)["change"].to_numpy().reshape(3, n_outputs)[i, k]
            np.testing.assert_allclose(
                own["prediction"].iloc[-1] - predictions[i, k], change, rtol=1e-9
            )
            assert own["prediction"].iloc[-1] >= threshold > predictions[i, k]
            assert len(own) == 1 or own["prediction"].iloc[-2] < threshold


def test_classes_have_the_columns_of_other_tables():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 3))
    y = np.where(X[:, 0] + 0.4 * rng.normal(size=60) > 0, "yes", "no")
    model = RandomForestClassifier(7, min_samples_leaf=4, random_state=0).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    counted = explainer.min_label_changes(X[:5], 0.5, (0.0, 1.0))
    assert list(counted.columns) == [
        "query", "output", "prediction", "probability", "fewest", "furthest",
    ]  # fmt: skip
    assert list(counted["prediction"]) == list(np.repeat(model.predict(X[:5]), 2))
    np.testing.assert_allclose(counted["probability"], model.predict_proba(X[:5]).ravel())
    listed = explainer.min_label_changes(X[:5], 0.5, (0.0, 1.0), listed=True)
    assert list(listed.columns) == ["query", "output", "rank", "row", "change", "probability"]
    lines = listed.groupby(["query", "output"])
    before = counted.set_index(["query", "output"])["probability"]
    after = before + lines["change"].sum()
    np.testing.assert_allclose(lines["probability"].last(), after[lines["rank"].max().index])


def test_scores_and_calibrated_probabilities():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 3))
    y = (X[:, 0] + 0.4 * rng.normal(size=60) > 0).astype(int)
    forest = ExtraTreesClassifier(7, min_samples_leaf=4, random_state=0)
    calibrated = CalibratedClassifierCV(forest, ensemble=False).fit(X, y)
    for model, names in (
        (RidgeClassifier().fit(X, y), ["score"]),
        (calibrated, ["score", "probability"]),
    ):
        explainer = axil.Explainer(model, X, y)
        counted = explainer.min_label_changes(X[:5], 0.5, (0.0, 1.0))
        assert list(counted.columns)[2:-2] == ["prediction", *names]
        assert list(counted["prediction"]) == list(np.repeat(model.predict(X[:5]), 2))
        listed = explainer.min_label_changes(X[:5], 0.5, (0.0, 1.0), listed=True)
        assert listed.columns[-1] == "score"
    probabilities = calibrated.predict_proba(X[:5])
    np.testing.assert_allclose(counted["probability"], probabilities.ravel())


def test_on_the_threshold_and_nothing_to_explain(nine):
    explainer, X = nine
    at = float(explainer(X[:1]).predictions[0])
    assert explainer.min_label_changes(X[:1], at, 1.0)["fewest"][0] == 0
    assert list(explainer.min_label_changes(X[:0], at, 1.0).columns) == [
        "query",
        "prediction",
        "fewest",
        "furthest",
    ]
    assert list(explainer.min_label_changes(X[:0], at, 1.0, listed=True).columns) == [
        "query",
        "rank",
        "row",
        "change",
        "prediction",
    ]
    assert np.isnan(explainer.min_label_changes(X[:1], at + 1, 0.0)["fewest"][0])


def test_refusals(nine):
    explainer, X = nine
    for bounds, message in [
        (-1.0, "numbers from 0 up"),
        (np.ones(3), "bounds has shape"),
        ((0.0, 1.0, 2.0), "bounds has 3 parts"),
        (
            (3.0, 5.0),
            r"beyond its bounds from 3 to 5; expected bounds that hold the targets, as y_train was "
            r"given\.",
        ),
    ]:
        with pytest.raises(InputError, match=message):
            explainer.min_label_changes(X, 1.0, bounds)
    with pytest.raises(InputError, match="threshold"):
        explainer.min_label_changes(X, "high", 1.0)
    with pytest.raises(InputError, match="groups"):
        explainer.min_label_changes(X, 1.0, 1.0, groups=[1, 2])


def test_prices_where_logarithms_are_expected():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=60)}, index=[f"home {i}" for i in range(60)])
    logs = 12 + X["a"] / 5
    model = LGBMRegressor(n_estimators=5, verbose=-1).fit(X, logs)
    explainer = axil.Explainer(model, X, logs, inverse_func=np.exp)
    given = r"is no target of this model. Pass targets as y_train was given, transformed \(log\)"
    with pytest.raises(InputError, match=f"threshold holds 300000, which {given}"):
        explainer.min_label_changes(X[:2], threshold=300_000, bounds=(50_000, 2e6))
    with pytest.raises(InputError, match=f"bounds holds 50000, which {given}"):
        explainer.min_label_changes(X[:2], threshold=12.5, bounds=(50_000, 2e6))
    with pytest.raises(
        InputError,
        match=r"'home \d+' is 1.*, beyond its bounds from 5 to 6; .*, transformed \(log\)",
    ):
        explainer.min_label_changes(X[:2], threshold=12.5, bounds=(5.0, 6.0))
