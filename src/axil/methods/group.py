"""group: how much of each prediction comes from each group of training rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, LabelsLike, TableLike
from axil.arrays import FloatArray
from axil.attribution import Quantity, Shard
from axil.methods.method import Method
from axil.output import tables
from axil.reductions import Groups
from axil.reductions.groups import Grouped, GroupFold
from axil.replay.queries import QueryBatch


class Group(Method):
    """Provide `Explainer.group`."""

    def group(
        self,
        X: TableLike,
        groups: LabelsLike,
        *,
        min_group_size: int = 1,
        init_score: ArrayLike | None = None,
    ) -> DataFrame:
        """Return the table of `Explanation.group`, for any number of rows of X.

        No array of shape (n, n_train) is held.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        groups : sequence of length n_train, or str
            A label for each training row: a year, a region, a source; or the name of a column of
            X_train. Over a Dask collection a Dask Series or Array in the partitions of X_train.
        min_group_size : int, default 1
            Groups of fewer training rows are put together in one, for tables that other people see.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.
        """
        least = inputs.as_count(min_group_size, "min_group_size")
        explained = self._explained_rows("group", X, init_score)
        model = explained.model
        coded = model.training.group_codes(groups)
        weighted = model.source.quantity is not Quantity.CONTRIBUTION
        means = None
        if weighted and model.scale.is_log:
            sums_of_targets = model.shards.total(_target_sums, None)
            means = sums_of_targets / model.shape[0]

        fold = None
        if least > 1:
            fold = GroupFold.of(*model.training.gathered_group_codes(groups), least)

        def columns(batch: QueryBatch, sums: Grouped) -> dict[str, Any]:
            if fold is not None:
                sums = sums.folded(fold)
            return tables.group_columns(
                batch.labels, model.names.of_tables, model.scale, sums, weighted, means
            )

        parts = explained.answers(Groups(), model.training.most_groups(coded), 5, coded)
        return explained.table(parts, columns, model.note(model.source.note))


def _target_sums(shard: Shard, _: object, column: object) -> FloatArray:
    """Return the sums of the targets of a shard, (K,)."""
    return np.asarray(shard.targets.sum(axis=0))
