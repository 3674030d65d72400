"""The work on one partition for intervals: errors of its rows by predictions that did not see them."""

from __future__ import annotations

from typing import Any

import numpy as np

from axil import inputs
from axil.arrays import FloatArray
from axil.dask.fits import Fit
from axil.dask.partitioned_model import refuse_other_order
from axil.dask.partitions import Partition, named


def errors_of(partition: Partition, _: Any, predictions: FloatArray) -> FloatArray:
    """(n, K): targets less predictions that did not see them."""
    return np.asarray(partition.targets - predictions)


def out_of_fold_of(partition: Partition, _: Any, given: tuple[int, Any]) -> FloatArray:
    """(n, K): the same, by a user's own predictions; the number of the partition comes with them."""
    number, predictions = given
    n, n_outputs = partition.targets.shape
    with named(number):
        refuse_other_order(partition, predictions, "out_of_fold")
        return errors_of(partition, None, inputs.as_table(predictions, n, n_outputs, "out_of_fold"))


def out_of_bag_of(partition: Partition, fits: list[Fit], _: Any) -> FloatArray:
    """(n, K): the same, by the trees of a forest that were fitted without each row; nan where there is none."""
    parts = []
    for e, fit in enumerate(fits):
        fitted = fit.on(partition, e)
        s, leaves = fitted.structure, fitted.structure.leaves()
        made, held = np.zeros_like(fitted.targets), np.zeros(s.n_rows)
        for t, final in enumerate(s.final):
            out = s.draws[(s.cells[t] // s.n_leaves[t]).astype(np.intp)] == 0
            made += np.where(out[:, None], final * fit.values[s.entries(t, leaves[t])], 0.0)
            held += np.where(out, final, 0.0)
        share = np.divide(s.final.sum(), held, out=np.full_like(held, np.nan), where=held != 0)
        parts.append(fitted.targets - (made * share[:, None] + s.beta[-1] * fit.base))
    return np.concatenate(parts, axis=1)
