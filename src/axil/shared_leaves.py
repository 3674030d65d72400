"""Leaves, similarity and novelty of rows, in the trees of any model.

Similarity is the share of trees in which two rows share a leaf. Novelty is how far a row lies
outside the training rows in its leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray

from axil import adapters, inputs
from axil.adapters.contract import Form
from axil.aliases import ArrayLike, Device, FeatureTable, ForeignModel, ForeignObject, TableLike
from axil.arrays import BoolArray, FloatArray, LeafArray
from axil.errors import InputError, UnsupportedModelError, UnsupportedQuestionError
from axil.inputs.columns import occurrences
from axil.kernels import Cells
from axil.kernels.choose import backend_of, limits_of, settled
from axil.kernels.cpu import ranges
from axil.machine.memory import Limits
from axil.machine.progress import track
from axil.replay.rows_of_the_fit import rows_of_the_fit, twins_among
from axil.structure import cell_dtype

BLOCK_ENTRIES = 1 << 22  # leaf numbers that the library computes at a time
# Leaves that are compared in the time that the set-up of an explainer takes per row and tree
COMPARED_PER_ENTRY = 4000
HARM = (
    "Rows of the fit lie inside the boxes that were made from them, so every other row would "
    "look new"
)
FEWER_ROWS = "Pass fewer rows at a time, ask for the k largest alone, or raise memory_limit."


def leaves(
    model: ForeignModel,
    X: TableLike,
    *,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
) -> LeafArray:
    """Return the leaf of each row of X in each tree of a model of any library, (n, T).

    The leaves of a tree have numbers from 0 up, in the order of axil; two rows have the same number
    if they share the leaf. axil looks at the trees alone: it needs no training data and verifies
    nothing. T counts the trees of all outputs, in the order of the model.

    Parameters
    ----------
    model : object
        A fitted model of trees, or a pipeline that ends in one.
    X : table
        n rows, with the columns of the fit.
    n_threads, memory_limit
        As in `Explainer`.

    Examples
    --------
    >>> from lightgbm import LGBMRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y)
    >>> leaves(model, X.head(2)).shape
    (2, 20)
    """
    limits = limits_of(n_threads, memory_limit)
    reader = _leaf_reader(model)
    packed = _leaves(reader, inputs.as_features(X, reader, "X"), limits)
    n_initial = int(getattr(reader, "has_initial_tree", False))
    return np.ascontiguousarray(packed[n_initial:].T)


@overload
def similarity(
    model: ForeignModel,
    X: TableLike,
    other: TableLike | None = None,
    *,
    k: None = None,
    tree_weights: ArrayLike | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    device: Device = "cpu",
) -> FloatArray: ...


@overload
def similarity(
    model: ForeignModel,
    X: TableLike,
    other: TableLike | None = None,
    *,
    k: int,
    tree_weights: ArrayLike | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    device: Device = "cpu",
) -> tuple[FloatArray, NDArray[np.int64]]: ...


def similarity(
    model: ForeignModel,
    X: TableLike,
    other: TableLike | None = None,
    *,
    k: int | None = None,
    tree_weights: ArrayLike | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    device: Device = "cpu",
) -> FloatArray | tuple[FloatArray, NDArray[np.int64]]:
    """Return the share of a model's trees in which rows of X and rows of ``other`` share a leaf.

    A similarity of 0 means no leaf in common, 1 the same leaf in every tree. axil looks at the
    trees alone. It needs no training data and verifies nothing, so it also takes models that
    `Explainer` refuses, such as those for ranking or survival.

    Parameters
    ----------
    model : object
        A fitted model of trees, or a pipeline that ends in one.
    X : table
        n rows, with the columns of the fit.
    other : table, optional
        m rows to compare them with; X itself by default.
    k : int, optional
        Only the k most similar rows of ``other`` for each row of X. Nothing of the size n m is then
        made.
    tree_weights : array of shape (T,), optional
        How much each tree counts, from 0 up; all alike by default. T counts the trees of all
        outputs.
    n_threads, memory_limit, device
        As in `Explainer`.

    Returns
    -------
    array of shape (n, m)
        The similarities; they are computed as sums over trees, divided by the sum of all weights.
    pair of arrays of shape (n, k)
        With ``k``: similarities, the largest first, and the positions of the rows of ``other``.
        Equal ones are in the order of the rows. If fewer than k rows share a leaf at all, the last
        places have similarity 0 and position -1.

    Examples
    --------
    >>> from lightgbm import LGBMRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y)
    >>> similarity(model, X.head(2), X).shape
    (2, 442)
    >>> similarities, rows = similarity(model, X.head(1), X, k=3)
    >>> float(similarities[0, 0]), int(rows[0, 0])  # a row shares all its own leaves
    (1.0, 0)
    """
    _refuse_collection(X, "X")
    _refuse_collection(other, "other")
    limits = limits_of(n_threads, memory_limit, device=device)
    reader = _leaf_reader(model)
    leaves = _leaves(reader, inputs.as_features(X, reader, "X"), limits)
    other_leaves = leaves
    if other is not None:
        other_leaves = _leaves(reader, inputs.as_features(other, reader, "other"), limits)
    n_trees, n = leaves.shape
    m = other_leaves.shape[1]
    limits = settled(limits, leaves.size * m / COMPARED_PER_ENTRY)
    total_weight = float(n_trees)
    weights = None
    if tree_weights is not None:
        weights = _tree_weights(tree_weights, n_trees)
        total_weight = float(weights.sum())
    dtype = np.promote_types(leaves.dtype, other_leaves.dtype)
    if k is None:
        limits.budget.require(8 * n * m, f"The similarities of {n} x {m} rows", FEWER_ROWS)
        similarities = np.empty((n, m))
        queries = np.ascontiguousarray(other_leaves.T, dtype=dtype)
        _kernel_rows(leaves, dtype, limits).matches(queries, weights, 0, similarities)
        return np.divide(similarities, total_weight, out=similarities)
    k = min(inputs.as_count(k, "k"), m)
    sums = np.zeros((n, k))
    positions = np.full((n, k), -1, dtype=np.int64)
    queries = np.ascontiguousarray(leaves.T, dtype=dtype)
    _kernel_rows(other_leaves, dtype, limits).top_matches(queries, weights, sums, positions)
    return sums / total_weight, positions


def novelty(
    model: ForeignModel,
    X: TableLike,
    X_train: TableLike,
    *,
    held_out: TableLike | None = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
) -> FloatArray:
    """Return how far each row of X lies outside the training rows that share its leaves.

    A tree sends a row that lies beyond all training rows to the leaf at the edge. Its prediction,
    its weights and its similarity may not change. So each leaf gets a box: the lowest and the
    highest value of every feature among its training rows. A row inside its boxes in all trees has
    novelty 0. A row outside adds ``log(1 + d)`` for each feature, where d is the distance from the
    box in standard deviations of the feature over the training rows. The novelty is the mean over
    trees. It tells rows of another kind from rows of the same kind (experiments/novelty.py). That a
    row is inside says nothing about its error.

    Parameters
    ----------
    model : object
        A fitted model of trees, or a pipeline that ends in one.
    X : table
        n rows, with the columns of the fit. Columns that are no numbers have no box and are left
        out.
    X_train : table
        The rows that the model was fitted on, or any others that support it.
    held_out : table, optional
        Rows of the same kind as X_train that the model was not fitted on. With these the answer is
        the share of them that is less novel than each row of X: near 1 the row is unlike all of
        them. Training rows among them are left out with a warning; where most are, this is an
        error.
    n_threads, memory_limit
        As in `Explainer`.

    Returns
    -------
    array of shape (n,)
        From 0 up; with ``held_out`` from 0 to 1.

    Examples
    --------
    >>> from lightgbm import LGBMRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X[:300], y[:300])
    >>> new, held_out = X[300:370], X[370:]
    >>> ranks = novelty(model, new, X[:300], held_out=held_out)
    >>> ranks_far_away = novelty(model, 3 * new, X[:300], held_out=held_out)
    >>> bool(ranks.mean() < 0.6), bool(ranks_far_away.mean() > 0.9)
    (True, True)
    """
    limits = limits_of(n_threads, memory_limit)
    for name, values in (("X", X), ("X_train", X_train), ("held_out", held_out)):
        _refuse_collection(values, name)
    reader = _leaf_reader(model)
    rows = inputs.as_features(X, reader, "X")
    training_rows = inputs.as_features(X_train, reader, "X_train")
    row_sets = [rows]
    if held_out is not None:
        held_out_rows = inputs.as_features(held_out, reader, "held_out")
        is_new = ~_is_training_row(held_out_rows, training_rows)
        row_sets.append(inputs.take_rows(held_out_rows, np.flatnonzero(is_new)))
    numbers = [_numeric_columns(table) for table in row_sets]
    training_numbers = np.ascontiguousarray(_numeric_columns(training_rows))
    leaves = [_leaves(reader, table, limits) for table in row_sets]
    training_leaves = _leaves(reader, training_rows, limits)
    if not training_numbers.size:
        raise InputError(
            "X_train has no rows, or no column of numbers: there is nothing that X could be "
            "compared with."
        )
    deviations = np.nanstd(training_numbers, axis=0)
    deviations[~(deviations > 0)] = 1.0
    scores = [np.zeros(len(table)) for table in numbers]
    n_trees = len(training_leaves)
    for tree in track(range(n_trees), "novelty"):
        largest_leaf = max(int(table[tree].max(initial=0)) for table in (training_leaves, *leaves))
        low, high = ranges(training_leaves[tree], training_numbers, 1 + largest_leaf)
        for score, table_leaves, table_numbers in zip(scores, leaves, numbers):
            leaf = table_leaves[tree].astype(np.intp)
            score += _distances(table_numbers, low[leaf], high[leaf], deviations)
    means = [score / max(n_trees, 1) for score in scores]
    if held_out is None:
        return means[0]
    return _share_of_lower(*means)


def _share_of_lower(novelties: FloatArray, held_out_novelties: FloatArray) -> FloatArray:
    """Return the share of the held-out rows that is less novel than each row, (n,)."""
    n_less_novel = np.searchsorted(np.sort(held_out_novelties), novelties)
    return n_less_novel / max(len(held_out_novelties), 1)


def _is_training_row(rows: FeatureTable, training_rows: Any) -> BoolArray:
    """Return which rows equal a training row in all features, (n,)."""
    if not rows.shape[0] or not training_rows.shape[0]:
        return np.zeros(rows.shape[0], dtype=np.bool_)
    single = inputs.is_single(rows) or inputs.is_single(training_rows)
    row_keys = inputs.row_keys(rows, np.empty((rows.shape[0], 0)), single)
    training_keys = inputs.row_keys(training_rows, np.empty((training_rows.shape[0], 0)), single)
    n_equal = occurrences(training_keys, row_keys)
    twins = twins_among(occurrences(training_keys, training_keys))
    return rows_of_the_fit(n_equal, twins, "held_out", "the same features", HARM)


def _numeric_columns(table: FeatureTable) -> FloatArray:
    """Return the columns of numbers, (n, p); nan if a value is missing."""
    frame = inputs.as_frame(table)
    if frame is not None:
        columns = [
            np.asarray(frame[name].to_numpy(), dtype=np.float64)
            for name, dtype in frame.schema.items()
            if dtype.is_numeric()
        ]
        if columns:
            return np.stack(columns, axis=1)
        return np.zeros((len(frame), 0))
    if inputs.is_sparse(table):
        dense = table.toarray()
    else:
        dense = table
    if dense.dtype.kind not in "biuf":
        return np.zeros((len(dense), 0))
    return np.asarray(dense, dtype=np.float64)


def _distances(
    values: FloatArray, low: FloatArray, high: FloatArray, deviations: FloatArray
) -> FloatArray:
    """Return how far rows lie from the boxes of their leaves, (n,).

    Missing values, and leaves without training rows, count as 0.
    """
    outside = np.fmax(np.fmax(low - values, values - high), 0.0) / deviations
    largest = np.finfo(np.float64).max
    return np.asarray(np.log1p(np.nan_to_num(outside, nan=0.0, posinf=largest)).sum(axis=1))


def _kernel_rows(leaves: Cells, dtype: np.dtype[Any], limits: Limits) -> Any:
    """Return rows in a memory layout that kernels can read."""
    n_leaves = int(np.iinfo(dtype).max) + 1
    starts = n_leaves * np.arange(len(leaves) + 1, dtype=np.int64)
    return backend_of(limits).rows(np.ascontiguousarray(leaves, dtype=dtype), starts)


def _tree_weights(values: ForeignObject, n_trees: int) -> FloatArray:
    weights = inputs.as_vector(values, n_trees, "tree_weights", "trees")
    if (weights < 0).any() or not weights.any():
        raise InputError("tree_weights must not be below 0, nor all 0.")
    return weights


def _refuse_collection(values: object, name: str) -> None:
    """Refuse rows in a Dask collection, by the name of the argument."""
    if hasattr(values, "__dask_graph__"):
        raise UnsupportedQuestionError(
            name,
            "it is a Dask collection, and rows are compared by the leaves of all rows together, "
            "in this process",
            "Pass rows in memory, such as a sample: X_train.sample(frac=0.1).compute().",
        )


class LeafReader(Protocol):
    """The protocol of readers that assign rows to the leaves of a model."""

    def coordinates(self, X: FeatureTable, n_threads: int = 1) -> LeafArray:
        """Return the leaves of rows, (n, T)."""


def _leaf_reader(model: ForeignModel) -> Any:
    """Return the adapter of any model of trees; no setting of the fit is refused."""
    readers: list[Callable[[Any], Any]] = [adapters.read_leaves, adapters.find]
    reason = "this model has no trees, so no rows share a leaf"
    is_known = False
    for read in readers:
        try:
            reader = read(model)
        except UnsupportedModelError as error:
            reason = str(error)
            is_known = True
            continue
        if reader is None:
            continue
        if reader.form is Form.SUM:
            return MemberLeaves(reader)
        if reader.form is Form.TREES:
            return reader
        is_known = True
    if not is_known:
        raise adapters.unread(model)
    raise UnsupportedQuestionError("similarity", reason, "Pass a model of trees.")


def _leaves(reader: Any, X: FeatureTable, limits: Limits) -> Cells:
    """Return packed leaf numbers, (T, n).

    The library's own wide matrix is made block by block and never exists whole.
    """
    first_row = reader.coordinates(inputs.take_rows(X, slice(0, 1)), 1)
    n_trees = int(first_row.shape[1])
    n = int(X.shape[0])
    limits.budget.require(2 * n * n_trees, "The leaf numbers of all rows", FEWER_ROWS)
    blocks: list[Cells] = [np.empty((n_trees, 0), dtype=np.uint8)]
    block_size = max(1, BLOCK_ENTRIES // max(n_trees, 1))
    for start in track(range(0, n, block_size), "leaves"):
        rows = inputs.take_rows(X, slice(start, start + block_size))
        leaves = reader.coordinates(rows, limits.n_threads).T
        blocks.append(leaves.astype(cell_dtype(int(leaves.max(initial=0)) + 1)))
    return np.concatenate(blocks, axis=1)


class MemberLeaves:
    """The leaves of a model of several models, such as a vote over forests, member after member."""

    def __init__(self, model: ForeignModel):
        self._inside: list[LeafReader] = []
        for member in model.members:
            if member.model.form is Form.SUM:
                self._inside.append(MemberLeaves(member.model))
            elif member.model.form is Form.TREES:
                self._inside.append(member.model)
            else:
                reason = f"{member.name} has no trees, so no rows share a leaf of it"
                raise UnsupportedQuestionError(
                    "similarity", reason, "Pass one of the models of trees inside."
                )
        self._model = model

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the model about its columns."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._model, name)

    def coordinates(self, X: FeatureTable, n_threads: int = 1) -> LeafArray:
        """Return the leaves of rows in the trees of all members, (n, T)."""
        parts = zip(self._inside, self._model.rows_of(X))
        return np.hstack([member.coordinates(rows, n_threads) for member, rows in parts])
