"""Forecasters of other libraries: their model, its training rows, and how it is run."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil.adapters import around
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError, shown
from axil.forecasts.observations import (
    Changes,
    date_like,
    pandas_index,
    require_observation,
    series_of,
    with_changes,
    with_series_changes,
)


class Probe:
    """A model that records the rows it predicts.

    Its predictions are those of the fitted model, or given ones of shape (h, series).
    """

    def __init__(self, model: ForeignModel, given_predictions: FloatArray | None = None):
        self._model = model
        self._given_predictions = given_predictions
        self.rows: list[FeatureTable] = []  #: of each step
        self.predictions: list[FloatArray] = []  #: of each step, (series,)

    def predict(self, X: FeatureTable, *arguments: Any, **options: Any) -> FloatArray:
        """Return the predictions of one step."""
        step = len(self.rows)
        self.rows.append(copy.deepcopy(X))
        if self._given_predictions is None:
            predictions = self._model.predict(X, *arguments, **options)
        else:
            predictions = np.array(self._given_predictions[step][: len(X)])
        predictions = np.asarray(predictions, dtype=np.float64)
        self.predictions.append(predictions)
        return predictions

    def __getattr__(self, name: str) -> ForeignObject:
        if name.startswith("__") or name == "_model":
            raise AttributeError(name)
        return getattr(self._model, name)


class FixedModel(Probe):
    """A fitted model inside a forecaster that cannot fit it again.

    Only the forecaster's own state follows the data.
    """

    def fit(self, *arguments: object, **options: object) -> FixedModel:
        """Do not fit the model."""
        return self


ADVICE = "Pass the model inside to axil.Explainer, with the rows that it was fitted on."


@dataclass(frozen=True, eq=False)
class TargetRows:
    """The rows that a forecaster's model was fitted on."""

    X: FeatureTable
    y: FloatArray
    series: AnyArray  #: (N,)
    dates: AnyArray  #: (N,)


@dataclass(frozen=True, eq=False)
class ForecasterRun:
    """The forecasts of one run of a forecaster."""

    series: AnyArray  #: (h, S)
    dates: AnyArray  #: (h, S)
    values: FloatArray  #: (h, S)


class Reader(ABC):
    """A forecaster, with the data that it was fitted on."""

    def __init__(self, forecaster: ForeignModel, data: ForeignObject, exog: ForeignObject):
        self._forecaster = forecaster
        self._data = data
        self._exog = exog

    @property
    @abstractmethod
    def model(self) -> ForeignModel:
        """Return the fitted model."""

    @abstractmethod
    def rows(self) -> TargetRows:
        """Return the rows that the model was fitted on."""

    @abstractmethod
    def run(self, probe: Probe, h: int) -> ForecasterRun:
        """Return h forecasts of each series, with the probe in the place of the model."""

    @property
    @abstractmethod
    def series_names(self) -> list[object]:
        """Return the names of all series."""

    @abstractmethod
    def with_values(self, changes: Changes) -> Reader:
        """Return a reader of the same fitted model after other observations.

        Lags, differences and scales of its forecaster follow from these.
        """


class MLForecastReader(Reader):
    """mlforecast.MLForecast: a frame with columns for the series, the dates and the targets."""

    def __init__(
        self, forecaster: ForeignModel, data: ForeignObject, exog: ForeignObject, name: str | None
    ):
        super().__init__(forecaster, data, exog)
        models = getattr(forecaster, "models_", None)
        if not models:
            raise InputError("This MLForecast is not fitted: call its fit first.")
        if name is None and len(models) > 1:
            raise InputError(
                f"This MLForecast has the models {', '.join(models)}; say which, such as "
                f"model={next(iter(models))!r}."
            )
        if name is None:
            self._name = next(iter(models))
        else:
            self._name = name
        if self._name not in models:
            raise InputError(f"model is {shown(name)}; this MLForecast has {', '.join(models)}.")
        if isinstance(models[self._name], (list, dict)):
            raise InputError(
                f"This MLForecast has a model for each horizon (max_horizon). {ADVICE} They are in "
                f"models_[{self._name!r}]."
            )

    @property
    def model(self) -> ForeignModel:
        """Return the fitted model."""
        return self._forecaster.models_[self._name]

    def rows(self) -> TargetRows:
        """Return the rows that the model was fitted on."""
        ts = self._forecaster.ts
        # preprocess overwrites what the forecaster keeps of the series.
        frame = self._preprocessed(copy.deepcopy(self._forecaster), self._data)
        X = frame[list(ts.features_order_)]
        return TargetRows(
            X=X.to_numpy() if ts.as_numpy else X,
            y=frame[ts.target_col].to_numpy().astype(np.float64),
            series=frame[ts.id_col].to_numpy(),
            dates=frame[ts.time_col].to_numpy(),
        )

    def _preprocessed(self, forecaster: ForeignModel, data: ForeignObject) -> ForeignObject:
        """Return the frame of features and targets; the forecaster keeps the state after the data."""
        ts = self._forecaster.ts
        static_features = None
        if ts.static_features_ is not None:
            static_features = [name for name in ts.static_features_.columns if name != ts.id_col]
        return forecaster.preprocess(
            data,
            id_col=ts.id_col,
            time_col=ts.time_col,
            target_col=ts.target_col,
            static_features=static_features,
            keep_last_n=ts.keep_last_n,
        )

    def with_values(self, changes: Changes) -> Reader:
        """Return a reader of the same fitted model after other observations."""
        ts = self._forecaster.ts
        data = self._data.copy()
        data[ts.target_col] = data[ts.target_col].astype(np.float64)
        names = data[ts.id_col].to_numpy()
        dates = pandas_index(data[ts.time_col])
        targets = data.columns.get_loc(ts.target_col)
        for change in changes:
            is_changed = (names == change.series) & (dates == date_like(change.date, dates))
            require_observation(is_changed, change)
            data.iloc[np.flatnonzero(is_changed), targets] = change.value
        forecaster = copy.deepcopy(self._forecaster)
        self._preprocessed(forecaster, data)
        forecaster.models_ = self._forecaster.models_
        return MLForecastReader(forecaster, data, self._exog, self._name)

    @property
    def series_names(self) -> list[object]:
        """Return the names of all series."""
        return list(dict.fromkeys(self._data[self._forecaster.ts.id_col].to_numpy()))

    def run(self, probe: Probe, h: int) -> ForecasterRun:
        """Return h forecasts of each series, with the probe in the place of the model."""
        forecaster = copy.copy(self._forecaster)
        forecaster.models_ = {self._name: probe}
        try:
            frame = forecaster.predict(h, X_df=self._exog)
        except ValueError as error:
            if self._exog is not None:
                raise
            raise InputError(
                "mlforecast cannot forecast without further features: "
                f"{shown(error, 300)} Pass them as exog=, for each series and date of the steps."
            ) from error
        ts = self._forecaster.ts
        shape = (frame[ts.id_col].nunique(), h)
        return ForecasterRun(
            series=frame[ts.id_col].to_numpy().reshape(shape).T,
            dates=frame[ts.time_col].to_numpy().reshape(shape).T,
            values=frame[self._name].to_numpy().reshape(shape).T.astype(np.float64),
        )


class RecursiveReader(Reader):
    """skforecast's ForecasterRecursive: one series with dates for its index."""

    @property
    def model(self) -> ForeignModel:
        """Return the fitted model."""
        if not self._forecaster.is_fitted:
            raise InputError(
                f"This {type(self._forecaster).__name__} is not fitted: call its fit first."
            )
        return self._forecaster.estimator

    def rows(self) -> TargetRows:
        """Return the rows that the model was fitted on."""
        self._check_exog()
        forecaster = copy.deepcopy(self._forecaster)
        X, y = forecaster.create_train_X_y(y=self._data, exog=self._exog_of_fit)
        return TargetRows(
            X=X,
            y=y.to_numpy().astype(np.float64),
            series=np.full(len(y), self._series_name, dtype=object),
            dates=y.index.to_numpy(),
        )

    @property
    def _series_name(self) -> object:
        return self._forecaster.series_name_in_ or "y"

    @property
    def series_names(self) -> list[object]:
        """Return the name of the series."""
        return [self._series_name]

    def with_values(self, changes: Changes) -> Reader:
        """Return a reader of the same fitted model after other observations."""
        return self._at(with_changes(self._data, changes))

    def _at(self, data: ForeignObject) -> Reader:
        """Return a reader of the same fitted model after this data."""
        forecaster = copy.deepcopy(self._forecaster)
        forecaster.estimator = FixedModel(self.model)
        forecaster.fit(data, exog=self._exog_of_fit)
        forecaster.estimator = self.model
        return type(self)(forecaster, data, self._exog)

    @property
    def _exog_of_fit(self) -> ForeignObject:
        """Return the further features at the dates of the fit."""
        if self._exog is None:
            return None
        return self._exog.loc[self._exog.index.isin(self._data.index)]

    def _check_exog(self) -> None:
        """Raise unless exog has the features of the fit, at all dates of the fit."""
        forecaster = type(self._forecaster).__name__
        names = list(self._forecaster.exog_names_in_ or ())
        if self._exog is None:
            if names:
                raise InputError(
                    f"This {forecaster} was fitted with the further features "
                    f"{', '.join(map(str, names[:5]))}, and exog is not given. Pass them as exog=, "
                    "at the dates of the fit and of the steps."
                )
            return
        if not names:
            raise InputError(
                f"This {forecaster} was fitted without further features: leave exog out."
            )
        if not hasattr(self._exog, "loc"):
            raise InputError(
                f"exog is a {type(self._exog).__name__}; expected a pandas frame with dates for "
                "its index."
            )
        series_names = [getattr(self._exog, "name", None)]
        columns = list(getattr(self._exog, "columns", series_names))
        for name in names:
            if name not in columns:
                raise InputError(
                    f"exog lacks the feature {shown(name)} that the {forecaster} was fitted with; "
                    f"it has {columns[:5]}."
                )
        fit_dates = self._data.index[self._forecaster.window_size :]
        missing_dates = fit_dates[~fit_dates.isin(self._exog.index)]
        if len(missing_dates):
            raise InputError(
                f"exog has no row for {len(missing_dates)} of the {len(fit_dates)} dates of the "
                f"fit, first {shown(missing_dates.values[0])}. Pass the features of the fit and of "
                "the steps together: pd.concat([exog_of_the_fit, exog_of_the_steps])."
            )

    def _exog_of_steps(self, h: int) -> ForeignObject:
        """Return the exogenous features at the dates of the steps; raise unless there are enough."""
        if self._exog is None:
            return None
        exog = self._exog.loc[~self._exog.index.isin(self._data.index)]
        if len(exog) < h:
            raise InputError(
                f"exog has {len(exog)} rows after the dates of the fit; expected one for each of "
                f"the {h} steps. Add rows, or ask for fewer steps with h."
            )
        return exog

    def run(self, probe: Probe, h: int) -> ForecasterRun:
        """Return h forecasts of the series, with the probe in the place of the model."""
        forecaster = copy.copy(self._forecaster)
        forecaster.estimator = probe
        forecasts = forecaster.predict(steps=h, exog=self._exog_of_steps(h))
        return ForecasterRun(
            series=np.full((h, 1), self._series_name, dtype=object),
            dates=forecasts.index.to_numpy()[:, None],
            values=forecasts.to_numpy().astype(np.float64)[:, None],
        )


class MultiSeriesReader(RecursiveReader):
    """skforecast's ForecasterRecursiveMultiSeries: one model of several series."""

    def __init__(self, forecaster: ForeignModel, data: ForeignObject, exog: ForeignObject):
        super().__init__(forecaster, data, exog)
        if exog is not None:
            raise InputError(f"exog of a ForecasterRecursiveMultiSeries is not read. {ADVICE}")
        if getattr(forecaster, "exog_in_", False):
            raise InputError(
                "This ForecasterRecursiveMultiSeries was fitted with further features, which axil "
                f"does not read. {ADVICE}"
            )

    @property
    def series_names(self) -> list[object]:
        """Return the names of all series."""
        return list(series_of(self._data))

    def with_values(self, changes: Changes) -> Reader:
        """Return a reader of the same fitted model after other observations."""
        return self._at(with_series_changes(self._data, changes))

    def rows(self) -> TargetRows:
        """Return the rows that the model was fitted on."""
        names = np.array(self._forecaster.series_names_in_, dtype=object)
        X, y = copy.deepcopy(self._forecaster).create_train_X_y(series=self._data)
        encoding = self._forecaster.encoding
        if encoding is None:
            raise InputError(
                "This ForecasterRecursiveMultiSeries has encoding=None: no row says its series. "
                f"{ADVICE}"
            )
        if encoding == "onehot":
            codes = X[list(names)].to_numpy().argmax(axis=1)
        else:
            codes = X["_level_skforecast"].to_numpy().astype(np.intp)
        return TargetRows(
            X=X,
            y=y.to_numpy().astype(np.float64),
            series=names[codes],
            dates=y.index.to_numpy(),
        )

    def run(self, probe: Probe, h: int) -> ForecasterRun:
        """Return h forecasts of each series, with the probe in the place of the model."""
        forecaster = copy.copy(self._forecaster)
        forecaster.estimator = probe
        frame = forecaster.predict(steps=h)  # step after step, and in each all series
        return ForecasterRun(
            series=frame["level"].to_numpy().reshape(h, -1),
            dates=frame.index.to_numpy().reshape(h, -1),
            values=frame["pred"].to_numpy().astype(np.float64).reshape(h, -1),
        )


RECURSIVE = {
    "ForecasterRecursive": RecursiveReader,
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
    if library == "mlforecast" and name == "MLForecast":
        copies = copy.deepcopy((forecaster, data, exog))
        return MLForecastReader(*copies, model)
    if library == "skforecast" and name in RECURSIVE:
        if model is not None:
            raise InputError("model is for an MLForecast of several models. Leave it out.")
        return RECURSIVE[name](*copy.deepcopy((forecaster, data, exog)))
    advice = around(forecaster) or ADVICE
    raise InputError(
        f"The forecaster is a {cls.__module__}.{name}; expected mlforecast's MLForecast, or "
        f"skforecast's {' or '.join(RECURSIVE)}. {advice}"
    )
