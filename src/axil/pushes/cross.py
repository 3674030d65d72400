"""Cross-class blocks of J: how one output moves with every column of the targets, not with its own alone.

Scores of classes are coupled by softmax, so the score of one class moves with the labels of all. The sweep is that of
`reverse`; each stage hands on what its own output's column asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from axil.kernels import Rows
from axil.machine.arrays import host
from axil.pushes.reverse import Reverse
from axil.pushes.stages import WalkedStages
from axil.types import Array, Leaves


class Crossed(Reverse):
    """Reverse mode for one output of n queries."""

    def __init__(
        self, walked: WalkedStages, rows: Rows, queries: Leaves, seeds: Array, n_threads: int, base: float = 1.0
    ):
        """``queries`` (n, T): leaves; ``seeds`` (n, K): how the output moves with each of the query's own scores."""
        super().__init__(walked, rows, queries, seeds[:, None, :], n_threads, base)

    def by_columns(self, columns: Sequence[int]) -> Array:
        """(columns, n, N): by these columns of the targets, in O(T N K) a query for all of them."""
        w = self.walked
        out = {column: self.xp.zeros((self.n_rows, self.n)) for column in columns}

        def take(stage: int, slopes: Any) -> None:
            k = int(w.stage_output[stage])
            if k in out:
                self._put(out[k], stage, slopes.g_by_target, slopes.h_by_target, self.weights)

        start = self._run(take) @ w.start_slopes()  # (n, K): by the means
        counted = w.weights * w.start_factors
        share = counted / counted.sum()
        return np.stack([(host(out[column]) + np.outer(share, start[:, column])).T for column in columns])
