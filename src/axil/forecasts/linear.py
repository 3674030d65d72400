"""Forecasts as linear functions of what the model's explanations add up to.

A forecaster undoes differences and scales of the targets, so its forecasts F are linear in the
predictions p of the steps up to them. The coefficients are found by running the forecaster with
predictions of zero and one. Where it takes logarithms of the targets, log F is linear in p. Where
the model itself predicts exp(score), as Poisson and Tweedie losses do, log F is linear in the score
if each forecast is a multiple of the prediction of its own step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axil.arrays import FloatArray
from axil.errors import UnsupportedQuestionError
from axil.forecasts.runs import RecordedRun

# Of the largest forecast: some libraries keep predictions in single precision.
TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class LinearForecasts:
    """h forecasts of S series, or their logarithms, as linear functions of scores of the steps."""

    values: FloatArray  #: (h, S) the forecasts, or their logarithms
    constants: FloatArray  #: (h, S)
    coefficients: FloatArray  #: (h, h, S) by forecast, step and series
    is_log: bool

    def are_close(self, sums: FloatArray) -> bool:
        """Return whether sums (h, S) are the forecasts, up to rounding."""
        slack = TOLERANCE * max(float(np.abs(self.values).max()), 1.0)
        return bool(np.abs(sums - self.values).max() <= slack)

    def reach(self, scores: FloatArray) -> bool:
        """Return whether the linear functions of these scores (h, S) are the forecasts."""
        sums = self.constants + np.einsum("tsk,sk->tk", self.coefficients, scores)
        return self.are_close(sums)


def linear_forecasts(run: RecordedRun, scores: FloatArray) -> LinearForecasts:
    """Return the forecasts of a run as linear functions of scores; raise where they are not.

    Parameters
    ----------
    run : RecordedRun
    scores : array of shape (h, S)
        What the explanations of the steps add up to: predictions, or their logarithms.
    """
    zeros = np.zeros(run.values.shape)
    constants = run.values_of(zeros)
    values_by_unit = []
    for step in range(len(zeros)):
        unit_predictions = zeros.copy()
        unit_predictions[step] = 1.0
        values_by_unit.append(run.values_of(unit_predictions))
    units = np.stack(values_by_unit, axis=1)
    candidates = [LinearForecasts(run.values, constants, units - constants[:, None], False)]
    with np.errstate(all="ignore"):
        log_values = np.log(run.values)
        log_constants = np.log(constants)
        log_units = np.log(units) - log_constants[:, None]
        candidates.append(LinearForecasts(log_values, log_constants, log_units, True))
        candidates.append(_of_log_predictions(log_values, constants, units))
        for candidate in candidates:
            if candidate.reach(scores):
                return candidate
    raise UnsupportedQuestionError(
        "forecast",
        "neither its forecasts nor their logarithms are a linear function of the predictions or "
        "scores of its steps",
        "Forecast without the transform of the targets, or with differences, scales or logarithms; "
        "with a loss of counts or amounts without differences.",
    )


def _of_log_predictions(
    log_values: FloatArray, constants: FloatArray, units: FloatArray
) -> LinearForecasts:
    """Return the logarithms of forecasts that are multiples of the predictions of their steps.

    The constants are nan where they are not.
    """
    h, n_series = log_values.shape
    identity = np.broadcast_to(np.eye(h)[:, :, None], (h, h, n_series))
    multiples = np.einsum("ttk->tk", units)
    is_multiple = (constants == 0).all() and np.array_equal(units, identity * multiples[:, None])
    log_multiples = np.full(log_values.shape, np.nan)
    if is_multiple:
        log_multiples = np.log(multiples)
    return LinearForecasts(log_values, log_multiples, identity, True)
