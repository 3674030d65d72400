"""removal: what deleting training rows, one by one or by groups, does to each prediction.

Effects are exact wherever the leaf matrix fits into memory, or where replays of the fit, one per
training row, take `PATIENCE`. Otherwise they are taken to first order, unless exact ones are asked
for by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, LabelsLike, RemovalMethod, TableLike
from axil.arrays import AnyArray, FloatArray
from axil.attribution import (
    CONTRIBUTIONS,
    DELETIONS,
    FIRST_ORDER,
    STEP_CONTRIBUTIONS,
    Kind,
    Quantity,
    Source,
)
from axil.errors import ApproximationWarning, InputError, warn
from axil.machine.memory import in_words
from axil.machine.progress import in_time
from axil.methods.method import ExplainedRows, Method
from axil.methods.noise import PATIENCE, announce
from axil.output import tables
from axil.reductions import Ranked, Whole, answer
from axil.reductions.top import Best
from axil.replay.queries import QueryBatch
from axil.replay.verified_model import VerifiedModel
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
        method: RemovalMethod | None = None,
        by: Literal["effect", "contribution"] = "effect",
        same_sign: bool = False,
        greedy: bool = False,
        init_score: ArrayLike | None = None,
    ) -> DataFrame:
        """Return the change of each prediction if training rows are deleted, by row or by group.

        An array (n, n_train) or (n, K, n_train) of the effects of all rows. With ``k`` a frame of
        the rows of largest effect, with the columns query, rank, row, effect, and output if there
        are several. With ``groups`` a frame with the columns query, group, rows (how many the group
        has), before, after, change, and output if there are several. `without` deletes a set of
        rows that you name.

        The answer is exact with the tree structure fixed, as `without` defines a deletion. An
        effect is positive if the prediction, or score, would be higher without the row. A leaf of
        boosted trees that loses all its rows adds nothing. In a tree, a forest or bagged trees it
        has the value of its nearest ancestor that still has rows of the tree's sample. nan, with a
        warning, where without the row no weight is left at all. Of weights in the leaf matrix,
        O(T^2) per training row once and O(T) per row and prediction; of contributions one replay of
        the fit per training row, O(T N^2) in all. 8 * K * n * n_train bytes without ``k`` and
        ``groups``; with them no (n, n_train) array is held.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        k : int, optional
            How many training rows per prediction to list; rows without effect are left out.
        groups : sequence of length n_train, or str, optional
            A label for each training row: a year, a region, a source; or the name of a column of
            X_train. Exact, as `without` is: effects of single rows do not add up to that of their
            group. nan if no row is left without the group. Of a model fitted to transformed
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
            What rows are chosen by. Contributions are what rows put into the steps of the trees. At
            leaves of two rows, sets chosen by them moved refits further
            (docs/evidence_deletions.md#which-rows-by-which-rule). The column is then contribution.
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
            return by_group(explained, explained.model.training.group_codes(groups))
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
    k: int | None,
    groups: LabelsLike | None,
    method: str | None,
    by_contribution: bool,
    one_sign: bool,
    greedy: bool,
    offsets: ArrayLike | None,
) -> None:
    """Raise for options that would change nothing, by name."""
    if groups is not None and (k is not None or method is not None or by_contribution or one_sign):
        raise InputError(
            "groups deletes whole groups, each at once: leave k, method, by, same_sign and greedy "
            "out."
        )
    if groups is None and offsets is not None:
        raise InputError("init_score is taken with groups, or by without(X, rows): leave it out.")
    if k is None and one_sign:
        raise InputError("same_sign and greedy choose rows to list: say how many with k.")
    if by_contribution and (method is not None or greedy):
        raise InputError(
            'method and greedy compute effects, and by="contribution" has none: leave them out.'
        )


def contributions_of(model: VerifiedModel) -> Source:
    """Return the source of contributions to the steps of trees.

    Only some rows are ranked, so the contributions make no prediction.
    """
    source = STEP_CONTRIBUTIONS
    if model.kind is Kind.ADDITIVE:
        source = CONTRIBUTIONS
    return replace(source, adds_up=False)


def source_of(
    model: VerifiedModel, method: str | None, bytes_in_use: int, greedy: bool = False
) -> Source:
    """Return the source of the effects of deletions.

    Parameters
    ----------
    model : VerifiedModel
    method : str or None
        One of `METHODS`; None for exact effects if time and memory allow them.
    bytes_in_use : int
        The bytes that the result takes.
    greedy : bool
        Whether exact effects follow after each row of a set anyway.
    """
    if (
        greedy
        and method is None
        and not model.deletions.is_exact_fast
        and model.deletions.has_first_order
    ):
        method = "first-order"
    if method == "first-order":
        return FIRST_ORDER
    available = max(model.budget.available - bytes_in_use, 0)
    n_rows = model.shape[0]
    seconds, fits = model.deletions.seconds(available)
    if method is None and not fits and seconds > PATIENCE and model.deletions.has_first_order:
        if seconds < np.inf:
            warn(
                f"Exact deletions of {n_rows} training rows do not fit into {in_words(available)}, "
                f"and replays take {in_time(seconds)}: the effects are first-order ones. Wait for "
                'exact ones with method="exact", or pass method="first-order".',
                ApproximationWarning,
            )
        return FIRST_ORDER
    instead = "explainer.without(X, rows) is one replay, without the rows that you name."
    if model.deletions.has_first_order:
        instead = 'method="first-order" takes less.'
    announce(f"Exact deletions of {n_rows} training rows take", seconds, instead)
    return replace(DELETIONS, available=available, note=model.deletions.note())


def dense(explained: ExplainedRows, method: str | None, by_contribution: bool) -> FloatArray:
    """Return one number about every explained row and training row, (n, N) or (n, K, N)."""
    model = explained.model
    n = len(explained)
    n_train, n_outputs = model.shape
    result_bytes = 8 * n * n_train * n_outputs
    if by_contribution:
        source = contributions_of(model)
    else:
        source = source_of(model, method, result_bytes)
    bytes_per_row = model.bytes_per_query(source) + 8 * n_train * n_outputs
    # A block of effects is made of two arrays of its size.
    block_bytes = 3 * 8 * min(n * n_train, BLOCK_ENTRIES)
    model.budget.require(
        result_bytes + bytes_per_row + block_bytes,
        f"An array of {n} predictions by {n_train} rows",
        INSTEAD,
    )
    # Effects are computed training row by training row, so these come first in memory.
    effects = np.empty((n_train, n_outputs, n)).T
    size = model.budget.batch_size(bytes_per_row, result_bytes + block_bytes)
    reduction = Whole(adds_up=source.adds_up)
    for batch, gathered in answer(
        model.ready(source, n), explained.queries, source, reduction, size
    ):
        if n_outputs == 1 and len(batch) == n:
            # One array has all of them already.
            effects = gathered.parts[0][:, None]
            break
        batch_rows = slice(batch.start, batch.start + len(batch))
        for output, output_effects in enumerate(gathered.by_output(n_outputs)):
            effects[batch_rows, output] = output_effects
    if not by_contribution:
        warn_emptied(int(np.isnan(effects).sum()), effects.size, "effects")
    if model.names.outputs is None:
        return effects[:, 0]
    return effects


def listed(
    explained: ExplainedRows, source: Source, k: int, same_sign: bool, greedy: bool
) -> DataFrame:
    """Return the table of the k training rows of largest effect on each prediction."""
    model = explained.model
    lines = min(k, model.shape[0])
    if greedy:
        # Each row of a set takes one replay for the deletion, and one for the effects after it.
        seconds = 2 * len(explained) * model.shape[1] * lines * model.deletions.pass_seconds
        instead = "Fewer predictions, smaller sets or greedy=False take less."
        announce(f"Greedy sets of {len(explained)} predictions take", seconds, instead, once=False)
    name = "effect"
    if source.quantity is Quantity.CONTRIBUTION:
        name = "contribution"
    name = model.scale.label(name)
    n_unranked = 0
    batch_columns = []
    reduction = Ranked(k, same_sign, model.n_threads)
    for batch, ranking in explained.answers(reduction, lines, 4, source=source, line_bytes=6 * 8):
        n_unranked += ranking.unranked
        best = ranking.best
        if greedy:
            best = model.deletions.in_turn(batch, best)
        batch_columns.append(_columns(model, batch, best, name))
    _warn_unranked(n_unranked)
    if greedy:
        note = model.deletions.replay_note
    else:
        note = model.note(source.note)
    return tables.note(tables.concatenate(batch_columns, model.backend), note)


def _columns(model: VerifiedModel, batch: QueryBatch, best: Best, name: str) -> dict[str, AnyArray]:
    """Return the columns query, (output,) rank, row and effect, without rows of no effect."""
    ranks = np.arange(1, best.size.shape[2] + 1)
    columns = tables.label_columns(batch.labels, model.names.of_tables, "rank", ranks)
    columns |= {"row": best.columns["row"].ravel(), name: best.columns["effect"].ravel()}
    has_effect = best.size.ravel() > 0
    return {column: values[has_effect] for column, values in columns.items()}


def by_group(explained: ExplainedRows, coded: Sequence[Any]) -> DataFrame:
    """Return the table of deletions of whole groups.

    Parameters
    ----------
    explained : ExplainedRows
    coded : sequence
        The group of each training row, shard by shard.
    """
    model = explained.model
    n_groups = model.training.most_groups(coded)
    n_lines = len(explained) * model.shape[1] * n_groups
    model.budget.require(
        tables.bytes_of(n_lines, 6), f"The table of {n_lines} lines", tables.SMALLER
    )
    announce(
        f"Refits without each of {n_groups} groups take",
        n_groups * model.deletions.pass_seconds,
        "Fewer groups take less.",
        once=False,
    )
    predictions = model.deletions.without_groups(explained.queries, coded)
    counts = predictions.counts
    # Without the only group no row is left: that needs no warning.
    is_part = counts < counts.sum()
    n_emptied = int(np.isnan(predictions.after[:, :, is_part]).sum())
    warn_emptied(n_emptied, predictions.after.size)
    before = np.repeat(model.scale.inverse(predictions.before).ravel(), len(counts))
    by_query = np.moveaxis(predictions.after, 1, 2)  # (n, G, K)
    in_units = model.scale.inverse(by_query.reshape(-1, by_query.shape[2]))
    after = np.moveaxis(in_units.reshape(by_query.shape), 2, 1).ravel()
    labels = explained.queries.labels
    columns = tables.label_columns(labels, model.names.of_tables, "group", predictions.names)
    columns |= {
        "rows": np.tile(counts, predictions.before.size),
        "before": before,
        "after": after,
        "change": after - before,
    }
    return tables.note(tables.make(columns, model.backend), model.deletions.replay_note)


def warn_emptied(n_nan: int, n: int, numbers: str = "predictions") -> None:
    """Warn if some of n numbers are nan, because no training row with a weight is left."""
    if n_nan:
        warn(
            f"{n_nan:,} of {n:,} {numbers} are nan: without the deleted rows no training row of "
            "any weight is left, so nothing says what the prediction would be. Ask for fewer "
            "rows.",
            UserWarning,
        )


def _warn_unranked(n_unranked: int) -> None:
    """Warn if some effects are nan, and so have no rank."""
    if n_unranked:
        warn(
            f"{n_unranked:,} effects have no rank, and their rows are not listed: without the row "
            "no training row of any weight is left, so nothing says what the prediction would be. "
            "explainer.removal(X) has nan for them.",
            UserWarning,
        )
