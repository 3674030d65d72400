"""The folder of a report: a file name for every label, a manifest of what it was made of, whole files, and the index."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from axil.arrays import IntArray
from axil.errors import InputError, counted, shown
from axil.inputs import as_path
from axil.machine.atomic import whole
from axil.report.wording import Words
from axil.templates import render

PER_FOLDER = 1000  # pages of a sub-folder
LONGEST = 80  # letters of a file name, before its suffix
MANIFEST = "report.json"
FORMAT = 2  # of pages and index: another one is another report
TAKEN = re.compile(
    r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.I
)  # names that Windows gives to devices


def file_names(labels: Sequence[str]) -> list[str]:
    """A path below ``pages`` for every label: letters, digits, dots and dashes as they are, all else as ~ and its bytes.

    Labels that differ only in what file systems may not tell apart, such as case, get a number besides.
    """
    found: list[str] = []
    used: set[str] = set()
    for i, label in enumerate(labels):
        if i % PER_FOLDER == 0:
            used = set()
        name = plain = _safe(label)
        again = 1
        while name.lower() in used:
            again += 1
            name = f"{plain}~-{again}"
        used.add(name.lower())
        found.append(f"{i // PER_FOLDER:04d}/{name}.html")
    return found


def _safe(label: str) -> str:
    name = re.sub(
        r"[^A-Za-z0-9._-]", lambda sign: "".join(f"~{byte:02x}" for byte in sign[0].encode()), label
    )
    if len(name) > LONGEST:
        name = f"{name[: LONGEST - 17]}~.{hashlib.sha256(label.encode()).hexdigest()[:15]}"
    return f"~{name}" if not name or name[0] in ".-" or TAKEN.match(name) else name


def fingerprint(*columns: Any) -> str:
    """A hash of arrays, numbers and text; the same for the same values, whatever holds them."""
    made = hashlib.sha256()
    for column in columns:
        values = np.asarray(column)
        if values.dtype.kind in "OUSV":
            texts = [
                str(value).encode("utf-8", "surrogatepass") for value in values.ravel().tolist()
            ]
            made.update(f"text{values.shape}{list(map(len, texts))}".encode())
            made.update(b"".join(texts))
            continue
        made.update(f"{values.dtype.kind}{values.shape}".encode())
        made.update(np.ascontiguousarray(values).tobytes())
    return made.hexdigest()[:32]


@dataclass(frozen=True, eq=False)
class Folder:
    """A report's own folder, which holds pages of one model, one table of queries and one choice of options."""

    path: Path
    files: list[str]  #: of each query, below ``pages``

    def missing(self) -> IntArray:
        """Positions of the queries whose page is not there; a page that is there is whole."""
        there = set()
        for name in sorted({file.split("/")[0] for file in self.files}):
            own = self.path / "pages" / name
            own.mkdir(parents=True, exist_ok=True)
            there |= {f"{name}/{file}" for file in os.listdir(own)}
        return np.array(
            [i for i, file in enumerate(self.files) if file not in there], dtype=np.intp
        )

    def write(self, i: int, text: str) -> None:
        """The page of query i."""
        whole(self.path / "pages" / self.files[i], text)


def opened(path: Any, files: list[str], made_of: dict[str, Any]) -> Folder:
    """The folder at a path, made if it is not there; one with other files, or of another report, is refused."""
    found = as_path(path, "folder")
    manifest = found / MANIFEST
    if not found.absolute().parent.is_dir():
        raise InputError(
            f"There is no directory {found.absolute().parent} to make {found.name} in. Make it first."
        )
    if found.exists() and not found.is_dir():
        raise InputError(
            f"folder is {str(found)!r}, a file; expected a directory, which is made if it is not there."
        )
    if (
        found.is_dir()
        and not manifest.exists()
        and any(not name.startswith(".") for name in os.listdir(found))
    ):
        raise InputError(
            f"folder is {str(found)!r}, which holds other files; expected a new or an empty directory."
        )
    whole_text = (
        json.dumps({"axil": "report", "format": FORMAT, **made_of}, indent=1, sort_keys=True) + "\n"
    )
    try:
        found.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{found} cannot be made: {error.strerror or error}. Choose another place."
        ) from error
    if not manifest.exists():
        whole(manifest, whole_text, only_new=True)
    _compare(manifest, json.loads(whole_text))
    return Folder(found, files)


def _compare(manifest: Path, wanted: dict[str, Any]) -> None:
    """Refuse a folder whose manifest says that it is of another report."""
    try:
        known = json.loads(manifest.read_text(encoding="utf-8"))
        different = [
            name for name in sorted({*known, *wanted}) if known.get(name) != wanted.get(name)
        ]
    except (OSError, ValueError, TypeError):
        different = ["all of it: it cannot be read"]
    if different:
        said = [
            f"{name} ({shown(known.get(name))}, now {shown(wanted.get(name))})"
            if name in wanted
            else name
            for name in different
        ]
        raise InputError(
            f"{manifest.parent} holds another report, whose {MANIFEST} differs in {', '.join(said[:4])}. Choose another folder, "
            "delete this one, or ask for the same again to go on with it."
        )


PER_SHARD = 4000  # labels of a file: some 200 kB


def write_index(
    folder: Path,
    labels: list[str],
    files: list[str],
    values: list[str],
    more: list[str],
    words: Words,
) -> None:
    """Write ``search/0.js``, ... with labels in the order of a browser, lower case, and then ``index.html``."""
    keys = [label.lower() for label in labels]
    order = sorted(range(len(labels)), key=lambda i: (keys[i].encode("utf-16-be", "replace"), i))
    first = []
    (folder / "search").mkdir(exist_ok=True)
    for number, start in enumerate(range(0, len(order), PER_SHARD)):
        some = order[start : start + PER_SHARD]
        first.append(keys[some[0]])
        entries = [_entry(labels[i], files[i], values[i], more[i]) for i in some]
        text = json.dumps(entries, separators=(",", ":"))
        whole(folder / "search" / f"{number}.js", f"shard({number},{text});\n")
    page = render(
        "report/index.html",
        words=words,
        about=f"{counted(len(labels), 'page', ',')}, one for each {words.query}",
        total=len(labels),
        first_labels=first,
    )
    whole(folder / "index.html", page + "\n")


def _entry(label: str, file: str, value: str, more: str) -> list[object]:
    """Label, sub-folder, file name (0 where it is the label), value and further words."""
    number, name = file.removesuffix(".html").split("/")
    return [label, number, 0 if name == label else name, value, more]
