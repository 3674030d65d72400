"""A page of changes: for each prediction a bar for every part of its change, and a table of the rows that did most."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from axil.inputs import as_frame
from axil.markup import table
from axil.output.page import template
from axil.output.page.about import as_words

NOTE = (
    "Rows are matched by label. Effects of rows, and all parts but the last, keep the splits of the old model; new splits are "
    "what the retraining did beyond the data. The parts sum to the change."
)


PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<h1>{title}</h1>
<p>{note}</p>
{body}
</body>
</html>
"""


def write(changed: Any, top: Any, parts: list[str], path: Any, title: str | None, target: str | None) -> str | None:
    """The page of a table of changes and of the rows that did most; its text if there is no path."""
    place, title, target = template.as_target(path), as_words(title, "title"), as_words(target, "target")
    head = title or f"Why predictions{'' if target is None else f' of {target}'} changed"
    lines, rows = _columns(changed), _columns(top)
    k = len(rows["query"]) // max(len(lines["query"]), 1)
    body = [_section(lines, rows, i, slice(i * k, i * k + k), parts) for i in range(len(lines["query"]))]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    text = PAGE.format(
        policy=policy, title=escape(head), style=template.part_of("changes.css"), note=escape(NOTE), body="".join(body)
    )
    return template.saved(text, place)


def _columns(frame: Any) -> dict[str, list[Any]]:
    known = as_frame(frame)
    assert known is not None
    return {name: known[name].to_list() for name in known.columns}


def _section(lines: dict[str, list[Any]], rows: dict[str, list[Any]], i: int, own: slice, parts: list[str]) -> str:
    """One prediction."""
    name = str(lines["query"][i]) + (f", output {lines['output'][i]}" if "output" in lines else "")
    before, after = lines["before"][i], lines["after"][i]
    values = np.array([lines[part][i] for part in parts])
    shown = [part for part, value in zip(parts, values) if value or not part.startswith("base")]
    ends = np.cumsum([0.0, *(lines[part][i] for part in shown)])  # from the old prediction
    low, high = float(ends.min()), float(ends.max())
    width = (high - low) or 1.0
    bars = [_bar(part, a, b, low, width) for part, a, b in zip(shown, ends, ends[1:])]
    listed = [column for column in rows if column not in ("query", "output", "rank")]
    cells = [[_cell(rows[column][j]) for column in listed] for j in range(own.start, min(own.stop, len(rows["query"])))]
    first = f"<p>{before:,.6g} → {after:,.6g}, a change of {after - before:+,.6g}</p>"
    below = table("Training rows that did most, splits kept", cells, listed)
    return f"<section><h2>{escape(name)}</h2>{first}{''.join(bars)}{below}</section>\n"


def _bar(name: str, start: float, end: float, low: float, width: float) -> str:
    left, size = 100 * (min(start, end) - low) / width, 100 * abs(end - start) / width
    kind = ' class="less"' if end < start else ""
    return (
        f'<div class="bar"><span>{escape(name)}</span><span>{end - start:+,.5g}</span>'
        f'<div><i{kind} style="margin-left:{left:.2f}%;width:{max(size, 0.3):.2f}%"></i></div></div>'
    )


def _cell(value: Any) -> Any:
    return "" if value is None or value != value else value
