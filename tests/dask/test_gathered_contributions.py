"""Label checks of classifiers over Dask collections: the numbers of one machine."""

import dask
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.ensemble import HistGradientBoostingClassifier

import axil
from tests.dask.dask_models import WEIGHTS, X, Y, partitioned, same_table
from tests.fits import explainer_of_fit

TWO = pd.Series(np.where(Y > 140, "high", "low"), index=Y.index)
THREE = pd.cut(Y, [0, 100, 180, 400], labels=False)
OFFSETS = pd.Series(np.linspace(-1, 1, len(Y)), index=Y.index)
LGB = {"n_estimators": 12, "num_leaves": 6, "verbose": -1, "n_jobs": 1}
CASES = {
    "two classes": (lgb.LGBMClassifier(**LGB), TWO, None, None),
    "three classes, weighted": (lgb.LGBMClassifier(**LGB), THREE, WEIGHTS, None),
    "offsets": (lgb.LGBMClassifier(**LGB), TWO, None, OFFSETS),
    "single precision": (
        xgb.XGBClassifier(n_estimators=8, max_depth=3, n_jobs=1),
        (Y > 140).astype(int),
        None,
        None,
    ),
    "scikit-learn": (HistGradientBoostingClassifier(max_iter=8), THREE, None, None),
}


@pytest.fixture(scope="module", params=CASES)
def pair(request):
    """Return the explainers of a classifier over Dask collections and in memory."""
    model, y, weights, offsets = CASES[request.param]
    arguments = {"sample_weight": weights, "init_score": offsets}
    model.fit(X, y, **{name: values for name, values in arguments.items() if values is not None})
    data = (X, y, weights, offsets)
    collections = [None if values is None else partitioned(values) for values in data]
    with dask.config.set(scheduler="synchronous"):
        return explainer_of_fit(model, *collections), explainer_of_fit(model, *data)


def numbers_of(table):
    return [name for name in table if table[name].dtype.kind == "f"]


def test_label_issues_are_those_of_one_machine(pair):
    over_dask, expected = (explainer.find_label_issues() for explainer in pair)
    same_table(over_dask, expected, numbers_of(expected))
    assert over_dask.attrs == expected.attrs


def test_probabilities_of_ones_own(pair):
    explainer, whole = pair
    n_classes = len(np.unique(whole.find_label_issues()["given_label"]))
    probabilities = np.random.default_rng(0).dirichlet(np.ones(n_classes), len(X))
    expected = whole.find_label_issues(out_of_fold=probabilities)
    over_dask = explainer.find_label_issues(out_of_fold=partitioned(probabilities))
    same_table(over_dask, expected, numbers_of(expected))


def test_comparables_without_suspects(pair):
    tables = [explainer.similar(X.iloc[[5, 17]], 4, suspects="drop") for explainer in pair]
    same_table(*tables, numbers_of(tables[1]))


def test_counts_are_refused_by_name():
    model = lgb.LGBMRegressor(objective="poisson", **LGB).fit(X, Y)
    explainer = axil.Explainer(model, partitioned(X), partitioned(Y))
    with pytest.raises(axil.UnsupportedQuestionError, match="counts or amounts"):
        explainer.find_label_issues()
