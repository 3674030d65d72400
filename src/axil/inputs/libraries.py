"""Frame libraries, none of which has to be installed: pandas, polars and pyarrow."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from typing import Any, TypeAlias

import narwhals.stable.v2 as nw

from axil.aliases import ForeignObject
from axil.errors import InputError

Frame: TypeAlias = nw.DataFrame[Any]
FrameColumn: TypeAlias = nw.Series[Any]

#: Tables about arrays are made with the first of these that is installed.
FRAMES = ("pandas", "polars", "pyarrow")


def loaded_pandas() -> ForeignObject:
    """Return the module pandas, or None if nobody has imported it: then no value belongs to it."""
    return sys.modules.get("pandas")


def as_native(values: ForeignObject) -> ForeignObject:
    """Return values in the form that axil reads.

    A pandas object becomes its series or frame. A column or frame of another library becomes that
    of narwhals. Everything else is returned as it is.
    """
    pd = loaded_pandas()
    if pd is not None and isinstance(values, (pd.Index, pd.api.extensions.ExtensionArray)):
        values = pd.Series(values)
    if pd is not None and isinstance(values, (pd.Series, pd.DataFrame)):
        return values
    if "pyarrow" in sys.modules and isinstance(values, sys.modules["pyarrow"].Array):
        values = sys.modules["pyarrow"].chunked_array([values])
    return nw.from_native(values, allow_series=True, eager_only=True, pass_through=True)


def needed_pandas(subject: str) -> ForeignObject:
    """Return the module pandas, which the subject of the sentence cannot do without."""
    try:
        return importlib.import_module("pandas")
    except ImportError:
        raise InputError(
            f"{subject} takes pandas, which is not installed: pip install pandas."
        ) from None


def is_installed(name: str) -> bool:
    """Return whether a library can be imported."""
    try:
        return sys.modules.get(name) is not None or find_spec(name) is not None
    except ImportError:  # of an import hook that refuses it
        return False


def frame_library() -> str:
    """Return the library of tables about arrays.

    If none is installed it is pandas, which the error then names.
    """
    return next((name for name in FRAMES if is_installed(name)), FRAMES[0])


def require_frame_library(name: str) -> None:
    """Raise if the library of a table is not installed."""
    if not is_installed(name):
        alternatives = " or ".join(library for library in FRAMES if library != name)
        raise InputError(
            f"Tables are made with {name} here, which is not installed: pip install {name}. Tables "
            f"about arrays are made with the first that is installed of {', '.join(FRAMES)}, so "
            f"{alternatives} will do for them."
        )
