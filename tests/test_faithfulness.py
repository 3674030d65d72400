"""The experiment that deletes rows and fits again: its rules, its counts, what it keeps, and one change by hand."""

import math
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pytest

import axil

EXPERIMENTS = Path(__file__).parent.parent / "experiments"


@pytest.fixture
def faithfulness(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import faithfulness

    return faithfulness


@pytest.fixture
def report(faithfulness):
    import faithfulness_report

    return faithfulness_report


def test_rules(faithfulness):
    scores = np.array([0.5, -2.0, 1.5, 0.0, 1.4, -0.1])
    assert faithfulness.by_size(scores, 3).tolist() == [1, 2, 4]
    assert faithfulness.of_one_sign(scores, 1).tolist() == [1]
    assert faithfulness.of_one_sign(scores, 2).tolist() == [2, 4]
    assert faithfulness.of_one_sign(-scores, 3).tolist() == [2, 4, 0]


@pytest.mark.slow
def test_the_sign_rule_is_that_of_removal(faithfulness):
    fitted = faithfulness.Fitted("friedman")
    explainer = axil.Explainer(fitted.model, fitted.train, fitted.y_train)
    effects, sets = (
        explainer.removal(fitted.new[:10]),
        explainer.removal(fitted.new[:10], 4, same_sign=True),
    )
    for query, own in sets.groupby("query"):
        assert set(own["row"]) == set(faithfulness.of_one_sign(effects[query], 4))


def test_who_leads(report):
    rng = np.random.default_rng(0)
    base = rng.exponential(1.0, 50)
    areas = {
        "best": base + 0.2,
        "as good": base + 0.19 + rng.normal(0, 0.1, 50),
        "worse": base + rng.normal(0, 0.1, 50),
        "twin": base + 0.2,
    }
    assert report.leaders(areas) == {"best", "as good", "twin"}
    counts = report.counted([{"a"}, {"a", "b"}, {"b"}, {"a"}], ["a", "b", "c"])
    assert counts == {"clear wins": {"a": 2, "b": 1, "c": 0}, "with ties": {"a": 3, "b": 2, "c": 0}}


def test_the_paper_counts_as_it_says(report):
    leading = [
        {m for m, cell in cells.items() if cell.endswith("*")} for cells in report.PAPER.values()
    ]
    counts = report.counted(leading, report.PAPER_METHODS)
    assert list(counts["clear wins"].values()) == [5, 2, 0, 0, 0]
    assert list(counts["with ties"].values()) == [18, 11, 9, 1, 0]


def test_work_goes_on_where_it_stopped(faithfulness, tmp_path):
    done = []

    def square(number):
        if number == 60 and 60 not in done:
            done.append(number)
            raise KeyboardInterrupt
        done.append(number)
        return np.array([float(number) ** 2])

    tasks = {faithfulness.key("square", number): number for number in range(100)}
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(KeyboardInterrupt):
            faithfulness.Cache(tmp_path / "kept.sqlite").fill(tasks, square, pool, "squares")
        kept = faithfulness.Cache(tmp_path / "kept.sqlite")  # as a new process would
        assert kept.fill(tasks, square, pool, "squares") == 40
        assert kept.fill(tasks, square, pool, "squares") == 0
    assert all(kept[name] == number**2 for name, number in tasks.items())
    assert done.count(59) == 1


def test_keys_tell_arrays_apart(faithfulness):
    one, two = np.array([1, 2], np.int32), np.array([1, 3], np.int32)
    assert (
        len(
            {
                faithfulness.key(*parts)
                for parts in [(one,), (two,), (one, two), (two, one), ("a", one)]
            }
        )
        == 5
    )
    assert faithfulness.key("a", one) == faithfulness.key("a", one.copy())


@pytest.mark.slow
def test_a_change_by_hand(faithfulness, tmp_path):
    """One query of one data set, fitted again here without the code of the experiment."""
    fitted = faithfulness.Fitted("friedman")
    found = faithfulness.changes_of(
        "friedman", fitted, 2, 1, faithfulness.Cache(tmp_path / "fits.sqlite")
    )
    query = np.random.default_rng(42).permutation(len(fitted.new))[1]
    new = fitted.new[query : query + 1]
    weights = axil.Explainer(fitted.model, fitted.train, fitted.y_train)(new).weights[0]
    for column, fraction in enumerate(faithfulness.FRACTIONS):
        left = np.argsort(np.abs(weights))[: len(weights) - math.ceil(fraction * len(weights))]
        model = lgb.LGBMRegressor(**faithfulness.SETTINGS).fit(
            fitted.train[np.sort(left)], fitted.y_train[np.sort(left)]
        )
        change = abs(model.predict(new)[0] - fitted.model.predict(new)[0])
        assert found["AXIL", "size"][1, column] == pytest.approx(change, rel=1e-12)
    lines = list(faithfulness.lines_of("yacht", fitted.shape, faithfulness.FRACTIONS, found))
    assert {line["paper"] for line in lines if line["method"] == "AXIL"} == {"0.329/0.078", "-"}
    assert float(lines[0]["AURC"]) == pytest.approx(found["AXIL", "size"].mean(), rel=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("n_sets", [1, 2])
def test_the_quick_form(faithfulness, n_sets, monkeypatch, capsys):
    monkeypatch.setattr(faithfulness, "FRACTIONS", (0.01, 0.02))
    monkeypatch.setattr(faithfulness, "QUICK", faithfulness.QUICK[:n_sets])
    monkeypatch.setattr(sys, "argv", ["faithfulness.py", "--quick", "--jobs", "1"])
    faithfulness.main()
    printed = capsys.readouterr().out.splitlines()
    tables = [line for line in printed if line.startswith("| ")]
    assert sum(line.startswith("| friedman | ") for line in tables) == 1
    assert any(line.startswith("| AXIL | 1.00 | ") for line in tables)
    assert not any("nan" in line for line in tables)


def test_tables_and_figure_of_a_run(report, tmp_path, monkeypatch):
    """From lines of two data sets: the paper's columns beside ours, counts below, and the curves."""
    rng = np.random.default_rng(1)
    methods = [
        (m, rule)
        for m in ("AXIL", "BoostIn", "TREX", "LeafInfluence", "removal")
        for rule in ("size", "one sign")
    ]
    changes = {
        how: 1.0 + rng.random((20, 5))
        for how in [*methods, ("removal", "greedy"), ("Random", "size")]
    }
    changes["AXIL", "size"] += 5.0
    lines = [
        line
        for name in ("titanic", "abalone")
        for line in report.lines_of(name, (1307, 7), (0.001, 0.005, 0.01, 0.015, 0.02), changes)
    ]
    table, rules = report.paper_table(lines), report.rules_table(lines)
    assert table[0]["AXIL, paper"] == "**13.988 (3.240)**"
    assert table[1]["LeafInfluence, paper"] == "-"
    assert table[0]["AXIL"].startswith("**6.")
    assert (table[2]["data"], table[2]["AXIL"], table[2]["AXIL, paper"]) == ("clear wins", 2, 1)
    assert (table[3]["data"], table[3]["AXIL, paper"], table[3]["TREX, paper"]) == (
        "with ties",
        2,
        1,
    )
    rules = {row.pop("method"): row for row in rules}
    assert rules["AXIL"]["by size, to AXIL"] == "1.00"
    assert rules["AXIL"]["by size, first or tied"] == 2
    assert 0.2 < float(rules["TREX"]["by one sign, to AXIL"]) < 0.3
    assert (
        rules["Random"]["by one sign, to AXIL"] == rules["TREX"]["by greedy, first or tied"] == ""
    )
    monkeypatch.setattr("paper_figures.FIGURES", tmp_path)
    report.draw(lines)
    assert "titanic" in (tmp_path / "removal_curves.svg").read_text(encoding="utf-8")
