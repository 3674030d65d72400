"""The measured tables of docs/paper.md, from experiments/results: run it to write them into the page.

A table stands between the lines ``<!-- results/NAME.md -->`` and ``<!-- end -->``.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "paper.md"


def page():
    def put(found):
        table = (ROOT / "experiments" / "results" / f"{found[1]}.md").read_text(encoding="utf-8")
        return f"<!-- results/{found[1]}.md -->\n{table}<!-- end -->"

    return re.sub(r"<!-- results/(\w+)\.md -->\n.*?<!-- end -->", put, PAGE.read_text(encoding="utf-8"), flags=re.S)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
