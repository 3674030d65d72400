"""Targets: predictions if some training targets were others, and which of them to blame for an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from axil import inputs
from axil.errors import ApproximationWarning, InputError, UnsupportedQuestionError, shown, warn
from axil.machine.progress import in_time, track
from axil.output import tables
from axil.questions import left_out
from axil.questions.explain import batches
from axil.questions.noise import WARNED, leverages
from axil.replay.held import leaves_beyond
from axil.replay.proven import ProvenModel
from axil.replay.queries import Queries
from axil.types import Array
from axil.weights.boosting import BoostedTrees
from axil.weights.left_out import LEAST_LEFT
from axil.weights.sums import Residual, Sum

COLUMNS = 32  # training rows whose weights are computed together
COPIES = 4  # of their columns while the fit is replayed
MOST_ALONE = 0.5  # of the training rows: above it their predictions without themselves correct too few


def changed_rows(proven: ProvenModel, targets: Mapping[Any, Any]) -> Array:
    """(N, K): what {row label: new target} adds to the targets."""
    if not hasattr(targets, "items") or len(getattr(targets, "shape", ())) > 1:
        raise InputError(f"targets is a {type(targets).__name__}; expected {{row label: new target, ...}}.")
    labels, values = [label for label, _ in targets.items()], [value for _, value in targets.items()]
    which, rows = inputs.positions(labels, proven.index, "targets")
    shape, classes = (len(values), proven.targets.shape[1]), proven.adapter.classes
    given = values if values else np.empty((0,) if shape[1] == 1 or classes is not None else shape)
    new = on_scale(proven, inputs.as_targets(given, *shape, classes, "targets", "changed"), "targets")
    moved = np.zeros_like(proven.targets)
    moved[rows] = new[which] - proven.targets[rows]
    return moved


def on_scale(proven: ProvenModel, given: Array, what: str) -> Array:
    """(n, K): targets given as ``y_train`` was, on the scale of the fit; raises where they are on the other one by mistake."""
    scale = proven.scale
    if scale.is_identity:
        return given
    found = scale.forward(given)
    bad = ~np.isfinite(found) | ~np.isfinite(scale.inverse(found))
    if bad.any():
        kind = "not transformed: the model does that itself" if scale.onward else f"transformed ({scale.name})"
        raise InputError(
            f"{what} holds {given[bad][0]:.6g}, which is no target of this model. Pass targets as y_train was given, {kind}."
        )
    return found


def what_if(proven: ProvenModel, queries: Queries, moved: Array) -> Any:
    """The table of `Questions.what_if`, for targets moved by (N, K)."""
    proven.predicted(queries)  # which checks them
    change = proven.across(moved, lambda engine, own: engine.apply(queries.coordinates, own, queries.offsets.base))
    note = tables.HELD if warn_beyond(proven, proven.targets + moved) else tables.NOTE
    columns = change_columns(proven, queries, queries.predictions, queries.predictions + change)
    if proven.scale.is_identity:
        columns["change"] = change.ravel()  # without the rounding of the predictions
    return tables.note(tables.make(columns, proven.backend), note)


def change_columns(proven: ProvenModel, queries: Queries, before: Array, after: Array) -> dict[str, Any]:
    """query, (output,) before, after and change, as people read them, from predictions (n, K) on the scale of the fit."""
    columns: dict[str, Any] = {"query": np.repeat(queries.labels, before.shape[1])}
    if proven.outputs is not None:
        columns["output"] = np.tile(proven.outputs, len(queries))
    if not proven.scale.is_identity:
        before, after = proven.scale.inverse(before), proven.scale.inverse(after)
    return columns | {"before": before.ravel(), "after": after.ravel(), "change": (after - before).ravel()}


def warn_beyond(proven: ProvenModel, targets: Array) -> bool:
    """Warn where a fit to these targets would leave the pattern that weights hold fixed, and say whether it would."""
    held = None if proven.verification is None else proven.verification.held
    beyond = 0 if held is None else sum(leaves_beyond(engine, own) for engine, own in proven.by_output(targets))
    if held is not None and beyond:
        sure = f"; it holds for sure while targets move by {held.radius:.3g} in all" if held.radius > 0 else ""
        warn(
            f"These targets would change the pattern of {beyond:,} of {held.n_leaves:,} leaves: sums that L1 moves or puts to "
            "zero, values at a clip or a bound. The changes shown hold that pattern fixed, as they hold the splits "
            f"(explainer.verification.held){sure}.",
            ApproximationWarning,
        )
    return beyond > 0


def reach(proven: ProvenModel, queries: Queries, rows: NDArray[np.intp]) -> Array:
    """(n, rows), or (K, n, rows) where outputs have trees of their own: the weights of these training rows alone."""
    n, n_train = len(queries), len(proven.targets)
    array, working = 8 * n * len(rows) * len(proven.engines), COPIES * 8 * COLUMNS * (n + n_train)
    instead = "Ask for fewer rows of X or fewer training rows at a time, or raise memory_limit."
    proven.budget.require(array + working, f"The weights of {n} x {len(rows)} rows", instead)
    proven.predicted(queries)  # which checks them
    found = np.empty((len(proven.engines), n, len(rows)))
    for start in track(range(0, len(rows), COLUMNS), "reach"):
        some = rows[start : start + COLUMNS]
        units = np.zeros((n_train, len(some)))
        units[some, np.arange(len(some))] = 1.0
        for own, engine in zip(found, proven.engines):
            own[:, start : start + len(some)] = engine.apply(queries.coordinates, units, queries.offsets.base)
    return found[0] if len(found) == 1 else found


def validation(proven: ProvenModel, X_val: Any, y_val: Any, init_score: Any) -> tuple[Queries, Array]:
    """Validation rows and their targets (n, K), checked."""
    queries = proven.queries(X_val, init_score)
    if not len(queries):
        raise InputError("X_val has no rows; expected validation rows with their targets.")
    classes = proven.adapter.classes
    y = inputs.as_targets(y_val, len(queries), proven.targets.shape[1], classes, "y_val", "validation")
    return queries, on_scale(proven, y, "y_val")


def corrections(proven: ProvenModel, correction: Any) -> Array:
    """(N, K): what the targets might be instead; see `Questions.blame`."""
    if not isinstance(correction, str):
        return own_predictions(proven, correction, "correction")
    if correction != "leave-one-out":
        raise InputError(
            f'correction is {shown(correction)}; expected "leave-one-out", None, or an array of your own out-of-fold '
            "predictions of the training rows, as from sklearn.model_selection.cross_val_predict(model, X_train, y_train)."
        )
    found, exact = said_by_others(proven)
    if exact:
        left_out.pattern_note(proven)  # which warns
    return found


def said_by_others(proven: ProvenModel) -> tuple[Array, bool]:
    """(N, K): the prediction of each training row without itself, and whether it is that, or what its weights say of it."""
    seconds, available = left_out.seconds_of(proven), proven.budget.available
    if WARNED < seconds < np.inf and seconds > sum(e.costs(available).leverage for e in proven.engines):
        longer = f"fits without each of {len(proven.targets)} training rows take {in_time(seconds)} on two cores"
        return _agreeing_values(proven, f'{longer}, and explainer.leave_one_out()["prediction"] waits for them'), False
    try:
        found = left_out.predictions(proven)
    except UnsupportedQuestionError as error:
        return _agreeing_values(proven, error.reason), False
    if np.isnan(found).mean() <= MOST_ALONE:
        return found, True
    reason = "most training rows are alone in one of their leaves, so no fit without them says more"
    return _agreeing_values(proven, reason), False


def own_predictions(proven: ProvenModel, given: Any, what: str) -> Array:
    """(N, K): predictions of the training rows by the user's own cross-validation, on the scale of the fit."""
    n, n_outputs = proven.targets.shape
    return on_scale(proven, inputs.as_table(given, n, n_outputs, what), what)


def _agreeing_values(proven: ProvenModel, reason: str) -> Array:
    """(N, K): ``(F_j - K_jj y_j) / (1 - K_jj)``, the target at which row j's own prediction would agree with it.

    That is what all other rows say of row j. Where K_jj is within 1e-6 of one they say nothing: nan.
    """
    if any(isinstance(engine, (BoostedTrees, Sum, Residual)) for engine in proven.engines):
        warn(
            f"The leave-one-out predictions are approximate here: {reason}. In their place are the targets at which rows' own "
            "predictions would agree with them, a few percent nearer to the rows' targets. Out-of-fold predictions of your own "
            "are better: cross_val_predict(model, X_train, y_train), as correction of blame or out_of_fold of audit.",
            ApproximationWarning,
        )
    return agreeing_values(proven)


def agreeing_values(proven: ProvenModel) -> Array:
    """(N, K): the target at which each row's own prediction would agree with it; nan where others say nothing of it."""
    leverage = leverages(proven)
    left = 1.0 - leverage
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(left > LEAST_LEFT, (proven.fitted() - leverage * proven.targets) / left, np.nan)


def blame(proven: ProvenModel, queries: Queries, y: Array, corrected: Array | None) -> Any:
    """The table of `Questions.blame` for validation targets (n, K): the largest gain, else |gradient|, first."""
    targets, gradient = proven.targets, error_gradient(proven, queries, y)
    columns: dict[str, Any] = {"row": np.repeat(proven.index, targets.shape[1])}
    if proven.outputs is not None:
        columns["output"] = np.tile(proven.outputs, len(targets))
    scale = proven.scale
    columns |= {"target": proven.shown.ravel(), scale.label("gradient"): gradient.ravel()}
    keys = np.abs(gradient.ravel())
    if corrected is not None:
        gain = gains(proven, queries, gradient, corrected)
        columns |= {"corrected": scale.inverse(corrected).ravel(), scale.label("gain"): gain.ravel()}
        keys = gain.ravel()
    order = np.argsort(-keys, kind="stable")  # nan last
    columns = {name: values[order] for name, values in columns.items()}
    note = tables.NOTE if corrected is None else left_out.note_on(np.isnan(corrected).ravel())
    return tables.note(tables.make(columns, proven.backend), note)


def error_gradient(proven: ProvenModel, queries: Queries, y: Array) -> Array:
    """(N, K): the gradient of the mean squared error on validation targets (n, K) in the training targets."""
    errors = proven.predicted(queries) - y
    coordinates, base = queries.coordinates, queries.offsets.base
    return 2 / len(y) * proven.across(errors, lambda engine, own: engine.combine(coordinates, own, base))


def gains(proven: ProvenModel, queries: Queries, gradient: Array, corrected: Array) -> Array:
    """(N, K): by how much that error would fall if one target were corrected."""
    moved = corrected - proven.targets
    return -(moved * gradient + moved**2 / len(queries) * _column_squares(proven, queries))


def _column_squares(proven: ProvenModel, queries: Queries) -> Array:
    """(N, 1) or (N, K): ``sum_i K_ij^2`` over the queries i."""
    total: Any = 0.0
    size = proven.budget.batch_size(proven.dense_bytes())
    for part in batches(proven, queries, size, proven.is_sparse):
        weights = part.weights
        squares = weights.multiply(weights) if issparse(weights) else np.square(weights)
        total = total + np.asarray(squares.sum(axis=-2)).reshape(-1, len(proven.targets)).T
    return np.asarray(total)
