"""What people hand over - frames, arrays, sparse matrices, labels - checked before any work."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, Protocol

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from axil.errors import InputError, shown

Array = NDArray[np.float64]

ONE_ROW = "For one row pass X.iloc[[0]], X[[0]] or x.reshape(1, -1)."

_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_UNITS |= {"KIB": 1 << 10, "MIB": 1 << 20, "GIB": 1 << 30, "TIB": 1 << 40}


def is_sparse(X: Any) -> bool:
    """Whether X is a scipy.sparse matrix or array."""
    return "scipy.sparse" in sys.modules and bool(sys.modules["scipy.sparse"].issparse(X))


def as_frame(X: Any) -> nw.DataFrame[Any] | None:
    """X as a narwhals frame, or None if it is not a data frame."""
    if isinstance(X, nw.DataFrame):
        return X
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame) else None


class Columns(Protocol):
    """What a fitted model says about its columns."""

    library: str
    n_features: int
    feature_names: list[str] | None
    takes_text: bool

    def spelling(self, name: str) -> str:
        """How the library writes a column's name."""


def as_features(X: Any, model: Columns, what: str) -> Any:
    """X itself, or made row-sliceable, once it is sure to be two-dimensional, numeric and as wide as the model."""
    n_features = model.n_features
    if isinstance(X, (list, tuple)):
        try:
            X = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(
                f"{what} is a list that does not make a numeric table; pass an array or a frame."
            ) from None
    frame = as_frame(X)
    if frame is None and not is_sparse(X) and not isinstance(X, np.ndarray):
        raise InputError(
            f"{what} is a {type(X).__name__}; expected a numpy array, a pandas, polars or pyarrow table, "
            f"or a scipy.sparse matrix. {ONE_ROW}"
        )
    if len(X.shape) != 2:
        raise InputError(f"{what} has shape {X.shape}; expected two dimensions (rows, {n_features} columns). {ONE_ROW}")
    if frame is not None:
        _check_names(frame, model, what)
    if X.shape[1] != n_features:
        named = "" if frame is None else f" ({', '.join(map(str, frame.columns[:20]))})"
        unsaid = "" if model.feature_names is not None else " and does not say which"
        raise InputError(
            f"{what} has {X.shape[1]} columns{named}; the {model.library} model was fitted on {n_features}{unsaid}. "
            "Pass those of the fit, in its order."
        )
    if frame is not None:
        _check_kinds(frame, model, what)
    elif X.dtype.kind not in "biuf" and not model.takes_text:
        raise InputError(f"{what} has dtype {X.dtype}; expected numbers. Encode the columns as they were for the fit.")
    return X.tocsr() if is_sparse(X) else X


def _check_names(frame: nw.DataFrame[Any], model: Columns, what: str) -> None:
    given = [model.spelling(str(name)) for name in frame.columns]
    names, library = model.feature_names, model.library
    if names is not None and given != names:
        missing = [name for name in names if name not in given]
        extra = [name for name in given if name not in names]
        if missing or extra:
            found = [f"missing {missing[:5]}"] if missing else []
            found += [f"unexpected {extra[:5]}"] if extra else []
            raise InputError(
                f"{what} has other columns than the {library} model was fitted on: {', '.join(found)}. Pass those of "
                "the fit, in its order."
            )
        raise InputError(
            f"{what} has the columns of the {library} model in another order: {given[:5]}... instead of {names[:5]}.... "
            "Select them in the order of the fit."
        )


def _check_kinds(frame: nw.DataFrame[Any], model: Columns, what: str) -> None:
    if model.takes_text:
        return
    usable = (nw.Boolean, nw.Categorical, nw.Enum)
    odd = [
        f"{name} ({dtype})"
        for name, dtype in frame.schema.items()
        if not (dtype.is_numeric() or isinstance(dtype, usable) or dtype in usable)
    ]
    if odd:
        raise InputError(f"{what} has columns that are not numeric: {', '.join(odd[:5])}. Encode them as for the fit.")


def take_rows(X: Any, rows: slice | NDArray[np.intp]) -> Any:
    """Some rows of X, by position, in X's own type."""
    frame = as_frame(X)
    return X[rows] if frame is None else frame[rows].to_native()


def row_labels(X: Any) -> NDArray[Any]:
    """The user's names for the rows, copied: the index of a pandas frame, else 0, 1, 2, ..."""
    index = getattr(X, "index", None) if as_frame(X) is not None else None
    return np.arange(X.shape[0]) if index is None else np.array(index.to_numpy())


def positions(labels: Any, index: NDArray[Any], what: str) -> NDArray[np.intp]:
    """Where the rows with these labels stand; each label must name one row, and no row twice."""
    import pandas as pd

    known, asked = pd.Index(index), pd.Index(labels)
    if not asked.is_unique:
        raise InputError(f"{what} names row {asked[asked.duplicated()][0]} twice; expected each row once.")
    missing = asked[~asked.isin(known)]
    if len(missing):
        raise InputError(
            f"{what} names row {missing[0]} ({len(missing)} of {len(asked)} are unknown); expected labels of training rows, "
            f"such as {index[0]}: the index of a pandas X_train, else positions from 0."
        )
    if not known.is_unique:
        many = asked[asked.isin(known[known.duplicated()])]
        if len(many):
            raise InputError(
                f"{what} names row {many[0]}, a label of several training rows. Give X_train unique labels."
            )
    return np.asarray(known.get_indexer_for(asked), dtype=np.intp)


def as_vector(values: Any, n_rows: int, what: str, rows: str = "training") -> Array:
    """One finite float64 number a row."""
    try:
        vector = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{what} is not numeric; expected one number for each of the {n_rows} {rows} rows.") from None
    if vector.ndim == 2 and vector.shape[1] == 1:
        vector = vector[:, 0]
    if vector.shape != (n_rows,):
        raise InputError(
            f"{what} has shape {vector.shape}; expected ({n_rows},), one number for each of the {n_rows} {rows} rows."
        )
    bad = np.flatnonzero(~np.isfinite(vector))
    if len(bad):
        raise InputError(
            f"{what} holds {vector[bad[0]]} at position {bad[0]} ({len(bad)} of {n_rows} are not finite). "
            "Drop these rows as the fit did, or fill them in."
        )
    return vector


def as_targets(
    values: Any,
    n_rows: int,
    n_outputs: int,
    classes: NDArray[Any] | None,
    what: str = "y_train",
    rows: str = "training",
) -> Array:
    """(N, K) targets: numbers, or one-hot for the labels of a classifier."""
    if classes is not None:
        return one_hot(values, n_rows, classes, what, rows)
    if n_outputs == 1:
        return as_vector(values, n_rows, what, rows)[:, None]
    table = np.asarray(values)
    if table.shape != (n_rows, n_outputs):
        raise InputError(f"{what} has shape {table.shape}; expected ({n_rows}, {n_outputs}), one column an output.")
    return np.stack([as_vector(column, n_rows, what, rows) for column in table.T], axis=1)


def one_hot(labels: Any, n_rows: int, classes: NDArray[Any], what: str = "y_train", rows: str = "training") -> Array:
    """(N, classes): a one in the column of each row's class."""
    given = np.asarray(labels.to_numpy() if hasattr(labels, "to_numpy") else labels)
    given = given[:, 0] if given.ndim == 2 and given.shape[1] == 1 else given
    if given.shape != (n_rows,):
        raise InputError(
            f"{what} has shape {given.shape}; expected ({n_rows},), one label for each of the {rows} rows."
        )
    same = given[:, None] == classes
    unknown = np.flatnonzero(~same.any(axis=1))
    if len(unknown):
        raise InputError(
            f"{what} holds {given[unknown[0]]} at position {unknown[0]}; "
            f"the model knows the classes {', '.join(map(str, classes[:5]))}."
        )
    return np.asarray(same, dtype=np.float64)


def as_offsets(values: Any, n_rows: int, n_outputs: int, rows: str) -> Array | None:
    """(N, K) offsets, None if none were given."""
    if values is None:
        return None
    if n_outputs == 1:
        return as_vector(values, n_rows, "init_score", rows)[:, None]
    table = np.asarray(values)
    if table.shape != (n_rows, n_outputs):
        raise InputError(f"init_score has shape {table.shape}; expected ({n_rows}, {n_outputs}).")
    return np.stack([as_vector(column, n_rows, "init_score", rows) for column in table.T], axis=1)


def as_bags(values: Any, n_rows: int) -> Array | None:
    """(N, T) draw counts, finite and not negative; None if none were given."""
    if values is None:
        return None
    try:
        bags = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("bags is not numeric; expected a table of draw counts, one row a training row.") from None
    if bags.ndim != 2 or len(bags) != n_rows:
        raise InputError(f"bags has shape {bags.shape}; expected ({n_rows}, number of trees).")
    if not (np.isfinite(bags).all() and (bags >= 0).all()):
        raise InputError("bags holds numbers that are negative or not finite; expected how often each row was drawn.")
    return bags


def as_weights(values: Any, n_rows: int) -> Array | None:
    """Sample weights: finite, not negative, not all zero; None if none were given."""
    weights = weights_of_some(values, n_rows)
    if weights is not None and not weights.any():
        raise InputError("sample_weight is zero everywhere; expected at least one positive weight.")
    return weights


def weights_of_some(values: Any, n_rows: int) -> Array | None:
    """Sample weights of some of the rows, which may all be zero."""
    if values is None:
        return None
    weights = as_vector(values, n_rows, "sample_weight")
    negative = np.flatnonzero(weights < 0)
    if len(negative):
        raise InputError(
            f"sample_weight holds {weights[negative[0]]} at position {negative[0]}; expected weights that are not negative."
        )
    return weights


def as_count(value: Any, what: str) -> int:
    """A whole number from 1 up."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InputError(f"{what} is {value!r}; expected a whole number from 1 up.")
    return int(value)


def as_sizes(value: Any, n: int, what: str) -> Array:
    """A number from 0 up, or n of them."""
    try:
        sizes = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        sizes = np.empty((0, 0))
    if sizes.shape not in ((), (n,)) or not (np.isfinite(sizes) & (sizes >= 0)).all():
        raise InputError(f"{what} is {value!r}; expected a number from 0 up, or {n} of them, one an output.")
    return sizes


def column_names(given: tuple[Any, ...], known: list[str] | None, n: int) -> list[str]:
    """The names of the columns: those of the first frame among the tables given, else the model's, else x0, x1, ..."""
    for X in given:
        frame = as_frame(X)
        if frame is not None:
            return [str(name) for name in frame.columns]
    return [f"x{i}" for i in range(n)] if known is None else list(known)


def chosen_columns(columns: Any, names: list[str]) -> list[int]:
    """The positions of columns given by name or position; all for None."""
    if columns is None:
        return list(range(len(names)))
    found = []
    for column in [columns] if isinstance(columns, str) else columns:
        if isinstance(column, (int, np.integer)) and 0 <= column < len(names):
            found.append(int(column))
        elif column in names:
            found.append(names.index(column))
        else:
            raise InputError(
                f"columns names {column!r}; expected names such as {names[0]!r}, or positions below {len(names)}."
            )
    return found


def as_bytes(value: Any) -> int:
    """A number of bytes from an int or from text such as "2GiB" or "500 MB"."""
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and value > 0:
        return int(value)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?I?B)?\s*", value.upper()) if isinstance(value, str) else None
    if match is None:
        raise InputError(f'memory_limit is {value!r}; expected a positive number of bytes or text such as "2GiB".')
    return int(float(match[1]) * _UNITS[match[2] or "B"])


def as_directory(value: Any) -> Path:
    """A directory that files can be written to."""
    path = as_path(value, "scratch")
    if not path.is_dir():
        raise InputError(f"scratch is {str(path)!r}, which is no directory; expected one that files can be written to.")
    if not os.access(path, os.W_OK):
        raise InputError(f"scratch is {str(path)!r}, which cannot be written to; choose another directory.")
    return path


def as_path(value: Any, what: str = "path") -> Path:
    """A path that the system can look up, whether something is there or not."""
    try:
        path = Path(os.fspath(value))
        if not str(value) or "\0" in str(path):
            raise ValueError("empty, or with a character of code 0")
        os.lstat(path)
    except FileNotFoundError:
        return path
    except TypeError:
        raise InputError(f"{what} is a {type(value).__name__}; expected a path: text or a pathlib.Path.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{what} is {shown(value)}, which cannot be looked up: {reason}. Expected the path of a file."
        ) from None
    return path


def as_file(value: Any, what: str = "path") -> Path:
    """A path that a file can be written to: its directory is there, and it is not a directory itself."""
    path = as_path(value, what)
    if not path.absolute().parent.is_dir():
        raise InputError(f"There is no directory {path.absolute().parent} to write {path.name} to. Make it first.")
    if path.is_dir():
        raise InputError(f"{what} is {str(path)!r}, a directory; expected the name of a file to write.")
    return path
