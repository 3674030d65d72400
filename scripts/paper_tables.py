"""The measured tables of docs/paper.md, docs/paper/ and docs/evidence_*.md, from experiments/results.

Run it to write them into the pages.

A table stands between the lines ``<!-- results/NAME.md -->`` and ``<!-- end -->``.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def pages():
    """{path: text}: every page of evidence with its tables as they were measured."""

    def put(found):
        table = (ROOT / "experiments" / "results" / f"{found[1]}.md").read_text(encoding="utf-8")
        return f"<!-- results/{found[1]}.md -->\n{table}<!-- end -->"

    docs = ROOT / "docs"
    paths = [docs / "paper.md", *sorted((docs / "paper").glob("*.md")), *sorted(docs.glob("evidence_*.md"))]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    pattern = r"<!-- results/(\w+)\.md -->\n.*?<!-- end -->"
    return {path: re.sub(pattern, put, text, flags=re.S) for path, text in texts.items()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
