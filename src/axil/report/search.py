"""The index of a report: one page with a search, and shards of labels that it loads as they are needed."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path

from axil.errors import counted
from axil.machine.atomic import whole
from axil.report.page import hashed, part, style
from axil.report.wording import Words

PER_SHARD = 4000  # labels of a file: some 200 kB


def write(folder: Path, labels: list[str], files: list[str], values: list[str], more: list[str], words: Words) -> None:
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
    script = part("index.js").replace("{{total}}", str(len(labels)))
    script = script.replace("{{first}}", json.dumps(first).replace("<", "\\u003c"))
    look = f"{style()}{part('index.css')}"
    policy = f"default-src 'none'; style-src {hashed(look)}; script-src {hashed(script)} 'self' file:"
    given = {
        "policy": policy,
        "title": escape(words.title),
        "about": escape(f"{counted(len(labels), 'page', ',')}, one for each {words.query}"),
        "ask": escape(f"Find a {words.query}"),
        "style": look,
        "script": script,
    }
    page = part("index.html")
    pieces = page.split("{{")
    made = pieces[0] + "".join(given[name] + rest for name, rest in (piece.split("}}", 1) for piece in pieces[1:]))
    whole(folder / "index.html", made + "\n")


def _entry(label: str, file: str, value: str, more: str) -> list[object]:
    """Label, sub-folder, file name (0 where it is the label), value and further words."""
    number, name = file.removesuffix(".html").split("/")
    return [label, number, 0 if name == label else name, value, more]
