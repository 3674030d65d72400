"""The base of baselines that look at the trees: the fit replayed in float64, and queries batch by batch."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from axil.arrays import FloatArray, LeafArray
from axil.baselines.base import Baseline
from axil.baselines.classifier import ClassQueries, FittedClassifier
from axil.baselines.kernel import LeafKernel
from axil.kernels.choose import host_backend
from axil.machine.blocks import spans
from axil.machine.progress import track
from axil.replay.exact_model import ExactModel
from axil.replay.queries import Queries
from axil.weights.boosting import BoostedTrees
from axil.weights.residuals import FittedValues, ResidualStep


@dataclass(frozen=True)
class Trees:
    """The trees of some outputs and their fit."""

    boosted: BoostedTrees  #: a forest's trees as well
    fit: FittedValues
    outputs: slice  #: which of all outputs

    def leaves(self, coordinates: LeafArray) -> LeafArray:
        """(T, n): from the leaves in all the model's trees, (n, all), to those in these."""
        columns = self.fit.structure.columns
        return (coordinates if columns is None else coordinates[:, columns]).T

    @property
    def replaced_base(self) -> FloatArray:
        """(K,): the part of predictions that the training rows' own do not have: offsets stood in for it in the fit."""
        s = self.fit.structure
        return np.asarray((1 - s.own_base) * s.beta[-1] * self.fit.base)

    @property
    def row_weights(self) -> FloatArray:
        """(N,)."""
        s = self.fit.structure
        return np.ones(s.n_rows) if s.row_weights is None else s.row_weights


@dataclass(frozen=True)
class Batch:
    """A batch of n explained rows; targets and predictions without the rows' offsets."""

    coordinates: LeafArray  #: (n, all trees)
    targets: FloatArray | None  #: (n, K); None: not given
    predictions: FloatArray  #: (n, K)
    n_asked: int  #: explained rows of all batches together

    def __len__(self) -> int:
        return len(self.coordinates)

    @property
    def errors(self) -> FloatArray | None:
        """(n, K): y - F(x)."""
        return None if self.targets is None else self.targets - self.predictions


@dataclass(frozen=True)
class TreeBaseline(Baseline):
    """A baseline that scores by the leaves."""

    #: one for all outputs that share trees, or each; none of a classifier
    trees: list[Trees] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "trees", trees_of(self.proven) if self.classifier is None else [])

    def _scores(self, queries: Queries, targets: FloatArray | None) -> FloatArray:
        n = len(queries)
        out = np.zeros((n, len(self.proven.targets)))
        structures = [trees.fit.structure for trees in self.trees]
        # Of one query some tables over leaves, some vectors over rows
        size = self.proven.budget.batch_size(
            8 * sum(3 * s.n_rows + 4 * int(s.cell_starts[-1]) for s in structures)
        )
        for start, part in self.proven.batches(queries, size, self.name):
            rows, coordinates = slice(start, start + len(part)), part.coordinates
            made = np.concatenate(
                [t.fit.predictions(t.leaves(coordinates)) for t in self.trees], axis=1
            )
            self.proven.check(part, made)  # the replay's predictions must be the model's own
            self._add_scores(
                Batch(coordinates, None if targets is None else targets[rows], made, n), out[rows]
            )
        return out

    def _class_scores(self, fit: FittedClassifier, queries: ClassQueries) -> FloatArray:
        n, n_outputs = queries.scores.shape
        out = np.zeros((n, fit.n_rows))
        size = fit.proven.budget.batch_size(
            8 * ((n_outputs + 3) * fit.n_rows + 2 * int(fit.walked.starts[-1]))
        )
        for start in track(range(0, n, size), self.name):
            rows = slice(start, start + size)
            self._add_class_scores(fit, queries.part(rows), out[rows])
        return out

    @abstractmethod
    def _add_scores(self, queries: Batch, out: FloatArray) -> None:
        """Add the scores of a batch to ``out`` (n, N)."""

    @abstractmethod
    def _add_class_scores(
        self, fit: FittedClassifier, queries: ClassQueries, out: FloatArray
    ) -> None:
        """Add the scores of a batch of a classifier to ``out`` (n, N)."""


@dataclass(frozen=True)
class KernelBaseline(TreeBaseline):
    """A baseline that scores by the kernel of the leaves."""

    #: one for each of `trees`; of a classifier one for the trees of all classes
    kernels: list[LeafKernel] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        fit = self.classifier
        if fit is None:
            kernels = [LeafKernel.of(t.fit.structure, self.proven.n_threads) for t in self.trees]
        else:
            kernels = [
                LeafKernel.from_leaves(
                    fit.walked.leaves, fit.walked.starts, fit.row_weights, fit.n_threads
                )
            ]
        object.__setattr__(self, "kernels", kernels)


def trees_of(proven: ExactModel) -> list[Trees]:
    """The trees of every engine, with their fit replayed in float64: O(T N K)."""
    found = []
    backend = host_backend(proven.n_threads)
    for engine, outputs in zip(proven.engines, proven.served()):
        own = (
            engine if isinstance(engine, BoostedTrees) else BoostedTrees(engine.structure, backend)
        )
        found.append(Trees(own, own.fit(proven.targets[:, outputs]), outputs))
    return found


BLOCK_NUMBERS = (
    1 << 16
)  # of scores held at a time, so that they stay in the cache from tree to tree


def add_effects(
    trees: Trees, table: FloatArray, brings: Callable[[ResidualStep], FloatArray], out: FloatArray
) -> None:
    """``out[i, j] += w_j sum_t table[leaf_t(j), i] brings_t(j)`` for all training rows j.

    ``table`` (L, n), ``out`` (n, N); ``brings`` gives (rows,) for one tree and a block of rows. Cost O(T N n).
    """
    n_rows, n = trees.fit.structure.n_rows, table.shape[1]
    for rows in spans(n_rows, max(1, BLOCK_NUMBERS // max(n, 1))):
        sums = np.zeros((rows.stop - rows.start, n))
        one = np.empty_like(sums)
        for step in trees.fit.steps(rows):
            np.take(
                table, step.leaf, axis=0, out=one, mode="clip"
            )  # leaves are in range; this mode takes no copy
            one *= brings(step)[:, None]
            sums += one
        out[:, rows] += (sums * trees.row_weights[rows, None]).T
