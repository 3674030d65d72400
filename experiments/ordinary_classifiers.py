"""Classifiers at their default settings: does axil explain them, refuse them by name, raise an alarm, or give a wrong account?

    python experiments/ordinary_classifiers.py [--jobs 2] [--trees 50 100]     # goes on where it was interrupted
    python experiments/ordinary_classifiers.py --again                         # anew, such as after a change of axil

Five classifiers of four libraries, ten data sets, 50 to 1,000 trees; fitted on four fifths of the rows, asked about rows of both
parts. A cell is *exact* or *additive* where axil explains the model, and base and contributions (or
weights times targets and
intercepts) add up to the model's own raw score; *wrong* where they do not; *refused* where axil names what it does not take;
*alarm* where the proof fails, though model and data belong together. The command fails where a cell is wrong or an alarm.

Writes results/ordinary_classifiers.csv, a line per cell, and ordinary_classifiers.md, a line per classifier and number of trees.
A run of fewer cells (--trees, --only, --classifiers) prints the table and writes nothing. Cells are kept in
build/experiments/ordinary_classifiers.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from catboost import CatBoostClassifier
from lightgbm import LGBMClassifier
from paper_setting import PACKAGES, Line, markdown, markdown_line, write
from sklearn import datasets
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split
from xgboost import XGBClassifier

import axil

CACHE = Path(__file__).parent.parent / "build" / "experiments" / "ordinary_classifiers.jsonl"
TREES = (50, 100, 300, 1000)
ASKED = 40  # rows of each part
NEAR = 1e-5  # of the largest score: XGBoost adds up leaf values in float32, some 3e-6 at a thousand trees
VERDICTS = ("exact", "additive", "refused", "alarm", "wrong")

Cell = tuple[str, str, int]  # classifier, data set, trees


def _made(**how: Any) -> Any:
    return datasets.make_classification(1000, random_state=0, **how)


def _two_digits() -> Any:
    X, y = datasets.load_digits(return_X_y=True)
    own = np.isin(y, (3, 8))
    return X[own], y[own]


def _rare() -> Any:
    """Three classes of 500, 490 and 10 rows."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], (500, 490, 10))
    return rng.normal(size=(1000, 5)) + y[:, None] * [1.0, 0.5, 0.0, -0.5, 0.2], y


DATA: dict[str, Callable[[], Any]] = {
    "breast_cancer": lambda: datasets.load_breast_cancer(return_X_y=True),
    "wine": lambda: datasets.load_wine(return_X_y=True),
    "iris": lambda: datasets.load_iris(return_X_y=True),
    "digits": lambda: datasets.load_digits(return_X_y=True),
    "two digits": _two_digits,
    "noisy": lambda: _made(n_features=20, flip_y=0.2),
    "five classes": lambda: _made(n_features=10, n_informative=6, n_classes=5),
    "imbalanced": lambda: _made(n_features=10, weights=[0.95]),
    "separable": lambda: datasets.make_blobs(1000, centers=[[-4, -4], [4, 4]], random_state=0),
    "rare class": _rare,
}
CLASSIFIERS: dict[
    str, tuple[Callable[[int], Any], Callable[[Any, Any], Any]]
] = {  # a model of so many trees; its scores
    "LightGBM": (
        lambda n: LGBMClassifier(n_estimators=n, n_jobs=1, verbose=-1),
        lambda model, X: model.predict(X, raw_score=True),
    ),
    "XGBoost": (
        lambda n: XGBClassifier(n_estimators=n, n_jobs=1),
        lambda model, X: model.predict(X, output_margin=True),
    ),
    "CatBoost": (
        lambda n: CatBoostClassifier(
            iterations=n, thread_count=1, verbose=False, allow_writing_files=False
        ),
        lambda model, X: model.predict(X, prediction_type="RawFormulaVal"),
    ),
    "HistGradientBoosting": (
        lambda n: HistGradientBoostingClassifier(max_iter=n, random_state=0),
        lambda model, X: model.decision_function(X),
    ),
    "GradientBoosting": (
        lambda n: GradientBoostingClassifier(n_estimators=n, random_state=0),
        lambda model, X: model.decision_function(X),
    ),
}


def measure(cell: Cell) -> Line:
    """The line of one cell."""
    classifier, data, trees = cell
    X, y = DATA[data]()
    train, new, y_train, _ = train_test_split(X, y, test_size=0.2, random_state=0, stratify=y)
    make, score = CLASSIFIERS[classifier]
    model = make(trees).fit(train, y_train)
    asked = np.concatenate([new[:ASKED], train[:ASKED]])
    start = time.monotonic()
    verdict, error, why = verdict_of(
        model, train, y_train, asked, np.asarray(score(model, asked), dtype=float)
    )
    return {
        "classifier": classifier, "data": data, "N": len(train), "M": X.shape[1], "classes": len(np.unique(y)),
        "trees": trees, "verdict": verdict, "error": "" if error is None else f"{error:.1e}", "why": why,
        "seconds": f"{time.monotonic() - start:.1f}",
    }  # fmt: skip


def verdict_of(
    model: Any, X: Any, y: Any, asked: Any, scores: np.ndarray
) -> tuple[str, float | None, str]:
    """One of VERDICTS, the largest error relative to the largest score, and the reason where there is one."""
    try:
        explainer = axil.Explainer(model, X, y, n_threads=1)
        explanations = list(explainer.iter(asked, batch_size=20))
    except axil.ExactnessError as error:
        return "alarm", None, one_line(error)
    except axil.UnsupportedModelError as error:
        return "refused", None, one_line(f"{error.setting}: {error.reason}")
    except axil.AxilError as error:
        return "refused", None, one_line(f"{type(error).__name__}: {error}")
    made = np.concatenate([sums_of(each, scores.ndim) for each in explanations])
    apart = float(np.abs(made - scores).max() / np.abs(scores).max())
    return explainer.kind if apart <= NEAR else "wrong", apart, ""


def one_line(text: object) -> str:
    return " ".join(str(text).split())[:300]


def sums_of(explanation: Any, n_axes: int) -> np.ndarray:
    """(n,) or (n, K): contributions summed over the training rows, and intercepts."""
    sums = np.asarray(explanation.contributions).sum(axis=-1)
    if n_axes == 2 and len(sums) != len(explanation.predictions):  # outputs come first
        sums = sums.T
    return np.asarray(sums + explanation.intercepts)


def summary(lines: list[Line]) -> list[Line]:
    """One line per classifier and number of trees: how many data sets have which verdict, and which of them are not explained."""
    shown: list[Line] = []
    for classifier, trees in dict.fromkeys((line["classifier"], line["trees"]) for line in lines):
        own = [line for line in lines if (line["classifier"], line["trees"]) == (classifier, trees)]
        counts = {name: sum(line["verdict"] == name for line in own) for name in VERDICTS}
        errors = [float(str(line["error"])) for line in own if line["error"]]
        others = [
            f"{line['data']} ({line['verdict']})" for line in own if line["verdict"] in VERDICTS[2:]
        ]
        shown.append(
            {"classifier": classifier, "trees": trees, "data sets": len(own)}
            | {name: n or "" for name, n in counts.items()}
            | {
                "largest error": f"{max(errors):.1e}" if errors else "",
                "not explained": ", ".join(others),
            }
        )
    return shown


def measured(cells: list[Cell], jobs: int, cache: Path) -> Iterator[Line]:
    """Lines as they come, those of earlier runs first."""
    cache.parent.mkdir(parents=True, exist_ok=True)
    known = (
        [json.loads(text) for text in cache.read_text(encoding="utf-8").splitlines()]
        if cache.exists()
        else []
    )
    done = {(line["classifier"], line["data"], line["trees"]): line for line in known}
    yield from (done[cell] for cell in cells if cell in done)
    left = [cell for cell in cells if cell not in done]
    with (
        ProcessPoolExecutor(jobs, get_context("spawn")) as pool,
        open(cache, "a", encoding="utf-8") as file,
    ):
        for one in as_completed([pool.submit(measure, cell) for cell in left]):
            print(json.dumps(one.result()), file=file, flush=True)
            yield one.result()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--trees",
        type=int,
        nargs="+",
        default=list(TREES),
        help="numbers of trees (default: %(default)s)",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(DATA),
        default=list(DATA),
        metavar="NAME",
        help="data sets",
    )
    parser.add_argument(
        "--classifiers",
        nargs="+",
        choices=list(CLASSIFIERS),
        default=list(CLASSIFIERS),
        metavar="NAME",
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--cache",
        type=Path,
        default=CACHE,
        help="file in which cells are kept (default: %(default)s)",
    )
    parser.add_argument("--again", action="store_true", help="measure the cells that are kept, too")
    given = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):  # the jobs share the cores
        os.environ.setdefault(name, "1")
    if given.again:
        given.cache.unlink(missing_ok=True)
    cells = [
        (one, data, trees)
        for one in given.classifiers
        for trees in given.trees
        for data in given.only
    ]
    found: dict[Cell, Line] = {}
    for line in measured(cells, given.jobs, given.cache):
        found[str(line["classifier"]), str(line["data"]), int(str(line["trees"]))] = line
        print(markdown_line(line.values()), flush=True)
    lines = [found[cell] for cell in cells]
    print("", *markdown(summary(lines)), sep="\n")
    if len(cells) == len(CLASSIFIERS) * len(TREES) * len(DATA):
        packages = [*PACKAGES, "xgboost", "catboost"]
        write(
            "ordinary_classifiers",
            lines,
            "python experiments/ordinary_classifiers.py",
            packages,
            summary(lines),
        )
    return int(any(line["verdict"] in ("alarm", "wrong") for line in lines))


if __name__ == "__main__":
    sys.exit(main())
