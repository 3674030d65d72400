"""The experiment on intervals: its scores, the other methods by their formulas, and that an interrupted run goes on."""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import integrate, stats

EXPERIMENTS = Path(__file__).parent.parent / "experiments"


pytestmark = pytest.mark.usefixtures("experiments")


@pytest.fixture
def split():
    from intervals import split_of

    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 3))
    y = X[:, 0] + np.exp(X[:, 1] / 2) * rng.normal(size=250)
    found, rows = split_of(X, y, 1)
    return found, y[rows]


def test_crps_is_the_integral():
    from intervals_scores import LEVELS, crps, crps_normal

    def integrated(cdf, y, low, high):
        """The definition: of (F(t) - 1{t >= y})^2 over all t."""
        below = integrate.quad(lambda t: cdf(t) ** 2, low, y)[0]
        return below + integrate.quad(lambda t: (1 - cdf(t)) ** 2, y, high)[0]

    for y in (-2.0, 0.3, 4.0):
        normal = stats.norm(1.0, 1.5)
        wanted = integrated(normal.cdf, y, -20, 20)
        assert crps_normal(np.array([y]), 1.0, 1.5)[0] == pytest.approx(
            wanted, rel=1e-6
        )  # the tolerance of quad
        # The grid leaves the outermost 2.5 % at their midpoints, which takes a little off.
        assert crps(normal.ppf(LEVELS)[None], np.array([y]))[0] == pytest.approx(wanted, rel=0.03)
    for y in (0.2, 0.5, 0.93):
        wanted = integrated(stats.uniform.cdf, y, 0.0, 1.0)
        # Midpoint rule, twenty steps: 1 / (24 * 400) times a second derivative of at most 4, and one kink within a step.
        assert crps(LEVELS[None], np.array([y]))[0] == pytest.approx(wanted, abs=2e-3)
    # A point's score is the absolute error.
    np.testing.assert_allclose(crps(np.full((2, 20), 3.0), np.array([1.0, 4.5])), [2.0, 1.5])


def test_winkler_and_likelihood_by_hand():
    from intervals_scores import nll_normal, winkler

    found = winkler(
        np.array([0.0, 0.0, 0.0]), np.array([2.0, 2.0, 2.0]), np.array([1.0, 3.0, -0.5])
    )
    np.testing.assert_allclose(found, [2.0, 2.0 + 20 * 1.0, 2.0 + 20 * 0.5])
    y, mean, std = np.array([1.0, -3.0]), np.array([0.0, 1.0]), np.array([2.0, 0.5])
    np.testing.assert_allclose(nll_normal(y, mean, std), -stats.norm.logpdf(y, mean, std))


def test_quantiles_are_those_of_axil():
    """The same rule for all: rounded away from the median to the next of n numbers."""
    import lightgbm as lgb
    from intervals_scores import LEVELS, outward

    from axil import Explainer

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(160, 2)), rng.normal(size=160)
    model = lgb.LGBMRegressor(n_estimators=3, n_jobs=1, verbose=-1).fit(X[:100], y[:100])
    predictive = Explainer(model, X[:100], y[:100]).calibrate(X[100:], y[100:])
    new = rng.normal(size=(4, 2))
    atoms = predictive.quantiles(
        new, np.arange(1, 61) / 61
    )  # each of the 60 calibration rows is one of them
    np.testing.assert_allclose(predictive.quantiles(new, LEVELS), outward(atoms), rtol=1e-12)


def test_ibug_takes_the_targets_of_the_rows_with_most_leaves_in_common(split):
    from intervals_rivals import NEIGHBOURS

    found, _ = split
    train, new = (found.model.predict(X, pred_leaf=True) for X in (found.X_train, found.X))
    shared = np.array([[sum(a == b for a, b in zip(own, row)) for own in train] for row in new[:5]])
    for k in (3, 31):
        for i, counts in enumerate(shared):
            cut = np.sort(counts)[-k]
            surely, tied = found.y_train[counts > cut], found.y_train[counts == cut]
            if (
                len(surely) + len(tied) == k
            ):  # else which of the tied rows counts is a matter of their order
                spread = np.append(surely, tied).std()
                assert found.neighbours[1][i, NEIGHBOURS.index(k)] == pytest.approx(
                    spread, rel=1e-12
                )


def test_a_factor_is_tuned_on_what_is_given():
    from intervals_rivals import calibrated
    from intervals_scores import nll_normal

    errors = np.random.default_rng(0).normal(0.0, 2.5, 4000)
    change = calibrated(np.ones(4000), lambda std: nll_normal(errors, 0.0, std).mean())
    assert change(np.array([1.0]))[0] == pytest.approx(2.5)  # a value of the grid


@pytest.mark.slow
def test_cv_plus_is_its_formula(split):
    import lightgbm as lgb
    from intervals_rivals import FOLDS, MODEL, cv_plus
    from sklearn.model_selection import KFold

    found, _ = split
    low, high = [], []
    for fit, rest in KFold(FOLDS, shuffle=True, random_state=found.seed).split(found.X_train):
        model = lgb.LGBMRegressor(**MODEL).fit(found.X_train[fit], found.y_train[fit])
        errors = np.abs(found.y_train[rest] - model.predict(found.X_train[rest]))
        low += [model.predict(found.X) - error for error in errors]
        high += [model.predict(found.X) + error for error in errors]
    n = len(found.y_train)
    made = cv_plus(found)
    np.testing.assert_allclose(made.lower, np.sort(low, axis=0)[int(np.floor(0.1 * (n + 1))) - 1])
    np.testing.assert_allclose(made.upper, np.sort(high, axis=0)[int(np.ceil(0.9 * (n + 1))) - 1])


@pytest.mark.slow
def test_every_method_of_lightgbm_answers_in_order(split):
    from intervals_rivals import METHODS, REFITS, SAME_MODEL

    found, y = split
    for name in [*SAME_MODEL, *REFITS, "CQR", "quantile pairs"]:
        made = METHODS[name](found)
        assert made.quantiles.shape == (len(y), 20), name
        assert np.isfinite(made.quantiles).all(), name
        assert (np.diff(made.quantiles, axis=1) >= 0).all(), name
        assert (made.lower <= made.upper).all(), name
        assert (made.std > 0).all(), name
        if name != "quantile pairs":  # which promise nothing
            assert ((made.lower <= y) & (y <= made.upper)).mean() > 0.6, name


def test_data_of_openml_become_numbers(monkeypatch):
    import intervals
    from sklearn.utils import Bunch

    colours = pd.Series(["red", "blue", "red"], dtype="category")
    data = pd.DataFrame(
        {"size": [1, 2, 3], "colour": colours, "gap": [1.0, None, 2.0], "name": ["a", "b", "c"]}
    )
    asked = []
    monkeypatch.setattr(
        intervals,
        "fetch_openml",
        lambda **how: asked.append(how) or Bunch(data=data, target=pd.Series([4, 5, 6])),
    )
    X, y = intervals.read_openml("california")
    assert asked[0]["data_id"] == 44977
    assert list(X.columns) == ["size", "colour_blue", "colour_red"]
    np.testing.assert_array_equal(X.to_numpy(float), [[1, 0, 1], [2, 1, 0], [3, 0, 1]])
    np.testing.assert_array_equal(y, [4.0, 5.0, 6.0])


@pytest.mark.slow
def test_an_interrupted_run_goes_on_and_ties_are_told(tmp_path, monkeypatch, capsys):
    import intervals
    from intervals_report import compared, leaders

    rng = np.random.default_rng(0)
    X = rng.normal(size=(250, 2))
    data = {"toy": (X, X[:, 0] + rng.normal(size=250))}
    first = intervals.measure(data, ["axil", "constant"], tmp_path, 1)
    monkeypatch.setattr(intervals, "scores_of", lambda *_: pytest.fail("measured again"))
    again = intervals.measure(data, ["axil", "constant"], tmp_path, 1)
    assert (
        first.keys()
        == again.keys()
        == {("toy", 0, what) for what in ("strata", "axil", "constant")}
    )
    np.testing.assert_array_equal(again["toy", 0, "axil"]["crps"], first["toy", 0, "axil"]["crps"])
    assert capsys.readouterr().out.count("toy, split 0") == 1  # and nothing of what was there

    noise = rng.normal(size=200)
    table = pd.DataFrame(
        {"good": noise, "as good": noise + rng.normal(size=200) / 50, "bad": 1.1 * noise + 1}
    )
    assert (compared(table, "good", "bad"), compared(table, "bad", "good")) == (1, -1)
    assert leaders(table, list(table)) == {"good", "as good"}
    assert "ngboost" not in sys.modules  # rivals are imported where they are asked for


def test_the_page_tells_what_was_measured():
    """Figures of docs/evidence_intervals.md, from the scores of every data set."""
    page = " ".join(
        (EXPERIMENTS.parent / "docs" / "evidence_intervals.md").read_text(encoding="utf-8").split()
    )
    kept, paper = (
        pd.read_csv(EXPERIMENTS / "results" / f"{name}.csv").set_index(["data", "method"])
        for name in ("intervals", "intervals_paper")
    )
    assert len(kept.index.levels[0]) == len(paper.index.levels[0]) == 20

    def to(score, one, other="constant", kept=kept):
        tables = kept[score].unstack("method")
        return f"{np.exp(np.log(tables[one] / tables[other]).mean()):.3f}"

    def closer(one):
        return to("crps", one, kept=paper)

    def percent(share):
        return f"{100 * share:.0f} %"

    covered, held = (table["covered"].unstack("method") for table in (kept, paper))
    for text in (
        f"| axil | {closer('axil')} |",
        f"| axil, exact | {closer('axil, exact')} |",
        f"| IBUG, and conformal | {closer('IBUG')}, {closer('IBUG, conformal')} |",
        f"| axil, out-of-fold | {closer('axil, out-of-fold')} | {percent(held['axil, out-of-fold'].mean())}, "
        f"at least {percent(held['axil, out-of-fold'].min())} on every data set |",
        f"| CV+ | {closer('CV+')} | {percent(held['CV+'].mean())} |",
        f"Its CRPS is {to('crps', 'axil')} times that of one constant width",
        f"IBUG has {to('crps', 'IBUG')} as published and {to('crps', 'IBUG, conformal')} after further tuning",
        f"Winkler score is {to('winkler', 'axil')} times that of one constant width; IBUG has "
        f"{to('winkler', 'IBUG')} and {to('winkler', 'IBUG, conformal')}",
        f"cover {100 * covered['axil'].mean():.1f} % and are {to('width', 'axil')} times as wide",
        f"IBUG as published covers {100 * covered['IBUG'].mean():.1f} %",
        f"the same CRPS ({to('crps', 'axil, out-of-fold')})",
        f"quantile-forest has {to('crps', 'quantile-forest')} and quantile pairs {to('crps', 'quantile pairs')}",
    ):
        assert text in page, text


def test_cases_for_the_form_of_intervals():
    """What is measured around predictions, and the errors that it should foretell."""
    import interval_data
    import lightgbm as lgb

    import axil

    rng = np.random.default_rng(0)
    X = rng.random((200, 3))
    y = X[:, 0] + 0.1 * rng.normal(size=200)
    model = lgb.LGBMRegressor(n_estimators=10, verbose=-1, n_jobs=1).fit(X[:120], y[:120])
    explainer = axil.Explainer(model, X[:120], y[:120])
    case = interval_data._case(
        "noise", explainer, X, y, np.arange(120, 160), np.arange(160, 200), "leaves"
    )
    np.testing.assert_allclose(case.test.predictions[:, 0], model.predict(X[160:]), rtol=1e-6)
    np.testing.assert_allclose(case.test.predictions[:, 0] + case.test_errors, y[160:], rtol=1e-12)
    assert len(case.calibration.predictions) == 40
