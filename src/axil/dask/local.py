"""The work on one partition for intervals: errors of its rows by predictions that did not see them, and sums under weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.dask.answers import Asked, Best
from axil.dask.fits import Fit, own_targets
from axil.dask.partitions import Partition, named
from axil.inputs.columns import Keys
from axil.intervals.calibrate import twins_among
from axil.intervals.local import moment_values
from axil.kernels.cpu import Cpu
from axil.output.tables import Largest
from axil.types import Array


@dataclass(frozen=True)
class Known:
    """Sums over rows of what is known of their errors and targets."""

    rows: int
    complete: int  #: rows of which all errors are known
    known: NDArray[np.int64]  #: (K,) errors that are known
    errors: Array  #: (K,) sums of their squares
    targets: Array  #: (K,) sums
    lowest: Array  #: (K,)
    highest: Array  #: (K,)

    def __add__(self, other: Known) -> Known:
        return Known(
            self.rows + other.rows,
            self.complete + other.complete,
            self.known + other.known,
            self.errors + other.errors,
            self.targets + other.targets,
            np.minimum(self.lowest, other.lowest),
            np.maximum(self.highest, other.highest),
        )


def keys_of(partition: Partition, X: Any, single: bool) -> Keys:
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


def known_of(partition: Partition, errors: Array) -> Known:
    """Those of these rows, with errors (n, K)."""
    there, y = np.isfinite(errors), partition.targets
    squares = np.square(np.where(there, errors, 0.0)).sum(axis=0)
    ends = y.min(axis=0, initial=np.inf), y.max(axis=0, initial=-np.inf)
    return Known(len(y), int(there.all(axis=1).sum()), there.sum(axis=0), squares, y.sum(axis=0), *ends)


def errors_of(partition: Partition, predictions: Array) -> Array:
    """(n, K): targets less predictions that did not see them."""
    return np.asarray(partition.targets - predictions)


def out_of_fold_of(number: int, partition: Partition, given: Any) -> Array:
    """(n, K): the same, by a user's own predictions."""
    with named(number):
        n, n_outputs = partition.targets.shape
        return errors_of(partition, inputs.as_table(given, n, n_outputs, "out_of_fold"))


def out_of_bag_of(partition: Partition, fits: list[Fit]) -> Array:
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


def spread_of(partition: Partition, errors: Array, usual: Array, means: Array) -> Array:
    """(3, K): sums of squared errors, where one is not known of usual size, of targets less their means, and of their squares."""
    y = partition.targets - means
    return np.stack([np.square(_filled(errors, usual)).sum(axis=0), y.sum(axis=0), np.square(y).sum(axis=0)])


def _filled(errors: Array, usual: Array) -> Array:
    return np.where(np.isfinite(errors), errors, usual)


@dataclass(frozen=True)
class Moments:
    """Sums under the sizes and under the squares of weights, for each entry of the fitted trees."""

    sums: list[Array]  #: (2, n, 1 + 3 K)

    def __add__(self, other: Moments) -> Moments:
        return Moments([mine + theirs for mine, theirs in zip(self.sums, other.sums)])


def moments_of(partition: Partition, errors: Array, usual: Array, means: Array, asked: Asked) -> Moments:
    """Those of these rows."""
    found, n_outputs = [], partition.targets.shape[1]
    for e, s in enumerate(partition.structures):
        own = list(asked.served(e, n_outputs))
        values = moment_values(_filled(errors, usual)[:, own], own_targets(partition, e) - means[own])
        rows, out = Cpu(asked.n_threads).rows_of(s), np.zeros((2, asked.phi[e].shape[1], values.shape[1]))
        if s.n_rows:
            rows.moments(s.by_cells(asked.phi[e], drawn=True), asked.constant[e], rows.weights, values, out)
        found.append(out)
    return Moments(found)


def reasons_of(partition: Partition, errors: Array, usual: Array, asked: Asked, k: int) -> Best:
    """The largest |weight| * error^2 of these rows."""
    n, (n_rows, n_outputs) = asked.phi[0].shape[1], partition.targets.shape
    squares = np.square(_filled(errors, usual))
    largest = [Largest(n, k, column, "contribution", asked.n_threads) for column in squares.T]
    for e, s in enumerate(partition.structures):
        rows, table = Cpu(asked.n_threads).rows_of(s), s.by_cells(asked.phi[e], drawn=True)
        for one in [largest[output] for output in asked.served(e, n_outputs) if n_rows]:
            rows.top(table, asked.constant[e], rows.weights, one.scale, one.values, one.rows)
    weights, at = (np.stack([getattr(one, name) for one in largest], axis=1) for name in ("values", "rows"))
    outputs = np.arange(n_outputs)[:, None]
    columns = {"row": partition.labels[at], "weight": weights, "error": errors[at, outputs]}
    return Best(k, np.abs(weights) * squares[at, outputs], columns)


def has_bags(partition: Partition) -> bool:
    """Whether some tree left one of these rows out."""
    return any((s.draws == 0).any() for s in partition.structures)
