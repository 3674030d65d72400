"""The style of the code in numbers that may only fall: scripts/style_budgets.py counts, and keeps the budgets."""

import ast
import importlib.util
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def load_script():
    """Return scripts/style_budgets.py as a module."""
    path = ROOT / "scripts" / "style_budgets.py"
    spec = importlib.util.spec_from_file_location("style_budgets", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["style_budgets"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


style = load_script()
places_of_syntax = cache(style.places_of_syntax)
places_of_ruff = cache(style.places_of_ruff)


def assert_within_budget(name, places):
    excesses = style.excesses(name, places)
    assert not excesses, "\n".join(excesses)


@pytest.mark.parametrize("name", style.MEASURES)
def test_counts_do_not_rise(name):
    assert_within_budget(name, places_of_syntax()[name])


@pytest.mark.parametrize("name", style.RUFF_RULES)
def test_counts_of_ruff_do_not_rise(name):
    pytest.importorskip("ruff")
    assert_within_budget(name, places_of_ruff()[name])


SAMPLES = {
    "vague_names": ("found = 1\nleaf_values = 2\ndef f(own, row_weights): pass", ["found", "own"]),
    "packed_assignments": ("a, b = 1, 2\na, b = b, a\nx, y = f()", ["a, b"]),
    "conditional_expressions": ("a = 1 if b else 2", ["1 if b else 2"]),
    "any_types": ("from typing import Any\na: Any = 1\nb: int = 2", ["Any"]),
    "long_functions": ("def f():\n" + "    g()\n" * 31, ["f: 31 statements"]),
    "private_names": (
        "from axil.cli import _one\nself._a\nmodel._b\nmodel.__c__\ndef _d(): pass\nmodel._d",
        ["axil.cli._one", "model._b"],
    ),
    "old_names": (
        "proof = 1\ndef walk(pushes): pass\nclass LeafSweep: pass\nimproves = 2",
        ["proof", "pushes", "LeafSweep"],
    ),
    "old_terms": (
        '"""Push it, see `push`."""\nprint("a proof of the query file")\nname = "query"',
        ["'Push': write 'contribution'", "'proof': write 'verify, verified, verification'"],
    ),
}


@pytest.mark.parametrize("name", style.MEASURES)
def test_what_is_counted(name):
    source, expected = SAMPLES[name]
    places = style.MEASURES[name].places(ast.parse(source))
    assert sorted(text for _, text in places) == sorted(expected)


def test_a_count_above_its_budget_is_an_excess_that_says_how_to_lower_it(monkeypatch):
    place = style.Place(ROOT / "src" / "axil" / "cli" / "screen.py", 1, "found")
    monkeypatch.setattr(style, "read_budgets", lambda: {"vague_names": {"axil/cli": 1}})
    assert not style.excesses("vague_names", [place])
    first, advice, *_ = style.excesses("vague_names", [place, place])
    assert first == "vague_names in axil/cli: 2, and the budget is 1"
    assert "leaf_values" in advice


def test_budgets_move_between_packages_but_no_total_rises(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(style, "BUDGETS", tmp_path / "budgets.csv")
    here = style.Place(ROOT / "src" / "axil" / "cli" / "screen.py", 1, "found")
    there = style.Place(ROOT / "src" / "axil" / "dask" / "fits.py", 1, "found")
    assert style.lower({"vague_names": [here, here]}) == 0
    assert style.lower({"vague_names": [here, there]}) == 0
    assert style.read_budgets() == {"vague_names": {"axil/cli": 1, "axil/dask": 1}}
    assert style.lower({"vague_names": [here, here, there]}) == 1
    assert "vague_names: 3" in capsys.readouterr().out
