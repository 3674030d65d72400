"""What must hold for a random model that axil explains, and for what axil says while it does."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

import axil
from axil.methods.method import verified_model
from tests.fuzz.data import Draw, Trial
from tests.fuzz.mutations import MUTATIONS, VerifiedModel, passed
from tests.reference import dense_weights, replay

ROUNDED = 1e-12  # of numbers that are added up, in absolute value
MOST_GROSS = (
    1e6  # times the score: more is no account of it; `tests.fuzz.terms` has a bound for each row
)


class Wrong(AssertionError):
    """What axil said is not so."""


def judge(trial: Trial, draw: Draw) -> None:
    """Raise one of axil's errors, or `Wrong`."""
    with silence() as said:
        explainer = axil.Explainer(
            trial.model,
            trial.X,
            trial.y,
            sample_weight=trial.sample_weight,
            init_score=trial.offsets,
        )
        inside = explainer(trial.X, init_score=trial.offsets)
        outside = ask(explainer, trial)
    if said:
        raise Wrong(f"axil printed or warned: {said[0][:300]}")
    if explainer.kind != "exact":  # trials of losses compare these with replays
        for explanation in (inside, outside):
            check_sums(explanation)
        return
    for explanation, X, offsets in ((inside, trial.X, trial.offsets), (outside, trial.X_new, None)):
        if explanation is not None:
            check_predictions(explainer, trial, explanation, X, offsets)
    if outside is not None:
        (check_refit if explainer.verification.n_trees == 0 else check_structure)(
            explainer, trial, outside
        )
    # Another row with the same target would take the place of a changed one in a percentile, and the model would be the same; so
    # it is where two rows of the same leaves change places.
    alike = draw.ranked and len(np.unique(trial.y)) < trial.y.size
    mutations = ("one target changed", "one row missing") if draw.ranked else MUTATIONS
    if draw.rng.random() < 0.25 and not alike:
        weights = np.asarray(inside.weights).reshape(-1, len(trial.y))
        check_wrong_data(
            VerifiedModel(explainer, trial.X, trial.offsets, weights), trial, draw, mutations
        )


def judge_encoded(trial: Trial, draw: Draw) -> None:
    """The same for categories that are encoded by the targets, of which every wrong target must be noticed."""
    judge(trial, draw)
    with silence():
        explainer = axil.Explainer(
            trial.model,
            trial.X,
            trial.y,
            sample_weight=trial.sample_weight,
            init_score=trial.offsets,
        )
        inside = explainer(trial.X, init_score=trial.offsets)
    if explainer.kind == "exact":
        weights = np.asarray(inside.weights).reshape(-1, len(trial.y))
        check_wrong_data(
            VerifiedModel(explainer, trial.X, trial.offsets, weights), trial, draw, MUTATIONS
        )
    elif (np.asarray(trial.y) != trial.y[0]).any():
        check_wrong_labels(trial, draw)


def check_wrong_labels(trial: Trial, draw: Draw) -> None:
    """Two targets that differ, exchanged, must be noticed, or make the same scores, as rows that share all leaves do."""
    y = np.array(trial.y)
    first = int(draw.rng.integers(len(y)))
    second = int(draw.rng.choice(np.flatnonzero(y != y[first]))) if (y != y[first]).any() else first
    y[[first, second]] = y[[second, first]]
    try:
        with silence():
            other = axil.Explainer(
                trial.model, trial.X, y, sample_weight=trial.sample_weight, init_score=trial.offsets
            )
            found = other(trial.X)
            scores = np.asarray(trial.predict(trial.X), dtype=float).reshape(
                found.predictions.shape
            )
    except axil.AxilError:
        return
    apart = np.abs(found.intercepts + np.asarray(found.contributions).sum(axis=-1) - scores).max()
    if not apart <= 1e-6 * max(1.0, float(np.abs(scores).max())):
        raise Wrong(f"two targets were exchanged, which moves scores by {apart:.3g}, and passed")


def ask(explainer: Any, trial: Trial) -> Any:
    """The explanation of new rows; None where the model has no prediction for one of them."""
    with contextlib.suppress(axil.InputError):
        return explainer(trial.X_new)
    with silence():
        if np.isfinite(np.asarray(trial.predict(trial.X_new), dtype=float)).all():
            raise Wrong("new rows were refused though the model predicts them")
    return None


def check_sums(explanation: Any) -> None:
    """Contributions and intercepts add up to the scores, and are not huge numbers that cancel."""
    if explanation is None:
        return
    parts, scores = np.asarray(explanation.contributions), np.asarray(explanation.predictions)
    gross = float(np.abs(parts).sum(axis=-1).max(initial=0.0))
    size = max(
        1.0,
        float(np.abs(scores).max(initial=0.0)),
        float(np.abs(explanation.intercepts).max(initial=0.0)),
    )
    made, allowed = explanation.intercepts + parts.sum(axis=-1), 1e-9 * size + ROUNDED * gross
    if not np.abs(made - scores).max(initial=0.0) <= allowed:
        raise Wrong(f"contributions are {np.abs(made - scores).max():.3g} away from the scores")
    if gross > MOST_GROSS * size:
        raise Wrong(
            f"contributions are {gross:.3g} in absolute value, where scores are at most {size:.3g}"
        )


def check_predictions(explainer: Any, trial: Trial, explanation: Any, X: Any, offsets: Any) -> None:
    error, allowed = prediction_error(explainer, trial, explanation, X, offsets)
    if not error <= allowed:
        raise Wrong(f"predictions are off by {error:.3g} of the largest; {allowed:.3g} is allowed")


def prediction_error(
    explainer: Any, trial: Trial, explanation: Any, X: Any, offsets: Any
) -> tuple[float, float]:
    """The largest difference of weights @ targets + intercepts from the library's predictions, and the one allowed.

    Both are relative to the largest prediction.
    """
    X = (
        X.copy()
    )  # scikit-learn's kernels set distances to zero where rows are the very array of the fit
    with silence():
        if offsets is None or trial.predict_from is None:
            model = np.asarray(trial.predict(X), dtype=float).reshape(X.shape[0], -1)
            model = model + (0.0 if offsets is None else np.reshape(offsets, model.shape))
        else:
            model = np.asarray(trial.predict_from(X, offsets), dtype=float).reshape(X.shape[0], -1)
    y = explainer.targets.reshape(len(trial.y), -1)
    weights = explanation.weights
    made = weights @ y if weights.ndim == 2 else np.einsum("ikj,jk->ik", weights, y)
    made = made + explanation.intercepts.reshape(made.shape)
    proof = explainer.verification
    scale = max(float(np.abs(model).max()), proof.scale, trial.base) or 1.0
    return float(
        np.abs(made - model).max()
    ) / scale, 1.01 * proof.tolerance + proof.rounding / scale


def check_structure(explainer: Any, trial: Trial, explanation: Any) -> None:
    """Against the dense recursion, and against a replay of the fit on other targets."""
    if not hasattr(verified_model(explainer).adapter, "leaves"):  # of several models
        return
    with silence():
        leaves = verified_model(explainer).adapter.coordinates(trial.X_new)
    y = verified_model(explainer).targets
    delta = np.random.default_rng(0).normal(size=y.shape) * (np.abs(y).max() or 1.0)
    weights = explanation.weights
    for k in range(y.shape[1]):
        found = weights[:, k] if weights.ndim == 3 else weights
        s = (
            verified_model(explainer)
            .engines[k if len(verified_model(explainer).engines) > 1 else 0]
            .structure
        )
        own = leaves if s.columns is None else leaves[:, s.columns]
        expected, _ = dense_weights(s, own)
        if not np.abs(found - expected).max() <= 1e-10 * max(1.0, np.abs(expected).max()):
            raise Wrong(
                f"weights are off by {np.abs(found - expected).max():.3g} from the dense recursion"
            )
        before, after = replay(s, y[:, k], own), replay(s, y[:, k] + delta[:, k], own)
        moved = after - before
        # Both replays are rounded to their own size, which shifts of leaves and offsets may make larger than targets.
        sizes = [
            np.abs(y[:, k] + delta[:, k]).max(),
            trial.base,
            1e-5 * np.abs(before).max(initial=0.0),
        ]
        slack = 1e-10 * max(sizes) * max(1.0, np.abs(found).sum(axis=1).max())
        if not np.abs(found @ delta[:, k] - moved).max() <= slack:
            raise Wrong(
                f"a replay on other targets is off by {np.abs(found @ delta[:, k] - moved).max():.3g}"
            )


def check_refit(explainer: Any, trial: Trial, explanation: Any) -> None:
    """A smoother chooses nothing by its targets but what is held fixed: a refit moves by the weights, if the solver is exact."""
    if trial.refit is None:
        return
    scale = float(np.abs(trial.y).max()) or 1.0
    delta = np.random.default_rng(0).normal(size=trial.y.shape) * scale
    with silence():
        moved = np.asarray(
            trial.refit(trial.y + delta).predict(trial.X_new) - trial.predict(trial.X_new)
        )
    made = explanation.weights @ delta
    slack = 1e-6 * max(scale, float(np.abs(moved).max()), float(np.abs(made).max()))
    if not np.abs(made - moved.reshape(made.shape)).max() <= slack:
        raise Wrong(
            f"a refit on other targets is off by {np.abs(made - moved.reshape(made.shape)).max():.3g}"
        )


def check_wrong_data(proven: VerifiedModel, trial: Trial, draw: Draw, names: Iterable[str]) -> None:
    """Wrong data of these kinds must be noticed."""
    for name in names:
        with silence():
            found = passed(name, trial, proven, draw)
        if found:
            raise Wrong(found)


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
            told = [f"{warning.category.__name__}: {warning.message}" for warning in warned]
            # trials ask about rows without offsets, and about rows of categories that small tables lack
            known = ("fitted with offsets in place", "UnseenCategoryWarning")
            said += [one for one in told if not any(part in one for part in known)]
