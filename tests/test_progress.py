"""A bar where somebody is looking and work takes long; nothing else."""

import io

from axil import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


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
