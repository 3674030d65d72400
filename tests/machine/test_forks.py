"""Forked processes answer, after the model's library and axil have used threads in the parent."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

PROGRAM = """
import faulthandler, os, sys, threading, warnings
import numpy as np
warnings.simplefilter("ignore")
{imports}
import axil

rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 5))
y = (X[:, 0] + rng.normal(size=2000) > 0) * 1
model = {model}.fit(X, y)
explainer = axil.Explainer(model, X, y, n_threads=2)
rows = X[:200]
expected = explainer.top(rows, k=3)
{before}
process = os.fork()
if process == 0:
    faulthandler.dump_traceback_later(40, exit=True)
    same = explainer.top(rows, k=3).equals(expected)
    again = axil.Explainer(model, X, y, n_threads=2).precompute()
    same &= again.top(rows, k=3)["row"].equals(expected["row"])
    os._exit(0 if same else 3)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]))
"""

MODELS = {
    "lightgbm": (
        "from lightgbm import LGBMClassifier",
        "LGBMClassifier(n_estimators=10, n_jobs=2, verbose=-1)",
    ),
    "xgboost": ("from xgboost import XGBClassifier", "XGBClassifier(n_estimators=10, n_jobs=2)"),
    "histogram boosting": (
        "from sklearn.ensemble import HistGradientBoostingClassifier",
        "HistGradientBoostingClassifier(max_iter=10)",
    ),
}


def run(name, before=""):
    imports, model = MODELS[name]
    program = PROGRAM.format(imports=imports, model=model, before=textwrap.dedent(before))
    environment = os.environ | {"OMP_NUM_THREADS": "2"}
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("name", MODELS)
def test_a_forked_process_answers(name):
    finished = run(name)
    assert finished.returncode == 0, finished.stderr


def test_locks_that_other_threads_held_at_the_fork_are_free():
    before = """
    from axil.machine import progress, threads
    from axil.methods.method import verified_model
    is_held = threading.Event()

    def hold():
        caches = [verified_model(explainer).boosting._cache, verified_model(explainer).kept]
        with threads._limits, progress._one_bar, caches[0]._lock, caches[1]._lock:
            is_held.set()
            threading.Event().wait()

    threading.Thread(target=hold, daemon=True).start()
    is_held.wait()
    """
    finished = run("lightgbm", before)
    assert finished.returncode == 0, finished.stderr
