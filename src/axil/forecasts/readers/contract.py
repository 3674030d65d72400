"""Contract of readers: a forecaster's models, their training rows, and how it is run."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError, shown
from axil.forecasts.observations import Changes
from axil.inputs.codes import keys

Models: TypeAlias = Sequence[ForeignModel]


def model_of_step(models: Models, step: int) -> ForeignModel:
    """Return the model of a step, counted from 0."""
    if len(models) == 1:
        return models[0]
    return models[step]


class Probe:
    """A model that records the rows it predicts.

    Its predictions are those of the fitted models, or given ones of shape (h, series). There is one
    model for all steps, or one for each step.
    """

    def __init__(self, models: Models, given_predictions: FloatArray | None = None):
        self._models = models
        self._given_predictions = given_predictions
        self.rows: list[FeatureTable] = []  #: of each step
        self.predictions: list[FloatArray] = []  #: of each step, (series,)

    def predict(self, X: FeatureTable, *arguments: Any, **options: Any) -> FloatArray:
        """Return the predictions of one step."""
        step = len(self.rows)
        self.rows.append(copy.deepcopy(X))
        if self._given_predictions is None:
            model = model_of_step(self._models, step)
            predictions = model.predict(X, *arguments, **options)
        else:
            predictions = np.array(self._given_predictions[step][: len(X)])
        predictions = np.asarray(predictions, dtype=np.float64)
        self.predictions.append(predictions)
        return predictions

    def __getattr__(self, name: str) -> ForeignObject:
        """Return what the first model has."""
        if name.startswith("__") or name == "_models":
            raise AttributeError(name)
        return getattr(self._models[0], name)


class FixedModel:
    """A fitted model inside a forecaster that cannot fit it again.

    Only the forecaster's own state follows the data.
    """

    def __init__(self, model: ForeignModel):
        self._model = model

    def fit(self, *arguments: object, **options: object) -> FixedModel:
        """Do not fit the model."""
        return self

    def __getattr__(self, name: str) -> ForeignObject:
        """Return what the model has."""
        if name.startswith("__") or name == "_model":
            raise AttributeError(name)
        return getattr(self._model, name)

    def __sklearn_clone__(self) -> FixedModel:
        """Return the model itself when scikit-learn copies it for a fit."""
        return self


ADVICE = "Pass the model inside to axil.Explainer, with the rows that it was fitted on."


@dataclass(frozen=True, eq=False)
class TargetRows:
    """The rows that a forecaster's model was fitted on."""

    X: FeatureTable
    y: FloatArray
    series: AnyArray  #: (N,)
    dates: AnyArray  #: (N,)
    sample_weight: FloatArray | None = None  #: (N,)


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
    def models(self) -> Models:
        """Return the fitted model, or those of each step."""

    @abstractmethod
    def rows(self) -> list[TargetRows]:
        """Return the rows that each model was fitted on."""

    @abstractmethod
    def run(self, probe: Probe, h: int) -> ForecasterRun:
        """Return h forecasts of each series, with the probe in the place of the models."""

    @property
    @abstractmethod
    def series_names(self) -> list[object]:
        """Return the names of all series."""

    @abstractmethod
    def with_values(self, changes: Changes) -> Reader:
        """Return a reader of the same fitted models after other observations.

        Lags, differences and scales of its forecaster follow from these.
        """

    @abstractmethod
    def before_last(self, n_left_out: int, h: int) -> Reader:
        """Return a reader of the forecaster fitted again without the last observations.

        ``n_left_out`` of them are left out of each series. Its further features reach h steps.
        """

    @abstractmethod
    def history(self) -> list[tuple[AnyArray, FloatArray]]:
        """Return the dates and observations of each series, in the order of the forecasts."""

    def observed(self, run: ForecasterRun, n_left_out: int) -> FloatArray:
        """Return the observations that a run without the last ones forecasts, (h, S)."""
        h = len(run.values)
        columns = []
        for series, (dates, values) in enumerate(self.history()):
            first = len(values) - n_left_out
            if keys(dates[first : first + h]) != keys(run.dates[:, series]):
                raise InputError(
                    f"The series {shown(run.series[0, series])} has gaps: its observations after "
                    f"{dates[first - 1]!s:.10} are not of the dates that are forecast. Fill the "
                    "missing dates first."
                )
            columns.append(values[first : first + h])
        return np.stack(columns, axis=1)

    def require_observations(self, n_left_out: int) -> None:
        """Raise unless every series has observations left for a fit."""
        shortest = min(len(values) for _, values in self.history())
        if n_left_out >= shortest:
            raise InputError(
                f"The windows leave out {n_left_out} observations, and the shortest series has "
                f"{shortest}. Ask for fewer windows with n_windows, or fewer steps with h."
            )
