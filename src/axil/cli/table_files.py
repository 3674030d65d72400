"""Tables in CSV and Parquet files."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from axil.errors import InputError, shown

PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
PIPED = "-"  # the name of standard input


def read_table(path: str, text: Iterable[str] = ()) -> Any:
    """A pandas frame out of a .csv, .tsv or .parquet file, or of CSV from standard input, with at least one row.

    Its columns have names, of which no two are the same. Of CSV the columns named in ``text`` are as written: 00012 is not 12.
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes if suffix.lower() not in PACKED]
    suffix = ".csv" if path == PIPED else suffixes[-1] if suffixes else ""
    if suffix not in (".csv", ".tsv", ".parquet", ".pq"):
        raise InputError(
            f"{path} ends in {suffix or 'nothing that states its kind'!r}; expected .csv, .tsv or .parquet, or - for CSV from "
            "standard input."
        )
    if path != PIPED and not Path(path).is_file():
        what = "is a directory, not a file" if Path(path).is_dir() else "does not exist"
        raise InputError(f"{path} {what}. Check the name, or the directory that you are in.")
    frame = (
        _csv(path, "\t" if suffix == ".tsv" else ",", text)
        if suffix in (".csv", ".tsv")
        else _parquet(path)
    )
    if len(frame) == 0:
        raise InputError(f"{path} has columns but no rows; expected at least one row.")
    frame.columns = [str(name) for name in frame.columns]
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise InputError(f"{path} has two columns named {shown(twice)}; rename one.")
    return frame


def _csv(path: str, separator: str, text: Iterable[str]) -> Any:
    import pandas as pd

    # A last digit that is off can move a row across a threshold. pandas keeps it by default from 3.1 on, which wants no option.
    exact = (
        {}
        if tuple(map(int, pd.__version__.split(".")[:2])) >= (3, 1)
        else {"float_precision": "round_trip"}
    )
    try:
        source, kinds = sys.stdin if path == PIPED else path, dict.fromkeys(text, str)
        frame = pd.read_csv(source, sep=separator, dtype=kinds, low_memory=False, **exact)
    except pd.errors.EmptyDataError:
        raise InputError(
            f"{path} is empty; expected a line of column names and one line per row."
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as CSV with UTF-8 encoding."
        ) from None
    except Exception as error:  # of the parser, or of what unpacks the file
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"{path} cannot be read as a table: {said}. Repair the file, or save it again."
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


def _parquet(path: str) -> Any:
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
