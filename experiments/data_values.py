"""Values of training rows: axil's exact Shapley values beside pyDVL's TMC-Shapley and Data-OOB, on the same models.

    pip install pyDVL                                       # 0.10; no dependency of axil
    python experiments/data_values.py --data FOLDER
    python experiments/data_values.py --quick               # two small data sets, few permutations; writes nothing

A tenth of 100 training targets is spoilt, shifted by two standard deviations up or down. Every method gives each training row a
value; 150 unspoilt rows validate, and all other rows, up to 500, test. In the manner of OpenDataVal, "noisy labels" is the
average precision with which the lowest values find the spoilt rows; "low first" and "high first" are test errors of refits
without the rows of lowest, or highest, values: means over 5, 10, ... 50 % removed, relative to the error with all rows. Low first
should be small, high first large.

The games differ. In axil's a row without its target keeps its place: the splits stay, and its target becomes a baseline. In
pyDVL's it is not there, and the model is refitted. The worth is minus the validation error in both, and both share out the fall
of the error from the mean target to the fitted model. Data-OOB is no game: minus the squared error of a row by the models of a
bagging that did not see it. "permutations" is the number that each of two independent runs of TMC-Shapley sampled; their mean is
judged, and the rank correlation between the two says how much of their order is sampling noise.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from time import perf_counter

import lightgbm as lgb
import numpy as np
import pandas as pd
from paper_data import QUICK, read
from paper_setting import PACKAGES, Line, arguments, command, markdown, write
from scipy.stats import spearmanr
from sklearn.ensemble import BaggingRegressor
from sklearn.metrics import average_precision_score

import axil

NAMES = (
    "boston",
    "concrete",
    "diabetes",
    "energy_efficiency",
    "airfoil",
    "qsar_fish",
    "red_wine",
    "abalone",
)
TRAIN, VALIDATE, TEST, SPOILT, BAGS = 100, 150, 500, 0.1, 200
PERMUTATIONS = 75  # of each of two runs
SETTINGS = {
    "n_estimators": 20,
    "num_leaves": 8,
    "min_child_samples": 3,
    "learning_rate": 0.2,
    "n_jobs": 1,
    "verbose": -1,
}
REMOVED = np.arange(0.05, 0.51, 0.05)
MEASURES = ("noisy labels", "low first", "high first", "seconds")


class Rows:
    """Training rows of which some targets are spoilt, validation rows and test rows."""

    def __init__(self, X: np.ndarray, y: np.ndarray, seed: int):
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(y))
        train, val, test = np.split(order[: TRAIN + VALIDATE + TEST], [TRAIN, TRAIN + VALIDATE])
        self.X, self.X_val, self.X_test = X[train], X[val], X[test]
        self.y, self.y_val, self.y_test = y[train].copy(), y[val], y[test]
        wrong = rng.choice(TRAIN, round(SPOILT * TRAIN), replace=False)
        self.y[wrong] += 2 * y[train].std() * rng.choice([-1, 1], len(wrong))
        self.wrong = np.isin(np.arange(TRAIN), wrong)
        self.seed = seed

    def error(self, kept: np.ndarray) -> float:
        """The test error of a fit to some of the training rows."""
        model = lgb.LGBMRegressor(**SETTINGS).fit(self.X[kept], self.y[kept])
        return float(np.mean((self.y_test - model.predict(self.X_test)) ** 2))


def exact(rows: Rows, baseline: str) -> np.ndarray:
    """axil's Shapley values, the time of the fit included."""
    model = lgb.LGBMRegressor(**SETTINGS).fit(rows.X, rows.y)
    found = axil.Explainer(model, rows.X, rows.y).shapley(rows.X_val, rows.y_val, baseline=baseline)
    return found.set_index("row")["value"].loc[np.arange(TRAIN)].fillna(0.0).to_numpy()


def left_out(rows: Rows) -> np.ndarray:
    """Return minus the squared residual of each row without itself; needs no validation rows."""
    model = lgb.LGBMRegressor(**SETTINGS).fit(rows.X, rows.y)
    found = axil.Explainer(model, rows.X, rows.y).diagnostics.leave_one_out()
    return -(found.set_index("row")["residual"].loc[np.arange(TRAIN)].fillna(0.0).to_numpy() ** 2)


def tmc(rows: Rows, permutations: int, run: int) -> np.ndarray:
    """pyDVL's TMC-Shapley; a coalition of nobody predicts the mean target, and so does one row, which LightGBM refuses."""
    from pydvl.valuation.dataset import Dataset
    from pydvl.valuation.methods.shapley import TMCShapleyValuation
    from pydvl.valuation.scorers import SupervisedScorer
    from pydvl.valuation.stopping import MaxUpdates
    from pydvl.valuation.utility import ModelUtility

    names = [f"f{i}" for i in range(rows.X.shape[1])]
    train, val = (
        Dataset(X, y, feature_names=names) for X, y in ((rows.X, rows.y), (rows.X_val, rows.y_val))
    )
    nobody = -float(np.mean((rows.y_val - rows.y.mean()) ** 2))
    scorer = SupervisedScorer("neg_mean_squared_error", val, default=nobody)
    utility = ModelUtility(lgb.LGBMRegressor(**SETTINGS), scorer, show_warnings=False)
    done, seed = MaxUpdates(permutations), 1000 * run + rows.seed
    found = TMCShapleyValuation(utility, is_done=done, seed=seed).fit(train).result
    values = np.zeros(TRAIN)
    values[found.indices] = found.values
    return values


def out_of_bag(rows: Rows) -> np.ndarray:
    """pyDVL's Data-OOB of a bagging of the same model."""
    from pydvl.valuation.dataset import Dataset
    from pydvl.valuation.methods.data_oob import DataOOBValuation

    bagging = BaggingRegressor(lgb.LGBMRegressor(**SETTINGS), BAGS, random_state=rows.seed).fit(
        rows.X, rows.y
    )
    found = DataOOBValuation(bagging).fit(Dataset(rows.X, rows.y)).result
    values = np.zeros(TRAIN)
    values[found.indices] = found.values
    return values


def timed(value: Callable[[], np.ndarray]) -> tuple[np.ndarray, float]:
    start = perf_counter()
    found = value()
    return found, perf_counter() - start


def judge(values: np.ndarray, rows: Rows) -> dict[str, float]:
    """How well the values find spoilt rows, and the test errors without the rows of lowest and of highest values."""
    whole, order = rows.error(np.arange(TRAIN)), np.argsort(values, kind="stable")
    counts = np.round(REMOVED * TRAIN).astype(int)
    low = np.mean([rows.error(np.sort(order[m:])) for m in counts]) / whole
    high = np.mean([rows.error(np.sort(order[: TRAIN - m])) for m in counts]) / whole
    return {
        "noisy labels": average_precision_score(rows.wrong, -values),
        "low first": low,
        "high first": high,
    }


def run(name: str, X: np.ndarray, y: np.ndarray, seed: int, permutations: int) -> list[Line]:
    """One line for each method."""
    rows = Rows(X, y, seed)
    one, seconds_one = timed(lambda: tmc(rows, permutations, 1))
    two, seconds_two = timed(lambda: tmc(rows, permutations, 2))
    sampled = (one + two) / 2
    found = {
        "axil shapley, mean": timed(lambda: exact(rows, "mean")),
        "axil shapley, others": timed(lambda: exact(rows, "others")),
        "axil leave-one-out": timed(lambda: left_out(rows)),
        "pyDVL TMC-Shapley": (sampled, seconds_one + seconds_two),
        "pyDVL Data-OOB": timed(lambda: out_of_bag(rows)),
        "random": (np.random.default_rng(seed).normal(size=TRAIN), 0.0),
    }
    between = float(spearmanr(one, two).statistic)
    lines = []
    for method, (values, seconds) in found.items():
        line: Line = {"data": name, "seed": seed, "permutations": permutations, "method": method}
        line |= {key: round(value, 4) for key, value in judge(values, rows).items()}
        line |= {
            "seconds": round(seconds, 4),
            "rank correlation with TMC": round(spearmanr(values, sampled).statistic, 3),
        }
        line |= {
            "between two runs of TMC": round(between, 3),
            "sum of values": round(float(values.sum()), 4),
        }
        lines.append(line)
    return lines


def summary(lines: list[Line]) -> list[Line]:
    """Means over the data sets."""
    columns = [*MEASURES[:3], "rank correlation with TMC", "seconds"]
    frame = pd.DataFrame(lines).groupby("method", sort=False)[columns].mean()
    return [
        {"method": method}
        | {
            name: f"{value:.3g}" if name == "seconds" else f"{value:.2f}"
            for name, value in row.items()
        }
        for method, row in frame.iterrows()
    ]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], NAMES)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="two small data sets, three permutations; writes nothing",
    )
    parser.add_argument(
        "--permutations",
        type=int,
        default=PERMUTATIONS,
        help=f"of each run of TMC (default {PERMUTATIONS})",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the split and the spoilt rows")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", category=FutureWarning)  # pyDVL's, on import
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    lines: list[Line] = []
    for name in QUICK if given.quick else given.only:
        X, y = (part.to_numpy(float) for part in read(name, given.data))
        lines += run(name, X, y, given.seed, 3 if given.quick else given.permutations)
        print(name, {line["method"]: line["seconds"] for line in lines[-6:]}, flush=True)
    print("\n".join(markdown(summary(lines))))
    if not given.quick:
        write(
            "data_values",
            lines,
            command("data_values", given.data),
            (*PACKAGES, "pyDVL"),
            summary(lines),
        )


if __name__ == "__main__":
    main()
