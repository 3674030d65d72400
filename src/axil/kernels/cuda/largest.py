"""The k largest entries of every column of a block on the device."""

from __future__ import annotations

from collections.abc import Callable

import cupy as cp
import numpy as np

from axil.aliases import ForeignObject
from axil.arrays import FloatArray
from axil.kernels import Numbers
from axil.kernels.cuda.launch import WARPS, blocks, lanes_of, launch
from axil.machine.arrays import DeviceArray

TURNS = 1024  # sets of rows whose largest entries bound the k largest
ROOM = 1024  # entries that may reach the bound, besides 8 k: ties go beyond


def merge(
    block: DeviceArray,
    first: int,
    scale: DeviceArray,
    values: FloatArray,
    rows: Numbers,
    get: Callable[[str], ForeignObject],
) -> None:
    """Merge a block (rows, S) on the device into the k largest of every column.

    See `Backend.top`. The largest, (S, k), are on the host.
    The k-th largest of the largest entries of many sets of rows bounds what can be among the k
    largest: few entries reach it.
    """
    n, columns = block.shape
    k = values.shape[1]
    lanes = lanes_of(columns)
    block_scale = None
    if scale is not None:
        block_scale = scale[first : first + n]
    bound = _bound(block, block_scale, k, get)
    room = min(n, ROOM + 8 * k)
    n_reached = cp.zeros(columns, dtype=cp.uint32)
    places = cp.empty((columns, room), dtype=cp.uint32)
    entries = cp.empty((columns, room))
    grid = (blocks(n, WARPS * 32 // lanes), -(-columns // lanes))
    collected = (block_scale, bound, room, n_reached, places, entries)
    launch(get("collect_largest"), grid, (32, WARPS), block, n, columns, lanes, *collected)
    reached = n_reached.get().astype(np.int64)
    within = np.flatnonzero(reached <= room)
    if len(within):
        most = int(reached[within].max())
        row_numbers = places[:, :most].get()[within].astype(np.int64) + first
        row_numbers[np.arange(most) >= reached[within][:, None]] = -1
        keep(row_numbers, entries[:, :most].get()[within], scale, within, values, rows)
    for s in np.flatnonzero(reached > room):  # many ties
        sizes = cp.abs(block[:, s] if block_scale is None else block_scale * block[:, s])
        row_numbers = cp.argsort(-sizes, kind="stable")[:k]
        keep(
            row_numbers.get()[None].astype(np.int64) + first,
            block[row_numbers, s].get()[None],
            scale,
            np.array([s]),
            values,
            rows,
        )


def _bound(
    block: DeviceArray,
    block_scale: DeviceArray | None,
    k: int,
    get: Callable[[str], ForeignObject],
) -> DeviceArray:
    """Return a lower bound of the k-th largest size of every column, (S,)."""
    n, columns = block.shape
    lanes = lanes_of(columns)
    turns = min(n, max(TURNS, 8 * k))
    if turns < k:
        return cp.full(columns, -1.0)
    largest = cp.empty((columns, turns))
    grid = (blocks(turns, WARPS * 32 // lanes), -(-columns // lanes))
    arguments = (block, n, columns, lanes, block_scale, turns, largest)
    launch(get("largest_of_turns"), grid, (32, WARPS), *arguments)
    largest.sort(axis=1)
    return cp.ascontiguousarray(largest[:, turns - k])


def keep(
    row_numbers: Numbers,
    entries: FloatArray,
    scale: DeviceArray,
    columns: Numbers,
    values: FloatArray,
    rows: Numbers,
) -> None:
    """Keep the k largest of the entries so far and of further ones, for some columns.

    Equal ones are in the order of the rows. A row number of -1 stands for no entry.
    """
    row_numbers = np.concatenate([rows[columns], row_numbers], axis=1)
    entries = np.concatenate([values[columns], entries], axis=1)
    is_free = row_numbers < 0
    if scale is None:
        factor = 1.0
    else:
        factor = scale[cp.asarray(np.where(is_free, 0, row_numbers))].get()
    order = np.lexsort((row_numbers, np.where(is_free, 1.0, -np.abs(factor * entries))))[
        :, : values.shape[1]
    ]
    best_rows = np.take_along_axis(row_numbers, order, axis=1)
    best_entries = np.take_along_axis(entries, order, axis=1)
    rows[columns] = best_rows
    values[columns] = np.where(best_rows < 0, 0.0, best_entries)
