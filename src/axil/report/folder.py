"""The folder of a report.

It has a file for every label, a manifest of what they were made of, and the index with its search.
"""

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

from axil.aliases import PathLike
from axil.arrays import IntArray
from axil.errors import InputError, counted, shown
from axil.inputs import as_path
from axil.machine.atomic import whole
from axil.report.wording import Words
from axil.templates import render

PER_FOLDER = 1000  # pages of a sub-folder
PER_SHARD = 4000  # labels of a file of the search, about 200 kB
LONGEST = 80  # letters of a file name, before its suffix
MANIFEST = "report.json"
FORMAT = 3  # of pages and index; a folder with another one holds another report
UNSAFE_LETTER = re.compile(r"[^A-Za-z0-9._-]")
DEVICE_NAME = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.I)  # reserved by Windows
MOST_DIFFERENCES = 4  # that an error message names


def file_names(labels: Sequence[str]) -> list[str]:
    """Return a path below ``pages`` for every label.

    Letters, digits, dots and dashes stay, and everything else becomes ~ and its bytes. Labels that
    some file systems cannot tell apart, such as those that differ in case only, also get a number.
    """
    paths: list[str] = []
    used: set[str] = set()
    for i, label in enumerate(labels):
        if i % PER_FOLDER == 0:
            used = set()
        safe = _safe_name(label)
        name = safe
        count = 1
        while name.lower() in used:
            count += 1
            name = f"{safe}~-{count}"
        used.add(name.lower())
        paths.append(f"{i // PER_FOLDER:04d}/{name}.html")
    return paths


def _safe_name(label: str) -> str:
    """Return a file name for a label that every file system accepts."""
    name = UNSAFE_LETTER.sub(_bytes_of_letter, label)
    if len(name) > LONGEST:
        digest = hashlib.sha256(label.encode()).hexdigest()[:15]
        name = f"{name[: LONGEST - 17]}~.{digest}"
    if not name or name[0] in ".-" or DEVICE_NAME.match(name):
        return f"~{name}"
    return name


def _bytes_of_letter(match: re.Match[str]) -> str:
    """Return the bytes of a letter as text, each after a ~."""
    return "".join(f"~{byte:02x}" for byte in match[0].encode())


@dataclass(frozen=True, eq=False)
class Folder:
    """A folder that holds pages of one model, one X and one choice of options."""

    path: Path
    files: list[str]  #: of each explained row, below ``pages``

    def missing(self) -> IntArray:
        """Return the positions of the explained rows without a page.

        Existing pages are complete.
        """
        existing = set()
        for name in sorted({file.split("/")[0] for file in self.files}):
            folder = self.path / "pages" / name
            folder.mkdir(parents=True, exist_ok=True)
            existing |= {f"{name}/{file}" for file in os.listdir(folder)}
        positions = [i for i, file in enumerate(self.files) if file not in existing]
        return np.array(positions, dtype=np.intp)

    def write(self, i: int, text: str) -> None:
        """Write the page of row i."""
        whole(self.path / "pages" / self.files[i], text)


def opened(path: PathLike, files: list[str], record: dict[str, Any]) -> Folder:
    """Return the folder at a path, and make it if it does not exist.

    Raises `InputError` for a folder that holds other files, or a report with another record.
    """
    folder = as_path(path, "folder")
    manifest = folder / MANIFEST
    if not folder.absolute().parent.is_dir():
        raise InputError(
            f"There is no directory {folder.absolute().parent} to make {folder.name} in. "
            "Make it first."
        )
    if folder.exists() and not folder.is_dir():
        raise InputError(
            f"folder is {str(folder)!r}, a file; expected a directory, which is made if it is not "
            "there."
        )
    if folder.is_dir() and not manifest.exists() and _has_visible_files(folder):
        raise InputError(
            f"folder is {str(folder)!r}, which holds other files; expected a new or an empty "
            "directory."
        )
    content = {"axil": "report", "format": FORMAT, **record}
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be made: {error.strerror or error}. Choose another place."
        ) from error
    if not manifest.exists():
        whole(manifest, text, only_new=True)
    _check_manifest(manifest, json.loads(text))
    return Folder(folder, files)


def _has_visible_files(folder: Path) -> bool:
    """Whether a folder holds files whose names do not begin with a dot."""
    return any(not name.startswith(".") for name in os.listdir(folder))


def _check_manifest(manifest: Path, expected: dict[str, Any]) -> None:
    """Raise if the manifest of a folder is that of another report."""
    try:
        recorded = json.loads(manifest.read_text(encoding="utf-8"))
        names = sorted({*recorded, *expected})
        different = [name for name in names if recorded.get(name) != expected.get(name)]
    except (OSError, ValueError, TypeError):
        recorded = {}
        different = ["all of it: it cannot be read"]
    if not different:
        return
    descriptions = []
    for name in different[:MOST_DIFFERENCES]:
        if name in expected:
            before = shown(recorded.get(name))
            descriptions.append(f"{name} ({before}, now {shown(expected.get(name))})")
        else:
            descriptions.append(name)
    raise InputError(
        f"{manifest.parent} holds another report, whose {MANIFEST} differs in "
        f"{', '.join(descriptions)}. Choose another folder, delete this one, or ask for the same "
        "again to go on with it."
    )


def write_index(
    folder: Path,
    labels: list[str],
    files: list[str],
    values: list[str],
    search_words: list[str],
    words: Words,
) -> None:
    """Write the files of the search, and then ``index.html``.

    The files ``search/0.js`` and so on have the labels in lower case, in the order of a browser.
    All lists have one element per page.
    """
    keys = [label.lower() for label in labels]
    order = sorted(range(len(labels)), key=lambda i: (keys[i].encode("utf-16-be", "replace"), i))
    first_labels = []
    (folder / "search").mkdir(exist_ok=True)
    for shard, start in enumerate(range(0, len(order), PER_SHARD)):
        positions = order[start : start + PER_SHARD]
        first_labels.append(keys[positions[0]])
        entries = [_entry(labels[i], files[i], values[i], search_words[i]) for i in positions]
        text = json.dumps(entries, separators=(",", ":"))
        whole(folder / "search" / f"{shard}.js", f"shard({shard},{text});\n")
    page = render(
        "report/index.html",
        words=words,
        about=f"{counted(len(labels), 'page', ',')}, one for each {words.query}",
        total=len(labels),
        first_labels=first_labels,
    )
    whole(folder / "index.html", page + "\n")


def _entry(label: str, file: str, value: str, search_words: str) -> list[object]:
    """Return label, sub-folder, file name (0 if it is the label), value and further words."""
    folder, name = file.removesuffix(".html").split("/")
    file_entry: str | int = name
    if name == label:
        file_entry = 0
    return [label, folder, file_entry, value, search_words]
