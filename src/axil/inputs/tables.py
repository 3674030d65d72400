"""Tables that people pass: frames, arrays and sparse matrices, checked before any work."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import narwhals.stable.v2 as nw
import numpy as np
from scipy import sparse

from axil.aliases import FeatureTable, ForeignObject
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.errors import InputError, shortened, shown
from axil.inputs.categories import align_categories, share_categories
from axil.inputs.label_classes import LabelClasses
from axil.inputs.labels import distinct_labels, one_hot
from axil.inputs.libraries import Frame, frame_library
from axil.inputs.numbers import (
    as_numbers,
    as_table,
    from_objects,
    is_number_dtype,
    is_sparse,
    unmasked,
)

ONE_ROW = " For one row pass X.iloc[[0]], X[[0]] or x.reshape(1, -1)."
#: What to do instead, by the name of a type that is no table.
INSTEAD = {
    "LazyFrame": " Pass X.collect().",
    **dict.fromkeys(
        ("DMatrix", "QuantileDMatrix", "Dataset", "Pool"), " Pass the table that it was made from."
    ),
    **dict.fromkeys(
        ("str", "PosixPath", "WindowsPath"), " Read the file first, such as with pandas.read_csv."
    ),
}


class ModelColumns(Protocol):
    """The columns of a fitted model."""

    library: str
    n_features: int
    feature_names: list[str] | None
    takes_text: bool

    def spelling(self, name: str) -> str:
        """Return a column's name as the library writes it."""


def _advice(X: ForeignObject, name: str) -> str:
    """Return the end of a message about an object that is no table."""
    advice = ""
    if name == "X" and len(getattr(X, "shape", ())) == 1:
        advice = ONE_ROW
    return INSTEAD.get(type(X).__name__, advice)


def backend_of(X: FeatureTable) -> str:
    """Return the name of the frame library of tables about X."""
    frame = as_frame(X)
    if frame is None:
        return frame_library()
    return str(nw.get_native_namespace(frame).__name__)


def as_frame(X: FeatureTable) -> Frame | None:
    """Return X as a frame of narwhals; None if it is no data frame."""
    if isinstance(X, nw.DataFrame):
        return X
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
    except nw.exceptions.NarwhalsError as error:
        problem = f"cannot be read ({shown(error, 200)})"
        repeat = _repeated_name([*map(str, getattr(X, "columns", ()))])
        if repeat is not None:
            problem = f"has several columns named {shown(repeat)}"
        raise InputError(
            f"A table {problem}; expected columns of different names. Rename columns, or drop some."
        ) from None
    if isinstance(frame, nw.DataFrame):
        return frame
    return None


def _repeated_name(names: list[str]) -> str | None:
    """Return the first name that occurs twice; None if all differ."""
    if len(set(names)) == len(names):
        return None
    return next(name for name in names if names.count(name) > 1)


def as_features(
    X: object, model: ModelColumns, name: str, training_rows: FeatureTable | None = None
) -> FeatureTable:
    """Return X after checking that it is two-dimensional, numeric and as wide as the model.

    A list of rows becomes an array. Columns of Python objects become columns of floats.

    Parameters
    ----------
    X : table
    model : ModelColumns
    name : str
        The argument, for messages.
    training_rows : table, optional
        If they are a frame and the model knows no names, columns of the same names must be in the
        same places.
    """
    rows = _as_table(unmasked(X, name), model, name)
    frame = as_frame(rows)
    if frame is not None:
        return _checked_frame(rows, frame, model, name, training_rows)
    _require_width(rows, model, name, "")
    return _checked_array(rows, model, name)


def _as_table(X: ForeignObject, model: ModelColumns, name: str) -> FeatureTable:
    """Return a table of two dimensions; raises for other objects."""
    if isinstance(X, (list, tuple)):
        if model.takes_text:
            X = _rows_of_any_kind(X, model, name)
        else:
            X = as_numbers(X, name, "a numeric table: pass an array or a frame")
    if as_frame(X) is None and not is_sparse(X) and not isinstance(X, np.ndarray):
        raise InputError(
            f"{name} is a {type(X).__name__}; expected a numpy array, a pandas, polars or pyarrow "
            f"table, or a scipy.sparse matrix.{_advice(X, name)}"
        )
    if len(X.shape) != 2:
        raise InputError(
            f"{name} has shape {X.shape}; expected two dimensions (rows, {model.n_features} "
            f"columns).{_advice(X, name)}"
        )
    return X


def _require_width(X: FeatureTable, model: ModelColumns, name: str, names_of_columns: str) -> None:
    """Raise unless a table has as many columns as the model."""
    if X.shape[1] == model.n_features:
        return
    not_named = ""
    if model.feature_names is None:
        not_named = " and does not say which"
    raise InputError(
        f"{name} has {X.shape[1]} columns{names_of_columns}; the {model.library} model was fitted "
        f"on {model.n_features}{not_named}. Pass those of the fit, in its order."
    )


def _checked_frame(
    X: FeatureTable,
    frame: Frame,
    model: ModelColumns,
    name: str,
    training_rows: FeatureTable | None,
) -> FeatureTable:
    """Return a frame with numeric columns, and with the categories of the training rows."""
    training_frame = None
    if training_rows is not None:
        training_frame = as_frame(training_rows)
    if name == "X_train":
        _check_names(frame, model, name, frame)
    else:
        _check_names(frame, model, name, training_frame)
    columns = shortened(", ".join(map(str, frame.columns[:20])), 400)
    _require_width(X, model, name, f" ({columns})")
    rows = _with_numeric_columns(X, frame, model, name)
    if training_frame is None or model.takes_text:
        return rows
    numeric_frame = as_frame(rows)
    assert numeric_frame is not None
    numbers_by_frame = getattr(model, "numbers_by_frame", False)
    aligned = align_categories(numeric_frame, training_frame, numbers_by_frame)
    if aligned is numeric_frame:
        return rows
    return aligned.to_native()


def _checked_array(X: FeatureTable, model: ModelColumns, name: str) -> FeatureTable:
    """Return an array or a sparse matrix of a type that libraries read."""
    if X.dtype.kind == "O" and not model.takes_text:
        return from_objects(X, name, "numbers; encode the columns as they were for the fit")
    kinds = "biuf"
    if model.takes_text and not is_sparse(X):
        kinds = "biufOUS"
    if X.dtype.kind not in kinds:
        raise InputError(
            f"{name} has dtype {X.dtype}; expected numbers. Encode the columns as they were for "
            "the fit."
        )
    if not is_sparse(X):
        if X.dtype.isnative:
            return np.asarray(X)
        return np.asarray(X.astype(X.dtype.newbyteorder("=")))
    rows = X.tocsr()
    if rows.dtype in (np.float32, np.float64):
        return rows
    return rows.astype(np.float64)  # some libraries read no others


def _rows_of_any_kind(rows: Sequence[Any], model: ModelColumns, name: str) -> AnyArray:
    """Return an array of a list of rows that may hold text.

    It is one of numbers where all are, else of Python's objects. A model that tells categories from
    numbers by their type gets each value as it is.
    """
    try:
        plain = np.asarray(rows)
        objects = np.array(rows, dtype=object)
    except ValueError as error:
        raise InputError(
            f"{name} is no table ({shown(error, 200)}); expected rows of equal length."
        ) from None
    keeps_types = getattr(model, "tells_kinds_apart", False)
    if plain.dtype.kind in "biu" or (plain.dtype.kind == "f" and not keeps_types):
        return plain
    return objects


def _check_names(
    frame: Frame, model: ModelColumns, name: str, training_frame: Frame | None
) -> None:
    """Raise unless the columns have the names of the fit, in its order."""
    labels = np.array([*frame.columns, None], dtype=object)[:-1]
    distinct_labels(labels, f"The list of {name}'s columns")
    columns = _spelled(frame, model)
    if len(set(columns)) < len(columns):
        repeats = {column for column in columns if columns.count(column) > 1}
        raise InputError(
            f"{name} has several columns named {shown(min(repeats))}; expected columns of "
            "different names."
        )
    training_columns = []
    if training_frame is not None:
        training_columns = _spelled(training_frame, model)
    model_names = model.feature_names
    # A fit may name the columns of a frame, and predict goes by places.
    renames = getattr(model, "renames", False)
    has_other_names = not {*training_columns} & {*(model_names or ())}
    if renames and len(training_columns) == model.n_features and has_other_names:
        model_names = None
    if model_names is None:
        _check_places(columns, training_columns, model, name)
    elif columns != model_names:
        raise _other_names(columns, model_names, model, name)


def _check_places(
    columns: list[str], training_columns: list[str], model: ModelColumns, name: str
) -> None:
    """Raise if a column is in another place than in the training rows."""
    for column, training_column in zip(columns, training_columns):
        if column != training_column and column in training_columns:
            raise InputError(
                f"{name} has column {shown(column)} in another place than X_train: "
                f"{shown(columns[:5])} instead of {shown(training_columns[:5])}. The "
                f"{model.library} model was fitted without names: select the columns in the order "
                "of the fit."
            )


def _other_names(
    columns: list[str], model_names: list[str], model: ModelColumns, name: str
) -> InputError:
    """Return the error for columns that differ from those of the fit, or are in another order."""
    missing = [column for column in model_names if column not in columns]
    extra = [column for column in columns if column not in model_names]
    differences = []
    if missing:
        differences.append(f"missing {shown(missing[:5], 200)}")
    if extra:
        differences.append(f"unexpected {shown(extra[:5], 200)}")
    if differences:
        return InputError(
            f"{name} has other columns than the {model.library} model was fitted on: "
            f"{', '.join(differences)}. Pass those of the fit, in its order."
        )
    return InputError(
        f"{name} has the columns of the {model.library} model in another order: "
        f"{_beginning(columns)} instead of {_beginning(model_names)}. Select them in the order of "
        "the fit."
    )


def _beginning(names: list[str]) -> str:
    """Return the first names as text, with dots if there are more."""
    if len(names) > 5:
        return f"{shown(names[:5], 200)} and so on"
    return shown(names, 200)


def _spelled(frame: Frame, model: ModelColumns) -> list[str]:
    """Return the names of the columns as the library writes them.

    Names of several levels are tuples, which some libraries write as text and others join.
    """
    names: list[Any] = frame.columns
    joined = [" ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in names]
    if joined == model.feature_names:
        return joined
    return [model.spelling(str(name)) for name in names]


def _with_numeric_columns(
    X: FeatureTable, frame: Frame, model: ModelColumns, name: str
) -> FeatureTable:
    """Return X, with columns of Python objects as columns of floats.

    Raises for columns that hold no numbers. A model that takes text gets X as it is; axil raises
    only for columns that it cannot read.
    """
    dtype_by_column: dict[str, ForeignObject]
    if frame.implementation.is_pandas():
        dtype_by_column = dict(zip(frame.columns, frame.to_native().dtypes))
        is_usable = _is_usable_pandas_dtype
        object_dtype: ForeignObject = np.dtype(object)
    else:
        dtype_by_column = dict(frame.schema)
        is_usable = _is_usable_dtype
        object_dtype = nw.Object
    if model.takes_text:
        floats_by_column = {}
        unusable = [
            column
            for column, dtype in dtype_by_column.items()
            if getattr(dtype, "kind", "") == "c"  # complex numbers, of pandas
        ]
    else:
        objects = [column for column, dtype in dtype_by_column.items() if dtype == object_dtype]
        floats_by_column = _floats_of_objects(frame, objects)
        unusable = [
            column
            for column, dtype in dtype_by_column.items()
            if column not in floats_by_column and not is_usable(dtype)
        ]
    if unusable:
        columns = ", ".join(f"{column} ({dtype_by_column[column]})" for column in unusable[:5])
        raise InputError(
            f"{name} has columns that are not numeric: {columns}. Encode them as for the fit."
        )
    if not floats_by_column:
        return X
    return _with_columns(frame, floats_by_column)


def _with_columns(frame: Frame, floats_by_column: dict[str, FloatArray]) -> FeatureTable:
    """Return a frame of the same library with some columns replaced."""
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


def _is_usable_pandas_dtype(dtype: ForeignObject) -> bool:
    """Return whether any model takes a column of this dtype: numbers, truth values, categories."""
    return is_number_dtype(dtype) or str(dtype) == "category"


def _is_usable_dtype(dtype: ForeignObject) -> bool:
    """Return whether any model takes a column of this dtype of narwhals."""
    other_types = (nw.Boolean, nw.Categorical, nw.Enum)
    return bool(dtype.is_numeric() or dtype in other_types or isinstance(dtype, other_types))


def _floats_of_objects(frame: Frame, names: list[str]) -> dict[str, FloatArray]:
    """Return the floats of columns of Python objects whose values are all numbers, by column."""
    floats_by_column = {}
    for name in names:
        values = np.fromiter(frame.get_column(name).to_list(), dtype=object, count=len(frame))
        with suppress(InputError):
            floats_by_column[name] = from_objects(values, name, "numbers")
    return floats_by_column


def take_rows(X: FeatureTable, rows: slice | IntArray) -> FeatureTable:
    """Return some rows of X, by position, in X's own type."""
    frame = as_frame(X)
    if frame is not None:
        return frame[rows].to_native()
    if is_sparse(X) and X.format in ("bsr", "coo", "dia"):
        return X.tocsr()[rows]  # these formats have no rows to take
    return X[rows]


def in_order(frame: Frame, columns: Sequence[Any]) -> Frame:
    """Return these columns of a frame, by name. A name may be a number or a tuple, as in pandas."""
    names = list(frame.columns)
    return frame[:, [names.index(name) for name in columns]]


def stack_rows(X: FeatureTable, more_rows: FeatureTable) -> FeatureTable:
    """Return the rows of X and then further ones, in X's own type."""
    frame = as_frame(X)
    if frame is not None:
        second = as_frame(more_rows)
        if second is None:
            columns = np.asarray(more_rows).T
            second = nw.from_dict(dict(zip(frame.columns, columns)), backend=frame.implementation)
        frame, second = share_categories(frame, in_order(second, frame.columns))
        return nw.concat([frame, second], how="vertical").to_native()
    if is_sparse(X):
        return sparse.vstack([X, more_rows]).asformat(X.format)
    return np.concatenate([np.asarray(X), np.asarray(more_rows)])


def row_labels(X: FeatureTable) -> AnyArray:
    """Return the user's names for the rows, copied: the index of a pandas frame, else 0, 1, ..."""
    index = None
    if as_frame(X) is not None:
        index = getattr(X, "index", None)
    if index is None:
        return np.arange(X.shape[0])
    return distinct_labels(np.array(index.to_numpy()), "The index")


class ModelClasses(Protocol):
    """The classes of a classifier."""

    classes: AnyArray | None


def coding_of(model: ModelClasses) -> AnyArray | LabelClasses | None:
    """Return the classes of a model's targets; None for numbers.

    They are those of one label, or `LabelClasses` of several.
    """
    if model.classes is None:
        return getattr(model, "label_classes", None)
    return model.classes


def as_targets(
    values: object,
    n_rows: int,
    n_outputs: int,
    classes: AnyArray | LabelClasses | None,
    name: str = "y_train",
    rows: str = "training",
    repeated: bool = False,
    missing: bool = False,
) -> FloatArray:
    """Return targets (N, K): numbers, or one-hot for the labels of a classifier.

    Parameters
    ----------
    values : array of shape (N,) or (N, K)
    n_rows, n_outputs : int
        N and K.
    classes : array, LabelClasses or None
        The classes of one label or of several; None for numbers.
    name, rows : str
        The argument and the kind of its rows, for messages.
    repeated : bool
        Whether all outputs have the same targets.
    missing : bool
        Whether targets may be nan.
    """
    if isinstance(classes, LabelClasses):
        return classes.one_hot(values, n_rows, name, rows)
    if classes is not None:
        return one_hot(values, n_rows, classes, name, rows)
    if repeated:
        return np.repeat(as_table(values, n_rows, 1, name, rows), n_outputs, axis=1)
    return as_table(values, n_rows, n_outputs, name, rows, missing)


def as_directory(value: object) -> Path:
    """Return a directory that files can be written to."""
    path = as_path(value, "scratch")
    if not path.is_dir():
        raise InputError(
            f"scratch is {str(path)!r}, which is no directory; expected one that files can be "
            "written to."
        )
    if not os.access(path, os.W_OK):
        raise InputError(
            f"scratch is {str(path)!r}, which cannot be written to; choose another directory."
        )
    return path


def as_path(value: object, name: str = "path") -> Path:
    """Return a path that the system can look up, whether something is there or not."""
    try:
        path = Path(os.fspath(value))  # type: ignore[call-overload]
        if not str(value) or "\0" in str(path):
            raise ValueError("empty, or with a character of code 0")
        os.lstat(path)
    except FileNotFoundError:
        return path
    except TypeError:
        raise InputError(
            f"{name} is a {type(value).__name__}; expected a path: text or a pathlib.Path."
        ) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{name} is {shown(value)}, which cannot be looked up: {reason}. Expected the path of "
            "a file."
        ) from None
    return path


def as_file(value: object, name: str = "path", is_folder: bool = False) -> Path:
    """Return a path that a file can be written to: its directory exists.

    Raises if the path is a directory itself, unless one is to be written (``is_folder``).
    """
    path = as_path(value, name)
    if not path.absolute().parent.is_dir():
        raise InputError(
            f"There is no directory {path.absolute().parent} to write {path.name} to. Make it "
            "first."
        )
    if path.is_dir() and not is_folder:
        raise InputError(
            f"{name} is {str(path)!r}, a directory; expected the name of a file to write."
        )
    return path
