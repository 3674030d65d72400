"""What axil answers about plain models, against their replays: deletions, other targets, patterns, files and wrong data."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import axil
from tests.fuzz.data import Array, Draw
from tests.fuzz.judge import Wrong, silence
from tests.fuzz.mutations import CHANGES
from tests.fuzz.refits import AGREES, Fit
from tests.reference import predicted_numbers

NEAR = (
    1e-6  # of the largest number in a fit: bases are in float32, all else of a replay is in float64
)
DIVERGED = 100.0  # of that number: rounding decides about scores that are larger
SHOWS = 1e-3  # of that number: wrong data that move a score by more must be noticed
INSIDE = 0.999  # of the radius
# A push is made of gradients that some libraries keep in float32, so pushes are compared within AGREES.
ENTRIES = 6  # of a file, that are changed one at a time


def explained(fit: Fit) -> Any:
    """The explainer, whose scores must be the model's own."""
    with silence() as said:
        explainer = axil.Explainer(
            fit.model, fit.X, fit.y, sample_weight=fit.sample_weight, init_score=fit.offsets
        )
        found = explainer(fit.X_new, init_score=fit.new_offsets)
        theirs = np.reshape(fit.raw(fit.X_new, fit.new_offsets), (len(fit.X_new), -1))
    if said:
        raise Wrong(f"axil printed or warned: {said[0][:300]}")
    made = _outputs_last(found.contributions).sum(axis=-2) + np.reshape(
        found.intercepts, theirs.shape
    )
    if not np.abs(made - theirs).max() <= 10 * NEAR * max(fit.size, np.abs(theirs).max()):
        raise Wrong(
            f"contributions and intercepts are {np.abs(made - theirs).max():.3g} away from the model's scores"
        )
    return explainer


def _outputs_last(found: Any) -> Array:
    """(n, N, K) of (n, N), or of (n, K, N)."""
    found = np.asarray(found)
    return found[:, :, None] if found.ndim == 2 else np.moveaxis(found, 1, -1)


def check_answers(fit: Fit, draw: Draw) -> None:
    """without, removal, leave_one_out, what_if and pushes are what the replay says."""
    explainer, rng, n = explained(fit), draw.rng, len(fit.y)
    leaf = fit.leaves[0] == fit.asked[0, 0]
    sets = [rng.random(n) < share for share in (0.1, 0.5, 0.9)] + [
        leaf,
        np.arange(n) == rng.integers(n),
    ]
    for gone in sets:
        expected = fit.scores(gone=gone)[0] if not gone.all() else np.full(1, np.inf)
        if not np.isinf(expected).any() and _has_base(fit, gone):
            _compare(
                fit, "without", expected, lambda gone=gone: _after(explainer.without, fit, gone)
            )
    unoffset = replace(fit, new_offsets=None)
    every = [np.arange(n) == row for row in range(n)]
    known = np.array([_has_base(fit, gone) for gone in every])
    effects = [unoffset.scores(gone=gone)[0] for gone in every]
    effects = np.stack(effects, axis=1) - unoffset.scores()[0][:, None]
    _compare(
        fit,
        "removal",
        effects[:, known],
        lambda: _outputs_last(explainer.removal(fit.X_new))[:, known],
    )
    if explainer.kind == "exact":
        own = [fit.scores(gone=gone)[1][row] for row, gone in enumerate(every)]
        own = np.where([[fit.alone(row)] for row in range(n)], np.nan, own)
        _compare(
            fit,
            "leave_one_out",
            own,
            lambda: predicted_numbers(explainer.diagnostics.leave_one_out()),
        )
    if explainer.kind == "additive":
        pushes, rounding = (np.moveaxis(array, 0, -1) for array in unoffset.refitted()[3:])
        _compare(
            fit,
            "pushes",
            pushes,
            lambda: _outputs_last(explainer.jacobian.gradient_contributions(fit.X_new)),
            AGREES,
            rounding,
        )
    changed, y = rng.choice(n, min(n, 3), replace=False), fit.y.copy()
    y[changed] = (
        rng.permutation(fit.y)[: len(changed)] if fit.loss.n_classes else y[changed] * 0.8 + 0.2
    )
    if not _has_base(replace(fit, y=y), np.zeros(n, dtype=bool)):
        return
    targets = {int(row): (int(y[row]) if fit.loss.n_classes else float(y[row])) for row in changed}
    _compare(fit, "what_if", fit.scores(y=y)[0], lambda: _after(explainer.what_if, fit, targets))


def _has_base(fit: Fit, gone: Array) -> bool:
    """Whether rows of every class are left, which the start of a classifier needs."""
    kept = ~np.asarray(gone)
    return (
        fit.draws is not None
        or bool((fit.columns[kept] != 0).any(axis=0).all())
        or not fit.loss.n_classes
    )


def _after(question: Callable[..., Any], fit: Fit, given: Any) -> Any:
    how = {} if fit.new_offsets is None else {"init_score": fit.new_offsets}
    return np.reshape(question(fit.X_new, given, **how)["after"], (len(fit.X_new), -1))


def _compare(
    fit: Fit,
    what: str,
    expected: Array,
    ask: Callable[[], Any],
    near: float = NEAR,
    slack: Array | float = 0.0,
) -> None:
    """Equal to the replay, or called approximate; nan where the replay has none, and deletions say so.

    ``slack``: how much further apart each number may be.
    """
    with silence() as said:
        found = np.reshape(ask(), expected.shape)
    said = [
        one for one in said if not one.startswith("SplitsWarning")
    ]  # of many rows deleted, as here on purpose
    if any(one.startswith("ApproximationWarning") for one in said):
        return
    none, other = np.isnan(expected), np.isnan(found)
    if (none != other).any():
        raise Wrong(
            f"{what} is nan in {other.sum()} of {other.size} places, and in {none.sum()} by the replay"
        )
    announced = [one for one in said if " are nan: without the deleted rows" in one]
    if len(announced) != (what in ("without", "removal") and none.any()):
        raise Wrong(f"{what}: {none.sum()} numbers are nan, and {len(announced)} warnings say so")
    if len(said) > len(announced):
        raise Wrong(
            f"{what}: axil printed or warned: {next(one for one in said if one not in announced)[:300]}"
        )
    largest = float(np.abs(expected[~none]).max(initial=0.0))
    if largest > DIVERGED * fit.size:
        return
    if fit.loss.start_of is not None:  # gradients are scaled by percentiles in single precision
        near = max(near, AGREES)
    allowed = max(near * max(fit.size, largest), 10 * fit.apart)
    apart = np.abs(np.where(none, 0.0, found - expected))
    beyond = apart - allowed - slack
    if beyond.max(initial=0.0) > 0:
        at = np.unravel_index(beyond.argmax(), apart.shape)
        raise Wrong(
            f"{what} is {found[at]:.8g} where the replay has {expected[at]:.8g}; {allowed:.2g} apart is allowed"
        )


def check_radius(fit: Fit, draw: Draw) -> None:
    """No move of one target by less than the radius changes which leaves L1 or a largest step holds."""
    explainer = explained(fit)
    held = explainer.verification.active_set
    if held is None or not NEAR * 100 * fit.size < held.radius < np.inf:
        return
    pattern = fit.refitted()[2]
    for row in draw.rng.permutation(len(fit.y))[:30]:
        for sign in (-1, 1):
            y = fit.y.copy()
            y[row] += sign * INSIDE * held.radius
            moved = int((fit.refitted(y=y)[2] != pattern).sum())
            if moved:
                raise Wrong(
                    f"target {row} moved by {y[row] - fit.y[row]:.4g}, inside the radius, changes {moved} leaves"
                )


def check_file(fit: Fit, draw: Draw) -> None:
    """A saved file with one entry changed is refused, or answers as before."""
    explainer, rng = explained(fit), draw.rng
    right = _answers(explainer, fit)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "explainer.npz"
        explainer.save(path)
        with np.load(path) as file:
            whole = dict(file)
        names = [
            name for name, array in whole.items() if array.size and not name.startswith("index")
        ]
        for name in rng.choice(names, ENTRIES):
            at = int(rng.integers(whole[name].size))
            entries = whole | {name: _changed(whole[name], at, rng, name == "header")}
            np.savez(path, **entries)
            try:
                with silence():
                    found = _answers(axil.load(path, fit.model), fit)
            except axil.AxilError:
                continue
            for question, answer in right.items():
                if not np.allclose(
                    found[question], answer, rtol=0, atol=100 * NEAR * fit.size, equal_nan=True
                ):
                    raise Wrong(f"{name}[{at}] changed in a file and passed; {question} differs")


def _changed(array: Any, at: int, rng: np.random.Generator, is_text: bool) -> Any:
    """An array with another number in one place; of text, another digit in place of the next one."""
    made = array.copy()
    flat = made.reshape(-1)
    if is_text:
        digits = np.flatnonzero((flat >= ord("0")) & (flat <= ord("9")))
        one = digits[at % len(digits)]
        flat[one] = ord("0") + (flat[one] - ord("0") + 1 + rng.integers(8)) % 10
    elif array.dtype == bool:
        flat[at] = not flat[at]
    elif array.dtype.kind == "f":
        flat[at] = flat[at] * 1.5 + 0.5 if np.isfinite(flat[at]) else 1.0
    else:
        one = array.dtype.type(1)
        flat[at] = flat[at] - one if flat[at] > 0 and rng.random() < 0.5 else flat[at] + one
    return made


def _answers(explainer: Any, fit: Fit) -> dict[str, Array]:
    """Answers to what a file may be asked."""
    with silence():
        found = explainer(fit.X_new)
        answers = {
            "contributions": np.asarray(found.contributions),
            "removal": explainer.removal(fit.X_new),
        }
        gone = np.arange(len(fit.y)) % 3 == 0
        answers["without"] = np.asarray(explainer.without(fit.X_new, gone)["after"], dtype=float)
        if explainer.kind == "exact":
            answers["leave_one_out"] = predicted_numbers(explainer.diagnostics.leave_one_out())
    return answers


def check_mistakes(fit: Fit, draw: Draw) -> None:
    """Wrong data that move scores are refused, or change no answer."""
    explainer = explained(fit)
    right = np.asarray(explainer(fit.X_new, init_score=fit.new_offsets).contributions)
    for change in CHANGES:
        wrong = change(fit, draw.rng)
        if not _shows(fit, wrong):
            continue
        try:
            with silence():
                other = axil.Explainer(
                    wrong.model,
                    wrong.X,
                    wrong.y,
                    sample_weight=wrong.sample_weight,
                    init_score=wrong.offsets,
                )
                found = np.asarray(other(fit.X_new, init_score=fit.new_offsets).contributions)
        except axil.AxilError:
            continue
        if not np.allclose(found, right, rtol=0, atol=NEAR * fit.size):
            raise Wrong(
                f"{change.__name__}: passed, and contributions move by {np.abs(found - right).max():.3g}"
            )


def _shows(fit: Fit, wrong: Fit) -> bool:
    """Whether a fit to the wrong data moves a score in a leaf that a training row is in."""
    asked = np.hstack([fit.asked, fit.leaves])
    with np.errstate(all="ignore"):
        right, other = (
            replace(one, asked=asked, new_offsets=None).scores()[0] for one in (fit, wrong)
        )
    return not float(np.abs(other - right).max()) <= SHOWS * fit.size
