"""What LightGBM's boosters say of themselves, whatever their loss.

They state their leaves, tests, drops of DART, and sampled rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import sparse

from axil.adapters.contract import Coefficients, Nodes, Rounding, TrainingRows, TreeModel
from axil.adapters.frames import array_of_floats
from axil.adapters.lightgbm.draw_replay import DrawReplay, LeafEvidence, histories
from axil.adapters.lightgbm.percentile import Gradients
from axil.adapters.lightgbm.reading import LightGBMReading
from axil.adapters.lightgbm.refusals import cause
from axil.adapters.lightgbm.rows import as_lightgbm, from_pandas, routes_of
from axil.adapters.lightgbm.rule import LightGBMRule
from axil.adapters.lightgbm.samplers import IterationGradients, SamplerState
from axil.adapters.lightgbm.text import LightGBMSettings, parse
from axil.adapters.refusals import not_fitted
from axil.adapters.routes import Routes
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import BoolArray, FloatArray, LeafArray, RealArray
from axil.errors import InputError, UnsupportedModelError
from axil.scale import IDENTITY, TargetScale
from axil.structure import NewtonRule, with_nodes

#: Orders of DART's iterations that are tried beyond the first that leads to the trees' scales.
MOST_ORDERS = 100


def booster_of(model: ForeignModel) -> ForeignModel:
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
    booster: ForeignModel, stops_early: str = "", own_objective: bool = False
) -> tuple[Any, LightGBMReading]:
    """Return a copy of a booster up to its best iteration, and its text and settings."""
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
    """Return the targets of a fit with reg_sqrt in single precision (regression_objective.hpp)."""
    return _signed_roots(targets.astype(np.float32))


def _signed_roots(values: FloatArray) -> FloatArray:
    return np.asarray(np.sign(values) * np.sqrt(np.abs(values)))


def _squares(roots: FloatArray) -> FloatArray:
    return np.asarray(np.sign(roots) * roots * roots)


ROOTS = TargetScale("sqrt", _squares, _roots)


class LightGBMAdapter(TreeModel):
    """A LightGBM booster, up to its best iteration if early stopping set one, like ``predict``.

    LightGBM keeps targets, weights and residuals in float32 and adds in float64, so a replay that
    rounds likewise meets its leaf values to the last digits. A GPU adds in single precision
    (gpu_use_dp=False) and is met to that only; the learner for CUDA leaves max_delta_step and
    monotone_constraints out of account and counts weighted rows by their weights.
    """

    library = "LightGBM"
    unseen = "LightGBM takes such a value for a missing one."
    rounding = Rounding(targets=np.float32, residuals=np.float32)
    tolerance = 1e-6
    # fit takes feature_name= for the columns of a frame, which predict then takes by their places
    renames = True

    def __init__(self, booster: ForeignModel, reading: LightGBMReading):
        self._booster = booster
        self._reading = reading
        self._settings = reading.settings
        #: whether several orders of DART's iterations lead to the scales of the trees
        self._has_several_drops = False
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
        self._rule = LightGBMRule.of(self._reading)
        self.leaf_tolerance = self._rule.tolerance

    def spelling(self, name: str) -> str:
        """Return a name as LightGBM stores it, without spaces (include/LightGBM/dataset.h)."""
        return name.replace(" ", "_")

    @property
    def categories(self) -> dict[str, list[ForeignObject]]:  # type: ignore[override]
        """The categories of columns that the fit had as pandas categories, by name.

        It is empty if the model does not say which.
        """
        categories = self._booster.pandas_categorical or []
        names = self.feature_names or []
        features = sorted(self._reading.text.category_counts)
        if len(features) != len(categories):  # a single category is written as an unused feature
            return {}
        return {str(names[i]): list(values) for i, values in zip(features, categories)}

    def _rows(self, X: FeatureTable) -> FeatureTable:
        """Return X as LightGBM takes it."""
        return as_lightgbm(X, self._booster.pandas_categorical or [])

    def leaves(self, X: FeatureTable) -> LeafArray:
        """Return the leaf of each row in each tree, (n, T)."""
        if X.shape[0] == 0:
            return np.zeros((0, len(self._trees)), dtype=np.int32)
        leaves = self._booster.predict(self._rows(X), pred_leaf=True)
        return np.asarray(leaves, dtype=np.int32).reshape(X.shape[0], len(self._trees))

    @cached_property
    def routes(self) -> Routes | None:
        """The tests of all trees."""
        return routes_of(self._trees)

    def table(self, X: FeatureTable) -> RealArray | None:
        """Return the numbers that LightGBM compares.

        Floats are unchanged, other arrays become float32, and frames float64.
        """
        if bool(sparse.issparse(X)):
            return np.asarray(X.toarray())
        rows = self._rows(X)
        if not isinstance(rows, np.ndarray):
            return from_pandas(rows, self._booster.pandas_categorical or [])
        return array_of_floats(rows)

    def predictions(self, X: FeatureTable) -> FloatArray:
        """Return the predictions of ``predict``, (n, 1); with reg_sqrt those before squaring."""
        # Raw scores would do, but of boosting=rf they are sums, not means.
        predictions = np.asarray(self._booster.predict(self._rows(X)), dtype=np.float64).reshape(
            X.shape[0], -1
        )
        if self.scale.is_identity:
            return predictions
        return _signed_roots(predictions)

    def causes(self, mismatch: str) -> str:
        """Return the most likely reason for a disagreement in "counts", "weights" or "values"."""
        return cause(self._reading, mismatch, self._rule.digits_lost)

    def _without_base(self, hidden: FloatArray) -> tuple[list[FloatArray], Nodes | None]:
        """Return leaf and node values without the initial predictions (T,) in them.

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

    @property
    def _n_iterations(self) -> int:
        return len(self._trees) // self.n_outputs

    def _drops(self, rows: TrainingRows) -> Coefficients:
        """Return the coefficients of DART's iterations, with one tree per output in each."""
        n = self._n_iterations
        printed = np.array([float(tree.shrinkage) for tree in self._trees])
        printed = printed.reshape(n, self.n_outputs)
        has_split = (self._n_leaves > 1).reshape(printed.shape)  # others hold nothing but a base
        dart = self._settings.dart()
        chosen: Coefficients | None = None
        n_orders_left = MOST_ORDERS
        for stages in self._stages(rows):
            if n_orders_left == 0:
                break
            omega, beta = dart.run(stages, n)
            if chosen is not None:
                n_orders_left -= 1
            agrees = np.isclose(printed, omega[n][:, None], rtol=1e-5, atol=0)
            agrees[0] |= np.isclose(printed[0], beta[n], rtol=1e-5, atol=0)
            if not (np.all(agrees | ~has_split) and agrees[0].all()):
                continue
            if chosen is None:
                chosen = Coefficients(omega, beta)
            elif not (np.array_equal(omega, chosen.omega) and np.array_equal(beta, chosen.beta)):
                self._has_several_drops = True
                break
        if chosen is not None:
            return chosen
        n_attempts = int(self._settings.number("num_iterations"))
        if n_attempts > n:
            raise UnsupportedModelError(
                "boosting",
                f"dart with {n} trees of {n_attempts} iterations",
                "an iteration that finds no split uses random numbers and leaves the dropped "
                "trees with the opposite sign, a fault of LightGBM. The model does not record "
                "these iterations, and no order that axil tried gives the scales of its trees",
                "Fit with fewer iterations or a smaller min_split_gain, so that all find a split.",
            )
        raise UnsupportedModelError(
            "boosting",
            "dart",
            "drop_seed gives other dropped trees than those that the trees were scaled for. "
            "Settings may have changed during training, or training continued from another model",
            'Fit it in one go with constant settings, or with boosting="gbdt".',
        )

    def _explain_drops(self, _: BoolArray) -> UnsupportedModelError | None:
        """Return why trees may disagree with the data: several orders explain their scales."""
        if not self._has_several_drops:
            return None
        n_attempts = int(self._settings.number("num_iterations"))
        return UnsupportedModelError(
            "boosting",
            f"dart with {self._n_iterations} trees of {n_attempts} iterations",
            "the model does not record which iterations found no split. Several orders of them "
            "give the scales of its trees, and the first of these disagrees with these data",
            "Fit with fewer iterations or a smaller min_split_gain, so that all find a split; if "
            "that changes nothing, see that rows, targets and weights are those of the fit.",
        )

    def _stages(self, rows: TrainingRows) -> Iterator[list[list[bool]]]:
        """Return possible outcomes of the attempts of DART to grow trees, the most likely first.

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
        if self._reading.samples_rows:
            state = self._settings.bagging(n_rows)
        else:
            state = None
        evidence = self._evidence(n_rows, None)
        for outcomes in histories(state, self.leaves_of(rows), evidence, n_failures):
            yield [outcomes]

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
        elif self._reading.samples_rows:
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


def _copied(booster: ForeignModel, saved: str) -> ForeignModel:
    """Return a copy of the booster from its text, which later training does not change."""
    copied = type(booster)(model_str=saved)
    copied.pandas_categorical = booster.pandas_categorical
    return copied


def _refit_decay_rate(booster: ForeignModel, file_parameters: dict[str, str]) -> str:
    """Return the setting that Booster.refit leaves behind; empty if it was never called.

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
