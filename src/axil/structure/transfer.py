"""Arrays that travel between processes."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array


def aligned(values: Any) -> Any:
    """The arrays as the kernels take them: bytes that come from another process may begin at odd addresses."""
    if isinstance(values, (list, tuple)):
        return type(values)(map(aligned, values))
    if isinstance(values, csr_array):
        return csr_array(
            tuple(map(aligned, (values.data, values.indices, values.indptr))), shape=values.shape
        )
    return np.require(values, requirements="A") if isinstance(values, np.ndarray) else values


def expect(name: str, array: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless an array has this type and shape."""
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(
            f"{name} is {array.dtype} {array.shape}, expected {np.dtype(dtype)} {shape}"
        )


class Transferable:
    """The base of frozen classes whose arrays travel between processes."""

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update({name: aligned(value) for name, value in state.items()})
