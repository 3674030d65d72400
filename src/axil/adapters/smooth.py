"""Boosted trees fitted along a gradient: the library's statements about them, and the search for a model's reader.

With g and h the first and second derivatives of a row's loss by its score, G and H their sums over a leaf's rows, each times
weight * factor * draw, a leaf's value before the rate is ``-soft(G, l1) / (H + l2)``, clipped at ``most``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import Adapter, TrainingRows
from axil.adapters.pipeline import TREES, last_step, library_readers, search
from axil.adapters.refusals import refuse
from axil.adapters.searches import unwrapped
from axil.adapters.sklearn.learners import REFUSALS
from axil.arrays import FloatArray
from axil.errors import InputError, UnsupportedModelError, shown

__all__ = [
    "WEIGHS_CLASSES",
    "ClassWeightRule",
    "SmoothModel",
    "class_weight_rule",
    "counted_weights",
    "find",
    "label_factors",
    "one_hot",
    "refuse_learners",
    "weighed_classes",
    "weights_of_classes",
]

_CUSTOM = ("lightgbm", "xgboost")  # those that take a user's own objective


class SmoothModel(Adapter, Protocol):
    """One fitted model, read once; construction refuses, by name, what is not differentiated."""

    smooth_tolerance: (
        float  #: of leaf values and scores in a replay in float64, relative to the largest
    )
    numbered_classes: int = (
        0  #: how many classes it has of which it keeps numbers and no names; names may be given
    )
    alone: str  #: a setting, in words, with which it is read alone, not as one of several outputs; empty: there is none

    def scores(self, X: Any) -> FloatArray:
        """(n, K): raw scores by the library's own account, before any link, without offsets."""

    def smooth_trees(self, rows: TrainingRows) -> BoostedFit:
        """The trees of these training rows; targets are 0 and 1 for classes."""


#: In words, what `SmoothModel.alone` calls factors of classes.
WEIGHS_CLASSES = "scale_pos_weight or is_unbalance, by which rows weigh otherwise for each class"


def weighed_classes(setting: Any) -> str:
    """Advice where a model with this ``class_weight`` disagrees with its data; nothing where it has none."""
    if setting is None:
        return ""
    return (
        f"The model has class_weight={setting!r}, which multiplies sample weights: pass sample_weight as the fit got it; over "
        "Dask, times sklearn.utils.class_weight.compute_sample_weight(class_weight, y)."
    )


#: From the numbers of rows of all classes, (C,), and the sums of their sample weights, (C,), the weight of each class.
ClassWeightRule = Callable[[FloatArray, FloatArray], FloatArray]


def balanced(counts: FloatArray, sums: FloatArray) -> FloatArray:
    """Return weights by which all classes weigh the same, by their numbers of rows (sklearn.utils.class_weight)."""
    return np.asarray(counts.sum() / (len(counts) * counts.clip(1.0)))


def class_weight_rule(model: SmoothModel) -> ClassWeightRule | None:
    """Return the rule by which the library counts the weights of classes from the rows; None where it does not."""
    setting = getattr(model, "class_weight", None)
    if setting is None or model.classes is None:
        return None
    return balanced if isinstance(setting, str) else getattr(model, "counts_classes_by", None)


def one_hot(targets: FloatArray) -> FloatArray:
    """Return the classes of rows, (N, C), from targets (N, K); of two classes K is 1."""
    return np.hstack([1 - targets, targets]) if targets.shape[1] == 1 else targets


def weights_of_classes(
    model: SmoothModel, targets: FloatArray, weights: FloatArray | None, count: bool = False
) -> FloatArray | None:
    """Return the weight of each class, (C,); None where all are one.

    ``model.class_weight``, where it has one, is by the numbers of the classes, or "balanced". ``count``: counted from these
    targets (N, K) and sample weights (N,) by the library's rule, even where the model states numbers of its own fit.
    """
    setting = getattr(model, "class_weight", None)
    if setting is None or model.classes is None:
        return None
    rule, n_classes = class_weight_rule(model), max(targets.shape[1], 2)
    if rule is None or not (count or isinstance(setting, str)):
        return np.array([float(setting.get(k, 1.0)) for k in range(n_classes)])
    hot = one_hot(targets)
    own = np.ones(len(hot)) if weights is None else weights
    return rule(hot.sum(axis=0), own @ hot)


def counted_weights(
    model: SmoothModel, targets: FloatArray, weights: FloatArray | None, count: bool = False
) -> FloatArray | None:
    """Return the weights (N,) that rows count with: sample weights times those of their classes; see `weights_of_classes`."""
    by_class = weights_of_classes(model, targets, weights, count)
    if by_class is None:
        return weights
    factors = one_hot(targets) @ by_class
    return np.asarray(factors if weights is None else weights * factors)


def refuse_learners(model: Any) -> None:
    """Raise for a setting with which no derivative of a learner of scikit-learn, or of a pipeline's last step, is computed."""
    model = unwrapped(model)
    last = last_step(model)
    refuse(REFUSALS, model if last is None else last)


def find(model: Any, objective: Any = None) -> SmoothModel | None:
    """The reader of boosted trees whose leaves are steps along a gradient, None for any other object; refuses what it cannot.

    ``objective``: the user's own function that the model was fitted with.
    """
    if objective is None:
        found: SmoothModel | None = search(model, library_readers(TREES, "smooth"), "side_by_side")
    else:
        found = search(model, library_readers(_CUSTOM, "smooth", objective=objective))
        if found is None:
            raise InputError(
                f"objective is given, but the model is a {type(model).__name__}: only LightGBM and XGBoost take such functions. "
                "Leave it out."
            )
    if (
        found is not None
        and found.n_outputs == 1
        and found.classes is not None
        and len(found.classes) < 2
    ):
        raise UnsupportedModelError(
            "classes_",
            shown(found.classes.tolist()),
            "all labels of the fit are of one class, so no training row speaks for another",
            "Fit it to labels of two classes or more.",
        )
    return found


def is_module(model: Any) -> bool:
    """Whether this is a torch module, which a derivative exists of once its loss is given."""
    return "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module)


def label_factors(targets: FloatArray, positive: float, negative: float = 1.0) -> FloatArray | None:
    """(N,): how much more rows of the positive class count, held fixed where targets move; None: all alike."""
    return None if positive == negative == 1.0 else np.where(targets[:, 0] > 0, positive, negative)
