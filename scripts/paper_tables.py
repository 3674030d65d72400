"""The measured tables of docs/paper.md and docs/paper/, from experiments/results: run it to write them into the pages.

A table stands between the lines ``<!-- results/NAME.md -->`` and ``<!-- end -->``.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def pages():
    """{path: text}: every page of the paper with its tables as they were measured."""

    def put(found):
        table = (ROOT / "experiments" / "results" / f"{found[1]}.md").read_text(encoding="utf-8")
        return f"<!-- results/{found[1]}.md -->\n{table}<!-- end -->"

    paths = [ROOT / "docs" / "paper.md", *sorted((ROOT / "docs" / "paper").glob("*.md"))]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    pattern = r"<!-- results/(\w+)\.md -->\n.*?<!-- end -->"
    return {path: re.sub(pattern, put, text, flags=re.S) for path, text in texts.items()}


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
