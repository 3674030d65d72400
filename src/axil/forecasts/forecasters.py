"""Forecasters of other libraries: their model, the rows that it was fitted on, and how it is run."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters import around
from axil.arrays import FloatArray
from axil.errors import InputError, shown


class Probe:
    """A model that writes down the rows it is asked about; its predictions are the fitted model's, or those it is given."""

    def __init__(self, model: Any, told: FloatArray | None = None):
        self._model, self._told = model, told  # (h, series)
        self.rows: list[Any] = []  #: of each step
        self.said: list[FloatArray] = []  #: of each step, (series,)

    def predict(self, X: Any, *arguments: Any, **others: Any) -> FloatArray:
        """The predictions of one step."""
        step = len(self.rows)
        self.rows.append(copy.deepcopy(X))
        if self._told is None:
            found = np.asarray(self._model.predict(X, *arguments, **others), dtype=np.float64)
        else:
            found = np.array(self._told[step][: len(X)], dtype=np.float64)
        self.said.append(found)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_model":
            raise AttributeError(name)
        return getattr(self._model, name)


ADVICE = "Pass the model inside to axil.Explainer, with the rows that it was fitted on."


@dataclass(frozen=True, eq=False)
class FitRows:
    """The rows that a forecaster's model was fitted on."""

    X: Any
    y: FloatArray
    series: NDArray[Any]  #: (N,)
    dates: NDArray[Any]  #: (N,)


class Reader(ABC):
    """A forecaster, with the data that it was fitted on."""

    def __init__(self, forecaster: Any, data: Any, exog: Any):
        self._forecaster, self._data, self._exog = forecaster, data, exog

    @property
    @abstractmethod
    def model(self) -> Any:
        """The fitted model."""

    @abstractmethod
    def rows(self) -> FitRows:
        """The rows that it was fitted on."""

    @abstractmethod
    def run(self, probe: Probe, h: int) -> tuple[NDArray[Any], NDArray[Any], FloatArray]:
        """Series and dates of the forecasts, and the forecasts, (h, series) each, with the probe in the model's place."""


class MLForecastReader(Reader):
    """mlforecast.MLForecast: a frame with a column for the series, one for dates and one for targets."""

    def __init__(self, forecaster: Any, data: Any, exog: Any, name: str | None):
        super().__init__(forecaster, data, exog)
        models = getattr(forecaster, "models_", None)
        if not models:
            raise InputError("This MLForecast is not fitted: call its fit first.")
        if name is None and len(models) > 1:
            raise InputError(
                f"This MLForecast has the models {', '.join(models)}; say which, such as model={next(iter(models))!r}."
            )
        self._name = next(iter(models)) if name is None else name
        if self._name not in models:
            raise InputError(f"model is {shown(name)}; this MLForecast has {', '.join(models)}.")
        if isinstance(models[self._name], (list, dict)):
            raise InputError(
                f"This MLForecast has a model for each horizon (max_horizon). {ADVICE} They are in models_[{self._name!r}]."
            )

    @property
    def model(self) -> Any:
        return self._forecaster.models_[self._name]

    def rows(self) -> FitRows:
        own = copy.deepcopy(self._forecaster)  # preprocess overwrites what it keeps of the series
        ts = self._forecaster.ts
        static = (
            None
            if ts.static_features_ is None
            else [c for c in ts.static_features_.columns if c != ts.id_col]
        )
        made = own.preprocess(
            self._data,
            id_col=ts.id_col,
            time_col=ts.time_col,
            target_col=ts.target_col,
            static_features=static,
        )
        X = made[list(ts.features_order_)]
        return FitRows(
            X.to_numpy() if ts.as_numpy else X,
            made[ts.target_col].to_numpy().astype(np.float64),
            made[ts.id_col].to_numpy(),
            made[ts.time_col].to_numpy(),
        )

    def run(self, probe: Probe, h: int) -> tuple[NDArray[Any], NDArray[Any], FloatArray]:
        own, ts = copy.copy(self._forecaster), self._forecaster.ts
        own.models_ = {self._name: probe}
        try:
            found = own.predict(h, X_df=self._exog)
        except ValueError as error:
            if self._exog is not None:
                raise
            raise InputError(
                f"mlforecast cannot forecast without further features: {shown(error, 300)} Pass them as exog=, for each series "
                "and date of the steps."
            ) from error
        shape = found[ts.id_col].nunique(), h
        parts = (
            found[ts.id_col].to_numpy(),
            found[ts.time_col].to_numpy(),
            found[self._name].to_numpy(),
        )
        series, dates, values = (part.reshape(shape).T for part in parts)
        return series, dates, values.astype(np.float64)


class RecursiveReader(Reader):
    """skforecast's ForecasterRecursive: one series with dates for its index."""

    @property
    def model(self) -> Any:
        if not self._forecaster.is_fitted:
            raise InputError(
                f"This {type(self._forecaster).__name__} is not fitted: call its fit first."
            )
        return self._forecaster.estimator

    def rows(self) -> FitRows:
        self._check_exog()
        fitted_exog = None
        if self._exog is not None:
            fitted_exog = self._exog.loc[self._exog.index.isin(self._data.index)]
        own = copy.deepcopy(self._forecaster)
        X, y = own.create_train_X_y(y=self._data, exog=fitted_exog)
        name = self._forecaster.series_name_in_ or "y"
        return FitRows(
            X,
            y.to_numpy().astype(np.float64),
            np.full(len(y), name, dtype=object),
            y.index.to_numpy(),
        )

    def _check_exog(self) -> None:
        """Raise unless the further features are there that the forecaster was fitted with, at all dates of the fit."""
        kind, names = type(self._forecaster).__name__, list(self._forecaster.exog_names_in_ or ())
        if self._exog is None:
            if names:
                raise InputError(
                    f"This {kind} was fitted with the further features {', '.join(map(str, names[:5]))}, and exog is not given. "
                    "Pass them as exog=, at the dates of the fit and of the steps."
                )
            return
        if not names:
            raise InputError(f"This {kind} was fitted without further features: leave exog out.")
        if not hasattr(self._exog, "loc"):
            raise InputError(
                f"exog is a {type(self._exog).__name__}; expected a pandas frame with dates for its index."
            )
        columns = list(
            getattr(
                self._exog, "columns", [self._exog.name if hasattr(self._exog, "name") else None]
            )
        )
        missing = [name for name in names if name not in columns]
        if missing:
            raise InputError(
                f"exog lacks the feature {shown(missing[0])} that the {kind} was fitted with; it has {columns[:5]}."
            )
        fit_dates = self._data.index[self._forecaster.window_size :]
        absent = fit_dates[~fit_dates.isin(self._exog.index)]
        if len(absent):
            raise InputError(
                f"exog has no row for {len(absent)} of the {len(fit_dates)} dates of the fit, first {shown(absent.values[0])}. "
                "Pass the features of the fit and of the steps together: pd.concat([exog_of_the_fit, exog_of_the_steps])."
            )

    def _exog_of_steps(self, h: int) -> Any:
        """Return the further features at the dates of the steps; raises unless there are as many."""
        if self._exog is None:
            return None
        ahead = self._exog.loc[~self._exog.index.isin(self._data.index)]
        if len(ahead) < h:
            raise InputError(
                f"exog has {len(ahead)} rows after the dates of the fit; expected one for each of the {h} steps. Add rows, or "
                "ask for fewer steps with h."
            )
        return ahead

    def run(self, probe: Probe, h: int) -> tuple[NDArray[Any], NDArray[Any], FloatArray]:
        own = copy.copy(self._forecaster)
        own.estimator = probe
        ahead = self._exog_of_steps(h)
        found = own.predict(steps=h, exog=ahead)
        name = self._forecaster.series_name_in_ or "y"
        return (
            np.full((h, 1), name, dtype=object),
            found.index.to_numpy()[:, None],
            found.to_numpy().astype(np.float64)[:, None],
        )


class SeveralReader(RecursiveReader):
    """skforecast's ForecasterRecursiveMultiSeries: one model of several series."""

    def __init__(self, forecaster: Any, data: Any, exog: Any):
        super().__init__(forecaster, data, exog)
        if exog is not None:
            raise InputError(f"exog of a ForecasterRecursiveMultiSeries is not read. {ADVICE}")
        if getattr(forecaster, "exog_in_", False):
            raise InputError(
                f"This ForecasterRecursiveMultiSeries was fitted with further features, which axil does not read. {ADVICE}"
            )

    def rows(self) -> FitRows:
        own, names = (
            copy.deepcopy(self._forecaster),
            np.array(self._forecaster.series_names_in_, dtype=object),
        )
        X, y = own.create_train_X_y(series=self._data)
        if self._forecaster.encoding is None:
            raise InputError(
                f"This ForecasterRecursiveMultiSeries has encoding=None: no row says its series. {ADVICE}"
            )
        if self._forecaster.encoding == "onehot":
            codes = X[list(names)].to_numpy().argmax(axis=1)
        else:
            codes = X["_level_skforecast"].to_numpy().astype(np.intp)
        return FitRows(X, y.to_numpy().astype(np.float64), names[codes], y.index.to_numpy())

    def run(self, probe: Probe, h: int) -> tuple[NDArray[Any], NDArray[Any], FloatArray]:
        own = copy.copy(self._forecaster)
        own.estimator = probe
        found = own.predict(steps=h)  # step after step, and in each all series
        parts = (
            found["level"].to_numpy(),
            found.index.to_numpy(),
            found["pred"].to_numpy().astype(np.float64),
        )
        series, dates, values = (part.reshape(h, -1) for part in parts)
        return series, dates, values


RECURSIVE = {
    "ForecasterRecursive": RecursiveReader,
    "ForecasterRecursiveMultiSeries": SeveralReader,
}


def reader_of(forecaster: Any, data: Any, exog: Any, model: str | None) -> Reader:
    """The reader of a forecaster; raises for an object that axil does not know."""
    kind = type(forecaster)
    library, name = kind.__module__.split(".")[0], kind.__name__
    if (library, name) == ("mlforecast", "MLForecast"):
        return MLForecastReader(forecaster, data, exog, model)
    if library == "skforecast" and name in RECURSIVE:
        if model is not None:
            raise InputError("model is for an MLForecast of several models. Leave it out.")
        return RECURSIVE[name](forecaster, data, exog)
    way = around(forecaster) or ADVICE
    raise InputError(
        f"The forecaster is a {kind.__module__}.{name}; expected mlforecast's MLForecast, or skforecast's "
        f"{' or '.join(RECURSIVE)}. {way}"
    )
