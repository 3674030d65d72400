"""Coverage within classes of homes where some prices are wrong: without groups, with them, and after a label check.

    python experiments/intervals_groups.py       # a minute; needs no data

Simulated sales of homes in three classes, whose errors have a size of their own: 3,000 to fit, 1,000 to calibrate, 3,000 to
predict, boosting of log prices. 2 % of the prices of the first two are ten times too high or too low; those predicted are right.
90 % intervals: coverage and mean width (of logarithms) by class, means over three draws. "label
issues dropped": suspects of `find_label_issues` are left out of the training rows before the fit,
and those of a model of the calibration rows out of these.
"""

from __future__ import annotations

import argparse

import lightgbm as lgb
import numpy as np
from paper_setting import Line, command, markdown, write

import axil

SIZES, WRONG, DRAWS = (0.10, 0.14, 0.22), 0.02, 3
FITTED, HELD, NEW = 3000, 1000, 3000


def homes(
    n: int, wrong: float, draws: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, log prices and classes."""
    kind = draws.choice(3, n, p=(0.6, 0.25, 0.15))
    area, age, place = (
        draws.normal(4.6 + 0.3 * kind, 0.3),
        draws.uniform(0, 80, n),
        draws.uniform(-1, 1, (n, 2)),
    )
    value = 8 + area - 0.004 * age + 0.3 * np.sin(3 * place[:, 0]) * place[:, 1] + 0.2 * kind
    price = value + draws.normal(size=n) * np.array(SIZES)[kind]
    bad = draws.random(n) < wrong
    price[bad] += draws.choice([-1, 1], bad.sum()) * np.log(10)
    return np.column_stack([area, age, place, kind]), price, kind


def fitted(X: np.ndarray, y: np.ndarray) -> axil.Explainer:
    model = lgb.LGBMRegressor(n_estimators=100, num_leaves=15, verbose=-1, n_jobs=1).fit(X, y)
    return axil.Explainer(model, X, y, n_threads=1)


def trusted(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the positions of rows without a label issue."""
    table = fitted(X, y).find_label_issues()
    return np.setdiff1d(np.arange(len(y)), table["row"][table["is_label_issue"]])


def measure(wrong: float, seed: int) -> dict[str, np.ndarray]:
    """(2, 3) for each way: coverage and width by class."""
    draws = np.random.default_rng(seed)
    (X, y, _), (X_cal, y_cal, _), (new, truth, kind) = (
        homes(n, part, draws) for n, part in ((FITTED, wrong), (HELD, wrong), (NEW, 0.0))
    )
    kept, kept_cal = trusted(X, y), trusted(X_cal, y_cal)
    found = {}
    for dropped in (False, True):
        explainer = fitted(X[kept], y[kept]) if dropped else fitted(X, y)
        cal = (X_cal[kept_cal], y_cal[kept_cal]) if dropped else (X_cal, y_cal)
        ways = {
            "constant": None,
            "leaves": {},
            "exact": {"method": "exact"},
            "groups": {"groups": cal[0][:, -1]},
        }
        for way, given in ways.items():
            if given is None:
                errors = np.sort(np.abs(cal[1] - explainer.model.predict(cal[0])))
                half = errors[int(np.ceil(0.9 * (len(errors) + 1))) - 1]
                middle = explainer.model.predict(new)
                lower, upper = middle - half, middle + half
            else:
                asked = {"groups": new[:, -1]} if "groups" in given else {}
                table = explainer.calibrate(*cal, **given).interval(new, **asked)
                lower, upper = table["lower"].to_numpy(), table["upper"].to_numpy()
            covered = (lower <= truth) & (truth <= upper)
            by_class = [
                [values[kind == k].mean() for k in range(3)] for values in (covered, upper - lower)
            ]
            found[way + (", label issues dropped" if dropped else "")] = np.array(by_class)
    return found


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    lines: list[Line] = []
    for wrong in (0.0, WRONG):
        every = [measure(wrong, seed) for seed in range(DRAWS)]
        for way in every[0]:
            covered, width = np.mean([one[way] for one in every], axis=0)
            line: Line = {"wrong": f"{wrong:.0%}", "intervals": way}
            line |= {f"covered, class {k}": f"{value:.3f}" for k, value in enumerate(covered, 1)}
            lines.append(
                line | {f"width, class {k}": f"{value:.2f}" for k, value in enumerate(width, 1)}
            )
    print("\n".join(markdown(lines)))
    write("intervals_groups", lines, command("intervals_groups", None))


if __name__ == "__main__":
    main()
