"""Time and memory against rows, trees, leaves and queries; the paper's own times beside ours.

Friedman #1, LightGBM; T = 100, 31 leaves, 10 queries and 100,000 rows where they do not vary. `make bench-growth` writes
results/growth.csv and draws docs/figures/growth.svg (`--large`: up to ten million rows). Each point is a process of its own.
Times are from a fitted model: set-up (leaves, replay, checks) and explanations of the queries; once prepared, of 10 more;
and all training rows' weights where they fit. Memory is the process's peak over what data and model take. The paper's times
are for a Core i9-14900K with 24 cores and 192 GB; what they include of the set-up it does not say.
"""

import argparse
import csv
import json
import subprocess
import sys
import time

from common import RESULTS, fit, forget_peak, friedman, resident, seconds, write_csv

import axil

STANDARD = {"rows": 100_000, "trees": 100, "leaves": 31, "queries": 10}
AXES = {
    "rows": [100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000],
    "trees": [10, 30, 100, 300, 1000],
    "leaves": [7, 15, 31, 63, 127, 255],
    "queries": [1, 10, 100, 1000],
}
LARGE = 10_000_000
MOST_MATRIX = 30_000  # rows: 7.2 GB

# Table "Empirical scaling": 10 queries, and the full matrix.
PAPER = {
    100: 0.0049,
    300: 0.0070,
    1000: 0.0087,
    3000: 0.02,
    10_000: 0.08,
    30_000: 0.30,
    100_000: 1.13,
    300_000: 3.49,
}
PAPER |= {1_000_000: 11.8, 10_000_000: 121}
PAPER_MATRIX = {100: 0.03, 300: 0.05, 1000: 0.62, 3000: 6.55, 10_000: 66.1, 30_000: 542}


def measure(rows, trees, leaves, queries, matrix):
    X, y = friedman(rows)
    model = fit(X, y, trees, leaves)
    new = friedman(queries, seed=1)[0]
    few = new[:10]
    some = X[:100], y[:100]
    axil.Explainer(fit(*some, 2, 4), *some)(few)  # what is loaded once
    forget_peak()
    before, start = resident("VmRSS"), time.perf_counter()
    explainer = axil.Explainer(model, X, y)
    setup = time.perf_counter() - start
    if 8 * queries * rows > 1 << 30:
        explainer.top(new, 10)
    else:
        explainer(new)
    whole = time.perf_counter() - start
    found = {"setup": setup, "explained": whole, "peak": resident("VmHWM") - before}
    explainer.precompute()
    found["prepared"] = seconds(lambda: explainer(few), 3)
    if matrix:
        found["matrix"] = seconds(lambda: axil.Explainer(model, X, y).jacobian.matrix(), 2)
    return found


def points(large):
    for axis, values in AXES.items():
        for value in [*values, LARGE] if large and axis == "rows" else values:
            yield axis, STANDARD | {axis: value}


def run(large):
    lines = []
    for axis, point in points(large):
        matrix = axis == "rows" and point["rows"] <= MOST_MATRIX
        arguments = json.dumps(point | {"matrix": matrix})
        found = json.loads(
            subprocess.check_output([sys.executable, __file__, "--point", arguments])
        )
        paper = PAPER.get(point["rows"]) if axis == "rows" else None
        line = {"axis": axis, **point} | {
            name: round(found[name], 4) for name in ("setup", "explained", "prepared")
        }
        line |= {"paper": paper, "matrix": round(found["matrix"], 3) if matrix else None}
        line |= {
            "paper matrix": PAPER_MATRIX.get(point["rows"]) if matrix else None,
            "peak MiB": found["peak"] >> 20,
        }
        lines.append(line)
        print({name: value for name, value in line.items() if value is not None}, flush=True)
        write_csv("growth.csv", lines)


def draw():
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot as plt

    with open(RESULTS / "growth.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    series = {
        "explained": ("model to explanations", "#1b6ca8", "o-"),
        "prepared": ("10 more, prepared", "#2a9d8f", "s-"),
        "matrix": ("all weights", "#8a5a9e", "^-"),
        "paper": ("the paper, 10 queries", "#c05746", "o--"),
        "paper matrix": ("the paper, all weights", "#e0a030", "^--"),
    }
    figure, panels = plt.subplots(2, len(AXES), figsize=(14, 6), sharex="col", layout="constrained")
    for (axis, _), (times, memory) in zip(AXES.items(), panels.T):
        own = [line for line in lines if line["axis"] == axis]
        for name, (label, color, style) in series.items():
            known = [(float(line[axis]), float(line[name])) for line in own if line[name]]
            if known:
                times.plot(*zip(*known), style, color=color, label=label, markersize=4)
        memory.plot(
            [float(line[axis]) for line in own],
            [max(float(line["peak MiB"]), 1) for line in own],
            "o-",
            color="#444",
        )
        memory.set(xscale="log", yscale="log", xlabel=f"{axis} ({', '.join(fixed(axis))})")
        times.set(yscale="log", title=f"against {axis}")
        for panel in (times, memory):
            panel.grid(alpha=0.3)
    panels[0, 0].set_ylabel("seconds")
    panels[1, 0].set_ylabel("peak memory, MiB")
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=5,
        frameon=False,
    )
    figure.suptitle(
        f"Friedman #1, LightGBM, {lines[0]['machine']}; the paper: Core i9-14900K, 24 cores",
        fontsize=10,
    )
    figure.savefig(
        RESULTS.parent.parent / "docs" / "figures" / "growth.svg", metadata={"Date": None}
    )


def fixed(axis):
    short = {"rows": "N", "trees": "T", "leaves": "L", "queries": "n"}
    return [f"{short[name]} = {value:g}" for name, value in STANDARD.items() if name != axis]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="go on to ten million rows")
    parser.add_argument(
        "--draw", action="store_true", help="only draw what is in results/growth.csv"
    )
    parser.add_argument("--point", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.point:
        return print(json.dumps(measure(**json.loads(arguments.point))))
    if not arguments.draw:
        run(arguments.large)
    draw()


if __name__ == "__main__":
    main()
