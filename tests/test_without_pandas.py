"""Users of NumPy, polars or pyarrow need no pandas; in interpreters of their own, where it cannot be imported."""

import subprocess
import sys

import pytest

BLOCKED = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
import numpy as np
import axil
from lightgbm import LGBMRegressor, LGBMClassifier
from sklearn.ensemble import RandomForestRegressor

draws = np.random.default_rng(0)
X, names = draws.normal(size=(80, 3)), ["size", "year", "rooms"]
y, groups = X @ [1.0, 2.0, 3.0], np.array(["b", "a"] * 40)
settings = dict(n_estimators=5, min_child_samples=5, verbose=-1, n_jobs=1)
boosted, forest = LGBMRegressor(**settings).fit(X, y), RandomForestRegressor(5, random_state=0).fit(X, y)
"""
QUESTIONS = """
def asked(explainer, rows, kind):
    e = explainer(rows)
    found = [e.top(2), explainer.top(rows, 2), explainer.similar(rows, 2, adjust=True), e.group(groups.tolist())]
    found += [explainer.what_if(rows, {0: 1.0}), explainer.diagnostics.leave_one_out()]
    found += [explainer.similar(rows, 2, distinct=groups), e.to_frame()]
    found += [explainer.find_label_issues(), explainer.influence(rows, y[:3])]
    found += [explainer.removal(rows, 2, same_sign=True)]
    found += [explainer.calibrate(X[:40] + 0.1, y[:40]).interval(rows, confidence_level=0.8)]
    assert {type(table).__module__.split(".")[0] for table in found} == {kind}, [type(one) for one in found]
    assert "<html" in explainer.to_html(rows, columns=None)
    assert explainer.similar(rows, 2, within=(column, 1.0)) is not None
"""
PROGRAM = """
import polars as pl
from pathlib import Path
column = 0
for model in (boosted, forest):
    asked(axil.Explainer(model, X, y), X[:3], "polars")
column = "size"
frame = pl.DataFrame(X, schema=names)
asked(axil.Explainer(boosted, frame, pl.Series(y)), frame[:3], "polars")
path = Path(sys.argv[1]) / "explainer.axil"
axil.Explainer(boosted, X, y).save(path)
loaded = axil.load(path, boosted)
assert np.array_equal(loaded(X[:3]).weights, axil.Explainer(boosted, X, y)(X[:3]).weights)
assert isinstance(loaded.top(X[:3], 2), pl.DataFrame)
axil.plots.weights_against(loaded(X[:3]), X[:, 0])
classes = np.where(y > 0, "high", "low")
pushes = axil.Explainer(LGBMClassifier(**settings).fit(X, classes), X, classes)
assert isinstance(pushes.top(X[:2], 2), pl.DataFrame)
axil.Explainer(boosted, X, y, index=np.arange(80).astype("M8[D]")).to_html(X[:2], Path(sys.argv[1]) / "page.html")
"""
PROGRAMS = {
    "polars": (("pandas",), QUESTIONS + PROGRAM),
    "pyarrow": (
        ("pandas", "polars"),
        QUESTIONS + "column = 0; asked(axil.Explainer(boosted, X, y), X[:3], 'pyarrow')",
    ),
    "none": (
        ("pandas", "polars", "pyarrow"),
        """
explained = axil.Explainer(boosted, X, y)(X[:3])
assert np.allclose(explained.weights @ y + explained.intercepts, boosted.predict(X[:3]))
try:
    explained.top(2)
except axil.InputError as error:
    assert "pip install pandas" in str(error), error
else:
    raise AssertionError("made a table of nothing")
""",
    ),
}


@pytest.mark.parametrize("case", PROGRAMS)
def test_questions_without_pandas(case, tmp_path):
    blocked, program = PROGRAMS[case]
    program = BLOCKED.format(blocked=blocked) + program + "\nassert 'pandas' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
