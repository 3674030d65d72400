"""Estimators of scikit-learn's kind: copies that are not fitted, with other seeds."""

from __future__ import annotations

import copy
from inspect import signature

from axil.aliases import ForeignModel
from axil.errors import UnsupportedModelError

SEEDS = ("random_state", "random_seed", "seed")


def clone(estimator: ForeignModel) -> ForeignModel:
    """Return a copy with the same settings that is not fitted."""
    try:
        from sklearn.base import clone as unfitted
    except ImportError:
        return copy.deepcopy(estimator)
    return unfitted(estimator)


def number_of_features(model: ForeignModel) -> int:
    """Return the number of columns that a model of scikit-learn was fitted on.

    Refuse one that was fitted on other objects.
    """
    if not hasattr(model, "n_features_in_"):
        raise UnsupportedModelError(
            "n_features_in_",
            "none",
            "it was fitted on other objects (texts, sequences, graphs) than the rows of a table",
            "Fit on a table of numbers.",
        )
    return int(model.n_features_in_)


def seeds_of(estimator: ForeignModel) -> list[str]:
    """Return the names of settings that are seeds, also those of estimators inside."""
    names = [name for name in estimator.get_params() if name.rpartition("__")[2] in SEEDS]
    if names:
        return names
    # CatBoost names only settings that were given.
    parameters = signature(type(estimator).__init__).parameters
    return [name for name in SEEDS if name in parameters][:1]
