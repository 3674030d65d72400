"""Which training rows made a prediction, and by exactly how much."""

from importlib import import_module
from typing import Any

from axil.errors import (
    ApproximationWarning,
    AxilError,
    CostWarning,
    ExactnessError,
    InputError,
    UnsupportedModelError,
    UnsupportedQuestionError,
)
from axil.explainer import Explainer
from axil.explanation import Explanation
from axil.intervals import Predictive
from axil.replay.checks import Verification
from axil.supports import Support, supports

__version__ = "0.1.0"
__all__ = [
    "ApproximationWarning",
    "AxilError",
    "CostWarning",
    "ExactnessError",
    "Explainer",
    "Explanation",
    "InputError",
    "JacobianExplainer",
    "Predictive",
    "Support",
    "UnsupportedModelError",
    "UnsupportedQuestionError",
    "Verification",
    "explain",
    "load",
    "supports",
]

_LAZY = {"baselines", "dask", "jacobian", "plots"}  # submodules that are imported when they are first asked for
_LAZY_NAMES = {"JacobianExplainer": "jacobian", "explain": "entry", "load": "entry"}  # public names out of them


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return import_module(f"axil.{name}")
    if name in _LAZY_NAMES:
        return getattr(import_module(f"axil.{_LAZY_NAMES[name]}"), name)
    raise AttributeError(f"module 'axil' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY, "__version__"})
