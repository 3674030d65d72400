"""LightGBM models fitted to squared error: LGBMRegressor and Booster, in memory, pickled or loaded from text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.adapters.boosted_fit import BoostedFit, Schedule
from axil.adapters.contract import Coefficients, Nodes, Totals, TrainingRows, TreeModel
from axil.adapters.frames import array_of_floats
from axil.adapters.lightgbm import splits
from axil.adapters.lightgbm.bagging import DrawReplay, LeafEvidence, Seen, histories
from axil.adapters.lightgbm.path_smooth import PathSmooth
from axil.adapters.lightgbm.percentile import Gradients
from axil.adapters.lightgbm.rates import FIRST, hidden_rate, refitted_trees, stated_rates
from axil.adapters.lightgbm.reading import LightGBMReading
from axil.adapters.lightgbm.refusals import REFUSALS, cause
from axil.adapters.lightgbm.rows import as_lightgbm, from_pandas
from axil.adapters.lightgbm.rule import LightGBMRule
from axil.adapters.lightgbm.text import LightGBMSettings, parse
from axil.adapters.percentiles import require_rows, with_base
from axil.adapters.refusals import not_fitted, refusal, refuse, weights_refusal
from axil.adapters.routes import Routes
from axil.arrays import FloatArray
from axil.errors import InputError, UnsupportedModelError
from axil.scale import IDENTITY, TargetScale
from axil.structure import Cut, NewtonRule, with_nodes

CLOSE = (
    1e-9  # tolerance of leaf values beyond which residuals are rounded otherwise than the library's
)
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
    own, reading = opened(booster, estimator.stops_early, estimator.objective is not None)
    not_exact = None
    if objective is None and not by_gradients:
        not_exact = weights_refusal(REFUSALS, reading)
        if not_exact is None:
            return (LinearLightGBM if reading.linear else LightGBMAdapter)(own, reading)
    adapter = LightGBMWithLoss(own, reading, estimator)
    adapter.not_exact = not_exact
    return adapter


def booster_of(model: Any) -> Any:
    """The Booster of a LightGBM model, wrapped or not; None for any other object."""
    import lightgbm

    if not isinstance(model, lightgbm.LGBMModel):
        return model if isinstance(model, lightgbm.Booster) else None
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
            "Load the model from the text that LightGBM saved, complete with the lines after 'parameters:'.",
        )
    settings = LightGBMSettings(text.parameters, booster.params or {})
    decay_rate = _refit_decay_rate(booster, text.parameters)
    reading = LightGBMReading(text, settings, decay_rate, stops_early, own_objective)
    return _copied(booster, saved), reading


def _roots(targets: FloatArray) -> FloatArray:
    """Targets with reg_sqrt, in single precision as LightGBM takes them (src/objective/regression_objective.hpp)."""
    return _signed_roots(targets.astype(np.float32))


def _signed_roots(values: FloatArray) -> FloatArray:
    return np.asarray(np.sign(values) * np.sqrt(np.abs(values)))


def _squares(roots: FloatArray) -> FloatArray:
    return np.asarray(np.sign(roots) * roots * roots)


ROOTS = TargetScale("sqrt", _squares, _roots)


class LightGBMAdapter(TreeModel):
    """A LightGBM booster, up to its best iteration where early stopping set one, as ``predict`` uses it by default.

    LightGBM keeps targets, weights and residuals in float32 and adds in float64, so a replay that rounds likewise meets
    its leaf values to the last digits. A GPU adds in single precision (gpu_use_dp=False) and is met to that only; the learner
    for CUDA leaves max_delta_step and monotone_constraints out of account and counts weighted rows by their weights.
    """

    library = "LightGBM"
    unseen = "LightGBM takes such a value for a missing one."
    refusals = REFUSALS
    precision = np.float32
    residual_precision: type[np.floating[Any]] = np.float32
    score_precision = np.float64
    tolerance = 1e-6
    renames = True  # fit takes feature_name= for the columns of a frame, which predict then takes by their places

    def __init__(self, booster: Any, reading: LightGBMReading, leaves_only: bool = False):
        refuse(() if leaves_only else self.refusals, reading)
        self._booster, self._reading, self._settings = booster, reading, reading.settings
        text = reading.text
        self._trees = text.trees
        self._n_leaves = np.array([tree.n_leaves for tree in text.trees], dtype=np.int64)
        self.n_features = int(booster.num_feature())
        names = [str(name) for name in booster.feature_name()]
        unnamed = names == [f"Column_{i}" for i in range(len(names))]
        self.feature_names: list[str] | None = None if unnamed else names
        self.fingerprint = text.fingerprint()
        self.scale = ROOTS if text.objective == "regression sqrt" else IDENTITY
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

    def trees(self, rows: TrainingRows) -> list[BoostedFit]:
        """The trees, their base taken out of the first one, where LightGBM hides it."""
        rule = self._rule
        if self._reading.refitted:
            return [refitted_trees(self._trees, self._settings, rule.l2)]
        totals = rows.totals
        coefficients, gradients = self._coefficients(rows), self._gradients(rows)
        start, single = (
            (float(totals.means[0]), 0.0)
            if gradients is None
            else gradients.start(rows.targets[:, 0])
        )
        base, base_value, hidden = self._base(start, totals, coefficients)
        holds = self._n_leaves > 1 if self._reading.forest else np.arange(len(self._trees)) == 0
        of_trees = np.where(holds, hidden, 0.0)
        values, nodes = self._without_base(of_trees)
        if self._reading.forest:
            values = [own / len(values) for own in values]
            if nodes is not None:
                nodes = replace(
                    nodes, values=nodes.values / len(values), slack=nodes.slack / len(values)
                )
        hides = coefficients is None and hidden != 0.0 and self._trees[0].n_leaves > 1
        rates = (
            stated_rates(self._trees, self._settings)
            if coefficients is None
            else coefficients.omega[-1].copy()
        )
        if hides:
            rates[0] = hidden_rate(values[0], rates[1:], self._settings)
        weights = (
            rows.weights if rows.at_hand else None
        )  # for draws, which are not replayed on several machines
        evidence = replace(
            self._evidence(totals.n_rows, weights), values=np.concatenate(values), rates=rates
        )
        if gradients is not None:
            evidence = replace(evidence, ranks=gradients.ranks, leaf_weights=self._goss_weights())
        leaf_weights = self._leaf_weights(totals)
        if self._reading.forest and self._reading.bags:
            self._count_lone_leaves(evidence, leaf_weights, totals.n_rows, rows.bags)
        trees = BoostedFit(
            n_leaves=self._n_leaves,
            leaf_values=evidence.values[:, None],
            leaf_counts=evidence.counts if self._reading.counts_rows or totals.even else None,
            leaf_weights=leaf_weights,
            l2=evidence.rule.l2,
            schedule=Schedule.one_by_one(rates, coefficients),
            base=None if base is None else np.array([base]),
            base_value=np.array([base_value]),
            l1=rule.l1,
            max_step=rule.max_step,
            nodes=nodes,
            ancestors=rule.ancestors() if self._reading.forest else None,
            cut=Cut(self._settings.precisely("alpha")[0]) if self._reading.cuts else None,
            sampler=self._sampler(evidence, totals.n_rows, gradients),
            printed_shift=0.0 if self._reading.forest else np.repeat(of_trees, self._n_leaves),
            value_slack=rule.slack(evidence.values),
            explain_mismatch=partial(refusal, FIRST) if hides and not np.isnan(rates[0]) else None,
        )
        if gradients is not None:
            if coefficients is not None and self._reading.forest:
                lone, held = self._n_leaves == 1, evidence.values[evidence.starts[:-1]]
                if held[lone].any():
                    raise UnsupportedModelError(
                        "boosting",
                        f"rf with {self._reading.text.objective} and trees of one leaf",
                        "LightGBM leaves a step along the gradient in a tree that finds no split, and no percentile",
                        "Fit with fewer trees or smaller leaves, so that all find a split.",
                    )
                coefficients.omega[:, lone] = 0.0
                trees = trees.with_learning_rates(coefficients.omega[-1].copy())
            return [
                with_base(trees, gradients.ranks, rows, start if base is None else None, single)
            ]
        return [self._smoothed(trees, rows, evidence) if self._estimates(totals) else trees]

    def _without_base(self, hidden: FloatArray) -> tuple[list[FloatArray], Nodes | None]:
        """The values of each tree's leaves, and the nodes, less the bases (T,) that LightGBM hides in them.

        A single leaf that holds nothing else is 0, not a rounding error. LightGBM 4.1 keeps no values of roots, but zeros.
        """
        values = [tree.floats("leaf_value") - own for tree, own in zip(self._trees, hidden)]
        for own, base in zip(values, hidden):
            own[(len(own) == 1) & (np.abs(own) <= 1e-12 * abs(base))] = 0.0
        nodes = self._rule.nodes
        if nodes is None:
            return values, None
        of_nodes = nodes.values - np.repeat(hidden, np.diff(nodes.starts))
        roots = nodes.starts[:-1][nodes.leaf[nodes.starts[:-1]] < 0]
        if not (
            np.abs(of_nodes[roots]) > np.broadcast_to(nodes.slack, of_nodes.shape)[roots]
        ).any():
            of_nodes[roots] = np.nan
        return values, replace(nodes, values=of_nodes)

    def _estimates(self, totals: Totals) -> bool:
        """Whether LightGBM smoothed by estimated row counts: rows weigh differently, by their weights or the factors of GOSS."""
        return self._rule.smooth > 0 and (self._reading.goss or not totals.even)

    def _smoothed(
        self, trees: BoostedFit, rows: TrainingRows, evidence: LeafEvidence
    ) -> BoostedFit:
        """The trees with the row counts that their values were smoothed by, which the sums of their leaves show."""
        assert trees.nodes is not None  # path_smooth is above zero
        rates, tolerance = trees.learning_rates.copy(), self._rule.tolerance
        if np.isnan(rates[0]):  # which a base hides
            rates[0] = self._settings.precisely("learning_rate")[0]
        rounding = tolerance if tolerance > CLOSE else ROUNDING
        smooth = PathSmooth.of(self._rule, rates, trees.nodes, tolerance, rounding)
        if rows.leaf_totals is None:  # the rows are walked first
            return trees
        (totals,), ends = rows.leaf_totals, evidence.starts[1:-1]
        found = zip(np.split(totals.sums[:, 0], ends), np.split(totals.weights, ends))
        hidden = np.broadcast_to(trees.printed_shift, len(trees.leaf_values))[
            evidence.starts[:-1]
        ].tolist()
        own = [
            smooth.own(t, *each, evidence.tree_values(t), hidden[t]) for t, each in enumerate(found)
        ]
        return replace(trees, nodes=replace(trees.nodes, own=np.concatenate(own)))

    def _gradients(self, rows: TrainingRows) -> Gradients | None:
        """The gradients of an objective whose leaf values are percentiles; None: of any other."""
        if not self.starts_with_base:
            return None
        name = self._reading.text.objective
        require_rows(rows, "objective", name)
        return Gradients.of(
            name, self._settings.precisely("alpha")[0], rows.targets[:, 0], rows.weights
        )

    def _base(
        self, start: float, totals: Totals, coefficients: Coefficients | None
    ) -> tuple[float | None, float, float]:
        """The base (None: the mean), as a number, and how much of it the leaves of the first tree (all, of a forest) have."""
        first, mean = self._trees[0], start
        scale = (
            1.0 if coefficients is None or self._reading.forest else float(coefficients.beta[-1])
        )
        shrinkage = (
            first.shrinkage if scale == 1 else f"{float(first.shrinkage) / scale:.5g}"
        )  # but for DART's factors
        from_average = self._settings.flag("boost_from_average") and not totals.offset
        # A mean of zero is not boosted from (src/boosting/gbdt.cpp), but with other targets the fit starts from theirs.
        zero = abs(mean) <= 1e-14 * totals.size / totals.n_rows
        if (
            self._reading.forest
        ):  # without a feature to split on it starts from the mean in any case
            folded = (from_average or self._reading.no_features) and not zero and abs(mean) > 1e-15
        elif (
            first.n_leaves == 1
        ):  # holds the mean even where boost_from_average is off, and 0 where there are offsets
            minute = 0 < abs(mean) <= 1e-15 and first.floats("leaf_value")[0] == 0.0
            folded = not totals.offset and not minute
        elif shrinkage != "1":
            folded = False
        else:  # only for a rate of 1 does boost_from_average decide: continued training may have changed it since
            others = [tree.shrinkage for tree in self._trees[1:] if coefficients is None]
            folded = from_average or "1" not in (others or [self._settings.text("learning_rate")])
        if folded:
            return None, mean, scale * mean
        return (None, mean, 0.0) if from_average and zero else (0.0, 0.0, 0.0)

    def _coefficients(self, rows: TrainingRows) -> Coefficients | None:
        """How the trees add up: None for plain boosting."""
        T = len(self._trees)
        if self._reading.forest:  # a tree that found no split lacks the base (src/boosting/rf.hpp)
            omega = np.vstack([np.zeros((T, T)), np.full(T, 1 / T)])
            return Coefficients(omega, np.append(np.ones(T), np.mean(self._n_leaves > 1)))
        return self._drops(rows) if self._reading.dart else None

    @property
    def _n_iterations(self) -> int:
        return len(self._trees) // self.n_outputs

    def _drops(self, rows: TrainingRows) -> Coefficients:
        """How DART's iterations add up, each of one tree for every output."""
        n = self._n_iterations
        printed = np.array([float(tree.shrinkage) for tree in self._trees]).reshape(
            n, self.n_outputs
        )
        split = (self._n_leaves > 1).reshape(printed.shape)  # others hold nothing but a base
        dart = self._settings.dart()
        for stages in self._stages(rows):
            omega, beta = dart.run(stages, n)
            alike = np.isclose(printed, omega[n][:, None], rtol=1e-5, atol=0)
            alike[0] |= np.isclose(printed[0], beta[n], rtol=1e-5, atol=0)
            if np.all(alike | ~split) and alike[0].all():
                return Coefficients(omega, beta)
        tried = int(self._settings.number("num_iterations"))
        if tried > n:
            raise UnsupportedModelError(
                "boosting",
                f"dart with {n} trees of {tried} iterations",
                "iterations that find no split use up draws and leave dropped trees with their sign turned, a fault of LightGBM; "
                "the model does not record which they were, and no order that was tried leads to the scales of its trees",
                "Fit with fewer iterations or a smaller min_split_gain, so that all find a split.",
            )
        raise UnsupportedModelError(
            "boosting",
            "dart",
            "the drops that drop_seed leads to are not those that the trees were scaled for, as where settings changed "
            "while it was trained, or it went on from another model",
            'Fit it in one go with constant settings, or with boosting="gbdt".',
        )

    def _stages(self, rows: TrainingRows) -> Iterator[list[list[bool]]]:
        """Possible outcomes of DART's attempts at trees, the most likely first: the model does not say which found no split."""
        T, n = self._n_iterations, int(self._settings.number("num_iterations"))
        grown = [bool((self._n_leaves[: self.n_outputs] > 1).any())] + [True] * (T - 1)
        yield [grown]
        if n < T:
            yield [grown[: T - n], [True] * n]  # went on from a model of the same settings
        elif n > T:
            yield [grown + [True] * (n - T)]  # and lost the last trees since
            if self.n_outputs > 1:
                return
            n_rows = rows.totals.n_rows
            start = self._settings.bagging(n_rows) if self._reading.bags else None
            for outcomes in histories(
                start, self.leaves_of(rows), self._evidence(n_rows, None), n - T
            ):
                yield [outcomes]

    def _evidence(self, n_rows: int, weights: FloatArray | None) -> LeafEvidence:
        rule, l2 = self._rule, self._rule.leaf_denominators()
        return LeafEvidence(
            np.concatenate([[0], np.cumsum(self._n_leaves)]),
            np.concatenate([tree.leaf_counts(n_rows) for tree in self._trees]),
            np.zeros(0),
            np.zeros(0),
            with_nodes(NewtonRule(l2, np.ones_like(l2), False, rule.l1, rule.max_step), rule.nodes),
            weights,
            counts_alone=rule.smooth > 0 and (self._reading.goss or weights is not None),
        )

    def _sampler(
        self, evidence: LeafEvidence, n_rows: int, gradients: Gradients | None = None
    ) -> DrawReplay | None:
        """Which rows each tree was fitted on; None: all of them."""
        # Trees that are added one by one leave num_iterations as it was.
        failures = max(int(self._settings.number("num_iterations")) - self._n_iterations, 100)
        seen = partial(Seen, weights=evidence.weights) if gradients is None else gradients.seen
        if self._reading.cuts and evidence.weights is not None:
            seen = partial(Seen.weighed, evidence.weights)
        if self._reading.goss:
            return DrawReplay(
                "LightGBM GOSS", self._settings.goss(n_rows), evidence, failures, seen=seen
            )
        if not self._reading.bags:
            return None
        states = [self._settings.bagging(n_rows)]
        return DrawReplay(
            "LightGBM bagging", states, evidence, failures, self._reading.forest, seen
        )

    def _count_lone_leaves(
        self,
        evidence: LeafEvidence,
        leaf_weights: FloatArray | None,
        n_rows: int,
        given_bags: FloatArray | None,
    ) -> None:
        """Fill in how many rows the trees of a forest had that found no split, which LightGBM does not record.

        The rows are those of ``given_bags`` (N, T) where there are some. Otherwise they are drawn as LightGBM draws them.
        """
        lone = np.flatnonzero(self._n_leaves[1:] == 1) + 1
        state = self._settings.bagging(n_rows)
        for t in range(lone.max(initial=-1) + 1):
            bag, state = state.attempt(False, None)
            state = state.grown()
            if given_bags is not None:
                bag = given_bags[:, t] > 0
            if t in lone:
                evidence.counts[evidence.starts[t]] = bag.sum()
                if leaf_weights is not None:
                    total = bag.sum() if evidence.weights is None else evidence.weights[bag].sum()
                    leaf_weights[evidence.starts[t]] = total

    def _goss_weights(self) -> FloatArray | None:
        """(L,): the sums of second derivatives times the factors of GOSS; None without GOSS, or where a GPU rounds them."""
        if not self._reading.goss or self._reading.on_gpu:
            return None
        unrecorded = np.full(1, np.nan)
        trees = [
            tree.floats("leaf_weight") if tree.n_leaves > 1 else unrecorded for tree in self._trees
        ]
        return np.concatenate(trees)

    def _leaf_weights(self, totals: Totals) -> FloatArray | None:
        """(L,): the sums of weights that LightGBM recorded; None where it summed rounded ones."""
        if (
            self._reading.on_gpu
            or self._rule.renewed
            or (self._reading.text.objective == "mape" and not totals.even)
        ):
            return None
        # A tree of one leaf records none, or 0 where it is still in memory.
        alone = np.array([totals.weight])
        return np.concatenate(
            [tree.floats("leaf_weight") if tree.n_leaves > 1 else alone for tree in self._trees]
        )

    def leaves(self, X: Any) -> NDArray[np.integer[Any]]:
        """(n, T): which leaf of each tree every row falls into."""
        if X.shape[0] == 0:
            return np.zeros((0, len(self._trees)), dtype=np.int32)
        found = self._booster.predict(self._rows(X), pred_leaf=True)
        return np.asarray(found, dtype=np.int32).reshape(X.shape[0], len(self._trees))

    @cached_property
    def routes(self) -> Routes | None:
        """The way of a row through every tree."""
        return splits.routes(self._trees)

    def table(self, X: Any) -> NDArray[np.floating[Any]] | None:
        """The numbers that LightGBM compares: floats as they are, other arrays in float32, frames in float64."""
        if bool(sparse.issparse(X)):
            return np.asarray(X.toarray())
        rows = self._rows(X)
        if not isinstance(rows, np.ndarray):
            return from_pandas(rows, self._booster.pandas_categorical or [])
        return array_of_floats(rows)

    def predictions(self, X: Any) -> FloatArray:
        """(n, 1): what ``predict`` gives; with reg_sqrt before it is squared."""
        found = np.asarray(self._booster.predict(self._rows(X)), dtype=np.float64)[:, None]
        # Raw scores would do, but of boosting=rf they are sums, not means.
        return found if self.scale.is_identity else _signed_roots(found)

    @property
    def categories(self) -> dict[str, list[Any]]:
        """The categories of columns that the fit had as pandas categories, by name; empty where the model does not say which."""
        listed = self._booster.pandas_categorical or []
        names = self.feature_names or []
        known = sorted(self._reading.text.category_counts)
        if len(known) != len(
            listed
        ):  # one of a single category is written as a feature that is not used
            return {}
        return {str(names[i]): list(values) for i, values in zip(known, listed)}

    def _rows(self, X: Any) -> Any:
        return as_lightgbm(X, self._booster.pandas_categorical or [])

    def causes(self, what: str) -> str:
        """The most likely reason for a disagreement in "counts", "weights" or "values"."""
        return cause(self._reading, what, self._rule.digits_lost)


def _copied(booster: Any, saved: str) -> Any:
    """The booster as it was saved: one that is trained further, or changed in place, does not change the copy."""
    copied = type(booster)(model_str=saved)
    copied.pandas_categorical = booster.pandas_categorical
    return copied


def _refit_decay_rate(booster: Any, file_parameters: dict[str, str]) -> str:
    """Return the setting that Booster.refit leaves behind; empty where it was never called.

    The parameters of a file list the setting always, as 0.9 if it was never set. LightGBM puts them into a booster that it
    loads; LightGBM 4.1 loads a text without them.
    """
    remembered = booster.params or {}
    lists_all = not remembered or "saved_feature_importance_type" in remembered
    was_loaded = lists_all and not hasattr(booster, "train_set")
    if not was_loaded:
        return str(remembered.get("refit_decay_rate", ""))
    decay = file_parameters.get("refit_decay_rate", "")
    if decay == "0.9":
        return ""
    return decay
