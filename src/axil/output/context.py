"""Context of explained rows: known facts besides their weights."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from axil.inputs import column_names, take_rows
from axil.types import Array


@dataclass(frozen=True, eq=False)
class Context:
    """The rows explained and those trained on, as they were then, and what the model itself predicts."""

    X: Any  #: (n, features)
    X_train: Any  #: (n_train, features); None where they are not kept
    feature_names: list[str] | None  #: as the model has them
    predictions: Array | None  #: (n, K) the model's own, offsets included; None where it was not asked
    held: str = ""  #: what is held fixed besides the splits

    def names(self) -> list[str]:
        """The names of the columns."""
        given = (self.X,) if self.X_train is None else (self.X_train, self.X)
        return column_names(given, self.feature_names, self.X.shape[1])

    def __getitem__(self, which: Any) -> Context:
        """The context of some of the predictions, by position."""
        rows = np.arange(self.X.shape[0])[which]
        own = None if self.predictions is None else self.predictions[rows]
        return replace(self, X=take_rows(self.X, rows), predictions=own)
