"""The measured tables of docs/evidence_speed.md and docs/production.md, from benchmarks/results: run it to write them.

Each table is of one run: lines of several machines, versions or commands in one file are refused.
"""

import csv
import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
SPEED, PRODUCTION = ROOT / "docs" / "evidence_speed.md", ROOT / "docs" / "production.md"
RESULTS = ROOT / "benchmarks" / "results"


def read(name):
    """The lines of a file, and the line on the run that made them."""
    with open(RESULTS / name, newline="") as file:
        lines = list(csv.DictReader(file))
    runs = {about(line) for line in lines}
    if len(runs) != 1:
        raise ValueError(f"{name} has lines of several runs; expected those of one: {runs}")
    return lines, runs.pop()


def about(line):
    return f"`{line['command']}`, {line['date']}: {line['machine']}."


def table(head, lines):
    first, *others = ("| " + " | ".join(line) + " |" for line in (head, *lines))
    return "\n".join([first, "|---" * len(head) + "|", *others])


def digits(value, n=2):
    """A number with this many digits, from 1,000 on without decimals."""
    value = float(value)
    return f"{value:,.0f}" if value >= 10**n else f"{value:.{n}g}"


STEPS = (
    "leaves",
    "sweep 10",
    "prepared 10",
    "top 10 of 100",
    "model to 10",
)  # whose ratios are to the base


def kernels():
    lines, run = read("kernels.csv")
    shown = [
        line
        for line in lines
        if (line["rows"] == "1000000" and line["step"] in STEPS) or line["step"] == "all"
    ]
    head = ["step", "seconds", "times as fast"]
    return table(head, [[line["step"], line["seconds"], line["ratio"]] for line in shown]), run


def growth():
    lines, run = read("growth.csv")
    columns = {
        "explained": "model to 10",
        "paper": "the paper, 10",
        "peak MiB": "peak, MiB",
    }
    shown = [
        line
        for line in lines
        if line["axis"] == "rows" and line["rows"].strip("0") == "1" and len(line["rows"]) > 3
    ]
    return table(
        ["rows", *columns.values()],
        [[f"{int(line['rows']):,}", *(line[name] for name in columns)] for line in shown],
    ), run


def ways():
    """The seconds of both ways with 1,000,000 rows and 100 trees, and how the choices fared at all sizes."""
    lines, run = read("ways.csv")
    known = [float(line["over"]) for line in lines if line["sweeps"] and line["leaf matrix"]]
    shown = [
        line
        for line in lines
        if line["rows"] == "1000000" and line["trees"] == "100" and not line["not run"]
    ]
    better = sum(over <= 1 for over in known)
    said = f"Of {len(known)} requests {better} took the better way; at worst one took {max(known):g} times the other."
    if better == len(known):
        guessed = sum(
            bool(line["not run"]) for line in lines if line["sweeps"] and line["leaf matrix"]
        )
        said = f"All of {len(known)} requests took the better way, {guessed} of them by estimate."
    head = ["explained rows, of 1,000,000", *(f"{int(line['queries']):,}" for line in shown)]
    both = [[way, *(digits(line[way]) for line in shown)] for way in ("sweeps", "leaf matrix")]
    return table(head, both), f"{said} {run}"


def largest():
    lines, run = read("largest.csv")
    most = lines[-1]["rows"]
    own = {(line["step"], line["by"]): line for line in lines if line["rows"] == most}
    shown = []
    for by in ("weight", "contribution"):
        taken = (
            own["all rows", by]["processor"],
            own["bounds", by]["processor"],
            own["bounds", by]["ratio_processor"],
        )
        shown.append([by, *map(digits, taken)])
    head = [f"{int(most):,} rows, by", "all rows read", "by bounds", "times as fast"]
    return table(
        head, shown
    ), f"Blocks, made once, took {digits(own['blocks', '']['processor'])} s. {run}"


KINDS = ("squared", "weighted", "classes")


def questions():
    """The ratio of each question to the set-up of its explainer, for every number of rows and kind of model."""
    lines, run = read("questions.csv")
    sizes = list(dict.fromkeys(line["rows"] for line in lines))
    found = {(line["rows"], line["kind"], line["question"]): line for line in lines}
    shown = []
    for name in dict.fromkeys(
        line["question"] for line in lines if "intervals" not in line["question"]
    ):
        what = "processor" if name == "set-up" else "ratio"
        own = [[found.get((rows, kind, name), {}).get(what) for kind in KINDS] for rows in sizes]
        cells = [
            ", ".join("-" if value is None else digits(value) for value in values) for values in own
        ]
        shown.append(["set-up, s" if name == "set-up" else name, *cells])
    return table([", ".join(KINDS), *(f"{int(rows):,} rows" for rows in sizes)], shown), run


LARGE = (
    "LightGBM's own fit",
    "model to explainer, proof included",
    "top 10 of 1000",
    "five comparables of 100",
    "leverages, estimated",
    "peak memory over data and model",
)


def large():
    lines, run = read("large.csv")
    head = [f"{int(lines[0]['rows']):,} rows, {int(lines[0]['trees']):,} trees", "", "core seconds"]
    shown = [
        [
            line["step"],
            f"{digits(line['value'])} {line['unit']}",
            line["core seconds"] and digits(line["core seconds"]),
        ]
        for line in lines
        if line["step"].split(", from")[0] in LARGE
    ]
    return table(head, shown), run


LIGHTGBM = "1e+06 rows, 100 trees, LightGBM"
ON_GPU = {
    "364,000 rows, 2,460 trees of 235 leaves: top 10 per row, by backward passes": (
        "364,000 rows, 2,460 trees of 235 leaves, {}: per query (ms)",
        "ms",
    ),
    "the same: most shared leaves of 300 rows": (
        "364,000 rows, 2460 trees, {}: most shared leaves, 300 queries (s)",
        "s",
    ),
    "10,000,000 rows: top 10 of 100,000, prepared": (
        "1e+07 rows, 100 trees, LightGBM, {}: top 10 of 100,000, prepared (s)",
        "s",
    ),
    "1,000,000 rows: `diagnostics.leave_one_out`, the leaf matrix included": (
        LIGHTGBM + ", {}: leave_one_out, explainer made before (s)",
        "s",
    ),
    "1,000,000 rows, classifier: top 10 of 1,024 by contributions": (
        LIGHTGBM + " classifier, {}: top 10 of 1,024 (s)",
        "s",
    ),
    "the same: derivatives of ten by all weights": (
        LIGHTGBM + " classifier, {}: derivatives of ten by all weights (s)",
        "s",
    ),
}


def gpu():
    made = json.loads((RESULTS / "gpu.json").read_text(encoding="utf-8"))
    machine, figures = made["machine"], made["figures"]
    places = ("GPU", f"{machine['cores']} cores")
    shown = []
    for name, (key, unit) in ON_GPU.items():
        values = [figures[key.format(place)] for place in places]
        shown.append([name, *(f"{digits(value)} {unit}" for value in values)])
    head = [f"{machine['device']}, beside {places[1]}", *places]
    return table(head, shown), about(machine)


def production():
    lines, run = read("production.csv")
    sizes = list(dict.fromkeys((line["rows"], line["trees"]) for line in lines))
    found = {(line["rows"], line["trees"], line["step"]): line["processor_ms"] for line in lines}
    head = ["processor ms", *(f"{int(rows):,} rows, {trees} trees" for rows, trees in sizes)]
    steps = dict.fromkeys(line["step"] for line in lines)
    return table(
        head, [[step, *(digits(found[(*size, step)], 3) for size in sizes)] for step in steps]
    ), run


def put(page, heading, made):
    """The page with the first table below a heading, and the line on its run, replaced."""
    before, after = page.split(f"## {heading}\n", 1)
    found = re.search(r"(\|.*\|\n)+(\n.*`python benchmarks/.*, 20\d\d-.*\n)?", after)
    return (
        before
        + f"## {heading}\n"
        + after[: found.start()]
        + "\n\n".join(made)
        + "\n"
        + after[found.end() :]
    )


TABLES = {
    SPEED: {
        "Growth": growth,
        "Kernels": kernels,
        "The way of a request": ways,
        "The largest of many rows": largest,
        "Every method": questions,
        "A large model": large,
        "GPU": gpu,
    },
    PRODUCTION: {"Latency": production},
}


def pages():
    """Each page with its tables."""
    found = {}
    for path, tables in TABLES.items():
        found[path] = path.read_text(encoding="utf-8")
        for heading, make in tables.items():
            found[path] = put(found[path], heading, make())
    return found


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
