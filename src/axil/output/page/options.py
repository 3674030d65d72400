"""Check the options of a page: the content that it shows besides weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from axil.arrays import AnyArray, FloatArray, IntArray
from axil.errors import InputError, shown
from axil.inputs import as_count, as_sizes, as_table, one_hot
from axil.output import site_map
from axil.output.context import Context
from axil.output.predictions import WeightedSums
from axil.output.shown_columns import columns_of
from axil.output.site_map import Places
from axil.reductions.groups import GroupFold

MAX_LETTERS = 200  # of a title, a unit or the name of the target
GroupNumbers: TypeAlias = tuple[IntArray, AnyArray]  # (n_train,) numbers; names of the groups


@dataclass(frozen=True, eq=False)
class About:
    """A page's title, its targets' unit and name, and the actual values of its n predictions."""

    title: str | None = None
    unit: str | None = None
    target: str | None = None
    y: Any = None  #: (n,) or (n, K), in the units of ``y_train``; None where they are not known
    n: int = 0  #: predictions

    def words(self) -> dict[str, str | None]:
        """Return the texts of the page by name."""
        return {"title": self.title, "unit": self.unit, "target": self.target}

    def actual(self, sums: WeightedSums) -> FloatArray | None:
        """Return the actual values in the user's units.

        Raise `InputError` for values that the model cannot predict.

        Returns
        -------
        ndarray of shape (n, K), or (n, 1) with the numbers of classes, or None
        """
        if self.y is None:
            return None
        if sums.classes is not None:
            codes = one_hot(self.y, self.n, sums.classes, "y", "explained").argmax(axis=1)
            return np.asarray(codes[:, None], dtype=np.float64)
        if sums.outputs is None:
            n_outputs = 1
        else:
            n_outputs = len(sums.outputs)
        targets = as_table(self.y, self.n, n_outputs, "y", "explained")
        readable = sums.scale.inverse(sums.scale.forward(targets))
        is_finite = np.isfinite(readable)
        if not is_finite.all():
            raise InputError(
                f"y holds {targets[~is_finite][0]:.6g}, which is no target of this model. Pass "
                "actual values in the units of y_train."
            )
        return readable


def as_words(value: Any, what: str) -> str | None:
    """Check that a value is one line of text, and return it without spaces around it.

    None stays None.
    """
    if value is None:
        return None
    is_line = isinstance(value, str) and bool(value.strip()) and value.isprintable()
    if not is_line or len(value) > MAX_LETTERS:
        raise InputError(
            f"{what} is {shown(value)}; expected one line of text, up to {MAX_LETTERS} letters."
        )
    return str(value.strip())


@dataclass(frozen=True, eq=False)
class Intervals:
    """The intervals of n predictions with K outputs.

    Each has the m training rows that make it wide.
    """

    confidence_level: float
    n_calibration: int
    source: str  #: of the calibration errors
    training_errors: str  #: their source
    lower: FloatArray  #: (n, K) in the units of the targets
    upper: FloatArray  #: (n, K)
    uncertainty_rank: (
        FloatArray  #: (n, K) the share of calibration rows with a smaller scale of errors
    )
    rows: IntArray  #: (n, K, m) positions of the training rows
    weights: FloatArray  #: (n, K, m)
    errors: FloatArray  #: (n, K, m) on the scale of the fit
    shares: FloatArray  #: (n, K, m) of the sum of |weight * error| over all rows


@dataclass(frozen=True)
class Options:
    """The content that a page is to show."""

    k: int = 10  #: training rows of each prediction
    groups: GroupNumbers | None = None
    columns: Any = None  #: features by name or position
    hide: Any = ()  #: features that are not shown, likewise
    sigma: FloatArray | None = None  #: () or (K,) the noise of the targets
    about_sigma: str | None = None  #: how it was estimated
    about: About = About()
    intervals: Intervals | None = None  #: shown in place of standard errors
    places: Places | None = None  #: of all predictions and training rows, for a map
    #: (n, K) the standard deviation of real refits, and a description of the refits
    stability: tuple[FloatArray, str] | None = None


def as_options(
    shape: tuple[int, ...],
    n: int,
    context: Context | None,
    groups: GroupNumbers | None,
    sigma: Any = None,
    *,
    k: Any = Options.k,
    columns: Any = None,
    hide: Any = (),
    min_group_size: Any = 1,
    map: Any = None,
    y: Any = None,
    stability: Any = None,
    **words: Any,
) -> Options:
    """Check the options of a page; see `Explainer.to_html`.

    Actual values are read with the first predictions.

    Parameters
    ----------
    shape : tuple
        The shape of the targets, (n_train, K).
    n : int
        The number of predictions.
    context : Context or None
        The features, which a map needs.
    groups : tuple or None
        The group number of each training row, and the names of the groups.
    """
    least = as_count(min_group_size, "min_group_size")
    if groups is not None and least > 1:
        codes, names = groups
        fold = GroupFold.of(codes, names, least)
        groups = (fold.places[codes], fold.names)
    for name in words.keys() - {"title", "unit", "target"}:
        raise TypeError(f"to_html() got an unexpected keyword argument {name!r}")
    lines = {name: as_words(text, name) for name, text in words.items()}
    if sigma is None:
        noise = None
    else:
        noise = as_sizes(sigma, shape[1], "sigma")
    if stability is None:
        spread = None
    else:
        spread = spread_of(stability, n, shape[1])
    return Options(
        k=as_count(k, "k"),
        groups=groups,
        columns=columns,
        hide=hide,
        sigma=noise,
        about=About(**lines, y=y, n=n),
        places=None if map is None else _places(map, context),
        stability=spread,
    )


def _places(map: Any, context: Context | None) -> Places | None:
    """Return the coordinates of the training rows and the explained rows."""
    if context is None or context.X_train is None:
        raise InputError(
            "map needs the features of the training rows, which are not kept here. Leave it out."
        )
    return site_map.as_places(map, columns_of(context.X_train, context.X, context.names()))


def spread_of(stability: Any, n: int, n_outputs: int) -> tuple[FloatArray, str]:
    """Return the standard deviations, (n, K), and the description of an `axil.stability` result.

    A model of two classes with one score has those of the second class.
    """
    if not hasattr(stability, "std") or not hasattr(stability, "predictions"):
        raise InputError(
            f"stability is {shown(stability)}; expected what axil.stability returned for these "
            "rows."
        )
    spread = stability.std.reshape(len(stability.query_index), -1)
    if len(spread) != n:
        raise InputError(
            f"stability has {len(spread)} predictions; expected those of the {n} rows of X."
        )
    if spread.shape[1] == 2 and n_outputs == 1:
        spread = spread[:, 1:]
    if spread.shape[1] != n_outputs:
        raise InputError(
            f"stability has {spread.shape[1]} outputs; expected the {n_outputs} of this explainer."
        )
    return spread, stability.described
