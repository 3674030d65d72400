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
from axil.output.near_rules import (
    NearRule,
    PlaceRule,
    RangeRule,
    Wording,
    place_rule,
    points_of_column,
)
from axil.output.shown_columns import Columns
from axil.reductions.choice import Allowed, Choice, packed

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
RETURNED = "What the function among returned"


def as_at_least(at_least: object, k: int) -> int:
    """Check how many rows must be listed beside each row; 1 for None."""
    if at_least is None:
        return 1
    count = inputs.as_count(at_least, "at_least")
    if count > k:
        raise InputError(
            f"at_least is {count}, and k is {k}: no more than k rows are listed. Raise k, or lower "
            "at_least."
        )
    return count


@dataclass(frozen=True, eq=False)
class Rules:
    """The conditions on the training rows that may be listed; see `similar`."""

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

    def choice(
        self, columns_of_rows: Columns, k: Any, n_threads: int = 1
    ) -> tuple[Choice, Allowed]:
        """Return how rows are chosen, and which of them may be."""
        count = inputs.as_count(k, "k")
        near = []
        values = []
        for rule in self.near(columns_of_rows):
            columns = [columns_of_rows.of_all_training(column, "within") for column in rule.columns]
            values.append(rule.measure.values(columns))
            near.append(rule.nearness([column.dtype for column in columns]))
        codes = _codes(columns_of_rows, self.distinct)
        everywhere = self._everywhere(columns_of_rows)
        allowed = Allowed(everywhere, self._by_query(columns_of_rows), codes, codes, tuple(values))
        return Choice(count, False, codes is not None, tuple(near), n_threads), allowed

    # -- among -------------------------------------------------------------------------------------

    @property
    def is_by_query(self) -> bool:
        """Whether ``among`` is a function that needs two arguments.

        They are the training rows and an explained row.
        """
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

    def _everywhere(self, columns: Columns) -> IntArray | None:
        """Return the positions of the training rows that may be listed beside any row.

        None stands for all rows.
        """
        mask = None
        if self.dropped is not None:
            mask = ~self.dropped
        if self.among is not None and not self.is_by_query:
            among = self.among
            name = "among"
            if callable(among):
                among = said_by(among, columns.training_rows())
                name = RETURNED
            allowed = _mask(columns, among, name)
            if mask is None:
                mask = allowed
            else:
                mask = mask & allowed
        if mask is None:
            return None
        return np.flatnonzero(mask)

    def _by_query(self, columns: Columns) -> NDArray[np.uint8] | None:
        """Return the bits (n, rows / 8) of the training rows that may be listed beside each row.

        None stands for all rows.
        """
        if not self.is_by_query:
            return None
        rows = columns.training_rows()
        masks = (
            _mask(columns, said_by(self.among, rows, query), RETURNED)
            for query in columns.each_query()
        )
        return packed(masks, columns.training[0].shape[0])

    # -- within and asof ---------------------------------------------------------------------------

    def near(self, table_columns: Columns) -> list[NearRule]:
        """Return the rules of ``within`` and ``asof``; the first one is that of ``asof``."""
        rules: list[NearRule] = []
        for number, (columns, distance) in enumerate(self._pairs()):
            is_before = self.asof is not None and number == 0
            if isinstance(columns, (tuple, list)) and len(columns) == 2 and not is_before:
                rules.append(place_rule(table_columns, columns, distance))
            else:
                rules.append(self._range_rule(table_columns, columns, distance, is_before))
        return rules

    def dated(self, columns: Columns) -> RangeRule | None:
        """Return the rule with the date of the estimates, if there is one."""
        for rule in self.near(columns):
            if isinstance(rule, RangeRule) and (rule.is_before or rule.points.dtype.kind == "M"):
                return rule
        return None

    def place(self, columns: Columns) -> PlaceRule | None:
        """Return the rule on the distance between places, if there is one."""
        for rule in self.near(columns):
            if isinstance(rule, PlaceRule):
                return rule
        return None

    def texts(self, known: Columns, words: Wording, among_text: str = "") -> list[str]:
        """Return the rules in words, for tables and pages.

        Parameters
        ----------
        known : Columns
        words : Wording
        among_text : str
            What ``among`` allows, in the user's words.
        """
        texts = [rule.text(words) for rule in self.near(known)]
        if self.among is not None:
            texts.append(among_text or "chosen beforehand")
        if isinstance(self.distinct, str) or inputs.is_whole(self.distinct):
            column = known.names[known.chosen(self.distinct, "distinct")[0]]
            texts.append(f"one for each {words.name(column)}")
        elif self.distinct is not None:
            texts.append("one for each label")
        return [text for text in texts if text]

    def _pairs(self) -> list[tuple[Any, Any]]:
        """Return each rule of ``within`` as its columns and its distance; None stands for any."""
        within = self.within
        if within is None and self.asof is None:
            return []
        if _is_pair(within):
            return [tuple(within)]
        if self.asof is not None and _is_column(within):
            return [(within, None)]
        if not isinstance(within, (tuple, list)) or not within:
            raise self._not_rules(within)
        pairs: list[tuple[Any, Any]] = []
        for rule in within:
            if self.asof is not None and not pairs and _is_column(rule):
                pairs.append((rule, None))
            elif _is_pair(rule):
                pairs.append(tuple(rule))
            else:
                raise self._not_rules(within)
        return pairs

    def _not_rules(self, within: object) -> InputError:
        """Return the error for a value of ``within`` that holds no rules."""
        alternative = ""
        if self.asof is not None:
            alternative = ', or with asof the column alone, such as "sale_date"'
        return InputError(
            f'within is {shown(within)}; expected a column and a distance, such as ("sale_date", '
            f'"3Y"){alternative}, two columns of places and a length, such as (("lat", "lon"), '
            '"5 km"), or a list of such pairs.'
        )

    def _range_rule(
        self, columns: Columns, column: Any, distance: Any, is_before: bool
    ) -> RangeRule:
        """Return the rule of one column."""
        if column is None:
            places = []
        else:
            places = columns.chosen(column, "within")
        if len(places) != 1:
            raise InputError(f"within names {shown(column)}; expected one column.")
        place = places[0]
        is_literal = False
        if not is_before:
            points, source, dtype = points_of_column(columns, place, "within")
        elif isinstance(self.asof, str) and self.asof in columns.names:
            points, source, dtype = points_of_column(
                columns, columns.names.index(self.asof), "asof"
            )
        else:
            point = _date(self.asof, columns)
            points = np.repeat(point, columns.queries[0].shape[0])
            source = "asof"
            dtype = point.dtype
            is_literal = True
        return RangeRule(
            (place,), columns.names[place], distance, points, source, dtype, is_before, is_literal
        )


def _is_column(value: object) -> bool:
    """Whether a value is the name or the position of a column."""
    return isinstance(value, str) or inputs.is_whole(value)


def _is_pair(rule: Any) -> bool:
    """Whether a value is a column, or two, and a distance."""
    if not isinstance(rule, (tuple, list)) or len(rule) != 2:
        return False
    return not isinstance(rule[1], (tuple, list))


def said_by(among: Callable[..., Any], *arguments: Any, rows: str = "the training rows") -> Any:
    """Call the function ``among``, with an explained row if it takes one."""
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
            f"among raised {type(error).__name__}: {shown(error, 200)}. Expected a function of "
            f"{rows}{query} (a {type(arguments[0]).__name__}) that returns a truth value for each "
            "training row."
        ) from error


def _mask(columns: Columns, mask: Any, parameter: str) -> BoolArray:
    """Check a mask of the training rows (N,)."""
    features = columns.training[0]
    inputs.refuse_other_order(features, mask, "among")
    return inputs.as_mask(mask, features.shape[0], parameter)


def _codes(columns: Columns, distinct: Any) -> IntArray | None:
    """Return a number for each label of the training rows (N,); rows without a label differ."""
    if distinct is None:
        return None
    if isinstance(distinct, str) or inputs.is_whole(distinct):
        place = columns.chosen(distinct, "distinct")[0]
        distinct = columns.of_all_training(place, "distinct")
    features = columns.training[0]
    inputs.refuse_other_order(features, distinct, "distinct")
    return inputs.label_codes(distinct, features.shape[0], "distinct")


def _date(asof: Any, columns: Columns) -> AnyArray:
    """Return a date or a number (1,), from itself or from its text."""
    expected = (
        'expected a date such as "2025-01-01", a number where the column holds numbers, or the '
        "name of a column of X"
    )
    value = asof
    if isinstance(asof, str):
        try:
            value = np.datetime64(asof)
        except ValueError:
            raise InputError(
                f"asof is {shown(asof)}; {expected}.{suggestion(asof, columns.names)}{columns.hint}"
            ) from None
    try:
        point = inputs.as_points(np.array([value], dtype=object), "asof")
    except (InputError, OverflowError):
        point = np.array([np.nan])
    if not np.isfinite(point[0]):
        raise InputError(f"asof is {shown(asof)}; {expected}.")
    return point
