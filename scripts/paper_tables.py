"""The measured tables of docs/paper.md, docs/baselines.md and docs/evidence_*.md, from experiments/results.

Run it to write them into the pages.

A table stands between the lines ``<!-- results/NAME.md -->`` and ``<!-- end -->``. With ``results/NAME.md: a; b`` it has these
columns alone, and no line on versions and machine, which the file itself has; with ``results/NAME.md: a; b where TEXT`` only
the lines in which the text occurs (``not TEXT``: does not; also ``A and B or C``).
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def pages():
    """{path: text}: every page of evidence with its tables as they were measured."""

    def put(found):
        table = (ROOT / "experiments" / "results" / f"{found['name']}.md").read_text(
            encoding="utf-8"
        )
        if found["columns"]:
            table = chosen(table, found["columns"].split("; "), found["text"] or "")
        return f"{found['mark']}\n{table}<!-- end -->"

    docs = ROOT / "docs"
    paths = [
        docs / "paper.md",
        docs / "baselines.md",
        *sorted(docs.glob("evidence_*.md")),
    ]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    pattern = r"(?P<mark><!-- results/(?P<name>\w+)\.md(: (?P<columns>.*?)( where (?P<text>.*?))?)? -->)\n.*?<!-- end -->"
    return {path: re.sub(pattern, put, text, flags=re.S) for path, text in texts.items()}


def has_text(line, text):
    """Return whether a line matches a condition such as ``A and B or C`` or ``not A``."""
    if text.startswith("not "):
        return text.removeprefix("not ") not in line
    alternatives = [alternative.split(" and ") for alternative in text.split(" or ")]
    return any(all(wanted_text in line for wanted_text in texts) for texts in alternatives)


def chosen(table, columns, text):
    """Some columns of a table in Markdown, and of its lines those in which a text occurs."""
    head, _, *lines = (
        [cell.strip() for cell in line[1:-1].split("|")]
        for line in re.findall(r"^\|.*\|$", table, re.M)
    )
    places = [head.index(name) for name in columns]
    kept_lines = [cells for cells in lines if has_text(" | ".join(cells), text)]
    rows = [f"| {' | '.join(cells[i] for i in places)} |" for cells in (head, *kept_lines)]
    return "\n".join([rows[0], "|---" * len(columns) + "|", *rows[1:], ""])


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
