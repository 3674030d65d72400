"""How many models, set as tuners set them, are explained, exactly or by contributions.

Also which settings refuse the others.

    python experiments/tuned.py [--data FOLDER] [--jobs 2]     # 200 models; writes results/tuned.csv and .md, tuned_refused.md
    python experiments/tuned.py --task quantiles               # or counts, classes: 200 of these; prints the tables alone
    python experiments/tuned.py --task all --n 100             # 100 of each; writes results/tuned_tasks.md

FOLDER holds the paper's data sets as CSV files; without it scikit-learn's own are taken. Settings are sampled at random from the
tuners' search spaces (tests/fuzz/spaces.py); constraints, categories, weights, early stopping and DART are added to some. A
model is *exact* where the proof holds, where weights @ targets + intercept are the library's own predictions of rows held out,
and where mistakes in the data are noticed. It is *refused* where axil names a setting, else *wrong*: the command fails then.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import paper_data
from paper_setting import PACKAGES, Line, command, markdown, markdown_line, write, write_shown

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.fuzz import tables, tuned, verdict
from tests.fuzz.data import Draw, Trial
from tests.fuzz.judge import silence
from tests.fuzz.trials import describe


def reader(folder: Path | None) -> tuple[Sequence[str], Callable[[str], tuple[Any, Any]]]:
    """Names of data sets, and how one is read."""
    return (
        (list(tables.OWN), tables.own)
        if folder is None
        else (paper_data.NAMES, partial(paper_data.read, folder=folder))
    )


def measure(number: int, seed: int, folder: Path | None, task: str) -> Line:
    """The line of the model of one number."""
    with silence():
        draw, trial = tuned.model_of(number, seed, *reader(folder), task)
    return line_of(number, draw, trial)


def line_of(number: int, draw: Draw, trial: Trial) -> Line:
    found = verdict.verdict_of(trial, draw)
    chosen = draw.chosen
    return {
        "model": number,
        "library": chosen.pop("library"),
        "tuner": chosen.pop("tuner"),
        "data": chosen.pop("data"),
        "rows": len(trial.y),
        "squared error": "yes" if chosen.pop("squared error") else "no",
        "verdict": found.kind,
        "refused by": found.setting,
        "error": "" if found.error is None else f"{found.error:.1e}",
        "allowed": "" if found.allowed is None else f"{found.allowed:.1e}",
        "why": found.why if found.kind == "wrong" else "",
        "settings": describe(draw),
    }


def summary(lines: list[Line]) -> list[Line]:
    """One line per library and one for all: how many models of squared error are exact, refused or wrong."""
    shown = []
    for library in [*dict.fromkeys(line["library"] for line in lines), "all"]:
        own = [line for line in lines if library in (line["library"], "all")]
        squared = [line for line in own if line["squared error"] == "yes"]
        exact = [line for line in squared if line["verdict"] == "exact"]
        errors = [float(line["error"]) for line in exact]
        shown.append(
            {
                "library": library,
                "models": len(own),
                "squared error": len(squared),
                "exact": len(exact),
                "share": f"{100 * len(exact) / max(1, len(squared)):.1f} %",
                "refused": sum(line["verdict"] == "refused" for line in squared),
                "wrong": sum(line["verdict"] == "wrong" for line in own),
                "largest error": f"{max(errors):.1e}" if errors else "",
            }
        )
    return shown


def tasks(lines: list[Line]) -> list[Line]:
    """One line per library and one for all: how many models of a task are explained, refused or wrong."""
    shown = []
    for library in [*dict.fromkeys(line["library"] for line in lines), "all"]:
        own = [line["verdict"] for line in lines if library in (line["library"], "all")]
        counts: Line = {kind: own.count(kind) for kind in ("exact", "additive", "refused", "wrong")}
        share = f"{100 * (own.count('exact') + own.count('additive')) / max(1, len(own)):.1f} %"
        shown.append({"library": library, "models": len(own), **counts, "explained": share})
    return shown


def refused(lines: list[Line]) -> list[Line]:
    """One line per library and setting that refused models."""

    def key(line: Line) -> tuple[str, str, str]:
        return str(line["library"]), str(line["refused by"]), str(line["squared error"])

    own = sorted((line for line in lines if line["verdict"] == "refused"), key=key)
    return [
        {
            "library": library,
            "refused by": f"`{setting}`",
            "squared error": squared,
            "models": len(list(group)),
        }
        for (library, setting, squared), group in groupby(own, key)
    ]


def in_turn(numbers: range, seed: int, folder: Path | None, jobs: int, task: str) -> Iterator[Line]:
    """Lines in the order of the numbers."""
    one = partial(measure, seed=seed, folder=folder, task=task)
    if jobs == 1:
        yield from map(one, numbers)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(one, numbers, chunksize=4)


def printed(given: argparse.Namespace, task: str) -> list[Line]:
    """The lines of one task, printed as they come."""
    lines = []
    for line in in_turn(range(given.n), given.seed, given.data, given.jobs, task):
        lines.append(line)
        print(markdown_line(list(line.values())[:-1]), flush=True)
    return lines


def every_task(given: argparse.Namespace) -> int:
    """One line for each task, and how it was made; 1 where a model is wrong."""
    shown: list[Line] = []
    for task in filter(None, tuned.TASKS):
        *_, whole = tasks(printed(given, task))
        shown.append(
            {"task": task, **{name: found for name, found in whole.items() if name != "library"}}
        )
    ran = f"{command('tuned', given.data)} --task all --n {given.n}"
    write_shown("tuned_tasks", shown, ran, [*PACKAGES, "xgboost", "catboost"])
    return int(any(line["wrong"] for line in shown))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="a folder of the paper's data sets as CSV files"
    )
    parser.add_argument("--n", type=int, default=200, help="number of models")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other models")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--task", choices=[*tuned.TASKS, "all"], default="", help="another task than squared error"
    )
    given = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # the jobs share the cores
        os.environ.setdefault(name, "1")
    if given.task == "all":
        return every_task(given)
    lines = printed(given, given.task)
    shown = (
        (tasks if given.task else summary)(lines),
        refused(lines) or [{"library": "none", "refused by": "", "squared error": "", "models": 0}],
    )
    for table in shown:
        print("", *markdown(table), sep="\n")
    if given.task:
        return int(any(line["verdict"] == "wrong" for line in lines))
    packages = [*PACKAGES, "xgboost", "catboost"]
    write("tuned", lines, command("tuned", given.data), packages, shown[0])
    write_shown("tuned_refused", shown[1], command("tuned", given.data), packages)
    return int(any(line["verdict"] == "wrong" for line in lines))


if __name__ == "__main__":
    sys.exit(main())
