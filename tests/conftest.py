"""The workers of a parallel run share the cores: one thread each for the libraries, or their threads wait for each other."""

import os
import sys

import chosen_core  # noqa: F401  (before anything imports axil)
import pytest

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")


@pytest.fixture(autouse=True)
def _figures_are_closed():
    """pyplot keeps each figure that a plot makes, as in a script."""
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")
