"""Class weights: factors of the sample weights by the classes of the rows.

They are computed as the libraries count the classes.
"""

from __future__ import annotations

import numpy as np

from axil.adapters.contract import Adapter, ClassWeightRule
from axil.aliases import ForeignObject
from axil.arrays import FloatArray

#: In words, the setting that `Adapter.single_output_setting` reports for factors of classes.
WEIGHS_CLASSES = "scale_pos_weight or is_unbalance, which give a row another weight for each class"


def class_weight_advice(setting: ForeignObject) -> str:
    """Return advice for a model with this ``class_weight`` that disagrees with its data.

    It is empty if the model has none.
    """
    if setting is None:
        return ""
    return (
        f"The model has class_weight={setting!r}, which multiplies sample weights: pass "
        "sample_weight as the fit got it; over Dask, times "
        "sklearn.utils.class_weight.compute_sample_weight(class_weight, y)."
    )


def with_class_weight_advice(setting: ForeignObject, causes: str) -> str:
    """Return the causes of a disagreement, after the advice for this ``class_weight``."""
    return f"{class_weight_advice(setting)}\n{causes}".lstrip()


def balanced(counts: FloatArray, sums: FloatArray) -> FloatArray:
    """Return class weights that give all classes the same total weight, from their row counts."""
    return np.asarray(counts.sum() / (len(counts) * counts.clip(1.0)))


def class_weight_rule(model: Adapter) -> ClassWeightRule | None:
    """Return the rule by which the library counts class weights from the rows, or None."""
    if model.class_weight is None or model.classes is None:
        return None
    if isinstance(model.class_weight, str):
        return balanced
    return model.counts_classes_by


def one_hot(targets: FloatArray) -> FloatArray:
    """Return the classes of rows, (N, C), from targets (N, K); K is 1 for two classes."""
    if targets.shape[1] == 1:
        return np.hstack([1 - targets, targets])
    return targets


def weights_of_classes(
    model: Adapter, targets: FloatArray, weights: FloatArray | None, count: bool = False
) -> FloatArray | None:
    """Return the weight of each class, (C,); None if all are one.

    Parameters
    ----------
    model : Adapter
        Its ``class_weight`` maps the numbers of classes to weights, or is "balanced", or None.
    targets : (N, K) array
        The targets that classes are counted in.
    weights : (N,) array or None
        The sample weights of these rows.
    count : bool
        Whether the library's rule counts the weights from these rows, even if the model states
        those of its own fit.
    """
    setting = model.class_weight
    if setting is None or model.classes is None:
        return None
    rule = class_weight_rule(model)
    n_classes = max(targets.shape[1], 2)
    if rule is None or not (count or isinstance(setting, str)):
        return np.array([float(setting.get(k, 1.0)) for k in range(n_classes)])
    hot = one_hot(targets)
    if weights is None:
        sample_weights = np.ones(len(hot))
    else:
        sample_weights = weights
    return rule(hot.sum(axis=0), sample_weights @ hot)


def counted_weights(
    model: Adapter, targets: FloatArray, weights: FloatArray | None, count: bool = False
) -> FloatArray | None:
    """Return sample weights times those of the classes, (N,); see `weights_of_classes`.

    Return None if all are one.
    """
    by_class = weights_of_classes(model, targets, weights, count)
    if by_class is None:
        return weights
    factors = one_hot(targets) @ by_class
    return np.asarray(factors if weights is None else weights * factors)


def label_factors(targets: FloatArray, positive: float, negative: float = 1.0) -> FloatArray | None:
    """Return the factor of the weight of each row by its label, (N,); None if all are one.

    The factors stay fixed if targets change.
    """
    if positive == negative == 1.0:
        return None
    return np.where(targets[:, 0] > 0, positive, negative)
