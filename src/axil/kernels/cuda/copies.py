"""Copies of the leaf numbers on the device, one for all who go over the same rows."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import cupy as cp

from axil.errors import InputError
from axil.kernels import Cells
from axil.kernels.cuda.launch import free_bytes
from axil.machine.memory import in_words
from axil.machine.threads import Kept


@dataclass(frozen=True)
class Copy:
    """Cells on the device, and what was made of them there."""

    cells: Any
    kept: Kept


COPIES: dict[int, Copy] = {}  # of read-only arrays of the host, as long as those live


def copy_of(cells: Cells) -> Copy:
    """Cells on the device; the same copy for an array that nobody can change: replay and weights go over the same rows."""
    found = None if cells.flags.writeable else COPIES.get(id(cells))
    if found is not None:
        return found
    needed, free = cells.size * (cells.dtype.itemsize + 4), free_bytes()
    if needed > free:
        raise InputError(
            f"The leaf numbers of {cells.shape[1]} rows in {len(cells)} trees, sorted and as they are, take {in_words(needed)} "
            f'on the GPU, where {in_words(free)} are free. Use device="cpu".'
        )
    made = Copy(cp.asarray(cells), Kept())
    if not cells.flags.writeable:
        COPIES[id(cells)] = made
        weakref.finalize(cells, COPIES.pop, id(cells), None)
    return made
