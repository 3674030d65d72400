"""Cases: what the pages of some predictions say, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray, FloatArray, IntArray
from axil.output import comparables, site_map
from axil.output.comparables import Predicted
from axil.output.shown_columns import Columns
from axil.output.site_map import Places, Sheets
from axil.reductions.choice import Compared
from axil.scale import TargetScale

RAISED = 0.1  # by which targets are raised, to say what they mean for an estimate


@dataclass(frozen=True, eq=False)
class Cases:
    """m predictions of one output, and a line for each row listed; ``first[i]`` to ``first[i + 1]`` are those of prediction i."""

    places: IntArray  #: (m,) positions in X
    values: FloatArray  #: (m,) the model's own predictions, as people read them
    moved: FloatArray  #: (m,) by how much they would rise if the targets of all rows listed were raised; nan: not known
    first: IntArray  #: (m + 1,)
    rows: NDArray[Any]  #: (lines,) labels
    moves: FloatArray  #: (lines,) by how much the prediction would rise if this target were raised
    targets: FloatArray  #: (lines,) as people read them
    adjusted: FloatArray  #: (lines,)
    suspect: BoolArray  #: (lines,) targets that look wrong and are marked
    #: (lines,) shares of trees in which rows are in the query's leaf; None where effects choose them
    alike: FloatArray | None
    own: list[NDArray[Any] | None]  #: (lines,) each, of the training rows
    queried: list[NDArray[Any] | None]  #: (m,) each
    drawings: Sheets | None  #: (m, k)
    shown: ShownBeside
    interval: tuple[FloatArray, FloatArray] | None = None  #: (m,) each

    def __len__(self) -> int:
        return len(self.places)


@dataclass(frozen=True, eq=False)
class ShownBeside:
    """Things that pages show beside the numbers of the model."""

    known: Columns
    chosen: list[int]  #: columns, by position
    plain: list[float]  #: for each of them, the number from which on numbers have commas
    n_train: int
    is_restricted: bool  #: whether some training rows may not be listed
    dates: (
        tuple[int, NDArray[Any]] | None
    )  #: the column that says when rows were, and (n,) the dates of the estimates
    on_map: Places | None
    suspects: BoolArray | None  #: (N,) training rows to mark
    refits: FloatArray | None = None  #: (n,) how far real refits move the estimates

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [self.known.names[i] for i in self.chosen]


def raised(
    scale: TargetScale,
    weights: FloatArray,
    targets: FloatArray,
    values: FloatArray,
    starts: IntArray,
) -> tuple[FloatArray, FloatArray]:
    """By how much predictions rise if targets were `RAISED` higher: each alone, (lines,), and all that are listed, (m,).

    Exact with the structure held fixed, for targets as they are and for logarithms; else nan. ``starts`` (m + 1,): the lines
    of each prediction.
    """
    of = np.repeat(np.arange(len(values)), np.diff(starts))
    sums = np.zeros(len(values))
    if scale.is_log:
        steps = weights * np.log1p(RAISED * targets / (targets + scale.shift))
        np.add.at(sums, of, steps)
        return (values[of] + scale.shift) * np.expm1(steps), (values + scale.shift) * np.expm1(sums)
    steps = RAISED * weights * np.abs(targets) if scale.is_identity else np.full(len(of), np.nan)
    np.add.at(sums, of, steps)
    return steps, sums


def cases(
    about: Predicted,
    found: Compared,
    places: IntArray,
    values: FloatArray,
    k: int,
    shown: ShownBeside,
) -> Cases:
    """The content of pages on a batch of predictions of these values, at these positions of X, with k rows each."""
    lines = comparables.listed(about, found).columns
    m, known = len(about.labels), shown.known
    asked, rows = lines["asked"], lines["position"]
    starts = np.searchsorted(asked, np.arange(m + 1))
    drawings = None
    if shown.on_map is not None:
        wide = np.full((m, k), -1, dtype=np.intp)
        weights = np.zeros((m, k))
        at = asked, lines["rank"] - 1
        wide[at], weights[at] = rows, lines["weight"]
        drawings = site_map.sheets(shown.on_map, places, wide, weights)
    moves, moved = raised(
        about.scale, np.asarray(lines["weight"]), np.asarray(lines["target"]), values, starts
    )
    queried = known.of_queries(places, shown.chosen)
    date = (
        None if shown.dates is None else shown.dates[0]
    )  # an estimate is of a date; nothing was sold on it
    return Cases(
        places=places,
        values=values,
        moved=moved,
        first=starts,
        rows=lines["row"],
        moves=moves,
        targets=lines["target"],
        adjusted=lines["adjusted"],
        suspect=np.zeros(len(rows), dtype=bool) if shown.suspects is None else shown.suspects[rows],
        alike=lines.get("similarity"),
        own=known.of_training(rows, shown.chosen),
        queried=[None if i == date else column for i, column in zip(shown.chosen, queried)],
        drawings=drawings,
        shown=shown,
    )
