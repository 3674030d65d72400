"""Bars and steps: weights, groups, influence, the waterfall and what is drawn over all predictions."""

import matplotlib
import matplotlib.style
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from lightgbm import LGBMClassifier, LGBMRegressor
from matplotlib.figure import Figure
from sklearn.kernel_ridge import KernelRidge

import axil
from axil import InputError, plots
from axil.plots import canvas
from tests.plots.plot_models import (
    assert_readable,
    data,
    derivatives,
    explainer,
    explanation,
    forest,
    influence_frame,
    largest,
    names,
    texts_of,
    widths,
    years,
)
from tests.plots.test_plot_points import points


def test_bars_are_the_largest_weights_in_the_colour_of_their_sign():
    e = explanation()
    ax = plots.weights(e, 30, query=5)
    rows = largest(e.weights[5], 30)
    np.testing.assert_array_equal(widths(ax), e.weights[5][rows])
    assert names(ax) == list(e.index[rows])
    colours = {
        matplotlib.colors.to_hex(bar.get_facecolor()) for bar in ax.patches if bar.get_width() < 0
    }
    assert colours == {canvas.NEGATIVE}
    assert "patient 85" in ax.get_title("left")
    assert f"{np.abs(e.weights[5][rows]).sum() / np.abs(e.weights[5]).sum():.0%}" in ax.get_title(
        "left"
    )
    assert [float(text.get_text().replace("−", "-")) for text in ax.texts] == pytest.approx(
        widths(ax), abs=1e-3
    )


def test_signs_are_apart_without_colour():
    grey = [
        np.dot(matplotlib.colors.to_rgb(colour), (0.299, 0.587, 0.114))
        for colour in (canvas.POSITIVE, canvas.NEGATIVE)
    ]
    assert grey[1] - grey[0] > 0.25


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_frames_of_any_library_are_drawn(library):
    make = {"pandas": lambda f: f, "polars": pl.from_pandas, "pyarrow": pa.Table.from_pandas}[
        library
    ]
    top = explainer().top(data()[2], 7)
    ax = plots.weights(make(top), query=5)
    part = top[top["query"] == "patient 85"]
    np.testing.assert_array_equal(widths(ax), part["weight"])
    assert names(ax) == list(part["row"])
    groups = explainer().group(data()[2], years())
    ax = plots.group(make(groups), query=-1)
    part = groups[groups["query"] == "patient 99"]
    np.testing.assert_array_equal(widths(ax), part["weight"].iloc[largest(part["weight"], 4)])
    assert names(ax) == list(part["group"].iloc[largest(part["weight"], 4)].astype(str))
    ax = plots.waterfall(make(top), query=5, prediction=100.0)
    np.testing.assert_allclose(widths(ax).sum(), 100.0, rtol=1e-12)


def test_outputs_are_chosen_by_name_and_sparse_weights_are_read():
    e = forest()
    k = list(e.outputs).index("middle")
    ax = plots.waterfall(e, 100, query=3, output="middle", reference=0)
    dense = e.weights.toarray()[3] * e.targets[:, k]
    np.testing.assert_array_equal(widths(ax)[1:-1], dense[largest(dense, 80)])
    assert "output middle" in ax.get_title("left")
    frame = e.top(5)
    ax = plots.weights(frame, query=3, output="middle")
    chosen = frame[(frame["query"] == "patient 83") & (frame["output"] == "middle")]
    np.testing.assert_array_equal(widths(ax), chosen["weight"])
    with pytest.raises(
        InputError, match=r"output is None; expected one of \['high', 'low', 'middle'\]"
    ):
        plots.weights(frame)  # which does not say that these are classes


def test_groups_are_summed_and_small_ones_put_together():
    e, labels = explanation(), np.arange(80) % 9
    sums = np.bincount(labels, e.weights[1] * e.targets)
    ax = plots.group(e, labels, by="contribution", k=6, query=1)
    kept = largest(sums, 6)
    np.testing.assert_allclose(
        widths(ax), [*sums[kept], np.delete(sums, kept).sum()], rtol=1e-12, atol=1e-12
    )
    assert names(ax) == [*map(str, kept), "3 other groups"]


def test_influence_is_ranked_and_leaves_out_what_is_not_known():
    frame = influence_frame()
    ax = plots.influence(frame, 10)
    np.testing.assert_array_equal(widths(ax), frame["gain"][:10])
    assert names(ax) == list(frame["row"][:10])
    first = frame.iloc[0]
    assert ax.texts[0].get_text().endswith(f"({first['target']:.0f} → {first['corrected']:.0f})")
    assert ax.get_title("left").endswith("In brackets: target → corrected target")
    frame.loc[frame.index[:3], "gain"] = np.nan
    np.testing.assert_array_equal(widths(plots.influence(frame, 10)), frame["gain"][3:13])
    ax = plots.influence(frame[["row", "target", "gradient"]], 10)
    gradients = frame["gradient"].to_numpy()
    np.testing.assert_array_equal(widths(ax), gradients[largest(gradients, 10)])
    with pytest.raises(InputError, match="No gain in the frame is known"):
        plots.influence(frame.assign(gain=np.nan), 10)


@pytest.mark.parametrize("classes", [["no", "yes"], [1, 2]])
def test_influence_of_classes_is_of_the_log_loss_and_shows_classes(classes):
    X, y, more, true = data()
    kinds, truth = (
        np.array(classes)[(targets > np.median(y)).astype(int)] for targets in (y, true)
    )
    model = LGBMClassifier(n_estimators=10, num_leaves=6, min_child_samples=5, verbose=-1).fit(
        X, kinds
    )
    frame = axil.Explainer(model, X, kinds).influence(more, truth)
    for given in (frame, pl.from_pandas(frame)):
        ax = plots.influence(given, 10)
        first = frame.iloc[0]
        assert ax.texts[0].get_text().endswith(f"  ({first['target']} → {first['corrected']})")
        assert ax.get_xlabel().startswith(
            "fall of the mean validation log-loss\nper unit that this label moves"
        )


def test_influence_of_counts_is_of_the_deviance():
    X, y, more, true = data()
    model = LGBMRegressor(
        objective="poisson", n_estimators=10, num_leaves=6, min_child_samples=5, verbose=-1
    )
    y, true = np.abs(y).round(), np.abs(true).round()
    frame = axil.Explainer(model.fit(X, y), X, y).influence(more, true)
    assert (
        plots.influence(frame)
        .get_xlabel()
        .startswith("derivative of the mean validation deviance\nby this target")
    )
    unsaid = plots.influence(
        pl.from_pandas(frame)
    ).get_xlabel()  # no note: the gradient of any error
    assert unsaid.startswith("derivative of the mean validation error\nby this target")
    squared = plots.influence(explainer().influence(more, data()[3], out_of_fold=None)).get_xlabel()
    assert squared.startswith("derivative of the mean squared validation error\nby this target")


def test_long_labels_lose_their_middle_and_dollars_stay_dollars():
    long = [f"from $5 to $9: the {i}th house in a street of a very long name" for i in range(80)]
    ax = plots.weights(explanation(), labels=long, k=15)
    assert all(
        len(name) == 44 and name.startswith("from $5 to $9: the ") and name.endswith("long name")
        for name in names(ax)
    )
    assert_readable(ax)
    assert ax.figure.get_figwidth() > 7.5  # room for them beside the bars
    narrow = plots.weights(
        explanation(), 5, labels=long, ax=Figure(figsize=(4, 3), layout="constrained").subplots()
    )
    assert all(16 <= len(name) <= 28 for name in names(narrow))
    assert_readable(narrow)
    parts = [("north", i) for i in range(80)]
    assert names(plots.weights(explanation(), 1, labels=parts))[0].startswith("north, ")
    assert canvas.shorten("a" * 40, 5) == "aa…aa"
    assert canvas.shorten(("north", pd.Timestamp("2020-05-01"), 3)) == "north, 2020-05-01, 3"
    assert canvas.shorten(np.datetime64("2020-05-01T00:00:00")) == "2020-05-01"


def test_a_prediction_is_chosen_by_its_label():
    e = explanation()
    for source in (e, e.top(6), pl.from_pandas(e.top(6))):
        np.testing.assert_array_equal(
            widths(plots.weights(source, 6, query="patient 85")),
            widths(plots.weights(source, 6, query=5)),
        )
    X, y, new, _ = data()
    model = KernelRidge(kernel="rbf", gamma=30.0, alpha=0.3).fit(X.to_numpy(), y)
    asked = axil.Explainer(model, X.to_numpy(), y.to_numpy())
    for index, label in (
        (pd.date_range("2020-01-01", periods=20), "2020-01-06"),
        (pd.date_range("2020-01-01", periods=20), pd.Timestamp("2020-01-06")),
        (pd.MultiIndex.from_product([["a", "b"], range(10)]), ("a", 5)),
    ):
        drawn = plots.weights(asked(new.set_axis(index)), query=label)
        np.testing.assert_array_equal(
            widths(drawn), widths(plots.weights(asked(new.to_numpy()), query=5))
        )
    numbered = asked(new.set_axis(range(80, 100)))
    assert "Query 85:" in plots.weights(numbered, query=5).get_title(
        "left"
    )  # whole numbers are positions
    assert "Query 85:" in plots.weights(numbered, query=85).get_title(
        "left"
    )  # unless they are none
    assert "Query 85:" in plots.waterfall(numbered, query=85).get_title("left")
    with pytest.raises(
        InputError, match=r"several predictions are called; pass a position: \[0, 1\]"
    ):
        plots.weights(e[[0, 0]], query="patient 80")


@pytest.mark.parametrize("by", ["weight", "contribution"])
@pytest.mark.parametrize("labels", [None, years()])
def test_overall_is_the_mean_over_predictions(by, labels):
    e = explanation()
    table = np.zeros((20, 80 if labels is None else 4))
    for i in range(20):
        for j in range(80):
            part = e.weights[i, j] * (1.0 if by == "weight" else e.targets[j] - e.targets.mean())
            table[i, j if labels is None else labels[j] - 2019] += part
    sizes = np.abs(table).mean(axis=0)
    rows = largest(sizes, 3)
    ax = plots.overall(e, labels, k=3, by=by)
    np.testing.assert_allclose(widths(ax), sizes[rows], rtol=1e-9)
    assert names(ax) == [
        str((e.index if labels is None else np.unique(labels))[row]) for row in rows
    ]
    assert f"hold {sizes[rows].sum() / sizes.sum():.0%} of" in ax.get_title("left")
    assert_readable(ax)
    ax = plots.overall(e, labels, k=3, by=by, swarm=True)
    drawn = points(ax)
    lines = np.round(drawn[:, 1]).astype(int)
    for line, row in enumerate(rows):
        np.testing.assert_allclose(
            np.sort(drawn[lines == line, 0]), np.sort(table[:, row]), rtol=1e-9
        )
    assert names(ax)[0] == names(plots.overall(e, labels, k=3, by=by))[0]


def test_overall_of_sparse_weights_derivatives_and_pushes():
    from lightgbm import LGBMClassifier

    dense = np.abs(forest().weights.toarray()).mean(axis=0)
    np.testing.assert_allclose(
        widths(plots.overall(forest(), output="low")), np.sort(dense)[::-1][:10], rtol=1e-12
    )
    k = list(forest().outputs).index("low")
    own = forest().targets[:, k] - forest().targets[:, k].mean()
    sums = np.abs(np.add.reduceat(forest().weights.toarray() * own, [0, 20, 40, 60], axis=1)).mean(
        axis=0
    )
    ax = plots.overall(forest(), years(), by="contribution", output="low")
    np.testing.assert_allclose(widths(ax), np.sort(sums)[::-1], rtol=1e-9)
    np.testing.assert_array_equal(
        widths(plots.overall(explanation(), "sex")),
        widths(plots.overall(explanation(), data()[0]["sex"])),
    )
    assert names(plots.group(explanation(), "sex")) == names(
        plots.group(explanation(), data()[0]["sex"])
    )
    assert plots.overall(derivatives()).get_xlabel() == "mean |derivative|"
    X, y, new, _ = data()
    high = y > 150
    pushes = axil.Explainer(
        LGBMClassifier(n_estimators=5, num_leaves=4, verbose=-1).fit(X, high), X, high
    )(new)
    ax = plots.overall(pushes)
    np.testing.assert_allclose(
        widths(ax)[0], np.abs(pushes.contributions).mean(axis=0).max(), rtol=1e-12
    )
    assert ax.get_xlabel() == "mean |contribution|"
    with pytest.raises(InputError, match="leave out by"):
        plots.overall(pushes, by="weight")


def test_the_waterfall_leads_from_the_intercept_to_the_prediction():
    e = explanation()
    for reference, level in {0.0: 0.0, 150.0: 150.0, "mean": e.targets.mean()}.items():
        ax = plots.waterfall(e, 6, query=4, reference=reference)
        bars = ax.patches
        parts = e.weights[4] * (e.targets - level)
        rows = largest(parts, 6)
        start = e.intercepts[4] + level * e.weights[4].sum()
        np.testing.assert_allclose(widths(ax)[1:7], parts[rows], rtol=1e-12)
        np.testing.assert_allclose(bars[1].get_x(), start, rtol=1e-12)
        ends = [bar.get_x() + bar.get_width() for bar in bars]
        np.testing.assert_allclose([bar.get_x() for bar in bars[1:]], ends[:-1], rtol=1e-9)
        np.testing.assert_allclose(ends[-1], e.predictions[4], rtol=1e-12)
        assert names(ax)[1:] == [*e.index[rows], "74 other rows", "prediction"]
    assert (
        names(plots.waterfall(e))[0] == f"all targets at {e.targets.mean():.0f}"
    )  # the mean by default


def test_all_rows_leave_no_rest():
    ax = plots.waterfall([1.0, -3.0, 2.0], 5, intercept=10.0)
    np.testing.assert_array_equal(widths(ax), [0.0, -3.0, 2.0, 1.0, 0.0])
    assert names(ax) == ["intercept", "1", "2", "0", "prediction"]


def test_a_frame_of_some_rows_says_where_the_intercept_is():
    frame = explanation().top(3)
    assert "all other rows, intercept" in names(plots.waterfall(frame, prediction=1.0))
    ax = plots.waterfall(frame, prediction=1.0, intercept=0.5)
    assert names(ax)[0] == "intercept"
    assert "all other rows" in names(ax)


def test_derivatives_say_so():
    e = derivatives()
    for ax in (
        plots.weights(e),
        plots.weights(e.top(5)),
        plots.weights(pl.from_pandas(e.top(5)), exact=False),
        plots.weights_against(e, years()),
        plots.targets(e),
        plots.group(e, years()),
        plots.group(e.group(years())),
        plots.matrix(e),
        plots.matrix(e.weights, exact=False),
        plots.concentration(e),
        plots.waterfall(e),
    ):
        assert_readable(ax)
        assert "erivative" in ax.get_title("left") + ax.get_xlabel() + ax.get_ylabel()
        assert "weight" not in " ".join(text.get_text() for text in texts_of(ax)).lower()


def test_the_waterfall_of_classes_is_of_the_class_predicted():
    e = forest()
    best = e.outputs[e.predictions.argmax(axis=1)]
    assert len(set(best[:20].tolist())) > 1
    for query in range(5):
        assert f"output {best[query]}" in plots.waterfall(e, query=query).get_title(loc="left")
    assert "output low" in plots.waterfall(e, output="low").get_title(loc="left")


@pytest.mark.parametrize("unit", ["ns", "s", "D"])
def test_dates_of_any_unit_are_written_as_dates(unit):
    from sklearn.tree import DecisionTreeRegressor

    X, y = np.arange(6.0)[:, None], np.arange(6.0)
    dates = np.arange("2011-06-01", "2011-06-07", dtype="datetime64[D]").astype(
        f"datetime64[{unit}]"
    )
    explainer = axil.Explainer(DecisionTreeRegressor(max_leaf_nodes=2).fit(X, y), X, y, index=dates)
    source = explainer(X[:1])
    days = {str(day) for day in dates.astype("datetime64[D]")}
    for draw in (plots.weights, plots.waterfall, plots.overall):
        written = {text.get_text() for text in draw(source).get_yticklabels()}
        assert "2011-06-01" in written
        assert not {name for name in written if name.isdigit()}
        assert written & days
