"""Plot forecasts: their intervals by horizon, and how much each year counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from axil.aliases import ArrayLike
from axil.arrays import FloatArray
from axil.forecasts import Forecast, ForecastIntervals
from axil.forecasts.groups import TimeGroups
from axil.inputs import as_count
from axil.plots import canvas, marks
from axil.plots.sources import query_position, text

if TYPE_CHECKING:
    from axil.plots.canvas import Axes

LEVELS = (0.9, 0.8, 0.5)  # the widest first
SHOWN_PAST = 4  # horizons of observations before the forecasts


def forecast_fan(intervals: ForecastIntervals, query: object, ax: Axes | None) -> Axes:
    """Plot the forecasts of one series by date, with their intervals and earlier observations."""
    series = query_position(query, intervals.series[0])
    h = len(intervals.values)
    dates, values = intervals.history[series]
    past = slice(max(0, len(values) - max(SHOWN_PAST * h, 12)), None)
    forecast_dates = intervals.dates[:, series]
    forecasts = intervals.values[:, series]
    ax = canvas.new_axes(ax)
    palette = canvas.colours(ax)
    for i, level in enumerate(LEVELS):
        table = intervals.interval(level)
        of_series = slice(series * h, (series + 1) * h)
        ax.fill_between(
            np.append(dates[-1:], forecast_dates),
            np.append(values[-1:], table["lower"].to_numpy()[of_series]),
            np.append(values[-1:], table["upper"].to_numpy()[of_series]),
            color=palette.positive,
            alpha=0.2 + 0.15 * i,
            linewidth=0,
            label=f"{level:.0%}",
        )
    ax.plot(dates[past], values[past], color=palette.ink, linewidth=1.2, label="observed")
    ax.plot(
        np.append(dates[-1:], forecast_dates),
        np.append(values[-1:], forecasts),
        color=palette.positive,
        linewidth=1.6,
        label="forecast",
    )
    n_windows = len(intervals.backtests.forecasts)
    title = (
        f"{text(intervals.series[0, series])}, {h} steps ahead\n"
        f"Intervals from the errors of {n_windows} backtests"
    )
    canvas.dress(ax, title, "date", text(intervals.series[0, series]))
    if dates.dtype.kind == "M":
        canvas.date_ticks(ax)
    marks.key(ax)
    return ax


def forecast_shares(
    forecast: Forecast,
    groups: TimeGroups | ArrayLike | None,
    query: object,
    step: object,
    k: int,
    ax: Axes | None,
) -> Axes:
    """Plot how much each group of dates counts for one forecast, in percent, in plain words."""
    if groups is None:
        groups = "year"
    if step is None:
        step = 1
    step = as_count(step, "output", most=len(forecast.values))
    series = query_position(query, forecast.series[0])
    table = forecast.share(groups)
    is_forecast = (table["series"] == forecast.series[0, series]) & (table["step"] == step)
    names = [text(name) for name in table.loc[is_forecast, "group"]]
    shares = table.loc[is_forecast, "share"].to_numpy()
    noun = "group"
    if isinstance(groups, str) and groups != "series":
        noun = groups
    value = canvas.number(float(forecast.values[step - 1, series]))
    title = (
        f"What the forecast of {value} for {forecast.forecast_name(step, series)} rests on\n"
        f"{_half_of_it(shares, names, noun)}"
    )
    ax = _percent_bars(shares, names, k, ax)
    return canvas.dress(ax, title, f"how much each {noun} counts", "", grid="x")


def _percent_bars(shares: FloatArray, names: list[str], k: int, ax: Axes | None) -> Axes:
    """Draw the k largest shares in the order of the groups, and one bar for all others."""
    order = np.argsort(-shares, kind="stable")
    chosen = np.sort(order[:k])
    labels = [names[i] for i in chosen]
    values = shares[chosen]
    if len(order) > k:
        labels.append(f"{len(order) - k} others")
        values = np.append(values, shares[order[k:]].sum())
    ax = marks.bar_axes(ax, labels)
    places = np.arange(len(values), dtype=np.float64)
    ax.barh(places, values, color=canvas.colours(ax).positive, height=0.7)
    for place, value in zip(places, values):
        ax.text(value, place, f" {value:.0%}", va="center", fontsize=canvas.TEXT)
    marks.label_bars(ax, labels)
    ax.set_xlim(0.0, 1.15 * float(values.max()))
    ax.xaxis.set_major_formatter("{x:.0%}")
    return ax


def _half_of_it(shares: FloatArray, names: list[str], noun: str) -> str:
    """Return a sentence about the largest groups that make up half."""
    order = np.argsort(-shares, kind="stable")
    n_groups = int(np.searchsorted(np.cumsum(shares[order]), 0.5)) + 1
    share = shares[order[:n_groups]].sum()
    if n_groups > 4:
        return f"The {n_groups} {noun}s that count most, of {len(names)}, make up {share:.0%} of it"
    largest = [names[i] for i in order[:n_groups]]
    listed = largest[-1]
    if n_groups > 1:
        listed = f"{', '.join(largest[:-1])} and {largest[-1]}"
    return f"{share:.0%} of it comes from {listed}"
