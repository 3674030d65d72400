"""HTML by hand: escaped text and small tables, as notebooks show them."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def table(caption: str, lines: Iterable[Iterable[object]], header: Iterable[str] = ()) -> str:
    """A table of these cells, every one escaped; numbers stand to the right."""
    head = "".join(
        f'<th scope="col" style="text-align:left">{escape(name)}</th>' for name in header
    )
    body = "".join(f"<tr>{''.join(map(_cell, cells))}</tr>" for cells in lines)
    style = "caption-side:top;text-align:left"
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f'<table><caption style="{style}">{escape(caption)}</caption>{top}<tbody>{body}</tbody></table>'


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f'<td style="text-align:right">{value:,.6g}</td>'
    return f'<td style="text-align:left">{escape(str(value))}</td>'
