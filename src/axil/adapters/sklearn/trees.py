"""scikit-learn's trees, forests and bagged trees, regressors and classifiers."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.adapters.boosted_fit import (
    BoostedFit,
    InitialPrediction,
    LeafRule,
    Schedule,
    TreeTable,
    WeightRule,
)
from axil.adapters.contract import Ancestors, Coefficients, Nodes, TrainingRows, TreeModel
from axil.adapters.percentiles import require_rows
from axil.adapters.refusals import refusal, refuse
from axil.adapters.routes import (
    LARGE,
    MOST_LEAVES,
    MOST_THRESHOLDS,
    FeatureTests,
    Routes,
    SplitKind,
    Splits,
    Ways,
    make_routes,
)
from axil.adapters.sklearn.base import SklearnAdapter, require_no_offsets
from axil.adapters.sklearn.draws import (
    BootstrapSampler,
    Indices,
    is_seed,
    sampled_rows,
    with_sampled_rows,
)
from axil.adapters.sklearn.percentile import SklearnPercentile
from axil.adapters.sklearn.refusals import STEPS, TREES
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import AnyArray, FloatArray, IntArray, LeafArray, RealArray
from axil.errors import UnsupportedModelError
from axil.inputs.copies import owned
from axil.inputs.label_classes import LabelClasses
from axil.structure import UNKNOWN, ClassCounts


class TreeStack:
    """Fitted trees, whose leaves are numbered in the order of their nodes.

    Parameters
    ----------
    trees : list of sklearn.tree._tree.Tree
        The trees.
    features : list of arrays, optional
        The columns that each tree looks at. By default it looks at all.
    """

    def __init__(self, trees: list[ForeignObject], features: list[Indices] | None = None):
        self._trees = trees
        self._features = features
        self._leaf_nodes = [np.flatnonzero(tree.children_left == -1) for tree in trees]
        self.n_leaves = np.array([len(nodes) for nodes in self._leaf_nodes], dtype=np.int64)

    def gather(self, name: str) -> AnyArray:
        """Return an array of the trees' nodes at their leaves, tree after tree, (L, ...)."""
        arrays = [getattr(tree, name)[nodes] for tree, nodes in zip(self._trees, self._leaf_nodes)]
        return np.concatenate(arrays)

    def nodes(self, signs: list[FloatArray], factor: float) -> Nodes:
        """Return all nodes.

        Parameters
        ----------
        signs : list of arrays of shape (p,)
            The monotone constraint of each feature, tree by tree.
        factor : float
            How much the value of a node counts in predictions.
        """
        sizes = np.array([tree.node_count for tree in self._trees])
        starts = np.cumsum(sizes) - sizes
        children = []
        values = []
        node_signs = []
        for tree, start, feature_signs in zip(self._trees, starts, signs):
            below = np.stack([tree.children_left, tree.children_right], axis=1)
            is_split = below[:, 0] >= 0
            children.append(np.where(below < 0, -1, below + start))
            values.append(factor * np.where(is_split, tree.value[:, 0, 0], np.nan))
            sign = feature_signs[np.maximum(tree.feature, 0)]
            node_signs.append(np.where(is_split, sign, 0).astype(np.int8))
        return nodes_of_trees(
            sizes, np.concatenate(children), np.concatenate(values), np.concatenate(node_signs)
        )

    @cached_property
    def routes(self) -> Routes | Ways | None:
        """Return the routes of rows: values in float32, left up to the threshold.

        The threshold is a float64 (sklearn/tree/_tree.pyx).
        """
        if (self.n_leaves - 1).mean() > LARGE:
            if self.n_leaves.max() > MOST_LEAVES:
                return None
            return Ways(map(self._node_arrays, range(len(self._trees))))
        return self._routes_of(range(len(self._trees)))

    def feature_tests(self) -> FeatureTests | None:
        """Return the tests of all trees, in as many routes as their thresholds need."""
        if self.n_leaves.max() > MOST_LEAVES:
            return None
        routes = []
        first = 0
        for t in range(1, len(self._trees) + 1):
            if t == len(self._trees) or self.n_leaves[first : t + 1].sum() > MOST_THRESHOLDS:
                routes.append(self._routes_of(range(first, t)))
                first = t
        return FeatureTests([path for path in routes if path is not None])

    def _routes_of(self, trees: range) -> Routes | None:
        """Return the routes through consecutive trees."""
        features = []
        thresholds = []
        kinds = []
        children = []
        for t in trees:
            tree = self._trees[t]
            splits, below = self._splits(t)
            missing_left = tree.missing_go_to_left[splits] != 0
            features.append(self._feature(t)[splits])
            thresholds.append(tree.threshold[splits])
            kinds.append(np.where(missing_left, SplitKind.LEFT, SplitKind.RIGHT))
            children.append(below)
        nodes = Splits(
            starts=np.append(0, np.cumsum(self.n_leaves[trees] - 1)),
            features=np.concatenate(features),
            thresholds=np.concatenate(thresholds),
            kinds=np.concatenate(kinds),
            children=np.concatenate(children),
            outcomes={},
        )
        return make_routes(nodes, single=True, strict=False, zero=-1.0, infinite=True)

    def _splits(self, t: int) -> tuple[IntArray, NDArray[np.int32]]:
        """Return the nodes of tree t that are splits, and their children (S_t, 2).

        A child is the number of a split, or ``~leaf``.
        """
        tree = self._trees[t]
        leaf_nodes = self._leaf_nodes[t]
        splits = np.flatnonzero(tree.children_left >= 0)
        number = np.empty(tree.node_count, dtype=np.int32)
        number[splits] = np.arange(len(splits))
        number[leaf_nodes] = ~np.arange(len(leaf_nodes))
        left_children = number[tree.children_left[splits]]
        right_children = number[tree.children_right[splits]]
        return splits, np.stack([left_children, right_children], axis=1)

    def ancestors(self) -> Ancestors:
        """Return the inner nodes of all trees, as parents of their leaves."""
        return Ancestors.of([self._splits(t)[1] for t in range(len(self._trees))])

    def _feature(self, t: int) -> NDArray[np.int64]:
        """Return the column that each node of tree t looks at, any for leaves, (nodes,)."""
        feature: NDArray[np.int64] = self._trees[t].feature
        if self._features is None:
            return feature
        return self._features[t].astype(np.int64)[np.maximum(feature, 0)]

    def _node_arrays(self, t: int) -> tuple[AnyArray, ...]:
        """Return the nodes of tree t, as `Ways` takes them."""
        tree = self._trees[t]
        return (
            tree.children_left,
            tree.children_right,
            self._feature(t),
            tree.threshold,
            tree.missing_go_to_left,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Return everything except the routes, which are computed again."""
        return {name: value for name, value in vars(self).items() if name != "routes"}

    def leaves(self, rows: FeatureTable) -> NDArray[np.int32]:
        """Return the leaf of each row in each tree, (n, T).

        The rows are an array or csr matrix in float32.
        """
        leaves = np.zeros((len(self._trees), rows.shape[0]), dtype=np.int32)
        if rows.shape[0] == 0:
            return leaves.T
        for t, (tree, leaf_nodes) in enumerate(zip(self._trees, self._leaf_nodes)):
            number = np.zeros(tree.node_count, dtype=np.int32)
            number[leaf_nodes] = np.arange(len(leaf_nodes))
            if self._features is None:
                tree_rows = rows
            else:
                tree_rows = rows[:, self._features[t]]
            leaves[t] = number[tree.apply(tree_rows)]
        return leaves.T

    def fingerprint(self) -> str:
        """Return a digest of splits, leaves and values."""
        digest = hashlib.sha256()
        for t, tree in enumerate(self._trees):
            for name in ("children_left", "children_right", "feature", "threshold", "value"):
                digest.update(np.ascontiguousarray(getattr(tree, name)).tobytes())
            if self._features is not None:
                digest.update(np.asarray(self._features[t], dtype=np.int64).tobytes())
        return digest.hexdigest()


def nodes_of_trees(
    sizes: Indices,
    children: NDArray[np.int64],
    values: FloatArray,
    signs: NDArray[np.int8],
    l2: float = 0.0,
) -> Nodes:
    """Return the nodes of trees of these sizes (T,); leaves are numbered in their order."""
    is_leaf = children[:, 0] < 0
    leaf = np.where(is_leaf, np.cumsum(is_leaf) - 1, -1)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return Nodes(starts, children, leaf, np.full(len(leaf), l2), values, np.zeros(len(leaf)), signs)


class StackAdapter(SklearnAdapter, TreeModel):
    """A model of trees from `sklearn.tree`."""

    def __init__(
        self,
        model: ForeignModel,
        members: list[ForeignObject],
        features: list[Indices] | None = None,
    ):
        super().__init__(model)
        self._stack = TreeStack([member.tree_ for member in members], features)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        """Return the digest of the trees, computed on first use."""
        return self._stack.fingerprint()

    def leaves(self, X: FeatureTable) -> LeafArray:
        """Return the leaf of each row in each tree, (n, T)."""
        return self._stack.leaves(self._rows(X))

    @property
    def routes(self) -> Routes | Ways | None:
        """Return the routes of rows through all trees."""
        return self._stack.routes

    def feature_tests(self) -> FeatureTests | None:
        """Return the tests of all trees."""
        return self._stack.feature_tests()

    def table(self, X: FeatureTable) -> RealArray | None:
        """Return the numbers in float32; zeros of sparse rows are numbers like others."""
        rows = self._rows(X)
        if bool(sparse.issparse(rows)):
            rows = rows.toarray()
        return np.asarray(rows)


class ForestAdapter(StackAdapter):
    """A tree, a forest or bagged trees: the mean over trees of the weighted means in the leaves.

    A classifier's targets are one-hot. Given the weights that class_weight gives the rows, a leaf's
    probabilities are linear in the one-hot targets. Balanced weights are counted again for the rows
    that a deletion leaves.
    """

    def __init__(self, model: ForeignModel):
        is_tree = not hasattr(model, "estimators_")
        if is_tree:
            self._members: list[ForeignObject] = [model]
        else:
            self._members = list(model.estimators_)
        self._is_bagging = hasattr(model, "estimators_features_")
        refuse(TREES, self._members[0])
        if self._is_bagging:
            features = list(model.estimators_features_)
        else:
            features = None
        super().__init__(model, self._members, features)
        self._is_sampled = self._is_bagging or (not is_tree and bool(model.bootstrap))
        # From scikit-learn 1.9 on forests (1.8 on bagging) sample rows with probabilities in
        # proportion to their weights, which then do not enter the leaves. Such models keep the
        # weights.
        self.weights_drawn = self._is_sampled and hasattr(model, "_sample_weight")
        if self._is_sampled:
            self.fitted_rows = int(self._model._n_samples)
            self._bagged = with_sampled_rows(self._model, self._members)
        elif getattr(self._model, "_sample_weight", None) is not None:
            self.fitted_rows = len(self._model._sample_weight)
        self._read_classes(getattr(model, "classes_", None))

    def _read_classes(self, classes: ForeignObject) -> None:
        """Read the outputs: numbers, classes, or the classes of several labels."""
        self.n_outputs = int(self._members[0].n_outputs_)
        if isinstance(classes, list):
            self.label_classes = LabelClasses([owned(np.asarray(names)) for names in classes])
            self.n_outputs = len(self.label_classes.names)
        elif classes is not None:
            self.classes = owned(np.asarray(classes))
            self.n_outputs = len(self.classes)

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return the trees as one entry for all outputs.

        Trees of medians have one entry per output.
        """
        require_no_offsets(rows)
        n_trees = len(self._members)
        row_weights = self._row_weights(rows)
        omega = np.zeros((n_trees + 1, n_trees))
        omega[-1] = 1 / n_trees
        shares = Coefficients(omega, np.zeros(n_trees + 1))
        can_go_on = getattr(self._model, "warm_start", False)
        trees = BoostedFit(
            table=TreeTable(
                n_leaves=self._stack.n_leaves,
                leaf_values=self._finite_values() / n_trees,
                leaf_counts=self._counts(rows, row_weights),
                leaf_weights=self._stack.gather("weighted_n_node_samples"),
            ),
            leaf_rule=LeafRule(
                l2=np.zeros(int(self._stack.n_leaves.sum())),
                nodes=self._nodes(),
                ancestors=self._stack.ancestors(),
            ),
            initial=InitialPrediction(values=np.zeros(self.n_outputs)),
            weights=WeightRule(
                row_weights=row_weights, class_counts=self._class_counts(rows, row_weights)
            ),
            schedule=Schedule.one_by_one(np.full(n_trees, 1 / n_trees), shares),
            sampler=self._sampler(rows) if self._is_sampled else None,
            explain_mismatch=partial(refusal, STEPS) if can_go_on else None,
        )
        if getattr(self._members[0], "criterion", "") == "absolute_error":
            return self._medians(rows, trees)
        return [trees]

    def _medians(self, rows: TrainingRows, trees: BoostedFit) -> list[BoostedFit]:
        """Return one entry per output of trees whose leaf values are medians."""
        require_rows(rows, "criterion", "absolute_error")
        if trees.weights.row_weights is None:
            weights = rows.weights
        else:
            weights = trees.weights.row_weights
        ranks = SklearnPercentile(0.5, weights, by_draws=True, averages=True)
        if self.n_outputs == 1:
            columns = None
        else:
            columns = np.arange(len(self._members))
        return [
            replace(
                trees,
                table=replace(
                    trees.table, leaf_values=trees.table.leaf_values[:, [k]], columns=columns
                ),
                leaf_rule=replace(trees.leaf_rule, ranks=ranks),
                initial=InitialPrediction(values=np.zeros(1)),
            )
            for k in range(self.n_outputs)
        ]

    def _counts(
        self, rows: TrainingRows, row_weights: FloatArray | None
    ) -> NDArray[np.int64] | None:
        """Return the recorded number of rows of each leaf, (L,).

        Trees do not count rows of weight zero, and bagging may have counted a row as often as it
        was sampled.
        """
        if row_weights is None:
            all_positive = rows.totals.lightest > 0
        else:
            all_positive = bool(np.all(row_weights != 0))
        if self._is_bagging or not all_positive:
            return None
        return self._stack.gather("n_node_samples").astype(np.int64)

    def _nodes(self) -> Nodes | None:
        """Return the nodes of trees with monotone constraints.

        Constraints are stated for the second class, and hold reversed for the first. The middle of
        two raw means bounds what is below them, which are bounded themselves
        (sklearn/tree/_tree.pyx), but a constrained split is only made where both are within the
        bounds of their parent.
        """
        constraints = [getattr(member, "monotonic_cst", None) for member in self._members]
        if not any(signs is not None and np.any(signs) for signs in constraints):
            return None
        if self.classes is None:
            direction = 1
        else:
            direction = -1
        signs = []
        for constraint in constraints:
            if constraint is None:
                signs.append(np.zeros(self.n_features))
            else:
                signs.append(direction * np.asarray(constraint, dtype=np.float64))
        return self._stack.nodes(signs, 1 / len(self._members))

    def _finite_values(self) -> FloatArray:
        """Return the leaf values, (L, K); refuse a model that predicts nan."""
        values = self._values()
        if np.isfinite(values).all():
            return values
        raise UnsupportedModelError(
            "sample_weight",
            "0 for all rows that one of its trees sampled",
            "that tree has leaf values of nan, and so has every prediction",
            "Leave the rows of weight 0 out of the fit.",
        )

    def _values(self) -> FloatArray:
        """Return means of targets, or shares of classes, (L, K)."""
        values = self._stack.gather("value")
        if self.label_classes is not None:
            sizes = [len(names) for names in self.label_classes.classes]
            by_label = [values[:, label, :size] for label, size in enumerate(sizes)]
            return np.concatenate(by_label, axis=1)
        if self.classes is None:
            return np.asarray(values[:, :, 0], dtype=np.float64)
        if all(len(member.classes_) == self.n_outputs for member in self._members):
            return np.asarray(values[:, 0, :], dtype=np.float64)
        return self._shares_in_samples()

    def _shares_in_samples(self) -> FloatArray:
        """Return shares of classes, (L, K), if some samples lack some class."""
        shares = np.zeros((int(self._stack.n_leaves.sum()), self.n_outputs))
        start = 0
        for member in self._members:
            member_shares = TreeStack([member.tree_]).gather("value")[:, 0, :]
            end = start + len(member_shares)
            shares[start:end, np.asarray(member.classes_, dtype=np.intp)] = member_shares
            start = end
        return shares

    @property
    def weighs_classes(self) -> bool:  # type: ignore[override]
        """Return whether class_weight counts in the leaves.

        Weights by which rows were sampled are fixed together with the sampled rows.
        """
        return self._class_weight is not None

    @property
    def _class_weight(self) -> ForeignObject:
        """Return the setting class_weight if it counts in the leaves, otherwise None."""
        if self.classes is None and self.label_classes is None:
            return None
        if self._is_bagging:
            model = self._members[0]
        else:
            model = self._model
        setting = getattr(model, "class_weight", None)
        is_drawn_by = self.weights_drawn and not self._is_bagging
        if is_drawn_by and setting != "balanced_subsample":
            return None
        return setting

    @property
    def _balances_samples(self) -> bool:
        """Return whether each tree balances the classes of its own sample."""
        is_forest = self._is_sampled and not self._is_bagging
        return is_forest and self._class_weight == "balanced_subsample"

    @property
    def _stored_weights(self) -> FloatArray | None:
        """Return the weights of the leaves that the model stores, (N,), if it does.

        They include those of classes.
        """
        if self._is_sampled or getattr(self._model, "_sample_weight", None) is None:
            return None
        return np.asarray(self._model._sample_weight, dtype=np.float64)

    def _row_weights(self, rows: TrainingRows) -> FloatArray | None:
        """Return the weights of rows in the leaves, (N,), before their sample counts.

        None stands for their sample weights.
        """
        if self._class_weight is None or self._balances_samples:
            if self.weights_drawn and rows.totals.weighted:
                return np.ones(rows.totals.n_rows)
            return None
        stored = self._stored_weights
        if stored is None:
            return self._class_weights(rows)
        return stored

    def _class_weights(self, rows: TrainingRows) -> FloatArray:
        """Return the sample weight times the class weight of each row, (N,), in a new fit."""
        from sklearn.utils.class_weight import compute_sample_weight

        if isinstance(self._class_weight, str):
            return self._balanced(rows).weights(np.ones(len(rows.targets), dtype=np.bool_))
        factors = compute_sample_weight(self._class_weight, self._labels(rows))
        factors = np.asarray(factors, dtype=np.float64)
        if self.weights_drawn or rows.weights is None:
            return factors
        return rows.weights * factors

    def _labels(self, rows: TrainingRows) -> AnyArray:
        """Return the class of each row as the fit received it: a name, or in bagging a number."""
        if self.label_classes is not None:
            labels = [names.astype(object) for names in self.label_classes.labels(rows.targets)]
            return np.stack(labels, axis=1)
        codes = rows.targets.argmax(axis=1)
        if self._is_bagging or self.classes is None:
            return codes
        return self.classes[codes]

    def _label_codes(self, rows: TrainingRows) -> IntArray:
        """Return the numbers of the rows' classes, (N,), or (N, labels)."""
        if self.label_classes is not None:
            return self.label_classes.codes(rows.targets)
        return rows.targets.argmax(axis=1)

    def _balanced(self, rows: TrainingRows) -> ClassCounts:
        """Return the rule of balanced classes.

        A model that stores the weights counted the classes by the sample weights.
        """
        codes = self._label_codes(rows).reshape(len(rows.targets), -1)
        if self.weights_drawn or rows.weights is None:
            weights = np.ones(len(codes))
        else:
            weights = np.asarray(rows.weights, dtype=np.float64)
        labels = np.ascontiguousarray(codes, dtype=np.int64)
        return ClassCounts(labels, weights, by_weight=self._stored_weights is not None)

    def _class_counts(
        self, rows: TrainingRows, row_weights: FloatArray | None
    ) -> ClassCounts | None:
        """Return the rule from labels to row weights in the leaves; None without class weights."""
        if self._balances_samples:
            return UNKNOWN
        if not isinstance(self._class_weight, str) or row_weights is None:
            return None
        counts = self._balanced(rows)
        if counts.follows(row_weights):
            return counts
        return UNKNOWN

    def counted_weights(self, rows: TrainingRows) -> FloatArray | None:
        """Return the weights of rows (N,) in the leaves of a fit to them.

        None stands for their sample weights.
        """
        if self._class_weight is None or self._balances_samples:
            return rows.weights
        return self._class_weights(rows)

    def _sampler(self, rows: TrainingRows) -> BootstrapSampler:
        """Return the sampler that repeats the samples of the fit."""
        from sklearn.utils.class_weight import compute_sample_weight

        def balanced(bag: Indices) -> FloatArray:
            factors = compute_sample_weight("balanced", self._label_codes(rows), indices=bag)
            return np.asarray(factors, dtype=np.float64)

        is_balanced = (
            not self._is_bagging
            and getattr(self._model, "class_weight", None) == "balanced_subsample"
        )
        sampler = partial(
            BootstrapSampler,
            f"the samples of scikit-learn's {type(self._model).__name__}",
            rows.totals.n_rows,
            lambda: sampled_rows(self._bagged),
            balanced if is_balanced else None,
        )
        seeds: list[ForeignObject] = [
            getattr(member, "random_state", None) for member in self._members
        ]
        are_seeds = all(is_seed(seed) for seed in seeds)
        if self._is_bagging or self._bagged._sample_weight is not None or not are_seeds:
            return sampler()
        return sampler(seeds, int(self._bagged._n_samples_bootstrap))
