"""The page of derivatives: its code runs, and its table of smooth learners has the results of the experiment."""

import csv
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "derivatives.md"


def test_the_code_runs(capsys):
    *others, module = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    for block in others:
        exec(compile(block, PAGE.name, "exec"), {})
    printed = capsys.readouterr().out
    assert printed.count("(3, 569)") == 2
    assert "(2, 3, 178) (2, 178)" in printed
    pytest.importorskip("torch", reason="torch is not installed: make test-torch runs the other block")
    exec(compile(module, PAGE.name, "exec"), {})
    assert "(3, 442)" in capsys.readouterr().out


def test_the_table_has_the_results():
    page = PAGE.read_text(encoding="utf-8")
    results = ROOT / "experiments" / "results" / "jacobian_fidelity_implicit.csv"
    lines = list(csv.DictReader(results.read_text(encoding="utf-8").splitlines()))
    assert len(lines) > 40
    for line in lines:
        own = f"| {line['learner']} | {line['refit'] or '-'} |"
        cell = f"| {line['relative_error']}, {line['rank_correlation']} |" if line["slope"] else "| refused |"
        assert any(row.startswith(own) and cell in row for row in page.splitlines()), line
