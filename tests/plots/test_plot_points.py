"""Points: weights against a value, targets, labels that look wrong and leverage."""

import matplotlib
import matplotlib.style
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from matplotlib.collections import PathCollection
from sklearn.ensemble import RandomForestRegressor

import axil
from axil import InputError, plots
from tests.plots.plot_models import (
    assert_readable,
    class_suspects,
    data,
    explainer,
    explanation,
    suspects,
    years,
)


def points(ax):
    """All points of a scatter, sorted."""
    parts = [one.get_offsets() for one in ax.collections if isinstance(one, PathCollection)]
    return np.array(sorted(np.concatenate(parts).tolist()))


def test_points_are_the_rows():
    e, bmi = explanation(), data()[0]["bmi"]
    ax = plots.weights_against(e, bmi, query=3)
    np.testing.assert_array_equal(points(ax), sorted(zip(bmi, e.weights[3])))
    assert ax.get_xlabel() == "bmi (dashed: the explained row's own)"
    ax = plots.targets(e, query=3)
    np.testing.assert_array_equal(points(ax), sorted(zip(e.weights[3], e.targets)))
    assert any(np.allclose(line.get_ydata(), e.predictions[3]) for line in ax.lines)


def own_mark(ax):
    """Where the dashed line upright stands; None where there is none."""
    found = [
        line.get_xdata()[0]
        for line in ax.lines
        if line.get_linestyle() == "--" and len(set(line.get_xdata())) == 1
    ]
    return found[0] if found else None


def test_the_value_of_the_explained_row_is_marked():
    e, (X, _, new, _) = explanation(), data()
    bmi = new["bmi"].iloc[3]
    ax = plots.weights_against(e, "bmi", query=3)
    np.testing.assert_array_equal(points(ax), sorted(zip(X["bmi"], e.weights[3])))
    assert own_mark(ax) == own_mark(plots.weights_against(e, X["bmi"], query="patient 83")) == bmi
    assert (
        own_mark(plots.weights_against(e, X["bmi"] + 1, query=3)) is None
    )  # of the same name, but another column
    assert own_mark(plots.weights_against(e, X["bmi"].to_numpy(), query=3)) is None
    assert own_mark(plots.weights_against(e.weights, X["bmi"], query=3, own=0.5)) == 0.5
    dates = pd.date_range("2020-01-01", periods=80)
    assert own_mark(plots.weights_against(e, dates, own=dates[7])) == dates[7].to_datetime64()
    kinds = np.array(["b", "a"] * 40)
    assert own_mark(plots.weights_against(e, kinds, own="b")) == 1
    assert own_mark(plots.weights_against(e, kinds, own="c")) is None
    assert own_mark(plots.weights_against(e, years(), own=np.nan)) is None


def test_points_that_share_a_value_stand_side_by_side():
    drawn = points(plots.weights_against(explanation(), years()))
    assert len(set(drawn[:, 0])) == 80
    np.testing.assert_array_equal(np.round(drawn[:, 0]), years())
    assert np.abs(drawn[:, 0] - years()).max() < 0.31
    same = np.sort(points(plots.weights_against(explanation(), np.full(80, 7.0)))[:, 0])
    np.testing.assert_allclose(same, np.linspace(6.7, 7.3, 80))


@pytest.mark.parametrize(
    "values",
    [
        pd.Series(pd.date_range("2020-01-01", periods=80, freq="W"), name="visit"),
        pl.Series("visit", pd.date_range("2020-01-01", periods=80, freq="W").to_numpy()),
        [day.date() for day in pd.date_range("2020-01-01", periods=80, freq="W")],
        pd.Series(pd.period_range("2020-01-05", periods=80, freq="D"), name="visit"),
        pd.Series(
            pd.date_range("2020-01-01", periods=80, freq="W", tz="UTC").tz_convert("Asia/Tokyo"),
            name="visit",
        ),
    ],
    ids=["pandas", "polars", "dates", "periods", "zone"],
)
def test_time_is_an_axis(values):
    ax = plots.weights_against(explanation(), values)
    assert_readable(ax)
    first = matplotlib.dates.date2num(np.datetime64("2020-01-05"))
    np.testing.assert_allclose(points(ax)[0], [first, explanation().weights[0][0]])
    assert ax.get_xlabel() == ("value" if isinstance(values, list) else "visit")


def test_text_stands_side_by_side_and_missing_values_are_counted():
    kinds = np.array(["b", "a"] * 40)
    ax = plots.weights_against(explanation(), kinds, name="kind")
    assert [label.get_text() for label in ax.get_xticklabels()] == ["a", "b"]
    assert np.abs(points(ax)[:, 0] - np.repeat([0, 1], 40)).max() < 0.31
    values = np.arange(80.0)
    values[:5] = np.nan
    ax = plots.weights_against(explanation(), values)
    assert len(points(ax)) == 75
    assert "5 rows without one" in ax.get_xlabel()
    for some in (
        pd.array([None] * 5 + list(range(75)), dtype="Int64"),
        np.array([None] * 5 + ["a", "b", "c"] * 25),
    ):
        ax = plots.weights_against(explanation(), some)
        assert len(points(ax)) == 75
        assert "5 rows without one" in ax.get_xlabel()
    with pytest.raises(InputError, match=r"80 kinds of text.*plots\.group"):
        plots.weights_against(explanation(), [f"row {i}" for i in range(80)])


def test_leverage_marks_its_mean():
    found = explainer().diagnostics.leverage()
    mean = explainer().diagnostics.degrees_of_freedom() / len(found)
    ax = plots.leverage(found)
    assert sum(bar.get_height() for bar in ax.patches) == len(found)
    np.testing.assert_allclose(ax.lines[0].get_xdata(), mean, rtol=1e-12)
    ax = plots.leverage(np.stack([found, 2 * found]), output=1, ranked=True)
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), np.sort(2 * found)[::-1])
    np.testing.assert_allclose(ax.lines[1].get_ydata(), 2 * mean, rtol=1e-12)


def points_of(ax):
    """The points drawn, by their names."""
    return {
        part.get_label(): part.get_offsets().data
        for part in ax.collections
        if isinstance(part, PathCollection)
    }


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_label_issues_are_drawn_as_the_table_says(library):
    make = {"pandas": lambda f: f, "polars": pl.from_pandas, "pyarrow": pa.Table.from_pandas}[
        library
    ]
    table = suspects()
    ax = plots.label_issues(make(table))
    known = table.dropna()
    for name, marked in {"label issue": True, "no label issue": False}.items():
        np.testing.assert_array_equal(
            points_of(ax)[name],
            known.loc[known["is_label_issue"] == marked, ["expected_label", "given_label"]],
        )
    assert ax.get_title("left").startswith("3 of 60 training labels look wrong\nNot judged")
    assert ax.get_title("left").endswith(": 1")
    fixed = "structure fixed" in ax.get_xlabel()
    assert fixed == (
        library == "pandas"
    )  # other libraries keep no note, and expected may be out of fold


def test_label_issues_of_a_model_are_drawn():
    from lightgbm import LGBMRegressor

    X, y, _, _ = data()
    wrong = y.copy()
    wrong.iloc[[5, 50]] = 900.0, -700.0
    model = LGBMRegressor(n_estimators=10, num_leaves=6, min_child_samples=5, verbose=-1).fit(
        X, wrong
    )
    e = axil.Explainer(model, X, wrong)
    table = e.find_label_issues()
    found = points_of(plots.label_issues(table))["label issue"]
    np.testing.assert_array_equal(
        found, table.loc[table["is_label_issue"], ["expected_label", "given_label"]]
    )
    assert {-700.0, 900.0} <= set(found[:, 1])
    own = plots.label_issues(e.find_label_issues(out_of_fold=np.full(80, 150.0)))
    assert own.get_xlabel() == "expected label"
    both = np.column_stack([y, wrong])
    trees = RandomForestRegressor(10, min_samples_leaf=5, random_state=0).fit(X, both)
    table = axil.Explainer(trees, X, both).find_label_issues()
    part = table[table["output"] == 1]
    ax = plots.label_issues(table, output=1)
    assert sum(map(len, points_of(ax).values())) == 80
    assert (
        ax.get_title("left")
        == f"Output 1\n{part['is_label_issue'].sum()} of 80 training labels look wrong"
    )
    assert_readable(ax)
    with pytest.raises(InputError, match="output is None; expected one of"):
        plots.label_issues(table)


def test_label_issues_of_classes_are_drawn_by_quality():
    table = class_suspects()
    drawn = points_of(plots.label_issues(table))
    known = table.dropna().sort_values("label_quality", ignore_index=True)
    for name, marked in {"label issue": True, "no label issue": False}.items():
        chosen = known[known["is_label_issue"] == marked]
        np.testing.assert_array_equal(
            drawn[name], np.column_stack([chosen.index + 1, chosen["label_quality"]])
        )
