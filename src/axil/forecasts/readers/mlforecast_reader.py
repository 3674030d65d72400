"""Read forecasters of mlforecast."""

from __future__ import annotations

import copy

import numpy as np

from axil.aliases import DataFrame, ForeignModel, ForeignObject, Series
from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError, shown
from axil.forecasts.observations import Changes, date_like, pandas_index, require_observation
from axil.forecasts.readers.contract import (
    ADVICE,
    ForecasterRun,
    Models,
    Probe,
    Reader,
    TargetRows,
)
from axil.inputs.libraries import needed_pandas


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
        self._is_direct = isinstance(models[self._name], (list, dict))
        if self._is_direct:
            self._check_horizons()

    def _check_horizons(self) -> None:
        """Raise unless there is a model of the same features for each step from 1 on."""
        models = self._forecaster.models_[self._name]
        is_sparse = isinstance(models, dict) and list(models) != list(range(len(models)))
        if is_sparse or getattr(self._forecaster.ts, "horizon_features_", None):
            raise InputError(
                "This MLForecast has models of some horizons alone (horizons), or with features of "
                "their own (horizon_features), which axil does not read. Fit it with max_horizon, "
                f"or: {ADVICE}"
            )

    @property
    def models(self) -> Models:
        """Return the fitted model, or those of each step."""
        models = self._forecaster.models_[self._name]
        if not self._is_direct:
            return [models]
        if isinstance(models, dict):
            return list(models.values())
        return list(models)

    def rows(self) -> list[TargetRows]:
        """Return the rows that each model was fitted on."""
        ts = self._forecaster.ts
        # preprocess overwrites what the forecaster keeps of the series.
        frame = self._preprocessed(copy.deepcopy(self._forecaster), self._data)
        if not self._is_direct:
            return [self._rows_at(frame, ts.target_col, 0)]
        return [
            self._rows_at(frame, f"{ts.target_col}{step}", step) for step in range(len(self.models))
        ]

    def _rows_at(self, frame: DataFrame, target_column: str, step: int) -> TargetRows:
        """Return the training rows whose targets are some steps after those of the first step."""
        ts = self._forecaster.ts
        y = frame[target_column].to_numpy().astype(np.float64)
        dates = frame[ts.time_col]
        X = frame[list(ts.features_order_)]
        if step:
            dates = self._later(dates, step)
            X = self._with_exog_at(X, frame[ts.id_col], dates)
        is_known = ~np.isnan(y)
        if step:
            is_known &= ~X[self._exog_names].isna().to_numpy().any(axis=1)
        X = X[is_known]
        if ts.as_numpy:
            X = X.to_numpy()
        sample_weight = None
        if self._weight_options:
            sample_weight = frame[ts.weight_col].to_numpy(np.float64)[is_known]
        return TargetRows(
            X=X,
            y=y[is_known],
            series=frame[ts.id_col].to_numpy()[is_known],
            dates=dates.to_numpy()[is_known],
            sample_weight=sample_weight,
        )

    @property
    def _weight_options(self) -> dict[str, str]:
        """Return the option that names the column of sample weights, if the fit had one."""
        weight_column = getattr(self._forecaster.ts, "weight_col", None)
        if weight_column is None:
            return {}
        return {"weight_col": weight_column}

    def _later(self, dates: Series, step: int) -> Series:
        """Return the dates some steps later."""
        freq = self._forecaster.freq
        if isinstance(freq, str):
            freq = needed_pandas("Dates of a forecaster").tseries.frequencies.to_offset(freq)
        return dates + step * freq

    @property
    def _exog_names(self) -> list[str]:
        """Return the features that the data have for each date, besides lags and static ones."""
        return [
            name
            for name in self._forecaster.ts.features_order_
            if name in self._data.columns and name not in self._static_names
        ]

    @property
    def _static_names(self) -> list[str]:
        """Return the features that are the same for all dates of a series."""
        ts = self._forecaster.ts
        return [name for name in ts.static_features_.columns if name != ts.id_col]

    def _with_exog_at(self, X: DataFrame, series: Series, dates: Series) -> DataFrame:
        """Return the rows with the further features of their own series at these dates."""
        names = self._exog_names
        if not names:
            return X
        ts = self._forecaster.ts
        places = X[[]].assign(**{ts.id_col: series, ts.time_col: dates})
        exog_of_data = self._data[[ts.id_col, ts.time_col, *names]]
        exog = places.merge(exog_of_data, on=[ts.id_col, ts.time_col], how="left")
        return X.assign(**{name: exog[name].to_numpy() for name in names})

    def _preprocessed(self, forecaster: ForeignModel, data: ForeignObject) -> ForeignObject:
        """Return the frame of features and targets.

        The forecaster keeps the state after the data.
        """
        ts = self._forecaster.ts
        max_horizon = None
        if self._is_direct:
            max_horizon = len(self.models)
        frame = forecaster.preprocess(
            data,
            id_col=ts.id_col,
            time_col=ts.time_col,
            target_col=ts.target_col,
            static_features=self._static_names,
            keep_last_n=ts.keep_last_n,
            max_horizon=max_horizon,
            **self._weight_options,
        )
        forecaster.ts.as_numpy = ts.as_numpy
        return frame

    def with_values(self, changes: Changes) -> Reader:
        """Return a reader of the same fitted models after other observations."""
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

    def before_last(self, n_left_out: int, h: int) -> Reader:
        """Return a reader of the forecaster fitted again without the last observations."""
        ts = self._forecaster.ts
        data = self._data.sort_values([ts.id_col, ts.time_col])
        n_later = data.groupby(ts.id_col).cumcount(ascending=False)
        forecaster = copy.deepcopy(self._forecaster)
        max_horizon = None
        if self._is_direct:
            max_horizon = len(self.models)
        forecaster.models = {self._name: self._forecaster.models[self._name]}
        train = data[n_later >= n_left_out]
        forecaster.fit(
            train,
            id_col=ts.id_col,
            time_col=ts.time_col,
            target_col=ts.target_col,
            static_features=self._static_names,
            max_horizon=max_horizon,
            as_numpy=ts.as_numpy,
            **self._weight_options,
        )
        exog = None
        if self._exog_names:
            is_forecast = (n_later < n_left_out) & (n_later >= n_left_out - h)
            exog = data.loc[is_forecast, [ts.id_col, ts.time_col, *self._exog_names]]
        return MLForecastReader(forecaster, train, exog, self._name)

    def history(self) -> list[tuple[AnyArray, FloatArray]]:
        """Return the dates and observations of each series, in the order of the forecasts."""
        ts = self._forecaster.ts
        data = self._data.sort_values([ts.id_col, ts.time_col])
        return [
            (of_series[ts.time_col].to_numpy(), of_series[ts.target_col].to_numpy(np.float64))
            for _, of_series in data.groupby(ts.id_col, observed=True)
        ]

    @property
    def series_names(self) -> list[object]:
        """Return the names of all series."""
        return list(dict.fromkeys(self._data[self._forecaster.ts.id_col].to_numpy()))

    def run(self, probe: Probe, h: int) -> ForecasterRun:
        """Return h forecasts of each series, with the probe in the place of the models."""
        if self._is_direct and h > len(self.models):
            raise InputError(
                f"h is {h}, and this MLForecast has models of {len(self.models)} steps "
                "(max_horizon). Forecast no more steps than that."
            )
        forecaster = copy.copy(self._forecaster)
        forecaster.models_ = {self._name: probe}
        if self._is_direct:
            forecaster.models_ = {self._name: dict.fromkeys(range(h), probe)}
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
