"""ordered_read_out: sums of entries in the order of their cells, against a loop over the cells."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pytest

from axil import _core

Entries: TypeAlias = dict[str, np.ndarray]  #: the arguments of the kernel, by name
BLOCK_ROWS = 400
N_ROWS = 1000
N_CELLS = 7


def arguments(seed: int = 0) -> Entries:
    """Return entries of three blocks, and the cells of four explained rows.

    Cells of a block have no row, some rows or all rows.
    """
    rng = np.random.default_rng(seed)
    rows: list[np.ndarray] = []
    ends = []
    n_entries = 0
    for first in range(0, N_ROWS, BLOCK_ROWS):
        n_rows = min(BLOCK_ROWS, N_ROWS - first)
        block_ends = [n_entries]
        for share in (0.0, 0.02, 0.1, 0.3, 0.9, 1.0, 0.5):
            rows.append(np.flatnonzero(rng.random(n_rows) < share))
            n_entries += len(rows[-1])
            block_ends.append(n_entries)
        ends.append(block_ends)
    counts = [0, 3, 5, 1]
    return {
        "values": rng.normal(size=n_entries),
        "rows": np.concatenate(rows).astype(np.uint16),
        "ends": np.array(ends),
        "block_rows": BLOCK_ROWS,
        "starts": np.append(0, np.cumsum(counts)),
        "cells": rng.integers(N_CELLS, size=sum(counts)),
        "coefficients": rng.normal(size=sum(counts)),
        "out": np.full((len(counts), N_ROWS), np.nan),
        "n_threads": 1,
    }


def expected(entries: Entries) -> np.ndarray:
    """Return the sums of a loop over explained rows, cells and blocks."""
    sums = np.zeros(entries["out"].shape)
    for i in range(len(sums)):
        for at in range(entries["starts"][i], entries["starts"][i + 1]):
            coefficient = 1.0
            if entries["coefficients"] is not None:
                coefficient = entries["coefficients"][at]
            for block, ends in enumerate(entries["ends"]):
                cell = entries["cells"][at]
                entries_of_cell = slice(ends[cell], ends[cell + 1])
                rows = block * BLOCK_ROWS + entries["rows"][entries_of_cell].astype(int)
                sums[i, rows] += coefficient * entries["values"][entries_of_cell]
    return sums


@pytest.mark.parametrize("has_coefficients", [True, False])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_sums_are_those_of_a_loop_to_the_bit(has_coefficients: bool, n_threads: int) -> None:
    for seed in range(5):
        entries = arguments(seed) | {"n_threads": n_threads}
        if not has_coefficients:
            entries["coefficients"] = None
        _core.ordered_read_out(**entries)
        np.testing.assert_array_equal(entries["out"], expected(entries))


def test_nothing_to_read() -> None:
    empty = arguments() | {
        "starts": np.zeros(1, dtype=np.int64),
        "cells": np.zeros(0, dtype=np.int64),
        "coefficients": None,
        "out": np.zeros((0, N_ROWS)),
    }
    _core.ordered_read_out(**empty)


@pytest.mark.parametrize(
    ("changed", "match"),
    [
        ({"rows": np.zeros(3, dtype=np.uint16)}, "rows has length"),
        ({"starts": np.zeros(3, dtype=np.int64)}, "starts has length"),
        ({"starts": np.array([0, 3, 2, 8, 9])}, "starts must increase"),
        ({"starts": np.array([0, 3, 5, 8, 10])}, "starts must increase"),
        ({"block_rows": 0}, "block_rows"),
        ({"block_rows": 1 << 17}, "block_rows"),
        ({"block_rows": 500}, "3 blocks"),
        ({"cells": np.full(9, N_CELLS)}, "but there are 7"),
        ({"cells": np.full(9, -1)}, "but there are 7"),
        ({"coefficients": np.ones(3)}, "coefficients has length"),
        ({"ends": np.zeros((3, 0), dtype=np.int64)}, "ends must have"),
        ({"ends": np.full((3, N_CELLS + 1), 1 << 40)}, "ends must increase"),
        ({"ends": np.arange(3 * (N_CELLS + 1))[::-1].reshape(3, -1).copy()}, "ends must increase"),
    ],
)
def test_refusals_change_nothing(changed: Entries, match: str) -> None:
    entries = arguments() | changed
    with pytest.raises(ValueError, match=match):
        _core.ordered_read_out(**entries)
    assert np.isnan(entries["out"]).all()
