"""XGBoost models: XGBRegressor, XGBRFRegressor, XGBClassifier and Booster.

They are in memory, pickled or loaded.

`XGBoostAdapter` reads what all boosters have in common. Its two subclasses differ in one method,
``trees``, and in what that needs: `ExactXGBoost` states the fit of a model with exact weights, and
`AdditiveXGBoost` that of any other loss. They stay two classes because XGBoost forgets settings
when it saves a model. The exact fit finds rates and lambda from the sums of its leaves, for every
output by itself. The other fit has no such sums before it is replayed, and finds rates from the
leaf values and gains alone.
"""

from __future__ import annotations

from axil.adapters.contract import Model
from axil.adapters.objective import as_objective
from axil.adapters.refusals import refuse, weights_refusal
from axil.adapters.xgboost.additive import AdditiveXGBoost, OwnObjectiveXGBoost
from axil.adapters.xgboost.base import XGBoostAdapter, opened
from axil.adapters.xgboost.exact import ExactXGBoost
from axil.adapters.xgboost.loss import GRADIENT_REFUSALS, OWN_OBJECTIVE_REFUSALS
from axil.adapters.xgboost.refusals import REFUSALS
from axil.aliases import ForeignModel, ForeignObject


def read(
    model: ForeignModel,
    objective: ForeignObject = None,
    by_gradients: bool = False,
    leaves_only: bool = False,
) -> Model | None:
    """Return the adapter of an XGBoost model; None for any other object.

    Parameters
    ----------
    model : object
        Any object.
    objective : callable, optional
        The user's own function that the model was fitted with.
    by_gradients : bool
        Whether it is read by its gradients even if it has exact weights.
    leaves_only : bool
        Whether only its leaves are read. Only models without trees are refused then.
    """
    booster = opened(model)
    if booster is None:
        return None
    if leaves_only:
        refuse(REFUSALS[:1], booster.reading)
        return XGBoostAdapter(booster)  # type: ignore[abstract]
    not_exact = None
    if objective is None and not by_gradients:
        not_exact = weights_refusal(REFUSALS, booster.reading)
        if not_exact is None:
            return ExactXGBoost(booster)
    stated = getattr(model, "objective", None)
    own_objective = as_objective(objective, stated, native=stated is None)
    if own_objective is None:
        refuse(GRADIENT_REFUSALS, booster.reading)
        adapter = AdditiveXGBoost(booster)
    else:
        refuse(OWN_OBJECTIVE_REFUSALS, booster.reading)
        adapter = OwnObjectiveXGBoost(own_objective, booster)
    if adapter.has_labels:
        adapter.classes = None
    else:
        adapter.classes = getattr(model, "classes_", adapter.classes)
    adapter.not_exact = not_exact
    return adapter
