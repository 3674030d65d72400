"""Class counts: row weights that a library derives from the labels of its rows.

With these weights all classes weigh the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray, FloatArray
from axil.structure.records import Transferable, expect

AGREES = 1e-9  # relative: weights of rows that are derived again, in double precision


@dataclass(frozen=True)
class ClassCounts(Transferable):
    """The rule from the labels of N rows to their weights.

    A row weighs its own weight over the share of its class.

    A row of several labels has the product over these. ``own`` (0,): the rule is not known, so
    neither are refits without some rows.
    """

    labels: NDArray[np.int64]  #: (N, labels) the number of the class of each row, from 0
    own: FloatArray  #: (N,) the rows' own weights
    by_weight: bool = (
        False  #: whether a class counts by the own weights of its rows; else by their number
    )

    @property
    def is_known(self) -> bool:
        """Whether the weights follow from the labels by a known rule."""
        return len(self.own) > 0

    def check(self, n_rows: int) -> None:
        """Raise ValueError unless labels and weights are those of this many rows."""
        if not self.is_known:
            return
        expect("own", self.own, np.float64, (n_rows,))
        expect("labels", self.labels, np.int64, (n_rows, self.labels.shape[-1]))
        if self.labels.size and self.labels.min() < 0:
            raise ValueError("the number of a class below 0")

    def weights(self, present: BoolArray) -> FloatArray:
        """Return the weights (N,) if only present rows count; 0 for the others."""
        if self.by_weight:
            row_sizes = self.own
        else:
            row_sizes = np.ones(len(self.own))
        row_sizes = np.where(present, row_sizes, 0.0)
        weights = np.where(present, self.own, 0.0)
        for label in self.labels.T:
            class_sizes = np.bincount(label, row_sizes)
            n_classes = len(np.unique(label[present]))
            weights *= np.divide(
                row_sizes.sum(),
                n_classes * class_sizes,
                out=np.zeros_like(class_sizes),
                where=class_sizes > 0,
            )[label]
        return weights

    def follows(self, weights: FloatArray) -> bool:
        """Return whether the weights (N,) of a fit follow this rule."""
        by_rule = self.weights(np.ones(len(self.own), dtype=np.bool_))
        return bool(np.allclose(by_rule, weights, rtol=AGREES, atol=0.0))


#: Of a fit whose weights follow from the labels of its rows in a way that is not computed again.
UNKNOWN = ClassCounts(np.zeros((0, 1), dtype=np.int64), np.zeros(0))
