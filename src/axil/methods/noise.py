"""The noise of the targets, from the residuals: exact, or estimated where that would take too long.

    sigma^2 = RSS / trace((I - K)'(I - K))

The exact trace takes the leverages and the squares of K: O(T^2 N + L^3), or O(T N^2). The estimate
is Hutchinson's: for a vector z of random signs the mean of ``|z - K z|^2`` is that trace, and the
mean of ``z'K z`` is trace K. Each z costs a pass over the trees, O(T N), whatever L; the scatter
over `PROBES` of them says how far the estimate may be off. The signs are always the same.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from axil.aliases import ArrayLike
from axil.arrays import FloatArray
from axil.errors import ApproximationWarning, CostWarning, InputError, shown, warn
from axil.inputs import as_sizes
from axil.machine.progress import in_time
from axil.replay.exact_model import ExactModel

PROBES = 32  # random vectors
TOGETHER = 8  # of them in one pass
PATIENCE = 10.0  # seconds that an answer may take for sigma alone, unless asked for by name
ON_PAGE = 2.0  # seconds that a page may take for sigma, unless asked for it
WARNED = 30.0  # seconds above which work on all training rows is announced
WITHOUT_LEVERAGES = (
    'Without them there are leverage and degrees_of_freedom with method="estimate", '
    'standard_error(X, sigma="estimate"), and influence with out_of_fold=None or with predictions '
    "of your own."
)
LEAST_FREEDOM = 1e-9  # of the number of rows: below it residuals say nothing of the noise


class Estimate(NamedTuple):
    """A number estimated from random vectors, or (K,) of them, and its standard error."""

    value: Any
    standard_error: Any


def leverages(model: ExactModel) -> FloatArray:
    """Return the leverages of the training rows, (N, 1), or (N, K) if outputs have their own trees.

    They are computed once. axil warns before, if that takes long.
    """
    return model.kept.get("leverages", lambda: _leverages(model))


def _leverages(model: ExactModel) -> FloatArray:
    """Compute `leverages`, with a warning before."""
    available = model.budget.available
    seconds = sum(engine.costs(available).leverage for engine in model.engines)
    announce(
        f"The leverages of {len(model.targets)} training rows take", seconds, WITHOUT_LEVERAGES
    )
    values = np.stack([engine.leverage(available) for engine in model.engines], axis=1)
    values.setflags(write=False)
    return values


def announce(work: str, seconds: float, instead: str, once: bool = True) -> None:
    """Warn of the time that work on all training rows takes, before it begins, if that is long.

    Parameters
    ----------
    work : str
        The work, as the subject and verb of a sentence: "The leverages of 10 training rows take".
    seconds : float
        The time that it takes; inf if the model refuses it.
    instead : str
        A sentence on what takes less.
    once : bool
        Whether an explainer does it once. Work that every call does again is announced sooner.
    """
    least = PATIENCE
    times = ""
    if once:
        least = WARNED
        times = ", once for this explainer"
    if least < seconds < np.inf:
        warn(f"{work} {in_time(seconds)} on two cores{times}. {instead}", CostWarning)


def sigma_of(model: ExactModel, sigma: ArrayLike | str | None) -> FloatArray:
    """Return the noise of the targets, () or (K,).

    Parameters
    ----------
    model : ExactModel
    sigma : float, array of shape (K,), "exact", "estimate" or None
        The noise, or how it is computed; by default exactly if that takes `PATIENCE` at most.
    """
    if sigma is not None and not isinstance(sigma, str):
        return as_sizes(sigma, model.targets.shape[1], "sigma")
    if sigma not in (None, "exact", "estimate"):
        raise InputError(
            f"sigma is {shown(sigma)}; expected a number from 0 up, one for each output, "
            '"exact", "estimate" or None.'
        )
    seconds = exact_seconds(model)
    if sigma == "exact" or (sigma is None and seconds <= PATIENCE):
        return exact(model)
    estimate = estimated(model)
    if sigma is None:
        warn(
            f"sigma, the noise of the targets, is estimated, within {off(estimate):.2g} % (one "
            f"standard error): exactly it would take {in_time(seconds)}. Pass "
            'sigma="exact" for that, sigma="estimate" for this without a warning, or sigma as a '
            "number.",
            ApproximationWarning,
        )
    return np.asarray(estimate.value)


def for_page(model: ExactModel, at_any_cost: bool = False) -> tuple[FloatArray | None, str | None]:
    """Return sigma for a page, and a sentence if it is an estimate.

    Sigma is None if the fit does not show it, or if it is not cached and even its estimate takes
    longer than `ON_PAGE`. With ``at_any_cost`` axil computes it, or raises.
    """
    cached = model.kept.known()
    seconds = exact_seconds(model)
    patience = ON_PAGE
    if at_any_cost:
        patience = PATIENCE
    available = model.budget.available
    estimate_seconds = PROBES * sum(engine.costs(available).column for engine in model.engines)
    try:
        if "sigma" in cached or seconds <= patience:
            return exact(model), None
        if not (at_any_cost or "estimated sigma" in cached or estimate_seconds <= ON_PAGE):
            return None, None
        estimate = estimated(model)
        sentence = f"sigma is estimated, within {off(estimate):.2g} % (one standard error)"
        return np.asarray(estimate.value), sentence
    except InputError:
        if at_any_cost:
            raise
        return None, None


def exact_seconds(model: ExactModel) -> float:
    """Estimate the time that `exact` takes if it is not cached; inf if the model refuses it."""
    available = model.budget.available
    engine_costs = [engine.costs(available) for engine in model.engines]
    return sum(costs.leverage + costs.squares for costs in engine_costs)


def exact(model: ExactModel) -> FloatArray:
    """Return ``sqrt(RSS / trace((I - K)'(I - K)))``, (K,), computed once.

    This is the size of the targets' noise if the model has no bias.
    """
    _require_one_size(model)
    return model.kept.get("sigma", lambda: _exact(model))


def _exact(model: ExactModel) -> FloatArray:
    """Compute `exact`, with a warning before."""
    trace = leverages(model).sum(axis=0)
    available = model.budget.available
    seconds = sum(engine.costs(available).squares for engine in model.engines)
    announce(
        f"The squared weights of {len(model.targets)} training rows take",
        seconds,
        WITHOUT_LEVERAGES,
    )
    squares = [engine.squares(available) for engine in model.engines]
    freedom = len(model.targets) - 2 * trace + np.array(squares)
    _require_freedom(model, freedom)
    return np.asarray(np.sqrt(_rss(model) / freedom))


def estimated(model: ExactModel) -> Estimate:
    """Return sigma by random vectors, and its standard error, (K,) each, computed once."""
    _require_one_size(model)
    return model.kept.get("estimated sigma", lambda: _estimated(model))


def _estimated(model: ExactModel) -> Estimate:
    """Compute `estimated`."""
    _, freedom = _probed(model)
    _require_freedom(model, freedom.value)
    value = np.sqrt(_rss(model) / freedom.value)
    return Estimate(value, value * freedom.standard_error / freedom.value / 2)


def estimated_trace(model: ExactModel) -> Estimate:
    """Return trace K by random vectors, and its standard error.

    They are (K,), or (1,) if outputs share their trees.
    """
    return _probed(model)[0]


def _probed(model: ExactModel) -> tuple[Estimate, Estimate]:
    """Return both traces, computed once."""
    return model.kept.get("probes", lambda: _probe(model))


def _probe(model: ExactModel) -> tuple[Estimate, Estimate]:
    """Estimate trace K and trace((I - K)'(I - K)) for every engine."""
    stream = np.random.default_rng(0)
    n = len(model.targets)
    batches: list[FloatArray] = []
    for _ in range(0, PROBES, TOGETHER):
        z = np.where(stream.random((n, TOGETHER)) < 0.5, -1.0, 1.0)
        engine_traces = []
        for engine in model.engines:
            product = engine.matvec(None, z)
            traces = [(z * product).sum(axis=0), np.square(z - product).sum(axis=0)]
            engine_traces.append(traces)
        batches.append(np.array(engine_traces))
    values = np.concatenate(batches, axis=2)  # (engines, 2, probes)
    mean = values.mean(axis=2)
    error = values.std(axis=2, ddof=1) / np.sqrt(PROBES)
    return Estimate(mean[:, 0], error[:, 0]), Estimate(mean[:, 1], error[:, 1])


def _rss(model: ExactModel) -> FloatArray:
    """Return the sum of squared residuals of each output, (K,)."""
    return np.asarray(np.square(model.targets - model.fitted()).sum(axis=0))


def _require_one_size(model: ExactModel) -> None:
    """Raise if the targets are class labels."""
    if model.adapter.classes is not None:
        raise InputError(
            "The noise of class labels is not of one size; pass sigma, the size of the targets' "
            "noise."
        )


def _require_freedom(model: ExactModel, freedom: FloatArray) -> None:
    """Raise if residuals have next to no degrees of freedom."""
    if (freedom <= LEAST_FREEDOM * len(model.targets)).any():
        raise InputError(
            f"The model leaves {freedom.min():.3g} degrees of freedom to its residuals: it "
            "reproduces its targets, so they do not show the noise. Pass sigma, as from validation "
            "data."
        )


def off(estimate: Estimate) -> float:
    """Return the largest standard error of an estimate in percent."""
    if np.all(estimate.value):
        return float(100 * np.max(estimate.standard_error / estimate.value))
    return 0.0
