"""How much memory a request may take."""

from __future__ import annotations

import os
from pathlib import Path

from axil.errors import InputError

SHARE = 0.8  # of what is free, where the user sets no limit


def free_memory() -> int:
    """Bytes that can be taken without swapping: what the system reports, within the container's limit."""
    free = []
    try:
        pages = Path("/proc/meminfo").read_text(encoding="ascii")
        free.append(1024 * int(pages.split("MemAvailable:")[1].split()[0]))
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        if limit != "max":
            free.append(int(limit) - int(Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii")))
    except (OSError, IndexError, ValueError):
        pass
    if not free:
        try:
            free.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
        except (AttributeError, OSError, ValueError):
            free.append(4 << 30)
    return max(min(free), 0)


def in_words(n_bytes: float) -> str:
    """A size for people: "3.2 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if n_bytes < 1024 or unit == "TiB":
            break
        n_bytes /= 1024
    return f"{n_bytes:.0f} {unit}" if unit == "bytes" else f"{n_bytes:.1f} {unit}"


class Budget:
    """The bytes that one request may take: as the user said, or most of what is free at that moment."""

    def __init__(self, limit: int | None):
        self.limit = limit

    @property
    def available(self) -> int:
        return int(SHARE * free_memory()) if self.limit is None else self.limit

    def require(self, n_bytes: int, what: str, instead: str) -> None:
        """Raise, before anything is allocated, if this many bytes do not fit."""
        available = self.available
        if n_bytes > available:
            origin = "is free" if self.limit is None else "is allowed by memory_limit"
            raise InputError(f"{what} takes {in_words(n_bytes)}, but {in_words(available)} {origin}. {instead}")
