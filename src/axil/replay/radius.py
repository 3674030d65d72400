"""ActiveSet: the active set and encodings of a fit.

It says how far targets may move before these change.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from axil.adapters.contract import Placement
from axil.arrays import FloatArray
from axil.errors import counted
from axil.replay.recover import Replay
from axil.weights.boosting import BoostedTrees
from axil.weights.engine import Engine
from axil.weights.fit_rules import needs_walk, rule_of
from axil.weights.forest import Forest
from axil.weights.members import Sum


@dataclass(frozen=True)
class ActiveSet:
    """The active set and the category encodings that answers hold fixed, like the tree structure.

    The active set is the signs of L1, clipped steps, monotone bounds, and ranks of rows.
    """

    n_leaves: int
    moved: int = 0  #: leaves whose sums L1 moved towards zero
    zero: int = 0  #: leaves whose sums L1 put to zero
    clipped: int = 0  #: leaves at the largest step
    bounded: int = 0  #: leaves at a monotone bound, or pooled with others to keep an order
    ranked: int = 0  #: leaves whose values are percentiles: the rows that they are taken from
    #: the largest part of a training row's prediction that no target makes, because of the pattern
    shift: float = np.nan
    #: while targets move by less than this in all, the pattern stays: the smallest change of a
    #: single target that changes it, or a lower bound of that; 0: no bound is known
    radius: float = np.nan
    cut: float = (
        0.0  #: the share of residuals, over all rows and trees, that were cut off (Huber's loss)
    )
    encodings: int = 0  #: of categories by the targets, which would move with them

    @property
    def share(self) -> float:
        """The share of leaves with an active set or an encoding."""
        return (self.moved + self.zero + self.clipped + self.bounded + self.ranked) / self.n_leaves

    def __str__(self) -> str:
        if self.encodings:
            texts = [f"{counted(self.encodings, 'encoding')} of categories by the targets"]
        else:
            texts = []
        if self.cut:
            texts += [f"which {100 * self.cut:.3g} % of the residuals are clipped"]
        else:
            texts += []
        if self.encodings and not self.cut and not self.share:
            return texts[0]
        kinds = {
            "moved": "moved by L1",
            "zero": "at zero",
            "clipped": "clipped",
            "bounded": "at a monotone bound",
        }
        kinds["ranked"] = "determined by the ranks of their rows"
        named = ", ".join(
            f"{getattr(self, kind):,} {words}"
            for kind, words in kinds.items()
            if getattr(self, kind)
        )
        pattern = (
            f"the active set of {100 * self.share:.3g} % of {self.n_leaves:,} leaves "
            f"({named or 'none'})"
        )
        pattern = "; ".join([*texts, pattern] if self.share or not texts else texts)
        if np.isnan(self.radius):
            return pattern
        if self.radius:
            holds = f"; it stays the same while one target moves by less than {self.radius:.3g}"
        else:
            holds = ""
        return f"{pattern}; its constants make at most {self.shift:.3g} of a prediction{holds}"

    def __add__(self, other: ActiveSet) -> ActiveSet:
        """Return the active set of both, for outputs with trees of their own."""
        counts = {
            name: getattr(self, name) + getattr(other, name)
            for name in (*list(asdict(self))[:6], "encodings")
        }
        # nan stays nan
        shift = np.maximum(self.shift, other.shift)
        radius = np.minimum(self.radius, other.radius)
        cut = (self.n_leaves * self.cut + other.n_leaves * other.cut) / (
            self.n_leaves + other.n_leaves
        )
        return ActiveSet(**counts, shift=float(shift), radius=float(radius), cut=cut)

    @classmethod
    def stated(cls, numbers: Any) -> ActiveSet:
        """Return the numbers that a file states. Raises ValueError or TypeError."""
        active_set = cls(**numbers)
        if any(
            isinstance(n, bool) or not isinstance(n, (int, float)) or not n >= 0
            for n in numbers.values()
        ):
            raise ValueError("an active set with other values than numbers from 0 up")
        return active_set

    @classmethod
    def encoded(cls, n_leaves: int, placement: Placement) -> ActiveSet:
        """Return the encodings of a fit that has no active set."""
        return cls(n_leaves, shift=0.0, radius=0.0, encodings=placement.encodings)

    @classmethod
    def of(
        cls,
        walked: Replay,
        engine: Any,
        targets: FloatArray | None = None,
        placement: Placement | None = None,
    ) -> ActiveSet | None:
        """Return the active set and the encodings of a replay; None if it has neither.

        The engine computes the weights of these targets.
        """
        s = walked.structure
        rule = rule_of(s)
        if not rule.has_active_set:
            if placement is None:
                return None
            return cls.encoded(s.total_leaves, placement)
        if engine is None or targets is None:
            return cls(s.total_leaves, **walked.held)
        constants = 0.0
        if s.linear_leaves.shift is not None:
            constants = float(np.abs(engine.constants(None)).max(initial=0.0))
        return cls(
            s.total_leaves,
            **rule.active_set_counts(s, walked.held),  # type: ignore[arg-type]
            shift=constants,
            radius=rule.radius(engine, targets),
            encodings=0 if placement is None else placement.encodings,
        )


def leaves_beyond(engine: Engine, targets: FloatArray, before: FloatArray) -> int:
    """Return the number of leaves whose active set differs between fits to two sets of targets.

    Both fits have the same splits; the targets and those ``before`` have shape (N, K).
    """
    if isinstance(engine, Sum):
        return sum(
            leaves_beyond(term.engine, term.taken(targets), term.taken(before))
            for term in engine.terms
        )
    if not isinstance(engine, (BoostedTrees, Forest)):
        return 0
    return rule_of(engine.structure).count_changed_leaves(engine, before, targets)


def rows_replayed(engine: Engine, targets: FloatArray, available: int) -> int:
    """Return the number of training rows whose leave-one-out fit must be replayed.

    Their deletion may change the active set.
    """
    if isinstance(engine, Sum):
        share = available // len(engine.terms)
        return max(rows_replayed(term.engine, term.taken(targets), share) for term in engine.terms)
    if not isinstance(engine, (BoostedTrees, Forest)) or not needs_walk(engine.structure):
        return 0
    if isinstance(engine, BoostedTrees):
        return engine.replays(targets, available)
    return len(targets)
