"""Bases of frozen dataclasses: records that travel between processes, and that add up over rows."""

from __future__ import annotations

from dataclasses import fields
from operator import add
from typing import Any, TypeVar

import numpy as np
from scipy.sparse import csr_array

Totals = TypeVar("Totals", bound="RowTotals")


def expect(name: str, array: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless an array has this type and shape."""
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(
            f"{name} is {array.dtype} {array.shape}, expected {np.dtype(dtype)} {shape}"
        )


def aligned(values: Any) -> Any:
    """Return arrays, or lists of them, in the memory layout that kernels need.

    The bytes of an array that comes from another process may begin at an odd address.
    """
    if isinstance(values, (list, tuple)):
        return type(values)(map(aligned, values))
    if isinstance(values, csr_array):
        parts = (values.data, values.indices, values.indptr)
        return csr_array(tuple(map(aligned, parts)), shape=values.shape)
    if isinstance(values, np.ndarray):
        return np.require(values, requirements="A")
    return values


class Transferable:
    """The base of frozen classes whose arrays travel between processes."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: aligned(value) for name, value in state.items()})


class RowTotals:
    """The base of frozen dataclasses of numbers about some training rows.

    The sum of two records is the record of all their rows. Numbers are added field by field, unless
    the metadata of a field has another function under "both". None stays None.
    """

    def __add__(self: Totals, other: Totals) -> Totals:
        sums: dict[str, Any] = {}
        for field in fields(self):  # type: ignore[arg-type]
            left = getattr(self, field.name)
            right = getattr(other, field.name)
            if left is None or right is None:
                sums[field.name] = None
            else:
                combine = field.metadata.get("both", add)
                sums[field.name] = combine(left, right)
        return type(self)(**sums)


def added_members(left: list[Any], right: list[Any]) -> list[Any]:
    """Return the sums of the members of two lists."""
    return list(map(add, left, right))
