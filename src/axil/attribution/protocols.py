"""Protocols of the centre: training rows in one place."""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import NDArray

from axil.arrays import FloatArray
from axil.attribution.effects import Effects
from axil.attribution.source import Source


class Shard(Protocol):
    """Training rows in one place."""

    @property
    def start(self) -> int:
        """The number of the first row among all training rows."""

    @property
    def targets(self) -> FloatArray:
        """(rows, K): on the scale of the fit."""

    @property
    def shown(self) -> FloatArray:
        """(rows, K): the targets as people read them."""

    @property
    def index(self) -> NDArray[Any]:
        """(rows,): the user's labels."""

    def effects(self, source: Source, asked: Any) -> Effects:
        """The effects of these rows on the queries asked about."""
