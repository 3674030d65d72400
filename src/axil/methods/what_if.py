"""Predictions if some training targets were others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, TableLike
from axil.arrays import FloatArray
from axil.errors import InputError
from axil.methods.kinds import refittable_model
from axil.methods.method import Method
from axil.methods.without import change_columns
from axil.output import tables
from axil.replay.verified_model import Refittable


class WhatIf(Method):
    """Provide `Explainer.what_if`."""

    def what_if(
        self, X: TableLike, targets: Mapping[Any, Any], *, init_score: ArrayLike | None = None
    ) -> DataFrame:
        """Predict X as if some training rows, by label, had other targets or classes.

        The answer is exact with the tree structure fixed, and `refit` with the same ``targets``
        gives the same predictions. It is a frame with the columns query, before, after, change, and
        output if there are several; of an additive explainer then probability (or mean) before and
        after. The cost is one replay, O(T N), whatever the number of rows.

        Where predictions are linear in the targets, ``change = sum_j k_j (new_j - old_j)`` over the
        rows named. With L1, clipped steps, monotone constraints, percentiles, Huber's loss or MAPE
        they are linear only while the active set is fixed (``verification.active_set``). If the
        targets move by ``verification.active_set.radius`` or more in all, axil replays the fit and
        computes the active set again. Of an additive explainer it always replays the fit; which
        leaves the library set to zero is held fixed.

        Of a model fitted to transformed targets, before, after and change are in the targets' own
        units. New targets are given as ``y_train`` was: in their own units where the model
        transforms them itself, such as by logarithms, and transformed where you did that
        (``inverse_func``).

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        targets : mapping of row label to target
            The new targets, given as ``y_train`` was. Of a label that several training rows share,
            all of them get the target.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.
        """
        query_batch = self._explained_rows("what_if", X, init_score)
        model = refittable_model(query_batch.model)
        before, change = model.changes.moved(query_batch.queries, changed_targets(model, targets))
        columns = change_columns(model, query_batch.queries, before, before + change)
        if model.scale.is_identity:
            columns["change"] = change.ravel()  # without the rounding of the predictions
        return tables.note(tables.make(columns, model.backend), model.deletions.replay_note)


def changed_targets(model: Refittable, targets: Mapping[Any, Any]) -> FloatArray:
    """Return the training targets (N, K), with the new ones in place, on the scale of the fit."""
    labels, values = by_label(targets, "targets", "new target")
    entries, rows = inputs.positions(labels, model.index, "targets")
    changed: FloatArray = model.targets.copy()
    if len(rows):
        new_targets = model.changes.as_targets(values, len(values), "targets", "changed")
        changed[rows] = model.changes.as_counted(new_targets[entries], rows)
    return changed


def by_label(mapping: Any, parameter: str, kind: str) -> tuple[list[Any], list[Any]]:
    """Return the labels of training rows and the values that a mapping gives them.

    Parameters
    ----------
    mapping : mapping of row label to value
        A mapping or a pandas Series; axil raises for anything else.
    parameter, kind : str
        The name of the parameter, and what its values are, for the message.
    """
    if not hasattr(mapping, "items") or len(getattr(mapping, "shape", ())) > 1:
        raise InputError(
            f"{parameter} is a {type(mapping).__name__}; expected {{row label: {kind}, ...}}."
        )
    pairs = list(mapping.items())
    return [label for label, _ in pairs], [value for _, value in pairs]
