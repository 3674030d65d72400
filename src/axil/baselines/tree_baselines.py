"""The base of baselines that look at the trees.

It replays the fit in float64 and has the kernel of leaves.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from axil.arrays import Cells, FloatArray, LeafArray
from axil.baselines.base import Baseline
from axil.baselines.classifier import ClassQueries, FittedClassifier
from axil.kernels import Rows
from axil.kernels.choose import host_backend
from axil.machine.blocks import spans
from axil.machine.progress import track
from axil.replay.exact_model import ExactModel
from axil.replay.queries import QueryBatch
from axil.structure import Structure
from axil.weights.boosting import BoostedTrees
from axil.weights.residuals import FittedValues, ResidualStep

BLOCK_NUMBERS = 1 << 16  # of scores held at a time, so that they stay in the cache


@dataclass(frozen=True)
class Trees:
    """The trees of some outputs and their fit."""

    boosted: BoostedTrees  #: a forest's trees as well
    fit: FittedValues
    outputs: slice  #: which of all outputs

    def leaves(self, coordinates: LeafArray) -> LeafArray:
        """Return the leaves in these trees, (T, n), out of those in all the model's, (n, all)."""
        columns = self.fit.structure.columns
        return (coordinates if columns is None else coordinates[:, columns]).T

    @property
    def replaced_base(self) -> FloatArray:
        """Return the part of predictions for which offsets stood in during the fit, (K,)."""
        structure = self.fit.structure
        return np.asarray((1 - structure.initial_in_fit) * structure.beta[-1] * self.fit.base)

    @property
    def row_weights(self) -> FloatArray:
        """Return the weights of the training rows, (N,)."""
        structure = self.fit.structure
        if structure.row_weights is None:
            return np.ones(structure.n_rows)
        return structure.row_weights


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
        """Return y - F(x), (n, K)."""
        if self.targets is None:
            return None
        return self.targets - self.predictions


@dataclass(frozen=True)
class TreeBaseline(Baseline):
    """A baseline that scores by the leaves."""

    #: one for all outputs that share trees, or each; none of a classifier
    trees: list[Trees] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.classifier is not None:
            trees = []
        else:
            trees = replayed_trees(self.verified_model)
        object.__setattr__(self, "trees", trees)

    def _scores(self, queries: QueryBatch, targets: FloatArray | None) -> FloatArray:
        n = len(queries)
        out = np.zeros((n, len(self.verified_model.targets)))
        structures = [trees.fit.structure for trees in self.trees]
        # A query takes some tables over leaves and some vectors over rows.
        numbers_per_query = sum(
            3 * structure.n_rows + 4 * int(structure.cell_starts[-1]) for structure in structures
        )
        batch_size = self.verified_model.budget.batch_size(8 * numbers_per_query)
        for start, batch in self.verified_model.batches(queries, batch_size, self.name):
            rows = slice(start, start + len(batch))
            coordinates = batch.coordinates
            predictions_by_trees = [
                trees.fit.predictions(trees.leaves(coordinates)) for trees in self.trees
            ]
            predictions = np.concatenate(predictions_by_trees, axis=1)
            self.verified_model.check(
                batch, predictions
            )  # the replay must predict what the model does
            if targets is None:
                batch_targets = None
            else:
                batch_targets = targets[rows]
            self._add_scores(Batch(coordinates, batch_targets, predictions, n), out[rows])
        return out

    def _class_scores(self, fit: FittedClassifier, queries: ClassQueries) -> FloatArray:
        n, n_outputs = queries.scores.shape
        out = np.zeros((n, fit.n_rows))
        numbers_per_query = (n_outputs + 3) * fit.n_rows + 2 * int(fit.walked.starts[-1])
        batch_size = fit.verified_model.budget.batch_size(8 * numbers_per_query)
        for start in track(range(0, n, batch_size), self.name):
            rows = slice(start, start + batch_size)
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
class LeafKernel:
    """The kernel ``k(x, j) = phi(x)' phi(j) = sum_t [leaf_t(x) = leaf_t(j)] / W_t^2``.

    Its features are ``phi(x)[l] = [x in l] / W_l``. W_l is the number (the weight) of the training
    rows in leaf l, whether sampled for its tree or not. So sharing a small leaf counts more: this
    is the weighted leaf path of Brophy et al.
    """

    leaves: Cells  #: (T, N) of the training rows
    rows: Rows  #: the training rows by these leaves, with their weights
    starts: NDArray[np.int64]  #: (T + 1,)
    totals: FloatArray  #: (L,) W
    features: FloatArray  #: (L,) 1 / W, zero where a leaf has no rows

    @classmethod
    def of(cls, structure: Structure, n_threads: int) -> LeafKernel:
        """Count the rows of every leaf, in O(T N)."""
        return cls.from_leaves(
            structure.leaves(), structure.starts, structure.row_weights, n_threads
        )

    @classmethod
    def from_leaves(
        cls,
        leaves: Cells,
        starts: NDArray[np.int64],
        row_weights: FloatArray | None,
        n_threads: int,
    ) -> LeafKernel:
        """Count the rows of leaves (T, N); weights of None are ones."""
        rows = host_backend(n_threads).rows(leaves, starts, row_weights)
        totals = rows.leaf_sums(_weights_of(rows)[:, None], None)[:, 0]
        features = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
        return cls(leaves, rows, starts, totals, features)

    @property
    def row_weights(self) -> FloatArray:
        """Return the weights of the training rows, (N,)."""
        return _weights_of(self.rows)

    def between(self, queries: LeafArray) -> FloatArray:
        """Return k of rows in these leaves, (T, n), with all training rows, (n, N).

        O(T) per pair.
        """
        n = queries.shape[1]
        values = self.features**2
        table = np.zeros((len(values), n))
        for start, leaf in zip(self.starts, queries):
            leaf_rows = start + leaf.astype(np.intp)
            table[leaf_rows, np.arange(n)] = values[leaf_rows]
        return self.read_out(table).T

    def matches(self, queries: LeafArray) -> FloatArray:
        """Return in how many trees rows with leaves (T, n) share that of a training row, (n, N)."""
        out = np.empty((self.rows.n_rows, queries.shape[1]))
        self.rows.matches(np.ascontiguousarray(queries.T, dtype=self.leaves.dtype), None, 0, out)
        return out.T

    def read_out(self, table: FloatArray) -> FloatArray:
        """Sum a table over leaves, (L, S), over the leaves of each training row, (N, S)."""
        table = np.ascontiguousarray(table)
        out = np.empty((self.rows.n_rows, table.shape[1]))
        self.rows.read_out(table, np.zeros(table.shape[1]), None, 0, out)
        return out

    def gather(self, v: FloatArray) -> FloatArray:
        """Return ``sum over rows j in l of w_j v_j``, (L, S), from (N, S)."""
        return self.rows.leaf_sums(v, self.rows.weights)

    def gram_of_leaves(self) -> FloatArray:
        """Return the upper triangle of ``sum_j w_j phi(j) phi(j)'``, (L, L), in O(T^2 N).

        It is the counterpart of the N x N kernel among leaves.
        """
        gram = np.empty((len(self.features), len(self.features)))
        self.rows.cooccurrence(0, len(self.starts) - 1, self.rows.weights, gram)
        np.fill_diagonal(gram, self.totals)
        gram *= self.features
        gram *= self.features[:, None]
        return gram


def _weights_of(rows: Rows) -> FloatArray:
    """Return the weights of rows in a kernel, (N,)."""
    if rows.weights is None:
        return np.ones(rows.n_rows)
    return rows.weights


@dataclass(frozen=True)
class KernelBaseline(TreeBaseline):
    """A baseline that scores by the kernel of the leaves."""

    #: one for each of `trees`; of a classifier one for the trees of all classes
    kernels: list[LeafKernel] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        fit = self.classifier
        if fit is None:
            kernels = [
                LeafKernel.of(t.fit.structure, self.verified_model.n_threads) for t in self.trees
            ]
        else:
            kernels = [
                LeafKernel.from_leaves(
                    fit.walked.leaves, fit.walked.starts, fit.row_weights, fit.n_threads
                )
            ]
        object.__setattr__(self, "kernels", kernels)


def replayed_trees(model: ExactModel) -> list[Trees]:
    """Return the trees of every engine, with their fit replayed in float64: O(T N K)."""
    backend = host_backend(model.n_threads)
    trees = []
    for engine, outputs in zip(model.engines, model.weight_layout.output_groups):
        boosted = engine
        if not isinstance(boosted, BoostedTrees):
            boosted = BoostedTrees(engine.structure, backend)
        trees.append(Trees(boosted, boosted.fit(model.targets[:, outputs]), outputs))
    return trees


def add_effects(
    trees: Trees,
    table: FloatArray,
    row_factors: Callable[[ResidualStep], FloatArray],
    out: FloatArray,
) -> None:
    """Add ``w_j sum_t table[leaf_t(j), i] row_factors_t(j)`` to ``out[i, j]``, in O(T N n).

    Parameters
    ----------
    trees : Trees
        The trees t.
    table : array of shape (L, n)
        A number for each leaf and explained row.
    row_factors : callable
        Returns the factors of a block of rows in one tree, (rows,).
    out : array of shape (n, N)
        What is added to.
    """
    n_rows = trees.fit.structure.n_rows
    n = table.shape[1]
    for rows in spans(n_rows, max(1, BLOCK_NUMBERS // max(n, 1))):
        sums = np.zeros((rows.stop - rows.start, n))
        effects = np.empty_like(sums)
        for step in trees.fit.steps(rows):
            # Leaves are in range; with mode="clip" NumPy makes no copy.
            np.take(table, step.leaf, axis=0, out=effects, mode="clip")
            effects *= row_factors(step)[:, None]
            sums += effects
        out[:, rows] += (sums * trees.row_weights[rows, None]).T
