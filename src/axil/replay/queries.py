"""Queries: rows to explain, with what the fitted model says of them, asked once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.contract import Model, OffsetModel
from axil.adapters.smooth import OffsetScores, SmoothModel
from axil.machine.threads import Kept
from axil.types import Array


@dataclass(frozen=True)
class Offsets:
    """Numbers that users add to the predictions of n rows, or, where the library means it so, put in the place of the base."""

    values: Array  #: (n, K)
    replace_base: bool = False

    @classmethod
    def of(cls, init_score: Any, n: int, adapter: Model) -> Offsets:
        """Checked; zeros, beside the base, for None."""
        values = inputs.as_offsets(init_score, n, adapter.n_outputs, "explained")
        if values is None:
            return cls(np.zeros((n, adapter.n_outputs)))
        # a copy: explanations keep it, for derivatives that are asked for later
        return cls(values.copy(), getattr(adapter, "offset_replaces_base", False))

    @property
    def base(self) -> float:
        """How often the base counts in a prediction."""
        return 0.0 if self.replace_base else 1.0

    def __getitem__(self, rows: Any) -> Offsets:
        return replace(self, values=self.values[rows])

    def predictions(self, adapter: Model, X: Any) -> Array:
        """(n, K): the model's own predictions of these rows, or raw scores where a loss has a link, with their offsets."""
        if hasattr(adapter, "smooth_trees"):
            return self.scores(cast(SmoothModel, adapter), X)
        if self.replace_base:
            return cast(OffsetModel, adapter).predictions_from(X, self.values)
        return np.asarray(adapter.predictions(X) + self.values)

    def scores(self, adapter: SmoothModel, X: Any) -> Array:
        """(n, K): raw scores of these rows by the library's own account, with their offsets."""
        if self.replace_base:
            return cast(OffsetScores, adapter).scores_from(X, self.values)
        return np.asarray(adapter.scores(X) + self.values)


@dataclass(frozen=True, eq=False)
class Queries:
    """Checked rows to explain. The model is asked about them when it is first needed, once, by one thread."""

    adapter: Any  #: `Model` or `SmoothModel`
    rows: Any  #: (n, features)
    offsets: Offsets
    labels: NDArray[Any]  #: (n,) the user's
    n_threads: int
    kept: Kept = field(default_factory=Kept, repr=False)
    start: int = 0  #: the position of the first row in the whole request

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    @property
    def coordinates(self) -> Any:
        """Where the rows are for the weights: their leaves in all the model's trees, (n, T), or features."""
        return self.kept.get("coordinates", lambda: self.adapter.coordinates(self.rows, self.n_threads))

    @property
    def predictions(self) -> Array:
        """(n, K): the model's own predictions, with offsets."""
        return self.kept.get("predictions", lambda: self.offsets.predictions(self.adapter, self.rows))

    def __getitem__(self, part: slice) -> Queries:
        """Some of the rows, with what is known of them by now."""
        kept = Kept()
        for name, value in self.kept.known().items():
            kept.get(name, lambda own=value[part]: own)  # type: ignore[misc]
        rows = inputs.take_rows(self.rows, part)
        offsets, labels, start = self.offsets[part], self.labels[part], self.start + (part.start or 0)
        return replace(self, rows=rows, offsets=offsets, labels=labels, kept=kept, start=start)

    def without_offsets(self) -> Queries:
        """These rows beside the model's own base."""
        return replace(self, offsets=Offsets(np.zeros_like(self.offsets.values)), kept=Kept())
