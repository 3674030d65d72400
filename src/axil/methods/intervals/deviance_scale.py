"""The scale of errors of counts and amounts: the standard deviation that the loss itself assumes.

Poisson, gamma and Tweedie losses say that a target with mean mu has the variance ``c * mu**r``,
with r = 1, r = 2 and a number between them. The size of a row's errors is therefore
``sqrt(mu**r)``, and calibration rows are compared by Pearson residuals ``(y - mu) / sqrt(mu**r)``.
The dispersion c is the same for all rows, so it changes no comparison and is not estimated.
There are no features: the ridge of `Conformal` then has an intercept alone, and its atoms are
those of split conformal prediction.

Sums around a row, by which errors of exact models are scaled, need weights of the targets, and the
models of these losses have none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axil.aliases import ArrayLike
from axil.arrays import FloatArray
from axil.attribution.capabilities import Refusal
from axil.errors import InputError
from axil.methods.intervals.local import Local
from axil.replay.queries import QueryBatch
from axil.replay.verified_model import VerifiedModel

SMALLEST_SIZE = np.finfo(np.float64).tiny  # of errors, where a mean is 0 in double precision
#: Binary digits of targets that are computed from residuals. Whole numbers and zeros then have no
#: error of rounding, so that an interval holds a count that ties with that of a calibration row.
BINARY_DIGITS = 40

#: The reason and the advice of methods that need errors and weights of training rows.
NO_ERRORS_NEARBY: Refusal = (
    "these intervals follow from the variance of the loss, and not from errors of training rows",
    "Ask explainer.top(X) for the rows that move the score most.",
)


@dataclass(frozen=True)
class DevianceScale:
    """The scale of the errors of a model with a Poisson, gamma or Tweedie loss."""

    power: float  #: r of the variance
    source: str = "loss"

    def predictions(self, model: VerifiedModel, queries: QueryBatch) -> FloatArray:
        """Return the verified means of rows, (n, K)."""
        return model.meant(model.predicted(queries))["mean"]

    def local(self, model: VerifiedModel, queries: QueryBatch) -> Local:
        """Return the means of rows with the sizes of their errors, and no features."""
        means = self.predictions(model, queries)
        sizes = np.maximum(np.sqrt(means**self.power), SMALLEST_SIZE)
        return Local(means, np.empty((*means.shape, 0)), sizes, sizes)

    def targets(self, predictions: FloatArray, errors: FloatArray) -> FloatArray:
        """Return means plus errors, from 0 up, rounded to `BINARY_DIGITS`; shapes broadcast."""
        values = np.maximum(predictions + errors, 0.0)
        largest = np.where(np.isfinite(errors), np.abs(errors), 0.0) + predictions
        unit = np.frexp(largest)[1] - BINARY_DIGITS
        rounded: FloatArray = np.ldexp(np.rint(np.ldexp(values, -unit)), unit)
        return rounded


def check_options_of_means(is_held_out: bool, out_of_fold: ArrayLike | None, method: str) -> None:
    """Refuse the options of `Explainer.calibrate` that are about errors of training rows."""
    if method != "leaves":
        raise InputError(
            'method="exact" weighs errors of training rows, and intervals of this model follow '
            "from the variance of its loss. Leave it out."
        )
    if is_held_out and out_of_fold is not None:
        raise InputError(
            "out_of_fold gives errors of training rows, and intervals of this model follow from "
            "the variance of its loss. Leave it out."
        )
