"""The scripts that reproduce the paper's tables run, on one small data set."""

import csv
import runpy
import sys
from pathlib import Path

import lightgbm as lgb
import numpy as np
import pytest
from sklearn.datasets import load_diabetes
from sklearn.tree import DecisionTreeRegressor

import axil

EXPERIMENTS = Path(__file__).parent.parent / "experiments"


MAINS = [
    path.stem
    for path in sorted(EXPERIMENTS.glob("*.py"))
    if "__main__" in path.read_text(encoding="utf-8")
]


@pytest.mark.slow
@pytest.mark.parametrize("name", MAINS)
def test_every_experiment_has_help_and_then_does_nothing(name, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    monkeypatch.setattr(sys, "argv", [name, "--help"])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(EXPERIMENTS / f"{name}.py"), run_name="__main__")
    assert stopped.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {name}")


def test_results_that_are_there_are_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import paper_setting

    def written(value):
        paper_setting.write("table", [{"value": value}], "command", ("axil",), folder=tmp_path)
        return {
            path.name: f"| {value} |" in path.read_text(encoding="utf-8")
            for path in tmp_path.glob("*.md")
        }

    assert written(1) == {"table.md": True}
    assert written(2) == {"table.md": False, "table.new.md": True}
    assert "table.csv is kept; the new result is table.new.csv" in capsys.readouterr().out
    monkeypatch.setenv(paper_setting.OVERWRITE, "1")
    assert written(3)["table.md"]


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:.* has SHA-256"
)  # scikit-learn's values are newer than the paper's
@pytest.mark.parametrize("table", ["target_sensitivity", "runtime", "exactness_datasets"])
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
    assert (
        (tmp_path / f"{table}.md")
        .read_text(encoding="utf-8")
        .splitlines()[2]
        .startswith("| diabetes | 442 | ")
    )
    if table == "target_sensitivity":
        assert line["AXIL"] == "1.000"
    if table == "exactness_datasets":
        errors = {name: float(cell) for name, cell in line.items() if "allowed" in name}
        assert len(errors) == 5
        assert all(error <= float(name.split()[-1].rstrip(")")) for name, error in errors.items())


@pytest.mark.slow
def test_the_exactness_of_configurations(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import exactness
    import paper_setting

    expected = {
        ("lightgbm", "goss weighted"): ("LightGBM", "boosting, GOSS", "row weights"),
        ("lightgbm", "dart bagging weighted"): ("LightGBM", "DART, rows drawn", "row weights"),
        ("lightgbm", "categorical nan"): ("LightGBM", "boosting", "categories; missing values"),
        ("xgboost", "base_margin forests"): ("XGBoost", "boosted forests, rows drawn", "offsets"),
        ("catboost", "shrink"): ("CatBoost", "model shrinkage", ""),
        ("catboost", "scale"): ("CatBoost", "boosting", ""),
        ("sklearn", "RandomForestClassifier balanced bootstrap=True"): (
            "scikit-learn", "forest, bootstrap", "class weights; classes",
        ),
        ("sklearn", "hist early stopping"): ("scikit-learn", "boosting", "rows held out"),
        ("smoother", "ridge"): ("scikit-learn", "linear smoother", ""),
    }  # fmt: skip
    lines = [exactness.measure(*configuration) for configuration in expected]
    assert [(line["library"], line["kind"], line["with"]) for line in lines] == list(
        expected.values()
    )
    assert all(0 <= float(line["largest error"]) <= float(line["tolerance"]) for line in lines)

    monkeypatch.setattr(paper_setting, "RESULTS", tmp_path)
    paper_setting.write("exactness", lines, "python", shown=exactness.summary(lines))
    shown = (tmp_path / "exactness.md").read_text(encoding="utf-8").splitlines()
    assert shown[2].startswith("| LightGBM | boosting | 1 | ")
    assert any(line.startswith("| LightGBM | of all, with row weights | 2 | ") for line in shown)
    with open(tmp_path / "exactness.csv", encoding="utf-8") as file:
        assert len(list(csv.DictReader(file))) == len(expected)


def test_an_error_is_measured_where_predictions_differ(monkeypatch):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    from paper_setting import furthest

    X, y = load_diabetes(return_X_y=True)
    model = DecisionTreeRegressor(max_depth=3).fit(X, y)
    predictions = model.predict(X)[:, None]
    wrong = predictions.copy()
    wrong[17] += 0.01 * wrong.max()
    explainer = axil.Explainer(model, X, y)
    assert furthest(explainer, X, predictions) < 1e-14
    assert furthest(explainer, X, wrong) == pytest.approx(0.01, rel=0.02)


def lines_of(path):
    with open(path, encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Where scripts put tables and figures in these tests."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import paper_figures
    import paper_setting

    monkeypatch.setattr(paper_setting, "RESULTS", tmp_path)
    monkeypatch.setattr(paper_figures, "FIGURES", tmp_path)
    return tmp_path


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.* has SHA-256")
def test_the_weight_matrices(written, monkeypatch):
    import heat_maps

    load_diabetes(as_frame=True).frame.to_csv(written / "diabetes.csv", index=False)
    monkeypatch.setattr(heat_maps, "NAMES", ["diabetes"])
    monkeypatch.setattr(sys, "argv", ["heat_maps", "--data", str(written)])
    heat_maps.main()
    (line,) = lines_of(written / "heat_maps.csv")
    assert line["rows of K"] == "353"
    assert float(line["sums from 1"]) < 1e-12
    assert float(line["asymmetry, 1 tree"]) < 1e-15
    assert float(line["asymmetry"]) > float(line["99th percentile of abs(k)"])
    assert float(line["smallest"]) < 0 < float(line["trace"]) < 353
    assert 10_000 < (written / "heat_maps.png").stat().st_size < 400_000
    assert (EXPERIMENTS.parent / "docs" / "figures" / "heat_maps.png").stat().st_size < 400_000


@pytest.mark.slow
def test_the_boundary(written, monkeypatch):
    import boundary

    monkeypatch.setattr(sys, "argv", ["boundary.py"])
    boundary.main()
    kinds = {
        "Yes": {"exact"},
        "No": {"additive", "derivative", "no"},
        "Approx.": {"additive", "derivative"},
    }
    models = lines_of(written / "boundary.csv")
    assert {line["paper"] for line in models} == {"", *kinds}
    for line in models:
        beyond = (
            {"exact"} if line["verification"].endswith((", active set fixed", ")")) else set()
        )  # affine, or on another scale
        assert (
            line["axil"]
            in kinds.get(line["paper"], {"exact", "additive", "derivative", "no"}) | beyond
        ), line
        assert (line["axil"] == "exact") == line["verification"].startswith("K y within"), line
        assert line["axil"] == "exact" or line["setting"], line
    errors = [
        float(line["verification"].split()[3].strip(","))
        for line in models
        if line["axil"] == "exact"
    ]
    assert max(errors) < 1e-6
    assert not [
        line["model"] for line in models if line["verification"].startswith("refused")
    ]  # supports knows what is refused
    for line in lines_of(written / "boundary_demonstrations.csv"):
        departure, its = float(line["departure"]), float(line["its departure"])
        if line["what"].startswith("linear_tree"):  # whole fits of LightGBM, in single precision
            assert max(departure, its) < 1e-4
        elif line["what"].startswith("log-loss from score 0, 1 tree"):
            assert max(departure, its) < 1e-12
        else:
            assert its < 1e-12 < 1e-6 < departure, line
    assert (written / "boundary.svg").stat().st_size > 50_000


def test_the_page_counts_the_models_of_the_boundary():
    models = lines_of(EXPERIMENTS / "results" / "boundary.csv")
    yes, no = ([line for line in models if line["paper"] == verdict] for verdict in ("Yes", "No"))
    beyond = [line for line in models if line["paper"] == "" and line["axil"] == "exact"]
    differentiated = [
        line
        for line in no
        if line["axil"] in ("additive", "derivative")
        and not line["verification"].startswith("refused")
    ]
    text = " ".join((EXPERIMENTS.parent / "docs" / "paper.md").read_text(encoding="utf-8").split())
    for words in (
        f"{len(models)} small fitted models",
        f"All {len(yes)} models of classes that the paper calls exact",
        f"Of the {len(no)} models of classes that it calls not exact, {sum(line['axil'] == 'exact' for line in no)}",
        f"{len(beyond)} models of classes that it does not name are exact",
        f"{len(differentiated)} of the {len(no)} have derivatives",
    ):
        assert words in text


@pytest.mark.slow
def test_wrong_labels_are_looked_for(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import label_noise

    monkeypatch.setattr(label_noise, "REPETITIONS", 1)
    monkeypatch.setattr(sys, "argv", ["label_noise.py", "--quick"])
    label_noise.main()
    found = _columns(capsys.readouterr().out.splitlines(), "method", "precision, shifted")
    assert len(found) >= 13
    assert (
        min(
            found["find_label_issues"],
            found["find_label_issues, out-of-fold"],
            found["leave-one-out residual"],
        )
        > 0.4
        > found["Random"]
    )


@pytest.mark.slow
def test_wrong_labels_are_counted(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import label_counts

    monkeypatch.setattr(label_counts, "CleanLearning", None)  # some seventy fits
    monkeypatch.setattr(label_counts, "REPETITIONS", 1)
    monkeypatch.setattr(sys, "argv", ["label_counts.py", "--quick"])
    label_counts.main()
    printed = capsys.readouterr().out.splitlines()[2:]
    as_given = [*printed[:2], *(line for line in printed if "as given" in line)]
    assert _columns(as_given, "method", "share off")["find_label_issues"] < 0.05


def _columns(table, key, value):
    """{key: value} of two columns of a table in Markdown."""
    head, *lines = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in [table[0], *table[2:]]
    )
    return {cells[head.index(key)]: float(cells[head.index(value)]) for cells in lines}


@pytest.mark.slow
@pytest.mark.filterwarnings(
    "ignore:.* has SHA-256"
)  # scikit-learn's values are newer than the paper's
def test_linear_leaves_have_weights(tmp_path, monkeypatch):
    load_diabetes(as_frame=True).frame.to_csv(tmp_path / "diabetes.csv", index=False)
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import linear_leaves

    line = linear_leaves.measure("diabetes", 1.0, tmp_path)
    assert float(line["features per leaf"]) > 1
    errors = [float(line[name]) for name in ("training rows off by", "new rows off by")]
    assert max(errors) < 1e-7  # LightGBM keeps residuals in single precision


@pytest.mark.slow
def test_leave_one_out_errors_by_trees_are_compared_with_cross_validation(monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import leave_one_out_curve

    monkeypatch.setattr(leave_one_out_curve, "TREES", 30)
    monkeypatch.setitem(leave_one_out_curve.SETTINGS, "n_estimators", 30)
    monkeypatch.setattr(sys, "argv", ["leave_one_out_curve.py", "--quick"])
    leave_one_out_curve.main()
    printed = capsys.readouterr().out.splitlines()
    head, *lines = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in [printed[2], *printed[4:]]
    )
    assert [cells[0] for cells in lines] == ["friedman", "scikit_learn_diabetes"]
    for cells in lines:
        line = dict(zip(head, cells))
        assert (
            0 < float(line["error"]) < 1 <= float(line["costs, leave-one-out"])
        )  # the splits saw the rows' own targets


@pytest.mark.slow
def test_comparables_are_means_of_five_prices(monkeypatch):
    """By the definition, from weights and from the model itself."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import comparables

    X, y = comparables.simulated()
    train, new, prices = X[:400], X[400:410], y[:400]
    explainer = comparables.fitted("forest", train, prices, 0)
    weights, fit, asked = (
        explainer(new).weights,
        explainer(train).predictions,
        explainer(new).predictions,
    )
    rows = np.argsort(-weights, axis=1, kind="stable")[:, :5]
    adjusted = prices[rows] + asked[:, None] - fit[rows]
    parts = np.take_along_axis(weights, rows, axis=1)
    made, share = comparables.by_weight(explainer, new)
    wanted = {
        "model": asked,
        "all adjusted": asked + weights @ (prices - fit),  # weights of a forest sum to one
        "weights, as they are": prices[rows].mean(axis=1),
        "weights, adjusted": adjusted.mean(axis=1),
        "weights, as they are, weighted": (parts * prices[rows]).sum(axis=1) / parts.sum(axis=1),
        "weights, adjusted, weighted": (parts * adjusted).sum(axis=1) / parts.sum(axis=1),
    }
    assert made.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(made[name], values, rtol=1e-9, err_msg=name)
    assert share == pytest.approx(parts.sum(axis=1).mean())  # none is negative
    again = comparables.of_rows(explainer, train, new, rows)
    np.testing.assert_allclose(
        again, [wanted["weights, as they are"], wanted["weights, adjusted"]], rtol=1e-9
    )


@pytest.mark.slow
def test_wrong_prices_are_counted(monkeypatch):
    """On simulated prices, by the definition."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import comparables
    import wrong_prices

    X, y = comparables.simulated()
    prices, wrong = y.copy(), X.index[:400:50]
    prices[wrong] *= 8
    explainer = comparables.fitted("boosting, log price", X[:400], prices[:400], 0)
    found = wrong_prices.listed(explainer, X[400:440], y[400:440], wrong, "keep")
    order = np.argsort(-explainer(X[400:440]).weights, axis=1, kind="stable")[:, :5]
    assert found["wrong, %"] == pytest.approx(100 * np.isin(order, wrong).mean())
    assert found["homes, %"] == pytest.approx(100 * np.isin(order, wrong).any(axis=1).mean())
    residuals = (explainer.targets - explainer(X[:400]).predictions)[order]
    assert found["far, %"] == pytest.approx(100 * (abs(residuals) > np.log(2)).any(axis=1).mean())
    model = explainer(X[400:440]).predictions - np.log(y[400:440])
    assert found["error of the model"] == pytest.approx(np.sqrt(np.mean(model**2)))
    assert found["error of five"] == pytest.approx(
        np.sqrt(np.mean((model + residuals.mean(axis=1)) ** 2))
    )
    assert (
        wrong_prices.listed(explainer, X[400:440], y[400:440], wrong, "drop")["wrong, %"]
        < found["wrong, %"]
    )


@pytest.mark.slow
def test_values_of_rows_are_judged(monkeypatch):
    """The parts that need no pyDVL, on rows whose spoilt targets are known."""
    monkeypatch.syspath_prepend(str(EXPERIMENTS))
    import data_values
    import paper_data

    rows = data_values.Rows(
        *(part.to_numpy(float) for part in paper_data.read("friedman", None)), seed=0
    )
    assert rows.wrong.sum() == 10
    known = data_values.judge(np.where(rows.wrong, -1.0, 1.0), rows)
    assert known["noisy labels"] == 1.0
    assert data_values.judge(np.where(rows.wrong, 1.0, -1.0), rows)["noisy labels"] < 0.15
    model = lgb.LGBMRegressor(**data_values.SETTINGS).fit(rows.X, rows.y)
    nobody, all_rows = (
        np.mean((rows.y_val - made) ** 2) for made in (rows.y.mean(), model.predict(rows.X_val))
    )  # whose difference the values share out
    # LightGBM keeps residuals in single precision.
    np.testing.assert_allclose(data_values.exact(rows, "mean").sum(), nobody - all_rows, rtol=1e-7)
    values = data_values.left_out(rows)
    assert values.shape == (100,)
    assert (values <= 0).all()
