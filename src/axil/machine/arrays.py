"""Arrays of the host and of a device: code that takes either, and moves one to the other."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from axil.aliases import ForeignObject
from axil.arrays import AnyArray, FloatArray

#: An array of NumPy on the host, or of CuPy on a device.
AnyPlaceArray: TypeAlias = Any
#: An array of CuPy on a device. The methods of a back end also take arrays of the host.
DeviceArray: TypeAlias = Any


def is_host(array: object) -> TypeGuard[AnyArray]:
    """Return whether an array is NumPy's own."""
    return isinstance(array, np.ndarray)


def namespace(array: AnyPlaceArray) -> ForeignObject:
    """Return the module of an array: numpy, or cupy for one on a GPU."""
    if is_host(array):
        return np
    return sys.modules[type(array).__module__.partition(".")[0]]


def have_same_values(first: AnyArray, second: AnyArray) -> bool:
    """Return whether two arrays are equal. One array is equal to itself without a pass over it."""
    return first is second or np.array_equal(first, second)


def is_away(values: object) -> bool:
    """Return whether values say that they are on a GPU."""
    return not is_host(values) and hasattr(values, "__cuda_array_interface__")


def module_of(values: AnyPlaceArray) -> str:
    """Return the name of the module whose arrays an answer uses: that of the given values.

    It is the module of an array on a GPU that can be copied back, else numpy.
    """
    if is_away(values) and hasattr(values, "get"):
        return str(namespace(values).__name__)
    return "numpy"


def like(array: AnyArray, neighbour: AnyPlaceArray) -> AnyPlaceArray:
    """Return a host array on the device of ``neighbour``: itself, or a copy on the GPU."""
    if is_host(neighbour):
        return array
    return namespace(neighbour).asarray(array)


def host(array: AnyPlaceArray) -> FloatArray:
    """Return an array of numbers on the host: itself, or a copy."""
    if is_host(array):
        on_host: FloatArray = array
    else:
        on_host = array.get()
    return on_host


def where(condition: AnyPlaceArray, values: AnyPlaceArray, fallback: float) -> AnyPlaceArray:
    """Return values if a condition holds, otherwise a number.

    Where it holds for all of them, nothing is copied.
    """
    if np.all(condition):
        return values
    return np.where(condition, values, fallback)


def largest_size(numbers: FloatArray) -> float:
    """Return the largest absolute value: 0 for no numbers, nan if there is a nan.

    No array of absolute values is made.
    """
    return float(max(numbers.max(initial=0.0), -numbers.min(initial=0.0)))
