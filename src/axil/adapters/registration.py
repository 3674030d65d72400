"""Adapters from outside axil and their registration.

The module tells whether an object is an adapter, and whether it is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import get_annotations, getattr_static, signature
from types import FunctionType
from typing import Any

from axil.adapters.contract import Adapter, Model, OffsetRule, SmootherModel, TreeModel
from axil.adapters.pipeline import Reader
from axil.aliases import ForeignModel, ForeignObject
from axil.errors import InputError, shown

__all__ = ["is_adapter", "register", "registered", "require_contract"]

registered: dict[str, Reader] = {}  #: readers by name, in the order in which they are tried
# Methods of the contracts that have no body, which base classes inherit.
_STUBS = {
    id(stub)
    for stub in (Model.coordinates, Model.predictions, Model.causes, Adapter.trees, Adapter.leaves)
}


def register(name: str, read: Callable[[ForeignModel], Model | None]) -> None:
    """Make models of another library known to axil.

    `axil.Explainer`, `axil.supports`, pipelines and the command line then know these models.

    Parameters
    ----------
    name : str
        What the library or its models are called, for messages. A second registration of a name
        replaces the first.
    read : callable
        ``read(model)`` returns the adapter of a fitted model, or None for any object that it does
        not know. It is called before axil's own readers, with any object, and may raise
        `UnsupportedModelError` for a model that is not linear.
    """
    if not isinstance(name, str) or not name:
        raise InputError(f"name is {shown(name)}; expected what the library is called, as text.")
    if not callable(read):
        raise InputError(
            f"read is {shown(read)}; expected a function from a model to its adapter or None."
        )
    registered[name] = _checked(name, read)


def _checked(name: str, read: Reader) -> Reader:
    """Return a registered reader that raises for adapters without the members of the contract."""

    def checked(model: ForeignModel) -> ForeignObject:
        adapter = read(model)
        if adapter is None:
            return None
        if not is_adapter(adapter):
            raise InputError(
                f"The reader registered for {name} returned {shown(adapter)}; expected an adapter "
                "(a TreeModel or a SmootherModel of axil.adapters.contract), or None."
            )
        require_contract(adapter)
        return adapter

    return checked


def is_adapter(model: object) -> bool:
    """Return whether an object is meant as an adapter.

    It is made from a base class here, or has trees or a smoother.
    """
    if isinstance(model, (TreeModel, SmootherModel)):
        return True

    def has(name: str) -> bool:
        # Looked up statically: an object that answers to any name (a mock, a proxy) is no adapter.
        return callable(getattr_static(model, name, None))

    return has("coordinates") and (has("trees") or has("smoother"))


def require_contract(adapter: Any) -> None:
    """Raise `InputError` for an adapter that lacks members of the contract."""
    kind = type(adapter).__name__
    is_smoother = isinstance(adapter, SmootherModel) or hasattr(adapter, "smoother")
    if is_smoother and hasattr(adapter, "trees"):
        raise InputError(
            f"The adapter {kind} has both trees and a smoother; expected one of the two."
        )
    contract: type = Adapter
    base: type = TreeModel
    if is_smoother:
        contract = SmootherModel
        base = SmootherModel
    missing = [name for name in (*_members(Model), *_members(contract)) if _lacks(adapter, name)]
    takes_offsets = not missing and adapter.offset_rule is not OffsetRule.ADDED
    if takes_offsets and len(signature(adapter.predictions).parameters) < 2:
        missing = ["predictions(X, offsets)"]
    if missing:
        raise InputError(
            f"The adapter {kind} lacks {', '.join(missing)}. axil.adapters.contract documents each "
            f"of them; its base class {base.__name__} has defaults for most."
        )


def _lacks(adapter: object, name: str) -> bool:
    """Return whether an adapter does not define a member, or has inherited one without a body."""
    return not hasattr(adapter, name) or id(getattr(type(adapter), name, None)) in _STUBS


def _members(contract: type) -> list[str]:
    """Return the names of the attributes and methods that a contract defines."""
    methods = [name for name, value in vars(contract).items() if isinstance(value, FunctionType)]
    return [name for name in (*get_annotations(contract), *methods) if not name.startswith("_")]
