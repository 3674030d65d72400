"""Tables for reading in a terminal: numbers aligned, as many columns as there is room for."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from datetime import date
from typing import Any
from unicodedata import category

import numpy as np

from axil.errors import counted
from axil.report.wording import cell

GAP = "  "
DIGITS = 5  # of the largest number in a column
MOST_DECIMALS = 12
WIDEST_TEXT = 24
_TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # which way letters run
DEFAULT_WIDTH = 100  # where nobody is looking


def visible(text: str, kept: str = "") -> str:
    """The text with control characters written out, as in \\x1b: they could clear a screen or reverse letters."""
    return "".join(
        char if char in kept or not _is_control(char) else repr(char)[1:-1] for char in text
    )


def _is_control(char: str) -> bool:
    return category(char) in ("Cc", "Cs", "Zl", "Zp") or char in _TURNS


@dataclass(frozen=True)
class TextColumn:
    """A column of text, all of one width: numbers to the right, words to the left."""

    cells: list[str]  #: the name first

    @property
    def width(self) -> int:
        return len(self.cells[0])


def column(name: str, values: Any, signed: bool = False, above: str = "") -> TextColumn:
    """Values under a name, with ``above`` as a first cell; numbers have as many decimals as the largest needs."""
    values = np.asarray(values)
    numeric = values.dtype.kind in "biuf"
    made = (
        [digits(value) for value in values]
        if name.startswith("factor") and numeric
        else texts(values, signed)
    )
    name = visible(name)
    cells = [name, above, *made] if above else [name, *made]
    width = max(map(len, cells))
    return TextColumn([cell.rjust(width) if numeric else cell.ljust(width) for cell in cells])


def plain(value: Any) -> str:
    """A value as text; a date without hours where it has none."""
    return cell(value) if isinstance(value, (date, np.datetime64)) else str(value)


def texts(values: Any, signed: bool = False) -> list[str]:
    """Values as text: integers as they are, other numbers with the same number of decimals, words cut to a width."""
    values = np.asarray(values)
    if values.dtype.kind == "f":
        form = f"{'+' if signed else ''}.{decimals(values)}f"
        return ["-" if math.isnan(value) else format(float(value), form) for value in values]
    every = (
        values if values.dtype.kind == "M" else values.tolist()
    )  # which has no dates but numbers
    cut = (visible(plain(value)[: WIDEST_TEXT + 1]) for value in every)
    return [text if len(text) <= WIDEST_TEXT else text[: WIDEST_TEXT - 3] + "..." for text in cut]


def digits(value: float) -> str:
    """A number with `DIGITS` digits of its own: factors of groups go from 0.02 to 17,108."""
    whole = abs(value) >= 10.0 ** (DIGITS - 1)
    return "-" if math.isnan(value) else format(float(value), ".0f" if whole else f".{DIGITS}g")


def decimals(values: Any) -> int:
    """How many decimals show `DIGITS` digits of the largest number; none where all are whole and fit."""
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max(initial=0.0))
    if largest == 0.0 or (largest < 1e15 and bool(np.all(finite == np.floor(finite)))):
        return 0
    return min(max(DIGITS - 1 - math.floor(math.log10(largest)), 0), MOST_DECIMALS)


def fitted(columns: list[TextColumn], spared: tuple[str, ...] = ()) -> list[str]:
    """The lines of a table that fits the terminal, at least its first column; a last line says what did not.

    Where there is not room for all, columns whose names begin with one of ``spared`` go first, then the last ones.
    """
    kept, room = columns, shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    for word in spared:
        if sum(one.width + len(GAP) for one in kept) - len(GAP) > room:
            kept = [one for one in kept if not one.cells[0].strip().startswith(word)]
    ends = np.cumsum([one.width + len(GAP) for one in kept]) - len(GAP)
    kept = kept[: max(1, int((ends <= room).sum()))]
    made = [GAP.join(cells).rstrip() for cells in zip(*(one.cells for one in kept))]
    left = [one.cells[0].strip() for one in columns if not any(one is other for other in kept)]
    if left:
        named = f"{', '.join(left[:5])}{', ...' if len(left) > 5 else ''}"
        made.append(
            f"({counted(len(left), 'more column')} in a wider window or with --out: {named})"
        )
    return made
