"""One self-contained page: explanation -> summary (a plain dict) -> template -> HTML."""

from axil.output.page.notebook import HEIGHT, Page, Shown, preview, shown
from axil.output.page.options import Intervals, Options, as_options, spread_of
from axil.output.page.summary import summarise
from axil.output.page.template import as_target, render, write

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
