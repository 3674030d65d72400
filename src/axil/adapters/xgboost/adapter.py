"""XGBoost models fitted to squared error: XGBRegressor, XGBRFRegressor and Booster, in memory, pickled or loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from axil.adapters.boosted_fit import BoostedFit, InitialPrediction, LeafRule, Schedule, TreeTable
from axil.adapters.contract import (
    Ancestors,
    Coefficients,
    LeafTotals,
    Totals,
    TrainingRows,
    TreeModel,
)
from axil.adapters.percentiles import require_rows, with_base
from axil.adapters.refusals import not_fitted, refuse, weights_refusal
from axil.adapters.routes import Routes
from axil.adapters.xgboost.document import ModelDocument, Tree, XGBoostSettings, parse
from axil.adapters.xgboost.draws import DrawPlan, Subsample
from axil.adapters.xgboost.percentile import PERCENTILES, XGBoostPercentile, alphas
from axil.adapters.xgboost.plan import drop_factors, plan_of, plan_of_draws
from axil.adapters.xgboost.rates import (
    LEAF_ROUNDING,
    ROUNDING,
    ObservedLeaves,
    confirmed,
    is_silent,
    rate_of_steps,
    recover,
)
from axil.adapters.xgboost.refusals import REFUSALS, XGBoostReading, causes, continued, pruned
from axil.adapters.xgboost.rows import BoosterRows, FloatTable
from axil.adapters.xgboost.rule import XGBoostRule
from axil.arrays import BoolArray, FloatArray, IntArray, LeafArray
from axil.errors import InputError, UnsupportedModelError

CHECKED_ITERATIONS = 4  # compared with the data before the settings are trusted
# of the largest leaf value: a rate that leads to the values of the first tree is taken as stated
AS_STATED = 1e-5


def read(
    model: Any, objective: Any = None, by_gradients: bool = False, leaves_only: bool = False
) -> XGBoostAdapter | None:
    """Return the adapter of an XGBoost model; None for any other object.

    Parameters
    ----------
    model : object
        Any object.
    objective : callable, optional
        The user's own function that the model was fitted with.
    by_gradients : bool
        Whether it is read by its gradients even where it has exact weights.
    leaves_only : bool
        Whether only its leaves are read. Only models without trees are refused then.
    """
    booster = opened(model)
    if booster is None:
        return None
    if leaves_only:
        return XGBoostAdapter(booster, leaves_only=True)
    not_exact = None
    if objective is None and not by_gradients:
        not_exact = weights_refusal(REFUSALS, booster.reading)
        if not_exact is None:
            return XGBoostAdapter(booster)
    from axil.adapters.xgboost.loss import read_with_loss

    adapter = read_with_loss(model, booster, objective)
    adapter.not_exact = not_exact
    return adapter


@dataclass(frozen=True)
class OpenedBooster:
    """A copy of a booster, and what it and the estimator around it say of the fit."""

    booster: Any
    reading: XGBoostReading
    n_iterations: int = 0  #: that predictions are made of; 0: all
    missing: float = np.nan  #: the value that stands for a missing one


def opened(model: Any) -> OpenedBooster | None:
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
    booster: Any, estimator: str, custom: str, n_iterations: int = 0, missing: float = np.nan
) -> OpenedBooster:
    _require_trees(booster)
    settings = XGBoostSettings.of(booster)
    document = parse(booster.save_raw("json"))
    reading = XGBoostReading(settings, document, estimator, custom)
    # A copy, because a booster can be trained further.
    return OpenedBooster(booster.copy(), reading, n_iterations, missing)


class XGBoostAdapter(TreeModel):
    """An XGBoost booster: all its trees, or those up to the best iteration where a scikit-learn model predicts with them.

    XGBoost keeps targets, weights, predictions and residuals in float32 and adds in float64
    (src/objective, src/tree). A replay that rounds likewise has the very sums that XGBoost had; the
    leaf value is then rounded to float32, multiplied by the rate and rounded again, so it is met to
    two roundings, 2^-23 of itself. A GPU adds quantised numbers and is met to 1e-6 only.

    Predictions are sums in float32 too, so they differ from the sum of the very leaf values that
    they are made of, and from any exact map, like a random walk of T steps of 2^-24: 1.4 * sqrt(T)
    of them at most in 20,000 rows, 600 trees: 2e-6.
    """

    library = "XGBoost"
    refusals = REFUSALS
    precision = np.float32
    offset_precision = np.float32
    residual_precision = np.float32
    score_precision = np.float32
    base_precision = np.float32
    offset_replaces_base = True  # InitOutPredictions, src/predictor/predictor.cc

    def __init__(self, opened_booster: OpenedBooster, leaves_only: bool = False):
        booster = opened_booster.booster
        reading = opened_booster.reading
        refuse(self.refusals[:1] if leaves_only else self.refusals, reading)
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
        self.starts_with_base = self._reading.objective in PERCENTILES and not leaves_only
        self.starts_with_percentile = self.starts_with_base and model.base_estimated
        self.repeats_targets = self._reading.objective == "reg:quantileerror"

    # -- rows -------------------------------------------------------------------------------------

    @property
    def categories(self) -> dict[str, list[Any]]:  # type: ignore[override]
        """The categories of columns that the fit had as categories, by name.

        It is empty where the model does not state them.
        """
        categories_of_names = zip(self.feature_names or [], self._model.categories)
        return {str(name): values for name, values in categories_of_names if values}

    @property
    def numbers_by_frame(self) -> bool:
        """Whether a row's category has the number that it has in its own frame, as before 3.1."""
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

    def table(self, X: Any) -> FloatTable | None:
        """Return the numbers that splits test, (n, features).

        It is None where XGBoost itself has to look at the rows.
        """
        return self._rows.table(X)

    def leaves(self, X: Any) -> LeafArray:
        """Return the leaf of each row in each tree, (n, T)."""
        return self._rows.leaves(X)

    def predictions(
        self, X: Any, offsets: FloatArray | None = None, output_margin: bool = False
    ) -> FloatArray:
        """Return what ``predict`` gives, (n, K): with offsets for base_margin, or before the link."""
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

    def causes(self, what: str) -> str:
        """Return the most likely reasons for a disagreement in "counts", "weights" or "values"."""
        return causes(what, self._settings.number("subsample") < 1)

    # -- trees ------------------------------------------------------------------------------------

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return one entry for each output, or one for all where they share leaves."""
        n_rows = rows.totals.n_rows
        if rows.at_hand:
            plan = plan_of_draws(self._model, self._settings, n_rows, rows.weights)
        else:
            plan = plan_of(self._model, self._settings, n_rows)
        factors = self._drop_factors(plan)
        if self.starts_with_base:
            return self._percentiles(rows, plan, factors)
        rates, l2 = self._rates(rows)
        if self._model.shared and not self._rule.bends:
            outputs_of_entries = [np.arange(self.n_outputs)]
        else:  # each output has a pattern of its own
            outputs_of_entries = [np.array([output]) for output in range(self.n_outputs)]
        entries = []
        for outputs in outputs_of_entries:
            places = self._trees_of(outputs[0])
            tree_l2 = [l2[t] for t in places]
            entry = self._entry(places, outputs, rates[places], tree_l2, rows.totals.weighted)
            if plan.samples:
                entry = replace(entry, sampler=Subsample(plan, places))
            entry = self._with_coefficients(entry, places, factors, rows.totals.offset)
            slack = entry.learning_rates * self._residual_errors(rows.totals.largest)[places]
            entry = replace(
                entry,
                table=replace(entry.table, value_slack=np.repeat(slack, entry.table.n_leaves)),
            )
            if self._rule.bends:
                entry = self._bent(entry, places, outputs[0], tree_l2)
            entries.append(entry)
        return entries

    def _trees_of(self, output: int) -> IntArray:
        """Return the numbers of the trees that serve an output, (T',)."""
        if self._model.shared:
            return np.arange(self._n_trees)
        return np.flatnonzero(self._groups == output)

    @property
    def _averages(self) -> bool:
        """Whether predictions are means over trees that do not see each other, as those of a random forest."""
        return self._n_iterations == 1 and self._model.n_parallel > 1

    @property
    def _drops(self) -> bool:
        """Whether DART dropped trees: each drop leaves a factor behind."""
        return self._model.weight_drop is not None and bool(np.any(self._model.weight_drop != 1))

    def _drop_factors(self, plan: DrawPlan) -> FloatArray | None:
        """Return DART's factors where trees were dropped.

        Without drops it is plain boosting, whose rates may change.
        """
        if plan.dart is None:
            return None
        factors = drop_factors(self._model, plan, self._n_iterations)
        if self._drops:
            return factors
        return None

    def _entry(
        self,
        places: IntArray,
        outputs: IntArray,
        rates: FloatArray,
        l2: list[FloatArray],
        weighted: bool,
    ) -> BoostedFit:
        """Return some trees as if they were plain boosting.

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
            explain_mismatch=next(pruned_trees, None),
        )

    def _with_coefficients(
        self, trees: BoostedFit, places: IntArray, factors: FloatArray | None, offset: bool
    ) -> BoostedFit:
        """Return the trees with the table of how they add up, where it is not one after the other.

        Parallel trees see the same residual; DART drops and scales; and a fit with base_margin does
        not start from the base_score that predictions are given without it (InitOutPredictions,
        src/predictor/predictor.cc).
        """
        beta = np.ones(len(places) + 1)
        if offset and (trees.initial.follows_targets or trees.initial.values.any()):
            beta[:-1] = 0
        if factors is None and self._model.n_parallel == 1 and beta.all():
            return trees
        iteration = np.append(self._iterations[places], self._n_iterations)
        omega = np.where(iteration[:, None] > iteration[:-1], trees.learning_rates, 0.0)
        rates = trees.learning_rates
        if factors is not None:
            omega *= factors[np.ix_(iteration, places)]
            rates = omega[-1].copy()
        return replace(trees, schedule=Schedule.one_by_one(rates, Coefficients(omega, beta)))

    def _bent(
        self, trees: BoostedFit, places: IntArray, output: int, l2: list[FloatArray]
    ) -> BoostedFit:
        """Return the entry of one output with what bends its leaves."""
        column = output if self._model.shared else 0
        shares = trees.learning_rates
        if trees.schedule.tree_shares is not None:
            shares = trees.schedule.tree_shares[-1]
        nodes = self._rule.nodes([self._trees[t] for t in places], column, l2, shares)
        # Outputs that share trees have leaf numbers of their own: a replay overwrites them.
        columns = places.astype(np.int64) if self._model.shared else trees.table.columns
        return replace(
            trees,
            leaf_rule=replace(
                trees.leaf_rule, l1=self._rule.l1, max_step=self._rule.max_step, nodes=nodes
            ),
            table=replace(
                trees.table, columns=columns, leaf_values=trees.table.leaf_values[:, [column]]
            ),
        )

    def _zero(self, tree: Tree) -> BoolArray:
        """Return which leaves XGBoost set to zero, (L,): of no weight, or of less than min_child_weight (src/tree/param.h).

        Only a root, or a leaf for several outputs, can be that light. From XGBoost 3.4 on a light
        root keeps its value, and no leaf is light.
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
        """Return how far residuals may be off in each tree, (T,), where scores are rounded otherwise.

        A CPU adds parallel trees to the scores one by one, a GPU all at once
        (src/predictor/gpu_predictor.cu): in each iteration so far up to one rounding per tree
        apart. DART adds up the scores again in single precision in each iteration.
        """
        rounding = 2 * ROUNDING * largest
        if self._drops:
            return np.asarray(rounding * np.sqrt(1.0 + self._iterations))
        if self._model.n_parallel == 1:
            return np.zeros(self._n_trees)
        return np.asarray(rounding * self._model.n_parallel * self._iterations)

    # -- percentiles ------------------------------------------------------------------------------

    def _percentiles(
        self, rows: TrainingRows, plan: DrawPlan, factors: FloatArray | None
    ) -> list[BoostedFit]:
        """Return the entries of all outputs where leaf values are percentiles of residuals."""
        require_rows(rows, "objective", self._reading.objective)
        if rows.totals.offset and self._model.base_estimated:
            raise UnsupportedModelError(
                "base_margin",
                f"given with {self._reading.objective}",
                "predictions then start from a percentile of the targets that the fit did not "
                "start from",
                "Fit with a number as base_score.",
            )
        shares = alphas(self._reading.objective_settings, self.n_outputs)
        return [
            self._percentiles_of(
                output, XGBoostPercentile(alpha, rows.weights), rows, plan, factors
            )
            for output, alpha in enumerate(shares)
        ]

    def _percentiles_of(
        self,
        output: int,
        ranks: XGBoostPercentile,
        rows: TrainingRows,
        plan: DrawPlan,
        factors: FloatArray | None,
    ) -> BoostedFit:
        """Return the entry of one output whose leaf values are percentiles of residuals."""
        places = self._trees_of(output)
        if plan.samples:
            sampler = Subsample(plan, places)
        else:
            sampler = None
        rates = self._percentile_rates(rows, places, output, ranks, sampler)
        l2 = [np.zeros(len(self._trees[t].leaves)) for t in places]
        entry = self._entry(places, np.array([output]), rates, l2, rows.totals.weighted)
        if self._model.shared:
            columns = places.astype(np.int64)
            entry = replace(
                entry,
                table=replace(
                    entry.table, leaf_values=entry.table.leaf_values[:, [output]], columns=columns
                ),
            )
        entry = replace(entry, sampler=sampler, explain_mismatch=self._explain_steps(places))
        entry = self._with_coefficients(entry, places, factors, rows.totals.offset)
        residual_errors = self._residual_errors(rows.totals.largest)[places]
        residual_errors = residual_errors + 2 * ROUNDING * float(np.ptp(rows.targets))
        slack = np.nan_to_num(entry.learning_rates, nan=1.0) * residual_errors
        entry = replace(
            entry, table=replace(entry.table, value_slack=np.repeat(slack, entry.table.n_leaves))
        )
        start = float(entry.initial.values[0])
        if self._model.base_estimated:
            estimated_start = start
        else:
            estimated_start = None
        return with_base(entry, ranks, rows, estimated_start, 8 * ROUNDING * abs(start))

    def _explain_steps(
        self, places: IntArray
    ) -> Callable[[BoolArray], UnsupportedModelError | None] | None:
        """Return why percentiles of these trees may disagree with the data: later ones are Newton steps."""
        is_stepped = [self._trees[t].is_stepped for t in places]
        ranked = [place for place, stepped in enumerate(is_stepped) if stepped is False]
        if not ranked or True not in is_stepped[ranked[-1] + 1 :]:
            return None
        return partial(continued, ranked[-1] + 1)

    def _percentile_rates(
        self,
        rows: TrainingRows,
        places: IntArray,
        output: int,
        ranks: XGBoostPercentile,
        sampler: Subsample | None,
    ) -> FloatArray:
        """Return the rate of the settings where the first tree confirms it, else nan, to be recovered: (T',)."""
        stated = self._stated_rate
        l2 = self._settings.number("reg_lambda")
        first = self._trees[places[0]]
        confirms = self._first_tree_confirms(rows, int(places[0]), output, ranks, sampler)
        rate = stated
        if not (confirms or self._drops or len(first.splits) == 0):
            rate = np.nan
        rates = np.full(len(places), rate)
        knows_l2 = confirms and abs(rate_of_steps(first, l2) - stated) <= 1e-3 * stated
        for place, t in enumerate(places):
            tree = self._trees[t]
            if is_silent(tree):
                rates[place] = 0.0
            elif knows_l2 and abs(rate_of_steps(tree, l2) - stated) > 1e-3 * stated:
                rates[place] = np.nan
        return rates

    def _first_tree_confirms(
        self,
        rows: TrainingRows,
        place: int,
        output: int,
        ranks: XGBoostPercentile,
        sampler: Subsample | None,
    ) -> bool:
        """Return whether the rate of the settings leads to the first tree of an output."""
        tree = self._trees[place]
        if rows.leaves is None:
            leaf = self._rows.first_leaves(rows.X)[:, place]
        else:
            leaf = self.leaves_of(rows)[:, place]
        draws: FloatArray | BoolArray = np.ones(len(leaf))
        if rows.bags is not None:
            draws = rows.bags[:, place]
        elif sampler is not None:
            draws = sampler.bag(0)
        if rows.offsets is None:
            start = self._model.base_score
        else:
            start = rows.offsets
        start = np.broadcast_to(start, rows.targets.shape)[:, output]
        residuals = (rows.targets[:, output] - start).astype(np.float32).astype(np.float64)
        expected = self._stated_rate * ranks.values(leaf, residuals, draws, len(tree.leaves))
        values = tree.values[:, output if self._model.shared else 0]
        errors = np.abs(values - expected)
        return bool(errors.max() <= AS_STATED * np.abs(values).max(initial=0.0))

    # -- rates and regularisation -----------------------------------------------------------------

    @property
    def _stated_rate(self) -> float:
        """The rate of the settings, parallel trees accounted for."""
        rate = np.float32(self._settings.number("learning_rate"))
        return float(rate / np.float32(self._model.n_parallel))

    @property
    def settles(self) -> bool:  # type: ignore[override]
        """Whether sums confirm the settings: any rate would lead to a single leaf's value, and any targets to a zero."""
        has_splits = any(len(tree.splits) for tree in self._trees)
        return has_splits and not self.starts_with_base and not self._drops

    def _rates(self, rows: TrainingRows) -> tuple[FloatArray, list[FloatArray]]:
        """Return learning rates, (T,), and for each tree (L_t,) what is added to its leaves' weights.

        Those of the settings where a few trees confirm them on the data, and all others by
        themselves; else the data decide.
        """
        stated = self._stated_rate
        l2 = self._settings.number("reg_lambda")
        if rows.leaf_totals is None and stated == 0:
            # a schedule ended at 0: the walk goes on by the model's own values, at any rate
            stated = 1.0
        rates = np.where([is_silent(tree) for tree in self._trees], 0.0, stated)
        as_stated = rates, [np.where(self._zero(tree), np.inf, l2) for tree in self._trees]
        if not self.settles or rows.leaf_totals is None:
            return as_stated
        observed = self._observe(rows.leaf_totals, rows.totals)
        n_checked = int(np.searchsorted(self._iterations, CHECKED_ITERATIONS)) + 1
        first = list(islice(observed, n_checked))
        first_agree = all(leaves.agree(stated, l2) for leaves in first if leaves.values.any())
        later_agree = (
            is_silent(tree) or confirmed(tree, stated, l2) for tree in self._trees[n_checked:]
        )
        if first_agree and not self._rule.bends and all(later_agree):
            return as_stated
        trees = [*first, *observed]
        settings = recover(trees, stated, l2, self._model.n_parallel)
        leaf_l2 = [
            np.where(leaves.zero, np.inf, tree_l2)
            for leaves, tree_l2 in zip(trees, settings.lambdas)
        ]
        return settings.rates, leaf_l2

    def _observe(self, entries: list[LeafTotals], totals: Totals) -> Iterator[ObservedLeaves]:
        """Return the leaves of each tree with the sums that they were made of."""
        if self._model.shared:
            entries = [replace(entries[0], sums=np.hstack([entry.sums for entry in entries]))]
        totals_of_tree: dict[int, LeafTotals] = {}
        for output, entry in enumerate(entries):
            places = np.flatnonzero(self._groups == output)
            ends = np.cumsum([len(self._trees[t].leaves) for t in places])[:-1]
            tree_weights = np.split(entry.weights, ends)
            tree_sums = np.split(entry.sums, ends)
            for place, weights, sums in zip(places.tolist(), tree_weights, tree_sums):
                totals_of_tree[place] = LeafTotals(weights, sums)
        return (self._observe_tree(t, totals_of_tree[t], totals) for t in range(self._n_trees))

    def _observe_tree(self, t: int, leaf_totals: LeafTotals, totals: Totals) -> ObservedLeaves:
        """Return the leaves of one tree with the sums that they were made of."""
        tree = self._trees[t]
        weights = leaf_totals.weights
        sums = leaf_totals.sums
        zero = self._zero(tree) | (weights <= 0)
        if not self._rule.bends:
            # A loaded model has lost min_child_weight, but where there are residuals no other leaf
            # is zero.
            size = float(np.abs(sums).sum()) + ROUNDING * totals.largest * totals.weight
            zero |= (np.abs(sums).max(axis=1) > 1e-12 * size) & ~tree.values.any(axis=1)
        value_weights = np.broadcast_to(weights[:, None], tree.values.shape)
        observed = ObservedLeaves(
            values=tree.values[~zero].ravel(),
            weights=value_weights[~zero].ravel(),
            sums=sums[~zero].ravel(),
            zero=zero,
            tree=tree,
            slack=float(self._residual_errors(totals.largest)[t]),
        )
        if not self._rule.bends:
            return observed

        def bent(l2: float) -> FloatArray:
            leaf_l2 = np.where(zero, np.inf, l2)
            return self._rule.values(tree, leaf_l2, sums, weights)[~zero].ravel()

        return replace(observed, bent=bent, max_step=self._rule.max_step)


def _leaf_weights(trees: list[Tree]) -> FloatArray | None:
    """Return the weight of the rows of all leaves of these trees, (L,).

    It is None where a tree does not keep it.
    """
    hessians = [tree.leaf_hessians for tree in trees]
    if any(of_leaves is None for of_leaves in hessians):
        return None
    return np.concatenate([of_leaves for of_leaves in hessians if of_leaves is not None])


def _whole_counts(leaf_weights: FloatArray | None) -> IntArray | None:
    """Return how many rows leaves have, (L,), from weights that are whole numbers.

    It is None where they are not.
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


def _require_trees(booster: Any) -> None:
    """Raise where it was trained for no iteration.

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
