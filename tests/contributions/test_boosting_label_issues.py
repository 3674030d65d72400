"""Label issues of boosted classifiers and counts against loops over trees and rows, and against the pushes themselves."""

import lightgbm as lgb
import numpy as np
import pytest
from scipy.special import expit, softmax
from scipy.stats import nbinom, poisson
from sklearn.linear_model import LogisticRegression
from xgboost import XGBClassifier

import axil
from axil import InputError, UnsupportedQuestionError
from axil.methods.folds import fold_numbers
from axil.methods.method import verified_model
from axil.methods.tails import tails

SETTINGS = {"n_estimators": 15, "num_leaves": 6, "min_child_samples": 8, "verbose": -1, "n_jobs": 1}


def made(n_classes):
    """Rows of classes that one feature gives, eight of them wrong."""
    rng = np.random.default_rng(0)
    X = rng.random((240, 3))
    y = (n_classes * X[:, 0]).astype(int)
    wrong = rng.choice(240, 8, replace=False)
    y[wrong] = (y[wrong] + 1) % n_classes
    return X, y, wrong


def neighbours(leaves, y, k, rate, n_outputs=1):
    """(N,): the share of class k among the other rows in the leaves (N, T), tree by tree.

    A tree counts by what the trees before it have left of the labels.
    """
    n, found = len(y), []
    weights = (1 - rate) ** (np.arange(leaves.shape[1]) // n_outputs)
    for j in range(n):
        mates = [np.flatnonzero((own == own[j]) & (np.arange(n) != j)) for own in leaves.T]
        is_met = np.array([len(own) > 0 for own in mates])
        shares = [(y[own] == k).mean() for own in mates if len(own)]
        found.append(np.average(shares, weights=weights[is_met]))
    return np.array(found)


def contested(shares, means, y):
    """How many rows have another most frequent class, or another expected one."""
    return int(((shares.argmax(axis=1) != y) | (means.argmax(axis=1) != y)).sum())


def test_two_classes():
    """1e-6: pushes add up to the scores that closely."""
    X, y, wrong = made(2)
    model = lgb.LGBMClassifier(**SETTINGS).fit(X, y)
    explainer = axil.Explainer(model, X, y, n_threads=2)
    table = explainer.find_label_issues()
    assert len(set(table["row"].head(8)) & set(wrong)) >= 5  # three are at the border
    assert list(table.columns) == [
        "row",
        "is_label_issue",
        "label_quality",
        "given_label",
        "expected_label",
        "probability",
    ]
    assert table["label_quality"].is_monotonic_increasing
    by_row = table.set_index("row").sort_index()
    second = neighbours(model.predict(X, pred_leaf=True), y, 1, 0.1)
    without = model.predict(X, raw_score=True) - np.diagonal(
        explainer.jacobian.gradient_contributions(X)
    )
    np.testing.assert_allclose(
        by_row["probability"], np.where(y == 1, expit(without), expit(-without)), rtol=1e-6
    )
    mean = (second + expit(without)) / 2
    np.testing.assert_allclose(by_row["label_quality"], np.where(y == 1, mean, 1 - mean), rtol=1e-6)
    shares, means = (np.column_stack([1 - part, part]) for part in (second, mean))
    n_issues = contested(shares, means, y)
    assert table["is_label_issue"].head(n_issues).all()
    assert table["is_label_issue"].sum() == n_issues
    is_expected = np.where(by_row["is_label_issue"], 1 - y, mean > 0.5)
    np.testing.assert_array_equal(by_row["expected_label"], is_expected)
    n_wrong = ((mean > 0.5) != y).sum()
    assert f"about {n_wrong} of 240 labels look wrong; {n_issues} are marked" in table.attrs["axil"]


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_several_classes(library):
    X, y, wrong = made(3)
    names = np.array(["a", "b", "c"])
    if library == "lightgbm":
        model, y_fit = lgb.LGBMClassifier(**SETTINGS), names[y]
        leaves = model.fit(X, y_fit).predict(X, pred_leaf=True)
    else:
        model, y_fit = XGBClassifier(n_estimators=10, max_depth=3, n_jobs=1), y
        leaves = model.fit(X, y_fit).apply(X)
    explainer = axil.Explainer(model, X, y_fit, n_threads=1)
    table = explainer.find_label_issues()
    assert len(set(table["row"].head(8)) & set(wrong)) >= 7
    by_row = table.set_index("row").sort_index()
    rate = {"lightgbm": 0.1, "xgboost": 0.3}[library]
    shares = np.stack([neighbours(leaves, y, k, rate, 3) for k in range(3)], axis=1)
    raw = {"raw_score": True} if library == "lightgbm" else {"output_margin": True}
    scores = (
        model.predict(X, **raw)
        - np.diagonal(explainer.jacobian.gradient_contributions(X), axis1=0, axis2=2).T
    )
    np.testing.assert_allclose(
        by_row["probability"], softmax(scores, axis=1)[np.arange(240), y], rtol=1e-5
    )
    said = (shares + softmax(scores, axis=1)) / 2
    np.testing.assert_allclose(by_row["label_quality"], said[np.arange(240), y], rtol=1e-5)
    classes = names if library == "lightgbm" else np.arange(3)
    is_marked = by_row["is_label_issue"].to_numpy()
    assert is_marked.sum() == contested(shares, said, y) > 5
    others = np.where(np.eye(3)[y] > 0, -1.0, said).argmax(axis=1)
    expected = np.where(is_marked, others, said.argmax(axis=1))
    np.testing.assert_array_equal(by_row["expected_label"], classes[expected])


def test_the_first_trees_say_how_many_labels_to_mark():
    """Splits of many late trees follow flipped labels; the marks still find most of them."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(600, 6))
    y = (X[:, 0] + X[:, 1] + 0.3 * rng.normal(size=600) > 0).astype(int)
    wrong = rng.choice(600, 30, replace=False)
    y[wrong] = 1 - y[wrong]
    model = lgb.LGBMClassifier(n_estimators=300, verbose=-1, n_jobs=1).fit(X, y)
    assert (model.predict(X) == y).all()  # the fit has taken up every wrong label
    table = axil.Explainer(model, X, y).find_label_issues()
    marked = table.loc[table["is_label_issue"], "row"]
    assert marked.isin(wrong).sum() >= 24
    assert len(marked) <= 60


def test_out_of_fold_probabilities_take_the_place_of_shares():
    X, y, _ = made(2)
    explainer = axil.Explainer(lgb.LGBMClassifier(**SETTINGS).fit(X, y), X, y)
    without = explainer.find_label_issues().set_index("row").sort_index()["probability"].to_numpy()
    second = np.random.default_rng(1).random(240)
    given = np.where(y == 1, second, 1 - second)
    table = explainer.find_label_issues(out_of_fold=second).set_index("row").sort_index()
    np.testing.assert_allclose(table["label_quality"], (given + without) / 2)
    usual = [(1 - second[y == 0]).mean(), second[y == 1].mean()]
    other = np.where(y == 1, (1 - second) >= usual[0], second >= usual[1])
    sure = np.where(y == 1, second >= usual[1], (1 - second) >= usual[0])
    contested = (other & ~(sure & (given >= 1 - given))) | (table["label_quality"] < 0.5)
    confident = np.where(
        second >= usual[1],
        np.where((1 - second >= usual[0]) & (second < 0.5), 0, 1),
        np.where(1 - second >= usual[0], 0, -1),
    )
    estimated = sum(
        (y == k).sum() * (confident[(y == k) & (confident >= 0)] != k).mean() for k in (0, 1)
    )
    assert table["is_label_issue"].sum() == min(contested.sum(), round(estimated))
    assert (
        table["label_quality"][table["is_label_issue"]].max()
        <= table["label_quality"][~table["is_label_issue"]].min()
    )
    with pytest.raises(InputError, match="out_of_fold"):
        explainer.find_label_issues(out_of_fold=second[:-1])


def test_counts_are_judged_by_their_residuals():
    rng = np.random.default_rng(0)
    X = rng.random((300, 3))
    y = rng.poisson(np.exp(1 + 2 * X[:, 0])).astype(float)
    wrong = rng.choice(300, 5, replace=False)
    y[wrong] += 60
    model = lgb.LGBMRegressor(objective="poisson", **SETTINGS).fit(X, y)
    explainer = axil.Explainer(model, X, y)
    table = explainer.find_label_issues()
    assert set(table["row"].head(5)) == set(wrong)
    assert abs(table["is_label_issue"].sum() - 5) <= 2
    by_row = table.set_index("row").sort_index()
    rows = np.flatnonzero(fold_numbers(verified_model(explainer)) == 0)
    without = explainer.without(X[rows], rows)["after"]
    np.testing.assert_allclose(by_row["expected_label"][rows], np.exp(without), rtol=1e-9)
    np.testing.assert_allclose(by_row["residual"], y - by_row["expected_label"])
    np.testing.assert_array_equal(
        explainer.find_label_issues(out_of_fold=np.full(300, 5.0))
        .set_index("row")
        .sort_index()["expected_label"],
        5.0,
    )


def test_models_without_leaves_are_refused():
    X, y, _ = made(2)
    logistic = axil.Explainer(LogisticRegression(tol=1e-10).fit(X, y), X, y)
    with pytest.raises(UnsupportedQuestionError, match="find_label_issues"):
        logistic.find_label_issues()


def test_a_digit_too_many_in_amounts_of_a_robust_loss():
    X, _, _ = made(2)
    amounts = X[:, 0].copy()
    amounts[5] += 40.0
    model = lgb.LGBMRegressor(objective="fair", boost_from_average=False, **SETTINGS)
    table = axil.Explainer(model.fit(X, amounts), X, amounts).find_label_issues()
    assert table["row"][0] == 5
    assert table["is_label_issue"][0]


def same(one, other):
    """The same label issues, whatever classes are called."""
    np.testing.assert_array_equal(one["row"], other["row"])
    np.testing.assert_array_equal(one["is_label_issue"], other["is_label_issue"])
    np.testing.assert_allclose(one["label_quality"], other["label_quality"], rtol=1e-12)
    assert list(one.columns) == list(other.columns)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_booster_has_the_label_issues_and_the_influence_of_the_estimator_around_it(
    n_classes, tmp_path
):
    X, y, _ = made(n_classes)
    model = lgb.LGBMClassifier(**SETTINGS).fit(X, y)
    model.booster_.save_model(tmp_path / "model.txt")
    estimator = axil.Explainer(model, X, y)
    for inner in (model.booster_, lgb.Booster(model_file=tmp_path / "model.txt")):
        same(
            axil.Explainer(inner, X, y.astype(float)).find_label_issues(),
            estimator.find_label_issues(),
        )
    influences = axil.Explainer(model.booster_, X, y).influence(X[:50], y[:50])
    np.testing.assert_array_equal(influences, estimator.influence(X[:50], y[:50]))
    model = XGBClassifier(n_estimators=10, max_depth=3).fit(X, y)
    inner = axil.Explainer(model.get_booster(), X, y.astype(float))
    same(inner.find_label_issues(), axil.Explainer(model, X, y).find_label_issues())


def test_probabilities_for_labels_are_no_classes():
    X, y, _ = made(2)
    soft = np.clip(y, 0.1, 0.9)
    model = lgb.LGBMRegressor(objective="cross_entropy", **SETTINGS).fit(X, soft)
    assert "residual" in axil.Explainer(model, X, soft).find_label_issues()


def amounts(kind, rng):
    """Clean targets of 3,000 rows with their offsets and weights, and the same with a wrong one in each of 30 rows."""
    X = rng.normal(size=(3000, 3))
    mean, exposure = np.exp(0.4 * X[:, 0]), rng.uniform(0.05, 1, 3000)
    offsets = weights = None
    wrong = np.zeros(3000, dtype=bool)
    wrong[rng.choice(3000, 30, replace=False)] = True
    if kind == "gamma":
        y = rng.gamma(0.7, mean / 0.7) + 1e-6
        return X, y, offsets, weights, np.where(wrong, 100 * y + 100 * mean, y), wrong
    if (
        kind == "tweedie"
    ):  # of power 1.5 and dispersion 2: as many amounts as the root of the mean, on average
        number = rng.poisson(np.sqrt(mean))
        y = rng.gamma(np.maximum(number, 1), np.sqrt(mean)) * (number > 0)
        return X, y, offsets, weights, np.where(wrong, 100 * y + 100, y), wrong
    y = rng.poisson(0.12 * mean if kind == "poisson" else 0.15 * mean * exposure)
    y, bad = y.astype(float), np.where(wrong, y + 12.0, y)
    if kind == "poisson by offsets":
        offsets = np.log(exposure)
    elif kind == "poisson by weights":
        y, bad, weights = y / exposure, bad / exposure, exposure
    return X, y, offsets, weights, bad, wrong


@pytest.mark.parametrize(
    "kind", ["poisson", "poisson by offsets", "poisson by weights", "gamma", "tweedie"]
)
def test_clean_counts_and_amounts_are_not_suspected_and_wrong_ones_are(kind):
    """Few of 3,000 right ones: as many as are beyond three standard errors of what chance makes."""
    X, y, offsets, weights, bad, wrong = amounts(kind, np.random.default_rng(3))
    settings = {
        "n_estimators": 40,
        "num_leaves": 8,
        "verbose": -1,
        "n_jobs": 1,
        "objective": kind.split()[0],
    }
    for targets in (y, bad):
        model = lgb.LGBMRegressor(**settings).fit(
            X, targets, sample_weight=weights, init_score=offsets
        )
        table = axil.Explainer(
            model, X, targets, sample_weight=weights, init_score=offsets
        ).find_label_issues()
        suspects = set(table["row"][table["is_label_issue"]])
        assert suspects == set(table["row"].head(len(suspects)))
        if targets is y:
            assert len(suspects) <= 3
            assert (table["label_quality"] < 0.01).mean() < 0.01
        else:
            assert len(suspects & set(np.flatnonzero(wrong))) >= 25
            assert len(suspects - set(np.flatnonzero(wrong))) <= 3


def test_tails_are_those_of_the_distributions():
    """rtol: of sums of a simulation of a million, or of two ways to compute the same."""
    ones, rng = np.ones(6), np.random.default_rng(0)
    y, means = (
        np.array([[0.0], [1.0], [3.0], [8.0], [50.0], [3.0]]),
        np.array([[2.0], [0.5], [0.098], [3.0], [60.0], [3.0]]),
    )
    expected = [
        poisson.cdf(0, 2),
        poisson.sf(0, 0.5),
        poisson.sf(2, 0.098),
        poisson.sf(7, 3),
        poisson.cdf(50, 60),
        0.5,
    ]
    np.testing.assert_allclose(
        tails(1, y, means, ones)[:, 0], np.minimum(2 * np.array(expected), 1.0), rtol=1e-9
    )
    assert 2.8e-4 < tails(1, y, means, ones)[2, 0] < 3e-4
    amount = rng.gamma(0.7, 1 / 0.7, size=(100_000, 1))
    found = tails(2, amount, np.ones_like(amount), np.ones(len(amount)))
    np.testing.assert_allclose(np.quantile(found, [0.001, 0.01, 0.5]), [0.001, 0.01, 0.5], rtol=0.2)
    number = rng.poisson(2.0, size=(100_000, 1))
    total = rng.gamma(np.maximum(number, 1), 1.0) * (
        number > 0
    )  # power 1.5, mean 2, dispersion sqrt(2)
    found = tails(1.5, total, np.full_like(total, 2.0), np.ones(len(total)))
    np.testing.assert_allclose(
        (found < 0.01).mean(), 0.005, rtol=0.15
    )  # zeros are at one end, and no tail
    many = np.concatenate([np.zeros((1, 1)), rng.gamma(400, 1 / 400, size=(2000, 1))])
    found = tails(1.5, many, np.ones_like(many), np.ones(len(many)))
    assert np.isfinite(found).all()
    lost = tails(1, y, np.full_like(y, np.nan), ones)
    assert np.isnan(lost).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_tails_of_counts_that_vary_more_than_poisson(weighted):
    """The variance of most counts decides, so that wrong ones are as far out as with it known; 0.03: of a variance estimated."""
    draws = np.random.default_rng(0)
    exposure = draws.uniform(0.5, 1.5, 5000) if weighted else np.ones(5000)
    means = draws.uniform(1, 8, 5000)
    y = draws.poisson(means * exposure * draws.gamma(3.0, 1 / 3.0, 5000)).astype(float)
    y[:50] += 60
    found = tails(1, (y / exposure)[:, None], means[:, None], exposure)[:, 0]
    known = nbinom(3, 3 / (3 + means * exposure))
    expected = np.minimum(2 * np.minimum(known.sf(y - 1), known.cdf(y)), 1)
    np.testing.assert_allclose(found, expected, atol=0.03)
    assert (found[:50] < 0.001).all()
    assert (found[50:] < 0.01).mean() < 0.01
