"""Groups of calibration rows by their labels, so that each group has its coverage.

This is Mondrian conformal prediction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from axil import inputs
from axil.aliases import FeatureTable, LabelsLike
from axil.arrays import AnyArray, IntArray
from axil.errors import InputError, counted, shown
from axil.inputs.codes import numbered
from axil.replay.queries import QueryBatch
from axil.replay.verified_model import VerifiedModel


@dataclass(frozen=True, eq=False)
class CalibrationGroups:
    """The groups of n calibration rows."""

    column: str | None  #: of the features; None: labels were given
    names: AnyArray  #: (G,) the labels
    codes: IntArray  #: (n,) the place of each row's label among them

    @classmethod
    def of(
        cls,
        groups: LabelsLike | None,
        X: FeatureTable,
        model: VerifiedModel,
        n: int,
        rows: str,
    ) -> CalibrationGroups | None:
        """Return the groups by labels of n rows, or by the name of a column of their features X.

        None if there are no groups.
        """
        if groups is None:
            return None
        values = inputs.row_values(groups, X, model.adapter.feature_names, "groups", rows)
        codes, names = numbered(inputs.as_labels(values, n, "groups", rows))
        column = None
        if isinstance(groups, str):
            column = groups
        return cls(column, names, codes)

    def __getitem__(self, rows: Any) -> CalibrationGroups:
        """Return the groups of some of the rows, by position."""
        old_codes, codes = np.unique(self.codes[rows], return_inverse=True)
        return CalibrationGroups(self.column, self.names[old_codes], codes)

    def of_queries(self, queries: QueryBatch, groups: LabelsLike | None) -> IntArray:
        """Return the place of each explained row's label among the names, (m,).

        Raise for a label that no calibration row has.
        """
        n = len(queries)
        if groups is None:
            groups = self.column
        if groups is None:
            raise InputError(
                f"calibrate was given a label for each calibration row, so these {n} rows need "
                "theirs. Pass groups= to interval, quantiles, cdf, std, sample or crps; or calibrate "
                "with the name of a column, which is read from X itself."
            )
        feature_names = queries.adapter.feature_names
        values = inputs.row_values(groups, queries.rows, feature_names, "groups", "predicted")
        labels = inputs.as_labels(values, n, "groups", "predicted")
        all_labels = np.append(self.names.astype(object), labels.astype(object))
        label_codes, distinct_labels = numbered(all_labels)
        place = np.full(len(distinct_labels), -1)
        place[label_codes[: len(self.names)]] = np.arange(len(self.names))
        codes = place[label_codes[len(self.names) :]]
        if (codes < 0).any():
            unknown = labels.astype(object)[codes < 0]
            raise InputError(
                f"groups holds {shown(unknown[0])}, a group without calibration rows, as "
                f"{len(unknown)} of {n} rows are; expected one of "
                f"{shown(self.names[:10].tolist(), 200)}. Calibrate with rows of it, or leave these "
                "rows out."
            )
        return codes


def rows_in_groups(n: int, groups: CalibrationGroups | None) -> str:
    """Return the number of calibration rows, and of their groups if there are any, as a text."""
    text = counted(n, "calibration row")
    if groups is not None:
        text += f" in {counted(len(groups.names), 'group')}"
    return text
