"""Rows as XGBoost reads them.

The module has XGBoost's own matrix, the numbers that its splits test, and the leaves that rows fall
into.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse

from axil.adapters.boundary import ReadsRows
from axil.adapters.frames import as_frame, compressed, floats, single_table, word_columns
from axil.adapters.routes import Routes, SplitKind, Splits, make_routes
from axil.adapters.xgboost.document import ModelDocument, Tree
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import LeafArray, RealArray
from axil.errors import InputError, counted, shown
from axil.inputs.categories import listed_categories
from axil.inputs.libraries import needed_pandas

FloatTable = RealArray


class BoosterRows(ReadsRows):
    """The leaves of a booster's trees that rows fall into, up to a number of iterations."""

    library = "XGBoost"

    def __init__(
        self, booster: ForeignModel, document: ModelDocument, n_iterations: int, missing: float
    ):
        self._booster = booster
        self._missing = missing
        self._iterations = document.iterations[document.iterations < n_iterations]
        self._trees = document.trees[: len(self._iterations)]
        self._types: list[str] = booster.feature_types or []
        self._categories = document.categories
        self._n_iterations = n_iterations
        # From XGBoost's node numbers, tree after tree, to leaf numbers.
        self._node_starts = np.cumsum([0, *(tree.n_nodes for tree in self._trees)])
        self._leaf_of_node = np.full(self._node_starts[-1], -1, dtype=np.int32)
        for start, tree in zip(self._node_starts, self._trees):
            self._leaf_of_node[start + tree.leaves] = np.arange(len(tree.leaves))

    @property
    def numbers_by_frame(self) -> bool:
        """Whether categories are numbered as in the frame of the rows, as before XGBoost 3.1."""
        return "c" in self._types and not any(self._categories)

    def matrix(self, X: FeatureTable) -> FeatureTable:
        """Return the DMatrix of these rows."""
        return as_matrix(X, self._booster, self._missing, self._categories)

    def table(self, X: FeatureTable) -> FloatTable | None:
        """Return the numbers that splits test, (n, features).

        It is None if XGBoost itself has to look at the rows.

        Only nan may count as missing, and each number must have a float32 of its own. Sparse rows
        have gaps. Categories have the numbers that the model gives them, where it has them all.
        """
        if not np.isnan(self._missing):
            return None
        if "c" in self._types:
            return coded_table(X, self._types, self._categories)
        if not sparse.issparse(X):
            return single_table(X)
        rows = sparse.csr_matrix(X)
        table = np.full(X.shape, np.nan, dtype=X.dtype)
        table[np.repeat(np.arange(X.shape[0]), np.diff(rows.indptr)), rows.indices] = rows.data
        return table

    @cached_property
    def routes(self) -> Routes | None:
        """The tests of all trees, with values in float32.

        A row goes left if its value is below the threshold (src/predictor).
        """
        return routes_of(self._trees)

    def leaves(self, X: FeatureTable, begin: int = 0, end: int | None = None) -> LeafArray:
        """Return the leaf of each row in each tree of these iterations, (n, trees).

        XGBoost itself finds the leaves.
        """
        if end is None:
            end = self._n_iterations
        first, last = np.searchsorted(self._iterations, (begin, end))
        if X.shape[0] == 0:
            return np.zeros((0, last - first), dtype=np.int32)
        matrix = self.matrix(X)
        # XGBoost gives leaves from the first iteration on only; a slice of the model has its own
        # first.
        if begin:
            booster = self._booster[begin:end]
        else:
            booster = self._booster
        iterations = (0, end - begin)
        nodes = booster.predict(
            matrix, pred_leaf=True, iteration_range=iterations, validate_features=False
        )
        nodes = np.asarray(nodes).reshape(matrix.num_row(), last - first).astype(np.int64)
        return np.asarray(self._leaf_of_node[nodes + self._node_starts[first:last]])

    def first_leaves(self, X: FeatureTable) -> LeafArray:
        """Return the leaf of each row in the trees of the first iteration, (n, trees).

        Routes compute them if there are any.
        """
        if self.routes is None:
            table = None
        else:
            table = self.table(X)
        if self.routes is not None and table is not None:
            n_trees = int(np.searchsorted(self._iterations, 1))
            leaves = np.empty((n_trees, X.shape[0]), dtype=np.uint16)
            routes = replace(self.routes, starts=self.routes.starts[: n_trees + 1])
            if routes.assign(table, leaves, 1):
                return leaves.T
        return self.leaves(X, 0, 1)


def routes_of(trees: Sequence[Tree]) -> Routes | None:
    """Return the tests of these trees; None if they have too many thresholds or leaves."""
    starts = np.cumsum([0, *(len(tree.splits) for tree in trees)])
    sends_left = np.concatenate([tree.sends_missing_left for tree in trees])
    kinds = np.where(sends_left, SplitKind.LEFT, SplitKind.RIGHT).astype(np.int64)
    outcomes = {}
    for start, tree in zip(starts.tolist(), trees):
        for split, table in tree.outcomes().items():
            outcomes[start + split] = table
            kinds[start + split] = SplitKind.CATEGORIES
    splits = Splits(
        starts=starts,
        features=np.concatenate([tree.features for tree in trees]),
        thresholds=np.concatenate([tree.thresholds for tree in trees]),
        kinds=kinds,
        children=np.concatenate([tree.children for tree in trees]),
        outcomes=outcomes,
    )
    return make_routes(splits, single=True, strict=True, zero=-1.0, infinite=False)


def as_matrix(
    X: FeatureTable,
    booster: ForeignModel,
    missing: float,
    categories: Sequence[list[ForeignObject]] = (),
) -> ForeignObject:
    """Return a DMatrix of X.

    Numpy, pandas and sparse inputs stay as they are. Polars and pyarrow tables become float64, with
    nulls as nan.

    Parameters
    ----------
    X : array, sparse matrix or table
        The rows.
    booster : xgboost.Booster
        Names and types of its features are those of the matrix.
    missing : float
        What counts as missing, besides nan.
    categories : sequence of list
        Those of each feature, as models from 3.1 on keep them: XGBoost refuses a frame that lists
        others, even if no row has them.
    """
    import xgboost

    frame = as_frame(X)
    if frame is not None:
        pandas = _as_pandas(frame, booster.feature_types)
        if pandas is not None:
            pandas = _with_known_categories(pandas, categories)
            return xgboost.DMatrix(pandas, missing=missing, enable_categorical=True)
        X = floats(frame)
    elif sparse.issparse(X):
        X = compressed(X)
    else:
        X = np.asarray(X)
    return xgboost.DMatrix(
        X,
        missing=missing,
        feature_names=booster.feature_names,
        feature_types=booster.feature_types,
        enable_categorical=True,
    )


def _as_pandas(frame: nw.DataFrame[Any], types: list[str] | None) -> ForeignObject:
    """Return the pandas frame if X is one, or if categories need one.

    It is None where numbers will do.
    """
    if frame.implementation.is_pandas():
        return frame.to_native()
    categorical = word_columns(frame)
    if not categorical:
        return None
    if "c" not in (types or []):
        raise InputError(
            f"The model was fitted without category columns, this table has {len(categorical)} "
            f"({', '.join(categorical[:5])}). Encode them as for the fit."
        )
    table = frame.with_columns(nw.col(*categorical).cast(nw.String)).to_pandas()
    pd = needed_pandas("A table of another library with categories for XGBoost")
    dtypes = {}
    for name in categorical:
        listed = listed_categories(frame, name)
        if listed is None:
            dtypes[name] = "category"
        else:
            dtypes[name] = pd.CategoricalDtype(listed)
    return table.astype(dtypes)


def _with_known_categories(
    X: FeatureTable, categories: Sequence[list[ForeignObject]]
) -> FeatureTable:
    """Return a pandas frame without unused categories that the model does not know.

    Refuse categories that rows have and the model does not know.
    """
    if len(categories) != X.shape[1]:
        return X
    table = X
    for name, known_categories in zip(X.columns, categories):
        listed = getattr(X[name].dtype, "categories", None)
        if listed is None or not known_categories or set(listed) <= set(known_categories):
            continue
        column = X[name].cat.remove_unused_categories()
        new = [value for value in column.cat.categories if value not in set(known_categories)]
        if new:
            n_rows = int((column == new[0]).sum())
            raise InputError(
                f"Column {shown(name)} holds the category {shown(new[0])} "
                f"({counted(n_rows, 'row')}), which no row of the fit had, and XGBoost refuses "
                "such rows. Leave these rows out, or the value empty if it is to count as missing."
            )
        if table is X:
            table = X.copy(deep=False)
        table[name] = column
    return table


def coded_table(
    X: FeatureTable, types: list[str], categories: Sequence[list[ForeignObject]]
) -> FloatTable | None:
    """Return numbers, and categories as a model numbers them, (n, features).

    It is None if XGBoost itself has to look at them.

    Arrays have numbers for categories already. A frame's are found by their names among the model's
    own (from 3.1 on).
    """
    is_categorical = [kind == "c" for kind in types]
    if isinstance(X, np.ndarray):
        table = single_table(X)
        if table is None or (table[:, is_categorical] < 0).any():  # XGBoost takes no such category
            return None
        return table
    frame = as_frame(X)
    if frame is None or not frame.implementation.is_pandas() or len(categories) != len(types):
        return None
    numbers = np.empty(X.shape, dtype=np.float32, order="F")
    for i, name in enumerate(X.columns):
        column = _numbers(X[name], categories[i] if is_categorical[i] else None)
        if column is None:
            return None
        numbers[:, i] = column
    return numbers


def _numbers(
    column: ForeignObject, categories: Sequence[ForeignObject] | None
) -> FloatTable | None:
    """Return a column as numbers, (n,); None if it is of another kind or has other categories."""
    has_categories = hasattr(column, "cat")
    if has_categories != (categories is not None):
        return None
    if categories is not None:
        codes = _codes(column, categories)
        if (codes < 0).any():
            return None
        return codes
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf":
        return np.asarray(column.to_numpy())
    return None


def _codes(column: ForeignObject, categories: Sequence[ForeignObject]) -> FloatTable:
    """Return the number of each row's category among these, (n,).

    It is -1 for another category, and nan for a missing one.
    """
    number_of = {category: number for number, category in enumerate(categories)}
    numbers = [number_of.get(label, -1) for label in column.cat.categories]
    with_missing = np.array([*numbers, np.nan], dtype=np.float32)  # whose code is -1, the last
    return np.asarray(with_missing[column.cat.codes])
