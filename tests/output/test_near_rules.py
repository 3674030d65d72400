"""Several rules of `within`, with distances between places, compared with the definition."""

import warnings

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMRegressor

import axil
from axil.errors import InputError
from tests.report.read_pages import Page, entries

N_SALES = 200
N_HOMES = 6
RNG = np.random.default_rng(3)
HOMES = pd.DataFrame(
    {
        "area": RNG.uniform(40, 200, N_SALES + N_HOMES).round(),
        "built": RNG.integers(1900, 2024, N_SALES + N_HOMES),
        "lat": RNG.normal(60.0, 0.1, N_SALES + N_HOMES),
        "lon": RNG.normal(179.95, 0.2, N_SALES + N_HOMES),
    }
)
HOMES["lon"] = (HOMES["lon"] + 180) % 360 - 180  # on both sides of the antimeridian
DATES = pd.Timestamp("2022-01-01") + pd.to_timedelta(np.arange(N_SALES + N_HOMES) * 5, "D")
SOLD = pd.DataFrame({"sold": DATES}, index=HOMES.index)
SALES = HOMES.iloc[:N_SALES]
NEW = HOMES.iloc[N_SALES:]
BESIDE = (SOLD.iloc[:N_SALES], SOLD.iloc[N_SALES:])
PRICES = 1000 * SALES["area"] + RNG.normal(0, 3000, N_SALES) + 1e5


@pytest.fixture(scope="module")
def explainer():
    model = LGBMRegressor(n_estimators=15, min_child_samples=5, n_jobs=1, verbose=-1)
    return axil.Explainer(model.fit(SALES, PRICES), SALES, PRICES)


def haversine(home, sale) -> float:
    """Return the distance in km between two places, by the formula of navigators."""
    north = np.radians([home["lat"], sale["lat"]])
    east = np.radians([home["lon"], sale["lon"]])
    half = np.sin(np.diff(north)[0] / 2) ** 2
    half += np.prod(np.cos(north)) * np.sin(np.diff(east)[0] / 2) ** 2
    return 2 * 6371.0088 * np.arcsin(np.sqrt(half))


def listed_by_query(table) -> dict:
    return {query: set(lines["row"]) for query, lines in table.groupby("query")}


def rows_that_meet(rule) -> dict:
    """Return the sales that a function of a home and a sale allows, by home."""
    allowed = {}
    for label, home in NEW.iterrows():
        allowed[label] = {row for row, sale in SALES.iterrows() if rule(label, home, row, sale)}
    return {label: rows for label, rows in allowed.items() if rows}


def is_recent(label, row, days) -> bool:
    return abs(SOLD["sold"][label] - SOLD["sold"][row]) <= pd.Timedelta(days=days)


RULES = {
    "km": ([(("lat", "lon"), "9 km")], lambda q, home, r, sale: haversine(home, sale) <= 9),
    "miles": (
        (("lat", "lon"), "6.5 miles"),
        lambda q, home, r, sale: haversine(home, sale) <= 6.5 * 1.609344,
    ),
    "metres": ([(("lat", "lon"), "8000m")], lambda q, home, r, sale: haversine(home, sale) <= 8),
    "percent": (
        ("area", "25%"),
        lambda q, home, r, sale: abs(sale["area"] - home["area"]) <= 0.25 * home["area"],
    ),
    "all of them": (
        [("sold", "500D"), (("lat", "lon"), "15 km"), ("area", "30%"), ("built", 40)],
        lambda q, home, r, sale: (
            is_recent(q, r, 500)
            and haversine(home, sale) <= 15
            and abs(sale["area"] - home["area"]) <= 0.3 * home["area"]
            and abs(sale["built"] - home["built"]) <= 40
        ),
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_rows_that_meet_the_rules(explainer, name):
    within, rule = RULES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        table = explainer.similar(
            NEW, N_SALES, columns=[], within=within, beside=BESIDE, by="weight"
        )
    expected = rows_that_meet(rule)
    # by weight, rows of weight zero are listed too
    assert listed_by_query(table) == expected
    assert 0 < sum(len(rows) for rows in expected.values()) < N_HOMES * N_SALES


@pytest.mark.parametrize(("unit", "km"), [("km", 1.0), ("miles", 1.609344)])
def test_distance_is_a_column(explainer, unit, km):
    table = explainer.similar(NEW, 5, columns=[], within=(("lat", "lon"), unit))
    assert len(table) == 5 * N_HOMES  # a unit alone allows any distance
    for _, line in table.iterrows():
        expected = haversine(NEW.loc[line["query"]], SALES.loc[line["row"]]) / km
        assert line[f"distance ({unit})"] == pytest.approx(expected, rel=1e-9)


def test_missing_places(explainer):
    sales = SALES[["lat", "lon"]].rename(columns=str.upper)
    homes = NEW[["lat", "lon"]].rename(columns=str.upper)
    sales.iloc[::2, 0] = np.nan
    within = (("LAT", "LON"), "9 km")
    table = explainer.similar(
        NEW, N_SALES, columns=[], within=within, beside=(sales, homes), by="weight"
    )
    expected = rows_that_meet(lambda q, home, r, sale: haversine(home, sale) <= 9 and r % 2 == 1)
    assert listed_by_query(table) == expected
    homes.iloc[2, 1] = np.nan
    with pytest.raises(InputError, match="has no value in row 2"):
        explainer.similar(NEW, 3, within=within, beside=(sales, homes))


def test_a_date_before_and_further_rules(explainer):
    within = ["sold", (("lat", "lon"), "30 km")]
    table = explainer.similar(
        NEW, N_SALES, columns=[], within=within, asof="2023-06-01", beside=BESIDE, by="weight"
    )
    expected = rows_that_meet(
        lambda q, home, r, sale: (
            SOLD["sold"][r] < pd.Timestamp("2023-06-01") and haversine(home, sale) <= 30
        )
    )
    assert listed_by_query(table) == expected
    assert "sold before 2023-06-01, at most 30 km away" in table.attrs["axil"]


@pytest.mark.parametrize(
    ("within", "message"),
    [
        ((("lat", "lon"), 5), "between places; expected a length"),
        ((("lat", "lon"), "5 parsecs"), "between places; expected a length"),
        ((("lon", "lat"), "5 km"), "expected degrees, 90 at most"),
        ([("area", 5), "built"], "between places; expected a length"),
        ([], "expected a column and a distance"),
        (("area", "-5%"), 'a percentage such as "25%"'),
        ((("lat", "lan"), "5 km"), "within names 'lan'"),
    ],
)
def test_rules_that_are_refused(explainer, within, message):
    with pytest.raises(InputError, match=message):
        explainer.similar(NEW, 3, within=within)


def test_at_least(explainer, tmp_path):
    within = (("lat", "lon"), "2.2 km")
    counts = {}
    for label, rows in rows_that_meet(
        lambda q, home, r, sale: haversine(home, sale) <= 2.2
    ).items():
        counts[label] = len(rows)
    few = [label for label in NEW.index if counts.get(label, 0) < 3]
    assert 0 < len(few) < N_HOMES
    with pytest.warns(UserWarning, match=f"Fewer than 3 training rows .* for {len(few)} of 6 rows"):
        explainer.similar(NEW, 5, within=within, at_least=3, by="weight")
    with pytest.raises(InputError, match="at_least is 6, and k is 5"):
        explainer.similar(NEW, 5, at_least=6)
    written = explainer.report(
        NEW, tmp_path / "out", within=within, at_least=3, by="weight", sign="any", rows="sales"
    )
    assert written.too_few == len(few)
    for label, (file, *_) in entries(tmp_path / "out").items():
        text = Page(tmp_path / "out" / file).text
        n = counts.get(int(label), 0)
        assert ("fewer than the 3 that are wanted" in text) == (0 < n < 3)
        assert "are listed: at most 2.2 km away." in text


def test_pages_state_the_rules(explainer, tmp_path):
    options = {
        "within": [("sold", "3Y"), ("area", "40%"), (("lat", "lon"), "20 miles")],
        "asof": "2024-12-31",
        "beside": (BESIDE[0], BESIDE[1][[]]),
        "among": lambda sales: sales["built"] > 1910,
        "among_text": "built after 1910",
        "suspects": ("drop", [3]),
        "distinct": "built",
        "names": {"sold": "Sold", "area": "Floor area", "built": "Year built"},
    }
    explainer.report(NEW, tmp_path / "out", rows="sales", target="price", **options)
    expected = (
        "Only sales that meet all of these conditions are listed: Sold before 2024-12-31, by 3 "
        "years at most; Floor area at most 40\u00a0% apart; at most 20 miles away; built after "
        "1910; one for each Year built; no price that looks wrong."
    )
    for file, *_ in entries(tmp_path / "out").values():
        assert " ".join(expected.split()) in Page(tmp_path / "out" / file).text
    with pytest.raises(InputError, match="there is no among"):
        explainer.report(NEW, tmp_path / "other", among_text="built after 1910")
