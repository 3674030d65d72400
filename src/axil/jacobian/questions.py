"""Questions about boosted models of any loss, beside explanations: other targets, labels to blame, rows to remove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.errors import InputError, UnsupportedQuestionError
from axil.jacobian.boosting import Boosting
from axil.machine.memory import Budget
from axil.output import tables
from axil.questions.removal import SignedSet, set_columns
from axil.types import Array

WHAT_IF = "exact with the fitted structure held fixed: every leaf value is computed again; not a retraining"


def changed_targets(model: Boosting, index: NDArray[Any], targets: Mapping[Any, Any]) -> Array:
    """(N, K): the training targets, or classes, with {row label: new target} in their place."""
    if not hasattr(targets, "items"):
        raise InputError(f"targets is a {type(targets).__name__}; expected {{row label: new target, ...}}.")
    labels, values = [label for label, _ in targets.items()], [value for _, value in targets.items()]
    rows = inputs.positions(labels, index, "targets")
    made = model.targets.copy()
    if len(rows):
        made[rows] = model.as_targets(values, len(values), "targets", "changed")
    return made


def what_if(
    model: Boosting, X: Any, labels: NDArray[Any], outputs: NDArray[Any] | None, targets: Array, backend: str
) -> Any:
    """The table of `JacobianExplainer.what_if`."""
    leaves, before = model.located(X)
    change = model.refitted(targets).scores(leaves) - model.refitted(model.targets).scores(leaves)
    after = before + change
    columns: dict[str, Any] = {"query": np.repeat(labels, before.shape[1])}
    if outputs is not None:
        columns["output"] = np.tile(outputs, len(labels))
    columns |= {"before": before.ravel(), "after": after.ravel(), "change": change.ravel()}
    means = [model.means(scores) for scores in (before, after)]
    for name, found in zip(("before", "after"), means):
        if found is not None:
            columns[f"{model.meaning} {name}"] = found.ravel()
    return tables.note(tables.make(columns, backend), WHAT_IF)


def removal_set(
    model: Boosting,
    X: Any,
    labels: NDArray[Any],
    outputs: NDArray[Any] | None,
    m: int,
    index: NDArray[Any],
    budget: Budget,
    backend: str,
    n_threads: int,
) -> Any:
    """The table of `JacobianExplainer.removal_set`."""
    n, (n_train, n_outputs) = X.shape[0], model.targets.shape
    lines = min(m, n_train) * n_outputs
    size = tables.batch_size(budget, n, lines, 7, model.pushes.bytes_per_query() + 12 * 8 * lines)
    found: list[tuple[Any, Any, NDArray[np.int64], Array]] = []
    for start in range(0, n, size):
        leaves, _ = model.located(inputs.take_rows(X, slice(start, start + size)))
        sets = [SignedSet(len(leaves), m, n_train, n_threads) for _ in range(n_outputs)]
        for first, blocks in model.pushes.blocks(leaves):
            for one, block in zip(sets, blocks):
                one.add(block, first)
        for i in range(len(leaves)):
            for k, one in enumerate(sets):
                found.append((start + i, k if outputs is None else outputs[k], *one.chosen(i)))
    columns = set_columns(found, "push", index, labels, outputs is not None)
    return tables.note(tables.make(columns, backend), tables.ADDITIVE)


def blame(model: Boosting, X: Any, y: Any, index: NDArray[Any], outputs: NDArray[Any] | None, backend: str) -> Any:
    """The table of `JacobianExplainer.blame`."""
    if X.shape[0] == 0:
        raise InputError("X_val has no rows; expected validation rows with their targets.")
    if not model.meaning:
        raise UnsupportedQuestionError(
            "blame", "it is of the deviance of classes, counts and amounts", "Use axil.Explainer for squared error."
        )
    gradient = model.validation_gradient(X, model.as_targets(y, X.shape[0], "y_val", "validation"))  # (N, K)
    if model.classes is None:
        columns: dict[str, Any] = {"row": index, "target": model.targets[:, 0], "gradient": gradient[:, 0]}
        keys = np.abs(gradient[:, 0])
    else:
        columns, keys = _by_class(model, gradient, index)
    order = np.argsort(-keys, kind="stable")
    columns = {name: values[order] for name, values in columns.items()}
    return tables.note(tables.make(columns, backend), tables.FIRST_ORDER)


def _by_class(model: Boosting, gradient: Array, index: NDArray[Any]) -> tuple[dict[str, Any], Array]:
    """Columns and gains: the best other class of each row, to first order."""
    assert model.classes is not None
    full = gradient if gradient.shape[1] > 1 else np.column_stack([np.zeros(len(gradient)), gradient])
    targets = model.targets if gradient.shape[1] > 1 else np.column_stack([1 - model.targets, model.targets])
    own = targets.argmax(axis=1)
    every = np.arange(len(own))
    others = full.copy()
    others[every, own] = np.inf
    best = others.argmin(axis=1)
    gain = full[every, own] - full[every, best]
    columns = {"row": index, "target": model.classes[own], "corrected": model.classes[best], "gain": gain}
    return columns, gain
