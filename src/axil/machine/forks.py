"""Forked processes: libraries with OpenMP run in a thread of their own there.

A fork copies the calling thread alone. GNU's OpenMP keeps the team of each thread, so after a fork
the thread that called `fork` waits for helpers that do not exist, and hangs: LightGBM, XGBoost and
scikit-learn's histogram boosting do so in their own `predict`. A new thread makes a new team. The
locks that other threads held at the fork are made anew; see `axil.machine.threads`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from threading import local
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class _Process:
    """Whether this process was forked from one that had loaded this module."""

    is_forked = False


_inside = local()  # of the threads that `after_fork` started


def in_forked_process(function: Callable[[], None]) -> None:
    """Have a function called in every process that is forked from this one."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=function)


def _note_fork() -> None:
    _Process.is_forked = True


in_forked_process(_note_fork)


def after_fork(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Call a function that may use OpenMP; in a forked process, call it in a new thread."""
    if not _Process.is_forked or getattr(_inside, "is_new", False):
        return function(*arguments, **options)

    def call() -> T:
        _inside.is_new = True
        return function(*arguments, **options)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, call).result()
