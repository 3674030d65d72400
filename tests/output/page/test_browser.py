"""The page as people use it, in a real Chromium; skipped where playwright or a chromium is not installed."""

import time
from io import BytesIO

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression

import axil
from axil.output.predictions import WeightedSums
from tests.output.page.page_models import HOSTILE, bare, hostile, houses, sales


def until(page, expression, seconds=20):
    """Wait for an expression to hold, asked from outside: the page's own policy forbids Playwright's polling in it."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < deadline, f"still not: {expression}"
        page.wait_for_timeout(50)


@pytest.fixture
def visit(browser, tmp_path):
    """Open a page; when the test is over, nothing may have been logged, thrown or fetched."""
    troubles, contexts = [], []

    def open_page(text, **settings):
        path = tmp_path / f"page{len(contexts)}.html"
        path.write_text(text, encoding="utf-8")
        settings = {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"} | settings
        contexts.append(browser.new_context(**settings))
        page = contexts[-1].new_page()
        page.on("console", lambda message: troubles.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on("dialog", lambda dialog: troubles.append(f"dialog: {dialog.message}"))
        page.on(
            "request",
            lambda request: (
                request.url == path.as_uri() or troubles.append(f"request: {request.url}")
            ),
        )
        page.goto(path.as_uri())
        until(page, "document.getElementById('about').textContent !== 'Loading.'")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture(scope="module")
def report():
    explainer, X, years = houses()
    return explainer.to_html(X, groups=years, k=20)


def column(page, number):
    """The texts of a column of the comparables, from 0."""
    return page.locator(f"#rows tbody tr > :nth-child({number + 1})").all_inner_texts()


def numbers(texts):
    return [float(text.replace(",", "").replace("−", "-").replace(" %", "")) for text in texts]


def test_it_shows_the_numbers_of_the_explanation(visit, report):
    explainer, X, _ = houses()
    page = visit(report)
    top = explainer.similar(X[:1], 20, by="weight")
    assert page.locator("#name").inner_text() == "parcel 300"
    assert column(page, 0) == list(top["row"])
    np.testing.assert_allclose(numbers(column(page, 2)), top["weight"], atol=6e-6)
    np.testing.assert_allclose(numbers(column(page, 4)), top["target"])
    np.testing.assert_allclose(numbers(column(page, 3)), 100 * top["share"], atol=0.51)
    np.testing.assert_allclose(numbers(column(page, 7)), top["year built (row)"])
    assert column(page, 9) == list(top["condition (row)"])
    cards = page.locator("#cards").inner_text()
    statistics = explainer.concentration(X[:1]).iloc[0]
    for text in (
        f"{explainer(X[:1]).predictions[0]:,.0f}",
        f"{statistics['effective_size']:.1f}",
        " / ".join(f"{statistics[f'rows for {share}%']:.0f}" for share in (50, 80, 95)),
        f"{explainer.diagnostics.standard_error(X[:1])[0]:,.0f}",
    ):
        assert text in cards
    proof = page.locator(".proof").inner_text()
    assert f"= {explainer(X[:1]).predictions[0]:,.6f}" in proof
    assert "with the fitted structure fixed" in proof
    assert "apart" in proof


def test_the_foot_of_the_table_adds_up(visit, report):
    page = visit(report)
    feet = dict(
        zip(*(page.locator(f"#rows tfoot tr > :nth-child({i})").all_inner_texts() for i in (1, 6)))
    )
    rest = next(text for name, text in feet.items() if name.endswith("other rows"))
    total = sum(numbers([*column(page, 5), rest, feet["Mean of targets"]]))
    assert total == pytest.approx(
        numbers([feet["Prediction"]])[0], abs=0.5 * 22
    )  # 22 numbers rounded to one


def test_tables_count_from_where_the_waterfall_does(visit, report):
    """From the mean of all targets, at first, or from the intercept: comparables, groups, and their feet."""
    explainer, X, years = houses()
    page, top = visit(report), explainer.similar(X[:1], 20, by="weight")
    groups = explainer.group(X[:1], years).sort_values("weight", ascending=False, key=abs)
    mean = explainer.targets.mean()
    for start, reference in (("mean", mean), ("intercept", 0.0)):
        page.locator("#start").select_option(start)
        # Shown to one; weights and targets of the page have seven digits.
        np.testing.assert_allclose(
            numbers(column(page, 5)), top["weight"] * (top["target"] - reference), atol=0.6
        )
        found = numbers(page.locator("#groups-table tbody td:nth-child(4)").all_inner_texts())
        np.testing.assert_allclose(
            found, groups["contribution"] - groups["weight"] * reference, atol=0.6
        )
        assert (
            f"count from the mean, {mean:,.0f}" in page.locator("#groups-note").inner_text()
        ) == (start == "mean")
    page.locator("#start").select_option("mean")
    assert f"from the mean, {mean:,.0f}." in page.locator("#waterfall-note").inner_text()
    assert page.locator("#waterfall text").all_text_contents()[:2] == [
        "Mean of targets",
        f"{mean:,.0f}",
    ]


def test_every_column_sorts_both_ways(visit, report):
    page = visit(report)
    heads = page.locator("#rows thead tr:first-child th")
    assert heads.nth(1).get_attribute("aria-sort") == "ascending"
    for at in range(heads.count()):
        seen = set()
        for _ in range(2):
            heads.nth(at).locator("button").click()
            way = heads.nth(at).get_attribute("aria-sort")
            seen.add(way)
            texts = [text for text in column(page, at) if text != "–"]
            values = numbers(texts) if at not in (0, 9) else texts
            assert values == sorted(values, reverse=way == "descending")
            assert page.locator('#rows th[aria-sort="none"]').count() == heads.count() - 1
            assert (
                heads.nth(at).locator("button").evaluate("node => node === document.activeElement")
            )
        assert seen == {"ascending", "descending"}
    missing = column(page, 8)
    page.locator("#rows thead button").nth(8).click()
    assert sorted(column(page, 8)) == sorted(missing)


def test_rows_are_searched(visit, report):
    page = visit(report)
    page.locator("#filter").fill("GOOD")
    assert set(column(page, 9)) == {"good"}
    assert "rows shown" in page.locator("#rows-found").inner_text()
    page.locator("#filter").fill("nothing like it")
    assert column(page, 0) == []
    assert page.locator("#rows tr.query").count() == 1
    page.locator("#filter").fill("")
    assert len(column(page, 0)) == 20


def test_predictions_are_found_and_chosen(visit, report):
    page = visit(report)
    page.locator("#find").fill("parcel 33")
    assert page.locator("#list li").count() == 10
    assert "10 of 40" in page.locator("#found").inner_text()
    page.locator("#list li").nth(4).click()
    assert page.locator("#name").inner_text() == "parcel 334"
    page.locator("#find").fill("no such")
    assert page.locator("#list li").count() == 0


def test_all_of_it_works_by_keyboard(visit, report):
    page = visit(report)
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the prediction"
    page.locator("#find").focus()
    page.keyboard.press("ArrowDown")
    assert page.locator("#list").evaluate("node => node === document.activeElement")
    for key, name in {
        "ArrowDown": "301",
        "End": "339",
        "ArrowUp": "338",
        "Home": "300",
        "PageDown": "310",
    }.items():
        page.keyboard.press(key)
        assert page.locator("#name").inner_text() == f"parcel {name}"
        active = page.locator("#list").get_attribute("aria-activedescendant")
        assert page.locator(f"#{active}").get_attribute("aria-selected") == "true"
        assert page.locator('[aria-selected="true"]').count() == 1
    inside = (
        "n => n.getBoundingClientRect().bottom <= n.parentNode.getBoundingClientRect().bottom + 1"
    )
    page.keyboard.press("End")
    assert page.locator('[aria-selected="true"]').evaluate(inside)
    page.locator("#rows thead button").nth(2).focus()
    page.keyboard.press("Enter")
    assert (
        page.locator("#rows thead tr:first-child th").nth(2).get_attribute("aria-sort")
        == "descending"
    )
    assert (
        page.locator("#rows thead button").nth(2).evaluate("n => getComputedStyle(n).outlineStyle")
        == "solid"
    )


def test_light_and_dark(visit, report):
    ground = "getComputedStyle(document.body).backgroundColor"
    light, dark = visit(report), visit(report, color_scheme="dark")
    before = light.evaluate(ground)
    assert before != dark.evaluate(ground)
    light.locator("#theme").click()
    assert light.evaluate(ground) == dark.evaluate(ground)
    assert (
        light.locator("#theme").inner_text() == dark.locator("#theme").inner_text() == "Light mode"
    )
    dark.locator("#theme").click()
    assert dark.evaluate(ground) == before


def test_the_waterfall_starts_where_it_is_told(visit, report):
    explainer, X, _ = houses()
    page = visit(report)
    assert page.locator("#start").input_value() == "mean"
    page.locator("#start").select_option("intercept")
    texts = page.locator("#waterfall text").all_text_contents()
    assert texts[:2] == ["Intercept", "0"]
    steps = numbers(texts[1:-1:2])
    assert sum(steps) == pytest.approx(explainer(X[:1]).predictions[0], abs=0.5 * len(steps))
    page.locator("#start").select_option("mean")
    texts = page.locator("#waterfall text").all_text_contents()
    assert numbers(texts[1:2])[0] == pytest.approx(explainer.targets.mean(), abs=1)
    assert sum(numbers(texts[1:-1:2])) == pytest.approx(
        explainer(X[:1]).predictions[0], abs=0.5 * len(steps)
    )


def test_groups(visit, report):
    explainer, X, years = houses()
    page = visit(report)
    expected = explainer.group(X[:1], years).sort_values("weight", ascending=False, key=abs)
    assert page.locator("#groups-table tbody th").all_inner_texts() == [
        str(name) for name in expected["group"]
    ]
    found = numbers(page.locator("#groups-table tbody td:nth-child(2)").all_inner_texts())
    np.testing.assert_allclose(found, expected["weight"], atol=6e-5)
    assert visit(explainer(X[:2]).to_html()).locator("#groups").is_hidden()


def test_hostile_names_do_nothing(visit):
    explainer, X, groups = hostile()
    page = visit(explainer.to_html(X, groups=groups))
    for i in range(len(X)):
        page.locator("#list li").nth(i).click()
        assert page.evaluate("window.hacked") is None
        assert page.locator("#name").get_attribute("title") == X.index[i]
    assert page.locator("#main img, #main script").count() == 0
    heads = page.locator("#rows thead button").evaluate_all(
        "nodes => nodes.map((node) => node.title)"
    )
    assert heads[6:] == HOSTILE
    page.locator("#find").fill("<script>")
    assert page.locator("#list li").count() == sum("<script>" in label for label in X.index)


@pytest.mark.parametrize("exact", [True, False])
def test_outputs_are_chosen(visit, exact):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(120, 4)), rng.normal(size=(120, 3))
    if exact:
        explanation = axil.Explainer(RandomForestRegressor(8, random_state=0).fit(X, Y), X, Y)(
            X[:6]
        )
    else:
        labels = np.array(["low", "middle", "high"])[Y.argmax(axis=1)]
        explanation = axil.Explainer(
            HistGradientBoostingClassifier(max_iter=5).fit(X, labels), X, labels
        )(X[:6])
    page = visit(explanation.to_html())
    assert ("contributions that add up" in page.locator("#about").inner_text()) is not exact
    heads = page.locator("#rows thead button").all_inner_texts()
    weight, target = (["Weight"], "Target") if exact else ([], "Class")
    features = [f"x{j}" for j in range(4)]
    assert heads == ["Row", "Rank", *weight, "Share so far", target, "Contribution", *features]
    assert "structure fixed" in page.locator("#about").inner_text()
    page.locator("#output").select_option("2")
    name = f"output {explanation.outputs[2]}" if exact else f"{explanation.outputs[2]} (class)"
    assert page.locator("#name").inner_text() == f"Prediction 0: {name}"
    assert (
        f"= {explanation.predictions[0, 2]:,.9f}".replace("-", "−")
        in page.locator("#proof").inner_text()
    )


def test_the_page_of_a_classifier_opens_on_the_predicted_class(visit):
    rng = np.random.default_rng(0)
    X, names = rng.normal(size=(120, 4)), np.array(["low", "middle", "high"])
    labels = names[np.argmax(X[:, :3], axis=1)]
    model = HistGradientBoostingClassifier(max_iter=20, min_samples_leaf=5).fit(X, labels)
    explanation = axil.Explainer(model, X, labels)(X[:12])
    groups = rng.choice(["a", "b"], 120)
    page = visit(explanation.to_html(groups=groups))
    predicted, probabilities = model.predict(X[:12]), model.predict_proba(X[:12])
    for i in range(12):
        page.locator("#list li").nth(i).click()
        assert page.locator("#name").inner_text() == f"Prediction {i}: {predicted[i]} (class)"
        o = list(model.classes_).index(predicted[i])
        assert page.locator("#output").input_value() == str(o)
        shown = page.locator("#list li").nth(i).inner_text().split(": ")
        assert shown[0].endswith(predicted[i])
        assert abs(float(shown[1]) - probabilities[i, o]) < 1e-3
        assert "the predicted class" in page.locator("#cards").inner_text()
    heads = page.locator("#groups-table thead th").all_inner_texts()
    assert heads == ["Group", "Contribution"]
    page.locator("#output").select_option("0")  # by hand: it stays
    for i in range(12):
        page.locator("#list li").nth(i).click()
        assert page.locator("#name").inner_text() == f"Prediction {i}: {model.classes_[0]} (class)"
        assert (
            f"= {explanation.predictions[i, 0]:,.9f}".replace("-", "−")
            in page.locator("#proof").inner_text()
        )
    other = next(i for i in range(12) if predicted[i] != model.classes_[0])
    page.locator("#list li").nth(other).click()
    assert f"predicted: {predicted[other]}" in page.locator("#cards").inner_text()
    # What the column shows adds up to the score, to the digits shown.
    sums = [
        float(text.replace("−", "-"))
        for text in page.locator("#groups-table tbody td.number").all_inner_texts()
    ]
    assert (
        abs(explanation.intercepts[other, 0] + sum(sums) - explanation.predictions[other, 0]) < 1e-4
    )


def test_narrow_screens_do_not_scroll_sideways(visit, report):
    page = visit(report, viewport={"width": 360, "height": 740})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.locator("#rows thead button").nth(5).click()
    assert (
        page.locator("#rows thead tr:first-child th").nth(5).get_attribute("aria-sort")
        == "descending"
    )
    assert page.locator("#waterfall svg").evaluate("node => node.viewBox.baseVal.width") < 360
    page.set_viewport_size({"width": 1200, "height": 740})
    until(page, "document.querySelector('#waterfall svg').viewBox.baseVal.width > 400")


def test_very_many_rows(visit):
    rng = np.random.default_rng(0)
    n, k, n_train = 3000, 50, 150_000
    weights = sp.csr_array(
        (rng.random(n * k), rng.permutation(n_train), np.arange(0, n * k + 1, k)),
        shape=(n, n_train),
    )
    labels = np.arange(n_train)
    explanation = axil.Explanation(
        WeightedSums(weights, np.zeros(n), rng.normal(size=n_train), labels, labels[:n])
    )
    page = visit(explanation.to_html())
    assert "the first 2,000 are listed" in page.locator("#found").inner_text()
    page.locator("#find").fill("2999")
    page.keyboard.press("Enter")
    assert column(page, 0) == [str(row) for row in explanation[2999].top(10)["row"]]


def test_print_leaves_the_prediction_only(visit, report):
    page = visit(report)
    page.emulate_media(media="print")
    assert page.locator("nav").is_hidden()
    assert page.locator("#theme").is_hidden()
    assert page.locator("#rows").is_visible()
    assert (
        max(page.locator("#rows tr").evaluate_all("rows => rows.map((row) => row.offsetHeight)"))
        < 60
    )
    assert page.locator(".tall").evaluate("node => node.scrollHeight <= node.clientHeight + 1")
    # Heads are text, which is repeated on every sheet; the foot is there once; nothing is wider than the sheet.
    drawn = "nodes => nodes.map((node) => getComputedStyle(node, '::before').content)"
    assert page.locator("#rows thead th[data-name]").evaluate_all(drawn)[:2] == ['"Row"', '"Rank"']
    assert (
        page.locator("#rows tfoot").evaluate("node => getComputedStyle(node).display")
        == "table-row-group"
    )
    assert (
        max(
            page.locator(".chart svg").evaluate_all(
                "nodes => nodes.map((node) => node.clientWidth)"
            )
        )
        <= 512
    )


def test_pages_of_nothing_and_of_little(visit):
    explainer, X, _ = houses()
    assert (
        visit(explainer(X[:0]).to_html()).locator("#about").inner_text().startswith("0 predictions")
    )
    page = visit(bare(explainer, X[:1]).to_html())
    assert page.locator("#rows thead tr:first-child th").count() == 6
    assert "not compared with the model" in page.locator("#proof").inner_text()


def test_screenshots_differ_where_they_should(visit, report):
    """Pictures of the page in three settings: none is blank, and dark is darker."""
    image = pytest.importorskip(
        "PIL.Image", reason="pillow is not installed: pip install axil[browser]"
    )
    settings = [{}, {"color_scheme": "dark"}, {"viewport": {"width": 390, "height": 844}}]
    shots = [
        image.open(BytesIO(visit(report, **one).screenshot())).convert("L") for one in settings
    ]
    light, dark, narrow = (np.asarray(shot, dtype=float) for shot in shots)
    assert min(shot.std() for shot in (light, dark, narrow)) > 5
    assert light.mean() > 200 > 80 > dark.mean()


@pytest.mark.parametrize("width", [1100, 1280])
def test_names_of_steps_are_cut_only_where_they_do_not_fit(visit, width):
    rng = np.random.default_rng(0)
    labels = np.array([f"PIN{i:05d}" for i in range(2400)], dtype=object)
    labels[0] = "a label that is longer than any chart has room for " * 3
    weights = np.r_[0.5, rng.uniform(0.001, 0.002, 2399)][None]
    sums = WeightedSums(weights, np.zeros(1), rng.uniform(10.0, 20.0, 2400), labels, labels[:1])
    page = visit(axil.Explanation(sums).to_html(k=50), viewport={"width": width, "height": 900})
    names = page.locator("#waterfall text").all_text_contents()
    assert "2,350 rows not listed" in names
    assert [name for name in names if name.endswith("…")] == [
        name for name in names if name.startswith("a label")
    ]
    boxes = page.locator("#waterfall text").evaluate_all(
        "texts => texts.map((text) => text.getBBox().x)"
    )
    assert min(boxes) >= 0


@pytest.mark.parametrize("name", ["log", "sqrt"])
def test_prices_of_transformed_targets(visit, name):
    """Of logarithms rows multiply, of roots they add up on a scale that is named; both show prices."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    prices = np.round(np.exp(12 + 0.3 * X[:, 0] + 0.1 * rng.normal(size=80)))
    forward, back = {"log": (np.log, np.exp), "sqrt": (np.sqrt, np.square)}[name]
    model = RandomForestRegressor(5, random_state=0, min_samples_leaf=3).fit(X, forward(prices))
    explainer = axil.Explainer(model, X, forward(prices), inverse_func=back)
    page = visit(explainer.to_html(X[:2], groups=np.arange(80) % 2, k=100))
    note = "relative to the geometric mean" if name == "log" else "relative to the mean"
    for table in ("#rows", "#groups-table"):  # the tables of axil count from nothing
        assert page.locator(f"{table} thead small").inner_text() == note
    page.locator("#start").select_option("intercept")
    assert page.locator("thead small").count() == 0
    price = f"{back(model.predict(X[:1]))[0]:,.0f}"
    assert price in page.locator("#list li").first.inner_text()
    assert price in page.locator("#cards").inner_text()
    heads = page.locator("#rows thead tr:first-child th").all_inner_texts()
    assert ("Factor" if name == "log" else "Contribution (sqrt)") in " ".join(heads)
    listed = explainer.top(X[:1], 100)
    listed = listed[listed["weight"] != 0]
    assert column(page, 4) == [f"{target:,.0f}" for target in listed["target"]]
    shown = np.array(
        [
            float(text.replace("×", "").replace(",", "").replace("−", "-"))
            for text in column(page, 5)
        ]
    )
    if name == "log":
        np.testing.assert_allclose(shown, listed["factor"], rtol=1e-4)  # five digits are shown
        assert price in page.locator("#waterfall").inner_text()
        assert "multiply to the prediction" in page.locator("#waterfall-note").inner_text()
        page.locator("#start").select_option("mean")
        assert f"{np.exp(np.log(prices).mean()):,.0f}" in page.locator("#waterfall").inner_text()
    else:
        np.testing.assert_allclose(shown, listed["contribution (sqrt)"], atol=0.01)
        assert "Prediction (sqrt)" in page.locator("#waterfall").inner_text()
    assert f"({name})" in page.locator("#proof").inner_text()
    assert price in page.locator("#proof").inner_text()
    page = visit(explainer.aggregate(X[:4]).to_html(k=5))
    mean, more = {
        "log": ("Geometric mean", ""),
        "sqrt": ("Mean", " on the scale of the fit (sqrt)"),
    }[name]
    assert f"{mean} of 4 predictions{more}" in page.locator("#cards").inner_text()
    proof = page.locator("#proof").inner_text()
    assert "The same sum of the model's own predictions is" in proof
    assert "itself predicts" not in proof


def test_intervals_take_the_place_of_the_standard_error(visit):
    model, X, y, _ = sales()
    predictive = axil.Explainer(model, X[:300], y[:300]).calibrate(X[300:320], y[300:320])
    new = X[:320]  # the training rows too, so that some are among the least sure
    table, why = predictive.interval(new), predictive.why(new, 10)
    assert table["uncertainty_rank"].max() >= 0.95
    page = visit(predictive.to_html(new))
    for at in (0, int(table["uncertainty_rank"].argmax())):
        page.locator(f"#query-{at}").click()
        lower, upper, rank = table.loc[at, ["lower", "upper", "uncertainty_rank"]]
        cards = page.locator("#cards").inner_text()
        assert f"90 % interval\n{lower:,.0f} to {upper:,.0f}\n" in cards
        assert "Standard error" not in cards
        assert ("Uncertain: less sure" in cards) == (rank >= 0.95)
        assert ("surer than" in cards) == (rank < 0.5)
        assert page.locator("#wide-table tbody th").all_inner_texts() == list(
            why["row"][10 * at : 10 * at + 10]
        )
        shares = page.locator("#wide-table tbody td:nth-child(2)").all_inner_texts()
        np.testing.assert_allclose(
            numbers(shares), 100 * why["share"][10 * at : 10 * at + 10], atol=0.5
        )  # as shown
    note = page.locator("#wide-note").inner_text()
    assert (
        "9 of 10 such intervals hold the target, of rows like the 20 calibration rows (held out)."
        in note
    )
    page = visit(
        predictive.to_html(new, confidence_level=0.5),
        color_scheme="dark",
        viewport={"width": 480, "height": 900},
    )
    assert "50 % interval" in page.locator("#cards").inner_text()


def test_errors_of_logarithms_are_factors(visit):
    _, X, y, _ = sales()
    forest = RandomForestRegressor(30, min_samples_leaf=5, random_state=0).fit(
        X[["area"]][:300], np.log(y[:300])
    )
    explainer = axil.Explainer(forest, X[["area"]][:300], np.log(y[:300]), inverse_func=np.exp)
    predictive = explainer.calibrate()
    page = visit(predictive.to_html(X[["area"]][300:]))
    errors = [
        float(text[2:])
        for text in page.locator("#wide-table tbody td:nth-child(4)").all_inner_texts()
    ]
    expected = np.exp(predictive.why(X[["area"]][300:301], 10)["error (log)"])
    np.testing.assert_allclose(errors, expected, rtol=1e-4)  # five digits are shown
    assert "About 9 of 10 such intervals" in page.locator("#wide-note").inner_text()


def test_a_page_without_intervals_has_no_room_for_them(visit, report):
    page = visit(report)
    assert page.locator("#wide").is_hidden()
    assert "interval" not in page.locator("#cards").inner_text()


def test_each_prediction_has_a_link(visit, report):
    page = visit(report)
    page.locator("#list li").nth(3).click()
    assert page.url.endswith("#parcel%20303")
    page.evaluate("location.hash = '#' + encodeURIComponent('parcel 310')")
    until(page, "document.getElementById('name').textContent === 'parcel 310'")
    page.locator(".skip").focus()
    page.keyboard.press("Enter")
    assert page.url.endswith("#parcel%20310")
    page.reload()
    until(page, "document.getElementById('name').textContent === 'parcel 310'")
    page.evaluate("location.hash = '#nobody'")
    assert page.locator("#name").inner_text() == "parcel 310"


def test_actual_values_title_and_unit(visit):
    model, _, y, _ = sales()
    explainer, new, _ = houses()
    page = visit(
        explainer.to_html(new, y=y[300:], title="Sales of <2023>", unit="$", target="price")
    )
    assert page.title() == page.locator("h1").inner_text() == "Sales of <2023>"
    predicted, cards = model.predict(new), page.locator("#cards").inner_text()
    typical = f"${np.median(np.abs(predicted - y[300:])):,.0f}"
    assert f"Prediction: price\n${predicted[0]:,.0f}" in cards
    side = "above" if y.iloc[300] > predicted[0] else "below"
    assert (
        f"Actual price\n${y.iloc[300]:,.0f}\n${abs(y.iloc[300] - predicted[0]):,.0f} {side} the prediction"
        in cards
    )
    assert f"Typical error\n{typical}" in cards
    assert "Standard error" not in cards  # it gives way to real errors
    assert (
        f"Half of them are within {typical} of the actual value."
        in page.locator("#about").inner_text()
    )
    assert column(page, 4) == [
        f"{target:,.0f}" for target in explainer.similar(new[:1], 10, by="weight")["target"]
    ]
    heads = page.locator("#rows thead button").all_inner_texts()
    assert heads[4:6] == ["price ($)", "Contribution ($)"]


@pytest.mark.parametrize("kind", ["forest", "boosted"])
def test_classes_are_named(visit, kind):
    """The page of a classifier has no 0 and 1 for classes, and says which class a probability is of."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    if kind == "forest":
        labels = np.array([7, 8, 9])[
            np.argmax(X + 0.7 * rng.normal(size=X.shape), axis=1)
        ]  # names that are numbers
        model = RandomForestClassifier(12, min_samples_leaf=4, random_state=0).fit(X, labels)
        explainer = axil.Explainer(model, X, labels)
    else:
        labels = np.array(["bad", "good"])[(X[:, 0] + 0.7 * rng.normal(size=150) > 0).astype(int)]
        model = HistGradientBoostingClassifier(max_iter=8).fit(X, labels)
        explainer = axil.Explainer(model, X, labels)
    page = visit(explainer.to_html(X[:9], y=labels[:9], k=10))
    predicted, chances = model.predict(X[:9]), model.predict_proba(X[:9]).max(axis=1)
    assert (
        f"{(predicted == labels[:9]).sum()} of 9 classes are predicted right"
        in page.locator("#about").inner_text()
    )
    for i in range(9):
        page.locator("#list li").nth(i).click()
        assert page.locator("#name").inner_text() == f"Prediction {i}: {predicted[i]} (class)"
        name, chance = (
            page.locator("#list li").nth(i).locator("span").nth(1).inner_text().split(": ")
        )
        assert name == str(predicted[i])
        assert abs(float(chance) - chances[i]) < 1e-3
        cards = page.locator("#cards").inner_text()
        assert f"Probability of {predicted[i] if kind == 'forest' else 'good'}\n" in cards
        assert f"Actual class\n{labels[i]}\n" in cards
    heads = page.locator("#rows thead button").all_inner_texts()
    at = heads.index("Class")
    assert column(page, at) == [str(labels[int(row)]) for row in column(page, 0)]
    if kind == "forest":  # weights times being of that class, from the share of the class
        held, own = numbers(column(page, 2)), np.array(column(page, at)) == str(predicted[8])
        expected = np.array(held) * (own - (labels == predicted[8]).mean())
        np.testing.assert_allclose(
            numbers(column(page, 5)), expected, atol=1e-4
        )  # four digits are shown
        assert f"Share of {predicted[8]}" in page.locator("#waterfall").inner_text()


def test_derivatives_are_not_said_to_add_up(visit):
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    page = visit(
        axil.Explainer(LogisticRegression(tol=1e-10).fit(X, y), X, y).to_html(X[:3], groups=y)
    )
    assert page.locator("#adding").is_hidden()
    assert page.locator("#proof").inner_text() == ""
    assert page.locator("#proof-title").inner_text() == "What a derivative says"
    heads = page.locator("#rows thead button").all_inner_texts()
    assert heads == ["Row", "Rank", "Derivative", "Share so far", "Target", "x0", "x1"]
    assert page.locator("#rows tfoot tr").count() == 1  # all other rows; no intercept, no sum
    assert page.locator("#groups-table thead th").all_inner_texts() == [
        "Group",
        "Sum of derivatives",
    ]


def test_many_groups_fold_and_come_first_where_no_row_says_much(visit):
    explainer, X, _ = houses()
    groups, table = np.arange(300) % 12, explainer.group(X[:1], np.arange(300) % 12)
    first = "node => node.compareDocumentPosition(document.getElementById('comparables')) & 4"
    for k, diffuse in ((2, True), (300, False)):
        page = visit(explainer.to_html(X[:2], groups=groups, k=k))
        assert bool(page.locator("#groups").evaluate(first)) is diffuse
        assert page.locator("#by").input_value() == ("groups" if diffuse else "rows")
        assert page.locator("#groups-table tbody tr").count() == 8
        rest = page.locator("#groups-table tfoot tr > *").all_inner_texts()
        assert rest[0] == "4 other groups"
        smallest = table.sort_values("weight", key=abs)[:4]
        left = (smallest["contribution"] - smallest["weight"] * explainer.targets.mean()).sum()
        assert numbers(rest[3:4])[0] == pytest.approx(left, abs=0.6)
        page.locator("#by").select_option("groups")
        steps = page.locator("#waterfall text").all_text_contents()
        assert sum(numbers(steps[1:-1:2])) == pytest.approx(
            explainer(X[:1]).predictions[0], abs=0.5 * 12
        )
        page.locator("#unfold").click()
        assert page.locator("#groups-table tbody tr").count() == 12
        assert page.locator("#unfold").inner_text() == "Show 8 groups"


def test_the_curve_is_the_one_of_the_weights(visit, report):
    """Every point drawn beyond the 20 rows listed is one of the exact curve."""
    explainer, X, _ = houses()
    page = visit(report)
    points = page.locator("#share polyline").get_attribute("points").split()
    x, y = np.array([point.split(",") for point in points], dtype=float).T
    sizes = np.sort(np.abs(explainer(X[:1]).weights[0]))[::-1]
    held = np.cumsum(sizes) / sizes.sum()
    low, high = (
        y[0] + (y[0] - 10) * held[0] / (1 - held[0]),
        10.0,
    )  # drawn at 0 and at 1, from the first point and the top
    shares, rows = (y - low) / (high - low), 300 ** ((x - x[0]) / (x[-1] - x[0]))
    assert len(points) > 40
    np.testing.assert_allclose(shares, held[rows.round().astype(int) - 1], atol=1e-3)
