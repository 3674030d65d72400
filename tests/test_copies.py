"""Explainers and Predictive travel: pickled, copied and dumped by joblib, for every library and everything around a model."""

from __future__ import annotations

import copy
import io
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_diabetes
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    StackingRegressor,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge, RidgeCV
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    KFold,
    TunedThresholdClassifierCV,
)
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import axil

cat = pytest.importorskip("catboost")
lgb = pytest.importorskip("lightgbm")
sm = pytest.importorskip("statsmodels.api")
xgb = pytest.importorskip("xgboost")

FEATURES, TARGETS = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X, Y, HELD, Y_HELD, NEW = (
    FEATURES[:90],
    TARGETS[:90],
    FEATURES[90:130],
    TARGETS[90:130],
    FEATURES[130:133],
)
HIGH = (Y > 140).astype(int)

LGB = {"n_estimators": 5, "num_leaves": 4, "min_child_samples": 5, "verbose": -1, "n_jobs": 1}
CAT = {"iterations": 4, "depth": 2, "verbose": 0, "thread_count": 1, "allow_writing_files": False}


def scaled(model):
    return make_pipeline(StandardScaler(), model)


def forest(kind=RandomForestRegressor):
    return kind(5, max_depth=3, random_state=0)


REGRESSORS = {
    "lightgbm": lambda: lgb.LGBMRegressor(**LGB),
    "xgboost": lambda: xgb.XGBRegressor(n_estimators=4, max_depth=2, n_jobs=1),
    "catboost": lambda: cat.CatBoostRegressor(**CAT),
    "forest": forest,
    "extra trees": lambda: forest(ExtraTreesRegressor),
    "tree": lambda: DecisionTreeRegressor(max_depth=3),
    "gradient boosting": lambda: GradientBoostingRegressor(n_estimators=4, random_state=0),
    "hist gradient boosting": lambda: HistGradientBoostingRegressor(max_iter=4),
    "ridge": lambda: scaled(Ridge()),
    "ridge of a grid": lambda: scaled(RidgeCV()),
    "kernel ridge": lambda: scaled(KernelRidge(kernel="rbf")),
    "gaussian process": lambda: scaled(GaussianProcessRegressor(optimizer=None, alpha=0.1)),
    "neighbours": lambda: scaled(KNeighborsRegressor(5)),
    "pipeline": lambda: scaled(lgb.LGBMRegressor(**LGB)),
    "search": lambda: GridSearchCV(lgb.LGBMRegressor(**LGB), {"num_leaves": [3, 4]}, cv=2),
    "search of a pipeline": lambda: GridSearchCV(
        scaled(Ridge()), {"ridge__alpha": [1.0, 10.0]}, cv=2
    ),
    "transformed target": lambda: TransformedTargetRegressor(
        lgb.LGBMRegressor(**LGB), func=np.log, inverse_func=np.exp
    ),
    "scaled target": lambda: TransformedTargetRegressor(
        scaled(Ridge()), transformer=StandardScaler()
    ),
    "voting": lambda: VotingRegressor([("a", scaled(Ridge())), ("b", lgb.LGBMRegressor(**LGB))]),
    "stacking": lambda: StackingRegressor(
        [("a", scaled(Ridge())), ("b", lgb.LGBMRegressor(**LGB))], Ridge(), cv=KFold(2)
    ),
    "bagging of ridge": lambda: BaggingRegressor(Ridge(), 4, random_state=0),
    "bagging of trees": lambda: BaggingRegressor(n_estimators=4, random_state=0),
    "several outputs": lambda: MultiOutputRegressor(lgb.LGBMRegressor(**LGB)),
}
CLASSIFIERS = {
    "lightgbm": lambda: lgb.LGBMClassifier(**LGB),
    "xgboost": lambda: xgb.XGBClassifier(n_estimators=4, max_depth=2, n_jobs=1),
    "catboost": lambda: cat.CatBoostClassifier(**CAT),
    "gradient boosting": lambda: GradientBoostingClassifier(n_estimators=4, random_state=0),
    "hist gradient boosting": lambda: HistGradientBoostingClassifier(max_iter=4),
    "forest": lambda: forest(RandomForestClassifier),
    "logistic": lambda: scaled(LogisticRegression()),
    "pipeline": lambda: scaled(lgb.LGBMClassifier(**LGB)),
    "search": lambda: GridSearchCV(lgb.LGBMClassifier(**LGB), {"num_leaves": [3, 4]}, cv=2),
    "voting": lambda: VotingClassifier(
        [("a", forest(RandomForestClassifier)), ("b", forest(RandomForestClassifier))],
        voting="soft",
    ),
    "bagging": lambda: BaggingClassifier(n_estimators=4, random_state=0),
    "threshold": lambda: FixedThresholdClassifier(lgb.LGBMClassifier(**LGB), threshold=0.4),
    "tuned threshold": lambda: TunedThresholdClassifierCV(lgb.LGBMClassifier(**LGB), cv=2),
    "calibrated": lambda: CalibratedClassifierCV(
        forest(RandomForestClassifier), cv=2, ensemble=False
    ),
}


def by_joblib(thing):
    file = io.BytesIO()
    joblib.dump(thing, file)
    file.seek(0)
    return joblib.load(file)


DOORS = {
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    "copy": copy.deepcopy,
    "joblib": by_joblib,
}


def answers(explainer):
    """Numbers of several questions; a question that a kind refuses has none."""
    found = [np.asarray(explainer(NEW).contributions)]
    for ask in (lambda: explainer.top(NEW, 3), lambda: explainer.without(NEW, [3, 5])):
        try:
            found.append(np.nan_to_num(ask().select_dtypes("number").to_numpy(dtype=np.float64)))
        except axil.UnsupportedQuestionError:
            found.append(np.zeros(0))
    return found


def same(explainer):
    """Whether every copy gives the same bits."""
    expected = answers(explainer)
    for name, door in DOORS.items():
        other = door(explainer)
        assert other.kind == explainer.kind
        for ours, theirs in zip(expected, answers(other), strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=name)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", REGRESSORS)
def test_explainers_of_regressors_and_their_intervals_travel(name):
    y = np.column_stack([Y, -Y]) if name == "several outputs" else Y
    explainer = axil.Explainer(REGRESSORS[name]().fit(X, y), X, y)
    same(explainer)
    held = np.column_stack([Y_HELD, -Y_HELD]) if y.ndim == 2 else Y_HELD
    predictive = explainer.calibrate(HELD, held)
    expected = predictive.interval(NEW)
    for door in DOORS.values():
        pd.testing.assert_frame_equal(door(predictive).interval(NEW), expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CLASSIFIERS)
def test_explainers_of_classifiers_travel(name):
    same(axil.Explainer(CLASSIFIERS[name]().fit(X, HIGH), X, HIGH))


def asymmetric(y, score):
    """An objective of the user's own."""
    error = score - y
    return np.where(error > 0, 1.5, 1.0) * error, np.where(error > 0, 1.5, 1.0)


def test_explainers_of_native_models_and_of_functions_travel():
    booster = lgb.train(
        {"objective": "regression", "verbose": -1, "num_leaves": 4}, lgb.Dataset(X, Y), 4
    )
    native = xgb.train({"max_depth": 2}, xgb.DMatrix(X, Y), 4)
    for model, rows in ((booster, X), (native, X), (sm.OLS(Y, X).fit(), X)):
        same(axil.Explainer(model, rows, Y))
    same(axil.Explainer(lgb.LGBMRegressor(objective="poisson", **LGB).fit(X, Y), X, Y))
    own = lgb.LGBMRegressor(objective=asymmetric, **LGB).fit(X, Y)
    same(axil.Explainer(own, X, Y, objective=asymmetric))
    logs = lgb.LGBMRegressor(**LGB).fit(X, np.log(Y))
    same(axil.Explainer(logs, X, np.log(Y), inverse_func=np.exp))


def test_explainers_of_rows_in_partitions_travel_while_the_workers_are_there():
    frames = pytest.importorskip("dask.dataframe")
    distributed = pytest.importorskip("distributed")
    model = lgb.LGBMRegressor(**LGB).fit(X, Y)
    parts = frames.from_pandas(X, npartitions=2), frames.from_pandas(Y, npartitions=2)
    same(axil.Explainer(model, *parts))
    with (
        distributed.LocalCluster(
            1, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        explainer = axil.Explainer(model, *parts)
        pickled = pickle.dumps(explainer)
        np.testing.assert_array_equal(
            pickle.loads(pickled).top(NEW, 2)["weight"], explainer.top(NEW, 2)["weight"]
        )
    with pytest.raises(
        axil.InputError, match="held by the workers of a Dask cluster, and no client is open"
    ):
        pickle.loads(pickled).top(NEW, 2)
