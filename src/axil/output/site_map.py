"""Place a prediction and its comparables on a small map.

``templates/map.html`` draws the map as inline SVG.

Local maps need no projection of the whole earth: east is longitude times the cosine of the
latitude, north is latitude. No streets are drawn, so that nothing has to be fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from axil.arrays import FloatArray, IntArray, LeafArray
from axil.errors import InputError, shown
from axil.inputs.coordinates import (
    EARTH_RADIUS,
    EXPECTED_PLACES,
    KM_PER_UNIT,
    as_degrees,
    distances,
    unit_vectors,
)
from axil.output.shown_columns import Columns

WIDTH = 640  # of a drawing, in its own units, as all that follow
HEIGHT = 360
MARGIN = 26
FOOT = 18  # height below all circles, for the scale bar and its text
LARGEST = 15.0  # radius of a circle
SMALLEST = 9.0
DIAMOND = 10.0  # half of its height
ROUNDS = 60  # in which circles are moved apart
MOVED = 3.0  # from here on a line leads from a circle to its place
MOST_DOTS = 400
KM_PER_DEGREE = EARTH_RADIUS * np.pi / 180  # of latitude
LEAST_KM = 0.1  # the least width of a map: of rows at one address
# lengths of scale bars: 0.01, 0.02, 0.05, 0.1, ...
STEPS = np.outer(10.0 ** np.arange(-2, 5), (1, 2, 5)).ravel()


@dataclass(frozen=True, eq=False)
class Places:
    """Latitudes and longitudes in degrees, nan if they are missing."""

    training: FloatArray  #: (N, 2)
    queries: FloatArray  #: (n, 2)
    unit: str = "km"  #: of distances, or "miles"
    columns: tuple[int, int] = (-1, -1)  #: the positions of the two columns


@dataclass(frozen=True, eq=False)
class Sheets:
    """Maps of m predictions and their k comparables; nan for a missing place."""

    x: FloatArray  #: (m, k) of the circles
    y: FloatArray  #: (m, k)
    radius: FloatArray  #: (m, k)
    away: FloatArray  #: (m, k) distances from the explained row
    query: FloatArray  #: (m, 2) x and y of the explained row; nan where it has no coordinates
    #: (m, 2) the scale bar: its length in the drawing, and the distance that it shows
    bar: FloatArray
    unit: str  #: of distances
    #: (m, 4) what a place becomes: degrees of longitude are that much narrower, units of the
    #: drawing per unit of distance, and the middle of the drawing to the north and the east
    projection: FloatArray


@dataclass(frozen=True)
class Circle:
    """A comparable on a map: its middle, radius, name, and number in the table.

    A circle that would hide another one is moved. A line leads from it to its place.
    """

    x: float
    y: float
    radius: float
    title: str
    number: int
    place: tuple[float, float] | None = None  #: of a circle that is moved


@dataclass(frozen=True)
class Drawing:
    """The map of one prediction, at (x, y), and of its comparables, with a scale bar."""

    label: str
    circles: list[Circle]
    x: float
    y: float
    bar_length: float
    bar_text: str  #: the distance that the scale bar stands for
    dots: str  #: a path that draws other training rows
    bar_x: ClassVar[float] = MARGIN / 2
    bar_y: ClassVar[float] = HEIGHT - MARGIN / 2
    width: ClassVar[int] = WIDTH
    height: ClassVar[int] = HEIGHT


def as_places(columns: Any, known: Columns) -> Places | None:
    """Read the option ``map``: two columns, of latitudes and longitudes, and perhaps a unit.

    The columns are names or positions.
    """
    if columns is None:
        return None
    is_sequence = isinstance(columns, (tuple, list))
    if not is_sequence or len(columns) not in (2, 3):
        raise InputError(f"map is {shown(columns)}; {EXPECTED_PLACES}.")
    if len(columns) == 3:
        unit = columns[2]
    else:
        unit = "km"
    if unit not in KM_PER_UNIT:
        raise InputError(
            f'map has {shown(unit)} as the unit of distances; expected "km" or "miles".'
        )
    latitude, longitude = known.chosen(columns[:2], "map")
    coordinates = ((latitude, "latitude"), (longitude, "longitude"))
    training = []
    queries = []
    for place, kind in coordinates:
        name = known.names[place]
        column = known.of_all_training(place, "map")
        query_column = known.of_all_queries(place, "map")
        training.append(as_degrees(column, f"{name} of the training rows", kind, "map"))
        queries.append(as_degrees(query_column, f"{name} of X", kind, "map"))
    return Places(
        np.stack(training, axis=1), np.stack(queries, axis=1), unit, (latitude, longitude)
    )


def sheets(places: Places, queries: IntArray, rows: LeafArray, weights: FloatArray) -> Sheets:
    """Draw explained rows and their comparables.

    Parameters
    ----------
    places : Places
        The coordinates of all rows.
    queries : ndarray of shape (m,)
        The positions of the explained rows.
    rows : ndarray of shape (m, k)
        The positions of the training rows beside each; -1 for none.
    weights : ndarray of shape (m, k)
        Their weights, which the areas of their circles show.
    """
    away, narrowing = _distances(places, queries, rows)
    lowest = np.fmin.reduce(away, axis=1)
    highest = np.fmax.reduce(away, axis=1)
    size = np.maximum(highest - lowest, LEAST_KM / KM_PER_UNIT[places.unit])
    vertical_scale = (HEIGHT - FOOT - 2 * MARGIN) / size[:, 0]
    horizontal_scale = (WIDTH - 2 * MARGIN) / size[:, 1]
    per_unit = np.minimum(vertical_scale, horizontal_scale)[:, None]
    centre = ((lowest + highest) / 2)[:, None]
    x = WIDTH / 2 + (away[:, :, 1] - centre[:, :, 1]) * per_unit
    y = (HEIGHT - FOOT) / 2 - (away[:, :, 0] - centre[:, :, 0]) * per_unit
    longest_bar = WIDTH / 4 / per_unit[:, 0]
    step = np.maximum(np.searchsorted(STEPS, longest_bar, side="right") - 1, 0)
    bar_distance = STEPS[step]
    sizes = np.abs(weights)
    largest = sizes.max(axis=1, initial=0.0, keepdims=True)
    shares = np.divide(sizes, largest, out=np.zeros_like(sizes), where=largest > 0)
    return Sheets(
        x=x[:, 1:],
        y=y[:, 1:],
        radius=SMALLEST + (LARGEST - SMALLEST) * np.sqrt(shares),
        away=_along_the_earth(places, queries, rows),
        query=np.stack([x, y], axis=2)[:, 0],
        bar=np.stack([bar_distance * per_unit[:, 0], bar_distance], axis=1),
        unit=places.unit,
        projection=np.stack([narrowing, per_unit[:, 0], *centre[:, 0].T], axis=1),
    )


def _distances(places: Places, queries: IntArray, rows: LeafArray) -> tuple[FloatArray, FloatArray]:
    """Return how far north and east each row is from the explained row, in the unit of distances.

    Returns
    -------
    distances : ndarray of shape (m, 1 + k, 2)
        The first is the explained row itself; nan for rows without coordinates.
    narrowing : ndarray of shape (m,)
        How much shorter a degree of longitude is than one of latitude.
    """
    origin = places.queries[queries]
    row_places = np.where((rows >= 0)[:, :, None], places.training[rows], np.nan)
    row_places[np.isnan(row_places).any(axis=2)] = np.nan
    degrees = np.concatenate([origin[:, None], row_places], axis=1) - origin[:, None]
    degrees[:, :, 1] = (degrees[:, :, 1] + 180) % 360 - 180  # the shorter way round the earth
    filled = np.where(np.isnan(degrees), 0.0, degrees)  # the explained row itself is at zero
    middle = (filled.min(axis=1) + filled.max(axis=1)) / 2
    narrowing = np.cos(np.radians(origin[:, 0] + middle[:, 0]))
    degrees[:, :, 1] *= narrowing[:, None]
    return degrees * (KM_PER_DEGREE / KM_PER_UNIT[places.unit]), narrowing


def _along_the_earth(places: Places, queries: IntArray, rows: LeafArray) -> FloatArray:
    """Return the distance of each row from the explained row, (m, k); nan if there is none."""
    origins = unit_vectors(*places.queries[queries].T)[:, None]
    row_places = np.where((rows >= 0)[:, :, None], places.training[rows], np.nan)
    return distances(origins, unit_vectors(row_places[:, :, 0], row_places[:, :, 1]), places.unit)


def distance_text(distance: float, unit: str, form: str = ".1f") -> str:
    """Return a distance as text: metres below a kilometre, feet below a tenth of a mile.

    ``form`` is the format of the number.
    """
    if np.isnan(distance):
        return "\u2013"
    if unit == "km":
        if distance >= 1:
            return f"{distance:{form}} km"
        return f"{1000 * distance:.0f} m"
    if distance >= 0.1:
        if distance == 1:
            name = "mile"
        else:
            name = "miles"
        return f"{distance:{form}} {name}"
    return f"{5280 * distance:.0f} feet"


def drawing(
    sheets: Sheets, i: int, titles: list[str], label: str, places: Places, query: int
) -> Drawing | None:
    """Return drawing i for the template, the largest circle first; None if the query has no place.

    Parameters
    ----------
    sheets : Sheets
        The drawings of a batch of predictions.
    i : int
        The position of the prediction in the batch.
    titles : list of str
        The names of the comparables, in their order.
    label : str
        A description of the map for screen readers.
    places : Places
        The coordinates of all rows; other training rows are drawn as dots.
    query : int
        The position of the explained row among all.
    """
    if np.isnan(sheets.query[i]).any():
        return None
    x, y = sheets.query[i].tolist()
    order = np.argsort(-sheets.radius[i], kind="stable").tolist()
    shown_places = [j for j in order if j < len(titles) and not np.isnan(sheets.x[i, j])]
    true_places = [(float(sheets.x[i, j]), float(sheets.y[i, j])) for j in shown_places]
    radii = [float(sheets.radius[i, j]) for j in shown_places]
    circles = []
    for j, true_place, radius, middle in zip(
        shown_places, true_places, radii, _apart(true_places, radii, (x, y))
    ):
        is_moved = np.hypot(middle[0] - true_place[0], middle[1] - true_place[1]) > MOVED
        place = None
        if is_moved:
            place = true_place
        circles.append(Circle(*middle, radius, titles[j], j + 1, place))
    bar_length, bar_distance = sheets.bar[i].tolist()
    bar_text = distance_text(bar_distance, sheets.unit, "g")
    dots = _dots(sheets, i, places, query)
    return Drawing(label, circles, x, y, bar_length, bar_text, dots)


def _apart(
    places: list[tuple[float, float]], radii: list[float], diamond: tuple[float, float]
) -> list[tuple[float, float]]:
    """Return the centres of the circles, moved so that no circle covers another or the diamond."""
    middles = [*places, diamond]
    sizes = [*radii, DIAMOND]
    fixed = len(places)
    for _ in range(ROUNDS):
        is_clear = True
        for a in range(len(middles)):
            for b in range(a + 1, len(middles)):
                gap = sizes[a] + sizes[b] + 1
                east = middles[b][0] - middles[a][0]
                north = middles[b][1] - middles[a][1]
                distance = float(np.hypot(east, north))
                if distance >= gap:
                    continue
                is_clear = False
                if distance < 1e-6:  # at one place: each pair parts in a direction of its own
                    east = np.cos(2.4 * b)
                    north = np.sin(2.4 * b)
                    distance = 1.0
                step = (gap - min(distance, gap)) / 2 + 0.05
                if b == fixed:
                    step *= 2
                shift = (step * east / distance, step * north / distance)
                middles[a] = _inside(middles[a][0] - shift[0], middles[a][1] - shift[1], sizes[a])
                if b != fixed:
                    middles[b] = _inside(
                        middles[b][0] + shift[0], middles[b][1] + shift[1], sizes[b]
                    )
        if is_clear:
            break
    return middles[:fixed]


def _inside(x: float, y: float, radius: float) -> tuple[float, float]:
    """Return a middle whose circle is inside of the drawing, above the scale bar."""
    return (
        float(min(max(x, radius + 1), WIDTH - radius - 1)),
        float(min(max(y, radius + 1), HEIGHT - FOOT - radius - 1)),
    )


def _dots(sheets: Sheets, i: int, places: Places, query: int) -> str:
    """Return a path with a dot for each training row inside of the drawing, `MOST_DOTS` at most."""
    narrowing, per_unit, north_of_middle, east_of_middle = sheets.projection[i].tolist()
    degrees = places.training - places.queries[query]
    degrees[:, 1] = (degrees[:, 1] + 180) % 360 - 180
    in_units = degrees * (KM_PER_DEGREE / KM_PER_UNIT[places.unit])
    x = WIDTH / 2 + (in_units[:, 1] * narrowing - east_of_middle) * per_unit
    y = (HEIGHT - FOOT) / 2 - (in_units[:, 0] - north_of_middle) * per_unit
    is_inside = (x > 0) & (x < WIDTH) & (y > 0) & (y < HEIGHT)  # false of missing coordinates
    rows = np.flatnonzero(is_inside)
    if len(rows) > MOST_DOTS:
        rows = rows[np.linspace(0, len(rows) - 1, MOST_DOTS).astype(np.intp)]
    dots = np.unique(np.round(np.stack([x[rows], y[rows]], axis=1)).astype(int), axis=0)
    return "".join(f"M{dot_x} {dot_y}h0" for dot_x, dot_y in dots.tolist())
