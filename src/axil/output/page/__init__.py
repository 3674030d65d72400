"""One self-contained page: an explanation becomes a summary, and the summary becomes HTML.

The summary is a plain dict.
"""

from axil.output.page.document import (
    HEIGHT,
    Page,
    Shown,
    as_target,
    preview,
    render,
    shown,
    write,
)
from axil.output.page.options import Intervals, Options, as_options, spread_of
from axil.output.page.summary import summarise

__all__ = [
    "HEIGHT",
    "Intervals",
    "Options",
    "Page",
    "Shown",
    "as_options",
    "as_target",
    "preview",
    "render",
    "shown",
    "spread_of",
    "summarise",
    "write",
]
