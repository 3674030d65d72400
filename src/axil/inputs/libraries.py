"""Frame libraries, of which none has to be installed: those that are loaded, those that tables can be made with."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from typing import Any

import narwhals.stable.v2 as nw

from axil.errors import InputError

FRAMES = (
    "pandas",
    "polars",
    "pyarrow",
)  # the first that is installed makes the tables about arrays


def loaded_pandas() -> Any:
    """The module pandas, or None where nobody has imported it: then no value is one of its own."""
    return sys.modules.get("pandas")


def as_native(values: Any) -> Any:
    """Values of pandas as its series or frame, those of another frame library as narwhals has them, and all else as it is."""
    pd = loaded_pandas()
    if pd is not None and isinstance(values, (pd.Index, pd.api.extensions.ExtensionArray)):
        values = pd.Series(values)
    if pd is not None and isinstance(values, (pd.Series, pd.DataFrame)):
        return values
    if "pyarrow" in sys.modules and isinstance(values, sys.modules["pyarrow"].Array):
        values = sys.modules["pyarrow"].chunked_array([values])
    return nw.from_native(values, allow_series=True, eager_only=True, pass_through=True)


def needed_pandas(what: str) -> Any:
    """The module pandas, for what cannot be done without it."""
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise InputError(
            f"{what} takes pandas, which is not installed: pip install pandas."
        ) from None


def is_installed(name: str) -> bool:
    """Whether a library can be imported."""
    try:
        return sys.modules.get(name) is not None or find_spec(name) is not None
    except ImportError:  # of a finder that refuses it
        return False


def frame_library() -> str:
    """The library that tables about arrays are made with; pandas where there is none at all, as the error then says."""
    return next((name for name in FRAMES if is_installed(name)), FRAMES[0])


def require_frame_library(name: str) -> None:
    """Refuse to make a table with a library that is not there."""
    if not is_installed(name):
        others = " or ".join(other for other in FRAMES if other != name)
        raise InputError(
            f"Tables are made with {name} here, which is not installed: pip install {name}. Tables about arrays are made with "
            f"the first that is installed of {', '.join(FRAMES)}, so {others} will do for them."
        )
