"""scikit-learn's gradient boosting for squared error: GradientBoostingRegressor and HistGradientBoostingRegressor."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.adapters.boosted_fit import BoostedFit, Schedule
from axil.adapters.contract import Nodes, TrainingRows, TreeModel
from axil.adapters.frames import as_frame, as_pandas, word_columns
from axil.adapters.percentiles import require_rows, with_base
from axil.adapters.refusals import refusal, refuse
from axil.adapters.routes import Routes, SplitKind, Splits, make_routes
from axil.adapters.sklearn.draws import StageSampler, training_rows
from axil.adapters.sklearn.percentile import (
    PERCENTILES,
    SklearnHuber,
    SklearnPercentile,
    share_below,
)
from axil.adapters.sklearn.refusals import DRAWS, LOSSES, STAGES, fits_init
from axil.adapters.sklearn.trees import (
    SklearnAdapter,
    StackAdapter,
    as_it_is,
    no_offsets,
    numbers,
    stacked,
)
from axil.arrays import BoolArray, FloatArray
from axil.errors import InputError, UnsupportedModelError
from axil.inputs.libraries import needed_pandas

Indices = NDArray[np.integer[Any]]


class GradientBoostingAdapter(StackAdapter):
    """GradientBoostingRegressor: each tree holds weighted means of residuals, shrunk when predictions are made."""

    refusals = STAGES

    def __init__(self, model: Any):
        refuse(self.refusals, model)
        super().__init__(model, [*model.estimators_.ravel()])
        self.refused_draws = refusal(DRAWS, model)
        self.classes = getattr(model, "classes_", None)
        self.n_outputs = model.estimators_.shape[1]
        self.starts_with_base = model.loss in PERCENTILES
        own = f"{self.fingerprint} {float(model.learning_rate)!r} {self._start()[0].tolist()!r}"
        self.fingerprint = hashlib.sha256(own.encode()).hexdigest()

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """The trees; rows that early stopping held out, and the rows of each stage, are drawn again."""
        no_offsets(rows)
        found = self._stages(rows)
        if not self.starts_with_base:
            return [found]
        require_rows(rows, "loss", self._model.loss)
        start, constant = (
            self._start()[0],
            getattr(self._model.init_, "strategy", "constant") == "constant",
        )
        ranks = SklearnPercentile(share_below(self._model), rows.weights, weighs_leaves=True)
        if self._model.loss == "huber":
            if not rows.totals.even:
                raise UnsupportedModelError(
                    "sample_weight",
                    "given with loss=huber",
                    "axil holds which residuals are cut off for rows that all count alike",
                    "Fit without sample_weight, or with loss='absolute_error' or 'squared_error'.",
                )
            how: dict[str, Any] = {
                "quantile": 100 * float(self._model.alpha) / 100,
                "sampled": self._model.subsample < 1,
            }
            ranks = SklearnHuber(0.5, rows.weights, weighs_leaves=True, **how)
        return [with_base(found, ranks, rows, None if constant else float(start[0]), 0.0)]

    def kept_rows(self, n_rows: int, labels: FloatArray | None = None) -> Indices | None:
        """The rows that early stopping left to fit on, in the order of the fit; None: all. It split classes (N,) evenly."""
        model = self._model
        if model.n_iter_no_change is None:
            return None
        return training_rows(n_rows, model.validation_fraction, int(model.random_state), labels)

    def _start(self) -> tuple[FloatArray, bool]:
        """(K,): where predictions start, and whether that comes of the targets' means."""
        init = self._model.init_
        if isinstance(init, str) or fits_init(self._model):
            return np.zeros(self.n_outputs), False
        return np.asarray(init.constant_, dtype=np.float64).reshape(1), init.strategy == "mean"

    def _stages(self, rows: TrainingRows, labels: FloatArray | None = None) -> BoostedFit:
        model, n_rows = self._model, rows.totals.n_rows
        rate, fitted, (start, from_mean) = (
            float(model.learning_rate),
            self.kept_rows(n_rows, labels),
            self._start(),
        )
        sampler = None
        if model.subsample < 1 and self.refused_draws is None:
            how = float(model.subsample), int(model.random_state), self.n_outputs
            sampler = StageSampler(n_rows, fitted, *how)
        counted = rows.totals.lightest > 0  # trees do not count rows of weight zero
        values, samples, weights = self._stack.gather(
            "value", "n_node_samples", "weighted_n_node_samples"
        )
        return BoostedFit(
            n_leaves=self._stack.n_leaves,
            leaf_values=rate * values[:, :, 0],
            leaf_counts=samples.astype(np.int64) if counted else None,
            leaf_weights=weights,
            l2=np.zeros(int(self._stack.n_leaves.sum())),
            schedule=Schedule.one_by_one(np.full(len(self._stack.n_leaves), rate)),
            base=None if from_mean else start,
            base_value=start,
            held_out=all_but(fitted, n_rows),
            sampler=sampler,
        )


class StagesAfterInit(GradientBoostingAdapter):
    """The trees of gradient boosting whose offsets are the predictions of another model, init."""

    def __init__(self, model: Any):
        super().__init__(model)
        self._model.init_ = copy.deepcopy(
            model.init_
        )  # it is the user's own: scikit-learn fits it without a copy

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """The trees, which take offsets."""
        return [self._stages(rows)]

    def predictions(self, X: Any) -> FloatArray:
        """(n, 1): what the trees add to the predictions of init."""
        first = np.asarray(self._model.init_.predict(self._rows(X)), dtype=np.float64).reshape(
            -1, 1
        )
        return np.asarray(super().predictions(X) - first)

    def whole(self, X: Any) -> FloatArray:
        """(n, 1): what ``predict`` gives."""
        return super().predictions(X)


class HistGradientBoostingAdapter(SklearnAdapter, TreeModel):
    """HistGradientBoostingRegressor: binned features, residuals in float32 (G_H_DTYPE), sums and predictions in float64.

    The rounding of residuals is no linear function of the targets, so exact weights meet predictions to single precision.
    A replay that rounds residuals alike meets the leaves of a fit without weights up to what subtracting histograms from each
    other loses, 1e-12 for leaves of one row among 300,000. With weights scikit-learn rounds each weight, and its product
    with the residual once, where a replay rounds twice: four roundings of 6e-8 in all.
    """

    residual_precision: type[np.floating[Any]] = np.float32
    tolerance = 1e-6
    unseen = "scikit-learn takes such a value for a missing one."

    refusals = LOSSES

    def __init__(self, model: Any, leaves_only: bool = False):
        refuse(() if leaves_only else self.refusals, model)
        super().__init__(model)
        self.classes = getattr(model, "classes_", None)
        self.n_outputs = int(model.n_trees_per_iteration_)
        self.leaf_tolerance = 3e-7 if getattr(model, "_fitted_with_sw", False) else 1e-10
        self.starts_with_base = model.loss in PERCENTILES and not leaves_only
        if self.starts_with_base:  # percentiles of residuals that are not rounded
            self.residual_precision, self.tolerance, self.leaf_tolerance = np.float64, 1e-9, 1e-10
        self.takes_text = model._preprocessor is not None
        if self.takes_text:  # what encodes the categories finds its columns by name
            self._model = as_it_is(model)
        self._predictors = [tree for iteration in model._predictors for tree in iteration]
        self._inner = [np.flatnonzero(predictor.nodes["is_leaf"]) for predictor in self._predictors]
        self.fingerprint = self._digest()

    def _digest(self) -> str:
        digest = hashlib.sha256(np.asarray(self._model._baseline_prediction).tobytes())
        for predictor in self._predictors:
            for name in (
                "left",
                "right",
                "feature_idx",
                "num_threshold",
                "missing_go_to_left",
                "value",
                "is_leaf",
            ):
                digest.update(np.ascontiguousarray(predictor.nodes[name]).tobytes())
            digest.update(np.ascontiguousarray(predictor.raw_left_cat_bitsets).tobytes())
        return digest.hexdigest()

    def trees(self, rows: TrainingRows, labels: FloatArray | None = None) -> list[BoostedFit]:
        """The trees; rows that early stopping held out, class by class (N,), are drawn again from the seed of the model."""
        no_offsets(rows)
        if not rows.totals.weighted and getattr(self._model, "_fitted_with_sw", False):
            raise InputError(
                "This model was fitted with sample weights: pass the same as sample_weight."
            )
        if not rows.totals.even and getattr(self._model, "_fitted_with_sw", None) is False:
            raise InputError(
                "This model was fitted without sample weights: leave sample_weight out."
            )
        n_rows = rows.totals.n_rows
        n_leaves = np.array([len(inner) for inner in self._inner], dtype=np.int64)
        # Against division by zero (compute_node_value, sklearn/ensemble/_hist_gradient_boosting/splitting.pyx).
        # A root that is not split has the value 0 (_initialize_root in grower.py).
        l2 = np.where(n_leaves > 1, float(self._model.l2_regularization) + 1e-15, np.inf)
        trees = BoostedFit(
            n_leaves=n_leaves,
            leaf_values=self._gather("value")[:, None],
            leaf_counts=self._gather("count").astype(np.int64),
            leaf_weights=None,
            l2=np.repeat(l2, n_leaves),
            schedule=Schedule.one_by_one(np.full(len(n_leaves), float(self._model.learning_rate))),
            base=None,
            base_value=np.asarray(self._model._baseline_prediction, dtype=np.float64).reshape(-1),
            held_out=all_but(self._training_rows(n_rows, labels), n_rows),
            nodes=None if self.starts_with_base else self._nodes(),
        )
        if not self.starts_with_base:
            return [trees]
        require_rows(rows, "loss", self._model.loss)
        ranks = SklearnPercentile(share_below(self._model), rows.weights)
        return [with_base(trees, ranks, rows, float(trees.base_value[0]), 0.0)]

    def _nodes(self) -> Nodes | None:
        """The nodes of trees with monotone constraints; columns of categories come first (sklearn's _preprocess_X)."""
        given = self._model.monotonic_cst
        if isinstance(given, Mapping):
            given = [given.get(name, 0) for name in self.feature_names or ()]
        if given is None or not np.any(given):
            return None
        signs = np.asarray(given, dtype=np.int8)
        categories = getattr(self._model, "is_categorical_", None)
        if categories is not None:
            signs = np.concatenate([signs[categories], signs[~categories]])
        sizes = np.array([len(tree.nodes) for tree in self._predictors])
        table = np.concatenate([tree.nodes for tree in self._predictors])
        inner, start = table["is_leaf"] == 0, np.repeat(np.cumsum(sizes) - sizes, sizes)
        below = np.stack([table["left"], table["right"]], axis=1).astype(np.int64) + start[:, None]
        values = float(self._model.learning_rate) * np.where(inner, table["value"], np.nan)
        values[np.cumsum(sizes) - sizes] = np.nan  # of a root it is not kept
        signs = np.where(inner, signs[np.where(inner, table["feature_idx"], 0)], 0).astype(np.int8)
        l2 = float(self._model.l2_regularization) + 1e-15
        return stacked(sizes, np.where(inner[:, None], below, -1), values, signs, l2)

    def _gather(self, name: str) -> NDArray[Any]:
        return np.concatenate(
            [tree.nodes[name][inner] for tree, inner in zip(self._predictors, self._inner)]
        )

    def _training_rows(self, n_rows: int, labels: FloatArray | None) -> Indices | None:
        """The rows of the fit; None: all, as where the caller gave rows of his own to stop early by."""
        model = self._model
        split = model.do_early_stopping_ and model.validation_fraction is not None
        if not split or int(self._predictors[0].nodes["count"][0]) == n_rows:
            return None
        return training_rows(n_rows, model.validation_fraction, int(model._random_seed), labels)

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        """(n, T): which leaf of each tree every row falls into, as values of trees that have leaf numbers for values."""
        from sklearn.utils._openmp_helpers import _openmp_effective_n_threads

        found = np.zeros((len(self._predictors), X.shape[0]), dtype=np.int32)
        if X.shape[0] == 0:
            return found.T
        rows = self._model._preprocess_X(self._rows(X), reset=False)
        known, index = self._model._bin_mapper.make_known_categories_bitsets()
        n_threads = _openmp_effective_n_threads()
        for t, (predictor, inner) in enumerate(zip(self._predictors, self._inner)):
            numbered = copy.copy(predictor)
            numbered.nodes = predictor.nodes.copy()
            numbered.nodes["value"][inner] = np.arange(len(inner))
            found[t] = numbered.predict(rows, known, index, n_threads)
        return found.T

    @cached_property
    def routes(self) -> Routes | None:
        """Left up to the threshold, both in float64 (sklearn/ensemble/_hist_gradient_boosting/_predictor.pyx).

        Categories that a split or the fit does not know go where missing values go. Before scikit-learn 1.4, which encodes
        categories itself, they are left to it.
        """
        sizes = [len(tree.nodes) for tree in self._predictors]
        table = np.concatenate([tree.nodes for tree in self._predictors])
        starts, inner = np.cumsum(sizes) - sizes, table["is_leaf"] == 0
        tree = np.repeat(np.arange(len(sizes)), sizes)
        categorical = table["is_categorical"][inner] != 0
        if categorical.any() and self._model._preprocessor is None:
            return None
        n_splits = np.bincount(tree[inner], minlength=len(sizes))
        first_split, first_leaf = (
            np.cumsum(n_splits) - n_splits,
            np.cumsum(n_splits + 1) - n_splits - 1,
        )
        number = np.where(
            inner,
            np.cumsum(inner) - 1 - first_split[tree],
            ~(np.cumsum(~inner) - 1 - first_leaf[tree]),
        )
        below = (
            np.stack([table["left"], table["right"]], axis=1)[inner].astype(np.int64)
            + starts[tree[inner]][:, None]
        )
        left = table["missing_go_to_left"][inner] != 0
        kinds = np.where(
            categorical, SplitKind.CATEGORIES, np.where(left, SplitKind.LEFT, SplitKind.RIGHT)
        ).astype(np.int64)
        nodes = Splits(
            starts=np.append(0, np.cumsum(n_splits)),
            features=table["feature_idx"][inner].astype(np.int64),
            thresholds=table["num_threshold"][inner].astype(np.float64),
            kinds=kinds,
            children=number[below],
            outcomes=self._outcomes(table[inner], tree[inner]) if categorical.any() else {},
        )
        return make_routes(nodes, single=False, strict=False, zero=-1.0, infinite=True)

    def _outcomes(self, splits: NDArray[Any], tree: Indices) -> dict[int, NDArray[np.uint8]]:
        """Split -> 0 (left) or 1 for every category, for others and for missing values, where it tests for categories."""
        known, index = self._model._bin_mapper.make_known_categories_bitsets()
        found = {}
        for i in np.flatnonzero(splits["is_categorical"]):
            own, missing = splits[i], np.uint8(not splits[i]["missing_go_to_left"])
            chosen = bits(self._predictors[tree[i]].raw_left_cat_bitsets[own["bitset_idx"]])
            met = np.where(chosen, 0, np.where(bits(known[index[own["feature_idx"]]]), 1, missing))
            found[int(i)] = np.append(met, [missing, missing]).astype(np.uint8)
        return found

    def table(self, X: Any) -> NDArray[np.floating[Any]] | None:
        """The numbers in float64, categories as they are numbered."""
        return np.asarray(self._model._preprocess_X(self._rows(X), reset=False), dtype=np.float64)

    def _rows(self, X: Any) -> Any:
        """Numbers, or where there are categories a frame with the names of the fit (an array where it had none)."""
        X = X.toarray() if bool(sparse.issparse(X)) else X
        if self._model._preprocessor is None:
            return numbers(X, np.float64)
        frame = as_frame(X)
        if frame is None:
            if self.feature_names is None:
                return X
            pd = needed_pandas("An array for a model fitted on a frame with categories")
            return pd.DataFrame(X, columns=self.feature_names)
        if not frame.implementation.is_pandas():
            X = as_pandas(
                frame, word_columns(frame), "A table of another library for a model with categories"
            )
        if self.feature_names is None:
            return X.to_numpy()
        return X.set_axis(self.feature_names, axis=1)


def bits(words: NDArray[np.uint32]) -> BoolArray:
    """(256,): which bits are set, the lowest of the first word first."""
    found: BoolArray = (
        np.unpackbits(np.ascontiguousarray(words).view(np.uint8), bitorder="little") != 0
    )
    return found


def all_but(rows: Indices | None, n_rows: int) -> BoolArray | None:
    """(N,): which rows a fit to these alone held out; None for a fit to all."""
    if rows is None:
        return None
    held_out = np.ones(n_rows, dtype=bool)
    held_out[rows] = False
    return held_out


def leaves_of(model: Any) -> StackAdapter | HistGradientBoostingAdapter | None:
    """The reader of the leaves of a fitted model of trees, whatever it was fitted for; None for any other object."""
    if hasattr(model, "_predictors"):
        return HistGradientBoostingAdapter(model, leaves_only=True)
    members = getattr(model, "estimators_", [])
    members = list(
        members.ravel() if isinstance(members, np.ndarray) else members
    )  # which may be ensembles themselves
    if hasattr(model, "tree_"):
        members = [model]
    if not members or not all(hasattr(own, "tree_") for own in members):
        return None
    return StackAdapter(model, members, getattr(model, "estimators_features_", None))  # type: ignore[abstract]
