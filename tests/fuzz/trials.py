"""Random models of every library: axil must be exact or refuse by name; never silently wrong, never a crash.

A trial draws data and settings from its seed number and fits a model; if the library refuses, it is void. Then either an
Explainer is made, whose weights agree with the model's predictions, with the dense recursion and with a replay of the
fit on other targets, and which notices wrong data; or axil raises one of its own errors.

    PYTHONPATH=tests python -m fuzz --n 2000 --jobs 2
    PYTHONPATH=tests python -m fuzz --only 1234
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import os
import signal
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

import axil
import fuzz.catboost
import fuzz.lightgbm
import fuzz.sklearn
import fuzz.xgboost
from fuzz.data import Draw, Trial
from fuzz.judge import Wrong, judge, silence

LIBRARIES = {
    "lightgbm": fuzz.lightgbm.make,
    "xgboost": fuzz.xgboost.make,
    "catboost": fuzz.catboost.make,
    "sklearn": fuzz.sklearn.make,
    "smoother": fuzz.sklearn.make_smoother,
}
SECONDS = 120  # a trial that takes longer has failed
CHUNK = 10


@dataclass(frozen=True)
class Outcome:
    seed: int
    kind: (
        str  #: "exact", "refused", "disagreed", "lost" or "rounded" (disagreements of known cause), "void" or "failed"
    )
    why: str
    config: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: --only {self.seed}  {self.why}\n    {self.config}"


def library_of(seed: int) -> str:
    return list(LIBRARIES)[seed % len(LIBRARIES)]


def run(seed: int) -> Outcome:
    """One trial."""
    draw = Draw(seed)
    np.random.seed(seed)  # noqa: NPY002 - what models without a random_state draw from
    library = library_of(seed)
    try:
        with silence(), deadline():
            trial = LIBRARIES[library](draw)
            trial.predict(trial.X_new)
    except Exception as error:
        return Outcome(seed, "void", f"{library}: {type(error).__name__}: {one_line(error)}", describe(draw))
    try:
        with deadline():
            judge(trial, draw)
    except axil.UnsupportedModelError as error:
        return Outcome(seed, "refused", f"{library}: {error.setting}", describe(draw))
    except axil.ExactnessError as error:
        return Outcome(seed, cause(trial, error), f"{library}: {str(error)[:400]}", describe(draw))
    except axil.InputError as error:
        return Outcome(seed, "refused", f"{library}: {str(error)[:60]}", describe(draw))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = "" if isinstance(error, Wrong) else f" ({os.path.basename(where.filename)}:{where.lineno})"
        return Outcome(seed, "failed", f"{library}: {type(error).__name__}{place}: {str(error)[:400]}", describe(draw))
    return Outcome(seed, "exact", library, describe(draw))


def cause(trial: Trial, error: axil.ExactnessError) -> str:
    """What a disagreement on the right data is: a finding, unless it is one of two causes that are known.

    A file may have lost a setting. And tolerances are relative to the largest prediction, so where predictions are far
    smaller than targets, offsets or base (a mean of zero, say) the rounding of those to float32 shows.
    """
    if trial.lossy:
        return "lost"
    offsets = 0.0 if trial.offsets is None else float(np.abs(trial.offsets).max())
    numbers = trial.y.dtype.kind == "f"
    largest = max(float(np.abs(trial.y).max()) if numbers else 1.0, offsets, trial.base)
    values = error.what.startswith(("value", "prediction"))
    if values and abs(error.found - error.expected) <= 5e-6 * largest:
        return "rounded"
    return "disagreed"


def describe(draw: Draw) -> str:
    """The choices in one line."""
    return ", ".join(f"{name}={one_line(value)}" for name, value in draw.chosen.items())


def one_line(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else " ".join(str(value).split())[:60]


@contextlib.contextmanager
def deadline() -> Iterator[None]:
    """Raise TimeoutError after SECONDS."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"took longer than {SECONDS} s")

    old = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def seeds(n: int, seed: int, library: str | None = None) -> list[int]:
    """n seed numbers, spread over the libraries or all of one."""
    start = seed * 1_000_000
    of_library = (i for i in itertools.count(start) if library in (None, library_of(i)))
    return list(itertools.islice(of_library, n))


def run_all(numbers: list[int]) -> list[Outcome]:
    return [run(seed) for seed in numbers]


def in_parallel(numbers: list[int], jobs: int) -> Iterator[Outcome]:
    """Outcomes as they come; where a worker dies, the trials that are left are halved until the one is found."""
    chunks, left = [numbers[i : i + CHUNK] for i in range(0, len(numbers), CHUNK)], []
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        running = {pool.submit(run_all, chunk): chunk for chunk in chunks}
        for done in as_completed(running):
            try:
                yield from done.result()
            except BrokenProcessPool:
                left += running[done]
    if left and len(numbers) == 1:
        yield Outcome(left[0], "failed", "the process died")
    elif left:
        half = -(-len(left) // 2)
        yield from in_parallel(left[:half], jobs)
        yield from in_parallel(left[half:], jobs)


def summary(outcomes: list[Outcome]) -> str:
    kinds = collections.Counter(outcome.kind for outcome in outcomes)
    lines = [f"{len(outcomes)} trials: " + ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))]
    for kind in ("exact", "refused"):
        counts = collections.Counter(outcome.why for outcome in outcomes if outcome.kind == kind)
        lines += [f"  {kind:8s} {n:5d}  {why}" for why, n in sorted(counts.items())]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=2000, help="number of trials")
    parser.add_argument("--seed", type=int, default=0, help="another seed, other trials")
    parser.add_argument("--library", choices=list(LIBRARIES))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--only", type=int, help="replay this one trial")
    parser.add_argument("--void", action="store_true", help="also print the trials that the libraries refused")
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # the jobs share the cores
        os.environ.setdefault(name, "1")
    numbers = [args.only] if args.only is not None else seeds(args.n, args.seed, args.library)
    running = map(run, numbers) if args.jobs == 1 else in_parallel(numbers, args.jobs)
    outcomes = []
    for outcome in running:
        outcomes.append(outcome)
        if outcome.kind in ("failed", "disagreed") or args.only is not None or (args.void and outcome.kind == "void"):
            print(outcome, flush=True)
    print(summary(outcomes))
    return int(any(outcome.kind in ("failed", "disagreed") for outcome in outcomes))
