"""The order of arguments: the table to explain first, then what is asked about it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

Method = TypeVar("Method", bound=Callable[..., Any])


def table_first(other: str) -> Callable[[Method], Method]:
    """Marks a method of ``(X, other, ...)`` that reads ``(other, X, ...)`` too, since only one of the two is a table."""

    def marked(method: Method) -> Method:
        @wraps(method)
        def asked(self: Any, *given: Any, **named: Any) -> Any:
            if given and "X" in named and other not in named:
                named, given = named | {other: given[0]}, given[1:]
            elif len(given) > 1 and _likeness(given[1]) > _likeness(given[0]):
                given = given[1], given[0], *given[2:]
            return method(self, *given, **named)

        return asked  # type: ignore[return-value]

    return marked


def _likeness(value: Any) -> int:
    """How much a value looks like a table: 2 with rows and columns, 1 a list of rows, 0 of labels, -1 a mapping of labels."""
    try:
        shape, is_mapping = getattr(value, "shape", None), hasattr(value, "items")
    except Exception:  # whatever an object that is neither raises
        return 0
    if isinstance(shape, tuple) and len(shape) == 2:
        return 2
    if is_mapping and shape is None:
        return -1
    return int(isinstance(value, (list, tuple)) and len(value) > 0 and isinstance(value[0], (list, tuple)))
