"""LightGBM's linear_tree: leaves that are ridge regressions of the residuals.

The features of a leaf's regression are those of its branch.

A leaf's coefficients are ``(B'WB + linear_lambda)^-1 B'W r``, B the values of its features in
single precision and a one, which has no penalty (src/treelearner/linear_tree_learner.cpp). Rows
that lack a value of the branch are left out; a row that lacks one of the leaf's features is
predicted by the leaf's plain value, as all rows are in the first tree and in leaves of fewer rows
than coefficients. Where the matrix is singular LightGBM leaves out features, or the one, whose
coefficients are then exactly zero: the model says which, and the others are those of the smaller
regression.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.adapters.boosted_fit import RowGradients
from axil.adapters.contract import FittedSmoother, SmootherModel, Totals, TreeModel
from axil.adapters.lightgbm.draw_replay import LeafEvidence
from axil.adapters.lightgbm.exact import ExactLightGBM
from axil.adapters.lightgbm.rates import stated_rates
from axil.adapters.lightgbm.reading import LightGBMReading
from axil.adapters.lightgbm.text import CATEGORICAL, TreeText
from axil.adapters.linear_steps import LinearSteps, LinearTree
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import AnyArray, FloatArray, LeafArray
from axil.errors import ExactnessError, InputError, UnsupportedModelError
from axil.machine.threads import one_blas_thread

SINGULAR = 1e-13  # of the largest eigenvalue: below, rounding decides the coefficients
UNSTEADY = 1e-8  # likewise: below, rounding may show in predictions
# of the largest target or step: how far the step of a row may be from its leaf's own regression
CLOSE = 1e-7
ROUNDING = 1e-12  # likewise: of sums in float64
WEIGHT_SLACK = 1e-7  # of the weight of all rows


@dataclass(frozen=True)
class LinearLeaf:
    """One leaf of the model."""

    branch: NDArray[np.int64]  #: features on its branch that are numbers
    #: features that it has coefficients of; the last column of all, of ones, where it has a
    #: constant
    columns: NDArray[np.int64]
    coefficients: FloatArray  #: of these
    #: the place of these coefficients in its tree, after which comes that of its value
    first: int
    value: float
    plain: bool  #: whether it has its value for all rows

    @property
    def place(self) -> int:
        """The position of the value of the leaf among the coefficients."""
        return self.first + len(self.columns)

    @property
    def stated(self) -> FloatArray:
        """The stated coefficients and value of the leaf."""
        return np.append(self.coefficients, self.value)


def leaves_of(tree: TreeText, n_features: int) -> list[LinearLeaf]:
    """Return the leaves of a tree of a model with this number of features."""
    values = tree.floats("leaf_value")
    constants = values
    n_slopes = np.zeros(tree.n_leaves, dtype=np.int64)
    if tree.is_linear:
        constants = tree.floats("leaf_const")
        n_slopes = tree.integers("num_features")
    ends = np.cumsum(n_slopes)[:-1]
    features_of_leaves = np.split(tree.integers("leaf_features"), ends)
    slopes_of_leaves = np.split(tree.floats("leaf_coeff"), ends)
    branches = _branches(tree)
    leaves: list[LinearLeaf] = []
    first = 0
    for number, (features, slopes) in enumerate(zip(features_of_leaves, slopes_of_leaves)):
        constant = constants[number]
        is_plain = len(features) == 0 and constant == values[number]
        columns = features.astype(np.int64)
        coefficients = slopes
        if not is_plain and constant != 0.0:
            columns = np.append(columns, n_features)
            coefficients = np.append(coefficients, constant)
        value = float(values[number])
        leaves.append(LinearLeaf(branches[number], columns, coefficients, first, value, is_plain))
        first = leaves[-1].place + 1
    return leaves


def _branches(tree: TreeText) -> list[NDArray[np.int64]]:
    """Return the features that are numbers and on the branch of each leaf."""
    n_leaves = tree.n_leaves
    above: list[frozenset[int]] = [frozenset()] * (2 * n_leaves - 1)
    if n_leaves > 1:
        features = tree.integers("split_feature").tolist()
        is_number = (tree.integers("decision_type") & CATEGORICAL) == 0
        for split, children in enumerate(tree.children):
            below = above[split]
            if is_number[split]:
                below = below | {features[split]}
            for child in children:
                above[child] = below
    return [np.array(sorted(features), dtype=np.int64) for features in above[n_leaves - 1 :]]


class LinearLightGBM(SmootherModel, ExactLightGBM):
    """A LightGBM booster with linear leaves, which is a linear smoother.

    Its features are those of a row in its leaf of each tree.
    """

    def __init__(self, booster: ForeignModel, reading: LightGBMReading):
        super().__init__(booster, reading)
        self._leaves = [leaves_of(tree, self.n_features) for tree in self._trees]
        self._rates = stated_rates(self._trees, self._settings)
        self._penalty = self._settings.precisely("linear_lambda")[0]
        # The rows and weights of the last comparison, and its steps: `smoother` is asked next.
        self._compared: tuple[Any, FloatArray | None, LinearSteps] | None = None
        if self._trees[0].n_leaves > 1 and self._trees[0].shrinkage == "1":  # which hides a base
            self._rates[0] = self._settings.precisely("learning_rate")[0]
        if np.isnan(self._rates).any():
            raise UnsupportedModelError(
                "learning_rate",
                "one for each tree, or known to six digits",
                "axil replays linear leaves if all trees have the same learning rate, known to "
                "the last digit",
                "Fit with one learning rate, and pass the model in memory or pickled.",
            )

    def _table(self, X: FeatureTable) -> FloatArray:
        """Return the numbers, and ones: (n, features + 1)."""
        table = self.table(X)
        if table is None:
            raise InputError(
                "Linear leaves take columns of numbers and categories: pass an array, or a frame "
                "of such columns."
            )
        return np.column_stack([table, np.ones(len(table))]).astype(np.float64, copy=False)

    def coordinates(self, X: FeatureTable, n_threads: int = 1) -> ForeignObject:
        """Return the factors of the coefficients in the predictions, sparse (n, P)."""
        leaf_numbers = TreeModel.coordinates(self, X, n_threads).T
        table = self._table(X)
        ones = sparse.csr_array(np.ones((len(table), 1)))
        features = [_features(*tree, table) for tree in zip(self._leaves, leaf_numbers)]
        return sparse.hstack([ones, *features], format="csr")

    def smoother(self, X: FeatureTable, weights: FloatArray | None) -> FittedSmoother:
        """Return the map from targets to coefficients, tree after tree."""
        compared = self._compared
        self._compared = None
        if compared is not None and compared[0] is X and compared[1] is weights:
            return FittedSmoother(self.coordinates(X), compared[2])
        return FittedSmoother(self.coordinates(X), self._steps(X, weights, None))

    def check_kept(self, X: FeatureTable, targets: FloatArray, weights: FloatArray | None) -> None:
        """Compare every leaf with the model.

        Its rows, their weight, its value and its coefficients must agree.
        """
        self._compared = X, weights, self._steps(X, weights, targets)

    @one_blas_thread()
    def _steps(
        self, X: FeatureTable, weights: FloatArray | None, targets: FloatArray | None
    ) -> LinearSteps:
        """Return the map, from a walk through the fit.

        With targets, every leaf is compared with the model.
        """
        leaf_numbers = TreeModel.coordinates(self, X).T
        table = self._table(X).astype(np.float32).astype(np.float64)
        n_rows = len(table)
        walked_targets = np.zeros((n_rows, 1)) if targets is None else targets
        totals = Totals.of(walked_targets, weights, None)
        base = self._base(float(totals.means[0]), totals, None)
        stated = [np.concatenate([leaf.stated for leaf in leaves]) for leaves in self._leaves]
        stated[0][_places(self._leaves[0])] -= base.hidden
        sampler = self._sampler(self._stated_evidence(stated, n_rows, weights, targets), n_rows)
        row_weights = np.ones(n_rows) if weights is None else weights
        scores = np.full(walked_targets.shape, base.value)
        trees = []
        for t, leaf in enumerate(leaf_numbers):
            residuals = (walked_targets - scores).astype(np.float32).astype(np.float64)
            draws: AnyArray = np.ones(n_rows)
            if sampler is not None:
                (draws,) = sampler.draw(range(t, t + 1), leaf[None], RowGradients(residuals))
            counts = np.bincount(leaf, draws, self._n_leaves[t])
            self._compare("count", counts, self._trees[t].leaf_counts(n_rows), 0.0, t)
            tree = self._tree(t, leaf, table, row_weights * draws)
            if targets is not None and self._n_leaves[t] > 1:
                rounded = _rounded(residuals, weights)
                self._compare_coefficients(t, tree, rounded, stated[t], totals)
            trees.append(tree)
            scores += tree.features @ stated[t][:, None]
        # A first tree without a split holds the mean in any case.
        if self._settings.flag("boost_from_average") or self._n_leaves[0] == 1:
            return LinearSteps(row_weights / row_weights.sum(), trees)
        return LinearSteps(np.zeros(n_rows), trees)

    def _stated_evidence(
        self,
        stated: list[FloatArray],
        n_rows: int,
        weights: FloatArray | None,
        targets: FloatArray | None,
    ) -> LeafEvidence:
        """Return the evidence of leaf values.

        It comes from the coefficients that the model states for each tree.
        """
        values = [
            coefficients[_places(leaves)] for coefficients, leaves in zip(stated, self._leaves)
        ]
        return replace(
            self._evidence(n_rows, weights),
            values=np.concatenate(values),
            rates=self._rates,
            counts_alone=targets is None,
        )

    def _tree(self, t: int, leaf: LeafArray, table: FloatArray, weights: FloatArray) -> LinearTree:
        """Return one tree with its regressions, from each row's leaf (N,) and weight (N,)."""
        leaves = self._leaves[t]
        n_leaves = len(leaves)
        rate = float(self._rates[t])
        totals = np.bincount(leaf, weights, n_leaves)
        totals = totals + self._rule.denominators(self._trees[t])[n_leaves - 1 :]
        is_complete = ~np.array([linear_leaf.plain for linear_leaf in leaves])[leaf]
        steady = np.ones(n_leaves)
        order = np.argsort(leaf, kind="stable")
        rows_of_leaves = np.split(order, np.cumsum(np.bincount(leaf, minlength=n_leaves))[:-1])
        blocks: list[FloatArray] = []
        for number, rows in enumerate(rows_of_leaves):
            linear_leaf = leaves[number]
            is_complete[rows] &= ~np.isnan(table[np.ix_(rows, linear_leaf.branch)]).any(axis=1)
            rows = rows[is_complete[rows]]
            basis = table[np.ix_(rows, linear_leaf.columns)]
            penalty = np.where(linear_leaf.columns < self.n_features, self._penalty, 0.0)
            matrix = (basis * weights[rows, None]).T @ basis + np.diag(penalty)
            inverse, steady[number] = _inverse(matrix)
            if steady[number] < SINGULAR:
                raise self._rounded_leaf(number, t)
            block = np.zeros((len(inverse) + 1, len(inverse) + 1))
            block[:-1, :-1] = rate * inverse
            if totals[number] > 0:
                block[-1, -1] = rate / totals[number]
            blocks.append(block)
        return LinearTree(
            features=_features(leaves, leaf, table),
            leaf=leaf,
            weights=weights,
            complete=is_complete,
            values=_places(leaves),
            inverse=sparse.csr_array(sparse.block_diag(blocks, format="csr")),
            steady=steady,
        )

    def _compare_coefficients(
        self,
        t: int,
        tree: LinearTree,
        residuals: FloatArray,
        stated: FloatArray,
        totals: Totals,
    ) -> None:
        """Compare the coefficients (P,) of a tree that residuals give with those of the model."""
        leaf_weights = np.bincount(tree.leaf, tree.weights)
        stated_weights = self._trees[t].floats("leaf_weight")
        self._compare("weight", leaf_weights, stated_weights, WEIGHT_SLACK * totals.weight, t)
        solved = tree.solved(residuals)[:, 0]
        steps = tree.features @ solved
        stated_steps = tree.features @ stated
        largest = max(totals.largest, float(np.abs(stated_steps).max()))
        slack = self._rule.tolerance * np.abs(stated[tree.values]).max() + ROUNDING * largest
        self._compare("value", solved[tree.values], stated[tree.values], slack, t)
        errors = np.abs(steps - stated_steps)
        worst = int(errors.argmax())
        if errors[worst] <= CLOSE * largest:
            return
        leaf = int(tree.leaf[worst])
        if tree.steady[leaf] < UNSTEADY:
            raise self._rounded_leaf(leaf, t)
        raise ExactnessError(
            f"step of training row {worst} (from 0)",
            float(steps[worst]),
            float(stated_steps[worst]),
            self.causes("values"),
            t,
            leaf,
        )

    def _rounded_leaf(self, leaf: int, tree: int) -> UnsupportedModelError:
        """Return the error for a leaf whose coefficients depend on rounding."""
        return UnsupportedModelError(
            "linear_lambda",
            f"{self._penalty:g} with leaf {leaf} of tree {tree}",
            "the features of a leaf are collinear, or nearly so, and rounding decides its "
            "coefficients",
            "Fit with a larger linear_lambda, with columns of similar size, or without collinear "
            "columns.",
        )

    def _compare(
        self, quantity: str, numbers: AnyArray, stated: AnyArray, slack: float, tree: int
    ) -> None:
        """Raise for the first leaf whose number is further than ``slack`` from the model's.

        Both are (L,).
        """
        for leaf in np.flatnonzero(~(np.abs(numbers - stated) <= slack))[:1]:
            causes = self.causes({"count": "counts", "weight": "weights"}.get(quantity, "values"))
            raise ExactnessError(
                quantity, float(numbers[leaf]), float(stated[leaf]), causes, tree, int(leaf)
            )


def _places(leaves: list[LinearLeaf]) -> NDArray[np.int64]:
    """Return the positions of leaf values among the coefficients of a tree, (L,)."""
    return np.array([leaf.place for leaf in leaves])


def _rounded(residuals: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Return residuals, (N, 1), rounded after the multiplication by weights, as LightGBM does."""
    if weights is None:
        return residuals
    weighted = (residuals[:, 0] * weights).astype(np.float32).astype(np.float64)
    unweighted = residuals[:, 0].copy()
    return np.divide(weighted, weights, out=unweighted, where=weights > 0)[:, None]


def _inverse(matrix: FloatArray) -> tuple[FloatArray, float]:
    """Return the inverse of a normal matrix (q, q), and how far it is from a singular one.

    That is its smallest eigenvalue, relative to the largest, once its diagonal is one.
    """
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


def _features(leaves: list[LinearLeaf], leaf: LeafArray, table: FloatArray) -> ForeignObject:
    """Return the features of rows in these leaves (n,) for a tree's coefficients, sparse (n, P).

    A row has the numbers of its leaf's columns, or a one for the leaf's value where one of these is
    missing.
    """
    most_columns = max(len(linear_leaf.columns) for linear_leaf in leaves)
    columns_of_leaf = np.full((len(leaves), most_columns + 1), -1)
    for columns, linear_leaf in zip(columns_of_leaf, leaves):
        columns[: len(linear_leaf.columns)] = linear_leaf.columns
    first_of_leaf = np.array([linear_leaf.first for linear_leaf in leaves])
    place_of_leaf = _places(leaves)
    is_plain = np.array([linear_leaf.plain for linear_leaf in leaves])
    columns = columns_of_leaf[leaf]
    has_entry = columns >= 0
    entries = np.take_along_axis(table, np.maximum(columns, 0), axis=1)
    places = first_of_leaf[leaf][:, None] + np.arange(most_columns + 1)
    has_value = is_plain[leaf] | (has_entry & np.isnan(entries)).any(axis=1)
    has_entry[has_value] = False
    has_entry[has_value, -1] = True
    entries[has_value, -1] = 1.0
    places[has_value, -1] = place_of_leaf[leaf[has_value]]
    starts = np.append(0, np.cumsum(has_entry.sum(axis=1)))
    n_coefficients = int(place_of_leaf[-1]) + 1
    return sparse.csr_array(
        (entries[has_entry], places[has_entry], starts), shape=(len(table), n_coefficients)
    )
