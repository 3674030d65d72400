"""Deletions of training rows from boosted models of any loss: exact by replays, or to first order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from axil.machine.progress import track
from axil.pushes.boosting import Boosting
from axil.types import Array

TOGETHER = 1 << 15  # rows of all copies that replays walk together: their scores stay in the cache
SECONDS = 6e-8  # of one row in one step of a tree, with its gradient; measured on one core


def by_replay(model: Boosting, X: Any) -> Iterator[tuple[int, list[Array]]]:
    """The changes of scores in replays of the fit in which one row each has no weight; many replays at a time.

    Blocks of training rows: the first one's number, and for each output (rows, n).
    """
    leaves, n_rows = model.located(X)[0], len(model.targets)
    before = model.deleted([np.zeros(0, dtype=np.intp)], "removal").scores(leaves)[0]
    counted = np.flatnonzero(model.row_weights)
    step = together(model)
    for first in track(range(0, n_rows, step), "removal"):
        rows = np.arange(first, min(first + step, n_rows))
        left = [row[:0] if len(counted) == 1 else row for row in rows[:, None]]
        change = model.deleted(left, "removal").scores(leaves) - before  # (rows, n, K)
        if len(counted) == 1:
            change[np.isin(rows, counted)] = np.nan
        yield first, list(change.transpose(2, 0, 1))


def to_first_order(model: Boosting, X: Any) -> Iterator[tuple[int, list[Array]]]:
    """``-w_j dF(x) / dw_j``, as one block."""
    yield 0, [each.T for each in model.deletions(X)]


def together(model: Boosting) -> int:
    """How many replays are made at a time."""
    return max(1, TOGETHER // int(model.targets.size))


def bytes_per_query(model: Boosting) -> int:
    """Bytes that one query takes while replays are compared."""
    return 8 * int(model.targets.shape[1]) * (3 * together(model) + 2)
