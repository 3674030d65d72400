"""Random models of every library: axil must be exact or refuse by name; never silently wrong, never a crash.

A trial draws data and settings from its seed number and fits a model; if the library refuses, it is void. Then either axil
raises one of its own errors, or what it answers must be right. There are twelve kinds of trials:

- weights: of any model with any setting: they agree with the model's predictions, with the dense recursion and with a replay
  of the fit on other targets, and wrong data are noticed
- deletions: without, removal, leave_one_out and what_if of plain models, L1 and averages among them, against replays of the fit
  from the library's own leaves, in NumPy
- offsets: the same where the fit had init_score, base_margin or baseline, of classifiers and other
  losses too
- losses: pushes, without, removal and what_if of classifiers and other losses, against such replays
- ranks: weights of models of medians and quantiles
- radius: no move of one target inside ``verification.active_set.radius`` changes the pattern
- mistakes: wrong features, targets, weights and offsets are refused, or change no answer
- files: a saved explainer with one entry changed is refused, or answers as before
- dropped: of any model, without and refit(drop=) agree, and so do removal and leave_one_out of
  single rows with without
- terms: contributions of classifiers and counts with L1, largest steps, smoothing, bounds, class weights and categories: no row
  puts more into a score than the terms of its leaf values, from the library's own record
- rankings: contributions of ranking models against replays of their losses in plain loops; without and what_if agree
  with refits
- survival: the same of Cox models and accelerated failure times
- encodings: weights and pushes of CatBoost's models with categories that are encoded by the
  targets; no wrong target passes

    PYTHONPATH=tests python -m fuzz --n 5000 --jobs 2
    PYTHONPATH=tests python -m fuzz --kind deletions --only 1234
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

import axil
import tests.fuzz.catboost
import tests.fuzz.lightgbm
import tests.fuzz.sklearn
import tests.fuzz.xgboost
from tests.fuzz import answers, dropped, rankings, refits, survival, terms
from tests.fuzz.data import Draw, Trial
from tests.fuzz.judge import Wrong, judge, judge_encoded, silence

LIBRARIES = {
    "lightgbm": tests.fuzz.lightgbm.make,
    "xgboost": tests.fuzz.xgboost.make,
    "catboost": tests.fuzz.catboost.make,
    "sklearn": tests.fuzz.sklearn.make,
    "smoother": tests.fuzz.sklearn.make_smoother,
}


@dataclass(frozen=True)
class Kind:
    """What a trial makes, and what must hold of it."""

    libraries: tuple[str, ...]
    make: Callable[[Draw, str], Any]
    judge: Callable[[Any, Draw], None]
    share: float  #: of all trials


BOOSTED = ("lightgbm", "xgboost", "catboost", "histogram", "gradient")
PLAIN = (*BOOSTED, "average")
WITH_OFFSETS = ("lightgbm", "xgboost", "catboost")
WITH_L1 = ("lightgbm", "xgboost")


def _deleted(draw: Draw, library: str) -> Trial:
    loss = "other" if library == "average" and draw.flag("classes", 0.5) else "squared"
    return refits.make(draw, library, loss=loss, held=library in WITH_L1 and draw.flag("held", 0.4))


def _offset(draw: Draw, library: str) -> Trial:
    loss = "other" if draw.flag("other loss", 0.4) else "squared"
    return refits.make(draw, library, loss=loss, offsets=True)


def _any_plain(draw: Draw, library: str) -> Trial:
    loss, offsets = (
        "other" if draw.flag("other loss", 0.3) else "squared",
        draw.flag("offsets", 0.3),
    )
    return refits.make(draw, library, loss=loss, offsets=offsets and library in WITH_OFFSETS)


def _dropped(draw: Draw, library: str) -> Trial:
    if library not in dropped.MODELS or draw.flag("any setting", 0.5):
        return LIBRARIES[library](draw)
    return dropped.make(draw, library)


def _ranked(draw: Draw, library: str) -> Trial:
    draw.ranked = True
    return LIBRARIES[library](draw)


KINDS = {
    "weights": Kind(tuple(LIBRARIES), lambda draw, library: LIBRARIES[library](draw), judge, 0.1),
    "deletions": Kind(PLAIN, _deleted, answers.check_answers, 0.1),
    "offsets": Kind(WITH_OFFSETS, _offset, answers.check_answers, 0.1),
    "losses": Kind(
        BOOSTED, lambda draw, one: refits.make(draw, one, loss="other"), answers.check_answers, 0.1
    ),
    "radius": Kind(
        WITH_L1, lambda draw, one: refits.make(draw, one, held=True), answers.check_radius, 0.05
    ),
    "mistakes": Kind(PLAIN, _any_plain, answers.check_mistakes, 0.1),
    "files": Kind(PLAIN, _any_plain, answers.check_file, 0.05),
    "dropped": Kind(tuple(LIBRARIES), _dropped, dropped.check_dropped, 0.1),
    "encodings": Kind(
        ("catboost",), lambda draw, _: tests.fuzz.catboost.make_encoded(draw), judge_encoded, 0.1
    ),
    "ranks": Kind(("lightgbm", "xgboost", "catboost", "sklearn"), _ranked, judge, 0.1),
    "terms": Kind(WITH_L1, terms.make, terms.check, 0.05),
    "rankings": Kind(WITH_OFFSETS, rankings.make, rankings.check, 0.05),
    "survival": Kind(("xgboost", "catboost"), survival.make, survival.check, 0.05),
}
SEEDS_PER_RUN = 1_000_000  # seed numbers of trials that belong to one --seed
MAX_NUMBER = 2**32 - 1  # the largest seed number that NumPy's global generator takes
MAX_SEED = MAX_NUMBER // SEEDS_PER_RUN - 1  # the largest --seed all of whose trials have one
SECONDS = 120  # a trial that takes longer has failed
CHUNK = 10


@dataclass(frozen=True)
class Outcome:
    seed: int
    kind: str  #: "exact", "refused", "disagreed", "lost" or "rounded" (disagreements of known cause), "void" or "failed"
    why: str
    config: str = ""
    of: str = "weights"  #: which of KINDS

    def __str__(self) -> str:
        return f"{self.kind}: --kind {self.of} --only {self.seed}  {self.why}\n    {self.config}"

    @property
    def bad(self) -> bool:
        return self.kind in ("failed", "disagreed")


def library_of(seed: int, of: str = "weights") -> str:
    return KINDS[of].libraries[seed % len(KINDS[of].libraries)]


def run(seed: int, of: str = "weights") -> Outcome:
    """One trial of a kind."""
    draw = Draw(seed) if of == "weights" else Draw(seed, list(KINDS).index(of))
    np.random.seed(seed)  # noqa: NPY002 - what models without a random_state draw from
    library = library_of(seed, of)

    def outcome(kind: str, why: str) -> Outcome:
        return Outcome(seed, kind, f"{library}: {why}" if why else library, describe(draw), of)

    try:
        with silence(), deadline():
            trial = KINDS[of].make(draw, library)
            trial.predict(trial.X_new)
    except Exception as error:
        return outcome("void", f"{type(error).__name__}: {one_line(error)}")
    try:
        with deadline():
            KINDS[of].judge(trial, draw)
    except axil.UnsupportedModelError as error:
        return outcome("refused", error.setting)
    except axil.ExactnessError as error:
        return outcome(cause(trial, error), str(error)[:400])
    except axil.InputError as error:
        return outcome("refused", str(error)[:60])
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = (
            ""
            if isinstance(error, Wrong)
            else f" ({os.path.basename(where.filename)}:{where.lineno})"
        )
        return outcome("failed", f"{type(error).__name__}{place}: {str(error)[:400]}")
    return outcome("exact", "")


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
    values = error.quantity.startswith(("value", "prediction"))
    if values and abs(error.replayed - error.expected) <= 5e-6 * largest:
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


Number = tuple[int, str]  # the seed number of a trial, and its kind


def seeds(n: int, seed: int, library: str | None = None, of: str = "weights") -> list[int]:
    """n seed numbers, spread over the libraries or all of one."""
    start = seed * SEEDS_PER_RUN
    of_library = (i for i in itertools.count(start) if library in (None, library_of(i, of)))
    return list(itertools.islice(of_library, n))


def numbers_of(
    n: int, seed: int, library: str | None = None, only: str | None = None
) -> list[Number]:
    """n trials, spread over the kinds, or all of one; without the kinds that a library has no part in."""
    kinds = {
        of: kind
        for of, kind in KINDS.items()
        if only in (None, of) and library in (None, *kind.libraries)
    }
    total = sum(kind.share for kind in kinds.values())
    return [
        (number, of)
        for of, kind in kinds.items()
        for number in seeds(round(n * kind.share / total), seed, library, of)
    ]


def run_all(numbers: list[Number]) -> list[Outcome]:
    return [run(*number) for number in numbers]


def in_parallel(numbers: list[Number], jobs: int) -> Iterator[Outcome]:
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
        yield Outcome(left[0][0], "failed", "the process died", of=left[0][1])
    elif left:
        half = -(-len(left) // 2)
        yield from in_parallel(left[:half], jobs)
        yield from in_parallel(left[half:], jobs)


def summary(outcomes: list[Outcome]) -> str:
    """A verdict for each kind of trials; then what was exact, and what was refused by which setting."""
    lines = []
    for of in dict.fromkeys(outcome.of for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.of == of]
        kinds = collections.Counter(outcome.kind for outcome in own)
        verdict = "WRONG" if any(outcome.bad for outcome in own) else "ok"
        told = ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items()))
        lines.append(f"{of:10s} {verdict:6s} {len(own):5d} trials: {told}")
    for kind in ("exact", "refused"):
        counts = collections.Counter(
            f"{outcome.of}, {outcome.why}" for outcome in outcomes if outcome.kind == kind
        )
        lines += [f"  {kind:8s} {n:5d}  {why}" for why, n in sorted(counts.items())]
    return "\n".join(lines)


def bounded(name: str, largest: int) -> Callable[[str], int]:
    """Return the reader of a whole number from 0 to ``largest``."""

    def read(text: str) -> int:
        number = int(text)
        if not 0 <= number <= largest:
            raise argparse.ArgumentTypeError(
                f"{name} is {number}; expected a whole number from 0 to {largest}"
            )
        return number

    read.__name__ = "whole number"  # what argparse calls it where `text` is no number
    return read


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--n",
        type=bounded("the number of trials", SEEDS_PER_RUN),
        default=5000,
        help="number of trials",
    )
    parser.add_argument(
        "--seed",
        type=bounded("the seed", MAX_SEED),
        default=0,
        help=f"another seed from 0 to {MAX_SEED}, other trials",
    )
    parser.add_argument("--kind", choices=list(KINDS), help="trials of this kind alone")
    parser.add_argument("--library", choices=list(dict.fromkeys((*LIBRARIES, *PLAIN))))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--only",
        type=bounded("the number of the trial", MAX_NUMBER),
        help="replay this one trial, of --kind or else of weights",
    )
    parser.add_argument(
        "--void", action="store_true", help="also print the trials that the libraries refused"
    )
    args = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # the jobs share the cores
        os.environ.setdefault(name, "1")
    numbers = numbers_of(args.n, args.seed, args.library, args.kind)
    if args.only is not None:
        numbers = [(args.only, args.kind or "weights")]
    running = itertools.starmap(run, numbers) if args.jobs == 1 else in_parallel(numbers, args.jobs)
    outcomes = []
    for outcome in running:
        outcomes.append(outcome)
        if outcome.bad or args.only is not None or (args.void and outcome.kind == "void"):
            print(outcome, flush=True)
    print(summary(outcomes))
    return int(any(outcome.bad for outcome in outcomes))
