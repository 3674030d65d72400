"""Blocks of rows, which stay in the caches, shared out to threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

BLOCK_ROWS = 1 << 14  # a few numbers of each stay in the second-level cache

Each = Callable[[Callable[[slice], None]], None]  # has some work done on every block


@contextmanager
def row_blocks(n_rows: int, n_threads: int) -> Iterator[Each]:
    """Gives a function that has work done on every block of `BLOCK_ROWS` rows, by threads that take blocks in turn."""

    def some(work: Callable[[slice], None], part: int, parts: int) -> None:
        for first in range(part * BLOCK_ROWS, n_rows, parts * BLOCK_ROWS):
            work(slice(first, min(first + BLOCK_ROWS, n_rows)))

    parts = max(1, min(n_threads, -(-n_rows // BLOCK_ROWS)))
    with ThreadPoolExecutor(parts) as pool:

        def each(work: Callable[[slice], None]) -> None:
            if parts == 1:
                some(work, 0, 1)
            else:
                list(pool.map(lambda part: some(work, part, parts), range(parts)))

        yield each
