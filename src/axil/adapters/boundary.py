"""The boundary to a library.

Whatever a library raises about rows becomes an `InputError` that names the library and quotes it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

import numpy as np

from axil.aliases import ForeignObject
from axil.errors import AxilError, InputError, shown
from axil.machine.forks import after_fork

#: Methods that predict: nothing is asked of a library for no rows.
PREDICTS = ("predictions", "scores", "mean_probabilities")
#: Methods of any adapter whose first argument is rows; a test compares these with the contracts.
TAKES_ROWS = (
    *PREDICTS,
    "again",
    "assign",
    "check_kept",
    "coordinates",
    "leaves",
    "rows_of",
    "smoother",
    "table",
    "tested_values",
    "unsolved",
    "whole_predictions",
)
_THROUGH = "through"  # of pipelines, for all of the above
DERIVATIVES = ("target_derivatives", "weight_derivatives")


class ReadsRows:
    """The base of all classes that pass rows to a library.

    Each subclass has its own such methods wrapped.
    """

    library: str

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap the methods of a subclass that pass rows to its library."""
        super().__init_subclass__(**options)
        for name in (*TAKES_ROWS, _THROUGH, *DERIVATIVES):
            _wrap(cls, name, _quoting)
        _wrap(cls, "trees", _safe_after_fork)


def _wrap(owner: type, name: str, wrapper: Callable[[Callable[..., Any]], object]) -> None:
    """Wrap a method of a class, if it is the class's own."""
    method = vars(owner).get(name)
    if isinstance(method, FunctionType):
        setattr(owner, name, wrapper(method))


def _safe_after_fork(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that may be called in a forked process; see `axil.machine.forks`."""

    @wraps(method)
    def call(*arguments: Any, **options: Any) -> ForeignObject:
        return after_fork(method, *arguments, **options)

    return call


def _quoting(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that turns the errors of its library into `InputError`."""

    @wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> ForeignObject:
        if method.__name__ in PREDICTS and arguments and arguments[0].shape[0] == 0:
            return np.zeros((0, self.n_outputs))
        try:
            return after_fork(method, self, *arguments, **options)
        except (AxilError, AssertionError, MemoryError):
            raise
        except Exception as error:  # each library has its own
            raise InputError(
                f"{self.library} cannot read these rows ({type(error).__name__}: "
                f"{shown(error, 300)}). Pass columns of the kinds, and in the encoding, that the "
                "model was fitted on."
            ) from error

    return call


class Around(ReadsRows):
    """An adapter around another one, ``_inside``.

    The inner adapter answers everything that this one does not define.
    """

    _inside: Any

    def __getattr__(self, name: str) -> ForeignObject:
        """Return a member of the adapter inside."""
        if name.startswith("_"):  # asked for before there is one inside, when this is copied
            raise AttributeError(name)
        return getattr(self._inside, name)
