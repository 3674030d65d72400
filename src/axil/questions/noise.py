"""The noise of the targets, from the residuals: exact, or estimated where that would take too long.

    sigma^2 = RSS / trace((I - K)'(I - K))

The exact trace takes the leverages and the squares of K: O(T^2 N + L^3), or O(T N^2). The estimate is Hutchinson's: for a vector
z of random signs the mean of ``|z - K z|^2`` is that trace, and the mean of ``z'K z`` is trace K. Each z costs a pass over the
trees, O(T N), whatever L; the scatter over `PROBES` of them says how far the estimate may be off. The signs are always the same.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axil.errors import ApproximationWarning, InputError, shown
from axil.inputs import as_sizes
from axil.machine.progress import in_time
from axil.questions.asking import Explained, announce, fitted, leverages

Array = NDArray[np.float64]

PROBES = 32  # random vectors
TOGETHER = 8  # of them in one pass
PATIENCE = 10.0  # seconds that an answer may take for sigma alone, unless asked for by name
LEAST_FREEDOM = 1e-9  # of the number of rows: below it residuals say nothing of the noise


class Estimate(NamedTuple):
    """A number estimated from random vectors, or (K,) of them, and its standard error."""

    value: Any
    standard_error: Any


def sigma_of(asked: Explained, given: Any) -> Array:
    """() or (K,): the noise of the targets, as numbers or as "exact" or "estimate"; None: exact if that takes `PATIENCE`."""
    if given is not None and not isinstance(given, str):
        return as_sizes(given, asked._targets.shape[1], "sigma")
    if given not in (None, "exact", "estimate"):
        raise InputError(
            f'sigma is {shown(given)}; expected a number from 0 up, one for each output, "exact", "estimate" or None.'
        )
    needed = exact_seconds(asked)
    if given == "exact" or (given is None and needed <= PATIENCE):
        return exact(asked)
    found = estimated(asked)
    if given is None:
        warnings.warn(
            f"sigma, the noise of the targets, is estimated, within {off(found):.2g} % (one standard error): exactly it would "
            f'take {in_time(needed)}. Pass sigma="exact" for that, sigma="estimate" for this without a warning, or sigma as a '
            "number.",
            ApproximationWarning,
            stacklevel=3,
        )
    return np.asarray(found.value)


def for_page(asked: Explained) -> tuple[Array | None, str | None]:
    """sigma within `PATIENCE`, and what a page has to say about it: that it is estimated, or why there is none."""
    try:
        needed = exact_seconds(asked)
        if needed <= PATIENCE:
            return exact(asked), None
        estimating = sum(engine.forward_seconds(PROBES) for engine in asked._engines)
        if estimating > PATIENCE:
            return None, (
                f"sigma would take {in_time(estimating)} to estimate and {in_time(needed)} exactly, so it was left out: pass "
                'sigma="estimate", sigma="exact" or a number to to_html'
            )
        found = estimated(asked)
        return np.asarray(found.value), f"sigma is estimated, within {off(found):.2g} % (one standard error)"
    except InputError as error:
        return None, str(error)


def exact_seconds(asked: Explained) -> float:
    """How long `exact` takes, roughly, where it is not known yet; inf where it is refused."""
    available = asked._budget.available
    return sum(engine.leverage_seconds(available) + engine.squares_seconds(available) for engine in asked._engines)


def exact(asked: Explained) -> Array:
    """(K,): ``sqrt(RSS / trace((I - K)'(I - K)))``, the size of the targets' noise if the model has no bias; made once."""
    _require_one_size(asked)
    return asked._kept.get("sigma", lambda: _exact(asked))


def _exact(asked: Explained) -> Array:
    own, available = leverages(asked).sum(axis=0), asked._budget.available
    announce("squared weights", asked, sum(engine.squares_seconds(available) for engine in asked._engines))
    squares = [engine.squares(available) for engine in asked._engines]
    freedom = len(asked._targets) - 2 * own + np.array(squares)
    _require_freedom(asked, freedom)
    return np.asarray(np.sqrt(_rss(asked) / freedom))


def estimated(asked: Explained) -> Estimate:
    """(K,) each: sigma by random vectors, and its standard error; made once."""
    _require_one_size(asked)
    return asked._kept.get("estimated sigma", lambda: _estimated(asked))


def _estimated(asked: Explained) -> Estimate:
    _, freedom = _probed(asked)
    _require_freedom(asked, freedom.value)
    value = np.sqrt(_rss(asked) / freedom.value)
    return Estimate(value, value * freedom.standard_error / freedom.value / 2)


def estimated_trace(asked: Explained) -> Estimate:
    """(K,), or (1,) where outputs share their trees: trace K by random vectors, and its standard error."""
    return _probed(asked)[0]


def _probed(asked: Explained) -> tuple[Estimate, Estimate]:
    return asked._kept.get("probes", lambda: _probe(asked))


def _probe(asked: Explained) -> tuple[Estimate, Estimate]:
    """trace K and trace((I - K)'(I - K)), one of each for every engine."""
    stream, n = np.random.default_rng(0), len(asked._targets)
    found: list[Array] = []
    for _ in range(0, PROBES, TOGETHER):
        z = np.where(stream.random((n, TOGETHER)) < 0.5, -1.0, 1.0)
        made = [engine.forward(z) for engine in asked._engines]
        found.append(np.array([[(z * own).sum(axis=0), np.square(z - own).sum(axis=0)] for own in made]))
    values = np.concatenate(found, axis=2)  # (engines, 2, probes)
    mean, error = values.mean(axis=2), values.std(axis=2, ddof=1) / np.sqrt(PROBES)
    return Estimate(mean[:, 0], error[:, 0]), Estimate(mean[:, 1], error[:, 1])


def _rss(asked: Explained) -> Array:
    return np.asarray(np.square(asked._targets - fitted(asked)).sum(axis=0))


def _require_one_size(asked: Explained) -> None:
    if asked._adapter.classes is not None:
        raise InputError("The noise of class labels is not of one size; pass sigma, the size of the targets' noise.")


def _require_freedom(asked: Explained, freedom: Array) -> None:
    if (freedom <= LEAST_FREEDOM * len(asked._targets)).any():
        raise InputError(
            f"The model leaves {freedom.min():.3g} degrees of freedom to its residuals: it reproduces its targets, so they do "
            "not tell the noise. Pass sigma, as from validation data."
        )


def off(found: Estimate) -> float:
    """Percent: the largest standard error of an estimate."""
    return float(100 * np.max(found.standard_error / found.value)) if np.all(found.value) else 0.0
