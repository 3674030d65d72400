"""scikit-learn's gradient boosting: fits by stages and by histograms, of any loss."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from functools import cached_property

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
from axil.adapters.class_weights import with_class_weight_advice
from axil.adapters.contract import Kind, Nodes, Rounding, TrainingRows, TreeModel
from axil.adapters.frames import as_frame, as_pandas, word_columns
from axil.adapters.percentiles import require_rows, with_initial_tree
from axil.adapters.refusals import Refusal, first_of, kind_of, refusal, refuse
from axil.adapters.routes import FeatureTests, Routes, SplitKind, Splits, make_routes
from axil.adapters.searches import kinds_of
from axil.adapters.sklearn.base import (
    SklearnAdapter,
    numbers,
    protected_copy,
    require_no_offsets,
)
from axil.adapters.sklearn.draws import Indices, StageSampler, training_rows
from axil.adapters.sklearn.loss import (
    EARLY_STOPPING,
    GRADIENT_LOSSES,
    GRADIENT_STAGES,
    MIN_MEAN_HESSIAN,
    histogram_loss,
    label_numbers,
    stage_loss,
)
from axil.adapters.sklearn.percentile import (
    PERCENTILES,
    SklearnHuber,
    SklearnPercentile,
    share_below,
)
from axil.adapters.sklearn.refusals import CLASSES, DRAWS, LOSSES, STAGES, fits_init
from axil.adapters.sklearn.trees import StackAdapter, nodes_of_trees
from axil.aliases import FeatureTable, ForeignModel
from axil.arrays import AnyArray, BoolArray, FloatArray, LeafArray, RealArray
from axil.errors import InputError, UnsupportedModelError
from axil.inputs.libraries import needed_pandas

#: What scikit-learn adds to hessians against division by zero (compute_node_value,
#: sklearn/ensemble/_hist_gradient_boosting/splitting.pyx).
SMALLEST_L2 = 1e-15


def _kind_of(
    model: ForeignModel,
    for_weights: tuple[Refusal[ForeignModel], ...],
    for_gradients: tuple[Refusal[ForeignModel], ...],
    by_gradients: bool,
) -> tuple[Kind, UnsupportedModelError | None]:
    """Return the kind of a boosted model, and why it has no exact weights.

    A classifier has none.
    """
    name = next((name for name in kinds_of(model) if name in CLASSES), None)
    if name is None or by_gradients:
        return kind_of(model, for_weights, for_gradients, by_gradients)
    refuse(for_gradients, model)
    return Kind.ADDITIVE, CLASSES[name].error(name)


class GradientBoostingAdapter(StackAdapter):
    """GradientBoostingRegressor and GradientBoostingClassifier.

    Leaf values are weighted means of residuals, or Newton steps. All numbers are in float64.
    scikit-learn multiplies leaf values by the learning rate when it makes predictions.
    """

    gradient_tolerance = 1e-7  # of leaves whose second derivatives nearly vanish

    def __init__(self, model: ForeignModel, by_gradients: bool = False):
        kind, not_exact = _kind_of(model, STAGES, GRADIENT_STAGES, by_gradients)
        super().__init__(model, [*model.estimators_.ravel()])
        self.kind = kind
        self.not_exact = not_exact
        self.refused_draws = refusal(DRAWS, model)
        self.classes = getattr(model, "classes_", None)
        self.n_outputs = model.estimators_.shape[1]
        self.has_initial_tree = model.loss in PERCENTILES
        self._loss = stage_loss(model, self.n_outputs)
        start = self._initial().values
        content = f"{self.fingerprint} {float(model.learning_rate)!r} {start.tolist()!r}"
        self.fingerprint = hashlib.sha256(content.encode()).hexdigest()

    @property
    def single_output_setting(self) -> str:
        """Return early stopping, which holds out rows of each class."""
        if self.classes is not None and self._model.n_iter_no_change is not None:
            return EARLY_STOPPING
        return ""

    def scores(self, X: FeatureTable) -> FloatArray:
        """Return the raw scores, (n, K)."""
        rows = self._rows(X)
        if self.classes is None:
            scores = self._model.predict(rows)
        else:
            scores = self._model.decision_function(rows)
        return np.asarray(scores, dtype=np.float64).reshape(X.shape[0], self.n_outputs)

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return the trees as one entry; percentiles have the initial prediction as first tree.

        Rows that early stopping held out, and the rows of each stage, are sampled again.
        """
        require_no_offsets(rows)
        stages = self._stages(rows)
        if not self.has_initial_tree:
            return [stages]
        require_rows(rows, "loss", self._model.loss)
        percentile: float | None = float(stages.initial.values[0])
        if getattr(self._model.init_, "strategy", "constant") == "constant":
            percentile = None
        ranks = self._huber(rows) if self._model.loss == "huber" else self._percentile(rows)
        return [with_initial_tree(stages, ranks, rows, percentile, 0.0)]

    def _percentile(self, rows: TrainingRows) -> SklearnPercentile:
        return SklearnPercentile(share_below(self._model), rows.weights, weighs_leaves=True)

    def _huber(self, rows: TrainingRows) -> SklearnHuber:
        if not rows.totals.even:
            raise UnsupportedModelError(
                "sample_weight",
                "given with loss=huber",
                "axil keeps the set of clipped residuals fixed only if all rows have the same "
                "weight",
                "Fit without sample_weight, or with loss='absolute_error' or 'squared_error'.",
            )
        return SklearnHuber(
            0.5,
            rows.weights,
            weighs_leaves=True,
            quantile=100 * float(self._model.alpha) / 100,
            sampled=self._model.subsample < 1,
        )

    def kept_rows(self, n_rows: int, labels: FloatArray | None = None) -> Indices | None:
        """Return the rows that early stopping did not hold out, in the order of the fit.

        None stands for all rows. Early stopping splits classes (N,) evenly.
        """
        model = self._model
        if model.n_iter_no_change is None:
            return None
        return training_rows(n_rows, model.validation_fraction, int(model.random_state), labels)

    def _initial(self) -> InitialPrediction:
        """Return the initial prediction."""
        init = self._model.init_
        if isinstance(init, str):  # "zero"
            return InitialPrediction(np.zeros(self.n_outputs))
        if self.classes is None and fits_init(self._model):
            return InitialPrediction(np.zeros(self.n_outputs))
        if self.classes is None:
            values = np.asarray(init.constant_, dtype=np.float64).reshape(1)
            return InitialPrediction(values, follows_targets=init.strategy == "mean")
        shares = np.asarray(init.class_prior_, dtype=np.float64)
        if self.n_outputs == 1:
            shares = shares[1:]
        return InitialPrediction(self._loss.link(shares), follows_targets=True)

    def _stages(self, rows: TrainingRows) -> BoostedFit:
        """Return the trees of all stages."""
        model = self._model
        n_rows = rows.totals.n_rows
        n_leaves = self._stack.n_leaves
        rate = float(model.learning_rate)
        labels = None
        if self.classes is not None:
            labels = label_numbers(rows.targets)
        fitted = self.kept_rows(n_rows, labels)
        sampler = None
        if model.subsample < 1 and self.refused_draws is None:
            seed = int(model.random_state)
            sampler = StageSampler(n_rows, fitted, float(model.subsample), seed, self.n_outputs)
        leaf_counts = None
        if rows.totals.lightest > 0:  # trees do not count rows of weight zero
            leaf_counts = self._stack.gather("n_node_samples").astype(np.int64)
        step = rate
        if self.n_outputs > 1:  # a softmax leaf is (K - 1) / K of its Newton step
            step = rate * ((self.n_outputs - 1) / self.n_outputs)
        return BoostedFit(
            table=TreeTable(
                n_leaves=n_leaves,
                leaf_values=rate * self._stack.gather("value")[:, :, 0],
                leaf_counts=leaf_counts,
                leaf_weights=self._stack.gather("weighted_n_node_samples"),
            ),
            leaf_rule=LeafRule(
                l2=np.zeros(int(n_leaves.sum())),
                min_hessian=MIN_MEAN_HESSIAN * rows.totals.weight,
            ),
            schedule=Schedule.in_stages(np.full(len(n_leaves), step), self.n_outputs),
            initial=self._initial(),
            loss=self._loss,
            weights=WeightRule(held_out=all_but(fitted, n_rows)),
            sampler=sampler,
        )


class StagesAfterInit(GradientBoostingAdapter):
    """The trees of gradient boosting whose offsets are the predictions of another model, init."""

    def __init__(self, model: ForeignModel):
        super().__init__(model)
        # It is the user's own: scikit-learn fits it without a copy.
        self._model.init_ = copy.deepcopy(model.init_)

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return the trees, which add to the predictions of init."""
        return [self._stages(rows)]

    def predictions(self, X: FeatureTable) -> FloatArray:
        """Return the sum of the trees, which adds to the predictions of init, (n, 1)."""
        predicted = self._model.init_.predict(self._rows(X))
        initial = np.asarray(predicted, dtype=np.float64).reshape(-1, 1)
        return np.asarray(super().predictions(X) - initial)

    def whole(self, X: FeatureTable) -> FloatArray:
        """Return the predictions of ``predict``, (n, 1)."""
        return super().predictions(X)


class HistGradientBoostingAdapter(SklearnAdapter, TreeModel):
    """HistGradientBoostingRegressor and HistGradientBoostingClassifier.

    Features are binned, and gradients are in float32 (G_H_DTYPE). Sums and predictions are in
    float64. The rounding of residuals is no linear function of the targets, so exact weights meet
    predictions to single precision. A replay that rounds residuals in the same way meets the leaves
    of an unweighted fit, up to what the subtraction of histograms loses: 1e-12 for leaves of one
    row among 300,000. With weights scikit-learn rounds each weight, and its product with the
    residual once, where a replay rounds twice: four roundings of 6e-8 in all.
    """

    rounding = Rounding(residuals=np.float32)
    tolerance = 1e-6
    gradient_tolerance = 2e-6
    unseen = "scikit-learn takes such a value for a missing one."

    def __init__(self, model: ForeignModel, by_gradients: bool = False, leaves_only: bool = False):
        if not leaves_only:
            self.kind, self.not_exact = _kind_of(model, LOSSES, GRADIENT_LOSSES, by_gradients)
        super().__init__(model)
        self.classes = getattr(model, "classes_", None)
        # by the numbers of the classes, not by their names
        self.class_weight = getattr(model, "class_weight", None)
        self.n_outputs = int(model.n_trees_per_iteration_)
        if getattr(model, "_fitted_with_sw", False):
            self.leaf_tolerance = 3e-7
        else:
            self.leaf_tolerance = 1e-10
        self.has_initial_tree = model.loss in PERCENTILES and not leaves_only
        if self.has_initial_tree:  # percentiles of residuals that are not rounded
            self.rounding = Rounding()
            self.tolerance = 1e-9
            self.leaf_tolerance = 1e-10
        self.takes_text = model._preprocessor is not None
        if self.takes_text:  # what encodes the categories finds its columns by name
            self._model = protected_copy(model)
        self._predictors = [tree for iteration in model._predictors for tree in iteration]
        self._leaf_nodes = [np.flatnonzero(tree.nodes["is_leaf"]) for tree in self._predictors]
        self.fingerprint = self._digest()

    @property
    def single_output_setting(self) -> str:
        """Return early stopping, whose seed differs from output to output, or monotone constraints.

        It is empty for a model that has neither.
        """
        model = self._model
        splits_rows = model.do_early_stopping_ and model.validation_fraction is not None
        draws_by_output = self.classes is not None or model.random_state is None
        return first_of(
            {
                EARLY_STOPPING: splits_rows and draws_by_output,
                "monotone constraints": self._nodes() is not None,
            }
        )

    def scores(self, X: FeatureTable) -> FloatArray:
        """Return the raw scores, (n, K)."""
        scores = self._model._raw_predict(self._rows(X))
        return np.asarray(scores, dtype=np.float64).reshape(X.shape[0], self.n_outputs)

    def causes(self, mismatch: str) -> str:
        """Return the most likely reasons for a disagreement in "counts", "weights" or "values"."""
        return with_class_weight_advice(self.class_weight, super().causes(mismatch))

    def _digest(self) -> str:
        """Return a digest of the initial prediction and of all nodes."""
        digest = hashlib.sha256(np.asarray(self._model._baseline_prediction).tobytes())
        fields = ("left", "right", "feature_idx", "num_threshold", "missing_go_to_left", "value")
        for predictor in self._predictors:
            for name in (*fields, "is_leaf"):
                digest.update(np.ascontiguousarray(predictor.nodes[name]).tobytes())
            digest.update(np.ascontiguousarray(predictor.raw_left_cat_bitsets).tobytes())
        return digest.hexdigest()

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return the trees as one entry, of percentiles with the start as their first tree."""
        fit = self._histogram_fit(rows)
        if not self.has_initial_tree:
            return [fit]
        require_rows(rows, "loss", self._model.loss)
        ranks = SklearnPercentile(share_below(self._model), rows.weights)
        return [with_initial_tree(fit, ranks, rows, float(fit.initial.values[0]), 0.0)]

    def _histogram_fit(self, rows: TrainingRows) -> BoostedFit:
        """Return the trees of the model.

        Rows that early stopping held out are sampled again from the model's seed.
        """
        require_no_offsets(rows)
        self._require_weights_of_fit(rows)
        n_rows = rows.totals.n_rows
        n_leaves = np.array([len(nodes) for nodes in self._leaf_nodes], dtype=np.int64)
        # A root that is not split has the value 0 (_initialize_root in grower.py).
        l2 = np.where(n_leaves > 1, float(self._model.l2_regularization) + SMALLEST_L2, np.inf)
        initial_values = np.asarray(self._model._baseline_prediction, dtype=np.float64).reshape(-1)
        labels = None
        if self.classes is not None:  # early stopping splits each class
            labels = label_numbers(rows.targets)
        nodes = None
        if not self.has_initial_tree:
            nodes = self._nodes()
        rates = np.full(len(n_leaves), float(self._model.learning_rate))
        return BoostedFit(
            table=TreeTable(
                n_leaves=n_leaves,
                leaf_values=self._gather("value")[:, None],
                leaf_counts=self._gather("count").astype(np.int64),
            ),
            leaf_rule=LeafRule(l2=np.repeat(l2, n_leaves), nodes=nodes),
            schedule=Schedule.in_stages(rates, self.n_outputs),
            initial=InitialPrediction(initial_values, follows_targets=True),
            loss=histogram_loss(self._model, self.n_outputs),
            weights=WeightRule(held_out=all_but(self._training_rows(n_rows, labels), n_rows)),
        )

    def _require_weights_of_fit(self, rows: TrainingRows) -> None:
        """Raise if weights are missing, or were not there in the fit."""
        was_weighted = getattr(self._model, "_fitted_with_sw", None)
        if was_weighted and not rows.totals.weighted:
            raise InputError(
                "This model was fitted with sample weights: pass the same as sample_weight."
            )
        if was_weighted is False and not rows.totals.even:
            raise InputError(
                "This model was fitted without sample weights: leave sample_weight out."
            )

    def _nodes(self) -> Nodes | None:
        """Return the nodes of trees with monotone constraints."""
        signs = self._constraints()
        if signs is None:
            return None
        sizes = np.array([len(tree.nodes) for tree in self._predictors])
        roots = np.cumsum(sizes) - sizes
        table = np.concatenate([tree.nodes for tree in self._predictors])
        is_split = table["is_leaf"] == 0
        below = np.stack([table["left"], table["right"]], axis=1).astype(np.int64)
        below += np.repeat(roots, sizes)[:, None]
        values = float(self._model.learning_rate) * np.where(is_split, table["value"], np.nan)
        values[roots] = np.nan  # scikit-learn does not keep the value of a root
        feature = np.where(is_split, table["feature_idx"], 0)
        node_signs = np.where(is_split, signs[feature], 0).astype(np.int8)
        l2 = float(self._model.l2_regularization) + SMALLEST_L2
        children = np.where(is_split[:, None], below, -1)
        return nodes_of_trees(sizes, children, values, node_signs, l2)

    def _constraints(self) -> NDArray[np.int8] | None:
        """Return the monotone constraint of each column of bins, (p,); None without any.

        Columns of categories come first (_preprocess_X).
        """
        setting = self._model.monotonic_cst
        if isinstance(setting, Mapping):
            setting = [setting.get(name, 0) for name in self.feature_names or ()]
        if setting is None or not np.any(setting):
            return None
        signs = np.asarray(setting, dtype=np.int8)
        is_categorical = getattr(self._model, "is_categorical_", None)
        if is_categorical is None:
            return signs
        return np.concatenate([signs[is_categorical], signs[~is_categorical]])

    def _gather(self, name: str) -> AnyArray:
        """Return a field of the leaves, tree after tree, (L,)."""
        fields = [tree.nodes[name][i] for tree, i in zip(self._predictors, self._leaf_nodes)]
        return np.concatenate(fields)

    def _training_rows(self, n_rows: int, labels: FloatArray | None) -> Indices | None:
        """Return the rows of the fit.

        None stands for all, also if the user passed other rows for early stopping.
        """
        model = self._model
        splits_rows = model.do_early_stopping_ and model.validation_fraction is not None
        if not splits_rows or int(self._predictors[0].nodes["count"][0]) == n_rows:
            return None
        return training_rows(n_rows, model.validation_fraction, int(model._random_seed), labels)

    def leaves(self, X: FeatureTable) -> LeafArray:
        """Return the leaf of each row in each tree, (n, T).

        They are the predictions of trees that have leaf numbers for values.
        """
        from sklearn.utils._openmp_helpers import _openmp_effective_n_threads

        leaves = np.zeros((len(self._predictors), X.shape[0]), dtype=np.int32)
        if X.shape[0] == 0:
            return leaves.T
        rows = self._model._preprocess_X(self._rows(X), reset=False)
        known_categories, index = self._model._bin_mapper.make_known_categories_bitsets()
        n_threads = _openmp_effective_n_threads()
        for t, (predictor, leaf_nodes) in enumerate(zip(self._predictors, self._leaf_nodes)):
            numbered = copy.copy(predictor)
            numbered.nodes = predictor.nodes.copy()
            numbered.nodes["value"][leaf_nodes] = np.arange(len(leaf_nodes))
            leaves[t] = numbered.predict(rows, known_categories, index, n_threads)
        return leaves.T

    @cached_property
    def routes(self) -> Routes | None:
        """Return the routes of rows: left up to the threshold, both in float64.

        See sklearn/ensemble/_hist_gradient_boosting/_predictor.pyx. Categories that a split or the
        fit does not know go where missing values go. scikit-learn itself assigns them before
        version 1.4, which encodes categories otherwise.
        """
        sizes = [len(tree.nodes) for tree in self._predictors]
        table = np.concatenate([tree.nodes for tree in self._predictors])
        is_split = table["is_leaf"] == 0
        splits = table[is_split]
        is_categorical = splits["is_categorical"] != 0
        if is_categorical.any() and self._model._preprocessor is None:
            return None
        tree = np.repeat(np.arange(len(sizes)), sizes)
        split_tree = tree[is_split]
        n_splits = np.bincount(split_tree, minlength=len(sizes))
        first_split = np.cumsum(n_splits) - n_splits
        first_leaf = np.cumsum(n_splits + 1) - n_splits - 1
        split_number = np.cumsum(is_split) - 1 - first_split[tree]
        leaf_number = np.cumsum(~is_split) - 1 - first_leaf[tree]
        number = np.where(is_split, split_number, ~leaf_number)
        roots = np.cumsum(sizes) - sizes
        below = np.stack([splits["left"], splits["right"]], axis=1).astype(np.int64)
        below += roots[split_tree][:, None]
        missing_left = splits["missing_go_to_left"] != 0
        kinds = np.where(missing_left, SplitKind.LEFT, SplitKind.RIGHT).astype(np.int64)
        kinds[is_categorical] = SplitKind.CATEGORIES
        nodes = Splits(
            starts=np.append(0, np.cumsum(n_splits)),
            features=splits["feature_idx"].astype(np.int64),
            thresholds=splits["num_threshold"].astype(np.float64),
            kinds=kinds,
            children=number[below],
            outcomes=self._outcomes(splits, split_tree),
        )
        return make_routes(nodes, single=False, strict=False, zero=-1.0, infinite=True)

    def _outcomes(self, splits: AnyArray, tree: Indices) -> dict[int, NDArray[np.uint8]]:
        """Return the outcomes of the splits that test for categories.

        Each is 0 (left) or 1 for every category, for other categories and for missing values.
        """
        outcomes: dict[int, NDArray[np.uint8]] = {}
        if not splits["is_categorical"].any():
            return outcomes
        known_categories, index = self._model._bin_mapper.make_known_categories_bitsets()
        for i in np.flatnonzero(splits["is_categorical"]):
            split = splits[i]
            missing = np.uint8(not split["missing_go_to_left"])
            bitsets = self._predictors[tree[i]].raw_left_cat_bitsets
            goes_left = bits(bitsets[split["bitset_idx"]])
            is_known = bits(known_categories[index[split["feature_idx"]]])
            by_category = np.where(is_known, 1, missing)
            by_category[goes_left] = 0
            outcomes[int(i)] = np.append(by_category, [missing, missing]).astype(np.uint8)
        return outcomes

    def feature_tests(self) -> FeatureTests | None:
        """Return the tests of all trees; with categories scikit-learn puts their columns first."""
        if self.routes is None:
            return None
        is_categorical = getattr(self._model, "is_categorical_", None)
        if is_categorical is None:
            return FeatureTests([self.routes])
        features = [*np.flatnonzero(is_categorical), *np.flatnonzero(~is_categorical)]
        return FeatureTests([self.routes], [(int(feature),) for feature in features])

    def table(self, X: FeatureTable) -> RealArray | None:
        """Return the numbers in float64, with the numbers of categories."""
        return np.asarray(self._model._preprocess_X(self._rows(X), reset=False), dtype=np.float64)

    def _rows(self, X: FeatureTable) -> FeatureTable:
        """Return numbers, or a frame with the names of the fit if there are categories.

        It is an array of objects where the fit had no names.
        """
        if bool(sparse.issparse(X)):
            X = X.toarray()
        if self._model._preprocessor is None:
            return numbers(X, np.float64)
        frame = as_frame(X)
        if frame is None and self.feature_names is None:
            return X
        if frame is None:
            pd = needed_pandas("An array for a model fitted on a frame with categories")
            return pd.DataFrame(X, columns=self.feature_names)
        if not frame.implementation.is_pandas():
            source = "A table of another library for a model with categories"
            X = as_pandas(frame, word_columns(frame), source)
        if self.feature_names is None:
            return X.to_numpy()
        return X.set_axis(self.feature_names, axis=1)


def bits(words: NDArray[np.uint32]) -> BoolArray:
    """Return which bits are set, the lowest of the first word first, (256,)."""
    octets = np.ascontiguousarray(words).view(np.uint8)
    return np.asarray(np.unpackbits(octets, bitorder="little") != 0)


def all_but(rows: Indices | None, n_rows: int) -> BoolArray | None:
    """Return the rows that the fit held out, (N,); None if it used all rows."""
    if rows is None:
        return None
    held_out = np.ones(n_rows, dtype=bool)
    held_out[rows] = False
    return held_out


def leaves_of(model: ForeignModel) -> StackAdapter | HistGradientBoostingAdapter | None:
    """Return the reader of a fitted model's leaves, for any purpose of the trees.

    None stands for an object that is no model of trees.
    """
    if hasattr(model, "_predictors"):
        return HistGradientBoostingAdapter(model, leaves_only=True)
    members = getattr(model, "estimators_", [])
    if isinstance(members, np.ndarray):
        members = members.ravel()
    if hasattr(model, "tree_"):
        members = [model]
    else:
        members = list(members)
    # Members may be ensembles themselves.
    if not members or not all(hasattr(member, "tree_") for member in members):
        return None
    features = getattr(model, "estimators_features_", None)
    return StackAdapter(model, members, features)  # type: ignore[abstract]
