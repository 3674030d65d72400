"""Structure: leaf membership, sample counts and affine leaf values of a fitted ensemble."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from axil.arrays import AnyArray, BoolArray, Cells, FloatArray, IntArray
from axil.machine.arrays import AnyPlaceArray, host, like
from axil.structure.newton import LinearLeaves, NewtonRule
from axil.structure.records import Transferable, expect
from axil.structure.rule_state import RuleState


def cell_dtype(most_cells: int) -> type[np.unsignedinteger[Any]]:
    """Return the smallest unsigned type that numbers this many cells from 0."""
    for dtype in (np.uint8, np.uint16):
        if most_cells - 1 <= np.iinfo(dtype).max:
            return dtype
    return np.uint32


def output_groups(n_sets: int) -> list[slice]:
    """Return the outputs of each set of trees: all of them for one set, else one for each."""
    if n_sets == 1:
        return [slice(None)]
    return [slice(k, k + 1) for k in range(n_sets)]


def all_n_leaves(sets: Sequence[Any]) -> NDArray[np.int64]:
    """Return the numbers of leaves of all trees, (T,).

    They come from ``n_leaves`` and ``columns`` of the trees of each output.
    """
    if sets[0].columns is None:
        return np.asarray(sets[0].n_leaves)
    n_leaves = np.zeros(
        1 + max(int(trees.columns.max()) for trees in sets), dtype=np.int64
    )  # outputs may share trees
    for trees in sets:
        n_leaves[trees.columns] = trees.n_leaves
    return n_leaves


@dataclass(frozen=True)
class Coefficients:
    """The coefficients of trees that do not simply add one after the other.

    Tree t is fitted to ``y - beta[t] * base - sum_{s < t} omega[t, s] * v_s`` and a prediction is
    ``beta[T] * base + sum_s omega[T, s] * v_s``, with v_s the value of tree s's leaf before any
    rate. Plain boosting is ``omega[t, s] = rate_s``, a forest ``omega[t, s] = 0`` for t < T; DART
    and model shrinkage have varying tables.
    """

    omega: FloatArray  #: (T + 1, T), zero for s >= t
    beta: FloatArray  #: (T + 1,)


@dataclass(frozen=True)
class Structure(Transferable):
    """Leaf membership, sample counts and affine leaf values of T trees over N training rows.

    Row j counts ``row_weights[j] * count * scale[l]`` in the value of its leaf l of tree t.
    ``count`` is how often it was sampled for the tree; its share if the leaf's value is a
    percentile; or 0 if its residual was clipped. Rows are stored by cells: cell ``d * n_leaves[t] +
    l`` has the rows of leaf l that were sampled ``sample_counts[d]`` times, so a sampled model
    takes no more memory than any other, N * T cell numbers. With ``mixing`` a leaf's value is a
    combination of the sums of all leaves of its tree (``mixing[t] @ sums``). With ``shift`` it also
    has a constant, which does not depend on targets.
    """

    cells: Cells  #: (T, N) cell of each training row, packed
    n_leaves: NDArray[np.int64]  #: (T,)
    leaf_weights: FloatArray  #: (L,) sum of row weight * draw in each leaf
    linear_leaves: LinearLeaves  #: how leaf values follow from leaf sums
    learning_rates: FloatArray  #: (T,)
    initial: (
        FloatArray | None
    )  #: (K,) the constants predictions start from; None: the weighted means of the targets
    row_weights: FloatArray | None = None  #: (N,); None: all one
    offsets: FloatArray | None = (
        None  #: (N, K) what each training row's prediction starts from besides
    )
    #: (D,), or (D, L) where leaves are percentiles: the shares of the rows that each is taken from
    sample_counts: FloatArray = field(default_factory=lambda: np.ones(1))
    coefficients: Coefficients | None = None  #: None: plain boosting by the rates
    columns: NDArray[np.int64] | None = (
        None  #: (T,) which of all the model's trees these are; None: all, in order
    )
    #: how ``linear_leaves`` came about; None: not known, nor asked unless rows or targets change
    leaf_rule: RuleState | None = None
    total: float | None = None  #: the weight of all training rows, where not all of them are here
    total_rows: int | None = (
        None  #: the number of all training rows, where not all of them are here
    )
    #: (N,) the row weights whose mean l2 is in proportion to, where rows without a target have no
    #: weight; None: ``row_weights``
    scaling_weights: FloatArray | None = None
    present: BoolArray | None = (
        None  #: (N,) rows that were not deleted; None: all. Deleted rows have weight 0
    )
    starts: NDArray[np.int64] = field(
        init=False
    )  #: (T + 1,) where each tree's leaves begin among all L

    def __post_init__(self) -> None:
        self._check_cells()
        starts = np.concatenate([[0], np.cumsum(self.n_leaves)]).astype(np.int64)
        object.__setattr__(self, "starts", starts)
        self._check()
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def _check_cells(self) -> None:
        """Raise ValueError unless cells fit the leaves, because kernels index without checks."""
        expect("n_leaves", self.n_leaves, np.int64, (len(self.n_leaves),))
        by_leaf = (int(self.n_leaves.sum()),) if self.sample_counts.ndim == 2 else ()
        expect("sample_counts", self.sample_counts, np.float64, (len(self.sample_counts), *by_leaf))
        if (
            self.cells.dtype.kind != "u"
            or self.cells.ndim != 2
            or not self.cells.flags.c_contiguous
        ):
            raise ValueError(
                f"cells is {self.cells.dtype} {self.cells.shape}, expected unsigned numbers of "
                "trees by rows"
            )
        expect("cells", self.cells, self.cells.dtype, (len(self.n_leaves), self.cells.shape[1]))
        most = (int(np.iinfo(self.cells.dtype).max) + 1) // max(len(self.sample_counts), 1)
        if not (
            len(self.n_leaves)
            and len(self.sample_counts)
            and ((self.n_leaves >= 1) & (self.n_leaves <= most)).all()
        ):
            raise ValueError(
                f"expected trees of 1 to {most} leaves, as many as {self.cells.dtype} cells can "
                "number"
            )
        if (
            self.cells.size
            and not (self.cells.max(axis=1) < len(self.sample_counts) * self.n_leaves).all()
        ):
            raise ValueError("a cell number beyond the cells of its tree")

    def _check(self) -> None:
        """Raise ValueError unless the shapes of all other arrays agree."""
        trees = (self.n_trees,)
        leaves = (self.total_leaves,)
        rows = (self.n_rows,)
        shapes = {"leaf_weights": leaves}
        shapes |= {"learning_rates": trees, "row_weights": rows, "scaling_weights": rows}
        if self.present is not None:
            expect("present", self.present, np.bool_, rows)
        expected: list[tuple[str, Any, tuple[int, ...]]] = [
            (n, getattr(self, n), shape) for n, shape in shapes.items()
        ]
        if self.offsets is not None:
            expected.append(("offsets", self.offsets, (*rows, self.offsets.shape[-1])))
        if self.initial is not None:
            expected.append(("initial", self.initial, (len(self.initial),)))
        self.linear_leaves.check(self.n_leaves)
        if self.coefficients is not None:
            expected.append(("omega", self.coefficients.omega, (self.n_trees + 1, self.n_trees)))
            expected.append(("beta", self.coefficients.beta, (self.n_trees + 1,)))
        for name, array, shape in expected:
            if array is not None:
                expect(name, array, np.float64, shape)
        if self.leaf_rule is not None:
            self.leaf_rule.check(self.n_leaves, self.n_rows, self.sample_counts)
        if self.columns is not None:
            expect("columns", self.columns, np.int64, trees)
            if (self.columns < 0).any() or len(np.unique(self.columns)) < self.n_trees:
                raise ValueError("columns names a tree twice, or one below 0")

    @property
    def newton_rule(self) -> NewtonRule:
        """The rule from leaf sums to leaf values. Raises ValueError if it is unknown."""
        if self.leaf_rule is None:
            raise ValueError("a structure without a leaf rule, expected one")
        return self.leaf_rule.newton

    @property
    def n_trees(self) -> int:
        return len(self.n_leaves)

    @property
    def n_rows(self) -> int:
        return int(self.cells.shape[1])

    @property
    def total_leaves(self) -> int:
        return int(self.starts[-1])

    @property
    def cell_starts(self) -> NDArray[np.int64]:
        """Where the cells of each tree begin among all cells, (T + 1,)."""
        return len(self.sample_counts) * self.starts

    @property
    def total_weight(self) -> float:
        if self.total is not None:
            return self.total
        return float(self.n_rows if self.row_weights is None else self.row_weights.sum())

    @property
    def l2_weights(self) -> FloatArray | None:
        """The row weights whose mean l2 is proportional to, (N,); None if all weights are one."""
        if self.scaling_weights is None:
            return self.row_weights
        return self.scaling_weights

    @property
    def l2_total(self) -> float:
        """The sum of `l2_weights`."""
        if self.scaling_weights is None:
            return self.total_weight
        return float(self.scaling_weights.sum())

    @property
    def n_present(self) -> int:
        """The number of training rows that were not deleted; rows without weight count."""
        if self.total_rows is not None:
            return self.total_rows
        if self.present is None:
            return self.n_rows
        return int(self.present.sum())

    @property
    def mean_weight(self) -> float:
        """The weight of a target of row weight one in an initial prediction that is the mean."""
        if self.initial is None:
            return 1.0 / self.total_weight
        return 0.0

    @property
    def initial_in_sums(self) -> FloatArray:
        """The coefficient of the initial prediction in the sum of each leaf, (L,).

        It is subtracted from the sum: leaf weight * beta.
        """
        return self.leaf_weights * np.repeat(self.beta[:-1], self.n_leaves)

    @property
    def beta(self) -> FloatArray:
        """The coefficient of the initial prediction in the residuals of each tree, (T + 1,).

        The last one is that in predictions.
        """
        if self.coefficients is None:
            return np.ones(self.n_trees + 1)
        return self.coefficients.beta

    @property
    def initial_in_fit(self) -> float:
        """The coefficient of the initial prediction in the training rows' predictions.

        It is 0 if the fit started from offsets instead.
        """
        if self.beta[0] == 0 and self.beta[-1] != 0:
            return 0.0
        return 1.0

    @property
    def final(self) -> FloatArray:
        """The factor of each tree's values in a prediction, (T,)."""
        return self.learning_rates if self.coefficients is None else self.coefficients.omega[-1]

    @property
    def averages(self) -> bool:
        """Whether predictions are means over independent trees.

        Such are forests, and one round of parallel trees. Trees of DART for which all others were
        dropped do not see each other either, but their shares do not sum to one.
        """
        c = self.coefficients
        first = 0
        if self.leaf_rule is not None:
            first = self.leaf_rule.n_initial_trees  # which all others see
        if c is None or c.omega[:-1, first:].any():
            return False
        if self.n_trees - first > 1:
            return bool(np.isclose(self.final[first:].sum(), 1.0, rtol=1e-6))
        return bool(c.beta[0] == c.beta[-1] and self.final[-1] == 1.0)

    def leaves(self, rows: slice = slice(None)) -> Cells:
        """Return the leaf of each training row in each tree, (T, rows)."""
        cells = self.cells[:, rows]
        if len(self.sample_counts) == 1:
            return cells
        return cells % self.n_leaves[:, None].astype(cells.dtype)

    @property
    def counts_by_leaf(self) -> bool:
        """Whether sample counts depend on the leaf, as its value is a percentile of some rows."""
        return self.sample_counts.ndim == 2

    @property
    def has_unsampled_rows(self) -> bool:
        """Whether trees were fitted without some rows, and these rows are known."""
        if not self.counts_by_leaf:
            return bool((self.levels_sampled == 0).any())
        if self.leaf_rule is None or self.leaf_rule.recorded_counts is None:
            return False
        return not self.leaf_rule.recorded_counts.all()

    @property
    def levels_sampled(self) -> FloatArray:
        """How often rows of each level were sampled, (D,), also if their residuals do not count."""
        if self.leaf_rule is None:
            return self.sample_counts
        return self.leaf_rule.levels_sampled(self.sample_counts)

    def sampled_counts(self, rows: slice | IntArray = slice(None)) -> FloatArray:
        """Return how often each row was sampled for each tree, (T, rows)."""
        if self.leaf_rule is not None and self.leaf_rule.recorded_counts is not None:
            return self.leaf_rule.recorded_counts[:, rows].astype(np.float64)
        if self.counts_by_leaf:  # and no sampling is recorded: every tree has every row
            return np.ones(self.cells[:, rows].shape)
        levels = self.cells[:, rows] // self.n_leaves[:, None].astype(self.cells.dtype)
        return np.asarray(self.levels_sampled[levels.astype(np.intp)])

    def entries(self, t: int, leaves: AnyArray) -> IntArray:
        """Return the positions, among all L leaves, of leaves that are numbered within tree t.

        Leaves are kept in the smallest type that holds them, which may not hold these positions:
        before NumPy 2 a sum of a number and an array has the type of the array.
        """
        return np.asarray(self.starts[t] + leaves.astype(np.intp))

    def row_counts(self, rows: Any = slice(None)) -> FloatArray:
        """Return how often each row counts in each tree, (T, rows)."""
        level, leaf = np.divmod(
            self.cells[:, rows], self.n_leaves[:, None].astype(self.cells.dtype)
        )
        level = level.astype(np.intp)
        if self.counts_by_leaf:
            return self.sample_counts[level, self.starts[:-1, None] + leaf]
        return self.sample_counts[level]

    def tree_counts(self, t: int) -> FloatArray:
        """Return how often rows count in tree t, (D, L_t); (D, 1) if its leaves do not differ."""
        if self.counts_by_leaf:
            return self.sample_counts[:, self.starts[t] : self.starts[t + 1]]
        return self.sample_counts[:, None]

    def to_cells(self, t: int, of_leaves: AnyPlaceArray, drawn: bool) -> AnyPlaceArray:
        """Return tree t's table by leaves, (L_t, S), by cells; times sample counts if ``drawn``."""
        levels = len(self.sample_counts)
        if levels == 1:
            return of_leaves
        factors = like(self.tree_counts(t) if drawn else np.ones((levels, 1)), of_leaves)
        return (factors[:, :, None] * of_leaves).reshape(
            levels * len(of_leaves), of_leaves.shape[1]
        )

    def by_cells(self, of_leaves: AnyPlaceArray, drawn: bool) -> AnyPlaceArray:
        """Return a table of all trees by leaves, (L, S), by cells; see `to_cells`."""
        if len(self.sample_counts) == 1:
            return of_leaves
        return np.concatenate(
            [
                self.to_cells(t, of_leaves[a:b], drawn)
                for t, (a, b) in enumerate(pairwise(self.starts))
            ]
        )

    def to_leaves(self, t: int, of_cells: AnyPlaceArray, drawn: bool) -> AnyPlaceArray:
        """Return sums over the cells of each leaf of tree t: the transpose of `to_cells`."""
        if len(self.sample_counts) == 1:
            return of_cells
        by_draw = of_cells.reshape(
            len(self.sample_counts), len(of_cells) // len(self.sample_counts), of_cells.shape[1]
        )
        if not drawn:
            return by_draw.sum(axis=0)
        if self.counts_by_leaf:
            return (like(self.tree_counts(t), by_draw)[:, :, None] * by_draw).sum(axis=0)
        return np.tensordot(like(self.sample_counts, by_draw), by_draw, 1)

    def by_leaves(self, of_cells: AnyPlaceArray, drawn: bool) -> AnyPlaceArray:
        """Return sums over the cells of each leaf of all trees: the transpose of `by_cells`."""
        if len(self.sample_counts) == 1:
            return of_cells
        return np.concatenate(
            [
                self.to_leaves(t, of_cells[a:b], drawn)
                for t, (a, b) in enumerate(pairwise(self.cell_starts))
            ]
        )

    def leaf_values(self, t: int, sums: AnyPlaceArray) -> AnyPlaceArray:
        """Return the leaf values of tree t before learning rate and shift, (L_t, S).

        ``sums`` (L_t, S) has the weighted sums of the residuals in its leaves.
        """
        matrix = self._mixing_of(t)
        if matrix is not None:
            return like(np.asarray(matrix @ host(sums)), sums)
        return like(self.linear_leaves.scale[self.leaves_of(t), None], sums) * sums

    def shifted_values(self, t: int, sums: AnyPlaceArray) -> AnyPlaceArray:
        """Return `leaf_values` with their shifts."""
        values = self.leaf_values(t, sums)
        shift = self.linear_leaves.shift
        if shift is None:
            return values
        return values + like(shift[self.leaves_of(t), None], sums)

    def leaf_values_transpose(self, t: int, adjoints: AnyPlaceArray) -> AnyPlaceArray:
        """Return adjoints of sums of tree t's leaves from adjoints of their values, (L_t, S)."""
        matrix = self._mixing_of(t)
        if matrix is not None:
            return like(np.asarray(matrix.T @ host(adjoints)), adjoints)
        return like(self.linear_leaves.scale[self.leaves_of(t), None], adjoints) * adjoints

    def leaves_of(self, t: int) -> slice:
        """Return the positions of tree t's leaves among all."""
        return slice(int(self.starts[t]), int(self.starts[t + 1]))

    def _mixing_of(self, t: int) -> csr_array | None:
        """Return the matrix of tree t; None if each leaf value follows from its own sum."""
        mixing = self.linear_leaves.mixing
        if mixing is None:
            return None
        return mixing[t]
