"""JacobianExplainer: the derivative of predictions by training targets, where no exact weights can exist."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.errors import InputError, UnsupportedQuestionError
from axil.explainer import limits_of
from axil.explanation import Explanation
from axil.inputs.owned import frozen, owned, owned_rows
from axil.jacobian.base import OUTPUTS, Differentiated
from axil.jacobian.boosting import Boosting
from axil.machine.progress import track
from axil.output import tables
from axil.output.context import Context
from axil.output.sums import WeightedSums
from axil.questions.explain import STREAM
from axil.questions.streamed import Stream, Streamed
from axil.supports import supports
from axil.types import Array

#: Modules with a ``read`` as `axil.jacobian.base.Reader` has it, tried in order.
READERS = ("axil.jacobian.boosting", "axil.jacobian.sklearn_smooth", "axil.jacobian.torch")


class Report(dict[str, Any]):
    """Findings of the reading: errors of the replay, or how far the model is from a stationary point."""

    def __repr__(self) -> str:
        lines = (
            f"  {name:<14} {value:.1e}" if isinstance(value, float) else f"  {name:<14} {value}"
            for name, value in self.items()
        )
        return "\n".join(["axil.JacobianExplainer report", *(lines if self else ["  not verified"])])


class JacobianExplainer(Streamed):
    """How predictions move with each training target, to first order, with the fitted structure held fixed.

    ``J[i, j] = d prediction_i / d y_j``. It is a derivative, not a decomposition: J times the targets is not the prediction,
    and a change of targets that is not small moves predictions along a curve. Explanations have ``exact=False``, J for
    weights and ``intercepts = predictions - J @ targets``, so that weights times targets plus intercepts is the prediction all
    the same. For models that are linear in their targets J is the exact weights.

    ``output``: "raw" scores, or "probability", what the link makes of them: probabilities of classes, the expected value of a
    Poisson, gamma or Tweedie target. Of two classes there is one output, the second class, and targets are 0 and 1; more
    classes have an output each, which is differentiated by its own column of the one-hot targets.
    ``loss``: of a model that does not say what it was fitted to.

    Parameters
    ----------
    model : fitted model
        A model of any library that axil reads, or a pipeline that ends in one.
    X_train : table
        The rows that the model was fitted on, in the order of the fit.
    y_train : array of shape (n_train,) or (n_train, K)
        Their targets, or classes.
    sample_weight : array of shape (n_train,), optional
        The weights of the fit.
    init_score : array of shape (n_train,) or (n_train, K), optional
        The offsets of the fit.
    output : "raw" or "probability"
        What is differentiated: scores, or what the link makes of them.
    loss : optional
        The loss of a model that does not say what it was fitted to.
    objective : function, optional
        Your own objective, for a LightGBM or XGBoost model that was fitted with it, with its library's signature:
        ``(scores, data set)`` for a Booster, ``(labels, scores)`` for an estimator, whose own function is known already.
    n_threads : int, optional
        How many threads to use; by default one for each processor that the process may use.
    memory_limit : int or str, optional
        The bytes that one request may take, or text such as "2GiB"; by default most of what is free.
    verify : bool, default True
        Prove that model and data belong together. Without it no answer is compared with the model.

    Examples
    --------
    >>> from lightgbm import LGBMClassifier
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> model = LGBMClassifier(n_estimators=20, verbose=-1).fit(X, y)
    >>> JacobianExplainer(model, X, y, output="probability")(X.head(3))
    <axil.Explanation: 3 predictions by 569 training rows, derivative, structure held fixed>
    """

    exact = False
    report: Report  #: what the replay, or the check of the optimum, found; empty with ``verify=False``

    def __init__(
        self,
        model: Any,
        X_train: Any,
        y_train: Any,
        sample_weight: Any = None,
        init_score: Any = None,
        *,
        output: str = "raw",
        loss: Any = None,
        objective: Any = None,
        n_threads: int | None = None,
        memory_limit: int | str | None = None,
        verify: bool = True,
    ):
        limits = limits_of(n_threads, memory_limit)
        threads, budget = limits.n_threads, limits.budget
        output, verify = inputs.as_choice(output, OUTPUTS, "output"), inputs.as_flag(verify, "verify")
        X_train = owned_rows(_as_rows(X_train))
        y_train, sample_weight, init_score = map(_copied, (y_train, sample_weight, init_score))
        given = model, X_train, y_train, sample_weight, init_score, output, loss
        settings = {"n_threads": threads, "budget": budget, "verify": verify}
        self._model = _read(given, settings if objective is None else settings | {"objective": objective})
        self._targets = frozen(self._model.targets)
        self.targets = self._targets[:, 0] if self._model.outputs is None else self._targets
        self.outputs = None if self._model.outputs is None else owned(self._model.outputs)
        labels = inputs.row_labels(X_train) if hasattr(X_train, "shape") else np.arange(len(self._targets))
        self.index = frozen(labels)
        self.report = Report(self._model.report)
        self._backend = inputs.backend_of(X_train)
        self._features = X_train if hasattr(X_train, "shape") else None  # for tables of features
        self._n_threads, self._budget = threads, budget

    def __repr__(self) -> str:
        proof = "verified" if self.report else "not verified"
        return (
            f"<axil.JacobianExplainer: {self._model.library}, {len(self.targets)} training rows, derivative, {proof}>"
        )

    def __call__(self, X: Any) -> Explanation:
        """Calls `explain`.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        """
        return self.explain(X)

    def explain(self, X: Any) -> Explanation:
        """The derivative of the prediction of every row of X by every training target; 8 * n * n_train bytes and more.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        """
        X = self._rows(X)
        self._require(X.shape[0], STREAM)
        return Explanation(self._sums(X, inputs.row_labels(X)))

    def iter(self, X: Any, batch_size: int | None = None) -> Iterator[Explanation]:
        """Explanations of X batch by batch, so that never more than one batch of derivatives is held.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        batch_size : int, optional
            How many rows to explain at a time; by default as many as memory allows, up to 1024.
        """
        X = self._rows(X)
        given = None if batch_size is None else inputs.as_count(batch_size, "batch_size")
        size = given or self._budget.batch_size(self._model.bytes_per_query())
        self._require(size, "Take a smaller batch_size or raise memory_limit.")
        return map(Explanation, self._batches(X, size))

    def _batches(self, X: Any, size: int, even_empty: bool = False) -> Iterator[WeightedSums]:
        n, labels = X.shape[0], inputs.row_labels(X)
        for start in track(range(0, max(n, 1) if even_empty else n, size), "explain"):
            part = slice(start, start + size)
            yield self._sums(inputs.take_rows(X, part), labels[part])

    def _stream(self, X: Any, init_score: Any) -> Stream:
        if init_score is not None:
            raise InputError(
                "init_score is not taken here: derivatives are of the model's own predictions. Leave it out."
            )
        rows = self._rows(X)
        self._require(1, "Raise memory_limit.")
        return Stream(
            rows=rows,
            batches=lambda size: self._batches(rows, size, even_empty=True),
            n_targets=(len(self._targets), self._targets.shape[1]),
            index=lambda: self.index,
            outputs=self.outputs,
            backend=self._backend,
            budget=self._budget,
            bytes_per_query=self._model.bytes_per_query(),
            features=self._features,
            feature_names=self._model.feature_names,
            note=tables.DERIVATIVE,
        )

    _no_features = "the training rows of this explainer are no table", "Use explainer.top(X)."

    @property
    def kind(self) -> str:
        """ "additive" where pushes add up to the score, "jacobian" where only derivatives exist; as `axil.supports` has it."""
        return "additive" if isinstance(self._model, Boosting) else "jacobian"

    @property
    def base(self) -> Array:
        """(K,): the score that every row starts from; with the pushes it adds up to a row's score."""
        return self._boosting("base").pushes.base.copy()

    def pushes(self, X: Any) -> Array:
        """(n, n_train) or (K, n, n_train): what each training row's own gradients put into the score of each row of X.

        ``base + pushes.sum(axis=-1)`` is the model's raw score, exactly, for every loss; it is checked on every use. A push is no
        sensitivity: other rows have their part in a row's gradients. 8 * K * n * n_train bytes.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        """
        model, X = self._boosting("pushes"), self._rows(X)
        size = 8 * X.shape[0] * self._targets.size
        self._budget.require(size, f"The pushes of {len(self.targets)} rows on {X.shape[0]} predictions", STREAM)
        found = model.pushes.dense(model.located(X)[0])
        return found[0] if self.outputs is None else found

    def _boosting(self, question: str) -> Boosting:
        """The model, where it is boosted: what `question` needs."""
        if not isinstance(self._model, Boosting):
            raise UnsupportedQuestionError(
                question,
                "this model is not a sum of steps along gradients",
                "Ask for weights, its derivatives by the targets.",
            )
        return self._model

    def weight_derivatives(self, X: Any) -> Array:
        """(n, n_train) or (K, n, n_train): how predictions move with each row's sample weight.

        ``-weight * derivative`` is the first-order effect of leaving the row out, the structure held fixed.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        """
        X = self._rows(X)
        self._require(X.shape[0], "Ask for fewer rows at a time, or raise memory_limit.")
        found = self._model.weight_derivatives(X)
        return found[0] if self.outputs is None else found

    def _sums(self, X: Any, labels: NDArray[Any]) -> WeightedSums:
        predictions = self._model.predictions(X)
        derivatives = self._model.target_derivatives(X)
        products = [own @ y for own, y in zip(derivatives, self._targets.T)]
        intercepts = predictions - np.stack(products, axis=1)
        single = self.outputs is None
        return WeightedSums(
            weights=derivatives[0] if single else derivatives,
            intercepts=intercepts[:, 0] if single else intercepts,
            targets=self.targets,
            index=self.index,
            query_index=labels,
            exact=False,
            outputs=self.outputs,
            backend=self._backend,
            n_threads=self._n_threads,
            context=Context(owned_rows(X), self._features, self._model.feature_names, predictions),
        )

    def _rows(self, X: Any) -> Any:
        return inputs.as_features(_as_rows(X), self._model, "X", self._features)

    def _require(self, n: int, instead: str) -> None:
        what = f"The derivatives of {n} predictions by {len(self.targets)} training rows"
        self._budget.require(n * self._model.bytes_per_query(), what, instead)


def _as_rows(X: Any) -> Any:
    """X itself, or as an array where it is one of another library, such as a tensor."""
    if isinstance(X, (list, tuple, np.ndarray)) or inputs.is_sparse(X) or inputs.as_frame(X) is not None:
        return X
    return np.asarray(X) if hasattr(X, "__array__") and getattr(X, "ndim", 0) > 0 else X


def _copied(values: Any) -> Any:
    """A copy of targets, weights or offsets of any kind; what cannot be copied is no array, and is refused when it is read."""
    if hasattr(values, "detach"):
        return values.detach().clone()
    return copy.deepcopy(values) if hasattr(values, "__len__") else values


def _read(given: tuple[Any, ...], settings: dict[str, Any]) -> Differentiated:
    """The first reader's answer that is one."""
    for name in READERS[:1] if "objective" in settings else READERS:  # the others have none
        if find_spec(name) is None:
            continue
        found: Differentiated | None = import_module(name).read(*given, **settings)
        if found is not None:
            return found
    known = supports(given[0])
    exact = " It has exact weights: use axil.Explainer." if known.exact else f" {known.reason}"
    raise InputError(
        f"The model is a {type(given[0]).__module__}.{type(given[0]).__qualname__}, which axil.JacobianExplainer does not "
        f"differentiate.{exact}"
    )
