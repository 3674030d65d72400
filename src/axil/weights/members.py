"""K of a weighted sum of models, and of a model fitted to what another leaves over.

The answers of the models in a sum add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from axil.adapters.members import Coordinates
from axil.arrays import BoolArray, FloatArray, IntArray
from axil.errors import UnsupportedQuestionError
from axil.kernels.products import weighted
from axil.machine.progress import track
from axil.structure import Structure
from axil.weights.answers import Answer, KnownAnswer, KnownEffects, RowEffects, gathered
from axil.weights.engine import (
    Deletable,
    Engine,
    ExplainedRows,
    Memory,
    Seconds,
    diagonal,
    rows_of_weights,
    sum_of_squares,
)
from axil.weights.left_out import LeftOut
from axil.weights.smoother import Smoother
from axil.weights.spread import everywhere
from axil.weights.sum_rule import NothingLeft

ROUNDING = (
    1e-12  # of all coefficients: those of the models that are left are none where they are less
)


@dataclass(frozen=True)
class Term:
    """One model of the sum. Its rows may be some of all N, or the same one several times."""

    engine: Engine
    coefficient: float
    member: int  #: whose coordinates of queries it takes
    rows: IntArray | None = (
        None  #: which of the N rows its own training rows are; None: they are the same
    )
    training: Any = None  #: coordinates of all N rows, where its own are others

    def own(self, queries: Coordinates | None) -> Any:
        """Return the coordinates of explained rows for this model; None: its training rows."""
        if queries is None:
            return self.training
        return queries.parts[self.member]

    def taken(self, values: FloatArray) -> FloatArray:
        """Return the values of the model's own rows, (n_own, S), of values (N, S)."""
        if self.rows is None:
            return values
        return values[self.rows]

    def gathered(self, effects: RowEffects, n_rows: int) -> FloatArray:
        """Return effects of the model's own rows as one array, (n, n_own)."""
        return gathered(effects, n_rows if self.rows is None else len(self.rows))

    def spread(self, weights: Any, n_rows: int) -> Any:
        """Return weights (n, n_own) of the model's own rows as weights of all rows, (n, N).

        They are dense or sparse, and multiplied by the coefficient.
        """
        if self.rows is None:
            return self.coefficient * weights
        n_own = len(self.rows)
        places = csr_array(
            (np.full(n_own, self.coefficient), self.rows, np.arange(n_own + 1)), (n_own, n_rows)
        )
        return weights @ places


@dataclass(frozen=True)
class Sum(Deletable):
    """``k_j(x) = sum_i c_i k_ij(x)`` over models i with coefficients c_i.

    Each model is fitted to the same targets or to some of them. A constant adds to predictions; it
    is zero except for stacked models. The sum is a mean of models, or has one model. After a
    deletion, averaged trees may have no rows for an explained row, or a model may have no rows at
    all. The mean is then over the other models, and nan if there is none.
    """

    terms: tuple[Term, ...]
    n_rows: int
    thinned: bool = False  #: whether rows were deleted from it
    constant: float = 0.0  #: what predictions have besides

    @property
    def is_sparse(self) -> bool:  # type: ignore[override]
        """Whether most weights are known to be zero."""
        return all(term.engine.is_sparse for term in self.terms)

    @property
    def structure(self) -> Structure:  # type: ignore[override]
        """Refuse: a sum of models has no single structure."""
        raise UnsupportedQuestionError(
            "save",
            "an explainer of several models is not saved",
            "Keep the model and the data, and make it again.",
        )

    @property
    def structures(self) -> Sequence[Structure]:
        """The structures of all trees."""
        return [s for term in self.terms for s in term.engine.structures]

    def weight_rows(self, queries: ExplainedRows, base: float = 1.0) -> Answer:
        """Return the weights of explained rows and the constants of their predictions."""
        answers = [term.engine.weight_rows(term.own(queries), base) for term in self.terms]
        intercepts = self._intercepts(answers, 1.0)
        sparse_weights = [answer.sparse() if self.is_sparse else None for answer in answers]
        if all(member_weights is not None for member_weights in sparse_weights):
            return KnownAnswer(
                sum(
                    t.spread(member_weights, self.n_rows)
                    for t, member_weights in zip(self.terms, sparse_weights)
                ),
                intercepts,
            )
        return self._added(answers, intercepts)

    def matvec(self, queries: ExplainedRows, v: FloatArray, base: float = 1.0) -> FloatArray:
        """Return ``sum_j k_j(x) v_j``, (n, S), for vectors (N, S)."""
        return _total(
            t.coefficient * t.engine.matvec(t.own(queries), t.taken(v), base) for t in self.terms
        )

    def rmatvec(self, queries: ExplainedRows, u: FloatArray, base: float = 1.0) -> FloatArray:
        """Return ``sum_x k_j(x) u_x``, (N, S), for vectors (n, S)."""
        return _total(
            t.spread(t.engine.rmatvec(t.own(queries), u, base).T, self.n_rows).T for t in self.terms
        )

    def row_sum(self, queries: ExplainedRows, u: Any, base: float = 1.0) -> Answer:
        """Return the weights of sums of predictions; see `Engine.row_sum`."""
        answers = [term.engine.row_sum(term.own(queries), u, base) for term in self.terms]
        return self._added(
            answers, self._intercepts(answers, np.asarray(u.sum(axis=0)).reshape(-1, 1))
        )

    def _added(self, answers: Sequence[Answer], intercepts: FloatArray) -> Answer:
        terms_and_answers = zip(self.terms, answers)
        return KnownAnswer(
            _total(term.spread(answer.dense(), self.n_rows) for term, answer in terms_and_answers),
            intercepts,
        )

    def _intercepts(self, answers: Sequence[Answer], counted: Any) -> FloatArray:
        """Return the intercepts of the models' answers with the constant, as often as it counts."""
        intercepts = np.sum(
            [t.coefficient * a.intercepts for t, a in zip(self.terms, answers)], axis=0
        )
        return np.asarray(intercepts + self.constant * counted)

    def predicted(self, queries: ExplainedRows, targets: FloatArray) -> FloatArray:
        """Return the predictions of the fit to targets (N, K), (n, K)."""
        predictions = (
            (t.coefficient, t.engine.predicted(t.own(queries), t.taken(targets)))
            for t in self.terms
        )
        return self.constant + (
            self._mean(predictions)
            if self.thinned
            else _total(c * values for c, values in predictions)
        )

    def _mean(self, predictions: Iterator[tuple[float, FloatArray]]) -> FloatArray:
        """Return the sum of coefficients times predictions.

        A model without a prediction, nan, leaves its share to the others.
        """
        total = np.zeros(1)
        coefficients = np.zeros(1)
        for coefficient, values in predictions:
            is_known = ~np.isnan(values)
            total = total + coefficient * np.where(is_known, values, 0.0)
            coefficients = coefficients + coefficient * is_known
        return np.where(coefficients == self._whole, total, self._ratio(coefficients) * total)

    @property
    def _whole(self) -> float:
        """The coefficients of all models."""
        return sum(term.coefficient for term in self.terms)

    def _ratio(self, coefficients: Any) -> FloatArray:
        """Return the factor from a sum over the remaining models to a mean of all.

        ``left`` is the sum of their coefficients. nan if no model remains.
        """
        some = np.abs(coefficients) > ROUNDING * abs(self._whole)
        return np.asarray(
            np.divide(self._whole, coefficients, out=np.full_like(coefficients, np.nan), where=some)
        )

    def leverage(self, available: int) -> FloatArray:
        """Return ``K[j, j]``, (N,)."""
        leverages = np.zeros(self.n_rows)
        for term in self.terms:
            if term.rows is None:
                leverages += term.coefficient * term.engine.leverage(available)
        some = replace(self, terms=tuple(term for term in self.terms if term.rows is not None))
        if some.terms:
            return leverages + diagonal(rows_of_weights(some, self.n_rows))
        return leverages

    def squares(self, available: int) -> float:
        """Return ``sum_ij K[i, j]^2``."""
        if len(self.terms) == 1 and self.terms[0].rows is None:
            return self.terms[0].coefficient ** 2 * self.terms[0].engine.squares(available)
        return sum_of_squares(rows_of_weights(self, self.n_rows))

    def approximate_matvec(self, v: FloatArray) -> tuple[FloatArray, FloatArray] | None:
        """Return the sum over the models fitted to all rows."""
        answers = [(t, t.engine.approximate_matvec(v)) for t in self.terms if t.rows is None]
        products = [(t.coefficient, *like) for t, like in answers if like is not None]
        if not products:
            return None
        return _total(c * product for c, product, _ in products), _total(
            c * diagonal for c, _, diagonal in products
        )

    def costs(self, available: int) -> Seconds:
        """Return the time of work on all training rows within ``available`` bytes."""
        member_costs = [(term, term.engine.costs(available)) for term in self.terms]
        column = sum(costs.column for _, costs in member_costs)
        leverage = sum(
            self.n_rows * c.column if term.rows is not None else c.leverage
            for term, c in member_costs
        )
        if len(self.terms) == 1 and self.terms[0].rows is None:
            return replace(member_costs[0][1], leverage=leverage)
        if self._all_rows:
            deletion = sum(costs.deletion for _, costs in member_costs)
        else:
            deletion = np.inf
        replays = sum(min(costs.deletion, costs.replays) for _, costs in member_costs)
        if not self._all_rows and replays < np.inf:
            replays = 2 * self.n_rows * column
        return Seconds(leverage, self.n_rows * column, column, deletion, replays)

    @property
    def _all_rows(self) -> bool:
        """Whether every model was fitted to all N rows, each once."""
        return all(term.rows is None for term in self.terms)

    def removal(self, queries: ExplainedRows, targets: FloatArray) -> Sequence[RowEffects]:
        """Return the first-order effects of deleting training rows; see `Deletable.removal`."""
        if self.thinned:
            terms = self._saying(queries, targets)
        else:
            terms = self.terms
        return self._effects(
            terms,
            lambda term: term.engine.deletable("removal").removal(
                term.own(queries), term.taken(targets)
            ),
        )

    def _saying(self, queries: ExplainedRows, targets: FloatArray) -> Sequence[Term]:
        """Return the models that still predict all of these rows."""
        predictions = [
            term.engine.predicted(term.own(queries), term.taken(targets)) for term in self.terms
        ]
        said = [term for term, values in zip(self.terms, predictions) if not np.isnan(values).any()]
        if said:
            return self._of(said).terms
        return self.terms

    def _of(self, terms: Sequence[Term]) -> Sum:
        """Return a sum of only these models, as their mean."""
        ratio = self._whole / sum(term.coefficient for term in terms)
        return replace(
            self,
            terms=tuple(replace(t, coefficient=ratio * t.coefficient) for t in terms),
            thinned=True,
        )

    def deletion(
        self, queries: ExplainedRows, targets: FloatArray, available: int
    ) -> Sequence[RowEffects]:
        """Return the exact changes without each row.

        A row is deleted from every model by itself, so that changes add up. Those of copies of a
        row in one model do not.
        """
        before = self.predicted(queries, targets)
        if self._all_rows:
            return self._deletion(queries, targets, before, available // len(self.terms))
        changes = np.full((before.shape[1], len(before), self.n_rows), np.nan)
        for row in track(range(self.n_rows), "deletions"):
            try:
                changes[:, :, row] = (
                    self.without(np.array([row]), targets).predicted(queries, targets) - before
                ).T
            except NothingLeft:
                continue
        return [KnownEffects(change) for change in changes]

    def _deletion(
        self, queries: ExplainedRows, targets: FloatArray, before: FloatArray, available: int
    ) -> Sequence[RowEffects]:
        """Return the sum of the changes of models fitted to all rows."""
        term_effects = [
            (t, t.engine.deletable("removal").deletion(t.own(queries), targets, available))
            for t in self.terms
        ]
        predictions = [t.engine.predicted(t.own(queries), targets) for t in self.terms]
        row_effects: list[RowEffects] = []
        for k in range(before.shape[1]):
            total: Any = 0.0
            empty_by_term: dict[int, BoolArray] = {}
            for i, (term, effects) in enumerate(term_effects):
                change = gathered(effects[k], self.n_rows)
                if _drops(term.engine):
                    empty = np.isnan(change)
                else:
                    empty = np.zeros(1, dtype=bool)
                if empty.any():
                    empty_by_term[i] = empty
                    change = np.where(empty, -predictions[i][:, [k]], change)
                total = total + term.coefficient * change
            if empty_by_term:
                coefficients = self._whole - sum(
                    self.terms[i].coefficient * empty for i, empty in empty_by_term.items()
                )
                at = before[:, [k]] - self.constant
                total = np.where(
                    coefficients == self._whole,
                    total,
                    self._ratio(coefficients) * (at + total) - at,
                )
            row_effects.append(KnownEffects(total))
        return row_effects

    def left_out(self, targets: FloatArray, available: int) -> LeftOut:
        """Return the leave-one-out predictions of the training rows.

        There is none if a model has none, unless its leaves merely lack rows.
        """
        if not self._all_rows:
            raise UnsupportedQuestionError(
                "diagnostics.leave_one_out",
                "the models inside were fitted to different rows, or to copies of rows, and no "
                "row is left out of all of them",
                "Weights, what_if, influence and without work for it; out-of-bag or out-of-fold "
                "predictions show what the other rows predict for a row.",
            )
        share = available // len(self.terms)
        members = [
            (
                t.coefficient,
                t.engine.deletable("diagnostics.leave_one_out").left_out(targets, share),
            )
            for t in self.terms
        ]
        predictions = self.constant + self._mean((c, member.predictions) for c, member in members)
        for _, member in members:
            has_none = np.isnan(member.predictions).any(axis=1)
            predictions[has_none if member.emptied is None else has_none & ~member.emptied] = np.nan
        emptied = np.logical_and.reduce(
            [np.zeros(self.n_rows, bool) if o.emptied is None else o.emptied for _, o in members]
        )
        rest = self.constant + self._mean((c, member.without) for c, member in members)
        return LeftOut(predictions, rest, emptied=emptied)

    def gradient_contributions(
        self, queries: ExplainedRows, targets: FloatArray
    ) -> Sequence[RowEffects]:
        """Return the contributions of training rows; see `Deletable.gradient_contributions`."""
        return self._effects(
            self.terms,
            lambda term: term.engine.deletable(
                "jacobian.gradient_contributions"
            ).gradient_contributions(term.own(queries), term.taken(targets)),
        )

    def _effects(
        self, terms: Sequence[Term], ask: Callable[[Term], Sequence[RowEffects]]
    ) -> list[RowEffects]:
        """Return the sums of the effects in these models, for each output."""
        term_effects = [(term, ask(term)) for term in terms]
        row_effects: list[RowEffects] = []
        for output in range(len(term_effects[0][1])):
            total = _total(
                term.spread(term.gathered(member_effects[output], self.n_rows), self.n_rows)
                for term, member_effects in term_effects
            )
            row_effects.append(KnownEffects(total))
        return row_effects

    def around(self, queries: ExplainedRows, values: FloatArray) -> FloatArray:
        """Return the means of the models' answers under |coefficient|.

        Models of copied rows have one mean for all, because the copies of a row would be around it.
        """
        if queries is None:
            n = self.n_rows
        else:
            n = queries.shape[0]

        def means(term: Term) -> FloatArray:
            if term.rows is not None:
                return everywhere(n, values)
            return term.engine.around(term.own(queries), values)

        sizes = [abs(term.coefficient) for term in self.terms]
        return _total(size / sum(sizes) * means(term) for size, term in zip(sizes, self.terms))

    def without(self, rows: IntArray, targets: FloatArray) -> Sum:
        """Return the mean of the models without these rows.

        A model without any row is not in the mean.
        """
        remaining: list[Term] = []
        for term in self.terms:
            if term.rows is None:
                member_rows = rows
            else:
                member_rows = np.flatnonzero(np.isin(term.rows, rows))
            try:
                if len(member_rows):
                    engine = term.engine.deletable("without").without(
                        member_rows, term.taken(targets)
                    )
                    term = replace(term, engine=engine)
                remaining.append(term)
            except NothingLeft:
                continue
        if not remaining:
            raise NothingLeft(
                f"Without {len(rows)} rows no row with a weight is left; ask for a smaller set."
            )
        return self._of(remaining)

    def with_targets(self, targets: FloatArray) -> Sum:
        """Return the engine of the fit to other targets (N, K)."""
        terms = [
            replace(term, engine=term.engine.with_targets(term.taken(targets)))
            for term in self.terms
        ]
        return replace(self, terms=tuple(terms))

    @property
    def memory(self) -> Memory:
        """The bytes that explained rows and `prepared` take."""
        memories = [term.engine.memory for term in self.terms]
        per_query = max(memory.per_query for memory in memories) + 2 * 8 * self.n_rows
        return Memory(per_query, sum(memory.preparation for memory in memories))

    def prepared(self, n_queries: int | None = None, available: int | None = None) -> Sum:
        """Return the engine with its parts prepared; see `Engine.prepared`."""
        if available is None:
            share = None
        else:
            share = available // len(self.terms)
        return replace(
            self,
            terms=tuple(
                replace(term, engine=term.engine.prepared(n_queries, share)) for term in self.terms
            ),
        )


@dataclass(frozen=True)
class Residual(Engine):
    """``k = k_1 + k_2 (I - K_1)``: the second model is fitted to the residuals of the first."""

    first: Sum  #: of one term, whose coordinates are the first part
    then: Engine
    n_rows: int

    @property
    def structure(self) -> Structure:  # type: ignore[override]
        """Refuse: a sum of models has no single structure."""
        return self.first.structure  # refused in the same words

    def _parts(self, queries: Coordinates | None) -> tuple[Any, Any]:
        if queries is None:
            return (None, None)
        return (queries, queries.parts[1])

    def weight_rows(self, queries: ExplainedRows, base: float = 1.0) -> Answer:
        """Return the weights of explained rows and the constants of their predictions."""
        first, then = self._parts(queries)
        return self._both(self.first.weight_rows(first, base), self.then.weight_rows(then, base))

    def row_sum(self, queries: ExplainedRows, u: Any, base: float = 1.0) -> Answer:
        """Return the weights of sums of predictions; see `Engine.row_sum`."""
        first, then = self._parts(queries)
        return self._both(self.first.row_sum(first, u, base), self.then.row_sum(then, u, base))

    def _both(self, before: Answer, after: Answer) -> Answer:
        weights = after.dense()
        total = (
            before.dense() + weights - self.first.rmatvec(None, np.ascontiguousarray(weights.T)).T
        )
        n_outputs = before.intercepts.shape[1]
        subtracted = weighted(
            weights, self.first.predicted(None, np.zeros((self.n_rows, n_outputs)))
        )
        return KnownAnswer(total, before.intercepts + after.intercepts - subtracted)

    def matvec(self, queries: ExplainedRows, v: FloatArray, base: float = 1.0) -> FloatArray:
        """Return ``sum_j k_j(x) v_j``, (n, S), for vectors (N, S)."""
        first, then = self._parts(queries)
        return self.first.matvec(first, v, base) + self.then.matvec(
            then, v - self.first.matvec(None, v), base
        )

    def rmatvec(self, queries: ExplainedRows, u: FloatArray, base: float = 1.0) -> FloatArray:
        """Return ``sum_x k_j(x) u_x``, (N, S), for vectors (n, S)."""
        first, then = self._parts(queries)
        after = self.then.rmatvec(then, u, base)
        return self.first.rmatvec(first, u, base) + after - self.first.rmatvec(None, after)

    def predicted(self, queries: ExplainedRows, targets: FloatArray) -> FloatArray:
        """Return the predictions of the fit to targets (N, K), (n, K)."""
        first, then = self._parts(queries)
        residuals = targets - self.first.predicted(None, targets)
        return self.first.predicted(first, targets) + self.then.predicted(then, residuals)

    def with_targets(self, targets: FloatArray) -> Residual:
        """Return the engine of the fit to other targets (N, K)."""
        first = self.first.with_targets(targets)
        residuals = targets - first.predicted(None, targets)
        return replace(self, first=first, then=self.then.with_targets(residuals))

    def leverage(self, available: int) -> FloatArray:
        """Return ``K[j, j]``, (N,)."""
        return diagonal(rows_of_weights(self, self.n_rows))

    def squares(self, available: int) -> float:
        """Return ``sum_ij K[i, j]^2``."""
        return sum_of_squares(rows_of_weights(self, self.n_rows))

    def costs(self, available: int) -> Seconds:
        """Return the time of work on all training rows within ``available`` bytes."""
        column = 2 * self.first.costs(available).column + self.then.costs(available).column
        return Seconds(self.n_rows * column, self.n_rows * column, column, np.inf, np.inf)

    def deletable(self, question: str) -> Deletable:
        """Return the engine, or refuse the method; see `Engine.deletable`."""
        raise UnsupportedQuestionError(
            question,
            "the trees were fitted to the residuals of another model, and axil does not combine "
            "the derivatives of both by the weight of a row",
            "Weights, what_if and influence work for it; refit without the row to see what it "
            "does.",
        )

    def around(self, queries: ExplainedRows, values: FloatArray) -> FloatArray:
        """Return the answer of the second model, which was fitted to the residuals of the first."""
        return self.then.around(self._parts(queries)[1], values)

    @property
    def memory(self) -> Memory:
        """The bytes that explained rows and `prepared` take."""
        memories = [self.first.memory, self.then.memory]
        return Memory(
            sum(memory.per_query for memory in memories) + 2 * 8 * self.n_rows,
            sum(memory.preparation for memory in memories),
        )

    def prepared(self, n_queries: int | None = None, available: int | None = None) -> Residual:
        """Return the engine with its parts prepared; see `Engine.prepared`."""
        if available is None:
            share = None
        else:
            share = available // 2
        return replace(
            self,
            first=self.first.prepared(n_queries, share),
            then=self.then.prepared(n_queries, share),
        )


def _drops(engine: Engine) -> bool:
    """Return whether a mean leaves out an engine that has no prediction after a deletion.

    The fit of a linear smoother is undefined then.
    """
    if isinstance(engine, Sum):
        return all(_drops(term.engine) for term in engine.terms)
    return not isinstance(engine, Smoother)


def _total(parts: Iterator[Any]) -> FloatArray:
    """Return the sum of arrays, with at most two of them in memory."""
    total = np.array(next(parts))
    for values in parts:
        total += values
    return total
