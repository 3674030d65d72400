"""Forecasts of boosted time series: which dates, of which series, made them."""

from axil.forecasts.forecast import Forecast, forecast

__all__ = ["Forecast", "forecast"]
