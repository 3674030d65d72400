"""Forecast: the forecasts of a boosted time series, with the dates and series that made them."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, FeatureTable, ForeignModel, ForeignObject, Series
from axil.arrays import AnyArray, FloatArray
from axil.errors import ExactnessError, InputError, UnsupportedQuestionError
from axil.explainer import Explainer
from axil.explanation import Explanation
from axil.forecasts.forecasters import Probe, Reader, TargetRows, reader_of
from axil.inputs.libraries import needed_pandas

# Of the largest forecast: some libraries keep predictions in single precision.
TOLERANCE = 1e-6


def forecast(
    forecaster: ForeignModel,
    data: DataFrame | Series,
    h: int = 12,
    *,
    exog: DataFrame | None = None,
    model: str | None = None,
    **settings: Any,
) -> Forecast:
    """Explain which dates, of which series, made the next h forecasts, and by exactly how much.

    axil verifies the forecaster's model on the rows that it was fitted on, and checks that the
    explanation adds up to the forecaster's own forecasts. Differences and scales of the targets are
    undone as the forecaster does it, so weights and contributions are of the series itself; where
    the forecaster takes logarithms, of their logarithms. This needs forecasts that are a linear
    function of the predictions of the steps up to them, which axil checks.

    A date counts as a target: a weight says how far the forecast would move if the series had been
    one higher there *as a target*. In a recursive forecast a date counts a second time, as a lag:
    the features of a step may be forecasts of the steps before. These features stay fixed, as the
    tree structure does, and `Forecast.path` lists them.

    Parameters
    ----------
    forecaster : mlforecast.MLForecast, skforecast.recursive.ForecasterRecursive or ForecasterRecursiveMultiSeries
        A fitted forecaster.
    data : frame or series
        The data that it was fitted on: for MLForecast a frame of series, dates and targets, for
        skforecast its series.
    h : int, default 12
        How many steps to forecast.
    exog : frame, optional
        Further features of the steps: X_df of MLForecast; for a ForecasterRecursive those of the
        fit and of the steps, by date.
    model : str, optional
        Which of the models of an MLForecast, if there are several.
    **settings : optional
        Settings of `Explainer`, such as ``memory_limit``.
    """
    h = inputs.as_count(h, "h")
    return Forecast(reader_of(forecaster, data, exog, model), h, settings)


class Forecast:
    """h forecasts of each of S series, as weighted sums of the targets of their model; see `forecast`."""

    def __init__(self, reader: Reader, h: int, settings: dict[str, Any]):
        self._rows = reader.rows()
        self.row_labels = _row_labels(self._rows)  #: (N,) series and date of each training row
        self.explainer = Explainer(
            reader.model, self._rows.X, self._rows.y, index=self.row_labels, **settings
        )
        if self.explainer.kind != "exact":
            raise UnsupportedQuestionError(
                "forecast",
                f'its model is of kind "{self.explainer.kind}"',
                "Ask axil.Explainer about the model itself.",
            )
        probe = Probe(reader.model)
        run = reader.run(probe, h)
        self.series = run.series  #: (h, S)
        self.dates = run.dates  #: (h, S)
        self.values = run.values  #: (h, S) the forecaster's own forecasts
        zero_probe = Probe(reader.model, np.zeros(self.values.shape))
        constants = reader.run(zero_probe, h).values
        predictions = np.asarray(probe.predictions)
        self.is_log = False
        coefficients = self._coefficients(reader, constants, predictions)
        if coefficients is None:
            with np.errstate(all="ignore"):
                constants = np.log(constants)
            self.is_log = True
            coefficients = self._coefficients(reader, constants, predictions)
        if coefficients is None:
            raise UnsupportedQuestionError(
                "forecast",
                "its forecasts are no linear function of the predictions of its steps, nor are "
                "their logarithms",
                "Forecast without the transform of the targets, or with differences, scales or "
                "logarithms.",
            )
        self._coefficients_of_steps = coefficients
        self._constants = constants
        self._steps = probe.rows
        # (S, features) per step: whether a feature depends on the predictions of the steps before
        self._is_forecast = [
            _numbers(rows) != _numbers(rows_of_zeros)
            for rows, rows_of_zeros in zip(probe.rows, zero_probe.rows)
        ]

    @property
    def _fitted_values(self) -> FloatArray:
        """Return the forecasts, or their logarithms where the forecaster takes these, (h, S)."""
        if self.is_log:
            return np.asarray(np.log(self.values))
        return self.values

    def _coefficients(
        self, reader: Reader, constants: FloatArray, predictions: FloatArray
    ) -> FloatArray | None:
        """Return how each step's prediction counts in each forecast.

        Returns
        -------
        coefficients : array of shape (h, h, S) or None
            By forecast, step and series. None where forecasts are not linear in the predictions.
        """
        h, n_series = constants.shape
        coefficients = np.zeros((h, h, n_series))
        with np.errstate(all="ignore"):
            for step in range(h):
                unit_predictions = np.zeros((h, n_series))
                unit_predictions[step] = 1.0
                values = reader.run(Probe(reader.model, unit_predictions), h).values
                if self.is_log:
                    values = np.log(values)
                coefficients[:, step] = values - constants
            sums = constants + np.einsum("tsk,sk->tk", coefficients, predictions)
            is_linear = self._are_close(sums)
        if is_linear:
            return coefficients
        return None

    def _are_close(self, sums: FloatArray) -> bool:
        """Return whether sums (h, S) are the forecasts, up to rounding."""
        forecasts = self._fitted_values
        slack = TOLERANCE * max(float(np.abs(forecasts).max()), 1.0)
        return bool(np.abs(sums - forecasts).max() <= slack)

    @cached_property
    def _stacked_rows(self) -> Any:
        """Return the rows of all steps, (h * S, features)."""
        stacked = self._steps[0]
        for rows in self._steps[1:]:
            stacked = inputs.stack_rows(stacked, rows)
        if not hasattr(self._rows.X, "columns"):
            return stacked
        pd = needed_pandas("Rows of a forecaster")
        frame = pd.DataFrame(_numbers(stacked), columns=self._rows.X.columns)
        return frame.astype(self._rows.X.dtypes.to_dict())

    def explain(self) -> Explanation:
        """Return the explanation of the h * S forecasts, series after series, without their `base`."""
        h, n_series = self.values.shape
        # By series and forecast, then by step and series
        matrix = np.zeros((n_series, h, h, n_series))
        for series in range(n_series):
            matrix[series, :, :, series] = self._coefficients_of_steps[:, :, series]
        pd = needed_pandas("A forecast")
        table = pd.DataFrame(matrix.reshape(n_series * h, h * n_series), index=self._forecast_names)
        explanation = self.explainer.aggregate(self._stacked_rows, table)
        sums = explanation.predictions.reshape(n_series, h).T + self._constants
        if not self._are_close(sums):
            forecasts = self._fitted_values
            worst = np.unravel_index(np.abs(sums - forecasts).argmax(), forecasts.shape)
            raise ExactnessError(
                "forecast",
                float(sums[worst]),
                float(forecasts[worst]),
                "The forecaster was changed since its fit.",
            )
        return explanation

    @property
    def _forecast_names(self) -> list[str]:
        """Return series and date of each forecast, series after series."""
        return [
            f"{series} {_date_text(date)}"
            for series, date in zip(self.series.T.ravel(), self.dates.T.ravel())
        ]

    @property
    def row_dates(self) -> AnyArray:
        """Return the date of each training row, (N,)."""
        return self._rows.dates

    @property
    def base(self) -> FloatArray:
        """Return the part of the forecasts that no target makes, (h, S).

        It has the last value that differences start from, means and scales.
        """
        return self._constants

    def table(self) -> DataFrame:
        """Return the forecasts, with a line for each.

        The columns are series, date, step, forecast, base, and how many features of the step are
        forecasts themselves.
        """
        h, n_series = self.values.shape
        n_forecast_features = [
            is_forecast[series].sum()
            for series in range(n_series)
            for is_forecast in self._is_forecast
        ]
        columns = {
            "series": self.series.T.ravel(),
            "date": self.dates.T.ravel(),
            "step": np.tile(np.arange(1, h + 1), n_series),
            "forecast": self.values.T.ravel(),
            "base": self._constants.T.ravel(),
            "forecast features": np.array(n_forecast_features),
        }
        return needed_pandas("A forecast").DataFrame(columns)

    def top(self, k: int = 10) -> DataFrame:
        """Return the k dates of largest weight in each forecast.

        The columns are series, date and step of the forecast, then those of the training row.
        """
        table = self.explain().top(k)
        return self._with_dates(table.drop(columns="prediction"), table["query"])

    def group(self, groups: Literal["year", "month", "series"] | ArrayLike = "year") -> DataFrame:
        """Return how much of each forecast comes from each group of dates.

        Groups are "year", "month" or "series", or your own labels of the training rows.
        """
        if isinstance(groups, str):
            groups = self._group_labels(groups)
        table = self.explain().group(groups)
        return self._with_dates(table, table["query"])

    def path(self) -> DataFrame:
        """Return the features of each step that are forecasts, or follow from them, with their values.

        All answers hold them fixed.
        """
        n_features = _numbers(self._steps[0]).shape[1]
        names = list(getattr(self._rows.X, "columns", range(n_features)))
        h, n_series = self.values.shape
        lines = []
        for series, step in np.ndindex(n_series, h):
            values = _numbers(self._steps[step])[series]
            for feature in np.flatnonzero(self._is_forecast[step][series]):
                lines.append(
                    (
                        self.series[step, series],
                        self.dates[step, series],
                        step + 1,
                        names[feature],
                        values[feature],
                    )
                )
        columns = ["series", "date", "step", "feature", "value"]
        return needed_pandas("A forecast").DataFrame(lines, columns=columns)

    def _group_labels(self, name: str) -> AnyArray:
        """Return the year, month or series of each training row, (N,)."""
        if name == "series":
            return self._rows.series
        pd = needed_pandas("Groups by date")
        dates = pd.to_datetime(self._rows.dates)
        if name == "year":
            return np.asarray(dates.year)
        if name == "month":
            return np.asarray(dates.month)
        raise InputError(
            f'groups is {name!r}; expected "year", "month", "series", or a label for each row.'
        )

    def _with_dates(self, table: DataFrame, names: Series) -> DataFrame:
        """Return the table with series, date and step of each forecast in the place of its name."""
        forecasts = self.table()
        forecasts.index = self._forecast_names
        columns = ["series", "date", "step", "forecast", "base"]
        described = forecasts.loc[names.to_numpy(), columns].reset_index(drop=True)
        pd = needed_pandas("A forecast")
        if self.is_log:
            table = table.rename(columns={"contribution": "contribution (log)"})
            table["factor"] = np.exp(table["contribution (log)"])
        rows = table.drop(columns="query").reset_index(drop=True)
        joined = pd.concat([described, rows], axis=1)
        joined.attrs.update(table.attrs)
        return joined


def _row_labels(rows: TargetRows) -> AnyArray:
    """Return the date of each training row, (N,); series and date where there are several series."""
    if len(np.unique(rows.series)) == 1:
        return rows.dates
    labels = [f"{series} {_date_text(date)}" for series, date in zip(rows.series, rows.dates)]
    return np.array(labels, dtype=object)


def _date_text(date: ForeignObject) -> str:
    """Return a date without the time of the day where that is midnight."""
    if isinstance(date, np.datetime64):
        text = str(date.astype("datetime64[s]"))
    else:
        text = str(date)
    return text.removesuffix("T00:00:00")


def _numbers(rows: FeatureTable) -> FloatArray:
    """Return the rows of a step as numbers, for comparison."""
    if hasattr(rows, "to_numpy"):
        values = rows.to_numpy()
    else:
        values = np.asarray(rows)
    return np.asarray(values, dtype=np.float64)
