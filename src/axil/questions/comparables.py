"""Comparables: the table of `Streamed.similar`, and the rows that people allow in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.errors import AxilError, InputError, shown
from axil.inputs.owned import owned_rows
from axil.output import comparables, tables
from axil.output.comparables import Adjustment, Choice
from axil.replay.mistakes import other_order

if TYPE_CHECKING:
    from axil.questions.streamed import Stream

COPIES = 3  # of a query's weights while some of them are chosen

NOT_ADJUSTED = (
    "the score of this model is a sum of pushes, not of targets, so no target can be moved along with it",
    "Leave adjust out, or fit with squared error and ask axil.Explainer.",
)  # the reason that adjust gives where targets do not make the prediction, and what to do


def allowed(stream: Stream, among: Any) -> NDArray[np.intp] | None:
    """The positions of the training rows that a mask, or a function of the training rows, lets through."""
    if among is None:
        return None
    given, what = among, "among"
    if callable(among):
        what = "What the function among returned"
        try:
            given = among(owned_rows(stream.features))  # a copy, whatever the function does to it
        except AxilError:
            raise
        except Exception as error:  # the user's own function
            raise InputError(
                f"among raised {type(error).__name__}: {shown(error, 200)}. Expected a function of the training rows (a "
                f"{type(stream.features).__name__}) that returns a truth value for each."
            ) from error
    _refuse_other_order(stream, given, "among")
    mask = inputs.as_mask(given, stream.n_targets[0], what)
    if not mask.any():
        raise InputError(f"among allows none of the {len(mask)} training rows; expected a mask that is True for some.")
    return np.flatnonzero(mask)


def codes_of(stream: Stream, distinct: Any) -> NDArray[np.intp] | None:
    """(N,): a number for each label of the training rows; one of its own for a row without a label."""
    if distinct is None:
        return None
    n_train = stream.n_targets[0]
    if isinstance(distinct, str) or inputs.is_whole(distinct):
        place = inputs.chosen_columns(distinct, stream.names(), "distinct")
        distinct = tables.feature_columns(stream.features, np.arange(n_train), place)[0]
    _refuse_other_order(stream, distinct, "distinct")
    return inputs.label_codes(distinct, n_train, "distinct")


def _refuse_other_order(stream: Stream, given: Any, what: str) -> None:
    if other_order(stream.features, given) is not None:
        raise InputError(
            f"{what} has the row labels of X_train in another order, and rows are matched by position. Pass "
            f"{what}.loc[X_train.index]; or, if it is in the order of the fit already, {what}.to_numpy()."
        )


def similar(stream: Stream, choice: Choice, columns: Sequence[Any] | None, adjust: bool) -> Any:
    """The table of `Streamed.similar`."""
    names, n_train = stream.names(), stream.n_targets[0]
    chosen = inputs.chosen_columns(columns, names)
    lines = choice.most(n_train) * stream.n_targets[1]
    more = 0 if choice.is_plain else COPIES * 8 * n_train
    adjustment, parts, summaries, first = None, [], [], 0
    for one in stream.for_table(lines, 13 + 3 * len(chosen), 24 * 8, more):
        if adjust and adjustment is None and stream.fitted is not None:
            adjustment = Adjustment(one.targets.reshape(stream.n_targets) - stream.fitted())
        found = comparables.listed(one, choice, adjustment)
        found.columns["asked"] = found.columns["asked"] + first
        parts.append(found.columns)
        summaries.append(found.summary)
        first += len(one)
    made = tables.joined(parts)
    rows, asked = made.pop("position"), made.pop("asked")
    of_rows = tables.feature_columns(stream.features, rows, chosen)
    of_queries = tables.feature_columns(stream.rows, asked, chosen)
    for i, own, queried in zip(chosen, of_rows, of_queries):
        made |= {f"{names[i]} (row)": own, f"{names[i]} (query)": queried}
        if adjust and own.dtype.kind in "iuf" and queried.dtype.kind in "iuf":
            made[f"{names[i]} (difference)"] = own.astype(float) - queried.astype(float)
    frame = tables.make(made, stream.backend)
    return _footed(frame, tables.joined(summaries), stream) if adjust else tables.note(frame, stream.note)


def _footed(frame: Any, summary: dict[str, Any], stream: Stream) -> Any:
    """The frame, with a footer where its library has a place for one."""
    lines = [dict(zip(summary, line)) for line in zip(*(column.tolist() for column in summary.values()))]
    text = f"{stream.note}; adjusted = target + F(query) - F(row)"
    if len(lines) == 1:
        *_, share, prediction, mean, bias = lines[0].values()
        *_, named = summary
        text += (
            f"; the rows listed hold {share:.1%} of the weight; all {stream.n_targets[0]:,} training rows, adjusted, average "
            f"{mean:.6g} by their weights; the prediction is {prediction:.6g}, the local {named} {bias:.3g}"
        )
    return tables.note(frame, text, comparables=lines)
