"""Reports of long work: a progress bar, and a duration in words.

The bar appears if tqdm is installed and somebody is looking.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from threading import Lock
from typing import TypeVar

from axil.machine.cancellation import check_cancelled
from axil.machine.forks import in_forked_process

T = TypeVar("T")

PATIENCE = 2.0  # seconds before a bar appears

_one_bar = Lock()  # held by the work whose bar is on the screen


def _new_lock() -> None:
    """Forget the bar of a thread that a fork left behind."""
    global _one_bar
    _one_bar = Lock()


in_forked_process(_new_lock)


def track(steps: Sequence[T], label: str) -> Iterable[T]:
    """Iterate over the steps, with a bar if that takes longer than `PATIENCE`.

    Work inside other work that has a bar shows none. Each step looks for a cancellation.
    """
    return _cancellable(_with_bar(steps, label))


def _cancellable(steps: Iterable[T]) -> Iterator[T]:
    """Yield the steps until the computation of this thread is cancelled."""
    for step in steps:
        check_cancelled()
        yield step


def _with_bar(steps: Sequence[T], label: str) -> Iterable[T]:
    """Return the steps, with a bar if somebody is looking."""
    is_watched = sys.stderr is not None and (sys.stderr.isatty() or "ipykernel" in sys.modules)
    if is_watched and len(steps) > 1:
        return _shown(steps, label)
    return steps


@contextmanager
def silent() -> Iterator[None]:
    """Show no progress bars inside the block."""
    is_acquired = _one_bar.acquire(blocking=False)
    try:
        yield
    finally:
        if is_acquired:
            _one_bar.release()


def _shown(steps: Sequence[T], label: str) -> Iterator[T]:
    """Yield the steps with a progress bar, unless there is one already.

    A bar within a bar, or of another thread, would write over it.
    """
    if not _one_bar.acquire(blocking=False):
        yield from steps
        return
    try:
        yield from _bar(steps, label)
    finally:
        _one_bar.release()


def _bar(steps: Sequence[T], label: str) -> Iterable[T]:
    """Return the steps inside a bar of tqdm, if it is installed."""
    try:
        if "ipykernel" in sys.modules and find_spec("ipywidgets") is not None:
            from tqdm.auto import tqdm
        else:  # where tqdm's bar for notebooks would warn that it cannot be drawn
            from tqdm import tqdm
    except ImportError:
        return steps
    return tqdm(steps, desc=label, delay=PATIENCE, leave=False)  # type: ignore[no-any-return]


def in_time(seconds: float) -> str:
    """Return a duration for people: "some 40 seconds"."""
    if seconds == float("inf"):
        return "longer than is allowed"
    if seconds < 100:
        return f"some {max(seconds, 1):.0f} seconds"
    if seconds < 6000:
        return f"some {seconds / 60:.0f} minutes"
    return f"some {seconds / 3600:.0f} hours"
