"""From any model of scikit-survival to its adapter."""

from __future__ import annotations

from axil.adapters.contract import Model
from axil.adapters.sklearn.adapter import require_fitted
from axil.adapters.sksurv.boosting import SurvivalBoostingAdapter
from axil.adapters.sksurv.forest import SurvivalForestAdapter
from axil.adapters.sksurv.refusals import BOOSTED, FORESTS
from axil.aliases import ForeignModel

_ADAPTERS = {BOOSTED: SurvivalBoostingAdapter, **dict.fromkeys(FORESTS, SurvivalForestAdapter)}


def read(
    model: ForeignModel, by_gradients: bool = False, leaves_only: bool = False
) -> Model | None:
    """Return the adapter of a model of scikit-survival; None for any other object.

    It is read by its gradients, or hazards, in any case. ``leaves_only`` is as in other libraries.
    """
    kinds = [kind.__name__ for kind in type(model).__mro__ if kind.__module__.startswith("sksurv.")]
    for kind in kinds:
        if kind in _ADAPTERS:
            require_fitted(model)
            return _ADAPTERS[kind](model)
    return None
