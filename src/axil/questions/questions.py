"""Questions: what else an explainer can be asked about its training data.

All answers are exact with the fitted structure held fixed, save removal, which is a first-order effect and says so. None of them
is a retraining: a refit may choose other splits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.errors import InputError
from axil.explanation import Explanation, page_options
from axil.output import page, tables
from axil.questions import diagnostics, noise
from axil.questions.asking import (
    Batches,
    Explained,
    by_engine,
    checked_coordinates,
    dense_bytes,
    explanations,
    for_all_outputs,
    leverages,
    removals,
    steps,
)
from axil.weights.removal import BLOCK_ENTRIES

Array = NDArray[np.float64]


class Questions:
    """The questions, as methods of `Explainer`."""

    def removal(self: Explained, X: Any) -> Array:
        """(n, n_train), or (K, n, n_train): the first-order change of each prediction on deleting each training row.

        ``-w_j dF(x) / dw_j``; positive: without the row the prediction would be higher. Structure, draws and all other weights
        are held fixed. As costly as the weights; 8 * K * n * n_train bytes.
        """
        return _dense(self, X, removals, prepared=True)

    def steps(self: Explained, X: Any) -> Array:
        """(n, n_train), or (K, n, n_train): what each training row puts into the steps that the trees take to each prediction.

        ``sum_t rate_t w_j r_tj / (W + l2)`` over the trees t where the row is in x's leaf, with r_tj the residual that the tree
        saw of it. Positive: the row raised the prediction. With the base they add up to it, exactly, as contributions do; but a
        row's steps are not of its target alone: other rows have their part in r_tj, which the weights follow and the steps do
        not. Of a forest: weights times targets. Costs less than the weights; 8 * K * n * n_train bytes.
        """
        return _dense(self, X, steps)

    def removal_set(self: Explained, X: Any, m: int, greedy: bool = False, by: str = "effect") -> Any:
        """Up to m training rows whose removal moves each prediction furthest, all in one direction.

        A frame with the columns query, rank, row, effect, and output if there are several. The direction is the one in which the
        m largest first-order effects add up to more; rows that have none are left out. ``greedy``: after each row the fit
        without it is computed anew, structure held fixed, so that the next is the best one then and effects are exact; some
        three passes over the trees for each row of the set and query. ``by="steps"``: by what the rows put into the steps of the
        trees instead (`steps`; the column is step), which foretells better what a refit without them does; see docs/paper.md.
        Streamed: never holds an (n, n_train) array.
        """
        m = inputs.as_count(m, "m")
        inputs.as_choice(by, ("effect", "steps"), "by")
        if inputs.as_flag(greedy, "greedy") and by == "steps":
            raise InputError(
                'greedy=True computes effects anew after each row, and by="steps" has none: leave one of them out.'
            )
        X, _ = self._queries(X, None)
        found = []
        lines = min(m, len(self._targets)) * self._targets.shape[1]
        taken = tables.bytes_of(X.shape[0] * lines, 7)
        engines = self._engines_for(X.shape[0], taken) if by == "effect" else self._engines
        working = sum(engine.streamed_bytes() for engine in engines) + 6 * 8 * lines
        size = self._table_batch(X.shape[0], lines, 6 if self.outputs is None else 7, working)
        for part, coordinates, effects_of in (removals if by == "effect" else steps)(self, X, engines, size):
            n = part.stop - part.start
            served = [
                (engine, own, k) for engine, own in by_engine(self._engines, self._targets) for k in range(own.shape[1])
            ]
            sets = [diagnostics.SignedSet(n, m, len(self._targets), self._n_threads).read(own) for own in effects_of]
            for i in range(n):
                for output, ((engine, own, k), largest) in enumerate(zip(served, sets)):
                    rows, effects = largest.chosen(i)
                    if greedy:
                        query = coordinates[i : i + 1]
                        rows, effects = diagnostics.remove_in_turn(engine, query, own, k, (rows, effects))
                    found.append(
                        (part.start + i, output if self.outputs is None else self.outputs[output], rows, effects)
                    )
        name, labels = {"effect": "effect", "steps": "step"}[by], inputs.row_labels(X)
        columns = diagnostics.set_columns(found, name, self.index, labels, self.outputs is not None)
        exact = greedy or by == "steps"
        return tables.note(tables.make(columns, self._backend), tables.NOTE if exact else tables.FIRST_ORDER)

    def what_if(self: Explained, targets: Mapping[Any, Any], X: Any, init_score: Any = None) -> Any:
        """The predictions of X if some training rows, by label, had other targets (of a classifier: other classes).

        Exact with the structure held fixed: ``change = sum_j k_j (new_j - old_j)`` over the rows named. A frame with the columns
        query, before, after, change, and output if there are several. Cost of one replay, O(T N), whatever the number of rows.
        """
        if not hasattr(targets, "items"):
            raise InputError(f"targets is a {type(targets).__name__}; expected {{row label: new target, ...}}.")
        labels, values = [label for label, _ in targets.items()], [value for _, value in targets.items()]
        rows = inputs.positions(labels, self.index, "targets")
        shape = len(values), self._targets.shape[1]
        given = values if values else np.empty((0,) if shape[1] == 1 or self._adapter.classes is not None else shape)
        new = inputs.as_targets(given, *shape, self._adapter.classes, "targets", "changed")
        X, offsets = self._queries(X, init_score)
        moved = np.zeros_like(self._targets)
        moved[rows] = new - self._targets[rows]
        coordinates, _ = checked_coordinates(self, X)
        change = for_all_outputs(self._engines, moved, lambda engine, own: engine.apply(coordinates, own, offsets.base))
        before = offsets.predictions(self._adapter, X)
        columns: dict[str, Any] = {"query": np.repeat(inputs.row_labels(X), shape[1])}
        if self.outputs is not None:
            columns["output"] = np.tile(self.outputs, X.shape[0])
        columns |= {"before": before.ravel(), "after": (before + change).ravel(), "change": change.ravel()}
        return tables.note(tables.make(columns, self._backend), tables.NOTE)

    def blame(
        self: Explained, X_val: Any, y_val: Any, correction: Any = "leave-one-out", init_score: Any = None
    ) -> Any:
        """Which training targets raise the error on validation rows, and what correcting each would gain.

        A frame with the columns row, target, gradient, corrected, gain, and output if there are several, largest gain first.
        ``gradient``: of the mean squared validation error in the row's target, ``(2 / n) K'(prediction - y_val)``, in one sweep;
        predictions are weights times targets, in float64.
        ``corrected``: what else the target might be: with "leave-one-out" what all other rows say, ``(F_j - K_jj y_j) /
        (1 - K_jj)``, nan where K_jj is within 1e-6 of one; or your own out-of-fold predictions as an array (n_train,) or
        (n_train, K). ``gain``: by how much the mean squared validation error would fall if this one target were corrected,
        exactly ``-(d gradient_j + d^2 / n sum_i K_ij^2)`` with d the correction; the squares are streamed.
        ``correction=None``: gradients alone, the largest first. Several outputs have a mean squared error each.
        """
        X, offsets = self._queries(X_val, init_score)
        if X.shape[0] == 0:
            raise InputError("X_val has no rows; expected validation rows with their targets.")
        y = inputs.as_targets(y_val, X.shape[0], self._targets.shape[1], self._adapter.classes, "y_val", "validation")
        corrected = diagnostics.corrections(self, correction)
        columns = diagnostics.blame_columns(self, X, y, offsets, init_score, corrected)
        return tables.note(tables.make(columns, self._backend), tables.NOTE)

    def leverage(self: Explained) -> Array:
        """(n_train,), or (K, n_train) where outputs have trees of their own: K[j, j], each row's weight in its own prediction.

        In leaf space, O(T^2 N + L^3) and 16 L^2 bytes, or in batches of rows, O(T N^2); never an (n_train, n_train) array. Made
        once for an explainer; where that takes more than 30 seconds a `CostWarning` says how long before the work begins.
        """
        found = leverages(self).T.copy()
        return found[0] if len(found) == 1 else found

    def degrees_of_freedom(self: Explained, estimate: bool = False) -> Any:
        """trace K, how many free parameters the fit is worth: a number, or (K,) where outputs have trees of their own.

        Exact, from `leverage`. ``estimate``: from 32 vectors of random signs, O(T N), as a pair of value and standard_error.
        """
        estimate = inputs.as_flag(estimate, "estimate")
        found = noise.estimated_trace(self) if estimate else noise.Estimate(leverages(self).sum(axis=0), None)
        value, error = (float(part[0]) if part is not None and len(part) == 1 else part for part in found)
        return noise.Estimate(value, error) if estimate else value

    def standard_error(self: Explained, X: Any, sigma: Any = None) -> Array:
        """(n,) or (n, K), as predictions: ``sigma * sqrt(sum_j k_j^2)``, the noise of the targets as a prediction passes it on.

        For targets with independent noise of one size sigma and the structure held fixed: neither a bias of the model nor what
        other targets would do to its splits is in it. ``sigma``: a number, or one for each output; otherwise
        ``sigma^2 = RSS / trace((I - K)'(I - K))``, kept once it is known. Where that takes more than some 10 seconds the trace is
        estimated from random vectors, and an `ApproximationWarning` says how well; ``sigma="exact"`` waits for it, and
        ``sigma="estimate"`` always estimates, without a warning. Streamed: never holds an (n, n_train) array.
        """
        X, _ = self._queries(X, None)
        size = noise.sigma_of(self, sigma)
        errors = _streamed(self, X, lambda part: part.norms).T * size
        return np.asarray(errors[:, 0] if self.outputs is None else errors)

    def effective_size(self: Explained, X: Any) -> Array:
        """As `Explanation.effective_size`, for any number of rows of X: never holds an (n, n_train) array."""
        return _one_or_each(_streamed(self, X, lambda part: part.effective_size))

    def negative_share(self: Explained, X: Any) -> Array:
        """As `Explanation.negative_share`, for any number of rows of X: never holds an (n, n_train) array."""
        return _one_or_each(_streamed(self, X, lambda part: part.negative_share))

    def group(self: Explained, X: Any, labels: Any) -> Any:
        """As `Explanation.group`, for any number of rows of X: never holds an (n, n_train) array."""
        codes, groups = inputs.group_codes(labels, len(self._targets))
        return _table(self, X, len(groups), lambda part: part.group_columns(codes, groups))

    def concentration(self: Explained, X: Any, shares: Sequence[float] = (0.5, 0.8, 0.95)) -> Any:
        """As `Explanation.concentration`, for any number of rows of X: never holds an (n, n_train) array."""
        wanted = inputs.as_shares(shares)
        return _table(self, X, len(wanted), lambda part: part.concentration_columns(wanted))

    def similar(self: Explained, X: Any, k: int = 10, columns: Sequence[Any] | None = None) -> Any:
        """Comparables: the k training rows of largest |weight| in each prediction, their features beside the query's own.

        A frame with the columns query, rank, row, weight, share, target, contribution, and output where there are several; then
        for each feature (or those in ``columns``, by name or position) ``name (row)`` and ``name (query)``. ``share`` is that
        of the rows down to this one in ``sum |weight|``. The training rows are those that the explainer was made of; one that
        was loaded needs them: ``axil.load(path, model, X_train=X_train)``.
        """
        k = inputs.as_count(k, "k")
        if self._features is None:
            raise InputError(
                "This explainer was loaded from a file, which keeps no features. Load it with them: "
                "axil.load(path, model, X_train=X_train)."
            )
        X, _ = self._queries(X, None)
        names = inputs.column_names((self._features, X), self._adapter.feature_names, self._adapter.n_features)
        chosen = inputs.chosen_columns(columns, names)
        per_query = min(k, len(self._targets)) * self._targets.shape[1]
        working = dense_bytes(self) + 16 * 8 * per_query
        size = self._table_batch(X.shape[0], per_query, 10 + 2 * len(chosen), working)
        made = tables.joined([part.similar_columns(k) for part in explanations(self, X, batch_size=size)])
        rows, lines = made.pop("position"), len(made["query"]) // max(X.shape[0], 1)
        queries = np.repeat(np.arange(X.shape[0]), lines)
        of_rows = tables.feature_columns(self._features, rows, chosen)
        of_queries = tables.feature_columns(X, queries, chosen)
        for i, own, asked in zip(chosen, of_rows, of_queries):
            made |= {f"{names[i]} (row)": own, f"{names[i]} (query)": asked}
        return tables.note(tables.make(made, self._backend), tables.NOTE)

    def to_html(
        self: Explained,
        X: Any,
        path: Any = None,
        groups: Any = None,
        k: int = 50,
        columns: Sequence[Any] | None = None,
        sigma: Any = None,
        init_score: Any = None,
    ) -> str | None:
        """As `Explanation.to_html`, for any number of rows of X: never holds an (n, n_train) array.

        ``sigma`` as for `standard_error`. Unless given it takes some 10 seconds at most: where it is estimated, or left out as
        even that would take longer, and where the fit does not tell it, the page says so.
        """
        by_name = sigma is None or isinstance(sigma, str)
        target = page.as_target(path)
        options = page_options(self._targets.shape, groups, k, columns, None if by_name else sigma)
        X, _ = self._queries(X, init_score)
        names = page.Context(X, self._features, self._adapter.feature_names, None).names()
        inputs.chosen_columns(columns, names)  # refused before any work
        if sigma is None:
            size, note = noise.for_page(self)
            options = replace(options, sigma=size, about_sigma=note)
        elif by_name:
            options = replace(options, sigma=noise.sigma_of(self, sigma))
        return page.write(page.summarise(explanations(self, X, init_score), options), target)


def _streamed(asked: Explained, X: Any, measure: Callable[[Explanation], Array]) -> Array:
    """(1, n), or (K, n) where outputs have trees of their own: a measure of each prediction's weights."""
    X, _ = asked._queries(X, None)
    return np.concatenate([np.atleast_2d(measure(part)) for part in explanations(asked, X)], axis=1)


def _one_or_each(found: Array) -> Array:
    return found[0] if len(found) == 1 else found


def _table(asked: Explained, X: Any, lines: int, columns: Callable[[Explanation], dict[str, Any]]) -> Any:
    """A table of so many lines per query and output, of up to five columns."""
    X, _ = asked._queries(X, None)
    lines *= asked._targets.shape[1]
    size = asked._table_batch(X.shape[0], lines, 4 if asked.outputs is None else 5, dense_bytes(asked) + 8 * 8 * lines)
    parts = [columns(part) for part in explanations(asked, X, batch_size=size)]
    return tables.note(tables.concatenate(parts, asked._backend), tables.NOTE)


def _dense(asked: Explained, X: Any, ask: Callable[..., Batches], prepared: bool = False) -> Array:
    """(n, n_train), or (K, n, n_train): what there is about every training row, gathered."""
    X, _ = asked._queries(X, None)
    n, (n_train, n_outputs) = X.shape[0], asked._targets.shape
    instead = "Use explainer.removal_set(X, m) for the largest, or raise memory_limit."
    array = 8 * n * n_train * n_outputs
    engines = asked._engines_for(n, array) if prepared and array < asked._budget.available else asked._engines
    working = sum(engine.streamed_bytes() for engine in engines)
    block = 3 * 8 * min(n * n_train, BLOCK_ENTRIES)  # of effects, with what they are made of
    asked._budget.require(array + working + block, f"An array of {n} predictions by {n_train} rows", instead)
    transposed = np.empty((n_outputs, n_train, n))  # as they come, for a block of training rows
    for part, _, effects in ask(asked, X, engines, asked._batch_size(working, array + block)):
        for k, of_output in enumerate(effects):
            for first, block in of_output.blocks():
                transposed[k, first : first + len(block), part] = block
    found = transposed.swapaxes(1, 2)
    return found[0] if asked.outputs is None else found
