"""A page of changes: for each prediction a bar for every part of its change, and a table of the rows that did most."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from axil.inputs import as_frame
from axil.markup import table
from axil.output.page import template
from axil.output.page.about import as_words
from axil.scale import IDENTITY, TargetScale

NOTE = (
    "Rows are matched by label. Effects of rows, and all parts but the last, keep the splits of the old model; new splits are "
    "what the retraining did beyond the data. "
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


def write(
    changed: Any,
    top: Any,
    parts: Sequence[str],
    scale: TargetScale,
    path: Any,
    title: str | None,
    target: str | None,
) -> str | None:
    """The page of a table of changes and of the rows that did most; its text if there is no path.

    The parts of a model fitted to logarithms are factors, as in its waterfall.
    """
    place, title, target = (
        template.as_target(path),
        as_words(title, "title"),
        as_words(target, "target"),
    )
    head = title or f"Why predictions{'' if target is None else f' of {target}'} changed"
    lines, rows = _columns(changed), _columns(top)
    k = len(rows["query"]) // max(len(lines["query"]), 1)
    body = [
        _section(lines, rows, i, slice(i * k, i * k + k), parts, scale)
        for i in range(len(lines["query"]))
    ]
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    text = PAGE.format(
        policy=policy,
        title=escape(head),
        style=template.part_of("changes.css"),
        note=escape(NOTE + _sum(scale)),
        body="".join(body),
    )
    return template.saved(text, place)


def _columns(frame: Any) -> dict[str, list[Any]]:
    known = as_frame(frame)
    assert known is not None
    return {name: known[name].to_list() for name in known.columns}


def _sum(scale: TargetScale) -> str:
    """The sentence that says what the parts come to."""
    if not scale.is_log:
        return f"The parts sum to the change{'' if scale.is_identity else f', on the scale of the fit: {scale.name}'}."
    more = f" of {scale.shift:g} + the prediction" if scale.shift else ""
    return f"The parts are factors{more}, and multiply to the change."


def _section(
    lines: dict[str, list[Any]],
    rows: dict[str, list[Any]],
    i: int,
    own: slice,
    parts: Sequence[str],
    scale: TargetScale,
) -> str:
    """One prediction."""
    name = str(lines["query"][i]) + (f", output {lines['output'][i]}" if "output" in lines else "")
    before, after = lines["before"][i], lines["after"][i]
    values = {part: lines[scale.label(part)][i] for part in parts}
    shown = {part: value for part, value in values.items() if value or part != "base"}
    ends = np.cumsum([0.0, *shown.values()])  # from the old prediction
    low, high = float(ends.min()), float(ends.max())
    width = (high - low) or 1.0
    bars = [
        _bar(part if scale.is_log else scale.label(part), value, float(start) - low, width, scale)
        for (part, value), start in zip(shown.items(), ends)
    ]
    effect = scale.label("effect")
    listed = [column for column in rows if column not in ("query", "output", "rank")]
    cells = [
        [_cell(rows[column][j], scale if column == effect else IDENTITY) for column in listed]
        for j in range(own.start, min(own.stop, len(rows["query"])))
    ]
    product = f", {_amount(float(ends[-1]), scale)}" if scale.is_log else ""
    first = f"<p>{before:,.6g} → {after:,.6g}, a change of {after - before:+,.6g}{product}</p>"
    headers = ["factor" if scale.is_log and column == effect else column for column in listed]
    below = table("Training rows that did most, splits kept", cells, headers)
    return f"<section><h2>{escape(name)}</h2>{first}{''.join(bars)}{below}</section>\n"


def _amount(value: float, scale: TargetScale) -> str:
    """A part of a change: for logarithms a factor."""
    return f"× {float(scale.factors(np.array(value))):,.5g}" if scale.is_log else f"{value:+,.5g}"


def _bar(name: str, value: float, start: float, width: float, scale: TargetScale) -> str:
    left, size = 100 * min(start, start + value) / width, 100 * abs(value) / width
    kind = ' class="less"' if value < 0 else ""
    return (
        f'<div class="bar"><span>{escape(name)}</span><span>{_amount(value, scale)}</span>'
        f'<div><i{kind} style="margin-left:{left:.2f}%;width:{max(size, 0.3):.2f}%"></i></div></div>'
    )


def _cell(value: Any, scale: TargetScale) -> Any:
    if value is None or value != value:
        return ""
    return float(scale.factors(np.array(value))) if scale.is_log else value
