"""Tables of real data for tuned models, in three parts: rows to fit on, to stop early by and to predict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn import datasets

from tests.fuzz.data import Array, Draw

FEW = 12  # values of a column that may count as categories
MOST_ROWS = 4000
NEW_ROWS = 200


@dataclass(frozen=True)
class Table:
    """Rows of real data, in three parts."""

    train: pd.DataFrame
    y: Array
    weight: Array | None
    valid: pd.DataFrame
    y_valid: Array
    new: pd.DataFrame
    categories: list[str]  #: columns that count as categories

    @property
    def numeric(self) -> list[int]:
        return [i for i, name in enumerate(self.train) if name not in self.categories]

    def values(self) -> Array:
        """(N, M) of floats, codes in place of categories."""
        coded = self.train.assign(**{name: self.train[name].cat.codes for name in self.categories})
        return coded.to_numpy(float)


def split(draw: Draw, X: pd.DataFrame, y: Array) -> Table:
    """Rows to fit on, to stop early by and to predict; some columns of few values as categories, some fits weighted."""
    n_new, n_valid = (min(len(y) // 5, most) for most in (NEW_ROWS, 1000))
    most = len(y) if draw.flag("all rows", 0.1) else MOST_ROWS
    rows = draw.rng.permutation(len(y))
    new, valid, train = rows[:n_new], rows[n_new : n_new + n_valid], rows[n_new + n_valid :][:most]
    X = X.set_axis([f"x{i}" for i in range(X.shape[1])], axis=1).astype(float)
    few = [name for name in X if 2 < X[name].nunique() <= FEW]
    categories = few if few and draw.flag("categories", 0.15) else []
    X = X.assign(
        **{name: pd.Categorical(pd.factorize(X[name], sort=True)[0]) for name in categories}
    )
    weight = draw.rng.gamma(2.0, size=len(train)) + 0.05 if draw.flag("weights", 0.2) else None
    fitted, stop, asked = (X.iloc[part].reset_index(drop=True) for part in (train, valid, new))
    return Table(fitted, y[train], weight, stop, y[valid], asked, categories)


#: scikit-learn's own data sets, which need no connection, and the column to predict; None: their own target.
OWN = {
    "diabetes": (datasets.load_diabetes, None),
    "wine": (datasets.load_wine, "alcohol"),
    "breast_cancer": (datasets.load_breast_cancer, "worst area"),
    "iris": (datasets.load_iris, "petal width (cm)"),
    "digits": (datasets.load_digits, None),
}


def own(name: str) -> tuple[pd.DataFrame, Array]:
    """The features and the targets of one of OWN."""
    load, target = OWN[name]
    X, y = load(return_X_y=True, as_frame=True)
    if target is not None:
        X, y = X.drop(columns=target), X[target]
    return X, np.asarray(y, dtype=float)
