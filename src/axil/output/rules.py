"""Check the user's rules for which training rows may be listed beside an explained row."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.arrays import AnyArray, BoolArray, IntArray
from axil.errors import AxilError, InputError, shown, suggestion
from axil.output.shown_columns import Columns
from axil.reductions.choice import Allowed, Choice, packed

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
RETURNED = "What the function among returned"


@dataclass(frozen=True, eq=False)
class Rules:
    """Which training rows may be listed; see `similar`."""

    among: Any = None
    distinct: Any = None
    within: Any = None
    asof: Any = None
    dropped: BoolArray | None = None  #: (N,) further rows that are not listed

    @property
    def are_any(self) -> bool:
        """Whether some rows may not be listed."""
        rules = (self.among, self.distinct, self.within, self.asof, self.dropped)
        return any(rule is not None for rule in rules)

    def choice(self, known: Columns, k: Any, n_threads: int = 1) -> tuple[Choice, Allowed]:
        """Return how rows are chosen, and which of them may be."""
        count = inputs.as_count(k, "k")
        values = None
        ranges = None
        if self.within is not None or self.asof is not None:
            values, ranges = self._near(known)
        codes = _codes(known, self.distinct)
        allowed = Allowed(self._everywhere(known), self._by_query(known), codes, codes, values)
        return Choice(count, False, codes is not None, ranges, n_threads), allowed

    # -- among -------------------------------------------------------------------------------------

    @property
    def is_by_query(self) -> bool:
        """Whether ``among`` is a function that needs two arguments: the training rows and an explained row."""
        if not callable(self.among):
            return False
        try:
            parameters = inspect.signature(self.among).parameters.values()
        except (TypeError, ValueError):  # a function without a signature
            return False
        required = [
            parameter
            for parameter in parameters
            if parameter.kind in POSITIONAL and parameter.default is inspect.Parameter.empty
        ]
        return len(required) == 2

    def _everywhere(self, known: Columns) -> IntArray | None:
        """Return the positions of the training rows that may be listed beside any row; None for all."""
        mask = None
        if self.dropped is not None:
            mask = ~self.dropped
        if self.among is not None and not self.is_by_query:
            among = self.among
            name = "among"
            if callable(among):
                among = said_by(among, known.training_rows())
                name = RETURNED
            allowed = _mask(known, among, name)
            if mask is None:
                mask = allowed
            else:
                mask = mask & allowed
        if mask is None:
            return None
        return np.flatnonzero(mask)

    def _by_query(self, known: Columns) -> NDArray[np.uint8] | None:
        """Return the bits (n, rows / 8) of the training rows that may be listed beside each row; None for all."""
        if not self.is_by_query:
            return None
        rows = known.training_rows()
        masks = (
            _mask(known, said_by(self.among, rows, query), RETURNED) for query in known.each_query()
        )
        return packed(masks, known.training[0].shape[0])

    # -- within and asof ---------------------------------------------------------------------------

    def column(self, known: Columns) -> tuple[int, Any]:
        """Return the position of the column that ``within`` names, and its distance; None stands for any distance."""
        within = self.within
        if self.asof is not None and (isinstance(within, str) or inputs.is_whole(within)):
            within = (within, None)
        if not isinstance(within, (tuple, list)) or len(within) != 2:
            alternative = ""
            if self.asof is not None:
                alternative = ', or with asof the column alone, such as "sale_date"'
            raise InputError(
                f'within is {shown(within)}; expected a column and a distance, such as ("sale_date", "3Y"){alternative}.'
            )
        column, distance = within
        if column is None:
            places = []
        else:
            places = known.chosen(column, "within")
        if len(places) != 1:
            raise InputError(f"within names {shown(column)}; expected one column.")
        return places[0], distance

    def points(self, known: Columns) -> tuple[AnyArray, str, np.dtype[Any]]:
        """Return the values of the explained rows that distances are measured from.

        Returns
        -------
        points : ndarray of shape (n,)
            Numbers or dates.
        name : str
            Where they come from.
        dtype : dtype
            Their type before they became numbers or dates.
        """
        if self.asof is None:
            place, _ = self.column(known)
            return _points_of_column(known, place, "within")
        if isinstance(self.asof, str) and self.asof in known.names:
            return _points_of_column(known, known.names.index(self.asof), "asof")
        point = _date(self.asof, known)
        return np.repeat(point, known.queries[0].shape[0]), "asof", point.dtype

    def ranges(self, known: Columns, *dtypes: np.dtype[Any]) -> tuple[AnyArray, AnyArray]:
        """Return the lowest and the highest value, (n,) each, of training rows that may be listed.

        ``dtypes`` are those of the column in the training rows.
        """
        place, distance = self.column(known)
        points, _, dtype = self.points(known)
        width = 0 if distance is None else distance
        lowest, highest = inputs.interval_around(
            points, width, known.names[place], (dtype, *dtypes)
        )
        if self.asof is None:
            return lowest, highest
        if distance is None:
            first = -np.inf if points.dtype.kind == "f" else inputs.FIRST
            lowest = np.full_like(points, first)
        return lowest, inputs.just_before(points, (dtype, *dtypes))

    def _near(self, known: Columns) -> tuple[AnyArray, tuple[AnyArray, AnyArray]]:
        """Return a column of the training rows, and the ranges that it must lie in."""
        place, _ = self.column(known)
        column = known.of_all_training(place, "within")
        points, name, _ = self.points(known)
        values = measured(column, known.names[place], points, name)
        return values, self.ranges(known, column.dtype)


def _points_of_column(
    known: Columns, place: int, option: str
) -> tuple[AnyArray, str, np.dtype[Any]]:
    """Return a column of X as `Rules.points` does, and raise for missing values."""
    name = f"{known.names[place]} of X"
    column = known.of_all_queries(place, option)
    points = inputs.as_points(column, name)
    if points.dtype.kind == "f":
        is_missing = np.isnan(points)
    else:
        is_missing = np.isnat(points)
    if is_missing.any():
        raise InputError(
            f"{name} has no value in row {np.argmax(is_missing)}; there must be one to measure from. Fill it in."
        )
    return points, name, column.dtype


def measured(column: AnyArray, name: str, points: AnyArray, what: str) -> AnyArray:
    """Return a column of training rows (N,) as numbers or dates, whichever the points are that distances are measured from."""
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
        f"{name} of the training rows holds {kinds[0]}, and {what} {kinds[1]}; expected the same in both."
    )


def said_by(among: Callable[..., Any], *arguments: Any, rows: str = "the training rows") -> Any:
    """Call the user's function with the training rows, and with an explained row if it takes one."""
    try:
        return among(*arguments)
    except AxilError:
        raise
    except Exception as error:  # the user's own function
        if len(arguments) > 1:
            query = ", and of a query,"
        else:
            query = ""
        raise InputError(
            f"among raised {type(error).__name__}: {shown(error, 200)}. Expected a function of {rows}{query} (a "
            f"{type(arguments[0]).__name__}) that returns a truth value for each training row."
        ) from error


def _mask(known: Columns, mask: Any, what: str) -> BoolArray:
    """Check a mask of the training rows (N,)."""
    features = known.training[0]
    inputs.refuse_other_order(features, mask, "among")
    return inputs.as_mask(mask, features.shape[0], what)


def _codes(known: Columns, distinct: Any) -> IntArray | None:
    """Return a number for each label of the training rows (N,); a row without a label has a number of its own."""
    if distinct is None:
        return None
    if isinstance(distinct, str) or inputs.is_whole(distinct):
        place = known.chosen(distinct, "distinct")[0]
        distinct = known.of_all_training(place, "distinct")
    features = known.training[0]
    inputs.refuse_other_order(features, distinct, "distinct")
    return inputs.label_codes(distinct, features.shape[0], "distinct")


def _date(asof: Any, known: Columns) -> AnyArray:
    """Return a date or a number (1,), from itself or from its text."""
    expected = 'expected a date such as "2025-01-01", a number where the column holds numbers, or the name of a column of X'
    value = asof
    if isinstance(asof, str):
        try:
            value = np.datetime64(asof)
        except ValueError:
            raise InputError(
                f"asof is {shown(asof)}; {expected}.{suggestion(asof, known.names)}{known.hint}"
            ) from None
    try:
        point = inputs.as_points(np.array([value], dtype=object), "asof")
    except (InputError, OverflowError):
        point = np.array([np.nan])
    if not np.isfinite(point[0]):
        raise InputError(f"asof is {shown(asof)}; {expected}.")
    return point
