"""What every plot keeps to: readable text, axes given or its own, dark styles, ticks, and no state left behind."""

import re
import subprocess
import sys

import matplotlib
import matplotlib.style
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.figure import Figure

from axil import InputError, plots
from axil.plots import canvas
from tests.plots.plot_models import (
    DRAWN,
    assert_readable,
    explanation,
    texts_of,
    tick_labels,
    years,
)


@pytest.mark.parametrize("name", DRAWN)
def test_text_is_readable_and_effects_say_what_is_held_fixed(name):
    ax = DRAWN[name](None)
    assert_readable(ax)
    fixed = sum("structure fixed" in text.get_text() for text in texts_of(ax))
    assert fixed == (
        name
        in ("influence", "removal", "leave_one_out_curve", "label_issues", "label_issues_classes")
    )  # not noise on every axis


def test_the_axes_given_are_drawn_on_and_returned():
    for draw in DRAWN.values():
        ax = Figure().subplots()
        assert draw(ax) is ax
        assert ax.has_data()


@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_of_its_own_is_known_to_pyplot_and_one_given_is_not(name):
    ax = DRAWN[name](None)
    assert pyplot.gcf() is ax.figure
    assert len(pyplot.get_fignums()) == 1
    DRAWN[name](Figure().subplots())
    assert len(pyplot.get_fignums()) == 1


def test_names_are_functions():
    assert dir(plots) == sorted(plots.__all__)
    assert all(callable(getattr(plots, name)) for name in dir(plots))
    for known in ("waterfall", "bar", "bars", "beeswarm", "heatmap", "heat", "scatter", "points"):
        assert callable(
            getattr(plots, known, print)
        )  # no module under a name that other libraries call


def contrast(colour, other):
    """WCAG's ratio of the luminances of two colours."""
    parts = [np.array(matplotlib.colors.to_rgb(one)) for one in (colour, other)]
    linear = [
        np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4) for part in parts
    ]
    low, high = sorted(float(part @ (0.2126, 0.7152, 0.0722)) for part in linear)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", DRAWN)
def test_all_words_and_marks_are_seen_in_dark_styles(name):
    """4.5 is what WCAG asks for of text, 3 of marks. Drawn after the style: axes keep the one they were made in."""
    with matplotlib.style.context("dark_background"):
        ax = Figure().subplots()
    DRAWN[name](ax)
    ground = ax.get_facecolor()
    assert all(contrast(text.get_color(), ground) > 4.5 for text in texts_of(ax))
    marks = [bar.get_edgecolor() if bar.get_hatch() else bar.get_facecolor() for bar in ax.patches]
    marks += [line.get_color() for line in ax.lines if line.get_alpha() is None]
    assert all(contrast(mark, ground) > 3 for mark in marks)
    grid = [*ax.xaxis.get_gridlines(), *ax.yaxis.get_gridlines()]
    assert all(line.get_alpha() < 0.2 for line in grid if line.get_visible() and name != "matrix")


def test_no_state_is_left_behind():
    """Settings and the backend stay, and matplotlib is loaded by the first plot only."""
    program = """
import sys, axil
axil.plots
assert "matplotlib" not in sys.modules
import matplotlib
import matplotlib.figure
settings = lambda: {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}  # that asks pyplot
before = settings()
axil.plots.matrix([[0.5, -0.2], [0.1, 0.9]], ax=matplotlib.figure.Figure().subplots())
assert "matplotlib.pyplot" not in sys.modules
assert settings() == before
import matplotlib.pyplot  # sets some itself
matplotlib.use("svg")
before = settings()
ax = axil.plots.weights([0.5, -0.2, 0.7])
assert settings() == before and matplotlib.get_backend() == "svg"
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    with pytest.raises(InputError, match=r"axil\[plots\]"):
        plots.weights([1.0, 2.0])


@pytest.mark.parametrize("n", [1, 2, 10, 10_000])
def test_few_and_many_rows_are_readable(n):
    generator = np.random.default_rng(0)
    weights = generator.normal(size=n)
    for ax in (
        plots.weights(
            weights, labels=[f"a long label of row {i} among many others" for i in range(n)]
        ),
        plots.weights(weights, 300),
        plots.waterfall(1e6 * weights, 30, intercept=-2.5e6),
        plots.weights_against(weights, generator.normal(size=n)),
        plots.targets(weights, generator.normal(size=n)),
        plots.concentration(weights),
        plots.leverage(np.abs(weights)),
        plots.matrix(np.atleast_2d(weights)),
    ):
        assert_readable(ax)


@pytest.mark.parametrize(
    ("ticks", "written"),
    [
        ([0, 60_000, 120_000], ["0", "60,000", "120,000"]),
        ([-2e7, 0, 2e7], ["−20,000,000", "0", "20,000,000"]),
        ([2019, 2020, 2021], ["2019", "2020", "2021"]),
        ([0.0, 0.25, 0.5], ["0.00", "0.25", "0.50"]),
        ([-0.1, 0.0, 0.1 + 0.2], ["−0.1", "0.0", "0.3"]),
        ([0.0, 2e-9], ["0", "2e−09"]),
        ([0.0, 3e15], ["0", "3e+15"]),
        ([5.0], ["5"]),
    ],
)
def test_ticks_have_separators_and_years_have_none(ticks, written):
    assert [canvas.tick(value, np.array(ticks, dtype=float)) for value in ticks] == written


def test_ticks_of_other_kinds_are_kept():
    ax = plots.weights_against(explanation(), years() * 10_000)
    ax.figure.draw_without_rendering()
    assert all(re.fullmatch(r"20,\d\d\d,000", label.get_text()) for label in tick_labels(ax.xaxis))
    ax = Figure().subplots()
    ax.xaxis.set_major_formatter("{x:.1f} km")
    ax = plots.weights_against(explanation(), years(), ax=ax)
    assert ax.xaxis.get_major_formatter()(2019.0) == "2019.0 km"
