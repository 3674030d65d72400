"""Data sets with two classes: the paper's small ones, above the median or not, and scikit-learn's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from paper_data import QUICK, TABLE, read
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

MOST_ROWS = 2000  # of the paper's data sets: every query takes some fifty fits
MEDIAN = tuple(name for name, about in TABLE.items() if int(about["N"]) <= MOST_ROWS)
OWN = {  # loader, and the classes that count as 1
    "breast_cancer": (load_breast_cancer, [1]),
    "digits": (load_digits, [5, 6, 7, 8, 9]),
    "wine": (load_wine, [1]),
    "iris": (load_iris, [1]),
}
NAMES = (*MEDIAN, *OWN)


def read_classes(name: str, folder: Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The features (N, M) and the classes (N,), 0 and 1, of a data set."""
    if name in OWN:
        load, ones = OWN[name]
        X, y = load(return_X_y=True)
        return X.astype(float), np.isin(y, ones).astype(int)
    if name not in (*MEDIAN, *QUICK):
        raise ValueError(
            f"There is no data set {name!r} with two classes; there are {', '.join(NAMES)}."
        )
    X, y = (part.to_numpy(float) for part in read(name, folder))
    return X, (y > np.median(y)).astype(int)
