"""group: how much of each prediction comes from each group of training rows."""

from __future__ import annotations

from typing import Any

from axil.aliases import ArrayLike, DataFrame, LabelsLike, TableLike
from axil.attribution import Quantity
from axil.methods.method import Method
from axil.output import tables
from axil.reductions import Groups
from axil.reductions.groups import Grouped
from axil.replay.queries import QueryBatch


class Group(Method):
    """Provide `Explainer.group`."""

    def group(
        self, X: TableLike, groups: LabelsLike, *, init_score: ArrayLike | None = None
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
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.
        """
        explained = self._explained_rows("group", X, init_score)
        model = explained.model
        coded = model.training.group_codes(groups)
        weighted = model.source.quantity is not Quantity.CONTRIBUTION

        def columns(batch: QueryBatch, sums: Grouped) -> dict[str, Any]:
            return tables.group_columns(
                batch.labels, model.names.of_tables, model.scale, sums, weighted
            )

        parts = explained.answers(Groups(), model.training.most_groups(coded), 5, coded)
        return explained.table(parts, columns, model.note(model.source.note))
