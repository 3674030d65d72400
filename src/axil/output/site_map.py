"""Place a prediction and its comparables on a small map, which ``templates/map.html`` draws as inline SVG.

Local maps need no projection of the whole earth: east is longitude times the cosine of the latitude, north is latitude. No
streets are drawn, so that nothing has to be fetched.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray, IntArray
from axil.errors import InputError, shown
from axil.inputs import as_points
from axil.output.shown_columns import Columns

WIDTH, HEIGHT, MARGIN = 640, 360, 26  # of a drawing, in its own units
FOOT = 18  # of its height, below all circles, for the scale bar and its text
KM_PER_DEGREE = 6371.0088 * np.pi / 180  # of latitude: mean radius of the earth, IUGG
UNITS = {"km": 1.0, "miles": 1.609344}  # km in each
LEAST_KM = 0.1  # the least width of a map: of rows at one address
STEPS = np.array(
    [m * 10.0**e for e in range(-2, 5) for m in (1, 2, 5)]
)  # lengths that scale bars have
LARGEST, SMALLEST = 15.0, 6.0  # radii of circles
LIMITS = {"latitude": 90.0, "longitude": 360.0}


@dataclass(frozen=True, eq=False)
class Places:
    """Latitudes and longitudes in degrees, nan where they are missing."""

    training: FloatArray  #: (N, 2)
    queries: FloatArray  #: (n, 2)
    unit: str = "km"  #: of distances, or "miles"


@dataclass(frozen=True, eq=False)
class Sheets:
    """Drawings of m predictions and their k comparables; nan for what has no place."""

    x: FloatArray  #: (m, k) of the circles
    y: FloatArray  #: (m, k)
    radius: FloatArray  #: (m, k)
    away: FloatArray  #: (m, k) distances from the query
    query: FloatArray  #: (m, 2) the query's own x and y; nan for a drawing that there is none of
    bar: FloatArray  #: (m, 2) the scale bar: its length on the drawing, and the distance that it stands for
    unit: str  #: of distances


@dataclass(frozen=True)
class Circle:
    """A comparable on a map: its middle, radius, name, and number in the table."""

    x: float
    y: float
    radius: float
    title: str
    number: int


@dataclass(frozen=True)
class Drawing:
    """The map of one prediction, at (x, y), and of its comparables, with a scale bar."""

    label: str
    circles: list[Circle]
    x: float
    y: float
    bar_length: float
    bar_text: str  #: the distance that the scale bar stands for
    bar_x: ClassVar[float] = MARGIN / 2
    bar_y: ClassVar[float] = HEIGHT - MARGIN / 2
    width: ClassVar[int] = WIDTH
    height: ClassVar[int] = HEIGHT


def as_places(given: Any, known: Columns) -> Places | None:
    """The places in two columns, of latitudes and longitudes, given by name or position, and a unit; None for None."""
    if given is None:
        return None
    expected = 'expected two columns, of latitudes and longitudes, such as ("lat", "lon"), or ("lat", "lon", "miles")'
    if isinstance(given, str) or not isinstance(given, (tuple, list)) or len(given) not in (2, 3):
        raise InputError(f"map is {shown(given)}; {expected}.")
    *given, unit = given if len(given) == 3 else (*given, "km")
    if unit not in UNITS:
        raise InputError(
            f'map has {shown(unit)} as the unit of distances; expected "km" or "miles".'
        )
    found: list[list[FloatArray]] = [[], []]
    for (kind, limit), place in zip(LIMITS.items(), known.chosen(given, "map")):
        both = known.of_all_training(place, "map"), known.of_all_queries(place, "map")
        for part, values, whose in zip(found, both, ("the training rows", "X")):
            what = f"{known.names[place]} of {whose}"
            degrees = as_points(values, what)
            if degrees.dtype.kind != "f":
                raise InputError(f"{what} holds dates; {expected}.")
            odd = np.flatnonzero(~np.isnan(degrees) & ~(np.abs(degrees) <= limit))
            if len(odd):
                raise InputError(
                    f"{what}, the {kind}s of map, holds {degrees[odd[0]]:g} in row {odd[0]}; expected degrees, "
                    f"{limit:g} at most. Name latitudes first, and degrees rather than metres."
                )
            part.append(degrees)
    training, queries = (np.stack(part, axis=1) for part in found)
    return Places(training, queries, unit)


def sheets(
    places: Places, asked: IntArray, rows: NDArray[np.integer[Any]], weights: FloatArray
) -> Sheets:
    """Drawings of the queries asked (m,), each with its rows (m, k), -1 for none, and their weights (m, k)."""
    own = places.queries[asked]
    other = np.where((rows >= 0)[:, :, None], places.training[rows], np.nan)
    other[np.isnan(other).any(axis=2)] = np.nan
    points = np.concatenate([own[:, None], other], axis=1) - own[:, None]  # degrees from the query
    points[:, :, 1] = (points[:, :, 1] + 180) % 360 - 180  # the shorter way round
    known = np.where(np.isnan(points), 0.0, points)  # the query itself is at zero
    middle = (known.min(axis=1) + known.max(axis=1)) / 2
    points[:, :, 1] *= np.cos(np.radians(own[:, :1] + middle[:, :1]))
    away = points * (KM_PER_DEGREE / UNITS[places.unit])
    lowest, highest = np.fmin.reduce(away, axis=1), np.fmax.reduce(away, axis=1)
    size = np.maximum(highest - lowest, LEAST_KM / UNITS[places.unit])
    per_unit = np.minimum(
        (HEIGHT - FOOT - 2 * MARGIN) / size[:, 0], (WIDTH - 2 * MARGIN) / size[:, 1]
    )[:, None]
    centre = ((lowest + highest) / 2)[:, None]
    x = WIDTH / 2 + (away[:, :, 1] - centre[:, :, 1]) * per_unit
    y = (HEIGHT - FOOT) / 2 - (away[:, :, 0] - centre[:, :, 0]) * per_unit
    length = STEPS[
        np.maximum(np.searchsorted(STEPS, WIDTH / 4 / per_unit[:, 0], side="right") - 1, 0)
    ]
    sizes = np.abs(weights)
    most = sizes.max(axis=1, initial=0.0, keepdims=True)
    shares = np.divide(sizes, most, out=np.zeros_like(sizes), where=most > 0)
    radius = SMALLEST + (LARGEST - SMALLEST) * np.sqrt(shares)
    bar = np.stack([length * per_unit[:, 0], length], axis=1)
    apart = np.hypot(*np.moveaxis(away[:, 1:], 2, 0))
    return Sheets(
        x[:, 1:], y[:, 1:], radius, apart, np.stack([x, y], axis=2)[:, 0], bar, places.unit
    )


def distance_text(away: float, unit: str, form: str = ".1f") -> str:
    """A distance in words: metres below a kilometre, feet below a tenth of a mile; ``form`` is that of the number."""
    if np.isnan(away):
        return "\u2013"
    if unit == "km":
        return f"{away:{form}} km" if away >= 1 else f"{1000 * away:.0f} m"
    return (
        f"{away:{form}} {'mile' if away == 1 else 'miles'}"
        if away >= 0.1
        else f"{5280 * away:.0f} feet"
    )


def drawing(sheets: Sheets, i: int, titles: list[str], label: str) -> Drawing | None:
    """Return drawing i for the template, the largest circle first; None where the query has no place.

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
    """
    if np.isnan(sheets.query[i]).any():
        return None
    circles = []
    for j in np.argsort(-sheets.radius[i], kind="stable").tolist():
        if j < len(titles) and not np.isnan(sheets.x[i, j]):
            x, y, radius = sheets.x[i, j], sheets.y[i, j], sheets.radius[i, j]
            circles.append(Circle(float(x), float(y), float(radius), titles[j], j + 1))
    x, y = sheets.query[i].tolist()
    bar_length, bar_distance = sheets.bar[i].tolist()
    bar_text = distance_text(bar_distance, sheets.unit, "g")
    return Drawing(label, circles, x, y, bar_length, bar_text)
