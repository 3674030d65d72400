"""The names of shap on an explanation, and its own Explanation where it is installed."""

import sys

import numpy as np
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import axil
from axil import InputError

DRAWS = np.random.default_rng(0)
X = DRAWS.random((60, 3))
Y = 100 * X[:, 0]
KINDS = np.array(["few", "many", "most"])[(3 * X[:, 0]).astype(int)]
CASES = {
    "numbers": lambda: (LGBMRegressor(n_estimators=3, verbose=-1).fit(X, Y), Y),
    "logarithms": lambda: (
        LGBMRegressor(n_estimators=3, verbose=-1).fit(X, np.log1p(Y)),
        np.log1p(Y),
    ),
    "classes": lambda: (RandomForestClassifier(3, random_state=0).fit(X, KINDS), KINDS),
    "two classes": lambda: (
        LGBMClassifier(n_estimators=3, verbose=-1).fit(X, KINDS == "few"),
        KINDS == "few",
    ),
    "two outputs": lambda: (
        RandomForestRegressor(3, random_state=0).fit(X, np.c_[Y, -Y]),
        np.c_[Y, -Y],
    ),
}


@pytest.fixture(params=CASES)
def case(request):
    model, y = CASES[request.param]()
    more = {"inverse_func": np.expm1} if request.param == "logarithms" else {}
    return axil.Explainer(model, X, y, **more)(X[:4]), np.expm1(y) if more else y


def test_values_and_base_values_sum_to_the_predictions(case):
    explanation, y = case
    assert explanation.values.shape == (4, 60, *explanation.predictions.shape[1:])
    made = explanation.values.sum(axis=1) + explanation.base_values
    np.testing.assert_allclose(made, explanation.predictions, rtol=1e-9, atol=1e-12)
    assert explanation.data.shape == np.shape(y)
    assert (np.isclose(explanation.data, y) if y.dtype.kind == "f" else explanation.data == y).all()


def test_an_explanation_of_shap(case):
    shap = pytest.importorskip("shap")
    explanation, _ = case
    found = explanation.to_shap()
    assert isinstance(found, shap.Explanation)
    assert np.array_equal(found.values, explanation.values)
    assert np.array_equal(found.base_values, explanation.base_values)
    assert found.feature_names == [str(i) for i in range(60)]
    assert found[0].values.shape == explanation.values.shape[1:]


def test_without_shap_it_says_what_to_install(case, monkeypatch):
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(InputError, match="pip install shap"):
        case[0].to_shap()
