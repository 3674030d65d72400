"""Shapley values by the libraries themselves, of models refitted without all rows of some leaves."""

import numpy as np
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from xgboost import DMatrix, XGBClassifier, XGBRegressor, XGBRFRegressor

import axil

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3)).astype(np.float32)
Y = X[:, 0] + 0.3 * RNG.normal(size=80)
GONE = list(np.flatnonzero(X[:, 0] > 0.3))

LIGHT = {"n_estimators": 8, "min_child_samples": 2, "n_jobs": 1, "verbose": -1}
BAGS = {"bagging_freq": 1, "bagging_fraction": 0.6}
XGB = {"n_estimators": 8, "max_depth": 5, "n_jobs": 1}
MODELS = {
    "lightgbm": lambda: LGBMRegressor(**LIGHT),
    "lightgbm bagged": lambda: LGBMRegressor(**LIGHT, **BAGS),
    "lightgbm rf": lambda: LGBMRegressor(boosting_type="rf", **LIGHT, **BAGS),
    "lightgbm classes": lambda: LGBMClassifier(**LIGHT),
    "xgboost": lambda: XGBRegressor(**XGB),
    "xgboost rf": lambda: XGBRFRegressor(**XGB),
    "xgboost classes": lambda: XGBClassifier(**XGB),
}


@pytest.mark.filterwarnings("ignore::axil.SplitsWarning")
@pytest.mark.parametrize("name", MODELS)
def test_contributions_add_up_to_predictions(name):
    y = (Y > 0).astype(int) if name.endswith("classes") else Y
    model = MODELS[name]().fit(X, y)
    again = axil.Explainer(model, X, y).refit(drop=GONE)
    if name.startswith("lightgbm"):
        booster = again.model.booster_
        contributions = booster.predict(X, pred_contrib=True)
        scores = booster.predict(X, raw_score=True)
    else:
        booster, rows = again.model.get_booster(), DMatrix(X)
        contributions = booster.predict(rows, pred_contribs=True)
        scores = booster.predict(rows, output_margin=True)
    assert np.isfinite(contributions).all()
    np.testing.assert_allclose(contributions.sum(axis=1), scores, rtol=0, atol=1e-5)
    twice = again.refit(drop=list(again.index[:3]))
    assert twice.verification is not None


@pytest.mark.filterwarnings("ignore::axil.SplitsWarning")
@pytest.mark.parametrize("kind", [GradientBoostingRegressor, RandomForestRegressor])
def test_nodes_of_scikit_learn_have_weight(kind):
    model = kind(n_estimators=5, random_state=0).fit(X, Y)
    again = axil.Explainer(model, X, Y).refit(drop=GONE).model
    for tree in np.ravel(again.estimators_):
        weights = tree.tree_.weighted_n_node_samples
        assert (weights > 0).all()
        assert (tree.tree_.n_node_samples[weights < 1e-9] == 0).all()
