"""A device made of NumPy: its arrays are as far away as a GPU's. They do not mix with the host's, nor become them unasked.

A module of arrays like numpy or cupy (`zeros`, `asarray`, ...) and a back end, `Away`, that keeps the rows of the CPU's kernels
behind such arrays. What runs on it has no hidden copies between host and device, and no NumPy call that a GPU has not.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil.kernels import Backend, Rows, Triangle
from axil.kernels.cpu import Cpu


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array on the device."""

    def __init__(self, kept: np.ndarray):
        self.kept = kept

    def get(self, out: np.ndarray | None = None) -> np.ndarray:
        if out is None:
            return self.kept.copy()
        out[...] = self.kept
        return out

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self.kept.__array_interface__)

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("an array of the device does not become one of the host unasked")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        kwargs["out"] = tuple(map(_inner, kwargs["out"])) if "out" in kwargs else None
        found = getattr(ufunc, method)(
            *map(_inner, inputs), **{k: v for k, v in kwargs.items() if v is not None}
        )
        return _wrap(found)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _wrap(function(*_inner(list(args)), **_inner(kwargs)))

    def __getitem__(self, key: Any) -> Any:
        return _wrap(self.kept[_inner(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.kept[_inner(key)] = _inner(value)

    def __len__(self) -> int:
        return len(self.kept)

    def __getattr__(self, name: str) -> Any:
        found = getattr(object.__getattribute__(self, "kept"), name)
        if callable(found):
            return lambda *args, **kwargs: _wrap(found(*map(_inner, args), **kwargs))
        return _wrap(found) if name in ("T", "real") else found

    def __reduce__(self) -> Any:
        return ndarray, (self.kept,)


ndarray.__module__ = (
    "away"  # axil finds a library by the first part of the name of its arrays' module
)
sys.modules[ndarray.__module__] = sys.modules[__name__]


def _inner(value: Any) -> Any:
    """What an operation on the device works with: its own arrays and plain numbers."""
    if isinstance(value, ndarray):
        return value.kept
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("an operation on the device with an array of the host")
    if isinstance(value, (list, tuple)):
        return type(value)(map(_inner, value))
    return {k: _inner(v) for k, v in value.items()} if isinstance(value, dict) else value


def _wrap(value: Any) -> Any:
    return ndarray(value) if isinstance(value, np.ndarray) else value


def asarray(value: Any, dtype: Any = None) -> ndarray:
    """A copy of an array of the host, or an array of the device itself."""
    return value if isinstance(value, ndarray) else ndarray(np.array(value, dtype))


def array(value: Any, **kwargs: Any) -> ndarray:
    return ndarray(np.array(value.kept if isinstance(value, ndarray) else value, **kwargs))


def __getattr__(name: str) -> Any:
    function = getattr(np, name)
    return lambda *args, **kwargs: _wrap(function(*_inner(list(args)), **_inner(kwargs)))


def _kernel(value: Any) -> Any:
    """What a kernel takes: arrays of the device or of the host."""
    return value.kept if isinstance(value, ndarray) else value


class AwayRows(Rows):
    """The CPU's rows, behind arrays of the device."""

    xp = sys.modules[__name__]

    def __init__(self, rows: Rows):
        self.rows, self.cells = rows, ndarray(rows.cells)
        self.weights, self.n_rows, self.n_cells, self.every = (
            rows.weights,
            rows.n_rows,
            rows.n_cells,
            rows.every,
        )

    def tree(self, number: int) -> AwayRows:
        return AwayRows(self.rows.tree(number))

    def leaf_sums(self, v: Any, weights: Any) -> Any:
        sums = self.rows.leaf_sums(_kernel(v), weights)
        return sums if isinstance(v, np.ndarray) else ndarray(sums)


def _through(name: str) -> Any:
    def call(self: AwayRows, *args: Any) -> None:
        getattr(self.rows, name)(*map(_kernel, args))

    return call


for _name in Rows.__abstractmethods__ - {"tree"}:
    setattr(AwayRows, _name, _through(_name))
AwayRows.__abstractmethods__ = frozenset(set(AwayRows.__abstractmethods__) - set(vars(AwayRows)))


class AwayTriangle(Triangle):
    def __init__(self, triangle: Triangle):
        self.triangle = triangle

    def solve(self, right: Any, transposed: bool) -> None:
        self.triangle.solve(_kernel(right), transposed)

    def inverse(self, overwrite: bool) -> Any:
        return ndarray(self.triangle.inverse(overwrite))


@dataclass(frozen=True)
class Away(Backend):
    """The cores of this machine, with all arrays on the device."""

    n_threads: int

    name = "away"
    costs = Cpu.costs
    xp = sys.modules[__name__]

    @property
    def cores(self) -> Cpu:
        return Cpu(self.n_threads)

    def rows(self, cells: Any, starts: Any, weights: Any = None) -> AwayRows:
        return AwayRows(self.cores.rows(_kernel(cells), starts, weights))

    def triangle(self, factor: Any) -> AwayTriangle:
        return AwayTriangle(self.cores.triangle(_kernel(factor)))

    def top(self, block: Any, first: int, scale: Any, values: Any, rows: Any) -> None:
        self.cores.top(np.ascontiguousarray(_kernel(block)), first, scale, values, rows)

    def assign(self, *args: Any) -> bool:
        return self.cores.assign(*args)
