"""Tables for other programs: CSV without formulas, JSON lines and Parquet; files are replaced only once they are complete."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from axil.cli import screen
from axil.errors import InputError
from axil.inputs import as_file
from axil.machine.atomic import atomic


def as_table_file(path: str, option: str) -> Path:
    """A path that a table can be written to, by its suffix."""
    if Path(path).suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"{option} is {path}; expected a file that ends in .csv or .parquet.")
    return as_file(path, option)


def write_parts(parts: Iterator[Any], path: Path) -> int:
    """Write frames with the same columns one below the other, as the path's suffix says; the number of their lines."""
    with atomic(path) as place:
        return (_write_csv if path.suffix.lower() == ".csv" else _write_parquet)(parts, place)


def _write_csv(parts: Iterator[Any], place: Path) -> int:
    lines = 0
    with place.open("w", encoding="utf-8", errors="surrogatepass", newline="") as file:
        for part in parts:
            file.write(as_csv(part, header=not lines))
            lines += len(part)
    return lines


def _write_parquet(parts: Iterator[Any], place: Path) -> int:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise InputError("Writing Parquet needs pyarrow. Run: pip install 'axil[parquet]', or write CSV.") from None
    lines, writer = 0, None
    try:
        for part in parts:
            made = pa.Table.from_pandas(part, preserve_index=False).replace_schema_metadata()
            writer = writer or parquet.ParquetWriter(place, made.schema)
            writer.write_table(made.cast(writer.schema))
            lines += len(part)
    finally:
        if writer is not None:
            writer.close()
    return lines


def write_csv(table: Any, path: str) -> None:
    """Write one table as CSV."""
    write_parts(iter([table]), as_file(path, "--csv"))


def print_table(table: Any, form: str, out: Any) -> None:
    """The table as CSV, or as one JSON object per line, all digits kept; what is missing or not finite is null."""
    if form == "csv":
        text = as_csv(table)
        out.write(screen.visible(text, kept="\n") if out.isatty() else text)
        return
    for record in table.astype(object).where(table.notna(), None).to_dict("records"):
        finite = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in record.items()}
        out.write(json.dumps(finite, default=str, allow_nan=False) + "\n")


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
