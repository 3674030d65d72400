"""Answers beyond single weights: sets of rows to remove, blame for a validation error."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

from axil.errors import InputError, shown
from axil.inputs import as_table
from axil.output import tables
from axil.questions.asking import (
    Explained,
    Offsets,
    base_numbers,
    checked_coordinates,
    explanations,
    fitted,
    for_all_outputs,
    leverages,
)
from axil.weights.answers import Effects
from axil.weights.contract import Engine

Array = NDArray[np.float64]
Rows = NDArray[np.int64]

LEAST_LEFT = 1e-6  # of 1 - leverage: below it a row's own prediction says nothing that its own target does not


class SignedSet:
    """The m largest effects of either sign on each of n predictions, gathered block by block."""

    def __init__(self, n: int, m: int, n_train: int, n_threads: int):
        none = np.zeros(n_train)
        self.positive, self.negative = (tables.Largest(n, m, none, "weight", n_threads) for _ in range(2))

    def read(self, effects: Effects) -> SignedSet:
        """Take in all of them."""
        sides = (self.positive, np.maximum), (self.negative, np.minimum)
        found = effects.sparse()
        if found is not None:
            for side, clip in sides:
                side.add_sparse(csr_array((clip(found.data, 0.0), found.indices, found.indptr), found.shape))
            return self
        for first, block in effects.blocks():
            for side, clip in sides:
                side.add(clip(block, 0.0), first)
        return self

    def chosen(self, i: int) -> tuple[Rows, Array]:
        """Rows and effects of the sign that adds up to more for prediction i; rows without effect are left out."""
        falls = -self.negative.values[i].sum() > self.positive.values[i].sum()
        side = self.negative if falls else self.positive
        kept = side.values[i] != 0
        return side.rows[i][kept], side.values[i][kept]


def remove_in_turn(engine: Engine, query: Any, targets: Array, k: int, first: tuple[Rows, Array]) -> tuple[Rows, Array]:
    """As many rows as ``first`` has, in its direction: each of largest effect once those before are gone; exact effects.

    After each removal the fit to output k of the targets is computed anew, structure held fixed: some four passes over the trees.
    """
    sign = float(np.sign(first[1][:1].sum()))
    rows, effects, left = list[int](), list[float](), engine
    before = float(left.predicted(query, targets)[0, k])
    for _ in first[0]:
        gains = sign * left.removal(query, targets)[k].dense()[0]
        best = int(gains.argmax())  # a row that is gone has weight 0, so effect 0
        if gains[best] <= 0:
            break
        rows.append(best)
        left = engine.without(np.array(rows))
        after = float(left.predicted(query, targets)[0, k])
        effects.append(after - before)
        before = after
    return np.array(rows, dtype=np.int64), np.array(effects, dtype=np.float64)


def set_columns(
    found: list[tuple[Any, Any, Rows, Array]], name: str, index: NDArray[Any], query_index: NDArray[Any], several: bool
) -> dict[str, Any]:
    """query, (output,) rank, row and ``name`` from (position of the query, output, rows, effects) of each prediction."""
    sizes = [len(rows) for _, _, rows, _ in found]
    rows = np.concatenate([rows for _, _, rows, _ in found] or [np.empty(0, dtype=np.int64)])
    columns: dict[str, Any] = {"query": query_index[np.repeat([i for i, *_ in found], sizes).astype(np.intp)]}
    if several:
        columns["output"] = np.repeat([output for _, output, _, _ in found], sizes)
    return columns | {
        "rank": np.concatenate([np.arange(1, n + 1) for n in sizes] or [rows]),
        "row": index[rows],
        name: np.concatenate([effects for *_, effects in found] or [np.empty(0)]),
    }


def corrections(asked: Explained, correction: Any) -> Array | None:
    """(N, K): what the targets might be instead; see `Questions.blame`."""
    if correction is None:
        return None
    if isinstance(correction, str):
        if correction != "leave-one-out":
            raise InputError(
                f'correction is {shown(correction)}; expected "leave-one-out", None, or an array of your own out-of-fold '
                "predictions of the training rows, as from sklearn.model_selection.cross_val_predict(model, X_train, y_train)."
            )
        return left_out_values(fitted(asked), leverages(asked), asked._targets)
    n, n_outputs = asked._targets.shape
    return as_table(correction, n, n_outputs, "correction")


def left_out_values(fitted: Array, leverage: Array, targets: Array) -> Array:
    """(N, K): ``(F_j - K_jj y_j) / (1 - K_jj)``, the target at which row j's own prediction would agree with it.

    That is what all other rows say of row j. Where K_jj is within 1e-6 of one they say nothing: nan.
    """
    left = 1.0 - leverage
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(left > LEAST_LEFT, (fitted - leverage * targets) / left, np.nan)


def blame_columns(
    asked: Explained, X: Any, y: Array, offsets: Offsets, init_score: Any, corrected: Array | None
) -> dict[str, Any]:
    """row, (output,) target, gradient, and with a correction corrected and gain; the largest gain, else |gradient|, first."""
    targets, n = asked._targets, len(y)
    coordinates, made = checked_coordinates(asked, X)
    errors = made + offsets.values - y
    if offsets.replace_base:
        errors -= base_numbers(asked)
    combined = for_all_outputs(
        asked._engines, errors, lambda engine, own: engine.combine(coordinates, own, offsets.base)
    )
    gradient = 2 / n * combined
    columns: dict[str, Any] = {"row": np.repeat(asked.index, targets.shape[1])}
    if asked.outputs is not None:
        columns["output"] = np.tile(asked.outputs, len(targets))
    columns |= {"target": targets.ravel(), "gradient": gradient.ravel()}
    keys = np.abs(columns["gradient"])
    if corrected is not None:
        moved = corrected - targets
        gain = -(moved * gradient + moved**2 / n * _column_squares(asked, X, init_score))
        columns |= {"corrected": corrected.ravel(), "gain": gain.ravel()}
        keys = columns["gain"]
    order = np.argsort(-keys, kind="stable")  # nan last
    return {name: values[order] for name, values in columns.items()}


def _column_squares(asked: Explained, X: Any, init_score: Any) -> Array:
    """(N, 1) or (N, K): ``sum_i K_ij^2`` over the rows i of X."""
    total: Any = 0.0
    for part in explanations(asked, X, init_score):
        weights = part.weights
        squares = weights.multiply(weights) if issparse(weights) else np.square(weights)
        total = total + np.asarray(squares.sum(axis=-2)).reshape(-1, len(asked._targets)).T
    return np.asarray(total)
