"""The rule of Newton leaves: a leaf value follows from the sum and the weight of the leaf's rows.

With S the sum of the negative gradients of a leaf's rows, or of their residuals, and W that of
their weights, or hessians, the value before the learning rate is

    v = S / (W + l2)

L1 first moves the sum towards zero, and a largest step clips the value. With this active set fixed,
as the tree structure is, every leaf value is an affine map of the sums of its tree:

    v = P S + shift

A sum beyond L1 has ``v = scale * S - sign * scale * l1``, a sum within L1 has ``v = 0``, and a
clipped value is plus or minus the largest step. In `NodeRule` and `IsotonicRule`, which extend this
rule, P also has entries off its diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.arrays import BoolArray, FloatArray
from axil.machine.arrays import AnyPlaceArray, where
from axil.structure.records import Transferable, expect

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class LinearLeaves(Transferable):
    """Leaf values as an affine map of leaf sums, with the active set fixed."""

    scale: FloatArray  #: (L,) the diagonal of P, in trees without a matrix
    shift: FloatArray | None = None  #: (L,) None: zero
    #: (L_t, L_t) P of each tree whose leaves depend on other leaves, else None; None: no tree has
    #: one
    mixing: tuple[csr_array | None, ...] | None = None
    #: the numbers of leaves that L1 moved, that it put to zero, that are clipped and at a bound
    counts: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for array in (self.scale, self.shift):
            if array is not None:
                array.setflags(write=False)
        for matrix in self.mixing or ():
            if matrix is not None:
                for array in (matrix.data, matrix.indices, matrix.indptr):
                    array.setflags(write=False)

    def check(self, n_leaves: NDArray[np.int64]) -> None:
        """Raise ValueError unless the map fits trees with these numbers of leaves, (T,)."""
        shape = (int(n_leaves.sum()),)
        for name, array in (("leaf_scale", self.scale), ("shift", self.shift)):
            if array is not None:
                expect(name, array, np.float64, shape)
        if self.mixing is None:
            return
        if len(self.mixing) != len(n_leaves):
            raise ValueError(
                f"mixing has {len(self.mixing)} tables, expected one for each of {len(n_leaves)} "
                "trees"
            )
        for matrix, n in zip(self.mixing, n_leaves):
            if matrix is not None:
                expect("mixing", matrix, np.float64, (int(n), int(n)))

    def values(self, n_leaves: NDArray[np.int64], sums: FloatArray) -> FloatArray:
        """Return the leaf values before the learning rate, (L, K), for leaf sums (L, K)."""
        values = self.scale[:, None] * sums
        for matrix, (start, end) in zip(self.mixing or (), pairwise([0, *np.cumsum(n_leaves)])):
            if matrix is not None:
                values[start:end] = matrix @ sums[start:end]
        if self.shift is None:
            return values
        return values + self.shift[:, None]


@dataclass(frozen=True)
class CoupledLeaves:
    """Derivatives of one tree's leaf values by the sums and weights of its leaves, (L, L) each.

    The active set is fixed.
    """

    by_sum: FloatArray
    by_weight: FloatArray
    share: FloatArray  #: ``values = share @ sums``; 0 <= share <= terms
    #: ``share`` without L1 and a largest step: ``terms @ sums of |w g|`` bounds what rows add to
    #: values
    terms: FloatArray


@dataclass(frozen=True)
class NewtonRule(Transferable):
    """The rule from the sums S and weights W of L leaves to their values.

    A value is ``scale * S`` with ``scale = 1 / (W + l2)``. After ``steps`` Newton steps of squared
    error, scale is ``(1 - q ** steps) / W`` with ``q = l2 / (W + l2)``.
    """

    l2: FloatArray  #: (L,); inf: the value of the leaf is zero
    steps: FloatArray  #: (L,)
    by_weight: bool = False  #: whether l2 is in proportion to the mean weight of all rows
    l1: float = 0.0  #: by how much a sum is moved towards zero, at most to zero
    max_step: float = np.inf  #: the largest absolute value

    @property
    def is_monotone(self) -> bool:
        """Whether values must rise or fall along some order of the leaves."""
        return False

    @property
    def smooths_nodes(self) -> bool:
        """Whether values are averages with the values of the nodes above."""
        return False

    @property
    def has_active_set(self) -> bool:
        """Whether values are linear in the sums only while an active set is fixed."""
        return self.l1 > 0 or self.max_step < np.inf or self.is_monotone

    @property
    def couples_leaves(self) -> bool:
        """Whether the value of a leaf may depend on the sums of other leaves."""
        return self.is_monotone or self.smooths_nodes

    def check(self, n_leaves: NDArray[np.int64]) -> None:
        """Raise ValueError unless the rule fits trees with these numbers of leaves, (T,)."""
        shape = (int(n_leaves.sum()),)
        expect("l2", self.l2, np.float64, shape)
        expect("steps", self.steps, np.float64, shape)

    def scale(self, leaf_weights: AnyPlaceArray) -> AnyPlaceArray:
        """Return the factor of each leaf's sum, (L,), if L1 and the largest step do not act.

        The arrays may all be on a device.
        """
        denominator = leaf_weights + self.l2
        is_positive = denominator > 0
        scale = where(is_positive, 1.0 / where(is_positive, denominator, 1.0), 0.0)
        has_steps = self.steps > 1
        if has_steps.any():
            has_steps &= (leaf_weights > 0) & np.isfinite(self.l2)
            remainder = (self.l2[has_steps] * scale[has_steps]) ** self.steps[has_steps]
            scale[has_steps] = (1.0 - remainder) / leaf_weights[has_steps]
        return scale

    def slopes(self, leaf_weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the derivatives of `scale`, (L,) each: by the weight of the leaf, and by l2."""
        single = NewtonRule(self.l2, np.ones_like(self.steps)).scale(leaf_weights)
        by_weight = -(single**2)
        by_l2 = -(single**2)
        has_steps = (leaf_weights > 0) & np.isfinite(self.l2) & (self.steps > 1)
        W = leaf_weights[has_steps]
        steps = self.steps[has_steps]
        inverse = single[has_steps]
        q = self.l2[has_steps] * inverse
        by_weight[has_steps] = (steps * q**steps * W * inverse - (1.0 - q**steps)) / W**2
        by_l2[has_steps] = -steps * q ** (steps - 1) * inverse**2
        return by_weight, by_l2

    def scaled(self, factor: float) -> Self:
        """Return the rule after the mean weight of all rows was multiplied by a factor."""
        if not self.by_weight:
            return self
        return replace(self, l2=self.l2 * factor)

    def reached(self, is_empty: BoolArray) -> Self:
        """Return the rule for other rows, which may reach leaves (L,) that had none.

        A leaf without rows has an l2 of infinity. It gets the l2 of the other leaves.
        """
        common = self.l2[np.isfinite(self.l2)].min(initial=np.inf)
        return replace(self, l2=np.where(is_empty & np.isinf(self.l2), common, self.l2))

    def emptied(self, is_empty: BoolArray) -> Self:
        """Return the rule after these leaves, (L,), have lost their rows."""
        return self

    def for_remaining(
        self,
        before: FloatArray,
        left: FloatArray,
        counts: tuple[FloatArray, FloatArray] | None,
    ) -> NewtonRule:
        """Return the rule after rows were deleted.

        Parameters
        ----------
        before, left : arrays of shape (L,)
            The weights of the leaves with the deleted rows and without them.
        counts : pair of arrays of shape (L,), optional
            The numbers of rows, likewise. Only a rule that `smooths_nodes` needs them.
        """
        return self

    def step(self, sums: FloatArray, denominators: FloatArray) -> FloatArray:
        """Return the values of leaves or nodes by their own sums and ``W + l2`` alone."""
        moved = np.sign(sums) * np.maximum(np.abs(sums) - self.l1, 0.0)
        values = np.divide(moved, denominators, out=np.zeros_like(moved), where=denominators > 0)
        return np.asarray(np.clip(values, -self.max_step, self.max_step))

    def step_map(self, sums: FloatArray, denominators: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return scale and shift of `step`, with the active set of these sums fixed."""
        size = np.abs(sums)
        sign = np.sign(sums)
        scale = np.divide(1.0, denominators, out=np.zeros_like(sums), where=denominators > 0)
        shift = -self.l1 * sign * scale
        is_zero = (size <= self.l1) & (self.l1 > 0)
        with np.errstate(invalid="ignore"):  # no largest step times an infinite denominator
            is_clipped = size - self.l1 > self.max_step * denominators
        is_clipped &= denominators > 0
        scale[is_zero | is_clipped] = 0.0
        shift[is_zero] = 0.0
        shift[is_clipped] = sign[is_clipped] * self.max_step
        return scale, shift

    def leaf_values(self, sums: FloatArray, leaf_weights: FloatArray) -> FloatArray:
        """Return the leaf values before the learning rate, (L,), of leaf sums and weights (L,)."""
        return self.step(sums, inverse_or(self.scale(leaf_weights), 0.0))

    def linearise(self, sums: FloatArray, leaf_weights: FloatArray) -> LinearLeaves:
        """Return leaf values as a map of leaf sums (L,), with the active set of the sums fixed."""
        free = self.scale(leaf_weights)
        if not self.has_active_set and not self.couples_leaves:
            return LinearLeaves(free)
        denominators = inverse_or(free, 0.0)
        scale, shift = self.step_map(sums, denominators)
        leaves_by_kind = {
            "moved": (scale > 0) & (shift != 0),
            "zero": (scale == 0) & (shift == 0) & (free > 0),
            "clipped": (scale == 0) & (shift != 0),
        }
        is_bounded, matrices = self._couple(sums, leaf_weights, denominators, shift)
        counts = {
            kind: int((leaves & ~is_bounded).sum()) for kind, leaves in leaves_by_kind.items()
        }
        counts["bounded"] = int(is_bounded.sum())
        mixing = None
        if any(matrix is not None for matrix in matrices):
            mixing = tuple(matrices)
        return LinearLeaves(scale, shift if shift.any() else None, mixing, counts)

    def _couple(
        self,
        sums: FloatArray,
        leaf_weights: FloatArray,
        denominators: FloatArray,
        shift: FloatArray,
    ) -> tuple[BoolArray, list[csr_array | None]]:
        """Return which leaves are at a monotone bound, (L,), and the matrix of each tree.

        ``shift`` (L,) is changed in place where a tree has a matrix.
        """
        return np.zeros(len(sums), dtype=np.bool_), []

    def bytes_needed(self, sums: FloatArray, leaf_weights: FloatArray) -> int:
        """Return the memory in bytes that `linearise` needs for the matrices of the trees."""
        return 0

    def coupled_leaves(self, sums: FloatArray, leaf_weights: FloatArray) -> CoupledLeaves | None:
        """Return the derivatives of one tree's leaf values by all of its leaves.

        None if each value depends on its own leaf alone.
        """
        return None

    def nearest_changes(
        self,
        sums: FloatArray,
        leaf_weights: FloatArray,
        k: int,
        slopes: FloatArray | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Return the k nearest changes of the active set.

        Parameters
        ----------
        sums, leaf_weights : arrays of shape (L,)
        k : int
        slopes : array of shape (L,), optional
            How fast each sum may move. Changes are then ordered by the time until they happen.
            Only for a rule that does not couple leaves.

        Returns
        -------
        maps : array of shape (L, at most k)
            The number that changes its sign, as a linear map of the leaf sums.
        distances : array of shape (at most k,)
            How far each number is from zero.
        """
        gaps = self.distances_to_thresholds(sums, inverse_or(self.scale(leaf_weights), np.inf))
        if slopes is None:
            order = gaps
        else:
            order = gaps / slopes
        nearest = first_finite(gaps, order, k)
        maps = np.zeros((len(sums), len(nearest)))
        maps[nearest, np.arange(len(nearest))] = 1.0
        return maps, gaps[nearest]

    def distances_to_thresholds(self, sums: FloatArray, denominators: FloatArray) -> FloatArray:
        """Return the distance of each sum from the next threshold of L1 or of the largest step."""
        size = np.abs(sums)
        gaps = np.full(len(sums), np.inf)
        if self.l1 > 0:
            gaps = np.abs(size - self.l1)
        if self.max_step < np.inf:
            gaps = np.minimum(gaps, np.abs(size - self.l1 - self.max_step * denominators))
        gaps[~np.isfinite(denominators)] = np.inf  # the value is zero, whatever the sum
        return gaps

    def tree(self, t: int, leaves: slice) -> Self:
        """Return the rule of tree t, which has these leaves."""
        if t not in self._rule_by_tree:
            self._rule_by_tree[t] = self._of_tree(t, leaves)
        return self._rule_by_tree[t]

    def _of_tree(self, t: int, leaves: slice) -> Self:
        return replace(self, l2=self.l2[leaves], steps=self.steps[leaves])

    @cached_property
    def _rule_by_tree(self) -> dict[int, Self]:
        """A cache for `tree`."""
        return {}


def inverse_or(scale: FloatArray, otherwise: float) -> FloatArray:
    """Return ``1 / scale``, and another number where the scale is zero."""
    return np.divide(1.0, scale, out=np.full_like(scale, otherwise), where=scale > 0)


def first_finite(gaps: FloatArray, order: FloatArray, k: int) -> NDArray[np.int64]:
    """Return the positions of the k smallest of ``order`` whose gap is finite."""
    order = np.where(np.isfinite(gaps), order, np.inf)
    nearest = np.argsort(order, kind="stable")[:k]
    return np.asarray(nearest[np.isfinite(order[nearest])])
