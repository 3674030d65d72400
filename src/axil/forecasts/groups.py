"""Groups of training rows by the calendar or by series, and what they count for forecasts."""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from axil.aliases import ArrayLike, DataFrame, Series
from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError, shown
from axil.explanation import Explanation
from axil.forecasts.readers.contract import TargetRows
from axil.inputs.libraries import needed_pandas

TimeGroups: TypeAlias = Literal["year", "quarter", "month", "series"]


def as_groups(groups: TimeGroups | ArrayLike, rows: TargetRows) -> AnyArray:
    """Return the group of each training row, (N,): its year, quarter, month, series or label."""
    if not isinstance(groups, str):
        labels = np.asarray(groups)
        if labels.shape != rows.y.shape:
            raise InputError(
                f"groups has shape {labels.shape}; expected a label for each of the {len(rows.y)} "
                "training rows."
            )
        return labels
    if groups == "series":
        return rows.series
    if groups in ("year", "quarter", "month"):
        dates = needed_pandas("Groups by date").Index(rows.dates)
        if dates.dtype.kind != "M" and not hasattr(dates, groups):
            raise InputError(
                f"groups is {groups!r}, and the steps of the data are no dates, such as "
                f"{shown(rows.dates[0])}. Pass a label for each of the {len(rows.y)} training rows."
            )
        return np.asarray(getattr(dates, groups))
    raise InputError(
        f'groups is {groups!r}; expected "year", "quarter", "month", "series", or a label for '
        "each row."
    )


def units_of_groups(groups: AnyArray, row_units: FloatArray) -> Series:
    """Return the unit of the rows of each group; nan if they have several."""
    units = needed_pandas("Groups of rows").Series(row_units)
    units_by_group = units.groupby(groups)
    return units_by_group.first().where(units_by_group.nunique() == 1)


def shares_of_groups(explanation: Explanation, groups: AnyArray) -> DataFrame:
    """Return the share of each group in the absolute weights, by forecast and group, (n, G).

    An additive explanation has absolute contributions instead.
    """
    if explanation.kind == "additive":
        sizes = np.abs(explanation.contributions)
    else:
        sizes = np.abs(explanation.weights)
    sums = needed_pandas("Groups of rows").DataFrame(sizes.T).groupby(groups).sum()
    return (sums / sums.sum()).T
