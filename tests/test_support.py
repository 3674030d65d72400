"""Whether a model can be explained, told without data."""

import lightgbm as lgb
import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LinearRegression
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler, TargetEncoder

import axil
from tests.adapters.smoother_models import CASES as SMOOTHERS

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 3)), RNG.normal(size=60)
QUIET = {"verbose": -1, "n_estimators": 2}


@pytest.mark.parametrize(
    ("model", "kind", "setting"),
    [
        (lgb.LGBMRegressor(**QUIET).fit(X, Y), "exact", None),
        (lgb.LGBMRegressor(**QUIET, reg_alpha=1.0).fit(X, Y), "exact", None),
        (lgb.LGBMRegressor(**QUIET, objective="fair").fit(X, Y), "additive", "objective"),
        (lgb.LGBMRegressor(**QUIET, objective="huber").fit(X, Y), "exact", None),
        (lgb.LGBMRegressor(**QUIET, objective="l1").fit(X, Y), "exact", None),
        (lgb.LGBMClassifier(**QUIET).fit(X, Y > 0), "additive", "objective"),
        (RandomForestClassifier(2).fit(X, Y > 0), "exact", None),
        (GradientBoostingClassifier(n_estimators=2).fit(X, Y > 0), "additive", "class"),
        (MLPRegressor(hidden_layer_sizes=(2,), max_iter=5).fit(X, Y), "derivative", "class"),
        (MLPRegressor(hidden_layer_sizes=(2,), max_iter=5, alpha=0.0).fit(X, Y), "no", "alpha"),
        (
            make_pipeline(StandardScaler(), MLPRegressor(hidden_layer_sizes=(2,), max_iter=5, alpha=0.0)).fit(X, Y),
            "no",
            "alpha",
        ),
        (make_pipeline(StandardScaler(), LinearRegression()).fit(X, Y), "exact", None),
        (make_pipeline(TargetEncoder(), LinearRegression()).fit(X.round(), Y), "no", "transformer"),
        ("a file name", "no", None),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_kinds(model, kind, setting):
    found = axil.supports(model)
    assert (found.kind, found.setting) == (kind, setting)
    assert found.exact == bool(found) == (kind == "exact")
    assert found.reason


def test_an_unfitted_model_cannot_be_judged():
    with pytest.raises(axil.InputError, match="not been fitted"):
        axil.supports(lgb.LGBMRegressor())


@pytest.mark.parametrize("name", SMOOTHERS)
def test_smoothers_and_pipelines(name):
    assert axil.supports(SMOOTHERS[name]().model).exact


@pytest.mark.parametrize(
    ("module", "attribute"),
    [
        ("mlforecast.forecast", "models_"),
        ("skforecast.recursive", "estimator"),
        ("darts.models.forecasting.regression_model", "its model"),
        ("sktime.forecasting.compose._reduce", "estimator_"),
        ("mlflow.pyfunc", "get_raw_model"),
    ],
)
def test_objects_around_a_model_name_what_to_pass(module, attribute):
    around = type("Forecaster", (), {"__module__": module})()
    found = axil.supports(around)
    assert found.kind == "no"
    assert attribute in found.reason
    assert f"{module}.Forecaster" in found.reason
    with pytest.raises(axil.InputError, match=attribute):
        axil.Explainer(around, X, Y)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_the_advice_for_encodings_by_the_targets_works():
    from sklearn.base import clone

    model = make_pipeline(TargetEncoder(random_state=0), LinearRegression()).fit(X.round(), Y)
    assert "sklearn.base.clone(model[:-1]).fit_transform(X, y)" in axil.supports(model).reason
    Z = clone(model[:-1]).fit_transform(X.round(), Y)
    explained = axil.Explainer(model[-1], Z, Y)(model[:-1].transform(X.round()[:3]))
    np.testing.assert_allclose(explained.predictions, model.predict(X.round()[:3]))
