"""Work: what deletions of all training rows take, and the blocks of rows that they are done in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axil.kernels import Costs
from axil.machine.blocks import spans
from axil.structure import Structure
from axil.weights.fit_rules import rule_of
from axil.weights.leaf_matrix import LeafMatrix
from axil.weights.levels import shares_of

BLOCK_ENTRIES = 1 << 22  # of outputs by trees by rows that are walked at a time
COPIES = 4  # of a block that are held at a time
REPLAYS = 4  # passes over the trees that a replay without a row takes
GROUP_SECONDS = 4e-5  # per tree of a replay besides
RANKED_SECONDS = 1e-7  # per row and tree of a replay that ranks the rows of each leaf
RANKING_SECONDS = 1e-4  # per tree of such a replay besides


@dataclass(frozen=True)
class Work:
    """Seconds and bytes that deletions of all rows take, roughly."""

    in_leaf_matrix: float
    by_replay: float
    needed: int  #: bytes, in the leaf matrix

    @classmethod
    def of(cls, s: Structure, costs: Costs, ready: bool) -> Work:
        """``ready``: the leaf matrix is there already."""
        shares = shares_of(s)
        levels = len(shares)
        built = levels - (ready and 0.0 in shares)
        leaf_matrix = costs.pair * s.n_rows * s.n_trees**2 / 2 + costs.inverse * s.total_leaves**3
        pairs = levels * costs.walk * s.n_rows * s.n_trees**2 / 2
        replay = (
            REPLAYS * costs.visit_seconds * costs.sweep * s.n_rows * s.n_trees
            + GROUP_SECONDS * s.n_trees
        )
        matrix = 8 * s.total_leaves**2
        blocks = COPIES * 8 * min(BLOCK_ENTRIES, s.n_rows * s.n_trees)
        needed = built * LeafMatrix.size(s) + levels * matrix + blocks
        rule = rule_of(s)
        if rule.needs_walk:  # the responses of leaf sums, too
            needed += 3 * LeafMatrix.size(s)
        if rule.ranks_rows:
            return cls(
                np.inf, s.n_rows * (RANKED_SECONDS * s.n_rows + RANKING_SECONDS) * s.n_trees, needed
            )
        if not rule.has_formula(s):
            return cls(np.inf, s.n_rows * replay, needed)
        return cls(costs.visit_seconds * (built * leaf_matrix + pairs), s.n_rows * replay, needed)

    def uses_leaf_matrix(self, available: int) -> bool:
        """Whether it fits and is the faster way."""
        return self.needed <= available and self.in_leaf_matrix <= self.by_replay


def blocks_of(s: Structure, per_row: int, entries: int) -> list[slice]:
    """The training rows in blocks of about ``entries`` numbers, ``per_row`` for each row."""
    return spans(s.n_rows, max(16, entries // per_row))


def walked_blocks(s: Structure, outputs: int, times: int = 1) -> list[slice]:
    """The training rows in blocks to walk."""
    return blocks_of(s, s.n_trees * outputs, times * BLOCK_ENTRIES)
