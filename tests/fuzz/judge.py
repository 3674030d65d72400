"""What must hold for a random model that axil explains, and for what axil says while it does."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from reference import dense_weights, replay

import axil
from fuzz.data import Draw, Trial


class Wrong(AssertionError):
    """What axil said is not so."""


def judge(trial: Trial, draw: Draw) -> None:
    """Raise one of axil's errors, or `Wrong`."""
    with silence() as said:
        explainer = axil.Explainer(trial.model, trial.X, trial.y, trial.sample_weight, trial.offsets)
        inside = explainer(trial.X, init_score=trial.offsets)
        outside = ask(explainer, trial)
    if said:
        raise Wrong(f"axil printed or warned: {said[0][:300]}")
    for explanation, X, offsets in ((inside, trial.X, trial.offsets), (outside, trial.X_new, None)):
        if explanation is not None:
            check_predictions(explainer, trial, explanation, X, offsets)
    if outside is not None:
        (check_refit if explainer.verification.n_trees == 0 else check_structure)(explainer, trial, outside)
    if draw.rng.random() < 0.25:
        check_wrong_data(explainer, trial, draw, np.abs(inside.weights).reshape(-1, len(trial.y)).max(axis=0))


def ask(explainer: Any, trial: Trial) -> Any:
    """The explanation of new rows; None where the model has no prediction for one of them."""
    with contextlib.suppress(axil.InputError):
        return explainer(trial.X_new)
    with silence():
        if np.isfinite(np.asarray(trial.predict(trial.X_new), dtype=float)).all():
            raise Wrong("new rows were refused though the model predicts them")
    return None


def check_predictions(explainer: Any, trial: Trial, explanation: Any, X: Any, offsets: Any) -> None:
    with silence():
        if offsets is None or trial.predict_from is None:
            model = np.asarray(trial.predict(X), dtype=float).reshape(X.shape[0], -1)
            model = model + (0.0 if offsets is None else np.reshape(offsets, model.shape))
        else:
            model = np.asarray(trial.predict_from(X, offsets), dtype=float).reshape(X.shape[0], -1)
    y = explainer.targets.reshape(len(trial.y), -1)
    weights = explanation.weights if explanation.weights.ndim == 3 else explanation.weights[None]
    made = np.stack([weights[min(k, len(weights) - 1)] @ y[:, k] for k in range(model.shape[1])], axis=1)
    made += explanation.intercepts.reshape(made.shape)
    scale = max(float(np.abs(model).max()), explainer.verification.scale, trial.base)
    error = float(np.abs(made - model).max())
    if not error <= 1.01 * explainer.verification.tolerance * scale + explainer.verification.rounding:
        raise Wrong(f"predictions are off by {error / scale:.3g} of the largest")


def check_structure(explainer: Any, trial: Trial, explanation: Any) -> None:
    """Against the dense recursion, and against a replay of the fit on other targets."""
    with silence():
        leaves = explainer.proven.adapter.leaves(trial.X_new)
    y = explainer.proven.targets
    delta = np.random.default_rng(0).normal(size=y.shape) * (np.abs(y).max() or 1.0)
    weights = explanation.weights
    for k, found in enumerate(weights if weights.ndim == 3 else [weights] * y.shape[1]):
        s = explainer.proven.engines[k if len(explainer.proven.engines) > 1 else 0].structure
        own = leaves if s.columns is None else leaves[:, s.columns]
        expected, _ = dense_weights(s, own)
        if not np.abs(found - expected).max() <= 1e-10 * max(1.0, np.abs(expected).max()):
            raise Wrong(f"weights are off by {np.abs(found - expected).max():.3g} from the dense recursion")
        moved = replay(s, y[:, k] + delta[:, k], own) - replay(s, y[:, k], own)
        slack = 1e-10 * max(np.abs(y[:, k] + delta[:, k]).max(), trial.base) * max(1.0, np.abs(found).sum(axis=1).max())
        if not np.abs(found @ delta[:, k] - moved).max() <= slack:
            raise Wrong(f"a replay on other targets is off by {np.abs(found @ delta[:, k] - moved).max():.3g}")


def check_refit(explainer: Any, trial: Trial, explanation: Any) -> None:
    """A smoother chooses nothing by its targets but what is held fixed: a refit moves by the weights, if the solver is exact."""
    if trial.refit is None:
        return
    scale = float(np.abs(trial.y).max()) or 1.0
    delta = np.random.default_rng(0).normal(size=trial.y.shape) * scale
    with silence():
        moved = np.asarray(trial.refit(trial.y + delta).predict(trial.X_new) - trial.predict(trial.X_new))
    made = explanation.weights @ delta
    slack = 1e-6 * max(scale, float(np.abs(moved).max()), float(np.abs(made).max()))
    if not np.abs(made - moved.reshape(made.shape)).max() <= slack:
        raise Wrong(f"a refit on other targets is off by {np.abs(made - moved.reshape(made.shape)).max():.3g}")


def check_wrong_data(explainer: Any, trial: Trial, draw: Draw, weights: Any) -> None:
    """A wrong target that would move a prediction noticeably, or weights left out, must be noticed."""
    row = int(weights.argmax())
    w, y = trial.sample_weight, np.array(trial.y)
    verification = explainer.verification
    leave_out = w is not None and len(np.unique(w)) > 1 and len(np.unique(y)) > 1 and draw.rng.random() < 0.3
    if leave_out:
        w = None
    elif hasattr(trial.model, "predict_proba"):
        others = np.unique(y[y != y[row]])
        if not len(others) or "balanced" in str(draw.chosen):  # balanced classes have equal shares whatever the labels
            return
        y[row] = others[0]
        shift = 1.0
    else:
        shift = float(max(np.ptp(y), np.abs(y).max(), 1e-3 * verification.scale)) * 0.2
        y[row] = y[row] + shift
    if not leave_out and weights[row] * shift < 100 * verification.tolerance * verification.scale:
        return  # too light to be seen
    try:
        with silence():
            other = axil.Explainer(trial.model, trial.X, y, w, trial.offsets)
            again = other(trial.X, init_score=trial.offsets).weights
            right = explainer(trial.X, init_score=trial.offsets).weights
    except axil.AxilError:
        return
    if leave_out and verification.n_trees and all(e.structure.n_leaves.max() == 1 for e in other.proven.engines):
        return  # nothing but a mean, which is the same with and without: docs/models.md
    if not leave_out:
        raise Wrong(f"the target of row {row} is wrong by {shift:.3g} and passed")
    if np.abs(again - right).max() > 1e-6:
        raise Wrong("sample weights were left out, which changes the weights, and passed")


@contextlib.contextmanager
def silence() -> Iterator[list[str]]:
    """Catch all that is printed, by compiled code too, and all warnings; the list is filled on leaving."""
    said: list[str] = []
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as sink, warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            os.dup2(sink.fileno(), 1)
            os.dup2(sink.fileno(), 2)
            yield said
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for fd, old in zip((1, 2), kept):
                os.dup2(old, fd)
                os.close(old)
            sink.seek(0)
            printed = sink.read().decode(errors="replace").strip()
            said += [printed] if printed else []
            said += [f"{warning.category.__name__}: {warning.message}" for warning in warned]
