"""Cases: what the pages of some predictions say, as arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.effects.comparables import Compared
from axil.output import comparables, site_map
from axil.output.columns import Columns
from axil.output.comparables import Predicted
from axil.output.predictions import ratio
from axil.output.site_map import Places, Sheets
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
    about: Predicted,
    found: Compared,
    places: NDArray[np.intp],
    values: Array,
    k: int,
    known: Columns,
    chosen: list[int],
    on_map: Places | None,
    n_train: int,
) -> Cases:
    """The content of pages on a batch of predictions of these values, at these positions of X, with k rows each."""
    made = comparables.listed(about, found)
    lines, m = made.columns, len(about.labels)
    asked, rows = lines["asked"], lines["position"]
    starts = np.searchsorted(asked, np.arange(m + 1))
    sizes = found.sizes[:, 0][asked]
    drawings = None
    if on_map is not None:
        wide = np.full((m, k), -1, dtype=np.intp)
        weights = np.zeros((m, k))
        at = asked, lines["rank"] - 1
        wide[at], weights[at] = rows, lines["weight"]
        drawings = site_map.sheets(on_map, places, wide, weights)
    return Cases(
        places=places,
        values=values,
        shares=made.summary["share"],
        value_shares=made.summary["value share"],
        first=starts,
        rows=lines["row"],
        counts=ratio(np.asarray(lines["weight"]), sizes),
        targets=lines["target"],
        adjusted=lines["adjusted"],
        names=[known.names[i] for i in chosen],
        own=known.of_training(rows, chosen),
        queried=known.of_queries(places, chosen),
        drawings=drawings,
        is_log=about.scale.is_log,
        n_train=n_train,
    )
