"""The boundary to a library: whatever it raises about rows becomes an `InputError` that names it and quotes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any

from axil.errors import AxilError, InputError, shown

# Methods whose first argument is rows of the user's. ``through`` is that of pipelines, for all of these.
READ_ROWS = (
    "_leaves",
    "through",
    "again",
    "assign",
    "check_kept",
    "coordinates",
    "leaves",
    "predictions",
    "predictions_from",
    "rows_of",
    "scores",
    "scores_from",
    "smoother",
    "table",
)
DERIVATIVES = ("target_derivatives", "weight_derivatives")


class ReadsRows:
    """The base of everything that hands rows to a library; each subclass has its own such methods wrapped."""

    library: str

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in (*READ_ROWS, *DERIVATIVES):
            method = vars(cls).get(name)
            if isinstance(method, FunctionType):
                setattr(cls, name, _quoting(method))


def _quoting(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return method(self, *arguments, **options)
        except (AxilError, AssertionError, MemoryError):
            raise
        except Exception as error:  # each library has its own
            raise InputError(
                f"{self.library} cannot read these rows ({type(error).__name__}: {shown(error, 300)}). "
                "Pass columns of the kinds, and in the encoding, that the model was fitted on."
            ) from error

    return call
