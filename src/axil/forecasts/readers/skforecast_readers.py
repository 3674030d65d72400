"""Read forecasters of skforecast."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping

import numpy as np

from axil.aliases import DataFrame, ForeignModel, ForeignObject, Series
from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError, shown
from axil.forecasts.observations import Changes, series_of, with_changes, with_series_changes
from axil.forecasts.readers.contract import (
    ADVICE,
    FixedModel,
    ForecasterRun,
    Models,
    Probe,
    Reader,
    TargetRows,
)


class RecursiveReader(Reader):
    """skforecast's ForecasterRecursive: one series with dates for its index."""

    @property
    def models(self) -> Models:
        """Return the fitted model."""
        self._require_fitted()
        return [self._forecaster.estimator]

    def _require_fitted(self) -> None:
        """Raise for a forecaster that is not fitted."""
        if not self._forecaster.is_fitted:
            raise InputError(
                f"This {type(self._forecaster).__name__} is not fitted: call its fit first."
            )

    def rows(self) -> list[TargetRows]:
        """Return the rows that the model was fitted on."""
        self._check_exog()
        forecaster = copy.deepcopy(self._forecaster)
        X, y = forecaster.create_train_X_y(y=self._data, exog=self._exog_of_fit)
        return [self._target_rows(X, y)]

    def _target_rows(self, X: DataFrame, y: Series) -> TargetRows:
        """Return the training rows of one model of one series."""
        return TargetRows(
            X=X,
            y=y.to_numpy().astype(np.float64),
            series=np.full(len(y), self._series_name, dtype=object),
            dates=y.index.to_numpy(),
            sample_weight=self._forecaster.create_sample_weights(X_train=y.index),
        )

    @property
    def _series_name(self) -> object:
        return self._forecaster.series_name_in_ or "y"

    @property
    def series_names(self) -> list[object]:
        """Return the name of the series."""
        return [self._series_name]

    def with_values(self, changes: Changes) -> Reader:
        """Return a reader of the same fitted models after other observations."""
        return self._at(with_changes(self._data, changes))

    def _at(self, data: ForeignObject) -> Reader:
        """Return a reader of the same fitted models after this data."""
        forecaster = copy.deepcopy(self._forecaster)
        self._put(forecaster, FixedModel(self.models[0]))
        reader = type(self)(forecaster, data, self._exog)
        reader.fit(forecaster)
        self._restore(forecaster)
        return reader

    def fit(self, forecaster: ForeignModel) -> None:
        """Fit a forecaster to the data, without the warnings that the user's fit gave."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            forecaster.fit(self._data, exog=self._exog_of_fit)

    def before_last(self, n_left_out: int, h: int) -> Reader:
        """Return a reader of the forecaster fitted again without the last observations."""
        forecaster = copy.deepcopy(self._forecaster)
        shorter = type(self)(forecaster, self._data_before_last(n_left_out), self._exog)
        shorter.fit(forecaster)
        return shorter

    def _data_before_last(self, n_left_out: int) -> ForeignObject:
        """Return the data without the last observations of each series."""
        return self._data.iloc[:-n_left_out]

    def history(self) -> list[tuple[AnyArray, FloatArray]]:
        """Return the dates and observations of each series, in the order of the forecasts."""
        return [(self._data.index.to_numpy(), self._data.to_numpy(np.float64))]

    def _put(self, forecaster: ForeignModel, model: ForeignModel) -> None:
        """Put a model in the place of those that the forecaster asks."""
        forecaster.estimator = model

    def _restore(self, forecaster: ForeignModel) -> None:
        """Put the fitted models into the forecaster again."""
        forecaster.estimator = self._forecaster.estimator

    @property
    def _exog_of_fit(self) -> ForeignObject:
        """Return the further features at the dates of the fit."""
        if self._exog is None:
            return None
        return self._exog.loc[self._exog.index.isin(self._data.index)]

    def _check_exog(self) -> None:
        """Raise unless exog has the features of the fit, at all dates of the fit."""
        names = list(self._forecaster.exog_names_in_ or ())
        self._check_exog_is_expected(names)
        if self._exog is None:
            return
        self._check_exog_names(self._exog, names)
        fit_dates = self._data.index[self._forecaster.window_size :]
        missing_dates = fit_dates[~fit_dates.isin(self._exog.index)]
        if len(missing_dates):
            raise InputError(
                f"exog has no row for {len(missing_dates)} of the {len(fit_dates)} dates of the "
                f"fit, first {shown(missing_dates.values[0])}. Pass the features of the fit and of "
                "the steps together: pd.concat([exog_of_the_fit, exog_of_the_steps])."
            )

    def _check_exog_is_expected(self, names: list[str]) -> None:
        """Raise unless exog is given where the fit had further features, and only there."""
        forecaster = type(self._forecaster).__name__
        if self._exog is None and names:
            raise InputError(
                f"This {forecaster} was fitted with the further features "
                f"{', '.join(map(str, names[:5]))}, and exog is not given. Pass them as exog=, "
                "at the dates of the fit and of the steps."
            )
        if self._exog is not None and not names:
            raise InputError(
                f"This {forecaster} was fitted without further features: leave exog out."
            )

    def _check_exog_names(self, exog: ForeignObject, names: list[str]) -> None:
        """Raise unless a table of further features has those of the fit."""
        if not hasattr(exog, "loc"):
            raise InputError(
                f"exog is a {type(exog).__name__}; expected a pandas frame with dates for its "
                "index."
            )
        series_names = [getattr(exog, "name", None)]
        columns = list(getattr(exog, "columns", series_names))
        for name in names:
            if name not in columns:
                raise InputError(
                    f"exog lacks the feature {shown(name)} that the "
                    f"{type(self._forecaster).__name__} was fitted with; it has {columns[:5]}."
                )

    def _exog_of_steps(self, h: int) -> ForeignObject:
        """Return the exogenous features at the dates of the steps.

        Raise unless there are enough.
        """
        if self._exog is None:
            return None
        exog = self._exog.loc[~self._exog.index.isin(self._data.index)]
        self._require_steps(exog, h)
        return exog

    def _require_steps(self, exog: DataFrame, h: int) -> None:
        """Raise unless there are further features of all steps."""
        if len(exog) < h:
            raise InputError(
                f"exog has {len(exog)} rows after the dates of the fit; expected one for each of "
                f"the {h} steps. Add rows, or ask for fewer steps with h."
            )

    def run(self, probe: Probe, h: int) -> ForecasterRun:
        """Return h forecasts of the series, with the probe in the place of the models."""
        forecaster = copy.copy(self._forecaster)
        self._put(forecaster, probe)
        forecasts = forecaster.predict(steps=h, exog=self._exog_of_steps(h))
        return ForecasterRun(
            series=np.full((h, 1), self._series_name, dtype=object),
            dates=forecasts.index.to_numpy()[:, None],
            values=forecasts.to_numpy().astype(np.float64)[:, None],
        )


class DirectReader(RecursiveReader):
    """skforecast's ForecasterDirect: one series, with a model for each step."""

    @property
    def models(self) -> Models:
        """Return the fitted models of each step."""
        self._require_fitted()
        return list(self._forecaster.estimators_.values())

    def rows(self) -> list[TargetRows]:
        """Return the rows that each model was fitted on."""
        self._check_exog()
        forecaster = copy.deepcopy(self._forecaster)
        X, y = forecaster.create_train_X_y(y=self._data, exog=self._exog_of_fit)
        return [
            self._target_rows(*forecaster.filter_train_X_y_for_step(step, X, y, remove_suffix=True))
            for step in forecaster.estimators_
        ]

    def _put(self, forecaster: ForeignModel, model: ForeignModel) -> None:
        """Put a model in the place of those that the forecaster asks."""
        forecaster.estimator = model
        forecaster.estimators_ = dict.fromkeys(self._forecaster.estimators_, model)

    def _restore(self, forecaster: ForeignModel) -> None:
        """Put the fitted models into the forecaster again."""
        super()._restore(forecaster)
        forecaster.estimators_ = self._forecaster.estimators_

    def run(self, probe: Probe, h: int) -> ForecasterRun:
        """Return h forecasts of the series, with the probe in the place of the models."""
        if h > len(self.models):
            raise InputError(
                f"h is {h}, and this ForecasterDirect has models of {len(self.models)} steps. "
                "Forecast no more steps than that."
            )
        return super().run(probe, h)


class MultiSeriesReader(RecursiveReader):
    """skforecast's ForecasterRecursiveMultiSeries: one model of several series."""

    @property
    def series_names(self) -> list[object]:
        """Return the names of all series."""
        return list(series_of(self._data))

    def with_values(self, changes: Changes) -> Reader:
        """Return a reader of the same fitted models after other observations."""
        return self._at(with_series_changes(self._data, changes))

    def _data_before_last(self, n_left_out: int) -> ForeignObject:
        """Return the data without the last observations of each series."""
        return {name: values.iloc[:-n_left_out] for name, values in series_of(self._data).items()}

    def history(self) -> list[tuple[AnyArray, FloatArray]]:
        """Return the dates and observations of each series, in the order of the forecasts."""
        by_series = series_of(self._data)
        names = self._forecaster.series_names_in_
        columns = [by_series[name].squeeze() for name in names]
        return [(values.index.to_numpy(), values.to_numpy(np.float64)) for values in columns]

    def _exog_by_series(self) -> dict[object, DataFrame]:
        """Return the further features of each series, by date; a frame may be of all series."""
        names = self.series_names
        exog = self._exog
        is_of_all = not isinstance(exog, Mapping) and exog.index.nlevels == 1
        if is_of_all:
            return dict.fromkeys(names, exog)
        if not isinstance(exog, Mapping):
            exog = {
                name: exog.xs(name, level=0) for name in exog.index.get_level_values(0).unique()
            }
        for name in names:
            if name not in exog:
                raise InputError(
                    f"exog has no features of the series {shown(name)}; expected those of all "
                    f"{len(names)} series."
                )
        return {name: exog[name] for name in names}

    @property
    def _exog_of_fit(self) -> dict[object, DataFrame] | None:
        """Return the further features of each series at the dates of its fit."""
        if self._exog is None:
            return None
        by_series = series_of(self._data)
        return {
            name: exog.loc[exog.index.isin(by_series[name].index)].asfreq(
                by_series[name].index.freq
            )
            for name, exog in self._exog_by_series().items()
        }

    def _exog_of_steps(self, h: int) -> dict[object, DataFrame] | None:
        """Return the further features of each series at the dates of the steps."""
        if self._exog is None:
            return None
        last_date = max(values.index[-1] for values in series_of(self._data).values())
        exog_of_steps = {}
        for name, exog in self._exog_by_series().items():
            later_exog = exog.loc[exog.index > last_date]
            self._require_steps(later_exog, h)
            exog_of_steps[name] = later_exog
        return exog_of_steps

    def _check_exog(self) -> None:
        """Raise unless exog is given where the forecaster was fitted with further features."""
        names = list(self._forecaster.exog_names_in_ or ())
        self._check_exog_is_expected(names)
        if self._exog is None:
            return
        for exog in self._exog_by_series().values():
            self._check_exog_names(exog, names)

    def rows(self) -> list[TargetRows]:
        """Return the rows that the model was fitted on."""
        self._check_exog()
        names = np.array(self._forecaster.series_names_in_, dtype=object)
        X, y = copy.deepcopy(self._forecaster).create_train_X_y(
            series=self._data, exog=self._exog_of_fit
        )
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
        rows = TargetRows(
            X=X,
            y=y.to_numpy().astype(np.float64),
            series=names[codes],
            dates=y.index.to_numpy(),
            sample_weight=self._forecaster.create_sample_weights(
                series_names_in_=list(names), X_train=X
            ),
        )
        return [rows]

    def run(self, probe: Probe, h: int) -> ForecasterRun:
        """Return h forecasts of each series, with the probe in the place of the models."""
        forecaster = copy.copy(self._forecaster)
        self._put(forecaster, probe)
        frame = forecaster.predict(steps=h, exog=self._exog_of_steps(h))  # by step, then by series
        return ForecasterRun(
            series=frame["level"].to_numpy().reshape(h, -1),
            dates=frame.index.to_numpy().reshape(h, -1),
            values=frame["pred"].to_numpy().astype(np.float64).reshape(h, -1),
        )
