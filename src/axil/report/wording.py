"""Write numbers, cells and names for people who know nothing about models."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from functools import cached_property
from typing import TypeGuard

import numpy as np

from axil.arrays import AnyArray
from axil.errors import InputError, shown

MINUS = "\u2212"
DASH = "\u2013"  # in place of a missing value
MAX_LETTERS = 200  # of a cell
FIRST_YEAR = 1500
LAST_YEAR = 2200  # a column of whole numbers between these two holds years
COMMAS_FROM = 1000.0  # numbers of a column have commas from here on


@dataclass(frozen=True)
class Words:
    """The names that a report gives to things."""

    title: str = "Estimate"  #: above every page
    target: str = "value"  #: the estimated quantity
    unit: str = ""  #: of the target: a sign of money goes in front
    rows: str = "records"  #: the training rows, in the plural
    query: str = "case"  #: one row of X
    #: of columns that pages call something else
    names: Mapping[str, str] = field(default_factory=dict)
    date_format: str = ""  #: of dates, as `datetime.strftime` takes it; "" for 2024-03-31

    def __post_init__(self) -> None:
        """Check that every name is text."""
        for name in ("title", "target", "unit", "rows", "query", "date_format"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"{name} is {shown(getattr(self, name))}; expected text.")
        is_text = isinstance(self.names, Mapping) and all(
            isinstance(column, str) and isinstance(name, str) for column, name in self.names.items()
        )
        if not is_text:
            raise InputError(
                f"names is {shown(self.names)}; expected a dict from columns to what people call "
                "them."
            )

    @property
    def not_checked(self) -> str:
        """A sentence for pages whose training targets nobody checked."""
        return (
            f"The {self.target}s on record were not checked. The option suspects of the report, "
            '"mark" or "drop", finds those that look wrong.'
        )

    def amount(self, value: float, beside: float | None = None) -> str:
        """Return a number with the unit of the target.

        Amounts of money have no cents from a hundred on. With ``beside`` the number has no more
        decimals than that one.
        """
        if not self._is_money or not math.isfinite(value):
            if beside is None:
                text = number(value)
            else:
                text = number_beside(value, beside)
            if not self.unit or not math.isfinite(value):
                return text
            return f"{text} {self.unit}"
        size = abs(value)
        if beside is not None and math.isfinite(beside):
            size = max(size, abs(beside))
        if size >= 100 or value == int(value):
            digits = 0
        else:
            digits = 2
        text = f"{abs(value):,.{digits}f}"
        is_zero = not text.strip("0.")
        if value < 0 and not is_zero:
            sign = MINUS
        else:
            sign = ""
        return f"{sign}{self.unit}{text}"

    @cached_property
    def _is_money(self) -> bool:
        """Whether the unit is a sign of money."""
        return bool(self.unit) and unicodedata.category(self.unit[0]) == "Sc"

    def change(self, value: float, beside: float) -> str:
        """Return a change as an amount with its sign."""
        text = self.amount(value, beside)
        is_shown_as_zero = not any(digit in text for digit in "123456789")
        if value > 0 and not is_shown_as_zero:
            return f"+{text}"
        return text

    def cell(self, value: object, commas_from: float = np.inf) -> str:
        """Return a value of a column as text of limited length, dates in the report's format."""
        if self.date_format and value == value:
            day = as_date(value)
            if day is not None:
                return day.strftime(self.date_format)
        return cell(value, commas_from)

    def name(self, column: str) -> str:
        """Return the name of a column on pages."""
        return self.names.get(column, column)


def number(value: float, commas_from: float = COMMAS_FROM) -> str:
    """Return a number as text: four digits, or a whole number from a thousand on."""
    if value != value:
        return DASH
    if abs(value) == np.inf:
        if value > 0:
            return "\u221e"
        return f"{MINUS}\u221e"
    if abs(value) >= 1000 or value == int(value):
        if abs(value) >= commas_from:
            text = f"{value:,.0f}"
        else:
            text = f"{value:.0f}"
    else:
        text = f"{value:.4g}"
        if "e" in text:
            text = f"{value:.1e}"
    return text.replace("-", MINUS)


def number_beside(value: float, other: float) -> str:
    """Return a number as text, rounded to a tenth of the last of the other number's four digits."""
    if not (math.isfinite(value) and math.isfinite(other) and other):
        return number(value)
    digits = max(0, 4 - math.floor(math.log10(abs(other))))
    if digits < 9:
        text = f"{value:,.{digits}f}"
    else:
        text = number(value)
    is_zero = not text.strip("-0.,")
    return text.replace("-", "" if is_zero else MINUS)


def commas_from(values: AnyArray | None) -> float:
    """Return the size from which numbers of a column have commas; years never have any."""
    if values is None or values.dtype.kind not in "iuf":
        return COMMAS_FROM
    finite = values[np.isfinite(values)]
    if not len(finite):
        return COMMAS_FROM
    is_in_range = finite.min() >= FIRST_YEAR and finite.max() <= LAST_YEAR
    if is_in_range and (finite == finite.round()).all():
        return np.inf
    return COMMAS_FROM


def shares(confidence_level: float) -> str:
    """Return a probability in everyday words: "9 of 10", "19 of 20", "93.5 of 100"."""
    for total in (10, 20, 100):
        count = round(confidence_level * total, 6)
        if count == int(count):
            return f"{count:.0f} of {total}"
    return f"{100 * confidence_level:.6g} of 100"


def percent(share: float) -> str:
    """Return a share as a percentage of at least two digits."""
    value = 100 * share
    if abs(value) >= 10:
        digits = 0
    elif abs(value) >= 1:
        digits = 1
    else:
        digits = 2
    return f"{value:.{digits}f}\u00a0%".replace("-", MINUS)


def row_name(value: object) -> str:
    """Return the label of a row as text; a number has no commas."""
    if _is_number(value) and value == value:
        if value == int(value):
            return str(int(value))
        return str(value)
    return cell(value)


def as_date(value: object) -> date | None:
    """Return a date, or a time, as the standard library has them; None for other values."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, date):
        return value
    return None


def cell(value: object, commas_from: float = COMMAS_FROM) -> str:
    """Return a value of a column as text of limited length."""
    if value is None or value != value:
        return DASH
    if isinstance(value, (bool, np.bool_)):
        if value:
            return "yes"
        return "no"
    if _is_number(value):
        return number(float(value), commas_from)
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, datetime) and not (value.hour or value.minute or value.second):
        value = value.date()
    if isinstance(value, datetime):
        text = value.isoformat(" ")
    elif isinstance(value, date):
        text = value.isoformat()
    else:
        text = str(value)
    if len(text) > MAX_LETTERS:
        return f"{text[: MAX_LETTERS - 1]}\u2026"
    return text


def difference(value: object, other: object, commas_from: float = COMMAS_FROM) -> str:
    """Return the difference of two values as text: "+12", "same", or "" if there is none."""
    if value is None or other is None or value != value or other != other:
        return ""
    if value == other:
        return "same"
    if not (_is_number(value) and _is_number(other)):
        return ""
    gap = float(value) - float(other)
    if gap > 0:
        sign = "+"
    else:
        sign = ""
    return f"{sign}{number(gap, commas_from)}"


def _is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number, and no truth value."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
