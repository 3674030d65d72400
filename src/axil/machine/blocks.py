"""Blocks of rows, which stay in the caches, shared out to threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeAlias

BLOCK_ROWS = 1 << 14  # a few numbers of each stay in the second-level cache

#: A function that has some work done on every block.
BlockWorker: TypeAlias = Callable[[Callable[[slice], None]], None]


def spans(n: int, step: int) -> list[slice]:
    """Return the numbers 0..n - 1 in blocks of ``step``; the last block may be shorter."""
    return [slice(first, min(first + step, n)) for first in range(0, n, step)]


@contextmanager
def row_blocks(n_rows: int, n_threads: int) -> Iterator[BlockWorker]:
    """Yield a function that has work done on every block of `BLOCK_ROWS` rows.

    Threads take the blocks in turn.
    """
    blocks = spans(n_rows, BLOCK_ROWS)
    n_workers = max(1, min(n_threads, len(blocks)))

    def work_on_some(work: Callable[[slice], None], worker: int) -> None:
        for rows in blocks[worker::n_workers]:
            work(rows)

    with ThreadPoolExecutor(n_workers) as pool:

        def work_on_all(work: Callable[[slice], None]) -> None:
            if n_workers == 1:
                work_on_some(work, 0)
            else:
                list(pool.map(lambda worker: work_on_some(work, worker), range(n_workers)))

        yield work_on_all
