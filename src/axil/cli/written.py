"""Tables for other programs: CSV without formulas, JSON and Parquet; files are replaced only once they are complete."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from axil.cli import screen
from axil.errors import InputError
from axil.machine.atomic import atomic

FORMS = {".csv": "csv", ".json": "json", ".jsonl": "jsonl", ".parquet": "parquet", ".pq": "parquet"}


class Text:
    """CSV or JSON into an open text file; of JSON one object per line, or all of them in one list."""

    def __init__(self, file: Any, form: str):
        self._file, self._form, self._lines = file, form, 0

    def add(self, table: Any) -> None:
        if self._form == "csv":
            text = as_csv(table, header=not self._lines)
            self._file.write(screen.visible(text, kept="\n") if self._file.isatty() else text)
        else:
            known = table.astype(object).where(table.notna(), None).to_dict("records")
            for number, line in enumerate(map(as_json, known), self._lines):
                before = "" if self._form == "jsonl" else ",\n" if number else "[\n"
                self._file.write(f"{before}{line}" + ("\n" if self._form == "jsonl" else ""))
        self._lines += len(table)

    def close(self) -> None:
        if self._form == "json":
            self._file.write("\n]\n" if self._lines else "[]\n")


class Parquet:
    """A Parquet file; the first frame decides on the types of the columns."""

    def __init__(self, place: Path):
        try:
            import pyarrow
            from pyarrow import parquet
        except ImportError:
            raise InputError(
                "Writing Parquet needs pyarrow. Run: pip install 'axil[parquet]', or write CSV."
            ) from None
        self._made, self._opened = pyarrow.Table.from_pandas, parquet.ParquetWriter
        self._place = place
        self._writer: Any = None

    def add(self, table: Any) -> None:
        made = self._made(table, preserve_index=False).replace_schema_metadata()
        self._writer = self._writer or self._opened(self._place, made.schema)
        self._writer.write_table(made.cast(self._writer.schema))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


@contextmanager
def opened(path: Path) -> Iterator[Text | Parquet]:
    """A writer of the form that the ending of the file says, one of `FORMS`."""
    form = FORMS[path.suffix.lower()]
    with atomic(path) as place:
        if form == "parquet":
            table = Parquet(place)
            try:
                yield table
            finally:
                table.close()
            return
        with place.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file:
            text = Text(file, form)
            yield text
            text.close()


def as_json(record: dict[str, Any]) -> str:
    """A JSON object on one line, all digits kept; what is missing or not finite is null."""
    finite = {
        key: None if isinstance(v, float) and not math.isfinite(v) else v
        for key, v in record.items()
    }
    return json.dumps(finite, default=str, allow_nan=False)


def as_csv(table: Any, header: bool = True) -> str:
    """CSV in which no text is a formula: a spreadsheet would compute what begins with one of = + - @, a tab or a return."""
    defused = table.rename(columns=_defused)
    for name, dtype in defused.dtypes.items():
        if dtype.kind not in "biuf":
            defused[name] = defused[name].astype(object).map(_defused)
    return str(defused.to_csv(index=False, header=header))


def _defused(cell: Any) -> Any:
    """Text that begins a formula, with an apostrophe in front; numbers, also as text, as they are."""
    if not isinstance(cell, str) or not cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return cell
    try:
        float(cell)
    except ValueError:
        return "'" + cell
    return cell
