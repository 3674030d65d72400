"""Intervals of forecasts by horizon, from the errors of backtests.

A backtest fits the forecaster again without the last observations and forecasts these. The errors
of n windows at one horizon, of one series, give the interval of that horizon by split conformal
prediction: of the n absolute errors it takes the one at place ceil((n + 1) level). Where forecasts
are logarithms, errors are ratios.

The coverage of a horizon is that of the backtests themselves. Each window is judged by the errors
that were known at its own end, so that no window judges errors that it gave.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from axil import templates
from axil.aliases import DataFrame
from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError, counted, shown
from axil.forecasts.readers import Reader
from axil.forecasts.runs import record
from axil.inputs import as_number
from axil.inputs.libraries import needed_pandas


@dataclass(frozen=True, eq=False)
class Backtests:
    """Forecasts of n windows, the oldest first, with the observations that followed."""

    forecasts: FloatArray  #: (n, h, S)
    observed: FloatArray  #: (n, h, S)
    step_size: int  #: steps from the end of one window to that of the next

    def errors(self, is_log: bool) -> FloatArray:
        """Return the errors (n, h, S), of logarithms or of the forecasts themselves."""
        if is_log:
            with np.errstate(all="ignore"):
                return np.asarray(np.log(self.observed) - np.log(self.forecasts))
        return self.observed - self.forecasts


def backtests(reader: Reader, h: int, n_windows: int, step_size: int) -> Backtests:
    """Fit the forecaster again before each window, and forecast the window."""
    forecasts = []
    observed = []
    for window in reversed(range(n_windows)):
        n_left_out = h + window * step_size
        run = record(reader.before_last(n_left_out, h), h)
        forecasts.append(run.values)
        observed.append(reader.observed(run, n_left_out))
    return Backtests(np.array(forecasts), np.array(observed), step_size)


def conformal_bounds(errors: FloatArray, level: float) -> FloatArray:
    """Return the size of errors that intervals with this level must cover, (h, S).

    Parameters
    ----------
    errors : array of shape (n, h, S)
    level : float

    Returns
    -------
    bounds : array of shape (h, S)
        Infinite where there are too few errors for the level.
    """
    n_windows = len(errors)
    place = math.ceil((n_windows + 1) * level) - 1
    if place >= n_windows:
        return np.full(errors.shape[1:], np.inf)
    return np.asarray(np.sort(np.abs(errors), axis=0)[place])


@dataclass(frozen=True, eq=False, repr=False)
class ForecastIntervals:
    """Intervals of forecasts by horizon; `Forecast.calibrate` makes them."""

    series: AnyArray  #: (h, S)
    dates: AnyArray  #: (h, S)
    values: FloatArray  #: (h, S) the forecasts
    is_log: bool  #: whether intervals are of ratios
    backtests: Backtests
    history: tuple[tuple[AnyArray, FloatArray], ...]  #: dates and observations of each series

    def __repr__(self) -> str:
        """Return how many forecasts there are, and how many windows of backtests."""
        texts = [text for _, text in self._facts()]
        return f"<axil.forecasts.ForecastIntervals: {'; '.join(texts)}>"

    def _repr_html_(self) -> str:
        return templates.render_facts("axil.forecasts.ForecastIntervals", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        """Return pairs of a name and a text: the forecasts, and the windows of backtests."""
        h, n_series = self.values.shape
        return [
            ("forecasts", f"{counted(h, 'step')} of {n_series} series"),
            ("backtests", f"{counted(len(self.backtests.forecasts), 'window')} of backtests"),
        ]

    def interval(self, confidence_level: float = 0.9) -> DataFrame:
        """Return an interval for each forecast, with the coverage of its horizon in the backtests.

        The columns are series, date, step, forecast, lower, upper, coverage, and windows: those
        that the coverage is of. A window counts once enough windows before it are known, so that
        coverage is missing at long horizons of few windows.

        Parameters
        ----------
        confidence_level : float, default 0.9
            The share of future observations that intervals are to cover. It takes at least
            ``level / (1 - level)`` windows.
        """
        level = as_number(confidence_level, "confidence_level")
        if not 0 < level < 1:
            raise InputError(
                f"confidence_level is {shown(confidence_level)}; expected a number between 0 and 1."
            )
        errors = self.backtests.errors(self.is_log)
        bounds = conformal_bounds(errors, level)
        if not np.isfinite(bounds).all():
            raise InputError(
                f"{counted(len(errors), 'window')} of backtests are too few for a level of "
                f"{level}; expected at least {math.ceil(level / (1 - level))}. Raise n_windows."
            )
        lower, upper = self._ends(bounds)
        coverage, n_judged = self._coverage(errors, level)
        h, n_series = self.values.shape
        columns = {
            "series": self.series.T.ravel(),
            "date": self.dates.T.ravel(),
            "step": np.tile(np.arange(1, h + 1), n_series),
            "forecast": self.values.T.ravel(),
            "lower": lower.T.ravel(),
            "upper": upper.T.ravel(),
            "coverage": coverage.T.ravel(),
            "windows": np.tile(n_judged, n_series),
        }
        return needed_pandas("Intervals of a forecast").DataFrame(columns)

    def _ends(self, bounds: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the lower and upper ends of intervals that reach these errors, (h, S) each."""
        if self.is_log:
            return self.values * np.exp(-bounds), self.values * np.exp(bounds)
        return self.values - bounds, self.values + bounds

    def _coverage(self, errors: FloatArray, level: float) -> tuple[FloatArray, AnyArray]:
        """Return the share of windows covered (h, S), and how many windows that is of, (h,).

        A window is judged by the windows whose observations were known at its end.
        """
        n_windows, h, n_series = errors.shape
        n_covered = np.zeros((h, n_series))
        n_judged = np.zeros(h, dtype=np.intp)
        for step in range(h):
            # Windows that far before have been observed up to this horizon.
            lag = math.ceil((step + 1) / self.backtests.step_size)
            for window in range(lag, n_windows):
                known_errors = errors[: window - lag + 1, step : step + 1]
                (bounds,) = conformal_bounds(known_errors, level)
                if np.isfinite(bounds).all():
                    n_judged[step] += 1
                    n_covered[step] += np.abs(errors[window, step]) <= bounds
        with np.errstate(all="ignore"):
            return n_covered / n_judged[:, None], n_judged
