"""scikit-learn's smooth learners: logistic regression, generalised linear models, networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, hstack, issparse

from axil import inputs
from axil.adapters.pipeline import PipelineAdapter, last_step
from axil.adapters.searches import unwrapped
from axil.adapters.sklearn.adapter import require_fitted
from axil.adapters.sklearn.base import SklearnAdapter, numbers
from axil.adapters.sklearn.refusals import LBFGS, refuse_learners
from axil.arrays import FloatArray
from axil.errors import InputError, shown
from axil.implicit import row_losses
from axil.implicit.network import Network
from axil.implicit.optimum import Implicit, Learner, Predictor, Training, check_predictions
from axil.implicit.readers import FitInputs


def as_they_are(rows: Any) -> Any:
    """The rows themselves."""
    return rows


def with_ones(rows: Any) -> Any:
    """The rows, dense or sparse, with a last column of ones."""
    ones = np.ones((rows.shape[0], 1))
    if issparse(rows):
        return csr_array(hstack([rows, ones]))
    return np.hstack([rows, ones])


class Linear:
    """K scores of q features; parameters (K, q) in a row. Products cost N * K * q, sparse features what they hold."""

    def __init__(self, coefficients: FloatArray, features: Callable[[Any], Any], X: Any):
        self._coefficients = coefficients
        self._features = features
        self._training = features(X)
        self.parameters = coefficients.ravel()
        self.bytes_a_direction = 8 * (
            3 * self._training.shape[0] * len(coefficients) + 2 * coefficients.size
        )

    def scores(self, X: Any) -> FloatArray:
        """(n, K)."""
        return np.asarray(self._features(X) @ self._coefficients.T)

    def jacobian(self, X: Any) -> FloatArray:
        """(n, K, P): the features, in the block of their score."""
        phi = self._features(X)
        if issparse(phi):
            phi = phi.toarray()
        n_outputs = len(self._coefficients)
        return np.asarray(
            np.einsum("kj,nq->nkjq", np.eye(n_outputs), phi).reshape(len(phi), n_outputs, -1)
        )

    def push(self, directions: FloatArray) -> FloatArray:
        """(N, K, m)."""
        blocks = directions.reshape(*self._coefficients.shape, -1)
        return np.stack([np.asarray(self._training @ block) for block in blocks], axis=1)

    def pull(self, pulls: FloatArray) -> FloatArray:
        """(P,), or (P, m) for pulls (N, K, m)."""
        blocks = [np.asarray(self._training.T @ pulls[:, k]) for k in range(pulls.shape[1])]
        return np.concatenate(blocks)

    def product(
        self, directions: FloatArray, gradient: FloatArray, curvature: FloatArray
    ) -> FloatArray:
        """(P, m): Phi' D Phi directions; the gradient by the scores does not matter where these are linear."""
        return self.pull(np.einsum("ijk,ikm->ijm", curvature, self.push(directions)))


_TOLERANCE = "Fit with a smaller tol and a larger max_iter, on columns of like scale."


class LearnerFit(NamedTuple):
    """The fit of one kind of model."""

    learner: Learner
    training: Training
    link: row_losses.Link  #: from scores to probabilities or means


def read(given: FitInputs) -> Implicit | None:
    """The model on its training data, None for what is not one of scikit-learn's smooth learners; raises for refusals.

    ``given.output``: "raw" for scores (log-odds, log-means), "probability" for what they stand for (probabilities, means).
    """
    model = unwrapped(given.model)
    output = given.output
    limits = given.limits
    last = last_step(model)
    if last is None:
        last = model
    kind = _kind(last)
    if kind is None:
        return None
    require_fitted(last)
    if given.loss is not None:
        raise InputError(
            f"loss is {shown(given.loss)}; a {kind} says itself what it was fitted to: leave it out."
        )
    refuse_learners(model)
    own = SklearnAdapter(last)  # type: ignore[abstract]  # its columns alone are meant
    columns: SklearnAdapter | PipelineAdapter = own
    plain = own.model
    prepare = partial(_prepare, not kind.startswith("MLP"))
    if last is not model:
        own.fingerprint = ""  # of what is saved, and derivatives are not
        columns = pipeline = PipelineAdapter(model, own)
        prepare = partial(pipeline.through, prepare)
    X = inputs.as_features(given.X, columns, "X_train")
    n_rows = X.shape[0]
    if n_rows == 0:
        raise InputError("X_train has no rows; expected the rows that the model was fitted on.")
    if given.init_score is not None:
        raise InputError("scikit-learn's models take no offsets (init_score): leave them out.")
    weights = inputs.as_weights(given.sample_weight, n_rows)
    classes = getattr(plain, "classes_", None)
    targets = inputs.as_targets(given.y, n_rows, _n_outputs(plain), classes)
    if classes is not None and len(classes) == 2:
        targets = targets[:, 1:]
    rows = prepare(X)
    reading = READERS[kind](plain, rows, targets, np.ones(n_rows) if weights is None else weights)
    several = targets.shape[1] > 1
    predictor = Predictor(
        library="scikit-learn",
        columns=columns,
        prepare=prepare,
        predict=partial(_predict, plain, reading, output),
        link=reading.link if output == "probability" else row_losses.identity_link,
        outputs=(np.arange(targets.shape[1]) if classes is None else classes) if several else None,
        remedy=LBFGS if kind.startswith("MLP") else _TOLERANCE,
        unfinished=_unfinished(plain),
    )
    return Implicit(  # type: ignore[abstract]  # it has no coordinates
        predictor,
        reading.learner,
        reading.training,
        rows,
        limits.n_threads,
        limits.budget,
        given.verify,
    )


def _kind(model: Any) -> str | None:
    names = [
        kind.__name__ for kind in type(model).__mro__ if kind.__module__.startswith("sklearn.")
    ]
    return next((name for name in names if name in READERS), None)


def _unfinished(model: Any) -> str:
    """Return a sentence that the solver of this model used up its iterations; empty where it stopped by itself."""
    n_iter = getattr(model, "n_iter_", None)
    max_iter = getattr(model, "max_iter", None)
    if n_iter is None or max_iter is None or np.max(n_iter) < max_iter:
        return ""
    return f"The solver did not converge: it stopped after max_iter={max_iter} iterations."


def _n_outputs(model: Any) -> int:
    if hasattr(model, "n_outputs_"):
        return int(model.n_outputs_)
    if np.ndim(model.coef_) == 1:
        return 1
    return len(model.coef_)


def _prepare(may_be_sparse: bool, X: Any) -> Any:
    """From the user's rows to numbers; those of linear models may stay sparse."""
    rows = numbers(X, np.float64)
    if issparse(rows) and not may_be_sparse:
        rows = rows.toarray()
    if not np.isfinite(rows.data if issparse(rows) else rows).all():
        raise InputError(
            "The rows hold values that are missing or not finite, which this model does not take."
        )
    return rows


def _predict(model: Any, reading: LearnerFit, output: str, rows: Any) -> FloatArray:
    """(n, K): the model's own predictions; where it hides its scores they are ours, once their means are the model's."""
    shape = rows.shape[0], reading.training.targets.shape[1]
    if output == "raw" and hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(rows), dtype=float).reshape(shape)
    found = np.asarray(
        model.predict_proba(rows) if hasattr(model, "classes_") else model.predict(rows),
        dtype=float,
    )
    if hasattr(model, "classes_") and shape[1] == 1:
        found = found[:, 1:]
    else:
        found = found.reshape(shape)
    if output == "probability" or reading.link == row_losses.identity_link:
        return found
    scores = reading.learner.scores(rows)
    check_predictions(reading.link(scores)[0], found)
    return scores


def _logistic(model: Any, rows: Any, targets: FloatArray, weights: FloatArray) -> LearnerFit:
    """C * sum_i w_i l_i + |coefficients|^2 / 2; the intercept is free, but not liblinear's."""
    # all classes have the same
    if hasattr(model, "C_"):
        chosen = model.C_
    else:
        chosen = model.C
    if getattr(model, "penalty", "l2") is None:
        l2 = 0.0
    else:
        l2 = 1.0 / float(np.ravel(chosen)[0])
    if model.solver == "liblinear":
        of_intercept = l2 / model.intercept_scaling**2
    else:
        of_intercept = 0.0
    learner, penalty = _linear(model, rows, l2, of_intercept)
    factors = _class_weights(model, targets, weights)
    several = targets.shape[1] > 1
    training = Training(
        loss=row_losses.softmax_loss if several else row_losses.log_loss,
        targets=targets,
        weights=weights * factors,
        weight_factors=factors,
        penalty=penalty,
        flat=_flat(penalty, targets.shape[1]) if several else None,
    )
    return LearnerFit(
        learner, training, row_losses.softmax_link if several else row_losses.sigmoid_link
    )


def _class_weights(model: Any, targets: FloatArray, weights: FloatArray) -> FloatArray:
    """(N,): the weight of each row's class; "balanced" ones are held at what they were."""
    if model.class_weight is None:
        return np.ones(len(targets))
    if targets.shape[1] == 1:
        hot = np.hstack([1 - targets, targets])
    else:
        hot = targets
    if isinstance(model.class_weight, str):
        by_class = weights.sum() / (hot.shape[1] * (weights @ hot))
    else:
        by_class = np.array([float(model.class_weight.get(name, 1.0)) for name in model.classes_])
    return np.asarray(hot @ by_class)


def _flat(penalty: FloatArray, n_classes: int) -> FloatArray:
    """(P, r): moving all classes' free parameters alike moves no probability; solvers never do."""
    free = np.flatnonzero(penalty.reshape(n_classes, -1)[0] == 0)
    flat = np.zeros((n_classes, len(penalty) // n_classes, len(free)))
    flat[:, free, np.arange(len(free))] = 1 / np.sqrt(n_classes)
    return flat.reshape(len(penalty), -1)


def _linear(
    model: Any, rows: Any, l2: float | FloatArray, of_intercept: float = 0.0
) -> tuple[Linear, FloatArray]:
    """The learner of a linear model and its penalties; l2 may differ by output."""
    coefficients = np.atleast_2d(np.asarray(model.coef_, dtype=float))
    by_output = np.broadcast_to(np.reshape(l2, (-1, 1)), coefficients.shape)
    if not model.fit_intercept:
        return Linear(coefficients, as_they_are, rows), by_output.ravel()
    intercepts = np.broadcast_to(np.reshape(model.intercept_, (-1, 1)), (len(coefficients), 1))
    penalty = np.hstack([by_output, np.full((len(coefficients), 1), of_intercept)])
    return Linear(np.hstack([coefficients, intercepts]), with_ones, rows), penalty.ravel()


def _generalised(
    power: Callable[[Any], float], log_link: Callable[[Any], bool]
) -> Callable[..., LearnerFit]:
    """sum_i w_i l_i / sum_i w_i + alpha |coefficients|^2 / 2, so that the penalty grows with the weights."""

    def reading(model: Any, rows: Any, targets: FloatArray, weights: FloatArray) -> LearnerFit:
        learner, penalty = _linear(model, rows, float(model.alpha))
        log = log_link(model)
        training = Training(
            loss=row_losses.deviance(power(model), log),
            targets=targets,
            weights=weights,
            penalty=penalty * weights.sum(),
            penalty_growth=penalty,
        )
        return LearnerFit(
            learner, training, row_losses.exp_link if log else row_losses.identity_link
        )

    return reading


_NETWORK_LOSSES: dict[str, tuple[row_losses.Loss, row_losses.Link]] = {
    "identity": (row_losses.squared, row_losses.identity_link),
    "exp": (row_losses.deviance(1.0, True), row_losses.exp_link),
    "logistic": (row_losses.log_loss, row_losses.sigmoid_link),
    "softmax": (row_losses.softmax_loss, row_losses.softmax_link),
}


def _network(model: Any, rows: Any, targets: FloatArray, weights: FloatArray) -> LearnerFit:
    """sum_i w_i l_i + alpha |weights|^2 / 2; biases are free."""
    layers = [np.asarray(part, dtype=float) for part in model.coefs_]
    biases = [np.asarray(part, dtype=float) for part in model.intercepts_]
    learner = Network(layers, biases, model.activation, rows)
    penalty = np.full(len(learner.parameters), float(model.alpha))
    penalty[-sum(part.size for part in biases) :] = 0.0
    loss, link = _NETWORK_LOSSES[model.out_activation_]
    flat = None
    if model.out_activation_ == "softmax":
        flat = np.zeros((len(penalty), 1))
        flat[-targets.shape[1] :] = 1 / np.sqrt(targets.shape[1])
    return LearnerFit(
        learner, Training(loss, targets, weights, penalty, flat=flat, convex=False), link
    )


READERS: dict[str, Callable[[Any, Any, FloatArray, FloatArray], LearnerFit]] = {
    "LogisticRegression": _logistic,
    "LogisticRegressionCV": _logistic,
    "PoissonRegressor": _generalised(lambda model: 1.0, lambda model: True),
    "GammaRegressor": _generalised(lambda model: 2.0, lambda model: True),
    "TweedieRegressor": _generalised(
        lambda model: float(model.power),
        lambda model: bool(model.link == "log" or (model.link == "auto" and model.power > 0)),
    ),
    "MLPRegressor": _network,
    "MLPClassifier": _network,
}
