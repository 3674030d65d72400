"""top: the training rows of largest weight, or contribution, in each prediction."""

from __future__ import annotations

from typing import Any

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, TableLike
from axil.attribution import DERIVATIVES, Kind, Quantity
from axil.errors import InputError
from axil.methods.question import ExplainedRows, Method
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
        by: str | None = None,
        init_score: ArrayLike | None = None,
        *,
        per_class: bool = True,
    ) -> DataFrame:
        """The table of `Explanation.top`, for any number of rows of X: never holds an (n, n_train) array.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        k : int
            How many training rows per prediction.
        by : "weight" or "contribution", optional
            What the largest are the largest of, in absolute value; by default weights, of an
            additive explainer contributions.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.
        per_class : bool, default True
            A line for each class. False, where classes share their weights as in forests: one line
            per training row, with the class predicted and its probability, and the row's own class
            by name as target.
        """
        tables.check_by(by)
        k = inputs.as_count(k, "k")
        explained = self._explained_rows("top", X, init_score)
        model = explained.model
        if not as_per_class(per_class, model.classes is not None and model.shares_weights):
            return _by_row(explained, k, by)
        if by == "weight" and model.kind is Kind.ADDITIVE:
            model.capabilities.require("weights")
        if by == "weight" and model.kind is Kind.ADDITIVE:
            source = DERIVATIVES
        else:
            source = model.source
        lines = min(k, model.shape[0])
        room = model.budget.available - tables.bytes_of(len(explained) * lines * model.shape[1], 9)
        want = TopRows(k, by or "weight", len(explained), room, model.n_threads)
        parts = explained.answers(want, lines, 8, source=source, line_bytes=12 * 8)
        is_push = source.quantity is Quantity.CONTRIBUTION

        def make(batch: QueryBatch, best: Best) -> dict[str, Any]:
            if source is model.source:
                meant = model.meant_by(batch)
            else:
                meant = {}
            return tables.top_columns(
                batch.labels, model.outputs, model.scale, best, meant, not is_push
            )

        return explained.table(parts, make, model.note(source.note))


def _by_row(explained: ExplainedRows, k: int, by: str | None) -> Any:
    """The table with one line per training row, where classes share their weights."""
    if by == "contribution":
        raise InputError(
            'per_class=False lists rows by weight, which all classes share. Leave by="contribution" out.'
        )
    choice = Choice(k, n_threads=explained.model.n_threads)
    parts = compared(explained, choice, None, False, 8)
    made = [listed(about, found, per_class=False).columns for about, found in parts]
    for part in made:
        for name in ("share", "position", "asked"):
            del part[name]
    return tables.note(
        tables.concatenate(made, explained.model.backend),
        explained.model.note(explained.model.source.note),
    )
