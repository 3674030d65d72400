"""Concentration: measures of each prediction's weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, TableLike
from axil.arrays import FloatArray
from axil.methods.method import LINE_BYTES, ExplainedRows, Method
from axil.output import tables
from axil.output.portfolio import Portfolio
from axil.output.predictions import WeightedSums


class Concentration(Method):
    """Provide `Explainer.concentration`."""

    def concentration(
        self,
        X: TableLike,
        *,
        shares: Sequence[float] = (0.5, 0.8, 0.95),
        top: float = 0.05,
        init_score: ArrayLike | None = None,
    ) -> DataFrame:
        """Return how concentrated the weights of each prediction are.

        The columns are those of `Explanation.concentration`: how many training rows each prediction
        rests on, how much of it is negative, and how its weights turn over. The rows of X are taken
        in their order. If you sort them by date, turnover is the weight that each forecast moved
        between training rows since the forecast before. No (n, n_train) array is held.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        shares : sequence of float
            Shares of ``sum |weight|``, from 0 to 1: a column for each has how many rows hold it.
        top : float, default 0.05
            The share of the training rows that ``top_share`` is about, above 0 and up to 1; rounded
            up to whole rows.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> table = explainer.concentration(X.head(3), shares=[0.5])
        >>> list(table.columns)[-4:]
        ['top_share', 'turnover', 'fit', 'asymmetry']
        >>> bool((abs(table["net"] - 1) < 1e-9).all())  # weights of this model sum to one
        True
        """
        share_levels = inputs.as_shares(shares)
        share = inputs.as_share(top, "top")
        explained = self._explained_rows("concentration", X, init_score)
        model = explained.model
        n_outputs = explained.model.shape[1]
        working = model.bytes_per_query(model.source, whole=True) + LINE_BYTES * n_outputs
        n_columns = 10 + len(share_levels) + (model.names.outputs is not None)
        size = tables.batch_size(model.budget, len(explained), n_outputs, n_columns, working)
        # The portfolio remembers the last prediction of a batch, for the turnover of the next one.
        portfolio = Portfolio(share, share_levels)
        columns = [
            portfolio.columns(sums) for sums in explained.whole(size, model.weight_layout.is_sparse)
        ]
        frame = tables.concatenate(columns, model.backend)
        return tables.note(frame, model.note(model.source.note))


def measured(explained: ExplainedRows, measure: Callable[[WeightedSums], FloatArray]) -> FloatArray:
    """Return a measure of the weights of each prediction, (n,) or (n, K)."""
    batches = [np.atleast_2d(measure(sums)) for sums in explained.parts()]
    values: FloatArray = np.concatenate(batches, axis=1)
    if len(values) == 1:
        return np.asarray(values[0])
    return np.asarray(values.T)
