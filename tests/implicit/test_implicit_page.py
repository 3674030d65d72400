"""The page of derivatives: its code runs, and its table of smooth learners has the results of the experiment."""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "derivatives.md"


def test_the_code_runs(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    (module,) = [block for block in blocks if "import torch" in block]
    for block in blocks:
        if block != module:
            exec(compile(block, PAGE.name, "exec"), {})
    printed = capsys.readouterr().out
    assert printed.count("(3, 569)") == 2
    assert "(2, 3, 178) (2, 178)" in printed
    pytest.importorskip(
        "torch", reason="torch is not installed: make test-torch runs the other block"
    )
    exec(compile(module, PAGE.name, "exec"), {})
    assert "(3, 442)" in capsys.readouterr().out


def test_the_table_has_the_results():
    page = PAGE.read_text(encoding="utf-8")
    results = ROOT / "experiments" / "results" / "jacobian_fidelity_implicit.csv"
    measured = {}
    for line in csv.DictReader(results.read_text(encoding="utf-8").splitlines()):
        cell = (
            f"{line['relative_error']}, {line['rank_correlation']}" if line["slope"] else "refused"
        )
        measured.setdefault((line["learner"], line["refit"] or "-"), []).append(cell)
    shown = re.findall(r"^\| ([A-Z]\w+\(.*?\)) \| (\S+) \| (.*) \|$", page, re.M)
    assert len(shown) >= 6
    for learner, refit, cells in shown:
        assert cells.split(" | ") == measured[learner, refit], learner
