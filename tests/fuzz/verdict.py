"""Whether axil is exact for a tuned model, refuses it by name, or is wrong about it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import axil
from tests.fuzz.data import Draw, Trial
from tests.fuzz.judge import Wrong, check_sums, check_wrong_data, prediction_error, silence
from tests.fuzz.mutations import MUTATIONS, VerifiedModel

MISTAKES = 2  # of all kinds, that a model is tried with
ASKED = 100  # training rows whose weights wrong data are judged by


@dataclass(frozen=True)
class Verdict:
    kind: str  #: "exact", "additive", "refused" or "wrong"
    setting: str = ""  #: which refused it
    error: float | None = None  #: of the rows held out, relative to the largest prediction
    allowed: float | None = None
    why: str = ""


def verdict_of(trial: Trial, draw: Draw) -> Verdict:
    """Exact: the proof holds, rows held out are predicted by weights @ targets + intercepts, and wrong data are noticed.

    Additive: the proof holds, and pushes add up to the scores of rows held out.
    """
    try:
        with silence() as said:
            explainer = axil.Explainer(
                trial.model, trial.X, trial.y, sample_weight=trial.sample_weight
            )
            outside, inside = explainer(trial.X_new), explainer(trial.X[:ASKED])
        if said:
            raise Wrong(f"axil printed or warned: {said[0][:300]}")
        if explainer.kind != "exact":
            check_sums(outside)
            return Verdict(explainer.kind)
        error, allowed = prediction_error(explainer, trial, outside, trial.X_new, None)
        if not error <= allowed:
            raise Wrong(
                f"predictions of rows held out are off by {error:.3g}; {allowed:.3g} is allowed"
            )
        weights = np.asarray(inside.weights).reshape(-1, len(trial.y))
        ranked = bool(
            explainer.verification.active_set and explainer.verification.active_set.ranked
        )
        mistakes = draw.rng.permutation(["one row missing"] if ranked else list(MUTATIONS))[
            :MISTAKES
        ]
        check_wrong_data(
            VerifiedModel(explainer, trial.X[:ASKED], None, weights), trial, draw, mistakes
        )
    except axil.UnsupportedModelError as error:
        return Verdict("refused", error.setting, why=error.reason)
    except (axil.AxilError, Wrong) as error:
        return Verdict("wrong", why=f"{type(error).__name__}: {str(error)[:400]}")
    return Verdict("exact", "", error, allowed)
