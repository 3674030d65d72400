"""Distances between places on the earth, from latitudes and longitudes in degrees."""

from __future__ import annotations

import re

import numpy as np

from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError
from axil.inputs.distances import as_points

EARTH_RADIUS = 6371.0088  # km, the mean radius of the IUGG
KM_PER_UNIT = {"km": 1.0, "miles": 1.609344}
#: by the name that users write: the unit that answers are in, and how many of it there are in one
LENGTHS = {
    "km": ("km", 1.0),
    "m": ("km", 0.001),
    "miles": ("miles", 1.0),
    "mile": ("miles", 1.0),
    "mi": ("miles", 1.0),
    "feet": ("miles", 1 / 5280),
    "ft": ("miles", 1 / 5280),
}
LENGTH = re.compile(r"\s*(\d+(?:\.\d+)?)?\s*([a-z]+)\s*")
LIMITS = {"latitude": 90.0, "longitude": 360.0}
EXPECTED_PLACES = (
    'expected two columns, of latitudes and longitudes, such as ("lat", "lon"), or ("lat", "lon", '
    '"miles")'
)


def as_length(text: object) -> tuple[float, str] | None:
    """Return a length such as "5 km" as a number and its unit, "km" or "miles"; None for others.

    A unit alone has the length infinity.
    """
    if not isinstance(text, str):
        return None
    match = LENGTH.fullmatch(text)
    if match is None or match[2] not in LENGTHS:
        return None
    unit, size = LENGTHS[match[2]]
    if match[1] is None:
        return np.inf, unit
    return float(match[1]) * size, unit


def as_degrees(column: AnyArray, name: str, kind: str, option: str) -> FloatArray:
    """Check a column of latitudes or longitudes, and return it as numbers.

    Parameters
    ----------
    column : ndarray of shape (n,)
    name : str
        What messages call it.
    kind : "latitude" or "longitude"
    option : str
        The parameter that names the column.
    """
    degrees = as_points(column, name)
    if degrees.dtype.kind != "f":
        raise InputError(f"{name} holds dates; {EXPECTED_PLACES}.")
    limit = LIMITS[kind]
    is_beyond = ~np.isnan(degrees) & ~(np.abs(degrees) <= limit)
    if is_beyond.any():
        row = int(np.argmax(is_beyond))
        raise InputError(
            f"{name}, the {kind}s of {option}, holds {degrees[row]:g} in row {row}; expected "
            f"degrees, {limit:g} at most. Name latitudes first, and degrees rather than metres."
        )
    return degrees


def unit_vectors(latitudes: FloatArray, longitudes: FloatArray) -> FloatArray:
    """Return places as points on the unit sphere, (..., 3); nan if a coordinate is missing."""
    north = np.radians(latitudes)
    east = np.radians(longitudes)
    return np.stack(
        [np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=-1
    )


def chord_of(distance: float, unit: str) -> float:
    """Return the length of the straight line on the unit sphere for a distance."""
    angle = min(distance * KM_PER_UNIT[unit] / EARTH_RADIUS, np.pi)
    return float(2 * np.sin(angle / 2))


def distances(first: FloatArray, second: FloatArray, unit: str) -> FloatArray:
    """Return the distances along the earth between places (..., 3) on the unit sphere."""
    chords = np.linalg.norm(first - second, axis=-1)
    angles = 2 * np.arcsin(np.minimum(chords / 2, 1.0))
    return np.asarray(angles * (EARTH_RADIUS / KM_PER_UNIT[unit]))
