"""A fitted model and its training data as users pass them, and checks of these."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import TypeVar

import numpy as np

from axil import inputs
from axil.adapters.pipeline import calibrates
from axil.aliases import FeatureTable, ForeignModel, ForeignObject, ScoreScale
from axil.errors import AxilError, ExactnessError, InputError
from axil.machine.memory import Limits
from axil.replay.mistakes import OTHER_ORDER
from axil.support import supports

OUTPUTS: tuple[ScoreScale, ...] = ("raw", "probability")

Read = TypeVar("Read")


@dataclass(frozen=True)
class FitInputs:
    """A fitted model and its training data, as the user gave them."""

    model: ForeignModel
    X: FeatureTable
    y: ForeignObject
    sample_weight: ForeignObject = None
    init_score: ForeignObject = None
    output: str = "raw"  #: of `OUTPUTS`: scores, or what a link makes of them
    loss: ForeignObject = None  #: that a torch module was trained with
    objective: ForeignObject = None  #: the user's own, of boosted trees
    in_bag: ForeignObject = None  #: how often each tree drew each row, where that was recorded
    group: ForeignObject = None  #: the groups of the rows of a ranking model
    _: KW_ONLY
    inverse_func: ForeignObject = None  #: from transformed targets to their own units
    index: ForeignObject = None  #: the labels of the rows
    limits: Limits
    verify: bool = True  #: whether the model is proven on the data


def as_rows(X: FeatureTable) -> FeatureTable:
    """Return X, as an array if it is one of another library, such as a tensor."""
    X = inputs.on_host(X, "X")
    if (
        isinstance(X, (list, tuple, np.ndarray))
        or inputs.is_sparse(X)
        or inputs.as_frame(X) is not None
    ):
        return X
    if hasattr(X, "__array__") and getattr(X, "ndim", 0) > 0:
        return np.asarray(X)
    return X


def copied(values: ForeignObject) -> ForeignObject:
    """Return a copy of targets, weights or offsets of any kind.

    An object that cannot be copied is no array, and is refused when it is read.
    """
    if hasattr(values, "detach"):
        return values.detach().clone()
    if hasattr(values, "__len__"):
        return copy.deepcopy(values)
    return values


def in_order_of_labels(read: Callable[[FitInputs], Read], fit_inputs: FitInputs) -> Read:
    """Return the result of ``read`` for a model and its data, in the order of the labels.

    If it fails because the targets have another order than the rows, the error says so.
    """
    try:
        return read(fit_inputs)
    except ExactnessError as error:
        order = inputs.other_order(fit_inputs.X, fit_inputs.y)
        if order is None:
            raise
        try:
            read(replace(fit_inputs, y=fit_inputs.y.iloc[order]))
        except AxilError:
            raise error from None
        cause = (
            f"{OTHER_ORDER}: in the order of the labels they agree. Pass "
            "y_train.loc[X_train.index]."
        )
        raise error.because(cause) from None


def require_raw_output(fit_inputs: FitInputs) -> None:
    """Raise if the user wants derivatives of calibrated probabilities."""
    if fit_inputs.output != "raw" and calibrates(fit_inputs.model):
        raise InputError(
            f"output is {fit_inputs.output!r}, and probabilities of this model are calibrated by "
            "a curve, which derivatives do not include. Leave it out, or pass the classifier "
            "inside: calibrated_classifiers_[0].estimator."
        )


def refuse_group(fit_inputs: FitInputs, kind_of_model: str) -> None:
    """Raise if the user passes groups for a model whose fit has none."""
    if fit_inputs.group is not None:
        raise InputError(f"group is for ranking models, and this is {kind_of_model}. Leave it out.")


def unread(fit_inputs: FitInputs) -> InputError:
    """Return the error for a model that axil does not differentiate."""
    support = supports(fit_inputs.model)
    if fit_inputs.loss is None:
        advice = ""
    else:
        advice = " Leave loss out: it has exact weights."
    if not support.exact:
        advice = f" {support.reason}"
    name = f"{type(fit_inputs.model).__module__}.{type(fit_inputs.model).__qualname__}"
    return InputError(f"The model is a {name}, which axil does not differentiate.{advice}")
