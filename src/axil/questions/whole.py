"""Whole predictions: the effects of every training row on each of them, with all that explanations and pages show."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from axil.effects import DERIVATIVES, Source, Whole, answer
from axil.effects.whole import Gathered
from axil.errors import counted
from axil.inputs.copies import owned_rows
from axil.output.account import Account
from axil.output.context import Context
from axil.output.predictions import WeightedSums
from axil.replay.queries import Combination, Offsets, Queries


def sums(model: Any, source: Source, batch: Queries | Combination, found: Gathered) -> WeightedSums:
    """The predictions of a batch as sums."""
    single, (targets, index) = model.outputs is None, model.gathered
    additive = model.kind == "additive" and source is model.source
    counted_as = np.ones_like(targets) if additive else targets
    return WeightedSums(
        weights=found.parts[0] if len(found.parts) == 1 else np.stack(found.parts),
        intercepts=found.intercepts[:, 0] if single else found.intercepts,
        targets=counted_as[:, 0] if single else counted_as,
        index=index,
        query_index=batch.labels,
        kind=model.kind if source is model.source else "derivative",
        outputs=model.outputs,
        backend=model.backend,
        n_threads=model.n_threads,
        context=_context(model, batch),
        scale=model.scale,
        seen=targets if additive else model.seen,
        account=_account(model, batch) if additive else None,
        classes=model.classes,
    )


def _context(model: Any, batch: Queries | Combination) -> Context:
    held = "" if getattr(model.verification, "held", None) is None else str(model.verification.held)
    own = None if model.verification is None and model.kind == "exact" else batch.predictions
    rows = None if batch.rows is None else owned_rows(batch.rows)
    return Context(rows, model.table, model.adapter.feature_names, own, held)


def _account(model: Any, batch: Queries | Combination) -> Account:
    """The account that goes with pushes: the meaning of scores, and derivatives, which are computed when asked for.

    Sums of scores have no meaning behind the link.
    """
    if isinstance(batch, Combination):
        return Account("", None, partial(_derived_sums, model), batch)
    meant = model.meant(batch.predictions)  # the model's own scores: a curve may be steep
    meaning, means = next(iter(meant.items()), ("", None))
    return Account(meaning, means, partial(_derived, model, batch.adapter), batch.offsets, scored=model.scored)


def _derived(model: Any, adapter: Any, X: Any, offsets: Offsets) -> WeightedSums:
    """The derivatives of the scores of X by the targets. No closure has them: explanations are pickled."""
    n = X.shape[0]
    model.can("weights")
    what = f"The derivatives of {counted(n, 'prediction')} by {model.shape[0]} training rows"
    needed = n * model.bytes_per_query(DERIVATIVES, whole=True)
    model.budget.require(needed, what, "Take fewer predictions: explanation[:10].")
    queries = Queries(adapter, X, offsets, np.arange(n), model.n_threads)
    ((own, found),) = answer(model, queries, DERIVATIVES, Whole(), max(n, 1))
    return sums(model, DERIVATIVES, own, found)


def _derived_sums(model: Any, X: None, asked: Combination) -> WeightedSums:
    """The derivatives of sums of scores by the targets."""
    model.can("weights")
    ((own, found),) = answer(model, asked, DERIVATIVES, Whole(), max(len(asked), 1))
    return sums(model, DERIVATIVES, own, found)
