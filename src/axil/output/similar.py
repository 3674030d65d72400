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
from axil.output.comparables import Adjustment, Choice
from axil.output.sums import WeightedSums
from axil.replay.mistakes import other_order
from axil.types import Array

NOT_ADJUSTED = (
    "the score of this model is a sum of pushes, not of targets, so no target can be moved along with it",
    "Leave adjust out, or fit with squared error and ask axil.Explainer.",
)  # the reason that adjust gives where targets do not make the prediction, and what to do


@dataclass(frozen=True, eq=False)
class Beside:
    """Training rows and the rows that they are listed beside."""

    features: Any  #: (N, features) the training rows
    rows: Any  #: (n, features) the rows explained
    names: list[str]  #: of the features
    n_targets: tuple[int, int]  #: (N, K)
    backend: str
    note: str  #: what the numbers are
    is_shared: bool = False  #: whether there are classes that share their weights

    def choice(self, k: Any, among: Any, distinct: Any, sign: Any, per_class: Any) -> Choice:
        """The rows that may be listed, checked; see `Streamed.similar`."""
        count, positive = inputs.as_count(k, "k"), inputs.as_choice(sign, ("any", "positive"), "sign") == "positive"
        each = as_per_class(per_class, self.is_shared)
        return Choice(count, _allowed(self, among), _codes(self, distinct), positive, each)


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
    _refuse_other_order(beside, given, "among")
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
        place = inputs.chosen_columns(distinct, beside.names, "distinct")
        distinct = inputs.feature_columns(beside.features, np.arange(n_train), place)[0]
    _refuse_other_order(beside, distinct, "distinct")
    return inputs.label_codes(distinct, n_train, "distinct")


def _refuse_other_order(beside: Beside, given: Any, what: str) -> None:
    if other_order(beside.features, given) is not None:
        raise InputError(
            f"{what} has the row labels of X_train in another order, and rows are matched by position. Pass "
            f"{what}.loc[X_train.index]; or, if it is in the order of the fit already, {what}.to_numpy()."
        )


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
        lines = comparables.listed(one, choice, adjustment)
        lines.columns["asked"] = lines.columns["asked"] + first
        found.append(lines.columns)
        summaries.append(lines.summary)
        first += len(one)
    made = tables.joined(found)
    of_rows = inputs.feature_columns(beside.features, made.pop("position"), chosen)
    return finished(beside, made, tables.joined(summaries), chosen, of_rows, fitted is not None)


def finished(
    beside: Beside, made: dict[str, Any], summary: dict[str, Any], chosen: list[int], of_rows: list[Any], adjust: bool
) -> Any:
    """The table of the columns of `comparables.listed`, with these features of the rows listed beside those of the queries."""
    names, of_queries = beside.names, inputs.feature_columns(beside.rows, made.pop("asked"), chosen)
    for i, own, queried in zip(chosen, of_rows, of_queries):
        made |= {f"{names[i]} (row)": own, f"{names[i]} (query)": queried}
        if adjust and own.dtype.kind in "iuf" and queried.dtype.kind in "iuf":
            made[f"{names[i]} (difference)"] = own.astype(float) - queried.astype(float)
    frame = tables.make(made, beside.backend)
    return _footed(frame, summary, beside) if adjust else tables.note(frame, beside.note)


def _footed(frame: Any, summary: dict[str, Any], beside: Beside) -> Any:
    """The frame, with a footer where its library has a place for one."""
    lines = [dict(zip(summary, line)) for line in zip(*(column.tolist() for column in summary.values()))]
    text = f"{beside.note}; adjusted = target + F(query) - F(row)"
    if len(lines) == 1:
        *_, share, prediction, mean, bias = lines[0].values()
        *_, named = summary
        text += (
            f"; the rows listed hold {share:.1%} of the weight; all {beside.n_targets[0]:,} training rows, adjusted, average "
            f"{mean:.6g} by their weights; the prediction is {prediction:.6g}, the local {named} {bias:.3g}"
        )
    return tables.note(frame, text, comparables=lines)
