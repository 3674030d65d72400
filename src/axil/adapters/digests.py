"""Digests of fitted transformers: equal for equal settings and findings.

Digests are equal in any process, also where functions have no name.

joblib's hash is the same for objects that are equal. It pickles them, and so fails for functions
and classes that no module has by name: a lambda in a FunctionTransformer, a transformer whose class
was defined inside a function. Such a function enters the digest by its code, its defaults and what
it closes over, such a class by its name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from joblib.hashing import NumpyHasher

from axil.aliases import ForeignObject


def digest(objects: object) -> str:
    """Return a digest of objects of any kind.

    Only the type of an object that cannot be pickled enters it.
    """
    hasher = _Hasher("md5")
    try:
        return str(hasher.hash(objects))
    except Exception:  # a lock, a generator or an open file: each object says so in its own way
        return f"unpickled {type(objects).__module__}.{type(objects).__qualname__}"


class _Hasher(NumpyHasher):  # type: ignore[misc]  # joblib has no types
    """joblib's hasher, which also takes functions and classes that cannot be imported."""

    def __init__(self, hash_name: str):
        super().__init__(hash_name)
        # Functions whose description is being written: one may close over itself.
        self._open: set[int] = set()

    def reducer_override(self, value: ForeignObject) -> ForeignObject:
        """Describe objects that pickle cannot find by name; leave the others to pickle."""
        if not isinstance(value, (FunctionType, type)) or _is_importable(value):
            return NotImplemented
        return _described, (self._description(value),)

    def _description(self, value: ForeignObject) -> tuple[Any, ...]:
        """Return the description of a function or class that enters the digest."""
        name = f"{value.__module__}.{value.__qualname__}"
        if isinstance(value, type) or id(value) in self._open:
            return (name,)
        self._open.add(id(value))
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return name, _code(value.__code__), value.__defaults__, value.__kwdefaults__, cells


def _described(description: tuple[Any, ...]) -> None:
    """Replace a function or class by its description; nothing reads the stream back."""


def _is_importable(value: Callable[..., Any]) -> bool:
    """Return whether importing the name of an object from its module returns the object itself."""
    named: ForeignObject = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        named = getattr(named, name, None)
    return named is value


def _code(code: CodeType) -> tuple[Any, ...]:
    """Return the instructions of a function and all names in them.

    Line numbers and files do not enter.
    """
    constants = [_constant(value) for value in code.co_consts]
    return code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars


def _constant(value: ForeignObject) -> ForeignObject:
    """Return a constant of a function in a form that is equal in any process."""
    if isinstance(value, CodeType):
        return _code(value)
    if isinstance(value, frozenset):  # its order differs between processes
        return sorted(map(repr, value))
    return value
