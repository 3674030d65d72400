"""Training rows as options name them: by label, with new targets, and by group."""

from __future__ import annotations

import operator
import re
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray, IntArray
from axil.cli.data import FileRows, as_dates, columns_in_words, marks, some
from axil.errors import InputError, meant, shown

COMPARED = {
    ">=": operator.ge,
    "<=": operator.le,
    "!=": operator.ne,
    "=": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
TEST = re.compile(r"\s*(.+?)\s*(>=|<=|!=|==?|>|<)\s*(.*?)\s*")  # such as year>=2023


def labelled_rows(training: FileRows, text: str, option: str) -> list[Any]:
    """The labels of training rows named in one word: a single one, which may hold commas, or several with commas between them."""
    known = {str(label): label for label in training.features.index}
    names = [text] if text in known else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise InputError(
                f"{training.path} has no row labelled {shown(name)} ({option}); its labels are {some(list(known))}."
                f"{meant(name, known)} Labels are those of --index, or the numbers of the rows from 0."
            )
    return [known[name] for name in names]


def new_targets(training: FileRows, given: list[str], classes: Any, forward: Any) -> dict[Any, Any]:
    """New targets by row label, from words such as 12=80; of several outputs 12=80:90, of a classifier 12=high.

    ``forward`` leads from the units of answers, in which they are given, to the scale of the fit.
    """
    found: dict[Any, Any] = {}
    for text in given:
        name, sign, value = (word.strip() for word in text.rpartition("="))
        if not sign or not name or not value:
            raise InputError(
                f"--set is {shown(text)}; expected a row label and its new target, such as 12=80."
            )
        for label in labelled_rows(training, name, "--set"):
            if label in found:
                raise InputError(
                    f"--set names row {shown(str(label))} twice; give it one new target."
                )
            found[label] = _target(value, len(training.targets), classes, forward)
    return found


def _target(text: str, n_outputs: int, classes: Any, forward: Any) -> Any:
    if classes is not None:
        known = {str(one): one for one in classes.tolist()}
        if text not in known:
            raise InputError(
                f"--set gives the class {shown(text)}; the model has {some(list(known))}."
            )
        return known[text]
    words = text.split(":")
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        numbers = []
    if forward is not None:
        with np.errstate(all="ignore"):
            numbers = forward(np.array(numbers)).tolist()
    if len(numbers) != n_outputs or not np.isfinite(numbers).all():
        expected = (
            "a number, such as 12=80"
            if n_outputs == 1
            else f"{n_outputs} numbers, such as 12=80:90"
        )
        whose = "" if forward is None else f", of which there is a {forward.__name__}"
        raise InputError(f"--set gives the target {shown(text)}; expected {expected}{whose}.")
    return numbers[0] if n_outputs == 1 else numbers


def listed(text: str | None) -> list[str]:
    """Names with commas between them; none of None."""
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]


def number_or_word(text: str) -> float | str:
    """A number where the text looks like one."""
    try:
        return float(text)
    except ValueError:
        return text


def column_of(rows: FileRows, name: str, option: str) -> Any:
    """A column of a file, be it a feature or not."""
    whole = rows.features if name in rows.features else rows.others
    if whole is None or name not in whole:
        known = [*rows.features.columns, *([] if rows.others is None else rows.others.columns)]
        raise InputError(
            f"{option} names {shown(name)}, which is no column. {columns_in_words(rows)}{meant(name, known)}"
        )
    return whole[name]


def groups(training: FileRows, name: str, cut: str | None) -> tuple[IntArray, NDArray[Any]]:
    """(N,): the number of each training row's group, and the names of the groups in order: values of a column, or bands of it."""
    import pandas as pd

    column = column_of(training, name, "--by")
    if cut is None:
        codes, values = pd.factorize(column, sort=True, use_na_sentinel=True)
        names = [
            str(int(v)) if isinstance(v, float) and v.is_integer() else str(v)
            for v in values.tolist()
        ]
    else:
        edges = _edges(cut)
        if column.dtype.kind not in "biuf":
            raise InputError(
                f"--cut needs numbers; column {shown(name)} (--by) is text. Leave --cut out."
            )
        codes = np.searchsorted(edges, column.to_numpy(), side="right")
        codes[column.isna()] = -1
        words = [f"{edge:.10g}" for edge in edges]
        names = [
            f"below {words[0]}",
            *(f"{a} to {b}" for a, b in pairwise(words)),
            f"{words[-1]} and over",
        ]
    codes = np.where(codes < 0, len(names), codes)
    present, codes = np.unique(codes, return_inverse=True)  # a band may be empty
    return codes.astype(np.intp), np.array([*names, "missing"], dtype=object)[present]


def _edges(text: str) -> FloatArray:
    try:
        edges = np.array([float(word) for word in text.split(",")])
    except ValueError:
        edges = np.array([np.nan])
    if not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
        raise InputError(
            f"--cut is {shown(text)}; expected rising numbers with commas between them, such as 40,50,60."
        )
    return edges


def mask(training: FileRows, text: str, option: str) -> Any:
    """A truth value for each training row: of a column of marks, or of a comparison such as year>=2023."""
    import pandas as pd

    whole = pd.concat([training.features, training.others], axis=1)
    if text in whole:
        return marks(whole, text, training.path, option).to_numpy()
    found = TEST.fullmatch(text)
    if found is None or found[1] not in whole:
        raise InputError(
            f"{option} is {shown(text)}; expected a column of true and false, or a comparison such as year>=2023. "
            f"{columns_in_words(training)}{meant(found[1] if found else text, whole.columns)}"
        )
    column, compare, value = whole[found[1]], COMPARED[found[2].replace("==", "=")], found[3]
    if column.dtype.kind in "biuf":
        try:
            return compare(column, float(value)).to_numpy()
        except ValueError:
            raise InputError(
                f"{option} compares {found[1]}, which holds numbers, with {shown(value)}; expected a number."
            ) from None
    if found[2] in ("=", "==", "!="):
        return compare(column.astype(str), value).to_numpy()
    dates, line = (
        as_dates(one, training.path, option) for one in (column, pd.Series([value], name=found[1]))
    )
    return compare(dates, line.iloc[0]).to_numpy()


def tested(text: str | None) -> str | None:
    """The column that a test is about: its own name, or what stands before the sign."""
    found = None if text is None else TEST.fullmatch(text)
    return text if found is None else found[1]
