"""Conditional coverage by MAPIE's own metrics: axil's intervals against MAPIE's methods.

    python experiments/conditional_coverage.py --data FOLDER   # others.py says what the folder holds
    python experiments/conditional_coverage.py --quick         # a small data set of scikit-learn's

Needs `pip install 'mapie[conditional]'`. 60 % of the rows are fitted on, 20 % calibrate, 20 % test; of more than MOST_ROWS rows
as many are drawn; SPLITS such splits. LightGBM with its defaults everywhere. Intervals of 90 %, of

- axil: `calibrate(X_cal, y_cal)`
- split: SplitConformalRegressor, one width
- normalised: the same with ResidualNormalisedScore, whose model of the errors is fitted to half of the calibration rows
- CQR: ConformalizedQuantileRegressor
- CV+: CrossConformalRegressor of five folds of the training and calibration rows

"worst size": regression_ssc_score, the lowest coverage of three groups by width (of one width there is none); "worst slab":
worst_slab_coverage, the lowest coverage between two planes that have a tenth of the rows between them, features in standard
deviations; "excess risk": excess_risk_target_coverage, by how much coverage is to be foreseen from the features (0 is best);
"dependence": hsic of width and coverage (0 is best); "Winkler": regression_mwi_score, over that of split.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import others
import paper_data
from intervals_rivals import MODEL, Split, both
from intervals_scores import COVERAGE
from paper_setting import PACKAGES, Line, markdown, write
from sklearn.preprocessing import StandardScaler

import axil

METHODS = ("axil", "split", "normalised", "CQR", "CV+")
SCORES = ("coverage", "width", "Winkler", "worst size", "worst slab", "excess risk", "dependence")
SETS = ("communities", "star", "casp", "blog")
MOST_ROWS, SPLITS, DIRECTIONS = 2000, 5, 200


def intervals(split: Split) -> dict[str, np.ndarray]:
    """{method: (n, 2)}"""
    from mapie.conformity_scores import ResidualNormalisedScore
    from mapie.regression import (
        ConformalizedQuantileRegressor,
        CrossConformalRegressor,
        SplitConformalRegressor,
    )

    def own(method: Any) -> np.ndarray:
        return method.predict_interval(split.X)[1][:, :, 0]

    def quantile(alpha: float) -> Any:
        return lgb.LGBMRegressor(objective="quantile", alpha=alpha, **MODEL).fit(
            split.X_train, split.y_train
        )

    held = split.X_cal, split.y_cal
    table = (
        axil.Explainer(split.model, split.X_train, split.y_train, n_threads=1)
        .calibrate(*held)
        .interval(split.X)
    )
    errors = ResidualNormalisedScore(lgb.LGBMRegressor(**MODEL), random_state=split.seed)
    pair = [quantile(alpha) for alpha in (0.05, 0.95, 0.5)]
    crossed = CrossConformalRegressor(
        lgb.LGBMRegressor(**MODEL), COVERAGE, cv=5, random_state=split.seed
    )
    return {
        "axil": table[["lower", "upper"]].to_numpy(),
        "split": own(SplitConformalRegressor(split.model, COVERAGE).conformalize(*held)),
        "normalised": own(
            SplitConformalRegressor(split.model, COVERAGE, conformity_score=errors).conformalize(
                *held
            )
        ),
        "CQR": own(ConformalizedQuantileRegressor(pair, COVERAGE, prefit=True).conformalize(*held)),
        "CV+": own(crossed.fit_conformalize(*both(split))),
    }


def split_scores(folder: Path | None, name: str, seed: int) -> np.ndarray:
    """(methods, scores)"""
    from mapie.metrics.conditional import excess_risk_target_coverage, worst_slab_coverage
    from mapie.metrics.regression import hsic, regression_mwi_score, regression_ssc_score

    X, y = (
        others.cqr(folder, name)
        if folder
        else (part.to_numpy(float) for part in paper_data.read(name))
    )
    order = np.random.default_rng(seed).permutation(len(y))[:MOST_ROWS]
    train, cal, test = np.split(order, [round(0.6 * len(order)), round(0.8 * len(order))])
    split = Split(X[train], y[train], X[cal], y[cal], X[test], seed, MODEL)
    rows = StandardScaler().fit(X[train]).transform(X[test])
    found = []
    for ends in intervals(split).values():
        covered, width = (ends[:, 0] <= y[test]) & (y[test] <= ends[:, 1]), ends[:, 1] - ends[:, 0]
        local, stacked = np.ptp(width) > 1e-9 * width.mean(), ends[:, :, None]
        found.append(
            [
                covered.mean(), width.mean(), regression_mwi_score(y[test], stacked, COVERAGE),
                regression_ssc_score(y[test], stacked, num_bins=3)[0] if local else np.nan,
                worst_slab_coverage(rows, y[test], y_intervals=ends, n_directions=DIRECTIONS),
                excess_risk_target_coverage(rows, y[test], COVERAGE, y_intervals=ends),
                hsic(y[test], stacked)[0] if local else np.nan,
            ]
        )  # fmt: skip
    return np.array(found, float)


def lines_of(found: dict[tuple[object, ...], np.ndarray]) -> list[Line]:
    """A line for each data set and method, means over the splits; then the means over data sets."""
    lines, every = [], []
    for name in dict.fromkeys(task[0] for task in found):
        own = np.mean([scores for task, scores in found.items() if task[0] == name], axis=0)
        own[:, 1:3] /= own[1, 1:3]  # width and Winkler score over those of split
        every.append(own)
        splits = sum(task[0] == name for task in found)
        for method, scores in zip(METHODS, own):
            line: Line = {"data": name, "splits": splits, "method": method}
            lines.append(line | dict(zip(SCORES, map(_cell, scores))))
    for method, scores in zip(METHODS, np.mean(every, axis=0)):
        lines.append(
            {"data": "mean", "splits": "", "method": method} | dict(zip(SCORES, map(_cell, scores)))
        )
    return lines


def _cell(value: float) -> str:
    return "" if np.isnan(value) else f"{value:.3f}"


def main() -> None:
    parser = others.arguments(__doc__.splitlines()[0], SETS)
    parser.add_argument(
        "--splits", type=int, default=SPLITS, help=f"splits of each data set (default: {SPLITS})"
    )
    given = parser.parse_args()
    names = paper_data.QUICK[1:] if given.quick else given.only
    tasks = [(name, seed) for seed in range(given.splits) for name in names]
    lines = lines_of(others.made(given, tasks, split_scores, (len(METHODS), len(SCORES))))
    print("\n".join(markdown(lines)))
    if given.out:
        line = others.typed("conditional_coverage", given, SETS, splits=SPLITS)
        write("conditional_coverage", lines, line, (*PACKAGES, "mapie"), folder=given.out)


if __name__ == "__main__":
    main()
