"""Hold predictions as weighted sums of the training targets, or as sums of contributions.

The sums also make the tables of the predictions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from axil.arrays import AnyArray, FloatArray, IntArray
from axil.attribution import Shard, notes
from axil.attribution.weight_effects import SumEffects
from axil.inputs.copies import frozen
from axil.kernels.products import weighted
from axil.output import tables
from axil.output.context import Account, Context
from axil.output.tables import Predicted
from axil.reductions import Groups
from axil.reductions.choice import Allowed, Choice, Compared
from axil.reductions.groups import Grouped, GroupFold
from axil.reductions.top import best_of
from axil.scale import IDENTITY, TargetScale
from axil.weights.largest import Largest

ROUNDING = 1e-12  # of a running sum of weights


@dataclass(frozen=True, eq=False)
class WeightedSums:
    """n predictions, ``weights @ targets + intercepts``.

    `Explanation`, tables and pages are views on them. For an additive model the weights are
    contributions and every target is 1, so that all views show contributions. The targets that
    people read are in ``seen``.
    """

    weights: Any  #: (n, n_train) or (K, n, n_train); scipy.sparse where asked for
    #: (n,) or (n, K) what does not depend on targets: an initial prediction, offsets
    intercepts: FloatArray
    targets: FloatArray  #: (n_train,) or (n_train, K), on the scale of the fit; one-hot for classes
    index: AnyArray  #: (n_train,) the user's labels of the training rows
    query_index: AnyArray  #: (n,) the user's labels of the explained rows
    #: "exact"; "additive": weights are contributions; "derivative": they only differentiate the
    #: prediction
    kind: str = "exact"
    outputs: AnyArray | None = (
        None  #: (K,) numbers of outputs or names of classes; None for one output
    )
    backend: str = "pandas"  #: the frame library that tables are made with
    n_threads: int = 1
    #: features and the model's own predictions, where they are known
    context: Context | None = None
    scale: TargetScale = IDENTITY  #: of the fit
    #: (n_train, K) targets as people read them; None where those are the targets here
    seen: FloatArray | None = None
    account: Account | None = None  #: for an additive model
    #: (n, K) by name, shown beside the predictions, such as calibrated probabilities
    beside: dict[str, FloatArray] = field(default_factory=dict)
    classes: AnyArray | None = (
        None  #: names of the classes that targets stand for; None for numbers
    )
    #: names of the classes that predictions are of; those of a Booster are numbers, and its
    #: targets too
    class_names: AnyArray | None = None
    has_link: bool = False  #: whether a link leads from these scores to predictions
    note: str = notes.NOTE  #: on the numbers of tables
    start: ClassVar[int] = 0  #: of the training rows, which are one shard

    def __post_init__(self) -> None:
        """Make the arrays that the explainer shares read-only."""
        for name in ("intercepts", "targets", "index", "query_index"):
            object.__setattr__(self, name, frozen(getattr(self, name)))
        if issparse(self.weights):
            self.weights.sort_indices()  # scipy would do it later, in place
            self.weights.data.flags.writeable = False
        else:
            object.__setattr__(self, "weights", frozen(self.weights))

    def __len__(self) -> int:
        return len(self.query_index)

    def __iter__(self) -> Iterator[WeightedSums]:
        return (self[np.array([i])] for i in range(len(self)))

    def __getitem__(self, which: Any) -> WeightedSums:
        """Return some of the predictions, by a slice or an array of positions."""
        has_own_weights = self.weights.ndim == 3
        return replace(
            self,
            weights=self.weights[:, which] if has_own_weights else self.weights[which],
            intercepts=self.intercepts[which],
            query_index=self.query_index[which],
            context=None if self.context is None else self.context[which],
            account=None if self.account is None else self.account[which],
            beside={name: values[which] for name, values in self.beside.items()},
        )

    @property
    def additive(self) -> bool:
        """Whether these are sums of contributions."""
        return self.kind == "additive"

    @property
    def shown_outputs(self) -> AnyArray | None:
        """The column ``output`` of tables, (K,).

        For two classes with one score it has the scored class.
        """
        return tables.shown_outputs(self.outputs, self.class_names)

    @property
    def name(self) -> str:
        """The name of the weights in files."""
        if self.additive:
            return "contributions"
        return "weights"

    @property
    def labels(self) -> FloatArray:
        """The true targets, (n_train,) or (n_train, K), on the scale of the fit."""
        if self.additive and self.seen is not None:
            return self.seen.reshape(self.targets.shape)
        return self.targets

    @property
    def derived(self) -> WeightedSums:
        """The derivatives by the targets.

        They are these sums themselves, or for an additive model sums computed now.
        """
        if self.account is None or self.context is None:
            return self
        derivatives: WeightedSums = self.account.derived(self.context.X)
        return replace(derivatives, query_index=self.query_index)

    def dense(self) -> WeightedSums:
        """Return these sums with their weights in a dense array."""
        if issparse(self.weights):
            return replace(self, weights=self.weights.toarray())
        return self

    @property
    def predictions(self) -> FloatArray:
        """The predictions ``weights @ targets + intercepts``, (n,) or (n, K)."""
        if self.weights.ndim == 3:
            parts = [self._sums(weights, targets[:, None]) for weights, targets in self.by_output()]
            sums = np.concatenate(parts, axis=1)
        else:
            sums = self._sums(self.weights, self._target_columns)
        return np.asarray(sums.reshape(self.intercepts.shape) + self.intercepts)

    @property
    def _target_columns(self) -> FloatArray:
        """The targets, (n_train, K)."""
        return self.targets.reshape(len(self.targets), -1)

    def _sums(
        self, weights: Any, values: FloatArray | None = None, measure: str = "weight"
    ) -> FloatArray:
        """Return sums of weights times values, or of a measure of the weights."""
        return weighted(weights, values, measure, self.n_threads)

    @property
    def shown(self) -> FloatArray:
        """The targets in the user's units, (n_train, K)."""
        if self.seen is None:
            return self._target_columns
        return self.seen

    @property
    def named(self) -> AnyArray:
        """The targets in the user's units, (n_train,) or (n_train, K), with classes by name."""
        if self.classes is not None:
            return np.asarray(self.classes[self.class_numbers])
        if self.shown.shape[1] == 1:
            return self.shown[:, 0]
        return self.shown

    @property
    def class_numbers(self) -> IntArray:
        """The position of each training row's class among `classes`, (n_train,)."""
        if self.shown.shape[1] > 1:
            return self.shown.argmax(axis=1)
        return self.shown[:, 0].astype(np.intp)

    @property
    def is_shared(self) -> bool:
        """Whether the outputs are classes that share their weights.

        One line per row then suffices.
        """
        return self.classes is not None and self.outputs is not None and self.weights.ndim == 2

    @property
    def shown_predictions(self) -> FloatArray:
        """The predictions in the user's units, (n,) or (n, K)."""
        return self.scale.inverse(self.predictions)

    @property
    def meant(self) -> dict[str, FloatArray]:
        """Further columns of predictions, such as calibrated probabilities, (n, K) by name."""
        if self.account is None or self.account.means is None:
            return self.beside
        return {self.account.meaning: self.account.means}

    def by_output(self) -> list[tuple[Any, FloatArray]]:
        """Return weights (n, n_train) and targets (n_train,) of each output."""
        targets = self._target_columns.T
        weights = self.weights
        if weights.ndim != 3:
            weights = [weights] * len(targets)
        return list(zip(weights, targets))

    # -- measures of each prediction's weights -----------------------------------------------------

    @property
    def norms(self) -> FloatArray:
        """``sqrt(sum_j k_j^2)``, (n,) or (K, n).

        The standard error of a prediction is this times the noise of the targets.
        """
        return np.asarray(np.sqrt(self._sums(self.weights, measure="square")[..., 0]))

    @property
    def totals(self) -> FloatArray:
        """``sum k``, (n,) or (K, n)."""
        return self._sums(self.weights)[..., 0]

    @property
    def sizes(self) -> FloatArray:
        """``sum |k|``, (n,) or (K, n)."""
        return self._sums(self.weights, measure="size")[..., 0]

    @property
    def effective_size(self) -> FloatArray:
        """``(sum |k|)^2 / sum k^2``, (n,) or (K, n); 0 if all weights are zero."""
        return ratio(self.sizes**2, self.norms**2)

    @property
    def negative_share(self) -> FloatArray:
        """The share of negative weights in ``sum |k|``, (n,) or (K, n)."""
        sizes = self.sizes
        return ratio(np.maximum(sizes - self.totals, 0.0) / 2, sizes)

    # -- columns of tables -------------------------------------------------------------------------

    def order(self, by: str | None) -> str:
        """Return the quantity that rows are ordered by.

        The default is contributions for additive models, else weights.
        """
        if by is not None:
            return by
        if self.additive:
            return "contribution"
        return "weight"

    def largest(self, k: int, by: str = "weight", outputs: int | None = None) -> list[Largest]:
        """Return the k largest of each prediction for each output.

        With ``outputs``, return them for the first ``outputs`` outputs only.
        """
        largest = []
        for weights, targets in self.by_output()[:outputs]:
            if by == "contribution":
                scales = targets
            else:
                scales = None
            largest.append(Largest.of(weights, k, scales, self.n_threads))
        return largest

    def top_columns(self, k: int, by: str) -> dict[str, Any]:
        """Return the columns of `Explanation.top`."""
        return self.lines(self.largest(k, by))

    def lines(self, largest: list[Largest]) -> dict[str, Any]:
        """Return the columns of `Explanation.top` for rows that are already chosen."""
        shape = (len(self), len(largest))
        predictions = self.predictions.reshape(shape)
        best = best_of(
            self, largest, largest[0].k, predictions, np.zeros(shape), self._target_columns
        )
        return tables.top_columns(self.predicted, best)

    def compared(
        self, choice: Choice, allowed: Allowed | None = None
    ) -> tuple[Predicted, Compared]:
        """Return these predictions, with the training rows to list beside each."""
        return self.predicted, choice.of(cast(Shard, self), self._effects, allowed)

    @property
    def predicted(self) -> Predicted:
        """The explained rows as tables show them."""
        return Predicted(
            self.query_index,
            self.shown_outputs,
            self.scale,
            self.meant,
            not self.additive,
            self.class_names,
            self.has_link,
            is_sum=self.context is not None and self.context.X is None,
        )

    @property
    def _effects(self) -> SumEffects:
        """The effects that reductions run on."""
        if self.outputs is None:
            n_outputs = 1
        else:
            n_outputs = len(self.outputs)
        intercepts = self.intercepts.reshape(len(self), n_outputs)
        return SumEffects(self.weights, self._target_columns, intercepts)

    def grouped(self, codes: IntArray, groups: AnyArray) -> Grouped:
        """Return the sums over groups of rows, of these group numbers (n_train,)."""
        return Groups().of(cast(Shard, self), self._effects, (codes, groups))

    def group_columns(self, codes: IntArray, groups: AnyArray, least: int) -> dict[str, Any]:
        """Return the columns of `Explanation.group`, for rows of these group numbers (n_train,).

        Groups of fewer rows than ``least`` are put together.
        """
        sums = self.grouped(codes, groups)
        if least > 1:
            sums = sums.folded(GroupFold.of(codes, groups, least))
        means = None
        if self.scale.is_log and not self.additive:
            means = np.atleast_1d(self._target_columns.mean(axis=0))
        return tables.group_columns(
            self.query_index, self.shown_outputs, self.scale, sums, not self.additive, means
        )

    def curves(self, shares: FloatArray, ranks: IntArray) -> tuple[NDArray[np.int64], FloatArray]:
        """Return concentration curves of the weights on their largest rows, for S sets of weights.

        S is 1 if outputs share their weights.

        Returns
        -------
        n_needed : ndarray of shape (n, S, len(shares))
            The number of rows that hold each share of ``sum |k|``.
        shares_held : ndarray of shape (n, S, len(ranks))
            The share that the first rows hold, up to each rank.
        """
        if self.weights.ndim == 3:
            weights_by_set = self.weights
        else:
            weights_by_set = [self.weights]
        n_needed = []
        shares_held = []
        for weights in weights_by_set:
            needed_in_set, held_in_set = _curves(weights, shares, ranks)
            n_needed.append(needed_in_set)
            shares_held.append(held_in_set)
        return np.stack(n_needed, axis=1), np.stack(shares_held, axis=1)


def ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """Return ``above / below``; zero where ``below`` is not positive."""
    return np.divide(above, below, out=np.zeros_like(below), where=below > 0)


def _curves(
    weights: Any, shares: FloatArray, ranks: IntArray
) -> tuple[NDArray[np.int64], FloatArray]:
    """Return `WeightedSums.curves` of one set of weights (n, n_train)."""
    n_needed = np.zeros((weights.shape[0], len(shares)), dtype=np.int64)
    shares_held = np.zeros((weights.shape[0], len(ranks)))
    for i in range(len(n_needed)):
        if issparse(weights):
            row = weights.data[weights.indptr[i] : weights.indptr[i + 1]]
        else:
            row = weights[i]
        running_sums = np.cumsum(np.sort(np.abs(row))[::-1])
        if len(running_sums) and running_sums[-1] > 0:
            total = running_sums[-1]
            n_needed[i] = np.searchsorted(running_sums, shares * total * (1 - ROUNDING)) + 1
            shares_held[i] = running_sums[np.minimum(ranks, len(running_sums)) - 1] / total
    return n_needed, shares_held
