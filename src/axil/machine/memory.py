"""How much memory a request may take, and the limits of an explainer on its machine."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from axil.errors import InputError

SHARE = 0.8  # of what is free, where the user sets no limit
BATCH_BYTES = 1 << 28  # of weights held at a time while streaming
MOST_QUERIES = 1024  # of a batch: more are no faster
TILE = 16  # queries that kernels work on together: a larger batch is a multiple


def free_memory() -> int:
    """Return the bytes that can be taken without swapping: what the system reports, within the container's limit."""
    free = []
    try:
        pages = Path("/proc/meminfo").read_text(encoding="ascii")
        free.append(1024 * int(pages.split("MemAvailable:")[1].split()[0]))
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        if limit != "max":
            used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii")
            free.append(int(limit) - int(used))
    except (OSError, IndexError, ValueError):
        pass
    if not free:
        try:
            free.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
        except (AttributeError, OSError, ValueError):
            free.append(4 << 30)
    return max(min(free), 0)


def in_words(n_bytes: float) -> str:
    """Return a size for people: "3.2 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if n_bytes < 1024 or unit == "TiB":
            break
        n_bytes /= 1024
    if unit == "bytes":
        return f"{n_bytes:.0f} bytes"
    return f"{n_bytes:.1f} {unit}"


class Budget:
    """The bytes that one request may take: as the user said, or most of what is free at that moment.

    What grows with rows times trees is kept in temporary files in the directory ``scratch``, where
    one is given: mapped into memory, read from disk as far as memory is short, and gone with the
    last array on them.
    """

    def __init__(
        self,
        limit: int | None,
        scratch: Path | None = None,
        free: Callable[[], int] = free_memory,
        batch_bytes: int = BATCH_BYTES,
    ):
        self.limit = limit
        self.scratch = scratch
        self.free = free
        self.batch_bytes = batch_bytes

    @property
    def available(self) -> int:
        """The bytes that one request may take now."""
        if self.limit is None:
            return int(SHARE * self.free())
        return self.limit

    def batch_size(self, bytes_per_query: int, taken: int = 0) -> int:
        """Return the number of queries to ask at a time, where something else takes, or will take, ``taken`` bytes."""
        # A quarter: the batch before may still be there, and work goes on.
        batch_bytes = min(self.batch_bytes, (self.available - taken) // 4)
        size = int(max(1, min(batch_bytes // bytes_per_query, MOST_QUERIES)))
        if size < TILE:
            return size
        return size // TILE * TILE

    def require(self, n_bytes: int, what: str, instead: str) -> None:
        """Raise, before anything is allocated, if this many bytes do not fit."""
        available = self.available
        if n_bytes > available:
            if self.limit is None:
                origin = "is free"
            else:
                origin = "is allowed by memory_limit"
            raise InputError(
                f"{what} would take {in_words(n_bytes)}, but {in_words(available)} {origin}. {instead}"
            )

    def empty(self, shape: tuple[int, int], dtype: Any, what: str, instead: str) -> NDArray[Any]:
        """Return an array of rows times trees, in a file where there is a place for it; not initialised."""
        n_bytes = shape[0] * shape[1] * np.dtype(dtype).itemsize
        if self.scratch is None or not n_bytes:
            self.require(n_bytes, what, instead)
            return np.empty(shape, dtype)
        free = shutil.disk_usage(self.scratch).free
        if n_bytes > free:
            raise InputError(
                f"{what} would take {in_words(n_bytes)}, but {in_words(free)} is free in {self.scratch}. "
                "Choose a directory on a larger disk."
            )
        try:
            # The mapping outlives the file's name and its handle.
            with tempfile.TemporaryFile(dir=self.scratch) as file:
                _allocate(file, n_bytes)
                return np.asarray(np.memmap(file, dtype, "r+", shape=shape))
        except OSError as error:
            raise InputError(
                f"{what} would take {in_words(n_bytes)}, for which {self.scratch} has no room: {error.strerror or error}. "
                "Choose a directory on a larger disk."
            ) from error


def _allocate(file: IO[bytes], n_bytes: int) -> None:
    """Take the disk space now: a mapped page that finds none later on ends the process."""
    if hasattr(os, "posix_fallocate"):
        try:
            return os.posix_fallocate(file.fileno(), 0, n_bytes)
        except OSError as error:
            not_supported = errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS
            if error.errno not in not_supported:
                raise
    zeros = bytes(min(n_bytes, 1 << 20))
    for start in range(0, n_bytes, len(zeros)):
        file.write(zeros[: n_bytes - start])
    file.flush()


@dataclass(frozen=True)
class Limits:
    """The threads and bytes that work may take, where large arrays are kept, and the device: "cpu", "cuda", or "auto"."""

    n_threads: int
    budget: Budget
    device: str = "cpu"
