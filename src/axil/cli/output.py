"""Where an answer goes: one set of options and one style of printing for every command."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from axil.cli.screen import table_lines, visible
from axil.cli.table_files import FORMATS, ParquetWriter, TextWriter, table_writer
from axil.errors import InputError, counted
from axil.inputs import as_file

if TYPE_CHECKING:
    import pandas as pd

MOST_ON_SCREEN = 20  # predictions, or lines of a table; files and the other formats have them all
PAGE_ENDINGS = (".html", ".htm")
PRINTED_FORMATS = {"csv": "csv", "json": "jsonl"}


@dataclass(frozen=True)
class AnswerText:
    """The lines around an answer."""

    verification: str  #: what the model is, and how well its replay agrees
    title: str = ""  #: what the answer is about
    note: str = ""  #: what its numbers mean
    n_hidden: int = 0  #: predictions that the screen does not show
    row_name: str = "line"  #: what a row of the table is
    table_subject: str = ""  #: what the rows are about


@dataclass(frozen=True)
class Output:
    """The destination of an answer, checked before any work."""

    stream: TextIO  #: standard output
    printed_format: str | None = None  #: "table", "csv", "json"; None prints only where files are
    table_path: Path | None = None
    page_path: Path | None = None
    quiet: bool = False

    @classmethod
    def of(cls, arguments: argparse.Namespace, stream: TextIO, has_page: bool) -> Output:
        """Return the output of the options; raise if the answer cannot be written there."""
        quiet = arguments.quiet
        if arguments.out is None:
            return cls(stream, arguments.format or "table", quiet=quiet)
        path = as_file(arguments.out, "--out")
        suffix = Path(arguments.out).suffix.lower()
        if suffix in FORMATS:
            return cls(stream, arguments.format, table_path=path, quiet=quiet)
        if suffix in PAGE_ENDINGS and has_page:
            return cls(stream, arguments.format, page_path=path, quiet=quiet)
        endings = ".csv, .parquet, .json or .jsonl"
        if has_page:
            endings = ".csv, .parquet, .json, .jsonl or .html"
        message = f"--out is {arguments.out}; expected a file that ends in {endings}."
        if suffix in PAGE_ENDINGS:
            message += " Pages are written by explain, group and intervals, and by report."
        raise InputError(message)

    @property
    def shows_all(self) -> bool:
        """Return whether the answer has more rows than a screen shows."""
        has_file = self.table_path is not None or self.page_path is not None
        return has_file or self.printed_format in ("csv", "json")

    @property
    def wants_table(self) -> bool:
        """Return whether the user wants a table, not only a page."""
        return self.table_path is not None or self.printed_format is not None

    def give(
        self,
        tables: Iterable[pd.DataFrame],
        text: AnswerText,
        to_lines: Callable[[pd.DataFrame], list[str]] | None = None,
        printed_table: pd.DataFrame | None = None,
    ) -> None:
        """Write the tables to the file and print them in the format that the user chose.

        Parameters
        ----------
        tables : iterable of pandas.DataFrame
            The whole answer, one part after the other.
        text : AnswerText
            The lines around it.
        to_lines : callable, optional
            Makes the lines for the screen from the first rows of the table.
        printed_table : pandas.DataFrame, optional
            What is printed, where that is not the table in the file.
        """
        first_rows, n_rows = self._write(tables, printed_table)
        if self.printed_format in ("csv", "json"):
            return
        lines: list[str] = []
        if self.printed_format == "table" and first_rows is not None:
            lines = (to_lines or table_lines)(first_rows)
        n_hidden = text.n_hidden
        hidden_name = "more prediction"
        if to_lines is None and printed_table is None and self.table_path is None:
            n_hidden = n_rows - MOST_ON_SCREEN
            hidden_name = "more line"
        after = []
        if n_hidden > 0:
            is_empty = first_rows is not None and len(first_rows) == 0
            advice = ": --out FILE or --format csv has them all."
            if is_empty:
                advice = " may have some: --out FILE or --format csv lists them."
            after.append(counted(n_hidden, hidden_name) + advice)
        if self.table_path is not None:
            if n_rows == 1:
                verb = "is"
            else:
                verb = "are"
            rows = f"{counted(n_rows, text.row_name)}{text.table_subject}"
            after.append(f"{rows} {verb} in {self.table_path}.")
        if self.page_path is not None:
            after.append(f"The page is in {self.page_path}.")
        self.say([text.verification, text.title], lines, after, [text.note])

    def _write(
        self, tables: Iterable[pd.DataFrame], printed_table: pd.DataFrame | None
    ) -> tuple[pd.DataFrame | None, int]:
        """Write the tables, or print them as CSV or JSON.

        Return the first rows and their number.
        """
        if not self.wants_table:
            return printed_table, 0
        first_rows = printed_table
        n_rows = 0
        with ExitStack() as stack:
            writers: list[TextWriter | ParquetWriter] = []
            if self.table_path is not None:
                writers.append(stack.enter_context(table_writer(self.table_path)))
            if self.printed_format in ("csv", "json"):
                printer = TextWriter(self.stream, PRINTED_FORMATS[self.printed_format])
                if printed_table is None:
                    writers.append(printer)
                else:
                    printer.add(printed_table)
            for table in tables:
                for writer in writers:
                    writer.add(table)
                if first_rows is None:
                    first_rows = table.head(MOST_ON_SCREEN)
                n_rows += len(table)
        return first_rows, n_rows

    def say(self, before: Sequence[str], answer: Sequence[str] = (), *after: Sequence[str]) -> None:
        """Print paragraphs with blank lines between them; with --quiet only the answer."""
        paragraphs: list[Sequence[str]] = [answer]
        if not self.quiet:
            around = [
                [visible(line, allowed="\n") for line in paragraph if line]
                for paragraph in (before, *after)
            ]
            paragraphs = [around[0], answer, *around[1:]]
        texts = ["\n".join(paragraph) for paragraph in paragraphs if paragraph]
        if texts:
            print("\n\n".join(texts), file=self.stream)
