"""Arrays that take long to make, kept by key in one SQLite file: work that was interrupted goes on where it stopped."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np

from axil.machine.progress import track

COMMIT = 50  # arrays that an interruption may lose


def key(*parts: Any) -> str:
    """Of arrays, by their bytes, and of anything else by its repr."""
    digest = hashlib.sha256()
    for part in parts:
        text = (
            np.ascontiguousarray(part).tobytes()
            if isinstance(part, np.ndarray)
            else repr(part).encode()
        )
        digest.update(len(text).to_bytes(8, "big") + text)
    return digest.hexdigest()


class Cache:
    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.connection = sqlite3.connect(path)
        self.connection.execute(
            "create table if not exists arrays (key text primary key, dtype text, bytes blob)"
        )

    def __getitem__(self, name: str) -> np.ndarray:
        found = self.connection.execute(
            "select dtype, bytes from arrays where key = ?", (name,)
        ).fetchone()
        return np.frombuffer(found[1], dtype=found[0])

    def __contains__(self, name: str) -> bool:
        return (
            self.connection.execute("select 1 from arrays where key = ?", (name,)).fetchone()
            is not None
        )

    def fill(
        self,
        tasks: dict[str, Any],
        work: Callable[[Any], np.ndarray],
        pool: Executor,
        what: str,
        commit: int = COMMIT,
    ) -> int:
        """Make what is missing, ``work(task)`` in the processes of the pool; how many it was."""
        missing = {name: task for name, task in tasks.items() if name not in self}
        made = pool.map(work, missing.values(), chunksize=min(4, commit))
        try:
            for count, (name, array) in enumerate(zip(track(list(missing), what), made), 1):
                self.connection.execute(
                    "insert into arrays values (?, ?, ?)", (name, array.dtype.str, array.tobytes())
                )
                if count % commit == 0:
                    self.connection.commit()
        finally:
            self.connection.commit()
        return len(missing)
