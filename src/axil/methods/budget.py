"""budget: the fewest training targets, each within its range, that move a prediction across a line.

Predictions are linear in the targets, so what row j can add towards the line is the largest of ``k_j (lowest_j - y_j)`` and
``k_j (highest_j - y_j)``, or minus the smallest, whatever the others do. The m rows that can add most are therefore the best m,
and the fewest are counted by sorting. A group of rows adds what its rows add.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from axil import inputs
from axil.arrays import FloatArray, IntArray
from axil.attribution import notes
from axil.errors import InputError, shown
from axil.methods.question import Question, output_columns
from axil.output import tables
from axil.output.predictions import WeightedSums
from axil.replay.exact_model import ExactModel

Groups = tuple[IntArray, NDArray[Any]]

WORK = 5  # arrays of one number per training row, for each query, besides its weights


class BudgetQuestion(Question):
    """The question, as a method of `Explainer`."""

    def budget(
        self,
        X: Any,
        line: Any,
        ranges: Any,
        groups: Any = None,
        listed: bool = False,
        init_score: Any = None,
    ) -> Any:
        """The fewest training targets, each moved within its range, that bring each prediction of X to a line or across it.

        Exact with the structure held fixed: predictions are linear in the targets, so sorting rows
        by the most that each can add towards the line, ``|k_j| * range_j``, is best. A frame with
        the columns query, prediction, fewest (nan: all targets together do not suffice), furthest
        (the prediction with every target moved as far as it helps), and output if there are
        several. Where ``fewest`` is m, no m - 1 wrong or forged targets within these ranges can
        have put the prediction on this side of the line. Streamed: never holds an (n, n_train)
        array.

        With L1, clipped steps or monotone constraints the pattern is held fixed as well
        (``verification.held``). Of a model fitted to transformed targets predictions are in the
        targets' own units, and "change (log)" is on the scale of the fit; line and ranges are given
        as ``y_train`` was.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        line : float
            The number that predictions are to reach.
        ranges : float, array of shape (n_train,) or (n_train, K), or a tuple of two of these
            How far each target may move either way; a tuple: the lowest and the highest value of
            each target.
        groups : sequence of length n_train, or str, optional
            Labels of the training rows, or the name of a column of X_train: the fewest groups whose
            targets all move.
        listed : bool, default False
            List these rows, or groups, instead: query, rank, row, change, and prediction with all
            down to this one moved.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> found = explainer.budget(X.head(2), line=150.0, ranges=20.0)
        >>> list(found.columns)
        ['query', 'prediction', 'fewest', 'furthest']
        """
        asked = self._ask("budget", X, init_score)
        proven = asked.model
        at = proven.on_scale(np.full((1, proven.shape[1]), inputs.as_number(line, "line")), "line")[
            0
        ]
        within = Ranges.of(ranges, proven)
        if groups is None:
            codes = None
        else:
            codes = proven.coded(groups)[0]
        listed = inputs.as_flag(listed, "listed")
        found: list[Crossing] = []
        for part in asked.parts(WORK * 8 * proven.shape[0]):
            found += list(_search_all(part, at, within, codes))
        columns = output_columns("query", asked.queries.labels, proven.outputs)
        if listed:
            sizes = [len(one.players) for one in found]
            columns = {name: np.repeat(values, sizes) for name, values in columns.items()}
        if listed:
            columns |= _listed(proven, found, codes)
        else:
            columns |= _counted(proven, found)
        return tables.note(tables.make(columns, proven.backend), notes.NOTE)


@dataclass(frozen=True)
class Ranges:
    """How far each training target may move, (N, K), on the scale of the fit."""

    down: FloatArray  #: to the lowest target
    up: FloatArray  #: to the highest

    @classmethod
    def of(cls, given: Any, proven: ExactModel) -> Ranges:
        """A number or (N,) of them: either way; a pair: the lowest and the highest targets; all as ``y_train`` was given."""
        if proven.scale.onward is None:
            targets = proven.targets
        else:
            targets = proven.shown
        n, n_outputs = targets.shape
        if isinstance(given, tuple):
            if len(given) != 2:
                raise InputError(
                    f"ranges has {len(given)} parts; expected a pair: the lowest and the highest targets."
                )
            low, high = (_spread(part, n, n_outputs, "ranges") for part in given)
            found = cls._between(low, high, proven)
            for row, k in np.argwhere((targets < low) | (targets > high))[:1]:
                raise InputError(
                    f"The target of training row {shown(proven.index[row])} is {targets[row, k]:.6g}, beyond its range from "
                    f"{low[row, k]:.6g} to {high[row, k]:.6g}; expected ranges that hold the targets, {proven.as_given}."
                )
            return found
        far = _spread(given, n, n_outputs, "ranges")
        if (far < 0).any():
            raise InputError(
                f"ranges has {shown(far.min())}; expected numbers from 0 up: how far each target may move."
            )
        if proven.scale.onward is None:
            return cls(-far, far)
        return cls._between(targets - far, targets + far, proven)

    @classmethod
    def _between(cls, low: FloatArray, high: FloatArray, proven: ExactModel) -> Ranges:
        return cls(*(proven.on_scale(edge, "ranges") - proven.targets for edge in (low, high)))


def _spread(given: Any, n: int, n_outputs: int, what: str) -> FloatArray:
    """(N, K) from one number, (N,) or (N, K)."""
    if isinstance(given, (int, float, np.number)):
        return np.full((n, n_outputs), inputs.as_number(given, what))
    return np.broadcast_to(
        inputs.as_table(given, n, _width(given, n_outputs), what), (n, n_outputs)
    )


def _width(given: Any, n_outputs: int) -> int:
    """How many columns are expected: one for all outputs, unless there are two dimensions."""
    if getattr(given, "ndim", 1) == 2:
        return n_outputs
    return 1


@dataclass(frozen=True)
class Crossing:
    """The answer about one prediction."""

    prediction: float
    furthest: float  #: the prediction with every target moved as far as it helps
    #: the rows or groups that cross the line, those that add most first; none if it cannot be
    #: crossed
    players: IntArray
    added: FloatArray  #: what each of them adds
    crosses: bool


def search(prediction: float, line: float, can_add: FloatArray) -> Crossing:
    """The fewest players that together add ``line - prediction``, where each can add so much towards it, (players,) from 0 up."""
    needed = abs(line - prediction)
    if line > prediction:
        sign = 1.0
    else:
        sign = -1.0
    furthest = prediction + sign * float(can_add.sum())
    none = np.zeros(0, dtype=np.intp)
    if needed == 0:
        return Crossing(prediction, furthest, none, np.zeros(0), True)
    order = np.argsort(-can_add, kind="stable")
    order = order[can_add[order] > 0]
    total = np.cumsum(can_add[order])
    count = int(np.searchsorted(total, needed)) + 1
    if count > len(order):
        return Crossing(prediction, furthest, none, np.zeros(0), False)
    return Crossing(prediction, furthest, order[:count], sign * can_add[order[:count]], True)


def _search_all(
    part: WeightedSums, line: FloatArray, ranges: Ranges, groups: Groups | None
) -> Iterator[Crossing]:
    """The findings for each prediction, output by output."""
    predictions = part.predictions.reshape(len(part.query_index), len(line))
    n, n_outputs = predictions.shape
    for i in range(n):
        for k in range(n_outputs):
            if part.weights.ndim == 3:
                weights = part.weights[k if part.weights.shape[0] > 1 else 0, i]
            else:
                weights = part.weights[[i]]
            row = np.asarray(weights.toarray() if issparse(weights) else weights).ravel()
            if line[k] > predictions[i, k]:
                sign = 1.0
            else:
                sign = -1.0
            can_add = np.maximum(sign * row * ranges.down[:, k], sign * row * ranges.up[:, k])
            if groups is not None:
                can_add = np.bincount(groups[0], can_add, len(groups[1]))
            yield search(float(predictions[i, k]), float(line[k]), can_add)


def _as_read(proven: ExactModel, values: FloatArray, outputs: IntArray) -> FloatArray:
    """(m,): predictions of these outputs on the scale of the fit, as people read them."""
    every = np.repeat(values[:, None], proven.targets.shape[1], axis=1)
    return np.asarray(proven.scale.inverse(every)[np.arange(len(values)), outputs])


def _counted(proven: ExactModel, found: list[Crossing]) -> dict[str, Any]:
    outputs = np.arange(len(found)) % proven.targets.shape[1]
    before = np.array([one.prediction for one in found], dtype=np.float64)
    furthest = np.array([one.furthest for one in found], dtype=np.float64)
    return {
        "prediction": _as_read(proven, before, outputs),
        "fewest": np.array(
            [len(one.players) if one.crosses else np.nan for one in found], dtype=np.float64
        ),
        "furthest": _as_read(proven, furthest, outputs),
    }


def _listed(proven: ExactModel, found: list[Crossing], groups: Groups | None) -> dict[str, Any]:
    def joined(parts: list[Any], dtype: Any) -> NDArray[Any]:
        if parts:
            return np.concatenate(parts)
        return np.zeros(0, dtype=dtype)

    players = joined([one.players for one in found], np.intp).astype(np.intp)
    if groups is None:
        names = proven.index
    else:
        names = groups[1]
    after = joined([one.prediction + np.cumsum(one.added) for one in found], np.float64)
    outputs = (
        joined([np.full(len(one.players), i) for i, one in enumerate(found)], np.intp)
        % proven.targets.shape[1]
    )
    return {
        "rank": joined([np.arange(1, len(one.players) + 1) for one in found], np.int64),
        "row" if groups is None else "group": names[players],
        proven.scale.label("change"): joined([one.added for one in found], np.float64),
        "prediction": _as_read(proven, after, outputs),
    }
