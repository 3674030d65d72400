"""Local: how large errors are around a query, from its weights and the training rows alone.

With k the weights of the query, r the errors of the training rows and y their targets,
`Surroundings` takes from one read-out

    sum |k|,  sum |k| |r|,  sum |k| y,  sum |k| y^2     and the same under k^2

and makes logarithms of them: the errors nearby under |k| and under k^2, the spread of the targets
under both, the effective size, and where the prediction lies between the lowest and the highest
target. None of these knows a calibration row. Sizes of errors, not their squares: a few wrong
targets would make most of a sum of squares.

Of boosted trees the rows that share the query's leaves stand in for the weights, unless exact ones
are asked for: in tree t every row of its leaf counts 1 / n in place of |k|, and 1 / n^2 in place of
k^2, n the rows of the leaf. These sums are looked up in a table by leaf, O(T) per explained row,
where weights take O(T N).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray, IntArray
from axil.attribution import WEIGHTS
from axil.errors import InputError
from axil.kernels.choose import host_backend
from axil.output.tables import bytes_of
from axil.reductions import Moments, answer
from axil.replay.fitted_trees import boosted_structures
from axil.replay.queries import QueryBatch
from axil.structure import RowTotals
from axil.weights.engine import own_leaves
from axil.weights.spread import by_leaf, leaf_moments

# Chosen on data sets that no published comparison counts (experiments/intervals_form.py).
NEARBY = (
    0.375  # the power of each of the two errors nearby in the size that errors are compared with
)
PENALTY = 8.0  # of the squared coefficients; logarithms are natural ones
# of the targets' standard deviation: within it predictions count as at the lowest or highest target
AT_EDGE = 0.1
# of the usual error of a training row: added to sizes nearby, so that their logarithms have an end
SMALL = 0.1
# distances of targets from their mean of which double precision holds the squares
SMALLEST = 1e-140
LARGEST = 1e140
LEAST = 1e-6  # of the targets' standard deviation: the same, where no error is known

NAMES = (
    "errors |k|",
    "errors k^2",
    "targets |k|",
    "targets k^2",
    "effective size",
    "above lowest",
    "below highest",
)


@dataclass(frozen=True, eq=False)
class Local:
    """The errors and targets around n explained rows with K outputs each."""

    predictions: FloatArray  #: (n, K) on the scale of the fit
    features: FloatArray  #: (n, K, p)
    sizes: FloatArray  #: (n, K) that errors are compared with
    nearby: FloatArray  #: (n, K): sum_j |k_j| |r_j|

    def __getitem__(self, rows: Any) -> Local:
        return Local(
            self.predictions[rows], self.features[rows], self.sizes[rows], self.nearby[rows]
        )


@dataclass(frozen=True, eq=False)
class Usual:
    """Totals over all training rows, the reference of sums nearby.

    Targets are less their means.
    """

    means: FloatArray  #: (K,) of the targets
    spread: FloatArray  #: (K,) their standard deviation
    lowest: FloatArray  #: (K,) target
    highest: FloatArray  #: (K,) target
    averages: FloatArray  #: (3, K): of sizes of errors, of targets, of squared targets

    def __post_init__(self) -> None:
        with np.errstate(invalid="ignore"):
            furthest = np.maximum(np.abs(self.lowest), np.abs(self.highest))
        bad = ~((furthest == 0) | ((furthest >= SMALLEST) & (furthest <= LARGEST)))
        if bad.any():
            raise InputError(
                f"The training targets lie up to {furthest[bad][0]:.3g} from their mean; calibrate "
                f"takes squares of such distances, which double precision holds from {SMALLEST:g} "
                f"to {LARGEST:g} alone. Fit the model to targets in another unit, multiplied by a "
                "constant."
            )

    @property
    def least(self) -> FloatArray:
        """The square that is added to the squares nearby, (K,)."""
        return np.asarray(np.square(SMALL * self.averages[0]) + np.square(LEAST * self.spread))

    def local(
        self, moments: list[FloatArray], output_groups: list[slice], predictions: FloatArray
    ) -> Local:
        """Return the features of rows: sums under each engine's weights, and predictions (n, K).

        The sums (2, n, 1 + 3 K) are of ones, sizes of errors, targets and squares of targets.
        """
        parts = [
            self._logs(engine_moments, outputs)
            for engine_moments, outputs in zip(moments, output_groups)
        ]
        logs = np.concatenate([logs_and_errors[0] for logs_and_errors in parts], axis=1)
        nearby = np.concatenate([logs_and_errors[1] for logs_and_errors in parts], axis=1)
        level = predictions - self.means
        edges = [level - self.lowest, self.highest - level]
        place = [np.log(np.maximum(edge, 0.0) / self.spread + AT_EDGE) for edge in edges]
        features = np.concatenate([logs, np.stack(place, axis=-1)], axis=-1)
        sizes = self.spread * np.exp(NEARBY * logs[..., :2].sum(axis=-1))
        return Local(predictions, features, sizes, nearby)

    def _logs(self, moments: FloatArray, outputs: slice) -> tuple[FloatArray, FloatArray]:
        """Return logarithms of the moments, (n, K, 5), and the errors nearby, (n, K)."""
        total = moments[..., :1]
        has_weight = total > 0
        usual = self.averages[:, outputs].ravel()  # around a query without weights
        with np.errstate(divide="ignore", invalid="ignore"):
            means = np.where(has_weight, moments[..., 1:] / total, usual)
            shares = np.where(has_weight[1], total[1] / np.square(total[0]), 1.0)
        nearby, mean, square = np.split(means, 3, axis=-1)
        squares = (
            np.concatenate([np.square(nearby), np.maximum(square - np.square(mean), 0.0)])
            + self.least[outputs]
        )
        sizes = squares / np.square(self.spread[outputs])
        logs = 0.5 * np.log(np.append(sizes, np.broadcast_to(shares, sizes[:1].shape), axis=0))
        return np.moveaxis(logs, 0, -1), moments[0, :, 1 : 1 + nearby.shape[-1]]


@dataclass(frozen=True)
class Known(RowTotals):
    """Sums over the known errors and targets of training rows."""

    rows: int
    complete: int  #: rows of which all errors are known
    known: NDArray[np.int64]  #: (K,) errors that are known
    errors: FloatArray  #: (K,) sums of their sizes
    targets: FloatArray  #: (K,) sums
    lowest: FloatArray = field(metadata={"both": np.minimum})  #: (K,)
    highest: FloatArray = field(metadata={"both": np.maximum})  #: (K,)


def known_of(shard: Any, _: Any, errors: FloatArray) -> Known:
    """Return totals over the rows of a shard with errors (rows, K)."""
    with np.errstate(over="ignore", invalid="ignore"):  # sizes that `Usual` refuses
        is_known = np.isfinite(errors)
        y = shard.targets
        sizes = np.abs(np.where(is_known, errors, 0.0)).sum(axis=0)
        ends = y.min(axis=0, initial=np.inf), y.max(axis=0, initial=-np.inf)
        return Known(
            len(y),
            int(is_known.all(axis=1).sum()),
            is_known.sum(axis=0),
            sizes,
            y.sum(axis=0),
            *ends,
        )


def spread_of(shard: Any, usual: tuple[FloatArray, FloatArray], errors: FloatArray) -> FloatArray:
    """Return sums of sizes of errors, of centred targets, and of their squares, (3, K)."""
    filling, means = usual
    with np.errstate(over="ignore", invalid="ignore"):
        y = shard.targets - means
        return np.stack(
            [np.abs(filled(errors, filling)).sum(axis=0), y.sum(axis=0), np.square(y).sum(axis=0)]
        )


def values_of(
    shard: Any, usual: tuple[FloatArray, FloatArray, list[slice]], errors: FloatArray
) -> list[FloatArray]:
    """Return the values whose moments are taken, (rows, 1 + 3 m), for each group of m outputs."""
    filling, means, output_groups = usual
    filled_errors = filled(errors, filling)
    y = shard.targets - means
    return [moment_values(filled_errors[:, outputs], y[:, outputs]) for outputs in output_groups]


def leaf_sums_of(shard: Any, n_threads: int, values: list[FloatArray]) -> FloatArray:
    """Return sums of the values over the leaves of all trees, (L, 1 + 3 m), group after group."""
    parts = [
        by_leaf(structure, host_backend(n_threads).rows_of(structure), group_values)
        for structure, group_values in zip(shard.structures, values)
    ]
    return np.concatenate(parts)


def filled(errors: FloatArray, filling: FloatArray) -> FloatArray:
    """Return the errors (rows, K) with errors of usual size in place of unknown ones."""
    return np.where(np.isfinite(errors), errors, filling)


@dataclass(frozen=True, eq=False)
class Surroundings:
    """The errors and targets of the training rows, in the form of sums under weights."""

    errors: Sequence[
        Any
    ]  #: per shard (rows, K) targets less predictions that did not see them; nan: not known
    #: where these are from: "out-of-fold", "out-of-bag", "folds", "leave-one-out", "leverage" or
    #: "fit"
    source: str
    filling: FloatArray  #: (K,) an error of usual size
    usual: Usual
    values: Sequence[
        Any
    ]  #: per shard, for each group of outputs that share weights, (rows, 1 + 3 m) values
    by_leaf: (
        FloatArray | None
    )  #: (L, 1 + 3 m) their sums over the leaves of all trees; None: weights are taken

    @classmethod
    def of(cls, model: Any, errors: Sequence[Any], source: str, method: str) -> Surroundings:
        """Return the surroundings from errors of the training rows, shard by shard.

        They go by leaves, or by weights with the method "exact" and for other models.
        """
        shards = model.shards
        totals: Known = shards.total(known_of, None, errors)
        with np.errstate(over="ignore", invalid="ignore"):  # sizes that `Usual` refuses
            filling = totals.errors / np.maximum(totals.known, 1)
            means = totals.targets / totals.rows
            averages = shards.total(spread_of, (filling, means), errors) / totals.rows
            spread = np.sqrt(averages[2])
        spread = np.where(spread > 0, spread, 1.0)
        usual = Usual(means, spread, totals.lowest - means, totals.highest - means, averages)
        values = shards.each(values_of, (filling, means, model.weight_layout.output_groups), errors)
        leaves = method == "leaves" and boosted_structures(model.trees) is not None
        if leaves:
            by_leaf = shards.total(leaf_sums_of, model.n_threads, values)
        else:
            by_leaf = None
        return cls(errors, source, filling, usual, values, by_leaf)

    def predictions(self, model: Any, queries: QueryBatch) -> FloatArray:
        """Return the verified predictions of rows on the scale of the fit, (n, K)."""
        predictions: FloatArray = model.predicted(queries)
        return predictions

    def local(self, model: Any, queries: QueryBatch) -> Local:
        """Return the errors and targets around rows that the model was not fitted on."""
        return around(model, self, queries)

    def targets(self, predictions: FloatArray, errors: FloatArray) -> FloatArray:
        """Return predictions plus errors; shapes broadcast."""
        return predictions + errors

    def of_large_leaves(self, least: int) -> Surroundings:
        """Return these surroundings without the leaves of fewer than ``least`` rows.

        Surroundings by weights stay as they are.
        """
        if self.by_leaf is None:
            return self
        return replace(self, by_leaf=np.where(self.by_leaf[:, :1] < least, 0.0, self.by_leaf))


def moment_values(errors: FloatArray, targets: FloatArray) -> FloatArray:
    """Return ones, sizes of errors, centred targets and squares of these, (N, 1 + 3 K)."""
    return np.concatenate(
        [np.ones((len(targets), 1)), np.abs(errors), targets, np.square(targets)], axis=1
    )


@dataclass(frozen=True, eq=False)
class Own:
    """Explained rows that are training rows, without their own weights.

    A new row has no weight of its own.
    """

    rows: IntArray  #: (n,) their positions
    weights: (
        FloatArray | None
    )  #: (n, engines) of each in its own prediction; None: rows are left out of their leaves

    def __getitem__(self, some: slice) -> Own:
        return Own(self.rows[some], None if self.weights is None else self.weights[some])

    def left_out(self, engine: int, moments: FloatArray, values: FloatArray) -> FloatArray:
        """Return the moments without the own weight of each row, (2, n, M)."""
        assert self.weights is not None
        mine = values[self.rows]
        weights = self.weights[:, engine]
        remaining = moments - np.stack([np.abs(weights), np.square(weights)])[:, :, None] * mine
        more_than_rounding = remaining[..., 0] > 1e-9 * moments[..., 0]
        remaining[..., 0] = np.where(more_than_rounding, remaining[..., 0], 0.0)
        return np.asarray(remaining)


def around(
    model: Any,
    known: Surroundings,
    queries: QueryBatch,
    own: Own | None = None,
    instead: FloatArray | None = None,
) -> Local:
    """Return the errors and targets around the explained rows, batch by batch.

    No (n, n_train) array is in memory. Predictions are the model's, or ``instead`` (n, K).
    """
    if known.by_leaf is not None:
        return _around_leaves(model, known, known.by_leaf, queries, own, instead)
    n = len(queries)
    k = model.shape[1]
    parts = []
    first = 0
    table = bytes_of(n, k * (len(NAMES) + 3))
    size = model.budget.batch_size(model.bytes_per_query(WEIGHTS) + 64 * (1 + 3 * k), table)
    for batch, effect_moments in answer(
        model.ready(WEIGHTS, len(queries)), queries, WEIGHTS, Moments(), size, known.values
    ):
        some = slice(first, first + len(batch))
        first = some.stop
        sums = effect_moments.sums
        if own is not None:
            sums = [
                own[some].left_out(e, *pair) for e, pair in enumerate(zip(sums, known.values[0]))
            ]
        if instead is None:
            predictions = effect_moments.predictions
        else:
            predictions = instead[some]
        parts.append(known.usual.local(sums, model.weight_layout.output_groups, predictions))
    return joined(parts)


def _around_leaves(
    model: Any,
    known: Surroundings,
    by_leaf: FloatArray,
    queries: QueryBatch,
    own: Own | None,
    instead: FloatArray | None,
) -> Local:
    """Return the errors and targets around the explained rows, from sums over their leaves."""
    parts = []
    structures = boosted_structures(model.trees)
    assert structures is not None
    bounds = np.cumsum([0, *(structure.total_leaves for structure in structures)])
    size = model.budget.batch_size(8 * (sum(s.n_trees for s in structures) + 4 * by_leaf.shape[1]))
    for start, batch in model.batches(queries, size, "intervals", even_empty=True):
        some = slice(start, start + len(batch))
        sums = []
        for e, structure in enumerate(structures):
            if own is None:
                mine = None
            else:
                mine = known.values[0][e][own.rows[some]]
            met = own_leaves(structure, batch.coordinates) + structure.starts[:-1]
            sums.append(leaf_moments(by_leaf[bounds[e] : bounds[e + 1]], met, mine))
        if instead is None:
            predictions = model.predicted(batch)
        else:
            predictions = instead[some]
        parts.append(known.usual.local(sums, model.weight_layout.output_groups, predictions))
    return joined(parts)


def joined(parts: list[Local]) -> Local:
    """Return all batches as one."""
    columns = (
        [getattr(local, name) for local in parts]
        for name in ("predictions", "features", "sizes", "nearby")
    )
    return Local(*map(np.concatenate, columns))
