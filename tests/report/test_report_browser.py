"""Pages of a report as owners see them, in a real Chromium: on wide and narrow screens, in the dark, and on paper."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor

import axil

N = 300
DRAWS = np.random.default_rng(2)
HOMES = pd.DataFrame(
    {
        "area": DRAWS.uniform(600, 4000, N).round(),
        "built": DRAWS.integers(1890, 2024, N),
        "lat": DRAWS.normal(41.9, 0.1, N),
        "lon": DRAWS.normal(-87.6, 0.1, N),
    },
    index=[f"14-21-310-{i:03d}-1024" for i in range(N)],
)
PRICE = 150 * HOMES["area"] + 500 * (HOMES["built"] - 1950) + DRAWS.normal(0, 5000, N) + 1e5
SOLD = pd.DataFrame(
    {"sold": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(N), "D")}, index=HOMES.index
)


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """A report on homes of which some were sold for prices that are wrong."""
    model = LGBMRegressor(n_estimators=20, min_child_samples=5, n_jobs=1, verbose=-1)
    sales, prices = HOMES.iloc[:250], PRICE.iloc[:250].copy()
    prices.iloc[::60] *= 9
    explainer = axil.Explainer(
        model.fit(sales, np.log(prices)), sales, np.log(prices), inverse_func=np.exp
    )
    words = {"title": "Valuation", "target": "price", "unit": "$", "rows": "sales", "query": "home"}
    dates = {
        "beside": (SOLD.iloc[:250], pd.DataFrame(index=HOMES.index[:250:60])),
        "asof": "2025-01-01",
        "within": "sold",
    }
    interval = explainer.calibrate(HOMES.iloc[250:], np.log(PRICE.iloc[250:]))
    more = {
        "columns": ["sold", "area", "built"],
        "map": ("lat", "lon", "miles"),
        "interval": interval,
        "suspects": "mark",
        "k": 5,
    }
    folder = tmp_path_factory.mktemp("report") / "out"
    return explainer.report(sales[::60], folder, **words, **dates, **more).index


@pytest.fixture
def page(browser, index, request):
    """The first home's page, on a screen of this width; nothing may be logged, thrown or fetched."""
    troubles = []
    context = browser.new_context(
        **{"viewport": {"width": 1440, "height": 900}} | getattr(request, "param", {})
    )
    found = context.new_page()
    found.on("console", lambda message: troubles.append(message.text))
    found.on("pageerror", lambda error: troubles.append(str(error)))
    found.goto((index.parent / "pages" / "0000" / f"{HOMES.index[0]}.html").as_uri())
    yield found
    context.close()
    assert troubles == []


def test_an_owner_reads_it(page):
    text = page.inner_text("body")
    assert "Estimated price as of 2025-01-01" in text
    assert "9 of 10 such ranges hold the price." in text
    assert "price looks wrong" in text
    assert "miles" in text
    for word in ("weight", "probability", "RMSE"):
        assert word not in text
    head, own, *rows, mean = page.locator("table:not(.grid) tr").all()
    assert head.inner_text().split("\t")[0] == "Sales"
    assert (
        own.locator("td").nth(6).inner_text() == ""
    )  # the home was not sold on the day of its valuation
    assert mean.inner_text().startswith("Mean of these 5")
    area, built = (rows[0].locator("td").nth(i).inner_text().split()[0] for i in (7, 8))
    assert "," in area or float(area) < 1000
    assert "," not in built


def test_a_wide_screen_is_used(page):
    assert page.locator("table").first.bounding_box()["width"] > 1300


@pytest.mark.parametrize(
    "page", [{"viewport": {"width": 960, "height": 800}}], indirect=True, ids=["small"]
)
def test_hyphens_do_not_break_labels(page):
    lines = """e => { const range = document.createRange(); range.selectNodeContents(e.firstChild);
        return range.getClientRects().length; }"""
    for media in ("screen", "print"):
        page.emulate_media(media=media)
        assert (
            page.evaluate(f"[...document.querySelectorAll('td.n')].map({lines})")
            == [1] * page.locator("td.n").count()
        )


@pytest.mark.parametrize(
    "page", [{"viewport": {"width": 400, "height": 800}}], indirect=True, ids=["phone"]
)
def test_a_phone_does_not_scroll_sideways(page):
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    named = page.evaluate(
        "getComputedStyle(document.querySelector('.this td:nth-child(3)'), '::before').content"
    )
    assert named == '"Estimate"'  # of the home itself nothing is adjusted
    shown = page.evaluate(
        "[...document.querySelectorAll('td')].every(e => e.scrollWidth <= e.clientWidth + 1)"
    )
    assert shown


@pytest.mark.parametrize(
    "page",
    [{"color_scheme": "dark"}, {"color_scheme": "light"}],
    indirect=True,
    ids=["dark", "light"],
)
def test_words_of_caution_can_be_read(page):
    """By the contrast of the text with what is behind it, as the guidelines for accessible pages compute it."""

    def light(colour):
        parts = np.array([float(part) for part in colour[4:-1].split(",")]) / 255
        parts = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return parts @ [0.2126, 0.7152, 0.0722]

    ground = light(
        page.evaluate("getComputedStyle(document.querySelector('section')).backgroundColor")
    )
    for selector in (".word", ".soft", "td", "p.value"):
        ink = light(page.evaluate(f"getComputedStyle(document.querySelector({selector!r})).color"))
        assert (max(ink, ground) + 0.05) / (min(ink, ground) + 0.05) > 4.5


def test_paper_has_all_of_it(page):
    page.set_viewport_size({"width": 794, "height": 1123})  # A4
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= 794
    assert not page.locator(".back").is_visible()
    assert [head.is_visible() for head in page.locator("thead").all()] == [True, True]


@pytest.mark.parametrize(
    "page", [{"viewport": {"width": 1280, "height": 800}}], indirect=True, ids=["desk"]
)
def test_the_grid_fits(page):
    grid = page.locator("table.grid")
    assert grid.inner_text().startswith("\tThis home\t1.")
    for width, media in ((1280, "screen"), (400, "screen"), (794, "print")):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(media=media)
        assert grid.evaluate("e => e.scrollWidth <= e.parentElement.clientWidth"), width


def test_many_columns_of_long_words_are_not_cut(browser, tmp_path):
    sales = HOMES.iloc[:250]
    model = LGBMRegressor(n_estimators=20, min_child_samples=5, n_jobs=1, verbose=-1)
    explainer = axil.Explainer(model.fit(sales, PRICE.iloc[:250]), sales, PRICE.iloc[:250])
    words = {f"Column_{i}": f"One_Story_1946_and_Newer_{i}" for i in range(8)}
    beside = pd.DataFrame(words, index=HOMES.index)
    written = explainer.report(
        HOMES.iloc[250:252],
        tmp_path / "out",
        k=3,
        unit="$",
        map=("lat", "lon"),
        beside=(beside.iloc[:250], beside.iloc[250:252]),
    )
    page = browser.new_page()
    page.goto((written.index.parent / "pages" / "0000" / f"{HOMES.index[250]}.html").as_uri())
    assert page.locator("table").first.locator("th").count() == 14
    for width, media in ((1280, "screen"), (400, "screen"), (794, "print")):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(media=media)
        fits = (
            "[...document.querySelectorAll('section')].every(e => e.scrollWidth <= e.clientWidth)"
        )
        assert page.evaluate(fits), (width, media)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_the_index_finds_a_home(browser, index):
    found = browser.new_page()
    found.goto(index.as_uri())
    found.fill("#find", "310-060")
    found.wait_for_timeout(400)
    assert found.locator("li a").all_inner_texts() == ["14-21-310-060-1024"]
    found.close()


WORD_LINES = """() => [...document.querySelectorAll('.many th, .many td')].flatMap(cell => {
    const words = [];
    for (const node of cell.childNodes) {
        if (node.nodeType !== Node.TEXT_NODE) continue;
        for (const match of node.data.matchAll(/[A-Za-z]+/g)) {
            const range = document.createRange();
            range.setStart(node, match.index);
            range.setEnd(node, match.index + match[0].length);
            if (range.getClientRects().length > 1) words.push(match[0]);
        }
    }
    return words;
})"""


def test_tables_of_many_columns_break_no_words(browser, tmp_path):
    """Names of columns and of categories break after underscores, on a screen and on paper."""
    rng = np.random.default_rng(0)
    names = ("Lot_Frontage", "Land_Contour", "Utilities", "Neighborhood", "Heating_Quality")
    homes = pd.DataFrame({name: rng.integers(0, 9, 120) for name in names})
    homes["Building_Style"] = pd.Categorical(rng.choice(["One_Story_All_Styles", "Two_Story"], 120))
    homes["Condition"] = pd.Categorical(rng.choice(["Typical", "Excellent"], 120))
    homes["Alley"] = pd.Categorical(rng.choice(["No_Alley_Access", "Paved"], 120))
    prices = 1e5 + 1e4 * homes["Lot_Frontage"]
    model = LGBMRegressor(n_estimators=5, n_jobs=1, verbose=-1).fit(homes, prices)
    words = {"target": "price", "unit": "$", "rows": "sales", "query": "home"}
    axil.Explainer(model, homes, prices).report(homes.head(1), tmp_path / "out", k=3, **words)
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.goto((tmp_path / "out" / "pages" / "0000" / "0.html").as_uri())
    assert tab.locator("table.many").count() == 1
    for media in ("screen", "print"):
        tab.emulate_media(media=media)
        assert tab.evaluate(WORD_LINES) == []
        assert tab.evaluate("document.documentElement.scrollWidth") <= 1280
    context.close()
