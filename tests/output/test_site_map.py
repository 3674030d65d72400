"""Maps: distances against great circles, drawings against the places they show, and what is refused."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor

import axil
from axil.errors import InputError
from axil.output.site_map import (
    HEIGHT,
    LARGEST,
    MARGIN,
    WIDTH,
    Places,
    distance_text,
    drawing,
    sheets,
)
from axil.templates import render
from tests.output.page.page_models import HOSTILE, data_of

DRAWS = np.random.default_rng(1)


def svg(sheets, i, titles, label, places, query):
    """The markup of drawing i; "" where there is none."""
    placed = drawing(sheets, i, titles, label, places, query)
    return render("map.html", map=placed) if placed is not None else ""


def great_circle(a, b):
    """km between two places, by the haversine formula."""
    (lat, lon), (to, on) = np.radians(a), np.radians(b)
    h = np.sin((to - lat) / 2) ** 2 + np.cos(lat) * np.cos(to) * np.sin((on - lon) / 2) ** 2
    return 2 * 6371.0088 * np.arcsin(np.sqrt(h))


@pytest.mark.parametrize(
    "centre",
    [(41.88, -87.63), (-33.9, 151.2), (69.6, 179.98)],
    ids=["Chicago", "Sydney", "antimeridian"],
)
def test_distances_directions_and_the_bar(centre):
    training = np.array(centre) + DRAWS.normal(0, 0.05, (8, 2))
    training[:, 1] = (training[:, 1] + 180) % 360 - 180
    rows, weights = np.array([[0, 3, 5, -1]]), np.array([[0.4, -0.1, 0.2, 0.0]])
    found = sheets(Places(training, np.array([centre])), np.array([0]), rows, weights)
    for j, row in enumerate(rows[0, :3]):
        np.testing.assert_allclose(found.away[0, j], great_circle(centre, training[row]), rtol=1e-9)
        apart = np.hypot(found.x[0, j] - found.query[0, 0], found.y[0, j] - found.query[0, 1])
        np.testing.assert_allclose(
            apart / found.bar[0, 0] * found.bar[0, 1], found.away[0, j], rtol=5e-3
        )  # flat at some ten kilometres: right to a few in a thousand at 70 degrees of latitude
        assert (found.y[0, j] < found.query[0, 1]) == (training[row, 0] > centre[0])  # north is up
    assert np.isnan(found.x[0, 3])
    assert 0 <= found.x[0, :3].min() <= found.x[0, :3].max() <= WIDTH
    assert 0 <= found.y[0, :3].min() <= found.y[0, :3].max() <= HEIGHT
    assert found.radius[0, 0] == LARGEST
    assert found.bar[0, 0] <= WIDTH / 4


@pytest.mark.parametrize(
    ("away", "unit", "text"),
    [
        (12.34, "km", "12.3 km"),
        (0.85, "km", "850 m"),
        (0.04, "miles", "211 feet"),
        (0.34, "miles", "0.3 miles"),
        (np.nan, "miles", "–"),
    ],
)
def test_distances_in_words(away, unit, text):
    assert distance_text(away, unit) == text


def test_no_circle_is_over_the_scale_bar():
    training = np.array([[41.0, -87.6], [42.0, -87.6]])
    places = Places(training, training[1:])
    sheet = sheets(places, np.array([0]), np.array([[0]]), np.ones((1, 1)))
    text = HEIGHT - MARGIN / 2 - 3  # the middle of the bar's text, which is 19 high at most
    assert f'y="{text:g}"' in svg(sheet, 0, ["a"], "map", places, 0)
    assert sheet.y[0, 0] + LARGEST < text - 19 / 2


def test_what_has_no_place_is_left_out():
    places = Places(np.array([[1.0, np.nan], [1.0, 2.0]]), np.array([[1.0, 2.0], [np.nan, 2.0]]))
    found = sheets(places, np.arange(2), np.array([[0, 1], [0, 1]]), np.ones((2, 2)))
    assert svg(found, 1, ["a", "b"], "map", places, 1) == ""
    drawn = svg(found, 0, HOSTILE[:2], HOSTILE[2], places, 0)
    assert drawn.count("<circle") == 1
    assert "<script" not in drawn
    assert "<img" not in drawn
    assert np.isfinite([found.x[0, 1], found.bar[0, 0]]).all()  # a row at the query's own address


def homes():
    frame = pd.DataFrame(
        {
            "area": DRAWS.uniform(50, 200, 60),
            "lat": DRAWS.normal(41.9, 0.1, 60),
            "lon": DRAWS.normal(-87.6, 0.1, 60),
        }
    )
    price = 1000 * frame["area"] + 1e5 * frame["lat"]
    forest = RandomForestRegressor(8, min_samples_leaf=2, random_state=0).fit(
        frame[:50], price[:50]
    )
    return axil.Explainer(forest, frame[:50], price[:50]), frame


def test_the_page_has_a_map_where_columns_are_named():
    explainer, frame = homes()
    new = frame[50:]
    data = data_of(explainer.to_html(new, k=4, map=("lat", "lon")))
    assert data_of(explainer.to_html(new, k=4))["map"] is None
    place = frame.loc[int(data["training"]["labels"][data["rows"][0][0]]), ["lat", "lon"]]
    away = float(data["map"]["away"][0][0].removesuffix(" km"))
    np.testing.assert_allclose(away, great_circle(new[["lat", "lon"]].iloc[0], place), atol=0.06)
    assert data_of(explainer(new).to_html(k=4, map=(1, 2)))["map"] == data["map"]
    predictive = explainer.calibrate()
    assert (
        data_of(predictive.to_html(new, k=4, confidence_level=0.5, map=["lat", "lon"]))["map"]
        == data["map"]
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("lat", "map is 'lat'; expected two columns"),
        (("lat",), "map is .*expected two columns"),
        (("lat", "long"), "map names 'long'"),
        (
            ("area", "lon"),
            r"area of the training rows, the latitudes of map, holds 1?\d\d.*expected degrees, 90 at most",
        ),
    ],
)
def test_what_is_refused(given, message):
    explainer, frame = homes()
    with pytest.raises(InputError, match=message):
        explainer.to_html(frame[50:], map=given)


def test_an_explanation_without_training_rows_has_no_map(tmp_path):
    explainer, frame = homes()
    explainer.save(tmp_path / "file.axil")
    loaded = axil.load(
        tmp_path / "file.axil",
        RandomForestRegressor(8, min_samples_leaf=2, random_state=0).fit(*fitted(frame)),
    )
    with pytest.raises(InputError, match="map needs the features of the training rows"):
        loaded.to_html(frame[50:], map=("lat", "lon"))


def fitted(frame):
    return frame[:50], (1000 * frame["area"] + 1e5 * frame["lat"])[:50]


def test_circles_do_not_hide_each_other():
    rng = np.random.default_rng(8)
    training = rng.normal(0, 0.001, (60, 2))
    training[:4] = training[0]  # four sales in one house
    training[5] = [0.0002, 0.0002]
    places = Places(training, np.array([[0.0002, 0.0002]]))  # where the home is itself
    rows = np.arange(10)[None]
    drawings = sheets(places, np.array([0]), rows, rng.uniform(0.1, 1, (1, 10)))
    drawn = drawing(drawings, 0, [f"{i}" for i in range(10)], "map", places, 0)
    circles = drawn.circles
    assert len(circles) == 10
    for a, one in enumerate(circles):
        assert np.hypot(one.x - drawn.x, one.y - drawn.y) > one.radius + 8
        assert one.radius <= one.x <= WIDTH - one.radius
        for other in circles[a + 1 :]:
            apart = np.hypot(one.x - other.x, one.y - other.y)
            assert apart > 0.95 * (one.radius + other.radius)
    moved = [circle for circle in circles if circle.place is not None]
    assert {circle.number for circle in moved} >= {6}
    for circle in circles:
        place = circle.place or (circle.x, circle.y)
        true_place = drawings.x[0, circle.number - 1], drawings.y[0, circle.number - 1]
        assert np.hypot(*np.subtract(place, true_place)) <= 3
    assert 10 < drawn.dots.count("M") <= 60


def test_numbers_stand_in_the_order_of_the_table():
    places = Places(np.array([[0.0, 0.0], [0.1, 0.1]]), np.array([[0.0, 0.1]]))
    drawn = svg(
        sheets(places, np.array([0]), np.array([[1, 0]]), np.array([[0.2, 0.5]])),
        0,
        ["b", "a"],
        "map",
        places,
        0,
    )
    assert re.findall(r"<title>(.)</title>.*?>(\d)</text>", drawn) == [
        ("a", "2"),
        ("b", "1"),
    ]  # the largest below
