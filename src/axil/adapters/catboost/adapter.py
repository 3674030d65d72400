"""CatBoost models, of any loss, in memory or in a file.

`CatBoostAdapter` reads what all models have in common. Its two subclasses differ in one method,
``trees``, and in what that needs: `ExactCatBoost` states the fit of a model with exact weights, and
`AdditiveCatBoost` that of any other loss. They stay two classes because most of the exact fit is
about models that the other does not have: continued fits whose settings changed, models that
shrink() cut, missing targets, and leaf values that are percentiles.
"""

from __future__ import annotations

from axil.adapters.catboost.additive import AdditiveCatBoost
from axil.adapters.catboost.base import CatBoostAdapter
from axil.adapters.catboost.blob import parse
from axil.adapters.catboost.exact import ExactCatBoost
from axil.adapters.catboost.loss import GRADIENT_REFUSALS
from axil.adapters.catboost.refusals import REFUSALS, CatBoostReading
from axil.adapters.contract import Kind, Model
from axil.adapters.refusals import kind_of, not_fitted
from axil.aliases import ForeignModel


def read(
    model: ForeignModel, by_gradients: bool = False, leaves_only: bool = False
) -> Model | None:
    """Return the adapter of a CatBoost model; None for any other object.

    Parameters
    ----------
    model : object
        Any object.
    by_gradients : bool
        Whether it is read by its gradients even if it has exact weights.
    leaves_only : bool
        Whether only its leaves are read. Nothing is refused then.
    """
    if not is_fitted(model):
        return None
    protected = _copy_of(model)
    reading = CatBoostReading(parse(protected._serialize_model()))
    if leaves_only:
        return CatBoostAdapter(protected, reading)  # type: ignore[abstract]
    kind, not_exact = kind_of(reading, REFUSALS, GRADIENT_REFUSALS, by_gradients)
    if kind is Kind.EXACT:
        return ExactCatBoost(protected, reading)
    adapter = AdditiveCatBoost(protected, reading)
    adapter.not_exact = not_exact
    return adapter


def is_fitted(model: ForeignModel) -> bool:
    """Return whether an object is a model of CatBoost; raise for one that has not been fitted."""
    import catboost

    if not isinstance(model, catboost.CatBoost):
        return False
    if not model.is_fitted():
        raise not_fitted(model)
    return True


def _copy_of(model: ForeignModel) -> ForeignModel:
    """Return a copy of a model that users can change in place (shrink, set_leaf_values).

    CatBoost cannot copy every model: it writes a bias of 1e17 as a whole number into its JSON and
    does not read that back. Such a model is returned itself.
    """
    import catboost

    try:
        return model.copy()
    except catboost.CatBoostError:
        return model
