"""The scripts that reproduce the paper's tables run, on one small data set."""

import csv
import runpy
import sys
from pathlib import Path

import pytest
from sklearn.datasets import load_diabetes

EXPERIMENTS = Path(__file__).parent.parent / "experiments"


@pytest.mark.filterwarnings("ignore:.* has SHA-256")  # scikit-learn's values are newer than the paper's
@pytest.mark.parametrize("table", ["target_sensitivity", "runtime"])
def test_tables_of_the_paper(table, tmp_path, monkeypatch):
    load_diabetes(as_frame=True).frame.to_csv(tmp_path / "diabetes.csv", index=False)
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import paper_setting

    monkeypatch.setattr(paper_setting, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", [table, "--data", str(tmp_path), "--only", "diabetes"])
    runpy.run_path(str(EXPERIMENTS / f"{table}.py"), run_name="__main__")
    with open(tmp_path / f"{table}.csv", encoding="utf-8") as file:
        (line,) = csv.DictReader(file)
    assert (line["data"], line["N"]) == ("diabetes", "442")
    assert line["command"] == f"python experiments/{table}.py --data FOLDER"
    assert (tmp_path / f"{table}.md").read_text(encoding="utf-8").splitlines()[2].startswith("| diabetes | 442 | ")
    if table == "target_sensitivity":
        assert line["AXIL"] == "1.000"
