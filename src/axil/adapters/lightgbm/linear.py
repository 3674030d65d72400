"""LightGBM's linear_tree: leaves that are ridge regressions of the residuals on the features of their branch.

A leaf's coefficients are ``(B'WB + linear_lambda)^-1 B'W r``, B the values of its features in single precision and a one, which
has no penalty (src/treelearner/linear_tree_learner.cpp). Rows that lack a value of the branch are left out; a row that lacks
one of the leaf's features is predicted by the leaf's plain value, as all rows are in the first tree and in leaves of fewer rows
than coefficients. Where the matrix is singular LightGBM leaves out features, or the one, whose coefficients are then exactly
zero: the model says which, and the others are those of the smaller regression.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.adapters.boosted_fit import RowGradients
from axil.adapters.contract import FittedSmoother, SmootherModel, Totals, TreeModel
from axil.adapters.lightgbm.adapter import LightGBMAdapter
from axil.adapters.lightgbm.rates import stated_rates
from axil.adapters.lightgbm.reading import LightGBMReading
from axil.adapters.lightgbm.text import CATEGORICAL, TreeText
from axil.adapters.linear_steps import LinearSteps, LinearTree
from axil.arrays import FloatArray
from axil.errors import ExactnessError, InputError, UnsupportedModelError
from axil.machine.threads import one_blas_thread

SINGULAR = 1e-13  # of the largest eigenvalue: below, rounding decides the coefficients
UNSTEADY = 1e-8  # likewise: below, rounding may show in predictions
CLOSE = 1e-7  # of the largest target or step: how far the step of a row may be from its leaf's own regression
ROUNDING = 1e-12  # likewise: of sums in float64
WEIGHT_SLACK = 1e-7  # of the weight of all rows


@dataclass(frozen=True)
class LinearLeaf:
    """One leaf of the model."""

    branch: NDArray[np.int64]  #: features on its branch that are numbers
    columns: NDArray[
        np.int64
    ]  #: features that it has coefficients of; the last column of all, of ones, where it has a constant
    coefficients: FloatArray  #: of these
    first: int  #: the place of these coefficients in its tree, after which comes that of its value
    value: float
    plain: bool  #: whether it has its value for all rows

    @property
    def place(self) -> int:
        """The place of its value."""
        return self.first + len(self.columns)


def leaves_of(tree: TreeText, n_features: int) -> list[LinearLeaf]:
    """The leaves of a tree."""
    n, values = tree.n_leaves, tree.floats("leaf_value")
    constants = tree.floats("leaf_const") if tree.is_linear else values
    ends = np.cumsum(
        tree.integers("num_features") if tree.is_linear else np.zeros(n, dtype=np.int64)
    )[:-1]
    columns, slopes = (
        np.split(part, ends) for part in (tree.integers("leaf_features"), tree.floats("leaf_coeff"))
    )
    above: list[frozenset[int]] = [frozenset()] * (2 * n - 1)
    if n > 1:
        number = (tree.integers("decision_type") & CATEGORICAL) == 0
        for split, (feature, children) in enumerate(
            zip(tree.integers("split_feature").tolist(), tree.children)
        ):
            for child in children:
                above[child] = above[split] | ({feature} if number[split] else frozenset())
    found: list[LinearLeaf] = []
    for leaf, (own, slope, constant, value) in enumerate(zip(columns, slopes, constants, values)):
        plain = not len(own) and constant == value
        one = [] if plain or constant == 0.0 else [constant]
        first, branch = (
            found[-1].place + 1 if found else 0,
            np.array(sorted(above[n - 1 + leaf]), dtype=np.int64),
        )
        with_one = np.append(own, [n_features] * len(one)).astype(np.int64)
        found.append(
            LinearLeaf(branch, with_one, np.append(slope, one), first, float(value), plain)
        )
    return found


class LinearLightGBM(SmootherModel, LightGBMAdapter):
    """A LightGBM booster with linear leaves: a linear smoother whose features are those of a row in its leaf of each tree."""

    def __init__(self, booster: Any, reading: LightGBMReading):
        super().__init__(booster, reading)
        self._leaves = [leaves_of(tree, self.n_features) for tree in self._trees]
        self._rates = stated_rates(self._trees, self._settings)
        self._penalty = self._settings.precisely("linear_lambda")[0]
        self._compared: tuple[Any, FloatArray | None, LinearSteps] | None = (
            None  # for `smoother`, which is asked next
        )
        if self._trees[0].n_leaves > 1 and self._trees[0].shrinkage == "1":  # which hides a base
            self._rates[0] = self._settings.precisely("learning_rate")[0]
        if np.isnan(self._rates).any():
            raise UnsupportedModelError(
                "learning_rate",
                "one for each tree, or known to six digits",
                "linear leaves are replayed where all trees have one rate that is known to the last digit",
                "Fit with one learning rate, and pass the model in memory or pickled.",
            )

    def _table(self, X: Any) -> FloatArray:
        """(n, features + 1): the numbers, and ones."""
        table = self.table(X)
        if table is None:
            raise InputError(
                "Linear leaves take columns of numbers and categories: pass an array, or a frame of such columns."
            )
        return np.column_stack([table, np.ones(len(table))]).astype(np.float64, copy=False)

    def coordinates(self, X: Any, n_threads: int = 1) -> Any:
        """Sparse (n, P): what predictions multiply the coefficients by."""
        leaves, table = TreeModel.coordinates(self, X, n_threads), self._table(X)
        parts = [_features(own, leaf, table) for own, leaf in zip(self._leaves, leaves.T)]
        return sparse.hstack([sparse.csr_array(np.ones((len(table), 1))), *parts], format="csr")

    def smoother(self, X: Any, weights: FloatArray | None) -> FittedSmoother:
        """Coefficients from the targets, tree after tree."""
        compared, self._compared = self._compared, None
        if compared is None or compared[0] is not X or compared[1] is not weights:
            return FittedSmoother(self.coordinates(X), self._steps(X, weights, None))
        return FittedSmoother(self.coordinates(X), compared[2])

    def check_kept(self, X: Any, targets: FloatArray, weights: FloatArray | None) -> None:
        """Compare every leaf with the model: its rows, their weight, its value and what its coefficients add to predictions."""
        self._compared = X, weights, self._steps(X, weights, targets)

    @one_blas_thread()
    def _steps(self, X: Any, weights: FloatArray | None, targets: FloatArray | None) -> LinearSteps:
        """The map, on a walk through the fit; with targets, every leaf is compared with the model."""
        leaves, table = (
            TreeModel.coordinates(self, X).T,
            self._table(X).astype(np.float32).astype(np.float64),
        )
        given = np.zeros((len(table), 1)) if targets is None else targets
        totals = Totals.of(given, weights, None)
        base = self._base(float(totals.means[0]), totals, None)
        stated = [
            np.concatenate([np.append(leaf.coefficients, leaf.value) for leaf in own])
            for own in self._leaves
        ]
        stated[0][[leaf.place for leaf in self._leaves[0]]] -= base.hidden
        evidence = replace(
            self._evidence(len(table), weights),
            values=np.concatenate(
                [each[[leaf.place for leaf in own]] for each, own in zip(stated, self._leaves)]
            ),
            rates=self._rates,
            counts_alone=targets is None,
        )
        sampler, counted = (
            self._sampler(evidence, len(table)),
            np.ones(len(table)) if weights is None else weights,
        )
        score, trees = np.full(given.shape, base.value), []
        for t, leaf in enumerate(leaves):
            left = (given - score).astype(np.float32).astype(np.float64)
            drawn = np.ones(len(leaf))
            if sampler is not None:
                (drawn,) = sampler.draw(range(t, t + 1), leaf[None], RowGradients(left))
            self._compare(
                "count",
                np.bincount(leaf, drawn, self._n_leaves[t]),
                self._trees[t].leaf_counts(len(leaf)),
                0.0,
                t,
            )
            trees.append(self._tree(t, leaf, table, counted * drawn))
            if targets is not None and self._n_leaves[t] > 1:
                self._compare_coefficients(t, trees[t], _rounded(left, weights), stated[t], totals)
            score += trees[t].features @ stated[t][:, None]
        # A first tree without a split holds the mean in any case.
        from_mean = self._settings.flag("boost_from_average") or self._n_leaves[0] == 1
        return LinearSteps(counted / counted.sum() if from_mean else np.zeros(len(counted)), trees)

    def _tree(
        self, t: int, leaf: NDArray[np.integer[Any]], table: FloatArray, weights: FloatArray
    ) -> LinearTree:
        """One tree with its regressions."""
        own, rate = self._leaves[t], float(self._rates[t])
        total = (
            np.bincount(leaf, weights, len(own))
            + self._rule.denominators(self._trees[t])[len(own) - 1 :]
        )
        complete = ~np.array([each.plain for each in own])[leaf]
        order, steady = np.argsort(leaf, kind="stable"), np.ones(len(own))
        blocks: list[FloatArray] = []
        for each, rows in enumerate(
            np.split(order, np.cumsum(np.bincount(leaf, minlength=len(own)))[:-1])
        ):
            about = own[each]
            complete[rows] &= ~np.isnan(table[np.ix_(rows, about.branch)]).any(axis=1)
            rows = rows[complete[rows]]
            basis = table[np.ix_(rows, about.columns)]
            penalty = np.where(about.columns < self.n_features, self._penalty, 0.0)
            made, steady[each] = _inverse(
                (basis * weights[rows, None]).T @ basis + np.diag(penalty)
            )
            if steady[each] < SINGULAR:
                raise self._rounded_leaf(each, t)
            block = np.zeros((len(made) + 1, len(made) + 1))
            block[:-1, :-1], block[-1, -1] = (
                rate * made,
                rate / total[each] if total[each] > 0 else 0.0,
            )
            blocks.append(block)
        places = np.array([each.place for each in own])
        inverse = sparse.csr_array(sparse.block_diag(blocks, format="csr"))
        return LinearTree(
            _features(own, leaf, table), leaf, weights, complete, places, inverse, steady
        )

    def _compare_coefficients(
        self, t: int, tree: LinearTree, left: FloatArray, stated: FloatArray, totals: Totals
    ) -> None:
        """Compare what residuals (N, 1) lead to with the model's weights, values and coefficients (P,) of a tree."""
        weight, recorded = (
            np.bincount(tree.leaf, tree.weights),
            self._trees[t].floats("leaf_weight"),
        )
        self._compare("weight", weight, recorded, WEIGHT_SLACK * totals.weight, t)
        found, added = tree.solved(left)[:, 0], tree.features @ stated
        largest = max(totals.largest, float(np.abs(added).max()))
        slack = self._rule.tolerance * np.abs(stated[tree.values]).max() + ROUNDING * largest
        self._compare("value", found[tree.values], stated[tree.values], slack, t)
        apart = np.abs(tree.features @ found - added)
        worst = int(apart.argmax())
        if apart[worst] > CLOSE * largest:
            leaf = int(tree.leaf[worst])
            if tree.steady[leaf] < UNSTEADY:
                raise self._rounded_leaf(leaf, t)
            what, made = (
                f"step of training row {worst} (from 0)",
                float((tree.features @ found)[worst]),
            )
            raise ExactnessError(what, made, float(added[worst]), self.causes("values"), t, leaf)

    def _rounded_leaf(self, leaf: int, tree: int) -> UnsupportedModelError:
        return UnsupportedModelError(
            "linear_lambda",
            f"{self._penalty:g} with leaf {leaf} of tree {tree}",
            "the features of a leaf are a combination of each other, or nearly so, and rounding decides its coefficients",
            "Fit with a larger linear_lambda, with columns of similar size, or without those that follow from others.",
        )

    def _compare(
        self, what: str, found: NDArray[Any], stated: NDArray[Any], slack: float, tree: int
    ) -> None:
        """Raise for the first leaf whose number is further than ``slack`` from the model's."""
        for leaf in np.flatnonzero(~(np.abs(found - stated) <= slack))[:1]:
            causes = self.causes({"count": "counts", "weight": "weights"}.get(what, "values"))
            raise ExactnessError(
                what, float(found[leaf]), float(stated[leaf]), causes, tree, int(leaf)
            )


def _rounded(left: FloatArray, weights: FloatArray | None) -> FloatArray:
    """(N, 1): residuals that are rounded once more with their weights, as LightGBM rounds them."""
    if weights is None:
        return left
    both = (left[:, 0] * weights).astype(np.float32).astype(np.float64)
    return np.divide(both, weights, out=left[:, 0].copy(), where=weights > 0)[:, None]


def _inverse(matrix: FloatArray) -> tuple[FloatArray, float]:
    """The inverse of a normal matrix (q, q), and its smallest eigenvalue, relative to the largest, once its diagonal is one."""
    if not len(matrix):
        return matrix, 1.0
    diagonal = np.diagonal(matrix)
    if not (diagonal > 0).all():
        return matrix, 0.0
    scale = 1.0 / np.sqrt(diagonal)
    values, vectors = np.linalg.eigh(matrix * scale * scale[:, None])
    if values[0] <= SINGULAR * values[-1]:
        return matrix, 0.0
    return scale[:, None] * ((vectors / values) @ vectors.T) * scale, float(values[0] / values[-1])


def _features(leaves: list[LinearLeaf], leaf: NDArray[np.integer[Any]], table: FloatArray) -> Any:
    """Sparse (n, P): what rows in these leaves multiply the coefficients of a tree by."""
    widest = max(len(own.columns) for own in leaves)
    columns = np.full((len(leaves), widest + 1), -1)
    for row, own in zip(columns, leaves):
        row[: len(own.columns)] = own.columns
    first, place, plain = (
        np.array([getattr(own, name) for own in leaves]) for name in ("first", "place", "plain")
    )
    asked = columns[leaf]
    kept, data = asked >= 0, np.take_along_axis(table, np.maximum(asked, 0), axis=1)
    by_value = plain[leaf] | (kept & np.isnan(data)).any(axis=1)
    places = first[leaf][:, None] + np.arange(widest + 1)
    kept[by_value], kept[by_value, -1], data[by_value, -1] = False, True, 1.0
    places[by_value, -1] = place[leaf[by_value]]
    starts = np.append(0, np.cumsum(kept.sum(axis=1)))
    return sparse.csr_array(
        (data[kept], places[kept], starts), shape=(len(table), int(place[-1]) + 1)
    )
