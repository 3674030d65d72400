"""WeightedSums: predictions as weighted sums of the training targets, or as sums of pushes, and the columns of their tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from axil.arrays import FloatArray, IntArray
from axil.attribution import Shard, notes
from axil.attribution.weight_effects import SumEffects
from axil.inputs.copies import frozen
from axil.kernels.products import weighted
from axil.output import tables
from axil.output.comparables import Predicted
from axil.output.context import Account, Context
from axil.reductions import Groups
from axil.reductions.choice import Allowed, Choice, Compared
from axil.reductions.top import best_of
from axil.scale import IDENTITY, TargetScale
from axil.weights.largest import Largest

ROUNDING = 1e-12  # of a running sum of weights


@dataclass(frozen=True, eq=False)
class WeightedSums:
    """n predictions, ``weights @ targets + intercepts``; `Explanation`, tables and pages are views on it.

    In an additive account the weights are pushes and every target is 1, so that all views are of pushes; the targets that
    people read are in ``seen``.
    """

    weights: Any  #: (n, n_train) or (K, n, n_train); scipy.sparse where asked for
    intercepts: FloatArray  #: (n,) or (n, K) what no target makes: a constant base, offsets
    targets: FloatArray  #: (n_train,) or (n_train, K), on the scale of the fit; one-hot for classes
    index: NDArray[Any]  #: (n_train,) the user's labels of the training rows
    query_index: NDArray[Any]  #: (n,) the user's labels of the explained rows
    #: "exact"; "additive": weights are pushes; "derivative": they only differentiate the prediction
    kind: str = "exact"
    outputs: NDArray[Any] | None = (
        None  #: (K,) numbers of the outputs or names of the classes; None for one output
    )
    backend: str = "pandas"  #: the frame library that tables are made with
    n_threads: int = 1
    context: Context | None = (
        None  #: features and the model's own predictions, where they are known
    )
    scale: TargetScale = IDENTITY  #: of the fit
    seen: FloatArray | None = (
        None  #: (n_train, K) targets as people read them; None where those are the targets here
    )
    account: Account | None = None  #: of an additive account
    #: (n, K) by name: what is shown beside predictions that weights make, such as calibrated probabilities
    beside: dict[str, FloatArray] = field(default_factory=dict)
    classes: NDArray[Any] | None = (
        None  #: names of the classes that the targets stand for; None for numbers
    )
    note: str = notes.NOTE  #: on the numbers of tables
    start: ClassVar[int] = 0  #: of the training rows, which are one shard

    def __post_init__(self) -> None:
        """Arrays that are shared, with the explainer or with parts of these sums, are read-only."""
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
        """Some of the predictions, by a slice or an array of positions."""
        weights = self.weights[:, which] if self.weights.ndim == 3 else self.weights[which]
        kept = {"intercepts": self.intercepts[which], "query_index": self.query_index[which]}
        context = None if self.context is None else self.context[which]
        account = None if self.account is None else self.account[which]
        beside = {name: values[which] for name, values in self.beside.items()}
        return replace(
            self, weights=weights, context=context, account=account, beside=beside, **kept
        )

    @property
    def additive(self) -> bool:
        """Whether this is a sum of pushes."""
        return self.kind == "additive"

    @property
    def name(self) -> str:
        """The name of the weights in files: pushes are contributions."""
        return "contributions" if self.additive else "weights"

    @property
    def labels(self) -> FloatArray:
        """(n_train,) or (n_train, K): the targets on the scale of the fit; of an account the true ones."""
        return (
            self.seen.reshape(self.targets.shape)
            if self.additive and self.seen is not None
            else self.targets
        )

    @property
    def derived(self) -> WeightedSums:
        """The derivatives by the targets: of an account computed now, of all others these sums themselves."""
        if self.account is None or self.context is None:
            return self
        found: WeightedSums = self.account.derived(self.context.X)
        return replace(found, query_index=self.query_index)

    def dense(self) -> WeightedSums:
        """These sums with their weights in one array."""
        return replace(self, weights=self.weights.toarray()) if issparse(self.weights) else self

    @property
    def predictions(self) -> FloatArray:
        """(n,) or (n, K): ``weights @ targets + intercepts``."""
        if self.weights.ndim == 3:
            parts = [self._sums(weights, targets[:, None]) for weights, targets in self.by_output()]
            made = np.concatenate(parts, axis=1)
        else:
            made = self._sums(self.weights, self.targets.reshape(len(self.targets), -1))
        return np.asarray(made.reshape(self.intercepts.shape) + self.intercepts)

    def _sums(
        self, weights: Any, values: FloatArray | None = None, measure: str = "weight"
    ) -> FloatArray:
        return weighted(weights, values, measure, self.n_threads)

    @property
    def shown(self) -> FloatArray:
        """(n_train, K): the targets as people read them."""
        return self.targets.reshape(len(self.targets), -1) if self.seen is None else self.seen

    @property
    def named(self) -> NDArray[Any]:
        """(n_train,) or (n_train, K): the targets as people read them, classes by name."""
        if self.classes is not None:
            return np.asarray(self.classes[self.class_numbers])
        return self.shown[:, 0] if self.shown.shape[1] == 1 else self.shown

    @property
    def class_numbers(self) -> IntArray:
        """(n_train,): the place of each training row's class among `classes`."""
        return (
            self.shown.argmax(axis=1)
            if self.shown.shape[1] > 1
            else self.shown[:, 0].astype(np.intp)
        )

    @property
    def is_shared(self) -> bool:
        """Whether these are predictions of classes that share their weights, so that one line per row says all."""
        return self.classes is not None and self.outputs is not None and self.weights.ndim == 2

    @property
    def shown_predictions(self) -> FloatArray:
        """(n,) or (n, K): the predictions as people read them."""
        return self.scale.inverse(self.predictions)

    @property
    def meant(self) -> dict[str, FloatArray]:
        """Return what stands beside the predictions, such as calibrated probabilities: (n, K) by name."""
        account = self.account
        if account is None or account.means is None:
            return self.beside
        return {account.meaning: account.means}

    def by_output(self) -> list[tuple[Any, FloatArray]]:
        """Weights (n, n_train) and targets (n_train,) of each output."""
        targets = self.targets[:, None] if self.targets.ndim == 1 else self.targets
        weights = self.weights if self.weights.ndim == 3 else [self.weights] * targets.shape[1]
        return list(zip(weights, targets.T))

    # -- measures of each prediction's weights --------------------------------------------------------------------------

    @property
    def norms(self) -> FloatArray:
        """(n,) or (K, n): ``sqrt(sum_j k_j^2)``; times the noise of the targets, the standard error of a prediction."""
        return np.asarray(np.sqrt(self._sums(self.weights, measure="square")[..., 0]))

    @property
    def totals(self) -> FloatArray:
        """(n,) or (K, n): ``sum k``."""
        return self._sums(self.weights)[..., 0]

    @property
    def sizes(self) -> FloatArray:
        """(n,) or (K, n): ``sum |k|``."""
        return self._sums(self.weights, measure="size")[..., 0]

    @property
    def effective_size(self) -> FloatArray:
        """(n,) or (K, n): ``(sum |k|)^2 / sum k^2``; 0 where all weights are."""
        return ratio(self.sizes**2, self.norms**2)

    @property
    def negative_share(self) -> FloatArray:
        """(n,) or (K, n): the share of negative weights in ``sum |k|``."""
        sizes = self.sizes
        return ratio(np.maximum(sizes - self.totals, 0.0) / 2, sizes)

    # -- columns of tables ----------------------------------------------------------------------------------------------

    def order(self, by: str | None) -> str:
        """The quantity that rows are ordered by: as asked, else contributions in an account and weights elsewhere."""
        return ("contribution" if self.additive else "weight") if by is None else by

    def largest(self, k: int, by: str = "weight", outputs: int | None = None) -> list[Largest]:
        """The k largest of each prediction, for each output, or for the first ``outputs`` of them."""
        some = self.by_output()[:outputs]
        scaled = by == "contribution"
        return [
            Largest.of(weights, k, targets if scaled else None, self.n_threads)
            for weights, targets in some
        ]

    def top_columns(self, k: int, by: str) -> dict[str, Any]:
        """The columns of `Explanation.top`."""
        return self.lines(self.largest(k, by))

    def lines(self, largest: list[Largest]) -> dict[str, Any]:
        """The columns of `Explanation.top` for rows that are chosen already."""
        shape = len(self), len(largest)
        made, none = self.predictions.reshape(shape), np.zeros(shape)
        best = best_of(
            self, largest, largest[0].k, made, none, self.targets.reshape(len(self.targets), -1)
        )
        return tables.top_columns(
            self.query_index, self.outputs, self.scale, best, self.meant, not self.additive
        )

    def compared(
        self, choice: Choice, allowed: Allowed | None = None
    ) -> tuple[Predicted, Compared]:
        """These predictions, with the training rows to list beside each."""
        about = Predicted(
            self.query_index, self.outputs, self.scale, self.meant, not self.additive, self.classes
        )
        return about, choice.of(cast(Shard, self), self._effects, allowed)

    @property
    def _effects(self) -> SumEffects:
        shape = len(self), 1 if self.outputs is None else len(self.outputs)
        return SumEffects(
            self.weights,
            self.targets.reshape(len(self.targets), -1),
            self.intercepts.reshape(shape),
        )

    def group_columns(self, codes: IntArray, groups: NDArray[Any]) -> dict[str, Any]:
        """The columns of `Explanation.group`, for rows of these group numbers (n_train,)."""
        found = Groups().of(cast(Shard, self), self._effects, (codes, groups))
        return tables.group_columns(
            self.query_index, self.outputs, self.scale, found, not self.additive
        )

    def curves(self, shares: FloatArray, ranks: IntArray) -> tuple[NDArray[np.int64], FloatArray]:
        """(n, S, shares) rows needed for each share of sum |k|, and (n, S, ranks) the shares of the first ``ranks`` rows.

        The largest rows come first. There are S sets of weights: one where outputs share theirs.
        """
        parts = self.weights if self.weights.ndim == 3 else [self.weights]
        found = [_curves(weights, shares, ranks) for weights in parts]
        return np.stack([one[0] for one in found], axis=1), np.stack(
            [one[1] for one in found], axis=1
        )


def ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """The quotient, zero where nothing is below."""
    return np.divide(above, below, out=np.zeros_like(below), where=below > 0)


def _curves(
    weights: Any, shares: FloatArray, ranks: IntArray
) -> tuple[NDArray[np.int64], FloatArray]:
    """(n, shares) rows for each share, and (n, ranks) the shares of the first ``ranks`` rows, by weights (n, n_train)."""
    counts = np.zeros((weights.shape[0], len(shares)), dtype=np.int64)
    held = np.zeros((weights.shape[0], len(ranks)))
    for i in range(len(counts)):
        own = (
            weights.data[weights.indptr[i] : weights.indptr[i + 1]]
            if issparse(weights)
            else weights[i]
        )
        total = np.cumsum(np.sort(np.abs(own))[::-1])
        if len(total) and total[-1] > 0:
            counts[i] = np.searchsorted(total, shares * total[-1] * (1 - ROUNDING)) + 1
            held[i] = total[np.minimum(ranks, len(total)) - 1] / total[-1]
    return counts, held
