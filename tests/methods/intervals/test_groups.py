"""Coverage within groups: the calibration rows of each group alone, by labels or by a column."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from sklearn.ensemble import RandomForestRegressor

import axil
from axil import InputError
from tests.dask.dask_models import partitioned
from tests.fits import explainer_of_fit
from tests.methods.intervals.interval_models import explainer, rows
from tests.notebooks import table_cells

CLASSES = np.array(["flat", "house", "villa"])
X_CAL, Y_CAL = rows(400, 1)
Q, Y_Q = rows(3000, 2)


def classes(X):
    """By the size of the errors, which the model's features tell."""
    return CLASSES[np.digitize(X[:, 2], [0.5, 0.9])]


def inside(table, y):
    return (table["lower"].to_numpy() <= y) & (y <= table["upper"].to_numpy())


def test_each_group_is_calibrated_by_its_own_rows_alone():
    own = explainer().calibrate(X_CAL, Y_CAL, groups=classes(X_CAL))
    assert repr(own).startswith("<axil.Predictive: 400 calibration rows in 3 groups, held out")
    caption, cells = table_cells(own._repr_html_())
    assert cells[::2] == ["calibrated with", "source", "errors nearby"]
    assert repr(own) == "<{}: {}, {}; errors nearby: {}>".format(caption, *cells[1::2])
    table, std, labels = (
        own.interval(Q, groups=classes(Q)),
        own.std(Q, groups=classes(Q)),
        classes(Q),
    )
    cut = own.quantiles(Q, [0.2, 0.5, 0.8], groups=labels)
    for name in CLASSES:
        held, there = classes(X_CAL) == name, labels == name
        alone = explainer().calibrate(X_CAL[held], Y_CAL[held])
        expected = alone.interval(Q[there])
        for column in ("prediction", "lower", "upper", "scale", "uncertainty_rank"):
            np.testing.assert_allclose(table[column][there], expected[column], rtol=1e-9)
        np.testing.assert_allclose(std[there], alone.std(Q[there]), rtol=1e-9)
        np.testing.assert_allclose(
            cut[there], alone.quantiles(Q[there], [0.2, 0.5, 0.8]), rtol=1e-9
        )
        np.testing.assert_allclose(
            own.crps(Q, Y_Q, groups=labels)[there], alone.crps(Q[there], Y_Q[there]), rtol=1e-9
        )
        n = held.sum()
        assert abs(inside(table, Y_Q)[there].mean() - 0.9) < 4 * np.sqrt(
            0.09 * (1 / (n + 2) + 1 / there.sum())
        )
    assert own.sample(Q[:5], 3, random_state=0, groups=labels[:5]).shape == (5, 3)
    assert np.all((own.cdf(Q, Y_Q, groups=labels) > 0) & (own.cdf(Q, Y_Q, groups=labels) < 1))


def homes(X):
    return pd.DataFrame(X, columns=list("abcd")).assign(kind=pd.Categorical(classes(X)))


def test_a_column_is_read_from_the_rows_to_predict():
    X, y = rows(300, 0)
    explained = axil.Explainer(
        LGBMRegressor(n_estimators=10, verbose=-1, n_jobs=1).fit(homes(X), y), homes(X), y
    )
    own = explained.calibrate(homes(X_CAL), Y_CAL, groups="kind")
    labelled = explained.calibrate(homes(X_CAL), Y_CAL, groups=classes(X_CAL))
    np.testing.assert_array_equal(
        own.interval(homes(Q))["upper"], labelled.interval(homes(Q), groups=classes(Q))["upper"]
    )
    assert "<!DOCTYPE html>" in own.to_html(homes(Q[:3]))
    folds = explained.calibrate(out_of_fold=y[::-1], groups="kind")
    assert (folds.n_calibration, len(folds.interval(homes(Q)))) == (300, 3000)
    with pytest.raises(
        InputError, match=r"groups is 'kinds', which is no column of the calibration rows.*'kind'"
    ):
        explained.calibrate(homes(X_CAL), Y_CAL, groups="kinds")
    parts = [partitioned(one) for one in (homes(X), y)]
    away = explainer_of_fit(explained.model, *parts).calibrate(homes(X_CAL), Y_CAL, groups="kind")
    np.testing.assert_allclose(
        away.interval(homes(Q[:50]))["upper"], own.interval(homes(Q[:50]))["upper"], rtol=1e-9
    )


def test_out_of_bag():
    X, y = rows(300, 0)
    forest = RandomForestRegressor(30, min_samples_leaf=3, random_state=0).fit(X, y)
    own = axil.Explainer(forest, X, y).calibrate(groups=classes(X))
    table = own.interval(Q, groups=classes(Q))
    for name in CLASSES:
        assert (
            0.8 < inside(table, Y_Q)[classes(Q) == name].mean() < 0.98
        )  # near 0.9, without a promise


def test_more_rows_than_are_used_are_drawn_from_each_group(monkeypatch):
    monkeypatch.setattr("axil.methods.intervals.calibration_rows.MOST_ROWS", 30)
    own = explainer().calibrate(X_CAL, Y_CAL, groups=classes(X_CAL))
    assert own.n_calibration == 90


def test_refusals():
    own = explainer().calibrate(X_CAL, Y_CAL, groups=classes(X_CAL))
    villas = int((classes(X_CAL) == "villa").sum())
    with pytest.raises(
        InputError,
        match=rf"takes at least 99 calibration rows; the group 'villa' has {villas}\. Calib",
    ):
        own.interval(Q, 0.99, groups=classes(Q))
    assert len(own.interval(Q[:9], 0.99, groups=["flat"] * 9)) == 9
    with pytest.raises(
        InputError, match=r"groups holds 'castle', a group without calibration rows, as 2 of 9 rows"
    ):
        own.interval(Q[:9], groups=["flat"] * 7 + ["castle", "hut"])
    with pytest.raises(InputError, match=r"so these 9 rows need theirs\. Pass groups= to interval"):
        own.interval(Q[:9])
    with pytest.raises(InputError, match="calibrate was given none"):
        explainer().calibrate(X_CAL, Y_CAL).interval(Q[:9], groups=["flat"] * 9)
    with pytest.raises(
        InputError,
        match=r"groups has shape \(3,\); expected \(400,\), one label for each of the 400 calib",
    ):
        explainer().calibrate(X_CAL, Y_CAL, groups=[1, 2, 3])
