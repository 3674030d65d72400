"""Sources of calibration: held out, out of fold, out of bag; every kind of model; and refusals."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from catboost import CatBoostRegressor
from lightgbm import LGBMRegressor
from scipy import sparse
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from xgboost import XGBRegressor

import axil
from axil import InputError, UnsupportedQuestionError, inputs
from axil.methods.intervals import calibrate, calibration_rows
from axil.methods.intervals.local import SMALL
from axil.methods.intervals.training_errors import out_of_bag_predictions
from axil.methods.method import verified_model
from tests.methods.intervals.interval_models import explainer, rows

X, Y = rows(200, 0)
X_CAL, Y_CAL = rows(100, 1)
Q, Y_Q = rows(400, 2)

MODELS = {
    "lightgbm": (LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1), "fit"),
    "xgboost": (XGBRegressor(n_estimators=20, max_depth=3, n_jobs=1), "fit"),
    "catboost": (
        CatBoostRegressor(
            iterations=20, depth=3, verbose=0, allow_writing_files=False, thread_count=1
        ),
        "fit",
    ),
    "sklearn": (GradientBoostingRegressor(n_estimators=20), "fit"),
    "forest": (RandomForestRegressor(30, random_state=0), "out-of-bag"),
    "trees to the end": (
        ExtraTreesRegressor(30, random_state=0),
        "leave-one-out",
    ),  # by ancestors of leaves of one row
    "ridge": (Ridge(), "leave-one-out"),
    "neighbours": (KNeighborsRegressor(5), "leverage"),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_of_model(name):
    model, errors = MODELS[name]
    own = axil.Explainer(model.fit(X, Y), X, Y).calibrate(X_CAL, Y_CAL)
    assert own.training_errors == errors
    table = own.interval(Q)
    np.testing.assert_allclose(
        table["prediction"], model.predict(Q), rtol=1e-5, atol=1e-5
    )  # float32 libraries
    held = ((table["lower"] <= Y_Q) & (table["upper"] >= Y_Q)).mean()
    assert abs(held - 0.9) < 4 * np.sqrt(0.09 * (1 / 102 + 1 / 400))


def test_out_of_bag_predictions_are_those_of_the_library():
    forest = RandomForestRegressor(30, min_samples_leaf=2, oob_score=True, random_state=0).fit(X, Y)
    explained = axil.Explainer(forest, X, Y)
    np.testing.assert_allclose(
        out_of_bag_predictions(verified_model(explained))[:, 0], forest.oob_prediction_, rtol=1e-10
    )
    own = explained.calibrate()
    assert own.source == "out-of-bag"
    assert own.n_calibration == 200
    table = own.interval(Q)
    assert (
        0.86 < ((table["lower"] <= Y_Q) & (table["upper"] >= Y_Q)).mean() < 0.96
    )  # near 0.9, without a promise


def test_rows_in_every_tree_are_no_calibration_rows():
    forest = RandomForestRegressor(2, oob_score=False, random_state=0).fit(X, Y)
    explained = axil.Explainer(forest, X, Y)
    known = np.isfinite(out_of_bag_predictions(verified_model(explained))[:, 0])
    assert 0 < known.sum() < 200
    assert explained.calibrate().n_calibration == known.sum()


def test_out_of_fold_around_leaves_of_few_rows():
    """Splits follow single targets there, so that rows beside a training row have errors like its own."""
    held = []
    for seed in range(3):
        draws = np.random.default_rng(seed)
        noise, y = draws.normal(size=(1600, 6)), draws.normal(size=1600)
        model = LGBMRegressor(n_estimators=100, min_child_samples=2, n_jobs=1, verbose=-1).fit(
            noise[:800], y[:800]
        )
        folds = cross_val_predict(model, noise[:800], y[:800])
        predictive = (
            axil.Explainer(model, noise[:800], y[:800])
            .calibrate(out_of_fold=folds)
            .interval(noise[800:], 0.9)
        )
        held.append(np.mean((predictive["lower"] <= y[800:]) & (y[800:] <= predictive["upper"])))
    assert np.mean(held) > 0.87  # 0.74 from the leaves of few rows too


def test_out_of_fold():
    folds = cross_val_predict(LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1), X, Y, cv=5)
    explained = axil.Explainer(LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1).fit(X, Y), X, Y)
    own = explained.calibrate(out_of_fold=folds)
    assert (own.source, own.training_errors, own.n_calibration) == (
        "out-of-fold",
        "out-of-fold",
        200,
    )
    table = own.interval(Q)
    assert 0.86 < ((table["lower"] <= Y_Q) & (table["upper"] >= Y_Q)).mean() < 0.96
    both = explained.calibrate(X_CAL, Y_CAL, out_of_fold=folds)
    assert (both.source, both.training_errors, both.n_calibration) == (
        "held out",
        "out-of-fold",
        100,
    )


def around(queries, own=False):
    """(n, 2): the mean over trees of the mean |error| of the fit in the leaf, and by 1 / rows; a row is not around itself.

    Around training rows themselves only leaves of many rows count, and where there are none all rows do.
    """
    model, (X_, y) = explainer().model, rows(300, 0)
    trained, asked = (model.predict(one, pred_leaf=True).T for one in (X_, queries))
    errors, sums = np.abs(y - model.predict(X_)), np.zeros((2, len(queries), 2))
    for leaves, met in zip(trained, asked):
        for i, leaf in enumerate(met):
            there = (leaves == leaf) & ~(own & (np.arange(300) == i))
            if there.any() and (not own or (leaves == leaf).sum() >= calibrate.CROWD):
                n, mean = there.sum(), errors[there].mean()
                sums[:, i] += np.array([[mean, 1.0], [mean / n, 1 / n]])
    return np.divide(
        sums[..., 0],
        sums[..., 1],
        out=np.full_like(sums[..., 0], errors.mean()),
        where=sums[..., 1] > 0,
    ).T


def test_errors_nearby_are_those_of_the_rows_in_the_same_leaves():
    fitted, (X_, y) = explainer().model.predict(rows(300, 0)[0]), rows(300, 0)
    least = (SMALL * np.abs(y - fitted).mean()) ** 2 + (1e-6 * y.std()) ** 2
    held = explainer().calibrate(X_CAL, Y_CAL)
    folds = explainer().calibrate(out_of_fold=fitted)
    for made, expected in ((held, around(X_CAL)), (folds, around(X_, own=True))):
        sizes = np.log(np.sqrt(expected**2 + least) / y.std())
        np.testing.assert_allclose(
            made._rows[0].features[:, :2], sizes, atol=1e-6
        )  # LightGBM keeps targets in single


def test_exact_errors_nearby():
    own = explainer().calibrate(X_CAL, Y_CAL, method="exact")
    assert own.training_errors == "leave-one-out"
    weights, errors = (
        np.abs(explainer()(X_CAL).weights),
        explainer().diagnostics.leave_one_out()["residual"].abs().to_numpy(),
    )
    least = (SMALL * errors.mean()) ** 2
    for k, sizes in enumerate((weights, weights**2)):
        nearby = (
            np.sqrt((sizes @ errors / sizes.sum(axis=1)) ** 2 + least) / explainer().targets.std()
        )
        np.testing.assert_allclose(
            own._rows[0].features[:, k], np.log(nearby), rtol=1e-7, atol=1e-9
        )
    with pytest.raises(InputError, match='method is \'fast\'; expected "leaves" or "exact"'):
        explainer().calibrate(X_CAL, Y_CAL, method="fast")


def test_own_weights_are_left_out_of_training_rows():
    """With targets that the model cannot follow elsewhere: sums around a training row are those of the other rows."""
    own = explainer().calibrate(
        out_of_fold=explainer().diagnostics.leave_one_out()["prediction"], method="exact"
    )
    weights, errors = (
        np.abs(explainer().jacobian.matrix()),
        explainer().diagnostics.leave_one_out()["residual"].to_numpy(),
    )
    np.fill_diagonal(weights, 0.0)
    least = (SMALL * np.abs(errors).mean()) ** 2
    nearby = (
        np.sqrt((weights @ np.abs(errors) / weights.sum(axis=1)) ** 2 + least)
        / explainer().targets.std()
    )
    np.testing.assert_allclose(own._rows[0].features[:, 0], np.log(nearby), rtol=1e-7, atol=1e-9)


def test_more_rows_than_are_used(monkeypatch):
    monkeypatch.setattr(calibration_rows, "MOST_ROWS", 50)
    own = explainer().calibrate(X_CAL, Y_CAL)
    assert own.n_calibration == 50
    np.testing.assert_array_equal(
        own.interval(Q)["upper"], explainer().calibrate(X_CAL, Y_CAL).interval(Q)["upper"]
    )


def test_offsets():
    X_, y, offsets = X, Y, 3 * X[:, 0]
    model = LGBMRegressor(n_estimators=10, verbose=-1, n_jobs=1).fit(X_, y, init_score=offsets)
    own = axil.Explainer(model, X_, y, init_score=offsets).calibrate(
        X_CAL, Y_CAL, init_score=3 * X_CAL[:, 0]
    )
    table = own.interval(Q, init_score=3 * Q[:, 0])
    np.testing.assert_allclose(
        table["prediction"], model.predict(Q) + 3 * Q[:, 0], atol=1e-6
    )  # float32 offsets
    held = ((table["lower"] <= Y_Q) & (table["upper"] >= Y_Q)).mean()
    assert abs(held - 0.9) < 4 * np.sqrt(0.09 * (1 / 102 + 1 / 400))


def test_a_small_memory_limit_changes_nothing():
    model = LGBMRegressor(n_estimators=20, verbose=-1, n_jobs=1).fit(X, Y)
    one, other = (
        axil.Explainer(model, X, Y, memory_limit=limit).calibrate(X_CAL, Y_CAL).interval(Q)
        for limit in (None, 2_000_000)
    )
    np.testing.assert_allclose(one["upper"], other["upper"], rtol=1e-9)


def test_a_loaded_explainer(tmp_path):
    model = LGBMRegressor(n_estimators=10, verbose=-1, n_jobs=1).fit(X, Y)
    explained = axil.Explainer(model, X, Y)
    explained.save(tmp_path / "e.npz")
    loaded = axil.load(tmp_path / "e.npz", model)
    upper = loaded.calibrate(X_CAL, Y_CAL).interval(Q)["upper"]
    np.testing.assert_allclose(
        upper, explained.calibrate(X_CAL, Y_CAL).interval(Q)["upper"], rtol=1e-9
    )
    with pytest.raises(InputError, match="X_train=X_train"):
        loaded.calibrate(out_of_fold=Y)


def test_a_warning_of_long_work_is_at_the_line_that_asked(monkeypatch):
    monkeypatch.setattr("axil.methods.leave_one_out.seconds_of", lambda proven: 40.0)
    model = LGBMRegressor(n_estimators=2, verbose=-1, n_jobs=1).fit(X, Y)
    with pytest.warns(axil.CostWarning, match="out_of_fold=cross_val_predict") as said:
        axil.Explainer(model, X, Y).calibrate(X_CAL, Y_CAL, method="exact")
    assert said[0].filename == __file__


def boosted(rows, targets):
    return LGBMRegressor(n_estimators=10, verbose=-1, n_jobs=1).fit(rows, targets)


def with_gaps():
    gaps = pd.DataFrame(X, columns=list("abcd")).assign(a=lambda f: f["a"].where(f["b"] > 0.2))
    return gaps.assign(kind=pd.Categorical(np.where(X[:, 3] > 0.5, "flat", "house")))


TABLES = {
    "array": lambda: X,
    "frame": with_gaps,
    "polars": lambda: pl.DataFrame(X, schema=list("abcd")),
    "sparse": lambda: sparse.csr_matrix(np.where(X > 0.5, X, 0.0)),
    "single": lambda: X.astype(np.float32),
}


@pytest.mark.parametrize("name", TABLES)
def test_training_rows_are_no_calibration_rows(name):
    table = TABLES[name]()
    explained = axil.Explainer(boosted(table, Y), table, Y)
    with pytest.raises(
        InputError,
        match=r"80 of the 80 calibration rows are training rows: the same features.*out_of_fold=",
    ):
        explained.calibrate(inputs.take_rows(table, np.arange(40, 120)), Y[40:120])
    assert (
        explained.calibrate(inputs.take_rows(table, np.arange(40, 120)), Y_CAL[:80]).n_calibration
        == 80
    )


def test_training_rows_are_found_in_another_kind_of_table():
    frame = pd.DataFrame(X, columns=list("abcd"))
    explained = axil.Explainer(boosted(frame, Y), frame, Y)
    for table, targets in (
        (X, Y),
        (frame.astype(np.float32), Y.astype(np.float32)),
        (frame.iloc[::-1], Y[::-1]),
    ):
        with pytest.raises(InputError, match="200 of the 200 calibration rows"):
            explained.calibrate(table, targets)


def test_a_few_training_rows_are_left_out():
    explained = axil.Explainer(boosted(X, Y), X, Y)
    mixed, targets = np.concatenate([X[:30], X_CAL]), np.append(Y[:30], Y_CAL)
    with pytest.warns(
        UserWarning,
        match=r"30 of the 130 calibration rows are training rows.*100 calibration rows stay",
    ) as said:
        own = explained.calibrate(mixed, targets)
    assert said[0].filename == __file__
    assert own.n_calibration == 100
    np.testing.assert_array_equal(
        own.interval(Q)["upper"], explained.calibrate(X_CAL, Y_CAL).interval(Q)["upper"]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (
            explained.calibrate(mixed[29:], targets[29:]).n_calibration == 101
        )  # one may be equal by chance


def test_rows_equal_by_chance_are_calibration_rows():
    """Features of a few levels: nearly all rows equal others, in the training data as well."""
    draws = np.random.default_rng(0)
    for levels, n in ((3, 400), (9, 100)):
        coarse, targets = (
            draws.integers(levels, size=(600, 2)).astype(float),
            draws.integers(4, size=600).astype(float),
        )
        explained = axil.Explainer(boosted(coarse[:n], targets[:n]), coarse[:n], targets[:n])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert explained.calibrate(coarse[n:], targets[n:]).n_calibration == 600 - n
    with pytest.raises(
        InputError, match=r"% of the training rows equal another one, which does not explain it"
    ):
        explained.calibrate(coarse[:n], targets[:n])


def test_rows_of_weight_zero_were_not_in_the_fit():
    weights = (np.arange(200) < 120).astype(float)
    model = LGBMRegressor(n_estimators=10, verbose=-1, n_jobs=1).fit(X, Y, sample_weight=weights)
    explained = axil.Explainer(model, X, Y, sample_weight=weights)
    assert explained.calibrate(X[120:], Y[120:]).n_calibration == 80
    with pytest.raises(InputError, match="120 of the 120"):
        explained.calibrate(X[:120], Y[:120])


def test_without_features_the_targets_tell(tmp_path):
    model = boosted(X, Y)
    axil.Explainer(model, X, Y).save(tmp_path / "e.npz")
    with pytest.raises(InputError, match="the same target, which no two training rows share"):
        axil.load(tmp_path / "e.npz", model).calibrate(X[:50], Y[:50])


@pytest.mark.parametrize("unit", [1e-300, 1e-170, 1e170, 1e300])
def test_targets_whose_squares_no_double_holds_are_refused(unit):
    """Their widths were zero or nan."""
    forest = RandomForestRegressor(10, min_samples_leaf=3, random_state=0).fit(X, unit * Y)
    with pytest.raises(InputError, match="from their mean; calibrate takes squares"):
        axil.Explainer(forest, X, unit * Y).calibrate(X_CAL, unit * Y_CAL)


def test_equal_targets_are_calibrated():
    model = boosted(X, np.full(200, 0.1))
    table = axil.Explainer(model, X, np.full(200, 0.1)).calibrate(X_CAL, np.zeros(100)).interval(Q)
    assert np.isfinite(table["upper"]).all()


def test_refusals():
    with pytest.raises(InputError, match="nothing to calibrate with"):
        explainer().calibrate()
    with pytest.raises(InputError, match="y_cal is missing"):
        explainer().calibrate(X_CAL)
    with pytest.raises(InputError, match="no rows"):
        explainer().calibrate(X_CAL[:0], Y_CAL[:0])
    with pytest.raises(InputError, match="init_score is for the rows of X_cal"):
        explainer().calibrate(out_of_fold=explainer().targets, init_score=np.zeros(300))
    classes = (Y > 2).astype(int)
    forest = RandomForestClassifier(5, random_state=0).fit(X, classes)
    sets = axil.Explainer(forest, X, classes).calibrate(X_CAL, (Y_CAL > 2).astype(int))
    with pytest.raises(UnsupportedQuestionError, match="predicts classes"):
        sets.interval(X_CAL)
    fair = LGBMRegressor(objective="fair", n_estimators=5, verbose=-1, n_jobs=1)
    with pytest.raises(UnsupportedQuestionError, match="calibrate has no answer here: intervals"):
        axil.Explainer(fair.fit(X, classes), X, classes).calibrate(X_CAL, Y_CAL)
