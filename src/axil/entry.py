"""explain and load: the right explainer for a model, or for a file, whichever that is."""

from __future__ import annotations

from typing import Any

from axil import explainer
from axil.errors import InputError, UnsupportedModelError
from axil.explainer import Explainer, limits_of
from axil.jacobian import JacobianExplainer
from axil.jacobian import explainer as additive
from axil.output import archive

_OFFSETS = "It is what predictions of the training rows start from: pass it as init_score, for every library."
ELSEWHERE = {
    "base_margin": _OFFSETS,
    "baseline": _OFFSETS,
    "inverse_func": "It undoes a transform of the targets, for exact weights alone: axil.Explainer(model, X_train, y_train, "
    "inverse_func=np.exp).",
    "bags": "It says how often each tree drew each row, for exact weights alone: axil.Explainer(model, X_train, y_train, "
    "bags=bags).",
    "scratch": "It is a directory for leaf numbers, for exact weights alone: axil.Explainer(model, X_train, y_train, "
    "scratch=path).",
    "output": "It says what derivatives are of, for other losses alone: axil.JacobianExplainer(model, X_train, y_train, "
    'output="probability").',
}  # parameters of the two explainers, and of libraries, that explain has not


def explain(
    model: Any,
    X_train: Any,
    y_train: Any,
    sample_weight: Any = None,
    init_score: Any = None,
    *,
    objective: Any = None,
    loss: Any = None,
    index: Any = None,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    verify: bool = True,
    device: str = "cpu",
    **others: Any,
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
        The offsets of the fit, such as logarithms of exposures: XGBoost's base_margin, CatBoost's baseline.
    objective : function, optional
        Your own objective, where the model was fitted with one; see `JacobianExplainer`.
    loss : optional
        The loss of a model that does not say what it was fitted to; see `JacobianExplainer`.
    index : sequence of length n_train, or str, optional
        The labels of the training rows, or the name of a column of X_train that has them; by default the index of a pandas frame,
        else positions from 0.
    n_threads : int, optional
        How many threads to use; by default one for each processor that the process may use.
    memory_limit : int or str, optional
        The bytes that one request may take, or text such as "2GiB"; by default most of what is free.
    verify : bool, default True
        Prove that model and data belong together. Without it no answer is compared with the model.
    device : "cpu", "cuda" or "auto", default "cpu"
        Where weights, pushes and derivatives of boosted trees are computed; see `Explainer` and `JacobianExplainer`.
    **others
        None: names that belong elsewhere, such as XGBoost's base_margin, are refused with what to pass instead.

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
    for name in others:
        if name in ELSEWHERE:
            raise InputError(f"axil.explain takes no {name}. {ELSEWHERE[name]}")
        raise TypeError(f"explain() got an unexpected keyword argument {name!r}")
    given = model, X_train, y_train, sample_weight, init_score
    settings: dict[str, Any] = {"n_threads": n_threads, "memory_limit": memory_limit, "verify": verify}
    settings |= {"index": index, "device": device}
    if objective is None and loss is None:
        try:
            return Explainer(*given, **settings)
        except UnsupportedModelError as error:
            if not error.derivative:
                raise
    return JacobianExplainer(*given, objective=objective, loss=loss, **settings)


def load(
    path: Any,
    model: Any,
    n_threads: int | None = None,
    memory_limit: int | str | None = None,
    X_train: Any = None,
    inverse_func: Any = None,
    *,
    objective: Any = None,
    device: str = "cpu",
) -> Explainer | JacobianExplainer:
    """An explainer that ``save`` wrote, for the same fitted model; ``X_train`` only for ``similar``.

    The file may come from anywhere: its parts must fit each other and the model, what it states of its proof must follow from
    its arrays, and every answer is compared with the model's predictions, whatever the file says. A digest shows every entry that
    was changed since. It is no signature: that labels and targets are those of the fit only the training data could prove. A
    `JacobianExplainer` of boosted trees is proven again: the fit is replayed from the file's arrays, and every leaf value must be
    the model's.

    Parameters
    ----------
    path : str or path
        A file that `Explainer.save` or `JacobianExplainer.save` wrote.
    model : fitted model
        The model that the file was made with.
    n_threads : int, optional
        How many threads to use; by default one for each processor that the process may use.
    memory_limit : int or str, optional
        The bytes that one request may take, or text such as "2GiB"; by default most of what is free.
    X_train : table, optional
        The training rows, for ``similar``.
    inverse_func : callable, optional
        The function that the explainer was made with, where a file cannot keep it: all but NumPy's own such as ``np.exp``.
    objective : function, optional
        Your own objective, where the explainer was made with one; see `JacobianExplainer`.
    device : "cpu", "cuda" or "auto", default "cpu"
        Where weights, pushes and derivatives of boosted trees are computed; see `Explainer` and `JacobianExplainer`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import axil
    >>> from lightgbm import LGBMRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y)
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "explainer.npz"
    >>> axil.Explainer(model, X, y).save(path)
    >>> axil.load(path, model).kind
    'exact'
    """
    limits = limits_of(n_threads, memory_limit, device=device)
    file = archive.read(path, limits.budget)
    given = {"inverse_func": inverse_func, "objective": objective}
    unused = {"exact": "objective", "additive": "inverse_func"}.get(str(file.kind))
    if unused is None:
        raise file.damaged(ValueError(f"kind {file.kind!r}"))
    if given[unused] is not None:
        raise InputError(f"{unused} is given, but {file.path} is of an explainer that takes none. Leave it out.")
    if file.kind == "exact":
        return explainer.loaded(file, model, limits, X_train, inverse_func)
    return additive.loaded(file, model, limits, X_train, objective)
