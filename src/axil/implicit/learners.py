"""scikit-learn's smooth learners: logistic regression, generalised linear models, networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array, hstack, issparse

from axil import inputs
from axil.adapters.pipeline import PipelineAdapter, last_step, state_threshold
from axil.adapters.searches import unwrapped
from axil.adapters.sklearn.adapter import require_fitted
from axil.adapters.sklearn.base import SklearnAdapter, numbers
from axil.adapters.sklearn.refusals import LBFGS, refuse_learners
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import AnyArray, FloatArray
from axil.errors import InputError, shown
from axil.implicit import row_losses
from axil.implicit.network import Network
from axil.implicit.optimum import Implicit, Learner, Predictor, Training, check_predictions
from axil.implicit.readers import FitInputs


def as_they_are(rows: FeatureTable) -> FeatureTable:
    """Return the rows themselves."""
    return rows


def with_ones(rows: FeatureTable) -> FeatureTable:
    """Return the rows, dense or sparse, with a last column of ones."""
    ones = np.ones((rows.shape[0], 1))
    if issparse(rows):
        return csr_array(hstack([rows, ones]))
    return np.hstack([rows, ones])


class Linear:
    """K scores that are linear in q features; the parameters (K, q) are in a row.

    Products cost N * K * q operations, and for sparse features as many as they have numbers.
    """

    def __init__(
        self,
        coefficients: FloatArray,
        features: Callable[[ForeignObject], ForeignObject],
        X: FeatureTable,
    ):
        self._coefficients = coefficients
        self._features = features
        self._training = features(X)
        self.parameters = coefficients.ravel()
        self.bytes_a_direction = 8 * (
            3 * self._training.shape[0] * len(coefficients) + 2 * coefficients.size
        )

    def scores(self, X: FeatureTable) -> FloatArray:
        """Return the scores of rows, (n, K)."""
        return np.asarray(self._features(X) @ self._coefficients.T)

    def jacobian(self, X: FeatureTable) -> FloatArray:
        """Return the features, in the block of their score, (n, K, P)."""
        phi = self._features(X)
        if issparse(phi):
            phi = phi.toarray()
        n_outputs = len(self._coefficients)
        return np.asarray(
            np.einsum("kj,nq->nkjq", np.eye(n_outputs), phi).reshape(len(phi), n_outputs, -1)
        )

    def push(self, directions: FloatArray) -> FloatArray:
        """Return the derivatives of training scores along directions, (N, K, m)."""
        blocks = directions.reshape(*self._coefficients.shape, -1)
        return np.stack([np.asarray(self._training @ block) for block in blocks], axis=1)

    def pull(self, pulls: FloatArray) -> FloatArray:
        """Return the gradient of weighted scores, (P,), or (P, m) for pulls (N, K, m)."""
        blocks = [np.asarray(self._training.T @ pulls[:, k]) for k in range(pulls.shape[1])]
        return np.concatenate(blocks)

    def product(
        self, directions: FloatArray, gradient: FloatArray, curvature: FloatArray
    ) -> FloatArray:
        """Return Phi' D Phi directions, (P, m).

        The gradient by the scores does not matter, because these are linear.
        """
        return self.pull(np.einsum("ijk,ikm->ijm", curvature, self.push(directions)))


_TOLERANCE = "Fit with a smaller tol and a larger max_iter, on columns of like scale."


class LearnerFit(NamedTuple):
    """The fit of one kind of model."""

    learner: Learner
    training: Training
    link: row_losses.Link  #: from scores to probabilities or means


def read(fit_inputs: FitInputs) -> Implicit | None:
    """Return a smooth learner of scikit-learn on its training data; None for other models.

    Raises for a model that axil refuses. With the output "raw" it gives scores (log-odds,
    log-means), with "probability" what these stand for (probabilities, means).
    """
    model = unwrapped(fit_inputs.model)
    output = fit_inputs.output
    limits = fit_inputs.limits
    last = last_step(model)
    if last is None:
        last = model
    kind = _kind(last)
    if kind is None:
        return None
    require_fitted(last)
    if fit_inputs.loss is not None:
        raise InputError(
            f"loss is {shown(fit_inputs.loss)}; a {kind} says itself what it was fitted to: leave "
            "it out."
        )
    refuse_learners(model)
    sklearn_columns = SklearnAdapter(last)  # type: ignore[abstract]  # its columns alone are meant
    columns: SklearnAdapter | PipelineAdapter = sklearn_columns
    plain = sklearn_columns.model
    prepare = partial(_prepare, not kind.startswith("MLP"))
    if last is not model:
        sklearn_columns.fingerprint = ""  # of what is saved, and derivatives are not
        columns = pipeline = PipelineAdapter(model, sklearn_columns)
        prepare = partial(pipeline.through, prepare)
    X = inputs.as_features(fit_inputs.X, columns, "X_train")
    n_rows = X.shape[0]
    if n_rows == 0:
        raise InputError("X_train has no rows; expected the rows that the model was fitted on.")
    if fit_inputs.init_score is not None:
        raise InputError("scikit-learn's models take no offsets (init_score): leave them out.")
    weights = inputs.as_weights(fit_inputs.sample_weight, n_rows)
    if weights is None:
        weights = np.ones(n_rows)
    classes = getattr(plain, "classes_", None)
    targets = inputs.as_targets(fit_inputs.y, n_rows, _n_outputs(plain), classes)
    if classes is not None and len(classes) == 2:
        targets = targets[:, 1:]
    rows = prepare(X)
    reading = READERS[kind](plain, rows, targets, weights)
    predictor = Predictor(
        library="scikit-learn",
        columns=columns,
        prepare=prepare,
        predict=partial(_predict, plain, reading, output),
        link=_explained_link(reading, output),
        outputs=_output_names(targets.shape[1], classes),
        remedy=_remedy(kind),
        unfinished=_unfinished(plain),
        class_names=classes,
        meaning_of_scores=_meaning_of_scores(reading, output),
    )
    adapter = Implicit(  # type: ignore[abstract]  # it has no coordinates
        predictor,
        reading.learner,
        reading.training,
        rows,
        limits.n_threads,
        limits.budget,
        fit_inputs.verify,
    )
    state_threshold(adapter, fit_inputs.model)
    return adapter


def _explained_link(reading: LearnerFit, output: str) -> row_losses.Link:
    """Return the link from scores to the explained numbers."""
    if output == "probability":
        return reading.link
    return row_losses.identity_link


def _meaning_of_scores(reading: LearnerFit, output: str) -> row_losses.Link | None:
    """Return the link from explained scores to predictions; None if they are the same."""
    if output == "probability" or reading.link is row_losses.identity_link:
        return None
    return reading.link


def _output_names(n_outputs: int, classes: AnyArray | None) -> AnyArray | None:
    """Return the names of several outputs, (K,); None for a single one."""
    if n_outputs == 1:
        return None
    if classes is None:
        return np.arange(n_outputs)
    return classes


def _remedy(kind: str) -> str:
    """Return advice for a fit that did not converge."""
    if kind.startswith("MLP"):
        return LBFGS
    return _TOLERANCE


def _kind(model: ForeignModel) -> str | None:
    """Return the name of the class of scikit-learn that has a reader; None if there is none."""
    names = [
        kind.__name__ for kind in type(model).__mro__ if kind.__module__.startswith("sklearn.")
    ]
    return next((name for name in names if name in READERS), None)


def _unfinished(model: ForeignModel) -> str:
    """Return a sentence if the solver of this model used up its iterations; else ""."""
    n_iter = getattr(model, "n_iter_", None)
    max_iter = getattr(model, "max_iter", None)
    if n_iter is None or max_iter is None or np.max(n_iter) < max_iter:
        return ""
    return f"The solver did not converge: it stopped after max_iter={max_iter} iterations."


def _n_outputs(model: ForeignModel) -> int:
    """Return the number of columns that the targets of the fit had."""
    if hasattr(model, "n_outputs_"):
        return int(model.n_outputs_)
    if np.ndim(model.coef_) == 1:
        return 1
    return len(model.coef_)


def _prepare(may_be_sparse: bool, X: FeatureTable) -> FeatureTable:
    """Return the user's rows as numbers; those of linear models may stay sparse."""
    rows = numbers(X, np.float64)
    if issparse(rows) and not may_be_sparse:
        rows = rows.toarray()
    values = rows
    if issparse(rows):
        values = rows.data
    if not np.isfinite(values).all():
        raise InputError(
            "The rows hold values that are missing or not finite, which this model does not take."
        )
    return rows


def _predict(
    model: ForeignModel, reading: LearnerFit, output: str, rows: FeatureTable
) -> FloatArray:
    """Return the model's own predictions, (n, K).

    If the model does not return scores, they are those of the learner, once their means are the
    model's predictions.
    """
    shape = rows.shape[0], reading.training.targets.shape[1]
    if output == "raw" and hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(rows), dtype=float).reshape(shape)
    if not hasattr(model, "classes_"):
        predictions = np.asarray(model.predict(rows), dtype=float).reshape(shape)
    else:
        predictions = np.asarray(model.predict_proba(rows), dtype=float)
        if shape[1] == 1:
            predictions = predictions[:, 1:]
    if output == "probability" or reading.link == row_losses.identity_link:
        return predictions
    scores = reading.learner.scores(rows)
    check_predictions(reading.link(scores)[0], predictions)
    return scores


def _logistic(
    model: ForeignModel, rows: FeatureTable, targets: FloatArray, weights: FloatArray
) -> LearnerFit:
    """Read a logistic regression: C * sum_i w_i l_i + |coefficients|^2 / 2.

    The intercept has no penalty, except in liblinear.
    """
    # all classes have the same
    if hasattr(model, "C_"):
        inverse_penalty = model.C_
    else:
        inverse_penalty = model.C
    if getattr(model, "penalty", "l2") is None:
        l2 = 0.0
    else:
        l2 = 1.0 / float(np.ravel(inverse_penalty)[0])
    if model.solver == "liblinear":
        of_intercept = l2 / model.intercept_scaling**2
    else:
        of_intercept = 0.0
    learner, penalty = _linear(model, rows, l2, of_intercept)
    factors = _class_weights(model, targets, weights)
    has_several_classes = targets.shape[1] > 1
    loss: row_losses.Loss = row_losses.log_loss
    link: row_losses.Link = row_losses.sigmoid_link
    flat = None
    if has_several_classes:
        loss = row_losses.softmax_loss
        link = row_losses.softmax_link
        flat = _flat(penalty, targets.shape[1])
    training = Training(
        loss=loss,
        targets=targets,
        weights=weights * factors,
        weight_factors=factors,
        penalty=penalty,
        flat=flat,
    )
    return LearnerFit(learner, training, link)


def _class_weights(model: ForeignModel, targets: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the weight of each row's class, (N,); "balanced" weights stay fixed."""
    if model.class_weight is None:
        return np.ones(len(targets))
    if targets.shape[1] == 1:
        one_hot = np.hstack([1 - targets, targets])
    else:
        one_hot = targets
    if isinstance(model.class_weight, str):
        by_class = weights.sum() / (one_hot.shape[1] * (weights @ one_hot))
    else:
        by_class = np.array([float(model.class_weight.get(name, 1.0)) for name in model.classes_])
    return np.asarray(one_hot @ by_class)


def _flat(penalty: FloatArray, n_classes: int) -> FloatArray:
    """Return the directions that move no probability, (P, r).

    They move the free parameters of all classes alike, which solvers never do.
    """
    free = np.flatnonzero(penalty.reshape(n_classes, -1)[0] == 0)
    flat = np.zeros((n_classes, len(penalty) // n_classes, len(free)))
    flat[:, free, np.arange(len(free))] = 1 / np.sqrt(n_classes)
    return flat.reshape(len(penalty), -1)


def _linear(
    model: ForeignModel, rows: FeatureTable, l2: float | FloatArray, of_intercept: float = 0.0
) -> tuple[Linear, FloatArray]:
    """Return the learner of a linear model and its penalties; l2 may differ by output."""
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
    """Return a reader of sum_i w_i l_i / sum_i w_i + alpha |coefficients|^2 / 2.

    Multiplied by the weights' sum, the penalty grows with the weights.
    """

    def reading(
        model: ForeignModel, rows: FeatureTable, targets: FloatArray, weights: FloatArray
    ) -> LearnerFit:
        learner, penalty = _linear(model, rows, float(model.alpha))
        has_log_link = log_link(model)
        link = row_losses.identity_link
        if has_log_link:
            link = row_losses.exp_link
        training = Training(
            loss=row_losses.deviance(power(model), has_log_link),
            targets=targets,
            weights=weights,
            penalty=penalty * weights.sum(),
            penalty_growth=penalty,
        )
        return LearnerFit(learner, training, link)

    return reading


_NETWORK_LOSSES: dict[str, tuple[row_losses.Loss, row_losses.Link]] = {
    "identity": (row_losses.squared, row_losses.identity_link),
    "exp": (row_losses.deviance(1.0, True), row_losses.exp_link),
    "logistic": (row_losses.log_loss, row_losses.sigmoid_link),
    "softmax": (row_losses.softmax_loss, row_losses.softmax_link),
}


def _network(
    model: ForeignModel, rows: FeatureTable, targets: FloatArray, weights: FloatArray
) -> LearnerFit:
    """Read a network: sum_i w_i l_i + alpha |weights|^2 / 2, without a penalty on biases."""
    layers = [np.asarray(layer, dtype=float) for layer in model.coefs_]
    biases = [np.asarray(layer, dtype=float) for layer in model.intercepts_]
    learner = Network(layers, biases, model.activation, rows)
    penalty = np.full(len(learner.parameters), float(model.alpha))
    penalty[-sum(layer.size for layer in biases) :] = 0.0
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
