"""Coverage: how many targets are inside their intervals, group by group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from axil import inputs
from axil.aliases import LabelsLike
from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.methods.intervals.pooling import ByPlace
from axil.replay.queries import QueryBatch

CONFIDENCE = 0.95  # of the bounds of each coverage
EVERY_ROW = "all rows"


@dataclass(frozen=True, eq=False)
class AreaRows:
    """The explained rows by group, and where the groups are."""

    codes: IntArray  #: (n,) the group of each row
    names: AnyArray  #: (G,)
    places: FloatArray | None  #: (n, 2) latitudes and longitudes in degrees

    @classmethod
    def of(
        cls, queries: QueryBatch, by: LabelsLike | None, coordinates: tuple[int, int] | None
    ) -> AreaRows:
        """Return the rows by labels, or by the name of a column; one group without any."""
        n = len(queries)
        if by is None:
            codes = np.zeros(n, dtype=np.intp)
            names = np.array([EVERY_ROW])
        else:
            feature_names = queries.adapter.feature_names
            values = inputs.row_values(by, queries.rows, feature_names, "by", "predicted")
            codes, names = inputs.group_codes(values, n, "by")
        places = None
        if coordinates is not None:
            columns = inputs.feature_columns(queries.rows, np.arange(n), list(coordinates))
            places = np.stack([np.asarray(column, dtype=np.float64) for column in columns], axis=1)
        return cls(codes, names, places)

    def columns(self, is_inside: BoolArray, widths: FloatArray) -> dict[str, AnyArray]:
        """Return the columns of the table of one output.

        Parameters
        ----------
        is_inside : ndarray of shape (n,)
            Whether the target of each row is in its interval.
        widths : ndarray of shape (n,)
        """
        n_groups = len(self.names)
        rows = np.bincount(self.codes, minlength=n_groups)
        inside = np.bincount(self.codes, is_inside, n_groups)
        lower, upper = bounds_of_share(inside, rows)
        columns = {
            "group": self.names,
            "rows": rows,
            "covered": inside / rows,
            "lower": lower,
            "upper": upper,
            "median_width": self._medians(widths),
        }
        if self.places is not None:
            columns["latitude"] = self._medians(self.places[:, 0])
            columns["longitude"] = self._medians(self.places[:, 1])
        return columns

    def _medians(self, values: FloatArray) -> FloatArray:
        """Return the median of some values by group, (G,)."""
        groups = range(len(self.names))
        return np.array([np.median(values[self.codes == group]) for group in groups])


def bounds_of_share(counts: FloatArray, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the bounds of Clopper and Pearson for shares of rows, (G,) each."""
    tail = (1.0 - CONFIDENCE) / 2
    n_outside = rows - counts
    lower = np.zeros(len(rows))
    is_any = counts > 0
    lower[is_any] = betaincinv(counts[is_any], n_outside[is_any] + 1, tail)
    upper = np.ones(len(rows))
    is_any = n_outside > 0
    upper[is_any] = betaincinv(counts[is_any] + 1, n_outside[is_any], 1.0 - tail)
    return lower, upper


def coordinate_columns(
    coordinates: tuple[str | int, str | int], queries: QueryBatch
) -> tuple[int, int]:
    """Return the columns of latitudes and longitudes that the user names."""
    return ByPlace.of(coordinates, queries.rows).columns
