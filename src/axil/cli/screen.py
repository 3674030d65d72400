"""Tables for reading in a terminal: aligned numbers, and as many columns as fit."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING
from unicodedata import category

import numpy as np
from numpy.typing import ArrayLike

from axil.arrays import FloatArray
from axil.errors import counted
from axil.report.wording import cell

if TYPE_CHECKING:
    import pandas as pd

GAP = "  "
DIGITS = 5  # of the largest number in a column
MOST_DECIMALS = 12
WIDEST_TEXT = 24
DEFAULT_WIDTH = 100  # where the output is no terminal
CONTROL_CATEGORIES = ("Cc", "Cs", "Zl", "Zp")
DIRECTION_MARKS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
# Beginnings of the names of columns that show their signs, such as "contribution (log)"
SIGNED = ("weight", "contribution", "gradient", "gain", "change", "residual", "studentised")


def visible(text: str, allowed: str = "") -> str:
    """Return the text with control characters written out, as in \\x1b.

    They could clear a screen or reverse letters. Characters in ``allowed`` stay.
    """
    characters = []
    for character in text:
        is_control = category(character) in CONTROL_CATEGORIES or character in DIRECTION_MARKS
        if is_control and character not in allowed:
            characters.append(repr(character)[1:-1])
        else:
            characters.append(character)
    return "".join(characters)


@dataclass(frozen=True)
class TextColumn:
    """A column of cells of one width: numbers to the right, words to the left."""

    cells: list[str]  #: the name first

    @property
    def width(self) -> int:
        """Return the number of characters of each cell."""
        return len(self.cells[0])

    @property
    def name(self) -> str:
        """Return the name of the column."""
        return self.cells[0].strip()


def text_column(name: str, values: ArrayLike, first_cell: str = "") -> TextColumn:
    """Return values under a name, below ``first_cell`` if there is one."""
    values = np.asarray(values)
    is_numeric = values.dtype.kind in "biuf"
    if is_numeric and name.startswith("factor"):
        cells = [with_own_digits(value) for value in values]
    else:
        cells = as_texts(values, is_signed=name.startswith(SIGNED))
    if first_cell:
        cells.insert(0, first_cell)
    cells.insert(0, visible(name))
    width = max(map(len, cells))
    if is_numeric:
        return TextColumn([text.rjust(width) for text in cells])
    return TextColumn([text.ljust(width) for text in cells])


def plain(value: object) -> str:
    """Return a value as text; a date without hours where it has none."""
    if isinstance(value, (date, np.datetime64)):
        return str(cell(value))
    return str(value)


def as_texts(values: ArrayLike, is_signed: bool = False) -> list[str]:
    """Return values as text: floats with the same number of decimals, words cut to a width."""
    values = np.asarray(values)
    if values.dtype.kind == "f":
        if is_signed:
            sign = "+"
        else:
            sign = ""
        form = f"{sign}.{n_decimals(values)}f"
        return ["-" if math.isnan(value) else format(float(value), form) for value in values]
    # tolist() makes numbers of dates
    if values.dtype.kind == "M":
        items: Iterable[object] = values
    else:
        items = values.tolist()
    texts = []
    for item in items:
        text = visible(plain(item)[: WIDEST_TEXT + 1])
        if len(text) > WIDEST_TEXT:
            text = text[: WIDEST_TEXT - 3] + "..."
        texts.append(text)
    return texts


def with_own_digits(value: float) -> str:
    """Return a number with `DIGITS` digits; factors of groups go from 0.02 to 17,108."""
    if math.isnan(value):
        return "-"
    is_large = abs(value) >= 10.0 ** (DIGITS - 1)
    return format(float(value), ".0f" if is_large else f".{DIGITS}g")


def n_decimals(values: FloatArray) -> int:
    """Return how many decimals show `DIGITS` digits of the largest number; 0 for whole numbers."""
    finite_values = np.abs(values[np.isfinite(values)])
    largest = float(finite_values.max(initial=0.0))
    are_whole = bool(np.all(finite_values == np.floor(finite_values)))
    if largest == 0.0 or (largest < 1e15 and are_whole):
        return 0
    return min(max(DIGITS - 1 - math.floor(math.log10(largest)), 0), MOST_DECIMALS)


def table_lines(
    table: pd.DataFrame, first_to_go: Sequence[str] = (), further_columns: Iterable[TextColumn] = ()
) -> list[str]:
    """Return the lines of a table that fits the terminal.

    Parameters
    ----------
    table : pandas.DataFrame
        The rows to show.
    first_to_go : sequence of str
        Beginnings of the names of columns that give way in a narrow window, in this order.
    further_columns : iterable of TextColumn
        Columns to the right of the table.
    """
    columns = [text_column(name, table[name].to_numpy()) for name in table.columns]
    return fitted_lines([*columns, *further_columns], first_to_go)


def fitted_lines(columns: Sequence[TextColumn], first_to_go: Sequence[str] = ()) -> list[str]:
    """Return the lines of as many columns as fit; a last line names those that do not."""
    room = shutil.get_terminal_size((DEFAULT_WIDTH, 24)).columns
    visible_columns = list(columns)
    for prefix in first_to_go:
        width = sum(column.width + len(GAP) for column in visible_columns) - len(GAP)
        if width > room:
            visible_columns = [
                column for column in visible_columns if not column.name.startswith(prefix)
            ]
    ends = np.cumsum([column.width + len(GAP) for column in visible_columns]) - len(GAP)
    visible_columns = visible_columns[: max(1, int((ends <= room).sum()))]
    rows = zip(*(column.cells for column in visible_columns))
    lines = [GAP.join(cells).rstrip() for cells in rows]
    shown_ids = {id(column) for column in visible_columns}
    hidden_names = [column.name for column in columns if id(column) not in shown_ids]
    if hidden_names:
        names = ", ".join(hidden_names[:5]) + (", ..." if len(hidden_names) > 5 else "")
        n_hidden = counted(len(hidden_names), "more column")
        lines.append(f"({n_hidden} in a wider window or with --out: {names})")
    return lines
