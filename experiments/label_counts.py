"""Estimate how many labels are wrong.

Estimates of find_label_issues and cleanlab, on data as they are and with 5 % of the labels
corrupted.

    python experiments/label_counts.py --data FOLDER           # the paper's data sets of up to 1000 training rows
    python experiments/label_counts.py --quick                 # two small ones

Data, models and wrong labels are those of label_noise.py, in two repetitions; those of classes are in label_noise_classes.py.
"as given": the data as they are, where all labels count as right. "share off" is the size of the difference between the share of
rows that a method holds for wrong and the true one, "share too high" the difference with its sign. Means over the data sets are
in results/label_counts.md; "others": over those that no choice of the method was made on.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from label_noise import CHOSEN_ON, CLEANED, LARGE, CleanLearning, cleaned, label_checks, spoil
from paper_data import QUICK, read
from paper_setting import PACKAGES, Line, arguments, command, markdown, write

REPETITIONS = 2


def run(name: str, X: np.ndarray, y: np.ndarray) -> Iterator[Line]:
    for kind in ("as given", "swapped", "shifted"):
        off: dict[str, list[float]] = {}
        for seed in range(REPETITIONS):
            rng = np.random.default_rng(seed)
            train = rng.permutation(len(y))[: len(y) // 2]
            spoilt, wrong = y[train], np.zeros(len(train), dtype=bool)
            if kind != "as given":
                spoilt, wrong = spoil(y[train], kind, rng)
            found = label_checks(X[train], spoilt, seed)[3]
            if (
                CleanLearning is not None
                and seed == 0
                and kind != "as given"
                and len(train) <= CLEANED
            ):
                found["cleanlab"] = cleaned(X[train], spoilt, seed)
            for method, one in found.items():
                off.setdefault(method, []).append((one.count - wrong.sum()) / len(wrong))
        for method, values in off.items():
            line: Line = {
                "data": name,
                "training rows": len(y) // 2,
                "wrong": kind,
                "method": method,
            }
            yield line | {
                "share off": round(np.mean(np.abs(values)), 4),
                "share too high": round(np.mean(values), 4),
            }


def summary(lines: list[Line]) -> list[Line]:
    frame = pd.DataFrame(lines)
    frame["others"] = frame["share off"].where(~frame["data"].isin(CHOSEN_ON))
    made = []
    for (method, kind), own in frame.groupby(["method", "wrong"]):
        line: Line = {
            "method": method,
            "wrong": kind,
            "data sets": len(own),
            "share off": f"{own['share off'].mean():.3f}",
        }
        line |= {
            "share off, others": f"{own['others'].mean():.3f}",
            "median": f"{own['share off'].median():.3f}",
        }
        made.append(line | {"share too high": f"{own['share too high'].mean():+.3f}"})
    return made


def main() -> None:
    parser = arguments(__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="two small data sets; prints, writes nothing"
    )
    given = parser.parse_args()
    lines: list[Line] = []
    for name in QUICK if given.quick else given.only:
        X, y = (part.to_numpy(float) for part in read(name, given.data))
        if len(y) // 2 <= LARGE:
            lines += run(name, X, y)
            print(name, flush=True)
    print("\n".join(markdown(summary(lines))))
    if not given.quick:
        packages = PACKAGES if CleanLearning is None else (*PACKAGES, "cleanlab")
        write("label_counts", lines, command("label_counts", given.data), packages, summary(lines))


if __name__ == "__main__":
    main()
