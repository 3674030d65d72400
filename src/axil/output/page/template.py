"""From a summary to one HTML file: the template with its style and script inside, and the summary packed.

The summary is compressed JSON in base64, so that no text of the data ever stands in the markup; the script puts it on the page as
text only. A content security policy allows this one script and this one style, by their hashes, and no request at all.
"""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from axil.inputs import as_file
from axil.machine.atomic import atomic

SCRIPTS = ("tools.js", "charts.js", "map.js", "wording.js", "page.js", "run.js")


def render(summary: dict[str, Any]) -> str:
    """The page as text."""
    style = f"{part_of('page.css')}\n{part_of('site_map.css', 'axil.output')}"
    script = "\n".join(part_of(name) for name in SCRIPTS)
    policy = f"default-src 'none'; style-src {hashed(style)}; script-src {hashed(script)}"
    return filled(
        part_of("page.html"), policy=policy, style=style, data=pack(summary), script=script
    )


def pack(summary: dict[str, Any]) -> str:
    """The summary as base64 of zlib-compressed JSON, what a browser's DecompressionStream("deflate") reads."""
    plain = json.dumps(summary, separators=(",", ":"), allow_nan=False)
    return b64encode(zlib.compress(plain.encode())).decode()


def part_of(name: str, package: str = "axil.output.page") -> str:
    """A file of a package as text."""
    return (files(package) / name).read_text(encoding="utf-8").strip()


def filled(template: str, **given: str) -> str:
    """The template with a text for each name between double braces."""
    first, *pieces = template.split("{{")
    return first + "".join(
        given[name] + rest for name, rest in (piece.split("}}", 1) for piece in pieces)
    )


def hashed(text: str) -> str:
    """The hash of a style or script, as a content security policy has it."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def as_target(path: Any) -> Path | None:
    """Where to write a page to, once that is sure to be possible; None for none."""
    return None if path is None else as_file(path)


def write(summary: dict[str, Any], path: Path | None) -> str | None:
    """Write the page of a summary there; its text if there is no path."""
    return saved(render(summary), path)


def saved(text: str, path: Path | None) -> str | None:
    """Write a page there; its text if there is no path."""
    if path is None:
        return text
    with atomic(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")
    return None
