"""Explanations and tables that are drawn, one drawing per plot, and what is read off a drawing.

`python tests/plots/plot_models.py` makes tests/plots/images again: look at them before you commit them.
"""

from functools import cache
from itertools import pairwise
from pathlib import Path

import matplotlib
import matplotlib.style
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestClassifier
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression

import axil
from axil import plots

IMAGES = Path(__file__).parent / "images"


@cache
def data():
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    X.index = y.index = [f"patient {i}" for i in range(len(X))]
    return X.iloc[:80], y.iloc[:80], X.iloc[80:100], y.iloc[80:100]


@cache
def explainer():
    """A smoother in closed form, so that pictures do not depend on the version of a library; it has negative weights."""
    X, y, _, _ = data()
    return axil.Explainer(KernelRidge(kernel="rbf", gamma=30.0, alpha=0.3).fit(X, y), X, y)


@cache
def explanation():
    return explainer()(data()[2])


@cache
def forest():
    """Several outputs and sparse weights."""
    X, y, new, _ = data()
    kind = np.array(["low", "middle", "high"])[np.digitize(y, [100, 200])]
    model = RandomForestClassifier(10, random_state=0).fit(X, kind)
    return axil.Explainer(model, X, kind)(new, sparse=True)


@cache
def derivatives():
    X, y, new, _ = data()
    model = LogisticRegression(tol=1e-10).fit(X, y > 150)
    return axil.Explainer(model, X, y > 150)(new)


def years():
    return np.repeat([2019, 2020, 2021, 2022], 20)


def quarters():
    """Dates out of order, four rows to each."""
    return pd.Series(
        pd.period_range("2000Q1", periods=20, freq="Q")[np.arange(80) * 7 % 20], name="quarter"
    )


def influence_frame():
    return explainer().influence(data()[2], data()[3])


@cache
def boosted():
    from lightgbm import LGBMRegressor

    X, y, _, _ = data()
    model = LGBMRegressor(n_estimators=10, num_leaves=6, min_child_samples=5, verbose=-1).fit(X, y)
    return axil.Explainer(model, X, y)


def error_curve():
    trees = np.arange(21)
    return pd.DataFrame(
        {"trees": trees, "error": 3 + 0.9**trees, "training_error": 2 + 2 * 0.85**trees}
    )


def suspects():
    """A table as `find_label_issues` makes it: 60 targets around a line, three of them far off, and one that is not judged."""
    generator = np.random.default_rng(4)
    expected = generator.uniform(0.0, 10.0, size=60)
    residual = generator.normal(size=60)
    residual[:3] = 8.0, -9.0, 7.0
    expected[-1] = residual[-1] = np.nan
    columns = {
        "row": np.arange(60),
        "given_label": np.where(np.isnan(expected), 5.0, expected + residual),
    }
    columns |= {
        "expected_label": expected,
        "residual": residual,
        "scale": 1.0,
        "studentised": residual,
    }
    columns |= {"label_quality": np.exp(-np.abs(residual)), "is_label_issue": np.abs(residual) > 5}
    frame = pd.DataFrame(columns)
    frame.attrs["axil"] = explainer().find_label_issues().attrs["axil"]
    return frame


def class_suspects():
    """A table as `find_label_issues` makes it of classes."""
    quality = np.append(np.linspace(0.1, 1.0, 49), np.nan)
    kind = np.repeat(["cat", "dog"], 25)
    expected = np.where(quality < 0.3, kind[::-1], kind)
    frame = pd.DataFrame(
        {
            "row": np.arange(50),
            "given_label": kind,
            "expected_label": expected,
            "label_quality": quality,
        }
    )
    frame["is_label_issue"] = frame["given_label"] != frame["expected_label"]
    frame.attrs["axil"] = "by the classes of other rows in the leaves of the fit; not a retraining"
    return frame.sample(frac=1.0, random_state=0)


def intervals(half=1.0):
    """A table of 60 intervals around a line, wider towards its end."""
    at = np.linspace(0.0, 10.0, 60)
    width = half * (0.5 + at / 5)
    order = np.random.default_rng(0).permutation(60)
    columns = {"prediction": at, "lower": at - width, "upper": at + width, "scale": width / 2}
    return pd.DataFrame(
        {"query": np.arange(60)} | {name: values[order] for name, values in columns.items()}
    )


def coverage_by_area():
    """Return a table of `Predictive.coverage` with places; one area is covered too seldom."""
    covered = np.array([0.92, 0.6, 0.95, 1.0])
    rows = np.array([60, 80, 20, 5])
    return pd.DataFrame(
        {
            "group": ["west", "mill", "lake", "hill"],
            "rows": rows,
            "covered": covered,
            "lower": covered - 0.1,
            "upper": np.minimum(covered + 0.1, 1.0),
            "median_width": 2.0,
            "latitude": [42.00, 42.03, 42.05, 42.01],
            "longitude": [-93.66, -93.64, -93.65, -93.60],
        }
    )


def true_targets():
    frame = intervals()
    return frame["prediction"] + frame["scale"] * np.random.default_rng(1).normal(
        scale=1.5, size=60
    )


def removal_curves():
    effects = np.sort(explanation().weights, axis=1)[:2, ::-1]
    return {"one": effects[0, :12], "another": effects[1, :12]}


DRAWN = {
    "weights": lambda ax: plots.weights(explanation(), 15, query=2, ax=ax),
    "waterfall": lambda ax: plots.waterfall(explanation(), query=2, ax=ax),
    "contributions": lambda ax: plots.waterfall(explanation(), 5, query=2, reference=0, ax=ax),
    "overall": lambda ax: plots.overall(explanation(), k=15, ax=ax),
    "swarm": lambda ax: plots.overall(explanation(), years(), swarm=True, ax=ax),
    "concentration": lambda ax: plots.concentration(explanation(), query=2, ax=ax),
    "weights_against": lambda ax: plots.weights_against(
        explanation(), data()[0]["bmi"], query=2, ax=ax
    ),
    "targets": lambda ax: plots.targets(explanation(), query=2, ax=ax),
    "group": lambda ax: plots.group(explanation(), years(), query=2, k=3, ax=ax),
    "matrix": lambda ax: plots.matrix(
        explainer().jacobian.matrix()[:27, :27], colorbar=False, ax=ax
    ),  # cells of whole pixels
    "influence": lambda ax: plots.influence(influence_frame(), 8, by="gradient", ax=ax),
    "removal": lambda ax: plots.removal(removal_curves(), ax=ax),
    "leverage": lambda ax: plots.leverage(explainer().diagnostics.leverage(), ax=ax),
    "leave_one_out_curve": lambda ax: plots.leave_one_out_curve(error_curve(), ax=ax),
    "timeline": lambda ax: plots.timeline(explanation(), quarters(), query=2, ax=ax),
    "fan": lambda ax: plots.fan(
        {"90 %": intervals(), "50 %": intervals(0.4)}, true_targets(), ax=ax
    ),
    "calibration": lambda ax: plots.calibration(
        np.random.default_rng(2).beta(0.8, 0.8, size=200), ax=ax
    ),
    "coverage": lambda ax: plots.coverage(
        intervals(), true_targets(), groups=np.repeat(["a", "b", "c"], 20), ax=ax
    ),
    "coverage_map": lambda ax: plots.coverage_map(coverage_by_area(), ax=ax),
    "label_issues": lambda ax: plots.label_issues(suspects(), ax=ax),
    "label_issues_classes": lambda ax: plots.label_issues(class_suspects(), ax=ax),
    "ranked": lambda ax: plots.leverage(explainer().diagnostics.leverage(), ranked=True, ax=ax),
}


def picture(draw, path):
    """Draw on axes of a fixed place and save without text."""
    figure = Figure(figsize=(4, 3), dpi=60)
    ax = figure.add_axes((0.05, 0.05, 0.9, 0.9))
    draw(ax)
    for text in figure.findobj(
        lambda part: isinstance(part, (matplotlib.text.Text, matplotlib.legend.Legend))
    ):
        text.set_visible(False)
    figure.savefig(path, metadata={"Software": None}, pil_kwargs={"optimize": True})


def tick_labels(axis):
    """Those that are drawn: matplotlib keeps some more, beyond the limits."""
    low, high = sorted(axis.get_view_interval())
    return [
        tick.label1
        for tick in axis.get_major_ticks()
        if low <= tick.get_loc() <= high and tick.label1.get_text()
    ]


def texts_of(ax):
    """All text of the figure but numbers at ticks."""
    kept = {
        tick.label1
        for one in ax.figure.axes
        for axis in (one.xaxis, one.yaxis)
        for tick in axis.get_major_ticks()
    }
    found = ax.figure.findobj(matplotlib.text.Text)
    return [text for text in found if text not in kept and text.get_visible() and text.get_text()]


def assert_readable(ax):
    """All text within the figure, no label on top of another, and numbers beside bars within the axes."""
    ax.figure.draw_without_rendering()
    down, across = tick_labels(ax.yaxis), tick_labels(ax.xaxis)
    assert_within(ax.figure.bbox, texts_of(ax) + down + across)
    assert_within(ax.get_window_extent(), ax.texts)
    for labels, low, high in ((down, "y0", "y1"), (across, "x0", "x1")):
        boxes = [label.get_window_extent() for label in labels]
        ends = sorted((getattr(box, low), getattr(box, high)) for box in boxes)
        assert all(before[1] <= after[0] + 1 for before, after in pairwise(ends))


def assert_within(outer, texts):
    for text in texts:
        box = text.get_window_extent()
        assert outer.x0 - 1 <= box.x0 <= box.x1 <= outer.x1 + 1, text
        assert outer.y0 - 1 <= box.y0 <= box.y1 <= outer.y1 + 1, text


def widths(ax):
    return np.array([bar.get_width() for bar in ax.patches])


def names(ax):
    return [label.get_text() for label in ax.get_yticklabels()]


def largest(values, k):
    return np.argsort(-np.abs(values), kind="stable")[:k]


if __name__ == "__main__":
    IMAGES.mkdir(exist_ok=True)
    with matplotlib.style.context("default"):
        for name, draw in DRAWN.items():
            picture(draw, IMAGES / f"{name}.png")
