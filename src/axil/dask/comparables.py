"""Comparables among training rows in partitions: every partition sends the rows it would list, and what all its rows add up to.

Features stay where they are: once the rows to list are known, theirs alone are read from the user's collection again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from axil import inputs
from axil.dask.answers import Asked, Best
from axil.dask.cluster import task
from axil.dask.fits import Fit, left_over
from axil.dask.gradients import AskedPushes, WalkedRows, pushes_of
from axil.dask.partitions import Partition, blocks, named
from axil.errors import InputError
from axil.jacobian.stages import Walked
from axil.output.comparables import Choice
from axil.output.sums import WeightedSums, ratio
from axil.replay.mistakes import other_order
from axil.types import Array


@dataclass(frozen=True)
class Chosen:
    """The rows of one partition that may be listed."""

    number: int  #: of the partition
    start: int  #: its first row, among all
    k: int
    positive: bool
    distinct: bool
    mask: Any  #: (n_rows,) truth values as given; None: all rows
    keys: Any  #: (n_rows,) labels as given, of which each is listed once; None: every row has its own

    def delayed(self) -> Any:
        """This, once its masks and labels are there."""
        return task(Chosen, *(getattr(self, one.name) for one in fields(self)))

    def rows(self, labels: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[Any]]:
        """(n_rows,) twice: whether a row may be listed, and its label."""
        n = len(labels)
        with named(self.number):
            for what, given in (("among", self.mask), ("distinct", self.keys)):
                if other_order(pd.Series(np.zeros(n), index=labels), given) is not None:
                    raise InputError(
                        f"{what} has the row labels of X in another order, and rows are matched by position. Sort it like X."
                    )
            mask = np.ones(n, dtype=bool) if self.mask is None else inputs.as_mask(self.mask, n, "among")
            if self.keys is None:
                return mask, np.zeros(n, dtype=np.int8)  # nobody asks for them
            return mask, inputs.as_labels(self.keys, n, "distinct").astype(object)


@dataclass(frozen=True)
class Compared:
    """The rows to list beside n predictions of K outputs, and sums over all rows."""

    best: Best  #: with the columns position, row, weight, target, residual, key
    allowed: int  #: how many rows may be listed
    sizes: Array  #: (n, K) of |weight|
    weights: Array  #: (n, K)
    made: Array  #: (n, K) of weight * target
    bias: Array  #: (n, K) of weight * residual

    def __add__(self, other: Compared) -> Compared:
        return Compared(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    @property
    def shares(self) -> Array:
        """(n, K, k): of the rows down to each one in the sum of all sizes."""
        listed = np.where(self.best.size < 0, 0.0, self.best.size)
        return ratio(np.cumsum(listed, axis=2), np.broadcast_to(self.sizes[:, :, None], listed.shape).copy())


def compared_weights(partition: Partition, chosen: Chosen, asked: Asked, fits: list[Fit] | None) -> Compared:
    """By weights; residuals are of these fits, where there are some."""
    targets = partition.targets
    left = np.zeros_like(targets) if fits is None else left_over(partition, fits, asked.n_threads)
    every = [blocks(partition, e, phi, c, asked.n_threads) for e, (phi, c) in enumerate(zip(asked.phi, asked.constant))]
    read = ((parts[0][0], [block for _, block in parts]) for parts in zip(*every))
    return _compared(partition, chosen, targets, left, read, asked.phi[0].shape[1], asked.n_threads)


def compared_pushes(rows: WalkedRows, chosen: Chosen, asked: AskedPushes, walked: Walked) -> Compared:
    """By pushes, whose targets count once."""
    ones = np.ones_like(rows.targets)
    read = pushes_of(rows, walked, asked.n_threads).blocks(asked.leaves) if len(ones) else iter(())
    parts = ((first, list(block)) for first, block in read)
    return _compared(rows, chosen, ones, np.zeros_like(ones), parts, len(asked.leaves), asked.n_threads)


def _compared(
    rows: Any,
    chosen: Chosen,
    targets: Array,
    left: Array,
    read: Iterable[tuple[int, list[Array]]],
    n: int,
    n_threads: int,
) -> Compared:
    """From the weights or pushes of these rows, block by block: (rows, n) for each output, or one for all."""
    mask, keys = chosen.rows(rows.labels)
    nothing = np.zeros((n, targets.shape[1], 0))
    columns = {"position": nothing.astype(np.int64), "row": rows.labels[nothing.astype(np.intp)], "weight": nothing}
    columns |= {"target": nothing, "residual": nothing, "key": nothing.astype(keys.dtype)}
    none = np.zeros((n, targets.shape[1]))
    found = [Compared(Best(chosen.k, nothing, columns, chosen.distinct), int(mask.sum()), none, none, none, none)]
    for first, parts in read:
        own = slice(first, first + len(parts[0]))
        weights = parts[0].T if len(parts) == 1 else np.stack([part.T for part in parts])
        one = WeightedSums(weights, np.zeros(n), targets[own], rows.labels[own], np.arange(n), n_threads=n_threads)
        listed = _listed(one, chosen, rows, first, mask[own], keys[own], left[own])
        sums = [(abs(k).sum(axis=1), k.sum(axis=1), k @ y, k @ r) for (k, y), r in zip(one.by_output(), left[own].T)]
        found.append(Compared(listed or found[0].best, 0, *(np.stack(each, axis=1) for each in zip(*sums))))
    return reduce(add, found)


def _listed(
    one: WeightedSums, chosen: Chosen, rows: Any, first: int, mask: NDArray[np.bool_], keys: NDArray[Any], left: Array
) -> Best | None:
    """The rows of one block; None where no row may be listed."""
    if not mask.any():
        return None
    among = None if chosen.mask is None else np.flatnonzero(mask)
    codes = inputs.label_codes(keys, len(keys), "distinct") if chosen.distinct else None
    largest = Choice(chosen.k, among, codes, chosen.positive).largest(one)
    values, at = (np.stack([getattr(each, name) for each in largest], axis=1) for name in ("values", "rows"))
    outputs = np.arange(values.shape[1])[:, None]
    columns = {"position": chosen.start + first + at, "row": rows.labels[first + at], "weight": values}
    columns |= {"target": rows.targets[first + at, outputs], "residual": left[at, outputs], "key": keys[at]}
    return Best(chosen.k, np.where(at < 0, -1.0, np.abs(values)), columns, chosen.distinct)


@dataclass(frozen=True)
class Taken:
    """Some rows of a partition, as its collection has them now, and as they were when they were replayed."""

    X: Any  #: (n, features)
    labels: NDArray[Any]  #: (n,) then
    leaves: list[NDArray[Any]]  #: (T, n) then, for each entry of the fitted trees


def taken(X: Any, partition: Any, rows: NDArray[np.intp]) -> Taken:
    """The features of these rows."""
    if X.shape[0] != len(partition.labels):
        raise InputError(
            f"A partition of X has {X.shape[0]} rows now and had {len(partition.labels)} when the explainer was made; expected a "
            "collection that is the same whenever it is computed."
        )
    if hasattr(partition, "structures"):
        leaves = [np.ascontiguousarray(s.leaves()[:, rows]) for s in partition.structures]
    else:
        leaves = [np.ascontiguousarray(partition.leaves[:, rows])]
    return Taken(inputs.take_rows(X, rows), partition.labels[rows], leaves)


def by_partition(positions: NDArray[np.int64], starts: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Partitions with rows among these, sorted positions among all rows, and the rows' positions there."""
    owners = np.searchsorted(starts, positions, side="right") - 1
    for p in np.unique(owners):
        yield int(p), positions[owners == p] - starts[p]
