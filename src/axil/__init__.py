"""Which training rows made a prediction, and by exactly how much."""

from importlib import import_module
from typing import Any

from axil.checks import Verification
from axil.errors import ApproximationWarning, AxilError, ExactnessError, InputError, UnsupportedModelError
from axil.explainer import Explainer, load
from axil.explanation import Explanation
from axil.support import Support, supports

__version__ = "0.1.0"
__all__ = [
    "ApproximationWarning",
    "AxilError",
    "ExactnessError",
    "Explainer",
    "Explanation",
    "InputError",
    "Support",
    "UnsupportedModelError",
    "Verification",
    "load",
    "supports",
]

_LAZY = {"baselines"}  # submodules that are imported when they are first asked for


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return import_module(f"axil.{name}")
    raise AttributeError(f"module 'axil' has no attribute {name!r}")
