"""Retraining: how far predictions move when a model is fitted again, with new splits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from axil import inputs
from axil.adapters.estimators import clone, seeds_of
from axil.aliases import ArrayLike, DataFrame, FeatureTable, ForeignModel, ForeignObject, TableLike
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.errors import ApproximationWarning, InputError, counted, shown, warn
from axil.inputs.copies import frozen
from axil.machine.progress import track
from axil.output import tables

RefitMethod: TypeAlias = Literal["bootstrap", "seed"]
METHODS: dict[RefitMethod, str] = {"bootstrap": "to sampled rows", "seed": "with other seeds"}
MAX_SEED = 2**31 - 1


@dataclass(frozen=True, eq=False, repr=False)
class Stability:
    """The predictions of real refits of one estimator.

    `axil.stability` makes it.
    """

    predictions: FloatArray  #: (refits, n) or (refits, n, K); of classes probabilities
    query_index: AnyArray  #: (n,) the labels of the rows predicted
    outputs: AnyArray | None  #: (K,) classes, or numbers of the outputs; None for one output
    method: RefitMethod
    estimator: str  #: the name of its class
    backend: str  #: the frame library that tables are made with

    def __repr__(self) -> str:
        n_predictions = counted(len(self.query_index), "prediction")
        return f"<axil.Stability: {self.estimator}, {self.described}, {n_predictions}>"

    @property
    def described(self) -> str:
        """Return the number and kind of the refits, in words."""
        return f"{len(self.predictions)} refits {METHODS[self.method]}"

    @property
    def mean(self) -> FloatArray:
        """Return the mean over refits, (n,) or (n, K)."""
        return np.asarray(self.predictions.mean(axis=0))

    @property
    def std(self) -> FloatArray:
        """Return the standard deviation over refits, (n,) or (n, K)."""
        return np.asarray(self.predictions.std(axis=0, ddof=1))

    def table(self, confidence_level: float = 0.9) -> DataFrame:
        """Return the spread of each prediction, with a line per row, and per output if several.

        The columns are query, output, mean, std, lower and upper.

        Parameters
        ----------
        confidence_level : float, default 0.9
            The share of the refits between ``lower`` and ``upper``.
        """
        share = inputs.as_share(confidence_level, "confidence_level")
        lower, upper = np.quantile(self.predictions, [(1 - share) / 2, (1 + share) / 2], axis=0)
        columns = tables.label_columns(self.query_index, self.outputs, "mean", np.zeros(1))
        columns |= {
            "mean": self.mean.ravel(),
            "std": self.std.ravel(),
            "lower": lower.ravel(),
            "upper": upper.ravel(),
        }
        return tables.make(columns, self.backend)


def stability(
    estimator: ForeignModel,
    X: TableLike,
    y: ArrayLike,
    X_new: TableLike,
    *,
    n: int = 20,
    method: RefitMethod = "bootstrap",
    sample_weight: ArrayLike | None = None,
    random_state: int = 0,
) -> Stability:
    """Fit an estimator n times, and return how far its predictions of X_new scatter.

    All other answers of axil keep the tree structure fixed. A refit chooses its own splits, and
    moves predictions by more than one row does. Where the scatter of refits is larger than a change
    that `without` or `what_if` finds, nobody will see that change in a retrained model. The cost is
    that of n fits.

    Parameters
    ----------
    estimator : estimator
        Any with ``fit``, ``predict`` and ``get_params`` as scikit-learn has them. It is copied, not
        fitted.
    X : table
        The training rows.
    y : array of shape (n_train,) or (n_train, K)
        Their targets, or classes.
    X_new : table
        The rows to predict.
    n : int, default 20
        The number of refits.
    method : "bootstrap" or "seed", default "bootstrap"
        "bootstrap" fits to rows sampled with replacement, with other seeds where the estimator has
        any. "seed" fits to the same rows with other seeds, which moves only models that sample
        rows or features.
    sample_weight : array of shape (n_train,), optional
        The weights of the fit.
    random_state : int, default 0
        The seed of the samples.

    Returns
    -------
    Stability

    Examples
    --------
    >>> import axil
    >>> from lightgbm import LGBMRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = LGBMRegressor(n_estimators=20, verbose=-1)
    >>> stability = axil.stability(model, X[:300], y[:300], X[300:303], n=5)
    >>> stability
    <axil.Stability: LGBMRegressor, 5 refits to sampled rows, 3 predictions>
    >>> list(stability.table().columns)
    ['query', 'mean', 'std', 'lower', 'upper']
    """
    n = inputs.as_count(n, "n", least=2)
    method = inputs.as_choice(method, tuple(METHODS), "method")
    _check_estimator(estimator)
    training_rows = _with_shape(X)
    new_rows = _with_shape(X_new)
    targets = inputs.on_host(y, "y")
    n_train = training_rows.shape[0]
    if len(targets) != n_train:
        raise InputError(
            f"y has {len(targets)} rows; X has {n_train}. Expected a target for each row of X."
        )
    weights = inputs.as_weights(sample_weight, n_train)
    seeds = _seeds(estimator, method)
    rng = np.random.default_rng(inputs.as_count(random_state, "random_state", least=0))
    classes = _classes(estimator, targets)
    results = []
    for _ in track(range(n), "stability"):
        rows = np.arange(n_train)
        if method == "bootstrap":
            rows = rng.integers(0, n_train, n_train)
        parameters = dict.fromkeys(seeds, int(rng.integers(0, MAX_SEED)))
        row_weights = {}
        if weights is not None:
            row_weights["sample_weight"] = weights[rows]
        refitted = _with_parameters(estimator, parameters)
        refitted.fit(
            inputs.take_rows(training_rows, rows), _targets_at(targets, rows), **row_weights
        )
        results.append(_predictions(refitted, new_rows, classes))
    predictions = np.stack(results)
    if method == "seed" and not np.ptp(predictions, axis=0).any():
        warn(
            "All refits are the same: the seed changes nothing in this model. Other rows do, "
            'with method="bootstrap".',
            ApproximationWarning,
        )
    outputs = classes
    if classes is None and predictions.ndim > 2:
        outputs = np.arange(predictions.shape[2])
    return Stability(
        frozen(predictions),
        inputs.row_labels(new_rows),
        outputs,
        method,
        type(estimator).__name__,
        inputs.backend_of(new_rows),
    )


def _seeds(estimator: ForeignModel, method: RefitMethod) -> list[str]:
    """Return the names of the parameters that are seeds; the method "seed" needs one."""
    seeds = seeds_of(estimator)
    if method == "seed" and not seeds:
        raise InputError(
            f"{type(estimator).__name__} has no seed, so fits to the same rows are the same; take "
            'method="bootstrap".'
        )
    return seeds


def _classes(estimator: ForeignModel, targets: ForeignObject) -> AnyArray | None:
    """Return the classes that the estimator predicts probabilities of; None if it has none."""
    if not callable(getattr(estimator, "predict_proba", None)):
        return None
    return np.unique(inputs.as_array(targets, "y"))


def _with_parameters(estimator: ForeignModel, parameters: dict[str, int]) -> ForeignModel:
    """Return a copy of an estimator that is not fitted, with other parameters."""
    copied = clone(estimator)
    if parameters:
        copied.set_params(**parameters)
    return copied


def _check_estimator(estimator: ForeignModel) -> None:
    """Refuse an object that cannot be fitted and copied."""
    methods = ("fit", "predict", "get_params")
    if not all(callable(getattr(estimator, method, None)) for method in methods):
        raise InputError(
            f"estimator is {shown(estimator)}; expected an estimator with fit, predict and "
            "get_params as scikit-learn has them, such as LGBMRegressor()."
        )


def _with_shape(X: FeatureTable) -> Any:
    """Return rows in a type with positions."""
    if hasattr(X, "shape"):
        return X
    return np.asarray(X)


def _targets_at(y: ForeignObject, rows: IntArray) -> Any:
    """Return the targets of rows, in pandas if they are pandas."""
    if hasattr(y, "iloc"):
        return y.iloc[rows]
    return inputs.as_array(y, "y")[rows]


def _predictions(fitted: ForeignModel, X: FeatureTable, classes: AnyArray | None) -> FloatArray:
    """Return predictions, (n,) or (n, K): of classes probabilities, 0 for a class without rows."""
    if classes is None:
        return np.asarray(fitted.predict(X), dtype=np.float64)
    probabilities = np.zeros((X.shape[0], len(classes)))
    columns = np.searchsorted(classes, fitted.classes_)
    probabilities[:, columns] = fitted.predict_proba(X)
    return probabilities
