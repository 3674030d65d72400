"""Stability: how far predictions move when a model is fitted again in earnest, splits and all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.adapters.estimators import clone, seeds_of
from axil.arrays import FloatArray, IntArray
from axil.errors import ApproximationWarning, InputError, counted, shown, warn
from axil.inputs.copies import frozen
from axil.machine.progress import track
from axil.output import tables

METHODS = {"bootstrap": "to drawn rows", "seed": "with other seeds"}
MOST_SEED = 2**31 - 1


@dataclass(frozen=True, eq=False, repr=False)
class Stability:
    """Predictions of real refits of one estimator; made by `axil.refits`."""

    predictions: FloatArray  #: (refits, n) or (refits, n, K); of classes probabilities
    query_index: NDArray[Any]  #: (n,) the labels of the rows predicted
    outputs: (
        NDArray[Any] | None
    )  #: (K,) names of the classes or numbers of the outputs; None for one output
    method: str  #: "bootstrap" or "seed"
    estimator: str  #: the name of its class
    backend: str  #: the frame library that tables are made with

    def __repr__(self) -> str:
        asked = counted(len(self.query_index), "prediction")
        return f"<axil.Stability: {self.estimator}, {self.described}, {asked}>"

    @property
    def described(self) -> str:
        """The number and kind of the refits, in words."""
        return f"{len(self.predictions)} refits {METHODS[self.method]}"

    @property
    def mean(self) -> FloatArray:
        """(n,) or (n, K): the mean over refits."""
        return np.asarray(self.predictions.mean(axis=0))

    @property
    def std(self) -> FloatArray:
        """(n,) or (n, K): the standard deviation over refits."""
        return np.asarray(self.predictions.std(axis=0, ddof=1))

    def table(self, coverage: float = 0.9) -> Any:
        """The spread of each prediction: a frame with the columns query, output if there are several, mean, std, lower, upper.

        Parameters
        ----------
        coverage : float, default 0.9
            The share of the refits between ``lower`` and ``upper``.
        """
        share = inputs.as_share(coverage, "coverage")
        lower, upper = np.quantile(self.predictions, [(1 - share) / 2, (1 + share) / 2], axis=0)
        columns = tables.label_columns(self.query_index, self.outputs, "mean", np.zeros(1))
        columns |= {
            "mean": self.mean.ravel(),
            "std": self.std.ravel(),
            "lower": lower.ravel(),
            "upper": upper.ravel(),
        }
        return tables.make(columns, self.backend)


def refits(
    estimator: Any,
    X: Any,
    y: Any,
    X_new: Any,
    n: int = 20,
    *,
    method: str = "bootstrap",
    sample_weight: Any = None,
    random_state: int = 0,
) -> Stability:
    """Fit an estimator n times in earnest, and return how far its predictions of X_new scatter.

    All other answers of axil keep the splits. A refit chooses its own, and moves predictions by more than one row does: where
    the scatter of refits is larger than a change that `without` or `what_if` finds, nobody will see that change in a
    retrained model. Cost of n fits; a progress bar shows where somebody looks.

    Parameters
    ----------
    estimator : estimator
        Any with ``fit``, ``predict`` and ``get_params`` as scikit-learn has them. It is copied, not fitted.
    X : table
        The training rows.
    y : array of shape (n_train,) or (n_train, K)
        Their targets, or classes.
    X_new : table
        The rows to predict.
    n : int, default 20
        The number of refits.
    method : "bootstrap" or "seed", default "bootstrap"
        Refits to rows drawn with replacement, with other seeds where the estimator has any; or to the same rows with other
        seeds alone, which moves only models that draw rows or features.
    sample_weight : array of shape (n_train,), optional
        The weights of the fit.
    random_state : int, default 0
        The seed of the draws.

    Returns
    -------
    Stability

    Examples
    --------
    >>> import axil
    >>> from lightgbm import LGBMRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> found = axil.refits(LGBMRegressor(n_estimators=20, verbose=-1), X[:300], y[:300], X[300:303], 5)
    >>> found
    <axil.Stability: LGBMRegressor, 5 refits to drawn rows, 3 predictions>
    >>> list(found.table().columns)
    ['query', 'mean', 'std', 'lower', 'upper']
    """
    n, method = inputs.as_count(n, "n", least=2), inputs.as_choice(method, tuple(METHODS), "method")
    if not all(
        callable(getattr(estimator, name, None)) for name in ("fit", "predict", "get_params")
    ):
        raise InputError(
            f"estimator is {shown(estimator)}; expected an estimator with fit, predict and get_params as scikit-learn has them, "
            "such as LGBMRegressor()."
        )
    X, X_new, y, seeds = _rows(X), _rows(X_new), inputs.on_host(y, "y"), seeds_of(estimator)
    n_train, name = X.shape[0], type(estimator).__name__
    if len(y) != n_train:
        raise InputError(
            f"y has {len(y)} rows; X has {n_train}. Expected a target for each row of X."
        )
    weights = inputs.as_weights(sample_weight, n_train)
    if method == "seed" and not seeds:
        raise InputError(
            f'{name} has no seed, so fits to the same rows are the same; take method="bootstrap".'
        )
    rng = np.random.default_rng(inputs.as_count(random_state, "random_state", least=0))
    classes = (
        np.unique(inputs.as_array(y, "y"))
        if callable(getattr(estimator, "predict_proba", None))
        else None
    )
    found = []
    for _ in track(range(n), "refits"):
        rows = rng.integers(0, n_train, n_train) if method == "bootstrap" else np.arange(n_train)
        own, seed = clone(estimator), int(rng.integers(0, MOST_SEED))
        if seeds:
            own.set_params(**dict.fromkeys(seeds, seed))
        given = {} if weights is None else {"sample_weight": weights[rows]}
        own.fit(inputs.take_rows(X, rows), _taken(y, rows), **given)
        found.append(_predicted(own, X_new, classes))
    predictions = np.stack(found)
    if method == "seed" and not np.ptp(predictions, axis=0).any():
        warn(
            'All refits are the same: the seed changes nothing in this model. Rows drawn again do, with method="bootstrap".',
            ApproximationWarning,
        )
    outputs = (
        classes
        if classes is not None
        else np.arange(predictions.shape[2])
        if predictions.ndim > 2
        else None
    )
    return Stability(
        frozen(predictions),
        inputs.row_labels(X_new),
        outputs,
        method,
        name,
        inputs.backend_of(X_new),
    )


def _rows(X: Any) -> Any:
    """Rows that can be taken by position."""
    return X if hasattr(X, "shape") else np.asarray(X)


def _taken(y: Any, rows: IntArray) -> Any:
    return y.iloc[rows] if hasattr(y, "iloc") else inputs.as_array(y, "y")[rows]


def _predicted(fitted: Any, X: Any, classes: NDArray[Any] | None) -> FloatArray:
    """(n,) or (n, K): predictions; of classes probabilities, 0 for a class that was not drawn."""
    if classes is None:
        return np.asarray(fitted.predict(X), dtype=np.float64)
    made = np.zeros((X.shape[0], len(classes)))
    made[:, np.searchsorted(classes, fitted.classes_)] = fitted.predict_proba(X)
    return made
