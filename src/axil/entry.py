"""explain: the right explainer for a model, whichever that is."""

from __future__ import annotations

from typing import Any

from axil.errors import UnsupportedModelError
from axil.explainer import Explainer
from axil.jacobian import JacobianExplainer


def explain(
    model: Any,
    X_train: Any,
    y_train: Any,
    sample_weight: Any = None,
    init_score: Any = None,
    *,
    objective: Any = None,
    loss: Any = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    verify: bool = True,
) -> Explainer | JacobianExplainer:
    """The explainer of a fitted model, proven on its training data; ``kind`` and ``repr`` say which it is.

    "exact": predictions are weighted sums of the targets (`Explainer`). "additive": scores are sums of what each row's gradients
    pushed (`JacobianExplainer` of boosted classifiers and other losses). "jacobian": only derivatives by the targets exist.

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
    objective : function, optional
        Your own objective, where the model was fitted with one; see `JacobianExplainer`.
    loss : optional
        The loss of a model that does not say what it was fitted to; see `JacobianExplainer`.
    n_threads : int, optional
        How many threads to use; by default one for each processor that the process may use.
    memory_limit : int or str, optional
        The bytes that one request may take, or text such as "2GiB"; by default most of what is free.
    verify : bool, default True
        Prove that model and data belong together. Without it no answer is compared with the model.

    Examples
    --------
    >>> import axil
    >>> from lightgbm import LGBMClassifier
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> model = LGBMClassifier(n_estimators=20, verbose=-1).fit(X, y)
    >>> axil.explain(model, X, y).kind
    'additive'
    """
    given = model, X_train, y_train, sample_weight, init_score
    limits: dict[str, Any] = {"n_threads": n_threads, "memory_limit": memory_limit, "verify": verify}
    if objective is None and loss is None:
        try:
            return Explainer(*given, **limits)
        except UnsupportedModelError as error:
            if not error.derivative:
                raise
    return JacobianExplainer(*given, objective=objective, loss=loss, **limits)
