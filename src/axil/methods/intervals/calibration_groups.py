"""Groups of calibration rows by their labels, so that intervals hold within each (Mondrian conformal prediction)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.arrays import IntArray
from axil.errors import InputError, shown
from axil.inputs.codes import numbered
from axil.replay.queries import QueryBatch


@dataclass(frozen=True, eq=False)
class CalibrationGroups:
    """The groups of n calibration rows."""

    column: str | None  #: of the features; None: labels were given
    names: NDArray[Any]  #: (G,) the labels
    codes: IntArray  #: (n,) the place of each row's label among them

    @classmethod
    def of(cls, given: Any, X: Any, model: Any, n: int, rows: str) -> CalibrationGroups | None:
        """From labels of n rows or the name of a column of their features X; None: there are no groups."""
        if given is None:
            return None
        values = inputs.row_values(given, X, model.adapter.feature_names, "groups", rows)
        codes, names = numbered(inputs.as_labels(values, n, "groups", rows))
        return cls(given if isinstance(given, str) else None, names, codes)

    def __getitem__(self, rows: Any) -> CalibrationGroups:
        there, codes = np.unique(self.codes[rows], return_inverse=True)
        return CalibrationGroups(self.column, self.names[there], codes)

    def of_queries(self, queries: QueryBatch, given: Any) -> IntArray:
        """(m,): the place of each query's label among the names; refuses those that no calibration row has."""
        n = len(queries)
        known = queries.adapter.feature_names
        if given is None and self.column is None:
            raise InputError(
                f"calibrate was given a label for each calibration row, so these {n} rows need theirs. Pass groups= to interval, "
                "quantiles, cdf, std, sample or crps; or calibrate with the name of a column, which is read from X itself."
            )
        values = inputs.row_values(
            self.column if given is None else given, queries.rows, known, "groups", "predicted"
        )
        labels = inputs.as_labels(values, n, "groups", "predicted")
        found, every = numbered(np.append(self.names.astype(object), labels.astype(object)))
        place = np.full(len(every), -1)
        place[found[: len(self.names)]] = np.arange(len(self.names))
        codes = place[found[len(self.names) :]]
        if (codes < 0).any():
            unknown = labels.astype(object)[codes < 0]
            raise InputError(
                f"groups holds {shown(unknown[0])}, a group without calibration rows, as {len(unknown)} of {n} rows are; "
                f"expected one of {shown(self.names[:10].tolist(), 200)}. Calibrate with rows of it, or leave these rows out."
            )
        return codes
