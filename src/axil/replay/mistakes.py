"""Try out the commonest mistakes with training data after a verification has failed.

If one change to the data makes the verification pass, the error names that change.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from axil.adapters.contract import Model, TrainingRows
from axil.aliases import FeatureTable
from axil.arrays import FloatArray
from axil.errors import AxilError, ExactnessError, InputError
from axil.inputs import as_frame, is_sparse, other_order, take_rows
from axil.replay.compare import INITIAL
from axil.replay.compare_predictions import checked_rows

TRANSFORMS: dict[str, tuple[Callable[[FloatArray], FloatArray], str]] = {
    "np.log(y_train)": (np.log, "np.exp"),
    "np.log1p(y_train)": (np.log1p, "np.expm1"),
    "np.log10(y_train)": (np.log10, "lambda z: 10.0**z"),
    "np.sqrt(y_train)": (np.sqrt, "np.square"),
    "np.exp(y_train)": (np.exp, "np.log"),
    "np.expm1(y_train)": (np.expm1, "np.log1p"),
    "(y_train - y_train.mean()) / y_train.std(ddof=0)": (
        lambda y: (y - y.mean(axis=0)) / y.std(axis=0),  # as scikit-learn and NumPy have it
        "lambda z: z * y_train.std(ddof=0) + y_train.mean()",
    ),
    "(y_train - y_train.mean()) / y_train.std(ddof=1)": (
        lambda y: (y - y.mean(axis=0)) / y.std(axis=0, ddof=1),  # as pandas has it
        "lambda z: z * y_train.std(ddof=1) + y_train.mean()",
    ),
}  # and the function that undoes each
TRIED_TRANSFORMS = 2  # those whose mean is nearest to the predictions'


OTHER_ORDER = (
    "X_train and y_train have the same row labels in another order, and rows are matched by "
    "position"
)


Prove = Callable[[TrainingRows], Any]


def with_cause(
    error: ExactnessError, model: Model, rows: TrainingRows, given: tuple[Any, Any], prove: Prove
) -> ExactnessError:
    """Return the error with the change to the data that makes the verification pass.

    If none of the common changes does, return the error itself. ``prove(rows)`` raises unless the
    rows agree with the model; each call costs a replay of the fit. ``given`` has X_train and
    y_train as the user passed them, for their labels.
    """
    for sentence, changed in _changes(error, model, rows, given):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                prove(changed)
        except (AxilError, ArithmeticError, np.linalg.LinAlgError):
            continue
        return error.because(sentence)
    question = _was_transformed(model, rows)
    if question is None:
        return error
    return error.because(f"{question}\n{error.cause}")


def _was_transformed(model: Model, rows: TrainingRows) -> str | None:
    """Return a question for the user if the model predicts on another scale than its targets.

    Squared error preserves the mean of the targets, which shows this.
    """
    if model.classes is not None or rows.offsets is not None:
        return None
    targets = rows.targets
    predicted = _some_predictions(model, rows)
    apart = np.abs(predicted.mean(axis=0) - targets.mean(axis=0))
    if not (apart > targets.std(axis=0)).any():
        return None
    return (
        f"Was the target transformed for the fit? The model predicts {predicted.min():.4g} to "
        f"{predicted.max():.4g}, y_train holds {targets.min():.4g} to {targets.max():.4g}. Pass "
        "y_train as the fit had it."
    )


def _changes(
    error: ExactnessError, model: Model, rows: TrainingRows, given: tuple[Any, Any]
) -> Iterator[tuple[str, TrainingRows]]:
    """Yield messages, and the changed rows to try with each, the most likely change first."""
    order = other_order(*given)
    if order is not None:
        yield (
            f"{OTHER_ORDER}: in the order of the labels they agree. Pass "
            "y_train.loc[X_train.index].",
            replace(rows, targets=rows.targets[order]),
        )
    if rows.weights is not None:
        yield (
            "Without sample_weight the data agree: the model was fitted without weights. Leave "
            "sample_weight out.",
            replace(rows, weights=None),
        )
    if model.classes is None and model.scale.is_identity:
        for name, targets in _transformed(model, rows):
            yield (
                f"With {name} for targets the data agree: the model was fitted on transformed "
                f"targets. Pass {name} as y_train; with inverse_func={TRANSFORMS[name][1]} "
                "answers are in the units of your y_train.",
                replace(rows, targets=targets),
            )
    if error.quantity not in ("value", INITIAL):
        for how, scaled in _scaled(rows.X):
            yield (
                f"With every column scaled to {how} the data agree: the model was fitted on "
                "scaled columns. Pass X_train as it was scaled for the fit, or explain a pipeline "
                "of scaler and model.",
                replace(rows, X=scaled),
            )


def refuse_other_order(X: FeatureTable, y: Any) -> None:
    """Raise if the labels of X and y are in different orders, which verification could not name."""
    if other_order(X, y) is not None:
        raise InputError(
            f"{OTHER_ORDER}. Pass y_train.loc[X_train.index]; or, if the fit had them so, "
            "y_train.to_numpy()."
        )


def _transformed(model: Model, rows: TrainingRows) -> list[tuple[str, FloatArray]]:
    """Return the transforms of the targets that come nearest to the model's predictions.

    There are none if the targets themselves come nearest.
    """
    positions = checked_rows(len(rows.targets))
    predicted = _some_predictions(model, rows)
    tried = []
    with np.errstate(all="ignore"):
        for name, (transform, _) in TRANSFORMS.items():
            targets = transform(rows.targets)
            if np.isfinite(targets).all():
                tried.append((_distance(targets[positions], predicted), name, targets))
        own_distance = _distance(rows.targets[positions], predicted)
    nearest = sorted(
        (candidate for candidate in tried if candidate[0] < own_distance),
        key=lambda candidate: candidate[0],
    )
    return [(name, targets) for _, name, targets in nearest[:TRIED_TRANSFORMS]]


def _some_predictions(model: Model, rows: TrainingRows) -> FloatArray:
    """Return the model's predictions of some training rows, (n, K)."""
    return np.asarray(model.predictions(take_rows(rows.X, checked_rows(len(rows.targets)))))


def _distance(targets: FloatArray, predicted: FloatArray) -> float:
    """Return the distance of targets from predictions, relative to the size of the targets."""
    distance = np.abs(targets - predicted).mean() / max(float(np.abs(targets).mean()), 1e-300)
    return float(np.nan_to_num(distance, nan=np.inf))


def _scaled(X: FeatureTable) -> Iterator[tuple[str, Any]]:
    """Yield scalings that users commonly apply to columns, and X scaled so.

    Yield nothing if X does not have numbers only.
    """
    if is_sparse(X):
        frame = None
    else:
        frame = as_frame(X)
    try:
        table = np.asarray(X if frame is None else frame.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        return
    if is_sparse(X) or table.ndim != 2:
        return
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        least = np.nanmin(table, axis=0)
        most = np.nanmax(table, axis=0)
        ways = {
            "mean 0 and standard deviation 1": (
                np.nanmean(table, axis=0),
                np.nanstd(table, axis=0),
            ),
            "0 to 1": (least, most - least),
        }
    for how, (shift, size) in ways.items():
        scaled = (table - shift) / np.where(size > 0, size, 1.0)
        yield (
            how,
            type(X)(scaled, columns=X.columns, index=X.index) if hasattr(X, "set_axis") else scaled,
        )


def names_target(error: InputError, X: FeatureTable, y: Any) -> InputError:
    """Return the error about columns of X, with the names of columns that contain the targets."""
    name = getattr(y, "name", None)
    if isinstance(name, str) and f"missing [{name!r}]" in str(error):
        return InputError(
            f"{error} Column {name!r} is y_train: the model was fitted with its own target among "
            "the features. Fit it again without it, or pass X_train with it."
        )
    try:
        frame = None if is_sparse(X) else as_frame(X)
        targets = np.asarray(y, dtype=np.float64).ravel()
        table = X if frame is None else {name: frame[name].to_numpy() for name in frame.columns}
        columns = table.items() if isinstance(table, dict) else enumerate(np.asarray(X).T)
        same = [
            name
            for name, column in columns
            if np.array_equal(np.asarray(column, dtype=np.float64), targets)
        ]
    except Exception:  # whatever is wrong with them: the error itself says so
        return error
    if not same:
        return error
    return InputError(f"{error} Column {same[0]!r} holds y_train: leave it out of X_train.")
