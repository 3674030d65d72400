"""Tables that people hand over: frames, arrays and sparse matrices, checked before any work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from axil.arrays import FloatArray, IntArray
from axil.errors import InputError, shortened, shown
from axil.inputs.categories import align_categories, share_categories
from axil.inputs.label_classes import LabelClasses
from axil.inputs.labels import distinct_labels, one_hot
from axil.inputs.libraries import frame_library
from axil.inputs.numbers import (
    as_numbers,
    as_table,
    from_objects,
    is_number_dtype,
    is_sparse,
    unmasked,
)

ONE_ROW = " For one row pass X.iloc[[0]], X[[0]] or x.reshape(1, -1)."
INSTEAD = {
    "LazyFrame": " Pass X.collect().",
    **dict.fromkeys(
        ("DMatrix", "QuantileDMatrix", "Dataset", "Pool"), " Pass the table that it was made from."
    ),
    **dict.fromkeys(
        ("str", "PosixPath", "WindowsPath"), " Read the file first, such as with pandas.read_csv."
    ),
}  # by the name of a type that is no table


def _advice(X: Any, what: str) -> str:
    """The end of a message about what is no table."""
    return INSTEAD.get(
        type(X).__name__, ONE_ROW if what == "X" and len(getattr(X, "shape", ())) == 1 else ""
    )


def backend_of(X: Any) -> str:
    """The name of the frame library that tables about X are made with; for arrays that of `frame_library`."""
    frame = as_frame(X)
    if frame is None:
        return frame_library()
    return str(nw.get_native_namespace(frame).__name__)


def as_frame(X: Any) -> nw.DataFrame[Any] | None:
    """X as a narwhals frame, or None if it is not a data frame."""
    if isinstance(X, nw.DataFrame):
        return X
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except nw.exceptions.NarwhalsError as error:
        names = [*map(str, getattr(X, "columns", ()))]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is None:
            found = f"cannot be read ({shown(error, 200)})"
        else:
            found = f"has several columns named {shown(twice)}"
        raise InputError(
            f"A table {found}; expected columns of different names. Rename columns, or drop some."
        ) from None
    if isinstance(frame, nw.DataFrame):
        return frame
    return None


class ModelColumns(Protocol):
    """The columns of a fitted model."""

    library: str
    n_features: int
    feature_names: list[str] | None
    takes_text: bool

    def spelling(self, name: str) -> str:
        """How the library writes a column's name."""


def as_features(X: Any, model: ModelColumns, what: str, like: Any = None) -> Any:
    """X itself, or made row-sliceable, once it is sure to be two-dimensional, numeric and as wide as the model.

    ``like``: the training rows. Where they are a frame and the model knows no names, columns of the same names must stand in
    the same places.
    """
    X = unmasked(X, what)
    if isinstance(X, (list, tuple)) and model.takes_text:
        X = _rows_of_any_kind(X, model, what)
    elif isinstance(X, (list, tuple)):
        X = as_numbers(X, what, "a numeric table: pass an array or a frame")
    frame = as_frame(X)
    if frame is None and not is_sparse(X) and not isinstance(X, np.ndarray):
        raise InputError(
            f"{what} is a {type(X).__name__}; expected a numpy array, a pandas, polars or pyarrow table, "
            f"or a scipy.sparse matrix.{_advice(X, what)}"
        )
    if len(X.shape) != 2:
        raise InputError(
            f"{what} has shape {X.shape}; expected two dimensions (rows, {model.n_features} columns).{_advice(X, what)}"
        )
    if frame is not None:
        fitted = frame if what == "X_train" else None if like is None else as_frame(like)
        _check_names(frame, model, what, fitted)
    if X.shape[1] != model.n_features:
        named = (
            "" if frame is None else f" ({shortened(', '.join(map(str, frame.columns[:20])), 400)})"
        )
        unsaid = "" if model.feature_names is not None else " and does not say which"
        raise InputError(
            f"{what} has {X.shape[1]} columns{named}; the {model.library} model was fitted on {model.n_features}{unsaid}. "
            "Pass those of the fit, in its order."
        )
    if frame is not None:
        rows = _with_numeric_columns(X, frame, model, what)
        known = None if like is None or model.takes_text else as_frame(like)
        if known is None:
            return rows
        found = as_frame(rows)
        assert found is not None
        aligned = align_categories(found, known, getattr(model, "numbers_by_frame", False))
        return rows if aligned is found else aligned.to_native()
    if X.dtype.kind == "O" and not model.takes_text:
        return from_objects(X, what, "numbers; encode the columns as they were for the fit")
    kinds = "biufOUS" if model.takes_text and not is_sparse(X) else "biuf"
    if X.dtype.kind not in kinds:
        raise InputError(
            f"{what} has dtype {X.dtype}; expected numbers. Encode the columns as they were for the fit."
        )
    if not is_sparse(X):
        return np.asarray(X if X.dtype.isnative else X.astype(X.dtype.newbyteorder("=")))
    rows = X.tocsr()
    return (
        rows if rows.dtype in (np.float32, np.float64) else rows.astype(np.float64)
    )  # some libraries read no others


def _rows_of_any_kind(rows: Sequence[Any], model: ModelColumns, what: str) -> NDArray[Any]:
    """Return an array of a list of rows that may hold text: of numbers where all are, else of Python's objects.

    A model that tells categories from numbers by their type gets each value as it is.
    """
    try:
        plain = np.asarray(rows)
        as_they_are = np.array(rows, dtype=object)
    except ValueError as error:
        raise InputError(
            f"{what} is no table ({shown(error, 200)}); expected rows of equal length."
        ) from None
    keeps_kinds = getattr(model, "tells_kinds_apart", False)
    if plain.dtype.kind in "biu" or (plain.dtype.kind == "f" and not keeps_kinds):
        return plain
    return as_they_are


def _check_names(
    frame: nw.DataFrame[Any], model: ModelColumns, what: str, fitted: nw.DataFrame[Any] | None
) -> None:
    distinct_labels(
        np.array([*frame.columns, None], dtype=object)[:-1], f"The list of {what}'s columns"
    )
    given = _spelled(frame, model)
    twice = (
        {name for name in given if given.count(name) > 1} if len(set(given)) < len(given) else ()
    )
    if twice:
        raise InputError(
            f"{what} has several columns named {shown(min(twice))}; expected columns of different names."
        )
    names, library = model.feature_names, model.library
    known = [] if fitted is None else _spelled(fitted, model)
    renames = getattr(
        model, "renames", False
    )  # a fit may name the columns of a frame, and predict goes by places
    if renames and len(known) == model.n_features and not {*known} & {*(names or ())}:
        names = None
    if names is None and fitted is not None:
        moved = [name for name, place in zip(given, known) if name != place and name in known]
        if moved:
            raise InputError(
                f"{what} has column {shown(moved[0])} in another place than X_train: {shown(given[:5])} instead of "
                f"{shown(known[:5])}. The {library} model was fitted without names: select the columns in the order of the fit."
            )
    if names is not None and given != names:
        missing = [name for name in names if name not in given]
        extra = [name for name in given if name not in names]
        if missing or extra:
            found = [f"missing {shown(missing[:5], 200)}"] if missing else []
            found += [f"unexpected {shown(extra[:5], 200)}"] if extra else []
            raise InputError(
                f"{what} has other columns than the {library} model was fitted on: {', '.join(found)}. Pass those of the fit, "
                "in its order."
            )
        raise InputError(
            f"{what} has the columns of the {library} model in another order: {_beginning(given)} instead of "
            f"{_beginning(names)}. Select them in the order of the fit."
        )


def _beginning(names: list[str]) -> str:
    """The first names, and a word where there are more."""
    return shown(names[:5], 200) + (" and so on" if len(names) > 5 else "")


def _spelled(frame: nw.DataFrame[Any], model: ModelColumns) -> list[str]:
    """The names of the columns as the library writes them; those of several levels as text, or joined where it joins them."""
    names: list[Any] = frame.columns  # tuples where there are several levels
    whole = [model.spelling(str(name)) for name in names]
    joined = [" ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in names]
    if joined == model.feature_names:
        return joined
    return whole


def _with_numeric_columns(X: Any, frame: nw.DataFrame[Any], model: ModelColumns, what: str) -> Any:
    """Return X, its columns of Python objects as columns of floats.

    Raises for columns that hold no numbers. A model that takes text is given X as it is, and raises
    only for columns that nothing can be made of.
    """
    if frame.implementation.is_pandas():
        dtype_by_column = dict(zip(frame.columns, frame.to_native().dtypes))
        numeric = {
            name for name, dtype in dtype_by_column.items() if _is_usable_pandas_dtype(dtype)
        }
        of_objects = [name for name, dtype in dtype_by_column.items() if dtype == np.dtype(object)]
        complex_numbers = {
            name for name, dtype in dtype_by_column.items() if getattr(dtype, "kind", "") == "c"
        }
    else:
        dtype_by_column = dict(frame.schema)
        numeric = {name for name, dtype in dtype_by_column.items() if _is_usable_dtype(dtype)}
        of_objects = [name for name, dtype in dtype_by_column.items() if dtype == nw.Object]
        complex_numbers = set()
    if model.takes_text:
        odd = list(complex_numbers)
        of_objects = []
    else:
        floats_by_column = _floats_of_objects(frame, of_objects)
        numeric |= floats_by_column.keys()
        odd = [name for name in dtype_by_column if name not in numeric]
    if odd:
        names = ", ".join(f"{name} ({dtype_by_column[name]})" for name in odd[:5])
        raise InputError(
            f"{what} has columns that are not numeric: {names}. Encode them as for the fit."
        )
    if not of_objects:
        return X
    if frame.implementation.is_pandas():
        table = frame.to_native().copy(deep=False)
        for name, values in floats_by_column.items():
            table[name] = values
        return table
    columns = [
        nw.new_series(name, values, backend=frame.implementation)
        for name, values in floats_by_column.items()
    ]
    return frame.with_columns(columns).to_native()


def _is_usable_pandas_dtype(dtype: Any) -> bool:
    """Return whether a column of this dtype can be handed to any model: numbers, truth values and categories."""
    return is_number_dtype(dtype) or str(dtype) == "category"


def _is_usable_dtype(dtype: Any) -> bool:
    """Return whether a column of this dtype of narwhals can be handed to any model."""
    others = (nw.Boolean, nw.Categorical, nw.Enum)
    return bool(dtype.is_numeric() or dtype in others or isinstance(dtype, others))


def _floats_of_objects(frame: nw.DataFrame[Any], names: list[str]) -> dict[str, FloatArray]:
    """Return the floats of each of these columns of Python objects whose values are all numbers."""
    floats_by_column = {}
    for name in names:
        values = np.fromiter(frame.get_column(name).to_list(), dtype=object, count=len(frame))
        with suppress(InputError):
            floats_by_column[name] = from_objects(values, name, "numbers")
    return floats_by_column


def take_rows(X: Any, rows: slice | IntArray) -> Any:
    """Some rows of X, by position, in X's own type."""
    frame = as_frame(X)
    if frame is not None:
        return frame[rows].to_native()
    return (X.tocsr() if is_sparse(X) and X.format in ("bsr", "coo", "dia") else X)[
        rows
    ]  # these have no rows to take


def stack_rows(X: Any, more: Any) -> Any:
    """The rows of X and then further ones, in X's own type."""
    frame = as_frame(X)
    if frame is not None:
        other = as_frame(more)
        if other is None:
            other = nw.from_dict(
                dict(zip(frame.columns, np.asarray(more).T)), backend=frame.implementation
            )
        frame, other = share_categories(frame, other.select(frame.columns))
        return nw.concat([frame, other], how="vertical").to_native()
    if is_sparse(X):
        return sparse.vstack([X, more]).asformat(X.format)
    return np.concatenate([np.asarray(X), np.asarray(more)])


def row_labels(X: Any) -> NDArray[Any]:
    """The user's names for the rows, copied: the index of a pandas frame, else 0, 1, 2, ..."""
    if as_frame(X) is not None:
        index = getattr(X, "index", None)
    else:
        index = None
    if index is None:
        return np.arange(X.shape[0])
    return distinct_labels(np.array(index.to_numpy()), "The index")


def coding_of(model: Any) -> NDArray[Any] | LabelClasses | None:
    """Return the classes that a model's targets stand for: of one label, or of several; None for numbers."""
    return getattr(model, "label_classes", None) if model.classes is None else model.classes


def as_targets(
    values: Any,
    n_rows: int,
    n_outputs: int,
    classes: NDArray[Any] | LabelClasses | None,
    what: str = "y_train",
    rows: str = "training",
    repeated: bool = False,
    missing: bool = False,
) -> FloatArray:
    """(N, K) targets: numbers, the same for all outputs where ``repeated``, or one-hot for the labels of a classifier.

    ``classes`` are those of one label, or `LabelClasses` of several.

    Where targets may be ``missing`` they are nan.
    """
    if isinstance(classes, LabelClasses):
        return classes.one_hot(values, n_rows, what, rows)
    if classes is not None:
        return one_hot(values, n_rows, classes, what, rows)
    if repeated:
        return np.repeat(as_table(values, n_rows, 1, what, rows), n_outputs, axis=1)
    return as_table(values, n_rows, n_outputs, what, rows, missing)


def as_directory(value: Any) -> Path:
    """A directory that files can be written to."""
    path = as_path(value, "scratch")
    if not path.is_dir():
        raise InputError(
            f"scratch is {str(path)!r}, which is no directory; expected one that files can be written to."
        )
    if not os.access(path, os.W_OK):
        raise InputError(
            f"scratch is {str(path)!r}, which cannot be written to; choose another directory."
        )
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
        raise InputError(
            f"{what} is a {type(value).__name__}; expected a path: text or a pathlib.Path."
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{what} is {shown(value)}, which cannot be looked up: {reason}. Expected the path of a file."
        ) from None
    return path


def as_file(value: Any, what: str = "path", is_folder: bool = False) -> Path:
    """A path that a file can be written to: its directory is there, and it is not a directory itself, unless it is to be one."""
    path = as_path(value, what)
    if not path.absolute().parent.is_dir():
        raise InputError(
            f"There is no directory {path.absolute().parent} to write {path.name} to. Make it first."
        )
    if path.is_dir() and not is_folder:
        raise InputError(
            f"{what} is {str(path)!r}, a directory; expected the name of a file to write."
        )
    return path
