"""Wrong data for a model that was explained: each mistake must be noticed where the model can show it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import axil
from axil.methods.method import verified_model
from tests.fuzz.data import Array, Draw, Trial
from tests.fuzz.refits import Fit

VISIBLE = 100  # times the tolerance: a mistake that moves predictions by less may pass
SCALE = 3.0  # of weights


@dataclass(frozen=True)
class VerifiedModel:
    """An explainer that accepted the right data, and its weights for some rows."""

    explainer: Any
    rows: Any  #: what the weights were asked for
    offsets: Array | None
    weights: Array  #: (rows * outputs, N)

    @property
    def visible(self) -> float:
        """The smallest change of a prediction that must be noticed."""
        verification = self.explainer.verification
        visible = VISIBLE * float(verification.tolerance * verification.scale)
        # Rounding decides on which side of a value the constants are, as CatBoost's delta.
        if verification.active_set is not None and verification.active_set.ranked:
            return max(visible, 2 * verification.active_set.shift)
        return visible

    def change_of_predictions(self, row: int, target: float | Array) -> Array:
        """Return how far predictions move for another target; its rank moves too."""
        new_target = np.asarray(target).tolist()
        table = self.explainer.what_if(self.rows, {row: new_target}, init_score=self.offsets)
        return np.asarray(table["change"], dtype=float)


Mutation = Callable[[Trial, VerifiedModel, Draw], tuple[Trial, Array | None] | None]


def one_target(
    trial: Trial, proven: VerifiedModel, draw: Draw
) -> tuple[Trial, Array | None] | None:
    """The heaviest row's target, changed; the change of every prediction comes with it."""
    row, y = int(np.abs(proven.weights).max(axis=0).argmax()), np.array(trial.y)
    if hasattr(trial.model, "predict_proba"):
        others = np.unique(y[y != y[row]])
        if not len(others) or "balanced" in str(
            draw.chosen
        ):  # balanced classes have equal shares whatever the labels
            return None
        y[row], shift = others[0], 1.0
    else:
        shift = 0.2 * float(
            max(np.ptp(y), np.abs(y).max(), 1e-3 * proven.explainer.verification.scale)
        )
        y[row] = y[row] + shift
        scale = proven.explainer.scale
        if not scale.is_identity:  # the change on the scale of the fit
            shift = float(np.abs(scale.forward(y) - scale.forward(np.asarray(trial.y))).max())
    if draw.ranked:
        return replace(trial, y=y), proven.change_of_predictions(row, y[row])
    return replace(trial, y=y), proven.weights[:, row] * shift


def two_swapped(
    trial: Trial, proven: VerifiedModel, draw: Draw
) -> tuple[Trial, Array | None] | None:
    """Targets of two rows, swapped: of some pairs, the one that moves predictions furthest."""
    if hasattr(trial.model, "predict_proba") or len(trial.y) < 2:
        return None
    scale = proven.explainer.scale
    y = np.asarray(
        trial.y if scale.is_identity else scale.forward(np.asarray(trial.y)), dtype=float
    )
    y = y.reshape(len(y), -1)
    pairs = draw.rng.integers(0, len(y), (20, 2))
    moved = [np.outer(proven.weights[:, i] - proven.weights[:, j], y[j] - y[i]) for i, j in pairs]
    best = int(np.argmax([np.abs(change).max() for change in moved]))
    swapped = np.array(trial.y)
    swapped[pairs[best]] = swapped[pairs[best][::-1]]
    return replace(trial, y=swapped), moved[best]


def one_row_missing(
    trial: Trial, proven: VerifiedModel, draw: Draw
) -> tuple[Trial, Array | None] | None:
    """All rows but the heaviest."""
    row, n = int(np.abs(proven.weights).max(axis=0).argmax()), len(trial.y)
    if (
        n < 2 or not proven.explainer.verification.n_trees
    ):  # smoothers count no rows: the row may lie on the line
        return None
    kept = np.delete(np.arange(n), row)
    X = trial.X.iloc[kept] if hasattr(trial.X, "iloc") else trial.X[kept]
    w, offsets = (None if a is None else a[kept] for a in (trial.sample_weight, trial.offsets))
    changed = replace(trial, X=X, y=trial.y[kept], sample_weight=w, offsets=offsets)
    return changed, None


def weights_scaled(
    trial: Trial, proven: VerifiedModel, draw: Draw
) -> tuple[Trial, Array | None] | None:
    """All sample weights, three times as large."""
    w = np.ones(len(trial.y)) if trial.sample_weight is None else trial.sample_weight
    return replace(trial, sample_weight=SCALE * w), None


def weights_left_out(
    trial: Trial, proven: VerifiedModel, draw: Draw
) -> tuple[Trial, Array | None] | None:
    """No sample weights, where those given differ from row to row."""
    w = trial.sample_weight
    return (
        None if w is None or len(np.unique(w)) < 2 else (replace(trial, sample_weight=None), None)
    )


MUTATIONS: dict[str, Mutation] = {
    "one target changed": one_target,
    "two targets swapped": two_swapped,
    "one row missing": one_row_missing,
    "weights scaled": weights_scaled,
    "weights left out": weights_left_out,
}


def passed(name: str, trial: Trial, proven: VerifiedModel, draw: Draw) -> str:
    """Empty where the mistake was noticed, or the model cannot show it; else what passed."""
    made = MUTATIONS[name](trial, proven, draw)
    if made is None:
        return ""
    wrong, change = made
    if not proven.weights.any():
        return ""  # no row is in any prediction
    if change is not None and np.abs(change).max() < proven.visible:
        return ""
    try:
        other = axil.Explainer(
            trial.model,
            wrong.X,
            wrong.y,
            sample_weight=wrong.sample_weight,
            init_score=wrong.offsets,
        )
        weights = np.asarray(other(proven.rows, init_score=proven.offsets).weights)
    except axil.AxilError:
        return ""
    if change is not None:
        return f"{name} and passed, though predictions move by {np.abs(change).max():.3g}"
    means = other.verification.n_trees and all(
        e.structure.n_leaves.max() == 1 for e in verified_model(other).engines
    )
    if means or len(np.unique(trial.y)) < 2:
        return ""  # a mean, or equal targets, may be the same with and without: docs/models.md
    weights = weights.reshape(len(proven.weights), -1)
    if weights.shape != proven.weights.shape:
        return f"{name} and passed"
    apart = float(np.abs(weights - proven.weights).max())
    # A fit in single precision has no digits left for a smaller mistake.
    allowed = max(1e-6, float(proven.explainer.verification.tolerance))
    return f"{name}, which moves weights by {apart:.3g}, and passed" if apart > allowed else ""


def other_target(fit: Fit, rng: np.random.Generator) -> Fit:
    """One target, changed."""
    y, row = fit.y.copy(), rng.integers(len(fit.y))
    y[row] = (y[row] + 1) % fit.loss.n_classes if fit.loss.n_classes else y[row] * 1.3 + 0.3
    return replace(fit, y=y)


def targets_swapped(fit: Fit, rng: np.random.Generator) -> Fit:
    """Targets of two rows, swapped."""
    return replace(fit, y=fit.y[_swap(len(fit.y), rng)])


def targets_shuffled(fit: Fit, rng: np.random.Generator) -> Fit:
    """Targets in another order."""
    return replace(fit, y=rng.permutation(fit.y))


def rows_swapped(fit: Fit, rng: np.random.Generator) -> Fit:
    """Features of two rows, swapped."""
    order = _swap(len(fit.y), rng)
    return replace(fit, X=fit.X[order], leaves=fit.leaves[:, order])


def row_copied(fit: Fit, rng: np.random.Generator) -> Fit:
    """Features of one row in place of another's."""
    order = np.arange(len(fit.y))
    order[rng.integers(len(order))] = rng.integers(len(order))
    return replace(fit, X=fit.X[order], leaves=fit.leaves[:, order])


def other_weight(fit: Fit, rng: np.random.Generator) -> Fit:
    """One sample weight, three times as large."""
    w = fit.weights.copy()
    w[rng.integers(len(w))] *= SCALE
    return replace(fit, sample_weight=w)


def weights_shuffled(fit: Fit, rng: np.random.Generator) -> Fit:
    """Sample weights in another order."""
    return replace(fit, sample_weight=rng.permutation(fit.weights))


def offsets_shuffled(fit: Fit, rng: np.random.Generator) -> Fit:
    """Offsets in another order."""
    return fit if fit.offsets is None else replace(fit, offsets=rng.permutation(fit.offsets))


def _swap(n: int, rng: np.random.Generator) -> Any:
    order, (i, j) = np.arange(n), rng.choice(n, 2, replace=False)
    order[[i, j]] = j, i
    return order


#: Wrong data for a model whose replay tells how far its scores move.
CHANGES: tuple[Callable[[Fit, np.random.Generator], Fit], ...] = (
    *(other_target, targets_swapped, targets_shuffled, rows_swapped, row_copied),
    *(other_weight, weights_shuffled, offsets_shuffled),
)
