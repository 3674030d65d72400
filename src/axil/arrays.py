"""Aliases of NumPy's array types, each defined once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]
Cells = NDArray[np.unsignedinteger[Any]]  #: cells or leaf numbers, packed in the smallest type
LeafArray = NDArray[np.integer[Any]]  #: leaf numbers, of any width
AnyArray = NDArray[Any]  #: values of any type, such as labels or the column of a frame
RealArray = NDArray[np.floating[Any]]  #: numbers in single or double precision
RealType = type[np.floating[Any]]  #: one of these precisions
