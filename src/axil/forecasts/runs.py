"""Recorded runs of a forecaster: the rows of its steps, its predictions and its forecasts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axil.aliases import FeatureTable
from axil.arrays import BoolArray, FloatArray
from axil.forecasts.readers import Reader
from axil.forecasts.readers.contract import ForecasterRun, Models, Probe


@dataclass(frozen=True, eq=False)
class RecordedRun(ForecasterRun):
    """One run of a forecaster over h steps of S series, with its rows and predictions."""

    reader: Reader
    predictions: FloatArray  #: (h, S) of the model, on the scale of the fit
    steps: list[FeatureTable]  #: the rows of each step, (S, features)

    def values_of(self, predictions: FloatArray) -> FloatArray:
        """Return the forecasts for other predictions (h, S) of the steps."""
        probe = Probe(self.reader.models, predictions)
        return self.reader.run(probe, len(self.values)).values

    def predicted_by(self, models: Models) -> FloatArray:
        """Return the predictions of other models for the rows of the steps, (h, S)."""
        probe = Probe(models)
        return np.array([probe.predict(rows) for rows in self.steps])


def record(
    reader: Reader,
    h: int,
    *,
    models: Models | None = None,
    given_predictions: FloatArray | None = None,
) -> RecordedRun:
    """Run a forecaster, and return the record of its calls.

    Parameters
    ----------
    reader : Reader
    h : int
        How many steps.
    models : sequence of fitted models, optional
        The models to run in the place of the forecaster's own.
    given_predictions : array of shape (h, S), optional
        The predictions to take instead of a model's.
    """
    if models is None:
        models = reader.models
    probe = Probe(models, given_predictions)
    run = reader.run(probe, h)
    return RecordedRun(
        reader=reader,
        series=run.series,
        dates=run.dates,
        values=run.values,
        predictions=np.asarray(probe.predictions),
        steps=probe.rows,
    )


def numbers(rows: FeatureTable) -> FloatArray:
    """Return a table of features as numbers, for comparison."""
    if hasattr(rows, "to_numpy"):
        values = rows.to_numpy()
    else:
        values = np.asarray(rows)
    return np.asarray(values, dtype=np.float64)


def forecast_features(run: RecordedRun) -> list[BoolArray]:
    """Return which features (S, features) of each step depend on earlier predictions."""
    run_of_zeros = record(run.reader, len(run.values), given_predictions=np.zeros(run.values.shape))
    return [
        numbers(rows) != numbers(rows_of_zeros)
        for rows, rows_of_zeros in zip(run.steps, run_of_zeros.steps)
    ]
