"""What the examples of a page print: run it to write that under them.

    python scripts/page_outputs.py docs/methods.md ...     # without names: all pages that show their output

A block of Python that is followed by a block of text shows there what it prints. Blocks run one after the other.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parent.parent
PAGES = (
    "README.md",
    *(
        f"docs/{name}.md"
        for name in (
            "index",
            "methods",
            "intervals",
            "faq",
            "prices",
            "records",
            "ranking_survival",
            "label_checks",
            "deletions",
            "classifiers",
            "how",
        )
    ),
)
BLOCK = re.compile(
    r"(?P<code>```python\n(?P<body>.*?)```\n)(?P<shown>\n```text\n(?P<text>.*?)```\n)?", re.S
)


def run(name):
    """(page, what its blocks printed): the page with its blocks of text filled in."""
    names, printed = {}, []

    def fill(found):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(found["body"], name, "exec"), names)
        printed.append(out.getvalue())
        lines = "\n".join(line.rstrip() for line in out.getvalue().strip("\n").splitlines())
        return found["code"] + (f"\n```text\n{lines}\n```\n" if found["shown"] else "")

    here = Path.cwd()
    with (
        tempfile.TemporaryDirectory() as room,
        pd.option_context("display.width", 118, "display.max_columns", 20),
    ):
        os.chdir(room)  # for what examples write
        try:
            page = BLOCK.sub(fill, (ROOT / name).read_text(encoding="utf-8"))
        finally:
            os.chdir(here)
    return page, "".join(printed)


if __name__ == "__main__":
    for name in sys.argv[1:] or PAGES:
        (ROOT / name).write_text(run(name)[0], encoding="utf-8")
