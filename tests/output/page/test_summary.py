"""What the page says, checked against the weights it is made of."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression

import axil
from axil import InputError
from axil.output.page import Options, summarise
from axil.output.page.values import DIGITS
from tests.output.page.page_models import bare, data_of, houses, sales

SHORT = 0.6 * 10.0 ** (1 - DIGITS)  # what rounding to seven digits may take off a number, relative


def grid(summary, name, *shape):
    """A column of the summary, [outputs or sets][predictions * values], as an array."""
    return np.array(summary[name], dtype=float).reshape(len(summary[name]), summary["n"], *shape)


def adds_up(summary):
    """Listed rows, the remainder and the intercept sum to each prediction, up to the rounding of each part."""
    rows, weights = (grid(summary, name, summary["k"]) for name in ("rows", "weights"))
    predictions, rest, intercepts = (
        grid(summary, name) for name in ("predictions", "rest_contributions", "intercepts")
    )
    targets = np.array(summary["training"]["targets"])
    for k, (prediction, own) in enumerate(zip(predictions, targets)):
        s = k if len(rows) > 1 else 0
        parts = np.where(rows[s] >= 0, weights[s] * own[rows[s].astype(int)], 0.0)
        slack = 3 * SHORT * (np.abs(parts).sum(axis=1) + np.abs(rest[k]))
        assert (
            np.abs(parts.sum(axis=1) + rest[k] + intercepts[k] - prediction) <= slack + 1e-12
        ).all()


def test_all_numbers_are_those_of_the_explanation():
    explainer, X, years = houses()
    explanation = explainer(X)
    summary = data_of(explainer.to_html(X, groups=years, k=7))
    top, n = explainer.similar(X, 7, by="weight"), len(X)
    rows = grid(summary, "rows", 7)[0].astype(int).ravel()
    assert [summary["training"]["labels"][row] for row in rows] == list(top["row"])
    assert summary["queries"]["labels"] == list(X.index)
    np.testing.assert_allclose(
        np.array(summary["training"]["targets"])[0][rows], top["target"], rtol=SHORT
    )
    np.testing.assert_allclose(grid(summary, "weights", 7)[0].ravel(), top["weight"], rtol=SHORT)
    np.testing.assert_allclose(
        summary["predictions"][0], explanation.predictions, rtol=1e-14
    )  # the proof keeps every digit
    np.testing.assert_array_equal(summary["model"][0], sales()[0].predict(X))
    np.testing.assert_allclose(
        summary["effective_sizes"][0], explanation.effective_size, rtol=SHORT
    )
    np.testing.assert_allclose(
        summary["negative_shares"][0], explanation.negative_share, rtol=SHORT
    )
    np.testing.assert_allclose(
        summary["standard_errors"][0], explainer.diagnostics.standard_error(X), rtol=SHORT
    )
    np.testing.assert_allclose(
        summary["sizes"][0], np.abs(explanation.weights).sum(axis=1), rtol=SHORT
    )
    needed = explainer.concentration(X)[[f"rows for {share}%" for share in (50, 80, 95)]]
    np.testing.assert_array_equal(grid(summary, "needed", 3)[0], needed)
    rest = explanation.weights.sum(axis=1) - top["weight"].to_numpy().reshape(n, 7).sum(axis=1)
    np.testing.assert_allclose(summary["rest_weights"][0], rest, rtol=SHORT, atol=1e-12)
    adds_up(summary)


def test_the_models_own_predictions_are_beside():
    explainer, X, _ = houses()
    predicted = sales()[0].predict(X)
    assert data_of(explainer.to_html(X))["model"] == [predicted.tolist()]
    assert data_of(explainer(X)[3:5].to_html())["model"] == [predicted[3:5].tolist()]


def test_features_are_those_of_the_rows(monkeypatch):
    explainer, X, _ = houses()
    summary = data_of(explainer(X).to_html(k=5))
    assert summary["features"] == list(X.columns)
    for name, column in zip(summary["features"], summary["queries"]["features"]):
        expected = [
            None if pd.isna(x) else float(f"{x:.7g}") if name == "distance" else x for x in X[name]
        ]
        assert column == expected
    train = sales()[1].loc[summary["training"]["labels"]]
    assert summary["training"]["features"][1] == list(train["year built"])
    assert summary["training"]["features"][3] == list(train["condition"])
    chosen = data_of(explainer(X).to_html(columns=["condition", 0]))
    assert chosen["features"] == ["condition", "area"]
    with pytest.raises(InputError, match="columns names 'rooms'"):
        explainer(X).to_html(columns=["rooms"])
    monkeypatch.setattr(
        "axil.methods.noise.for_page", lambda asked: pytest.fail("worked before it looked")
    )
    for wrong in ({"columns": ["rooms"]}, {"k": 0}, {"path": 3}, {"groups": [1]}):
        with pytest.raises(InputError):
            explainer.to_html(X, **wrong)


def test_batches_make_the_same_page(monkeypatch):
    explainer, X, years = houses()
    whole = explainer.to_html(X, groups=years)
    monkeypatch.setattr("axil.machine.memory.BATCH_BYTES", 8 * len(explainer.targets) * 9)
    found, expected = data_of(explainer.to_html(X, groups=years)), data_of(whole)
    # Sums may be taken in another order, so numbers with every digit differ in the last, and short ones where they are rounded.
    for name in (
        "predictions",
        "model",
        "intercepts",
        "weights",
        "rest_contributions",
        "rest_weights",
    ):
        np.testing.assert_allclose(found.pop(name), expected.pop(name), rtol=2 * SHORT, atol=1e-9)
    assert found.keys() == expected.keys()
    for name in ("queries", "training", "rows", "needed", "groups", "group_rows"):
        assert found[name] == expected[name]


def test_groups_sum_to_what_group_says(monkeypatch):
    explainer, X, years = houses()
    table = explainer.group(X, years)
    in_order = table.pivot(index="query", columns="group", values="weight")
    weights = in_order.loc[table["query"].unique()].to_numpy()
    for most in (50, 4):
        monkeypatch.setattr("axil.output.page.summary.MOST_GROUPS", most)
        summary = data_of(explainer(X).to_html(groups=years))
        kept = min(most, 6)
        which = grid(summary, "group_rows", kept)[0].astype(int)
        found = grid(summary, "group_weights", kept)[0]
        np.testing.assert_allclose(found, np.take_along_axis(weights, which, axis=1), rtol=SHORT)
        assert (np.diff(np.abs(found), axis=1) <= SHORT).all()
        for name, total in (
            ("weight", weights.sum(axis=1)),
            ("contribution", explainer(X).predictions),
        ):
            sums = (
                grid(summary, f"group_{name}s", kept)[0].sum(axis=1)
                + summary[f"group_rest_{name}s"][0]
            )
            np.testing.assert_allclose(
                sums + (explainer(X).intercepts if name == "contribution" else 0), total, rtol=1e-5
            )
    assert summary["groups"] == [str(year) for year in range(2018, 2024)]
    with pytest.raises(InputError, match=r"groups has shape \(2,\); expected \(300,\)"):
        explainer.to_html(X, groups=[1, 2])


@pytest.mark.parametrize("shared", [True, False])
def test_several_outputs(shared):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(120, 4)), rng.normal(size=(120, 3))
    if shared:
        explanation = axil.Explainer(RandomForestRegressor(8, random_state=0).fit(X, Y), X, Y)(
            X[:6]
        )
    else:
        model = HistGradientBoostingClassifier(max_iter=5).fit(X, Y.argmax(axis=1))
        explainer = axil.Explainer(model, X, Y.argmax(axis=1))
        explanation = explainer(X[:6])
        assert data_of(explainer.to_html(X[:6], k=9)) == data_of(explanation.to_html(k=9))
        assert data_of(explainer.to_html(X[:0]))["n"] == 0
    sigma = [1.0, 2.0, 3.0] if shared else None
    summary = data_of(explanation.to_html(groups=np.arange(120) % 2, sigma=sigma))
    assert (len(summary["weights"]), len(summary["predictions"])) == (1 if shared else 3, 3)
    assert (summary["kind"] == "exact") is shared
    if not shared:
        assert summary["standard_errors"] is None
        with pytest.raises(axil.UnsupportedQuestionError, match="sigma"):
            explanation.to_html(sigma=[1.0, 2.0, 3.0])
        np.testing.assert_allclose(
            np.transpose(summary["means_of_scores"]), explanation.probabilities, rtol=SHORT
        )
        assert summary["meaning"] == "probability"
        return
    norms = np.atleast_2d(np.linalg.norm(explanation.weights, axis=-1)) * np.array(
        [[1.0], [2.0], [3.0]]
    )
    np.testing.assert_allclose(summary["standard_errors"], norms, rtol=SHORT)
    assert summary["features"] == ["x0", "x1", "x2", "x3"]
    adds_up(summary)


def test_noise_that_is_not_known_is_not_guessed():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    explainer = axil.Explainer(RandomForestClassifier(5, random_state=0).fit(X, y), X, y)
    summary = data_of(explainer.to_html(X[:4]))
    assert summary["standard_errors"] is None
    assert summary["about_sigma"] is None
    with pytest.raises(InputError, match="The noise of class labels"):
        explainer.to_html(X[:4], sigma=True)
    assert data_of(explainer.to_html(X[:4], sigma=0.5))["standard_errors"] is not None
    assert data_of(explainer(X[:4]).to_html())["about_sigma"] is None
    with pytest.raises(InputError, match="sigma is"):
        explainer.to_html(X[:4], sigma=-1)


def test_rows_without_weight_are_not_listed():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(80, 3)), rng.normal(size=80)
    explainer = axil.Explainer(RandomForestRegressor(3, random_state=0).fit(X, y), X, y)
    for explanation in (explainer(X[:5]), explainer(X[:5], sparse=True)):
        summary = data_of(explanation.to_html(k=50))
        listed = (grid(summary, "rows", 50)[0] >= 0).sum(axis=1)
        np.testing.assert_array_equal(listed, np.count_nonzero(explainer(X[:5]).weights, axis=1))
        adds_up(summary)


def test_an_explanation_by_itself_has_a_page():
    explainer, X, _ = houses()
    summary = data_of(bare(explainer, X).to_html(k=1000))
    assert summary["model"] is None
    assert summary["features"] == []
    assert summary["training"]["features"] is None
    assert summary["rest_weights"] == [[0] * len(X)]  # all rows are listed
    adds_up(summary)


def test_a_loaded_explainer_shows_the_features_it_has(tmp_path):
    explainer, X, _ = houses()
    explainer.save(tmp_path / "e.npz")
    loaded = axil.load(tmp_path / "e.npz", sales()[0])
    summary = data_of(loaded.to_html(X))
    assert summary["training"]["features"] is None
    assert summary["queries"]["features"][1] == list(X["year built"])


def test_other_tables_of_features():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(70, 3)).round(2), rng.normal(size=70)
    model = RandomForestRegressor(4, random_state=0).fit(X, y)
    expected = data_of(axil.Explainer(model, X, y).to_html(X[:5]))
    for kind in (sp.csr_matrix, sp.csc_array, pl.DataFrame):
        found = data_of(axil.Explainer(model, kind(X), y).to_html(kind(X)[:5]))
        assert found["training"]["features"] == expected["training"]["features"]
        assert found["queries"]["features"] == expected["queries"]["features"]


def test_many_features_are_left_out_and_counted():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 130)), rng.normal(size=50)
    explainer = axil.Explainer(RandomForestRegressor(2, random_state=0).fit(X, y), X, y)
    summary = data_of(explainer.to_html(X[:2]))
    assert (len(summary["features"]), summary["features_left_out"]) == (100, 30)
    assert data_of(explainer.to_html(X[:2], columns=range(130)))["features_left_out"] == 0


def test_no_predictions():
    explainer, X, years = houses()
    assert data_of(explainer.to_html(X[:0], groups=years))["n"] == 0
    assert data_of(explainer(X[:0]).to_html())["n"] == 0


def test_offsets_of_queries_are_in_the_intercepts():
    explainer, X, _ = houses()
    offsets = np.arange(len(X), dtype=float)
    summary = summarise([explainer(X, init_score=offsets)._sums], Options())
    assert (
        data_of(explainer.to_html(X, init_score=offsets))["predictions"] == summary["predictions"]
    )
    np.testing.assert_allclose(
        np.subtract(summary["predictions"][0], summary["model"][0]), 0, atol=1
    )
    adds_up(summary)


def test_previews_for_notebooks():
    explainer, X, _ = houses()
    html = explainer(X)._repr_html_()
    assert html.count("<tr>") == 1 + 5
    assert "The first 5 of them" in html
    assert "parcel 300" in html
    assert "<tr>" in explainer.verification._repr_html_()
    for name in ("trees replayed on 300 training rows", "leaf values", "predictions"):
        assert name in explainer.verification._repr_html_()
    assert axil.Explanation._repr_html_(explainer(X[:0])).count("<tr>") == 1


def test_the_preview_of_derivatives_is_not_of_weights():
    X, y = np.random.default_rng(0).normal(size=(40, 2)), np.arange(40) % 2
    model = LogisticRegression(tol=1e-10).fit(X, y)
    html = axil.Explainer(model, X, y)(X[:2])._repr_html_()
    assert "largest derivatives: row (derivative)" in html
    assert "weight" not in html


def test_intervals_are_those_of_the_predictive():
    """Intervals have ends, ranks and reasons; rows that make one wide need not be comparables."""
    model, X, y, years = sales()
    explainer = axil.Explainer(model, X[:300], y[:300])
    predictive = explainer.calibrate(X[300:320], y[300:320])
    new = X[320:]
    summary = data_of(predictive.to_html(new, confidence_level=0.8, groups=years, k=3))
    known, expected = summary["intervals"], predictive.interval(new, 0.8)
    for name in ("lower", "upper", "uncertainty_rank"):
        np.testing.assert_allclose(known[name], [expected[name]], rtol=SHORT)
    assert [
        known[name] for name in ("confidence_level", "n_calibration", "source", "training_errors")
    ] == [
        *(0.8, 20, "held out"),
        predictive.training_errors,
    ]
    why = predictive.why(new, 10)
    assert [summary["training"]["labels"][row] for row in known["rows"][0]] == list(why["row"])
    for name, column in {"weights": "weight", "errors": "error", "shares": "share"}.items():
        np.testing.assert_allclose(known[name], [why[column]], rtol=SHORT)
    assert summary["standard_errors"] is summary["about_sigma"] is None
    # Everything else is as without intervals.
    plain = data_of(explainer.to_html(new, groups=years, k=3))
    assert plain["intervals"] is None
    both = [[one["training"]["labels"][row] for row in one["rows"][0]] for one in (summary, plain)]
    assert both[0] == both[1]
    other = {"intervals", "training", "rows", "standard_errors", "about_sigma"}
    assert {key: summary[key] for key in summary.keys() - other} == {
        key: plain[key] for key in plain.keys() - other
    }


def test_intervals_of_several_outputs_and_of_prices():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = np.exp(X[:, :2] + 0.3 * rng.normal(size=(200, 2)))
    forest = RandomForestRegressor(30, min_samples_leaf=5, random_state=0).fit(
        X[:150], np.log(y[:150])
    )
    predictive = axil.Explainer(forest, X[:150], np.log(y[:150]), inverse_func=np.exp).calibrate()
    summary = data_of(predictive.to_html(X[150:], symmetric=False))
    known = summary["intervals"]
    table = predictive.interval(X[150:], symmetric=False)
    np.testing.assert_allclose(np.transpose(known["lower"]).ravel(), table["lower"], rtol=SHORT)
    assert known["source"] == "out-of-bag"
    why = predictive.why(X[150:], 10)
    shares = np.moveaxis(np.reshape(known["shares"], (2, 50, 10)), 0, 1)
    np.testing.assert_allclose(shares.ravel(), why["share"], rtol=SHORT)
    assert data_of(predictive.to_html(X[:0]))["n"] == 0


def test_intervals_that_cannot_be(tmp_path):
    """Refused before any file is made."""
    model, X, y, _ = sales()
    predictive = axil.Explainer(model, X[:300], y[:300]).calibrate(X[300:320], y[300:320])
    with pytest.raises(InputError, match="takes at least 99 calibration rows; there are 20"):
        predictive.to_html(X[320:], tmp_path / "page.html", confidence_level=0.99)
    with pytest.raises(InputError, match="columns"):
        predictive.to_html(X[320:], tmp_path / "page.html", columns=["rooms"])
    assert list(tmp_path.iterdir()) == []


def test_the_curve_is_known_beyond_the_rows_listed():
    explainer, X, _ = houses()
    for explanation in (explainer(X), explainer(X, sparse=True)):
        summary = data_of(explanation.to_html(k=7))
        ranks = np.array(summary["curve_ranks"])
        assert ranks[0] == 8
        assert ranks[-1] == 300
        sizes = -np.sort(-np.abs(explainer(X).weights), axis=1)
        expected = (np.cumsum(sizes, axis=1) / sizes.sum(axis=1, keepdims=True))[:, ranks - 1]
        np.testing.assert_allclose(grid(summary, "curve", len(ranks))[0], expected, rtol=SHORT)
    assert data_of(explainer(X).to_html(k=300))["curve_ranks"] == []
    assert data_of(explainer(X).to_html(k=300))["diffuse"] is False
    assert data_of(explainer(X).to_html(k=1))["diffuse"] is True


def test_actual_values_are_read_as_targets_were():
    model, X, y, _ = sales()
    explainer, new, _ = houses()
    summary = data_of(explainer.to_html(new, y=y[300:]))
    assert summary["standard_errors"] is None  # gives way to real errors
    np.testing.assert_allclose(summary["actual"]["values"], [y[300:]], rtol=SHORT)
    expected = np.median(np.abs(model.predict(new) - y[300:]))
    np.testing.assert_allclose(summary["actual"]["typical"], [expected], rtol=SHORT)
    assert data_of(explainer(new).to_html(y=y[300:]))["actual"] == summary["actual"]
    assert data_of(explainer.to_html(new, y=y[300:], sigma=1.0))["standard_errors"] is not None
    # Of logarithms they are given as logarithms, and shown in prices.
    forest = RandomForestRegressor(5, random_state=0).fit(X[["area"]][:300], np.log(y[:300]))
    logs = axil.Explainer(forest, X[["area"]][:300], np.log(y[:300]), inverse_func=np.exp)
    found = data_of(logs.to_html(new[["area"]], y=np.log(y[300:])))["actual"]
    np.testing.assert_allclose(found["values"], [y[300:]], rtol=SHORT)
    apart = np.exp(forest.predict(new[["area"]])) - y[300:]
    np.testing.assert_allclose(found["typical"], [np.median(np.abs(apart))], rtol=SHORT)


def test_what_a_page_cannot_be_told(tmp_path):
    model, X, y, _ = sales()
    explainer, new, _ = houses()
    predictive = explainer.calibrate(X[300:], y[300:])
    other = axil.Explainer(model, X[:300], y[:300])
    for wrong, message in (
        ({"y": y[:3]}, "y has shape"),
        ({"title": ""}, "title is ''; expected one line of text"),
        ({"unit": 3}, "unit is 3"),
        ({"target": "a\nb"}, "target is"),
        ({"interval": 0.9}, "interval is 0.9; expected what calibrate of this explainer returned"),
        ({"interval": predictive, "sigma": 1.0}, "interval takes the place of standard errors"),
    ):
        with pytest.raises(InputError, match=message):
            explainer.to_html(new, tmp_path / "page.html", **wrong)
    with pytest.raises(InputError, match="interval is"):
        other.to_html(new, interval=predictive)
    assert list(tmp_path.iterdir()) == []
    words = {"y": y[300:], "title": "Sales", "unit": "$", "target": "price"}
    assert explainer.to_html(new, interval=predictive, k=3, **words) == predictive.to_html(
        new, k=3, **words
    )
