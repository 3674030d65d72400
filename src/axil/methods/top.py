"""top: the training rows of largest weight, or contribution, in each prediction."""

from __future__ import annotations

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, Ranking, TableLike
from axil.arrays import AnyArray
from axil.attribution import DERIVATIVES, Kind
from axil.errors import InputError
from axil.methods.method import ExplainedRows, Method, described
from axil.methods.similar import compared
from axil.output import tables
from axil.output.comparables import as_per_class, listed
from axil.reductions import Best, TopRows
from axil.reductions.choice import Choice
from axil.replay.queries import QueryBatch


class Top(Method):
    """Provide `Explainer.top`."""

    def top(
        self,
        X: TableLike,
        k: int = 10,
        *,
        by: Ranking | None = None,
        init_score: ArrayLike | None = None,
        per_class: bool = True,
    ) -> DataFrame:
        """Return the table of `Explanation.top`, for any number of rows of X.

        No array of shape (n, n_train) is held.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        k : int
            How many training rows per prediction.
        by : "weight" or "contribution", optional
            The numbers whose absolute values rank the training rows. The default is weights, and
            contributions for an additive explainer.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.
        per_class : bool, default True
            Whether each class has a line of its own. False is for models whose classes share their
            weights, such as forests: each training row has one line, with the predicted class and
            its probability, and with the name of the row's own class as target.
        """
        tables.check_by(by)
        k = inputs.as_count(k, "k")
        explained = self._explained_rows("top", X, init_score)
        model = explained.model
        if not as_per_class(
            per_class, model.names.classes is not None and model.weight_layout.is_shared
        ):
            return _by_row(explained, k, by)
        source = model.source
        if by == "weight" and model.kind is Kind.ADDITIVE:
            model.capabilities.require("weights")
            source = DERIVATIVES
        lines = min(k, model.shape[0])
        table_bytes = tables.bytes_of(len(explained) * lines * model.shape[1], 9)
        n_bytes = model.budget.available - table_bytes
        top_rows = TopRows(k, by or "weight", len(explained), n_bytes, model.n_threads)
        answers = explained.answers(top_rows, lines, 8, source=source, line_bytes=12 * 8)

        def make_columns(batch: QueryBatch, best: Best) -> dict[str, AnyArray]:
            return tables.top_columns(described(model, batch, source), best)

        return explained.table(answers, make_columns, model.note(source.note))


def _by_row(explained: ExplainedRows, k: int, by: str | None) -> DataFrame:
    """Return the table with one line per training row, for classes that share their weights."""
    if by == "contribution":
        raise InputError(
            "per_class=False lists rows by weight, which all classes share. "
            'Leave by="contribution" out.'
        )
    model = explained.model
    choice = Choice(k, n_threads=model.n_threads)
    batch_columns = []
    for predicted, comparison in compared(explained, choice, None, False, 8):
        columns = listed(predicted, comparison, per_class=False).columns
        for name in ("share", "position", "asked"):  # columns of similar alone
            del columns[name]
        batch_columns.append(columns)
    frame = tables.concatenate(batch_columns, model.backend)
    return tables.note(frame, model.note(model.source.note))
