"""A stand-in for a GPU, made of NumPy: its arrays neither mix with arrays of the host nor turn into them.

This is a module of arrays like numpy or cupy (`zeros`, `asarray`, ...), with a back end, `Away`, that keeps the rows of the
CPU's kernels behind such arrays. Code that runs on it has no hidden copies between host and device, and calls no function of
NumPy that a GPU lacks.
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

    def __init__(self, host_values: np.ndarray):
        self.host_values = host_values

    def get(self, out: np.ndarray | None = None) -> np.ndarray:
        if out is None:
            return self.host_values.copy()
        out[...] = self.host_values
        return out

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self.host_values.__array_interface__)

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("an array of the device does not become one of the host unasked")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        kwargs["out"] = tuple(map(_inner, kwargs["out"])) if "out" in kwargs else None
        arguments = {name: value for name, value in kwargs.items() if value is not None}
        return _wrap(getattr(ufunc, method)(*map(_inner, inputs), **arguments))

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _wrap(function(*_inner(list(args)), **_inner(kwargs)))

    def __getitem__(self, key: Any) -> Any:
        return _wrap(self.host_values[_inner(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.host_values[_inner(key)] = _inner(value)

    def __len__(self) -> int:
        return len(self.host_values)

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(object.__getattribute__(self, "host_values"), name)
        if callable(attribute):
            return lambda *args, **kwargs: _wrap(attribute(*map(_inner, args), **kwargs))
        if name in ("T", "real"):
            return _wrap(attribute)
        return attribute

    def __reduce__(self) -> Any:
        return ndarray, (self.host_values,)


ndarray.__module__ = (
    "away"  # axil finds a library by the first part of the name of its arrays' module
)
sys.modules[ndarray.__module__] = sys.modules[__name__]


def _inner(value: Any) -> Any:
    """Return the operand of an operation on the device: its own arrays and plain numbers."""
    if isinstance(value, ndarray):
        return value.host_values
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("an operation on the device with an array of the host")
    if isinstance(value, (list, tuple)):
        return type(value)(map(_inner, value))
    return {k: _inner(v) for k, v in value.items()} if isinstance(value, dict) else value


def _wrap(value: Any) -> Any:
    return ndarray(value) if isinstance(value, np.ndarray) else value


def asarray(value: Any, dtype: Any = None) -> ndarray:
    """Return a copy of an array of the host on the device; an array of the device stays what it is."""
    return value if isinstance(value, ndarray) else ndarray(np.array(value, dtype))


def array(value: Any, **kwargs: Any) -> ndarray:
    return ndarray(np.array(value.host_values if isinstance(value, ndarray) else value, **kwargs))


def __getattr__(name: str) -> Any:
    function = getattr(np, name)
    return lambda *args, **kwargs: _wrap(function(*_inner(list(args)), **_inner(kwargs)))


def _kernel(value: Any) -> Any:
    """Return the array that a kernel takes, which comes from the device or from the host."""
    return value.host_values if isinstance(value, ndarray) else value


class AwayRows(Rows):
    """The CPU's rows, behind arrays of the device."""

    xp = sys.modules[__name__]

    def __init__(self, rows: Rows):
        self.rows = rows
        self.cells = ndarray(rows.cells)
        self.weights = rows.weights
        self.n_rows = rows.n_rows
        self.n_cells = rows.n_cells
        self.every = rows.every

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
