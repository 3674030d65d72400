"""Where an answer goes: one set of options, and one style, for every command."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from axil.cli import answers, screen
from axil.cli.written import Text, Writer, write_parts
from axil.errors import InputError, counted
from axil.inputs import as_count, as_file

MOST_ON_SCREEN = 20  # predictions, or lines of a table; files and the other forms have them all
FORMS = {".csv": "csv", ".json": "json", ".jsonl": "jsonl", ".parquet": "parquet", ".pq": "parquet"}
MORE = "{}: --out FILE or --format csv has them all."
PAGES = (".html", ".htm")


@dataclass(frozen=True)
class AnswerWords:
    """The lines around an answer: the proof before it, what it is about, and what its numbers are."""

    proof: str
    title: str
    note: str
    more: str = ""  #: what the screen does not show
    called: str = "line"  #: what each line of the table is
    about: str = ""  #: what these are of


@dataclass(frozen=True)
class Output:
    """Where the user wants an answer, checked before any work."""

    out: Any  #: standard output
    form: str | None  #: of what is printed: "table", "csv" or "json"; None: only where the answer is
    tables: tuple[tuple[Path, str], ...]  #: files and their forms
    pages: tuple[Path, ...]
    quiet: bool

    @property
    def whole(self) -> bool:
        """Whether more is wanted than the screen shows."""
        return bool(self.tables or self.pages) or self.form in ("csv", "json")

    @property
    def wants_table(self) -> bool:
        return bool(self.tables) or self.form is not None

    def give(
        self,
        parts: Iterable[Any],
        words: AnswerWords,
        shown: Callable[[Any], list[str]] | None = None,
        printed: Any = None,
    ) -> int:
        """Write the parts of a table to the files, print them in the form asked for, and give the exit code.

        ``shown`` makes lines for the screen from the first ones of the table. ``printed`` is what is printed, where that is not
        the table that files have.
        """
        first = _First()
        text = Text(self.out, "csv" if self.form == "csv" else "jsonl") if self.form in ("csv", "json") else None
        also: list[Writer] = [first] if text is None or printed is not None else [text]
        lines = write_parts(parts, self.tables, also) if self.wants_table else 0
        if text is not None:
            if printed is not None:
                text.add(printed)
            return 0
        made = lines_of if shown is None else shown
        answer = made(first.table if printed is None else printed) if self.form == "table" else []
        left = lines - MOST_ON_SCREEN if shown is None and printed is None and not self.tables else 0
        held = f"{counted(lines, words.called)}{words.about}"
        places = [f"{held} {'is' if lines == 1 else 'are'} in {path}." for path, _ in self.tables]
        places += [f"The page is in {path}." for path in self.pages]
        more = [MORE.format(counted(left, "more line")) if left > 0 else "", words.more, *places]
        self.say([words.proof, words.title], answer, more, [words.note])
        return 0

    def say(self, before: list[str], answer: list[str], *after: list[str]) -> None:
        """Print an answer and, unless nobody wants to read them, the lines around it; a blank line is between the two."""
        texts = [] if self.quiet else [before, *after]
        around = [[screen.visible(line, kept="\n") for line in part if line] for part in texts]
        paragraphs = [part for part in (*around[:1], answer, *around[1:]) if part]
        if paragraphs:
            print("\n\n".join("\n".join(part) for part in paragraphs), file=self.out)


class _First:
    """The first lines of a table, for the screen."""

    table: Any = None

    def add(self, table: Any) -> None:
        if self.table is None:
            self.table = table.head(MOST_ON_SCREEN)


def lines_of(table: Any, spared: tuple[str, ...] = ()) -> list[str]:
    """The lines of a table on the screen; ``spared`` are columns that others need the room of."""
    columns = [screen.column(name, table[name].to_numpy(), answers.is_signed(name)) for name in table.columns]
    return screen.fitted(columns, spared)


def output_of(arguments: argparse.Namespace, out: Any, page: bool = False) -> Output:
    """The output that the options ask for; raises where the answer cannot go there. ``page``: whether there is one of it."""
    if getattr(arguments, "top", None) is not None:
        as_count(arguments.top, "--top")
    tables, pages = [], []
    if arguments.out is not None:
        path, suffix = as_file(arguments.out, "--out"), Path(arguments.out).suffix.lower()
        if suffix in FORMS:
            tables.append((path, FORMS[suffix]))
        elif suffix in PAGES and page:
            pages.append(path)
        else:
            raise InputError(_endings(arguments.out, suffix in PAGES, page))
    form = arguments.format or ("table" if arguments.out is None else None)
    return Output(out, form, tuple(tables), tuple(pages), arguments.quiet)


def _endings(given: str, is_page: bool, page: bool) -> str:
    known = [".csv", ".parquet", ".json", ".jsonl", *([".html"] if page else [])]
    said = f"--out is {given}; expected a file that ends in {', '.join(known[:-1])} or {known[-1]}."
    return f"{said} Pages are written by explain, group and intervals, and by report." if is_page else said
