"""Read what plots draw: one prediction of an explanation, a tidy frame or a plain array.

The frame may be of any library.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from numbers import Number
from typing import Any, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np
from scipy.sparse import issparse

from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.attribution import notes
from axil.errors import InputError, date_text, shown
from axil.explanation import Explanation
from axil.inputs import (
    as_flag,
    as_frame,
    as_labels,
    as_list,
    as_numbers,
    as_points,
    as_vector,
    is_whole,
    position_of,
)
from axil.inputs.codes import missing
from axil.inputs.libraries import loaded_pandas
from axil.scale import IDENTITY, TargetScale

Columns: TypeAlias = dict[str, AnyArray]

EXPECTED = "an axil.Explanation, a frame that axil made or an array"


@dataclass(frozen=True, eq=False)
class Prediction:
    """The weights of one prediction, for some or all training rows."""

    weights: FloatArray  #: (n,)
    labels: AnyArray  #: (n,)
    targets: FloatArray | None = None  #: (n,) as people read them; None for plain arrays
    contributions: FloatArray | None = None  #: (n,) on the scale of the fit; None for plain arrays
    intercept: float | None = None
    value: float | None = None  #: the prediction itself, as people read it
    scale: TargetScale = IDENTITY  #: of the fit
    name: str = ""  #: the labels of query and output; "" for plain arrays
    exact: bool = True  #: whether they add up to the prediction
    additive: bool = False  #: whether the weights are contributions
    complete: bool = True  #: whether all training rows are here, not only the largest
    output: int = 0  #: its place among the outputs of an explanation

    @property
    def quantity(self) -> str:
        """The name of its weights."""
        if self.additive:
            return "contribution"
        if self.exact:
            return "weight"
        return "derivative"

    @property
    def long_name(self) -> str:
        """The description of its weights, where there is room for it."""
        if self.additive:
            return "contribution to the score"
        if self.exact:
            return "weight"
        return "derivative of the prediction by the target"


def one_prediction(
    source: Any, query: object, output: object, labels: Any, exact: bool
) -> Prediction:
    """Return the prediction at this position or with this label.

    ``exact`` is for frames and arrays, which do not say whether they hold derivatives.
    """
    exact = as_flag(exact, "exact")
    if isinstance(source, Explanation):
        return _of_explanation(source, query, output, labels)
    if as_frame(source) is not None:
        return _of_frame(source, query, output, labels, exact)
    weights = one_row(source, query, "weights")
    return Prediction(weights, row_labels(labels, len(weights)), exact=exact)


def whole_prediction(source: Any, query: object, output: object, exact: bool) -> Prediction:
    """Return one prediction with all training rows.

    A frame of the largest rows does not have them all.
    """
    if as_frame(source) is not None:
        raise InputError(
            "A frame holds the largest rows only; pass an axil.Explanation or weights (n_train,)."
        )
    return one_prediction(source, query, output, None, exact)


def _of_explanation(
    explanation: Explanation, query: object, output: object, labels: Any
) -> Prediction:
    """Return one prediction of an explanation."""
    single = explanation[query_position(query, explanation.query_index)]
    k = _output_of(single, output)
    is_additive = single.kind == "additive"
    if is_additive:
        weights = single.contributions
    else:
        weights = single.weights
    if weights.ndim == 3:
        weights = weights[:, k]
    if issparse(weights):
        weights = weights.toarray()[0]
    else:
        weights = weights[0]
    targets = single.targets.reshape(len(single.targets), -1)
    readable = single.scale.inverse(single.targets).reshape(targets.shape)
    if single.outputs is None:
        output_name = None
    else:
        output_name = single.outputs[k]
    return Prediction(
        weights=weights,
        labels=single.index if labels is None else row_labels(labels, len(targets)),
        targets=readable[:, k],
        contributions=weights if is_additive else weights * targets[:, k],
        intercept=float(single.intercepts.ravel()[k]),
        value=float(single.scale.inverse(single.predictions).ravel()[k]),
        scale=single.scale,
        name=_name(single.query_index[0], output_name),
        exact=single.exact or is_additive,
        additive=is_additive,
        output=k,
    )


def _output_of(single: Explanation, output: object) -> int:
    """Return the position of an output; the default is the predicted class."""
    # training rows have one class each, and one number for each output
    is_classifier = single.outputs is not None and single.data.ndim == 1
    if output is None and is_classifier:
        return int(np.argmax(single.predictions.ravel()))
    return output_position(output, single.outputs)


def _of_frame(source: Any, query: object, output: object, labels: Any, exact: bool) -> Prediction:
    """Return one prediction of a tidy frame."""
    is_additive = says(source, notes.ADDITIVE)
    if is_additive:
        weight_column = "contribution"
    else:
        weight_column = "weight"
    lines, name = one_query(source, query, output, ("row", weight_column))
    weights = numbers_in(lines, weight_column)
    if "target" in lines:
        targets = numbers_in(lines, "target")
    else:
        targets = None
    scale = IDENTITY
    contributions = None
    contribution_column, scale_name = labelled(lines, "contribution")
    if scale_name:
        scale = TargetScale(scale_name)
        contributions = numbers_in(lines, contribution_column)
    elif is_additive:
        contributions = weights
    elif targets is not None:
        contributions = weights * targets
    return Prediction(
        weights=weights,
        labels=lines["row"] if labels is None else row_labels(labels, len(weights)),
        targets=targets,
        contributions=contributions,
        scale=scale,
        name=name,
        exact=exact and not says(source, notes.DERIVATIVE),
        additive=is_additive,
        complete=False,
    )


def labelled(source: Any, name: str) -> tuple[str, str]:
    """Return the column with this name, possibly with a scale such as "(log)", and the scale.

    ``source`` is a frame or columns by name. The scale is "" without one. If there is no such
    column, the name is returned.
    """
    if isinstance(source, dict):
        columns = list(source)
    else:
        columns = list(getattr(as_frame(source), "columns", ()))
    for column in columns:
        if str(column).startswith(f"{name} (") and str(column).endswith(")"):
            return str(column), str(column)[len(name) + 2 : -1]
    return name, ""


def numbers_in(lines: Columns, name: str) -> FloatArray:
    """Return a column of finite numbers, and raise for other values."""
    return as_vector(lines[name], len(lines[name]), f'the column "{name}"', "table")


def says(source: Any, note: str) -> bool:
    """Return whether the note of a pandas frame contains this text.

    Frames of other libraries have no note.
    """
    attrs = getattr(source, "attrs", None)
    return isinstance(attrs, dict) and note in str(attrs.get("axil"))


def one_query(
    source: Any, query: object, output: object, needed: tuple[str, ...]
) -> tuple[Columns, str]:
    """Return a tidy frame's lines for one explained row and output, and the prediction's name."""
    frame = as_frame(source)
    if frame is None:
        raise InputError(
            f"The table is a {type(source).__name__}; expected a pandas, polars or pyarrow frame."
        )
    for name in needed:
        if name not in frame.columns:
            raise InputError(
                f"The frame has no column {name!r}, but {frame.columns[:8]}; expected "
                f"{list(needed)}."
            )
    columns = {name: column_values(frame[name]) for name in frame.columns}
    label = None
    if "query" in columns:
        labels = _distinct(columns["query"])
        label = labels[query_position(query, labels)]
        columns = _where(columns, "query", label)
    output_name = None
    if "output" in columns:
        outputs = np.array(_distinct(columns["output"]))
        output_name = outputs[output_position(output, outputs)]
        columns = _where(columns, "output", output_name)
    elif output is not None:
        raise InputError(
            f"output is {shown(output)}, but the frame has no column 'output'; leave it out."
        )
    if "rank" in columns and len(set(columns["rank"].tolist())) < len(columns["rank"]):
        raise InputError(
            f"Query {label} stands for several predictions in the frame; give X unique row labels."
        )
    return columns, "" if label is None else _name(label, output_name)


def one_output(
    source: Any, output: object, needed: tuple[str, ...], made_by: str
) -> tuple[Columns, Any]:
    """Return these columns of a table for one output, by default the first, and the output's name.

    The name is None for a table without outputs.
    """
    frame = as_frame(source)
    if frame is None or not set(needed) <= set(frame.columns) or not len(frame):
        raise InputError(
            f"frame is {shown(source)}; expected what {made_by} returns, with at least one row."
        )
    names = [name for name in frame.columns if name in (*needed, "output")]
    columns = {name: column_values(frame[name]) for name in names}
    outputs = None
    if "output" in columns:
        outputs = np.array(_distinct(columns["output"]))
    if output is None:
        place = 0
    else:
        place = output_position(output, outputs)
    if outputs is None:
        return columns, None
    return _where(columns, "output", outputs[place]), outputs[place]


def column_values(series: nw.Series[Any]) -> AnyArray:
    """Return a column as an array, with text and categories as objects."""
    if series.dtype.is_numeric() or series.dtype.is_temporal():
        return np.asarray(series.to_numpy())
    return np.fromiter(series.to_list(), dtype=object)


def _distinct(values: AnyArray) -> list[Any]:
    """Return each value once, in the order of their first appearance."""
    return list(dict.fromkeys(as_list(values)))


def _where(columns: Columns, name: str, value: object) -> Columns:
    """Return the lines where a column has this value."""
    mask = np.array([cell == value for cell in columns[name]], dtype=bool)
    return {key: values[mask] for key, values in columns.items()}


def _name(query: object, output: object) -> str:
    """Return the name of a prediction in titles."""
    if output is None:
        return f"Query {text(query)}"
    return f"Query {text(query)}, output {text(output)}"


def output_position(output: object, outputs: AnyArray | None) -> int:
    """Return the position of an output by its name; 0 for a single output, which has no name."""
    if outputs is None:
        if output is not None:
            raise InputError(
                f"output is {shown(output)}, but there is one output only; leave it out."
            )
        return 0
    names = outputs.tolist()
    if output is None and len(names) == 1:
        return 0
    place = position_of(output, names)
    if place is None:
        raise InputError(f"output is {shown(output)}; expected one of {names[:10]}.")
    return place


def query_position(query: object, labels: Any) -> int:
    """Return the position of a prediction.

    A whole number is a position if it can be one, counted from the end if negative. Everything else
    is a label.
    """
    n = len(labels)
    if is_whole(query) and -n <= query < n:
        return int(query)
    places = []
    if query is not None:
        places = [i for i, label in enumerate(labels) if _has_label(label, query)]
    if not places:
        if n:
            example = f", or a label such as {shown(text(labels[0]))}"
        else:
            example = ""
        raise InputError(
            f"query is {shown(query)}; expected a position from 0 to {n - 1}{example}: there are "
            f"{n} to choose from."
        )
    if len(places) > 1:
        raise InputError(
            f"query is {shown(query)}, which several predictions are called; pass a position: "
            f"{places[:5]}."
        )
    return places[0]


def _has_label(label: object, query: object) -> bool:
    """Return whether a label is the user's: dates may be text, numbers may not."""
    if isinstance(label, Number) != isinstance(query, Number):
        return False
    try:
        return text(label) == text(query)
    except Exception:  # it cannot be written at all
        return False


def one_row(source: Any, position: Any, what: str, name: str = "query") -> FloatArray:
    """Return an array (n,) itself, or the row of an array (m, n) at this position.

    The user calls the position ``name``.
    """
    if issparse(source):
        dense = source.toarray()
    else:
        dense = source
    array = as_numbers(dense, "What to draw", f"{EXPECTED} (n,) or (m, n)")
    if array.ndim not in (1, 2):
        raise InputError(
            f"What to draw is a {type(source).__name__} of shape {array.shape}; expected "
            f"{EXPECTED} (n,) or (m, n)."
        )
    rows = np.atleast_2d(array)
    n = len(rows)
    if not is_whole(position) or not -n <= position < n:
        raise InputError(
            f"{name} is {shown(position)}; expected a position from 0 to {n - 1}: there are {n} to "
            "choose from."
        )
    row = rows[int(position)]
    if not len(row):
        raise InputError(f"The {what} have no entries; expected one for each training row.")
    return as_vector(row, len(row), what)


def row_labels(labels: Any, n: int) -> AnyArray:
    """Return the labels (n,), or positions if there are none."""
    if labels is None:
        return np.arange(n)
    return as_labels(labels, n, "labels", "drawn")


def group_labels(explanation: Explanation, labels: Any) -> Any:
    """Return a label for each training row (n_train,).

    If ``labels`` is text, these are the values of the feature with this name.
    """
    if not isinstance(labels, str):
        return labels
    trained, _ = explanation.column(labels)
    if trained is None:
        raise InputError(
            "The explanation keeps no features of training rows; pass a label for each of them."
        )
    return trained


def along(values: Any, n: int, what: str) -> AnyArray | None:
    """Return positions on an axis of numbers or dates, (n,); None if the values are text.

    Missing values are nan or nat.

    Periods have the position of their beginning, and dates with a time zone are in UTC.
    """
    labels = as_labels(values, n, what)
    if labels.dtype.kind == "c":
        raise InputError(f"{what} are complex numbers; expected real ones, such as {what}.real.")
    if labels.dtype.kind == "m":
        raise InputError(
            f"{what} are spans of time; expected numbers, such as days: {what}.dt.days."
        )
    if labels.dtype.kind == "M":
        return labels
    is_known = ~missing(labels)
    numbers = np.full(n, np.nan)
    try:
        numbers[is_known] = labels[is_known].astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return _date_positions(labels, is_known, what)
    if np.isinf(numbers).any():
        raise InputError(
            f"{what} has an infinite number; expected finite ones, or nan where there is none."
        )
    return numbers


def _date_positions(labels: AnyArray, is_known: BoolArray, what: str) -> AnyArray | None:
    """Return dates or periods as dates (n,), and None for other values."""
    if all(isinstance(value, date) for value in labels[is_known]):
        return as_points(labels, what)
    pandas = loaded_pandas()
    if pandas is None or not all(isinstance(value, pandas.Period) for value in labels[is_known]):
        return None
    dates = np.full(len(labels), np.datetime64("NaT"), dtype="datetime64[ns]")
    dates[is_known] = [value.to_timestamp().to_datetime64() for value in labels[is_known]]
    return dates


def text(label: object) -> str:
    """Return a label on one line: days without hours, tuples with commas."""
    if isinstance(label, tuple):
        return ", ".join(text(element) for element in label)
    if isinstance(label, np.datetime64):
        label = date_text(label)
    return " ".join(str(label).removesuffix(" 00:00:00").split())


def largest(values: FloatArray, k: int) -> IntArray:
    """Return the positions of the k largest |values|, the largest first."""
    return np.argsort(-np.abs(values), kind="stable")[:k]
