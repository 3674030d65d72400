"""Collect the content of a batch of pages as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from axil.arrays import AnyArray, BoolArray, FloatArray, IntArray
from axil.methods.method import ExplainedRows
from axil.output import comparables, site_map
from axil.output.shown_columns import Columns
from axil.output.site_map import Places, Sheets
from axil.output.tables import Predicted
from axil.reductions.choice import Compared
from axil.report.grid import GridPlan, Split
from axil.scale import TargetScale

RAISED = 0.1  # pages say what happens if targets are higher by this share


@dataclass(frozen=True, eq=False)
class Extras:
    """Things that pages show beside the numbers of the model."""

    columns: Columns
    chosen: list[int]  #: columns shown, by position
    commas_from: list[float]  #: for each of them, the size from which numbers have commas
    n_train: int
    is_restricted: bool  #: whether some training rows may not be listed
    date_column: int | None  #: the column with the dates of the rows
    dates: AnyArray | None  #: (n,) the dates of the estimates
    places: Places | None  #: for maps
    suspects: BoolArray | None  #: (N,) training rows to mark
    are_targets_checked: bool = False  #: whether suspects were looked for, or named by the user
    hidden: frozenset[int] = frozenset()  #: columns that no page shows, by position
    stability: FloatArray | None = None  #: (n,) how far real refits move the estimates
    grid: GridPlan | None = None  #: how adjustments are split
    at_least: int = 1  #: how many rows a page needs
    rule_texts: Sequence[str] = ()  #: which rows may be listed, in words
    approximate: str = ""  #: what axil warns of as an approximation, in words

    @property
    def names(self) -> list[str]:
        """The names of the columns shown."""
        return [self.columns.names[i] for i in self.chosen]


@dataclass(frozen=True, eq=False)
class Cases:
    """The content of m pages.

    The listed rows of prediction i are the lines ``starts[i]`` to ``starts[i + 1]``.
    """

    positions: IntArray  #: (m,) of the predictions, in X
    values: FloatArray  #: (m,) the model's own predictions, as people read them
    #: (m,) increase of the prediction if the targets of all listed rows were raised; nan if unknown
    joint_effects: FloatArray
    starts: IntArray  #: (m + 1,)
    rows: AnyArray  #: (lines,) labels
    effects: FloatArray  #: (lines,) increase of the prediction if this target were raised
    targets: FloatArray  #: (lines,) as people read them
    adjusted: FloatArray  #: (lines,) targets that the model moves to the explained row
    is_suspect: BoolArray  #: (lines,) targets that look wrong
    #: (lines,) shares of trees in which both rows share a leaf; None where effects choose the rows
    similarity: FloatArray | None
    row_columns: list[AnyArray | None]  #: (lines,) each, of the training rows
    query_columns: list[AnyArray | None]  #: (m,) each
    maps: Sheets | None  #: (m, k)
    extras: Extras
    split: Split | None = None  #: the adjustments by feature
    interval: tuple[FloatArray, FloatArray] | None = None  #: (m,) each

    def __len__(self) -> int:
        return len(self.positions)

    def lines(self, i: int) -> range:
        """Return the lines of the rows listed for prediction i."""
        return range(int(self.starts[i]), int(self.starts[i + 1]))


def cases(
    explained: ExplainedRows,
    predicted: Predicted,
    compared: Compared,
    positions: IntArray,
    values: FloatArray,
    k: int,
    extras: Extras,
) -> Cases:
    """Return the content of the pages on a batch of predictions.

    Parameters
    ----------
    explained : ExplainedRows
        The m rows.
    predicted : Predicted
        Their predictions.
    compared : Compared
        The training rows to list beside each of them, k at most.
    positions : ndarray of shape (m,)
        The positions of the explained rows in X.
    values : ndarray of shape (m,)
        The predictions in the user's units.
    k : int
        The number of rows per page.
    extras : Extras
        Things to show besides.
    """
    lines = comparables.listed(predicted, compared).columns
    rows = lines["position"]
    starts = np.searchsorted(lines["asked"], np.arange(len(predicted.labels) + 1))
    effects, joint_effects = raised(
        predicted.scale, np.asarray(lines["weight"]), np.asarray(lines["target"]), values, starts
    )
    is_suspect = np.zeros(len(rows), dtype=bool)
    if extras.suspects is not None:
        is_suspect = extras.suspects[rows]
    query_columns = extras.columns.of_queries(positions, extras.chosen)
    for j, column in enumerate(extras.chosen):
        if column == extras.date_column:  # an estimate is of a date; nothing was sold on it
            query_columns[j] = None
    split = None
    if extras.grid is not None:
        split = extras.grid.split(explained, lines["asked"], rows, extras.columns, positions)
    return Cases(
        positions=positions,
        values=values,
        joint_effects=joint_effects,
        starts=starts,
        rows=lines["row"],
        effects=effects,
        targets=lines["target"],
        adjusted=lines["adjusted"],
        is_suspect=is_suspect,
        similarity=lines.get("similarity"),
        row_columns=extras.columns.of_training(rows, extras.chosen),
        query_columns=query_columns,
        maps=None if extras.places is None else _maps(extras.places, lines, positions, k),
        extras=extras,
        split=split,
    )


def _maps(places: Places, lines: dict[str, AnyArray], positions: IntArray, k: int) -> Sheets:
    """Return a map for each prediction, with its listed rows at their ranks."""
    rows = np.full((len(positions), k), -1, dtype=np.intp)
    weights = np.zeros((len(positions), k))
    cells = (lines["asked"], lines["rank"] - 1)
    rows[cells] = lines["position"]
    weights[cells] = lines["weight"]
    return site_map.sheets(places, positions, rows, weights)


def raised(
    scale: TargetScale,
    weights: FloatArray,
    targets: FloatArray,
    values: FloatArray,
    starts: IntArray,
) -> tuple[FloatArray, FloatArray]:
    """Return the rise of predictions if targets were higher by the share `RAISED`.

    This is exact with the tree structure fixed, for targets on their own scale and for logarithms.
    It is nan on other scales.

    Parameters
    ----------
    scale : TargetScale
        The scale of the fit.
    weights, targets : ndarray of shape (lines,)
        The weights of the listed rows, and their targets in the user's units.
    values : ndarray of shape (m,)
        The predictions.
    starts : ndarray of shape (m + 1,)
        The first line of each prediction.

    Returns
    -------
    effects : ndarray of shape (lines,)
        Of each target alone.
    joint_effects : ndarray of shape (m,)
        Of the targets of all listed rows.
    """
    prediction_of_line = np.repeat(np.arange(len(values)), np.diff(starts))
    sums = np.zeros(len(values))
    if scale.is_log:
        steps = weights * np.log1p(RAISED * targets / (targets + scale.shift))
        np.add.at(sums, prediction_of_line, steps)
        shifted = values + scale.shift
        return shifted[prediction_of_line] * np.expm1(steps), shifted * np.expm1(sums)
    if scale.is_identity:
        steps = RAISED * weights * np.abs(targets)
    else:
        steps = np.full(len(prediction_of_line), np.nan)
    np.add.at(sums, prediction_of_line, steps)
    return steps, sums
