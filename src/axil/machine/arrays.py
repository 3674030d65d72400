"""Arrays of the host and of a device, side by side: code that takes either, and moves one to where the other is."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray


def is_host(array: Any) -> bool:
    """Whether an array is NumPy's own."""
    return isinstance(array, np.ndarray)


def namespace(array: Any) -> Any:
    """The module that an array comes from: numpy, or cupy for one on a GPU."""
    return np if is_host(array) else sys.modules[type(array).__module__.partition(".")[0]]


def have_same_values(first: NDArray[Any], second: NDArray[Any]) -> bool:
    """Return whether two arrays are equal. One array is equal to itself without a pass over it."""
    return first is second or np.array_equal(first, second)


def is_away(values: Any) -> bool:
    """Whether values lie on a GPU, by their own account."""
    return not is_host(values) and hasattr(values, "__cuda_array_interface__")


def module_of(values: Any) -> str:
    """The module whose arrays answers about these values are: that of an array on a GPU which has a way back, else numpy."""
    return (
        str(namespace(values).__name__) if is_away(values) and hasattr(values, "get") else "numpy"
    )


def like(array: NDArray[Any], other: Any) -> Any:
    """A host array where ``other`` is: itself, or a copy on the device."""
    return array if is_host(other) else namespace(other).asarray(array)


def host(array: Any) -> FloatArray:
    """An array of numbers on the host: itself, or a copy."""
    found: FloatArray = array if is_host(array) else array.get()
    return found


def where(holds: Any, values: Any, other: float) -> Any:
    """Values where a condition holds, else another number; no copy of the values where it holds for all of them."""
    return values if np.all(holds) else np.where(holds, values, other)


def largest_size(numbers: FloatArray) -> float:
    """The largest absolute value, 0 of none, nan where there is one; no array of absolute values is made."""
    return float(max(numbers.max(initial=0.0), -numbers.min(initial=0.0)))
