"""Words and numbers of a report, for people who know nothing of models."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.errors import InputError, shown

MINUS = "\u2212"
LONGEST = 200  # letters of a cell
YEARS = 1500, 2200  # a column of whole numbers between these holds years


@dataclass(frozen=True)
class Words:
    """How a report calls things."""

    title: str = "Estimate"  #: above every page
    target: str = "value"  #: what is estimated
    unit: str = ""  #: of the target: a sign of money goes in front
    rows: str = "records"  #: the training rows, in the plural
    query: str = "case"  #: one row of X
    names: Mapping[str, str] = field(
        default_factory=dict
    )  #: of columns, where they are to be called something else

    def __post_init__(self) -> None:
        """Refuse what is no text."""
        for name in ("title", "target", "unit", "rows", "query"):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"{name} is {shown(getattr(self, name))}; expected text.")
        own = self.names
        if not isinstance(own, Mapping) or not all(
            isinstance(x, str) for pair in own.items() for x in pair
        ):
            raise InputError(
                f"names is {shown(own)}; expected a dict from columns to what people call them."
            )

    def amount(self, value: float, beside: float | None = None) -> str:
        """A number in the unit of the target; of money from a hundred on without cents. ``beside``: one of as many decimals."""
        text = number(value) if beside is None else number_beside(value, beside)
        if not self.unit or not np.isfinite(value):
            return text
        if unicodedata.category(self.unit[0]) == "Sc":
            digits = 0 if abs(value) >= 100 or value == int(value) else 2
            text = f"{abs(value):,.{digits}f}"
            return f"{MINUS if value < 0 and text.strip('0.') else ''}{self.unit}{text}"
        return f"{text} {self.unit}"

    def change(self, value: float, beside: float) -> str:
        """A change of a number in the unit of the target, with its sign."""
        text = self.amount(value, beside)
        return f"+{text}" if value > 0 and any(sign in text for sign in "123456789") else text

    def name(self, column: str) -> str:
        """The name of a column on pages."""
        return self.names.get(column, column)


def number(value: float, plain: float = 1000.0) -> str:
    """A number for reading: whole from a thousand on, else of four digits; commas from ``plain`` on."""
    if value != value:
        return "\u2013"
    if abs(value) == np.inf:
        return "\u221e" if value > 0 else f"{MINUS}\u221e"
    whole = abs(value) >= 1000 or value == int(value)
    if not whole:
        text = f"{value:.4g}"
        text = text if "e" not in text else f"{value:.1e}"
    else:
        text = f"{value:,.0f}" if abs(value) >= plain else f"{value:.0f}"
    return text.replace("-", MINUS)


def number_beside(value: float, other: float) -> str:
    """A number for reading beside another one, which has four digits: to a tenth of its last."""
    if not (np.isfinite(value) and np.isfinite(other) and other):
        return number(value)
    digits = max(0, 4 - int(np.floor(np.log10(abs(other)))))
    text = f"{value:,.{digits}f}" if digits < 9 else number(value)
    return text.replace("-", MINUS if text.strip("-0.,") else "")


def commas_from(values: NDArray[Any] | None) -> float:
    """The number from which on those of a column have commas: a column of years has none."""
    if values is None or values.dtype.kind not in "iuf":
        return 1000.0
    known = values[np.isfinite(values)]
    years = (
        len(known)
        and YEARS[0] <= known.min()
        and known.max() <= YEARS[1]
        and (known == known.round()).all()
    )
    return np.inf if years else 1000.0


def shares(coverage: float) -> str:
    """A probability as people count it: "9 of 10", "19 of 20", "93.5 of 100"."""
    for of in (10, 20, 100):
        count = round(coverage * of, 6)
        if count == int(count):
            return f"{count:.0f} of {of}"
    return f"{100 * coverage:.6g} of 100"


def percent(share: float) -> str:
    """A share for reading, of two digits at least."""
    value = 100 * share
    digits = 0 if abs(value) >= 10 else 1 if abs(value) >= 1 else 2
    return f"{value:.{digits}f}\u00a0%".replace("-", MINUS)


def row_name(value: Any) -> str:
    """The name of a row, a number as it is written in records."""
    if (
        isinstance(value, (int, float, np.number))
        and not isinstance(value, bool)
        and value == value
    ):
        return str(int(value)) if value == int(value) else str(value)
    return cell(value)


def cell(value: Any, plain: float = 1000.0) -> str:
    """A value of a column; numbers have commas from ``plain`` on."""
    if value is None or value != value:
        return "\u2013"
    if isinstance(value, (bool, np.bool_)):
        return "yes" if value else "no"
    if isinstance(value, (int, float, np.number)):
        return number(float(value), plain)
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    if isinstance(value, datetime) and not (value.hour or value.minute or value.second):
        value = value.date()
    text = (
        value.isoformat(" ")
        if isinstance(value, datetime)
        else value.isoformat()
        if isinstance(value, date)
        else str(value)
    )
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}\u2026"


def difference(own: Any, queried: Any, plain: float = 1000.0) -> str:
    """How far a row's value is from the query's: "+12", "same", or nothing where that cannot be said."""
    if own is None or queried is None or own != own or queried != queried:
        return ""
    if own == queried:
        return "same"
    numbers = (int, float, np.integer, np.floating)
    if not (isinstance(own, numbers) and isinstance(queried, numbers)) or isinstance(
        own, (bool, np.bool_)
    ):
        return ""
    gap = float(own) - float(queried)
    return ("+" if gap > 0 else "") + number(gap, plain)
