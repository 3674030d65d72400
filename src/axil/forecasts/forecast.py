"""Forecast: the forecasts of a boosted time series, with the dates and series that made them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.arrays import BoolArray, FloatArray
from axil.errors import ExactnessError, InputError, UnsupportedQuestionError
from axil.explainer import Explainer
from axil.explanation import Explanation
from axil.forecasts.forecasters import Probe, Reader, reader_of
from axil.inputs.libraries import needed_pandas

CLOSE = 1e-6  # of the largest forecast: single precision, in which some libraries keep predictions


def forecast(
    forecaster: Any,
    data: Any,
    h: int = 12,
    *,
    exog: Any = None,
    model: str | None = None,
    **settings: Any,
) -> Forecast:
    """Which dates, of which series, made the next h forecasts, and by exactly how much.

    The forecaster's model is proven on the rows that it was fitted on, and the forecasts that the explanation adds up to must be
    the forecaster's own. Differences and scales of the targets are undone as the forecaster does it, so weights and contributions
    are of the series itself; where it takes logarithms, of their logarithms. For both, a forecast has to be a linear function of
    the predictions of the steps up to it, which is checked.

    A date counts as a target: by how much the forecast would move if the series had been one higher there *as a target*. In a
    recursive forecast it counts a second time, as a lag: the features of a step may be forecasts of the steps before. They are
    held fixed here, as splits are, and `Forecast.path` lists them.

    Parameters
    ----------
    forecaster : mlforecast.MLForecast, skforecast.recursive.ForecasterRecursive or ForecasterRecursiveMultiSeries
        A fitted forecaster.
    data : frame or series
        The data that it was fitted on: for MLForecast a frame of series, dates and targets, for skforecast its series.
    h : int, default 12
        How many steps to forecast.
    exog : frame, optional
        Further features of the steps: X_df of MLForecast; for a ForecasterRecursive those of the fit and of the steps, by date.
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
        self._rows = rows = reader.rows()
        several = len(np.unique(rows.series)) > 1
        self.row_labels: NDArray[Any] = (
            np.array([f"{s} {_day(d)}" for s, d in zip(rows.series, rows.dates)], dtype=object)
            if several
            else rows.dates
        )  #: (N,) series and date of each training row
        self.explainer = Explainer(reader.model, rows.X, rows.y, index=self.row_labels, **settings)
        if self.explainer.kind != "exact":
            raise UnsupportedQuestionError(
                "forecast",
                f'its model is of kind "{self.explainer.kind}"',
                "Ask axil.Explainer about the model itself.",
            )
        seen = Probe(reader.model)
        self.series, self.dates, self.values = reader.run(
            seen, h
        )  #: (h, S) each; values are the forecaster's own
        n_series = self.values.shape[1]
        zeros = Probe(reader.model, np.zeros((h, n_series)))
        constants = reader.run(zeros, h)[2]
        self.is_log = False
        coefficients = self._coefficients(reader, h, constants, np.asarray(seen.said))
        if coefficients is None:
            with np.errstate(all="ignore"):
                logs = np.log(constants)
            self.is_log, constants = True, logs
            coefficients = self._coefficients(reader, h, logs, np.asarray(seen.said))
        if coefficients is None:
            raise UnsupportedQuestionError(
                "forecast",
                "its forecasts are no linear function of the predictions of its steps, nor are their logarithms",
                "Forecast without the transform of the targets, or with differences, scales or logarithms.",
            )
        self._matrix, self._constants = coefficients, constants
        self._steps, self._path = seen.rows, self._changed(seen, zeros)

    def _coefficients(
        self, reader: Reader, h: int, constants: FloatArray, said: FloatArray
    ) -> FloatArray | None:
        """(h, h, S): how each step's prediction counts in each forecast; None: not linearly."""
        n_series, found = constants.shape[1], np.zeros((h, h, constants.shape[1]))
        with np.errstate(all="ignore"):
            for step in range(h):
                told = np.zeros((h, n_series))
                told[step] = 1.0
                moved = reader.run(Probe(reader.model, told), h)[2]
                found[:, step] = (np.log(moved) if self.is_log else moved) - constants
            made = constants + np.einsum("tsk,sk->tk", found, said)
            own = np.log(self.values) if self.is_log else self.values
        close = np.abs(made - own).max() <= CLOSE * max(float(np.abs(own).max()), 1.0)
        return found if close else None

    @staticmethod
    def _changed(seen: Probe, zeros: Probe) -> list[BoolArray]:
        """For each step (S, features): features that depend on the predictions of the steps before."""
        return [_numbers(a) != _numbers(b) for a, b in zip(seen.rows, zeros.rows)]

    @cached_property
    def _stacked(self) -> Any:
        """(h * S, features): the rows of all steps."""
        whole = self._steps[0]
        for rows in self._steps[1:]:
            whole = inputs.stack_rows(whole, rows)
        if hasattr(self._rows.X, "columns"):
            pd = needed_pandas("Rows of a forecaster")
            return pd.DataFrame(_numbers(whole), columns=self._rows.X.columns).astype(
                self._rows.X.dtypes.to_dict()
            )
        return whole

    def explain(self) -> Explanation:
        """The explanation of the h * S forecasts, series after series, without what no target makes (`base`)."""
        h, n_series = self.values.shape
        matrix = np.zeros((n_series, h, h, n_series))
        for k in range(n_series):
            matrix[k, :, :, k] = self._matrix[:, :, k]
        pd = needed_pandas("A forecast")
        table = pd.DataFrame(matrix.reshape(n_series * h, h * n_series), index=self._names)
        found = self.explainer.combine(self._stacked, table)
        own = np.log(self.values) if self.is_log else self.values
        made = found.predictions.reshape(n_series, h).T + self._constants
        if not np.abs(made - own).max() <= CLOSE * max(float(np.abs(own).max()), 1.0):
            worst = np.unravel_index(np.abs(made - own).argmax(), own.shape)
            raise ExactnessError(
                "forecast",
                float(made[worst]),
                float(own[worst]),
                "The forecaster was changed since its fit.",
            )
        return found

    @property
    def _names(self) -> list[str]:
        """Series and date of each forecast, series after series."""
        return [f"{s} {_day(d)}" for s, d in zip(self.series.T.ravel(), self.dates.T.ravel())]

    @property
    def row_dates(self) -> NDArray[Any]:
        """(N,): the date of each training row."""
        return self._rows.dates

    @property
    def base(self) -> FloatArray:
        """(h, S): the part of the forecasts that no target makes: the last value that differences start from, means, scales."""
        return self._constants

    def table(self) -> Any:
        """The forecasts: series, date, step, forecast, base, and how many features of the step are forecasts themselves."""
        h, n_series = self.values.shape
        columns = {
            "series": self.series.T.ravel(),
            "date": self.dates.T.ravel(),
            "step": np.tile(np.arange(1, h + 1), n_series),
            "forecast": self.values.T.ravel(),
            "base": self._constants.T.ravel(),
            "forecast features": np.array(
                [own[k].sum() for k in range(n_series) for own in self._path]
            ),
        }
        return needed_pandas("A forecast").DataFrame(columns)

    def top(self, k: int = 10) -> Any:
        """The k dates of largest weight in each forecast: series, date and step of the forecast, then those of the row."""
        found = self.explain().top(k)
        return self._with_dates(found.drop(columns="prediction"), found["query"])

    def group(self, groups: Any = "year") -> Any:
        """How much of each forecast comes from each "year", "month" or "series", or from groups of rows by your own labels."""
        if isinstance(groups, str):
            groups = self._labels(groups)
        found = self.explain().group(groups)
        return self._with_dates(found, found["query"])

    def path(self) -> Any:
        """The features of each step that are forecasts, or follow from them, with their values: held fixed in all answers."""
        names = list(getattr(self._rows.X, "columns", range(_numbers(self._steps[0]).shape[1])))
        h, n_series = self.values.shape
        lines = [
            (self.series[t, k], self.dates[t, k], t + 1, names[i], _numbers(self._steps[t])[k, i])
            for k in range(n_series)
            for t in range(h)
            for i in np.flatnonzero(self._path[t][k])
        ]
        return needed_pandas("A forecast").DataFrame(
            lines, columns=["series", "date", "step", "feature", "value"]
        )

    def _labels(self, word: str) -> NDArray[Any]:
        if word == "series":
            return self._rows.series
        pd = needed_pandas("Groups by date")
        dates = pd.to_datetime(self._rows.dates)
        if word not in ("year", "month"):
            raise InputError(
                f'groups is {word!r}; expected "year", "month", "series", or a label for each row.'
            )
        return np.asarray(dates.year if word == "year" else dates.month)

    def _with_dates(self, table: Any, queries: Any) -> Any:
        """The table with series, date and step of each forecast in the place of its label."""
        about = self.table()
        about.index = self._names
        own = about.loc[
            queries.to_numpy(), ["series", "date", "step", "forecast", "base"]
        ].reset_index(drop=True)
        pd = needed_pandas("A forecast")
        if self.is_log:
            table = table.rename(columns={"contribution": "contribution (log)"})
            table["factor"] = np.exp(table["contribution (log)"])
        made = pd.concat([own, table.drop(columns="query").reset_index(drop=True)], axis=1)
        made.attrs.update(table.attrs)
        return made


def _day(date: Any) -> str:
    """A date, without the time of the day where that is midnight."""
    text = str(date.astype("datetime64[s]")) if isinstance(date, np.datetime64) else str(date)
    return text.removesuffix("T00:00:00")


def _numbers(rows: Any) -> FloatArray:
    """The rows of a step as numbers, for comparison."""
    values = rows.to_numpy() if hasattr(rows, "to_numpy") else np.asarray(rows)
    return np.asarray(values, dtype=np.float64)
