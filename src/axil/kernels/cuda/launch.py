"""Compiling and starting the kernels: for one type of cells at a time, at first use; CuPy keeps what was compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

import cupy as cp
import numpy as np

from axil.errors import InputError
from axil.machine.arrays import is_host
from axil.machine.memory import in_words

WARPS = 8  # of a block
THREADS = 256  # of a block without columns
MOST_BLOCKS = 1 << 16
TYPES = {"uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int"}
NUMBERS: dict[type, Callable[[Any], Any]] = {
    int: np.int64,
    bool: np.int64,
    float: np.float64,
    type(None): lambda _: np.uint64(0),
}


@contextmanager
def within_memory() -> Iterator[None]:
    """Says what happened where the device has too little memory; what was there before stays as it was."""
    try:
        yield
    except cp.cuda.memory.OutOfMemoryError as error:
        cp.get_default_memory_pool().free_all_blocks()
        free, total = cp.cuda.Device().mem_info
        raise InputError(
            f"The GPU's memory is exhausted: {in_words(free)} of {in_words(total)} are free, too little for this request. "
            'Ask for fewer rows at a time, set memory_limit, or use device="cpu".'
        ) from error


@cache
def module(cell: str) -> Any:
    """The compiled kernels for one type of cells."""
    source = files(__package__).joinpath("kernels.cu").read_text(encoding="utf-8")
    return cp.RawModule(code=source, options=("--std=c++17", f"-DCELL={TYPES[cell]}"))


@cache
def kernel(cell: str, name: str) -> Any:
    """A compiled kernel, allowed to use all of a multiprocessor's shared memory."""
    found = module(cell).get_function(name)
    if name.startswith(("read_out_", "cooccur_", "count_", "scatter_")):
        found.max_dynamic_shared_size_bytes = shared_bytes()
    return found


@cache
def shared_bytes() -> int:
    """Shared memory that one block may take."""
    return int(cp.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])


def lanes_of(columns: int) -> int:
    """How many threads of a warp take neighbouring columns."""
    return int(min(32, 1 << max(columns - 1, 0).bit_length()))


def blocks(work: int, each: int = WARPS) -> int:
    """The number of blocks for ``work`` warps, or threads, with ``each`` of them to a block."""
    return int(max(1, min(-(-work // each), MOST_BLOCKS)))


def launch(
    found: Any, grid: tuple[int, ...], block: tuple[int, ...], *arguments: Any, shared: int = 0
) -> None:
    """Start a kernel: whole numbers are 64 bits wide, None is no array."""
    wide = tuple(NUMBERS[type(a)](a) if type(a) in NUMBERS else a for a in arguments)
    found(grid, block, wide, shared_mem=shared)


@contextmanager
def filled(out: Any) -> Iterator[Any]:
    """An array of the device to be filled for ``out``: itself, or one that is copied into it in the end."""
    if is_host(out):
        made = cp.empty(out.shape)
    else:
        made = out
    yield made
    if is_host(out):
        to_host(made, out)


def to_host(found: Any, out: Any) -> None:
    """Copies an array of the device into one of the host, whose rows may lie apart."""
    if out.flags.c_contiguous:
        found.get(out=out)  # no second copy on the host
    else:
        out[...] = found.get()


@cache
def processors() -> int:
    """Multiprocessors of the device."""
    return int(cp.cuda.Device().attributes["MultiProcessorCount"])


@cache
def total_bytes() -> int:
    """Bytes of the device's memory."""
    return int(cp.cuda.Device().mem_info[1])


def free_bytes() -> int:
    """Bytes of the device's memory that can be taken, CuPy's own pool included."""
    return int(cp.cuda.Device().mem_info[0]) + int(cp.get_default_memory_pool().free_bytes())
