"""How much memory a request may take, and the limits of an explainer on its machine."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import DTypeLike

from axil.arrays import AnyArray
from axil.errors import InputError

SHARE = 0.8  # of what is free, where the user sets no limit
BATCH_BYTES = 1 << 28  # of weights held at a time while streaming
MOST_QUERIES = 1024  # explained rows of a batch: more are no faster
TILE = 16  # explained rows that kernels work on together: a larger batch is a multiple


def free_memory() -> int:
    """Return the bytes that can be allocated without swapping, within the container's limit."""
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
    """The memory limit of one request.

    They are those that the user allows, or most of what is free at that moment. With a directory
    ``scratch``, arrays that grow with rows times trees are in temporary files there. They are
    mapped into memory, read from disk as far as memory is short, and deleted with the last array
    on them.
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
        """Return the bytes that one request may use now."""
        if self.limit is None:
            return int(SHARE * self.free())
        return self.limit

    def batch_size(self, bytes_per_query: int, reserved: int = 0) -> int:
        """Return the number of rows to explain at a time.

        ``reserved`` bytes are, or will be, allocated for something else.
        """
        # A quarter: the batch before may still be there, and work goes on.
        batch_bytes = min(self.batch_bytes, (self.available - reserved) // 4)
        size = int(max(1, min(batch_bytes // bytes_per_query, MOST_QUERIES)))
        if size < TILE:
            return size
        return size // TILE * TILE

    def require(self, n_bytes: int, subject: str, instead: str) -> None:
        """Raise, before anything is allocated, if this many bytes do not fit.

        ``subject`` begins the message, and ``instead`` says what to do.
        """
        available = self.available
        if n_bytes > available:
            if self.limit is None:
                origin = "is free"
            else:
                origin = "is allowed by memory_limit"
            raise InputError(
                f"{subject} would take {in_words(n_bytes)}, but {in_words(available)} {origin}. "
                f"{instead}"
            )

    def empty(
        self, shape: tuple[int, int], dtype: DTypeLike, subject: str, instead: str
    ) -> AnyArray:
        """Return an array of rows times trees that is not initialised.

        It is in a file if there is a directory ``scratch``. ``subject`` and ``instead`` as in
        `require`.
        """
        n_bytes = shape[0] * shape[1] * np.dtype(dtype).itemsize
        if self.scratch is None or not n_bytes:
            self.require(n_bytes, subject, instead)
            return np.empty(shape, dtype)
        free = shutil.disk_usage(self.scratch).free
        if n_bytes > free:
            raise InputError(
                f"{subject} would take {in_words(n_bytes)}, but {in_words(free)} is free in "
                f"{self.scratch}. Choose a directory on a larger disk."
            )
        try:
            # The mapping outlives the file's name and its handle.
            with tempfile.TemporaryFile(dir=self.scratch) as file:
                _allocate(file, n_bytes)
                return np.asarray(np.memmap(file, dtype, "r+", shape=shape))
        except OSError as error:
            raise InputError(
                f"{subject} would take {in_words(n_bytes)}, for which {self.scratch} has no room: "
                f"{error.strerror or error}. Choose a directory on a larger disk."
            ) from error


def _allocate(file: IO[bytes], n_bytes: int) -> None:
    """Allocate the disk space now: a mapped page without space would end the process later."""
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
    """The threads, bytes and device of the work: "cpu", "cuda" or "auto"."""

    n_threads: int
    budget: Budget
    device: str = "cpu"
