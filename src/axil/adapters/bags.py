"""Draws that the user recorded."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.errors import InputError


class RecordedBags:
    """The columns of a table (N, T) of draw counts or multiplicities."""

    name = "bags="

    def __init__(self, bags: NDArray[np.float64], n_trees: int):
        if bags.shape[1] != n_trees:
            raise InputError(f"bags has {bags.shape[1]} columns; expected one for each of the {n_trees} trees.")
        self.bags = bags
        whole = bool((bags == bags.astype(np.uint8)).all())
        self.dtype: type[np.generic] = np.uint8 if whole else np.float64  #: that holds the draws

    def draw(self, tree: int, leaf: NDArray[np.integer[Any]], residuals: NDArray[np.float64]) -> NDArray[Any]:
        """(N,): how often each row was drawn for this tree."""
        return self.bags[:, tree]
