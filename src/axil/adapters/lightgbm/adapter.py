"""LightGBM models fitted to squared error: LGBMRegressor and Booster, in memory, pickled or loaded from text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.adapters.boosted_fit import BoostedFit, InitialPrediction, LeafRule, Schedule, TreeTable
from axil.adapters.contract import Coefficients, Nodes, Totals, TrainingRows, TreeModel
from axil.adapters.frames import array_of_floats
from axil.adapters.lightgbm.draw_replay import DrawReplay, LeafEvidence, histories
from axil.adapters.lightgbm.path_smooth import PathSmooth
from axil.adapters.lightgbm.percentile import Gradients
from axil.adapters.lightgbm.rates import FIRST, hidden_rate, refitted_trees, stated_rates
from axil.adapters.lightgbm.reading import LightGBMReading
from axil.adapters.lightgbm.refusals import REFUSALS, cause
from axil.adapters.lightgbm.rows import as_lightgbm, from_pandas, routes_of
from axil.adapters.lightgbm.rule import LightGBMRule
from axil.adapters.lightgbm.samplers import IterationGradients, SamplerState
from axil.adapters.lightgbm.text import LightGBMSettings, parse
from axil.adapters.percentiles import require_rows, with_base
from axil.adapters.refusals import not_fitted, refusal, refuse, weights_refusal
from axil.adapters.routes import Routes
from axil.arrays import FloatArray, LeafArray
from axil.errors import InputError, UnsupportedModelError
from axil.scale import IDENTITY, TargetScale
from axil.structure import Cut, NewtonRule, with_nodes

#: tolerance of leaf values beyond which residuals are rounded otherwise than the library's
CLOSE = 1e-9
ROUNDING = 1e-13  # of the largest value of a tree: what sums in another order are off by


def read(
    model: Any, objective: Any = None, by_gradients: bool = False, leaves_only: bool = False
) -> LightGBMAdapter | None:
    """Return the adapter of a LightGBM model; None for any other object.

    Parameters
    ----------
    model : object
        Any object.
    objective : callable, optional
        The user's own function that the model was fitted with.
    by_gradients : bool
        Whether it is read by its gradients even where it has exact weights.
    leaves_only : bool
        Whether only its leaves are read. Nothing is refused then.
    """
    booster = booster_of(model)
    if booster is None:
        return None
    if leaves_only:
        return LightGBMAdapter(*opened(booster), leaves_only=True)
    from axil.adapters.lightgbm.linear import LinearLightGBM
    from axil.adapters.lightgbm.loss import LightGBMWithLoss, settings_of

    estimator = settings_of(model, booster, objective)
    copied, reading = opened(booster, estimator.stops_early, estimator.objective is not None)
    not_exact = None
    if objective is None and not by_gradients:
        not_exact = weights_refusal(REFUSALS, reading)
        if not_exact is None:
            adapter_class = LinearLightGBM if reading.linear else LightGBMAdapter
            return adapter_class(copied, reading)
    adapter = LightGBMWithLoss(copied, reading, estimator)
    adapter.not_exact = not_exact
    return adapter


def booster_of(model: Any) -> Any:
    """Return the Booster of a LightGBM model, wrapped or not; None for any other object."""
    import lightgbm

    if isinstance(model, lightgbm.Booster):
        return model
    if not isinstance(model, lightgbm.LGBMModel):
        return None
    if not model.__sklearn_is_fitted__():
        raise not_fitted(model)
    return model.booster_


def opened(
    booster: Any, stops_early: str = "", own_objective: bool = False
) -> tuple[Any, LightGBMReading]:
    """Return a copy of a booster, up to its best iteration, and what its text and its settings say."""
    # best_iteration is 0 or -1 where there was no early stopping: all iterations.
    saved = booster.model_to_string(num_iteration=max(int(booster.best_iteration), 0) or -1)
    text = parse(saved)
    if not text.trees:
        raise InputError("This LightGBM model has no trees: train it first.")
    if text.parameters is None:
        raise UnsupportedModelError(
            "parameters",
            "none",
            "its text has no parameters block, so how its leaves were regularised cannot be known",
            "Load the model from the text that LightGBM saved, complete with the lines after "
            "'parameters:'.",
        )
    settings = LightGBMSettings(text.parameters, booster.params or {})
    decay_rate = _refit_decay_rate(booster, text.parameters)
    reading = LightGBMReading(text, settings, decay_rate, stops_early, own_objective)
    return _copied(booster, saved), reading


def _roots(targets: FloatArray) -> FloatArray:
    """Return targets with reg_sqrt, in single precision as LightGBM takes them (src/objective/regression_objective.hpp)."""
    return _signed_roots(targets.astype(np.float32))


def _signed_roots(values: FloatArray) -> FloatArray:
    return np.asarray(np.sign(values) * np.sqrt(np.abs(values)))


def _squares(roots: FloatArray) -> FloatArray:
    return np.asarray(np.sign(roots) * roots * roots)


ROOTS = TargetScale("sqrt", _squares, _roots)


@dataclass(frozen=True)
class Base:
    """Where the scores of a fit start."""

    fixed: float | None  #: None: the mean or a percentile of the targets
    value: float
    #: how much of it the leaves of the first tree hold; in a forest, those of all trees
    hidden: float


class LightGBMAdapter(TreeModel):
    """A LightGBM booster, up to its best iteration where early stopping set one, as ``predict`` uses it by default.

    LightGBM keeps targets, weights and residuals in float32 and adds in float64, so a replay that
    rounds likewise meets its leaf values to the last digits. A GPU adds in single precision
    (gpu_use_dp=False) and is met to that only; the learner for CUDA leaves max_delta_step and
    monotone_constraints out of account and counts weighted rows by their weights.
    """

    library = "LightGBM"
    unseen = "LightGBM takes such a value for a missing one."
    refusals = REFUSALS
    precision = np.float32
    residual_precision: type[np.floating[Any]] = np.float32
    score_precision = np.float64
    tolerance = 1e-6
    # fit takes feature_name= for the columns of a frame, which predict then takes by their places
    renames = True

    def __init__(self, booster: Any, reading: LightGBMReading, leaves_only: bool = False):
        refuse(() if leaves_only else self.refusals, reading)
        self._booster = booster
        self._reading = reading
        self._settings = reading.settings
        text = reading.text
        self._trees = text.trees
        self._n_leaves = np.array([tree.n_leaves for tree in text.trees], dtype=np.int64)
        self.n_features = int(booster.num_feature())
        names = [str(name) for name in booster.feature_name()]
        is_unnamed = names == [f"Column_{i}" for i in range(len(names))]
        if is_unnamed:
            self.feature_names: list[str] | None = None
        else:
            self.feature_names = names
        self.fingerprint = text.fingerprint()
        if text.objective == "regression sqrt":
            self.scale = ROOTS
        else:
            self.scale = IDENTITY
        self.starts_with_base = self._reading.ranked and not leaves_only
        if self.starts_with_base:
            self.base_precision = np.float32
            self.residual_precision = np.float64
        self._rule = LightGBMRule.of(self._reading)
        self.settles = self._rule.smooth > 0
        self.leaf_tolerance = self._rule.tolerance

    def spelling(self, name: str) -> str:
        """LightGBM keeps no spaces in names (set_feature_names, include/LightGBM/dataset.h)."""
        return name.replace(" ", "_")

    # -- rows -------------------------------------------------------------------------------------

    @property
    def categories(self) -> dict[str, list[Any]]:  # type: ignore[override]
        """The categories of columns that the fit had as pandas categories, by name.

        It is empty where the model does not say which.
        """
        categories = self._booster.pandas_categorical or []
        names = self.feature_names or []
        features = sorted(self._reading.text.category_counts)
        if len(features) != len(categories):  # a single category is written as an unused feature
            return {}
        return {str(names[i]): list(values) for i, values in zip(features, categories)}

    def _rows(self, X: Any) -> Any:
        """Return X as LightGBM takes it."""
        return as_lightgbm(X, self._booster.pandas_categorical or [])

    def leaves(self, X: Any) -> LeafArray:
        """Return the leaf of each row in each tree, (n, T)."""
        if X.shape[0] == 0:
            return np.zeros((0, len(self._trees)), dtype=np.int32)
        leaves = self._booster.predict(self._rows(X), pred_leaf=True)
        return np.asarray(leaves, dtype=np.int32).reshape(X.shape[0], len(self._trees))

    @cached_property
    def routes(self) -> Routes | None:
        """The tests of all trees."""
        return routes_of(self._trees)

    def table(self, X: Any) -> NDArray[np.floating[Any]] | None:
        """Return the numbers that LightGBM compares: floats as they are, other arrays in float32, frames in float64."""
        if bool(sparse.issparse(X)):
            return np.asarray(X.toarray())
        rows = self._rows(X)
        if not isinstance(rows, np.ndarray):
            return from_pandas(rows, self._booster.pandas_categorical or [])
        return array_of_floats(rows)

    def predictions(self, X: Any) -> FloatArray:
        """Return what ``predict`` gives, (n, 1); with reg_sqrt before it is squared."""
        # Raw scores would do, but of boosting=rf they are sums, not means.
        predictions = np.asarray(self._booster.predict(self._rows(X)), dtype=np.float64)[:, None]
        if self.scale.is_identity:
            return predictions
        return _signed_roots(predictions)

    def causes(self, what: str) -> str:
        """Return the most likely reason for a disagreement in "counts", "weights" or "values"."""
        return cause(self._reading, what, self._rule.digits_lost)

    # -- trees ------------------------------------------------------------------------------------

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """Return the trees, their base taken out of the first one, where LightGBM hides it."""
        rule = self._rule
        if self._reading.refitted:
            return [refitted_trees(self._trees, self._settings, rule.l2)]
        totals = rows.totals
        coefficients = self._coefficients(rows)
        gradients = self._gradients(rows)
        start = float(totals.means[0])
        start_error = 0.0
        if gradients is not None:
            start, start_error = gradients.start(rows.targets[:, 0])
        base = self._base(start, totals, coefficients)
        hides_base = np.arange(len(self._trees)) == 0
        if self._reading.forest:
            hides_base = self._n_leaves > 1
        hidden = np.where(hides_base, base.hidden, 0.0)
        values, nodes = self._without_base(hidden)
        hides_rate = coefficients is None and base.hidden != 0.0 and self._trees[0].n_leaves > 1
        if coefficients is None:
            rates = stated_rates(self._trees, self._settings)
        else:
            rates = coefficients.omega[-1].copy()
        if hides_rate:
            rates[0] = hidden_rate(values[0], rates[1:], self._settings)
        # Weights are for draws, which are not replayed on several machines.
        weights = rows.weights if rows.at_hand else None
        evidence = self._evidence(totals.n_rows, weights)
        evidence = replace(evidence, values=np.concatenate(values), rates=rates)
        if gradients is not None:
            evidence = replace(evidence, ranks=gradients.ranks, leaf_weights=self._goss_weights())
        leaf_weights = self._leaf_weights(totals)
        if self._reading.forest and self._reading.bags:
            self._count_lone_leaves(evidence, leaf_weights, totals.n_rows, rows.bags)
        printed_shift: FloatArray | float = 0.0
        if not self._reading.forest:
            printed_shift = np.repeat(hidden, self._n_leaves)
        guesses_rate = hides_rate and not np.isnan(rates[0])
        trees = BoostedFit(
            table=TreeTable(
                n_leaves=self._n_leaves,
                leaf_values=evidence.values[:, None],
                leaf_counts=evidence.counts if self._reading.counts_rows or totals.even else None,
                leaf_weights=leaf_weights,
                printed_shift=printed_shift,
                value_slack=rule.slack(evidence.values),
            ),
            leaf_rule=LeafRule(
                l2=evidence.rule.l2,
                l1=rule.l1,
                max_step=rule.max_step,
                nodes=nodes,
                ancestors=rule.ancestors() if self._reading.forest else None,
                cut=Cut(self._settings.precisely("alpha")[0]) if self._reading.cuts else None,
            ),
            initial=InitialPrediction(
                follows_targets=base.fixed is None,
                values=np.array([base.value]),
            ),
            schedule=Schedule.one_by_one(rates, coefficients),
            sampler=self._sampler(evidence, totals.n_rows, gradients),
            explain_mismatch=partial(refusal, FIRST) if guesses_rate else None,
        )
        if gradients is not None:
            trees = self._without_lone_steps(trees, coefficients)
            estimated_start = start if base.fixed is None else None
            return [with_base(trees, gradients.ranks, rows, estimated_start, start_error)]
        if self._estimates(totals):
            return [self._smoothed(trees, rows, evidence)]
        return [trees]

    def _without_lone_steps(
        self, trees: BoostedFit, coefficients: Coefficients | None
    ) -> BoostedFit:
        """Return trees of percentiles, of which those of a forest that find no split count for nothing."""
        if coefficients is None or not self._reading.forest:
            return trees
        is_lone = self._n_leaves == 1
        first_values = trees.table.leaf_values[trees.table.starts[:-1]]
        if first_values[is_lone].any():
            raise UnsupportedModelError(
                "boosting",
                f"rf with {self._reading.text.objective} and trees of one leaf",
                "LightGBM leaves a step along the gradient in a tree that finds no split, and no "
                "percentile",
                "Fit with fewer trees or smaller leaves, so that all find a split.",
            )
        coefficients.omega[:, is_lone] = 0.0
        return trees.with_learning_rates(coefficients.omega[-1].copy())

    def _without_base(self, hidden: FloatArray) -> tuple[list[FloatArray], Nodes | None]:
        """Return the values of each tree's leaves, and the nodes, less the bases (T,) that LightGBM hides in them.

        Those of a forest are divided by the number of its trees. A single leaf that holds nothing
        else is 0, not a rounding error. LightGBM 4.1 keeps no values of roots, but zeros.
        """
        if self._reading.forest:
            divisor = self._n_iterations
        else:
            divisor = 1
        values = []
        for tree, base in zip(self._trees, hidden):
            tree_values = tree.floats("leaf_value") - base
            if len(tree_values) == 1 and abs(tree_values[0]) <= 1e-12 * abs(base):
                tree_values[0] = 0.0
            values.append(tree_values / divisor)
        nodes = self._rule.nodes
        if nodes is None:
            return values, None
        node_values = nodes.values - np.repeat(hidden, np.diff(nodes.starts))
        slack = np.broadcast_to(nodes.slack, node_values.shape)
        roots = nodes.starts[:-1]
        roots = roots[nodes.leaf[roots] < 0]
        if not (np.abs(node_values[roots]) > slack[roots]).any():
            node_values[roots] = np.nan
        return values, replace(nodes, values=node_values / divisor, slack=nodes.slack / divisor)

    def _estimates(self, totals: Totals) -> bool:
        """Return whether LightGBM smoothed by estimated row counts, because weights or the factors of GOSS differ."""
        return self._rule.smooth > 0 and (self._reading.goss or not totals.even)

    def _smoothed(
        self, trees: BoostedFit, rows: TrainingRows, evidence: LeafEvidence
    ) -> BoostedFit:
        """Return the trees with the row counts that their values were smoothed by, which the sums of their leaves show."""
        assert trees.leaf_rule.nodes is not None  # path_smooth is above zero
        rates = trees.learning_rates.copy()
        tolerance = self._rule.tolerance
        if np.isnan(rates[0]):  # which a base hides
            rates[0] = self._settings.precisely("learning_rate")[0]
        if tolerance > CLOSE:
            rounding = tolerance
        else:
            rounding = ROUNDING
        smooth = PathSmooth.of(self._rule, rates, trees.leaf_rule.nodes, tolerance, rounding)
        if rows.leaf_totals is None:  # the rows are walked first
            return trees
        (totals,) = rows.leaf_totals
        shift = np.broadcast_to(trees.table.printed_shift, len(trees.table.leaf_values))
        shares = []
        for t in range(len(self._trees)):
            leaves = evidence.leaves_of(t)
            sums = totals.sums[leaves, 0]
            weights = totals.weights[leaves]
            hidden = float(shift[leaves.start])
            shares.append(smooth.own(t, sums, weights, evidence.values[leaves], hidden))
        return replace(
            trees,
            leaf_rule=replace(
                trees.leaf_rule, nodes=replace(trees.leaf_rule.nodes, own=np.concatenate(shares))
            ),
        )

    def _gradients(self, rows: TrainingRows) -> Gradients | None:
        """Return the gradients of an objective whose leaf values are percentiles.

        It is None for any other objective.
        """
        if not self.starts_with_base:
            return None
        name = self._reading.text.objective
        require_rows(rows, "objective", name)
        alpha = self._settings.precisely("alpha")[0]
        return Gradients.of(name, alpha, rows.targets[:, 0], rows.weights)

    def _base(self, start: float, totals: Totals, coefficients: Coefficients | None) -> Base:
        """Return where scores start, if ``start`` is the mean or the percentile that the objective starts from."""
        from_average = self._settings.flag("boost_from_average") and not totals.offset
        # A mean of zero is not boosted from (src/boosting/gbdt.cpp), but with other targets the fit
        # starts from theirs.
        is_zero = abs(start) <= 1e-14 * totals.size / totals.n_rows
        drop_scale = 1.0
        if coefficients is not None and not self._reading.forest:
            drop_scale = float(coefficients.beta[-1])
        if self._reading.forest:
            # without a feature to split on it starts from the mean in any case
            starts_there = from_average or self._reading.no_features
            is_hidden = starts_there and not is_zero and abs(start) > 1e-15
        else:
            is_hidden = self._first_tree_hides(start, totals, drop_scale, coefficients is None)
        if is_hidden:
            return Base(None, start, drop_scale * start)
        if from_average and is_zero:
            return Base(None, start, 0.0)
        return Base(0.0, 0.0, 0.0)

    def _first_tree_hides(
        self, start: float, totals: Totals, drop_scale: float, is_plain: bool
    ) -> bool:
        """Return whether the leaves of the first tree hold a base.

        ``drop_scale`` is DART's factor of the base, ``is_plain`` whether trees are added one after
        the other.
        """
        first = self._trees[0]
        if first.n_leaves == 1:
            # It holds the mean even where boost_from_average is off, and 0 where there are offsets.
            is_lost = 0 < abs(start) <= 1e-15 and first.floats("leaf_value")[0] == 0.0
            return not totals.offset and not is_lost
        shrinkage = first.shrinkage
        if drop_scale != 1:
            shrinkage = f"{float(first.shrinkage) / drop_scale:.5g}"
        if shrinkage != "1":
            return False
        # Only for a rate of 1 does boost_from_average decide: continued training may have changed
        # it since.
        if self._settings.flag("boost_from_average") and not totals.offset:
            return True
        if is_plain:
            later = [tree.shrinkage for tree in self._trees[1:]]
        else:
            later = []
        return "1" not in (later or [self._settings.text("learning_rate")])

    def _coefficients(self, rows: TrainingRows) -> Coefficients | None:
        """Return how the trees add up: None for plain boosting."""
        if not self._reading.forest:
            if self._reading.dart:
                return self._drops(rows)
            return None
        n = len(self._trees)
        omega = np.vstack([np.zeros((n, n)), np.full(n, 1 / n)])
        # A tree that found no split lacks the base (src/boosting/rf.hpp).
        return Coefficients(omega, np.append(np.ones(n), np.mean(self._n_leaves > 1)))

    @property
    def _n_iterations(self) -> int:
        return len(self._trees) // self.n_outputs

    def _drops(self, rows: TrainingRows) -> Coefficients:
        """Return how DART's iterations add up, each of one tree for every output."""
        n = self._n_iterations
        printed = np.array([float(tree.shrinkage) for tree in self._trees])
        printed = printed.reshape(n, self.n_outputs)
        has_split = (self._n_leaves > 1).reshape(printed.shape)  # others hold nothing but a base
        dart = self._settings.dart()
        for stages in self._stages(rows):
            omega, beta = dart.run(stages, n)
            agrees = np.isclose(printed, omega[n][:, None], rtol=1e-5, atol=0)
            agrees[0] |= np.isclose(printed[0], beta[n], rtol=1e-5, atol=0)
            if np.all(agrees | ~has_split) and agrees[0].all():
                return Coefficients(omega, beta)
        n_attempts = int(self._settings.number("num_iterations"))
        if n_attempts > n:
            raise UnsupportedModelError(
                "boosting",
                f"dart with {n} trees of {n_attempts} iterations",
                "iterations that find no split use up draws and leave dropped trees with their "
                "sign turned, a fault of LightGBM; the model does not record which they were, and "
                "no order that was tried leads to the scales of its trees",
                "Fit with fewer iterations or a smaller min_split_gain, so that all find a split.",
            )
        raise UnsupportedModelError(
            "boosting",
            "dart",
            "the drops that drop_seed leads to are not those that the trees were scaled for, as "
            "where settings changed while it was trained, or it went on from another model",
            'Fit it in one go with constant settings, or with boosting="gbdt".',
        )

    def _stages(self, rows: TrainingRows) -> Iterator[list[list[bool]]]:
        """Return possible outcomes of DART's attempts at trees, the most likely first.

        The model does not say which attempts found no split.
        """
        n = self._n_iterations
        n_attempts = int(self._settings.number("num_iterations"))
        finds_split = [True] * n
        finds_split[0] = bool((self._n_leaves[: self.n_outputs] > 1).any())
        yield [finds_split]
        if n_attempts < n:  # went on from a model of the same settings
            yield [finds_split[: n - n_attempts], [True] * n_attempts]
            return
        n_failures = n_attempts - n
        if n_failures == 0:
            return
        yield [finds_split + [True] * n_failures]  # and lost the last trees since
        if self.n_outputs > 1:
            return
        n_rows = rows.totals.n_rows
        if self._reading.bags:
            state = self._settings.bagging(n_rows)
        else:
            state = None
        evidence = self._evidence(n_rows, None)
        for outcomes in histories(state, self.leaves_of(rows), evidence, n_failures):
            yield [outcomes]

    # -- evidence and draws -----------------------------------------------------------------------

    def _evidence(self, n_rows: int, weights: FloatArray | None) -> LeafEvidence:
        """Return what the model records about its leaves, without their values and rates."""
        rule = self._rule
        l2 = rule.leaf_denominators()
        newton = NewtonRule(l2, np.ones_like(l2), False, rule.l1, rule.max_step)
        return LeafEvidence(
            starts=np.concatenate([[0], np.cumsum(self._n_leaves)]),
            counts=np.concatenate([tree.leaf_counts(n_rows) for tree in self._trees]),
            values=np.zeros(0),
            rates=np.zeros(0),
            rule=with_nodes(newton, rule.nodes),
            weights=weights,
            counts_alone=rule.smooth > 0 and (self._reading.goss or weights is not None),
        )

    def _sampler(
        self, evidence: LeafEvidence, n_rows: int, gradients: Gradients | None = None
    ) -> DrawReplay | None:
        """Return which rows each tree was fitted on; None: all of them."""
        states: list[SamplerState]
        if self._reading.goss:
            name = "LightGBM GOSS"
            states = [*self._settings.goss(n_rows)]
        elif self._reading.bags:
            name = "LightGBM bagging"
            states = [self._settings.bagging(n_rows)]
        else:
            return None
        gradients_at: Callable[[FloatArray], IterationGradients]
        if self._reading.cuts and evidence.weights is not None:
            gradients_at = partial(IterationGradients.rounded_once, evidence.weights)
        elif gradients is not None:
            gradients_at = gradients.seen
        else:
            gradients_at = partial(IterationGradients, weights=evidence.weights)
        # Trees that are added one by one leave num_iterations as it was.
        n_failures = max(int(self._settings.number("num_iterations")) - self._n_iterations, 100)
        forest = self._reading.forest and not self._reading.goss
        return DrawReplay(name, states, evidence, n_failures, forest, gradients_at)

    def _count_lone_leaves(
        self,
        evidence: LeafEvidence,
        leaf_weights: FloatArray | None,
        n_rows: int,
        given_bags: FloatArray | None,
    ) -> None:
        """Fill in how many rows the trees of a forest had that found no split, which LightGBM does not record.

        The rows are those of ``given_bags`` (N, T) where there are some. Otherwise they are drawn
        as LightGBM draws them.
        """
        lone_trees = np.flatnonzero(self._n_leaves[1:] == 1) + 1
        state = self._settings.bagging(n_rows)
        for t in range(lone_trees.max(initial=-1) + 1):
            bag, state = state.attempt(False, None)
            state = state.grown()
            if given_bags is not None:
                bag = given_bags[:, t] > 0
            if t in lone_trees:
                leaf = evidence.starts[t]
                evidence.counts[leaf] = bag.sum()
                if leaf_weights is None:
                    continue
                if evidence.weights is None:
                    leaf_weights[leaf] = bag.sum()
                else:
                    leaf_weights[leaf] = evidence.weights[bag].sum()

    def _goss_weights(self) -> FloatArray | None:
        """Return the sums of second derivatives times the factors of GOSS, (L,).

        None without GOSS, or where a GPU rounds them.
        """
        if not self._reading.goss or self._reading.on_gpu:
            return None
        return self._recorded_weights(np.nan)

    def _leaf_weights(self, totals: Totals) -> FloatArray | None:
        """Return the sums of weights that LightGBM recorded, (L,).

        It is None where it summed rounded ones.
        """
        if self._reading.on_gpu or self._rule.renewed:
            return None
        if self._reading.text.objective == "mape" and not totals.even:
            return None
        return self._recorded_weights(totals.weight)

    def _recorded_weights(self, of_lone_leaf: float) -> FloatArray:
        """Return leaf_weight of all leaves, (L,): a tree of one leaf records none, or 0 where it is still in memory."""
        lone = np.array([of_lone_leaf])
        weights = [
            tree.floats("leaf_weight") if tree.n_leaves > 1 else lone for tree in self._trees
        ]
        return np.concatenate(weights)


def _copied(booster: Any, saved: str) -> Any:
    """Return the booster as it was saved: one that is trained further, or changed in place, does not change the copy."""
    copied = type(booster)(model_str=saved)
    copied.pandas_categorical = booster.pandas_categorical
    return copied


def _refit_decay_rate(booster: Any, file_parameters: dict[str, str]) -> str:
    """Return the setting that Booster.refit leaves behind; empty where it was never called.

    The parameters of a file list the setting always, as 0.9 if it was never set. LightGBM puts them
    into a booster that it loads; LightGBM 4.1 loads a text without them.
    """
    remembered = booster.params or {}
    lists_all = not remembered or "saved_feature_importance_type" in remembered
    was_loaded = lists_all and not hasattr(booster, "train_set")
    if not was_loaded:
        return str(remembered.get("refit_decay_rate", ""))
    decay_rate = file_parameters.get("refit_decay_rate", "")
    if decay_rate == "0.9":
        return ""
    return decay_rate
