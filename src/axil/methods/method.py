"""Method: the base of the methods of `Explainer`.

A method checks its rows (`ExplainedRows`), asks the verified model for the answers batch by batch,
and joins these to one table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import numpy as np

from axil import inputs
from axil.adapters.contract import Model
from axil.aliases import ArrayLike, DataFrame, FeatureTable, LabelsLike, TableLike
from axil.arrays import AnyArray, IntArray
from axil.attribution import DERIVATIVES, Kind, Quantity, Source
from axil.errors import counted, warn
from axil.inputs.copies import owned_rows
from axil.machine.threads import Cache
from axil.output import page, tables
from axil.output.comparables import Beside
from axil.output.context import Account, Context
from axil.output.predictions import WeightedSums
from axil.output.records import state_of
from axil.output.shown_columns import columns_of
from axil.output.tables import Predicted
from axil.reductions import Whole, answer
from axil.reductions.reduction import Reduction, ReductionResult
from axil.reductions.whole import Gathered, joined
from axil.replay.queries import Combination, Offsets, QueryBatch
from axil.replay.verified_model import VerifiedModel

#: A `VerifiedModel` of a kind that has what the method needs. `Capabilities.require` checks it,
#: which a type checker cannot see.
AnyModel: TypeAlias = VerifiedModel
R = TypeVar("R", bound=ReductionResult)
LINE_BYTES = 8 * 8  # of a line while its table is made, besides those of the table itself


class Method:
    """The base of the methods of `Explainer`, which inherits all of them."""

    def __init__(self, model: VerifiedModel):
        self._model: AnyModel = model

    def _explained_rows(
        self, method: str, X: TableLike, init_score: ArrayLike | None = None
    ) -> ExplainedRows:
        """Check the rows of X, and return them with the model that answers a method.

        Raise if the model does not answer the method. Warn if the training rows had offsets in
        place of the initial prediction, and these rows come without any.
        """
        model = self._answering(method)
        if init_score is None and self._model.fit_offsets.replaced_initial:
            warn(
                f"This {self._model.adapter.library} model was fitted with offsets in place of "
                "its initial prediction, and X comes without any: predictions of X start from "
                "the initial prediction. Pass the offsets of X as init_score.",
                UserWarning,
            )
        return ExplainedRows(model, model.queries(X, init_score))

    def _answering(self, method: str) -> AnyModel:
        """Return the verified model that answers a method; raise if none does."""
        self._model.capabilities.require(method)
        return self._model.for_method(method)


def verified_model(explainer: Method) -> AnyModel:
    """Return the `VerifiedModel` of an explainer, for modules that need more than its methods."""
    return explainer._model


def warn_without_offsets(
    model: VerifiedModel, init_score: ArrayLike | None, rows: str, targets: str
) -> None:
    """Warn if rows with targets come without offsets although the training rows had some.

    Parameters
    ----------
    model : VerifiedModel
    init_score : array or None
        The offsets of the rows.
    rows, targets : str
        The names of the parameters of the rows and of their targets, for the message.
    """
    if init_score is None and model.fit_offsets.were_given:
        warn(
            f"This {model.adapter.library} model was fitted with offsets, and {rows} comes "
            f"without any: its predictions lack the offsets that are part of {targets}. Pass the "
            f"offsets of {rows} as init_score.",
            UserWarning,
        )


@dataclass(frozen=True, eq=False)
class ExplainedRows:
    """The rows that a method explains, and the verified model that explains them."""

    model: AnyModel
    queries: Any  #: `QueryBatch`, or for whole predictions a `Combination` of them

    def __len__(self) -> int:
        """Return the number of explained rows."""
        return len(self.queries)

    def names(self) -> list[str]:
        """Return the names of the columns."""
        names: list[str] = self.model.training.names(self.queries.rows)
        return names

    # -- answers -----------------------------------------------------------------------------------

    def answers(
        self,
        reduction: Reduction[R],
        lines: int,
        n_columns: int,
        columns: Sequence[Any] | None = None,
        source: Source | None = None,
        line_bytes: int = LINE_BYTES,
    ) -> Iterator[tuple[QueryBatch, R]]:
        """Yield batches of explained rows, each with its reduction over all training rows.

        The batches are so small that memory has room for the table of all rows too.

        Parameters
        ----------
        reduction : Reduction
        lines : int
            The lines of the table for each explained row and output.
        n_columns : int
            The columns of the table, without ``output``.
        columns : sequence, optional
            The values that the method brings along for each shard: groups, errors, masks.
        source : Source, optional
            The number that is reduced; by default that of the model.
        line_bytes : int
            The bytes of a line while its table is made, besides those of the table itself.
        """
        if source is None:
            source = self.model.source
        model = self.model.ready(source, len(self))
        lines = lines * model.shape[1]
        n_columns = n_columns + (model.names.outputs is not None)
        working_bytes = model.bytes_per_query(source) + line_bytes * lines
        size = tables.batch_size(model.budget, len(self), lines, n_columns, working_bytes)
        return answer(model, self.queries, source, reduction, size, columns)

    def table(
        self,
        answers: Iterator[tuple[QueryBatch, R]],
        make_columns: Callable[[QueryBatch, R], dict[str, Any]],
        note: str,
    ) -> DataFrame:
        """Return one table of all answers, with a note on its numbers.

        Parameters
        ----------
        answers : iterator of (QueryBatch, result)
            As `answers` yields them.
        make_columns : callable
            A function that returns the columns of one batch.
        note : str
            The note on the numbers of the table.
        """
        batch_columns = [make_columns(batch, result) for batch, result in answers]
        return tables.note(tables.concatenate(batch_columns, self.model.backend), note)

    # -- whole predictions -------------------------------------------------------------------------

    def whole(self, size: int, sparse: bool = False) -> Iterator[WeightedSums]:
        """Yield predictions as sums over all training rows, in batches of ``size``.

        Without explained rows yield one empty batch.
        """
        source = self.model.source
        model = self.model.ready(source, len(self))
        answers = answer(model, self.queries, source, Whole(sparse), size)
        n_done = 0
        for batch, effects in answers:
            batch_size = min(size, len(self) - n_done)
            if len(effects) < batch_size:
                # Workers of a cluster get fewer rows at a time.
                all_effects = chain([effects], (further for _, further in answers))
                effects = joined(all_effects, batch_size)
                batch = self.queries[n_done : n_done + batch_size]
            yield sums(self.model, source, batch, effects)
            n_done += batch_size

    def parts(self, more_bytes: int = 0) -> Iterator[WeightedSums]:
        """Yield predictions as sums over all training rows, in batches that memory allows.

        Each explained row takes ``more_bytes`` besides its effects.
        """
        return self.whole(self.size(more_bytes), self.model.weight_layout.is_sparse)

    def size(self, more_bytes: int = 0) -> int:
        """Return the size of a batch whose effects memory can hold.

        Each explained row takes ``more_bytes`` besides its effects.
        """
        model = self.model
        bytes_per_row = model.bytes_per_query(model.source, whole=True) + more_bytes
        size: int = model.budget.batch_size(bytes_per_row)
        return size

    # -- training rows -----------------------------------------------------------------------------

    def page_options(
        self, groups: LabelsLike | None, sigma: Any, options: dict[str, Any]
    ) -> page.Options:
        """Check the options of `to_html` before any work, and return the options of the page."""
        model = self.model
        group_codes = None
        if groups is not None:
            group_codes = model.training.gathered_group_codes(groups)
        context = Context(self.queries.rows, model.features, model.adapter.feature_names, None)
        page_options = page.as_options(
            model.shape, len(self), context, group_codes, sigma, **options
        )
        inputs.chosen_columns(page_options.columns, self.names())
        inputs.chosen_columns(page_options.hide, self.names(), "hide")
        return page_options

    def listing(self, beside: TableLike | None = None) -> Beside:
        """Return a listing of training rows for explained rows, with further columns of both."""
        model = self.model
        columns = columns_of(model.features, self.queries.rows, self.names(), beside)
        return Beside(columns, model.shape, model.backend, model.note(model.source.note))


def output_columns(name: str, labels: AnyArray, outputs: AnyArray | None) -> dict[str, Any]:
    """Return the first columns of a table with a line for each label and output.

    Parameters
    ----------
    name : str
        The name of the column of labels.
    labels : ndarray of shape (n,)
    outputs : ndarray of shape (K,) or None
        The names of the outputs; None for a single one, which has no column.
    """
    if outputs is None:
        return {name: np.repeat(labels, 1)}
    return {name: np.repeat(labels, len(outputs)), "output": np.tile(outputs, len(labels))}


def described(model: VerifiedModel, batch: QueryBatch | Combination, source: Source) -> Predicted:
    """Return the explained rows of a batch as tables show them, beside the numbers of a source."""
    has_link = model.has_link_of(source)
    meanings = {}
    if source is model.source or has_link:
        meanings = model.meant_by(batch)
    is_weighted = source.quantity is not Quantity.CONTRIBUTION
    return Predicted(
        batch.labels,
        model.names.of_tables,
        model.scale,
        meanings,
        is_weighted,
        model.names.class_names,
        has_link,
        is_sum=isinstance(batch, Combination),
    )


def take(explained: ExplainedRows, positions: IntArray) -> ExplainedRows:
    """Return some of the explained rows, by position."""
    batch = explained.queries
    chosen = replace(
        batch,
        rows=inputs.take_rows(batch.rows, positions),
        offsets=batch.offsets[positions],
        labels=batch.labels[positions],
        kept=Cache(),
        start=0,
    )
    return ExplainedRows(explained.model, chosen)


def sums(
    model: VerifiedModel, source: Source, batch: QueryBatch | Combination, effects: Gathered
) -> WeightedSums:
    """Return the predictions of a batch as sums over all training rows.

    Parameters
    ----------
    model : VerifiedModel
    source : Source
        The numbers of the training rows. Other numbers than those of the model are derivatives.
    batch : QueryBatch or Combination
        The n explained rows.
    effects : Gathered
        The effects of all training rows on them.
    """
    targets, index = model.training.gathered()
    is_of_model = source is model.source
    is_additive = model.kind is Kind.ADDITIVE and is_of_model
    kind = Kind.DERIVATIVE
    meanings = {}
    if is_of_model:
        kind = model.kind
    has_link = model.has_link_of(source)
    if not is_additive and (is_of_model or has_link):
        meanings = model.meant_by(batch)
    # Contributions are summed as they are, so that each counts once.
    factors = targets
    readable_targets = model.seen
    account = None
    if is_additive:
        factors = np.ones(model.shape)
        if model.seen is None:
            readable_targets = targets
        account = _account(model, batch)
    intercepts = effects.intercepts
    if model.names.outputs is None:
        intercepts = intercepts[:, 0]
        factors = factors[:, 0]
    if len(effects.parts) == 1:
        weights = effects.parts[0]
    else:
        weights = np.stack(effects.parts)
    return WeightedSums(
        weights=weights,
        intercepts=intercepts,
        targets=factors,
        index=index,
        query_index=batch.labels,
        kind=kind.value,
        outputs=model.names.outputs,
        backend=model.backend,
        n_threads=model.n_threads,
        context=_context(model, batch),
        scale=model.scale,
        seen=readable_targets,
        account=account,
        beside=meanings,
        classes=model.names.classes,
        class_names=model.names.class_names,
        has_link=has_link,
        note=model.note(source.note),
    )


def _context(model: VerifiedModel, batch: QueryBatch | Combination) -> Context:
    """Return the features of both sides, and the model's own predictions."""
    active_set = ""
    verification = model.verification
    if verification is not None and verification.active_set is not None:
        active_set = str(verification.active_set)
    # Without verification a model of exact weights has not been asked for its predictions.
    predictions = None
    if verification is not None or model.kind is not Kind.EXACT:
        predictions = batch.predictions
    rows = None
    if batch.rows is not None:
        rows = owned_rows(batch.rows)
    return Context(
        rows,
        model.training.table,
        model.adapter.feature_names,
        predictions,
        active_set,
        state=partial(state_of, model, "to_json"),
    )


def _account(model: VerifiedModel, batch: QueryBatch | Combination) -> Account:
    """Return the meaning of additive scores, and a function that computes their derivatives.

    Sums of scores have no meaning behind the link.
    """
    if isinstance(batch, Combination):
        return Account("", None, partial(_derived_sums, model), batch)
    # The means are those of the model's own scores: where the link is steep, the rounding of scores
    # that were added up would show.
    meanings = model.meant_by(batch)
    meaning, means = next(iter(meanings.items()), ("", None))
    return Account(meaning, means, partial(_derived, model, batch.adapter), batch.offsets)


def _derived(model: AnyModel, adapter: Model, X: FeatureTable, offsets: Offsets) -> WeightedSums:
    """Return the derivatives of the scores of X by the training targets.

    This is a function of the module and not a closure, because explanations are pickled.
    """
    n = X.shape[0]
    model.capabilities.require("weights")
    subject = f"The derivatives of {counted(n, 'prediction')} by {model.shape[0]} training rows"
    n_bytes = n * model.bytes_per_query(DERIVATIVES, whole=True)
    model.budget.require(n_bytes, subject, "Take fewer predictions: explanation[:10].")
    queries = QueryBatch(
        adapter, X, offsets, np.arange(n), model.n_threads, reflection=model.reflection
    )
    ((batch, effects),) = answer(model, queries, DERIVATIVES, Whole(), max(n, 1))
    return sums(model, DERIVATIVES, batch, effects)


def _derived_sums(model: AnyModel, X: None, combination: Combination) -> WeightedSums:
    """Return the derivatives of sums of scores by the training targets."""
    model.capabilities.require("weights")
    size = max(len(combination), 1)
    ((batch, effects),) = answer(model, combination, DERIVATIVES, Whole(), size)
    return sums(model, DERIVATIVES, batch, effects)
