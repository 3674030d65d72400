"""Comparables: which training rows may be listed beside a prediction, and their targets adjusted to it by the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from axil.machine.shared import one_blas_thread
from axil.output import tables
from axil.output.sums import WeightedSums, ratio
from axil.types import Array


@dataclass(frozen=True, eq=False)
class Within:
    """For each query the values of a column that a row must have to be listed."""

    values: NDArray[Any]  #: (N,) of the training rows
    lowest: NDArray[Any]  #: (n,) of the queries
    highest: NDArray[Any]  #: (n,)

    def groups(self, first: int, n: int) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """Groups n queries from ``first`` on by range: their places, and the positions of the rows in the range."""
        ends = np.stack([self.lowest[first : first + n], self.highest[first : first + n]])
        ranges, which = np.unique(ends, axis=1, return_inverse=True)
        for g, (lowest, highest) in enumerate(ranges.T):
            inside = (self.values >= lowest) & (self.values <= highest)  # neither is true of what is missing
            yield np.flatnonzero(which.ravel() == g), np.flatnonzero(inside)


MORE = 4  # times as many rows are read where too few of those read have labels of their own


@dataclass(frozen=True, eq=False)
class Choice:
    """The rows that may be listed. By default all of them, the largest |weight| first."""

    k: int  #: how many per prediction
    among: NDArray[np.intp] | None = None  #: positions of the rows allowed, ascending; None for all
    codes: NDArray[np.intp] | None = None  #: (N,) rows of one number are listed once, by the largest of them
    positive: bool = False  #: only weights above zero
    per_class: bool = True  #: a line for each class, or one for all that share the weights
    within: Within | None = None

    @property
    def is_plain(self) -> bool:
        """Whether all rows may be listed."""
        return self.among is None and self.codes is None and not self.positive and self.within is None

    def most(self, n_train: int) -> int:
        """The most lines that one prediction can get."""
        rows = np.arange(n_train) if self.among is None else self.among
        return min(self.k, len(rows) if self.codes is None else len(np.unique(self.codes[rows])))

    def largest(self, one: WeightedSums, first: int = 0) -> list[tables.Largest]:
        """The largest of each prediction from ``first`` on, for each output; free places have row -1."""
        outputs = None if self.per_class else 1
        if self.is_plain:
            return one.largest(self.k, outputs=outputs)
        k, found = self.most(len(one.targets)), []
        for weights, targets in one.by_output()[:outputs]:
            kept = tables.Largest(len(one), k, targets, "weight", one.n_threads)
            kept.merge(*self._near(weights, k, one.n_threads, first))
            found.append(kept)
        return found

    def _near(self, weights: Any, k: int, n_threads: int, first: int) -> tuple[Array, NDArray[np.int64]]:
        """`_rows` of each query among the rows that lie within its own range."""
        if self.within is None:
            return self._rows(weights, k, self.among, n_threads)
        n = weights.shape[0]
        values, rows = np.zeros((n, k)), np.full((n, k), -1, dtype=np.int64)
        for some, near in self.within.groups(first, n):
            among = near if self.among is None else np.intersect1d(near, self.among, assume_unique=True)
            if len(among):
                own = self._rows(weights[some], k, among, n_threads)
                values[some, : own[0].shape[1]], rows[some, : own[1].shape[1]] = own
        return values, rows

    def _rows(
        self, weights: Any, k: int, among: NDArray[np.intp] | None, n_threads: int
    ) -> tuple[Array, NDArray[np.int64]]:
        """Values and positions (n, k) of the rows to list among these, from the weights (n, N) of one output."""
        if among is not None:
            weights = weights[:, among]
        if self.positive:
            weights = weights.maximum(0.0).tocsr() if issparse(weights) else np.maximum(weights, 0.0)
        codes = self.codes if self.codes is None or among is None else self.codes[among]
        values, rows = _largest(weights, k, n_threads) if codes is None else _distinct(weights, k, codes, n_threads)
        rows = rows if among is None else np.where(rows < 0, -1, among[rows])
        return values, np.where(values > 0, rows, -1) if self.positive else rows


def _largest(weights: Any, k: int, n_threads: int) -> tuple[Array, NDArray[np.int64]]:
    one = tables.Largest.of(weights, k, np.ones(weights.shape[1]), "weight", n_threads)
    return one.values, one.rows


def _distinct(weights: Any, k: int, codes: NDArray[np.intp], n_threads: int) -> tuple[Array, NDArray[np.int64]]:
    """The largest of each number. More rows are read until every prediction has k of them."""
    n, n_rows = weights.shape
    values, rows = np.zeros((n, k)), np.full((n, k), -1, dtype=np.int64)
    left, size = np.arange(n), min(2 * k, n_rows)
    while len(left):
        sizes, places = _largest(weights[left], size, n_threads)
        short = []
        for i, own, at in zip(left, sizes, places):
            first = np.sort(np.unique(codes[at], return_index=True)[1])[:k]
            if len(first) < k and size < n_rows:
                short.append(i)
            else:
                values[i, : len(first)], rows[i, : len(first)] = own[first], at[first]
        left, size = np.array(short, dtype=np.intp), min(MORE * size, n_rows)
    return values, rows


@dataclass(frozen=True, eq=False)
class Adjustment:
    """Targets as the model itself adjusts them to a query: ``y_j + F(x) - F(x_j)``, on the scale of the fit."""

    residuals: Array  #: (N, K) y_j - F(x_j)

    def adjusted(self, one: WeightedSums, rows: NDArray[np.int64]) -> Array:
        """(n, K, k): the adjusted targets of these rows (n, K, k), as people read them."""
        predictions = one.predictions.reshape(len(one), self.residuals.shape[1], 1)
        moved = predictions + self.residuals[rows, np.arange(rows.shape[1])[:, None]]
        shape = moved.transpose(0, 2, 1).shape
        return one.scale.inverse(moved.transpose(0, 2, 1).reshape(-1, shape[2])).reshape(shape).transpose(0, 2, 1)

    def value_share(self, one: WeightedSums, values: Array, rows: NDArray[np.int64]) -> Array:
        """(n, K): the percentage that a prediction rises by where the targets of these rows (n, K, k) rise by one percent.

        As people read both: ``sum k_j y_j / F``; of logarithms ``sum k_j``. nan for a prediction of zero and on other scales.
        """
        scale, outputs = one.scale, np.arange(rows.shape[1])[:, None]
        if not (scale.is_identity or scale.is_log):
            return np.full(rows.shape[:2], np.nan)
        targets, made = one.shown[rows, outputs], one.shown_predictions.reshape(rows.shape[:2])
        if scale.is_log:
            slopes, made = targets / (targets + scale.shift), made / (made + scale.shift)
        else:
            slopes = targets
        moved = np.where(rows < 0, 0.0, values * slopes).sum(axis=2)
        return np.asarray(np.divide(moved, made, out=np.full_like(made, np.nan), where=made != 0))

    @one_blas_thread()
    def bias(self, one: WeightedSums) -> Array:
        """(n, K): ``sum_j k_j r_j``, on the scale of the fit."""
        pairs = zip(one.by_output(), self.residuals.T)
        return np.stack([np.asarray(weights @ own) for (weights, _), own in pairs], axis=1)

    def mean(self, one: WeightedSums, bias: Array) -> Array:
        """(n, K): the mean of all adjusted targets by their weights, as people read it; nan where no weight is left in all."""
        sums = [np.asarray(weights.sum(axis=1)).ravel() for weights, _ in one.by_output()]
        total = np.stack(sums, axis=1)
        moved = np.divide(bias, total, out=np.full_like(bias, np.nan), where=total > 0)
        return one.scale.inverse(one.predictions.reshape(bias.shape) + moved)


@dataclass(frozen=True, eq=False)
class Listed:
    """The comparables of a batch of predictions."""

    columns: dict[str, Any]  #: a line for each row listed
    summary: dict[str, Any]  #: a line for each prediction and output; none without an adjustment


def listed(one: WeightedSums, choice: Choice, adjustment: Adjustment | None, first: int = 0) -> Listed:
    """The columns of `top` for the rows chosen, with the share of ``sum |weight|`` down to each row.

    Two columns more: ``position`` of each row, and ``asked``, that of the prediction in this batch. ``first`` is the position of
    the first prediction among all queries.
    """
    largest = choice.largest(one, first)
    values, rows = (np.stack([getattr(own, name) for own in largest], axis=1) for name in ("values", "rows"))
    sizes = np.broadcast_to(np.atleast_2d(one.sizes).T[:, :, None], values.shape)
    share = ratio(np.cumsum(np.abs(values), axis=2), sizes.copy())
    made: dict[str, Any] = {}
    before = "contribution" if one.additive else "weight"  # of the share
    lines = one.lines(largest) if choice.per_class else one.class_lines(largest[0])
    for name, column in lines.items():
        made |= {name: column, "share": share.ravel()} if name == before else {name: column}
    summary = {}
    if adjustment is not None:
        bias = adjustment.bias(one)
        mean = adjustment.mean(one, bias)
        adjusted, repeated = adjustment.adjusted(one, rows), np.broadcast_to(mean[:, :, None], rows.shape)
        made |= {"adjusted": adjusted.ravel(), "adjusted (all)": repeated.ravel()}
        summary = tables.label_columns(one.query_index, one.outputs, "share", np.zeros(1)) | {
            "share": share[:, :, -1].ravel(),
            "value share": adjustment.value_share(one, values, rows).ravel(),
            "prediction": one.shown_predictions.ravel(),
            "mean": mean.ravel(),
            one.scale.label("bias"): bias.ravel(),
        }
    asked = np.broadcast_to(np.arange(len(one))[:, None, None], rows.shape)
    made |= {"position": rows.ravel(), "asked": asked.ravel()}
    filled = made["position"] >= 0
    return Listed(made if filled.all() else {name: column[filled] for name, column in made.items()}, summary)
