"""What trees have left to fit of the labels, by the schedules of real models and by hand."""

import lightgbm as lgb
import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier
from xgboost import XGBClassifier, XGBRFClassifier

import axil
from axil.adapters.boosted_fit import Schedule
from axil.methods.method import verified_model

SETTINGS = {"n_estimators": 4, "verbose": -1, "n_jobs": 1}
FALLING = [1.0, 0.9, 0.81, 0.729]
MODELS = {
    "LightGBM": (lgb.LGBMClassifier(**SETTINGS), FALLING),
    "random forest": (
        lgb.LGBMClassifier(boosting_type="rf", subsample=0.6, subsample_freq=1, **SETTINGS),
        [1.0] * 4,
    ),
    "XGBoost, two trees a round": (
        XGBClassifier(n_estimators=2, learning_rate=0.5, num_parallel_tree=2),
        [1.0, 1.0, 0.5, 0.5],
    ),
    "XGBoost, one round": (XGBRFClassifier(n_estimators=4), [1.0] * 4),
    "stages": (GradientBoostingClassifier(n_estimators=4), FALLING),
}


@pytest.mark.parametrize("name", MODELS)
def test_unfitted_shares_of_models(name):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    y = (X[:, 0] + rng.normal(size=120) > 0).astype(int)
    model, expected = MODELS[name]
    boosting = verified_model(axil.Explainer(model.fit(X, y), X, y)).boosting
    np.testing.assert_allclose(boosting.unfitted_shares, expected, rtol=1e-6)


def test_unfitted_shares_of_outputs_and_dropped_trees():
    """The trees of one output leave the labels of another alone; a dropped tree leaves them too."""
    by_output = Schedule.in_stages(np.array([0.5, 0.1, 0.5, 0.1, 0.5, 0.1]), 2)
    np.testing.assert_allclose(by_output.unfitted_shares, [1, 1, 0.5, 0.9, 0.25, 0.81])
    tree_shares = np.array([[0, 0, 0], [0.5, 0, 0], [0, 0.5, 0], [0.3, 0.3, 0.3]])
    dropped = Schedule(np.full(3, 0.5), np.arange(3), None, tree_shares, np.ones(4))
    np.testing.assert_allclose(dropped.unfitted_shares, [1.0, 0.5, 0.75])
    unstated = Schedule.one_by_one(np.array([np.nan, 1.5, 0.1]))
    np.testing.assert_allclose(unstated.unfitted_shares, [1.0, 1.0, 0.0])
