"""Answers of partitions about a batch of queries, and how those of several add up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array

from axil.dask.partitions import Partition, blocks, read_block
from axil.inputs import group_codes, label_codes
from axil.kernels.cpu import Cpu
from axil.output.tables import Largest
from axil.structure import Transferable
from axil.types import Array


@dataclass(frozen=True)
class Asked(Transferable):
    """Adjoints of n queries, the same for every training row; one of the leaf sums for each entry of the fitted trees."""

    phi: list[Array]  #: (L, n)
    constant: list[Array]  #: (n,) what the base adds to the weight of every row of row weight one
    n_threads: int

    def served(self, entry: int, n_outputs: int) -> range:
        """The outputs that an entry serves."""
        return range(n_outputs) if len(self.phi) == 1 else range(entry, entry + 1)


def read(partition: Partition, asked: Asked, entry: int) -> Array:
    """(n_rows, n): the weights of these rows by one entry of the fitted trees."""
    return read_block(partition, entry, asked.phi[entry], asked.constant[entry], asked.n_threads)


@dataclass(frozen=True)
class Best:
    """The k largest of n predictions of K outputs, largest first, equal ones in row order."""

    k: int
    size: Array  #: (n, K, k') what they are ranked by, from 0 up, k' <= k where there are fewer rows; -1: a free place
    columns: dict[str, NDArray[Any]]  #: (n, K, k') each: what is known of the rows
    distinct: bool = False  #: of rows with one label in the column ``key`` only the largest counts

    def __add__(self, other: Best) -> Best:
        """The best of both; the rows of ``other`` come after these."""
        mine = [part for part in (self, other) if part.size.shape[2]] or [self]
        size = np.concatenate([part.size for part in mine], axis=2)
        columns = {name: np.concatenate([part.columns[name] for part in mine], axis=2) for name in self.columns}
        order = np.argsort(-size, axis=2, kind="stable")
        if self.distinct:
            size = np.where(_repeated(np.take_along_axis(columns["key"], order, axis=2)), -1.0, _by(order, size))
            again = np.argsort(-size, axis=2, kind="stable")[:, :, : self.k]
            size, order = _by(again, size), _by(again, order)
        else:
            order = order[:, :, : self.k]
            size = _by(order, size)
        return Best(self.k, size, {name: _by(order, column) for name, column in columns.items()}, self.distinct)


def _by(order: NDArray[np.intp], values: Any) -> Any:
    return np.take_along_axis(values, order, axis=2)


def _repeated(keys: NDArray[Any]) -> NDArray[np.bool_]:
    """(n, K, m): whether a label was there before, among the m of one prediction; one that is missing never was."""
    codes = label_codes(keys.ravel(), keys.size, "distinct").reshape(keys.shape)
    order = np.argsort(codes, axis=2, kind="stable")
    there = np.diff(_by(order, codes), axis=2, prepend=-1) == 0
    found = np.empty(keys.shape, dtype=np.bool_)
    np.put_along_axis(found, order, there, axis=2)
    return found


def best(partition: Partition, asked: Asked, k: int, by: str) -> Best:
    """The largest weights (or contributions) of these rows."""
    n, (n_rows, n_outputs) = asked.phi[0].shape[1], partition.targets.shape
    largest = [Largest(n, k, y, by, asked.n_threads) for y in partition.targets.T]
    for e, structure in enumerate(partition.structures):
        rows, table = Cpu(asked.n_threads).rows_of(structure), structure.by_cells(asked.phi[e], drawn=True)
        for one in [largest[output] for output in asked.served(e, n_outputs) if n_rows]:
            rows.top(table, asked.constant[e], rows.weights, one.scale, one.values, one.rows)
    weights = np.stack([one.values for one in largest], axis=1)
    targets = np.stack([one.targets[one.rows] for one in largest], axis=1)
    labels = np.stack([partition.labels[one.rows] for one in largest], axis=1)
    size = np.abs(weights if by == "weight" else weights * targets)
    return Best(k, size, {"row": labels, "weight": weights, "target": targets})


@dataclass(frozen=True)
class Grouped:
    """Sums of weights and contributions of n predictions of K outputs, by groups of training rows."""

    groups: NDArray[Any]  #: (G,)
    weights: Array  #: (n, K, G)
    contributions: Array  #: (n, K, G)

    def __add__(self, other: Grouped) -> Grouped:
        parts = [part for part in (self, other) if len(part.groups)] or [self]
        names = np.concatenate([part.groups for part in parts])
        codes, groups = group_codes(names, len(names))
        return Grouped(
            groups,
            _sums([part.weights for part in parts], codes, len(groups)),
            _sums([part.contributions for part in parts], codes, len(groups)),
        )

    @property
    def made(self) -> Array:
        """(n, K)."""
        return np.asarray(self.contributions.sum(axis=2))


def _sums(parts: list[Array], codes: NDArray[np.intp], n_groups: int) -> Array:
    """(n, K, n_groups): columns of the same code added, from the first to the last."""
    columns = np.concatenate(parts, axis=2)
    out = np.zeros((*columns.shape[:2], n_groups))
    for column, code in enumerate(codes):
        out[:, :, code] += columns[:, :, column]
    return out


def grouped(partition: Partition, labels: Any, asked: Asked) -> Grouped:
    """The sums over these rows by their labels (n,)."""
    n, (n_rows, n_outputs) = asked.phi[0].shape[1], partition.targets.shape
    codes, groups = group_codes(labels, n_rows)
    weights, contributions = np.zeros((2, n, n_outputs, len(groups)))
    for e, (phi, constant) in enumerate(zip(asked.phi, asked.constant)):
        for first, block in blocks(partition, e, phi, constant, asked.n_threads):
            own, ends = slice(first, first + len(block)), np.arange(len(block) + 1)
            for output in asked.served(e, n_outputs):
                for sums, values in ((weights, np.ones(len(block))), (contributions, partition.targets[own, output])):
                    member = csc_array((values, codes[own], ends), shape=(len(groups), len(block)))
                    sums[:, output] += (member @ block).T
    return Grouped(groups, weights, contributions)
