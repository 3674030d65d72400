"""Tables in files: CSV and Parquet in; CSV without formulas, JSON and Parquet out."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from axil.cli.screen import visible
from axil.errors import InputError, shown
from axil.machine.atomic import atomic

if TYPE_CHECKING:
    import pandas as pd

COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip")
STANDARD_INPUT = "-"
FORMATS = {
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
DIGITS = "%.15g"  # of numbers in CSV: a price that was a logarithm has no digits of rounding
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def read_table(path: str, text_columns: Iterable[str] = ()) -> pd.DataFrame:
    """Read a table with at least one row and distinct column names.

    Parameters
    ----------
    path : str
        A .csv, .tsv or .parquet file, or "-" for CSV from standard input.
    text_columns : iterable of str
        Columns of a CSV file that stay as they are written: 00012 is not 12.
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    suffixes = [suffix for suffix in suffixes if suffix not in COMPRESSED]
    if suffixes:
        suffix = suffixes[-1]
    else:
        suffix = ""
    if path == STANDARD_INPUT:
        suffix = ".csv"
    if suffix not in (".csv", ".tsv", ".parquet", ".pq"):
        raise InputError(
            f"{path} ends in {suffix or 'nothing that states its kind'!r}; expected .csv, .tsv or "
            ".parquet, or - for CSV from standard input."
        )
    if path != STANDARD_INPUT and not Path(path).is_file():
        if Path(path).is_dir():
            problem = "is a directory, not a file"
        else:
            problem = "does not exist"
        raise InputError(f"{path} {problem}. Check the name, or the directory that you are in.")
    if suffix in (".csv", ".tsv"):
        frame = _read_csv(path, "\t" if suffix == ".tsv" else ",", text_columns)
    else:
        frame = _read_parquet(path)
    if len(frame) == 0:
        raise InputError(f"{path} has columns but no rows; expected at least one row.")
    frame.columns = [str(name) for name in frame.columns]
    if not frame.columns.is_unique:
        repeated = frame.columns[frame.columns.duplicated()][0]
        raise InputError(f"{path} has two columns named {shown(repeated)}; rename one.")
    return frame


def _read_csv(path: str, separator: str, text_columns: Iterable[str]) -> pd.DataFrame:
    import pandas as pd

    # A last digit that is off can move a row across a threshold. From 3.1 on pandas keeps it.
    options = {}
    if tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1):
        options["float_precision"] = "round_trip"
    if path == STANDARD_INPUT:
        source = sys.stdin
    else:
        source = path
    dtypes = dict.fromkeys(text_columns, str)
    try:
        frame = pd.read_csv(source, sep=separator, dtype=dtypes, low_memory=False, **options)
    except pd.errors.EmptyDataError:
        raise InputError(
            f"{path} is empty; expected a line of column names and one line per row."
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as CSV with UTF-8 encoding."
        ) from None
    except Exception as error:  # the parser and every decompressor have their own classes
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise InputError(
            f"{path} cannot be read as a table: {lines[0]}. Repair the file, or save it again."
        ) from None
    if not isinstance(frame.index, pd.RangeIndex):
        raise InputError(
            f"{path} has more values in its rows than names in its first line; name every column."
        )
    if len(frame.columns) == 1 and ";" in str(frame.columns[0]):
        raise InputError(
            f"{path} has semicolons between its columns; expected commas. Save it with commas."
        )
    return frame


def _read_parquet(path: str) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(path)
    except ImportError:
        raise InputError(
            f"Reading {path} needs pyarrow. Run: pip install 'axil[parquet]', or give a CSV file."
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as Parquet: {str(error).splitlines()[0]} Save it again."
        ) from None


class TextWriter:
    """Writes tables as CSV, as JSON (one list) or as JSON lines into an open text file."""

    def __init__(self, file: TextIO, format: str):
        self._file = file
        self._format = format
        self._n_rows = 0

    def add(self, table: pd.DataFrame) -> None:
        """Append the rows of a table."""
        if self._format == "csv":
            text = as_csv(table, header=self._n_rows == 0)
            self._file.write(visible(text, allowed="\n") if self._file.isatty() else text)
        else:
            records = table.astype(object).where(table.notna(), None).to_dict("records")
            for number, record in enumerate(records, self._n_rows):
                self._add_record(record, is_first=number == 0)
        self._n_rows += len(table)

    def _add_record(self, record: Mapping[str, object], is_first: bool) -> None:
        if self._format == "jsonl":
            self._file.write(f"{as_json(record)}\n")
        else:
            if is_first:
                separator = "[\n"
            else:
                separator = ",\n"
            self._file.write(f"{separator}{as_json(record)}")

    def close(self) -> None:
        """Write the end of the list of records."""
        if self._format == "json":
            self._file.write("\n]\n" if self._n_rows else "[]\n")


class ParquetWriter:
    """Writes tables into a Parquet file; the first table decides the types of the columns."""

    def __init__(self, path: Path):
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise InputError(
                "Writing Parquet needs pyarrow. Run: pip install 'axil[parquet]', or write CSV."
            ) from None
        self._from_pandas = pyarrow.Table.from_pandas
        self._open = parquet.ParquetWriter
        self._path = path
        self._writer: Any = None  #: pyarrow's

    def add(self, table: pd.DataFrame) -> None:
        """Append the rows of a table."""
        arrow_table = self._from_pandas(table, preserve_index=False).replace_schema_metadata()
        if self._writer is None:
            self._writer = self._open(self._path, arrow_table.schema)
        self._writer.write_table(arrow_table.cast(self._writer.schema))

    def close(self) -> None:
        """Write the end of the file."""
        if self._writer is not None:
            self._writer.close()


@contextmanager
def table_writer(path: Path) -> Iterator[TextWriter | ParquetWriter]:
    """Open a writer for a file, whose ending is one of `FORMATS`.

    The file is replaced once it is complete, or not at all.
    """
    format = FORMATS[path.suffix.lower()]
    with atomic(path) as temporary_path:
        if format == "parquet":
            parquet_writer = ParquetWriter(temporary_path)
            try:
                yield parquet_writer
            finally:
                parquet_writer.close()
            return
        with temporary_path.open(
            "w", encoding="utf-8", errors="surrogatepass", newline=""
        ) as text_file:
            text_writer = TextWriter(text_file, format)
            yield text_writer
            text_writer.close()


def as_json(record: Mapping[str, object]) -> str:
    """Return a JSON object on one line with all digits; values that are not finite are null."""
    finite_record = dict(record)
    for name, value in record.items():
        if isinstance(value, float) and not math.isfinite(value):
            finite_record[name] = None
    return json.dumps(finite_record, default=str, allow_nan=False)


def as_csv(table: pd.DataFrame, header: bool = True) -> str:
    """Return CSV in which no text is a formula that a spreadsheet would compute."""
    safe_table = table.rename(columns=_without_formula)
    for name, dtype in safe_table.dtypes.items():
        if dtype.kind not in "biuf":
            safe_table[name] = safe_table[name].astype(object).map(_without_formula)
    return str(safe_table.to_csv(index=False, header=header, float_format=DIGITS))


def _without_formula(cell: object) -> object:
    """Put an apostrophe before text that begins a formula; numbers stay, also as text."""
    if not isinstance(cell, str) or not cell.startswith(FORMULA_STARTS):
        return cell
    try:
        float(cell)
    except ValueError:
        return "'" + cell
    return cell
