"""similarity: in how many trees of a model two rows share their leaf; novelty: how far a row is from those in its leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import adapters, inputs
from axil.arrays import BoolArray, FloatArray
from axil.errors import InputError, UnsupportedModelError, UnsupportedQuestionError
from axil.inputs.columns import occurrences
from axil.kernels import Cells
from axil.kernels.choose import backend_of, limits_of, settled
from axil.kernels.cpu import ranges
from axil.machine.memory import Limits
from axil.machine.progress import track
from axil.replay.rows_of_the_fit import rows_of_the_fit, twins_among
from axil.structure import cell_dtype

BLOCK_ENTRIES = 1 << 22  # leaf numbers asked of the library at a time
COMPARED = 4000  # leaves that are compared in the time that a row and tree takes in the set-up of an explainer
HARM = "Rows of the fit lie inside the boxes that they made, so that every other row would look new"
FEWER = "Pass fewer rows at a time, ask for the k largest alone, or raise memory_limit."


def similarity(
    model: Any,
    X: Any,
    other: Any = None,
    k: int | None = None,
    *,
    tree_weights: Any = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    device: str = "cpu",
) -> FloatArray | tuple[FloatArray, NDArray[np.int64]]:
    """The share of a model's trees in which each row of X is in the same leaf as each row of ``other``.

    From 0, no leaf in common, to 1, the same leaf in every tree. Only the trees are looked at: no training data is needed and
    nothing is proven, so models that `Explainer` refuses are taken too, such as those for ranking or survival.

    Parameters
    ----------
    model : object
        A fitted model of trees, or a pipeline that ends in one.
    X : table
        n rows, with the columns of the fit.
    other : table, optional
        m rows to compare them with; X itself by default.
    k : int, optional
        Only the k most similar rows of ``other`` for each row of X. Nothing of the size n m is then made.
    tree_weights : array of shape (T,), optional
        How much each tree counts, from 0 up; all alike by default. T counts the trees of all outputs.
    n_threads, memory_limit, device
        As in `Explainer`.

    Returns
    -------
    array of shape (n, m)
        The similarities; they are computed as sums over trees, divided by the sum of all weights.
    pair of arrays of shape (n, k)
        With ``k``: similarities, the largest first, and the positions of the rows of ``other``; equal ones in the order of the
        rows. Where fewer than k rows share a leaf at all, the last places have similarity 0 and position -1.

    Examples
    --------
    >>> from lightgbm import LGBMRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y)
    >>> similarity(model, X.head(2), X).shape
    (2, 442)
    >>> found, rows = similarity(model, X.head(1), X, k=3)
    >>> float(found[0, 0]), int(rows[0, 0])  # a row shares all its own leaves
    (1.0, 0)
    """
    limits = limits_of(n_threads, memory_limit, device=device)
    adapter = _leaf_reader(model)
    asked = _leaves(adapter, inputs.as_features(X, adapter, "X"), limits)
    known = (
        asked
        if other is None
        else _leaves(adapter, inputs.as_features(other, adapter, "other"), limits)
    )
    limits = settled(limits, asked.size * known.shape[1] / COMPARED)
    weights = None if tree_weights is None else _weights(tree_weights, len(asked))
    whole = float(len(asked)) if weights is None else float(weights.sum())
    dtype = np.promote_types(asked.dtype, known.dtype)
    if k is None:
        n, m = asked.shape[1], known.shape[1]
        limits.budget.require(8 * n * m, f"The similarities of {n} x {m} rows", FEWER)
        out = np.empty((n, m))
        queries = np.ascontiguousarray(known.T, dtype=dtype)
        _rows(asked, dtype, limits).matches(queries, weights, 0, out)
        out /= whole
        return out
    count = min(inputs.as_count(k, "k"), known.shape[1])
    values, rows = (
        np.zeros((asked.shape[1], count)),
        np.full((asked.shape[1], count), -1, dtype=np.int64),
    )
    _rows(known, dtype, limits).top_matches(
        np.ascontiguousarray(asked.T, dtype=dtype), weights, values, rows
    )
    return values / whole, rows


def novelty(
    model: Any,
    X: Any,
    X_train: Any,
    held_out: Any = None,
    *,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
) -> FloatArray:
    """How far each row of X lies outside the training rows that share its leaves, as a mean over the trees of a model.

    A tree sends a row that lies beyond all training rows to the leaf at the edge and cannot know: its prediction, its weights
    and its similarity may stay as they were. So each leaf gets a box, the lowest and the highest value of every feature among
    its training rows. A row that lies inside its boxes in all trees has novelty 0; one that does not adds ``log(1 + d)`` for each
    feature, with d the distance from the box in standard deviations of the feature over the training rows. It tells rows of
    another kind from rows of the same kind (experiments/novelty.py); that a row is inside says nothing of its error.

    Parameters
    ----------
    model : object
        A fitted model of trees, or a pipeline that ends in one.
    X : table
        n rows, with the columns of the fit. Columns that are no numbers have no box and are left out.
    X_train : table
        The rows that the model was fitted on, or any others that support it.
    held_out : table, optional
        Rows of the same kind as X_train that the model was not fitted on. With these the answer is the share of them that is
        less novel than each row of X: near 1 the row is unlike all of them. Training rows among them are left out with a
        warning; where most are, this is an error.
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
    >>> found = novelty(model, new, X[:300], held_out)
    >>> moved = novelty(model, 3 * new, X[:300], held_out)
    >>> bool(found.mean() < 0.6), bool(moved.mean() > 0.9)
    (True, True)
    """
    limits = limits_of(n_threads, memory_limit)
    adapter = _leaf_reader(model)
    tables = [inputs.as_features(X, adapter, "X"), inputs.as_features(X_train, adapter, "X_train")]
    if held_out is not None:
        rows = inputs.as_features(held_out, adapter, "held_out")
        tables.append(inputs.take_rows(rows, np.flatnonzero(~_fitted(rows, tables[1]))))
    numbers = [_numbers(table) for table in tables]
    leaves = [_leaves(adapter, table, limits) for table in tables]
    trained = np.ascontiguousarray(numbers[1])
    if not trained.size:
        raise InputError(
            "X_train has no rows, or no column of numbers: there is nothing that X could be compared with."
        )
    spread = np.nanstd(trained, axis=0)
    spread[~(spread > 0)] = 1.0
    found = [np.zeros(len(table)) for table in numbers]
    for t in track(range(len(leaves[1])), "novelty"):
        low, high = ranges(
            leaves[1][t], trained, 1 + max(int(own[t].max(initial=0)) for own in leaves)
        )
        for place in range(len(tables)):
            if place != 1:
                _add_distance(found[place], leaves[place][t], numbers[place], low, high, spread)
    scores = [own / max(len(leaves[1]), 1) for own in found]
    if held_out is None:
        return scores[0]
    return np.searchsorted(np.sort(scores[2]), scores[0]) / max(len(scores[2]), 1)


def _fitted(rows: Any, trained: Any) -> BoolArray:
    """Which rows are to be left out as training rows, whose features they have."""
    if not rows.shape[0] or not trained.shape[0]:
        return np.zeros(rows.shape[0], dtype=np.bool_)
    single = inputs.is_single(rows) or inputs.is_single(trained)
    asked, known = (
        inputs.row_keys(table, np.empty((table.shape[0], 0)), single) for table in (rows, trained)
    )
    equal, own = occurrences(known, asked), twins_among(occurrences(known, known))
    return rows_of_the_fit(equal, own, "held_out", "the same features", HARM)


def _numbers(table: Any) -> FloatArray:
    """(n, p): the columns of numbers; nan where a value is missing."""
    frame = inputs.as_frame(table)
    if frame is None:
        dense = table.toarray() if inputs.is_sparse(table) else table
        return (
            np.zeros((len(dense), 0))
            if dense.dtype.kind not in "biuf"
            else np.asarray(dense, dtype=np.float64)
        )
    numeric = [name for name, kind in frame.schema.items() if kind.is_numeric()]
    columns = [np.asarray(frame[name].to_numpy(), dtype=np.float64) for name in numeric]
    return np.stack(columns, axis=1) if columns else np.zeros((len(frame), 0))


def _add_distance(
    total: FloatArray,
    leaf: Cells,
    values: FloatArray,
    low: FloatArray,
    high: FloatArray,
    spread: FloatArray,
) -> None:
    """Add how far rows lie from the boxes of their leaves: 0 for a missing value, and in a leaf without training rows."""
    own = leaf.astype(np.intp)
    away = np.fmax(np.fmax(low[own] - values, values - high[own]), 0.0) / spread
    total += np.log1p(np.nan_to_num(away, nan=0.0, posinf=np.finfo(np.float64).max)).sum(axis=1)


def _rows(leaves: Cells, dtype: Any, limits: Limits) -> Any:
    """Rows where the kernels can reach them."""
    most = int(np.iinfo(dtype).max) + 1
    starts = most * np.arange(len(leaves) + 1, dtype=np.int64)
    return backend_of(limits).rows(np.ascontiguousarray(leaves, dtype=dtype), starts)


def _weights(given: Any, n_trees: int) -> FloatArray:
    weights = inputs.as_vector(given, n_trees, "tree_weights", "trees")
    if (weights < 0).any() or not weights.any():
        raise InputError("tree_weights must not be below 0, nor all 0.")
    return weights


def _leaf_reader(model: Any) -> Any:
    """The adapter of any model of trees; no setting of the fit is refused."""
    readers: list[Callable[[Any], Any]] = [adapters.read_leaves, adapters.find]
    reason, known = "this model has no trees, so no rows share a leaf", False
    for read in readers:
        try:
            found = read(model)
        except UnsupportedModelError as error:
            reason, known = str(error), True
            continue
        if hasattr(found, "members"):
            return MemberLeaves(found)
        if hasattr(found, "leaves"):
            return found
        known = known or found is not None
    if not known:
        raise adapters.unread(model)
    raise UnsupportedQuestionError("similarity", reason, "Pass a model of trees.")


def _leaves(adapter: Any, X: Any, limits: Limits) -> Cells:
    """(T, n): packed leaf numbers, block by block so that a library's own wide matrix never exists whole."""
    n_trees, n = (
        int(adapter.coordinates(inputs.take_rows(X, slice(0, 1)), 1).shape[1]),
        int(X.shape[0]),
    )
    limits.budget.require(2 * n * n_trees, "The leaf numbers of all rows", FEWER)
    parts: list[Cells] = [np.empty((n_trees, 0), dtype=np.uint8)]
    step = max(1, BLOCK_ENTRIES // max(n_trees, 1))
    for start in track(range(0, n, step), "leaves"):
        found = adapter.coordinates(
            inputs.take_rows(X, slice(start, start + step)), limits.n_threads
        ).T
        parts.append(found.astype(cell_dtype(int(found.max(initial=0)) + 1)))
    return np.concatenate(parts, axis=1)


class MemberLeaves:
    """The leaves of a model of several others, such as a vote over forests or pipelines, member after member."""

    def __init__(self, model: Any):
        for member in model.members:
            if not hasattr(member.model, "leaves") and not hasattr(member.model, "members"):
                reason = f"{member.name} has no trees, so no rows share a leaf of it"
                raise UnsupportedQuestionError(
                    "similarity", reason, "Pass one of the models of trees inside."
                )
        self._model = model
        self._inside = [
            MemberLeaves(member.model) if hasattr(member.model, "members") else member.model
            for member in model.members
        ]

    def __getattr__(self, name: str) -> Any:
        """Return what the model knows of its columns."""
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._model, name)

    def coordinates(self, X: Any, n_threads: int = 1) -> NDArray[np.integer[Any]]:
        """Return the leaves of rows in the trees of all members, (n, T)."""
        parts = zip(self._inside, self._model.rows_of(X))
        return np.hstack([member.coordinates(rows, n_threads) for member, rows in parts])
