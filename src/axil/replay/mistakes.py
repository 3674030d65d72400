"""The commonest mistakes with training data, tried out once a proof has failed: what would have agreed is said outright."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.adapters.contract import Model, TrainingRows
from axil.errors import AxilError, ExactnessError, InputError
from axil.inputs import as_frame, is_sparse, take_rows
from axil.types import Array

ASKED = 1000  # rows whose prediction is compared with the targets
TRANSFORMS: dict[str, Callable[[Array], Array]] = {
    "np.log(y_train)": np.log,
    "np.log1p(y_train)": np.log1p,
    "np.log10(y_train)": np.log10,
    "np.sqrt(y_train)": np.sqrt,
    "np.exp(y_train)": np.exp,
    "np.expm1(y_train)": np.expm1,
    "(y_train - y_train.mean()) / y_train.std()": lambda y: (y - y.mean(axis=0)) / y.std(axis=0),
}
TRIED_TRANSFORMS = 2  # those whose mean is nearest to the predictions'


OTHER_ORDER = "X_train and y_train have the same row labels in another order, and rows are matched by position"


Prove = Callable[[TrainingRows], Any]


def told(
    error: ExactnessError, model: Model, rows: TrainingRows, given: tuple[Any, Any], prove: Prove
) -> ExactnessError:
    """The error with the one change to the data that makes the proof pass, if one of the common ones does; else itself.

    ``prove(rows)`` raises where they do not agree with the model. Each try costs a replay of the fit. ``given`` are X_train and
    y_train as the user passed them, for their labels.
    """
    for sentence, changed in _changes(error, model, rows, given):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                prove(changed)
        except (AxilError, ArithmeticError, np.linalg.LinAlgError):
            continue
        return ExactnessError(error.what, error.found, error.expected, sentence, error.tree, error.leaf)
    return error


def _changes(
    error: ExactnessError, model: Model, rows: TrainingRows, given: tuple[Any, Any]
) -> Iterator[tuple[str, TrainingRows]]:
    """Messages and the rows to try with each, the most likely first."""
    order = other_order(*given)
    if order is not None:
        yield (
            f"{OTHER_ORDER}: in the order of the labels they agree. Pass y_train.loc[X_train.index].",
            replace(rows, targets=rows.targets[order]),
        )
    if rows.weights is not None:
        yield (
            "Without sample_weight the data agree: the model was fitted without weights. Leave sample_weight out.",
            replace(rows, weights=None),
        )
    if model.classes is None and model.scale.is_identity:
        for name, targets in _transformed(model, rows):
            yield (
                f"With {name} for targets the data agree: the model was fitted on transformed targets. Pass {name} as y_train, "
                "and the function that undoes it as inverse_func, such as np.exp for logarithms.",
                replace(rows, targets=targets),
            )
    scaled = _standardised(rows.X)
    if scaled is not None and error.what not in ("value", "mean of the targets"):
        yield (
            "With every column scaled to mean 0 and standard deviation 1 the data agree: the model was fitted on scaled columns. "
            "Pass X_train as it was scaled for the fit, or explain a pipeline of scaler and model.",
            replace(rows, X=scaled),
        )


def other_order(X: Any, y: Any) -> NDArray[np.intp] | None:
    """(N,): where the labels of X stand in y, if both are labelled by pandas, alike but for the order."""
    rows: Any = getattr(X, "index", None)
    targets: Any = getattr(y, "index", None)
    if not (hasattr(rows, "get_indexer") and hasattr(targets, "get_indexer")):
        return None
    if len(rows) != len(targets) or rows.equals(targets) or not (rows.is_unique and targets.is_unique):
        return None
    found = targets.get_indexer(rows)
    return None if (found < 0).any() else np.asarray(found, dtype=np.intp)


def refuse_other_order(X: Any, y: Any) -> None:
    """Without a proof nothing else would show it."""
    if other_order(X, y) is not None:
        raise InputError(
            f"{OTHER_ORDER}. Pass y_train.loc[X_train.index]; or, if the fit had them so, y_train.to_numpy()."
        )


def _transformed(model: Model, rows: TrainingRows) -> list[tuple[str, Array]]:
    """The transforms of the targets that come nearest to the model's predictions, none if the targets themselves do."""
    asked = np.arange(0, len(rows.targets), -(-len(rows.targets) // ASKED))
    predicted = model.predictions(take_rows(rows.X, asked))
    tried = []
    with np.errstate(all="ignore"):
        for name, transform in TRANSFORMS.items():
            targets = transform(rows.targets)
            if np.isfinite(targets).all():
                tried.append((_distance(targets[asked], predicted), name, targets))
        own = _distance(rows.targets[asked], predicted)
    nearest = sorted((one for one in tried if one[0] < own), key=lambda one: one[0])
    return [(name, targets) for _, name, targets in nearest[:TRIED_TRANSFORMS]]


def _distance(targets: Array, predicted: Array) -> float:
    """How far targets are from predictions, relative to the size of the targets."""
    found = np.abs(targets - predicted).mean() / max(float(np.abs(targets).mean()), 1e-300)
    return float(np.nan_to_num(found, nan=np.inf))


def _standardised(X: Any) -> Any:
    """X with every column scaled; None where it is not all numbers, or scaled already."""
    frame = None if is_sparse(X) else as_frame(X)
    try:
        table = np.asarray(X if frame is None else frame.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        return None
    if is_sparse(X) or table.ndim != 2:
        return None
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        size = np.nanstd(table, axis=0)
        scaled = (table - np.nanmean(table, axis=0)) / np.where(size > 0, size, 1.0)
    if not hasattr(X, "set_axis"):
        return scaled
    return type(X)(scaled, columns=X.columns, index=X.index)


def names_target(error: InputError, X: Any, y: Any) -> InputError:
    """The error about the columns of X with those named that hold the targets themselves."""
    try:
        frame = None if is_sparse(X) else as_frame(X)
        targets = np.asarray(y, dtype=np.float64).ravel()
        table = X if frame is None else {name: frame[name].to_numpy() for name in frame.columns}
        columns = table.items() if isinstance(table, dict) else enumerate(np.asarray(X).T)
        same = [name for name, column in columns if np.array_equal(np.asarray(column, dtype=np.float64), targets)]
    except Exception:  # whatever is wrong with them: the error itself says so
        return error
    if not same:
        return error
    return InputError(f"{error} Column {same[0]!r} holds y_train: leave it out of X_train.")
