"""The logger axil: what was decided, and how long it took; silent without a configuration."""

import logging
import subprocess
import sys

import numpy as np
from lightgbm import LGBMClassifier, LGBMRegressor

import axil

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 3))


def test_models_answers_and_decisions_are_logged(caplog):
    model = LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1).fit(X, X[:, 0])
    with caplog.at_level(logging.DEBUG, "axil"):
        axil.Explainer(model, X, X[:, 0]).top(X[:2])
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert ("DEBUG", "backward passes for 2 rows") in lines
    assert any("LightGBM model of kind exact with 200 training rows" in text for _, text in lines)
    assert any("of 2 rows by 200 training rows, TopRows, in" in text for _, text in lines)


def test_stored_contributions_are_logged_with_their_size(caplog):
    y = X[:, 0] > 0
    model = LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1).fit(X, y)
    with caplog.at_level(logging.INFO, "axil"):
        axil.Explainer(model, X, y).precompute()
    assert "The contributions in leaf order take" in caplog.text


def test_nothing_is_printed_without_a_configuration():
    program = "from axil.machine.log import logger; logger.error('silent')"
    finished = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert finished.stderr == ""
