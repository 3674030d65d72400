"""Probes: a forecaster run with a model that writes down its rows, or says what it is told to.

What lies between the predictions of the model and the forecasts, such as differences that are added up or scales that are undone,
is the forecaster's own code. A probe in the place of the model shows what it does: with predictions of zero the forecasts are its
constants, and with a prediction of one at one step they move by its coefficients.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from axil.types import Array


class Probe:
    """A model that writes down the rows it is asked about; its predictions are the fitted model's, or those it is given."""

    def __init__(self, model: Any, told: Array | None = None):
        self._model, self._told = model, told  # (h, series)
        self.rows: list[Any] = []  #: of each step
        self.said: list[Array] = []  #: of each step, (series,)

    def predict(self, X: Any, *arguments: Any, **others: Any) -> Array:
        """The predictions of one step."""
        step = len(self.rows)
        self.rows.append(copy.deepcopy(X))
        if self._told is None:
            found = np.asarray(self._model.predict(X, *arguments, **others), dtype=np.float64)
        else:
            found = np.array(self._told[step][: len(X)], dtype=np.float64)
        self.said.append(found)
        return found

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_model":
            raise AttributeError(name)
        return getattr(self._model, name)
