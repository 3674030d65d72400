"""Label issues against its formulas, row by row, and wrong labels that it must find."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from lightgbm import LGBMRegressor
from scipy.stats import t as student
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_iris
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
    VotingRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.neighbors import KNeighborsRegressor

import axil
from axil import ApproximationWarning, InputError
from axil.methods.folds import fold_numbers
from axil.methods.method import verified_model

SETTINGS = {
    "n_estimators": 30,
    "num_leaves": 8,
    "min_child_samples": 10,
    "verbose": -1,
    "n_jobs": 1,
}


def made(n=300, shift=8.0):
    """Targets of Friedman's kind with noise, and rows whose targets are shifted."""
    rng = np.random.default_rng(0)
    X = rng.random((n, 4))
    y = 10 + 10 * np.sin(np.pi * X[:, 0]) + 5 * X[:, 1] + rng.normal(0, 0.5, n)
    wrong = rng.choice(n, 9, replace=False)
    y[wrong] += rng.choice([-shift, shift], 9)
    return X, y, wrong


@pytest.fixture(scope="module")
def case():
    X, y, wrong = made()
    return X, y, wrong, axil.Explainer(LGBMRegressor(**SETTINGS).fit(X, y), X, y)


def by_hand(residuals, leaves):
    """scale, studentised value and quality of residuals (N,) of rows in leaves (N, T), row by row."""
    sizes, n = np.abs(residuals), len(residuals)
    around = np.empty(n)
    for j in range(n):
        mates = [
            np.flatnonzero((leaves[:, t] == leaves[j, t]) & (np.arange(n) != j))
            for t in range(leaves.shape[1])
        ]
        around[j] = np.mean([sizes[own].mean() for own in mates if len(own)])
    scale = (around + 0.5 * sizes.mean()) / 1.5
    middle, bulk = np.quantile(sizes / scale, [0.5, 0.8])
    freedom = min(
        range(4, 21),
        key=lambda f: abs(np.log(student.ppf(0.9, f) / student.ppf(0.75, f) / (bulk / middle))),
    )
    scale *= middle / student.ppf(0.75, freedom)
    return scale, residuals / scale, 2 * student.sf(sizes / scale, freedom)


def fitted_without(rows, leaves, y, rate=0.1):
    """Predictions (N,) of least-squares boosting on these leaves (N, T) by a fit that leaves the rows out, tree by tree."""
    left = np.delete(np.arange(len(y)), rows)
    prediction = np.full(len(y), y[left].mean())
    for leaf in leaves.T:
        residual = y - prediction
        sums = np.bincount(leaf[left], residual[left], leaf.max() + 1)
        counts = np.bincount(leaf[left], minlength=leaf.max() + 1)
        prediction = (
            prediction
            + rate * np.divide(sums, counts, out=np.zeros_like(sums), where=counts > 0)[leaf]
        )
    return prediction


def test_expected_values_are_those_of_fits_without_a_fold(case):
    """1e-6 of the largest target: LightGBM keeps targets in single precision."""
    X, y, _, explainer = case
    leaves = LGBMRegressor(**SETTINGS).fit(X, y).predict(X, pred_leaf=True)
    folds = fold_numbers(verified_model(explainer))
    assert np.bincount(folds).tolist() == [15] * 20
    table = explainer.find_label_issues().set_index("row").sort_index()
    for fold in range(20):
        rows = np.flatnonzero(folds == fold)
        reference = fitted_without(rows, leaves, np.float32(y).astype(float))[rows]
        np.testing.assert_allclose(
            table["expected_label"][rows], reference, atol=1e-6 * np.abs(y).max()
        )


def test_folds_are_those_of_refits_without_them():
    """With sample weights, L2 and offsets the fit without a fold is that of `without`."""
    X, y, _ = made(120)
    weights, offsets = np.linspace(0.5, 2.0, 120), np.linspace(-1, 1, 120)
    model = LGBMRegressor(**SETTINGS, reg_lambda=3.0).fit(
        X, y, sample_weight=weights, init_score=offsets
    )
    explainer = axil.Explainer(model, X, y, sample_weight=weights, init_score=offsets)
    rows = np.flatnonzero(fold_numbers(verified_model(explainer)) == 3)
    table = explainer.find_label_issues().set_index("row").sort_index()
    after = explainer.without(X[rows], rows, init_score=offsets[rows])["after"]
    np.testing.assert_allclose(table["expected_label"][rows], after, atol=1e-9 * np.abs(y).max())


def test_classes_are_spread_over_the_folds():
    X, y = load_iris(return_X_y=True)
    explainer = axil.Explainer(
        RandomForestClassifier(5, min_samples_leaf=5, random_state=0).fit(X, y), X, y
    )
    folds = fold_numbers(verified_model(explainer))
    counts = np.stack([np.bincount(folds[y == k], minlength=20) for k in range(3)])
    assert counts.min() == 2
    assert counts.max() == 3


def test_leave_one_out_by_name(case):
    explainer = case[3]
    table = explainer.find_label_issues(out_of_fold="leave-one-out").set_index("row").sort_index()
    alone = explainer.diagnostics.leave_one_out().set_index("row")
    np.testing.assert_array_equal(table["expected_label"], alone["prediction"])
    np.testing.assert_array_equal(table["residual"], alone["residual"])
    with pytest.raises(InputError, match='expected "folds"'):
        explainer.find_label_issues(out_of_fold="loo")


def test_no_fit_without_each_row_unless_asked_for(case, monkeypatch):
    """Its time grows with the square of the number of trees."""
    monkeypatch.setattr(
        "axil.methods.leave_one_out.left_out", lambda model: pytest.fail("leave-one-out")
    )
    X, y, *_ = case
    explainer = axil.Explainer(LGBMRegressor(**SETTINGS).fit(X, y), X, y)
    explainer.find_label_issues()
    explainer.influence(X[:20], y[:20])


def test_formulas(case):
    """1e-9: sums of 30 trees, each row's own size taken out again."""
    X, y, _, explainer = case
    table = explainer.find_label_issues().set_index("row").sort_index()
    np.testing.assert_array_equal(table["given_label"], y)
    np.testing.assert_array_equal(table["residual"], y - table["expected_label"])
    leaves = LGBMRegressor(**SETTINGS).fit(X, y).predict(X, pred_leaf=True)
    scale, value, quality = by_hand(table["residual"].to_numpy(), leaves)
    np.testing.assert_allclose(table["scale"], scale, rtol=1e-9)
    np.testing.assert_allclose(table["studentised"], value, rtol=1e-9)
    np.testing.assert_allclose(table["label_quality"], quality, rtol=1e-7)


def test_wrong_labels_come_first_and_are_counted(case):
    _, _, wrong, explainer = case
    table = explainer.find_label_issues()
    assert set(table["row"].head(9)) == set(wrong)
    assert abs(table["is_label_issue"].sum() - 9) <= 2
    assert table["is_label_issue"].iloc[: table["is_label_issue"].sum()].all()
    assert "labels look wrong" in table.attrs["axil"]
    assert table["studentised"].abs().is_monotonic_decreasing
    assert table["label_quality"].is_monotonic_increasing


def test_the_share_of_right_labels_among_those_marked(case):
    """The largest number m of lines such that N right labels would have at most fdr * m as far out."""
    explainer = case[3]
    marked = []
    for fdr in (0.01, 0.1, 0.5):
        table = explainer.find_label_issues(fdr=fdr)
        q = table["label_quality"].to_numpy()
        counts = [m for m in range(1, 301) if 300 * q[m - 1] <= fdr * m]
        assert table["is_label_issue"].sum() == max(counts, default=0)
        marked.append(int(table["is_label_issue"].sum()))
    assert marked[0] <= marked[1] < marked[2]
    with pytest.raises(InputError, match="fdr is 2"):
        explainer.find_label_issues(fdr=2)
    X, y = load_iris(return_X_y=True)
    classes = axil.Explainer(
        RandomForestClassifier(5, min_samples_leaf=5, random_state=0).fit(X, y), X, y
    )
    with pytest.raises(InputError, match="fdr is for numbers"):
        classes.find_label_issues(fdr=0.2)


def test_the_summary_says_how_far_targets_are_even_where_none_is_marked():
    """Long tails: prices at a third of what is expected may be right, and the note says that they are there."""
    rng = np.random.default_rng(1)
    X = rng.random((1500, 3))
    price = np.exp(3 + X[:, 0] + 0.15 * rng.standard_t(2.5, 1500))
    model = TransformedTargetRegressor(
        LGBMRegressor(**SETTINGS), func=np.log, inverse_func=np.exp
    ).fit(X, price)
    table = axil.Explainer(model, X, price).find_label_issues(fdr=1e-9)
    assert not table["is_label_issue"].any()
    far = table[table["label_quality"] < 0.01]
    ratios = far["given_label"] / far["expected_label"]
    assert ratios.min() < 0.5
    note = table.attrs["axil"]
    assert f"{len(far)} have a quality below 0.01, as 15 right ones would" in note
    assert f"targets of {ratios.min():.3g} to {ratios.max():.3g} times the value expected" in note
    y = np.log(price) - 3.5  # on both sides of zero
    note = (
        axil.Explainer(LGBMRegressor(**SETTINGS).fit(X, y), X, y)
        .find_label_issues(fdr=1e-9)
        .attrs["axil"]
    )
    assert "targets off the value expected by -" in note


def test_right_labels_are_left_alone():
    rng = np.random.default_rng(0)
    X = rng.random((400, 3))
    y = X[:, 0] + rng.normal(0, 0.2, 400)
    assert (
        not axil.Explainer(LGBMRegressor(**SETTINGS).fit(X, y), X, y)
        .find_label_issues()["is_label_issue"]
        .any()
    )


def test_the_scale_is_local():
    """Where the noise is ten times as large, in rows that the trees split off, the scale is larger."""
    rng = np.random.default_rng(0)
    X = rng.random((800, 2))
    noisy = X[:, 0] > 0.5
    y = 5 * X[:, 1] + 9 * noisy + rng.normal(0, np.where(noisy, 1.0, 0.1))
    table = (
        axil.Explainer(LGBMRegressor(**SETTINGS).fit(X, y), X, y)
        .find_label_issues()
        .set_index("row")
        .sort_index()
    )
    assert table["scale"][noisy].median() > 2 * table["scale"][~noisy].median()


def test_out_of_fold_predictions_take_the_place_of_deletions(case):
    X, y, _, explainer = case
    given = y + np.random.default_rng(1).normal(size=len(y))
    table = explainer.find_label_issues(out_of_fold=given).set_index("row").sort_index()
    np.testing.assert_array_equal(table["expected_label"], given)
    np.testing.assert_allclose(table["residual"], y - given)
    leaves = LGBMRegressor(**SETTINGS).fit(X, y).predict(X, pred_leaf=True)
    np.testing.assert_allclose(table["studentised"], by_hand(y - given, leaves)[1], rtol=1e-9)
    assert "given" in explainer.find_label_issues(out_of_fold=given).attrs["axil"]


def test_gain_is_that_of_influence(case):
    X, y, _, explainer = case
    table = (
        explainer.find_label_issues(X_val=X[:40], y_val=y[:40] + 1.0).set_index("row").sort_index()
    )
    influences = explainer.influence(X[:40], y[:40] + 1.0).set_index("row").sort_index()
    np.testing.assert_array_equal(table["gain"], influences["gain"])
    with pytest.raises(InputError, match="X_val was given without y_val"):
        explainer.find_label_issues(X_val=X[:40])


def test_prices_are_shown_and_logarithms_judged():
    X, y, wrong = made()
    price = np.exp(y / 10)
    model = TransformedTargetRegressor(
        LGBMRegressor(**SETTINGS), func=np.log, inverse_func=np.exp
    ).fit(X, price)
    table = axil.Explainer(model, X, price).find_label_issues(X_val=X[:30], y_val=price[:30])
    inner = axil.Explainer(model.regressor_, X, np.log(price)).find_label_issues()
    assert list(table.columns) == [
        *(
            "row",
            "is_label_issue",
            "label_quality",
            "given_label",
            "expected_label",
            "gain (log)",
            "residual",
            "scale (log)",
            "studentised",
        )
    ]
    np.testing.assert_array_equal(table["row"], inner["row"])
    np.testing.assert_allclose(table["studentised"], inner["studentised"], rtol=1e-9)
    np.testing.assert_allclose(table["expected_label"], np.exp(inner["expected_label"]))
    np.testing.assert_allclose(table["residual"], table["given_label"] - table["expected_label"])
    assert len(set(table["row"].head(9)) & set(wrong)) >= 8


def test_several_outputs_have_lines_of_their_own():
    X, y, _ = made()
    Y = np.column_stack([y, X[:, 2]])
    model = ExtraTreesRegressor(20, min_samples_leaf=3, random_state=0).fit(X, Y)
    table = axil.Explainer(model, X, Y).find_label_issues()
    assert len(table) == 600
    assert list(table.columns)[:3] == ["row", "output", "is_label_issue"]
    own = table[table["output"] == 1].set_index("row").sort_index()
    np.testing.assert_array_equal(own["given_label"], X[:, 2])
    leaves = model.apply(X)
    np.testing.assert_allclose(
        own["studentised"], by_hand(own["residual"].to_numpy(), leaves)[1], rtol=1e-9
    )


@pytest.mark.parametrize(
    "inside", [lambda model: model, lambda model: VotingRegressor([("one", model)])]
)
def test_rows_alone_in_a_leaf_are_judged_by_the_trees_in_which_they_are_not(inside):
    X, y, _ = made(60)
    X[7], y[7] = 50.0, 1000.0  # far away from all others
    model = LGBMRegressor(n_estimators=5, min_child_samples=1, num_leaves=12, verbose=-1, n_jobs=1)
    explainer = axil.Explainer(inside(model).fit(X, y), X, y)
    alone = np.flatnonzero(explainer.diagnostics.leave_one_out()["alone"])
    assert 7 in alone
    assert len(alone) <= 30
    assert explainer.find_label_issues()["row"][0] == 7
    assert explainer.find_label_issues()["is_label_issue"][0]
    table = explainer.find_label_issues(out_of_fold="leave-one-out").set_index("row")
    for row in alone:
        after = explainer.without(X[[row]], [row])["after"][0]
        assert abs(table["expected_label"][row] - after) < 1e-9 * np.abs(y).max()


@pytest.mark.parametrize(
    "model",
    [
        RandomForestRegressor(100, random_state=0),
        ExtraTreesRegressor(50, min_samples_leaf=4, random_state=0),
        Ridge(),
        KNeighborsRegressor(8),
    ],
    ids=lambda model: type(model).__name__,
)
def test_forests_and_smoothers(model):
    """Each with errors of its own in the way: ridge sees none of the sine."""
    X, y, wrong = made(shift=30.0)
    table = axil.Explainer(model.fit(X, y), X, y).find_label_issues()
    assert set(table["row"].head(9)) == set(wrong)
    assert abs(table["is_label_issue"].sum() - 9) <= 2
    assert (table["scale"].nunique() == 1) == isinstance(model, Ridge)


def test_where_rows_cannot_be_left_out_the_note_says_so():
    X, y, _ = made()
    model = GradientBoostingRegressor(init=Ridge(), n_estimators=5).fit(X, y)
    with pytest.warns(ApproximationWarning, match="out_of_fold"):
        table = axil.Explainer(model, X, y).find_label_issues()
    assert table.attrs["axil"].startswith("by what the weights of the other rows say")


def test_classes_of_a_forest():
    """The share of the row's class among the other rows in its leaves, tree by tree, and its probability without the row.

    1e-12: sums of a few whole numbers.
    """
    rng = np.random.default_rng(0)
    X = rng.random((200, 3))
    y = np.array(["low", "middle", "high"])[(3 * X[:, 0]).astype(int)]
    wrong = rng.choice(200, 6, replace=False)
    y[wrong] = np.where(y[wrong] == "low", "high", "low")
    model = RandomForestClassifier(20, min_samples_leaf=5, random_state=0).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    table = explainer.find_label_issues()
    assert list(table.columns) == [
        "row",
        "is_label_issue",
        "label_quality",
        "given_label",
        "expected_label",
        "probability",
    ]
    assert len(set(table["row"].head(6)) & set(wrong)) >= 5
    leaves, by_row = model.apply(X), table.set_index("row").sort_index()
    for j in (0, 50, int(wrong[0])):
        mates = [(leaves[:, t] == leaves[j, t]) & (np.arange(200) != j) for t in range(20)]
        without = explainer.without(X[[j]], [j]).set_index("output")["after"]
        means = {
            name: (np.mean([(y[own] == name).mean() for own in mates]) + without[name]) / 2
            for name in model.classes_
        }
        np.testing.assert_allclose(by_row["probability"][j], without[y[j]], atol=1e-12)
        np.testing.assert_allclose(by_row["label_quality"][j], means[y[j]], atol=1e-12)
        assert by_row["expected_label"][j] == max(means, key=means.get)
    assert (table["is_label_issue"] == (table["expected_label"] != table["given_label"])).all()
    assert "gain" in explainer.find_label_issues(X_val=X[:50], y_val=y[:50])


def test_out_of_fold_probabilities_and_the_models_own():
    """Quality is the mean of both. As many rows are suspect as have another class, by that mean or confidently."""
    rng = np.random.default_rng(0)
    X = rng.random((200, 2))
    y = (X[:, 0] > 0.5).astype(int)
    y[:10] = 1 - y[:10]
    explainer = axil.Explainer(
        RandomForestClassifier(30, min_samples_leaf=3, random_state=0).fit(X, y), X, y
    )
    own = explainer.find_label_issues().set_index("row").sort_index()["probability"].to_numpy()
    second = np.clip(X[:, 0] + rng.normal(0, 0.2, 200), 0, 1)
    given = np.where(y == 1, second, 1 - second)
    table = explainer.find_label_issues(out_of_fold=second).set_index("row").sort_index()
    np.testing.assert_allclose(table["probability"], given)
    np.testing.assert_allclose(table["label_quality"], (given + own) / 2)
    usual = given[y == 0].mean(), given[y == 1].mean()
    confident = [
        {k for k in (0, 1) if (second[j] if k else 1 - second[j]) >= usual[k]} for j in range(200)
    ]
    contested = [
        table["label_quality"][j] < 0.5
        or (bool(confident[j]) and (y[j] not in confident[j] or given[j] < 0.5))
        for j in range(200)
    ]
    suspect = table["is_label_issue"].to_numpy()
    likely = [
        max(own, key=lambda k, j=j: given[j] if k == y[j] else 1 - given[j], default=-1)
        for j, own in enumerate(confident)
    ]
    shares = [
        np.mean([likely[j] != k for j in range(200) if y[j] == k and likely[j] >= 0])
        for k in (0, 1)
    ]
    estimated = round(sum((y == k).sum() * shares[k] for k in (0, 1)))
    assert suspect.sum() == min(sum(contested), estimated) > 5
    assert table["label_quality"][suspect].max() <= table["label_quality"][~suspect].min()
    np.testing.assert_array_equal(table["expected_label"], np.where(suspect, 1 - y, y))
    pd.testing.assert_frame_equal(
        table,
        explainer.find_label_issues(out_of_fold=np.column_stack([1 - second, second]))
        .set_index("row")
        .sort_index(),
    )
    with pytest.raises(InputError, match="probabilities from 0 to 1"):
        explainer.find_label_issues(out_of_fold=5 * second)


def test_in_the_users_own_frame_library():
    X, y, _ = made()
    frame = pl.DataFrame(X, schema=list("abcd"))
    model = Ridge().fit(X, y)
    table = axil.Explainer(model, frame, y).find_label_issues()
    assert isinstance(table, pl.DataFrame)
    assert table["is_label_issue"].dtype == pl.Boolean


def test_a_fully_grown_forest_has_no_column_of_nothing():
    X, y = load_iris(return_X_y=True)
    table = axil.Explainer(
        RandomForestClassifier(60, bootstrap=False, max_features=1, random_state=0).fit(X, y), X, y
    ).find_label_issues()
    assert "label_quality" in table
    assert not table.isna().all().any()


def test_one_class_has_no_wrong_labels():
    X, y = np.arange(20.0)[:, None], np.full(20, 7)
    explainer = axil.Explainer(RandomForestClassifier(3, random_state=0).fit(X, y), X, y)
    with pytest.raises(
        axil.UnsupportedQuestionError, match="all training rows are of one class, 7"
    ):
        explainer.find_label_issues()
