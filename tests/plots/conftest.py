"""Settings of matplotlib for all plots."""

import matplotlib
import matplotlib.style
import pytest


@pytest.fixture(autouse=True)
def _defaults():
    """matplotlib as it comes, whatever the user's own settings are."""
    with matplotlib.rc_context({"figure.max_open_warning": 0}), matplotlib.style.context("default"):
        yield
