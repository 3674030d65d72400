"""What XGBoost's boosters say of themselves, whatever their loss.

They state their leaves, tests, recorded weights and drops of DART.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from axil.adapters.boosted_fit import BoostedFit, InitialPrediction, LeafRule, Schedule, TreeTable
from axil.adapters.contract import (
    Ancestors,
    OffsetRule,
    Rounding,
    TreeModel,
)
from axil.adapters.refusals import not_fitted
from axil.adapters.routes import Routes
from axil.adapters.xgboost.document import ModelDocument, Tree, XGBoostSettings, parse
from axil.adapters.xgboost.draws import DrawPlan
from axil.adapters.xgboost.plan import drop_factors
from axil.adapters.xgboost.rates import (
    LEAF_ROUNDING,
    ROUNDING,
)
from axil.adapters.xgboost.refusals import XGBoostReading, causes, pruned
from axil.adapters.xgboost.rows import BoosterRows, FloatTable
from axil.adapters.xgboost.rule import XGBoostRule
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import BoolArray, FloatArray, IntArray, LeafArray, RealType
from axil.errors import InputError


@dataclass(frozen=True)
class OpenedBooster:
    """A copy of a booster, with facts about the fit from it and from the estimator around it."""

    booster: ForeignModel
    reading: XGBoostReading
    n_iterations: int = 0  #: that predictions are made of; 0: all
    missing: float = np.nan  #: the value that stands for a missing one


def opened(model: ForeignModel) -> OpenedBooster | None:
    """Return the booster of an XGBoost model, wrapped or not; None for other objects."""
    import xgboost

    if isinstance(model, xgboost.Booster):
        return _opened(model, "Booster", "")
    if not isinstance(model, xgboost.XGBModel):
        return None
    if not model.__sklearn_is_fitted__():
        raise not_fitted(model)
    try:
        n_iterations = int(model.best_iteration) + 1
    except AttributeError:  # no early stopping
        n_iterations = 0
    custom = getattr(model.objective, "__name__", "custom") if callable(model.objective) else ""
    missing = np.nan if model.missing is None else float(model.missing)
    return _opened(model.get_booster(), type(model).__name__, custom, n_iterations, missing)


def _opened(
    booster: ForeignModel,
    estimator: str,
    custom: str,
    n_iterations: int = 0,
    missing: float = np.nan,
) -> OpenedBooster:
    _require_trees(booster)
    settings = XGBoostSettings.of(booster)
    document = parse(booster.save_raw("json"))
    reading = XGBoostReading(settings, document, estimator, custom)
    # A copy, because a booster can be trained further.
    return OpenedBooster(booster.copy(), reading, n_iterations, missing)


class XGBoostAdapter(TreeModel):
    """An XGBoost booster: all its trees, or those up to the best iteration.

    A scikit-learn model predicts with the latter. XGBoost stores targets, weights, predictions and
    residuals in float32 and adds in float64 (src/objective, src/tree). A replay with the same
    rounding has the very sums of XGBoost. The leaf value is then rounded to float32, multiplied by
    the rate and rounded again, so it is met to two roundings, 2^-23 of itself. A GPU adds quantised
    numbers and is met to 1e-6 only.

    Predictions are sums in float32 too. So they differ from the sum of their leaf values, and from
    any exact map, like a random walk of T steps of 2^-24: 1.4 * sqrt(T) of them at most in 20,000
    rows, 600 trees: 2e-6.
    """

    library = "XGBoost"
    rounding = Rounding(
        targets=np.float32,
        offsets=np.float32,
        residuals=np.float32,
        initial=np.float32,
    )
    score_precision: RealType = np.float32
    # InitOutPredictions, src/predictor/predictor.cc
    offset_rule: OffsetRule = OffsetRule.REPLACES_INITIAL

    def __init__(self, opened_booster: OpenedBooster):
        booster = opened_booster.booster
        reading = opened_booster.reading
        self._booster = booster
        self._reading = reading
        self._settings = reading.settings
        model = reading.model
        assert model is not None  # it is for gblinear, which is refused
        self._model: ModelDocument = model
        self._n_iterations = opened_booster.n_iterations or int(model.iterations[-1]) + 1
        self._n_trees = int(np.searchsorted(model.iterations, self._n_iterations))
        self._trees = model.trees[: self._n_trees]
        self._groups = model.groups[: self._n_trees]
        self._iterations = model.iterations[: self._n_trees]
        self._rows = BoosterRows(booster, model, self._n_iterations, opened_booster.missing)
        self._rule = XGBoostRule.of(self._settings, int(booster.num_features()))
        self.n_features = int(booster.num_features())
        self.feature_names: list[str] | None = booster.feature_names
        self.n_outputs = model.n_outputs
        self.fingerprint = model.fingerprint(self._n_trees)
        self.tolerance = max(1e-6, 3 * ROUNDING * float(np.sqrt(self._n_trees)))
        self.leaf_tolerance = 1.05 * LEAF_ROUNDING
        if model.weight_drop is not None:
            self.leaf_tolerance *= 2  # the drop weights are rounded likewise
        if self._rule.signs.any():
            self.leaf_tolerance *= 2  # bounds are rounded once more than the values they come from
        self.repeats_targets = self._reading.objective == "reg:quantileerror"

    @property
    def categories(self) -> dict[str, list[ForeignObject]]:  # type: ignore[override]
        """The categories of columns that the fit had as categories, by name.

        It is empty if the model does not state them.
        """
        categories_of_names = zip(self.feature_names or [], self._model.categories)
        return {str(name): values for name, values in categories_of_names if values}

    @property
    def numbers_by_frame(self) -> bool:
        """Whether categories are numbered as in the frame of the rows, as before XGBoost 3.1."""
        return self._rows.numbers_by_frame

    @property
    def unseen(self) -> str:  # type: ignore[override]
        """The effect of a category that no training row has; from 3.1 on XGBoost refuses it."""
        if not self.numbers_by_frame:
            return ""
        return "XGBoost before 3.1 sends such a value left wherever it tests for categories."

    @property
    def routes(self) -> Routes | None:
        """The tests of all trees."""
        return self._rows.routes

    def table(self, X: FeatureTable) -> FloatTable | None:
        """Return the numbers that splits test, (n, features).

        It is None if XGBoost itself has to look at the rows.
        """
        return self._rows.table(X)

    def leaves(self, X: FeatureTable) -> LeafArray:
        """Return the leaf of each row in each tree, (n, T)."""
        return self._rows.leaves(X)

    def predictions(
        self, X: FeatureTable, offsets: FloatArray | None = None, output_margin: bool = False
    ) -> FloatArray:
        """Return the predictions of ``predict``, (n, K), before the link.

        Offsets are passed as base_margin.
        """
        matrix = self._rows.matrix(X)
        if offsets is not None:
            matrix.set_base_margin(offsets.astype(np.float32))
        predictions = self._booster.predict(
            matrix,
            validate_features=False,
            # from 3.4 on `predict` sorts the quantiles of each row
            output_margin=output_margin or self.repeats_targets,
            iteration_range=(0, self._n_iterations),
        )
        return np.asarray(predictions, dtype=np.float64).reshape(X.shape[0], self.n_outputs)

    def causes(self, mismatch: str) -> str:
        """Return the most likely reasons for a disagreement in "counts", "weights" or "values"."""
        return causes(mismatch, self._settings.number("subsample") < 1)

    @property
    def _averages(self) -> bool:
        """Whether predictions are means over trees that do not see each other.

        Those of a random forest are.
        """
        return self._n_iterations == 1 and self._model.n_parallel > 1

    @property
    def _drops(self) -> bool:
        """Whether DART dropped trees, each of which leaves a factor in the model."""
        return self._model.weight_drop is not None and bool(np.any(self._model.weight_drop != 1))

    def _drop_factors(self, plan: DrawPlan) -> FloatArray | None:
        """Return DART's factors, if trees were dropped.

        Without drops it is plain boosting, whose rates may change.
        """
        if plan.dart is None:
            return None
        factors = drop_factors(self._model, plan, self._n_iterations)
        if self._drops:
            return factors
        return None

    @property
    def _stated_rate(self) -> float:
        """The learning rate of the settings, divided by the number of parallel trees."""
        rate = np.float32(self._settings.number("learning_rate"))
        return float(rate / np.float32(self._model.n_parallel))

    def _entry(
        self,
        places: IntArray,
        outputs: IntArray,
        rates: FloatArray,
        l2: list[FloatArray],
        weighted: bool,
    ) -> BoostedFit:
        """Return an entry of these trees as plain boosting.

        Parameters
        ----------
        places : array of shape (T',)
            The numbers of the trees.
        outputs : array of shape (K',)
            The outputs that they serve.
        rates : array of shape (T',)
            Their learning rates.
        l2 : list of array of shape (L_t,)
            For each tree, what is added to the weights of its leaves.
        weighted : bool
            Whether the training rows have weights.
        """
        trees = [self._trees[t] for t in places]
        drop = np.ones(len(places))
        if self._model.weight_drop is not None:
            drop = self._model.weight_drop[places]
        leaf_weights = _leaf_weights(trees)
        base = np.broadcast_to(self._model.base_score, (self.n_outputs,))[outputs]
        pruned_trees = (partial(pruned, t) for t, tree in enumerate(trees) if tree.pruned)
        return BoostedFit(
            table=TreeTable(
                n_leaves=np.array([len(tree.leaves) for tree in trees], dtype=np.int64),
                leaf_values=np.concatenate(
                    [tree.values * factor for tree, factor in zip(trees, drop)]
                ),
                leaf_counts=None if weighted else _whole_counts(leaf_weights),
                leaf_weights=leaf_weights,
                columns=None if len(places) == self._n_trees else places.astype(np.int64),
            ),
            leaf_rule=LeafRule(
                l2=np.concatenate(l2), ancestors=_ancestors(trees, l2) if self._averages else None
            ),
            initial=InitialPrediction(follows_targets=self._model.base_estimated, values=base),
            schedule=Schedule.one_by_one(rates),
            score_precision=self.score_precision,
            explain_mismatch=next(pruned_trees, None),
        )

    def _zero(self, tree: Tree) -> BoolArray:
        """Return which leaves XGBoost set to zero, (L,).

        They have no weight, or less than min_child_weight (src/tree/param.h). Only a root, or a
        leaf for several outputs, can be that light. From XGBoost 3.4 on a light root keeps its
        value, and no leaf is light.
        """
        hessians = tree.leaf_hessians
        if hessians is None:
            return np.zeros(len(tree.leaves), dtype=np.bool_)
        is_zero = hessians <= 0
        if len(tree.splits) > 0 or self._model.version < (3, 4):
            is_light = hessians < self._settings.number("min_child_weight")
            is_zero |= is_light & ~tree.values.any(axis=1)
        return np.asarray(is_zero)

    def _residual_errors(self, largest: float) -> FloatArray:
        """Return the possible errors of residuals in each tree, (T,).

        They are those if scores are rounded otherwise. A CPU adds parallel trees to the scores one
        by one, a GPU all at once (src/predictor/gpu_predictor.cu): in each iteration so far up to
        one rounding per tree apart. DART adds up the scores again in single precision in each
        iteration.
        """
        rounding = 2 * ROUNDING * largest
        if self._drops:
            return np.asarray(rounding * np.sqrt(1.0 + self._iterations))
        if self._model.n_parallel == 1:
            return np.zeros(self._n_trees)
        return np.asarray(rounding * self._model.n_parallel * self._iterations)


def _leaf_weights(trees: list[Tree]) -> FloatArray | None:
    """Return the weight of the rows of all leaves of these trees, (L,).

    It is None if a tree does not keep it.
    """
    hessians = [tree.leaf_hessians for tree in trees]
    if any(of_leaves is None for of_leaves in hessians):
        return None
    return np.concatenate([of_leaves for of_leaves in hessians if of_leaves is not None])


def _whole_counts(leaf_weights: FloatArray | None) -> IntArray | None:
    """Return how many rows leaves have, (L,), from weights that are whole numbers.

    It is None if they are not.
    """
    if leaf_weights is None:
        return None
    counts = np.rint(leaf_weights)
    if np.any(leaf_weights != counts) or leaf_weights.max() >= 2**24:
        return None
    return counts.astype(np.int64)


def _ancestors(trees: list[Tree], l2: list[FloatArray]) -> Ancestors:
    """Return the splits of these trees, as parents of their leaves.

    ``l2`` has what is added to the leaves' weights.
    """
    split_l2 = []
    for tree, leaf_l2 in zip(trees, l2):
        finite = leaf_l2[np.isfinite(leaf_l2)]
        split_l2.append(np.full(len(tree.splits), finite.min(initial=np.inf)))
    return Ancestors.of([tree.children for tree in trees], np.concatenate(split_l2))


def _require_trees(booster: ForeignModel) -> None:
    """Raise if the model was trained for no iteration.

    XGBoost itself raises where it has not seen any data.
    """
    import xgboost

    try:
        rounds = booster.num_boosted_rounds()
    except ValueError:
        rounds = 0
    if not rounds:
        raise InputError(
            "This XGBoost model has no trees: it was not trained, or it was read from a file of a "
            f"newer XGBoost than {xgboost.__version__}, installed here, which skips what it does "
            "not know. Train it first, or read the file with the version that wrote it."
        )
