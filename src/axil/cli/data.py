"""Columns of a table as features, targets, weights and labels.

The checks use the words of the options.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NoReturn

from axil.adapters import Model
from axil.adapters.contract import TargetForm
from axil.arrays import FloatArray
from axil.cli.screen import visible
from axil.cli.table_files import read_table
from axil.errors import LONGEST_VALUE, InputError, shortened, shown, suggestion

if TYPE_CHECKING:
    import pandas as pd

MOST_NAMES = 8  # in a message
N_TRIED = 100  # rows that a model predicts to see whether it takes them


@dataclass(frozen=True)
class Roles:
    """The roles of the columns, from the options."""

    target: str
    index: str | None = None
    weights: str | None = None
    features: str | None = None  #: names with commas; None: the model's names, else all others
    categorical: str | None = None
    marks: str | None = None  #: the column of --where
    out_of_fold: str | None = None
    offset: str | None = None  #: the initial scores of the fit
    other_columns: tuple[str, ...] = ()  #: further columns that options name, features or not

    @property
    def single_columns(self) -> dict[str, str]:
        """Return the option by the name of the column it names."""
        columns = {
            "--index": self.index,
            "--weights": self.weights,
            "--where": self.marks,
            "--out-of-fold": self.out_of_fold,
            "--offset": self.offset,
        }
        return {name: option for option, name in columns.items() if name}


@dataclass(frozen=True)
class FileRows:
    """The rows of a file in the form that a model takes, with the labels that the user chose."""

    path: str
    features: pd.DataFrame  #: (n, p)
    other_columns: pd.DataFrame  #: all other columns of the file
    target: pd.Series | pd.DataFrame | None = None  #: (n,) or (n, outputs)
    weights: pd.Series | None = None  #: (n,)
    targets: list[str] = field(default_factory=list)  #: the names of the target columns
    out_of_fold: pd.Series | pd.DataFrame | None = None  #: (n,) or (n, outputs)
    offset: pd.Series | None = None  #: (n,)

    @property
    def init_score(self) -> FloatArray | None:
        """Return the offsets of the rows, (n,), in the form of the methods."""
        if self.offset is None:
            return None
        init_score: FloatArray = self.offset.to_numpy()
        return init_score

    @property
    def column_names(self) -> list[str]:
        """Return the names of all columns."""
        return [*self.features.columns, *self.other_columns.columns]

    @property
    def columns_sentence(self) -> str:
        """Return which columns the file has, in words."""
        if not self.column_names:
            return (
                f"{self.path} is a saved explainer, which keeps no columns of the training data. "
                "Give --train and --target in its place."
            )
        return f"{self.path} has {some(self.column_names)}."

    def column(self, name: str, option: str) -> pd.Series:
        """Return a column of the file, whether it is a feature or not."""
        if name in self.features:
            return self.features[name]
        if name not in self.other_columns:
            raise InputError(
                f"{option} names {shown(name)}, which is no column. {self.columns_sentence}"
                f"{suggestion(name, self.column_names)}"
            )
        return self.other_columns[name]

    def part(self, rows: slice) -> FileRows:
        """Return some of the rows to explain."""
        if self.offset is None:
            offset = None
        else:
            offset = self.offset.iloc[rows]
        return replace(self, features=self.features.iloc[rows], offset=offset)

    def transformed(self, forward: Callable[[FloatArray], FloatArray]) -> FileRows:
        """Return the rows with targets and out-of-fold predictions on the scale of the fit."""
        rows = self
        if self.target is not None:
            rows = replace(rows, target=forward(self.target))
        if self.out_of_fold is not None:
            rows = replace(rows, out_of_fold=forward(self.out_of_fold))
        return rows


class Note(UserWarning):
    """A line beside the answer that needs no reaction."""


def read_training_rows(path: str, roles: Roles, model: Model) -> FileRows:
    """Read the training data of a model."""
    import pandas as pd

    # Categories of pandas, as the model's own file lists them
    categories: dict[str, list[object]] = getattr(model, "categories", {})
    text_columns = [name for name, values in categories.items() if _are_text(values)]
    frame = _read_labelled(path, roles.index, text_columns)
    targets = _column_names(frame, roles.target, path, "--target")
    predictions = _column_names(frame, roles.out_of_fold, path, "--out-of-fold")
    reserved = {*targets, *predictions, *roles.single_columns}
    names = _feature_names(frame, roles, model, path, reserved)
    target = _target(frame, targets, model, path)
    weights = _optional_numbers(frame, roles.weights, path, "--weights")
    categorical = _column_names(frame, roles.categorical, path, "--categorical")
    for name in categorical:
        if name not in names:
            raise InputError(
                f"--categorical names {shown(name)}, which is not among the features: "
                f"{some(names)}."
            )
    dtypes = dict.fromkeys(categorical, "category")
    for name, values in categories.items():
        if name in names:
            dtypes[name] = pd.CategoricalDtype(values)
    features = frame[names].astype(dtypes)
    _check_features(features, model, path)
    columns = [_numbers(frame, name, path, "--out-of-fold") for name in predictions]
    out_of_fold = None
    if columns:
        if len(columns) == 1:
            out_of_fold = columns[0]
        else:
            out_of_fold = frame[predictions]
    offset = _optional_numbers(frame, roles.offset, path, "--offset")
    other_columns = frame.drop(columns=names)
    return FileRows(path, features, other_columns, target, weights, targets, out_of_fold, offset)


def rows_of_explainer(path: str, index: Collection[Hashable]) -> FileRows:
    """Return the training rows of a saved explainer, which have labels and no columns."""
    import pandas as pd

    no_columns = pd.DataFrame(index=pd.Index(index))
    return FileRows(path, features=no_columns, other_columns=no_columns)


def feature_template(path: str, roles: Roles, model: Model) -> FileRows:
    """Return no rows, with the features that the model takes, all of them numbers.

    A saved explainer says neither which features are text nor which are pandas categories, so
    models with such features need the training data.
    """
    import pandas as pd

    has_categories = getattr(model, "categories", {}) or getattr(model, "numbers_by_frame", False)
    if model.takes_text or has_categories:
        raise InputError(
            f"This {model.library} model may take text or categories, and {path} does not say "
            "which features hold them. Give --train and --target in its place."
        )
    if roles.features is not None:
        names = [name.strip() for name in roles.features.split(",")]
    else:
        names = list(model.feature_names or [])
    _check_number_of_features(names, model, "Without --train, --features names")
    features = pd.DataFrame(columns=names, dtype=float)
    return FileRows(path, features, other_columns=pd.DataFrame())


def read_rows_like(
    training: FileRows, path: str, roles: Roles, model: Model, with_target: bool = False
) -> FileRows:
    """Read rows of another file with the features and categories of the training data."""
    import pandas as pd

    names = list(training.features.columns)
    text_features = training.features.select_dtypes(exclude="number")
    text_columns = [name for name, column in text_features.items() if _are_text(column.dropna())]
    frame = _read_labelled(path, roles.index, text_columns)
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise InputError(
            f"{path} lacks {len(missing)} of the {len(names)} features: {some(missing)}. It has "
            f"{some(frame.columns)}. Give it the columns of {training.path}."
        )
    features = frame[names].copy()
    for name, dtype in training.features.dtypes.items():
        if isinstance(dtype, pd.CategoricalDtype):
            _check_categories(features[name], dtype, path, training.path)
            features[name] = features[name].astype(dtype)
    _check_features(features, model, path)
    offset = _optional_numbers(frame, roles.offset, path, "--offset")
    rows = FileRows(path, features, other_columns=frame.drop(columns=names), offset=offset)
    if not with_target:
        return rows
    for name in training.targets:
        _require_column(frame, name, path, "--target")
    weights = None
    if roles.weights in frame:
        weights = _optional_numbers(frame, roles.weights, path, "--weights")
    target = _target(frame, training.targets, model, path)
    return replace(rows, target=target, targets=training.targets, weights=weights)


def _read_labelled(path: str, index: str | None, text_columns: list[str]) -> pd.DataFrame:
    """Read a table with the user's labels for an index, as text: 00012 is not 12.

    Several rows may share a label. The column itself holds numbers where labels are written like
    them, for comparisons such as --where id>=12.
    """
    import pandas as pd

    if index is None:
        return read_table(path, text_columns).reset_index(drop=True)
    frame = read_table(path, [*text_columns, index])
    if index in frame.index.names:  # as pandas keeps it in Parquet
        frame = frame.reset_index()
    _require_column(frame, index, path, "--index")
    labels = frame[index]
    if labels.isna().any():
        raise InputError(
            f"{path} has no label in column {shown(index)} in row {int(labels.isna().argmax())}; "
            "fill it in."
        )
    if pd.api.types.is_string_dtype(labels.dtype):
        numbers = pd.to_numeric(labels, errors="coerce")
        if (numbers.astype(str) == labels).all():
            frame[index] = numbers
    elif labels.dtype.kind in "iu":  # of Parquet
        labels = labels.astype(str)
    return frame.set_index(labels, drop=False)


def _feature_names(
    frame: pd.DataFrame, roles: Roles, model: Model, path: str, reserved: set[str]
) -> list[str]:
    """Return the columns of the features in the order of the fit."""
    if roles.features is not None:
        names = _column_names(frame, roles.features, path, "--features")
        for name in names:
            if name in reserved:
                raise InputError(
                    f"--features names {shown(name)}, which is the target, the weights, the marks, "
                    "the index, the offset or the out-of-fold predictions. Leave it out."
                )
        _check_number_of_features(names, model, "--features names")
        return names
    candidates = [str(name) for name in frame.columns if name not in reserved]
    if model.feature_names is None:
        _check_number_of_features(candidates, model, f"Without the target, {path} has")
        return candidates
    for name in sorted(reserved):
        if name in frame.columns and model.spelling(name) in model.feature_names:
            raise InputError(
                f"The {model.library} model has {name!r} among its features, which "
                f"{roles.single_columns.get(name, '--target')} names: a column is one or the "
                "other. Name another column, or fit the model again without it."
            )
    name_by_spelling = {model.spelling(name): name for name in candidates}
    missing = [name for name in model.feature_names if name not in name_by_spelling]
    if missing:
        raise InputError(
            f"{path} lacks {len(missing)} of the {model.n_features} features of the "
            f"{model.library} model: {some(missing)}. It has {some(candidates)}. Rename its "
            "columns as they were for the fit."
        )
    names = [name_by_spelling[name] for name in model.feature_names]
    unused = [name for name in candidates if name not in names and name not in roles.other_columns]
    if unused:
        message = f"{path} has columns that are no features of the model: {some(unused)}"
        warnings.warn(message, Note, stacklevel=2)
    return names


def _check_number_of_features(names: list[str], model: Model, subject: str) -> None:
    if len(names) != model.n_features:
        raise InputError(
            f"{subject} {len(names)} columns ({some(names)}); the {model.library} model was fitted "
            f"on {model.n_features} and does not say which. Name those of the fit, in its order, "
            "with --features; a column of row labels with --index."
        )


def _target(
    frame: pd.DataFrame, names: list[str], model: Model, path: str
) -> pd.Series | pd.DataFrame:
    """Return the targets: numbers for each output, a column of classes, or one of each label."""
    labels = getattr(model, "label_classes", None)
    if labels is not None:
        if len(names) != len(labels.classes):
            _refuse_targets(names, f"the model has {len(labels.classes)} labels", "for each")
        for name in names:
            _require_filled(frame, name, path, "--target")
        return frame[names]
    has_class_names = len(names) == 1 and _has_class_names(frame, names[0], model)
    if has_class_names or (model.classes is not None and len(names) == 1):
        return _require_filled(frame, names[0], path, "--target")
    if model.classes is not None:
        raise InputError(f"--target names {len(names)} columns; expected the one with the classes.")
    _check_number_of_targets(names, model)
    columns = [_numbers(frame, name, path, "--target") for name in names]
    if len(names) == 1:
        return columns[0]
    return frame[names]


def _check_number_of_targets(names: list[str], model: Model) -> None:
    """Raise unless the model takes as many columns of numbers."""
    if model.target_form is TargetForm.BOUNDS:
        if len(names) > 2:
            _refuse_targets(names, "the model has the bounds of a time", "for each")
    elif model.repeats_targets:
        if len(names) != 1:
            _refuse_targets(names, f"the model has {model.n_outputs} quantiles of one column")
    elif len(names) != model.n_outputs:
        _refuse_targets(names, f"the model has {model.n_outputs} outputs", "for each")


def _refuse_targets(names: list[str], outputs: str, per: str = "") -> NoReturn:
    if per:
        advice = f"Name one column {per}."
    else:
        advice = "Name that column."
    raise InputError(f"--target names {len(names)} columns ({some(names)}); {outputs}. {advice}")


def _has_class_names(frame: pd.DataFrame, name: str, model: Model) -> bool:
    """Return whether a column has class names where the model knows only class numbers."""
    has_numbers_only = bool(getattr(model, "numbered_classes", 0))
    return has_numbers_only and name in frame and _are_text(frame[name].dropna())


def class_names(training: FileRows, model: Model) -> list[str] | None:
    """Return the sorted class names of the training data; None if the model has names.

    Estimators number classes in this order. The verification of the model notices another.
    """
    n_classes = getattr(model, "numbered_classes", 0)
    if not n_classes or len(training.targets) != 1 or training.target is None:
        return None
    if not _are_text(training.target):
        return None
    names = sorted(set(training.target))
    if len(names) != n_classes:
        raise InputError(
            f"Column {shown(training.targets[0])} of {training.path} (--target) holds {len(names)} "
            f"different texts ({some(names)}); the model has {n_classes} classes. Name another "
            "column, or pass the rows of the fit."
        )
    return names


def _optional_numbers(
    frame: pd.DataFrame, name: str | None, path: str, option: str
) -> pd.Series | None:
    if name is None:
        return None
    return _numbers(frame, name, path, option)


def _numbers(frame: pd.DataFrame, name: str, path: str, option: str) -> pd.Series:
    """Return a column of numbers without gaps."""
    column = _require_filled(frame, name, path, option)
    if not _is_numeric(column):
        raise InputError(
            f"Column {shown(name)} of {path} ({option}) holds {_first_text(column)}; expected "
            "numbers. Name another column, or correct it."
        )
    return column


def as_marks(frame: pd.DataFrame, name: str, path: str, option: str) -> pd.Series:
    """Return a column of true and false, or 1 and 0, as bool."""
    column = _numbers(frame, name, path, option)
    is_odd = ~column.isin([0, 1]).to_numpy()
    if is_odd.any():
        row = int(is_odd.argmax())
        if option == "--among":
            purpose = "list"
        else:
            purpose = "delete"
        raise InputError(
            f"Column {shown(name)} of {path} ({option}) holds {shown(column.iloc[row])} in row "
            f"{row}; expected true or 1 for rows to {purpose}, false or 0 for all others."
        )
    return column.astype(bool)


def as_dates(column: pd.Series, path: str, option: str) -> pd.Series:
    """Return text such as 2024-03-31 as dates; numbers and dates stay as they are."""
    import pandas as pd

    if column.dtype.kind in "biufM":
        return column
    try:
        return pd.to_datetime(column, format="ISO8601")
    except (ValueError, TypeError):
        dates = pd.to_datetime(column, format="ISO8601", errors="coerce")
        first_odd = column[dates.isna() & column.notna()].iloc[0]
        raise InputError(
            f"Column {shown(str(column.name))} of {path} ({option}) holds {shown(first_odd)}; "
            "expected numbers, or dates written as 2024-03-31."
        ) from None


def _require_filled(frame: pd.DataFrame, name: str, path: str, option: str) -> pd.Series:
    """Return a column that has a value in every row."""
    _require_column(frame, name, path, option)
    is_missing = frame[name].isna().to_numpy()
    if is_missing.any():
        raise InputError(
            f"Column {shown(name)} of {path} ({option}) has no value in {is_missing.sum()} of "
            f"{len(is_missing)} rows, first in row {is_missing.argmax()}. Drop these rows as the "
            "fit did, or fill them in."
        )
    return frame[name]


def _check_features(features: pd.DataFrame, model: Model, path: str) -> None:
    """Refuse text that the model does not accept, and rows that the library cannot predict."""
    import pandas as pd

    for name, column in features.items():
        is_categorical = isinstance(column.dtype, pd.CategoricalDtype)
        if not (model.takes_text or is_categorical or _is_numeric(column)):
            raise InputError(
                f"Column {shown(name)} of {path} holds {_first_text(column)}; the {model.library} "
                "model takes numbers. If the fit had it as a pandas category, pass --categorical "
                f"{shown(name)}; if not, encode it as for the fit."
            )
    try:
        model.predictions(features.head(N_TRIED))
    except InputError as error:
        raise InputError(
            f"The rows of {path} do not fit: {error} Name those that were pandas categories with "
            "--categorical."
        ) from None


def _check_categories(
    column: pd.Series, dtype: pd.CategoricalDtype, path: str, training_path: str
) -> None:
    """Refuse a value that no training row has: it would silently count as missing."""
    values = column.dropna()
    new_values = values[~values.isin(dtype.categories)]
    if len(new_values):
        raise InputError(
            f"Column {shown(column.name)} of {path} holds {shown(new_values.iloc[0])} (row "
            f"{_plain(new_values.index[0])}), a category that no row of {training_path} has. "
            "Leave it empty if it is to count as missing."
        )


def _are_text(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_numeric(column: pd.Series) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(column.dtype) or is_bool_dtype(column.dtype))


def _first_text(column: pd.Series) -> str:
    """Return the first value that is not a number, with its row, for a message."""
    import pandas as pd

    values = column.astype(object)
    is_text = (pd.to_numeric(values, errors="coerce").isna() & values.notna()).to_numpy()
    if not is_text.any():
        return f"values of type {column.dtype}"
    row = int(is_text.argmax())
    return f"{shown(values.iloc[row])} in row {row}"


def _column_names(frame: pd.DataFrame, text: str | None, path: str, option: str) -> list[str]:
    """Return the columns in a text: a single name, which may hold commas, or several."""
    if text is None:
        return []
    if text in frame.columns:
        names = [text]
    else:
        names = [name.strip() for name in text.split(",")]
    for name in names:
        _require_column(frame, name, path, option)
    if len(set(names)) < len(names):
        raise InputError(f"{option} names a column twice: {_plain(text)}. Name each once.")
    return names


def _require_column(frame: pd.DataFrame, name: str, path: str, option: str) -> None:
    if name not in frame.columns:
        hint = suggestion(name, frame.columns) or f" Name one of its columns with {option}."
        raise InputError(
            f"{path} has no column {shown(name)} ({option}); it has {some(frame.columns)}.{hint}"
        )


def some(names: Collection[Hashable]) -> str:
    """Return the first few names for a message."""
    text = ", ".join(_plain(name) for name in list(names)[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        return f"{text} and {len(names) - MOST_NAMES} more"
    return text or "none"


def _plain(name: object) -> str:
    """Return a name or label for a message, on one line and not too long."""
    return shortened(visible(str(name)), LONGEST_VALUE)
