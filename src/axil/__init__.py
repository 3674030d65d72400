"""Which training rows made a prediction, and by exactly how much."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from axil.errors import (
    ApproximationWarning,
    AxilError,
    CancellationError,
    CostWarning,
    ExactnessError,
    InputError,
    SplitsWarning,
    UnseenCategoryWarning,
    UnsupportedModelError,
    UnsupportedQuestionError,
)

if TYPE_CHECKING:
    from axil.comparison import Comparison, compare
    from axil.explainer import Explainer, load
    from axil.explanation import Explanation
    from axil.forecasts.forecast import forecast
    from axil.machine.cancellation import Cancellation
    from axil.methods.intervals.class_predictive import ClassPredictive
    from axil.methods.intervals.predictive import Predictive
    from axil.output.records import Record
    from axil.ratios import RatioStudy, ratio_study
    from axil.replay.verification import Verification
    from axil.retraining import Stability, stability
    from axil.shared_leaves import leaves, novelty, similarity
    from axil.support import Support, supports

__version__ = "0.1.0"
__all__ = [
    "ApproximationWarning",
    "AxilError",
    "Cancellation",
    "CancellationError",
    "ClassPredictive",
    "Comparison",
    "CostWarning",
    "ExactnessError",
    "Explainer",
    "Explanation",
    "InputError",
    "Predictive",
    "RatioStudy",
    "Record",
    "SplitsWarning",
    "Stability",
    "Support",
    "UnseenCategoryWarning",
    "UnsupportedModelError",
    "UnsupportedQuestionError",
    "Verification",
    "compare",
    "forecast",
    "leaves",
    "load",
    "novelty",
    "ratio_study",
    "similarity",
    "stability",
    "supports",
]

_LAZY = {"baselines", "plots"}  # public submodules; all are imported when they are first asked for
_LAZY_NAMES = {
    "Cancellation": "machine.cancellation",
    "Comparison": "comparison",
    "Explainer": "explainer",
    "Explanation": "explanation",
    "ClassPredictive": "methods.intervals.class_predictive",
    "Predictive": "methods.intervals.predictive",
    "RatioStudy": "ratios",
    "Record": "output.records",
    "Stability": "retraining",
    "Support": "support",
    "Verification": "replay.verification",
    "compare": "comparison",
    "forecast": "forecasts.forecast",
    "load": "explainer",
    "leaves": "shared_leaves",
    "novelty": "shared_leaves",
    "ratio_study": "ratios",
    "similarity": "shared_leaves",
    "stability": "retraining",
    "supports": "support",
}  # public names out of submodules, likewise


def __getattr__(name: str) -> Any:
    if name in _LAZY_NAMES:
        return getattr(import_module(f"axil.{_LAZY_NAMES[name]}"), name)
    if not name.startswith("_") and find_spec(f"axil.{name}") is not None:
        return import_module(f"axil.{name}")
    raise AttributeError(f"module 'axil' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY, "__version__"})
