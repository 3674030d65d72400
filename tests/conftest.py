"""Threads, options and fixtures of all tests.

The workers of a parallel run share the cores, so the libraries get one thread each. Where a test asks for more threads, they
wait asleep: by default OpenMP's threads wait in a loop, which takes the core from the others.
"""

import os
import platform
import shutil
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests import chosen_core  # noqa: F401  (before anything imports axil)
from tests.subsets import share_of

for name, value in {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "passive",
}.items():
    os.environ.setdefault(name, value)


LIBRARIES = (
    "numpy",
    "scipy",
    "pandas",
    "polars",
    "pyarrow",
    "scikit-learn",
    "scikit-survival",
    "lightgbm",
    "xgboost",
    "catboost",
    "statsmodels",
    "dask",
    "torch",
    "mlforecast",
    "skforecast",
)


def pytest_addoption(parser):
    parser.addoption(
        "--one-in",
        type=int,
        default=1,
        metavar="N",
        help="run about one in N cases, chosen by a hash of their names; tests of one case share a model",
    )


def pytest_collection_modifyitems(config, items):
    """Keep about one in N cases of each test for ``--one-in N``."""
    n_shares = config.getoption("--one-in")
    in_share = []
    left_out = []
    for item in items:
        case = item.callspec.id if hasattr(item, "callspec") else item.name
        if share_of(n_shares, f"case {case}") == 0:
            in_share.append(item)
        else:
            left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = in_share


def pytest_report_header():
    """Say which versions of Python and of the libraries the tests run with."""
    versions = []
    for library in LIBRARIES:
        try:
            versions.append(f"{library} {metadata.version(library)}")
        except metadata.PackageNotFoundError:
            continue
    return f"Python {platform.python_version()}: {', '.join(versions)}"


CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="session")
def browser():
    """A real Chromium, for `make test-browser` alone."""
    if "AXIL_REQUIRE_BROWSER" not in os.environ:
        pytest.skip("make test-browser runs it")
    from playwright.sync_api import sync_playwright

    assert CHROMIUM is not None, "there is no chromium: run scripts/install_chromium.sh"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def experiments(monkeypatch):
    """Let tests import the scripts of the folder experiments."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "experiments"))


@pytest.fixture(autouse=True)
def _figures_are_closed():
    """pyplot keeps each figure that a plot makes, as in a script."""
    yield
    if (pyplot := sys.modules.get("matplotlib.pyplot")) is not None:
        pyplot.close("all")
