"""Random effects of training rows in one shard or cut into several, with what NumPy says of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from axil.attribution import Effects
from axil.attribution.block_effects import BlockEffects, NoEffects
from axil.attribution.weight_effects import SumEffects

N, QUERIES, OUTPUTS = 60, 5, 2
CUTS = {"one": (60,), "three": (25, 5, 30), "with empty ones": (0, 31, 0, 1, 28, 0)}
FORMS = ("blocks", "pushes", "shared", "sparse")


@dataclass(frozen=True)
class Rows:
    """The training rows of one shard, and their effects."""

    start: int
    numbers: Any  #: (n, K, rows)
    targets: Any
    shown: Any
    index: Any
    intercepts: Any
    form: str

    def effects(self, first: int = 0) -> Effects:
        """In the form that is asked for; blocks of seven rows."""
        n, n_outputs, n_rows = self.numbers.shape
        shared = self.form in ("shared", "sparse")
        if not n_rows:
            output_groups = [range(n_outputs)] if shared else [(k,) for k in range(n_outputs)]
            return NoEffects(output_groups, self.intercepts, first)
        if shared:
            weights = self.numbers[:, 0]
            found = SumEffects(
                csr_array(weights) if self.form == "sparse" else weights,
                self.targets,
                self.intercepts,
            )
            found.first = first
            return found
        blocks = [
            (start, [self.numbers[:, k, start : start + 7].T for k in range(n_outputs)])
            for start in range(0, n_rows, 7)
        ]
        factors = None if self.form == "pushes" else self.targets
        shape = n_rows, n_outputs
        return BlockEffects(lambda: iter(blocks), shape, n, self.intercepts, factors, first=first)


@dataclass(frozen=True)
class Data:
    """All training rows."""

    form: str
    numbers: Any  #: (n, K, N) with equal ones and zeros among them
    targets: Any  #: (N, K)
    intercepts: Any  #: (n, K)

    @property
    def contributions(self) -> Any:
        return self.numbers if self.form == "pushes" else self.numbers * self.targets.T

    @property
    def contribution_sums(self) -> Any:
        return self.contributions.sum(axis=2)

    @property
    def index(self) -> Any:
        return np.array([f"row {i}" for i in range(N)])

    def shards(self, sizes: tuple[int, ...]) -> list[Rows]:
        found = []
        for first, last in pairwise(np.cumsum((0, *sizes))):
            own = slice(first, last)
            numbers, targets, index = self.numbers[:, :, own], self.targets[own], self.index[own]
            found.append(
                Rows(int(first), numbers, targets, 10 * targets, index, self.intercepts, self.form)
            )
        return found

    def reduced(
        self, want: Any, sizes: tuple[int, ...], columns: Any = None, first: int = 0
    ) -> Any:
        """The result over these shards, added in their order; ``columns`` has the column of rows from a to b."""
        parts = []
        for shard in self.shards(sizes):
            a, b = shard.start, shard.start + len(shard.targets)
            parts.append(
                want.of(shard, shard.effects(first), None if columns is None else columns(a, b))
            )
        return reduce(add, parts)


def data(form: str, seed: int = 0) -> Data:
    """Small whole numbers, so that sums are exact in every order, and many of them are equal."""
    rng = np.random.default_rng(seed)
    numbers = rng.integers(-9, 10, (QUERIES, OUTPUTS, N)).astype(float)
    numbers[:, :, rng.random(N) < 0.2] = 0.0
    if form in ("shared", "sparse"):
        numbers[:, 1] = numbers[:, 0]
    targets = rng.integers(-5, 6, (N, OUTPUTS)).astype(float)
    return Data(form, numbers, targets, rng.integers(0, 5, (QUERIES, OUTPUTS)).astype(float))


def check_best(found: Any, rows: Any, made: Data, i: int, k: int) -> None:
    """The best of query i and output k are these rows, by position, and the places after them are free."""
    m = len(rows)
    assert found.columns["position"][i, k, :m].tolist() == list(rows)
    assert (found.size[i, k, m:] < 0).all()
    assert (found.columns["position"][i, k, m:] == -1).all()
    for name, values in {
        "effect": made.numbers[i, k],
        "contribution": made.contributions[i, k],
        "target": 10 * made.targets[:, k],
        "row": made.index,
    }.items():
        np.testing.assert_array_equal(found.columns[name][i, k, :m], values[rows])
