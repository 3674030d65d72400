"""Boosted trees with a smooth loss: read, replayed, and differentiated with their structure held fixed."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters import class_weights
from axil.adapters.boosted_fit import BoostedFit
from axil.adapters.contract import GradientTrees, TrainingRows
from axil.arrays import FloatArray, IntArray
from axil.contributions.contributions import CHANGED, Contributions, check_added, check_sums
from axil.contributions.fits_again import FitsAgain, refit
from axil.contributions.forward import moved
from axil.contributions.leaf_fit import leaf_fit
from axil.contributions.remaining_rows import LabelWeights
from axil.contributions.reverse import Combined, Reverse
from axil.errors import ExactnessError, InputError, UnsupportedQuestionError, shown
from axil.implicit.readers import Given
from axil.inputs.copies import frozen
from axil.kernels import Backend
from axil.kernels.choose import settled
from axil.machine.memory import Limits
from axil.replay.build import with_rows
from axil.replay.checks import Verification
from axil.replay.gradient_walk import walk
from axil.replay.leaf_fits import Change, RefitRows
from axil.replay.queries import Combination, Offsets, Queries
from axil.replay.radius import Held
from axil.replay.recover import training_leaves
from axil.replay.score_checks import check_scores, leaf_scores
from axil.replay.walk import round_to
from axil.structure.leaves import LeafFit
from axil.trees.losses import Deviance


def read(given: Given, adapter: GradientTrees) -> Boosting:
    """Replay boosted trees on their training data."""
    if given.loss is not None:
        raise InputError(
            f"loss is {shown(given.loss)}; a {adapter.library} model says itself what it was fitted to: leave it out."
        )
    if given.output != "raw" and adapter.calibration is not None:
        raise InputError(
            f"output is {given.output!r}, and probabilities of this model are made of several scores, or by a curve: derivatives "
            "are of scores alone. Leave it out."
        )
    X = inputs.as_features(given.X, adapter, "X_train")
    n_rows = X.shape[0]
    if n_rows == 0:
        raise InputError("X_train has no rows; expected the rows that the model was fitted on.")
    repeated = adapter.repeats_targets
    targets = inputs.as_targets(
        given.y, n_rows, adapter.n_outputs, adapter.classes, repeated=repeated
    )
    if adapter.classes is not None and adapter.n_outputs == 1:
        targets = targets[:, 1:]  # of two classes: whether a row is of the second
    own = inputs.as_weights(given.sample_weight, n_rows)
    weights = class_weights.counted_weights(adapter, targets, own)
    offsets = inputs.as_offsets(given.init_score, n_rows, adapter.n_outputs, "training")
    settings = given.output, given.limits, given.verify, None, inputs.as_bags(given.bags, n_rows)
    try:
        return Boosting(adapter, X, targets, weights, offsets, *settings)
    except ExactnessError:
        if own is None or weights is own:
            raise
        try:  # the user may have multiplied the weights of classes in
            return Boosting(adapter, X, targets, own, offsets, *settings, counts_classes=False)
        except ExactnessError:
            pass
        raise


class Boosting:
    """A boosted model on its training data, with derivatives by reverse mode through the replayed fit; see `reverse`."""

    def __init__(
        self,
        adapter: GradientTrees,
        X: Any,
        targets: FloatArray,
        weights: FloatArray | None,
        offsets: FloatArray | None,
        output: str,
        limits: Limits,
        verify: bool,
        leaves: NDArray[np.unsignedinteger[Any]] | None = None,
        bags: FloatArray | None = None,
        counts_classes: bool = True,
    ):
        """Read the fit and replay it on its rows.

        Parameters
        ----------
        leaves : array of shape (T, N), optional
            The leaves of the rows, where a file keeps them and ``X`` is None.
        counts_classes : bool
            Whether `counted_weights` multiplied the weights by those of the model's classes.
        """
        if adapter.refused_draws is not None and bags is None:
            raise adapter.refused_draws
        targets = round_to(adapter.precision, targets)
        weights = None if weights is None else round_to(adapter.precision, weights)
        offsets = None if offsets is None else round_to(adapter.offset_precision, offsets)
        rows = TrainingRows(X, targets, weights, offsets, leaves=leaves)
        (fitted,) = adapter.trees(rows)
        fitted = with_rows(fitted, weights, bags)
        self.loss = fitted.loss
        self.loss.check(targets)
        n_leaves = fitted.n_leaves
        self.limits = limits = settled(limits, len(targets) * len(n_leaves))
        if fitted.draw_type is not None:
            size = np.dtype(fitted.draw_type).itemsize * len(targets) * len(n_leaves)
            limits.budget.require(size, "The draws of all trees", "Raise memory_limit.")
        if fitted.loss.recorded:
            size = 4 * targets.size * (int(fitted.schedule.rounds[-1]) + 1)
            limits.budget.require(size, "The gradients of your objective", "Raise memory_limit.")
        leaves = frozen(training_leaves(adapter, rows, n_leaves, limits, fitted.placement))
        self.walked = walk(adapter, fitted, leaves, targets, offsets, verify, limits.n_threads)
        self.adapter, self._n_threads, self._raw = adapter, limits.n_threads, output == "raw"
        self.targets, self.underived, self.classes = targets, fitted.no_derivative, adapter.classes
        self.rows = TrainingRows(
            None, targets, weights, offsets, bags
        )  #: as the library keeps them; no features
        self.label_weights = LabelWeights(adapter, self.rows, counts_classes)
        self._as_fitted: FitsAgain | None = None
        self.offsets: Offsets | None = None  #: of the rows that are asked about
        self.contributions = Contributions(self.walked, limits)
        self.verification: Verification | None = None
        if verify:
            errors = (0.0, None) if X is None else self.check_rows(X)
            self.verification = self._findings(fitted, *errors)
        self._verify = verify
        several = adapter.n_outputs > 1
        self.outputs = (
            (np.arange(adapter.n_outputs) if adapter.classes is None else adapter.classes)
            if several
            else None
        )

    def _findings(
        self, fitted: BoostedFit, score_error: float, rounding_error: float | None
    ) -> Verification:
        """``rounding_error``: of scores that the library adds in single precision; None where there is none, or none is known."""
        n_trees, scale = (
            len(fitted.n_leaves),
            float(np.abs(self.walked.score).max(initial=0.0)) or 1.0,
        )
        errors = score_error, self.walked.leaf_error, self.adapter.gradient_tolerance, scale
        details = {"loss": fitted.loss.name, "sum_error": self.contributions.prove()}
        details |= {} if rounding_error is None else {"rounding_error": rounding_error}
        compared = [] if fitted.leaf_counts is None else ["leaf counts"]
        compared += [] if fitted.leaf_hessians is None else ["leaf hessians"]
        recovered = dict(self.walked.recovered)
        placement, n_leaves = fitted.placement, int(fitted.n_leaves.sum())
        held = None if placement is None else Held.encoded(n_leaves, placement)
        return Verification(
            len(self.targets),
            n_trees,
            *errors,
            compared=compared,
            recovered=recovered,
            held=held,
            details=details,
        )

    def check_rows(self, X: Any) -> tuple[float, float | None]:
        """Compare the scores of training rows with the model's; the largest differences of `check_scores`."""
        return check_scores(self.adapter, X, self.walked.fit, self.walked.leaves)

    @property
    def fitted(self) -> FloatArray:
        """(N, K): the scores of the training rows with the offsets of the fit, which may stand in for the base."""
        w, offsets = self.walked, self.rows.offsets
        replaced = (
            offsets is not None and Offsets.of(offsets, len(offsets), self.adapter).replace_base
        )
        return w.score - w.base if replaced else w.score

    @property
    def backend(self) -> Backend:
        """Where the training rows, pushes and derivatives are kept while they are made."""
        return self.contributions.backend

    @property
    def differentiates(self) -> str:
        """The quantity that derivatives are of: "raw" or "probability"."""
        return "raw" if self._raw else "probability"

    def shifted(self, offsets: Offsets | None) -> Boosting:
        """This model for rows with these offsets: answers of what is returned are about exactly these rows."""
        if offsets is None:
            return self
        made = copy.copy(self)
        made.offsets = offsets
        return made

    def starts(self, n: int) -> FloatArray:
        """(n, K): where the scores of n rows start, from the base, their offsets or both; pushes are added to it."""
        if self.offsets is None:
            return np.tile(self.contributions.base, (n, 1))
        return np.asarray(self.offsets.base * self.contributions.base + self.offsets.values)

    @property
    def _bases(self) -> float:
        """How often the base counts in the scores that are asked about."""
        return 1.0 if self.offsets is None else self.offsets.base

    def _scores(self, X: Any) -> FloatArray:
        """(n, K): by the library's own account, with the offsets of these rows."""
        return (
            self.adapter.scores(X)
            if self.offsets is None
            else self.offsets.predictions(self.adapter, X)
        )

    def predictions(self, X: Any) -> FloatArray:
        """(n, K): raw scores, or their means by the link."""
        scores = self._scores(X)
        return scores if self._raw else self.loss.mean(scores)

    def target_derivatives(self, X: Any) -> FloatArray:
        """(K, n, N)."""
        with self.backend.guard():
            return self._reverse(X).by_targets()

    def crossed_derivatives(self, X: Any, output: int, columns: Sequence[int]) -> FloatArray:
        """(columns, n, N): of one output's prediction by these columns of the targets."""
        with self.backend.guard():
            return self._reverse(X, outputs=[output]).by_columns(columns)

    def weight_derivatives(self, X: Any) -> FloatArray:
        """(K, n, N)."""
        with self.backend.guard():
            return self._reverse(X).by_weights()

    def bytes_per_query(self) -> int:
        """The adjoints of all scores and the result, for each output."""
        n_rows, n_outputs = self.targets.shape
        return 8 * int(n_rows) * int(n_outputs) * (int(n_outputs) + 3)

    def located(self, X: Any) -> tuple[NDArray[np.integer[Any]], FloatArray]:
        """(n, T) leaves and (n, K) scores, whose sums of leaves are compared with the model on every use."""
        leaves, scores = self.adapter.coordinates(X, self._n_threads), self._scores(X)
        if self._verify and len(scores):
            self._check(leaves, scores)
        return leaves, scores

    @property
    def class_names(self) -> NDArray[Any] | None:
        """Names of the classes, two for one output; 0 and 1 where labels of 0 and 1 have a probability and no names."""
        if self.classes is not None:
            return self.classes
        two = self.loss.meaning == "probability" and self.targets.shape[1] == 1
        return np.arange(2) if two and bool(np.isin(self.targets, (0.0, 1.0)).all()) else None

    @property
    def scored(self) -> Any:
        """Name of the class that scores are of, the second of two; None where every class has its score, and for numbers."""
        names = self.class_names
        return None if names is None or self.outputs is not None else names[1]

    @property
    def variance_power(self) -> float | None:
        """Power of the mean that the loss takes the variance for: 1 for Poisson, 2 for gamma; None of other losses."""
        return self.loss.power if isinstance(self.loss, Deviance) else None

    def means(self, scores: FloatArray) -> FloatArray | None:
        """(n, K): what the link makes of scores; None where that is the scores themselves."""
        return self.loss.mean(scores) if self.loss.meaning else None

    def as_targets(self, given: Any, n: int, what: str, rows: str) -> FloatArray:
        """(n, K): targets, or classes, as the user gives them, rounded as the library keeps them."""
        repeated = self.adapter.repeats_targets
        found = inputs.as_targets(
            given, n, self.adapter.n_outputs, self.classes, what, rows, repeated
        )
        if self.classes is not None and self.adapter.n_outputs == 1:
            found = found[:, 1:]
        found = round_to(self.adapter.precision, found)
        self.loss.check(found, what, whole=False)
        return found

    def refitted(self, targets: FloatArray) -> FitsAgain:
        """The fit to targets (N, K), the structure held fixed."""
        self._require_start("what_if")
        if targets is self.targets and self._as_fitted is not None:
            return self._started(self._as_fitted)
        self.loss.check(targets, "targets", whole=False)
        self.loss.check(targets[self.walked.weights > 0], "targets")  # which the fit starts from
        (other,) = self.adapter.trees(replace(self.rows, targets=targets))
        remaining = self.label_weights.with_targets(self.walked, targets, other.leaf_factors)
        found = refit(self.walked, targets, other.loss, remaining, self._n_threads)
        if targets is self.targets:
            self._as_fitted = found
        return self._started(found)

    def leaf_fit(self, change: Change) -> tuple[LeafFit, FloatArray | None]:
        """The leaves of a fit to other rows, and how often each row was drawn for each tree; None: all once, for all."""
        self._require_start("refit")
        self.label_weights.require_rule("refit")
        if self.loss.recorded:
            raise UnsupportedQuestionError(
                "refit",
                "the gradients come from a function of all rows",
                "Train again with your objective.",
            )
        adapter, walked = self.adapter, self.walked
        weights, by_class = change.weights, None
        if self.label_weights.counts_classes:
            weights = class_weights.counted_weights(
                adapter, change.targets, change.weights, count=True
            )
            by_class = class_weights.weights_of_classes(
                adapter, change.targets, change.weights, count=True
            )
        rows = RefitRows.of(change, adapter, weights, walked.fit.n_leaves, self.limits)
        self.loss.check(rows.targets, "targets")
        given = TrainingRows(change.X, rows.targets, rows.weights, rows.offsets)
        leaves, drawn = (
            rows.leaves(walked.leaves),
            None if walked.drawn is None else rows.draws(walked.drawn),
        )
        found = leaf_fit(adapter, walked, given, leaves, drawn, self._n_threads)
        found = replace(found, class_weights=by_class)
        return found, None if drawn is None else drawn.T.astype(np.float64)

    def deleted(self, gone: Sequence[IntArray], question: str) -> FitsAgain:
        """Return fits without some rows each: the rules of the library follow the rows that remain."""
        self._require_start(question)
        self.label_weights.require_rule(question)
        if self.loss.recorded:
            raise UnsupportedQuestionError(
                question,
                "the gradients come from a function of all rows, which may mix them",
                "Use pushes or contributions: they add up to the score for every loss.",
            )
        remaining = self.label_weights.without(self.walked, gone)
        return self._started(
            refit(self.walked, self.targets, self.loss, remaining, self._n_threads)
        )

    def _started(self, found: FitsAgain) -> FitsAgain:
        """A refit for rows whose offsets may stand in for the base: then it moves nothing."""
        return found if self._bases else replace(found, base=np.zeros_like(found.base))

    def deletions(self, X: Any) -> FloatArray:
        """Return the effects of deleting rows on scores to first order, (K, n, N); see `Reverse.by_deletions`."""
        if self.label_weights.are_counted:
            raise UnsupportedQuestionError(
                'removal with method="first-order"',
                "the weights of classes are counted from the labels of all rows, and how they follow a row is not differentiated",
                'Leave method out, or pass method="exact": every fit without a row is then replayed.',
            )
        with self.backend.guard():
            return self._reverse(X, raw=True).by_deletions()

    def _require_start(self, question: str) -> None:
        """Raise where the fit, or its start, does not follow its rows in a replay."""
        if self.walked.fit.smoothing is not None:
            raise UnsupportedQuestionError(
                question,
                "leaf values are smoothed by row counts that LightGBM estimates, which are not estimated again",
                "Fit with path_smooth=0.",
            )
        if self.walked.fit.initial_held:
            raise UnsupportedQuestionError(
                question,
                f"{self.walked.fit.initial_held}, which is not computed again",
                "Fit with a constant start, such as base_score=0 or boost_from_average=False.",
            )

    def along(self, direction: FloatArray) -> FloatArray:
        """Return (N, K): J v for the training rows' own predictions, by their targets in this direction (N, K)."""
        self.require_derivatives()
        change = moved(self.walked, direction)
        return change if self._raw else np.einsum("ikm,im->ik", self._link_slopes(), change)

    def across(self, u: FloatArray) -> FloatArray:
        """Return (N, K): J'u, for u (N, K)."""
        slopes = u if self._raw else np.einsum("ikm,ik->im", self._link_slopes(), u)
        return self.pulled_back(self.walked.leaves.T, slopes)

    def _link_slopes(self) -> FloatArray:
        """Return (N, K, K): how the training rows' predictions, without offsets, move with their scores."""
        return self.loss.mean_slopes(self.contributions.scores(self.walked.leaves.T))

    def loss_slopes(self, X: Any, y: FloatArray) -> FloatArray:
        """(n, K): the derivative of the loss of rows X with targets y, (n, K), by their scores."""
        self.require_derivatives()
        return self.loss.gradient(y, self.located(X)[1])  # softmax's are of the whole loss already

    def pulled_back(self, leaves: NDArray[np.integer[Any]], slopes: FloatArray) -> FloatArray:
        """(N, K): J'u of rows in these leaves; see `Combined`."""
        self.require_derivatives()
        with self.backend.guard():
            given = (
                self.walked,
                self.contributions.rows,
                leaves,
                slopes,
                self._n_threads,
                self._bases,
            )
            return Combined(*given).by_targets()

    def require_derivatives(self) -> None:
        """Raise where the loss has none."""
        if self.underived:
            raise UnsupportedQuestionError(
                "A derivative by the targets",
                self.underived,
                "Use contributions: they add up to the score for every loss.",
            )

    def _reverse(self, X: Any, raw: bool = False, outputs: Any = slice(None)) -> Reverse:
        self.require_derivatives()
        leaves, scores = self.located(X)
        n, n_outputs = scores.shape
        seeds = (
            np.tile(np.eye(n_outputs), (n, 1, 1))
            if self._raw or raw
            else self.loss.mean_slopes(scores)
        )
        return Reverse(
            self.walked,
            self.contributions.rows,
            leaves,
            seeds[:, outputs],
            self._n_threads,
            self._bases,
        )

    def prove(self, asked: Queries | Combination, made: FloatArray | None) -> None:
        """Compare the sums of leaves with the scores of the model, and what pushes add up to (n, K) with those."""
        rows = asked.queries if isinstance(asked, Combination) else asked
        leaves, scores = rows.coordinates, rows.predictions
        if self._verify and len(scores):
            self._check(leaves, scores)
        if made is not None:
            of_leaves = leaf_scores(self.walked.fit, leaves, self.starts(len(leaves)))
            check_added(asked, made, of_leaves, self.contributions.sizes(leaves), self._largest)

    @property
    def _largest(self) -> float:
        """The largest |score| of a training row."""
        return float(np.abs(self.walked.score).max(initial=0.0))

    def _check(self, leaves: NDArray[np.integer[Any]], scores: FloatArray) -> None:
        """Compare the sums of the leaves that the derivatives are made from with the scores of the model, on every use."""
        w, sizes = self.walked, self.contributions.sizes(leaves)
        made = leaf_scores(w.fit, leaves, self.starts(len(leaves)), rounded=True)
        if self.offsets is not None:
            sizes += np.abs(self.offsets.values)
        check_sums(made, scores, sizes, self.adapter.gradient_tolerance, self._largest, CHANGED)
