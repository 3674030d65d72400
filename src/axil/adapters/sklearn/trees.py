"""scikit-learn's trees, forests and bagged trees, regressors and classifiers; and what boosting shares with them."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from axil.adapters.boosted_fit import BoostedFit, Schedule
from axil.adapters.contract import Ancestors, Coefficients, Defaults, Nodes, TrainingRows, TreeModel
from axil.adapters.estimators import number_of_features
from axil.adapters.frames import as_frame, floats
from axil.adapters.percentiles import require_rows
from axil.adapters.refusals import (
    OTHER_COLUMNS,
    OTHER_ROWS,
    OTHER_TARGETS,
    OTHER_WEIGHTS,
    refusal,
    refuse,
)
from axil.adapters.routes import LARGE, MOST_LEAVES, Routes, SplitKind, Splits, Ways, make_routes
from axil.adapters.sklearn.draws import BootstrapSampler
from axil.adapters.sklearn.percentile import SklearnPercentile
from axil.adapters.sklearn.refusals import STEPS, TREES
from axil.arrays import FloatArray, IntArray
from axil.errors import InputError, UnsupportedModelError, shown
from axil.inputs.copies import owned
from axil.inputs.label_classes import LabelClasses
from axil.structure import UNKNOWN, ClassCounts

Indices = NDArray[np.integer[Any]]


def numbers(X: Any, dtype: DTypeLike) -> Any:
    """Rows of any kind as an array or csr matrix of this type, nulls as nan."""
    if bool(sparse.issparse(X)):
        rows = sparse.csr_matrix(X, dtype=dtype)
        if (
            rows.indices.dtype != np.intc and rows.nnz <= np.iinfo(np.intc).max
        ):  # the only one that trees take
            parts = rows.data, rows.indices.astype(np.intc), rows.indptr.astype(np.intc)
            rows = sparse.csr_matrix(parts, shape=rows.shape)
        return rows
    frame = as_frame(X)
    try:
        if frame is None:
            return np.ascontiguousarray(X, dtype=dtype)
        if frame.implementation.is_pandas():
            if len(X.columns) and all(
                getattr(dtype, "fill_value", None) == 0 for dtype in X.dtypes
            ):  # as check_array does
                return numbers(X.sparse.to_coo(), dtype)
            return np.ascontiguousarray(X.to_numpy(dtype=dtype, na_value=np.nan))
        return np.ascontiguousarray(floats(frame, dtype))
    except Exception as error:  # each library has its own
        raise InputError(
            f"These rows cannot be read as numbers, which this model takes: {shown(error, 300)}"
        ) from error


def bagged_numbers(X: Any) -> Any:
    """Return rows as bagging hands them on: single precision stays, all else is taken in double precision."""
    frame = as_frame(X)
    single = getattr(X, "dtype", None) == np.float32
    if frame is not None:
        single = set(frame.schema.values()) == {nw.Float32}
    return numbers(X, np.float32 if single else np.float64)


class TreeStack:
    """Fitted trees, their leaves numbered from 0 in the order of the nodes and stacked tree after tree."""

    def __init__(self, trees: list[Any], features: list[Indices] | None = None):
        self._trees = trees
        self._features = features
        self._inner = [np.flatnonzero(tree.children_left == -1) for tree in trees]
        self.n_leaves = np.array([len(leaves) for leaves in self._inner], dtype=np.int64)

    def gather(self, *names: str) -> list[NDArray[Any]]:
        """(L, ...) each: arrays of the trees' nodes, at their leaves."""
        found = [
            [getattr(tree, name)[leaves] for name in names]
            for tree, leaves in zip(self._trees, self._inner)
        ]
        return [np.concatenate(parts) for parts in zip(*found)]

    def nodes(self, signs: list[FloatArray], factor: float) -> Nodes:
        """All nodes, whose values count ``factor``; ``signs`` has the constraint of each feature, tree by tree."""
        sizes = np.array([tree.node_count for tree in self._trees])
        children, values, found = [], [], []
        for tree, start, own in zip(self._trees, np.cumsum(sizes) - sizes, signs):
            below = np.stack([tree.children_left, tree.children_right], axis=1)
            inner = below[:, 0] >= 0
            children.append(np.where(below < 0, -1, below + start))
            values.append(factor * np.where(inner, tree.value[:, 0, 0], np.nan))
            found.append(np.where(inner, own[np.maximum(tree.feature, 0)], 0).astype(np.int8))
        return stacked(
            sizes, np.concatenate(children), np.concatenate(values), np.concatenate(found)
        )

    @cached_property
    def routes(self) -> Routes | Ways | None:
        """Values in float32, left up to the threshold, which is a float64 (sklearn/tree/_tree.pyx)."""
        if (self.n_leaves - 1).mean() > LARGE:
            return (
                None
                if self.n_leaves.max() > MOST_LEAVES
                else Ways(map(self._way, range(len(self._trees))))
            )
        parts = []
        for t, tree in enumerate(self._trees):
            splits, below = self._splits(t)
            feature = self._feature(t)[splits]
            kinds = np.where(tree.missing_go_to_left[splits] != 0, SplitKind.LEFT, SplitKind.RIGHT)
            parts.append((feature, tree.threshold[splits], kinds, below))
        features, thresholds, kinds, children = (np.concatenate(part) for part in zip(*parts))
        starts = np.append(0, np.cumsum(self.n_leaves - 1))
        own = Splits(starts, features, thresholds, kinds, children, {})
        return make_routes(own, single=True, strict=False, zero=-1.0, infinite=True)

    def _splits(self, t: int) -> tuple[IntArray, NDArray[np.int32]]:
        """Return the nodes of tree t that are splits, and their children (S_t, 2): splits, or ``~leaf``."""
        tree, leaves = self._trees[t], self._inner[t]
        left = tree.children_left
        splits = np.flatnonzero(left >= 0)
        number = np.empty(len(left), dtype=np.int32)
        number[splits] = np.arange(len(splits))
        number[leaves] = ~np.arange(len(leaves))
        return splits, np.stack([number[left[splits]], number[tree.children_right[splits]]], axis=1)

    def ancestors(self) -> Ancestors:
        """Return the inner nodes of all trees, as parents of their leaves."""
        return Ancestors.of([self._splits(t)[1] for t in range(len(self._trees))])

    def _feature(self, t: int) -> NDArray[np.int64]:
        """(nodes,): the column that each node of tree t looks at; any for leaves."""
        own: NDArray[np.int64] = self._trees[t].feature
        return (
            own
            if self._features is None
            else self._features[t].astype(np.int64)[np.maximum(own, 0)]
        )

    def _way(self, t: int) -> tuple[NDArray[Any], ...]:
        """The nodes of tree t, as `Ways` takes them."""
        tree = self._trees[t]
        return (
            tree.children_left,
            tree.children_right,
            self._feature(t),
            tree.threshold,
            tree.missing_go_to_left,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the routes, which are made again."""
        return {name: value for name, value in vars(self).items() if name != "routes"}

    def leaves(self, rows: Any) -> NDArray[np.int32]:
        """(n, T): which leaf of each tree the rows, an array or csr matrix in float32, fall into."""
        found = np.empty((len(self._trees), rows.shape[0]), dtype=np.int32)
        for t, (tree, inner) in enumerate(zip(self._trees, self._inner)):
            number = np.zeros(tree.node_count, dtype=np.int32)
            number[inner] = np.arange(len(inner))
            own = rows if self._features is None else rows[:, self._features[t]]
            found[t] = number[tree.apply(own)] if rows.shape[0] else 0
        return found.T

    def fingerprint(self) -> str:
        """Digest of splits, leaves and values."""
        digest = hashlib.sha256()
        for t, tree in enumerate(self._trees):
            for name in ("children_left", "children_right", "feature", "threshold", "value"):
                digest.update(np.ascontiguousarray(getattr(tree, name)).tobytes())
            if self._features is not None:
                digest.update(np.asarray(self._features[t], dtype=np.int64).tobytes())
        return digest.hexdigest()


def stacked(
    sizes: Indices,
    children: NDArray[np.int64],
    values: FloatArray,
    signs: NDArray[np.int8],
    l2: float = 0.0,
) -> Nodes:
    """The nodes of trees of these sizes (T,), their leaves numbered in the order of the nodes."""
    ends = children[:, 0] < 0
    leaf = np.where(ends, np.cumsum(ends) - 1, -1)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return Nodes(starts, children, leaf, np.full(len(leaf), l2), values, np.zeros(len(leaf)), signs)


class SklearnAdapter(Defaults):
    """Base of all adapters of scikit-learn's models.

    Its trees look at the features in float32 and at targets and weights in float64: nothing is rounded on the way from
    targets to predictions, so that exact weights meet predictions to the rounding of sums over many rows, 1e-9.
    A leaf is a mean of its own rows, summed row after row: for a million of them the order of summation shows as 1e-13
    of the largest, so leaves are held to 1e-12.
    """

    library = "scikit-learn"
    residual_precision: type[np.floating[Any]] = np.float64
    score_precision: type[np.floating[Any]] = np.float64
    tolerance = 1e-9
    leaf_tolerance = 1e-12
    fingerprint: str

    def __init__(self, model: Any):
        self.n_features = number_of_features(model)
        names = getattr(model, "feature_names_in_", None)
        self.feature_names: list[str] | None = (
            None if names is None else [str(name) for name in names]
        )
        # Rows reach the model as an array, so it must not look for names: it would warn.
        self._model = as_it_is(model)
        vars(self._model).pop("feature_names_in_", None)

    @property
    def model(self) -> Any:
        """The adapter's own copy of the model, which takes rows as arrays, without names."""
        return self._model

    def predictions(self, X: Any) -> FloatArray:
        """(n, K): what ``predict`` gives, ``predict_proba`` for classes."""
        return self._predicted(self._model, self._rows(X))

    def _predicted(self, model: Any, rows: Any) -> FloatArray:
        """(n, K): what this model predicts for rows as it takes them."""
        if self.label_classes is not None:
            return np.concatenate(model.predict_proba(rows), axis=1)
        predict = model.predict if self.classes is None else model.predict_proba
        found = np.asarray(predict(rows), dtype=np.float64)
        return found.reshape(rows.shape[0], self.n_outputs)

    def _rows(self, X: Any) -> Any:
        return numbers(X, np.float32)

    def causes(self, what: str) -> str:
        """The most likely reason for a disagreement in "counts", "weights" or "values"."""
        return "\n".join(_CAUSES.get(what, _CAUSES["values"]))


def as_it_is(model: Any) -> Any:
    """The model, safe from a later fit of it, also one that goes on from this (warm_start, partial_fit).

    What it has learnt is copied, as it may be kept in the user's own arrays (neighbours). Of trees only the lists are: trees are
    large, and no fit changes one; where someone does, predictions show it.
    """
    kept = copy.copy(model)
    trees = (
        hasattr(model, "estimators_") or hasattr(model, "_predictors") or hasattr(model, "tree_")
    )
    for name, value in vars(model).items():
        if name in ("estimators_", "_predictors"):
            setattr(kept, name, copy.copy(value))
        elif (
            not trees and (name.startswith("_") or name.endswith("_")) and name != "L_"
        ):  # of processes: predicts no mean
            setattr(kept, name, copy.deepcopy(value))
    return kept


def no_offsets(rows: TrainingRows) -> None:
    """scikit-learn's models start from no prediction of the caller's."""
    if rows.totals.offset:
        raise InputError("scikit-learn's models take no offsets (init_score): leave them out.")


class StackAdapter(SklearnAdapter, TreeModel):
    """A model whose trees are those of `sklearn.tree`."""

    def __init__(self, model: Any, members: list[Any], features: list[Indices] | None = None):
        super().__init__(model)
        self._stack = TreeStack([member.tree_ for member in members], features)

    @cached_property
    def fingerprint(self) -> str:  # type: ignore[override]
        """Digest of the trees, made where it is asked for."""
        return self._stack.fingerprint()

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        """(n, T): which leaf of each tree every row falls into."""
        return self._stack.leaves(self._rows(X))

    @property
    def routes(self) -> Routes | Ways | None:
        """The way of a row through every tree."""
        return self._stack.routes

    def table(self, X: Any) -> NDArray[np.floating[Any]] | None:
        """The numbers in float32; of sparse rows zeros are numbers like others."""
        rows = self._rows(X)
        return np.asarray(rows.toarray() if bool(sparse.issparse(rows)) else rows)


class ForestAdapter(StackAdapter):
    """A tree, a forest or bagged trees: the mean over trees of the weighted mean of the targets in a leaf.

    A classifier's targets are one-hot. Given the weights that class_weight gives the rows, a leaf's probabilities are linear in
    the one-hot targets. Balanced weights are counted again for the rows that a deletion leaves.
    """

    def __init__(self, model: Any):
        single = not hasattr(model, "estimators_")
        self._members: list[Any] = [model] if single else list(model.estimators_)
        self._bagging = hasattr(model, "estimators_features_")
        refuse(TREES, self._members[0])
        features = list(model.estimators_features_) if self._bagging else None
        super().__init__(model, self._members, features)
        self._sampled = self._bagging or (not single and bool(model.bootstrap))
        # From scikit-learn 1.9 on forests (1.8 on bagging) draw rows with probabilities in proportion to their weights,
        # which then do not enter the leaves. Such models keep the weights.
        self.weights_drawn = self._sampled and hasattr(model, "_sample_weight")
        if self._sampled:
            self.fitted_rows = int(self._model._n_samples)
        elif getattr(self._model, "_sample_weight", None) is not None:
            self.fitted_rows = len(self._model._sample_weight)
        if self._sampled:
            self._bagged = with_bags(self._model, self._members)
        classes = getattr(model, "classes_", None)
        self.n_outputs = int(self._members[0].n_outputs_)
        if isinstance(classes, list):
            self.label_classes = LabelClasses([owned(np.asarray(own)) for own in classes])
            self.n_outputs = len(self.label_classes.names)
        elif classes is not None:
            self.classes = owned(np.asarray(classes))
            self.n_outputs = len(self.classes)

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """The trees, all outputs together."""
        no_offsets(rows)
        n_trees = len(self._members)
        row_weights = self._row_weights(rows)
        # Trees do not count rows of weight zero, and bagging may have counted a row as often as it was drawn.
        positive = (
            rows.totals.lightest > 0 if row_weights is None else bool(np.all(row_weights != 0))
        )
        counted = positive and not self._bagging
        omega = np.zeros((n_trees + 1, n_trees))
        omega[-1] = 1 / n_trees
        samples, weights = self._stack.gather("n_node_samples", "weighted_n_node_samples")
        trees = BoostedFit(
            n_leaves=self._stack.n_leaves,
            leaf_values=self._values() / n_trees,
            leaf_counts=samples.astype(np.int64) if counted else None,
            leaf_weights=weights,
            l2=np.zeros(int(self._stack.n_leaves.sum())),
            schedule=Schedule.one_by_one(
                np.full(n_trees, 1 / n_trees), Coefficients(omega, np.zeros(n_trees + 1))
            ),
            base=np.zeros(self.n_outputs),
            base_value=np.zeros(self.n_outputs),
            row_weights=row_weights,
            class_counts=self._class_counts(rows, row_weights),
            sampler=self._sampler(rows) if self._sampled else None,
            explain_mismatch=partial(refusal, STEPS)
            if getattr(self._model, "warm_start", False)
            else None,
            nodes=self._nodes(),
            ancestors=self._stack.ancestors(),
        )
        if getattr(self._members[0], "criterion", "") != "absolute_error":
            return [trees]
        require_rows(rows, "criterion", "absolute_error")
        ranks = SklearnPercentile(
            0.5, rows.weights if row_weights is None else row_weights, by_draws=True, averages=True
        )
        columns = None if self.n_outputs == 1 else np.arange(n_trees)
        one = replace(trees, ranks=ranks, columns=columns, base=np.zeros(1), base_value=np.zeros(1))
        return [replace(one, leaf_values=trees.leaf_values[:, [k]]) for k in range(self.n_outputs)]

    def _nodes(self) -> Nodes | None:
        """The nodes of trees with monotone constraints; these are stated for the second class, and hold reversed for the first.

        The middle of two raw means bounds what is below them, which are bounded themselves (sklearn/tree/_tree.pyx), but a
        constrained split is only made where both are within the bounds of their parent.
        """
        signs = [getattr(member, "monotonic_cst", None) for member in self._members]
        if not any(own is not None and np.any(own) for own in signs):
            return None
        zeros = np.zeros(self.n_features)
        way = 1 if self.classes is None else -1
        given = [zeros if own is None else way * np.asarray(own, dtype=np.float64) for own in signs]
        return self._stack.nodes(given, 1 / len(self._members))

    def _values(self) -> FloatArray:
        """(L, K): means of targets, or shares of classes."""
        if self.label_classes is not None:
            values = self._stack.gather("value")[0]
            sizes = [len(own) for own in self.label_classes.classes]
            return np.concatenate(
                [values[:, label, :size] for label, size in enumerate(sizes)], axis=1
            )
        if self.classes is None:
            return np.asarray(self._stack.gather("value")[0][:, :, 0], dtype=np.float64)
        if all(len(member.classes_) == self.n_outputs for member in self._members):
            return np.asarray(self._stack.gather("value")[0][:, 0, :], dtype=np.float64)
        values = np.zeros((int(self._stack.n_leaves.sum()), self.n_outputs))
        start = 0
        for member in self._members:  # fitted on a bag that some class is not in
            own = TreeStack([member.tree_]).gather("value")[0][:, 0, :]
            values[start : start + len(own), np.asarray(member.classes_, dtype=np.intp)] = own
            start += len(own)
        return values

    @property
    def weighs_classes(self) -> bool:  # type: ignore[override]
        """Whether class_weight counts in the leaves; weights that rows were drawn by are held fixed with the draws."""
        return self._class_weight is not None

    @property
    def _class_weight(self) -> Any:
        """The setting class_weight as far as it counts in the leaves; None: it does not."""
        setting = getattr(self._members[0] if self._bagging else self._model, "class_weight", None)
        if self.classes is None and self.label_classes is None:
            return None
        is_drawn_by = self.weights_drawn and not self._bagging
        return None if is_drawn_by and setting != "balanced_subsample" else setting

    @property
    def _balances_bags(self) -> bool:
        """Whether each tree balances the classes of its own bag."""
        return self._sampled and not self._bagging and self._class_weight == "balanced_subsample"

    @property
    def _kept_weights(self) -> FloatArray | None:
        """(N,): the weights of the leaves that the model keeps, those of classes included; None: it keeps none."""
        kept = None if self._sampled else getattr(self._model, "_sample_weight", None)
        return None if kept is None else np.asarray(kept, dtype=np.float64)

    def _row_weights(self, rows: TrainingRows) -> FloatArray | None:
        """(N,): what rows count in the leaves, times how often they are drawn; None: their sample weights."""
        ones = np.ones(rows.totals.n_rows) if self.weights_drawn and rows.totals.weighted else None
        if self._class_weight is None or self._balances_bags:
            return ones
        kept = self._kept_weights
        return self._weighed_classes(rows) if kept is None else kept

    def _weighed_classes(self, rows: TrainingRows) -> FloatArray:
        """Return the weights (N,) of the rows with those of their classes, as a fit to these rows makes them."""
        from sklearn.utils.class_weight import compute_sample_weight

        if isinstance(self._class_weight, str):
            return self._balanced(rows).weights(np.ones(len(rows.targets), dtype=np.bool_))
        if self.label_classes is not None:
            labels = np.stack(
                [own.astype(object) for own in self.label_classes.labels(rows.targets)], axis=1
            )
        else:
            codes = rows.targets.argmax(axis=1)
            labels = codes if self._bagging or self.classes is None else self.classes[codes]
        factors = np.asarray(compute_sample_weight(self._class_weight, labels), dtype=np.float64)
        weights = None if self.weights_drawn else rows.weights
        return factors if weights is None else weights * factors

    def _balanced(self, rows: TrainingRows) -> ClassCounts:
        """Return the rule of balanced classes; one that keeps the weights counts classes by the sample weights."""
        labels = rows.targets.argmax(axis=1)[:, None]
        if self.label_classes is not None:
            labels = self.label_classes.codes(rows.targets)
        labels = np.ascontiguousarray(labels, dtype=np.int64)
        own = None if self.weights_drawn else rows.weights
        own = np.ones(len(labels)) if own is None else np.asarray(own, dtype=np.float64)
        return ClassCounts(labels, own, by_weight=self._kept_weights is not None)

    def _class_counts(
        self, rows: TrainingRows, row_weights: FloatArray | None
    ) -> ClassCounts | None:
        """Return how the weights of the leaves follow from the labels; None: they do not."""
        if self._balances_bags:
            return UNKNOWN
        if not isinstance(self._class_weight, str) or row_weights is None:
            return None
        counts = self._balanced(rows)
        return counts if counts.follows(row_weights) else UNKNOWN

    def counted_weights(self, rows: TrainingRows) -> FloatArray | None:
        """Return what rows (N,) count in the leaves of a fit to them; None: their sample weights."""
        if self._class_weight is None or self._balances_bags:
            return rows.weights
        return self._weighed_classes(rows)

    def _sampler(self, rows: TrainingRows) -> BootstrapSampler:
        from sklearn.utils.class_weight import compute_sample_weight

        def balanced(bag: Indices) -> FloatArray:
            codes = rows.targets.argmax(axis=1)
            if self.label_classes is not None:
                codes = self.label_classes.codes(rows.targets)
            return np.asarray(
                compute_sample_weight("balanced", codes, indices=bag), dtype=np.float64
            )

        by_bag = (
            not self._bagging and getattr(self._model, "class_weight", None) == "balanced_subsample"
        )
        name = f"the bags of scikit-learn's {type(self._model).__name__}"
        given = name, rows.totals.n_rows, lambda: bags(self._bagged), balanced if by_bag else None
        seeds: list[Any] = [getattr(member, "random_state", None) for member in self._members]
        if self._bagging or self._bagged._sample_weight is not None or not all(map(is_seed, seeds)):
            return BootstrapSampler(*given)
        return BootstrapSampler(*given, seeds, int(self._bagged._n_samples_bootstrap))


def bags_trees(model: Any) -> bool:
    """Whether a fitted model of bagging has trees for members; a subclass of them may fit something else."""
    kinds = {kind.__name__ for kind in type(model.estimators_[0]).__mro__}
    trees = all(hasattr(member, "tree_") for member in model.estimators_)
    return trees and bool(kinds & {"DecisionTreeRegressor", "DecisionTreeClassifier"})


def is_seed(state: Any) -> bool:
    """Whether a random state is a number that starts NumPy's generator."""
    return isinstance(state, int) and 0 <= state < 1 << 32


def bags(model: Any) -> Iterator[Indices]:
    """The rows of each tree in turn, as ``estimators_samples_`` lists them, which would hold all at once."""
    for drawn in model._get_estimators_indices():
        yield drawn[1] if isinstance(drawn, tuple) else drawn


def with_bags(model: Any, members: list[Any]) -> Any:
    """The model as its bags can be drawn from it again."""
    if not hasattr(model, "_sample_weight"):  # pickled before the version that keeps it
        model = copy.copy(model)
        model._sample_weight = None
    if len(getattr(model, "_seeds", members)) == len(members):
        return model
    # Bagging with warm_start remembers the seeds of its last fit only; one stream gave all of them.
    if not isinstance(model.random_state, (int, np.integer)):
        raise UnsupportedModelError(
            "warm_start",
            "True",
            "linear in the targets, but which rows its first trees were fitted on cannot be drawn again",
            "Fit all trees at once, or with an integer random_state.",
        )
    model = copy.copy(model)
    stream = np.random.RandomState(model.random_state)
    model._seeds = stream.randint(np.iinfo(np.int32).max, size=len(members))
    return model


_CAUSES = {
    "counts": (
        OTHER_ROWS,
        OTHER_COLUMNS,
        "Settings were changed after the fit or between two fits with warm_start.",
        "There are missing values and the model was fitted before scikit-learn 1.8, whose trees could split such rows otherwise "
        "than they predict: fit again.",
    ),
    "weights": (OTHER_WEIGHTS,),
    "values": (
        OTHER_TARGETS,
        "sample_weight is not what the fit was given.",
        "The model was changed after its fit, or fitted in parts with other data or settings (warm_start).",
    ),
}
