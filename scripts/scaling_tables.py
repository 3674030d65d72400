"""The measured tables of docs/evidence_speed.md, from benchmarks/results: run it to write them into the page."""

import csv
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "evidence_speed.md"


def read(name):
    with open(ROOT / "benchmarks" / "results" / name, newline="") as file:
        return list(csv.DictReader(file))


def table(head, lines):
    first, *others = ("| " + " | ".join(line) + " |" for line in (head, *lines))
    return "\n".join([first, "|---" * len(head) + "|", *others])


# Steps whose ratio is to tuned NumPy, or to pred_leaf, and those two; ratios of the others are to something else.
STEPS = (
    "pred_leaf",
    "leaves",
    "NumPy 10",
    "sweep 10",
    "prepare",
    "prepared 10",
    "prepared 100",
    "top 10 of 100",
    "model to 10",
)


def kernels():
    lines = [
        line
        for line in read("kernels.csv")
        if (line["rows"] == "1000000" and line["step"] in STEPS) or line["step"] == "all"
    ]
    shown = table(
        ["step", "seconds", "times as fast"],
        [[line["step"], line["seconds"], line["ratio"]] for line in lines],
    )
    return f"{shown}\n\n{lines[0]['machine']}; {lines[0]['versions']}."


def growth():
    lines = [line for line in read("growth.csv") if line["axis"] == "rows"]
    columns = {
        "explained": "model to 10",
        "paper": "the paper, 10",
        "matrix": "all weights",
        "paper matrix": "the paper, all weights",
        "peak MiB": "peak, MiB",
    }
    shown = [[f"{int(line['rows']):,}", *(line[name] for name in columns)] for line in lines]
    return table(["rows", *columns.values()], shown)


def put(page, heading, made):
    """The page with the first table after a heading, and the line on the machine below it, replaced."""
    before, after = page.split(f"## {heading}\n", 1)
    found = re.search(r"(\|.*\|\n)+(\n.*Python 3\.[\d.]+\n)?|KERNELS\n|GROWTH\n", after)
    return before + f"## {heading}\n" + after[: found.start()] + made + "\n" + after[found.end() :]


def page():
    return put(put(PAGE.read_text(encoding="utf-8"), "Kernels", kernels()), "Growth", growth())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
