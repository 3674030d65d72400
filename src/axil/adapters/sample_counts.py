"""Samples: those that the user recorded, and those that are made again from the beginning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import numpy as np

from axil.adapters.boosted_fit import RowGradients
from axil.arrays import AnyArray, FloatArray, LeafArray
from axil.errors import InputError

T = TypeVar("T")


def compact(in_bag: FloatArray) -> AnyArray:
    """Return sample counts (N, T), in one byte each where they are whole numbers that fit."""
    with np.errstate(invalid="ignore"):
        small = in_bag.astype(np.uint8)
    if np.array_equal(small, in_bag):
        return small
    return in_bag


class RecordedCounts:
    """The columns of a table (N, T) of sample counts or multiplicities."""

    name = "in_bag="
    needs_gradients = False

    def __init__(self, in_bag: FloatArray, n_trees: int):
        if in_bag.shape[1] != n_trees:
            raise InputError(
                f"in_bag has {in_bag.shape[1]} columns; expected one for each of the {n_trees} "
                "trees."
            )
        self.in_bag = in_bag
        self.dtype = compact(in_bag).dtype.type  #: that holds the sampled rows

    def draw(self, trees: range, leaves: LeafArray, gradients: RowGradients | None) -> AnyArray:
        """Return how often each row was sampled for each of these trees, (len(trees), N)."""
        return self.in_bag[:, trees.start : trees.stop].T


class DrawnAgain(Generic[T]):
    """Items of a sequence that is made in order; an earlier item begins the sequence anew."""

    _running: Iterator[T] | None = None
    _number = -1
    _item: T

    def __init__(self, begin: Callable[[], Iterable[T]]):
        self._begin = begin

    def __getitem__(self, number: int) -> T:
        """Return the item of this number."""
        if self._running is None or number < self._number:
            self._running = iter(self._begin())
            self._number = -1
        while self._number < number:
            self._item = next(self._running)
            self._number += 1
        return self._item

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the running samples, which cannot be copied."""
        return {"_begin": self._begin}
