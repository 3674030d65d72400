"""Forecast: the forecasts of a boosted time series, with the dates and series that made them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from axil import inputs, templates
from axil.aliases import (
    ArrayLike,
    DataFrame,
    ForeignModel,
    ForeignObject,
    Series,
)
from axil.arrays import AnyArray, FloatArray
from axil.errors import ExactnessError, InputError, UnsupportedQuestionError, counted, shown
from axil.explainer import Explainer
from axil.explanation import Explanation
from axil.forecasts.groups import TimeGroups, as_groups, shares_of_groups, units_of_groups
from axil.forecasts.intervals import ForecastIntervals, backtests
from axil.forecasts.linear import linear_forecasts
from axil.forecasts.models import ExplainedModels, date_text
from axil.forecasts.observations import as_changes
from axil.forecasts.readers import Reader, reader_of
from axil.forecasts.runs import forecast_features, numbers, record
from axil.forecasts.vintages import ForecastComparison, Vintage, compare_vintages
from axil.forecasts.what_if import changed_paths
from axil.inputs.codes import keys
from axil.inputs.libraries import needed_pandas


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
    undone as the forecaster does it, so the weights and contributions of tables are of the series
    itself, in its units; where the forecaster takes logarithms, of their logarithms. This needs
    forecasts that are a linear function of the predictions of the steps up to them, which axil
    checks. Of counts and amounts (Poisson, gamma and Tweedie losses) contributions are of the
    logarithms of the forecasts. Direct forecasters have a model for each step; a date counts as a
    target in each of them.

    A date counts as a target: a weight says how far the forecast would move if the series had been
    one higher there *as a target*. In a recursive forecast a date counts a second time, as a lag:
    the features of a step may be forecasts of the steps before. Weights hold these features fixed,
    as they hold the tree structure, and `Forecast.path` lists them. `Forecast.what_if` carries a
    change of an observation through all of them.

    Parameters
    ----------
    forecaster : fitted forecaster
        An MLForecast of mlforecast, with max_horizon too; a ForecasterRecursive, a
        ForecasterRecursiveMultiSeries or a ForecasterDirect of skforecast.
    data : frame or series
        The data that it was fitted on: for MLForecast a frame of series, dates and targets, for
        skforecast its series.
    h : int, default 12
        How many steps to forecast.
    exog : frame, optional
        Further features of the steps: X_df of MLForecast; for skforecast those of the fit and of
        the steps, by date, in a form that its fit takes.
    model : str, optional
        Which of the models of an MLForecast, if there are several.
    **settings : optional
        Settings of `Explainer`, such as ``memory_limit``.
    """
    h = inputs.as_count(h, "h")
    return Forecast(reader_of(forecaster, data, exog, model), h, settings)


class Forecast:
    """Forecasts of h steps of S series, as weighted sums of the targets of their model."""

    def __init__(self, reader: Reader, h: int, settings: dict[str, Any]):
        self._reader = reader
        rows = reader.rows()
        run = record(reader, h)
        self._run = run
        n_models = min(len(reader.models), h)
        self._models = ExplainedModels.of(reader.models[:n_models], rows, settings)
        self._rows = self._models.all_rows
        self.row_labels = self._models.labels  #: (N,) series and date of each training row
        self.series = run.series  #: (h, S)
        self.dates = run.dates  #: (h, S)
        self.values = run.values  #: (h, S) the forecaster's own forecasts
        self._linear = linear_forecasts(run, self._models.scores(run))
        self.is_log = self._linear.is_log
        # (S, features) per step: whether a feature depends on the predictions of the steps before
        self._is_forecast = forecast_features(run)

    def __repr__(self) -> str:
        """Return the forecasts, the model and the training rows, in words."""
        texts = [text for _, text in self._facts()]
        return f"<axil.forecasts.Forecast: {'; '.join(texts)}>"

    def _repr_html_(self) -> str:
        return templates.render_facts("axil.forecasts.Forecast", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        """Return pairs of a name and a text: the forecasts, the scale, and the models."""
        h, n_series = self.values.shape
        dates = f"{date_text(self.dates[0, 0])} to {date_text(self.dates[-1, 0])}"
        facts = [("forecasts", f"{counted(h, 'step')} of {n_series} series, {dates}")]
        if self.is_log:
            facts.append(("scale", "contributions to logarithms"))
        facts.append(("training rows", counted(len(self.row_labels), "training row")))
        n_models = len(self.explainers)
        if n_models > 1:
            facts.append(("models", f"{n_models} models, one for each step"))
        return facts

    @property
    def explainers(self) -> list[Explainer]:
        """Return the explainer of the model, or those of the models of each step."""
        return self._models.explainers

    @property
    def explainer(self) -> Explainer:
        """Return the explainer of the model, where one model forecasts all steps."""
        if len(self.explainers) > 1:
            raise UnsupportedQuestionError(
                "forecast.explainer",
                "the forecaster has a model for each step",
                "Take forecast.explainers[step - 1].",
            )
        return self.explainers[0]

    def explain(self) -> Explanation:
        """Return the explanation of all forecasts, series after series, without their `base`."""
        h, n_series = self.values.shape
        # By series and forecast, then by step and series
        coefficients = np.zeros((n_series, h, h, n_series))
        for series in range(n_series):
            coefficients[series, :, :, series] = self._linear.coefficients[:, :, series]
        explanation = self._models.explain(
            self._run, coefficients.reshape(n_series * h, h, n_series), self._forecast_names
        )
        sums = explanation.predictions.reshape(n_series, h).T + self.base
        if not self._linear.are_close(sums):
            forecasts = self._linear.values
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
        h, n_series = self.values.shape
        return [
            self.forecast_name(step, series)
            for series in range(n_series)
            for step in range(1, h + 1)
        ]

    def forecast_name(self, step: int, series: int) -> str:
        """Return the series and the date of the forecast at a step, from 1, of a series, from 0."""
        date = date_text(self.dates[step - 1, series])
        return f"{self.series[step - 1, series]} {date}"

    @property
    def row_dates(self) -> AnyArray:
        """Return the date of each training row, (N,)."""
        return self._rows.dates

    @property
    def base(self) -> FloatArray:
        """Return the part of the forecasts that does not depend on targets, (h, S).

        It has the last value that differences start from, means and scales. Where the forecaster
        takes logarithms it is a logarithm, and tables call it "base (log)".
        """
        return self._linear.constants

    @property
    def _base_name(self) -> str:
        if self.is_log:
            return "base (log)"
        return "base"

    @cached_property
    def row_units(self) -> FloatArray:
        """Return the size of one unit of each target in the units of its series, (N,).

        With a scaler it is the standard deviation of the series, without one 1. Where the
        forecaster takes logarithms it is a difference of logarithms.
        """
        unit_by_series = dict(zip(self.series[0], self._linear.coefficients[0, 0]))
        return np.array([unit_by_series.get(name, np.nan) for name in self._rows.series])

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
            self._base_name: self.base.T.ravel(),
            "forecast features": np.array(n_forecast_features),
        }
        return needed_pandas("A forecast").DataFrame(columns)

    def top(self, k: int = 10) -> DataFrame:
        """Return the k dates of largest weight in each forecast.

        The columns are series, date and step of the forecast, then those of the training row.
        Weight and target are in the units of the row's series: the forecast moves by the weight
        per unit. Weight times target is the contribution.
        """
        table = self.explain().top(k)
        unit_by_row = dict(zip(keys(self.row_labels), self.row_units))
        units = np.array([unit_by_row[key] for key in keys(table["row"].to_numpy())])
        if "weight" in table:
            table["weight"] /= units
            table["target"] *= units
        columns = [name for name in ("prediction", "score") if name in table]
        return self._with_dates(table.drop(columns=columns), table["query"])

    def group(self, groups: TimeGroups | ArrayLike = "year") -> DataFrame:
        """Return how much of each forecast comes from each group of dates.

        The columns are those of the forecast, group, weight and contribution. A weight is the sum
        of those of the rows, per unit of their series; it is missing for rows of series in
        different units.

        Parameters
        ----------
        groups : "year", "quarter", "month", "series" or labels of shape (N,), default "year"
            Quarters and months are those of the calendar, of all years.
        """
        labels = as_groups(groups, self._rows)
        table = self.explain().group(labels)
        if "weight" in table:
            units = units_of_groups(labels, self.row_units)
            table["weight"] /= units.loc[table["group"]].to_numpy()
        return self._with_dates(table, table["query"])

    def share(self, groups: TimeGroups | ArrayLike = "year") -> DataFrame:
        """Return how much each group of dates counts for each forecast.

        A share is the sum of the absolute weights of the group among those of all rows; with a loss
        of counts or amounts, of the absolute contributions. Shares sum to one. The columns are
        series, date, step, forecast, group and share.

        Parameters
        ----------
        groups : "year", "quarter", "month", "series" or labels of shape (N,), default "year"
            As in `group`.
        """
        shares = shares_of_groups(self.explain(), as_groups(groups, self._rows))
        columns = ["series", "date", "step", "forecast"]
        described = self.table()[columns].loc[shares.index.repeat(shares.shape[1])]
        described = described.reset_index(drop=True)
        described["group"] = np.tile(shares.columns.to_numpy(), len(shares))
        described["share"] = shares.to_numpy().ravel()
        return described

    def path(self) -> DataFrame:
        """Return the features of each step that follow from forecasts, with their values.

        Weights hold them fixed.
        """
        n_features = numbers(self._run.steps[0]).shape[1]
        names = list(getattr(self._rows.X, "columns", range(n_features)))
        h, n_series = self.values.shape
        lines = []
        for series, step in np.ndindex(n_series, h):
            values = numbers(self._run.steps[step])[series]
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

    def what_if(self, values: Mapping[ForeignObject, float]) -> DataFrame:
        """Forecast as if some past observations had been others, with the tree structure fixed.

        An observation is a target of its own date and, through differences, of later ones. It is
        also a lag in the features of other training rows and of the steps ahead, and differences
        and scales start from it. axil carries the change through all of these. Leaves are refitted
        at the splits of the fit, and rows fall where their new features lead.

        The parts sum to the change of each forecast, on the scale of the series. They are taken in
        this order:

        - targets: leaves refitted to the changed targets;
        - training features: leaves refitted, besides, to training rows with their changed lags;
        - lags: the changed past in the features of the steps ahead;
        - recursion: the changed forecasts of earlier steps in the features of later ones;
        - base: the changed values, means and scales that the forecaster adds to its predictions.

        Parameters
        ----------
        values : mapping of date to value
            The new values of observations, on the scale of the series. With several series the keys
            are pairs of series and date.

        Returns
        -------
        table : frame
            A line for each forecast, with the columns series, date, step, before, after, change,
            and the five parts.
        """
        reader = self._reader.with_values(as_changes(values, self._reader.series_names))
        return changed_paths(self._models, self._run, reader).table(self._run)

    def calibrate(self, n_windows: int = 30, step_size: int = 1) -> ForecastIntervals:
        """Backtest the forecaster, and return intervals by horizon.

        axil fits the forecaster again before each window of h steps and forecasts it. Windows that
        overlap share observations, so that their errors say less than as many separate ones.

        Parameters
        ----------
        n_windows : int, default 30
            How many windows; the cost is one fit of the forecaster for each.
        step_size : int, default 1
            How many steps lie between the ends of two windows; h for windows that do not overlap.
        """
        h = len(self.values)
        n_windows = inputs.as_count(n_windows, "n_windows")
        step_size = inputs.as_count(step_size, "step_size")
        self._reader.require_observations(h + (n_windows - 1) * step_size)
        return ForecastIntervals(
            series=self.series,
            dates=self.dates,
            values=self.values,
            is_log=self.is_log,
            backtests=backtests(self._reader, h, n_windows, step_size),
            history=tuple(self._reader.history()),
        )

    def changes_since(self, old: Forecast) -> ForecastComparison:
        """Return the changes of these forecasts since an older vintage, and their causes.

        ``axil.compare(old, new)`` calls this.

        Parameters
        ----------
        old : Forecast
            The forecast of an earlier fit of a forecaster of the same features. Forecasts of dates
            that both make are compared.
        """
        if not isinstance(old, Forecast):
            raise InputError(
                f"old is {shown(old)}; expected what axil.forecast returned, as new is."
            )
        return compare_vintages(old.vintage, self.vintage)

    @property
    def vintage(self) -> Vintage:
        """Return the facts for a comparison with another fit of the forecaster."""
        return Vintage(self._models, self._run, self.is_log)

    def _with_dates(self, table: DataFrame, names: Series) -> DataFrame:
        """Return the table with series, date and step of each forecast in the place of its name."""
        forecasts = self.table()
        forecasts.index = self._forecast_names
        columns = ["series", "date", "step", "forecast", self._base_name]
        described = forecasts.loc[names.to_numpy(), columns].reset_index(drop=True)
        pd = needed_pandas("A forecast")
        if self.is_log:
            table = table.rename(columns={"contribution": "contribution (log)"})
            table["factor"] = np.exp(table["contribution (log)"])
        rows = table.drop(columns="query").reset_index(drop=True)
        joined = pd.concat([described, rows], axis=1)
        joined.attrs.update(table.attrs)
        return joined
