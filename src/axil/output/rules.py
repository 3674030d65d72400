"""Rules: which training rows may be listed beside a query, as people say it, checked."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.arrays import BoolArray, IntArray
from axil.errors import AxilError, InputError, meant, shown
from axil.output.shown_columns import Columns
from axil.reductions.choice import Allowed, Choice, packed

PLACES = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, eq=False)
class Rules:
    """Which training rows may be listed; see `similar`."""

    among: Any = None
    distinct: Any = None
    within: Any = None
    asof: Any = None
    dropped: BoolArray | None = None  #: (N,) rows that are left out besides

    @property
    def are_any(self) -> bool:
        """Whether some rows may not be listed."""
        return any(
            one is not None
            for one in (self.among, self.distinct, self.within, self.asof, self.dropped)
        )

    def choice(self, known: Columns, k: Any, n_threads: int = 1) -> tuple[Choice, Allowed]:
        """How rows are chosen, and which of them may be."""
        count = inputs.as_count(k, "k")
        near, codes = self._near(known), _codes(known, self.distinct)
        values, ranges = (None, None) if near is None else near
        allowed = Allowed(self._everywhere(known), self._by_query(known), codes, codes, values)
        return Choice(count, False, codes is not None, ranges, n_threads), allowed

    # -- among ----------------------------------------------------------------------------------------------------------

    @property
    def is_by_query(self) -> bool:
        """Whether ``among`` is a function of the training rows and of a query: one that must be given two arguments."""
        if not callable(self.among):
            return False
        try:
            given = inspect.signature(self.among).parameters.values()
        except (TypeError, ValueError):  # a function that does not say what it takes
            return False
        return (
            sum(one.kind in PLACES and one.default is inspect.Parameter.empty for one in given) == 2
        )

    def _everywhere(self, known: Columns) -> IntArray | None:
        """The positions of the training rows that may be listed beside any query; None for all."""
        kept = None if self.dropped is None else ~self.dropped
        if self.among is not None and not self.is_by_query:
            given, what = self.among, "among"
            if callable(given):
                given, what = said_by(given, known.training_rows()), RETURNED
            mask = _mask(known, given, what)
            kept = mask if kept is None else kept & mask
        return None if kept is None else np.flatnonzero(kept)

    def _by_query(self, known: Columns) -> NDArray[np.uint8] | None:
        """(n, rows / 8): the bits of the training rows that may be listed beside each query; None for all."""
        if not self.is_by_query:
            return None
        rows = known.training_rows()
        masks = (
            _mask(known, said_by(self.among, rows, one), RETURNED) for one in known.each_query()
        )
        return packed(masks, known.training[0].shape[0])

    # -- within and asof ------------------------------------------------------------------------------------------------

    def column(self, known: Columns) -> tuple[int, Any]:
        """The column that must lie near a query's own value or before a date, and how far at most; None: any distance."""
        within = self.within
        if self.asof is not None and (isinstance(within, str) or inputs.is_whole(within)):
            within = within, None
        if not isinstance(within, (tuple, list)) or len(within) != 2:
            alone = (
                "" if self.asof is None else ', or with asof the column alone, such as "sale_date"'
            )
            raise InputError(
                f'within is {shown(within)}; expected a column and a distance, such as ("sale_date", "3Y"){alone}.'
            )
        column, distance = within
        places = [] if column is None else known.chosen(column, "within")
        if len(places) != 1:
            raise InputError(f"within names {shown(column)}; expected one column.")
        return places[0], distance

    def points(self, known: Columns) -> tuple[NDArray[Any], str, np.dtype[Any]]:
        """(n,) the values of the queries that training rows are measured from, their name, and the type they came in."""
        n, asof = known.queries[0].shape[0], self.asof
        if asof is None or (isinstance(asof, str) and asof in known.names):
            place = self.column(known)[0] if asof is None else known.names.index(asof)
            name, queried = (
                known.names[place],
                known.of_all_queries(place, "within" if asof is None else "asof"),
            )
            found, dtype = inputs.as_points(queried, f"{name} of X"), queried.dtype
            lost = np.flatnonzero(np.isnan(found) if found.dtype.kind == "f" else np.isnat(found))
            if len(lost):
                raise InputError(
                    f"{name} of X has no value in row {lost[0]}; there must be one to measure from. Fill it in."
                )
            return found, f"{name} of X", dtype
        point = _date(asof, known)
        return np.repeat(point, n), "asof", point.dtype

    def ranges(self, known: Columns, *dtypes: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """(n,) each: the lowest and the highest value that a row may have to be listed; the training rows' own has ``dtypes``."""
        place, distance = self.column(known)
        points, _, dtype = self.points(known)
        nearest = inputs.interval_around(
            points, 0 if distance is None else distance, known.names[place], (dtype, *dtypes)
        )
        if self.asof is None:
            return nearest
        least = np.full_like(points, -np.inf if points.dtype.kind == "f" else inputs.FIRST)
        return least if distance is None else nearest[0], inputs.just_before(
            points, (dtype, *dtypes)
        )

    def _near(
        self, known: Columns
    ) -> tuple[NDArray[Any], tuple[NDArray[Any], NDArray[Any]]] | None:
        """A column of the training rows, and the ranges that it must lie in."""
        if self.within is None and self.asof is None:
            return None
        place, _ = self.column(known)
        own, (points, what, _) = known.of_all_training(place, "within"), self.points(known)
        return measured(own, known.names[place], points, what), self.ranges(known, own.dtype)


def measured(column: NDArray[Any], name: str, points: NDArray[Any], what: str) -> NDArray[Any]:
    """(rows,): a column of training rows as numbers or dates, whichever the points are that it is measured from."""
    values = inputs.as_points(column, f"{name} of the training rows")
    if not len(points) or values.dtype.kind == points.dtype.kind:
        return values
    if not np.isfinite(values).any():  # of which nothing says what they are
        return np.full(
            len(values), np.nan if points.dtype.kind == "f" else np.datetime64("NaT"), points.dtype
        )
    kinds = ["numbers" if one.dtype.kind == "f" else "dates" for one in (values, points)]
    raise InputError(
        f"{name} of the training rows holds {kinds[0]}, and {what} {kinds[1]}; expected the same in both."
    )


RETURNED = "What the function among returned"


def said_by(among: Callable[..., Any], *given: Any, rows: str = "the training rows") -> Any:
    """Results of the user's own function for the training rows, and of a query where it takes one."""
    try:
        return among(*given)
    except AxilError:
        raise
    except Exception as error:  # the user's own function
        query = ", and of a query," if len(given) > 1 else ""
        raise InputError(
            f"among raised {type(error).__name__}: {shown(error, 200)}. Expected a function of {rows}{query} (a "
            f"{type(given[0]).__name__}) that returns a truth value for each training row."
        ) from error


def _mask(known: Columns, given: Any, what: str) -> BoolArray:
    """(N,): the training rows that are marked."""
    features = known.training[0]
    inputs.refuse_other_order(features, given, "among")
    return inputs.as_mask(given, features.shape[0], what)


def _codes(known: Columns, distinct: Any) -> IntArray | None:
    """(N,): a number for each label of the training rows; one of its own for a row without a label."""
    if distinct is None:
        return None
    if isinstance(distinct, str) or inputs.is_whole(distinct):
        distinct = known.of_all_training(known.chosen(distinct, "distinct")[0], "distinct")
    features = known.training[0]
    inputs.refuse_other_order(features, distinct, "distinct")
    return inputs.label_codes(distinct, features.shape[0], "distinct")


def _date(asof: Any, known: Columns) -> NDArray[Any]:
    """(1,): a date or a number, from itself or from its text."""
    expected = 'expected a date such as "2025-01-01", a number where the column holds numbers, or the name of a column of X'
    given = asof
    if isinstance(asof, str):
        try:
            given = np.datetime64(asof)
        except ValueError:
            raise InputError(
                f"asof is {shown(asof)}; {expected}.{meant(asof, known.names)}{known.hint}"
            ) from None
    try:
        point = inputs.as_points(np.array([given], dtype=object), "asof")
    except (InputError, OverflowError):
        point = np.array([np.nan])
    if not np.isfinite(point[0]):
        raise InputError(f"asof is {shown(asof)}; {expected}.")
    return point
