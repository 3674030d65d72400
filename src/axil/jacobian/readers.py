"""Reading of a model and its training data as `JacobianExplainer` gets them."""

from __future__ import annotations

import copy
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from axil import inputs
from axil.errors import AxilError, ExactnessError, InputError, UnsupportedQuestionError
from axil.jacobian.base import Differentiated
from axil.replay.mistakes import OTHER_ORDER, other_order
from axil.support import supports

#: Modules with a ``read`` as `axil.jacobian.base.Reader` has it, tried in order.
READERS = ("axil.jacobian.boosting", "axil.jacobian.sklearn_smooth", "axil.jacobian.torch")


class Report(dict[str, Any]):
    """Findings of the reading: errors of the replay, or how far the model is from a stationary point."""

    def __call__(self, *_: Any, **__: Any) -> Any:
        """Refuse the question of the same name, which `axil.Explainer` has."""
        raise UnsupportedQuestionError(
            "report",
            "its pages say how targets make a value, and here pushes, or a smooth function of all targets, make a score",
            "Write one page of all predictions with to_html, or fit with squared error and ask axil.Explainer.",
        )

    def __repr__(self) -> str:
        lines = (
            f"  {name:<14} {value:.1e}" if isinstance(value, float) else f"  {name:<14} {value}"
            for name, value in self.items()
        )
        return "\n".join(["axil.JacobianExplainer verification", *(lines if self else ["  not verified"])])


def as_rows(X: Any) -> Any:
    """X itself, or as an array where it is one of another library, such as a tensor."""
    X = inputs.on_host(X, "X")
    if isinstance(X, (list, tuple, np.ndarray)) or inputs.is_sparse(X) or inputs.as_frame(X) is not None:
        return X
    return np.asarray(X) if hasattr(X, "__array__") and getattr(X, "ndim", 0) > 0 else X


def copied(values: Any) -> Any:
    """A copy of targets, weights or offsets of any kind; what cannot be copied is no array, and is refused when it is read."""
    if hasattr(values, "detach"):
        return values.detach().clone()
    return copy.deepcopy(values) if hasattr(values, "__len__") else values


def read(given: tuple[Any, ...], settings: dict[str, Any]) -> Differentiated:
    """The model as the first reader reads it; targets in another order than the rows, by their labels, are said outright."""
    try:
        return _first(given, settings)
    except ExactnessError as error:
        model, X_train, y_train, *others = given
        order = other_order(X_train, y_train)
        if order is None:
            raise
        try:
            _first((model, X_train, y_train.iloc[order], *others), settings)
        except AxilError:
            raise error from None
        cause = f"{OTHER_ORDER}: in the order of the labels they agree. Pass y_train.loc[X_train.index]."
        raise error.because(cause) from None


def _first(given: tuple[Any, ...], settings: dict[str, Any]) -> Differentiated:
    """The first reader's answer that is one."""
    for name in READERS[:1] if "objective" in settings else READERS:  # the others have none
        if find_spec(name) is None:
            continue
        found: Differentiated | None = import_module(name).read(*given, **settings)
        if found is not None:
            return found
    known = supports(given[0])
    left = "" if given[-1] is None else " without loss"
    exact = f" It has exact weights: use axil.Explainer, or axil.explain{left}." if known.exact else f" {known.reason}"
    raise InputError(
        f"The model is a {type(given[0]).__module__}.{type(given[0]).__qualname__}, which axil.JacobianExplainer does not "
        f"differentiate.{exact}"
    )
