"""Which training rows made a prediction, and by exactly how much."""

from axil.errors import AxilError, ExactnessError, InputError, UnsupportedModelError
from axil.explainer import Explainer, load
from axil.explanation import Explanation
from axil.support import Support, supports
from axil.verify import Verification

__version__ = "0.1.0"
__all__ = [
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
