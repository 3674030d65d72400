"""Compile and start the kernels, for one type of cells at a time, at first use.

CuPy stores what was compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from typing import Any

import cupy as cp
import numpy as np

from axil.aliases import ForeignObject
from axil.errors import InputError
from axil.machine.arrays import DeviceArray, is_host
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
    """Raise an `InputError` if the device has too little memory; nothing else changes."""
    try:
        yield
    except cp.cuda.memory.OutOfMemoryError as error:
        cp.get_default_memory_pool().free_all_blocks()
        free, total = cp.cuda.Device().mem_info
        raise InputError(
            f"The GPU's memory is exhausted: {in_words(free)} of {in_words(total)} are free, too "
            "little for this request. "
            'Ask for fewer rows at a time, set memory_limit, or use device="cpu".'
        ) from error


@cache
def module(cell: str) -> ForeignObject:
    """Return the compiled kernels for one type of cells."""
    source = files(__package__).joinpath("kernels.cu").read_text(encoding="utf-8")
    return cp.RawModule(code=source, options=("--std=c++17", f"-DCELL={TYPES[cell]}"))


@cache
def kernel(cell: str, name: str) -> ForeignObject:
    """Return a compiled kernel, which may use all of a multiprocessor's shared memory."""
    function = module(cell).get_function(name)
    if name.startswith(("read_out_", "cooccur_", "count_", "scatter_")):
        function.max_dynamic_shared_size_bytes = shared_bytes()
    return function


@cache
def shared_bytes() -> int:
    """Return the shared memory of one block, in bytes."""
    return int(cp.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])


def lanes_of(columns: int) -> int:
    """Return how many threads of a warp take neighbouring columns."""
    return int(min(32, 1 << max(columns - 1, 0).bit_length()))


def blocks(work: int, per_block: int = WARPS) -> int:
    """Return the number of blocks for ``work`` warps, or threads, with ``per_block`` in a block."""
    return int(max(1, min(-(-work // per_block), MOST_BLOCKS)))


def launch(
    function: ForeignObject,
    grid: tuple[int, ...],
    block: tuple[int, ...],
    *arguments: DeviceArray,
    shared: int = 0,
) -> None:
    """Start a kernel. Whole numbers become 64-bit integers, and None a null pointer."""
    wide = tuple(NUMBERS[type(a)](a) if type(a) in NUMBERS else a for a in arguments)
    function(grid, block, wide, shared_mem=shared)


@contextmanager
def filled(out: DeviceArray) -> Iterator[DeviceArray]:
    """Yield an array of the device to be filled for ``out``.

    It is ``out`` itself, or an array that is copied into it at the end.
    """
    if is_host(out):
        device_out = cp.empty(out.shape)
    else:
        device_out = out
    yield device_out
    if is_host(out):
        to_host(device_out, out)


def to_host(array: DeviceArray, out: DeviceArray) -> None:
    """Copy an array of the device into one of the host, whose rows may lie apart."""
    if out.flags.c_contiguous:
        array.get(out=out)  # no second copy on the host
    else:
        out[...] = array.get()


@cache
def processors() -> int:
    """Return the number of multiprocessors of the device."""
    return int(cp.cuda.Device().attributes["MultiProcessorCount"])


@cache
def total_bytes() -> int:
    """Return the bytes of the device's memory."""
    return int(cp.cuda.Device().mem_info[1])


def free_bytes() -> int:
    """Return the free bytes of the device's memory, those of CuPy's own pool included."""
    return int(cp.cuda.Device().mem_info[0]) + int(cp.get_default_memory_pool().free_bytes())
