"""Write HTML from the Jinja2 templates in this folder, which include their styles and scripts.

Templates escape every value, so labels and names may hold any text. ``base.html`` gives each page a
content security policy that allows the page's own style and script, by their hashes, and no request
at all.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


def render(template: str, **values: object) -> str:
    """Return the text of a template, such as ``"report/case.html"``, with these values."""
    return _environment().get_template(template).render(values)


def render_facts(title: str, facts: Iterable[tuple[str, str]]) -> str:
    """Return the table that a notebook shows for an object, with a name and a text per row."""
    return render("table.html", caption=title, header=[], rows=list(facts))


@cache
def _environment() -> Environment:
    """Return the environment of all templates.

    Jinja2 is imported when the first page is written.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("axil"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["source_hash"] = _source_hash
    environment.filters["breakable"] = _breakable
    return environment


def _breakable(text: str) -> Markup:
    """Return escaped text that browsers may break after underscores, as in names of columns."""
    from markupsafe import Markup, escape

    escaped = escape(text)
    if "_" not in escaped:
        return escaped
    return Markup("_<wbr>").join(escaped.split("_"))


def _source_hash(text: str) -> str:
    """Return the hash of a style or script in the form that content security policies expect."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
