"""The k largest entries of every column of a block on the device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy as cp
import numpy as np

from axil.arrays import FloatArray
from axil.kernels import Numbers
from axil.kernels.cuda.launch import WARPS, blocks, lanes_of, launch

TURNS = 1024  # sets of rows whose largest entries bound the k largest
ROOM = 1024  # entries that may reach the bound, besides 8 k: ties go beyond


def merge(
    block: Any, first: int, scale: Any, values: FloatArray, rows: Numbers, get: Callable[[str], Any]
) -> None:
    """Merge a block (rows, S) on the device into the k largest of every column, (S, k) on the host; see `Backend.top`.

    The k-th largest of the largest entries of many sets of rows bounds what can be among the k
    largest: few entries reach it.
    """
    n, columns = block.shape
    k, lanes = values.shape[1], lanes_of(columns)
    turns = min(n, max(TURNS, 8 * k))
    own = None if scale is None else scale[first : first + n]
    height = -(-columns // lanes)
    if turns < k:
        bound = cp.full(columns, -1.0)
    else:
        largest = cp.empty((columns, turns))
        grid = (blocks(turns, WARPS * 32 // lanes), height)
        launch(
            get("largest_of_turns"),
            grid,
            (32, WARPS),
            block,
            n,
            columns,
            lanes,
            own,
            turns,
            largest,
        )
        largest.sort(axis=1)
        bound = cp.ascontiguousarray(largest[:, turns - k])
    room = min(n, ROOM + 8 * k)
    found = cp.zeros(columns, dtype=cp.uint32)
    places, entries = cp.empty((columns, room), dtype=cp.uint32), cp.empty((columns, room))
    grid = (blocks(n, WARPS * 32 // lanes), height)
    collected = (own, bound, room, found, places, entries)
    launch(get("collect_largest"), grid, (32, WARPS), block, n, columns, lanes, *collected)
    reached = found.get().astype(np.int64)
    within = np.flatnonzero(reached <= room)
    if len(within):
        most = int(reached[within].max())
        at = places[:, :most].get()[within].astype(np.int64) + first
        at[np.arange(most) >= reached[within][:, None]] = -1
        keep(at, entries[:, :most].get()[within], scale, within, values, rows)
    for s in np.flatnonzero(reached > room):  # many ties
        sizes = cp.abs(block[:, s] if own is None else own * block[:, s])
        at = cp.argsort(-sizes, kind="stable")[:k]
        keep(
            at.get()[None].astype(np.int64) + first,
            block[at, s].get()[None],
            scale,
            np.array([s]),
            values,
            rows,
        )


def keep(
    at: Numbers, seen: FloatArray, scale: Any, which: Numbers, values: FloatArray, rows: Numbers
) -> None:
    """Sort entries of rows ``at``, -1 for none, and those kept before by size, equal ones by row; keep the first k of each."""
    at = np.concatenate([rows[which], at], axis=1)
    seen = np.concatenate([values[which], seen], axis=1)
    free = at < 0
    if scale is None:
        factor = 1.0
    else:
        factor = scale[cp.asarray(np.where(free, 0, at))].get()
    order = np.lexsort((at, np.where(free, 1.0, -np.abs(factor * seen))))[:, : values.shape[1]]
    taken = np.take_along_axis(at, order, axis=1)
    found = np.take_along_axis(seen, order, axis=1)
    rows[which], values[which] = taken, np.where(taken < 0, 0.0, found)
