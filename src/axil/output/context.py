"""Keep facts about predictions besides their weights.

These are the rows, the model's own predictions, and the scores' meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from axil.aliases import FeatureTable
from axil.arrays import AnyArray, FloatArray
from axil.inputs import column_names, feature_columns, take_rows
from axil.machine.threads import Cache


@dataclass(frozen=True, eq=False)
class Context:
    """The explained rows, the training rows, and what the model itself predicts."""

    X: FeatureTable  #: (n, features); None for sums of predictions, which have no features
    X_train: Any  #: (n_train, features); None where they are not kept
    feature_names: list[str] | None  #: as the model has them
    #: (n, K) the model's own, offsets included; None where the model was not asked
    predictions: FloatArray | None
    held: str = ""  #: the pattern that is fixed besides the tree structure
    #: (n,) what sums of predictions are in the targets' own units, such as "geometric mean of 4
    #: predictions"
    combined: AnyArray | None = None
    #: returns the digests of the model and of its training data; None where they are not at hand
    state: Callable[[], dict[str, Any]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, which does not hold the model."""
        return {**self.__dict__, "state": None}

    def names(self) -> list[str]:
        """Return the names of the columns."""
        tables = tuple(rows for rows in (self.X_train, self.X) if rows is not None)
        if not tables:
            return list(self.feature_names or [])
        return column_names(tables, self.feature_names, tables[0].shape[1])

    def columns(self, chosen: list[int], n: int) -> list[AnyArray]:
        """Return these columns, by position, of the n explained rows.

        The columns hold None if there are no rows.
        """
        if self.X is None:
            return [np.full(n, None) for _ in chosen]
        return feature_columns(self.X, np.arange(n), chosen)

    def __getitem__(self, which: Any) -> Context:
        """Return the context of some of the predictions, by position."""
        rows = None
        if self.X is not None:
            rows = take_rows(self.X, np.arange(self.X.shape[0])[which])
        if self.predictions is None:
            predictions = None
        else:
            predictions = self.predictions[which]
        if self.combined is None:
            combined = None
        else:
            combined = self.combined[which]
        return replace(self, X=rows, predictions=predictions, combined=combined)


@dataclass(frozen=True, eq=False)
class Account:
    """The probabilities or means of additive scores, and their derivatives, computed on demand."""

    meaning: str  #: of a score behind the link: "probability", "mean", or "" without a link
    means: FloatArray | None  #: (n, K) what the link makes of the scores; None without a link
    #: returns the `WeightedSums` of derivatives by the targets, for rows (n, features) and their
    #: offsets
    derive: Callable[[Any, Any], Any]
    offsets: Any = None  #: of the rows, which can be taken by position; None for none
    kept: Cache = field(default_factory=Cache, repr=False)

    def derived(self, X: FeatureTable) -> Any:
        """Return the derivatives of these predictions, whose rows are X; they are computed once."""
        return self.kept.get("derived", lambda: self.derive(X, self.offsets))

    def __getitem__(self, which: Any) -> Account:
        """Return the account of some of the predictions, by position.

        The account has their derivatives if these are known.
        """
        if self.means is None:
            means = None
        else:
            means = self.means[which]
        if self.offsets is None:
            offsets = None
        else:
            offsets = self.offsets[which]
        return Account(self.meaning, means, self.derive, offsets, self.kept.cut(which))
