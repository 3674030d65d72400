"""Documents that are made from the code, and code in documents."""

import csv
import importlib.util
import re
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).parent.parent


def test_the_page_of_models_is_made_from_the_adapters():
    spec = importlib.util.spec_from_file_location("make_models_page", ROOT / "scripts" / "make_models_page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "models.md").read_text(encoding="utf-8") == module.page()


def run(path, together=False):
    """Every block of Python in a page, each by itself or one after the other."""
    blocks, names = re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(encoding="utf-8"), re.S), {}
    assert blocks
    for block in blocks:
        exec(compile(block, path, "exec"), names if together else {})


def test_the_readme_runs(capsys):
    run("README.md")
    assert "contribution" in capsys.readouterr().out


@pytest.mark.parametrize("page", ["index", "recipes", "extending", "scaling"])
def test_pages_run(page, capsys):
    run(f"docs/{page}.md", together=True)
    assert "query" in capsys.readouterr().out


def test_no_page_is_left_out():
    """A page with Python on it is run here, or by the tests of what it is about."""
    named = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    pages = [path for path in (ROOT / "docs").glob("*.md") if "```python" in path.read_text(encoding="utf-8")]
    missing = [path.name for path in pages if f'"{path.stem}"' not in named and path.name not in named]
    assert not missing


def test_the_page_of_baselines_runs(capsys):
    run("docs/baselines.md")
    assert capsys.readouterr().out.count("(42, 400)") == 5


def test_the_page_of_questions_runs(capsys):
    run("docs/questions.md", together=True)
    printed = capsys.readouterr().out
    for column in ("bmi (query)", "share", "effect", "gain", "change", "group"):
        assert column in printed


def test_the_page_of_plots_runs_and_shows_its_pictures():
    run("docs/plots.md", together=True)
    page = (ROOT / "docs" / "plots.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[.+?\]\((figures/plots/.+?\.png)\)", page)
    drawn = re.findall(r"^ax = plots\.(\w+)", page, re.M)
    assert len(shown) == len(drawn) == len(set(shown))
    assert set(drawn) == set(importlib.import_module("axil.plots").__all__)
    kept = {f"figures/plots/{path.name}" for path in (ROOT / "docs" / "figures" / "plots").iterdir()}
    assert kept == set(shown)
    assert sum((ROOT / "docs" / name).stat().st_size for name in kept) < 600_000


def test_the_removals_on_the_page_are_what_was_measured():
    page = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    with (ROOT / "experiments" / "results" / "removal.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            assert f"| {' | '.join(list(line.values())[:6])} |" in page


def test_the_coverage_on_the_page_is_what_was_measured():
    with (ROOT / "experiments" / "results" / "coverage.csv").open(encoding="utf-8") as file:
        measured = {
            tuple(line[name] for name in ("design", "noise", "sigma", "holds")): line for line in csv.DictReader(file)
        }
    page = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| (fixed|refitted) \| (.*?) \| (.*?) \| ([\d.]+) \| ([\d.]+) \|$", page, re.M)
    assert 2 * len(lines) == len(measured)
    for *key, mean, function in lines:
        assert measured[(*key, "mean of predictions")]["coverage"] == mean
        assert measured[(*key, "true function")]["coverage"] == function


def test_the_page_of_derivatives_runs(capsys):
    run("docs/jacobian.md")
    assert "derivative, structure held fixed" in capsys.readouterr().out


def test_the_table_of_derivatives_is_the_measured_one():
    names = ("library", "data", "loss", "small error", "fixed rank", "fixed error", "refit rank", "refit error")
    page = (ROOT / "docs" / "jacobian.md").read_text(encoding="utf-8")
    with (ROOT / "experiments" / "results" / "jacobian_fidelity_boosting.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            assert f"| {' | '.join(line[name] for name in names)} |" in page


def test_the_tables_of_scaling_are_the_measured_ones():
    made = runpy.run_path(str(ROOT / "scripts" / "scaling_tables.py"))["page"]()
    assert made == (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")


def test_the_table_of_deletions_is_the_measured_one():
    page = (ROOT / "docs" / "jacobian.md").read_text(encoding="utf-8")
    with (ROOT / "experiments" / "results" / "jacobian_removal.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            assert f"| {' | '.join(list(line.values())[:5])} |" in page


def test_the_page_of_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run("docs/page.md")
    assert (tmp_path / "report.html").stat().st_size > 50_000
    assert (ROOT / "docs" / "page.png").stat().st_size < 200_000


def test_the_tables_of_the_paper_are_the_measured_ones():
    made = runpy.run_path(str(ROOT / "scripts" / "paper_tables.py"))["page"]()
    assert made == (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
    tables = [path.stem for path in (ROOT / "experiments" / "results").glob("*.md")]
    assert all(f"<!-- results/{name}.md -->" in made for name in tables)


def test_the_errors_that_the_page_tells_are_the_measured_ones():
    lines = pd.read_csv(ROOT / "experiments" / "results" / "exactness.csv", keep_default_na=False)
    sets = pd.read_csv(ROOT / "experiments" / "results" / "exactness_datasets.csv").filter(like="allowed").max()
    sets.index = sets.index.str.replace(r" \(.*", "", regex=True)
    assert (lines["largest error"] <= lines["tolerance"]).all()
    cancelled = lines["configuration"] == "rf nothing to split boost_from_average=False"
    largest = lines[~cancelled].groupby("library")["largest error"].max()
    assert max(largest["LightGBM"], largest["CatBoost"], *sets[["LightGBM", "CatBoost", "HistGradientBoosting"]]) < 5e-8
    assert max(largest["XGBoost"], sets["XGBoost"]) < 8e-7
    own = lines[lines["library"] == "scikit-learn"].assign(smoother=lambda t: t["kind"] == "linear smoother")
    double = own[own["tolerance"] == 1e-9].groupby("smoother")["largest error"].max()
    assert max(double[False], sets["random forest"]) < 3e-15
    assert double[True] < 1e-12
    assert own["largest error"].max() < 3e-7


def test_the_page_tells_what_the_refits_found():
    """Counts and percentages of docs/paper.md and docs/questions.md, from the measured lines."""
    lines = pd.read_csv(ROOT / "experiments" / "results" / "faithfulness.csv", keep_default_na=False)
    lines["how"] = lines["method"] + ", " + lines["rule"]
    areas = lines.pivot(index="data", columns="how", values="AURC")
    leads = lines.pivot(index="data", columns="how", values="leads") == "yes"
    further = areas.div(areas["AXIL, size"], axis=0).apply(np.log)
    chosen_on = ["yacht", "autos", "diabetes", "concrete", "red_wine", "white_wine"]
    others = further.index.difference(chosen_on)

    def percent(ratios):
        return f"{100 * (np.exp(ratios.mean()) - 1):.0f} %"

    def by_rule(method):
        return percent(further[f"{method}, one sign"] - further[f"{method}, size"])

    paper = " ".join((ROOT / "docs" / "paper.md").read_text(encoding="utf-8").split())
    for text in (
        f"BoostIn gains {by_rule('BoostIn')}, the steps {by_rule('steps')}, LeafInfluence and removal {by_rule('removal')}",
        f"By one sign BoostIn moves predictions {percent(further['BoostIn, one sign'])} further",
        f"Steps by one sign are first or tied on {leads['steps, one sign'].sum()} of 20 data sets and move predictions "
        f"{percent(further['steps, one sign'])} further than the weights by size, the greedy sets "
        f"{percent(further['removal, greedy'])}",
        f"it is {percent(further.loc[others, 'steps, one sign'])} ahead of the weights and first or tied on "
        f"{leads.loc[others, 'steps, one sign'].sum()}, the greedy sets "
        f"{percent(further.loc[others, 'removal, greedy'])} and on {leads.loc[others, 'removal, greedy'].sum()}",
        f"{lines.groupby('data')['queries'].first().sum():,} queries",
    ):
        assert text in paper
    led = lines[lines["leads the paper's methods"] == "yes"].groupby("method").size()
    assert (
        f"AXIL is first or tied on {led['AXIL']} of 20 data sets, as there; BoostIn on {led['BoostIn']}, as there"
        in paper
    )
    of_paper = lines[(lines["rule"] == "size") & (lines["paper"] != "-") & (lines["data"] != "grid_stability")]
    theirs = of_paper["paper"].str.split("/", expand=True).astype(float)
    distance = (of_paper["AURC"] - theirs[0]).abs() / np.hypot(of_paper["standard error"], theirs[1])
    assert f"Of the {len(distance)} figures that can be compared" in paper
    assert of_paper[distance > 2][["data", "method"]].to_numpy().tolist() == [["kin8nm", "BoostIn"]]
    questions = " ".join((ROOT / "docs" / "questions.md").read_text(encoding="utf-8").split())
    assert (
        f"moved predictions {percent(further['steps, one sign'])} further than those of the largest weights, greedy sets "
        f"{percent(further['removal, greedy'])}, first-order sets {percent(further['removal, one sign'])[1:]} less"
    ) in questions
