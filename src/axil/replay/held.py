"""Held: the pattern of a fit that is held fixed besides its splits, and how far targets may move before it changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from axil.replay.recover import Replay
from axil.structure import Structure
from axil.structure.changes import nearest
from axil.types import Array
from axil.weights.boosting import BoostedTrees
from axil.weights.contract import Engine

BEYOND = 1e-7  # of the largest leaf value: a leaf that is off by less is within the rounding of its pattern
NEAREST = 16  # leaves nearest to a change of their pattern that the radius is computed from


@dataclass(frozen=True)
class Held:
    """The pattern that weights hold fixed besides the splits: signs of L1, clipped steps and monotone bounds."""

    n_leaves: int
    moved: int  #: leaves whose sums L1 moved towards zero
    zero: int  #: leaves whose sums L1 put to zero
    clipped: int  #: leaves at the largest step
    bounded: int  #: leaves at a monotone bound, or pooled with others to keep an order
    #: the largest part of a training row's prediction that no target makes, because of the pattern
    shift: float = np.nan
    radius: float = np.nan  #: the smallest change of a single target that changes the pattern, to first order

    @property
    def share(self) -> float:
        """The share of leaves that have something held."""
        return (self.moved + self.zero + self.clipped + self.bounded) / self.n_leaves

    def __str__(self) -> str:
        kinds = {"moved": "moved by L1", "zero": "at zero", "clipped": "clipped", "bounded": "at a monotone bound"}
        named = ", ".join(f"{getattr(self, kind):,} {words}" for kind, words in kinds.items() if getattr(self, kind))
        pattern = f"the pattern of {100 * self.share:.3g} % of {self.n_leaves:,} leaves ({named or 'none'})"
        if np.isnan(self.radius):
            return pattern
        return (
            f"{pattern}; its constants make at most {self.shift:.3g} of a prediction; "
            f"it holds while one target moves by less than {self.radius:.3g}"
        )

    def __add__(self, other: Held) -> Held:
        """The pattern of both, for outputs with trees of their own."""
        counts = {name: getattr(self, name) + getattr(other, name) for name in list(asdict(self))[:5]}
        shift, radius = np.maximum(self.shift, other.shift), np.minimum(self.radius, other.radius)  # nan stays nan
        return Held(**counts, shift=float(shift), radius=float(radius))

    @classmethod
    def stated(cls, numbers: Any) -> Held:
        """Numbers that a file states. Raises ValueError or TypeError."""
        found = cls(**numbers)
        if any(isinstance(n, bool) or not isinstance(n, (int, float)) or not n >= 0 for n in numbers.values()):
            raise ValueError("a pattern of other things than numbers from 0 up")
        return found

    @classmethod
    def of(cls, walked: Replay, engine: Any) -> Held | None:
        """The pattern of a replay whose weights the engine computes, or of rows elsewhere; None where nothing is held."""
        s = walked.structure
        if s.regularisation is None or not s.regularisation.bends:
            return None
        if engine is None:
            return cls(s.total_leaves, **walked.held)
        return cls(s.total_leaves, **walked.held, shift=_shift(engine), radius=_radius(s, walked.sums[:, 0], engine))


def leaves_beyond(engine: Engine, targets: Array) -> int:
    """How many leaves a fit to these targets (N, K) on the same splits would give another pattern than the one held."""
    if not isinstance(engine, BoostedTrees):
        return 0
    rule, fit = engine.structure.regularisation, engine.fit(targets)
    if rule is None or not rule.bends:
        return 0
    values, held = rule.leaf_values(fit.sums[:, 0], engine.structure.leaf_weights), fit.values[:, 0]
    return int((np.abs(values - held) > BEYOND * np.abs(held).max(initial=0.0)).sum())


def _shift(engine: BoostedTrees) -> float:
    return float(np.abs(engine.constants(None)).max(initial=0.0))


def _radius(s: Structure, sums: Array, engine: BoostedTrees) -> float:
    """The least of ``distance / max_j |d distance / d y_j|`` over the leaves nearest to a change, one sweep for all."""
    assert s.regularisation is not None
    seeds, distances = nearest(s.regularisation, sums, s.leaf_weights, NEAREST)
    steepest = np.abs(engine.sum_weights(seeds)).max(axis=0)
    radii = np.divide(distances, steepest, out=np.full_like(distances, np.inf), where=steepest > 0)
    return float(radii.min(initial=np.inf))
