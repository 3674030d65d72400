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
    'Without them there are leverage and degrees_of_freedom with method="estimate", standard_error(X, sigma="estimate"), and '
    "influence with out_of_fold=None or with predictions of your own."
)
LEAST_FREEDOM = 1e-9  # of the number of rows: below it residuals say nothing of the noise


class Estimate(NamedTuple):
    """A number estimated from random vectors, or (K,) of them, and its standard error."""

    value: Any
    standard_error: Any


def leverages(proven: ExactModel) -> FloatArray:
    """(N, 1), or (N, K) where outputs have trees of their own; made once, after a warning where that takes long."""
    return proven.kept.get("leverages", lambda: _leverages(proven))


def _leverages(proven: ExactModel) -> FloatArray:
    available = proven.budget.available
    seconds = sum(engine.costs(available).leverage for engine in proven.engines)
    announce(
        f"The leverages of {len(proven.targets)} training rows take", seconds, WITHOUT_LEVERAGES
    )
    found = np.stack([engine.leverage(available) for engine in proven.engines], axis=1)
    found.setflags(write=False)
    return found


def announce(what: str, seconds: float, instead: str, once: bool = True) -> None:
    """Say, before work on all training rows begins, how long it takes, if that is long.

    ``once``: it is done once for an explainer. Work that every call does again is announced sooner.
    """
    if (WARNED if once else PATIENCE) < seconds < np.inf:
        warn(
            f"{what} {in_time(seconds)} on two cores{', once for this explainer' if once else ''}. {instead}",
            CostWarning,
        )


def sigma_of(proven: ExactModel, given: Any) -> FloatArray:
    """() or (K,): the noise of the targets, as numbers or as "exact" or "estimate"; None: exact if that takes `PATIENCE`."""
    if given is not None and not isinstance(given, str):
        return as_sizes(given, proven.targets.shape[1], "sigma")
    if given not in (None, "exact", "estimate"):
        raise InputError(
            f'sigma is {shown(given)}; expected a number from 0 up, one for each output, "exact", "estimate" or None.'
        )
    needed = exact_seconds(proven)
    if given == "exact" or (given is None and needed <= PATIENCE):
        return exact(proven)
    found = estimated(proven)
    if given is None:
        warn(
            f"sigma, the noise of the targets, is estimated, within {off(found):.2g} % (one standard error): exactly it would "
            f'take {in_time(needed)}. Pass sigma="exact" for that, sigma="estimate" for this without a warning, or sigma as a '
            "number.",
            ApproximationWarning,
        )
    return np.asarray(found.value)


def for_page(proven: ExactModel, asked: bool = False) -> tuple[FloatArray | None, str | None]:
    """sigma, and what a page has to say about it: that it is estimated.

    Unless asked for it is None where it is not known yet and takes longer than `ON_PAGE` even to
    estimate, and where the fit does not show it.
    """
    known = proven.kept.known()
    needed = exact_seconds(proven)
    available = proven.budget.available
    estimating = PROBES * sum(engine.costs(available).column for engine in proven.engines)
    try:
        if "sigma" in known or needed <= (PATIENCE if asked else ON_PAGE):
            return exact(proven), None
        if not (asked or "estimated sigma" in known or estimating <= ON_PAGE):
            return None, None
        found = estimated(proven)
        return np.asarray(
            found.value
        ), f"sigma is estimated, within {off(found):.2g} % (one standard error)"
    except InputError:
        if asked:
            raise
        return None, None


def exact_seconds(proven: ExactModel) -> float:
    """How long `exact` takes, roughly, where it is not known yet; inf where it is refused."""
    available = proven.budget.available
    found = [engine.costs(available) for engine in proven.engines]
    return sum(costs.leverage + costs.squares for costs in found)


def exact(proven: ExactModel) -> FloatArray:
    """(K,): ``sqrt(RSS / trace((I - K)'(I - K)))``, the size of the targets' noise if the model has no bias; made once."""
    _require_one_size(proven)
    return proven.kept.get("sigma", lambda: _exact(proven))


def _exact(proven: ExactModel) -> FloatArray:
    own = leverages(proven).sum(axis=0)
    available = proven.budget.available
    seconds = sum(engine.costs(available).squares for engine in proven.engines)
    announce(
        f"The squared weights of {len(proven.targets)} training rows take",
        seconds,
        WITHOUT_LEVERAGES,
    )
    squares = [engine.squares(available) for engine in proven.engines]
    freedom = len(proven.targets) - 2 * own + np.array(squares)
    _require_freedom(proven, freedom)
    return np.asarray(np.sqrt(_rss(proven) / freedom))


def estimated(proven: ExactModel) -> Estimate:
    """(K,) each: sigma by random vectors, and its standard error; made once."""
    _require_one_size(proven)
    return proven.kept.get("estimated sigma", lambda: _estimated(proven))


def _estimated(proven: ExactModel) -> Estimate:
    _, freedom = _probed(proven)
    _require_freedom(proven, freedom.value)
    value = np.sqrt(_rss(proven) / freedom.value)
    return Estimate(value, value * freedom.standard_error / freedom.value / 2)


def estimated_trace(proven: ExactModel) -> Estimate:
    """(K,), or (1,) where outputs share their trees: trace K by random vectors, and its standard error."""
    return _probed(proven)[0]


def _probed(proven: ExactModel) -> tuple[Estimate, Estimate]:
    return proven.kept.get("probes", lambda: _probe(proven))


def _probe(proven: ExactModel) -> tuple[Estimate, Estimate]:
    """trace K and trace((I - K)'(I - K)), one of each for every engine."""
    stream = np.random.default_rng(0)
    n = len(proven.targets)
    found: list[FloatArray] = []
    for _ in range(0, PROBES, TOGETHER):
        z = np.where(stream.random((n, TOGETHER)) < 0.5, -1.0, 1.0)
        made = [engine.matvec(None, z) for engine in proven.engines]
        found.append(
            np.array([[(z * own).sum(axis=0), np.square(z - own).sum(axis=0)] for own in made])
        )
    values = np.concatenate(found, axis=2)  # (engines, 2, probes)
    mean = values.mean(axis=2)
    error = values.std(axis=2, ddof=1) / np.sqrt(PROBES)
    return Estimate(mean[:, 0], error[:, 0]), Estimate(mean[:, 1], error[:, 1])


def _rss(proven: ExactModel) -> FloatArray:
    return np.asarray(np.square(proven.targets - proven.fitted()).sum(axis=0))


def _require_one_size(proven: ExactModel) -> None:
    if proven.adapter.classes is not None:
        raise InputError(
            "The noise of class labels is not of one size; pass sigma, the size of the targets' noise."
        )


def _require_freedom(proven: ExactModel, freedom: FloatArray) -> None:
    if (freedom <= LEAST_FREEDOM * len(proven.targets)).any():
        raise InputError(
            f"The model leaves {freedom.min():.3g} degrees of freedom to its residuals: it reproduces its targets, so they do "
            "not show the noise. Pass sigma, as from validation data."
        )


def off(found: Estimate) -> float:
    """Percent: the largest standard error of an estimate."""
    if np.all(found.value):
        return float(100 * np.max(found.standard_error / found.value))
    return 0.0
