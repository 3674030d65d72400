"""The work on one partition for intervals: errors of its rows by predictions that did not see them, and keys of its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.dask.fits import Fit, left_over
from axil.dask.partitions import Partition, named
from axil.inputs.columns import Keys, occurrences
from axil.questions.intervals.calibrate import twins_among
from axil.types import Array


def keys_of(partition: Partition, single: bool, X: Any) -> Keys:
    """The keys of `inputs.row_keys` of the rows that took part in the fit, with their features X."""
    weights, found = partition.structures[0].row_weights, inputs.row_keys(X, partition.targets, single)
    return found if weights is None else found[weights != 0]


def some_keys(keys: Keys, share: float) -> Keys:
    """About this share of the keys, evenly over the partition."""
    return keys[np.linspace(0, len(keys) - 1, int(np.ceil(share * len(keys)))).astype(np.intp)]


def joined_keys(asked: Keys, some: list[Keys]) -> Keys:
    """The keys asked for, and those of some training rows of all partitions after them."""
    return np.concatenate([asked, *some])


def counts_and_twins(counts: NDArray[np.intp], n: int) -> tuple[NDArray[np.intp], tuple[int, int]]:
    """The counts of the first n keys, and what `twins_among` says of the training rows after them."""
    return counts[:n], twins_among(counts[n:])


def counted_keys(_: Any, asked: Keys, keys: Keys) -> NDArray[np.intp]:
    """How often each key asked for is among those of these rows."""
    return occurrences(keys, asked)


def errors_of(partition: Partition, _: Any, predictions: Array) -> Array:
    """(n, K): targets less predictions that did not see them."""
    return np.asarray(partition.targets - predictions)


def fitted_errors_of(partition: Partition, shared: tuple[list[Fit], int], _: Any) -> Array:
    """(n, K): targets less the predictions of the fit."""
    return left_over(partition, *shared)


def out_of_fold_of(partition: Partition, _: Any, given: tuple[int, Any]) -> Array:
    """(n, K): the same, by a user's own predictions; the number of the partition comes with them."""
    number, predictions = given
    n, n_outputs = partition.targets.shape
    with named(number):
        return errors_of(partition, None, inputs.as_table(predictions, n, n_outputs, "out_of_fold"))


def out_of_bag_of(partition: Partition, fits: list[Fit], _: Any) -> Array:
    """(n, K): the same, by the trees of a forest that were fitted without each row; nan where there is none."""
    parts = []
    for e, fit in enumerate(fits):
        fitted = fit.on(partition, e)
        s, leaves = fitted.structure, fitted.structure.leaves()
        made, held = np.zeros_like(fitted.targets), np.zeros(s.n_rows)
        for t, final in enumerate(s.final):
            out = s.draws[(s.cells[t] // s.n_leaves[t]).astype(np.intp)] == 0
            made += np.where(out[:, None], final * fit.values[s.starts[t] + leaves[t]], 0.0)
            held += np.where(out, final, 0.0)
        share = np.divide(s.final.sum(), held, out=np.full_like(held, np.nan), where=held != 0)
        parts.append(fitted.targets - (made * share[:, None] + s.beta[-1] * fit.base))
    return np.concatenate(parts, axis=1)


def has_bags(partition: Partition, *_: Any) -> bool:
    """Whether some tree left one of these rows out."""
    return any(s.leaves_rows_out for s in partition.structures)
