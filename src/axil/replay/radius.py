"""Held: what is held fixed besides the splits of a fit, and how far targets may move before its pattern changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from axil.adapters.contract import Placement
from axil.arrays import FloatArray
from axil.errors import counted
from axil.machine.blocks import spans
from axil.replay.recover import Replay
from axil.structure import Structure
from axil.weights import pattern_changes, rank_changes
from axil.weights.boosting import BoostedTrees
from axil.weights.engine import Engine
from axil.weights.forest import Forest
from axil.weights.members import Sum
from axil.weights.rows_left import bends

LEAST = 16  # changes of the pattern, the nearest first, whose derivatives are computed in any case
SECONDS = 2.0  # that the derivatives of more of them may take
TOGETHER = 64  # of them in one sweep
ROUNDING = 1e-13  # of a leaf's weight: a derivative of its sum that is less is none
SEEDS = 1 << 25  # entries of the maps of changes that are held


@dataclass(frozen=True)
class Held:
    """The pattern (signs of L1, clipped steps, monotone bounds, ranks of rows) and encodings, held fixed as the splits are."""

    n_leaves: int
    moved: int = 0  #: leaves whose sums L1 moved towards zero
    zero: int = 0  #: leaves whose sums L1 put to zero
    clipped: int = 0  #: leaves at the largest step
    bounded: int = 0  #: leaves at a monotone bound, or pooled with others to keep an order
    ranked: int = 0  #: leaves whose values are percentiles: the rows that they are taken from
    #: the largest part of a training row's prediction that no target makes, because of the pattern
    shift: float = np.nan
    #: while targets move by less than this in all, the pattern stays: the smallest change of a single target that changes it, or
    #: a lower bound of that; 0: no bound is known
    radius: float = np.nan
    cut: float = (
        0.0  #: the share of residuals, over all rows and trees, that were cut off (Huber's loss)
    )
    encodings: int = 0  #: of categories by the targets, which would move with them

    @property
    def share(self) -> float:
        """The share of leaves that have something held."""
        return (self.moved + self.zero + self.clipped + self.bounded + self.ranked) / self.n_leaves

    def __str__(self) -> str:
        others = (
            [f"{counted(self.encodings, 'encoding')} of categories by the targets"]
            if self.encodings
            else []
        )
        others += [f"which {100 * self.cut:.3g} % of the residuals are cut off"] if self.cut else []
        if self.encodings and not self.cut and not self.share:
            return others[0]
        kinds = {
            "moved": "moved by L1",
            "zero": "at zero",
            "clipped": "clipped",
            "bounded": "at a monotone bound",
        }
        kinds["ranked"] = "by the ranks of their rows"
        named = ", ".join(
            f"{getattr(self, kind):,} {words}"
            for kind, words in kinds.items()
            if getattr(self, kind)
        )
        pattern = f"the pattern of {100 * self.share:.3g} % of {self.n_leaves:,} leaves ({named or 'none'})"
        pattern = "; ".join([*others, pattern] if self.share or not others else others)
        if np.isnan(self.radius):
            return pattern
        holds = (
            f"; it holds while one target moves by less than {self.radius:.3g}"
            if self.radius
            else ""
        )
        return f"{pattern}; its constants make at most {self.shift:.3g} of a prediction{holds}"

    def __add__(self, other: Held) -> Held:
        """The pattern of both, for outputs with trees of their own."""
        counts = {
            name: getattr(self, name) + getattr(other, name)
            for name in (*list(asdict(self))[:6], "encodings")
        }
        shift, radius = (
            np.maximum(self.shift, other.shift),
            np.minimum(self.radius, other.radius),
        )  # nan stays nan
        cut = (self.n_leaves * self.cut + other.n_leaves * other.cut) / (
            self.n_leaves + other.n_leaves
        )
        return Held(**counts, shift=float(shift), radius=float(radius), cut=cut)

    @classmethod
    def stated(cls, numbers: Any) -> Held:
        """Numbers that a file states. Raises ValueError or TypeError."""
        found = cls(**numbers)
        if any(
            isinstance(n, bool) or not isinstance(n, (int, float)) or not n >= 0
            for n in numbers.values()
        ):
            raise ValueError("a pattern of other things than numbers from 0 up")
        return found

    @classmethod
    def encoded(cls, n_leaves: int, placement: Placement) -> Held:
        """The encodings of a fit that holds nothing else."""
        return cls(n_leaves, shift=0.0, radius=0.0, encodings=placement.encodings)

    @classmethod
    def of(
        cls,
        walked: Replay,
        engine: Any,
        targets: FloatArray | None = None,
        placement: Placement | None = None,
    ) -> Held | None:
        """The pattern and encodings of a replay, whose weights the engine computes of these targets; None: neither."""
        s, encodings = walked.structure, 0 if placement is None else placement.encodings
        if s.regularisation is None or not (
            s.regularisation.has_active_set or s.is_ranked or s.cut is not None
        ):
            return None if placement is None else cls.encoded(s.total_leaves, placement)
        if engine is None or targets is None:
            return cls(s.total_leaves, **walked.held)
        if s.is_ranked or s.cut is not None:
            constants = _shift(engine) if s.shift is not None else 0.0
            reach = 0.0 if s.regularisation.has_active_set else rank_changes.radius(engine, targets)
            held = dict(walked.held)
            if s.ranks is not None and s.ranks.rule.spreads:  # rows that do not count are beyond
                own = s.cells[
                    int(s.ranks.based) :, slice(None) if s.ranks.rows is None else s.ranks.rows
                ]
                held["cut"] = float(np.mean(own // s.n_leaves[int(s.ranks.based) :, None] == 0))
            return cls(s.total_leaves, **held, shift=constants, radius=reach, encodings=encodings)
        sums, shift = engine.fit(targets).sums[:, 0], _shift(engine)
        return cls(
            s.total_leaves,
            **walked.held,
            shift=shift,
            radius=_radius(s, sums, engine),
            encodings=encodings,
        )


def leaves_beyond(engine: Engine, targets: FloatArray, before: FloatArray) -> int:
    """How many leaves a fit to these targets (N, K) on the same splits would give another pattern than one to those before."""
    if isinstance(engine, Sum):
        return sum(
            leaves_beyond(term.engine, term.taken(targets), term.taken(before))
            for term in engine.terms
        )
    if isinstance(engine, (BoostedTrees, Forest)) and engine.structure.is_ranked:
        return rank_changes.leaves_beyond(engine, before, targets)
    s = engine.structure if isinstance(engine, BoostedTrees) else None
    if not isinstance(engine, BoostedTrees) or s is None or s.regularisation is None:
        return 0
    if not s.regularisation.has_active_set and s.cut is None:
        return 0
    fit = engine.fit(targets)
    if s.cut is not None:
        sums, weights = fit.whole(s.cut)
        return pattern_changes.leaves_beyond(
            replace(s.uncut(), leaf_weights=weights), sums, fit.values
        )
    return pattern_changes.leaves_beyond(fit.structure, fit.sums, fit.values)


def rows_replayed(engine: Engine, targets: FloatArray, available: int) -> int:
    """How many training rows' exact deletions are replayed, where deletions may change a pattern."""
    if isinstance(engine, Sum):
        share = available // len(engine.terms)
        return max(rows_replayed(term.engine, term.taken(targets), share) for term in engine.terms)
    if not isinstance(engine, (BoostedTrees, Forest)) or not bends(engine.structure):
        return 0
    return engine.replays(targets, available) if isinstance(engine, BoostedTrees) else len(targets)


def _shift(engine: BoostedTrees) -> float:
    return float(np.abs(engine.constants(None)).max(initial=0.0))


def _radius(s: Structure, sums: FloatArray, engine: BoostedTrees) -> float:
    """The least of ``distance / max_j |d distance / d y_j|`` over all changes of the pattern, or a lower bound of it.

    Changes are taken in turn, those first whose distance is small for the steepest slope that they may have. Where it is known
    how steep the rest may be (`_steepest`), those that cannot be nearer are left out. Of a model with more changes than `SECONDS`
    allow, the bound of the rest counts as well, and is 0 where none is known.
    """
    rule, costs, bound = s.regularisation, engine.backend.costs, _steepest(s)
    assert rule is not None
    # a leaf that comes again has a sum of l1, the edge, whatever the targets
    if rule.l1 > 0 and (s.rates >= 1.0).any():
        return 0.0
    column = costs.visit_seconds * costs.sweep * s.n_rows * s.n_trees
    most = max(LEAST, min(int(SECONDS / column), SEEDS // s.total_leaves))
    seeds, distances = rule.nearest_changes(sums, s.leaf_weights, most + 1, bound)
    radius = np.inf
    for own in spans(min(len(distances), most), TOGETHER):
        least = _least(seeds[:, own], distances[own], bound)
        if least >= radius:
            return radius
        steepest = np.abs(engine.sum_weights(seeds[:, own])).max(axis=0)
        # At a rate of one a leaf that comes again has a sum of l1 whatever the targets: what is left of its slope is rounding.
        steepest[
            steepest <= ROUNDING * (np.abs(seeds[:, own]) * s.leaf_weights[:, None]).max(axis=0)
        ] = 0.0
        radii = np.divide(
            distances[own], steepest, out=np.full_like(steepest, np.inf), where=steepest > 0
        )
        radius = min(radius, float(radii.min(initial=np.inf)))
    return (
        radius
        if len(distances) <= most
        else min(radius, _least(seeds[:, most:], distances[most:], bound))
    )


def _least(seeds: FloatArray, distances: FloatArray, bound: FloatArray | None) -> float:
    """A lower bound of the radius of the first of some changes, and of all after it."""
    return 0.0 if bound is None else float(distances[0] / bound[seeds[:, 0].argmax()])


def _steepest(s: Structure) -> FloatArray | None:
    """(L,): bounds of the derivatives of leaf sums by single targets; None: none are known.

    Where every tree sees all rows, and what the trees before leave over, no tree makes residuals larger: ``I - eta A P A' w``
    has a norm of at most one in the weighted mean square, as its eigenvalues are between ``1 - eta`` and 1. A target that moves
    by one moves residuals by at most ``sqrt(w_j)`` in that norm, and a leaf's sum by at most ``sqrt(w_j W_l)``.
    """
    plain = (
        s.coefficients is None
        and len(s.draws) == 1
        and s.draws[0] == 1.0
        and bool((s.rates <= 2.0).all())
    )
    if (
        not plain
        or s.mixing is not None
        or s.regularisation is None
        or s.regularisation.couples_leaves
    ):
        return None
    heaviest = 1.0 if s.row_weights is None else float(s.row_weights.max(initial=0.0))
    return np.asarray(np.sqrt(heaviest * np.maximum(s.leaf_weights, heaviest)))
