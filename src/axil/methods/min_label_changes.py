"""The fewest training targets, each within its bounds, that move a prediction to a threshold.

Predictions are linear in the targets. The most that row j can add towards the threshold is the
largest of ``k_j (lowest_j - y_j)`` and ``k_j (highest_j - y_j)``, or minus the smallest, whatever
the other rows do. The m rows that can add most are therefore the best m, and sorting counts the
fewest. A group of rows adds what its rows add.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from axil import inputs
from axil.aliases import ArrayLike, DataFrame, LabelsLike, TableLike
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.attribution import notes
from axil.errors import InputError, shown
from axil.methods.kinds import exact_model
from axil.methods.method import Method, described, output_columns
from axil.output import tables
from axil.output.predictions import WeightedSums
from axil.output.tables import Predicted
from axil.replay.exact_model import ExactModel

Groups = tuple[IntArray, AnyArray]

_NO_PLAYERS = np.zeros(0, dtype=np.intp)
WORK = 5  # arrays of one number per training row, for each query, besides its weights


class MinLabelChanges(Method):
    """Provide `Explainer.min_label_changes`."""

    def min_label_changes(
        self,
        X: TableLike,
        threshold: ArrayLike,
        bounds: Any,
        *,
        groups: LabelsLike | None = None,
        listed: bool = False,
        init_score: ArrayLike | None = None,
    ) -> DataFrame:
        """Return the fewest training targets that must change to reach a threshold.

        Each target moves within its bounds. The table has the columns query, those of the
        prediction as in `Explainer.top`, fewest (nan: all targets together do not suffice),
        furthest (the prediction with every target moved as far as it helps), and output if there
        are several. If ``fewest`` is m, at least m targets must be wrong for the prediction to
        cross the threshold. For classifiers the probability crosses it, or the score if the table
        has one, and furthest is in the same units.

        The count is exact with the tree structure fixed. With L1, clipped steps or monotone
        constraints the active set is fixed as well; see ``verification.active_set``. For a model
        that was fitted to transformed targets, predictions are in the targets' own units, "change
        (log)" is on the scale of the fit, and you pass threshold and bounds on the scale of
        ``y_train``. No (n, n_train) array is held.

        Parameters
        ----------
        X : table
            The n rows to explain: a frame, an array or a sparse matrix with the columns of the fit.
        threshold : float
            The number that predictions are to reach; for classifiers probabilities, or scores.
        bounds : float, array of shape (n_train,) or (n_train, K), or a tuple of two of these
            How far each target may move either way. A tuple has the lowest and the highest value of
            each target.
        groups : sequence of length n_train, or str, optional
            Labels of the training rows, or the name of a column of X_train. The answer is then the
            fewest groups whose targets all move.
        listed : bool, default False
            Return one line for each of these rows, or groups, with the columns query, rank, row,
            change, and the prediction with all rows down to this one moved. For classifiers the
            last column is the probability, or the score.
        init_score : array of shape (n,) or (n, K), optional
            Offsets of the rows of X, as in `explain`.

        Examples
        --------
        >>> from lightgbm import LGBMRegressor
        >>> from sklearn.datasets import load_diabetes
        >>> from axil import Explainer
        >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
        >>> explainer = Explainer(LGBMRegressor(n_estimators=20, verbose=-1).fit(X, y), X, y)
        >>> table = explainer.min_label_changes(X.head(2), threshold=150.0, bounds=20.0)
        >>> list(table.columns)
        ['query', 'prediction', 'fewest', 'furthest']
        """
        request = self._explained_rows("min_label_changes", X, init_score)
        model = exact_model(request.model)
        threshold = inputs.as_number(threshold, "threshold")
        thresholds = model.scale.checked_forward(
            np.full((1, model.shape[1]), threshold), "threshold"
        )[0]
        room = Room.of(bounds, model)
        if groups is None:
            codes = None
        else:
            codes = model.training.group_codes(groups)[0]
        listed = inputs.as_flag(listed, "listed")
        crossings: list[Crossing] = []
        for sums in request.parts(WORK * 8 * model.shape[0]):
            crossings += list(_search_all(sums, thresholds, room, codes))
        predicted = described(model, request.queries, model.source)
        columns = output_columns("query", request.queries.labels, predicted.outputs)
        if listed:
            sizes = [len(crossing.players) for crossing in crossings]
            columns = {name: np.repeat(values, sizes) for name, values in columns.items()}
            columns |= _listed(model, predicted, crossings, codes)
        else:
            columns |= _counted(model, predicted, crossings)
        return tables.note(tables.make(columns, model.backend), model.note(notes.NOTE))


@dataclass(frozen=True)
class Room:
    """The bounds of the changes of each training target, (N, K), on the scale of the fit."""

    down: FloatArray  #: to the lowest target, 0 or less
    up: FloatArray  #: to the highest target, 0 or more

    @classmethod
    def of(cls, bounds: Any, model: ExactModel) -> Room:
        """Return the changes that the bounds of the user allow, on the scale of the fit."""
        if model.scale.onward is None:
            targets = model.targets
        else:
            targets = model.shown
        n, n_outputs = targets.shape
        if isinstance(bounds, tuple):
            return cls._of_pair(bounds, targets, model)
        distance = _spread(bounds, n, n_outputs, "bounds")
        if (distance < 0).any():
            raise InputError(
                f"bounds has {shown(distance.min())}; expected numbers from 0 up: how far each "
                "target may move."
            )
        if model.scale.onward is None:
            return cls(-distance, distance)
        return cls._between(targets - distance, targets + distance, model)

    @classmethod
    def _of_pair(cls, bounds: tuple[Any, ...], targets: FloatArray, model: ExactModel) -> Room:
        """Return the changes that a lowest and a highest target allow."""
        if len(bounds) != 2:
            raise InputError(
                f"bounds has {len(bounds)} parts; expected a pair: the lowest and the highest "
                "targets."
            )
        n, n_outputs = targets.shape
        low, high = (_spread(bound, n, n_outputs, "bounds") for bound in bounds)
        room = cls._between(low, high, model)
        for row, k in np.argwhere((targets < low) | (targets > high))[:1]:
            raise InputError(
                f"The target of training row {shown(model.index[row])} is {targets[row, k]:.6g}, "
                f"beyond its bounds from {low[row, k]:.6g} to {high[row, k]:.6g}; expected bounds "
                f"that hold the targets, {model.scale.as_given}."
            )
        return room

    @classmethod
    def _between(cls, low: FloatArray, high: FloatArray, model: ExactModel) -> Room:
        return cls(
            *(model.scale.checked_forward(edge, "bounds") - model.targets for edge in (low, high))
        )


def _spread(values: Any, n: int, n_outputs: int, name: str) -> FloatArray:
    """Return one number, (N,) or (N, K) of them as an array (N, K)."""
    if isinstance(values, (int, float, np.number)):
        return np.full((n, n_outputs), inputs.as_number(values, name))
    if getattr(values, "ndim", 1) == 2:
        n_columns = n_outputs
    else:
        n_columns = 1
    return np.broadcast_to(inputs.as_table(values, n, n_columns, name), (n, n_outputs))


@dataclass(frozen=True)
class Crossing:
    """The fewest rows or groups that bring one prediction to the threshold."""

    prediction: float
    furthest: float  #: the prediction with every target moved as far as it helps
    #: the rows or groups that cross the threshold, those that add most first; none if it cannot be
    #: crossed
    players: IntArray
    added: FloatArray  #: by each of them
    crosses: bool


def search(prediction: float, threshold: float, can_add: FloatArray) -> Crossing:
    """Return the fewest players that together add ``threshold - prediction``.

    Parameters
    ----------
    prediction : float
        The prediction with the targets of the fit.
    threshold : float
        The number that it is to reach.
    can_add : array of shape (players,)
        The most that each player can add towards the threshold, 0 or more.
    """
    needed = abs(threshold - prediction)
    sign = _direction(prediction, threshold)
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


def _direction(prediction: float, threshold: float) -> float:
    """Return 1.0 if the prediction must rise to reach the threshold, else -1.0."""
    if threshold > prediction:
        return 1.0
    return -1.0


def _search_all(
    sums: WeightedSums, thresholds: FloatArray, room: Room, groups: Groups | None
) -> Iterator[Crossing]:
    """Yield the crossing of each prediction, output by output."""
    predictions = sums.predictions.reshape(len(sums.query_index), len(thresholds))
    n, n_outputs = predictions.shape
    for i in range(n):
        for k in range(n_outputs):
            weights = _weights_of(sums, i, k)
            sign = _direction(predictions[i, k], thresholds[k])
            can_add = np.maximum(sign * weights * room.down[:, k], sign * weights * room.up[:, k])
            if groups is not None:
                can_add = np.bincount(groups[0], can_add, len(groups[1]))
            yield search(float(predictions[i, k]), float(thresholds[k]), can_add)


def _weights_of(sums: WeightedSums, i: int, k: int) -> FloatArray:
    """Return the weights of all training rows in one prediction, (N,)."""
    if sums.weights.ndim == 2:
        weights = sums.weights[[i]]
    elif sums.weights.shape[0] == 1:
        weights = sums.weights[0, i]
    else:
        weights = sums.weights[k, i]
    if issparse(weights):
        weights = weights.toarray()
    return np.asarray(weights).ravel()


def _counted(
    model: ExactModel, predicted: Predicted, crossings: list[Crossing]
) -> dict[str, AnyArray]:
    """Return the columns of the table with a line for each prediction."""
    n_outputs = model.targets.shape[1]
    before = np.array([crossing.prediction for crossing in crossings], dtype=np.float64)
    furthest = np.array([crossing.furthest for crossing in crossings], dtype=np.float64)
    fewest = np.full(len(crossings), np.nan)
    for i, crossing in enumerate(crossings):
        if crossing.crosses:
            fewest[i] = len(crossing.players)
    columns = predicted.prediction_columns(before.reshape(-1, n_outputs))
    furthest = model.scale.inverse(furthest.reshape(-1, n_outputs)).ravel()
    return columns | {"fewest": fewest, "furthest": furthest}


def _listed(
    model: ExactModel, predicted: Predicted, crossings: list[Crossing], groups: Groups | None
) -> dict[str, AnyArray]:
    """Return the columns of the table with a line for each row or group that moves."""
    players = np.concatenate([_NO_PLAYERS, *(crossing.players for crossing in crossings)])
    ranks = [np.arange(1, len(crossing.players) + 1) for crossing in crossings]
    added = np.concatenate([np.zeros(0), *(crossing.added for crossing in crossings)])
    sums = [crossing.prediction + np.cumsum(crossing.added) for crossing in crossings]
    sizes = [len(crossing.players) for crossing in crossings]
    outputs = np.repeat(np.arange(len(crossings)) % model.targets.shape[1], sizes)
    if groups is None:
        name = "row"
        labels = model.index
    else:
        name = "group"
        labels = groups[1]
    columns = {
        "rank": np.concatenate([np.zeros(0, dtype=np.int64), *ranks]),
        name: labels[players],
        model.scale.label("change"): added,
    }
    return columns | predicted.moved_columns(np.concatenate([np.zeros(0), *sums]), outputs)
