"""One self-contained page: explanation -> summary (a plain dict) -> template -> HTML."""

from axil.page.context import Context
from axil.page.notebook import preview
from axil.page.summary import Options, summarise
from axil.page.template import as_target, render, write

__all__ = ["Context", "Options", "as_target", "preview", "render", "summarise", "write"]
