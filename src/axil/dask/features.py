"""The work on one partition for columns: group numbers, rows that may be listed, and features read again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from axil import inputs
from axil.dask.partitions import named
from axil.effects.comparables import Allowed, packed
from axil.errors import InputError
from axil.replay.mistakes import other_order


def coded_rows(shard: Any, what: str, labels: Any) -> tuple[NDArray[np.intp], NDArray[Any]]:
    """Each row's group number and the names of the groups."""
    return inputs.group_codes(labels, len(shard.labels), what)


def allowed_rows(shard: Any, _: Any, given: list[Any]) -> Allowed:
    """The rows of a partition that may be listed: its number, then masks, labels and values as given, None for none."""
    number, mask, masks, keys, values = given
    n = len(shard.labels)
    with named(number):
        every = [("among", one) for one in masks or ()]
        for what, own in (*every, ("among", mask), ("distinct", keys), ("within", values)):
            if other_order(pd.Series(np.zeros(n), index=shard.labels), own) is not None:
                raise InputError(
                    f"{what} has the row labels of X_train in another order, and rows are matched by position. Sort it like "
                    "X_train."
                )
        among = None if mask is None else np.flatnonzero(inputs.as_mask(mask, n, "among"))
        bits = None if masks is None else packed((inputs.as_mask(one, n, "among") for one in masks), n)
        labels = None if keys is None else inputs.as_labels(keys, n, "distinct").astype(object)
        codes = None if labels is None else inputs.label_codes(labels, n, "distinct")
        points = None if values is None else inputs.as_points(values, "the column of within")
    return Allowed(among, bits, codes, labels, points)


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
            f"A partition of X_train has {X.shape[0]} rows now and had {len(partition.labels)} when the explainer was made; "
            "expected a collection that is the same whenever it is computed."
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
