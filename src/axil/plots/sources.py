"""Sources of plots: one prediction out of an explanation, a tidy frame of any library or a plain array."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from numbers import Number
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from axil.arrays import FloatArray, IntArray
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

Columns = dict[str, NDArray[Any]]

EXPECTED = "an axil.Explanation, a frame that axil made or an array"


@dataclass(frozen=True, eq=False)
class Prediction:
    """One prediction: some or all of its n training rows."""

    weights: FloatArray  #: (n,)
    labels: NDArray[Any]  #: (n,)
    targets: FloatArray | None = None  #: (n,) as people read them; unknown of plain arrays
    contributions: FloatArray | None = (
        None  #: (n,) on the scale of the fit; unknown of plain arrays
    )
    intercept: float | None = None
    value: float | None = None  #: the prediction itself, as people read it
    scale: TargetScale = IDENTITY  #: of the fit
    name: str = ""  #: query and output, as the user calls them; empty for plain arrays
    exact: bool = True  #: whether they add up to the prediction
    additive: bool = False  #: whether the weights are pushes, which are contributions themselves
    complete: bool = True  #: whether all training rows are here, not only the largest
    output: int = 0  #: its place among the outputs of an explanation

    @property
    def quantity(self) -> str:
        """Name of its weights."""
        return "contribution" if self.additive else "weight" if self.exact else "derivative"

    @property
    def long_name(self) -> str:
        """Description of its weights, where there is room for it."""
        if self.additive:
            return "contribution to the score"
        return "weight" if self.exact else "derivative of the prediction by the target"


def one_prediction(source: Any, query: Any, output: Any, labels: Any, exact: bool) -> Prediction:
    """The prediction at this position or of this label; ``exact`` is for frames and arrays, which do not say it themselves."""
    exact = as_flag(exact, "exact")
    if isinstance(source, Explanation):
        return _of_explanation(source, query, output, labels)
    if as_frame(source) is not None:
        return _of_frame(source, query, output, labels, exact)
    weights = one_row(source, query, "weights")
    return Prediction(weights, row_labels(labels, len(weights)), exact=exact)


def whole_prediction(source: Any, query: Any, output: Any, exact: bool) -> Prediction:
    """One prediction with all training rows: not out of a frame of the largest."""
    if as_frame(source) is not None:
        raise InputError(
            "A frame holds the largest rows only; pass an axil.Explanation or weights (n_train,)."
        )
    return one_prediction(source, query, output, None, exact)


def _of_explanation(explanation: Explanation, query: Any, output: Any, labels: Any) -> Prediction:
    one = explanation[query_position(query, explanation.query_index)]
    k = _output_of(one, output)
    additive = one.kind == "additive"
    every = one.contributions if additive else one.weights
    weights = every[:, k] if every.ndim == 3 else every
    targets = one.targets if one.targets.ndim == 1 else one.targets[:, k]
    weights = weights.toarray()[0] if issparse(weights) else weights[0]
    return Prediction(
        weights=weights,
        labels=one.index if labels is None else row_labels(labels, len(targets)),
        targets=one.scale.inverse(one.targets).reshape(len(targets), -1)[:, k],
        contributions=weights if additive else weights * targets,
        intercept=float(one.intercepts.ravel()[k]),
        value=float(one.scale.inverse(one.predictions).ravel()[k]),
        scale=one.scale,
        name=_name(one.query_index[0], None if one.outputs is None else one.outputs[k]),
        exact=one.exact or additive,
        additive=additive,
        output=k,
    )


def _output_of(one: Explanation, output: Any) -> int:
    """Where the output of this name stands; by default the class that this prediction is for, which outputs of numbers lack."""
    of_classes = (
        one.outputs is not None and one.data.ndim == 1
    )  # a row has one class, and a number for each output
    if output is None and of_classes:
        return int(np.argmax(one.predictions.ravel()))
    return output_position(output, one.outputs)


def _of_frame(source: Any, query: Any, output: Any, labels: Any, exact: bool) -> Prediction:
    additive = says(source, notes.ADDITIVE)
    values = "contribution" if additive else "weight"
    lines, name = one_query(source, query, output, ("row", values))
    weights = numbers_in(lines, values)
    targets = numbers_in(lines, "target") if "target" in lines else None
    scale, contributions = (
        IDENTITY,
        weights if additive else None if targets is None else weights * targets,
    )
    column, label = labelled(lines, "contribution")
    if label:
        scale, contributions = TargetScale(label), numbers_in(lines, column)
    return Prediction(
        weights=weights,
        labels=lines["row"] if labels is None else row_labels(labels, len(weights)),
        targets=targets,
        contributions=contributions,
        scale=scale,
        name=name,
        exact=exact and not says(source, notes.DERIVATIVE),
        additive=additive,
        complete=False,
    )


def labelled(source: Any, name: str) -> tuple[str, str]:
    """The column of this name, or of this name and a scale, such as "contribution (log)"; and the scale, empty for none.

    Of a frame, or of columns by name; of anything else the name itself.
    """
    for column in source if isinstance(source, dict) else getattr(as_frame(source), "columns", ()):
        if str(column).startswith(f"{name} (") and str(column).endswith(")"):
            return str(column), str(column)[len(name) + 2 : -1]
    return name, ""


def numbers_in(lines: Columns, name: str) -> FloatArray:
    """A column of finite numbers."""
    return as_vector(lines[name], len(lines[name]), f'the column "{name}"', "table")


def says(source: Any, note: str) -> bool:
    """Whether the note of a pandas frame, from `tables.note`, has this in it; other libraries keep none."""
    attrs = getattr(source, "attrs", None)
    return isinstance(attrs, dict) and note in str(attrs.get("axil"))


def one_query(source: Any, query: Any, output: Any, needed: tuple[str, ...]) -> tuple[Columns, str]:
    """The lines of a tidy frame that are of one query and output, column by column, and what to call them."""
    frame = as_frame(source)
    if frame is None:
        raise InputError(
            f"The table is a {type(source).__name__}; expected a pandas, polars or pyarrow frame."
        )
    missing = [name for name in needed if name not in frame.columns]
    if missing:
        raise InputError(
            f"The frame has no column {missing[0]!r}, but {frame.columns[:8]}; expected {list(needed)}."
        )
    columns = {name: column_values(frame[name]) for name in frame.columns}
    label = None
    if "query" in columns:
        found = _distinct(columns["query"])
        label = found[query_position(query, found)]
        columns = _where(columns, "query", label)
    of = None
    if "output" in columns:
        outputs = np.array(_distinct(columns["output"]))
        of = outputs[output_position(output, outputs)]
        columns = _where(columns, "output", of)
    elif output is not None:
        raise InputError(
            f"output is {shown(output)}, but the frame has no column 'output'; leave it out."
        )
    if "rank" in columns and len(set(columns["rank"].tolist())) < len(columns["rank"]):
        raise InputError(
            f"Query {label} stands for several predictions in the frame; give X unique row labels."
        )
    return columns, "" if label is None else _name(label, of)


def one_output(
    source: Any, output: Any, needed: tuple[str, ...], made_by: str
) -> tuple[Columns, Any]:
    """These columns of a table, of one output, the first where none is named; and its name, None for a single one."""
    frame = as_frame(source)
    if frame is None or not set(needed) <= set(frame.columns) or not len(frame):
        raise InputError(
            f"frame is {shown(source)}; expected what {made_by} returns, with at least one row."
        )
    columns = {
        name: column_values(frame[name]) for name in frame.columns if name in (*needed, "output")
    }
    outputs = np.array(_distinct(columns["output"])) if "output" in columns else None
    place = 0 if output is None else output_position(output, outputs)
    if outputs is None:
        return columns, None
    return _where(columns, "output", outputs[place]), outputs[place]


def column_values(series: nw.Series[Any]) -> NDArray[Any]:
    """A column as an array; text and categories as objects."""
    if series.dtype.is_numeric() or series.dtype.is_temporal():
        return np.asarray(series.to_numpy())
    return np.fromiter(series.to_list(), dtype=object)


def _distinct(values: NDArray[Any]) -> list[Any]:
    return list(dict.fromkeys(as_list(values)))


def _where(columns: Columns, name: str, value: Any) -> Columns:
    found = np.array([one == value for one in columns[name]], dtype=bool)
    return {key: values[found] for key, values in columns.items()}


def _name(query: Any, output: Any) -> str:
    return f"Query {text(query)}" + ("" if output is None else f", output {text(output)}")


def output_position(output: Any, outputs: NDArray[Any] | None) -> int:
    """Where the output of this name stands among all; 0 of a single one, which has no name."""
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


def query_position(query: Any, labels: Any) -> int:
    """Return where a prediction stands.

    A whole number that is a position, from the end if negative, is one. All else is a label.
    """
    n = len(labels)
    if is_whole(query) and -n <= query < n:
        return int(query)
    places = (
        [] if query is None else [i for i, label in enumerate(labels) if _is_called(label, query)]
    )
    if not places:
        known = f", or a label such as {shown(text(labels[0]))}" if n else ""
        raise InputError(
            f"query is {shown(query)}; expected a position from 0 to {n - 1}{known}: there are {n} to choose from."
        )
    if len(places) > 1:
        raise InputError(
            f"query is {shown(query)}, which several predictions are called; pass a position: {places[:5]}."
        )
    return places[0]


def _is_called(label: Any, query: Any) -> bool:
    """Whether people would call a label so: dates may be given as text, numbers may not."""
    if isinstance(label, Number) != isinstance(query, Number):
        return False
    try:
        return text(label) == text(query)
    except Exception:  # it cannot be written at all
        return False


def one_row(source: Any, position: int, what: str, name: str = "query") -> FloatArray:
    """(n,): an array itself, or the row at this position, which the user calls ``name``."""
    array = as_numbers(
        source.toarray() if issparse(source) else source,
        "What to draw",
        f"{EXPECTED} (n,) or (m, n)",
    )
    if array.ndim not in (1, 2):
        raise InputError(
            f"What to draw is a {type(source).__name__} of shape {array.shape}; expected {EXPECTED} (n,) or (m, n)."
        )
    rows = np.atleast_2d(array)
    n = len(rows)
    if not is_whole(position) or not -n <= position < n:
        raise InputError(
            f"{name} is {shown(position)}; expected a position from 0 to {n - 1}: there are {n} to choose from."
        )
    array = rows[int(position)]
    if not len(array):
        raise InputError(f"The {what} have no entries; expected one for each training row.")
    return as_vector(array, len(array), what)


def row_labels(labels: Any, n: int) -> NDArray[Any]:
    """(n,): the labels, or positions where there are none."""
    if labels is None:
        return np.arange(n)
    return as_labels(labels, n, "labels", "drawn")


def group_labels(explanation: Explanation, labels: Any) -> Any:
    """(n_train,): the labels, or the values of the feature that a text names."""
    if not isinstance(labels, str):
        return labels
    trained, _ = explanation.column(labels)
    if trained is None:
        raise InputError(
            "The explanation keeps no features of training rows; pass a label for each of them."
        )
    return trained


def along(values: Any, n: int, what: str) -> NDArray[Any] | None:
    """(n,): where rows stand along an axis of numbers or dates, nan and nat where they have none; None if they are text.

    Periods stand at their beginning, and dates with a time zone in UTC.
    """
    found = as_labels(values, n, what)  # a date is as good as a number here
    if found.dtype.kind == "c":
        raise InputError(f"{what} are complex numbers; expected real ones, such as {what}.real.")
    if found.dtype.kind == "m":
        raise InputError(
            f"{what} are spans of time; expected numbers, such as days: {what}.dt.days."
        )
    if found.dtype.kind == "M":
        return found
    known = ~missing(found)
    x = np.full(n, np.nan)
    try:
        x[known] = found[known].astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    else:
        if np.isinf(x).any():
            raise InputError(
                f"{what} has an infinite number; expected finite ones, or nan where there is none."
            )
        return x
    if all(isinstance(value, date) for value in found[known]):
        return as_points(found, what)
    pd = loaded_pandas()
    if pd is not None and all(isinstance(value, pd.Period) for value in found[known]):
        dates = np.full(n, np.datetime64("NaT"), dtype="datetime64[ns]")
        dates[known] = [value.to_timestamp().to_datetime64() for value in found[known]]
        return dates
    return None


def text(label: Any) -> str:
    """A label as people write it: days without hours, parts of a tuple with commas, all on one line."""
    if isinstance(label, tuple):
        return ", ".join(text(part) for part in label)
    if isinstance(label, np.datetime64):
        label = date_text(label)
    return " ".join(str(label).removesuffix(" 00:00:00").split())


def largest(values: FloatArray, k: int) -> IntArray:
    """Where the k largest |values| stand, the largest first."""
    return np.argsort(-np.abs(values), kind="stable")[:k]
