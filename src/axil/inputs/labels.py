"""Labels: names of rows, groups and classes, each of which must mean one thing only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from axil.aliases import FeatureTable, ForeignObject
from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.errors import InputError, shown
from axil.inputs import codes
from axil.inputs.libraries import as_native, loaded_pandas
from axil.inputs.numbers import as_array, is_whole, unmasked

NUMBER_KINDS = "biuf"  # of numbers and truth values


def as_labels(
    values: object, n_rows: int, name: str, rows: str = "training", kind: str = "one label"
) -> AnyArray:
    """Return one label per row, (N,); missing ones are None or nan.

    Labels may be of any type that can be compared and written to a file.

    Parameters
    ----------
    values : sequence or array of length N
    n_rows : int
    name : str
        The argument, for messages.
    rows, kind : str
        The kind of the rows and of the values, for messages.
    """
    expected = f"{kind} for each of the {n_rows} {rows} rows"
    try:
        labels = _label_array(unmasked(values, name))
    except (InputError, MemoryError):
        raise
    except Exception as error:  # each kind of array has its own
        raise InputError(
            f"{name} cannot be read as labels ({shown(error, 200)}); expected {expected}."
        ) from None
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.shape != (n_rows,):
        raise InputError(f"{name} has shape {labels.shape}; expected ({n_rows},), {expected}.")
    return distinct_labels(labels, name)


def distinct_labels(labels: AnyArray, name: str) -> AnyArray:
    """Return the labels after checking that they can be told apart.

    Raises for records, for objects that cannot be compared and for text that no file can hold.
    """
    if labels.dtype.kind == "V":
        raise InputError(
            f"{name} has dtype {labels.dtype}; expected labels. Pass one field of the structured "
            "array."
        )
    if labels.dtype.kind not in "OU":
        return labels
    for i, label in enumerate(labels.tolist()):
        try:
            hash(label)
        except Exception:
            kind = type(label).__name__
            raise InputError(
                f"{name} holds a {kind} at position {i}; expected text, numbers or dates."
            ) from None
        levels = (label,)
        if isinstance(label, tuple):
            levels = label
        for level in levels:
            if _has_surrogate(level):
                raise InputError(
                    f"{name} holds {shown(level)} at position {i}, half of a character (a lone "
                    "surrogate), no text for a file. Read the text again in its own encoding."
                )
    return labels


def _has_surrogate(label: object) -> bool:
    """Return whether a label is text with half of a character, which no file can hold."""
    if not isinstance(label, str) or label.isascii():
        return False
    return any("\ud800" <= character <= "\udfff" for character in label)


def _label_array(values: ForeignObject) -> AnyArray:
    """Return the labels in any array or series as an array; missing ones of pandas are None."""
    pd = loaded_pandas()
    native = as_native(values)
    if pd is not None and isinstance(native, (pd.Series, pd.DataFrame)):
        return _without_na(np.asarray(native.to_numpy()))
    if isinstance(native, nw.Series):
        if native.dtype.is_numeric() or native.dtype.is_temporal():
            return as_array(values, "labels")
        return _objects(native.to_list())
    if isinstance(values, (list, tuple)) and any(
        isinstance(label, (tuple, str)) or label is None for label in values
    ):
        return _objects(values)  # NumPy would take tuples apart, and numbers among text for text
    return _without_na(as_array(values, "labels"))


def _without_na(labels: AnyArray) -> AnyArray:
    """Return labels with None for pandas.NA, which cannot be compared with anything."""
    pd = loaded_pandas()
    if pd is None or labels.dtype != object or not labels.ndim:
        return labels
    values = [None if value is pd.NA else value for value in labels.ravel()]
    return _objects(values).reshape(labels.shape)


def _objects(values: Sequence[Any]) -> AnyArray:
    """Return an array of Python objects without conversion."""
    objects = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        objects[i] = value
    return objects


def as_list(labels: AnyArray) -> list[Any]:
    """Return labels (N,) as a list, with dates as dates.

    NumPy's ``tolist`` makes integers of nanoseconds.
    """
    if labels.dtype.kind in "mM":
        return list(labels)
    return labels.tolist()  # type: ignore[no-any-return]


def joined(first: AnyArray, second: AnyArray) -> AnyArray:
    """Return the labels of two lists of rows in one array, with their own types."""
    kinds = {first.dtype.kind, second.dtype.kind}
    if len(kinds) == 1 or kinds <= set("iuf"):
        return np.concatenate([first, second])
    return _objects([*as_list(first), *as_list(second)])


def one_hot(
    labels: object, n_rows: int, classes: AnyArray, name: str = "y_train", rows: str = "training"
) -> FloatArray:
    """Return a one in the column of each row's class, (N, n_classes)."""
    class_labels = as_labels(labels, n_rows, name, rows)
    columns = _columns_by_label(class_labels, classes)
    if (columns < 0).any():
        columns = _in_single(class_labels, classes, columns)
        columns = _by_value(class_labels, classes, columns)
        columns = _by_truth(class_labels, classes, columns)
    unknown = np.flatnonzero(columns < 0)
    if len(unknown):
        raise InputError(
            f"{name} holds {shown(class_labels[unknown[0]])} at position {unknown[0]}; the model "
            f"knows the classes {', '.join(map(str, classes[:5]))}. Pass classes as the fit got "
            "them."
        )
    hot = np.zeros((n_rows, len(classes)))
    hot[np.arange(n_rows), columns] = 1.0
    return hot


def _columns_by_label(labels: AnyArray, classes: AnyArray) -> IntArray:
    """Return the class that equals each label, (N,); -1 if there is none."""
    column_by_key = {key: column for column, key in enumerate(codes.keys(classes))}
    if labels.dtype.kind not in NUMBER_KINDS:  # they may not be sortable
        return np.array([column_by_key.get(key, -1) for key in codes.keys(labels)], dtype=np.intp)
    distinct, label_codes_of_rows = np.unique(labels, return_inverse=True)
    columns = [column_by_key.get(key, -1) for key in codes.keys(distinct)]
    return np.array(columns, dtype=np.intp)[label_codes_of_rows]


def _in_single(labels: AnyArray, classes: AnyArray, columns: IntArray) -> IntArray:
    """Return the class of each label, (N,), for a library that stores classes in float32.

    There 0.1 is 0.10000000149. Returns ``columns`` where labels or classes are no such numbers.
    """
    if labels.dtype.kind != "f" or classes.dtype.kind != "f":
        return columns
    if (classes != classes.astype(np.float32)).any():
        return columns
    column_by_class = {label: column for column, label in enumerate(classes.tolist())}
    rounded = labels.astype(np.float32).astype(np.float64).tolist()
    return np.array([column_by_class.get(label, -1) for label in rounded], dtype=np.intp)


def _by_value(labels: AnyArray, classes: AnyArray, columns: IntArray) -> IntArray:
    """Return the class of each label, (N,), for a library that got the names of classes as text.

    Returns ``columns`` unless labels are numbers and all classes are text of distinct numbers.
    """
    names = classes.tolist()
    if labels.dtype.kind not in NUMBER_KINDS or not _are_texts(names):
        return columns
    try:
        numbers = np.array([float(name) for name in names])
    except ValueError:
        return columns
    if len(np.unique(numbers)) < len(numbers):
        return columns
    column_by_number = dict(zip(numbers.tolist(), range(len(numbers))))
    return np.array([column_by_number.get(float(label), -1) for label in labels], dtype=np.intp)


def _by_truth(labels: AnyArray, classes: AnyArray, columns: IntArray) -> IntArray:
    """Return the class of each label, (N,), for a library that stores truth values as text.

    Returns ``columns`` for other labels and classes.
    """
    names = classes.tolist()
    if labels.dtype.kind != "b" or not _are_texts(names) or set(names) != {"False", "True"}:
        return columns
    column_by_truth = np.array([names.index("False"), names.index("True")], dtype=np.intp)
    return column_by_truth[labels.astype(np.intp)]


def _are_texts(names: list[Any]) -> bool:
    """Return whether all names are text."""
    return all(isinstance(name, str) for name in names)


def group_codes(labels: object, n_rows: int, name: str = "labels") -> tuple[IntArray, AnyArray]:
    """Return each row's group number, and the names of the groups, sorted if they can be."""
    return codes.numbered(as_labels(labels, n_rows, name))


def label_codes(labels: object, n_rows: int, name: str) -> IntArray:
    """Return a number for each label, (N,); every row without a label has a number of its own."""
    values = as_labels(labels, n_rows, name)
    numbers, groups = codes.numbered(values)
    missing_rows = np.flatnonzero(codes.missing(values))
    numbers[missing_rows] = len(groups) + np.arange(len(missing_rows))
    return numbers


def as_mask(values: object, n_rows: int, name: str) -> BoolArray:
    """Return a truth value for each training row, (N,); raises for numbers and missing values."""
    mask = as_labels(values, n_rows, name, kind="True or False")
    contents = ""
    if mask.dtype == object:
        for i, value in enumerate(mask.tolist()):
            if not is_truth(value):
                contents = f"{shown(mask[i])} at position {i}"
                break
    elif mask.dtype.kind != "b":
        contents = f"numbers or text ({mask.dtype})"
    if contents:
        raise InputError(
            f"{name} holds {contents}; expected True or False for each of the {n_rows} training "
            "rows."
        )
    return mask.astype(bool)


def positions(labels: list[Any], index: AnyArray, name: str) -> tuple[IntArray, IntArray]:
    """Return the rows that have one of these labels, label by label.

    A label that several rows share names all of them. True and False are labels only if the
    index has them: they are not the rows 1 and 0. Raises for a label that occurs twice in the list,
    and for one that no row has.

    Returns
    -------
    numbers : array of shape (n_matches,)
        The number of the label of each match.
    rows : array of shape (n_matches,)
        The position of its row.
    """
    distinct = _each_once(labels, name)
    numbers, rows = places_among(distinct, index)
    is_matched = np.bincount(numbers, minlength=len(distinct)) > 0
    _refuse_unknown(labels, is_matched, index, name)
    order = np.argsort(numbers, kind="stable")
    return numbers[order], rows[order]


def named_rows(rows: object, index: AnyArray, name: str = "rows") -> IntArray:
    """Return the positions of the training rows that a user names.

    Parameters
    ----------
    rows : sequence
        Labels, of which one may name several rows; or a truth value for each training row.
    index : array of shape (N,)
        The labels of the training rows.
    name : str
        The argument, for messages.
    """
    labels = listed_labels(rows)
    are_truths = bool(labels) and all(map(is_truth, labels))
    if not are_truths or any(map(is_truth, index.tolist())):  # the index may have truth values
        return positions(labels, index, name)[1]
    mask = as_mask(labels, len(index), name)
    _refuse_other_index(rows, index, name)
    return np.flatnonzero(mask)


def _refuse_other_index(rows: object, index: AnyArray, name: str) -> None:
    """Raise if truth values have the row labels of X_train in another order."""
    pandas_index = _pandas_index(rows)
    if pandas_index is None or not pandas_index.is_unique:
        return
    if np.array_equal(pandas_index.to_numpy(), index):
        return
    if (pandas_index.get_indexer(index) >= 0).all():
        raise InputError(
            f"{name} has the row labels of X_train in another order, and truth values are matched "
            "by position. Pass it with .loc[X_train.index]; or, if it is in the order of X_train "
            "already, without its labels."
        )


def _pandas_index(values: object) -> ForeignObject | None:
    """Return the index of a pandas series or frame; None for everything else."""
    index = getattr(values, "index", None)
    pd = loaded_pandas()
    if pd is None or not isinstance(index, pd.Index):
        return None
    return index


def other_order(X: FeatureTable, y: object) -> IntArray | None:
    """Return the positions of the labels of X in y, (N,), if pandas has them in different orders.

    Returns None if they have no such labels, other labels or the same order.
    """
    X_index = _pandas_index(X)
    y_index = _pandas_index(y)
    if X_index is None or y_index is None:
        return None
    if len(X_index) != len(y_index) or X_index.equals(y_index):
        return None
    if not (X_index.is_unique and y_index.is_unique):
        return None
    places = np.asarray(y_index.get_indexer(X_index), dtype=np.intp)
    # Text of two types is equal and not `equals`.
    is_same_order = np.array_equal(places, np.arange(len(X_index)))
    if is_same_order or (places < 0).any():
        return None
    return places


def refuse_other_order(
    rows: FeatureTable, values: object, name: str, table: str = "X_train", instead: str = ""
) -> None:
    """Raise if values have the labels of these rows in another order: axil matches by position.

    ``table`` names the argument that has the rows, and ``instead`` says what to do.
    """
    if other_order(rows, values) is None:
        return
    if not instead:
        instead = (
            f"Pass it with .loc[{table}.index]; or, if it is in the order of {table} already, "
            "without its labels."
        )
    raise InputError(
        f"{name} has the row labels of {table} in another order, and rows are matched by position. "
        f"{instead}"
    )


def listed_labels(rows: object) -> list[Any]:
    """Return a user's list of labels of training rows."""
    try:
        if not isinstance(rows, (str, bytes)):
            return list(rows)  # type: ignore[call-overload,no-any-return]
    except Exception:  # whatever an object that is no sequence raises
        pass
    raise InputError(f"rows is {shown(rows)}; expected a list of labels of training rows.")


def asked_labels(rows: object) -> AnyArray:
    """Return the user's labels of training rows in other processes, (m,), without repeats.

    See `places_among`.
    """
    return _each_once(listed_labels(rows), "rows")


def _each_once(labels: list[Any], name: str) -> AnyArray:
    """Return labels as an array; raises if one occurs twice."""
    label_array = distinct_labels(_objects(labels), name)
    repeat = codes.repeated(label_array)
    if repeat is not None:
        raise InputError(f"{name} names row {shown(labels[repeat])} twice; expected each row once.")
    return label_array


def places_among(labels: AnyArray, index: AnyArray) -> IntArray:
    """Return the rows of an index that have one of these distinct labels, in the order of the rows.

    Returns
    -------
    array of shape (2, n_matches)
        The number of the label, and the position of the row.
    """
    matches = codes.matching_rows(labels, index)
    is_same_type = [
        is_truth(labels[number]) == is_truth(index[row]) for number, row in matches.T.tolist()
    ]
    return matches[:, is_same_type]


def _refuse_unknown(labels: list[Any], is_matched: BoolArray, index: AnyArray, name: str) -> None:
    """Raise if no row has one of the labels."""
    unknown = [label for label, matched in zip(labels, is_matched) if not matched]
    if not unknown:
        return
    has_positions = index.dtype.kind in "iu" and np.array_equal(index, np.arange(len(index)))
    if has_positions:
        expected = f"positions of training rows, from 0 to {len(index) - 1}"
    else:
        expected = (
            f"labels of training rows, such as {shown(index[0])}: those of index=, or the index of "
            "a pandas X_train"
        )
    raise InputError(
        f"{name} names row {shown(unknown[0])} ({len(unknown)} of {len(labels)} are unknown); "
        f"expected {expected}."
    )


def position_of(label: object, labels: list[Any]) -> int | None:
    """Return the position of a label among others; None if it is missing, as True among 0 and 1."""
    try:
        position_by_label = {(is_truth(entry), entry): i for i, entry in enumerate(labels)}
        return position_by_label.get((is_truth(label), label))
    except Exception:  # it cannot be compared at all
        return None


def is_truth(value: object) -> bool:
    """Return whether a value is True or False."""
    return isinstance(value, (bool, np.bool_))


def as_positions(choice: object, n: int) -> slice | IntArray:
    """Return the positions of some of n predictions.

    ``choice`` is a position, a slice, a list of positions or a truth value for each prediction.
    """
    if is_whole(choice):
        if not -n <= choice < n:
            raise IndexError(f"prediction {shown(choice)} of {n}")
        return np.array([choice], dtype=np.intp)
    if isinstance(choice, slice):
        try:
            choice.indices(n)
        except (TypeError, ValueError):
            raise _no_choice(choice, n) from None
        return choice
    values = _choice_array(choice)
    if values.ndim == 1 and values.dtype.kind in "iu" and ((values >= -n) & (values < n)).all():
        return values.astype(np.intp)
    if values.shape == (n,) and values.dtype.kind == "b":
        return np.flatnonzero(values)
    raise _no_choice(choice, n)


def _choice_array(choice: object) -> AnyArray:
    """Return a list of positions as an array; an array without dimensions for other objects."""
    if isinstance(choice, tuple):  # it would choose along several axes
        return np.empty(())
    try:
        values = np.asarray(unmasked(choice, "The choice of predictions"))
    except (InputError, MemoryError):
        raise
    except Exception:
        return np.empty(())
    if values.shape == (0,):
        return values.astype(np.intp)
    return values


def _no_choice(choice: object, n: int) -> InputError:
    """Return the error for an object that chooses no predictions."""
    return InputError(
        f"predictions are chosen by {shown(choice)}; expected a position below {n}, a slice, a "
        f"list of positions or {n} truth values."
    )
