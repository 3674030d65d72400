"""Models that questions are asked of, and what their weights say."""

from functools import cache

import dask.dataframe as dd
import numpy as np
import pandas as pd
from sklearn.tree import DecisionTreeRegressor

import axil
from axil.methods.method import verified_model
from tests.contract_models import case_of, explainer_of, predict

MODELS = [
    ("lightgbm", "regressor weighted scored"),
    ("lightgbm", "bagging"),
    ("xgboost", "dart weighted"),
    ("xgboost", "one_output_per_tree"),
    ("xgboost", "multi_output_tree"),
    ("catboost", "multi weighted"),
    ("sklearn", "hist early stopping weighted"),
    ("sklearn", "RandomForestRegressor weighted"),
    ("sklearn", "RandomForestClassifier"),
    ("smoother", "ridge two outputs"),
    ("smoother", "neighbours"),
    ("smoother", "pipeline lightgbm"),
]


def weights_of(explainer, X):
    """(n, K, N): the weights of each output."""
    weights = explainer(X).weights
    n, n_train = weights.shape[0], weights.shape[-1]
    return np.broadcast_to(
        weights.reshape(n, -1, n_train), (n, verified_model(explainer).shape[1], n_train)
    )


def small_batches(monkeypatch, explainer):
    """Seven queries at a time."""
    monkeypatch.setattr(
        "axil.machine.memory.BATCH_BYTES",
        8 * len(explainer.targets) * 7 * len(verified_model(explainer).engines),
    )


@cache
def validation(library, name):
    """Targets for the case's new rows: the predictions, and then some."""
    case, explainer = case_of(library, name), explainer_of(library, name)
    classes, n = verified_model(explainer).names.classes, case.X_new.shape[0]
    if classes is not None:
        return np.resize(classes, n)
    y = predict(case, case.X_new) + np.random.default_rng(0).normal(
        size=(n, verified_model(explainer).shape[1])
    )
    return y[:, 0] if y.shape[1] == 1 else y


def full_tree():
    """A tree with a leaf for every training row."""
    X, y = np.arange(10.0)[:, None], np.arange(10.0) ** 2
    return axil.Explainer(DecisionTreeRegressor(random_state=0).fit(X, y), X, y)


def forest_data():
    """40 training rows, their targets, and six rows to ask about."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    return X, 3 * X[:, 0] + X[:, 1] ** 2 + 10 + rng.normal(size=40), rng.normal(size=(6, 3))


# The rows of the explainers of every kind and place; see conftest.py.

DRAWS = np.random.default_rng(5)
X = pd.DataFrame(
    DRAWS.normal(size=(90, 3)),
    columns=["rooms", "size", "age"],
    index=[f"house {i}" for i in range(90)],
)
Y = pd.Series(3 * X["rooms"] + DRAWS.normal(size=90), index=X.index, name="price")
CLASSES = np.digitize(X["rooms"], [-0.5, 0.5])
QUIET = {"n_estimators": 6, "num_leaves": 5, "min_child_samples": 5, "verbose": -1, "n_jobs": 1}
GROUPS = np.array(["a", "b", "c"])[np.arange(90) % 3]
NEW = X.iloc[:11] + 0.1


def partitioned(rows):
    """Four partitions, in the order of the labels as they are."""
    return dd.from_pandas(rows, npartitions=4, sort=False)


def over_dask(explainer):
    return hasattr(explainer.targets, "dask")


def groups_for(explainer):
    """Groups as the explainer takes them: over Dask in the partitions of the training rows."""
    return labels_for(explainer, GROUPS)


def labels_for(explainer, labels):
    """Return labels of the training rows as the explainer takes them."""
    if over_dask(explainer):
        return partitioned(pd.Series(labels, index=X.index))
    return labels


def same(found, wanted):
    """Weights of a batch are the same up to rounding, which depends on how many queries are asked together."""
    pd.testing.assert_frame_equal(found, wanted, rtol=1e-9, atol=1e-12, check_dtype=False)
