"""State that several threads share: values that are made once, and BLAS's own number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from threading import Lock, RLock
from typing import Any, TypeVar
from weakref import WeakSet

import threadpoolctl

from axil.aliases import ForeignObject
from axil.arrays import IntArray
from axil.machine.forks import in_forked_process

T = TypeVar("T")


class Cache:
    """Values by name, each computed at its first use, by one thread.

    A value is published by one assignment, so nobody sees half of one: an exception in between,
    Ctrl-C too, changes nothing. Copies and pickles have the values and a lock of their own.
    """

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}
        self._lock = RLock()
        self._process = os.getpid()

    def get(self, name: Hashable, make: Callable[[], T]) -> T:
        """Return the value of this name; compute it now if this is its first use."""
        if name not in self._values:
            with self._lock_of_process():
                if name not in self._values:
                    self._values[name] = make()
        return self._values[name]  # type: ignore[no-any-return]

    def _lock_of_process(self) -> AbstractContextManager[object]:
        """Return the lock, or a new one in a forked process, which has no other threads."""
        if self._process != os.getpid():
            self._lock = RLock()
            self._process = os.getpid()
        return self._lock

    def put(self, name: Hashable, value: object) -> None:
        """Store a value in the place of the one that has this name."""
        self._values[name] = value

    def cut(self, rows: slice | IntArray) -> Cache:
        """Return the values so far, each cut to these rows; later values are not shared."""
        cut_values = Cache()
        cut_values.__setstate__({name: value[rows] for name, value in self.known().items()})
        return cut_values

    def known(self) -> dict[Hashable, Any]:
        """Return the cached values by name."""
        return dict(self._values)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return the values as the state, as they may refer to this object; no lock is copied."""
        return Cache, (), dict(self._values)

    def __setstate__(self, values: dict[Hashable, Any]) -> None:
        self._values = values


class _Block:
    """One block that runs with one thread of BLAS."""


_limits = Lock()
# The blocks that run now; one that Ctrl-C stops at its very end leaves by itself.
_limited: WeakSet[_Block] = WeakSet()
# What restores the number of threads before the first of them
_before: ForeignObject = None


def _forget_other_threads() -> None:
    """Release what threads held that a fork left behind."""
    global _limits
    _limits = Lock()
    _limited.clear()


in_forked_process(_forget_other_threads)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run a block with one thread of BLAS, so that sums do not depend on the number of threads.

    Several threads may run such blocks at once. BLAS has one number of threads for the whole
    process: the first block to begin sets it, the last to end sets it back. Idle threads of BLAS
    would also spin on for a while and take the cores from the kernels that follow.
    """
    global _before
    block = _Block()
    try:
        with _limits:
            _limited.add(block)
            if _before is None:
                _take_control()
                _before = _blas().limit(limits=1)
        yield
    finally:
        with _limits:
            _limited.discard(block)
            if not _limited and _before is not None:
                _take_control()
                _before.restore_original_limits()
                _before = None


@cache
def _blas() -> threadpoolctl.ThreadpoolController:
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


def _take_control() -> None:
    """Let this thread set OpenBLAS's number of threads.

    threadpoolctl lets only the thread set it that did so first; here blocks take turns.
    """
    controller: ForeignObject = getattr(threadpoolctl, "OpenBLASController", None)
    if hasattr(controller, "clear_controlling_thread"):  # in older versions every thread may
        controller.clear_controlling_thread(force=True)
