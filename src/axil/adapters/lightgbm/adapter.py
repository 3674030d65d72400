"""LightGBM models: LGBMRegressor, LGBMClassifier and Booster.

They are in memory, pickled or loaded from text.

`LightGBMAdapter` reads what all boosters have in common. Its two subclasses differ in one method,
``trees``, and in what that needs: `ExactLightGBM` states the fit of a model with exact weights, and
`AdditiveLightGBM` that of any other loss. They stay two classes because LightGBM hides an initial
prediction, and the rate of the first tree, in the leaves of its first trees, and the two fits have
different evidence for both: the exact fit must find them from the leaf values to the last digits.
"""

from __future__ import annotations

from axil.adapters.contract import Kind, Model
from axil.adapters.lightgbm.additive import AdditiveLightGBM, settings_of
from axil.adapters.lightgbm.base import LightGBMAdapter, booster_of, opened
from axil.adapters.lightgbm.exact import ExactLightGBM
from axil.adapters.lightgbm.linear import LinearLightGBM
from axil.adapters.lightgbm.loss import GRADIENT_REFUSALS
from axil.adapters.lightgbm.refusals import REFUSALS
from axil.adapters.refusals import kind_of
from axil.aliases import ForeignModel, ForeignObject


def read(
    model: ForeignModel,
    objective: ForeignObject = None,
    by_gradients: bool = False,
    leaves_only: bool = False,
) -> Model | None:
    """Return the adapter of a LightGBM model; None for any other object.

    Parameters
    ----------
    model : object
        Any object.
    objective : callable, optional
        The user's own function that the model was fitted with.
    by_gradients : bool
        Whether it is read by its gradients even if it has exact weights.
    leaves_only : bool
        Whether only its leaves are read. Nothing is refused then.
    """
    booster = booster_of(model)
    if booster is None:
        return None
    if leaves_only:
        return LightGBMAdapter(*opened(booster))  # type: ignore[abstract]
    estimator = settings_of(model, booster, objective)
    copied, reading = opened(booster, estimator.stops_early, estimator.objective is not None)
    by_gradients = by_gradients or objective is not None
    kind, not_exact = kind_of(reading, REFUSALS, GRADIENT_REFUSALS, by_gradients)
    if kind is Kind.EXACT and reading.linear:
        return LinearLightGBM(copied, reading)
    if kind is Kind.EXACT:
        return ExactLightGBM(copied, reading)
    adapter = AdditiveLightGBM(copied, reading, estimator)
    adapter.not_exact = not_exact
    return adapter
