"""The page of a comparison in a real Chromium: the search, narrow screens, the dark, and paper."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor

import axil

N = 240
RNG = np.random.default_rng(6)
HOMES = pd.DataFrame(
    {"area": RNG.uniform(40, 200, N).round(), "built": RNG.integers(1900, 2024, N)},
    index=[f"14-21-310-{i:03d}-1024" for i in range(N)],
)
PRICES = 1500 * HOMES["area"] + 900 * (HOMES["built"] - 1900) + RNG.normal(0, 9000, N)


def explainer_of(rows: slice) -> axil.Explainer:
    model = LGBMRegressor(n_estimators=20, min_child_samples=5, n_jobs=1, verbose=-1)
    homes, prices = HOMES.iloc[rows], np.log(PRICES.iloc[rows] + 1e5)
    return axil.Explainer(model.fit(homes, prices), homes, prices, inverse_func=np.exp)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    change = axil.compare(
        explainer_of(slice(0, 200)), explainer_of(slice(40, 230)), HOMES.iloc[230:]
    )
    path = tmp_path_factory.mktemp("change") / "why.html"
    words = {"target": "price", "unit": "$", "rows": "sales", "query": "home"}
    change.to_html(path, columns=["area"], names={"area": "Floor area"}, **words)
    return path


@pytest.fixture
def page(browser, file):
    """Yield the page on a wide screen; nothing may be logged or thrown."""
    troubles = []
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.on("console", lambda message: troubles.append(message.text))
    opened.on("pageerror", lambda error: troubles.append(str(error)))
    opened.goto(file.as_uri())
    yield opened
    opened.close()
    assert troubles == []


def test_the_search_finds_a_home(page):
    assert page.locator("section:visible").count() == 10
    page.fill("#find", "310-235")
    shown = page.locator("section:visible h2").all_inner_texts()
    assert "14-21-310-235-1024" in shown
    assert len(shown) < 10
    assert page.inner_text("#found") == f"Found: {len(shown)} of 10"
    page.fill("#find", "no such home")
    assert page.locator("section:visible").count() == 0


@pytest.mark.parametrize(("width", "media"), [(1280, "screen"), (400, "screen"), (794, "print")])
def test_nothing_is_cut_off(page, width, media):
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(media=media)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    fits = "[...document.querySelectorAll('td, .bar span')].every(e => e.scrollWidth <= e.clientWidth + 1)"
    assert page.evaluate(fits)
    assert page.locator(".find").is_visible() == (media == "screen")


def test_an_owner_reads_it(page):
    text = page.inner_text("section")
    for words in ("$", "Floor area", "The sales most like this home, now and before", "%"):
        assert words in text
    for words in ("log", "weight", "split", "e+0"):
        assert words not in text


def test_the_dark(browser, file):
    dark = browser.new_page(color_scheme="dark")
    dark.goto(file.as_uri())
    colours = [
        dark.evaluate(f"getComputedStyle(document.querySelector('{selector}')).{name}")
        for selector, name in (("section", "backgroundColor"), ("td", "color"))
    ]
    dark.close()
    ground, ink = (sum(int(part) for part in colour[4:-1].split(",")) for colour in colours)
    assert ground < 150 < 500 < ink
