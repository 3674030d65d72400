"""Dates of calibration rows, and a warning for rows that are newer than all of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axil import inputs
from axil.aliases import FeatureTable, LabelsLike
from axil.arrays import AnyArray
from axil.errors import ApproximationWarning, InputError, date_text, warn
from axil.inputs.distances import as_points
from axil.replay.queries import QueryBatch

SHARE = 0.5  # of the rows; more newer ones than these cause the warning


@dataclass(frozen=True, eq=False)
class CalibrationDates:
    """The newest date of the calibration rows."""

    column: str | None  #: of the features; None: dates were given
    newest: np.float64 | np.datetime64

    @classmethod
    def of(
        cls, dates: LabelsLike, X: FeatureTable, names: list[str] | None, rows: str
    ) -> CalibrationDates:
        """Return the newest of the dates of some rows, or of a column of their features X."""
        points = _points(dates, X, names, rows)
        is_known = points == points
        if not is_known.any():
            raise InputError("dates has no known date; expected one for each calibration row.")
        column = None
        if isinstance(dates, str):
            column = dates
        return cls(column, points[is_known].max())

    def warn_of_newer(self, queries: QueryBatch, dates: LabelsLike | None) -> None:
        """Warn if most explained rows are newer than all calibration rows."""
        if dates is None:
            dates = self.column
        n = len(queries)
        if dates is None or not n:
            return
        points = _points(dates, queries.rows, queries.adapter.feature_names, "predicted")
        if points.dtype.kind != np.asarray(self.newest).dtype.kind:
            raise InputError(
                "dates of these rows and of the calibration rows are of two kinds, numbers and "
                "dates; expected one kind."
            )
        n_newer = int((points > self.newest).sum())
        if n_newer <= SHARE * n:
            return
        if isinstance(self.newest, np.datetime64):
            newest = date_text(self.newest)
        else:
            newest = f"{self.newest:g}"
        warn(
            f"{n_newer} of {n} rows are newer than all calibration rows, whose newest is of "
            f"{newest}. Intervals cover rows like the calibration rows, and newer ones may differ. "
            "Calibrate with newer rows, and compare coverage(X, y) once targets are known.",
            ApproximationWarning,
        )


def _points(dates: LabelsLike, X: FeatureTable, names: list[str] | None, rows: str) -> AnyArray:
    """Return dates as float64 or datetime64, (n,)."""
    values = inputs.row_values(dates, X, names, "dates", rows)
    return as_points(inputs.as_labels(values, X.shape[0], "dates", rows), "dates")
