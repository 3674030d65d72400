"""Wrong targets in the simulated data of cleanlab's regression benchmark: who puts them first?

    python experiments/simulated_errors.py --data FOLDER       # others.py says what the folder holds
    python experiments/simulated_errors.py --quick             # one small data set of the same kind

cleanlab/regression-label-error-benchmark has 200 training rows with 20 targets that are too high or too low by 1, 2 or 3, at a
noise of 0.5 around a linear function, or around two branches of a curved one, in 50 runs. All
methods have the same LightGBM model, that of label_noise.py. Score: the area under the curve of precision over recall, as in the
benchmark. cleanlab: `cleanlab.regression.learn.CleanLearning` with its defaults, where it is installed. "8 times": the mean of
the predictions of eight cross-validations, with other folds each; their number was chosen on runs 20 to 23, which do not count.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import others
from label_noise import CleanLearning, cleaned, label_checks, score_of_issues, unseen_predictions
from paper_setting import PACKAGES, Line, markdown, write
from scipy import stats
from sklearn.metrics import auc, precision_recall_curve

KINDS = {"linear": "Data5DLM", "branches": "Data5D"}
SIGNALS, RUNS, TIMES = (-3, -2, -1, 1, 2, 3), 50, 8
CHOSEN_ON = range(20, 24)
METHODS = (
    "find_label_issues", "find_label_issues, out-of-fold", "leave-one-out residual", "out-of-fold residual", "cleanlab",
    f"find_label_issues, {TIMES} times out-of-fold", f"out-of-fold residual, {TIMES} times",
)  # fmt: skip


def quick_rows(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    draws = np.random.default_rng(seed)
    X, wrong = draws.uniform(-1.5, 1.5, (200, 5)), np.arange(200) < 20
    return X, X @ [1, -1, 1, 1, -1] + draws.normal(0, 0.5, 200) + 3 * wrong, wrong


def areas(folder: Path | None, kind: str, signal: int, run: int) -> np.ndarray:
    """The score of each method; none for cleanlab where it is not installed."""
    X, y, wrong = others.simulated(folder, KINDS[kind], signal, run) if folder else quick_rows(run)
    explainer, alone, unseen, found = label_checks(X, y, run)
    mean = np.mean(
        [unseen, *(unseen_predictions(X, y, run + RUNS * time) for time in range(1, TIMES))], axis=0
    )
    found[f"find_label_issues, {TIMES} times out-of-fold"] = score_of_issues(
        explainer.find_label_issues(out_of_fold=mean)
    )
    suspicions = {method: own.suspicion for method, own in found.items()}
    suspicions |= {
        "leave-one-out residual": np.abs(y - alone),
        "out-of-fold residual": np.abs(y - unseen),
    }
    suspicions[f"out-of-fold residual, {TIMES} times"] = np.abs(y - mean)
    if CleanLearning is not None and folder:
        suspicions["cleanlab"] = cleaned(X, y, run).suspicion
    return np.array(
        [area(suspicions[name], wrong) if name in suspicions else np.nan for name in METHODS]
    )


def area(suspicion: np.ndarray, wrong: np.ndarray) -> float:
    precision, recall, _ = precision_recall_curve(wrong, np.nan_to_num(suspicion, posinf=1e300))
    return float(auc(recall, precision))


def lines_of(found: dict[tuple[object, ...], np.ndarray]) -> list[Line]:
    lines: list[Line] = []
    for kind, signal in dict.fromkeys(task[:2] for task in found):
        own = np.array([scores for task, scores in found.items() if task[:2] == (kind, signal)])
        line: Line = {"data": kind, "off by": signal, "runs": len(own)}
        lines.append(
            line | {method: f"{mean:.3f}" for method, mean in zip(METHODS, own.mean(axis=0))}
        )
    return lines


def shown(found: dict[tuple[object, ...], np.ndarray]) -> list[Line]:
    """Means by kind and size of the error, over both directions; then over all.

    The last line has the p of a paired t-test against find_label_issues.
    """
    made: list[Line] = []
    for kind, size in dict.fromkeys((task[0], abs(task[1])) for task in found):
        own = np.array(
            [scores for task, scores in found.items() if (task[0], abs(task[1])) == (kind, size)]
        )
        line: Line = {"data": kind, "off by": f"± {size}", "runs": len(own)}
        made.append(
            line | {method: f"{mean:.2f}" for method, mean in zip(METHODS, own.mean(axis=0))}
        )
    every = np.array(list(found.values()))
    line = {"data": "all", "off by": "", "runs": len(every)}
    made.append(line | {method: f"{mean:.3f}" for method, mean in zip(METHODS, every.mean(axis=0))})
    p = [stats.ttest_rel(every[:, 0], other).pvalue for other in every.T]
    line = {"data": "p against find_label_issues", "off by": "", "runs": ""}
    made.append(
        line
        | {method: "" if np.isnan(value) else f"{value:.1g}" for method, value in zip(METHODS, p)}
    )
    return made


def main() -> None:
    parser = others.arguments(__doc__.splitlines()[0], list(KINDS))
    parser.add_argument(
        "--runs", type=int, default=RUNS, help=f"runs of each simulation (default: {RUNS})"
    )
    given = parser.parse_args()
    runs = [run for run in range(given.runs) if run not in CHOSEN_ON]
    tasks = [(kind, signal, run) for run in runs for kind in given.only for signal in SIGNALS]
    tasks = [("linear", 3, run) for run in range(2)] if given.quick else tasks
    found = others.made(given, tasks, areas, (len(METHODS),))
    lines = lines_of(found)
    print("\n".join(markdown(shown(found))))
    if given.out:
        packages = PACKAGES if CleanLearning is None else (*PACKAGES, "cleanlab")
        line = others.typed("simulated_errors", given, list(KINDS), runs=RUNS)
        write("simulated_errors", lines, line, packages, shown(found), given.out)


if __name__ == "__main__":
    main()
