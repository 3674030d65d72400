"""A bar where somebody is looking and work takes long; nothing else."""

import io
import sys
import warnings
from types import ModuleType, SimpleNamespace

import pytest

from axil.machine import progress
from tests.terminal import Terminal


def test_nothing_is_shown_where_nobody_looks(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    assert list(progress.track(range(3), "work")) == [0, 1, 2]
    assert screen.getvalue() == ""


def test_a_bar_appears_on_a_terminal_once_patience_is_over(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(progress, "PATIENCE", 0)
    assert list(progress.track(range(3), "work")) == [0, 1, 2]
    assert "work" in screen.getvalue()


def test_short_work_shows_nothing(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    assert list(progress.track(range(3), "work")) == [0, 1, 2]
    assert "work" not in screen.getvalue()


def test_a_bar_within_a_bar_is_not_shown(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(progress, "PATIENCE", 0)
    for _ in progress.track(range(2), "outer"):
        assert list(progress.track(range(3), "inner")) == [0, 1, 2]
    assert "outer" in screen.getvalue()
    assert "inner" not in screen.getvalue()


def test_no_bar_is_shown_where_nobody_wants_one(monkeypatch):
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(progress, "PATIENCE", 0)
    with progress.silent():
        assert list(progress.track(range(3), "hidden")) == [0, 1, 2]
    assert list(progress.track(range(3), "seen")) == [0, 1, 2]
    assert "hidden" not in screen.getvalue()
    assert "seen" in screen.getvalue()


def test_after_an_exception_bars_appear_again(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE", 0)
    monkeypatch.setattr("sys.stderr", Terminal())

    def work():
        for _ in progress.track(range(2), "stopped"):
            raise KeyboardInterrupt

    with pytest.raises(
        KeyboardInterrupt
    ) as kept:  # as a session keeps the last one, and what it holds
        work()
    screen = Terminal()
    monkeypatch.setattr("sys.stderr", screen)
    assert list(progress.track(range(3), "next")) == [0, 1, 2]
    assert "next" in screen.getvalue()
    assert kept.traceback


def test_notebooks_without_widgets_get_a_plain_bar_and_no_warning(monkeypatch):
    """As tqdm sees a notebook: by the configuration of the running IPython."""
    kernel = SimpleNamespace(get_ipython=lambda: SimpleNamespace(config={"IPKernelApp": {}}))
    for name, module in {
        "ipykernel": ModuleType("ipykernel"),
        "IPython": kernel,
        "ipywidgets": None,
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(progress, "find_spec", lambda name: None)
    for name in [name for name in sys.modules if name.startswith("tqdm")]:
        monkeypatch.delitem(sys.modules, name)
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(progress, "PATIENCE", 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(progress.track(range(3), "work")) == [0, 1, 2]
    assert "work" in screen.getvalue()


def test_durations_in_words():
    words = [progress.in_time(seconds) for seconds in (0.2, 57, 600, 20000, float("inf"))]
    assert words == [
        "some 1 seconds",
        "some 57 seconds",
        "some 10 minutes",
        "some 6 hours",
        "longer than is allowed",
    ]
