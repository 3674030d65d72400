"""Forecasts after other observations: the paths by which a change of the past reaches a forecast.

A forecast follows from the predictions p of its steps. F(p) is what the forecaster makes of these
after the data that it was fitted on, F'(p) after the changed data. With M(R) the predictions of a
model for the features R of the steps,

    before               F(p0)     p0 = M0(R)     the fitted model and its own steps
    targets              F(p1)     p1 = M1(R)     leaves refitted to the changed targets
    training features    F(p2)     p2 = M2(R)     leaves refitted to the changed rows
    lags                 F(p3)     p3 = M2(R1)    steps after the changed past, with p0 fed back
    recursion            F(p4)     p4 = M2(R2)    steps after the changed past, with p4 fed back
    base                 F'(p4)                   what the forecaster adds, after the changed past

and each part is the difference of two lines, so that the parts sum to the change. The forecaster
itself computes all of them, so they are on the scale of the series.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axil.aliases import DataFrame, FeatureTable
from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError
from axil.explainer import Explainer
from axil.forecasts.models import ExplainedModels
from axil.forecasts.readers.contract import Reader, TargetRows
from axil.forecasts.runs import RecordedRun, numbers, record
from axil.inputs.libraries import needed_pandas
from axil.methods.refit import with_features

PARTS = ("targets", "training features", "lags", "recursion", "base")


@dataclass(frozen=True, eq=False)
class ForecastChanges:
    """Forecasts before and after, and the parts of their differences."""

    before: FloatArray  #: (h, S)
    after: FloatArray  #: (h, S)
    parts: dict[str, FloatArray]  #: (h, S) each

    def table(self, run: RecordedRun) -> DataFrame:
        """Return a table of the changes and their parts, with a line for each forecast."""
        h, n_series = self.before.shape
        columns = {
            "series": run.series.T.ravel(),
            "date": run.dates.T.ravel(),
            "step": np.tile(np.arange(1, h + 1), n_series),
            "before": self.before.T.ravel(),
            "after": self.after.T.ravel(),
            "change": (self.after - self.before).T.ravel(),
        }
        for name, changes_of_path in self.parts.items():
            columns[name] = changes_of_path.T.ravel()
        return needed_pandas("A forecast").DataFrame(columns)


def changed_paths(
    models: ExplainedModels, run: RecordedRun, changed_reader: Reader
) -> ForecastChanges:
    """Return the forecasts after changed data, and the paths that lead to them.

    Parameters
    ----------
    models : ExplainedModels
        The fitted models.
    run : RecordedRun
        The run of the forecaster as it was fitted.
    changed_reader : Reader
        The forecaster with the same models, after the changed data.
    """
    h = len(run.values)
    models_with_targets = []
    models_with_rows = []
    for explainer, rows, changed_rows in zip(models.explainers, models.rows, changed_reader.rows()):
        with_targets, with_rows = _refitted(explainer, rows, changed_rows)
        models_with_targets.append(with_targets.model)
        models_with_rows.append(with_rows.model)
    lag_run = record(changed_reader, h, given_predictions=run.predictions)
    changed_run = record(changed_reader, h, models=models_with_rows)
    predictions_by_part = {
        "targets": run.predicted_by(models_with_targets),
        "training features": run.predicted_by(models_with_rows),
        "lags": lag_run.predicted_by(models_with_rows),
        "recursion": changed_run.predictions,
    }
    before = run.values_of(run.predictions)
    values = before
    parts = {}
    for name, predictions in predictions_by_part.items():
        values_after_part = run.values_of(predictions)
        parts[name] = values_after_part - values
        values = values_after_part
    after = changed_run.values
    parts["base"] = after - values
    return ForecastChanges(before, after, parts)


def _refitted(
    explainer: Explainer, rows: TargetRows, changed_rows: TargetRows
) -> tuple[Explainer, Explainer]:
    """Return a model refitted to changed targets, and then to changed features too."""
    _require_same_rows(rows, changed_rows)
    with_targets = explainer
    if not np.array_equal(rows.y, changed_rows.y):
        with_targets = with_features(explainer, rows.X, changed_rows.y)
    if _are_same_features(rows.X, changed_rows.X):
        return with_targets, with_targets
    return with_targets, with_features(explainer, changed_rows.X, changed_rows.y)


def _require_same_rows(rows: TargetRows, changed_rows: TargetRows) -> None:
    """Raise if other values make other training rows."""
    is_same = np.array_equal(rows.dates, changed_rows.dates)
    if not is_same or not np.array_equal(rows.series, changed_rows.series):
        raise InputError(
            f"After these values the forecaster has {len(changed_rows.y)} training rows, and "
            f"{len(rows.y)} before: rows with missing numbers are dropped. Give values that the "
            "transforms of the forecaster take, such as positive ones for logarithms."
        )


def _are_same_features(X: FeatureTable, changed_X: FeatureTable) -> bool:
    """Return whether two tables of training rows hold the same features."""
    values: AnyArray = numbers(X)
    return bool(np.array_equal(values, numbers(changed_X), equal_nan=True))
