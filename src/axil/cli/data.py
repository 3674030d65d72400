"""Which columns of a table are features, target, weights and labels, checked in the words of the command line."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from axil.adapters import Model
from axil.cli.screen import visible
from axil.cli.table_files import read_table
from axil.errors import LONGEST_VALUE, InputError, meant, shortened, shown

SHOWN = 8  # names in a message
TRIED = 100  # rows that a model predicts to see whether it takes them


@dataclass(frozen=True)
class Roles:
    """Which columns are what, as the user says."""

    target: str
    index: str | None = None
    weights: str | None = None
    features: str | None = (
        None  #: names with commas between them; None: what the model names, else all others
    )
    categorical: str | None = None
    marks: str | None = None
    out_of_fold: str | None = None  #: predictions of the user's own cross-validation
    offset: str | None = None  #: what the fit started from
    others: tuple[str, ...] = ()  #: columns that options name besides, features or not


@dataclass(frozen=True)
class FileRows:
    """Rows of a file as a model takes them; all frames are pandas', labelled by the index that the user chose."""

    path: str
    features: Any  #: (n, p)
    target: Any  #: (n,) or (n, outputs); None for rows that are only asked about
    weights: Any = None  #: (n,)
    targets: list[str] = field(default_factory=list)  #: the names of its columns
    out_of_fold: Any = None  #: (n,) or (n, outputs)
    offset: Any = None  #: (n,)
    others: Any = None  #: (n, ...) all other columns of the file

    @property
    def started(self) -> dict[str, Any]:
        """The offsets of the rows, as questions take them."""
        return {} if self.offset is None else {"init_score": self.offset.to_numpy()}

    def cut(self, some: slice) -> FileRows:
        """Some of the rows, to be asked about."""
        offset = None if self.offset is None else self.offset.iloc[some]
        return replace(self, features=self.features.iloc[some], offset=offset)

    def transformed(self, forward: Any) -> FileRows:
        """The rows with their targets and out-of-fold predictions on the scale of the fit."""
        out_of_fold = None if self.out_of_fold is None else forward(self.out_of_fold)
        return replace(self, target=forward(self.target), out_of_fold=out_of_fold)


class Note(UserWarning):
    """A line beside the answer that asks for nothing."""


def training_rows(path: str, roles: Roles, model: Model) -> FileRows:
    """The training data of a model."""
    import pandas as pd

    known: dict[str, list[Any]] = getattr(
        model, "categories", {}
    )  # of pandas, as the model's own file lists them
    frame = _table(path, roles.index, [name for name, values in known.items() if _are_text(values)])
    targets = _listed(frame, roles.target, path, "--target")
    predicted = (
        []
        if roles.out_of_fold is None
        else _listed(frame, roles.out_of_fold, path, "--out-of-fold")
    )
    single = roles.index, roles.weights, roles.marks, roles.offset
    taken = {*targets, *predicted, *(name for name in single if name)}
    names = _feature_names(frame, roles, model, path, taken)
    target = _target(frame, targets, model, path)
    weights = None if roles.weights is None else _numbers(frame, roles.weights, path, "--weights")
    listed = {name: pd.CategoricalDtype(values) for name, values in known.items() if name in names}
    named = (
        []
        if roles.categorical is None
        else _listed(frame, roles.categorical, path, "--categorical")
    )
    strange = [name for name in named if name not in names]
    if strange:
        raise InputError(
            f"--categorical names {shown(strange[0])}, which is not among the features: {some(names)}."
        )
    features = frame[names].astype(dict.fromkeys(named, "category") | listed)
    _refuse_features(features, model, path)
    out_of_fold = [_numbers(frame, name, path, "--out-of-fold") for name in predicted]
    given = None if not predicted else out_of_fold[0] if len(predicted) == 1 else frame[predicted]
    offset = None if roles.offset is None else _numbers(frame, roles.offset, path, "--offset")
    return FileRows(
        path, features, target, weights, targets, given, offset, frame.drop(columns=names)
    )


def rows_like(
    training: FileRows, path: str, roles: Roles, model: Model, with_target: bool = False
) -> FileRows:
    """Rows of another file with the features of the training data, in the same order and of the same categories."""
    import pandas as pd

    kinds = {
        name: kind
        for name, kind in training.features.dtypes.items()
        if isinstance(kind, pd.CategoricalDtype)
    }
    others = training.features.select_dtypes(exclude="number")
    text = [name for name, column in others.items() if _are_text(column.dropna())]
    frame = _table(path, roles.index, text)
    names = list(training.features.columns)
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise InputError(
            f"{path} lacks {len(missing)} of the {len(names)} features: {some(missing)}. It has {some(frame.columns)}. "
            f"Give it the columns of {training.path}."
        )
    features = frame[names].copy()
    for name, kind in kinds.items():
        _refuse_new_categories(features[name], kind, path, training.path)
        features[name] = features[name].astype(kind)
    _refuse_features(features, model, path)
    offset = None if roles.offset is None else _numbers(frame, roles.offset, path, "--offset")
    rows = FileRows(path, features, None, offset=offset, others=frame.drop(columns=names))
    if not with_target:
        return rows
    for name in training.targets:
        _require(frame, name, path, "--target")
    weights = (
        None
        if roles.weights not in frame
        else _numbers(frame, str(roles.weights), path, "--weights")
    )
    target = _target(frame, training.targets, model, path)
    return replace(rows, target=target, targets=training.targets, weights=weights)


def _table(path: str, index: str | None, text: list[str]) -> Any:
    """The table of a file; labels are text, and so are these columns, such as ZIP codes, whatever this file has of them."""
    return _labelled(read_table(path, text if index is None else [*text, index]), index, path)


def _are_text(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _labelled(frame: Any, index: str | None, path: str) -> Any:
    """The frame with the user's labels for an index, as text, so that 00012 is not 12; several rows may share one.

    The column itself holds numbers where labels are written like them, for comparisons such as --where id>=12.
    """
    import pandas as pd

    if index is None:
        return frame.reset_index(drop=True)
    if index in frame.index.names:  # as pandas keeps it in Parquet
        frame = frame.reset_index()
    _require(frame, index, path, "--index")
    labels = frame[index]
    if labels.isna().any():
        raise InputError(
            f"{path} has no label in column {shown(index)} in row {int(labels.isna().argmax())}; fill it in."
        )
    if pd.api.types.is_string_dtype(labels.dtype):
        numbers = pd.to_numeric(labels, errors="coerce")
        frame[index] = numbers if (numbers.astype(str) == labels).all() else labels
    elif labels.dtype.kind in "iu":  # of Parquet
        labels = labels.astype(str)
    return frame.set_index(labels, drop=False)


def _feature_names(frame: Any, roles: Roles, model: Model, path: str, taken: set[str]) -> list[str]:
    """The features' columns in the order of the fit."""
    if roles.features is not None:
        names = _listed(frame, roles.features, path, "--features")
        both = [name for name in names if name in taken]
        if both:
            raise InputError(
                f"--features names {shown(both[0])}, which is the target, the weights, the marks, the index, the offset or the "
                "out-of-fold predictions. Leave it out."
            )
        return _counted(names, model, "--features names")
    others = [str(name) for name in frame.columns if name not in taken]
    if model.feature_names is None:
        return _counted(others, model, f"Without the target, {path} has")
    spelled = {model.spelling(name): name for name in others}
    used = [
        name
        for name in sorted(taken)
        if name in frame.columns and model.spelling(name) in model.feature_names
    ]
    if used:
        options = {roles.index: "--index", roles.weights: "--weights", roles.marks: "--where"}
        options |= {roles.out_of_fold: "--out-of-fold", roles.offset: "--offset"}
        raise InputError(
            f"The {model.library} model has {used[0]!r} among its features, which {options.get(used[0], '--target')} "
            "names: a column is "
            "one or the other. Name another column, or fit the model again without it."
        )
    missing = [name for name in model.feature_names if name not in spelled]
    if missing:
        raise InputError(
            f"{path} lacks {len(missing)} of the {model.n_features} features of the {model.library} model: {some(missing)}. "
            f"It has {some(others)}. Rename its columns as they were for the fit."
        )
    names = [spelled[name] for name in model.feature_names]
    unused = [name for name in others if name not in names and name not in roles.others]
    if unused:
        warnings.warn(
            f"{path} has columns that are no features of the model: {some(unused)}",
            Note,
            stacklevel=2,
        )
    return names


def _counted(names: list[str], model: Model, what: str) -> list[str]:
    if len(names) != model.n_features:
        raise InputError(
            f"{what} {len(names)} columns ({some(names)}); the {model.library} model was fitted on {model.n_features} and does "
            "not say which. Name those of the fit, in its order, with --features; a column of row labels with --index."
        )
    return names


def _target(frame: Any, names: list[str], model: Model, path: str) -> Any:
    labels = getattr(model, "label_classes", None)
    if labels is not None:
        if len(names) != len(labels.classes):
            raise InputError(
                f"--target names {len(names)} columns ({some(names)}); the model has {len(labels.classes)} labels. "
                "Name one column for each."
            )
        for name in names:
            _filled(frame, name, path, "--target")
        return frame[names]
    if len(names) == 1 and _are_named(frame, names[0], model):
        return _filled(frame, names[0], path, "--target")
    if model.classes is None:
        _require_columns_of_outputs(names, model)
        columns = [_numbers(frame, name, path, "--target") for name in names]
        return columns[0] if len(names) == 1 else frame[names]
    if len(names) != 1:
        raise InputError(f"--target names {len(names)} columns; expected the one with the classes.")
    return _filled(frame, names[0], path, "--target")


def _require_columns_of_outputs(names: list[str], model: Model) -> None:
    """Raise unless there is one column for each output, or one for all quantiles of the same targets."""
    if model.repeats_targets and len(names) != 1:
        raise InputError(
            f"--target names {len(names)} columns ({some(names)}); the model has {model.n_outputs} quantiles of one column. "
            "Name that column."
        )
    if not model.repeats_targets and len(names) != model.n_outputs:
        raise InputError(
            f"--target names {len(names)} columns ({some(names)}); the model has {model.n_outputs} outputs. "
            "Name one column for each."
        )


def _are_named(frame: Any, name: str, model: Model) -> bool:
    """Return whether a column has names of classes, of which the model keeps numbers alone."""
    return (
        bool(getattr(model, "numbered_classes", 0))
        and name in frame
        and _are_text(frame[name].dropna())
    )


def names_of_classes(training: FileRows, model: Model) -> list[str] | None:
    """Return the names of the model's classes in the training data, in sorted order; None where it keeps them, or has none.

    Estimators number classes in this order. The verification of the model shows another.
    """
    n_classes = getattr(model, "numbered_classes", 0)
    if not n_classes or len(training.targets) != 1 or not _are_text(training.target):
        return None
    names = sorted(set(training.target))
    if len(names) != n_classes:
        raise InputError(
            f"Column {shown(training.targets[0])} of {training.path} (--target) holds {len(names)} different texts "
            f"({some(names)}); the model has {n_classes} classes. Name another column, or pass the rows of the fit."
        )
    return names


def _numbers(frame: Any, name: str, path: str, option: str) -> Any:
    """A column of numbers without gaps."""
    column = _filled(frame, name, path, option)
    if not _is_numeric(column):
        raise InputError(
            f"Column {shown(name)} of {path} ({option}) holds {_first_text(column)}; expected numbers. "
            "Name another column, or correct it."
        )
    return column


def marks(frame: Any, name: str, path: str, option: str) -> Any:
    """A column of true and false, or 1 and 0, as bool."""
    column = _numbers(frame, name, path, option)
    odd = ~column.isin([0, 1]).to_numpy()
    if odd.any():
        raise InputError(
            f"Column {shown(name)} of {path} ({option}) holds {shown(column.iloc[int(odd.argmax())])} in row "
            f"{int(odd.argmax())}; expected true or 1 for rows to {'list' if option == '--among' else 'delete'}, false or 0 for "
            "all others."
        )
    return column.astype(bool)


def as_dates(column: Any, path: str, option: str) -> Any:
    """A column of text as dates, written as 2024-03-31; numbers and dates as they are."""
    import pandas as pd

    if column.dtype.kind in "biufM":
        return column
    try:
        return pd.to_datetime(column, format="ISO8601")
    except (ValueError, TypeError):
        odd = column[
            pd.to_datetime(column, format="ISO8601", errors="coerce").isna() & column.notna()
        ]
        raise InputError(
            f"Column {shown(str(column.name))} of {path} ({option}) holds {shown(odd.iloc[0])}; expected numbers, or dates "
            "written as 2024-03-31."
        ) from None


def columns_in_words(training: FileRows) -> str:
    """The columns that the training file has."""
    return f"{training.path} has {some([*training.features.columns, *training.others.columns])}."


def _filled(frame: Any, name: str, path: str, option: str) -> Any:
    _require(frame, name, path, option)
    gaps = frame[name].isna().to_numpy()
    if gaps.any():
        raise InputError(
            f"Column {shown(name)} of {path} ({option}) has no value in {gaps.sum()} of {len(gaps)} rows, "
            f"first in row {gaps.argmax()}. Drop these rows as the fit did, or fill them in."
        )
    return frame[name]


def _refuse_features(features: Any, model: Model, path: str) -> None:
    """Raise for text that the model does not take, and for what the library itself refuses, by predictions of the first rows."""
    import pandas as pd

    for name, column in features.items():
        if not (
            model.takes_text or _is_numeric(column) or isinstance(column.dtype, pd.CategoricalDtype)
        ):
            raise InputError(
                f"Column {shown(name)} of {path} holds {_first_text(column)}; the {model.library} model takes numbers. "
                f"If the fit had it as a pandas category, pass --categorical {shown(name)}; if not, encode it as for the fit."
            )
    try:
        model.predictions(features.head(TRIED))
    except InputError as error:
        raise InputError(
            f"The rows of {path} do not fit: {error} Name those that were pandas categories with --categorical."
        ) from None


def _refuse_new_categories(column: Any, dtype: Any, path: str, train: str) -> None:
    """A value that no training row has would silently count as missing."""
    new = column.dropna()
    new = new[~new.isin(dtype.categories)]
    if len(new):
        raise InputError(
            f"Column {shown(column.name)} of {path} holds {shown(new.iloc[0])} (row {_plain(new.index[0])}), a category that no "
            f"row of {train} has. Leave it empty if it is to count as missing."
        )


def _is_numeric(column: Any) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(column.dtype) or is_bool_dtype(column.dtype))


def _first_text(column: Any) -> str:
    """The first value that is no number, and where it stands."""
    import pandas as pd

    text = column.astype(object)
    odd = (pd.to_numeric(text, errors="coerce").isna() & text.notna()).to_numpy()
    at = int(odd.argmax())
    return f"{shown(text.iloc[at])} in row {at}" if odd.any() else f"values of type {column.dtype}"


def _listed(frame: Any, text: str, path: str, option: str) -> list[str]:
    """Columns named in one word: a single name, which may hold commas, or several with commas between them."""
    names = [text] if text in frame.columns else [name.strip() for name in text.split(",")]
    for name in names:
        _require(frame, name, path, option)
    if len(set(names)) < len(names):
        raise InputError(f"{option} names a column twice: {_plain(text)}. Name each once.")
    return names


def _require(frame: Any, name: str, path: str, option: str) -> None:
    if name not in frame.columns:
        hint = meant(name, frame.columns) or f" Name one of its columns with {option}."
        raise InputError(
            f"{path} has no column {shown(name)} ({option}); it has {some(frame.columns)}.{hint}"
        )


def some(names: Any) -> str:
    """Names for a message, the first few of them."""
    some = ", ".join(_plain(name) for name in list(names)[:SHOWN])
    return f"{some} and {len(names) - SHOWN} more" if len(names) > SHOWN else some or "none"


def _plain(name: Any) -> str:
    """A name or label for a message, on one line and not too long."""
    return shortened(visible(str(name)), LONGEST_VALUE)
