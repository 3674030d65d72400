"""The page of one prediction.

It shows the prediction's value, the rows that carry it, how each differs, and how sure it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axil.output import site_map
from axil.report.content import RAISED, Cases
from axil.report.grid import grid_tables
from axil.report.wording import Words, difference, percent, row_name
from axil.templates import render as render_template

SHORT_TEXT = 14  # letters of a cell that stay on one line on a screen
SHORT_WORD = 28  # letters of one word, such as a hyphenated label, that stay on one line
FAR_RATIO = 2.0  # adjusted targets this many times above or below the estimate get a warning
LEAST_ALIKE = 1 / 3  # rows that share fewer leaves get a caution
NEAR_SHARE = 0.05  # of the estimate; the mean of the adjusted targets needs no note within it


@dataclass(frozen=True)
class TableCell:
    """A cell of the table, with a difference from the explained row or a warning below its text."""

    text: str = ""
    difference: str = ""
    warning: str = ""
    label: str = ""  #: beside the text on narrow screens, in place of the column's head

    @property
    def css_class(self) -> str:
        """The class of cells that are short enough to stay on one line."""
        if len(self.text) <= SHORT_WORD and " " not in self.text:
            return "n"
        if len(self.text) <= SHORT_TEXT:
            return "s"
        return ""


@dataclass(frozen=True)
class TableColumn:
    """A column of the table."""

    head: str
    is_number: bool  #: whether its cells are numbers, which are right-aligned


@dataclass(frozen=True)
class TableRow:
    """A row of the table; the explained row and the mean are highlighted."""

    cells: list[tuple[TableColumn, TableCell]]
    is_highlighted: bool = False


@dataclass(frozen=True)
class ComparablesTable:
    """The table of the listed rows, below the explained row."""

    columns: list[TableColumn]
    rows: list[TableRow]


def render(cases: Cases, i: int, name: str, words: Words, level_words: str, index: str) -> str:
    """Return the whole page of one prediction.

    Parameters
    ----------
    cases : Cases
        The batch that holds the prediction.
    i : int
        The position of the prediction in the batch.
    name : str
        The label of the explained row.
    words : Words
        The names of things on the page.
    level_words : str
        The confidence level of the interval in words, such as "9 of 10".
    index : str
        The relative address of the index.
    """
    lines = cases.lines(i)
    has_lines = len(lines) > 0
    return render_template(
        "report/case.html",
        name=name,
        words=words,
        date=_estimate_date(cases, i, words),
        estimate=words.amount(cases.values[i]),
        interval=_interval(cases, i, words),
        level_words=level_words,
        retraining=_retraining(cases, i, words),
        by_similarity=cases.similarity is not None,
        listed_rows=_listed_rows_note(cases, i, words),
        rules="; ".join(cases.extras.rule_texts),
        table=_table(cases, i, words) if has_lines else None,
        mean_note=_mean_note(cases, i, words) if has_lines else "",
        grids=grid_tables(cases, i, words),
        grid_note=_grid_note(cases, words),
        approximate=cases.extras.approximate,
        column_notes=_column_notes(cases, lines, words) if has_lines else "",
        map=_map(cases, i, lines, words) if has_lines else None,
        index=index,
    )


def _estimate_date(cases: Cases, i: int, words: Words) -> str:
    """Return the date of the estimate, or "" where none is known."""
    if cases.extras.dates is None:
        return ""
    return words.cell(cases.extras.dates[cases.positions[i]])


def _interval(cases: Cases, i: int, words: Words) -> tuple[str, str] | None:
    """Return the lower and upper end of the interval, or None without intervals."""
    if cases.interval is None:
        return None
    lower, upper = cases.interval
    return words.amount(lower[i]), words.amount(upper[i])


def _retraining(cases: Cases, i: int, words: Words) -> str:
    """Return the sentence on how far retraining moves the estimate, or "" without refits."""
    if cases.extras.stability is None:
        return ""
    spread = cases.extras.stability[cases.positions[i]]
    return f"{words.amount(spread, cases.values[i])}{_share_of(spread, cases.values[i])}"


def _share_of(change: float, value: float) -> str:
    """Return a change as a percentage of a value in brackets, or "" for a value of zero."""
    if not value:
        return ""
    return f" ({percent(abs(change / value))})"


def _listed_rows_note(cases: Cases, i: int, words: Words) -> str:
    """Return sentences on the listed rows, and on their effect on the estimate."""
    n_listed = len(cases.lines(i))
    n_train = cases.extras.n_train
    note = f"The model makes this estimate from {n_train:,} {words.rows}. "
    if not n_listed:
        return f"{note}None of these {words.rows} meets the conditions."
    if n_listed < cases.extras.at_least:
        note += (
            f"Of these, {n_listed} may be listed by the conditions, fewer than the "
            f"{cases.extras.at_least} that are wanted. "
        )
    if cases.similarity is None:
        listed = f"are the {n_listed} that count most"
        if n_listed == 1:
            listed = "is the one that counts most"
    else:
        listed = f"are the {n_listed} most like this {words.query}"
        if n_listed == 1:
            listed = f"is the one most like this {words.query}"
    note += f"Listed {listed}"
    if cases.extras.is_restricted:
        note += " of those that may be shown"
    note += "."
    if cases.similarity is not None and cases.similarity[cases.lines(i)].max() < LEAST_ALIKE:
        note += f" None of them is very like it: take their {words.target}s with caution."
    return note + _effect_note(cases, i, words)


def _effect_note(cases: Cases, i: int, words: Words) -> str:
    """Return a sentence on the joint effect of the listed rows, or "" if it is not known."""
    change = cases.joint_effects[i]
    value = cases.values[i]
    if np.isnan(change):
        return ""
    n_listed = len(cases.lines(i))
    n_train = cases.extras.n_train
    targets = f"its {words.target}"
    if n_listed > 1:
        targets = f"the {words.target} of each of them"
    direction = "lower"
    if change >= 0:
        direction = "higher"
    amount = f"{words.amount(abs(change), value)}{_share_of(change, value)}"
    note = (
        f" If {targets} had been {percent(RAISED)} higher, the estimate would be {amount} "
        f"{direction}"
    )
    if n_train > n_listed:
        return f"{note}; the other {n_train - n_listed:,} make the rest of it."
    return f"{note}."


def _table(cases: Cases, i: int, words: Words) -> ComparablesTable:
    """Return the table of the listed rows, largest first.

    It has the mean of their adjusted targets.
    """
    lines = cases.lines(i)
    heads = [
        words.rows.capitalize(),
        words.target.capitalize(),
        f"Adjusted to this {words.query}",
        "Effect of 10 % more",
    ]
    if cases.similarity is not None:
        heads.append("Alike")
    if cases.maps is not None:
        heads.append("Distance")
    columns = [TableColumn(head, True) for head in heads]
    columns[0] = TableColumn(heads[0], False)
    for name, is_number in zip(cases.extras.names, _are_numbers(cases)):
        columns.append(TableColumn(words.name(name), is_number))
    estimate = TableCell(words.amount(cases.values[i]), label="Estimate")
    features = _explained_features(cases, i, words)
    empty = [TableCell() for _ in heads[3:]]
    explained = [TableCell(f"This {words.query}"), TableCell(), estimate, *empty, *features]
    rows = [TableRow(list(zip(columns, explained)), is_highlighted=True)]
    for rank, line in enumerate(lines):
        listed = _listed_row(cases, i, rank, line, words)
        rows.append(TableRow(list(zip(columns, listed))))
    if len(lines) > 1:
        mean = words.amount(cases.adjusted[lines.start : lines.stop].mean())
        label = TableCell(f"Mean of these {len(lines)}")
        empty = [TableCell() for _ in columns[3:]]
        means = [label, TableCell(), TableCell(mean), *empty]
        rows.append(TableRow(list(zip(columns, means)), is_highlighted=True))
    return ComparablesTable(columns, rows)


def _are_numbers(cases: Cases) -> list[bool]:
    """Return for each column of the rows whether it holds numbers; years stand like words."""
    are_numbers = []
    columns = zip(cases.row_columns, cases.query_columns, cases.extras.commas_from)
    for row_column, query_column, commas_from in columns:
        column = row_column
        if row_column is None:
            column = query_column
        is_number = column is not None and column.dtype.kind in "iuf"
        are_numbers.append(is_number and commas_from < np.inf)
    return are_numbers


def _explained_features(cases: Cases, i: int, words: Words) -> list[TableCell]:
    """Return the columns of the explained row."""
    cells = []
    for column, commas_from in zip(cases.query_columns, cases.extras.commas_from):
        if column is None:
            cells.append(TableCell())
        else:
            cells.append(TableCell(words.cell(column[i], commas_from)))
    return cells


def _listed_row(cases: Cases, i: int, rank: int, line: int, words: Words) -> list[TableCell]:
    """Return the cells of one listed row; ``rank`` counts from zero."""
    if cases.is_suspect[line]:
        suspicion = f"{words.target} looks wrong"
    else:
        suspicion = ""
    cells = [
        TableCell(f"{rank + 1}.\u00a0{row_name(cases.rows[line])}", warning=suspicion),
        TableCell(words.amount(cases.targets[line])),
        TableCell(words.amount(cases.adjusted[line]), warning=_distance_warning(cases, i, line)),
        TableCell(words.change(cases.effects[line], cases.values[i])),
    ]
    if cases.similarity is not None:
        cells.append(_similarity_cell(cases.similarity[line]))
    if cases.maps is not None:
        distance = cases.maps.away[i, rank]
        cells.append(TableCell(site_map.distance_text(distance, cases.maps.unit)))
    for row_column, query_column, commas_from in zip(
        cases.row_columns, cases.query_columns, cases.extras.commas_from
    ):
        if row_column is None:
            cells.append(TableCell())
            continue
        gap = ""
        if query_column is not None:
            gap = difference(row_column[line], query_column[i], commas_from)
        cells.append(TableCell(words.cell(row_column[line], commas_from), gap))
    return cells


def _similarity_cell(similarity: float) -> TableCell:
    """Return the share of steps in which two rows are alike, with a caution where it is small."""
    caution = ""
    if similarity < LEAST_ALIKE:
        caution = "hardly alike"
    return TableCell(percent(similarity), warning=caution)


def _distance_warning(cases: Cases, i: int, line: int) -> str:
    """Return a warning for an adjusted target that is far from the estimate, else ""."""
    if not cases.values[i]:
        return ""
    ratio = cases.adjusted[line] / cases.values[i]
    if ratio > FAR_RATIO:
        return "more than twice the estimate"
    if ratio < 1 / FAR_RATIO:
        return "less than half the estimate"
    return ""


def _mean_note(cases: Cases, i: int, words: Words) -> str:
    """Return why the mean of the adjusted targets differs from the estimate; "" if it is near."""
    lines = cases.lines(i)
    adjusted = cases.adjusted[lines.start : lines.stop]
    value = float(cases.values[i])
    gap = adjusted.mean() - value
    if len(lines) < 2 or abs(gap) <= NEAR_SHARE * abs(value):
        return ""
    if gap > 0:
        side = "above"
    else:
        side = "below"
    note = f"The mean is {words.amount(abs(gap), value)} {side} the estimate"
    is_odd = np.array(
        [bool(cases.is_suspect[line] or _distance_warning(cases, i, line)) for line in lines]
    )
    if is_odd.any() and not is_odd.all():
        other_mean = adjusted[~is_odd].mean()
        if abs(other_mean - value) <= abs(gap) / 2:
            *numbers, last = [str(rank + 1) for rank in np.flatnonzero(is_odd)]
            reason = f"number {last}"
            them = "it"
            if numbers:
                reason = f"numbers {', '.join(numbers)} and {last}"
                them = "them"
            return (
                f"{note} because of {reason}; without {them} the mean is "
                f"{words.amount(other_mean)}."
            )
    if gap > 0:
        direction = "higher"
    else:
        direction = "lower"
    return (
        f"{note}: on average the {words.target} of these {len(lines)} {words.rows} is {direction} "
        "than the model expects of them. The estimate rests on all "
        f"{cases.extras.n_train:,} {words.rows}, not on these alone."
    )


def _column_notes(cases: Cases, lines: range, words: Words) -> str:
    """Return sentences that explain the columns of the table."""
    notes = (
        f"Adjusted: what its {words.target} would have been for this {words.query}, by the model. "
        f"Effect of 10 % more: how far this estimate would move if that {words.target} had been "
        "10 % higher."
    )
    if cases.similarity is not None:
        notes += f" Alike: in how many of its steps the model treats it like this {words.query}."
    pairs = zip(cases.query_columns, cases.row_columns)
    if any(query is not None and row is not None for query, row in pairs):
        notes += f" In brackets: the difference from this {words.query}."
    if any(cases.is_suspect[line] for line in lines):
        notes += (
            f" Looks wrong: the {words.target} is far from what the other {words.rows} lead one to "
            "expect. It may be a mistake in the records, or a case that is like no other."
        )
    if not cases.extras.are_targets_checked:
        notes += f" {words.not_checked}"
    return notes


def _grid_note(cases: Cases, words: Words) -> str:
    """Return sentences that explain the grid, or "" without one."""
    if cases.split is None:
        return ""
    note = (
        f"Each line says what the model adds to a {words.target}, or takes off it, because this "
        f"{words.query} differs there. The amounts of a column lead from its {words.target} to the "
        f"adjusted {words.target}; they are rounded. Net adjustment: their sum. Gross adjustment: "
        "their sum without signs, small lines one by one."
    )
    if cases.split.scale.is_log:
        note += " Amounts add up, and percentages multiply: each is the factor of its line."
    return note


def _map(cases: Cases, i: int, lines: range, words: Words) -> site_map.Drawing | None:
    """Return the map of the listed rows, or None without coordinates."""
    if cases.maps is None:
        return None
    titles = [row_name(cases.rows[line]) for line in lines]
    label = f"Map of this {words.query} and of {len(titles)} {words.rows}"
    places = cases.extras.places
    assert places is not None
    return site_map.drawing(cases.maps, i, titles, label, places, int(cases.positions[i]))
