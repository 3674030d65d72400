"""Question: what every question has: a proven model, rows to ask about, whole predictions, and tables made batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.aliases import DataFrame
from axil.attribution import DERIVATIVES, Kind, Source
from axil.errors import counted, warn
from axil.inputs.copies import owned_rows
from axil.output import page, tables
from axil.output.comparables import Beside
from axil.output.context import Account, Context
from axil.output.predictions import WeightedSums
from axil.output.shown_columns import columns_of
from axil.reductions import Whole, answer
from axil.reductions.whole import Gathered, joined
from axil.replay.queries import Combination, Offsets, QueryBatch
from axil.replay.verified_model import VerifiedModel

AnyModel: TypeAlias = Any  #: a `VerifiedModel`, of a kind that has what the method asks for
LINE_BYTES = 8 * 8  # of a line while its table is made, besides those of the table itself


class Question:
    """The base of all questions; `Explainer` is a list of them."""

    def __init__(self, model: VerifiedModel):
        self._model: AnyModel = model

    def _ask(self, question: str, X: Any, init_score: Any = None) -> Asked:
        """The rows of X, checked, and the model, which must have an answer to the question."""
        model = self._answering(question)
        if init_score is None and self._model.starts_elsewhere:
            warn(
                f"Training rows of this {self._model.adapter.library} model started from offsets, not from its base, and X "
                "comes without any: its predictions start from the base. Pass the offsets of X as init_score.",
                UserWarning,
            )
        return Asked(model, model.queries(X, init_score))

    def _answering(self, method: str) -> AnyModel:
        """Return the verified model that answers a method; raise if none does."""
        self._model.capabilities.require(method)
        return self._model.for_method(method)


def verified_model(explainer: Question) -> Any:
    """Return the `VerifiedModel` of an explainer, for modules that need more than its public methods."""
    return explainer._model


def warn_without_offsets(model: Any, init_score: Any, rows: str, targets: str) -> None:
    """Warn where rows with targets come without offsets, and the training rows had some."""
    if init_score is None and model.had_offsets:
        warn(
            f"Training rows of this {model.adapter.library} model started from offsets, and {rows} comes without any: its "
            f"predictions leave out what {targets} includes. Pass the offsets of {rows} as init_score.",
            UserWarning,
        )


@dataclass(frozen=True, eq=False)
class Asked:
    """Rows to ask a proven model about."""

    model: Any
    queries: Any  #: `QueryBatch`, or for whole predictions a `Combination` of them

    def __len__(self) -> int:
        return len(self.queries)

    def names(self) -> list[str]:
        """The names of the columns."""
        return self.model.column_names(self.queries.rows)  # type: ignore[no-any-return]

    # -- answers -----------------------------------------------------------------------------------

    def answers(
        self,
        want: Any,
        lines: int,
        n_columns: int,
        columns: Sequence[Any] | None = None,
        source: Source | None = None,
        line_bytes: int = LINE_BYTES,
    ) -> Iterator[tuple[QueryBatch, Any]]:
        """Answers in batches that leave room for a table of these lines per query and output, with these columns."""
        if source is None:
            own = self.model.source
        else:
            own = source
        model = self.model.ready(own, len(self))
        lines = lines * model.shape[1]
        n_columns = n_columns + (model.outputs is not None)
        working = model.bytes_per_query(own) + line_bytes * lines
        size = tables.batch_size(model.budget, len(self), lines, n_columns, working)
        return answer(model, self.queries, own, want, size, columns)

    def table(
        self,
        parts: Iterator[tuple[QueryBatch, Any]],
        make: Callable[[QueryBatch, Any], dict[str, Any]],
        note: str,
    ) -> DataFrame:
        """One frame of what ``make`` makes of each batch, with a note on its numbers."""
        made = [make(batch, found) for batch, found in parts]
        return tables.note(tables.concatenate(made, self.model.backend), note)

    # -- whole predictions -------------------------------------------------------------------------

    def whole(self, size: int, sparse: bool = False) -> Iterator[WeightedSums]:
        """Predictions as sums over all training rows, in batches of ``size``; one empty batch of no queries."""
        model = self.model
        own = self.model.source
        answers = answer(model.ready(own, len(self)), self.queries, own, Whole(sparse), size)
        done = 0
        for batch, found in answers:
            wanted = min(size, len(self) - done)
            if len(found) < wanted:  # workers are asked about fewer queries at a time
                found = joined(chain([found], (more for _, more in answers)), wanted)
                batch = self.queries[done : done + wanted]
            yield sums(model, own, batch, found)
            done += wanted

    def parts(self, more_bytes: int = 0) -> Iterator[WeightedSums]:
        """Predictions as sums over all training rows, in batches that memory allows with ``more_bytes`` more for each query."""
        return self.whole(self.size(more_bytes), self.model.is_sparse)

    def size(self, more_bytes: int = 0) -> int:
        """The number of queries to ask at a time where all their effects are held, and each takes ``more_bytes`` more."""
        model = self.model
        found: int = model.budget.batch_size(
            model.bytes_per_query(model.source, whole=True) + more_bytes
        )
        return found

    # -- training rows -----------------------------------------------------------------------------

    def page_options(self, groups: Any, sigma: Any, options: dict[str, Any]) -> page.Options:
        """How a page of these rows is made, from the options of `to_html`; columns are refused before any work."""
        model = self.model
        if groups is None:
            known = None
        else:
            known = model.gathered_groups(groups)
        context = Context(self.queries.rows, model.features, model.adapter.feature_names, None)
        found = page.as_options(model.shape, len(self), context, known, sigma, **options)
        inputs.chosen_columns(found.columns, self.names())
        return found

    def listing(self, beside: Any = None) -> Beside:
        """The training rows and those to list them beside, with further columns of both."""
        model = self.model
        known = columns_of(model.features, self.queries.rows, self.names(), beside)
        return Beside(known, model.shape, model.backend, model.note(model.source.note))


def output_columns(name: str, labels: NDArray[Any], outputs: NDArray[Any] | None) -> dict[str, Any]:
    """The first columns of a table with a line for each label, under this name, and output."""
    columns: dict[str, Any] = {name: np.repeat(labels, 1 if outputs is None else len(outputs))}
    if outputs is None:
        return columns
    return columns | {"output": np.tile(outputs, len(labels))}


def take(asked: Asked, rows: Any) -> Asked:
    """Some of the rows, by position."""
    offsets = asked.queries.offsets
    own = inputs.take_rows(asked.queries.rows, rows)
    picked = QueryBatch(
        asked.queries.adapter,
        own,
        offsets[rows],
        asked.queries.labels[rows],
        asked.queries.n_threads,
    )
    return Asked(asked.model, picked)


def sums(
    model: Any, source: Source, batch: QueryBatch | Combination, found: Gathered
) -> WeightedSums:
    """The predictions of a batch as sums."""
    single, (targets, index) = model.outputs is None, model.gathered
    additive = model.kind is Kind.ADDITIVE and source is model.source
    if additive:
        counted_as = np.ones_like(targets)
    else:
        counted_as = targets
    return WeightedSums(
        weights=found.parts[0] if len(found.parts) == 1 else np.stack(found.parts),
        intercepts=found.intercepts[:, 0] if single else found.intercepts,
        targets=counted_as[:, 0] if single else counted_as,
        index=index,
        query_index=batch.labels,
        kind=(model.kind if source is model.source else Kind.DERIVATIVE).value,
        outputs=model.outputs,
        backend=model.backend,
        n_threads=model.n_threads,
        context=_context(model, batch),
        scale=model.scale,
        seen=targets if additive else model.seen,
        account=_account(model, batch) if additive else None,
        beside=model.meant_by(batch) if source is model.source and not additive else {},
        classes=model.classes,
        note=model.note(source.note),
    )


def _context(model: Any, batch: QueryBatch | Combination) -> Context:
    if getattr(model.verification, "held", None) is None:
        held = ""
    else:
        held = str(model.verification.held)
    if model.verification is None and model.kind is Kind.EXACT:
        own = None
    else:
        own = batch.predictions
    if batch.rows is None:
        rows = None
    else:
        rows = owned_rows(batch.rows)
    return Context(rows, model.table, model.adapter.feature_names, own, held)


def _account(model: Any, batch: QueryBatch | Combination) -> Account:
    """Return the account of contributions: the meaning of scores, and derivatives on request.

    Sums of scores have no meaning behind the link.
    """
    if isinstance(batch, Combination):
        return Account("", None, partial(_derived_sums, model), batch)
    meant = model.meant_by(batch)  # of the model's own scores: a curve may be steep
    meaning, means = next(iter(meant.items()), ("", None))
    return Account(meaning, means, partial(_derived, model, batch.adapter), batch.offsets)


def _derived(model: Any, adapter: Any, X: Any, offsets: Offsets) -> WeightedSums:
    """The derivatives of the scores of X by the targets. No closure has them: explanations are pickled."""
    n = X.shape[0]
    model.capabilities.require("weights")
    what = f"The derivatives of {counted(n, 'prediction')} by {model.shape[0]} training rows"
    needed = n * model.bytes_per_query(DERIVATIVES, whole=True)
    model.budget.require(needed, what, "Take fewer predictions: explanation[:10].")
    queries = QueryBatch(adapter, X, offsets, np.arange(n), model.n_threads)
    ((own, found),) = answer(model, queries, DERIVATIVES, Whole(), max(n, 1))
    return sums(model, DERIVATIVES, own, found)


def _derived_sums(model: Any, X: None, asked: Combination) -> WeightedSums:
    """The derivatives of sums of scores by the targets."""
    model.capabilities.require("weights")
    ((own, found),) = answer(model, asked, DERIVATIVES, Whole(), max(len(asked), 1))
    return sums(model, DERIVATIVES, own, found)
