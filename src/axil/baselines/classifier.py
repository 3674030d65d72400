"""A classifier on its training data, replayed: where the baselines read gradients and leaves from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters import smooth
from axil.adapters.contract import TrainingRows
from axil.adapters.losses import Logistic, Loss, Softmax
from axil.errors import ExactnessError, InputError, shown
from axil.inputs.copies import owned_rows
from axil.kernels.choose import limits_of
from axil.pushes.agreement import check_scores
from axil.pushes.stages import Round, Walked, walk
from axil.replay.build import round_to, with_rows
from axil.replay.checks import Verification
from axil.replay.recover import assign_leaves
from axil.types import Array


@dataclass(frozen=True)
class ClassQueries:
    """Explained rows of a classifier."""

    leaves: NDArray[np.intp]  #: (n, T)
    scores: Array  #: (n, K) raw
    targets: Array | None  #: (n, K) of 0 and 1; None: not given

    def __len__(self) -> int:
        return len(self.leaves)

    def part(self, rows: slice) -> ClassQueries:
        """The queries in a slice of the rows."""
        return ClassQueries(self.leaves[rows], self.scores[rows], None if self.targets is None else self.targets[rows])


class FittedClassifier:
    """A boosted classifier with its training data, which every baseline takes in place of an explainer.

    The fit is replayed in float64 and compared with the model, as in `axil.Explainer`, which takes the same
    models: log-loss of two classes, softmax and one-vs-all of more, in LightGBM, XGBoost, CatBoost and scikit-learn.

    Parameters
    ----------
    model : fitted classifier
        A classifier of any library that axil reads, or a pipeline that ends in one.
    X_train : table
        The rows that the model was fitted on, in the order of the fit.
    y_train : array of shape (n_train,)
        Their classes.
    sample_weight : array of shape (n_train,), optional
        The weights of the fit.
    init_score : array of shape (n_train,) or (n_train, K), optional
        The offsets of the fit, such as logarithms of exposures: XGBoost's base_margin, CatBoost's baseline.
    n_threads : int, optional
        How many threads to use; by default one for each processor that the process may use.
    memory_limit : int or str, optional
        The bytes that one request may take, or text such as "2GiB"; by default most of what is free.

    Examples
    --------
    >>> from axil.baselines import BoostIn, FittedClassifier
    >>> from lightgbm import LGBMClassifier
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = LGBMClassifier(n_estimators=20, verbose=-1).fit(X[:500], y[:500])
    >>> BoostIn(FittedClassifier(model, X[:500], y[:500])).scores(X[500:], y[500:]).shape
    (69, 500)
    """

    def __init__(
        self,
        model: Any,
        X_train: Any,
        y_train: Any,
        sample_weight: Any = None,
        init_score: Any = None,
        *,
        n_threads: int | None = None,
        memory_limit: int | str | None = None,
    ):
        limits = limits_of(n_threads, memory_limit)
        self.n_threads, self.budget = limits.n_threads, limits.budget
        adapter = smooth.find(model)
        if adapter is None:
            raise InputError(
                f"The model is a {type(model).__module__}.{type(model).__qualname__}; expected boosted trees that classify."
            )
        if adapter.refused_draws is not None:
            raise adapter.refused_draws
        self._adapter = adapter
        self._features = owned_rows(inputs.as_features(X_train, adapter, "X_train"))
        n_rows = int(self._features.shape[0])
        if n_rows == 0:
            raise InputError("X_train has no rows; expected the rows that the model was fitted on.")
        targets = round_to(adapter.precision, self._targets(y_train, n_rows, "y_train", "training"))
        weights = smooth.counted_weights(adapter, targets, inputs.as_weights(sample_weight, n_rows))
        offsets = inputs.as_offsets(init_score, n_rows, adapter.n_outputs, "training")
        weights = None if weights is None else round_to(adapter.precision, weights)
        offsets = None if offsets is None else round_to(adapter.offset_precision, offsets)
        fitted = adapter.smooth_trees(TrainingRows(self._features, targets, weights, offsets))
        fitted = replace(fitted, trees=with_rows(fitted.trees, weights, None))
        if not isinstance(fitted.loss, (Logistic, Softmax)):
            raise InputError(
                f"The model was fitted to the loss {fitted.loss.name!r}; expected log-loss or softmax. For squared error give "
                "the baseline an axil.Explainer; for other losses there are no baselines."
            )
        if fitted.omega is not None:
            raise InputError(
                "The model was fitted with DART, which drops trees and puts them back smaller; the baselines are defined for "
                "trees that are added one after the other. Ask axil.Explainer, which takes DART."
            )
        if not np.isin(targets, (0.0, 1.0)).all():
            raise InputError("y_train holds shares; expected classes, 0 and 1 for a model that has no names for them.")
        leaves = assign_leaves(adapter, self._features, n_rows, fitted.trees.n_leaves, limits)  # type: ignore[arg-type]
        self.walked: Walked = walk(adapter, fitted, leaves, targets, offsets, check=True, n_threads=self.n_threads)
        error = check_scores(adapter, self._features, self.walked.smooth, self.walked.leaves)
        #: findings of the replay
        scale = float(np.abs(self.walked.score).max(initial=0.0)) or 1.0
        errors = error, self.walked.leaf_error, adapter.smooth_tolerance, scale
        n_trees, details = len(fitted.trees.n_leaves), {"loss": fitted.loss.name}
        self.verification = Verification(n_rows, n_trees, *errors, details=details)
        self.loss: Loss = fitted.loss
        coefficients = np.zeros(len(self.walked.steps))
        for one in self.walked.rounds:
            for stage, coefficient in one.changes:
                coefficients[stage] += coefficient
        self.rates = coefficients  #: (stages,) what a step's leaf values are multiplied by in the prediction

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return len(self.walked.targets)

    @property
    def several_steps(self) -> bool:
        """Whether a tree's leaf values are sums of several steps."""
        return int(np.max(self.walked.smooth.trees.steps)) > 1

    @property
    def row_weights(self) -> Array:
        """(N,): weights of the rows in the loss."""
        factors = self.walked.smooth.factors
        return self.walked.weights if factors is None else self.walked.weights * factors

    def queries(self, X: Any, y: Any) -> ClassQueries:
        """Checked rows; the sums of their leaves must be the model's scores."""
        X = inputs.as_features(X, self._adapter, "X", self._features)
        n = int(X.shape[0])
        targets = None if y is None else self._targets(y, n, "y", "explained")
        if targets is not None and not np.isin(targets, (0.0, 1.0)).all():
            raise InputError("y holds numbers other than 0 and 1; expected classes.")
        w = self.walked
        leaves, scores = self._adapter.coordinates(X, self.n_threads).astype(np.intp), self._adapter.scores(X)
        trees, made = w.smooth.trees, w.base + np.zeros_like(scores)
        for t in range(len(trees.n_leaves)):
            own = slice(None) if w.smooth.shared else slice(int(w.smooth.outputs[t]), int(w.smooth.outputs[t]) + 1)
            made[:, own] += trees.values[w.starts[t] + leaves[:, t]]
        if n:
            error = np.abs(made - scores)
            worst = np.unravel_index(int(error.argmax()), error.shape)
            scale = max(float(np.abs(scores).max()), float(np.abs(w.score).max()), 1e-300)
            if not error[worst] <= self._adapter.smooth_tolerance * scale:
                cause = f"The model may have changed since the {type(self).__name__} was made: make a new one."
                raise ExactnessError(f"score of explained row {worst[0]} (from 0)", made[worst], scores[worst], cause)
        return ClassQueries(leaves, made, targets)

    def rounds(self, queries: ClassQueries) -> Iterator[tuple[Round, Array, Array]]:
        """The rounds of the fit, last first, with the scores of training and of explained rows before them: (N, K), (n, K).

        The arrays are changed in place from one round to the next.
        """
        w = self.walked
        rows, asked = w.score.copy(), queries.scores.copy()
        for one in w.rounds[::-1]:
            for t, k, gain in w.gains(one):
                rows[:, k] -= gain[w.leaves[t]]
            for stage, coefficient in one.changes:
                t, k, value = int(w.stage_tree[stage]), int(w.stage_output[stage]), w.steps[stage].value
                asked[:, k] -= coefficient * value[queries.leaves[:, t]]
            yield one, rows, asked

    def _targets(self, y: Any, n: int, what: str, rows: str) -> Array:
        adapter = self._adapter
        if y is None:
            raise InputError(f"{what} is {shown(y)}; expected the classes of the {n} {rows} rows.")
        targets = inputs.as_targets(y, n, adapter.n_outputs, adapter.classes, what, rows)
        return targets[:, 1:] if adapter.classes is not None and adapter.n_outputs == 1 else targets
