"""Forecasts of boosted time series: which dates, of which series, made them."""

from axil.forecasts.forecast import Forecast, forecast
from axil.forecasts.intervals import ForecastIntervals
from axil.forecasts.vintages import ForecastComparison

__all__ = ["Forecast", "ForecastComparison", "ForecastIntervals", "forecast"]
