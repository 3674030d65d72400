"""Boosted trees of any loss on their training data.

They are replayed, and differentiated with the tree structure fixed.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from axil import inputs
from axil.adapters import class_weights
from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import Adapter, TargetForm, TrainingRows
from axil.aliases import FeatureTable
from axil.arrays import AnyArray, Cells, FloatArray, IntArray, LeafArray
from axil.contributions.contributions import CHANGED, Contributions, check_added, check_sums
from axil.contributions.forward import moved
from axil.contributions.label_weights import LabelWeights
from axil.contributions.leaf_order import LeafOrder
from axil.contributions.reverse import Combined, Reverse
from axil.errors import ExactnessError, InputError, UnsupportedQuestionError, shown
from axil.implicit.readers import FitInputs
from axil.inputs.copies import frozen
from axil.kernels import Backend
from axil.kernels.choose import settled
from axil.machine.memory import Limits
from axil.machine.threads import Cache
from axil.replay.build import with_rows
from axil.replay.compare_predictions import check_scores
from axil.replay.computed_walk import ComputedFits, FitRows, RowWeights, computed_fits
from axil.replay.gradient_walk import walk
from axil.replay.queries import Combination, Offsets, QueryBatch
from axil.replay.radius import ActiveSet
from axil.replay.recover import training_leaves
from axil.replay.refit import RefitInputs, RefitRows, refit_by_gradients
from axil.replay.replayed_stages import leaf_scores
from axil.replay.verification import Verification
from axil.replay.walk import round_to
from axil.structure.leaves import LeafFit
from axil.trees.losses import Deviance


def read(fit_inputs: FitInputs, adapter: Adapter) -> Boosting:
    """Replay boosted trees on their training data."""
    if fit_inputs.loss is not None:
        raise InputError(
            f"loss is {shown(fit_inputs.loss)}; a {adapter.library} model states its loss itself. "
            "Leave it out."
        )
    if fit_inputs.output != "raw" and adapter.calibration is not None:
        raise InputError(
            f"output is {fit_inputs.output!r}, and this model computes probabilities from several "
            "scores, or by a curve. axil differentiates scores alone. Leave output out."
        )
    X = inputs.as_features(fit_inputs.X, adapter, "X_train")
    n_rows = X.shape[0]
    if n_rows == 0:
        raise InputError("X_train has no rows; expected the rows that the model was fitted on.")
    targets = targets_of(adapter, fit_inputs.y, n_rows)
    if fit_inputs.group is not None:
        inputs.refuse_other_order(X, fit_inputs.group, "group")
    groups = inputs.as_row_groups(fit_inputs.group, n_rows)
    sample_weights = inputs.weights_of_rows(fit_inputs.sample_weight, groups, n_rows)
    weights = class_weights.counted_weights(adapter, targets, sample_weights)
    offsets = inputs.as_offsets(fit_inputs.init_score, n_rows, adapter.n_outputs, "training")
    in_bag = inputs.as_in_bag(fit_inputs.in_bag, n_rows)

    def replayed(weights: FloatArray | None, counts_classes: bool) -> Boosting:
        return Boosting(
            adapter,
            X,
            targets,
            weights,
            offsets,
            fit_inputs.output,
            fit_inputs.limits,
            fit_inputs.verify,
            in_bag=in_bag,
            counts_classes=counts_classes,
            groups=groups,
        )

    try:
        return replayed(weights, counts_classes=True)
    except ExactnessError:
        if sample_weights is None or weights is sample_weights:
            raise
        # The user may have multiplied the weights of the classes in.
        with suppress(ExactnessError):
            return replayed(sample_weights, counts_classes=False)
        raise


def targets_of(
    adapter: Adapter,
    values: Any,
    n_rows: int,
    name: str = "y_train",
    rows: str = "training",
    classes: AnyArray | None = None,
) -> FloatArray:
    """Return targets (n, K), classes or bounds (n, 2) as the user gives them.

    Parameters
    ----------
    adapter : Adapter
    values : array
    n_rows : int
    name, rows : str
        The argument and the kind of its rows, for messages.
    classes : array, optional
        Names of the classes in the place of the adapter's.
    """
    n_outputs = adapter.n_outputs
    if adapter.target_form is not TargetForm.NUMBERS:
        values = inputs.as_signed_times(values, name)
    if adapter.target_form is TargetForm.BOUNDS:
        return inputs.as_bounds(values, n_rows, name, rows)
    if classes is None:
        classes = adapter.classes
    repeated = adapter.repeats_targets
    targets = inputs.as_targets(values, n_rows, n_outputs, classes, name, rows, repeated)
    if classes is not None and n_outputs == 1:
        return targets[:, 1:]  # of two classes: whether a row is of the second
    return targets


def _require_memory(fit: BoostedFit, targets: FloatArray, limits: Limits) -> None:
    """Raise if the sampled rows of all trees, or recorded gradients, need too much memory."""
    if fit.sample_type is not None:
        size = np.dtype(fit.sample_type).itemsize * len(targets) * len(fit.table.n_leaves)
        limits.budget.require(size, "The sample counts of all trees", "Raise memory_limit.")
    if fit.shrinkage is not None:
        size = 4 * len(targets) * len(fit.table.n_leaves)
        limits.budget.require(size, "The scores before all trees", "Raise memory_limit.")
    if fit.leaf_rule.is_centred:
        size = 32 * int((fit.table.n_leaves**2).sum()) * int(np.max(fit.leaf_rule.steps))
        limits.budget.require(size, "The means of all trees", "Fit shallower trees.")
    if fit.loss.recorded:
        n_rounds = (int(fit.schedule.rounds[-1]) + 1) * int(np.max(fit.leaf_rule.steps))
        size = np.dtype(fit.loss.gradient_type).itemsize * targets.size * n_rounds
        limits.budget.require(size, "The gradients of all rounds", "Raise memory_limit.")


class Boosting:
    """A boosted model on its training data, with derivatives through the replayed fit.

    Reverse mode computes the derivatives; see `reverse`.
    """

    def __init__(
        self,
        adapter: Adapter,
        X: FeatureTable,
        targets: FloatArray,
        weights: FloatArray | None,
        offsets: FloatArray | None,
        output: str,
        limits: Limits,
        verify: bool,
        leaves: Cells | None = None,
        in_bag: FloatArray | None = None,
        counts_classes: bool = True,
        groups: IntArray | None = None,
    ):
        """Read the fit and replay it on its rows.

        Parameters
        ----------
        leaves : array of shape (T, N), optional
            The leaves of the rows, where a file keeps them and ``X`` is None.
        counts_classes : bool
            Whether `counted_weights` multiplied the weights by those of the model's classes.
        groups : array of shape (N,), optional
            The number of each row's group, of a ranking model.
        """
        if adapter.refused_draws is not None and in_bag is None:
            raise adapter.refused_draws
        targets = round_to(adapter.rounding.targets, targets)
        weights = None if weights is None else round_to(adapter.rounding.targets, weights)
        offsets = None if offsets is None else round_to(adapter.rounding.offsets, offsets)
        rows = TrainingRows(X, targets, weights, offsets, groups=groups, leaves=leaves)
        (fit,) = adapter.trees(rows)
        if groups is not None and not fit.loss.has_groups:
            raise InputError(
                f"group is for ranking models, and this one was fitted to the {fit.loss.name} "
                "loss. Leave it out."
            )
        fit = with_rows(fit, weights, in_bag)
        fit.loss.check(targets)
        limits = settled(limits, len(targets) * len(fit.table.n_leaves))
        _require_memory(fit, targets, limits)
        leaves = frozen(training_leaves(adapter, rows, fit.table.n_leaves, limits, fit.placement))
        replayed_targets = adapter.replayed_targets(targets)
        self.walked = walk(
            adapter, fit, leaves, replayed_targets, offsets, verify, limits.n_threads
        )
        self.adapter = adapter
        self.loss = fit.loss
        self.limits = limits
        self._n_threads = limits.n_threads
        self._raw = output == "raw"
        self.targets = targets
        self.underived = fit.no_derivative
        self.classes = adapter.classes
        #: as the library keeps them, without features
        self.rows = TrainingRows(None, targets, weights, offsets, in_bag, groups)
        self.label_weights = LabelWeights(adapter, self.rows, counts_classes)
        self._cache = Cache()  # which copies for rows with offsets share
        self.offsets: Offsets | None = None  #: of the rows to explain
        self.contributions = Contributions(self.walked, limits)
        self.leaf_order: LeafOrder | None = None  #: of `in_leaf_order`
        self.verification: Verification | None = None
        if verify:
            errors = (0.0, None) if X is None else self.check_rows(X)
            self.verification = self._verification_of(fit, *errors)
        self._verify = verify

    @property
    def seen(self) -> FloatArray | None:
        """The targets as tables show them, (N, 1), where those are bounds; None for others."""
        if self.adapter.target_form is not TargetForm.BOUNDS:
            return None
        return inputs.signed_times_of(self.targets)

    @property
    def outputs(self) -> AnyArray | None:
        """The names of the classes or the numbers of the outputs, (K,); None for one output."""
        n_outputs = self.adapter.n_outputs
        if n_outputs == 1:
            return None
        if self.classes is None:
            return np.arange(n_outputs)
        return self.classes

    def _verification_of(
        self, fit: BoostedFit, score_error: float, rounding_error: float | None
    ) -> Verification:
        """Return the verification of the replay.

        ``rounding_error`` is of scores that the library adds in single precision; None if there is
        none, or none is known.
        """
        details: dict[str, Any] = {
            "loss": fit.loss.name,
            "sum_error": self.contributions.verify_sums(),
        }
        if rounding_error is not None:
            details["rounding_error"] = rounding_error
        recorded = {"leaf counts": fit.table.leaf_counts, "leaf hessians": fit.table.leaf_hessians}
        active_set = None
        if fit.placement is not None:
            active_set = ActiveSet.encoded(int(fit.table.n_leaves.sum()), fit.placement)
        return Verification(
            n_rows=len(self.targets),
            n_trees=len(fit.table.n_leaves),
            max_error=score_error,
            leaf_error=self.walked.leaf_error,
            tolerance=self.adapter.gradient_tolerance,
            scale=self._largest or 1.0,
            compared=[name for name, numbers in recorded.items() if numbers is not None],
            recovered=dict(self.walked.recovered),
            active_set=active_set,
            details=details,
        )

    def check_rows(self, X: FeatureTable) -> tuple[float, float | None]:
        """Compare the scores of training rows with the model's.

        Return the errors of `check_scores`.
        """
        return check_scores(self.adapter, X, self.walked.fit, self.walked.leaves)

    @property
    def unfitted_shares(self) -> FloatArray:
        """The part of the labels that is left to fit when each tree is made, (T,)."""
        return self.walked.fit.schedule.unfitted_shares

    @property
    def fitted(self) -> FloatArray:
        """The scores of the training rows, (N, K).

        They include the offsets of the fit, which may replace the initial prediction.
        """
        walked = self.walked
        offsets = self.rows.offsets
        if offsets is None or not Offsets.of(offsets, len(offsets), self.adapter).replace_base:
            return walked.score
        return walked.score - walked.base

    @property
    def backend(self) -> Backend:
        """The back end that stores the training rows, contributions and derivatives."""
        return self.contributions.backend

    @property
    def differentiates(self) -> str:
        """The quantity that derivatives are of: "raw" or "probability"."""
        if self._raw:
            return "raw"
        return "probability"

    def shifted(self, offsets: Offsets | None) -> Boosting:
        """Return this model with the offsets of the rows to explain."""
        if offsets is None:
            return self
        model = copy.copy(self)
        model.offsets = offsets
        return model

    def in_leaf_order(self) -> Boosting:
        """Return this model with its contributions in the order of the leaves; see `LeafOrder`."""
        if self.leaf_order is not None:
            return self
        model = copy.copy(self)
        model.leaf_order = LeafOrder.of(self.contributions)
        return model

    def starts(self, n: int) -> FloatArray:
        """Return the initial scores of n rows, (n, K), to which contributions add.

        They come from the initial prediction, from the rows' offsets, or from both.
        """
        if self.offsets is None:
            return np.tile(self.contributions.base, (n, 1))
        return np.asarray(self.offsets.base * self.contributions.base + self.offsets.values)

    @property
    def _bases(self) -> float:
        """The coefficient of the initial prediction in the explained scores."""
        if self.offsets is None:
            return 1.0
        return self.offsets.base

    def _scores(self, X: FeatureTable) -> FloatArray:
        """Return the scores that the library computes, (n, K), with the offsets of these rows."""
        if self.offsets is None:
            return self.adapter.scores(X)
        return self.offsets.predictions(self.adapter, X)

    def predictions(self, X: FeatureTable) -> FloatArray:
        """Return raw scores, or their means by the link, (n, K)."""
        scores = self._scores(X)
        if self._raw:
            return scores
        return self.loss.mean(scores)

    def target_derivatives(self, X: FeatureTable) -> FloatArray:
        """Return the derivatives of predictions by the targets, (K, n, N)."""
        with self.backend.guard():
            return self._reverse(X).by_targets()

    def crossed_derivatives(
        self, X: FeatureTable, output: int, columns: Sequence[int]
    ) -> FloatArray:
        """Return the derivatives of an output's prediction by columns of the targets.

        They have the shape (columns, n, N).
        """
        with self.backend.guard():
            return self._reverse(X, outputs=[output]).by_columns(columns)

    def weight_derivatives(self, X: FeatureTable) -> FloatArray:
        """Return the derivatives of predictions by the row weights, (K, n, N)."""
        self._require_weight_derivatives()
        with self.backend.guard():
            return self._reverse(X).by_weights()

    def bytes_per_query(self) -> int:
        """Return the size of the adjoints of all scores and of the result, for each output."""
        n_rows, n_outputs = self.targets.shape
        return 8 * int(n_rows) * int(n_outputs) * (int(n_outputs) + 3)

    def located(self, X: FeatureTable) -> tuple[LeafArray, FloatArray]:
        """Return the leaves (n, T) and the scores (n, K) of rows, after verifying the scores.

        The sums of their leaf values must agree with the model.
        """
        leaves = self.adapter.coordinates(X, self._n_threads)
        scores = self._scores(X)
        if self._verify and len(scores):
            self._check(leaves, scores)
        return leaves, scores

    @property
    def class_names(self) -> AnyArray | None:
        """Names of the classes, two for one output.

        They are 0 and 1 if labels of 0 and 1 have a probability and no names.
        """
        if self.classes is not None:
            return self.classes
        if self.loss.meaning != "probability" or self.targets.shape[1] > 1:
            return None
        has_labels = self._cache.get("are labels", lambda: np.isin(self.targets, (0.0, 1.0)).all())
        if has_labels:
            return np.arange(2)
        return None

    @property
    def variance_power(self) -> float | None:
        """The power of the mean that is the variance of the loss: 1 for Poisson, 2 for gamma.

        None for losses without such a power.
        """
        if isinstance(self.loss, Deviance):
            return self.loss.power
        return None

    def means(self, scores: FloatArray) -> FloatArray | None:
        """Return the means of scores by the link, (n, K).

        It is None if they are the scores themselves.
        """
        if self.loss.meaning:
            return self.loss.mean(scores)
        return None

    def expected_targets(self, scores: FloatArray) -> FloatArray:
        """Return the expected targets, (n, K): means by the link, or the scores themselves."""
        means = self.means(scores)
        if means is None:
            return scores
        return means

    def as_targets(self, given: Any, n: int, what: str, rows: str) -> FloatArray:
        """Return targets (n, K), or classes, as the user gives them.

        They are rounded as the library keeps them.
        """
        targets = targets_of(self.adapter, given, n, what, rows, self.classes)
        targets = round_to(self.adapter.rounding.targets, targets)
        self.loss.check(targets, what, whole=False)
        return targets

    def refitted_as_before(self) -> ComputedFits:
        """Return the refit to the targets of the fit, with the tree structure fixed."""
        self._require_start("what_if")
        return self._started(self._cache.get("refit to its own targets", self._refitted_as_before))

    def _refitted_as_before(self) -> ComputedFits:
        return self._refit(self.targets)

    def refitted(self, targets: FloatArray) -> ComputedFits:
        """Return the fit to targets (N, K), with the tree structure fixed."""
        self._require_start("what_if")
        return self._started(self._refit(targets))

    def _refit(self, targets: FloatArray) -> ComputedFits:
        """Return the fit to targets (N, K) of the rows of the fit."""
        self.loss.check(targets, "targets", whole=False)
        self.loss.check(targets[self.walked.weights > 0], "targets")  # which the fit starts from
        rows = replace(self.rows, targets=targets, leaves=self.walked.leaves)
        (fit,) = self.adapter.trees(rows)
        row_weights = self.label_weights.with_targets(
            self.walked, targets, fit.weights.leaf_factors
        )
        return self._computed_fits(replace(self.walked.fit, loss=fit.loss), targets, row_weights)

    def _computed_fits(
        self, fit: BoostedFit, targets: FloatArray, row_weights: RowWeights
    ) -> ComputedFits:
        """Return fits to targets (N, K) with these row weights and the tree structure fixed."""
        replayed_targets = self.adapter.replayed_targets(targets)
        rows = FitRows.of_replay(self.walked, replayed_targets, self.rows.offsets, row_weights)
        return computed_fits(self.walked, fit, rows, self._n_threads)

    def refit_leaves(self, refit_inputs: RefitInputs) -> tuple[LeafFit, FloatArray | None]:
        """Return the leaves of a fit to other rows, and the sample counts of these rows.

        The sample counts say how often each row is sampled for each tree. They have the shape
        (N, T). None stands for once, for all trees.
        """
        self._require_start("refit")
        self.label_weights.require_rule("refit")
        if not self.loss.takes_other_rows:
            raise UnsupportedQuestionError(
                "refit",
                "the gradients come from a function of all rows",
                "Train again with your objective.",
            )
        if self.loss.draws_numbers and len(refit_inputs.old_rows) < len(self.targets):
            raise UnsupportedQuestionError(
                "refit(drop=)",
                f"{self.loss.name} gives each row random numbers, and a fit to fewer rows gives "
                "them others",
                "Ask without(X, rows), which keeps the numbers of the rows that remain.",
            )
        adapter = self.adapter
        walked = self.walked
        targets = refit_inputs.targets
        weights = refit_inputs.weights
        by_class = None
        if self.label_weights.counts_classes:
            by_class = class_weights.weights_of_classes(adapter, targets, weights, count=True)
            weights = class_weights.counted_weights(adapter, targets, weights, count=True)
        rows = RefitRows.of(refit_inputs, adapter, weights, walked.fit.table.n_leaves, self.limits)
        self.loss.check(rows.targets, "targets")
        training_rows = TrainingRows(
            refit_inputs.X, rows.targets, rows.weights, rows.offsets, groups=refit_inputs.groups
        )
        leaves = rows.leaves(walked.leaves)
        drawn = None
        sample_counts = None
        if walked.drawn is not None:
            drawn = rows.sample_counts(walked.drawn)
            sample_counts = drawn.T.astype(np.float64)
        leaf_fit = refit_by_gradients(
            adapter, walked, training_rows, leaves, drawn, self._n_threads
        )
        return replace(leaf_fit, class_weights=by_class), sample_counts

    def deleted(self, sets_of_rows: Sequence[IntArray], question: str) -> ComputedFits:
        """Return refits without some rows each.

        The rules of the library follow the remaining rows.
        """
        self._require_start(question)
        self.label_weights.require_rule(question)
        if not self.loss.takes_other_rows:
            raise UnsupportedQuestionError(
                question,
                "the gradients come from a function of all rows, which may mix them",
                "Use contributions: they add up to the score for every loss.",
            )
        row_weights = self.label_weights.without(self.walked, sets_of_rows)
        return self._started(self._computed_fits(self.walked.fit, self.targets, row_weights))

    def _started(self, fits: ComputedFits) -> ComputedFits:
        """Return refits with the initial scores of the explained rows.

        If their offsets replace the initial prediction, it does not move.
        """
        if self._bases:
            return fits
        return replace(fits, initial=np.zeros_like(fits.initial))

    def deletions(self, X: FeatureTable) -> FloatArray:
        """Return the effects of deleting rows on scores to first order, (K, n, N).

        See `Reverse.by_deletions`.
        """
        self._require_weight_derivatives()
        if self.label_weights.are_counted:
            raise UnsupportedQuestionError(
                'removal with method="first-order"',
                "class weights are counted from the labels of all rows, and axil does not "
                "differentiate them by a single row",
                'Leave method out, or pass method="exact": every leave-one-out fit is then '
                "replayed.",
            )
        with self.backend.guard():
            return self._reverse(X, raw=True).by_deletions()

    def _require_start(self, question: str) -> None:
        """Raise if a replay does not recompute the fit, or its initial scores, from its rows."""
        if self.walked.fit.leaf_rule.smoothing is not None:
            raise UnsupportedQuestionError(
                question,
                "leaf values are smoothed by row counts that LightGBM estimates, which are not "
                "estimated again",
                "Fit with path_smooth=0.",
            )
        if self.walked.fit.initial.fixed_reason:
            raise UnsupportedQuestionError(
                question,
                f"{self.walked.fit.initial.fixed_reason}, which is not computed again",
                "Fit with a constant start, such as base_score=0 or boost_from_average=False.",
            )

    def along(self, direction: FloatArray) -> FloatArray:
        """Return J v, (N, K), for a direction v (N, K) of the targets.

        J has the derivatives of the training rows' predictions.
        """
        self.require_derivatives()
        change = moved(self.walked, direction)
        return change if self._raw else np.einsum("ikm,im->ik", self._link_slopes(), change)

    def across(self, u: FloatArray) -> FloatArray:
        """Return J'u, (N, K), for u (N, K)."""
        if self._raw:
            slopes = u
        else:
            slopes = np.einsum("ikm,ik->im", self._link_slopes(), u)
        return self.pulled_back(self.walked.leaves.T, slopes)

    def _link_slopes(self) -> FloatArray:
        """Return the derivatives of training predictions by their scores, (N, K, K)."""
        return self.loss.mean_slopes(self.contributions.scores(self.walked.leaves.T))

    def loss_slopes(self, X: FeatureTable, y: FloatArray) -> FloatArray:
        """Return the derivatives of the loss of rows X with targets y by their scores, (n, K)."""
        self.require_derivatives()
        return self.loss.gradient(y, self.located(X)[1])  # softmax's are of the whole loss already

    def pulled_back(self, leaves: LeafArray, slopes: FloatArray) -> FloatArray:
        """Return J'u of rows in these leaves, (N, K); see `Combined`."""
        self.require_derivatives()
        with self.backend.guard():
            combined = Combined(
                self.walked,
                self.contributions.rows,
                leaves,
                slopes,
                self._n_threads,
                self._bases,
            )
            return combined.by_targets()

    def _require_weight_derivatives(self) -> None:
        """Raise if a row's weight moves the gradients of other rows."""
        if self.loss.couples_rows:
            raise UnsupportedQuestionError(
                "A derivative by the row weights",
                "the weight of a row moves the gradients of the other rows of its group",
                "Ask without(X, rows), which computes the refit without them.",
            )

    def require_derivatives(self) -> None:
        """Raise if the loss has no derivatives."""
        if self.underived:
            raise UnsupportedQuestionError(
                "A derivative by the targets",
                self.underived,
                "Use contributions: they add up to the score for every loss.",
            )

    def _reverse(self, X: FeatureTable, raw: bool = False, outputs: Any = slice(None)) -> Reverse:
        """Return the backward pass for rows.

        With ``raw`` it differentiates scores, otherwise the numbers that the user wants.
        """
        self.require_derivatives()
        leaves, scores = self.located(X)
        if self._raw or raw:
            seeds = np.tile(np.eye(scores.shape[1]), (len(scores), 1, 1))
        else:
            seeds = self.loss.mean_slopes(scores)
        return Reverse(
            self.walked,
            self.contributions.rows,
            leaves,
            seeds[:, outputs],
            self._n_threads,
            self._bases,
        )

    def verify_predictions(self, batch: QueryBatch | Combination, sums: FloatArray | None) -> None:
        """Compare sums of leaf values with the scores of the model.

        Compare sums of contributions (n, K) with those too.
        """
        if isinstance(batch, Combination):
            rows = batch.queries
        else:
            rows = batch
        leaves = rows.coordinates
        scores = rows.own_predictions
        if self._verify and len(scores):
            self._check(leaves, scores)
        if sums is not None:
            of_leaves = leaf_scores(self.walked.fit, leaves, self.starts(len(leaves)))
            check_added(batch, sums, of_leaves, self.contributions.sizes(leaves), self._largest)

    @property
    def _largest(self) -> float:
        """The largest |score| of a training row."""
        scores = self.walked.score
        return self._cache.get("largest score", lambda: float(np.abs(scores).max(initial=0.0)))

    def _check(self, leaves: LeafArray, scores: FloatArray) -> None:
        """Compare the sums of the leaf values behind the derivatives with the scores of the model.

        This runs on every use.
        """
        w = self.walked
        sizes = self.contributions.sizes(leaves)
        replayed_scores = leaf_scores(w.fit, leaves, self.starts(len(leaves)), rounded=True)
        if self.offsets is not None:
            sizes += np.abs(self.offsets.values)
        check_sums(
            replayed_scores, scores, sizes, self.adapter.gradient_tolerance, self._largest, CHANGED
        )
