"""Curves, the timeline, the heat map and intervals."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from matplotlib.collections import PathCollection
from scipy.cluster.hierarchy import leaves_list, linkage
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.kernel_ridge import KernelRidge

import axil
from axil import InputError, plots
from tests.plots.plot_models import (
    assert_readable,
    boosted,
    data,
    explainer,
    explanation,
    forest,
    intervals,
    names,
    quarters,
    tick_labels,
    true_targets,
)


def curve(ax):
    """The steps of a timeline, without the two marks and the point at the end."""
    (line,) = [line for line in ax.lines if line.get_drawstyle() == "steps-post"]
    return line.get_xdata(orig=True), line.get_ydata()


@pytest.mark.parametrize("reference", ["mean", 0.0, 150.0])
def test_the_timeline_adds_contributions_up_date_by_date(reference):
    e, dates = explanation(), quarters()
    ax = plots.timeline(e, dates, query=2, reference=reference)
    level = e.targets.mean() if reference == "mean" else reference
    times, levels = curve(ax)
    np.testing.assert_array_equal(times[1:], np.unique(dates.dt.to_timestamp()))
    start = e.intercepts[2] + level * e.weights[2].sum()
    wanted = [start]  # one date after the other
    for date in sorted(set(dates)):
        own = (dates == date).to_numpy()
        wanted.append(wanted[-1] + (e.weights[2][own] * (e.targets[own] - level)).sum())
    np.testing.assert_allclose(levels, wanted, rtol=1e-9)
    np.testing.assert_allclose(levels[-1], e.predictions[2], rtol=1e-9)
    assert any(np.allclose(line.get_ydata(), e.predictions[2], rtol=1e-9) for line in ax.lines[:2])
    assert ax.get_xlabel() == "quarter"
    assert_readable(ax)


def test_the_timeline_of_rows_without_a_date_still_ends_at_the_prediction():
    e, dates = explanation(), np.where(np.arange(80) < 5, np.nan, np.arange(80) // 4)
    ax = plots.timeline(e, dates, name="year")
    assert ax.get_xlabel() == "year (5 rows without one come first)"
    np.testing.assert_allclose(curve(ax)[1][-1], e.predictions[0], rtol=1e-9)
    for wrong, message in (
        (["spring", "autumn"] * 40, "dates are text; expected dates or numbers"),
        (np.full(80, np.nan), "No training row has a date"),
        (np.where(np.arange(80) < 5, np.inf, 1.0), "dates has an infinite number"),
    ):
        with pytest.raises(InputError, match=message):
            plots.timeline(e, wrong)
    with pytest.raises(InputError, match=r"expected an axil.Explanation: explainer\(X\)"):
        plots.timeline(e.weights, dates)


def test_the_timeline_of_one_output_of_pushes_and_of_logarithms():
    from lightgbm import LGBMClassifier

    X, y, new, _ = data()
    e = forest()
    k = list(e.outputs).index("middle")
    np.testing.assert_allclose(
        curve(plots.timeline(e, quarters(), output="middle"))[1][-1], e.predictions[0, k]
    )
    high = y > 150
    pushes = axil.Explainer(
        LGBMClassifier(n_estimators=5, num_leaves=4, verbose=-1).fit(X, high), X, high
    )(new)
    _, levels = curve(plots.timeline(pushes, quarters()))
    np.testing.assert_allclose(
        levels[[0, -1]], [pushes.intercepts[0], pushes.predictions[0]], rtol=1e-9
    )
    with pytest.raises(
        InputError, match="Contributions of an additive model are not multiples of the targets"
    ):
        plots.timeline(pushes, quarters(), reference=1.0)
    model = KernelRidge(kernel="rbf", gamma=30.0, alpha=0.3).fit(X, np.log(y))
    logs = axil.Explainer(model, X, np.log(y), inverse_func=np.exp)(new)
    _, prices = curve(plots.timeline(logs, quarters()))
    np.testing.assert_allclose(prices[-1], np.exp(logs.predictions[0]), rtol=1e-9)


def test_concentration_counts_as_the_table_does():
    e = explanation()
    ax = plots.concentration(e, query=6)
    x, share = ax.lines[0].get_data()
    np.testing.assert_allclose(
        share[1:], np.cumsum(np.sort(np.abs(e.weights[6]))[::-1]) / np.abs(e.weights[6]).sum()
    )
    assert x[-1] == 80
    counted = [int(e[6].concentration()[f"rows for {share}%"].iloc[0]) for share in (50, 80, 95)]
    assert ax.texts[0].get_text() == "\n".join(
        f"{share:.0%}: {n} rows" for share, n in zip((0.5, 0.8, 0.95), counted)
    )


def test_errors_by_trees_are_those_of_the_frame():
    frame = boosted().diagnostics.leave_one_out_curve()
    ax = plots.leave_one_out_curve(frame)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "without the row",
        "with all rows",
    ]
    for line, column in zip(ax.lines, ("error", "training_error")):
        np.testing.assert_array_equal(line.get_ydata(), frame[column])
    several = frame.assign(output="a")
    assert plots.leave_one_out_curve(several, output="a").get_title("left").startswith("Output a")
    with pytest.raises(InputError, match="output is 'b'; expected one of"):
        plots.leave_one_out_curve(several, output="b")


def test_removal_draws_what_without_gives():
    """Rows that share leaves: together they do something else than the sum of what each does alone."""
    new, asked = data()[2], boosted()
    frames = {
        "one by one": asked.removal(new, 5, same_sign=True),
        "first order": asked.removal(new, 5, method="first-order", same_sign=True),
        "greedy": asked.removal(new, 5, greedy=True),
    }
    ax = plots.removal(frames, asked, X=new, query=2)
    apart = []
    for line, frame in zip(ax.lines[1:], frames.values()):
        own = frame[frame["query"] == "patient 82"]
        expected = [
            asked.without(new.loc[["patient 82"]], own["row"][:m].tolist())["change"].iloc[0]
            for m in range(1, 6)
        ]
        np.testing.assert_allclose(line.get_ydata(), [0.0, *expected], rtol=1e-12)
        apart.append(np.abs(np.cumsum(own["effect"]) - expected).max())
    assert apart[0] > 1e-3 * np.abs(expected).max()
    assert apart[2] < 1e-9
    assert [text.get_text() for text in ax.get_legend().get_texts()] == list(frames)
    assert "Query patient 82" in ax.get_title("left")
    with pytest.raises(
        InputError, match=r"do not add up. Pass the explainer.*plots.removal\(frame, explainer, X\)"
    ):
        plots.removal(frames["greedy"])
    with pytest.raises(InputError, match="X has 0 rows with the label 'patient 82'"):
        plots.removal(frames["greedy"], asked, X=new.iloc[:1], query=2)
    ax = plots.removal([3.0, 4.0, 6.0], cumulative=True, retrained=True)
    np.testing.assert_array_equal(ax.lines[1].get_ydata(), [0.0, 3.0, 4.0, 6.0])
    np.testing.assert_array_equal(plots.removal([3.0, 4.0]).lines[1].get_ydata(), [0.0, 3.0, 7.0])
    assert "model retrained" in ax.get_ylabel()
    assert ax.get_legend() is None


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_removal_of_one_of_several_outputs(library):
    X, y = data()[:2]
    rows, targets = library(dict(zip("abcdefghij", X.to_numpy().T))), np.column_stack([y, y**2])
    asked = axil.Explainer(
        RandomForestRegressor(5, min_samples_leaf=4, random_state=0).fit(X.to_numpy(), targets),
        rows,
        targets,
    )
    frame = asked.removal(rows[:3], 4, same_sign=True)
    ax = plots.removal(frame, asked, X=rows[:3], query=1, output=1)
    listed = frame.to_dicts() if library is pl.DataFrame else frame.to_dict("records")
    own = [line["row"] for line in listed if line["query"] == 1 and line["output"] == 1]
    expected = np.asarray(asked.without(rows[1:2], own)["change"])[1]
    assert ax.lines[1].get_ydata()[-1] == pytest.approx(expected)


def test_the_heat_map_is_clustered_and_centred():
    K = explainer().jacobian.matrix()
    order = leaves_list(linkage(K, method="ward"))
    ax = plots.matrix(K)
    image = ax.images[0]
    np.testing.assert_array_equal(image.get_array(), K[order][:, order])
    limit = np.percentile(np.abs(K), 99)
    assert image.get_clim() == (-limit, limit)
    red, _, blue, _ = image.cmap(1.0)
    assert blue > red  # positive is blue, as in the paper
    e = explanation()
    ax = plots.matrix(e, cluster=False)
    np.testing.assert_array_equal(ax.images[0].get_array(), e.weights)
    assert names(ax) == list(e.query_index)
    drawn = plots.matrix(e.to_frame()).images[0].get_array()
    np.testing.assert_array_equal(drawn, plots.matrix(e).images[0].get_array())
    assert plots.matrix(forest()).images[0].get_array().shape == (20, 80)


def test_a_large_heat_map_is_thinned_out_and_says_so():
    K = np.random.default_rng(0).normal(size=(500, 90))
    ax = plots.matrix(K, most=50, cluster=False)
    np.testing.assert_array_equal(
        ax.images[0].get_array()[[0, -1]][:, [0, -1]], K[[0, -1]][:, [0, -1]]
    )
    assert ax.images[0].get_array().shape == (50, 50)
    assert "50 × 50 drawn, evenly spaced" in ax.get_title("left")
    assert plots.matrix(np.zeros((3, 3))).images[0].get_clim() == (-1.0, 1.0)


def test_intervals_are_drawn_by_prediction_and_targets_outside_stand_out():
    frame, y = intervals(), true_targets()
    outside = (y < frame["lower"]) | (y > frame["upper"])
    assert 0 < outside.sum() < 60
    ax = plots.fan(frame, y)
    assert f"{1 - outside.mean():.1%}" in ax.get_title(loc="left")
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), np.sort(frame["prediction"]))
    points = [part for part in ax.collections if isinstance(part, PathCollection)]
    assert [len(part.get_offsets()) for part in points] == [60 - outside.sum(), outside.sum()]


def test_a_fan_of_a_predictive_and_its_rows():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    predictive, X, y = boosted().calibrate(X[200:300], y[200:300]), X[300:340], y[300:340]
    expected = plots.fan(predictive.interval(X), y)
    for ax in (plots.fan(predictive, X, y), plots.fan(predictive, X, y=y)):
        assert ax.get_title("left") == expected.get_title("left")
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), expected.lines[0].get_ydata())
    assert "targets" not in plots.fan(predictive, X).get_title("left")
    with pytest.raises(InputError, match=r"expected fan\(predictive, X\)"):
        plots.fan(predictive)
    with pytest.raises(InputError, match=r"fan got 2 arguments after the intervals"):
        plots.fan(predictive.interval(X), y, y)


def test_the_calibration_curve_is_the_share_inside():
    ranks = np.random.default_rng(3).beta(0.7, 0.9, size=300)
    drawn = plots.calibration(ranks).lines[1].get_ydata()
    inside = [
        ((ranks >= (1 - c) / 2) & (ranks <= (1 + c) / 2)).mean() for c in np.linspace(0, 1, 101)
    ]
    np.testing.assert_allclose(
        drawn, inside, atol=1 / 300 + 1e-12
    )  # a rank at the very end of an interval
    ax = plots.calibration(ranks)
    assert ax.get_ylabel() == "covered"
    assert [text.get_text() for text in ax.texts] == [
        "\n".join(f"{level}%: covered {inside[level]:.1%}" for level in (50, 80, 90))
    ]


def test_coverage_by_group_and_by_scale():
    frame, y = intervals(), true_targets()
    inside = ((frame["lower"] <= y) & (y <= frame["upper"])).to_numpy()
    ax = plots.coverage(frame, y, groups=np.repeat(["a", "b", "c"], 20))
    drawn = np.sort(
        np.concatenate(
            [
                part.get_offsets()[:, 0]
                for part in ax.collections
                if isinstance(part, PathCollection)
            ]
        )
    )
    np.testing.assert_allclose(drawn, np.sort(inside.reshape(3, 20).mean(axis=1)))
    assert len(tick_labels(plots.coverage(frame, y).yaxis)) == 3  # groups of 20 rows by scale


def test_targets_of_intervals_are_taken_on_the_scale_that_they_were_given_on():
    """Logarithms, as calibrate and cdf take them, or prices, as the table shows them; neither is compared with the other."""
    draws = np.random.default_rng(0)
    logs = draws.normal(12, 1, 60)
    ends = {"prediction": logs, "lower": logs - 0.5, "upper": logs + 0.5}
    frame = pd.DataFrame(
        {"query": range(60)} | {name: np.exp(values) for name, values in ends.items()}
    )
    frame["scale (log)"], truth = 0.2, logs + draws.normal(0, 0.3, 60)
    inside = (np.abs(truth - logs) <= 0.5).mean()
    for y, word in ((truth, " (given as log)"), (np.exp(truth), "")):
        ax = plots.fan(frame, y)
        assert f"{inside:.1%} of the targets" in ax.get_title(loc="left")
        assert ax.get_ylabel() == f"target{word}"
        assert f"{inside:.1%} of all 60{word}, 90% promised" in plots.coverage(frame, y).get_title(
            loc="left"
        )
    in_logs = pd.DataFrame({"query": range(60), **ends, "scale": 0.2})
    for plot in (plots.fan, plots.coverage):
        with pytest.raises(InputError, match="Expected targets in the units of the intervals"):
            plot(in_logs, np.exp(truth))
