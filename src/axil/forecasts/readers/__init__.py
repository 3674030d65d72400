"""Readers of the forecasters of other libraries."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from axil.adapters import around
from axil.aliases import ForeignModel, ForeignObject
from axil.errors import InputError
from axil.forecasts.readers.contract import ADVICE, Reader
from axil.forecasts.readers.mlforecast_reader import MLForecastReader
from axil.forecasts.readers.skforecast_readers import (
    DirectReader,
    MultiSeriesReader,
    RecursiveReader,
)

__all__ = ["Reader", "reader_of"]

SKFORECAST = {
    "ForecasterRecursive": RecursiveReader,
    "ForecasterDirect": DirectReader,
    "ForecasterRecursiveMultiSeries": MultiSeriesReader,
}


def reader_of(
    forecaster: ForeignModel, data: ForeignObject, exog: ForeignObject, model: str | None
) -> Reader:
    """Return the reader of a forecaster; raise for an unknown object.

    The reader keeps copies: a forecaster is often fitted again when further data come.
    """
    cls = type(forecaster)
    library = cls.__module__.split(".")[0]
    name = cls.__name__
    is_forecaster = library in ("mlforecast", "skforecast")
    if is_forecaster and not isinstance(data, Mapping) and not hasattr(data, "iloc"):
        raise InputError(
            f"data is a {type(data).__module__}.{type(data).__name__}; expected pandas. Fit the "
            "forecaster to a frame or a series of pandas, and pass that."
        )
    if library == "mlforecast" and name == "MLForecast":
        copies = copy.deepcopy((forecaster, data, exog))
        return MLForecastReader(*copies, model)
    if library == "skforecast" and name in SKFORECAST:
        if model is not None:
            raise InputError("model is for an MLForecast of several models. Leave it out.")
        return SKFORECAST[name](*copy.deepcopy((forecaster, data, exog)))
    advice = around(forecaster) or ADVICE
    raise InputError(
        f"The forecaster is a {cls.__module__}.{name}; expected mlforecast's MLForecast, or "
        f"skforecast's {' or '.join(SKFORECAST)}. {advice}"
    )
