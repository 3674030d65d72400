"""Groups of calibration rows by their labels, so that each group has its coverage.

This is Mondrian conformal prediction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from axil import inputs
from axil.aliases import FeatureTable, LabelsLike
from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.errors import InputError, counted, shown
from axil.inputs.codes import numbered
from axil.methods.intervals.pooling import PoolNearness, nearest_pools, pools_of
from axil.replay.queries import QueryBatch
from axil.replay.verified_model import VerifiedModel


@dataclass(frozen=True, eq=False)
class CalibrationGroups:
    """The groups of n calibration rows."""

    column: str | None  #: of the features; None: labels were given
    names: AnyArray  #: (G,) the labels
    codes: IntArray  #: (n,) the place of each row's label among them
    pooling: Pooling | None = None  #: None: each group is calibrated by its own rows

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

    def pooled(self, least: int, nearness: PoolNearness) -> CalibrationGroups:
        """Return these groups, with those of fewer calibration rows in pools of nearest groups."""
        pools = pools_of(self.codes, len(self.names), least, nearness)
        centres = nearness.centres(pools[self.codes], int(pools.max()) + 1)
        return replace(self, pooling=Pooling(pools, nearness, centres))

    @property
    def pools(self) -> IntArray:
        """The pool of each group, (G,); without pooling each group is one."""
        if self.pooling is None:
            return np.arange(len(self.names))
        return self.pooling.pools

    def rows_of(self, pool: int) -> BoolArray:
        """Return which calibration rows are of a pool, (n,)."""
        return np.asarray(self.pools[self.codes] == pool)

    def pool_name(self, pool: int) -> str:
        """Return the labels of the groups of a pool as a text."""
        return ", ".join(str(name) for name in inputs.as_list(self.names[self.pools == pool]))

    def table(self) -> dict[str, AnyArray]:
        """Return the columns of a table with a line for each group."""
        rows = np.bincount(self.codes, minlength=len(self.names))
        pools = self.pools
        pool_texts = np.empty(len(self.names), dtype=object)
        names = [str(name) for name in inputs.as_list(self.names)]
        for group, pool in enumerate(pools):
            members = np.flatnonzero(pools == pool).tolist()
            pool_texts[group] = ", ".join(names[member] for member in members if member != group)
        return {
            "group": self.names,
            "rows": rows,
            "pool_rows": np.bincount(pools, rows).astype(np.int64)[pools],
            "pooled_with": pool_texts,
        }

    def pools_of_queries(self, queries: QueryBatch, groups: LabelsLike | None) -> IntArray:
        """Return the pool of each explained row, (m,).

        Rows of a group without calibration rows are in the nearest pool. Without pooling they raise
        an `InputError`.
        """
        codes, labels = self.codes_of_queries(queries, groups)
        is_unknown = codes < 0
        pools = self.pools[codes]
        if not is_unknown.any():
            return pools
        if self.pooling is not None:
            rows = np.flatnonzero(is_unknown)
            pools[rows] = self.pooling.nearest(
                inputs.take_rows(queries.rows, rows), queries.predictions[rows]
            )
            is_unknown = pools < 0
        if is_unknown.any():
            unknown = labels.astype(object)[is_unknown]
            raise InputError(
                f"groups holds {shown(unknown[0])}, a group without calibration rows, as "
                f"{len(unknown)} of {len(codes)} rows are; expected one of "
                f"{shown(self.names[:10].tolist(), 200)}. Calibrate with rows of it, leave these "
                "rows out, or pool groups: calibrate(..., min_group_size=100)."
            )
        return pools

    def codes_of_queries(
        self, queries: QueryBatch, groups: LabelsLike | None
    ) -> tuple[IntArray, AnyArray]:
        """Return the place of each explained row's label among the names, and its label, (m,).

        The place is -1 for a label that no calibration row has.
        """
        n = len(queries)
        if groups is None:
            groups = self.column
        if groups is None:
            raise InputError(
                f"calibrate was given a label for each calibration row, so these {n} rows need "
                "theirs. Pass groups= to interval, quantiles, cdf, std, sample or crps; or "
                "calibrate with the name of a column, which is read from X itself."
            )
        feature_names = queries.adapter.feature_names
        values = inputs.row_values(groups, queries.rows, feature_names, "groups", "predicted")
        labels = inputs.as_labels(values, n, "groups", "predicted")
        all_labels = np.append(self.names.astype(object), labels.astype(object))
        label_codes, distinct_labels = numbered(all_labels)
        place = np.full(len(distinct_labels), -1)
        place[label_codes[: len(self.names)]] = np.arange(len(self.names))
        return place[label_codes[len(self.names) :]], labels


@dataclass(frozen=True, eq=False)
class Pooling:
    """The pools of groups, and what tells which of them is nearest to a row."""

    pools: IntArray  #: (G,) the pool of each group
    nearness: PoolNearness
    centres: FloatArray  #: (P, p)

    def nearest(self, X: FeatureTable, predictions: FloatArray) -> IntArray:
        """Return the nearest pool of each row, (m,); -1 for a row without a place."""
        return nearest_pools(self.nearness.points(X, predictions), self.centres)


def rows_in_groups(n: int, groups: CalibrationGroups | None) -> str:
    """Return the number of calibration rows, and of their groups if there are any, as a text."""
    text = counted(n, "calibration row")
    if groups is not None:
        text += f" in {counted(len(groups.names), 'group')}"
        n_pools = len(np.unique(groups.pools))
        if n_pools < len(groups.names):
            text += f", pooled to {n_pools}"
    return text
