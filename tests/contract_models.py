"""The models of the contract tests: each setting of each library that decides how predictions follow from the targets."""

import re
from functools import cache

import numpy as np

import axil
from tests.adapters import (
    catboost_models,
    lightgbm_models,
    sklearn_models,
    smoother_models,
    xgboost_models,
)
from tests.subsets import mostly_slow

LIBRARIES = {
    "lightgbm": lightgbm_models,
    "xgboost": xgboost_models,
    "catboost": catboost_models,
    "sklearn": sklearn_models,
    "smoother": smoother_models,
}
CASES = {
    library: module.CASES
    | getattr(module, "RANKED", {})
    | getattr(module, "CUT", {})
    | getattr(module, "CLASSES", {})
    for library, module in LIBRARIES.items()
}
# Cases whose leaf values are means: neither ranks, nor cut off.
MEANS = {library: module.CASES for library, module in LIBRARIES.items()}
GRID = [(library, name) for library, cases in CASES.items() for name in cases]
TREES = [(library, name) for library, name in GRID if library != "smoother"]


# Cases of 10,050 rows, of deep trees, or of forests whose nodes are mapped one by one. Other cases are like them, and quick.
LARGE = re.compile(
    "stopping by default|encoded deep|RandomForest.* monotonic_cst|goss threads|early stopping forests"
)


def dense(cases):
    """Return the cases of a test with matrices of all training rows: about a half is slow, and so are large cases."""
    return mostly_slow(2, cases, is_slow=lambda case: LARGE.search(case[1]))


def case_of(library, name):
    """Return the fitted model of a case with its data."""
    return CASES[library][name]()


def offsets_of(case):
    """Return the offsets of the training rows, by the library's own name for them, or None."""
    for name in ("init_score", "base_margin", "baseline"):
        if hasattr(case, name):
            return getattr(case, name)
    return None


@cache
def explainer_of(library, name):
    """Return the explainer of a case in memory, the same one to all tests."""
    case = case_of(library, name)
    return axil.Explainer(
        case.model, case.X, case.y, sample_weight=case.sample_weight, init_score=offsets_of(case)
    )


def predict(case, X):
    """Return the model's own predictions (n, K)."""
    if hasattr(case, "predict"):
        predictions = case.predict(X)
    elif hasattr(case.model, "predict_proba"):
        predictions = case.model.predict_proba(X)
    else:
        predictions = case.model.predict(X)
    if isinstance(predictions, list):  # of several labels, one array each
        predictions = np.hstack(predictions)
    return np.asarray(predictions, dtype=float).reshape(X.shape[0], -1)


def predict_from(case, X, offsets):
    """Return the model's own predictions (n, K) of rows with offsets, which replace XGBoost's base_score."""
    if not hasattr(case, "base_margin"):
        return predict(case, X) + np.reshape(offsets, (X.shape[0], -1))
    import xgboost

    booster = case.model.get_booster() if hasattr(case.model, "get_booster") else case.model
    matrix = xgboost.DMatrix(
        X, base_margin=offsets, feature_names=booster.feature_names, enable_categorical=True
    )
    return np.asarray(booster.predict(matrix), dtype=float).reshape(X.shape[0], -1)
