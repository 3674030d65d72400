"""Options of a page: what it is to show besides weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from axil.arrays import FloatArray, IntArray
from axil.errors import InputError, shown
from axil.inputs import as_count, as_sizes
from axil.output import site_map
from axil.output.context import Context
from axil.output.page.about import NOTHING, About, as_words
from axil.output.shown_columns import columns_of
from axil.output.site_map import Places


@dataclass(frozen=True, eq=False)
class Intervals:
    """The prediction intervals of all n predictions with K outputs, and the m training rows that make each of them wide."""

    coverage: float
    n_calibration: int
    source: str  #: of the calibration errors
    training_errors: str  #: their source
    lower: FloatArray  #: (n, K) as targets are shown
    upper: FloatArray  #: (n, K)
    alarm: FloatArray  #: (n, K) the share of calibration rows with a smaller scale of errors
    rows: IntArray  #: (n, K, m) positions of the training rows
    weights: FloatArray  #: (n, K, m)
    errors: FloatArray  #: (n, K, m) on the scale of the fit
    shares: FloatArray  #: (n, K, m) of the sum of |weight * error| over all rows


@dataclass(frozen=True)
class Options:
    """Content that the page is to show."""

    k: int = 50  #: rows of each prediction
    #: the group number of each training row, and their names
    groups: tuple[IntArray, NDArray[Any]] | None = None
    columns: Any = None  #: features by name or position
    sigma: FloatArray | None = None  #: () or (K,) the noise of the targets
    about_sigma: str | None = None  #: how it is known, where it is estimated
    about: About = NOTHING  #: words, and actual values
    intervals: Intervals | None = None  #: in place of standard errors
    places: Places | None = None  #: of all predictions and training rows, for a map
    refits: tuple[FloatArray, str] | None = (
        None  #: (n, K) the standard deviation of real refits, and what these are
    )


def as_options(
    shape: tuple[int, ...],
    n: int,
    context: Context | None,
    groups: tuple[IntArray, NDArray[Any]] | None,
    sigma: Any = None,
    *,
    k: Any = Options.k,
    columns: Any = None,
    map: Any = None,
    y: Any = None,
    refits: Any = None,
    **words: Any,
) -> Options:
    """Checked options of a page of n predictions by targets of this shape, (n_train, K); see `Explainer.to_html`.

    ``groups``: each training row's group number, and the names of the groups. ``context``: features, for a map. Actual values
    ``y`` are read once the first predictions are there.
    """
    for name in words.keys() - {"title", "unit", "target"}:
        raise TypeError(f"to_html() got an unexpected keyword argument {name!r}")
    about = About(**{name: as_words(text, name) for name, text in words.items()}, y=y, n=n)
    size = None if sigma is None else as_sizes(sigma, shape[1], "sigma")
    spread = None if refits is None else spread_of(refits, n, shape[1])
    places = None
    if map is not None:
        if context is None or context.X_train is None:
            raise InputError(
                "map needs the features of the training rows, which are not kept here. Leave it out."
            )
        places = site_map.as_places(map, columns_of(context.X_train, context.X, context.names()))
    return Options(
        as_count(k, "k"), groups, columns, size, about=about, places=places, refits=spread
    )


def spread_of(refits: Any, n: int, n_outputs: int) -> tuple[FloatArray, str]:
    """(n, K): how far real refits scatter, and what they are; of two classes that have one score, of the second."""
    if not hasattr(refits, "std") or not hasattr(refits, "predictions"):
        raise InputError(
            f"refits is {shown(refits)}; expected what axil.refits returned for these rows."
        )
    found = refits.std.reshape(len(refits.query_index), -1)
    if len(found) != n:
        raise InputError(
            f"refits has {len(found)} predictions; expected those of the {n} rows of X."
        )
    if found.shape[1] == 2 and n_outputs == 1:
        found = found[:, 1:]
    if found.shape[1] != n_outputs:
        raise InputError(
            f"refits has {found.shape[1]} outputs; expected the {n_outputs} of this explainer."
        )
    return found, refits.described
