"""The measured tables of docs/scaling.md, from benchmarks/results: run it to write them into the page."""

import csv
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "scaling.md"


def read(name):
    with open(ROOT / "benchmarks" / "results" / name, newline="") as file:
        return list(csv.DictReader(file))


def kernels():
    lines = read("kernels.csv")
    head = ["| rows | step | seconds | ratio | wanted | difference |", "|---|---|---|---|---|---|"]
    shown = [
        [f"{int(line['rows']):,}", line["step"], *(line[name] for name in ("seconds", "ratio", "wanted", "difference"))]
        for line in lines
    ]
    return "\n".join(
        [
            *head,
            *("| " + " | ".join(line) + " |" for line in shown),
            "",
            f"{lines[0]['machine']}; {lines[0]['versions']}.",
        ]
    )


def growth():
    lines = [line for line in read("growth.csv") if line["axis"] == "rows"]
    columns = {
        "explained": "model to 10",
        "paper": "the paper, 10",
        "prepared": "10 more, prepared",
        "matrix": "all weights",
    }
    columns |= {"paper matrix": "the paper, all weights", "peak MiB": "peak, MiB"}
    head = ["| rows | " + " | ".join(columns.values()) + " |", "|---" * (len(columns) + 1) + "|"]
    shown = [[f"{int(line['rows']):,}", *(line[name] for name in columns)] for line in lines]
    return "\n".join([*head, *("| " + " | ".join(line) + " |" for line in shown)])


def put(page, heading, table):
    """The page with the first table after a heading, and the line on the machine below it, replaced."""
    before, after = page.split(f"### {heading}\n", 1)
    found = re.search(r"(\|.*\|\n)+(\n.*Python 3\.[\d.]+\n)?|KERNELS\n|GROWTH\n", after)
    return before + f"### {heading}\n" + after[: found.start()] + table + "\n" + after[found.end() :]


def page():
    return put(put(PAGE.read_text(encoding="utf-8"), "Measured: kernels", kernels()), "Measured: growth", growth())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
