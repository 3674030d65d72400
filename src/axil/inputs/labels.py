"""The gate for labels: names of rows, groups and classes, each of which must mean one thing only."""

from __future__ import annotations

from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from axil.arrays import BoolArray, FloatArray, IntArray
from axil.errors import InputError, shown
from axil.inputs import codes
from axil.inputs.libraries import as_native, loaded_pandas
from axil.inputs.numbers import as_array, is_whole, unmasked


def as_labels(
    values: Any, n_rows: int, what: str, rows: str = "training", kind: str = "one label"
) -> NDArray[Any]:
    """(N,): one label per row, of any kind that can be told apart and written down; missing ones are None or nan."""
    expected = f"{kind} for each of the {n_rows} {rows} rows"
    try:
        found = _plain(unmasked(values, what))
    except (InputError, MemoryError):
        raise
    except Exception as error:  # each kind of array has its own
        raise InputError(
            f"{what} cannot be read as labels ({shown(error, 200)}); expected {expected}."
        ) from None
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.shape != (n_rows,):
        raise InputError(f"{what} has shape {found.shape}; expected ({n_rows},), {expected}.")
    return distinct_labels(found, what)


def distinct_labels(found: NDArray[Any], what: str) -> NDArray[Any]:
    """The labels themselves; refuses records, what cannot be compared and text that no file can hold."""
    if found.dtype.kind == "V":
        raise InputError(
            f"{what} has dtype {found.dtype}; expected labels. Pass one field of the structured array."
        )
    if found.dtype.kind not in "OU":
        return found
    for i, label in enumerate(found.tolist()):
        try:
            hash(label)
        except Exception:
            kind = type(label).__name__
            raise InputError(
                f"{what} holds a {kind} at position {i}; expected text, numbers or dates."
            ) from None
        for text in label if isinstance(label, tuple) else (label,):
            if (
                isinstance(text, str)
                and not text.isascii()
                and any("\ud800" <= sign <= "\udfff" for sign in text)
            ):
                raise InputError(
                    f"{what} holds {shown(text)} at position {i}, half of a character (a lone surrogate), no text for a file. "
                    "Read the text again in its own encoding."
                )
    return found


def _plain(values: Any) -> NDArray[Any]:
    """A numpy array of labels in any array or series; missing ones of pandas are None."""
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
        return _objects(values)  # numpy would take tuples apart, and numbers among text for text
    return _without_na(as_array(values, "labels"))


def _without_na(found: NDArray[Any]) -> NDArray[Any]:
    """Labels with None for pandas.NA, which cannot be compared with anything."""
    pd = loaded_pandas()
    if pd is None or found.dtype != object or not found.ndim:
        return found
    return _objects([None if value is pd.NA else value for value in found.ravel()]).reshape(
        found.shape
    )


def _objects(values: Any) -> NDArray[Any]:
    found = np.empty(len(values), dtype=object)
    for i, value in enumerate(values):
        found[i] = value
    return found


def as_list(labels: NDArray[Any]) -> list[Any]:
    """Return labels (N,) one by one: dates as dates, where NumPy's ``tolist`` makes integers of nanoseconds."""
    if labels.dtype.kind in "mM":
        return list(labels)
    return labels.tolist()  # type: ignore[no-any-return]


def joined(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    """Return the labels of two lists of rows in one array, each as it is, whatever their kinds."""
    kinds = first.dtype.kind + second.dtype.kind
    if len(set(kinds)) == 1 or set(kinds) <= set("iuf"):
        return np.concatenate([first, second])
    return _objects([*as_list(first), *as_list(second)])


def one_hot(
    labels: Any, n_rows: int, classes: NDArray[Any], what: str = "y_train", rows: str = "training"
) -> FloatArray:
    """(N, classes): a one in the column of each row's class."""
    given = as_labels(labels, n_rows, what, rows)
    known = {label: k for k, label in enumerate(codes.keys(classes))}
    # Of numbers each different one is looked up once; others may not be sortable.
    each, which = (
        np.unique(given, return_inverse=True)
        if given.dtype.kind in "biuf"
        else (given, slice(None))
    )
    columns = np.array([known.get(label, -1) for label in codes.keys(each)], dtype=np.intp)[which]
    if (columns < 0).any():
        columns = _in_single(given, classes, columns)
        columns = _by_value(given, classes, columns)
        columns = _by_truth(given, classes, columns)
    unknown = np.flatnonzero(columns < 0)
    if len(unknown):
        raise InputError(
            f"{what} holds {shown(given[unknown[0]])} at position {unknown[0]}; "
            f"the model knows the classes {', '.join(map(str, classes[:5]))}. Pass classes as the fit got them."
        )
    found = np.zeros((n_rows, len(classes)))
    found[np.arange(n_rows), columns] = 1.0
    return found


def _in_single(given: NDArray[Any], classes: NDArray[Any], columns: IntArray) -> IntArray:
    """(N,): the classes of labels that are numbers, where a library keeps classes in float32: 0.1 is 0.10000000149 there."""
    if (
        given.dtype.kind != "f"
        or classes.dtype.kind != "f"
        or (classes != classes.astype(np.float32)).any()
    ):
        return columns
    known = {label: k for k, label in enumerate(classes.tolist())}
    rounded = given.astype(np.float32).astype(np.float64).tolist()
    return np.array([known.get(label, -1) for label in rounded], dtype=np.intp)


def _by_value(given: NDArray[Any], classes: NDArray[Any], columns: IntArray) -> IntArray:
    """Return the class of each label, (N,), where labels are numbers and a library was given the classes' names as text."""
    if given.dtype.kind not in "biuf" or not all(
        isinstance(name, str) for name in classes.tolist()
    ):
        return columns
    try:
        numbers = np.array([float(name) for name in classes.tolist()])
    except ValueError:
        return columns
    if len(np.unique(numbers)) < len(numbers):
        return columns
    columns_by_number = dict(zip(numbers.tolist(), range(len(numbers))))
    return np.array([columns_by_number.get(float(label), -1) for label in given], dtype=np.intp)


def _by_truth(given: NDArray[Any], classes: NDArray[Any], columns: IntArray) -> IntArray:
    """Return the class of each label, (N,), where labels are truth values and a library keeps classes as text."""
    names = classes.tolist()
    if (
        given.dtype.kind != "b"
        or not all(isinstance(name, str) for name in names)
        or set(names) != {"False", "True"}
    ):
        return columns
    columns_by_truth = np.array([names.index("False"), names.index("True")], dtype=np.intp)
    return columns_by_truth[given.astype(np.intp)]


def group_codes(labels: Any, n_rows: int, what: str = "labels") -> tuple[IntArray, NDArray[Any]]:
    """Each row's group number and the groups' names, in sorted order where they can be sorted."""
    return codes.numbered(as_labels(labels, n_rows, what))


def label_codes(labels: Any, n_rows: int, what: str) -> IntArray:
    """(N,): a number for each label; rows without a label have numbers of their own."""
    values = as_labels(labels, n_rows, what)
    found, groups = codes.numbered(values)
    missing = np.flatnonzero(codes.missing(values))
    found[missing] = len(groups) + np.arange(len(missing))
    return found


def as_mask(values: Any, n_rows: int, what: str) -> BoolArray:
    """(N,): a truth value for each training row; numbers, and places where it is missing, are none."""
    found = as_labels(values, n_rows, what, kind="True or False")
    if found.dtype == object:
        truths = [is_truth(value) for value in found.tolist()]
    else:
        truths = [found.dtype.kind == "b"]
    if not all(truths):
        if found.dtype == object:
            first = truths.index(False)
            kind = f"{shown(found[first])} at position {first}"
        else:
            kind = f"numbers or text ({found.dtype})"
        raise InputError(
            f"{what} holds {kind}; expected True or False for each of the {n_rows} training rows."
        )
    return found.astype(bool)


def positions(labels: list[Any], index: NDArray[Any], what: str) -> tuple[IntArray, IntArray]:
    """Which label each row with one of these labels has, and where the row stands; label by label. No label is given twice.

    A label that several rows share names all of them. True and False are labels only where the
    index has them: they are not the rows 1 and 0.
    """
    asked = _each_once(labels, what)
    which, places = places_among(asked, index)
    _refuse_unknown(labels, np.bincount(which, minlength=len(asked)) > 0, index, what)
    order = np.argsort(which, kind="stable")
    return which[order], places[order]


def named_rows(rows: Any, index: NDArray[Any], what: str = "rows") -> IntArray:
    """Where the training rows of a user's list of labels stand, or those that a truth value for each of them marks.

    Of a label that several rows share all of them.
    """
    labels = listed_labels(rows)
    if (
        labels and all(map(is_truth, labels)) and not any(map(is_truth, index.tolist()))
    ):  # else they are labels
        mask = as_mask(labels, len(index), what)
        own: Any = getattr(rows, "index", None)
        is_labelled = (
            hasattr(own, "get_indexer")
            and own.is_unique
            and not np.array_equal(own.to_numpy(), index)
        )
        if is_labelled and (own.get_indexer(index) >= 0).all():
            raise InputError(
                f"{what} has the row labels of X_train in another order, and truth values are matched by position. Pass it with "
                ".loc[X_train.index]; or, if it is in the order of X_train already, without its labels."
            )
        return np.flatnonzero(mask)
    return positions(labels, index, what)[1]


def other_order(X: Any, y: Any) -> IntArray | None:
    """(N,): where the labels of X stand in y, if both are labelled by pandas, alike but for the order."""
    rows: Any = getattr(X, "index", None)
    given: Any = getattr(y, "index", None)
    if not (hasattr(rows, "get_indexer") and hasattr(given, "get_indexer")):
        return None
    if len(rows) != len(given) or rows.equals(given) or not (rows.is_unique and given.is_unique):
        return None
    places = np.asarray(given.get_indexer(rows), dtype=np.intp)
    is_same_order = np.array_equal(
        places, np.arange(len(rows))
    )  # text of two types is equal and not `equals`
    if is_same_order or (places < 0).any():
        return None
    return places


def refuse_other_order(
    rows: Any, given: Any, what: str, of: str = "X_train", instead: str = ""
) -> None:
    """Refuse labels of these rows in another order than theirs: rows are matched by position. ``instead``: what to do."""
    if other_order(rows, given) is not None:
        pass_it = f"Pass it with .loc[{of}.index]; or, if it is in the order of {of} already, without its labels."
        raise InputError(
            f"{what} has the row labels of {of} in another order, and rows are matched by position. {instead or pass_it}"
        )


def listed_labels(rows: Any) -> list[Any]:
    """A user's list of labels of training rows."""
    try:
        if isinstance(rows, (str, bytes)):
            labels = None
        else:
            labels = list(rows)
    except Exception:  # whatever an object that is no sequence raises
        labels = None
    if labels is None:
        raise InputError(f"rows is {shown(rows)}; expected a list of labels of training rows.")
    return labels


def asked_labels(rows: Any) -> NDArray[Any]:
    """(m,): a user's list of labels of training rows that are elsewhere, each of them once; see `places_among`."""
    return _each_once(listed_labels(rows), "rows")


def _each_once(labels: list[Any], what: str) -> NDArray[Any]:
    asked = distinct_labels(_objects(labels), what)
    again = codes.repeated(asked)
    if again is not None:
        raise InputError(f"{what} names row {shown(labels[again])} twice; expected each row once.")
    return asked


def places_among(asked: NDArray[Any], index: NDArray[Any]) -> IntArray:
    """(2, found): which of the labels asked for rows of this index have, and where these rows stand; in their order."""
    found = codes.places(asked, index)
    return found[
        :, [is_truth(asked[which]) == is_truth(index[row]) for which, row in found.T.tolist()]
    ]


def _refuse_unknown(labels: list[Any], known: Any, index: NDArray[Any], what: str) -> None:
    missing = [label for label, there in zip(labels, known) if not there]
    if not missing:
        return
    if index.dtype.kind in "iu" and np.array_equal(
        index, np.arange(len(index))
    ):  # which has no labels of its own
        expected = f"positions of training rows, from 0 to {len(index) - 1}"
    else:
        expected = f"labels of training rows, such as {shown(index[0])}: those of index=, or the index of a pandas X_train"
    raise InputError(
        f"{what} names row {shown(missing[0])} ({len(missing)} of {len(labels)} are unknown); expected {expected}."
    )


def position_of(label: Any, labels: list[Any]) -> int | None:
    """Where one label stands among others; None where it does not, as True among 0 and 1."""
    try:
        place = {(is_truth(known), known): i for i, known in enumerate(labels)}.get(
            (is_truth(label), label)
        )
    except Exception:  # it cannot be compared at all
        return None
    return place


def is_truth(value: Any) -> bool:
    """Whether a value is True or False."""
    return isinstance(value, (bool, np.bool_))


def as_positions(which: Any, n: int) -> slice | IntArray:
    """Some of n predictions: a position, a slice, a list of positions or a truth value for each of them."""
    expected = f"a position below {n}, a slice, a list of positions or {n} truth values"
    if is_whole(which):
        if not -n <= which < n:
            raise IndexError(f"prediction {shown(which)} of {n}")
        return np.array([which], dtype=np.intp)
    if isinstance(which, slice):
        try:
            which.indices(n)
        except (TypeError, ValueError):
            raise InputError(
                f"predictions are chosen by {shown(which)}; expected {expected}."
            ) from None
        return which
    try:  # a tuple would be of several axes
        found = (
            np.empty(())
            if isinstance(which, tuple)
            else np.asarray(unmasked(which, "The choice of predictions"))
        )
    except (InputError, MemoryError):
        raise
    except Exception:
        found = np.empty(())
    found = found.astype(np.intp) if found.shape == (0,) else found
    if found.ndim == 1 and found.dtype.kind in "iu" and ((found >= -n) & (found < n)).all():
        return found.astype(np.intp)
    if found.shape == (n,) and found.dtype.kind == "b":
        return np.flatnonzero(found)
    raise InputError(f"predictions are chosen by {shown(which)}; expected {expected}.")
