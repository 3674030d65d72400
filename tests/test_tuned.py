"""A dozen models as tuners make them, at a fixed seed: those of squared error exact. ``make tuned`` counts two hundred."""

import csv
import runpy
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.adapters.xgboost_models import VERSION as XGBOOST
from tests.fuzz import spaces, tables, tuned, verdict
from tests.fuzz.data import Draw
from tests.fuzz.judge import silence

EXPERIMENTS = Path(__file__).parent.parent / "experiments"
SMALL = ["diabetes", "wine", "iris"]  # scikit-learn's own, which need no connection


@cache
def drawn(number):
    """One of the dozen, fitted once."""
    with silence():
        return tuned.model_of(number, 3, SMALL, tables.own)


@pytest.mark.parametrize("number", range(12))
def test_a_tuned_model_of_squared_error_is_exact(number):
    draw, trial = drawn(number)
    found = verdict.verdict_of(trial, draw)
    if draw.chosen["squared error"]:
        assert found.kind == "exact", found
    else:
        assert found.kind in ("exact", "additive"), found.why


@pytest.mark.parametrize(("number", "task"), [(n, task) for task in tuned.TASKS for n in range(3)])
def test_a_tuned_model_of_another_task_is_explained(number, task):
    with silence():
        draw, trial = tuned.model_of(number, 3, SMALL, tables.own, task)
    found = verdict.verdict_of(trial, draw)
    is_smoothed = draw.chosen["library"] == "XGBoost" and XGBOOST >= (
        3,
        4,
    )  # quantiles are Newton steps from 3.4 on
    kind = "exact" if task == "quantiles" and not is_smoothed else "additive"
    assert found.kind in (kind, "refused"), found


def test_the_dozen_has_every_library_and_what_tuners_set():
    chosen = [drawn(number)[0].chosen for number in range(12)]
    assert {one["library"] for one in chosen} == set(tuned.LIBRARIES)
    assert sum(one["squared error"] for one in chosen) >= 10
    names = {name for one in chosen for name in one}
    assert names >= {
        "lambda_l1",
        "lambda_l2",
        "reg_alpha",
        "monotone",
        "weights",
        "early stopping",
        "bagging_fraction",
    }


def test_a_number_gives_the_same_model():
    first, again = (tuned.model_of(5, 3, SMALL, tables.own) for _ in range(2))
    assert first[0].chosen == again[0].chosen
    np.testing.assert_array_equal(
        first[1].predict(first[1].X_new), again[1].predict(again[1].X_new)
    )


def test_wrong_predictions_are_a_wrong_verdict():
    """The judge compares with the library's predictions of rows held out, not with axil's own proof."""
    draw, trial = tuned.model_of(3, 3, SMALL, tables.own)
    assert verdict.verdict_of(trial, draw).kind == "exact"
    right = trial.predict
    trial.predict = lambda rows: right(rows) * 1.0001
    assert verdict.verdict_of(trial, Draw(0)).kind == "wrong"


def test_ranges_stay_within_their_bounds():
    rng = np.random.default_rng(0)
    found = np.array([spaces.Range(1e-8, 10.0, log=True).draw(rng) for _ in range(2000)])
    assert ((found >= 1e-8) & (found <= 10)).all()
    assert (
        0.4 < (found < 10**-3.5).mean() < 0.6
    )  # half of the draws lie below the middle of the exponents
    whole = {spaces.Range(5, 8, whole=True).draw(rng) for _ in range(200)}
    assert whole == {5, 6, 7, 8}


@pytest.mark.slow
def test_the_table_of_tuned_models(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import paper_setting

    monkeypatch.setattr(paper_setting, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["tuned", "--n", "8"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(EXPERIMENTS / "tuned.py"), run_name="__main__")
    assert ended.value.code == 0
    with open(tmp_path / "tuned.csv", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [line["model"] for line in lines] == [str(number) for number in range(8)]
    assert {line["verdict"] for line in lines} <= {"exact", "additive", "refused"}
    exact = sum(line["verdict"] == "exact" and line["squared error"] == "yes" for line in lines)
    total = (tmp_path / "tuned.md").read_text(encoding="utf-8").splitlines()[6]
    squared = sum(line["squared error"] == "yes" for line in lines)
    assert total.startswith(f"| all | 8 | {squared} | {exact} | {100 * exact / squared:.1f} % |")
    assert total in capsys.readouterr().out
    refused = (tmp_path / "tuned_refused.md").read_text(encoding="utf-8").splitlines()[2:-2]
    assert sum(int(line.split("|")[-2]) for line in refused) == sum(
        line["verdict"] == "refused" for line in lines
    )
