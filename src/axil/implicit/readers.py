"""Reading of a model without exact weights, and of its training data, as users give them."""

from __future__ import annotations

import copy
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from axil import inputs
from axil.errors import AxilError, ExactnessError, InputError
from axil.implicit.contract import Differentiated
from axil.replay.mistakes import OTHER_ORDER, other_order
from axil.support import supports

#: Modules with a ``read`` as `axil.implicit.contract.Reader` has it, tried in order.
READERS = ("axil.pushes.boosting", "axil.implicit.learners", "axil.implicit.torch")


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
    left = "" if given[-1] is None else " Leave loss out: it has exact weights."
    name = f"{type(given[0]).__module__}.{type(given[0]).__qualname__}"
    raise InputError(
        f"The model is a {name}, which axil does not differentiate.{left if known.exact else f' {known.reason}'}"
    )
