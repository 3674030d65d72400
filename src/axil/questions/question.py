"""Question: what every question has: a proven model, rows to ask about, and tables made batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.effects import Source, Whole, answer
from axil.effects.whole import joined
from axil.output import tables
from axil.output.columns import columns_of
from axil.output.predictions import WeightedSums
from axil.output.similar import Beside
from axil.questions.whole import sums
from axil.replay.model import Proven
from axil.replay.queries import Queries

LINE_BYTES = 8 * 8  # of a line while its table is made, besides those of the table itself


class Question:
    """The base of all questions; `Explainer` is a list of them."""

    def __init__(self, model: Proven):
        self._model: Any = model  # `Proven`, of a kind that has what the question asks for

    def _ask(self, question: str, X: Any, init_score: Any = None) -> Asked:
        """The rows of X, checked, and the model, which must have an answer to the question."""
        self._model.can(question)
        return Asked(self._model, self._model.queries(X, init_score))


@dataclass(frozen=True, eq=False)
class Asked:
    """Rows to ask a proven model about."""

    model: Any
    queries: Any  #: `Queries`, or for whole predictions a `Combination` of them

    def __len__(self) -> int:
        return len(self.queries)

    def names(self) -> list[str]:
        """The names of the columns."""
        return self.model.column_names(self.queries.rows)  # type: ignore[no-any-return]

    # -- answers --------------------------------------------------------------------------------------------------------

    def answers(
        self,
        want: Any,
        lines: int,
        n_columns: int,
        columns: Sequence[Any] | None = None,
        source: Source | None = None,
        line_bytes: int = LINE_BYTES,
    ) -> Iterator[tuple[Queries, Any]]:
        """Answers in batches that leave room for a table of these lines per query and output, with these columns."""
        own = self.model.source if source is None else source
        model = self.model.ready(own, len(self))
        lines, n_columns = lines * model.shape[1], n_columns + (model.outputs is not None)
        working = model.bytes_per_query(own) + line_bytes * lines
        size = tables.batch_size(model.budget, len(self), lines, n_columns, working)
        return answer(model, self.queries, own, want, size, columns)

    def table(
        self, parts: Iterator[tuple[Queries, Any]], make: Callable[[Queries, Any], dict[str, Any]], note: str
    ) -> Any:
        """One frame of what ``make`` makes of each batch, with a note on its numbers."""
        made = [make(batch, found) for batch, found in parts]
        return tables.note(tables.concatenate(made, self.model.backend), note)

    # -- whole predictions ----------------------------------------------------------------------------------------------

    def whole(self, size: int, sparse: bool = False, source: Source | None = None) -> Iterator[WeightedSums]:
        """Predictions as sums over all training rows, in batches of ``size``; one empty batch of no queries."""
        model, own = self.model, self.model.source if source is None else source
        answers, done = answer(model.ready(own, len(self)), self.queries, own, Whole(sparse), size), 0
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
        found: int = model.budget.batch_size(model.bytes_per_query(model.source, whole=True) + more_bytes)
        return found

    def whole_table(
        self,
        lines: int,
        n_columns: int,
        make: Callable[[WeightedSums], dict[str, Any]],
        line_bytes: int = LINE_BYTES,
        more_bytes: int = 0,
    ) -> Any:
        """A table of these lines per query and output, made of whole predictions."""
        parts = [make(part) for part in self.for_table(lines, n_columns, line_bytes, more_bytes)]
        return tables.note(tables.concatenate(parts, self.model.backend), self.model.note(self.model.source.note))

    def for_table(
        self, lines: int, n_columns: int, line_bytes: int = LINE_BYTES, more_bytes: int = 0
    ) -> Iterator[WeightedSums]:
        """Whole predictions in batches that leave room for a table of these lines per query and output."""
        model = self.model
        lines, n_columns = lines * model.shape[1], n_columns + (model.outputs is not None)
        working = model.bytes_per_query(model.source, whole=True) + more_bytes + line_bytes * lines
        size = tables.batch_size(model.budget, len(self), lines, n_columns, working)
        return self.whole(size, model.is_sparse)

    # -- training rows --------------------------------------------------------------------------------------------------

    def groups(self, labels: Any, what: str = "groups") -> tuple[NDArray[np.intp], NDArray[Any]]:
        """Each training row's group number and the groups' names."""
        found: tuple[NDArray[np.intp], NDArray[Any]] = self.model.gathered_groups(labels, what)
        return found

    def listing(self, beside: Any = None) -> Beside:
        """The training rows and those to list them beside, with further columns of both."""
        model = self.model
        known = columns_of(model.features, self.queries.rows, self.names(), beside)
        return Beside(known, model.shape, model.backend, model.note(model.source.note))


def take(asked: Asked, rows: Any) -> Asked:
    """Some of the rows, by position."""
    offsets = asked.queries.offsets
    own = inputs.take_rows(asked.queries.rows, rows)
    picked = Queries(asked.queries.adapter, own, offsets[rows], asked.queries.labels[rows], asked.queries.n_threads)
    return Asked(asked.model, picked)
