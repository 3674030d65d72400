"""Pool groups of few calibration rows with their nearest groups, so that each pool has enough rows.

The smallest pool joins its nearest one, until each pool has the rows that are wanted. What is near
follows from places or from predictions, never from errors or targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from axil import inputs
from axil.aliases import FeatureTable
from axil.arrays import FloatArray, IntArray
from axil.errors import InputError, shown
from axil.inputs.coordinates import as_degrees, unit_vectors
from axil.machine.blocks import spans

DECILES = np.linspace(0.05, 0.95, 10)
OPTION = "coordinates"
ENTRIES = 1 << 20  # distances that are computed at a time


class PoolNearness(Protocol):
    """How near rows and pools of calibration rows are to each other."""

    def centres(self, codes: IntArray, n_pools: int) -> FloatArray:
        """Return a point for each pool, (P, p), from the pool of each calibration row."""

    def points(self, X: FeatureTable, predictions: FloatArray) -> FloatArray:
        """Return a point for each row, (m, p), from its features and its prediction (m, K)."""


@dataclass(frozen=True, eq=False)
class ByPrediction(PoolNearness):
    """Pools are near if the deciles of their predictions are."""

    predictions: FloatArray  #: (n, K) of the calibration rows

    def centres(self, codes: IntArray, n_pools: int) -> FloatArray:
        """Return the deciles of the predictions of each pool, (P, 10 K)."""
        deciles = np.empty((n_pools, len(DECILES), self.predictions.shape[1]))
        for pool in range(n_pools):
            deciles[pool] = np.quantile(self.predictions[codes == pool], DECILES, axis=0)
        return deciles.reshape(n_pools, -1)

    def points(self, X: FeatureTable, predictions: FloatArray) -> FloatArray:
        """Return the deciles of single rows, which are their predictions, (m, 10 K)."""
        return np.tile(predictions, len(DECILES))


@dataclass(frozen=True, eq=False)
class ByPlace(PoolNearness):
    """Pools are near if the places of their rows are."""

    columns: tuple[int, int]  #: of latitudes and longitudes
    names: tuple[str, str]
    places: FloatArray  #: (n, 3) of the calibration rows, on the unit sphere

    @classmethod
    def of(cls, coordinates: Sequence[str | int], X: FeatureTable) -> ByPlace:
        """Read the option ``coordinates``: two columns of the features X, by name or position."""
        if not isinstance(coordinates, (tuple, list)) or len(coordinates) != 2:
            raise InputError(
                f"{OPTION} is {shown(coordinates)}; expected two columns, of latitudes and "
                'longitudes, such as ("lat", "lon").'
            )
        all_names = inputs.column_names((X,), None, X.shape[1])
        latitude, longitude = inputs.chosen_columns(list(coordinates), all_names, OPTION)
        columns = (latitude, longitude)
        column_names = (all_names[latitude], all_names[longitude])
        return cls(columns, column_names, places_of(X, columns, column_names))

    def centres(self, codes: IntArray, n_pools: int) -> FloatArray:
        """Return the mean place of each pool, (P, 3); rows without a place do not count."""
        is_placed = np.isfinite(self.places).all(axis=1)
        numbers = np.bincount(codes[is_placed], minlength=n_pools)
        centres = np.empty((n_pools, 3))
        with np.errstate(invalid="ignore", divide="ignore"):
            for axis in range(3):
                sums = np.bincount(codes[is_placed], self.places[is_placed, axis], n_pools)
                centres[:, axis] = sums / numbers
        return centres

    def points(self, X: FeatureTable, predictions: FloatArray) -> FloatArray:
        """Return the places of rows, (m, 3)."""
        return places_of(X, self.columns, self.names)


def places_of(X: FeatureTable, columns: tuple[int, int], names: tuple[str, str]) -> FloatArray:
    """Return the places of rows on the unit sphere, (n, 3)."""
    latitudes, longitudes = inputs.feature_columns(X, np.arange(X.shape[0]), list(columns))
    return unit_vectors(
        as_degrees(latitudes, names[0], "latitude", OPTION),
        as_degrees(longitudes, names[1], "longitude", OPTION),
    )


def pools_of(codes: IntArray, n_groups: int, least: int, nearness: PoolNearness) -> IntArray:
    """Return the pool of each group, (G,), numbered in the order of their first groups.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        The group of each calibration row.
    n_groups : int
    least : int
        The rows that each pool is to have.
    nearness : PoolNearness
    """
    pool_of_group = np.arange(n_groups)
    while True:
        numbers = np.bincount(pool_of_group[codes])
        smallest = int(numbers.argmin())
        if len(numbers) == 1 or numbers[smallest] >= least:
            return pool_of_group
        centres = nearness.centres(pool_of_group[codes], len(numbers))
        gaps = np.linalg.norm(centres - centres[smallest], axis=1)
        gaps = np.where(np.isnan(gaps), np.inf, gaps)
        gaps[smallest] = np.nan
        joined = pool_of_group == smallest
        pool_of_group[joined] = np.nanargmin(gaps)
        pool_of_group = np.unique(pool_of_group, return_inverse=True)[1].reshape(-1)


def nearest_pools(points: FloatArray, centres: FloatArray) -> IntArray:
    """Return the nearest of some centres (P, p) for each point (m, p), (m,); -1 for no place."""
    nearest = np.full(len(points), -1)
    step = max(1, ENTRIES // max(1, centres.size))
    for place in spans(len(points), step):
        gaps = np.linalg.norm(points[place, None, :] - centres, axis=2)
        is_known = np.isfinite(gaps).any(axis=1)
        gaps = np.where(np.isnan(gaps), np.inf, gaps)
        nearest[place] = np.where(is_known, gaps.argmin(axis=1), -1)
    return nearest
