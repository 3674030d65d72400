"""Pools of small groups, coverage by area, and calibration rows that are too old."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor
from scipy.stats import binomtest

import axil
from axil import InputError
from axil.errors import ApproximationWarning

TOWNS = {
    "north": (60.0, 10.0),
    "north 2": (60.1, 10.1),
    "south": (50.0, 10.0),
    "east": (50.0, 12.0),
}
NOISE = {"north": 3.0, "north 2": 3.0, "south": 0.5, "east": 0.5}
FEATURES = ["size", "lat", "lon", "year"]


def homes(numbers, seed):
    """Return homes of some towns, with errors that differ from town to town."""
    rng = np.random.default_rng(seed)
    town = rng.permutation(np.repeat(list(numbers), list(numbers.values())))
    n = len(town)
    X = pd.DataFrame({"size": rng.uniform(50, 150, n)})
    for axis, name in enumerate(("lat", "lon")):
        X[name] = [TOWNS[t][axis] for t in town] + rng.uniform(-0.01, 0.01, n)
    X["year"] = rng.integers(2015, 2020, n)
    noise = np.array([NOISE[t] for t in town])
    return X, X["size"] / 10 + noise * rng.normal(size=n), town


MANY = {"north": 300, "north 2": 60, "south": 250, "east": 200}
X, Y, TOWN = homes(MANY, 0)
X_CAL, Y_CAL, TOWN_CAL = homes({"north": 150, "north 2": 12, "south": 120, "east": 20}, 1)
X_NEW, Y_NEW, TOWN_NEW = homes({"north": 400, "north 2": 150, "south": 300, "east": 150}, 2)


@pytest.fixture(scope="module")
def explainer():
    settings = {"n_estimators": 20, "num_leaves": 8, "n_jobs": 1, "verbose": -1}
    return axil.Explainer(LGBMRegressor(**settings).fit(X, Y), X, Y)


@pytest.fixture(scope="module")
def pooled(explainer):
    return explainer.calibrate(
        X_CAL, Y_CAL, groups=TOWN_CAL, min_group_size=50, coordinates=("lat", "lon")
    )


def test_small_groups_join_the_nearest_places(pooled):
    table = pooled.calibration_groups().set_index("group")
    assert table["rows"].to_dict() == {"east": 20, "north": 150, "north 2": 12, "south": 120}
    assert table["pooled_with"].to_dict() == {
        "east": "south",
        "north": "north 2",
        "north 2": "north",
        "south": "east",
    }
    assert table["pool_rows"].to_dict() == {"east": 140, "north": 162, "north 2": 162, "south": 140}
    assert "302 calibration rows in 4 groups, pooled to 2" in repr(pooled)


def test_a_pool_is_calibrated_by_its_rows_alone(explainer, pooled):
    table = pooled.interval(X_NEW, groups=TOWN_NEW)
    for towns in (("north", "north 2"), ("south", "east")):
        in_pool = np.isin(TOWN_CAL, towns)
        is_new = np.isin(TOWN_NEW, towns)
        alone = explainer.calibrate(X_CAL[in_pool], Y_CAL[in_pool]).interval(X_NEW[is_new])
        for column in ("lower", "upper", "uncertainty_rank"):
            np.testing.assert_allclose(table[column][is_new], alone[column], rtol=1e-9)
        assert set(table["pool"][is_new]) == {", ".join(sorted(towns))}
        assert (table["pool_rows"][is_new] == in_pool.sum()).all()


def test_without_coordinates_groups_of_like_predictions_are_near():
    """Two groups of cheap homes and two of dear ones, wherever they are."""
    model = LGBMRegressor(n_estimators=20, num_leaves=8, n_jobs=1, verbose=-1).fit(X, Y)
    labels = np.where(X_CAL["size"] < 100, "cheap", "dear").astype(object)
    labels[np.flatnonzero(labels == "cheap")[:10]] = "few cheap"
    labels[np.flatnonzero(labels == "dear")[:10]] = "few dear"
    predictive = axil.Explainer(model, X, Y).calibrate(
        X_CAL, Y_CAL, groups=labels, min_group_size=30
    )
    table = predictive.calibration_groups().set_index("group")["pooled_with"].to_dict()
    expected = {"cheap": "few cheap", "few cheap": "cheap", "dear": "few dear", "few dear": "dear"}
    assert table == expected


def test_rows_of_a_group_without_calibration_rows_are_in_the_nearest_pool(explainer, pooled):
    labels = TOWN_NEW.astype(object)
    is_north = labels == "north"
    labels[is_north] = "a new suburb"
    table = pooled.interval(X_NEW, groups=labels)
    expected = pooled.interval(X_NEW, groups=TOWN_NEW)
    pd.testing.assert_frame_equal(table, expected)
    by_itself = explainer.calibrate(X_CAL, Y_CAL, groups=TOWN_CAL)
    with pytest.raises(InputError, match="or pool groups"):
        by_itself.interval(X_NEW, groups=labels)
    nowhere = X_NEW[is_north].assign(lat=np.nan)
    with pytest.raises(InputError, match="'a new suburb', a group without calibration rows"):
        pooled.interval(nowhere, groups=labels[is_north])


def test_large_groups_of_later_rows_are_covered(pooled):
    """A town with large errors and one with small ones have their coverage, alone and in a pool."""
    table = pooled.coverage(X_NEW, Y_NEW, groups=TOWN_NEW).set_index("group")
    assert (table["rows"] >= 100).all()
    assert table["covered"].min() > 0.85


@pytest.mark.parametrize("level", [0.8, 0.9])
def test_coverage_is_counted_group_by_group(pooled, level):
    ends = pooled.interval(X_NEW, level, groups=TOWN_NEW)
    is_inside = ((ends["lower"] <= Y_NEW) & (ends["upper"] >= Y_NEW)).to_numpy()
    table = pooled.coverage(
        X_NEW,
        Y_NEW,
        confidence_level=level,
        by=X_NEW["year"],
        coordinates=("lat", "lon"),
        groups=TOWN_NEW,
    )
    assert table["group"].tolist() == [2015, 2016, 2017, 2018, 2019]
    for line in table.itertuples():
        rows = (X_NEW["year"] == line.group).to_numpy()
        assert line.rows == rows.sum()
        assert line.covered == pytest.approx(is_inside[rows].mean())
        bounds = binomtest(int(is_inside[rows].sum()), int(rows.sum())).proportion_ci()
        assert (line.lower, line.upper) == pytest.approx((bounds.low, bounds.high))
        assert line.median_width == pytest.approx((ends["upper"] - ends["lower"])[rows].median())
        assert line.latitude == pytest.approx(X_NEW["lat"][rows].median())
        assert line.longitude == pytest.approx(X_NEW["lon"][rows].median())


def test_coverage_of_all_rows_and_by_a_column(explainer):
    predictive = explainer.calibrate(X_CAL, Y_CAL)
    assert predictive.coverage(X_NEW, Y_NEW)["group"].tolist() == ["all rows"]
    table = predictive.coverage(X_NEW.head(3), Y_NEW.head(3) + np.array([0, 0, 1e6]), by="year")
    assert table["rows"].sum() == 3
    assert (table["covered"] * table["rows"]).sum() <= 2
    assert ((table["lower"] >= 0) & (table["upper"] <= 1)).all()


def january(years):
    """Return the first days of some years."""
    return pd.to_datetime(years.astype(str) + "-01-01")


def test_rows_newer_than_all_calibration_rows_are_named(explainer):
    is_old = X_CAL["year"] < 2017
    predictive = explainer.calibrate(X_CAL[is_old], Y_CAL[is_old], dates="year")
    later = X_NEW[X_NEW["year"] > 2017]
    with pytest.warns(ApproximationWarning, match=f"{len(later)} of {len(later)} rows are newer"):
        table = predictive.interval(later)
    by_dates = explainer.calibrate(
        X_CAL[is_old], Y_CAL[is_old], dates=january(X_CAL["year"][is_old])
    )
    dates = january(later["year"])
    with pytest.warns(ApproximationWarning, match="of 2016-01-01"):
        pd.testing.assert_frame_equal(by_dates.interval(later, dates=dates), table)
    with pytest.raises(InputError, match="two kinds"):
        by_dates.interval(later, dates=later["year"])
    with pytest.raises(InputError, match="calibrate was given none"):
        explainer.calibrate(X_CAL, Y_CAL).interval(later, dates="year")


@pytest.mark.filterwarnings("error::axil.errors.ApproximationWarning")
def test_rows_of_the_same_time_cause_no_warning(explainer):
    predictive = explainer.calibrate(X_CAL, Y_CAL, dates="year")
    predictive.interval(X_NEW)
    predictive.interval(X_NEW.head(0))


def test_out_of_fold_predictions_are_pooled_too(explainer):
    shifted = explainer.model.predict(X) + np.random.default_rng(3).normal(size=len(X))
    predictive = explainer.calibrate(
        out_of_fold=shifted, groups=TOWN, min_group_size=100, coordinates=(1, 2), dates="year"
    )
    table = predictive.calibration_groups().set_index("group")["pooled_with"]
    assert table["north 2"] == "north"
    assert table["east"] == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_group_size": 50}, "groups is missing"),
        ({"groups": TOWN_CAL, "coordinates": ("lat", "lon")}, "min_group_size, which is missing"),
        (
            {"groups": TOWN_CAL, "min_group_size": 50, "coordinates": "lat"},
            "expected two columns, of latitudes",
        ),
        ({"groups": TOWN_CAL, "min_group_size": 0}, "min_group_size is 0"),
        ({"dates": np.full(len(X_CAL), np.nan)}, "no known date"),
    ],
)
def test_options_that_do_not_fit_are_refused(explainer, options, message):
    with pytest.raises(InputError, match=message):
        explainer.calibrate(X_CAL, Y_CAL, **options)


def test_tables_without_groups_are_refused(explainer):
    with pytest.raises(InputError, match="calibrate was given no groups"):
        explainer.calibrate(X_CAL, Y_CAL).calibration_groups()
