"""Booster.refit with decay_rate=0: every leaf value is computed again, from the new data alone."""

from __future__ import annotations

import pickle
from functools import cache

import lightgbm as lgb
import numpy as np
import pytest

import axil
from tests.adapters.common import check_refusal, table
from tests.adapters.lightgbm_models import VERSION

OLD, NEW = table(300, 50), table(240, 50, seed=1)
PLAIN = {
    "objective": "regression",
    "verbose": -1,
    "num_leaves": 6,
    "learning_rate": 0.13,
    "min_data_in_leaf": 5,
}


def train(keep_training_booster=False, **settings):
    data = lgb.Dataset(OLD.X, OLD.y, free_raw_data=False)
    return lgb.train({**PLAIN, **settings}, data, 6, keep_training_booster=keep_training_booster)


CASES = {
    "plain": lambda: (train(), {}),
    "from zero": lambda: (train(boost_from_average=False), {}),
    "monotone": lambda: (train(monotone_constraints=[1, -1, 0, 0, 0, 0, 0, 0]), {}),
    "l2": lambda: (train(lambda_l2=3.0), {}),
    "weighted": lambda: (train(lambda_l2=1.0), {"weight": NEW.weight}),
    "offsets": lambda: (train(), {"init_score": NEW.offset}),
    "bagging": lambda: (train(bagging_fraction=0.5, bagging_freq=1), {}),
    "goss": lambda: (train(data_sample_strategy="goss", learning_rate=0.5), {}),
    "categories": lambda: (train(categorical_feature=[6], max_cat_to_onehot=1, cat_l2=7.0), {}),
    "single leaf": lambda: (train(min_data_in_leaf=200), {}),
    "many digits": lambda: (train(learning_rate=0.1234567891), {}),
    "many digits in memory": lambda: (
        train(learning_rate=0.1234567891, keep_training_booster=True),
        {},
    ),
    "rate of one": lambda: (train(learning_rate=1.0), {}),
}
if VERSION < (4, 2):  # whose Booster.refit fails for a single tree
    del CASES["single leaf"]


@cache
def refit(name):
    model, given = CASES[name]()
    return model.refit(NEW.X, NEW.y, decay_rate=0.0, **given), given


def explainer(model, given, X=NEW.X, y=NEW.y):
    return axil.Explainer(
        model, X, y, sample_weight=given.get("weight"), init_score=given.get("init_score")
    )


@pytest.mark.parametrize("name", CASES)
def test_weights_make_the_predictions_of_a_refit(name):
    model, given = refit(name)
    loaded = lgb.Booster(model_str=model.model_to_string())
    for one in (model, pickle.loads(pickle.dumps(model)), loaded):
        assert axil.supports(one).exact
        made = explainer(one, given)
        expected = model.predict(NEW.X_new)
        # LightGBM keeps targets and residuals in float32
        np.testing.assert_allclose(
            made(NEW.X_new).predictions, expected, rtol=0, atol=1e-6 * np.abs(expected).max()
        )


@pytest.mark.parametrize("name", CASES)
def test_a_what_if_is_a_refit_to_other_targets(name):
    model, given = refit(name)
    changed = NEW.y.copy()
    changed[:5] += 2.0
    explanation = explainer(model, given).what_if(NEW.X_new, dict(zip(range(5), changed[:5])))
    again = CASES[name]()[0].refit(NEW.X, changed, decay_rate=0.0, **given)
    expected = again.predict(NEW.X_new)
    np.testing.assert_allclose(
        explanation["after"].to_numpy(), expected, rtol=0, atol=1e-6 * np.abs(expected).max()
    )


@pytest.mark.parametrize("name", CASES)
def test_other_data_than_those_of_the_refit_show(name):
    model, given = refit(name)
    one, two = NEW.y.copy(), NEW.y.copy()
    one[3] += 0.1
    two[[4, 90]] = two[[90, 4]]
    fewer = {key: value[1:] for key, value in given.items()}
    wrong = [(given, NEW.X, one), (fewer, NEW.X[1:], NEW.y[1:])]
    if name != "single leaf":  # a single mean does not change when rows change places
        wrong.append((given, NEW.X, two))
    for how, X, y in wrong:
        with pytest.raises(axil.ExactnessError):
            explainer(model, how, X, y)


@pytest.mark.parametrize(
    ("settings", "value"),
    [
        ({"lambda_l1": 1.0}, "0.0 with lambda_l1"),
        ({"max_delta_step": 0.9}, "0.0 with max_delta_step"),
        ({"boosting": "dart"}, "0.0 with boosting=dart"),
        ({"boosting": "rf", "bagging_fraction": 0.5, "bagging_freq": 1}, "0.0 with boosting=rf"),
    ],
)
def test_refits_of_other_models_are_refused(settings, value):
    model = train(**settings).refit(NEW.X, NEW.y, decay_rate=0.0)
    check_refusal(model, "refit_decay_rate", value, None)


def test_no_derivative_of_a_refit():
    model = lgb.train(
        {**PLAIN, "objective": "binary"}, lgb.Dataset(OLD.X, OLD.y > 5, free_raw_data=False), 3
    )
    found = axil.supports(model.refit(NEW.X, NEW.y > 5, decay_rate=0.0))
    assert (found.kind, found.setting) == ("no", "refit_decay_rate")


def test_path_smooth_is_refused_of_a_file():
    """LightGBM itself crashes when it refits such a model."""
    text = refit("plain")[0].model_to_string().replace("[path_smooth: 0]", "[path_smooth: 2]")
    check_refusal(lgb.Booster(model_str=text), "refit_decay_rate", "0 with path_smooth", None)


def test_a_mixture_of_two_fits_is_refused_also_from_a_file():
    model = train().refit(NEW.X, NEW.y, decay_rate=0.5)
    for one in (model, lgb.Booster(model_str=model.model_to_string())):
        check_refusal(one, "refit_decay_rate", "0.5", "(ii)")
