"""The tables that notebooks show for objects."""

import html
import re


def table_cells(text):
    """Return the caption and the cells of a table, without their escapes."""
    (caption,) = re.findall(r"<caption[^>]*>(.*?)</caption>", text, re.DOTALL)
    cells = re.findall(r"<td[^>]*>(.*?)</td>", text, re.DOTALL)
    return html.unescape(caption), [html.unescape(cell) for cell in cells]
