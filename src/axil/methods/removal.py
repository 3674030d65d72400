"""removal: what deleting training rows, one by one or by groups, does to each prediction.

Effects are exact wherever the leaf matrix fits into memory, or where replays of the fit, one per
training row, take `PATIENCE`. Otherwise they are taken to first order, unless exact ones are asked
for by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, LabelsLike, TableLike
from axil.arrays import FloatArray
from axil.attribution import DELETIONS, FIRST_ORDER, Quantity, Source
from axil.errors import ApproximationWarning, InputError, warn
from axil.machine.memory import in_words
from axil.machine.progress import in_time
from axil.methods.noise import PATIENCE, announce
from axil.methods.question import ExplainedRows, Method
from axil.output import tables
from axil.reductions import Ranked, Whole, answer
from axil.reductions.top import Best
from axil.replay.queries import QueryBatch
from axil.weights.removal import BLOCK_ENTRIES

METHODS = ("exact", "first-order")
INSTEAD = "Use explainer.removal(X, k=10) for the largest, or raise memory_limit."


class Removal(Method):
    """Provide `Explainer.removal`."""

    def removal(
        self,
        X: TableLike,
        k: int | None = None,
        *,
        groups: LabelsLike | None = None,
        method: str | None = None,
        by: str = "effect",
        same_sign: bool = False,
        greedy: bool = False,
        init_score: ArrayLike | None = None,
    ) -> DataFrame:
        """The change of each prediction on deleting training rows: each by itself, or all rows of a group at once.

        An array (n, n_train) or (n, K, n_train) of the effects of all rows. With ``k`` a frame of
        the rows of largest effect, with the columns query, rank, row, effect, and output if there
        are several. With ``groups`` a frame with the columns query, group, rows (how many the group
        has), before, after, change, and output if there are several. `without` deletes a set of
        rows that you name.

        Exact with the structure held fixed, as `without` defines a deletion. Positive: without the
        row the prediction, or score, would be higher. A leaf of boosted trees that no row is left
        in adds nothing. In a tree, a forest or bagged trees it has the value of its nearest
        ancestor that still has rows of the tree's sample. nan, with a warning, where without the
        row no weight is left at all. Of weights in the leaf matrix, O(T^2) per training row once
        and O(T) per row and prediction; of contributions one replay of the fit per training row,
        O(T N^2) in all. 8 * K * n * n_train bytes without ``k`` and ``groups``; with them no (n,
        n_train) array is held.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        k : int, optional
            How many training rows per prediction to list; rows without effect are left out.
        groups : sequence of length n_train, or str, optional
            A label for each training row: a year, a region, a source; or the name of a column of
            X_train. Exact, as `without` is: effects of single rows do not add up to that of their
            group. nan where no row is left without the group. Of a model fitted to transformed
            targets before, after and change are in the targets' own units. Some four passes over
            the trees, O(T N), for each group.
        method : "exact", "first-order" or None
            How effects of single rows are computed; by default exactly, unless that fits neither
            into memory nor into some 10 seconds: then to first order, ``-w_j dF(x) / dw_j``, with
            an `ApproximationWarning`. First-order effects do not see a leaf become empty. Medians,
            quantiles, Huber's loss, ``path_smooth``, monotone constraints and class weights that
            are counted from labels have none: their exact effects are replayed, however long that
            takes. Of trees, forests and bagged trees with balanced classes effects of single rows
            are refused; ask ``groups``.
        by : "effect" or "contribution", default "effect"
            What rows are chosen by. Contributions, what rows put into the steps of the trees,
            predict better what a refit without them does (docs/paper/faithfulness.md); the column
            is then contribution.
        same_sign : bool, default False
            List rows that all move the prediction in one direction: the one in which their effects
            add up to more.
        greedy : bool, default False
            Compute effects again after each row of a set of one sign, so that they are exact and
            add up. Some three passes over the trees for each row and query.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`; with ``groups``.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> explainer.removal(X.head(2)).shape
        (2, 442)
        >>> list(explainer.removal(X.head(2), k=3).columns)
        ['query', 'rank', 'row', 'effect']
        >>> list(explainer.removal(X.head(2), groups="sex").columns)
        ['query', 'group', 'rows', 'before', 'after', 'change']
        """
        if method is not None:
            inputs.as_choice(method, METHODS, "method")
        by_contribution = inputs.as_choice(by, ("effect", "contribution"), "by") == "contribution"
        greedy = inputs.as_flag(greedy, "greedy")
        same_sign = inputs.as_flag(same_sign, "same_sign")
        _refuse_unused(k, groups, method, by_contribution, same_sign or greedy, greedy, init_score)
        explained = self._explained_rows("removal", X, init_score)
        if groups is not None:
            return by_group(explained, explained.model.coded(groups))
        if k is None:
            return dense(explained, method, by_contribution)
        k = inputs.as_count(k, "k")
        if greedy:
            explained.model.capabilities.require("removal(greedy=True)")
        if by_contribution:
            source = contributions_of(explained.model)
        else:
            source = source_of(explained.model, method, 0, greedy)
        return listed(explained, source, k, same_sign or greedy, greedy)


def _refuse_unused(
    k: Any,
    groups: Any,
    method: Any,
    by_contribution: bool,
    one_sign: bool,
    greedy: bool,
    offsets: Any,
) -> None:
    """Refuse options that would change nothing, by name."""
    if groups is not None and (k is not None or method is not None or by_contribution or one_sign):
        raise InputError(
            "groups deletes whole groups, each at once: leave k, method, by, same_sign and greedy out."
        )
    if groups is None and offsets is not None:
        raise InputError("init_score is taken with groups, or by without(X, rows): leave it out.")
    if k is None and one_sign:
        raise InputError("same_sign and greedy choose rows to list: say how many with k.")
    if by_contribution and (method is not None or greedy):
        raise InputError(
            'method and greedy compute effects, and by="contribution" has none: leave them out.'
        )


def contributions_of(model: Any) -> Source:
    """Return the source of what rows put into the steps of trees.

    Only some rows are ranked, so the contributions make no prediction.
    """
    found: Source = replace(model.contribution_source, adds_up=False)
    return found


def source_of(model: Any, method: str | None, taken: int, greedy: bool = False) -> Source:
    """The source of effects by ``method``, where ``taken`` bytes are in use already; None: exact effects where they fit."""
    if greedy and method is None and not model.are_forests and model.has_first_order:
        method = "first-order"  # exact ones follow after each row
    if method == "first-order":
        return FIRST_ORDER
    available = max(model.budget.available - taken, 0)
    n_rows = model.shape[0]
    seconds, fits = model.deletion_seconds(available)
    if method is None and not fits and seconds > PATIENCE and model.has_first_order:
        if seconds < np.inf:
            warn(
                f"Exact deletions of {n_rows} training rows do not fit into {in_words(available)}, and replays take "
                f'{in_time(seconds)}: the effects are first-order ones. Wait for exact ones with method="exact", or pass '
                'method="first-order".',
                ApproximationWarning,
            )
        return FIRST_ORDER
    named = "explainer.without(X, rows) is one replay, without the rows that you name."
    if model.has_first_order:
        instead = 'method="first-order" takes less.'
    else:
        instead = named
    announce(f"Exact deletions of {n_rows} training rows take", seconds, instead)
    return replace(DELETIONS, available=available, note=model.deletion_note())


def dense(explained: ExplainedRows, method: str | None, by_contribution: bool) -> FloatArray:
    """(n, N) or (n, K, N): one number about every training row, gathered."""
    model = explained.model
    n = len(explained)
    n_train, n_outputs = model.shape
    array = 8 * n * n_train * n_outputs
    if by_contribution:
        source = contributions_of(model)
    else:
        source = source_of(model, method, array)
    working = model.bytes_per_query(source) + 8 * n_train * n_outputs
    room = (
        3 * 8 * min(n * n_train, BLOCK_ENTRIES)
    )  # for a block of effects, with what they are made of
    model.budget.require(
        array + working + room, f"An array of {n} predictions by {n_train} rows", INSTEAD
    )
    found = np.empty((n_train, n_outputs, n)).T  # effects come row by row
    size = model.budget.batch_size(working, array + room)
    for batch, part in answer(
        model.ready(source, n), explained.queries, source, Whole(adds_up=source.adds_up), size
    ):
        if n_outputs == 1 and len(batch) == n:
            found = part.parts[0][:, None]  # all of them already, in one array
            break
        for output, own in enumerate(part.by_output(n_outputs)):
            found[batch.start : batch.start + len(batch), output] = own
    if not by_contribution:
        warn_emptied(int(np.isnan(found).sum()), found.size, "effects")
    if model.outputs is None:
        return found[:, 0]
    return found


def listed(explained: ExplainedRows, source: Source, k: int, same_sign: bool, greedy: bool) -> Any:
    """The table of the rows of largest effect."""
    model = explained.model
    unranked = 0
    want = Ranked(k, same_sign, model.n_threads)
    if greedy:
        # with the effects again
        seconds = 2 * len(explained) * model.shape[1] * min(k, model.shape[0]) * model.pass_seconds
        instead = "Fewer predictions, smaller sets or greedy=False take less."
        announce(f"Greedy sets of {len(explained)} predictions take", seconds, instead, once=False)
    name = model.scale.label(
        "contribution" if source.quantity is Quantity.CONTRIBUTION else "effect"
    )
    parts = []
    for batch, found in explained.answers(
        want, min(k, model.shape[0]), 4, source=source, line_bytes=6 * 8
    ):
        unranked += found.unranked
        best = found.best
        if greedy:
            best = model.removed_in_turn(batch, best)
        parts.append(_columns(model, batch, best, name))
    _warn_unranked(unranked)
    if greedy:
        note = model.replay_note
    else:
        note = model.note(source.note)
    return tables.note(tables.concatenate(parts, model.backend), note)


def _columns(model: Any, batch: QueryBatch, best: Best, name: str) -> dict[str, Any]:
    """query, (output,) rank, row and effect; rows without effect are left out."""
    made = tables.label_columns(
        batch.labels, model.outputs, "rank", np.arange(1, best.size.shape[2] + 1)
    )
    made |= {"row": best.columns["row"].ravel(), name: best.columns["effect"].ravel()}
    kept = best.size.ravel() > 0
    return {column: values[kept] for column, values in made.items()}


def by_group(explained: ExplainedRows, coded: Sequence[Any]) -> Any:
    """The table of deletions of whole groups."""
    model = explained.model
    n_groups = explained.model.n_groups(coded)
    n_lines = len(explained) * model.shape[1] * n_groups
    model.budget.require(
        tables.bytes_of(n_lines, 6), f"The table of {n_lines} lines", tables.SMALLER
    )
    announce(
        f"Fits without each of {n_groups} groups take",
        n_groups * model.pass_seconds,
        "Fewer groups take less.",
        once=False,
    )
    found = model.without_groups(explained.queries, coded)
    counts = found.counts
    before = found.before
    after = found.after
    some = counts < counts.sum()
    warn_emptied(int(np.isnan(after[:, :, some]).sum()), after.size)
    start = np.repeat(model.scale.inverse(before).ravel(), len(counts))
    wide = np.moveaxis(after, 1, 2)
    ends = np.moveaxis(
        model.scale.inverse(wide.reshape(-1, wide.shape[2])).reshape(wide.shape), 2, 1
    ).ravel()
    columns = tables.label_columns(explained.queries.labels, model.outputs, "group", found.names)
    columns |= {
        "rows": np.tile(counts, before.size),
        "before": start,
        "after": ends,
        "change": ends - start,
    }
    return tables.note(tables.make(columns, model.backend), model.replay_note)


def warn_emptied(n: int, of: int, what: str = "predictions") -> None:
    """Warn of nan in some numbers, because no row of any weight is left."""
    if n:
        warn(
            f"{n:,} of {of:,} {what} are nan: without the deleted rows no training row of any weight is left, so nothing says "
            "what the prediction would be. Ask for fewer rows.",
            UserWarning,
        )


def _warn_unranked(n: int) -> None:
    """Warn of effects, nan, that no rank can be given."""
    if n:
        warn(
            f"{n:,} effects have no rank, and their rows are not listed: without the row no training row of any weight is left, "
            "so nothing says what the prediction would be. explainer.removal(X) has nan for them.",
            UserWarning,
        )
