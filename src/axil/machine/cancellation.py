"""Cancellation: a computation of one thread is stopped from another.

Kernels call `check_cancelled` some 20 times a second, and so does every loop over batches of rows.
It looks at the cancellation of its own thread or task, so computations beside it go on.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from threading import Event
from typing import ClassVar, ParamSpec, TypeVar

from axil.errors import CancellationError

P = ParamSpec("P")
R = TypeVar("R")


class _Kernels:
    """Kernels poll from the first cancellation on."""

    poll = False
    waiting: ClassVar[list[Callable[[Callable[[], None]], None]]] = []


def add_kernels(start_polling: Callable[[Callable[[], None]], None]) -> None:
    """Have kernels look for cancellations, as soon as there is one.

    ``start_polling`` makes them call the function that it gets.
    """
    if _Kernels.poll:
        start_polling(check_cancelled)
    else:
        _Kernels.waiting.append(start_polling)


class Cancellation:
    """Stop a computation from another thread, such as a request whose client has gone.

    A cancellation may run several computations, one after the other or at once. `cancel` stops all
    of them, and those that it runs later. The explainer answers as before.

    Examples
    --------
    >>> import axil
    >>> cancellation = axil.Cancellation()
    >>> cancellation.run(max, 2, 3)
    3
    >>> cancellation.cancel()
    >>> cancellation.run(max, 2, 3)
    Traceback (most recent call last):
    ...
    axil.errors.CancellationError: This computation was cancelled. Make a new axil.Cancellation.
    """

    def __init__(self) -> None:
        self._event = Event()
        _Kernels.poll = True
        while _Kernels.waiting:
            _Kernels.waiting.pop()(check_cancelled)

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._event.is_set()

    def cancel(self) -> None:
        """Stop the computations of `run`, which raise `CancellationError` in their own threads.

        Any thread may call it. A computation inside the model's own library ends first.
        """
        self._event.set()

    def run(self, function: Callable[P, R], /, *arguments: P.args, **options: P.kwargs) -> R:
        """Call a function in this thread, and return its result unless `cancel` stops it.

        Parameters
        ----------
        function : callable
            A method of axil, or a function that calls some.
        *arguments, **options
            What the function takes.
        """
        token = _current.set(self)
        try:
            check_cancelled()
            return function(*arguments, **options)
        finally:
            _current.reset(token)


_current: ContextVar[Cancellation | None] = ContextVar("axil_cancellation", default=None)


def check_cancelled() -> None:
    """Raise `CancellationError` if the computation of this thread was cancelled."""
    cancellation = _current.get()
    if cancellation is not None and cancellation.is_cancelled:
        raise CancellationError("This computation was cancelled. Make a new axil.Cancellation.")
