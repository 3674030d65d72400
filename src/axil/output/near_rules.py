"""The rules of ``within`` and ``asof``: how near training rows must be to an explained row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

import numpy as np

from axil import inputs
from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError, shown
from axil.inputs.coordinates import (
    as_degrees,
    as_length,
    chord_of,
    distances,
    unit_vectors,
)
from axil.output.shown_columns import Columns
from axil.reductions.nearness import Nearness, WithinDistance, WithinRange

DType: TypeAlias = np.dtype[Any]

PERIODS = {"D": "day", "W": "week", "M": "month", "Y": "year"}
KINDS = ("latitude", "longitude")


class Wording(Protocol):
    """Texts for people: the names of columns, and their values."""

    def name(self, column: str) -> str:
        """Return the name of a column on pages."""

    def cell(self, value: object) -> str:
        """Return a value as text."""


class PlainWording:
    """Columns by their own names, dates by day."""

    def name(self, column: str) -> str:
        """Return the column itself."""
        return column

    def cell(self, value: object) -> str:
        """Return a value as text."""
        if isinstance(value, np.datetime64):
            return str(value.astype("M8[D]"))
        return str(value)


class Measure(Protocol):
    """A function from columns of training rows to the values that `Nearness` compares."""

    def values(self, columns: Sequence[AnyArray]) -> AnyArray:
        """Return the values of rows from the columns of a rule, (rows,) each."""


class NearRule(Protocol):
    """One rule on how near a training row must be."""

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns that the rule is about, by position."""

    @property
    def measure(self) -> Measure:
        """The function from columns of training rows to values."""

    def nearness(self, dtypes: Sequence[DType]) -> Nearness:
        """Return the nearness that the rule requires of training rows, for these column types."""

    def text(self, words: Wording) -> str:
        """Return the rule in words."""


@dataclass(frozen=True)
class ColumnMeasure:
    """A column of numbers or dates, whichever the explained rows have."""

    name: str
    point: AnyArray  #: (1,) or (0,) of those that distances are measured from
    source: str  #: where these come from

    def values(self, columns: Sequence[AnyArray]) -> AnyArray:
        """Return the column as numbers or dates, (rows,)."""
        return measured(columns[0], self.name, self.point, self.source)


@dataclass(frozen=True, eq=False)
class RangeRule:
    """A column whose values lie within a distance of the explained row's own, or before a date."""

    columns: tuple[int]
    column_name: str
    distance: Any  #: as the user passes it; None for any
    points: AnyArray  #: (n,) values that distances are measured from
    source: str  #: where they come from
    dtype: DType  #: their type before they became numbers or dates
    is_before: bool  #: whether rows must lie before the points
    is_literal: bool = False  #: whether the user passed the point itself

    @property
    def measure(self) -> ColumnMeasure:
        """The function from the column of training rows to values."""
        return ColumnMeasure(self.column_name, self.points[:1], self.source)

    def nearness(self, dtypes: Sequence[DType]) -> WithinRange:
        """Return the lowest and the highest value of rows, for each explained row."""
        all_dtypes = (self.dtype, *dtypes)
        width = self.distance
        if width is None:
            width = 0
        lowest, highest = inputs.interval_around(self.points, width, self.column_name, all_dtypes)
        if not self.is_before:
            return WithinRange(lowest, highest)
        if self.distance is None:
            if self.points.dtype.kind == "f":
                lowest = np.full_like(self.points, -np.inf)
            else:
                lowest = np.full_like(self.points, inputs.FIRST)
        return WithinRange(lowest, inputs.just_before(self.points, all_dtypes))

    def text(self, words: Wording) -> str:
        """Return the rule in words."""
        name = words.name(self.column_name)
        if not self.is_before:
            return f"{name} at most {distance_text(self.distance, self.points)} apart"
        if self.is_literal and len(self.points):
            end = words.cell(self.points[0])
        elif self.points.dtype.kind == "M":
            end = "the date of the estimate"
        else:
            end = "that of the estimate"
        text = f"{name} before {end}"
        if self.distance is not None:
            text += f", by {distance_text(self.distance, self.points)} at most"
        return text


@dataclass(frozen=True)
class PlaceMeasure:
    """Two columns of latitudes and longitudes in degrees."""

    names: tuple[str, str]
    of_rows: str = "of the training rows"

    def values(self, columns: Sequence[AnyArray]) -> AnyArray:
        """Return the places of rows as points on the unit sphere, (rows, 3)."""
        degrees = [
            as_degrees(column, f"{name} {self.of_rows}", kind, "within")
            for column, name, kind in zip(columns, self.names, KINDS)
        ]
        return unit_vectors(*degrees)


@dataclass(frozen=True, eq=False)
class PlaceRule:
    """A place within a distance of the explained row's own."""

    columns: tuple[int, int]
    names: tuple[str, str]
    distance: float  #: infinity for any
    unit: str  #: "km" or "miles"
    text_of_distance: str  #: as the user wrote it
    centres: FloatArray  #: (n, 3) the explained rows on the unit sphere

    @property
    def measure(self) -> PlaceMeasure:
        """The function from the columns of training rows to values."""
        return PlaceMeasure(self.names)

    def nearness(self, dtypes: Sequence[DType]) -> WithinDistance:
        """Return the places of the explained rows, and how far away rows may be."""
        return WithinDistance(self.centres, chord_of(self.distance, self.unit))

    def text(self, words: Wording) -> str:
        """Return the rule in words; "" for any distance."""
        if self.distance == np.inf:
            return ""
        return f"at most {self.text_of_distance} away"

    def distances(self, queries: AnyArray, row_columns: Sequence[AnyArray]) -> FloatArray:
        """Return how far rows (lines,) are from explained rows, given by position (lines,)."""
        places = self.measure.values(row_columns)
        return distances(self.centres[queries], places, self.unit)


def place_rule(known: Columns, pair: Sequence[Any], distance: Any) -> PlaceRule:
    """Return the rule of two columns of coordinates and a length such as "5 km"."""
    length = as_length(distance)
    if length is None:
        raise InputError(
            f"within has the distance {shown(distance)} between places; expected a length such as "
            '"5 km", "500 m", "3 miles", or "km" alone for any.'
        )
    columns = known.chosen(list(pair), "within")
    latitude, longitude = columns
    names = (known.names[latitude], known.names[longitude])
    columns_of_queries = [known.of_all_queries(column, "within") for column in columns]
    centres = PlaceMeasure(names, "of X").values(columns_of_queries)
    is_missing = np.isnan(centres).any(axis=1)
    if is_missing.any():
        raise InputError(
            f"{names[0]} or {names[1]} of X has no value in row {np.argmax(is_missing)}; there "
            "must be one to measure from. Fill it in."
        )
    return PlaceRule((latitude, longitude), names, *length, distance.strip(), centres)


def points_of_column(known: Columns, place: int, option: str) -> tuple[AnyArray, str, DType]:
    """Return a column of X that distances are measured from; raise for missing values.

    Returns
    -------
    points : ndarray of shape (n,)
        Numbers or dates.
    name : str
        Where they come from.
    dtype : dtype
        Their type before they became numbers or dates.
    """
    name = f"{known.names[place]} of X"
    column = known.of_all_queries(place, option)
    points = inputs.as_points(column, name)
    if points.dtype.kind == "f":
        is_missing = np.isnan(points)
    else:
        is_missing = np.isnat(points)
    if is_missing.any():
        raise InputError(
            f"{name} has no value in row {np.argmax(is_missing)}; there must be one to measure "
            "from. Fill it in."
        )
    return points, name, column.dtype


def measured(column: AnyArray, name: str, points: AnyArray, source: str) -> AnyArray:
    """Return a column of training rows (N,) as numbers or dates, whichever the points are."""
    values = inputs.as_points(column, f"{name} of the training rows")
    if not len(points) or values.dtype.kind == points.dtype.kind:
        return values
    if not np.isfinite(values).any():  # nothing says whether these are numbers or dates
        missing = np.nan if points.dtype.kind == "f" else np.datetime64("NaT")
        return np.full(len(values), missing, points.dtype)
    if values.dtype.kind == "f":
        kinds = ("numbers", "dates")
    else:
        kinds = ("dates", "numbers")
    raise InputError(
        f"{name} of the training rows holds {kinds[0]}, and {source} {kinds[1]}; expected the same "
        "in both."
    )


def distance_text(distance: Any, points: AnyArray) -> str:
    """Return a distance along a column in words: "3 years", "20", "25 %"."""
    if isinstance(distance, (timedelta, np.timedelta64)):
        days = np.timedelta64(distance) / np.timedelta64(1, "D")
        return _counted(f"{days:g}", "day")
    if isinstance(distance, str):
        period = re.fullmatch(r"\s*(\d+)\s*([DWMY])\s*", distance)
        if period is None:
            return distance.replace("%", "\u00a0%").strip()
        return _counted(f"{int(period[1])}", PERIODS[period[2]])
    if points.dtype.kind == "M":
        return _counted(f"{distance:g}", "day")
    return f"{distance:g}"


def _counted(number: str, name: str) -> str:
    """Return a number with a name in the singular or the plural."""
    if number == "1":
        return f"{number} {name}"
    return f"{number} {name}s"
