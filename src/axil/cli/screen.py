"""Tables for reading in a terminal: numbers aligned, as many columns as there is room for."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from typing import Any
from unicodedata import category

import numpy as np

from axil.errors import counted

GAP = "  "
DIGITS = 5  # of the largest number in a column
MOST_DECIMALS = 12
WIDEST_TEXT = 24
_TURNS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # which way letters run
DEFAULT_WIDTH = 100  # where nobody is looking


def visible(text: str, kept: str = "") -> str:
    """The text with control characters written out, as in \\x1b: they could clear a screen or reverse letters."""
    return "".join(char if char in kept or not _is_control(char) else repr(char)[1:-1] for char in text)


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
    name = visible(name)
    cells = [name, above, *texts(values, signed)] if above else [name, *texts(values, signed)]
    width = max(map(len, cells))
    return TextColumn([cell.rjust(width) if numeric else cell.ljust(width) for cell in cells])


def texts(values: Any, signed: bool = False) -> list[str]:
    """Values as text: integers as they are, other numbers with the same number of decimals, words cut to a width."""
    values = np.asarray(values)
    if values.dtype.kind == "f":
        form = f"{'+' if signed else ''}.{decimals(values)}f"
        return ["-" if math.isnan(value) else format(float(value), form) for value in values]
    cut = (visible(str(value)[: WIDEST_TEXT + 1]) for value in values.tolist())
    return [text if len(text) <= WIDEST_TEXT else text[: WIDEST_TEXT - 3] + "..." for text in cut]


def decimals(values: Any) -> int:
    """How many decimals show `DIGITS` digits of the largest number; none where all are whole and fit."""
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max(initial=0.0))
    if largest == 0.0 or (largest < 1e15 and bool(np.all(finite == np.floor(finite)))):
        return 0
    return min(max(DIGITS - 1 - math.floor(math.log10(largest)), 0), MOST_DECIMALS)


def lines(columns: list[TextColumn], width: int | None = None) -> tuple[list[str], int]:
    """The lines of a table no wider than the terminal, and how many of the columns are in it; the first always is."""
    room = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns if width is None else width
    shown, used = 0, 0
    for one in columns:
        used += one.width + (len(GAP) if shown else 0)
        if shown and used > room:
            break
        shown += 1
    return [GAP.join(cells).rstrip() for cells in zip(*(one.cells for one in columns[:shown]))], shown


def fitted(columns: list[TextColumn]) -> list[str]:
    """The lines of a table that fits the terminal; a last one says what did not."""
    made, shown = lines(columns)
    left = [one.cells[0].strip() for one in columns[shown:]]
    if left:
        named = f"{', '.join(left[:5])}{', ...' if len(left) > 5 else ''}"
        made.append(f"({counted(len(left), 'more column')} in a wider window or with --out: {named})")
    return made
