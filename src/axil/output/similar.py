"""Similar: training rows listed beside the rows that they explain, and which of them people allow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.effects.comparables import Allowed, Choice, Compared
from axil.errors import AxilError, InputError, shown
from axil.inputs.copies import owned_rows
from axil.output import comparables, tables
from axil.output.columns import Columns, refuse_other_order
from axil.output.comparables import Predicted

NOT_ADJUSTED = (
    "this model's score is not a weighted sum of targets, so no target can be moved along with it",
    "Leave adjust out, or fit with squared error.",
)  # the reason that adjust gives where targets do not make the prediction, and what to do


@dataclass(frozen=True, eq=False)
class Beside:
    """Training rows and the rows that they are listed beside."""

    known: Columns  #: features and further columns of both
    n_targets: tuple[int, int]  #: (N, K)
    backend: str
    note: str  #: what the numbers are

    @property
    def features(self) -> Any:
        """(N, features): the training rows."""
        return self.known.training[0]

    def choice(
        self, k: Any, among: Any, distinct: Any, sign: Any, within: Any = None, n_threads: int = 1
    ) -> tuple[Choice, Allowed]:
        """The rows that may be listed, checked; see `similar`."""
        count, positive = inputs.as_count(k, "k"), inputs.as_choice(sign, ("any", "positive"), "sign") == "positive"
        near, codes = _near(self.known, within), _codes(self, distinct)
        ranges = None if near is None else near[1:]
        allowed = Allowed(_allowed(self, among), codes, codes, None if near is None else near[0])
        return Choice(count, positive, codes is not None, ranges, n_threads), allowed

    def ranges(self, within: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """(n,) each: the values that rows must have to be listed, where the training rows' own are elsewhere."""
        place, distance = _column(self.known, within)
        (queried,) = self.known.of_queries(np.arange(self.known.queries[0].shape[0]), [place])
        assert queried is not None  # a feature
        return _around(self.known.names[place], queried, distance)


def as_per_class(per_class: Any, is_shared: bool) -> bool:
    """Whether tables have a line for each class, checked: one for all classes needs weights that they share."""
    each = inputs.as_flag(per_class, "per_class")
    if not each and not is_shared:
        raise InputError(
            "per_class=False is for classifiers whose classes share their weights, such as forests; this model has one output, "
            "numbers for targets, or weights for each output. Leave it out."
        )
    return each


def _allowed(beside: Beside, among: Any) -> NDArray[np.intp] | None:
    """The positions of the training rows that a mask, or a function of the training rows, lets through."""
    if among is None:
        return None
    given, what = among, "among"
    if callable(among):
        what = "What the function among returned"
        try:
            given = among(owned_rows(beside.features))  # a copy, whatever the function does to it
        except AxilError:
            raise
        except Exception as error:  # the user's own function
            raise InputError(
                f"among raised {type(error).__name__}: {shown(error, 200)}. Expected a function of the training rows (a "
                f"{type(beside.features).__name__}) that returns a truth value for each."
            ) from error
    refuse_other_order(beside.features, given, "among")
    return np.flatnonzero(inputs.as_mask(given, beside.n_targets[0], what))


def _codes(beside: Beside, distinct: Any) -> NDArray[np.intp] | None:
    """(N,): a number for each label of the training rows; one of its own for a row without a label."""
    if distinct is None:
        return None
    n_train = beside.n_targets[0]
    if isinstance(distinct, str) or inputs.is_whole(distinct):
        known, place = beside.known, beside.known.chosen(distinct, "distinct")
        distinct = known.of_training(np.arange(n_train), place)[0]
        if distinct is None:
            raise InputError(
                f"distinct names {known.names[place[0]]}, which only X has. Add it to the first frame of beside."
            )
    refuse_other_order(beside.features, distinct, "distinct")
    return inputs.label_codes(distinct, n_train, "distinct")


def _column(known: Columns, within: Any) -> tuple[int, Any]:
    """The column that a pair of a column and a distance names, by position, and the distance."""
    if not isinstance(within, (tuple, list)) or len(within) != 2:
        raise InputError(f'within is {shown(within)}; expected a column and a distance, such as ("sale_date", "3Y").')
    column, distance = within
    places = [] if column is None else known.chosen(column, "within")
    if len(places) != 1:
        raise InputError(f"within names {shown(column)}; expected one column.")
    return places[0], distance


def _around(
    name: str, queried: NDArray[Any], distance: Any, *dtypes: np.dtype[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """(n,) each: the ranges that a distance makes around the queries' own values."""
    points = inputs.as_points(queried, f"{name} of X")
    lost = np.flatnonzero(np.isnan(points) if points.dtype.kind == "f" else np.isnat(points))
    if len(lost):
        raise InputError(f"{name} of X has no value in row {lost[0]}; within needs one to measure from. Fill it in.")
    lowest, highest = inputs.interval_around(points, distance, name, (queried.dtype, *dtypes))
    return lowest, highest


def _near(known: Columns, within: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]] | None:
    """A column of the training rows, and the ranges that a distance makes around the queries' own values."""
    if within is None:
        return None
    place, distance = _column(known, within)
    name = known.names[place]
    own, queried = known.of_all(place, "within")
    values, points = inputs.as_points(own, f"{name} of the training rows"), inputs.as_points(queried, f"{name} of X")
    if len(points) and values.dtype.kind != points.dtype.kind:
        kinds = ["numbers" if one.dtype.kind == "f" else "dates" for one in (values, points)]
        raise InputError(
            f"{name} holds {kinds[0]} in the training rows and {kinds[1]} in X; expected the same in both."
        )
    return values, *_around(name, queried, distance, own.dtype)


def listed(
    parts: Iterable[tuple[Predicted, Compared]],
    beside: Beside,
    chosen: list[int],
    per_class: bool,
    features: Callable[[NDArray[np.intp], list[int]], list[Any]],
) -> Any:
    """The table of `similar` from predictions that come batch by batch, with these columns.

    ``features`` has these columns of training rows by position.
    """
    found, summaries, first, adjusted = [], [], 0, False
    for about, compared in parts:
        if not compared.allowed:
            n = beside.n_targets[0]
            raise InputError(f"among allows none of the {n} training rows; expected a mask that is True for some.")
        lines = comparables.listed(about, compared, per_class, first)
        found.append(lines.columns)
        summaries.append(lines.summary)
        adjusted = "residual" in compared.best.columns
        first += len(about.labels)
    made = tables.joined(found)
    of_rows = features(made.pop("position"), chosen)
    return finished(beside, made, tables.joined(summaries), chosen, of_rows, adjusted)


def finished(
    beside: Beside, made: dict[str, Any], summary: dict[str, Any], chosen: list[int], of_rows: list[Any], adjust: bool
) -> Any:
    """The table of the columns of `comparables.listed`, with these features of the rows listed beside those of the queries."""
    known = beside.known
    for i, own, queried in zip(chosen, of_rows, known.of_queries(made.pop("asked"), chosen)):
        both = {f"{known.names[i]} (row)": own, f"{known.names[i]} (query)": queried}
        made |= {name: column for name, column in both.items() if column is not None}
        if own is None or queried is None:
            continue
        if adjust and own.dtype.kind in "iuf" and queried.dtype.kind in "iuf":
            made[f"{known.names[i]} (difference)"] = own.astype(float) - queried.astype(float)
    frame = tables.make(made, beside.backend)
    return _footed(frame, summary, beside) if adjust else tables.note(frame, beside.note)


def _footed(frame: Any, summary: dict[str, Any], beside: Beside) -> Any:
    """The frame, with a footer where its library has a place for one."""
    lines = [dict(zip(summary, line)) for line in zip(*(column.tolist() for column in summary.values()))]
    *_, named = summary
    fitted = named.removeprefix("bias").strip(" ()")
    text = f"{beside.note}; adjusted = target + F(query) - F(row)"
    if fitted:
        text += f", taken on the scale of the fit ({fitted}) and shown in the targets' own units"
    if len(lines) == 1:
        *_, prediction, mean, bias = lines[0].values()
        share, value_share = lines[0]["share"], lines[0].get("value share", np.nan)
        held = "" if np.isnan(value_share) else f" and {value_share:.1%} of the value"
        text += (
            f"; the rows listed hold {share:.1%} of the weight{held}; all {beside.n_targets[0]:,} training rows, adjusted, "
            f"average {mean:.6g} by their weights; the prediction is {prediction:.6g}, the local {named} {bias:.3g}"
        )
    return tables.note(frame, text, comparables=lines)
