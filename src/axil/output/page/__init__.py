"""One self-contained page: explanation -> summary (a plain dict) -> template -> HTML."""

from axil.output.page.notebook import preview
from axil.output.page.summary import Intervals, Options, summarise
from axil.output.page.template import as_target, render, write

__all__ = ["Intervals", "Options", "as_target", "preview", "render", "summarise", "write"]
