"""Names of array types, each defined once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Leaves = NDArray[np.integer[Any]]  #: leaf numbers of any width
