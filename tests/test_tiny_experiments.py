"""Every experiment runs from its command line to its table, on a few small data sets and with a few repetitions."""

import importlib
import runpy
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.adapters.lightgbm_models import VERSION as LIGHTGBM
from tests.adapters.sklearn_models import VERSION as SKLEARN

EXPERIMENTS = Path(__file__).parent.parent / "experiments"
MAINS = [
    path.stem
    for path in sorted(EXPERIMENTS.glob("*.py"))
    if "__main__" in path.read_text(encoding="utf-8")
]
DATA = "DATA"  #: stands for a folder with small data sets in a command line


@dataclass(frozen=True)
class TinyRun:
    """A command line, and constants that make its run short: of the module, or of another one as module.NAME."""

    arguments: tuple[str, ...] = ()
    constants: dict[str, object] = field(default_factory=dict)
    results: tuple[
        str, ...
    ] = ()  #: names of the tables that are written; without any a table is printed
    needs: str = ""  #: a package that the tests do not require
    slow: bool = False


def two_tables():
    """Return names, features and targets of two small regression problems."""
    rng = np.random.default_rng(0)
    for name in ("first", "second"):
        X = rng.normal(size=(150, 4))
        yield name, X, X[:, 0] + rng.normal(size=150)


FEW_TREES = {"n_estimators": 8, "num_leaves": 7, "min_child_samples": 2, "n_jobs": 1, "verbose": -1}
INTERVALS = {"interval_data.tables": two_tables, "interval_data.SEEDS": 1}
RUNS = {
    "boundary": TinyRun(results=("boundary", "boundary_demonstrations"), slow=True),
    "classifiers": TinyRun(("--quick", "--jobs", "1"), slow=True),
    "comparables": TinyRun(("--quick",), slow=True),
    "conditional_coverage": TinyRun(("--quick", "--splits", "1", "--jobs", "1"), needs="mapie"),
    "data_values": TinyRun(("--quick",), needs="pydvl"),
    "exactness": TinyRun(
        (),
        {"GRID": [("lightgbm", "goss weighted"), ("sklearn", "hist early stopping")]},
        results=("exactness",),
    ),
    "exactness_datasets": TinyRun(
        ("--only", "diabetes", "--data", DATA), results=("exactness_datasets",)
    ),
    "faithfulness": TinyRun(("--quick", "--jobs", "1"), slow=True),
    "heat_maps": TinyRun(("--data", DATA), {"NAMES": ["diabetes"]}, results=("heat_maps",)),
    "ibug_folds": TinyRun(("--quick", "--folds", "1", "--jobs", "1")),
    "intervals": TinyRun(("--quick", "--cache", DATA), slow=True),
    "label_counts": TinyRun(("--quick",), {"CleanLearning": None, "REPETITIONS": 1}, slow=True),
    "label_noise": TinyRun(("--quick",), {"CleanLearning": None, "REPETITIONS": 1}, slow=True),
    "label_noise_classes": TinyRun(("--quick",), slow=True),
    "linear_leaves": TinyRun(("--only", "diabetes", "--data", DATA), results=("linear_leaves",)),
    "leave_one_out_curve": TinyRun(
        ("--quick",), {"TREES": 10, "FOLDS": 3, "SETTINGS": FEW_TREES | {"n_estimators": 10}}
    ),
    "ordinary_classifiers": TinyRun(
        ("--trees", "5", "--only", "breast_cancer", "--cache", DATA + "/cells")
    ),
    "runtime": TinyRun(("--only", "diabetes", "--data", DATA), results=("runtime",)),
    "simulated_errors": TinyRun(("--quick", "--jobs", "1")),
    "target_sensitivity": TinyRun(
        ("--only", "diabetes", "--data", DATA), results=("target_sensitivity",)
    ),
    "homeval_scorecard": TinyRun((), {"office.TREES": 8}, results=("homeval_scorecard",)),
    "which_method": TinyRun(
        ("--only", "diabetes", "--data", DATA, "--seeds", "1", "--cache", DATA + "/cells"),
        {
            "SETTINGS": FEW_TREES,
            "MAX_TRAIN_ROWS": 80,
            "N_EXPLAINED": 3,
            "N_DELETIONS": {"single rows": 3, "groups": 3, "halves": 3},
        },
        results=("which_method",),
    ),
    "opendataval_notebook": TinyRun((), {"N_DRAWS": 1}, results=("opendataval_notebook",)),
    "tuned": TinyRun(("--n", "3"), results=("tuned",)),
    "uci_splits": TinyRun(("--quick", "--splits", "1", "--jobs", "1")),
    "wrong_prices": TinyRun(("--quick",)),
    "office": TinyRun(
        ("--only", "Sacramento"),
        {"TREES": 8, "EXCHANGES": 1},
        results=("office", "office_intervals"),
    ),
    "alike": TinyRun(("--only", "boston", "--data", DATA), results=("alike",)),
    "catboost_importance": TinyRun(
        ("--only", "breast_cancer"), {"N_QUERIES": 3}, results=("catboost_importance",)
    ),
    "class_sets": TinyRun(("--quick",)),
    "count_intervals": TinyRun(("--quick",)),
    "coverage": TinyRun(("--draws", "2"), {"N_TREES": 4}, results=("coverage",)),
    "intervals_alarm": TinyRun((), INTERVALS, results=("intervals_alarm",)),
    "intervals_form": TinyRun((), INTERVALS, results=("intervals_form",)),
    "intervals_groups": TinyRun(
        (), {"DRAWS": 1, "FITTED": 300, "HELD": 100, "NEW": 100}, results=("intervals_groups",)
    ),
    "jacobian_fidelity_boosting": TinyRun(("--rows", "4"), results=("jacobian_fidelity_boosting",)),
    "jacobian_fidelity_implicit": TinyRun(
        (), {"N_CHANGED": 2}, results=("jacobian_fidelity_implicit",)
    ),
    "jacobian_removal": TinyRun(
        ("--only", "diabetes, poisson"), {"QUERIES": 3}, results=("jacobian_removal",)
    ),
    "label_clean": TinyRun((), {"ROWS": 200, "ROUNDS": 5}, results=("label_clean",)),
    "label_issues": TinyRun(
        ("--only", "iris", "diabetes", "--data", DATA),
        {"REPETITIONS": 1, "SETTINGS": FEW_TREES, "TREES": 8, "COSTS": ((200, 5),)},
        results=("label_issues", "label_issues_numbers", "label_issues_cost"),
    ),
    "label_noise_several": TinyRun(
        (),
        {"MOST_ROWS": 120, "REPETITIONS": 1, "SETTINGS": FEW_TREES},
        results=("label_noise_several",),
    ),
    "novelty": TinyRun(
        ("--only", "diabetes", "boston", "--data", DATA), {"MOST_ROWS": 100}, results=("novelty",)
    ),
    "outcome_weights": TinyRun(("--quick",)),
    "refit": TinyRun(("--quick",)),
    "removal": TinyRun(
        ("--rows", "60"),
        {"N_QUERIES": 4, "N_DELETED": 3, "SET_SIZE": 3, "N_SETS": 2},
        results=("removal",),
    ),
}

#: Experiments that compare with packages which no registry has, or with tuners that are not among the requirements.
NEED_A_CHECKOUT = {
    "baselines_check": "tree_influence",
    "baselines_check_classes": "tree_influence",
    "tuned_real": "optuna_integration and flaml",
}


@pytest.fixture
def folder(tmp_path):
    """A folder with small data sets under names that experiments know."""
    rng = np.random.default_rng(1)
    X = pd.DataFrame(rng.normal(size=(120, 5)), columns=list("abcde"))
    X["target"] = X["a"] - X["b"] + rng.normal(size=120)
    X.to_csv(tmp_path / "diabetes.csv", index=False)
    columns = {"a": "TAX", "b": "PTRATIO", "c": "INDUS", "d": "CHAS_1", "target": "MEDV"}
    homes = X.rename(columns=columns).assign(MEDV=np.exp(X["target"]))
    homes["CHAS_1"] = (X["d"] > 0).astype(int)
    homes.to_csv(tmp_path / "boston.csv", index=False)
    return tmp_path


def test_every_experiment_has_a_tiny_run():
    assert set(MAINS) == RUNS.keys() | NEED_A_CHECKOUT.keys()


TOO_OLD = {
    "uci_splits": (LIGHTGBM < (4, 7), "LightGBM before 4.7 takes no eval_X"),
    "jacobian_fidelity_implicit": (
        SKLEARN < (1, 7),
        "networks of scikit-learn before 1.7 take no sample_weight",
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * RUNS[name].slow) for name in RUNS]
)
@pytest.mark.filterwarnings("ignore:.* has SHA-256")  # the data are not the paper's
def test_experiments_run(name, folder, monkeypatch, capsys):
    run = RUNS[name]
    if run.needs:
        pytest.importorskip(run.needs)
    is_too_old, reason = TOO_OLD.get(name, (False, ""))
    if is_too_old:
        pytest.skip(reason)
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    paper_setting = importlib.import_module("paper_setting")
    module = importlib.import_module(name)
    monkeypatch.setattr(paper_setting, "RESULTS", folder / "results")
    monkeypatch.setattr(importlib.import_module("paper_figures"), "FIGURES", folder / "results")
    (folder / "results").mkdir()
    for constant, value in run.constants.items():
        owner, _, own_name = constant.rpartition(".")
        monkeypatch.setattr(importlib.import_module(owner) if owner else module, own_name, value)
    arguments = [argument.replace(DATA, str(folder)) for argument in run.arguments]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *arguments])
    if hasattr(module, "main"):
        module.main()
    else:
        runpy.run_path(str(EXPERIMENTS / f"{name}.py"), run_name="__main__")
    if not run.results:
        assert capsys.readouterr().out.count("|") > 10
    for table in run.results:
        assert len(pd.read_csv(folder / "results" / f"{table}.csv")) > 0
