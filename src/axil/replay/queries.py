"""QueryBatch: rows to explain, with what the fitted model says of them, asked once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import numpy as np
from scipy.sparse import csr_array

from axil import inputs
from axil.adapters.contract import Adapter, Kind, Model, OffsetRule
from axil.aliases import FeatureTable
from axil.arrays import AnyArray, FloatArray
from axil.errors import UnsupportedQuestionError
from axil.machine.blocks import spans
from axil.machine.threads import Cache


@dataclass(frozen=True)
class Offsets:
    """Offsets of n rows, which the user passes as ``init_score``.

    They add to the predictions, or replace the initial prediction, as the library does.
    """

    values: FloatArray  #: (n, K)
    replace_base: bool = False

    @classmethod
    def of(cls, init_score: Any, n: int, adapter: Model) -> Offsets:
        """Return checked offsets; for None, zeros that add to the initial prediction."""
        values = inputs.as_offsets(init_score, n, adapter.n_outputs, "explained")
        if values is None:
            return cls(np.zeros((n, adapter.n_outputs)))
        if adapter.offset_rule is OffsetRule.REPLACES_TREE:
            raise UnsupportedQuestionError(
                "init_score",
                f"{adapter.library} replaces the initial prediction by it, and the initial "
                "prediction of this model is a percentile of the targets",
                "Leave it out: explain what the model predicts without it.",
            )
        # a copy: explanations keep it, for derivatives that are asked for later
        return cls(values.copy(), adapter.offset_rule is OffsetRule.REPLACES_INITIAL)

    @property
    def base(self) -> float:
        """The coefficient of the initial prediction in a prediction."""
        if self.replace_base:
            return 0.0
        return 1.0

    def __getitem__(self, rows: Any) -> Offsets:
        return replace(self, values=self.values[rows])

    def predictions(self, adapter: Model, X: FeatureTable) -> FloatArray:
        """Return the model's predictions (n, K), or a gradient fit's raw scores, with offsets."""
        predict: Callable[..., FloatArray] = adapter.predictions
        if adapter.kind is Kind.ADDITIVE:
            predict = cast(Adapter, adapter).scores
        if self.replace_base:
            return predict(X, self.values)
        return np.asarray(predict(X) + self.values)


def reflected(values: FloatArray, reflection: float | None) -> FloatArray:
    """Return scores or probabilities of the other one of two classes.

    With a reflection of None the values stay as they are. Scores of two classes are each other's
    negatives, with a reflection of 0, and probabilities add up to a reflection of 1.
    """
    if reflection is None:
        return values
    return reflection - values


@dataclass(frozen=True, eq=False)
class QueryBatch:
    """Checked rows to explain.

    The first thread that needs the model's predictions of them computes them, once.
    """

    adapter: Model
    rows: Any  #: (n, features)
    offsets: Offsets
    labels: AnyArray  #: (n,) the user's
    n_threads: int
    kept: Cache = field(default_factory=Cache, repr=False)
    start: int = 0  #: the position of the first row in the whole request
    #: None: predictions are the model's own. A number: they are of the first of two classes, this
    #: number less the model's own, which are of the second
    reflection: float | None = None

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    @property
    def coordinates(self) -> Any:
        """The rows' coordinates for the weights: their leaves in all trees, (n, T), or features."""
        return self.kept.get(
            "coordinates", lambda: self.adapter.coordinates(self.rows, self.n_threads)
        )

    @property
    def own_predictions(self) -> FloatArray:
        """The model's own predictions, with offsets, (n, K).

        For two classes with one score they are those of the second class.
        """
        return self.kept.get(
            "predictions", lambda: self.offsets.predictions(self.adapter, self.rows)
        )

    @property
    def predictions(self) -> FloatArray:
        """The model's own predictions (n, K), with offsets, of the class that the user chose."""
        return reflected(self.own_predictions, self.reflection)

    def __getitem__(self, part: slice) -> QueryBatch:
        """Return some of the rows with the numbers that are cached for them."""
        rows = inputs.take_rows(self.rows, part)
        return replace(
            self,
            rows=rows,
            offsets=self.offsets[part],
            labels=self.labels[part],
            kept=self.kept.cut(part),
            start=self.start + (part.start or 0),
        )

    @property
    def sizes(self) -> FloatArray:
        """The numbers that errors of predictions are relative to, (n, 1)."""
        return np.ones((len(self), 1))

    def without_offsets(self) -> QueryBatch:
        """Return these rows with the model's own initial prediction."""
        return replace(self, offsets=Offsets(np.zeros_like(self.offsets.values)), kept=Cache())


@dataclass(frozen=True, eq=False)
class Combination:
    """m sums of the predictions of n rows, explained in place of these rows.

    Weights are computed for the sums, never for all n rows.
    """

    queries: QueryBatch  #: the n rows
    coefficients: csr_array  #: (m, n)
    labels: AnyArray  #: (m,) the names of the sums
    start: int = 0
    rows: ClassVar[None] = None  #: a sum has no features

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, which: Any) -> Combination:
        """Return some of the sums, by a slice or an array of positions."""
        return replace(self, coefficients=self.coefficients[which], labels=self.labels[which])

    def of(self, values: FloatArray) -> FloatArray:
        """Return the sums (m, S) of values (n, S) of the rows."""
        return np.asarray(self.coefficients @ values)

    @property
    def factors(self) -> csr_array:
        """The coefficients, (n, m)."""
        return csr_array(self.coefficients.T)

    @property
    def coordinates(self) -> Any:
        """The coordinates of the n rows for the weights."""
        return self.queries.coordinates

    @property
    def predictions(self) -> FloatArray:
        """The sums of the model's own predictions, (m, K)."""
        return self.of(self.queries.predictions)

    @property
    def offsets(self) -> Offsets:
        """The sums of the rows' offsets."""
        return replace(self.queries.offsets, values=self.of(self.queries.offsets.values))

    @property
    def sizes(self) -> FloatArray:
        """The sums of the absolute coefficients, (m, 1); 1 if all of them are 0."""
        sizes = np.asarray(abs(self.coefficients).sum(axis=1)).reshape(-1, 1)
        return np.where(sizes > 0, sizes, 1.0)

    def parts(self, size: int) -> Iterator[tuple[csr_array, QueryBatch]]:
        """Yield ``size`` rows at a time, with their columns of the coefficients."""
        for rows in spans(len(self.queries), size):
            yield csr_array(self.coefficients[:, rows]), self.queries[rows]
