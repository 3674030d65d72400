"""Work: estimates of time and memory, by which algorithms are chosen, and blocks of rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axil.errors import InputError
from axil.kernels import Costs
from axil.machine.blocks import spans
from axil.machine.memory import in_words
from axil.structure import Structure
from axil.weights.fit_rules import rule_of
from axil.weights.leaf_matrix import LeafMatrix
from axil.weights.levels import shares_of

# Up to that many explained rows take as long as one: memory sets the pace of a pass over the rows,
# or of a factor that is read.
FEW_PASSED = 4
FEW_READ = 3
FEW_SOLVED = 8

SQUARES_MATRICES = 4  # of leaves by leaves that the squares hold at a time
MOST_WORK = 2e12  # visits of rows by trees and explained rows

BLOCK_ENTRIES = 1 << 22  # of outputs by trees by rows that are walked at a time
COPIES = 4  # of a block that are held at a time
REPLAYS = 4  # passes over the trees that a replay without a row takes
GROUP_SECONDS = 4e-5  # per tree of a replay besides
RANKED_SECONDS = 1e-7  # per row and tree of a replay that ranks the rows of each leaf
RANKING_SECONDS = 1e-4  # per tree of such a replay besides


@dataclass(frozen=True)
class PredictionWork:
    """The number of visits for the weights of some predictions, on the scale of `Costs`."""

    by_passes: float
    by_solves: float  #: in the leaf matrix, with the time to build it
    by_inverse: float  #: of the leaf matrix, with the time to build and invert it

    @classmethod
    def of(
        cls, s: Structure, costs: Costs, n: int, n_changes: int, ready: bool, inverted: bool
    ) -> PredictionWork:
        """Return the work of n explained rows.

        Parameters
        ----------
        s : Structure
        costs : Costs
        n : int
        n_changes : int
            How often the residuals change by a tree; see `passes.groups_of`.
        ready, inverted : bool
            Whether the leaf matrix, and its inverse, are there already.
        """
        visits = s.n_trees + n_changes
        by_passes = costs.sweep * max(n, FEW_PASSED) * s.n_rows * visits / 2
        reading = costs.read * max(n, FEW_READ) * s.n_trees * s.n_rows
        if not ready:
            pairs = costs.pair * s.n_rows * s.n_trees * (s.n_trees - 1) / 2
            reading += pairs + costs.fill * s.total_leaves**2
        solving = costs.solve * max(n, FEW_SOLVED) * s.total_leaves**2
        looking_up = costs.read * n * s.n_trees * s.total_leaves
        if not inverted:
            looking_up += costs.inverse * s.total_leaves**3
        return cls(by_passes, reading + solving, reading + looking_up)


@dataclass(frozen=True)
class LeverageWork:
    """The work of leverages or squares: visits on the scale of `Costs`, and bytes of matrices."""

    structure: Structure
    visit_seconds: float
    in_leaf_matrix: float
    by_rows: float
    needed: int

    @classmethod
    def of(cls, structure: Structure, costs: Costs, ready: bool, matrices: int) -> LeverageWork:
        """Return the work on a structure.

        Parameters
        ----------
        structure : Structure
        costs : Costs
        ready : bool
            Whether the leaf matrix is there already.
        matrices : int
            1 for leverages, `SQUARES_MATRICES` for squares.
        """
        s = structure
        # to build the leaf matrix, to look at its pairs, or to count them
        pairs = costs.pair * s.n_rows * s.n_trees**2 / 2
        n_pair_passes = 1
        cube = 0.0
        if matrices > 1:
            n_pair_passes = 2
            cube = costs.product
        per_row = costs.read
        needed = 8 * matrices * s.total_leaves**2 * len(s.sample_counts) ** 2
        if not ready:
            n_pair_passes += 1
            cube += costs.inverse
            per_row = costs.sweep
            needed += LeafMatrix.size(s)
        in_leaf_matrix = pairs * n_pair_passes + cube * s.total_leaves**3
        by_rows = per_row * s.n_trees * s.n_rows**2
        return cls(s, costs.visit_seconds, in_leaf_matrix, by_rows, needed)

    def seconds(self, available: int) -> float:
        """Return the estimated seconds; inf if the work is refused."""
        visits = np.inf
        if self.needed <= available:
            visits = self.in_leaf_matrix
        if self.by_rows <= MOST_WORK:
            visits = min(visits, self.by_rows)
        return self.visit_seconds * visits

    def leaf_matrix_pays(self, available: int) -> bool:
        """Return whether the leaf matrix is the cheaper algorithm. Raises if none is possible."""
        fits = self.needed <= available
        if fits and (self.in_leaf_matrix <= self.by_rows or self.by_rows > MOST_WORK):
            return True
        if self.by_rows <= MOST_WORK:
            return False
        s = self.structure
        minutes = self.by_rows * self.visit_seconds / 60
        raise InputError(
            f"All {s.n_rows} training rows' own weights take {in_words(self.needed)} in the leaf "
            f"matrix ({s.total_leaves} leaves), where {in_words(available)} are allowed, or "
            f"{self.by_rows:.1e} visits of rows without it, some {minutes:.0f} minutes on two "
            'cores. Ask for an estimate with method="estimate" (of the noise: sigma="estimate"), '
            "raise memory_limit, or explain a model of fewer leaves."
        )


@dataclass(frozen=True)
class DeletionWork:
    """The estimated seconds and bytes of the deletions of all rows."""

    in_leaf_matrix: float
    by_replay: float
    needed: int  #: bytes, in the leaf matrix

    @classmethod
    def of(cls, s: Structure, costs: Costs, ready: bool) -> DeletionWork:
        """Return the work on a structure; ``ready``: its leaf matrix is there already."""
        rule = rule_of(s)
        shares = shares_of(s)
        n_levels = len(shares)
        n_built = n_levels - (ready and 0.0 in shares)
        blocks = COPIES * 8 * min(BLOCK_ENTRIES, s.n_rows * s.n_trees)
        needed = n_built * LeafMatrix.size(s) + n_levels * 8 * s.total_leaves**2 + blocks
        if rule.needs_walk:  # the responses of leaf sums, too
            needed += 3 * LeafMatrix.size(s)
        if rule.ranks_rows:
            of_row = (RANKED_SECONDS * s.n_rows + RANKING_SECONDS) * s.n_trees
            return cls(np.inf, s.n_rows * of_row, needed)
        pass_seconds = costs.visit_seconds * costs.sweep * s.n_rows * s.n_trees
        by_replay = s.n_rows * (REPLAYS * pass_seconds + GROUP_SECONDS * s.n_trees)
        if not rule.has_formula(s):
            return cls(np.inf, by_replay, needed)
        n_pairs = s.n_rows * s.n_trees**2 / 2
        leaf_matrix = costs.pair * n_pairs + costs.inverse * s.total_leaves**3
        visits = n_built * leaf_matrix + n_levels * costs.walk * n_pairs
        return cls(costs.visit_seconds * visits, by_replay, needed)

    def uses_leaf_matrix(self, available: int) -> bool:
        """Return whether the leaf matrix fits into memory and is the faster algorithm."""
        return self.needed <= available and self.in_leaf_matrix <= self.by_replay


def blocks_of(s: Structure, per_row: int, entries: int) -> list[slice]:
    """Return blocks of training rows with about ``entries`` numbers, ``per_row`` for each row."""
    return spans(s.n_rows, max(16, entries // per_row))


def walked_blocks(s: Structure, n_outputs: int, times: int = 1) -> list[slice]:
    """Return the training rows in the blocks to walk, ``times`` as large as the smallest ones."""
    return blocks_of(s, s.n_trees * n_outputs, times * BLOCK_ENTRIES)
