"""Similar: training rows listed beside the rows that they explain, and which of them people allow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.errors import AxilError, InputError, shown
from axil.inputs.owned import owned_rows
from axil.output import comparables, tables
from axil.output.columns import Columns, refuse_other_order
from axil.output.comparables import Adjustment, Choice, Within
from axil.output.sums import WeightedSums
from axil.types import Array

NOT_ADJUSTED = (
    "this model's score is not a weighted sum of targets, so no target can be moved along with it",
    "Leave adjust out, or fit with squared error and ask axil.Explainer.",
)  # the reason that adjust gives where targets do not make the prediction, and what to do


@dataclass(frozen=True, eq=False)
class Beside:
    """Training rows and the rows that they are listed beside."""

    known: Columns  #: features and further columns of both
    n_targets: tuple[int, int]  #: (N, K)
    backend: str
    note: str  #: what the numbers are
    is_shared: bool = False  #: whether there are classes that share their weights

    @property
    def features(self) -> Any:
        """(N, features): the training rows."""
        return self.known.training[0]

    def choice(self, k: Any, among: Any, distinct: Any, sign: Any, per_class: Any = True, within: Any = None) -> Choice:
        """The rows that may be listed, checked; see `Streamed.similar`."""
        count, positive = inputs.as_count(k, "k"), inputs.as_choice(sign, ("any", "positive"), "sign") == "positive"
        each = as_per_class(per_class, self.is_shared)
        near = _near(self.known, within)
        return Choice(count, _allowed(self, among), _codes(self, distinct), positive, each, near)


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
    mask = inputs.as_mask(given, beside.n_targets[0], what)
    if not mask.any():
        raise InputError(f"among allows none of the {len(mask)} training rows; expected a mask that is True for some.")
    return np.flatnonzero(mask)


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


def _near(known: Columns, within: Any) -> Within | None:
    """The ranges that a pair of a column and a distance makes around the queries' own values."""
    if within is None:
        return None
    if not isinstance(within, (tuple, list)) or len(within) != 2:
        raise InputError(f'within is {shown(within)}; expected a column and a distance, such as ("sale_date", "3Y").')
    column, distance = within
    places = [] if column is None else known.chosen(column, "within")
    if len(places) != 1:
        raise InputError(f"within names {shown(column)}; expected one column.")
    name = known.names[places[0]]
    own, queried = known.of_all(places[0], "within")
    values, points = inputs.as_points(own, f"{name} of the training rows"), inputs.as_points(queried, f"{name} of X")
    if len(points) and values.dtype.kind != points.dtype.kind:
        kinds = ["numbers" if one.dtype.kind == "f" else "dates" for one in (values, points)]
        raise InputError(
            f"{name} holds {kinds[0]} in the training rows and {kinds[1]} in X; expected the same in both."
        )
    lost = np.flatnonzero(np.isnan(points) if points.dtype.kind == "f" else np.isnat(points))
    if len(lost):
        raise InputError(f"{name} of X has no value in row {lost[0]}; within needs one to measure from. Fill it in.")
    return Within(values, *inputs.interval_around(points, distance, name, (own.dtype, queried.dtype)))


def listed(
    parts: Iterable[WeightedSums],
    beside: Beside,
    choice: Choice,
    chosen: list[int],
    fitted: Callable[[], Array] | None = None,
) -> Any:
    """The table of `Streamed.similar` from predictions that come batch by batch, with these columns.

    ``fitted``: the training rows' own predictions (N, K), for adjusted targets; None leaves them out.
    """
    adjustment, found, summaries, first = None, [], [], 0
    for one in parts:
        if fitted is not None and adjustment is None:
            adjustment = Adjustment(one.targets.reshape(beside.n_targets) - fitted())
        lines = comparables.listed(one, choice, adjustment, first)
        lines.columns["asked"] = lines.columns["asked"] + first
        found.append(lines.columns)
        summaries.append(lines.summary)
        first += len(one)
    made = tables.joined(found)
    of_rows = beside.known.of_training(made.pop("position"), chosen)
    return finished(beside, made, tables.joined(summaries), chosen, of_rows, fitted is not None)


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
