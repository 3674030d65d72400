"""Blocks of rows, which stay in the caches, shared out to threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

BLOCK_ROWS = 1 << 14  # a few numbers of each stay in the second-level cache

Each = Callable[[Callable[[slice], None]], None]  # has some work done on every block


def spans(n: int, step: int) -> list[slice]:
    """The numbers 0..n - 1 in blocks of ``step`` and a last one of what is left."""
    return [slice(first, min(first + step, n)) for first in range(0, n, step)]


@contextmanager
def row_blocks(n_rows: int, n_threads: int) -> Iterator[Each]:
    """Gives a function that has work done on every block of `BLOCK_ROWS` rows, by threads that take blocks in turn."""

    def some(work: Callable[[slice], None], part: int, parts: int) -> None:
        for rows in spans(n_rows, BLOCK_ROWS)[part::parts]:
            work(rows)

    parts = max(1, min(n_threads, -(-n_rows // BLOCK_ROWS)))
    with ThreadPoolExecutor(parts) as pool:

        def each(work: Callable[[slice], None]) -> None:
            if parts == 1:
                some(work, 0, 1)
            else:
                list(pool.map(lambda part: some(work, part, parts), range(parts)))

        yield each
