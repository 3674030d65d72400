"""Rows and columns of the training file as options name them: by label, by a test, by group."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.arrays import BoolArray, FloatArray, IntArray
from axil.cli.data import FileRows, as_dates, as_marks, some
from axil.errors import InputError, shown, suggestion

if TYPE_CHECKING:
    import pandas as pd

Label = str | int  #: of a training row
NewTarget = str | float | list[float]

COMPARISONS = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    "==": operator.eq,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
TEST = re.compile(r"\s*(.+?)\s*(>=|<=|!=|==?|>|<)\s*(.*?)\s*")  # such as year>=2023


def comma_separated(text: str | None) -> list[str]:
    """Return the names between commas; an empty list for None."""
    if text is None:
        return []
    return [name.strip() for name in text.split(",") if name.strip()]


def number_or_word(text: str) -> float | str:
    """Return a number if the text looks like one, otherwise the text."""
    try:
        return float(text)
    except ValueError:
        return text


def labelled_rows(training: FileRows, text: str, option: str) -> list[Label]:
    """Return the labels in a text: a single label, which may hold commas, or several."""
    label_by_text = {str(label): label for label in training.features.index}
    if text in label_by_text:
        texts = [text]
    else:
        texts = [word.strip() for word in text.split(",")]
    for word in texts:
        if word not in label_by_text:
            raise InputError(
                f"{training.path} has no row labelled {shown(word)} ({option}); its labels are "
                f"{some(list(label_by_text))}.{suggestion(word, label_by_text)} Labels are those "
                "of --index, or the numbers of the rows from 0."
            )
    return [label_by_text[word] for word in texts]


def named_rows(training: FileRows, labels: str | None, test: str | None) -> BoolArray:
    """Return the training rows that --rows names or --where marks, (n_train,)."""
    if labels is not None:
        row_labels = labelled_rows(training, labels, "--rows")
        named: BoolArray = training.features.index.isin(inputs.asked_labels(row_labels))
        return named
    rows = marked_rows(training, test or "", "--where")
    if not rows.any():
        raise InputError(f"{test} (--where) is true of no row of {training.path}.")
    return rows


def new_targets(
    training: FileRows,
    texts: list[str],
    classes: NDArray[np.generic] | None,
    forward: Callable[[FloatArray], FloatArray] | None,
) -> dict[Label, NewTarget]:
    """Return new targets by row label.

    Parameters
    ----------
    training : FileRows
        The training rows.
    texts : list of str
        Such as 12=80; for several outputs 12=80:90, for a classifier 12=high.
    classes : array, optional
        The classes of the model.
    forward : callable, optional
        Takes targets from the units of the answers to the scale of the fit.
    """
    target_by_label: dict[Label, NewTarget] = {}
    for text in texts:
        labels, sign, target = (word.strip() for word in text.rpartition("="))
        if not sign or not labels or not target:
            raise InputError(
                f"--set is {shown(text)}; expected a row label and its new target, such as 12=80."
            )
        for label in labelled_rows(training, labels, "--set"):
            if label in target_by_label:
                raise InputError(
                    f"--set names row {shown(str(label))} twice; give it one new target."
                )
            if classes is None:
                target_by_label[label] = _new_numbers(target, len(training.targets), forward)
            else:
                target_by_label[label] = _new_class(target, classes)
    return target_by_label


def _new_class(text: str, classes: NDArray[np.generic]) -> str:
    class_by_text = {str(value): value for value in classes.tolist()}
    if text not in class_by_text:
        raise InputError(
            f"--set gives the class {shown(text)}; the model has {some(list(class_by_text))}."
        )
    class_value: str = class_by_text[text]
    return class_value


def _new_numbers(
    text: str, n_outputs: int, forward: Callable[[FloatArray], FloatArray] | None
) -> float | list[float]:
    try:
        numbers = [float(word) for word in text.split(":")]
    except ValueError:
        numbers = []
    if forward is not None:
        with np.errstate(all="ignore"):
            numbers = forward(np.array(numbers)).tolist()
    is_number = np.isfinite(numbers)
    if forward is None and n_outputs == 2:
        is_number |= np.isposinf(numbers)  # the upper bound of a censored row's time
    if len(numbers) != n_outputs or not is_number.all():
        expected = "a number, such as 12=80"
        if n_outputs > 1:
            expected = f"{n_outputs} numbers, such as 12=80:90"
        if forward is not None:
            expected += f", of which there is a {forward.__name__}"
        raise InputError(f"--set gives the target {shown(text)}; expected {expected}.")
    if n_outputs == 1:
        return numbers[0]
    return numbers


def row_groups(training: FileRows, name: str, cut: str | None) -> tuple[IntArray, NDArray[np.str_]]:
    """Split the training rows by the values of a column, or by bands of it.

    Returns
    -------
    codes : array of shape (n_train,)
        The number of the group of each row.
    names : array of shape (n_groups,)
        The names of the groups, in order.
    """
    import pandas as pd

    column = training.column(name, "--by")
    if cut is None:
        codes, values = pd.factorize(column, sort=True, use_na_sentinel=True)
        names = [_value_name(value) for value in values.tolist()]
    else:
        edges = _edges(cut)
        if column.dtype.kind not in "biuf":
            raise InputError(
                f"--cut needs numbers; column {shown(name)} (--by) is text. Leave --cut out."
            )
        codes = np.searchsorted(edges, column.to_numpy(), side="right")
        codes[column.isna()] = -1
        words = [f"{edge:.10g}" for edge in edges]
        bands = [f"{lower} to {upper}" for lower, upper in pairwise(words)]
        names = [f"below {words[0]}", *bands, f"{words[-1]} and over"]
    codes = np.where(codes < 0, len(names), codes)
    present, codes = np.unique(codes, return_inverse=True)  # a band may be empty
    return codes.astype(np.intp), np.array([*names, "missing"], dtype=object)[present]


def _value_name(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _edges(text: str) -> FloatArray:
    """Return the ends of bands."""
    try:
        edges = np.array([float(word) for word in text.split(",")])
    except ValueError:
        edges = np.array([np.nan])
    if not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
        raise InputError(
            f"--cut is {shown(text)}; expected rising numbers with commas between them, "
            "such as 40,50,60."
        )
    return edges


def marked_rows(training: FileRows, text: str, option: str) -> BoolArray:
    """Return a truth value per training row: a column of marks, or a test such as year>=2023."""
    import pandas as pd

    frame = pd.concat([training.features, training.other_columns], axis=1)
    marks: BoolArray
    if text in frame:
        marks = as_marks(frame, text, training.path, option).to_numpy()
        return marks
    test = TEST.fullmatch(text)
    if test is None or test[1] not in frame:
        raise InputError(
            f"{option} is {shown(text)}; expected a column of true and false, or a comparison such "
            f"as year>=2023. {training.columns_sentence}"
            f"{suggestion(test[1] if test else text, frame.columns)}"
        )
    name, sign, value = test.groups()
    marks = _compared(frame[name], sign, value, training.path, option).to_numpy()
    return marks


def _compared(column: pd.Series, sign: str, value: str, path: str, option: str) -> pd.Series:
    """Compare each value of a column with the value in a test."""
    import pandas as pd

    compare = COMPARISONS[sign]
    if column.dtype.kind in "biuf":
        try:
            number = float(value)
        except ValueError:
            raise InputError(
                f"{option} compares {column.name}, which holds numbers, with {shown(value)}; "
                "expected a number."
            ) from None
        return compare(column, number)
    if sign in ("=", "==", "!="):
        return compare(column.astype(str), value)
    dates = as_dates(column, path, option)
    limits = as_dates(pd.Series([value], name=column.name), path, option)
    return compare(dates, limits.iloc[0])


def tested_column(text: str | None) -> str | None:
    """Return the column of a test: its own name, or the name before the sign."""
    if text is None:
        test = None
    else:
        test = TEST.fullmatch(text)
    if test is None:
        return text
    return test[1]
