"""Cases: what the pages of some predictions say, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.output import comparables, site_map
from axil.output.columns import Columns
from axil.output.comparables import Adjustment, Choice
from axil.output.site_map import Places, Sheets
from axil.output.sums import WeightedSums, ratio
from axil.types import Array


@dataclass(frozen=True, eq=False)
class Cases:
    """m predictions of one output, and a line for each row listed; ``first[i]`` to ``first[i + 1]`` are those of prediction i."""

    places: NDArray[np.intp]  #: (m,) positions in X
    values: Array  #: (m,) the model's own predictions, as people read them
    shares: Array  #: (m,) of sum |weight| that the rows listed hold
    value_shares: Array  #: (m,) of the prediction
    first: NDArray[np.intp]  #: (m + 1,)
    rows: NDArray[Any]  #: (lines,) labels
    counts: Array  #: (lines,) weight over sum |weight|
    targets: Array  #: (lines,) as people read them
    adjusted: Array  #: (lines,)
    names: list[str]  #: of the columns shown
    own: list[NDArray[Any] | None]  #: (lines,) each, of the training rows
    queried: list[NDArray[Any] | None]  #: (m,) each
    drawings: Sheets | None  #: (m, k)
    is_log: bool  #: whether the model was fitted to logarithms
    n_train: int
    interval: tuple[Array, Array] | None = None  #: (m,) each

    def __len__(self) -> int:
        return len(self.places)


def cases(
    one: WeightedSums,
    places: NDArray[np.intp],
    values: Array,
    choice: Choice,
    adjustment: Adjustment,
    known: Columns,
    chosen: list[int],
    on_map: Places | None,
    first: int,
) -> Cases:
    """The content of pages on a batch of predictions of these values, at these positions of X; it begins with query ``first``."""
    found = comparables.listed(one, choice, adjustment, first)
    lines, m = found.columns, len(one)
    asked, rows = lines["asked"], lines["position"]
    starts = np.searchsorted(asked, np.arange(m + 1))
    sizes = one.sizes.reshape(m)[asked]
    drawings = None
    if on_map is not None:
        wide = np.full((m, choice.k), -1, dtype=np.intp)
        weights = np.zeros((m, choice.k))
        at = asked, lines["rank"] - 1
        wide[at], weights[at] = rows, lines["weight"]
        drawings = site_map.sheets(on_map, places, wide, weights)
    return Cases(
        places=places,
        values=values,
        shares=found.summary["share"],
        value_shares=found.summary["value share"],
        first=starts,
        rows=lines["row"],
        counts=ratio(np.asarray(lines["weight"]), sizes),
        targets=lines["target"],
        adjusted=lines["adjusted"],
        names=[known.names[i] for i in chosen],
        own=known.of_training(rows, chosen),
        queried=known.of_queries(places, chosen),
        drawings=drawings,
        is_log=one.scale.is_log,
        n_train=len(one.targets),
    )
