"""A user's own objective, called as its library calls it.

The library calls it with all rows, their labels and their weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import numpy as np

from axil.aliases import ForeignObject
from axil.arrays import FloatArray
from axil.errors import InputError, shown
from axil.trees.residual_losses import Custom

__all__ = ["Objective", "as_objective"]


@dataclass(frozen=True)
class TrainingSet:
    """The part of a library's data set that an objective uses: labels and weights in float32."""

    label: ForeignObject
    weight: Any

    def get_label(self) -> ForeignObject:
        """Return the labels, (N,)."""
        return self.label.copy()

    def get_weight(self) -> ForeignObject:
        """Return the weights, (N,), or what the library returns without weights."""
        if self.weight is None:
            return None
        return self.weight.copy()

    def num_data(self) -> int:
        """Return N, by the name that LightGBM uses."""
        return len(self.label)

    def num_row(self) -> int:
        """Return N, by the name that XGBoost uses."""
        return len(self.label)


@dataclass(frozen=True)
class Objective:
    """A function that returns gradients and hessians, and how it is called."""

    function: Callable[..., Any]
    #: called as (scores, data set), as of a Booster; else as (labels, scores, ...), as of an
    #: estimator
    native: bool

    def loss(
        self, targets: FloatArray, weights: FloatArray | None, precision: Any, no_weights: Any
    ) -> Custom:
        """Return the loss of rows with targets (N, K) and weights (N,).

        The user's function is called with scores in this precision.
        """
        label = targets[:, 0] if targets.shape[1] == 1 else targets.argmax(axis=1)
        weight = no_weights if weights is None else weights.astype(np.float32)
        return Custom(
            objective=partial(self.asked, TrainingSet(label.astype(np.float32), weight), precision)
        )

    def asked(
        self, rows: TrainingSet, precision: Any, F: FloatArray
    ) -> tuple[ForeignObject, ForeignObject]:
        """Return gradients and hessians of these rows at scores (N, K)."""
        return self.call((F[:, 0] if F.shape[1] == 1 else F).astype(precision), rows)

    def call(self, scores: ForeignObject, rows: TrainingSet) -> tuple[ForeignObject, ForeignObject]:
        """Return gradients and hessians of these rows, as the function returns them."""
        label = rows.get_label()
        weight = rows.get_weight()
        if self.native:
            how = "scores, data set"
        else:
            how = "labels, scores"
        try:
            if self.native:
                gradients_and_hessians = self.function(scores, rows)
            else:
                names = list(signature(self.function).parameters)
                if weight is not None and len(weight) and "sample_weight" in names:
                    gradients_and_hessians = self.function(label, scores, sample_weight=weight)
                elif len(names) > 2 and names[2] != "sample_weight":
                    gradients_and_hessians = self.function(label, scores, weight)
                else:
                    gradients_and_hessians = self.function(label, scores)
            g, h = gradients_and_hessians
        except Exception as error:
            raise InputError(
                f"objective, called as objective({how}), as "
                f"{'a Booster' if self.native else 'an estimator'} does, raised "
                f"{type(error).__name__}: {shown(error)}. Pass the function that the model was "
                "fitted with."
            ) from error
        return g, h


def as_objective(passed: ForeignObject, stated: ForeignObject, native: bool) -> Objective | None:
    """Return the objective that the user passes, otherwise that of the model if it is a function.

    It is None if the objective is a name.
    """
    if passed is not None and not callable(passed):
        raise InputError(
            f"objective is {shown(passed)}; expected the function that the model was fitted with."
        )
    if passed is not None:
        function = passed
    elif callable(stated):
        function = stated
    else:
        function = None
    if function is None:
        return None
    return Objective(function, native)
