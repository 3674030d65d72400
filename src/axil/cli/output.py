"""Where an answer goes: one set of options, and one style, for every command."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from axil.cli import printed_answers, screen
from axil.cli.written import FORMS, Text, opened
from axil.errors import InputError, counted
from axil.inputs import as_count, as_file

MOST_ON_SCREEN = 20  # predictions, or lines of a table; files and the other forms have them all
PAGES = (".html", ".htm")


@dataclass(frozen=True)
class AnswerWords:
    """The lines around an answer: the proof before it, what it is about, and what its numbers are."""

    proof: str
    title: str
    note: str
    left: int = 0  #: predictions that the screen does not show
    called: str = "line"  #: what each line of the table is
    about: str = ""  #: what these are of


@dataclass(frozen=True)
class Output:
    """Where the user wants an answer, checked before any work."""

    out: Any  #: standard output
    form: str | None = (
        None  #: of what is printed: "table", "csv" or "json"; None: only where the answer is
    )
    table: Path | None = None  #: the file for it
    page: Path | None = None
    quiet: bool = False

    @property
    def whole(self) -> bool:
        """Whether more is wanted than the screen shows."""
        return self.table is not None or self.page is not None or self.form in ("csv", "json")

    @property
    def wants_table(self) -> bool:
        return self.table is not None or self.form is not None

    def give(
        self,
        parts: Iterable[Any],
        words: AnswerWords,
        shown: Callable[[Any], list[str]] | None = None,
        printed: Any = None,
    ) -> int:
        """Write the parts of a table to the file, print them in the form asked for, and give the exit code.

        ``shown`` makes lines for the screen from the first ones of the table. ``printed`` is what is printed, where that is not
        the table that the file has.
        """
        first, lines = printed, 0
        text = (
            Text(self.out, "csv" if self.form == "csv" else "jsonl")
            if self.form in ("csv", "json")
            else None
        )
        with nullcontext() if self.table is None else opened(self.table) as file:
            for part in parts if self.wants_table else ():
                for writer in (file, text if printed is None else None):
                    if writer is not None:
                        writer.add(part)
                first = part.head(MOST_ON_SCREEN) if first is None else first
                lines += len(part)
        if text is not None:
            if printed is not None:
                text.add(printed)
            return 0
        answer = (lines_of if shown is None else shown)(first) if self.form == "table" else []
        left, what = words.left, "more prediction"
        if shown is None and printed is None and self.table is None:
            left, what = lines - MOST_ON_SCREEN, "more line"
        has = (
            " may have some: --out FILE or --format csv lists them"
            if first is not None and not len(first)
            else ""
        )
        more = (
            [f"{counted(left, what)}{has or ': --out FILE or --format csv has them all'}."]
            if left > 0
            else []
        )
        if self.table is not None:
            more.append(
                f"{counted(lines, words.called)}{words.about} {'is' if lines == 1 else 'are'} in {self.table}."
            )
        if self.page is not None:
            more.append(f"The page is in {self.page}.")
        self.say([words.proof, words.title], answer, more, [words.note])
        return 0

    def say(self, before: list[str], answer: Sequence[str] = (), *after: list[str]) -> None:
        """Print an answer and, unless nobody wants to read them, the lines around it; a blank line is between the two."""
        texts = [] if self.quiet else [before, *after]
        around = [[screen.visible(line, kept="\n") for line in part if line] for part in texts]
        paragraphs = [part for part in (*around[:1], answer, *around[1:]) if part]
        if paragraphs:
            print("\n\n".join("\n".join(part) for part in paragraphs), file=self.out)


def lines_of(
    table: Any, spared: tuple[str, ...] = (), more: Iterable[screen.TextColumn] = ()
) -> list[str]:
    """The lines of a table on the screen; ``spared`` are columns that others need the room of, ``more`` further ones."""
    columns = [
        screen.column(name, table[name].to_numpy(), printed_answers.is_signed(name))
        for name in table.columns
    ]
    return screen.fitted([*columns, *more], spared)


def output_of(arguments: argparse.Namespace, out: Any, page: bool = False) -> Output:
    """The output that the options ask for; raises where the answer cannot go there. ``page``: whether there is one of it."""
    if getattr(arguments, "top", None) is not None:
        as_count(arguments.top, "--top")
    if arguments.out is None:
        return Output(out, arguments.format or "table", quiet=arguments.quiet)
    path, suffix = as_file(arguments.out, "--out"), Path(arguments.out).suffix.lower()
    if suffix in FORMS:
        return Output(out, arguments.format, table=path, quiet=arguments.quiet)
    if suffix in PAGES and page:
        return Output(out, arguments.format, page=path, quiet=arguments.quiet)
    known = [".csv", ".parquet", ".json", ".jsonl", *([".html"] if page else [])]
    said = f"--out is {arguments.out}; expected a file that ends in {', '.join(known[:-1])} or {known[-1]}."
    raise InputError(
        f"{said} Pages are written by explain, group and intervals, and by report."
        if suffix in PAGES
        else said
    )
