"""Calls as a user writes them. Type checkers accept all of them and infer the asserted types."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from lightgbm import LGBMRegressor
from numpy.typing import NDArray
from scipy import sparse
from typing_extensions import assert_type

import axil
from axil import baselines

X = pd.DataFrame({"area": [80.0, 120.0, 95.0]})
y = pd.Series([1.0, 2.0, 1.5])
matrix = np.array([[80.0], [120.0], [95.0]])
model = LGBMRegressor().fit(X, y)

# Tables of every library, and targets of every kind
assert_type(axil.similarity(model, X), NDArray[np.float64])
assert_type(axil.similarity(model, pl.DataFrame(X)), NDArray[np.float64])
assert_type(axil.similarity(model, pa.table({"area": [80.0]})), NDArray[np.float64])
assert_type(axil.similarity(model, matrix, matrix.tolist()), NDArray[np.float64])
assert_type(axil.similarity(model, sparse.csr_array(matrix), device="auto"), NDArray[np.float64])
assert_type(axil.novelty(model, X, X, held_out=X), NDArray[np.float64])

# With k there are two arrays
assert_type(
    axil.similarity(model, X, X, k=2, tree_weights=[1.0, 2.0]),
    tuple[NDArray[np.float64], NDArray[np.int64]],
)

support = axil.supports(model)
assert_type(support, axil.Support)
assert_type(support.exact, bool)

explainer = axil.load("explainer.npz", model, X_train=X, device="cpu")
assert_type(explainer, axil.Explainer)
assert_type(
    axil.Explainer(model, pl.DataFrame(X), y, output="raw", index=["a", "b", "c"]), axil.Explainer
)
assert_type(explainer(X), axil.Explanation)
assert_type(explainer.explain(matrix, init_score=y), axil.Explanation)
assert_type(explainer.top(X, 3, by="weight"), pd.DataFrame)
assert_type(explainer.similar(X, by="leaves", sign="for", suspects="mark"), pd.DataFrame)
assert_type(explainer.similar(X, tree_weights="variance", suspects=("drop", [0])), pd.DataFrame)
assert_type(explainer.removal(X, method="first-order"), pd.DataFrame)
assert_type(explainer.shapley(X, y, baseline="others"), pd.DataFrame)
assert_type(explainer.find_label_issues(out_of_fold=[1.0, 2.0, 1.5]), pd.DataFrame)
assert_type(explainer.aggregate(X, "sum", by="area"), axil.Explanation)
assert_type(explainer.calibrate(X, y, method="exact"), axil.Predictive)
assert_type(explainer.similar(X, k=3), pd.DataFrame)
assert_type(explainer.group(pl.DataFrame(X), groups="area"), pd.DataFrame)
assert_type(explainer.group(X, groups=[1990, 1991, 1991]), pd.DataFrame)
assert_type(explainer.what_if(X, {0: 1.5}), pd.DataFrame)
assert_type(explainer.without(X, [0, 2]), pd.DataFrame)
assert_type(explainer.calibrate(X, y).interval(X), pd.DataFrame)
assert_type(baselines.BoostIn(explainer).scores(X, y), NDArray[np.float64])
assert_type(baselines.Random(explainer, seed=1).scores(matrix), NDArray[np.float64])
