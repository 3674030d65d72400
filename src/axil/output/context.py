"""Facts about predictions besides their weights: the rows, the model's own predictions, and the account of pushes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray
from axil.inputs import column_names, feature_columns, take_rows
from axil.machine.threads import Kept


@dataclass(frozen=True, eq=False)
class Context:
    """The rows explained and those trained on, as they were then, and what the model itself predicts."""

    X: Any  #: (n, features); None of sums of predictions, which have no features
    X_train: Any  #: (n_train, features); None where they are not kept
    feature_names: list[str] | None  #: as the model has them
    predictions: (
        FloatArray | None
    )  #: (n, K) the model's own, offsets included; None where it was not asked
    held: str = ""  #: what is held fixed besides the splits
    #: (n,) what sums of predictions are in the targets' own units, such as "geometric mean of 4 predictions"; None: as they are
    combined: NDArray[Any] | None = None

    def names(self) -> list[str]:
        """The names of the columns."""
        given = tuple(rows for rows in (self.X_train, self.X) if rows is not None)
        return (
            column_names(given, self.feature_names, given[0].shape[1])
            if given
            else list(self.feature_names or [])
        )

    def columns(self, chosen: list[int], n: int) -> list[NDArray[Any]]:
        """These columns, by position, of the n rows explained; None in them where there are no rows."""
        if self.X is None:
            return [np.full(n, None) for _ in chosen]
        return feature_columns(self.X, np.arange(n), chosen)

    def __getitem__(self, which: Any) -> Context:
        """The context of some of the predictions, by position."""
        own = None if self.predictions is None else self.predictions[which]
        rows = None if self.X is None else take_rows(self.X, np.arange(self.X.shape[0])[which])
        combined = None if self.combined is None else self.combined[which]
        return replace(self, X=rows, predictions=own, combined=combined)


@dataclass(frozen=True, eq=False)
class Account:
    """Numbers beside an additive account: what the link makes of the scores, and derivatives, computed when asked for."""

    meaning: str  #: of a score behind the link: "probability", "mean", or "" where the score is all there is
    means: (
        FloatArray | None
    )  #: (n, K) what the link makes of the scores; None where it leaves them as they are
    #: the `WeightedSums` of derivatives by the targets, for rows (n, features) and their offsets
    derive: Callable[[Any, Any], Any]
    offsets: Any = None  #: of the rows, which can be taken by position; None for none
    kept: Kept = field(default_factory=Kept, repr=False)

    def derived(self, X: Any) -> Any:
        """The derivatives of these predictions, whose rows are X, computed once."""
        return self.kept.get("derived", lambda: self.derive(X, self.offsets))

    def __getitem__(self, which: Any) -> Account:
        """The account of some of the predictions, by position; with their derivatives where these are known."""
        means, offsets = (None if own is None else own[which] for own in (self.means, self.offsets))
        return Account(self.meaning, means, self.derive, offsets, self.kept.cut(which))
