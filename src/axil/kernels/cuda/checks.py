"""Checks of the arguments of kernels, which convert nothing and stay within bounds."""

from __future__ import annotations

import numpy as np
from numpy.typing import DTypeLike

from axil.machine.arrays import DeviceArray, is_host


def expect(
    name: str,
    array: DeviceArray,
    shape: tuple[int, ...],
    dtype: DTypeLike = np.float64,
    apart: bool = False,
) -> None:
    """Refuse an array of another type, layout or shape; with ``apart`` its rows may lie apart."""
    if not hasattr(array, "dtype") or array.dtype != dtype or array.ndim != len(shape):
        raise TypeError(
            f"{name} is {_kind(array)}, expected {np.dtype(dtype)} in {len(shape)} dimensions"
        )
    if apart:
        if array.size and array.shape[1] > 1 and array.strides[1] != array.itemsize:
            raise ValueError(f"{name} must have the entries of a row next to each other")
    elif not array.flags.c_contiguous:
        raise TypeError(f"{name} is not contiguous, row by row")
    if tuple(array.shape) != shape:
        if len(shape) > 1:
            raise ValueError(f"{name} has shape {tuple(array.shape)} where {shape} is expected")
        raise ValueError(f"{name} has length {array.shape[0]} where {shape[0]} is expected")


def expect_output(
    name: str,
    array: DeviceArray,
    shape: tuple[int, ...],
    dtype: DTypeLike = np.float64,
    apart: bool = False,
) -> None:
    """Refuse an array that `expect` refuses, or that cannot be written to."""
    expect(name, array, shape, dtype, apart)
    if is_host(array) and not array.flags.writeable:
        raise TypeError(f"{name} cannot be written to")


def expect_weights(name: str, weights: DeviceArray, n_rows: int) -> None:
    if weights is not None:
        expect(name, weights, (n_rows,))


def expect_trees(name: str, numbers: DeviceArray, n_trees: int) -> None:
    """Refuse numbers of trees that are not there."""
    expect(name, numbers, (len(numbers),), np.int64)
    for number in numbers:
        if not 0 <= number < n_trees:
            raise ValueError(f"{name} has tree {number}, but there are {n_trees} trees")


def expect_rows(first: int, count: int, n_rows: int) -> None:
    """Refuse rows that are not there."""
    if not 0 <= first <= n_rows - count:
        raise ValueError(f"{count} rows from {first} on, but there are {n_rows} rows")


def expect_cells(cells: DeviceArray, starts: DeviceArray) -> None:
    """Refuse cells that no kernel reads, or starts that are not those of trees."""
    if (
        not hasattr(cells, "dtype")
        or cells.dtype not in (np.uint8, np.uint16, np.uint32)
        or cells.ndim != 2
    ):
        raise TypeError(f"cells is {_kind(cells)}, expected unsigned numbers of trees by rows")
    if not cells.flags.c_contiguous:
        raise TypeError("cells is not contiguous, row by row")
    expect("starts", starts, (len(cells) + 1,), np.int64)
    if starts[0] != 0:
        raise ValueError("starts must begin with 0")
    for t, size in enumerate(np.diff(starts)):
        if size < 1:
            raise ValueError(f"tree {t} has no leaves")


def expect_places(
    values: DeviceArray, rows: DeviceArray, columns: int, scale: DeviceArray, n_rows: int
) -> None:
    """Refuse places for the largest entries that do not fit the columns, or name unknown rows."""
    _expect_largest(values, rows, columns)
    expect_weights("scale", scale, n_rows)
    if rows.size and rows.max() >= n_rows:
        raise ValueError(f"rows has {rows.max()}, beyond the {n_rows} rows")


def _expect_largest(values: DeviceArray, rows: DeviceArray, columns: int) -> None:
    if getattr(values, "ndim", 0) == 2:
        k = values.shape[1]
    else:
        k = 0
    expect_output("values", values, (columns, k))
    expect_output("rows", rows, (columns, k), np.int64)


def expect_block(
    block: DeviceArray, first: int, scale: DeviceArray, values: DeviceArray, rows: DeviceArray
) -> None:
    """Refuse a block, places for its largest entries and a scale that do not fit together."""
    if block.dtype != np.float64 or block.ndim != 2:
        raise TypeError(f"block is {_kind(block)}, expected float64 in 2 dimensions")
    n, columns = block.shape
    _expect_largest(values, rows, columns)
    if scale is not None:
        expect("scale", scale, (len(scale),))
        if not 0 <= first <= len(scale) - n:
            raise ValueError(f"{n} rows from {first} on, but scale has {len(scale)}")
        if rows.size and rows.max() >= len(scale):
            raise ValueError(f"rows has {rows.max()}, beyond the end of scale")


def _kind(array: DeviceArray) -> str:
    if hasattr(array, "dtype"):
        return f"{array.dtype} {tuple(array.shape)}"
    return type(array).__name__
