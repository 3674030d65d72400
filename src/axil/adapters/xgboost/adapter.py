"""XGBoost models fitted to squared error: XGBRegressor, XGBRFRegressor and Booster, in memory, pickled or loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.adapters.boosted_fit import BoostedFit, Schedule
from axil.adapters.contract import Ancestors, Coefficients, Totals, TrainingRows, TreeModel
from axil.adapters.frames import single_table
from axil.adapters.percentiles import require_rows, with_base
from axil.adapters.refusals import not_fitted, refuse
from axil.adapters.routes import Routes, SplitKind, Splits, make_routes
from axil.adapters.xgboost.document import ModelDocument, Tree, XGBoostSettings, parse
from axil.adapters.xgboost.draws import DrawPlan, Subsample
from axil.adapters.xgboost.matrix import as_matrix, coded_table
from axil.adapters.xgboost.percentile import PERCENTILES, XGBoostPercentile, alphas
from axil.adapters.xgboost.plan import drop_factors, plan_of, plan_of_draws
from axil.adapters.xgboost.rates import (
    LEAF_ROUNDING,
    ROUNDING,
    Leaves,
    confirmed,
    is_silent,
    rate_of_steps,
    recover,
)
from axil.adapters.xgboost.refusals import REFUSALS, XGBoostReading, causes, continued, pruned
from axil.adapters.xgboost.rule import XGBoostRule
from axil.arrays import BoolArray, FloatArray, IntArray
from axil.errors import InputError, UnsupportedModelError

Reader = TypeVar("Reader")

CHECKED_ITERATIONS = 4  # compared with the data before the settings are trusted
AS_STATED = 1e-5  # of the largest leaf value: a rate that leads to the values of the first tree is taken as stated


def read(model: Any, leaves_only: bool = False) -> XGBoostAdapter | None:
    """The adapter for an XGBoost model, None for any other object; of one whose leaves alone are read trees are expected."""
    return opened(model, partial(XGBoostAdapter, leaves_only=leaves_only))


def opened(model: Any, reader: Callable[..., Reader]) -> Reader | None:
    """The adapter that a reader of boosters returns for an XGBoost model, wrapped or not; None for other objects."""
    import xgboost

    if isinstance(model, xgboost.Booster):
        return reader(model)
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
    return reader(model.get_booster(), n_iterations, missing, type(model).__name__, custom)


class XGBoostAdapter(TreeModel):
    """An XGBoost booster: all its trees, or those up to the best iteration where a scikit-learn model predicts with them.

    XGBoost keeps targets, weights, predictions and residuals in float32 and adds in float64 (src/objective, src/tree). A
    replay that rounds likewise has the very sums that XGBoost had; the leaf value is then rounded to float32, multiplied by
    the rate and rounded again, so it is met to two roundings, 2^-23 of itself. A GPU adds quantised numbers and is met to
    1e-6 only.

    Predictions are sums in float32 too, so they differ from the sum of the very leaf values that they are made of, and from
    any exact map, like a random walk of T steps of 2^-24: 1.4 * sqrt(T) of them at most in 20,000 rows, 600 trees: 2e-6.
    """

    library = "XGBoost"
    refusals = REFUSALS
    precision = np.float32
    offset_precision = np.float32
    residual_precision = np.float32
    score_precision = np.float32
    base_precision = np.float32
    offset_replaces_base = True  # InitOutPredictions, src/predictor/predictor.cc

    def __init__(
        self,
        booster: Any,
        n_iterations: int = 0,
        missing: float = np.nan,
        estimator: str = "Booster",
        custom: str = "",
        leaves_only: bool = False,
    ):
        _require_trees(booster)
        self._booster, self._missing = booster.copy(), missing  # a booster can be trained further
        self._settings = XGBoostSettings.of(booster)
        model = parse(booster.save_raw("json"))
        self._reading = XGBoostReading(self._settings, model, estimator, custom)
        refuse(self.refusals[:1] if leaves_only else self.refusals, self._reading)
        assert model is not None  # it is for gblinear, which is refused
        self._model: ModelDocument = model
        self._n_iterations = n_iterations or int(model.iterations[-1]) + 1
        self._n_trees = int(np.searchsorted(model.iterations, self._n_iterations))
        self._trees = model.trees[: self._n_trees]
        self._groups, self._iterations = (
            model.groups[: self._n_trees],
            model.iterations[: self._n_trees],
        )
        self.n_features = int(booster.num_features())
        self.feature_names: list[str] | None = booster.feature_names
        self.n_outputs = model.n_outputs
        self.fingerprint = model.fingerprint(self._n_trees)
        self.tolerance = max(1e-6, 3 * ROUNDING * float(np.sqrt(self._n_trees)))
        self.leaf_tolerance = 1.05 * LEAF_ROUNDING
        if model.weight_drop is not None:
            self.leaf_tolerance *= 2  # the drop weights are rounded likewise
        self._rule = XGBoostRule.of(self._settings, self.n_features)
        if self._rule.signs.any():
            self.leaf_tolerance *= (
                2  # bounds are rounded once more than the values that they come from
            )
        self.starts_with_base = self._reading.objective in PERCENTILES and not leaves_only
        self.starts_with_percentile = self.starts_with_base and model.base_estimated
        self.repeats_targets = self._reading.objective == "reg:quantileerror"
        self._number_leaves()

    def _number_leaves(self) -> None:
        """From XGBoost's node numbers, tree after tree, to leaf numbers."""
        self._node_starts = np.cumsum([0, *(tree.n_nodes for tree in self._trees)])
        self._leaf_of_node = np.full(self._node_starts[-1], -1, dtype=np.int32)
        for start, tree in zip(self._node_starts, self._trees):
            self._leaf_of_node[start + tree.leaves] = np.arange(len(tree.leaves))

    @property
    def categories(self) -> dict[str, list[Any]]:
        """The categories of columns that the fit had as categories, by name; empty where the model does not state them."""
        kept = zip(self.feature_names or [], self._model.categories)
        return {str(name): values for name, values in kept if values}

    @property
    def unseen(self) -> str:  # type: ignore[override]
        """The effect of a category that no training row has; from 3.1 on XGBoost refuses it."""
        if not self.numbers_by_frame:
            return ""
        return "XGBoost before 3.1 sends such a value left wherever it tests for categories."

    @property
    def numbers_by_frame(self) -> bool:
        """Whether a row's category has the number that it has in its own frame, as before 3.1."""
        return "c" in (self._booster.feature_types or []) and not any(self._model.categories)

    # -- rows ---------------------------------------------------------------------------------------------------------

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        """(n, T): which leaf of each tree every row falls into."""
        if X.shape[0] == 0:
            return np.zeros((0, self._n_trees), dtype=np.int32)
        return self._leaves(X, 0, self._n_iterations)

    @cached_property
    def routes(self) -> Routes | None:
        """Values in float32, left if below the threshold (src/predictor)."""
        nodes = [tree.nodes() for tree in self._trees]
        features, thresholds, left, children = (np.concatenate(parts) for parts in zip(*nodes))
        starts = np.concatenate([[0], np.cumsum([len(tree.splits) for tree in self._trees])])
        outcomes = {
            int(start) + split: table
            for start, tree in zip(starts, self._trees)
            for split, table in tree.outcomes().items()
        }
        kinds = np.where(left, SplitKind.LEFT, SplitKind.RIGHT).astype(np.int64)
        kinds[list(outcomes)] = SplitKind.CATEGORIES
        stacked = Splits(starts, features, thresholds, kinds, children, outcomes)
        return make_routes(stacked, single=True, strict=True, zero=-1.0, infinite=False)

    def table(self, X: Any) -> NDArray[np.floating[Any]] | None:
        """The numbers as they come, where nothing but NaN is missing and each has its own float32; sparse rows have gaps.

        Categories as the model numbers them, where it has them all.
        """
        if not np.isnan(self._missing):
            return None
        if any(kind == "c" for kind in self._booster.feature_types or ()):
            return coded_table(X, self._booster.feature_types, self._model.categories)
        if sparse.issparse(X):
            rows, table = sparse.csr_matrix(X), np.full(X.shape, np.nan, dtype=X.dtype)
            table[np.repeat(np.arange(X.shape[0]), np.diff(rows.indptr)), rows.indices] = rows.data
            return table
        return single_table(X)

    def _leaves(self, X: Any, begin: int, end: int) -> NDArray[np.int32]:
        """(n, trees of these iterations)."""
        matrix = as_matrix(X, self._booster, self._missing, self._model.categories)
        # XGBoost gives leaves from the first iteration on only; a slice of the model has its own first.
        booster = self._booster[begin:end] if begin else self._booster
        nodes = booster.predict(
            matrix, pred_leaf=True, iteration_range=(0, end - begin), validate_features=False
        )
        first, last = np.searchsorted(self._iterations, (begin, end))
        nodes = np.asarray(nodes).reshape(matrix.num_row(), last - first).astype(np.int64)
        found: NDArray[np.int32] = self._leaf_of_node[nodes + self._node_starts[first:last]]
        return found

    def _some_leaves(self, X: Any, begin: int, end: int) -> NDArray[np.integer[Any]]:
        """Leaves by routes, where there are any."""
        table = None if self.routes is None else self.table(X)
        if self.routes is not None and table is not None:
            first, last = np.searchsorted(self._iterations, (begin, end))
            found = np.empty((last - first, X.shape[0]), dtype=np.uint16)
            if replace(self.routes, starts=self.routes.starts[first : last + 1]).assign(
                table, found, 1
            ):
                return found.T
        return self._leaves(X, begin, end)

    def predictions(
        self, X: Any, offsets: FloatArray | None = None, output_margin: bool = False
    ) -> FloatArray:
        """(n, K): what ``predict`` gives, with offsets for base_margin, or before the link."""
        matrix = as_matrix(X, self._booster, self._missing, self._model.categories)
        if offsets is not None:
            matrix.set_base_margin(offsets.astype(np.float32))
        output_margin = (
            output_margin or self.repeats_targets
        )  # from 3.4 on `predict` sorts the quantiles of each row
        how = {"output_margin": output_margin, "iteration_range": (0, self._n_iterations)}
        found = self._booster.predict(matrix, validate_features=False, **how)
        return np.asarray(found, dtype=np.float64).reshape(X.shape[0], self.n_outputs)

    # -- trees --------------------------------------------------------------------------------------------------------

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """The trees, one entry for each output, or for all where they share leaves."""
        n_rows = rows.totals.n_rows
        plan = (
            plan_of_draws(self._model, self._settings, n_rows, rows.weights)
            if rows.at_hand
            else plan_of(self._model, self._settings, n_rows)
        )
        factors = self._drop_factors(plan)
        if self.starts_with_base:
            return self._percentiles(rows, plan, factors)
        rates, l2 = self._rates(rows)
        entries = []
        together = (
            self._model.shared and not self._rule.bends
        )  # else each output has a pattern of its own
        for group in range(1 if together else self.n_outputs):
            own = (
                np.arange(self._n_trees)
                if self._model.shared
                else np.flatnonzero(self._groups == group)
            )
            outputs = np.arange(self.n_outputs) if together else np.array([group])
            entry = self._entry(
                own, outputs, rates[own], [l2[t] for t in own], rows.totals.weighted
            )
            entry = replace(entry, sampler=Subsample(plan, own) if plan.samples else None)
            entry = self._with_coefficients(entry, own, factors, rows.totals.offset)
            entry = replace(entry, value_slack=self._slack(entry, own, rows.totals.largest))
            entries.append(self._bent(entry, own, group, l2) if self._rule.bends else entry)
        return entries

    @property
    def _averages(self) -> bool:
        """Whether predictions are means over trees that do not see each other, as those of a random forest."""
        return self._n_iterations == 1 and self._model.n_parallel > 1

    @property
    def _drops(self) -> bool:
        """Whether DART dropped trees: each drop leaves a factor behind."""
        return self._model.weight_drop is not None and bool(np.any(self._model.weight_drop != 1))

    def _drop_factors(self, plan: DrawPlan) -> FloatArray | None:
        """The factors of DART, where trees were dropped; without drops it is plain boosting, whose rates may change."""
        if plan.dart is None:
            return None
        found = drop_factors(self._model, plan, self._n_iterations)
        return found if self._drops else None

    def _percentiles(
        self, rows: TrainingRows, plan: DrawPlan, factors: FloatArray | None
    ) -> list[BoostedFit]:
        """The entries of all outputs where leaf values are percentiles of residuals."""
        require_rows(rows, "objective", self._reading.objective)
        totals, estimated = rows.totals, self._model.base_estimated
        if totals.offset and estimated:
            raise UnsupportedModelError(
                "base_margin",
                f"given with {self._reading.objective}",
                "predictions then start from a percentile of the targets that the fit did not start from",
                "Fit with a number as base_score.",
            )
        entries, shares = [], alphas(self._reading.objective_settings, self.n_outputs)
        apart = float(np.ptp(rows.targets))
        for group, alpha in enumerate(shares):
            own = (
                np.arange(self._n_trees)
                if self._model.shared
                else np.flatnonzero(self._groups == group)
            )
            ranks = XGBoostPercentile(alpha, rows.weights)
            sampler = Subsample(plan, own) if plan.samples else None
            rates = self._stated_rates(rows, own, group, ranks, sampler)
            none = [np.zeros(len(self._trees[t].leaves)) for t in own]
            entry = self._entry(own, np.array([group]), rates, none, totals.weighted)
            if self._model.shared:
                entry = replace(
                    entry, leaf_values=entry.leaf_values[:, [group]], columns=own.astype(np.int64)
                )
            entry = self._with_coefficients(
                replace(entry, sampler=sampler, explain_mismatch=self._doubt(own)),
                own,
                factors,
                totals.offset,
            )
            own_rates = np.repeat(np.nan_to_num(entry.learning_rates, nan=1.0), entry.n_leaves)
            apart_by_scores = np.repeat(self._apart(totals.largest)[own], entry.n_leaves)
            entry = replace(entry, value_slack=own_rates * (apart_by_scores + 2 * ROUNDING * apart))
            start = float(entry.base_value[0])
            entries.append(
                with_base(
                    entry, ranks, rows, start if estimated else None, 8 * ROUNDING * abs(start)
                )
            )
        return entries

    def _doubt(self, own: IntArray) -> Callable[[BoolArray], UnsupportedModelError | None] | None:
        """Return why percentiles of these trees may disagree with the data: later ones are Newton steps."""
        shown = [self._trees[t].is_stepped for t in own]
        if False not in shown:
            return None
        last = len(shown) - 1 - shown[::-1].index(False)
        return partial(continued, last + 1) if True in shown[last + 1 :] else None

    def _stated_rates(
        self,
        rows: TrainingRows,
        own: IntArray,
        output: int,
        ranks: XGBoostPercentile,
        sampler: Subsample | None,
    ) -> FloatArray:
        """(T,): the rate of the settings where the first tree confirms it, else nan, to be recovered."""
        stated, tree = self._stated_rate, self._trees[own[0]]
        leaf = self._some_leaves(rows.X, 0, 1)[:, own[0]]
        draw = np.ones(len(leaf)) if sampler is None else sampler.bag(0)
        draw = draw if rows.bags is None else rows.bags[:, own[0]]
        start = self._model.base_score if rows.offsets is None else rows.offsets
        start = np.broadcast_to(start, rows.targets.shape)[:, output]
        residuals = (rows.targets[:, output] - start).astype(np.float32).astype(np.float64)
        made = ranks.values(leaf, residuals, draw, len(tree.leaves))
        values = tree.values[:, output if self._model.shared else 0]
        near = np.abs(values - stated * made).max() <= AS_STATED * np.abs(values).max(initial=0.0)
        rates = np.full(
            len(own), stated if near or self._drops or len(tree.splits) == 0 else np.nan
        )
        l2 = self._settings.number("reg_lambda")
        is_known = near and abs(rate_of_steps(tree, l2) - stated) <= 1e-3 * stated  # so is lambda
        for place, t in enumerate(own):
            shown = rate_of_steps(self._trees[t], l2) if is_known else np.nan
            if is_silent(self._trees[t]):
                rates[place] = 0.0
            elif abs(shown - stated) > 1e-3 * stated:
                rates[place] = np.nan
        return rates

    def _bent(
        self, trees: BoostedFit, own: IntArray, output: int, l2: list[FloatArray]
    ) -> BoostedFit:
        """The entry of one output with what bends its leaves."""
        column = output if self._model.shared else 0
        tree_shares = trees.schedule.tree_shares
        final = trees.learning_rates if tree_shares is None else tree_shares[-1]
        nodes = self._rule.nodes([self._trees[t] for t in own], column, [l2[t] for t in own], final)
        # Outputs that share trees have leaf numbers of their own: a replay overwrites them.
        columns = own.astype(np.int64) if self._model.shared else trees.columns
        bent = replace(
            trees, l1=self._rule.l1, max_step=self._rule.max_step, nodes=nodes, columns=columns
        )
        return replace(bent, leaf_values=trees.leaf_values[:, [column]])

    def _entry(
        self,
        own: IntArray,
        outputs: IntArray,
        rates: FloatArray,
        l2: list[FloatArray],
        weighted: bool,
    ) -> BoostedFit:
        trees = [self._trees[t] for t in own]
        n_leaves = np.array([len(tree.leaves) for tree in trees], dtype=np.int64)
        drop = (
            np.ones(len(own)) if self._model.weight_drop is None else self._model.weight_drop[own]
        )
        hessians = [
            None if tree.node_hessians is None else tree.node_hessians[tree.leaves]
            for tree in trees
        ]
        known = (
            None
            if any(own is None for own in hessians)
            else np.concatenate([h for h in hessians if h is not None])
        )
        whole = (
            known is not None
            and not weighted
            and bool(np.all(known == np.rint(known)) and known.max() < 2**24)
        )
        base = np.broadcast_to(self._model.base_score, (self.n_outputs,))[outputs]
        return BoostedFit(
            n_leaves=n_leaves,
            leaf_values=np.concatenate([tree.values * factor for tree, factor in zip(trees, drop)]),
            leaf_counts=np.rint(known).astype(np.int64) if known is not None and whole else None,
            leaf_weights=known,
            l2=np.concatenate(l2),
            schedule=Schedule.one_by_one(rates),
            base=None if self._model.base_estimated else base,
            base_value=base,
            explain_mismatch=next(
                (partial(pruned, t) for t, tree in enumerate(trees) if tree.pruned), None
            ),
            ancestors=_ancestors(trees, l2) if self._averages else None,
            columns=None if len(own) == self._n_trees else own.astype(np.int64),
        )

    def _zero(self, tree: Tree) -> BoolArray:
        """(L,): leaves that XGBoost set to zero: of no weight, or of less than min_child_weight (src/tree/param.h).

        Only a root, or a leaf for several outputs, can be that light. From XGBoost 3.4 on a light root keeps its value, and
        no leaf is light.
        """
        if tree.node_hessians is None:
            return np.zeros(len(tree.leaves), dtype=np.bool_)
        keeps = len(tree.splits) == 0 and self._model.version >= (3, 4)
        hessians, lightest = (
            tree.node_hessians[tree.leaves],
            self._settings.number("min_child_weight") * (not keeps),
        )
        found: BoolArray = (hessians <= 0) | ((hessians < lightest) & ~tree.values.any(axis=1))
        return found

    def _with_coefficients(
        self, trees: BoostedFit, own: IntArray, factors: FloatArray | None, offset: bool
    ) -> BoostedFit:
        """The table of how trees add up, where it is not one after the other.

        Parallel trees see the same residual; DART drops and scales; and a fit with base_margin does not start from the
        base_score that predictions are given without it (InitOutPredictions, src/predictor/predictor.cc).
        """
        beta = np.ones(len(own) + 1)
        if offset and (trees.base is None or trees.base_value.any()):
            beta[:-1] = 0
        if factors is None and self._model.n_parallel == 1 and beta.all():
            return trees
        iteration = np.append(self._iterations[own], self._n_iterations)
        omega = np.where(iteration[:, None] > iteration[:-1], trees.learning_rates, 0.0)
        if factors is None:
            rates = trees.learning_rates
        else:
            omega *= factors[np.ix_(iteration, own)]
            rates = omega[-1].copy()
        return replace(trees, schedule=Schedule.one_by_one(rates, Coefficients(omega, beta)))

    def _apart(self, largest: float) -> FloatArray:
        """(T,): how far residuals are off for scores that are rounded otherwise.

        A CPU adds parallel trees to the scores one by one, a GPU all at once (src/predictor/gpu_predictor.cu): in each
        iteration so far up to one rounding per tree apart.
        """
        n_parallel = self._model.n_parallel
        return np.asarray(
            2 * ROUNDING * largest * (n_parallel if n_parallel > 1 else 0) * self._iterations
        )

    def _slack(self, trees: BoostedFit, own: IntArray, largest: float) -> FloatArray:
        """(L,): how far leaves are off for scores that are rounded otherwise."""
        return np.repeat(trees.learning_rates * self._apart(largest)[own], trees.n_leaves)

    # -- rates and regularisation ---------------------------------------------------------------------------------------

    @property
    def _stated_rate(self) -> float:
        """The rate of the settings, parallel trees accounted for."""
        return float(
            np.float32(self._settings.number("learning_rate")) / np.float32(self._model.n_parallel)
        )

    @property
    def settles(self) -> bool:  # type: ignore[override]
        """Whether sums confirm the settings: any rate would lead to a single leaf's value, and any targets to a zero."""
        return not (
            self.starts_with_base
            or self._drops
            or all(len(tree.splits) == 0 for tree in self._trees)
        )

    def _rates(self, rows: TrainingRows) -> tuple[FloatArray, list[FloatArray]]:
        """(T,) rates, parallel trees accounted for, and for each tree (L_t,) what is added to its leaves' weights.

        Those of the settings where a few trees confirm them on the data, and all others by themselves; else the data decide.
        """
        stated, l2 = self._stated_rate, self._settings.number("reg_lambda")
        if rows.leaf_totals is None and stated == 0:
            stated = 1.0  # a schedule ended at 0: the walk goes on by the model's own values, at any rate
        rates = np.where([is_silent(tree) for tree in self._trees], 0.0, stated)
        as_stated = rates, [np.where(self._zero(tree), np.inf, l2) for tree in self._trees]
        if not self.settles or rows.leaf_totals is None:
            return as_stated
        observed, checked = (
            self._observed(rows),
            int(np.searchsorted(self._iterations, CHECKED_ITERATIONS)) + 1,
        )
        first = list(islice(observed, checked))
        agree = all(leaves.agree(stated, l2) for leaves in first if leaves.values.any())
        later_agree = (
            is_silent(tree) or confirmed(tree, stated, l2) for tree in self._trees[checked:]
        )
        if agree and not self._rule.bends and all(later_agree):
            return as_stated
        every = [*first, *observed]
        rates, lambdas = recover(every, stated, l2, self._model.n_parallel)
        return rates, [
            np.where(leaves.zero, np.inf, found) for leaves, found in zip(every, lambdas)
        ]

    def _observed(self, rows: TrainingRows) -> Iterator[Leaves]:
        """For each tree, the sums that its leaves were made of."""
        totals, found = rows.leaf_totals or [], dict[int, tuple[FloatArray, FloatArray]]()
        if self._model.shared:
            totals = [replace(totals[0], sums=np.hstack([entry.sums for entry in totals]))]
        for group, entry in enumerate(totals):
            own = np.flatnonzero(self._groups == group)
            ends = np.cumsum([len(self._trees[t].leaves) for t in own])[:-1]
            found |= zip(
                own.tolist(), zip(np.split(entry.weights, ends), np.split(entry.sums, ends))
            )
        return (self._made_of(t, *found[t], rows.totals) for t in range(self._n_trees))

    def _made_of(self, t: int, weights: FloatArray, sums: FloatArray, totals: Totals) -> Leaves:
        tree = self._trees[t]
        zero = self._zero(tree) | (weights <= 0)
        if not self._rule.bends:
            # A loaded model has lost min_child_weight, but where there are residuals no other leaf is zero.
            size = float(np.abs(sums).sum()) + ROUNDING * totals.largest * totals.weight
            zero |= (np.abs(sums).max(axis=1) > 1e-12 * size) & ~tree.values.any(axis=1)
        of_values = np.broadcast_to(weights[:, None], tree.values.shape)
        slack = self._apart(totals.largest)[t]
        found = Leaves(
            tree.values[~zero].ravel(),
            of_values[~zero].ravel(),
            sums[~zero].ravel(),
            zero,
            tree,
            slack,
        )
        if not self._rule.bends:
            return found

        def bent(l2: float) -> FloatArray:
            of_leaves = np.where(zero, np.inf, l2)
            return self._rule.values(tree, of_leaves, sums, weights, self._averages)[~zero].ravel()

        return replace(found, bent=bent, most=self._rule.max_step)

    def causes(self, what: str) -> str:
        """The most likely reason for a disagreement in "counts", "weights" or "values"."""
        return causes(what, self._settings.number("subsample") < 1)


def _ancestors(trees: list[Tree], l2: list[FloatArray]) -> Ancestors:
    """Return the splits of these trees, as parents of their leaves; ``l2`` has what is added to the leaves' weights."""
    of_splits = [
        np.full(len(tree.splits), own[np.isfinite(own)].min(initial=np.inf))
        for tree, own in zip(trees, l2)
    ]
    return Ancestors.of([tree.nodes()[3] for tree in trees], np.concatenate(of_splits))


def _require_trees(booster: Any) -> None:
    """Raise where it was trained for no iteration; XGBoost itself raises where it has not seen any data."""
    import xgboost

    try:
        rounds = booster.num_boosted_rounds()
    except ValueError:
        rounds = 0
    if not rounds:
        raise InputError(
            "This XGBoost model has no trees: it was not trained, or it was read from a file of a newer XGBoost than "
            f"{xgboost.__version__}, installed here, which skips what it does not know. Train it first, or read the file with "
            "the version that wrote it."
        )
