"""without: the predictions if some training rows were deleted, all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from axil.aliases import ArrayLike, DataFrame, TableLike
from axil.arrays import AnyArray, FloatArray
from axil.errors import SplitsWarning, warn
from axil.methods.method import Method
from axil.methods.removal import warn_emptied
from axil.output import tables
from axil.replay.queries import QueryBatch
from axil.replay.verified_model import VerifiedModel

#: Of the weight of a fit: if deleted rows have more, a retrained model would have other splits.
MOST_SHARE = 0.1


class Without(Method):
    """Provide `Explainer.without`."""

    def without(
        self, X: TableLike, rows: Sequence[Any], *, init_score: ArrayLike | None = None
    ) -> DataFrame:
        """Predict X as if these training rows, by label, were deleted, all of them at once.

        The answer is exact with the tree structure fixed: the rows are gone, and every leaf value
        is computed again by the rules of the library for the rows that remain. So class weights
        that it counts from labels ("balanced", is_unbalance, auto_class_weights), CatBoost's
        l2_leaf_reg times the mean weight, ranks, clips and bounds follow these rows. Splits,
        learning rates, sampled rows, dropped trees and the rows' own weights are fixed.
        ``refit(drop=rows)`` writes the same fit as a model. The effects of single rows (`removal`)
        do not add up to that of a set.

        If a leaf of boosted trees loses all its rows, it adds nothing. In a tree, a forest or
        bagged trees it has the value of its nearest ancestor that still has rows of the tree's
        sample; a tree whose whole sample is deleted predicts the mean of all rows left. A mean of
        other models is over those that still have rows.

        The table has the columns query, before, after, change, and output if there are several. For
        an additive explainer it also has the probability (or mean) before and after. If the model
        was fitted to transformed targets, before, after and change are in the targets' own units.
        The cost is two replays, O(T N), whatever the number of rows. axil warns with a
        `SplitsWarning` if the rows have more than a tenth of the weight of the fit. A pandas frame
        has the number of deleted rows in ``attrs["deleted"]``. If leaves of averaged trees lose all
        their rows, ``attrs["emptied"]`` has the number of these leaves.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        rows : sequence of labels, or of n_train truth values
            The training rows to delete: by label, where all rows that share a label are deleted, or
            marked with True, such as ``branch == "North"``. Over a Dask collection labels, or a
            Dask Series of truth values in the partitions of X_train.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> list(explainer.without(X.head(1), [0, 7, 30]).columns)
        ['query', 'before', 'after', 'change']
        """
        explained = self._explained_rows("without", X, init_score)
        model = explained.model
        positions = model.training.positions(rows)
        warn_of_splits(model.deletions.share_of(positions))
        predictions = model.deletions.without(explained.queries, positions)
        before = predictions.before
        after = predictions.after
        warn_emptied(int(np.isnan(after).sum()), after.size)
        columns = change_columns(model, explained.queries, before, after)
        # Over partitions the positions are arrays, one per partition.
        counts = {"deleted": int(sum(map(np.size, positions)))}
        if predictions.emptied:
            counts["emptied"] = predictions.emptied
        return tables.note(
            tables.make(columns, model.backend), model.deletions.replay_note, **counts
        )


def warn_of_splits(share: float) -> None:
    """Warn if deleted rows have so much weight in a fit that retraining would change its splits.

    Parameters
    ----------
    share : float
        The share of the weight of the fit that the deleted rows have.
    """
    if share > MOST_SHARE:
        warn(
            f"The rows deleted hold {100 * share:.0f} % of the weight of the fit. The answer keeps "
            "the splits that they helped to choose; a retrained model would have others and may "
            "predict something else. axil.stability shows how far retraining moves predictions.",
            SplitsWarning,
        )


def change_columns(
    model: VerifiedModel, queries: QueryBatch, before: FloatArray, after: FloatArray
) -> dict[str, AnyArray]:
    """Return the columns query, (output,) before, after and change in the targets' own units.

    For additive models also return what the scores stand for, before and after.

    Parameters
    ----------
    model : VerifiedModel
    queries : QueryBatch
        The n explained rows.
    before, after : ndarray of shape (n, K)
        Their predictions on the scale of the fit.
    """
    columns = tables.label_columns(queries.labels, model.names.of_tables, "before", np.zeros(1))
    meanings = {"before": model.meant(before), "after": model.meant(after)}
    if not model.scale.is_identity:
        before = model.scale.inverse(before)
        after = model.scale.inverse(after)
    columns |= {
        "before": before.ravel(),
        "after": after.ravel(),
        "change": (after - before).ravel(),
    }
    for time, means_by_name in meanings.items():
        for name, means in means_by_name.items():
            columns[f"{name} {time}"] = means.ravel()
    return columns
