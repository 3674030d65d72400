"""Intervals over Dask collections: the numbers of one machine, whatever the errors of the training rows come from."""

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from catboost import CatBoostRegressor
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor

import axil
from axil.methods.method import verified_model
from tests.dask.dask_models import partitioned
from tests.fits import explainer_of_fit

X, Y = load_diabetes(return_X_y=True, as_frame=True)
FIT, CAL, NEW = X[:250], X[250:380], X[380:]
WEIGHTS = np.random.default_rng(0).uniform(0.5, 2, len(FIT))
BOTH = np.column_stack([Y, np.sqrt(Y)])
QUIET = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
MODELS = {
    "lightgbm": (lambda: lgb.LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1), None),
    "xgboost outputs": (
        lambda: xgb.XGBRegressor(n_estimators=10, max_depth=3, n_jobs=1, base_score=0.5),
        BOTH,
    ),
    "catboost": (
        lambda: CatBoostRegressor(iterations=10, depth=3, **QUIET, boosting_type="Plain"),
        None,
    ),
}


def same(found, expected):
    """Sums over partitions are added in another order: 1e-11, of atoms that are exponentials of what a ridge leaves over.

    uncertainty_rank is a rank: a query in the leaves of a calibration row has the same scale but for the last bit.
    """
    queries = NEW.iloc[:20]
    for symmetric in (True, False):
        ours, theirs = (
            one.interval(queries, 0.8, symmetric=symmetric) for one in (found, expected)
        )
        assert list(ours.columns) == list(theirs.columns)
        for name in theirs.columns:
            tie = 1.01 / found.n_calibration if name == "uncertainty_rank" else 0.0
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-11, atol=tie)
        assert ours.attrs == theirs.attrs
    for ask in (lambda one: one.quantiles(queries, [0.1, 0.5]), lambda one: one.std(queries)):
        np.testing.assert_allclose(ask(found), ask(expected), rtol=1e-11)
    np.testing.assert_allclose(found.predict(queries), expected.predict(queries), rtol=1e-12)
    np.testing.assert_array_equal(
        found.sample(queries, 3, random_state=1).shape,
        expected.sample(queries, 3, random_state=1).shape,
    )
    ours, theirs = found.why(queries, 4), expected.why(queries, 4)
    assert list(ours.columns) == list(theirs.columns)
    np.testing.assert_array_equal(ours["row"], theirs["row"])
    for name in ("weight", "error", "share"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-11, atol=1e-13)
    assert (found.training_errors, found.source, found.n_calibration) == (
        expected.training_errors,
        "held out",
        expected.n_calibration,
    )


@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_of_one_machine(name):
    make, targets = MODELS[name]
    y = (Y.to_numpy() if targets is None else targets)[: len(FIT)]
    truth = (Y.to_numpy() if targets is None else targets)[250:380]
    model = make().fit(FIT, y, sample_weight=WEIGHTS)
    explainer = explainer_of_fit(model, *map(partitioned, (FIT, y, WEIGHTS)))
    whole = axil.Explainer(model, FIT, y, sample_weight=WEIGHTS)
    same(explainer.calibrate(CAL, truth), whole.calibrate(CAL, truth))
    if name == "lightgbm":
        same(
            explainer.calibrate(CAL, truth, method="exact"),
            whole.calibrate(CAL, truth, method="exact"),
        )
    folds = y[::-1].copy()
    same(
        explainer.calibrate(CAL, truth, out_of_fold=partitioned(folds)),
        whole.calibrate(CAL, truth, out_of_fold=folds),
    )


def test_out_of_bag():
    forest = RandomForestRegressor(20, min_samples_leaf=3, random_state=0).fit(FIT, Y[:250])
    whole = axil.Explainer(forest, FIT, Y[:250])
    s = verified_model(whole).engines[0].structure
    bags = s.sample_counts[s.cells // s.n_leaves[:, None]].T
    explainer = explainer_of_fit(
        forest, *map(partitioned, (FIT, Y[:250])), in_bag=partitioned(bags)
    )
    same(explainer.calibrate(CAL, Y[250:380]), whole.calibrate(CAL, Y[250:380]))


def test_training_rows_are_no_calibration_rows():
    model = lgb.LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1).fit(FIT, Y[:250])
    explainer = axil.Explainer(model, partitioned(FIT), partitioned(Y[:250]))
    with pytest.raises(axil.InputError, match="100 of the 100 calibration rows are training rows"):
        explainer.calibrate(FIT[:100], Y[:100])
    with pytest.warns(UserWarning, match="30 of the 130 calibration rows are training rows"):
        few = explainer.calibrate(X[220:350], Y[220:350])
    assert few.n_calibration == 100


def test_what_is_refused():
    model = lgb.LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1).fit(FIT, Y[:250])
    explainer = axil.Explainer(model, partitioned(FIT), partitioned(Y[:250]))
    with pytest.raises(axil.UnsupportedQuestionError, match="calibrate without X_cal and y_cal"):
        explainer.calibrate()
    with pytest.raises(axil.InputError, match="y_cal is missing"):
        explainer.calibrate(CAL)
    with pytest.raises(axil.InputError, match="X_cal has no rows"):
        explainer.calibrate(CAL[:0], Y[:0])
    with pytest.raises(axil.InputError, match="out_of_fold is a numpy"):
        explainer.calibrate(CAL, Y[250:380], out_of_fold=np.zeros(250))
    predictive = explainer.calibrate(CAL, Y[250:380])
    with pytest.raises(axil.UnsupportedQuestionError, match="to_html of intervals"):
        predictive.to_html(NEW)
    alone = lgb.LGBMRegressor(
        n_estimators=3,
        num_leaves=200,
        min_child_samples=1,
        min_child_weight=0,
        n_jobs=1,
        verbose=-1,
    )
    lonely = axil.Explainer(alone.fit(FIT, Y[:250]), partitioned(FIT), partitioned(Y[:250]))
    with pytest.raises(axil.UnsupportedQuestionError, match="most training rows are alone"):
        lonely.calibrate(CAL, Y[250:380], method="exact")
    smoothed = lgb.LGBMRegressor(n_estimators=3, path_smooth=2.0, n_jobs=1, verbose=-1).fit(
        FIT, Y[:250]
    )
    with pytest.raises(axil.UnsupportedQuestionError, match="path_smooth"):
        axil.Explainer(smoothed, partitioned(FIT), partitioned(Y[:250])).calibrate(
            CAL, Y[250:380], method="exact"
        )
