"""The experiments on classifiers: their data, the replayed contributions, tables, and what they print."""

import sys

import lightgbm as lgb
import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("experiments")


@pytest.fixture
def model():
    import class_data

    X, y = class_data.read_classes("breast_cancer")
    settings = {"n_estimators": 20, "num_leaves": 7, "reg_lambda": 2.0, "n_jobs": 1, "verbose": -1}
    return lgb.LGBMClassifier(**settings).fit(X[:300], y[:300]), X, y


def test_contributions_add_up_to_scores(model):
    from class_contributions import contributions

    fitted, X, y = model
    found = contributions(fitted, X[:300], y[:300], X[300:320])
    base = np.log(y[:300].mean() / (1 - y[:300].mean()))
    raw = fitted.predict(X[300:320], raw_score=True)
    np.testing.assert_allclose(
        base + found.sum(axis=1), raw, rtol=0, atol=1e-5
    )  # gradients in float32
    assert (
        np.sign(found) == np.where(found == 0, 0, 2 * y[:300] - 1)
    ).all()  # a row adds towards its own label
    with pytest.raises(RuntimeError, match="away from the model's"):
        contributions(fitted, X[:300], y[:300][::-1], X[300:320])


def test_data_sets_have_two_classes():
    import class_data

    assert len(class_data.NAMES) >= 12
    for name in class_data.OWN:
        X, y = class_data.read_classes(name)
        assert X.shape[0] == len(y)
        assert set(y) == {0, 1}
    with pytest.raises(ValueError, match="no data set 'nothing' with two classes"):
        class_data.read_classes("nothing")


def test_tables_of_a_run():
    import classifiers

    rng = np.random.default_rng(1)
    hows = [(m, rule) for m in ("contributions", "J") for rule in ("size", "one sign")]
    changes = {how: 1.0 + 0.1 * rng.random((20, 3)) for how in [*hows, ("Random", "size")]}
    changes["contributions", "one sign"] += 5.0
    changes["J", "size"] += 1.0
    lines = list(classifiers.lines_of("wine", (178, 13), changes))
    changes["contributions", "one sign"] = changes["contributions", "one sign"] + 0.5
    lines += classifiers.lines_of("iris", (150, 4), changes)
    table = classifiers.data_table(lines)
    assert [row["data"] for row in table] == ["wine", "iris", "clear wins", "with ties"]
    assert table[0]["contributions"].startswith("**5.")
    assert float(table[0]["J"]) == pytest.approx(1.0, abs=0.05)
    assert (table[2]["contributions"], table[3]["J"]) == (2, 0)
    rules = {row.pop("method"): row for row in classifiers.rules_table(lines)}
    assert rules["contributions"]["by one sign, first or tied"] == 2
    assert float(rules["J"]["by size, to Random"]) == pytest.approx(1.95, abs=0.1)
    assert rules["Random"]["by one sign, to Random"] == ""
    (pair,) = classifiers.pairs_table(lines)
    assert (pair["against"], pair["contributions ahead on"]) == ("J", "2 of 2")
    assert float(pair["AURC of contributions to its"]) == pytest.approx(6.0, abs=0.2)
    by_size = [
        line
        for line in lines
        if line["data"] == "wine" and line["rule"] == "size" and line["leads its rule"]
    ]
    assert [line["method"] for line in by_size] == ["J"]


@pytest.mark.slow
def test_wrong_labels_of_classes_are_looked_for(monkeypatch, capsys):
    import label_noise_classes

    monkeypatch.setattr(label_noise_classes, "REPETITIONS", 1)
    monkeypatch.setattr(
        label_noise_classes, "SETTINGS", label_noise_classes.SETTINGS | {"n_estimators": 20}
    )
    monkeypatch.setattr(sys, "argv", ["label_noise_classes.py", "--quick"])
    label_noise_classes.main()
    printed = capsys.readouterr().out.splitlines()
    end = printed.index("")  # of the first table; the second has counts
    head, *lines = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in [printed[2], *printed[4:end]]
    )
    found = {cells[0]: float(cells[head.index("average precision")]) for cells in lines}
    assert len(found) >= 13
    assert min(found["find_label_issues"], found["out-of-fold loss"]) > 2 * found["Random"]
    assert {line.split("|")[1].strip() for line in printed[end + 3 :]} >= {
        "find_label_issues",
        "find_label_issues, out-of-fold",
    }


@pytest.mark.slow
def test_the_quick_form(monkeypatch, capsys):
    import classifiers

    monkeypatch.setattr(classifiers, "SHARES", (0.01,))
    monkeypatch.setattr(sys, "argv", ["classifiers.py", "--quick", "--jobs", "1"])
    classifiers.main()
    tables = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert any(line.startswith("| friedman | 400 | ") for line in tables)
    assert any(line.startswith("| contributions | ") for line in tables)
    assert not any("nan" in line for line in tables)


@pytest.mark.slow
def test_ordinary_classifiers(tmp_path, monkeypatch, capsys):
    import ordinary_classifiers

    given = ["--trees", "5", "--only", "iris", "--classifiers", "LightGBM", "GradientBoosting"]
    monkeypatch.setattr(
        sys, "argv", ["ordinary_classifiers", *given, "--cache", str(tmp_path / "cells.jsonl")]
    )
    assert ordinary_classifiers.main() == 0
    shown = capsys.readouterr().out
    assert "| LightGBM | 5 | 1 |  | 1 |" in shown
    assert "| GradientBoosting | 5 | 1 |  | 1 |" in shown
    monkeypatch.setattr(ordinary_classifiers, "measure", None)  # nothing is measured again
    assert ordinary_classifiers.main() == 0
    assert capsys.readouterr().out.splitlines()[-4:] == shown.splitlines()[-4:]


def test_verdicts_of_ordinary_classifiers(model):
    from ordinary_classifiers import summary, verdict_of

    fitted, X, y = model
    given = fitted, X[:300], y[:300], X[300:320]
    scores = fitted.predict(X[300:320], raw_score=True)
    verdict, error, _ = verdict_of(*given, scores)
    assert (verdict, error < 1e-12) == ("additive", True)
    assert verdict_of(*given, scores + 0.01)[0] == "wrong"
    assert verdict_of(fitted, X[:300], y[:300][::-1], X[300:320], scores)[0] == "alarm"
    refused = lgb.LGBMClassifier(n_estimators=2, linear_tree=True, n_jobs=1, verbose=-1).fit(
        X[:300], y[:300]
    )
    verdict, _, why = verdict_of(refused, X[:300], y[:300], X[300:320], scores)
    assert (verdict, why.startswith("linear_tree")) == ("refused", True)
    line = {"classifier": "LightGBM", "data": "iris", "trees": 5, "error": "", "verdict": "alarm"}
    (shown,) = summary([line])
    assert (shown["alarm"], shown["not explained"]) == (1, "iris (alarm)")
