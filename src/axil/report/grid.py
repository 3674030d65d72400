"""The sales comparison grid of a page: the adjustment of each listed row, split over features.

It has one column per comparable and one line per feature, as appraisers use it. The amounts are
those of `Explainer.adjustments`. They lead from the target of a listed row to its adjusted target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from axil import inputs
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.errors import InputError, UnsupportedQuestionError
from axil.methods.adjustments import amounts_of, as_groups, in_percent, pairs_of
from axil.methods.feature_differences import FeatureGroups, differences
from axil.methods.method import ExplainedRows, take
from axil.output import site_map
from axil.output.shown_columns import Columns
from axil.output.site_map import Places
from axil.report.wording import Words, commas_from, percent, row_name
from axil.scale import TargetScale

if TYPE_CHECKING:
    from axil.report.content import Cases

PLACE = "Location"  # the group of the two columns of a map
LEAST_SHARE = 0.01  # of the estimate; a feature that moves every target less has no line of its own
MOST_LINES = 12  # features with a line of their own
PER_GRID = 5  # listed rows beside each other
PROBES = 5  # pairs that are split before the first page is written
FeatureNames = Mapping[str, Sequence[str | int]]


@dataclass(frozen=True, eq=False)
class GridPlan:
    """The plan of a report for splitting adjustments over features."""

    groups: FeatureGroups
    commas_from: list[float]  #: for each feature, the size from which its numbers have commas
    place: int | None  #: the group that holds the columns of the map
    is_required: bool  #: whether the user asked for it

    def split(
        self,
        explained: ExplainedRows,
        queries: IntArray,
        rows: IntArray,
        columns: Columns,
        positions: IntArray,
    ) -> Split | None:
        """Return the adjustments of pairs of rows; None if axil cannot split them.

        Parameters
        ----------
        explained : ExplainedRows
            The m rows of a batch of pages.
        queries, rows : ndarray of shape (lines,)
            The positions of the explained rows in the batch, and of the training rows.
        columns : Columns
            The features of the training rows and of all explained rows.
        positions : ndarray of shape (m,)
            The positions of the rows of the batch among all explained rows.
        """
        if not len(rows):
            return None
        pairs = pairs_of(explained, queries, rows)
        try:
            parts = differences(explained.model, pairs, self.groups)
        except UnsupportedQuestionError:
            if self.is_required:
                raise
            return None
        amounts = amounts_of(explained.model, rows, parts)
        if amounts.target is None or amounts.adjusted is None:
            return None
        by_group = np.empty(parts.shape)
        np.put_along_axis(by_group, amounts.order, amounts.amounts, axis=1)
        target = amounts.target[:, 0]
        used_groups = np.flatnonzero(by_group.any(axis=(0, 2))).tolist()
        features = [feature for group in used_groups for feature in self.groups.features(group)]
        return Split(
            plan=self,
            parts=parts[:, :, 0],
            amounts=by_group[:, :, 0],
            target=target,
            net=amounts.adjusted[:, 0] - target,
            gross=np.abs(by_group[:, :, 0]).sum(axis=1),
            scale=explained.model.scale,
            row_columns=dict(zip(features, columns.of_training(rows, features))),
            query_columns=dict(zip(features, columns.of_queries(positions, features))),
        )


@dataclass(frozen=True, eq=False)
class Split:
    """The adjustments of the listed rows of a batch of pages, by group of features."""

    plan: GridPlan
    parts: FloatArray  #: (lines, G) on the scale of the fit
    amounts: FloatArray  #: (lines, G) as people read them
    target: FloatArray  #: (lines,) likewise
    net: FloatArray  #: (lines,) adjusted target less target
    gross: FloatArray  #: (lines,) the sum of the amounts without their signs
    scale: TargetScale
    row_columns: dict[int, AnyArray | None]  #: (lines,) by feature
    query_columns: dict[int, AnyArray | None]  #: (m,) by feature

    def of_groups(self, lines: Sequence[int], groups: Sequence[int]) -> list[tuple[float, float]]:
        """Return the amount of some groups in each line, and its percentage.

        The percentage of logarithms is that of their factor. It is nan for a target of zero.
        """
        block = np.ix_(lines, groups)
        amounts = self.amounts[block].sum(axis=1)
        if self.scale.is_log:
            percents = 100 * (self.scale.factors(self.parts[block].sum(axis=1)) - 1)
        else:
            percents = in_percent(amounts, self.target[lines])
        return list(zip(amounts.tolist(), percents.tolist()))


def grid_plan(
    explained: ExplainedRows,
    columns: Columns,
    is_wanted: bool | None,
    feature_groups: FeatureNames | None,
    places: Places | None,
    has_offsets: bool,
) -> GridPlan | None:
    """Return how pages split adjustments; None for pages without a grid.

    Parameters
    ----------
    explained : ExplainedRows
    columns : Columns
        The features of the training rows and of the explained rows.
    is_wanted : bool, optional
        Whether pages have a grid. None stands for pages of models that axil can split.
    feature_groups : mapping, optional
        As in `Explainer.adjustments`.
    places : Places, optional
        The map. Its two columns are one group unless the user names them.
    has_offsets : bool
        Whether the explained rows have offsets, which are no feature.
    """
    if is_wanted is not None:
        is_wanted = inputs.as_flag(is_wanted, "adjustments")
    if is_wanted is False:
        if feature_groups is not None:
            raise InputError(
                "feature_groups says how adjustments are split, and adjustments=False leaves them "
                "out. Leave one of them out."
            )
        return None
    is_required = is_wanted is True or feature_groups is not None
    if has_offsets:
        if is_required:
            raise InputError(
                "Adjustments are differences of features, and init_score is none. Leave init_score "
                "out, or say adjustments=False."
            )
        return None
    names = columns.names[: columns.n_features]
    groups, place = _with_place(as_groups(feature_groups, names), places)
    n_train = explained.model.shape[0]
    training_columns = columns.of_training(np.arange(n_train), range(columns.n_features))
    commas = [commas_from(column) for column in training_columns]
    plan = GridPlan(groups, commas, place, is_required)
    n_probes = min(PROBES, n_train, len(explained))
    some = np.arange(n_probes)
    probe = plan.split(take(explained, some), some, n_train - 1 - some, columns, some)
    if probe is None:
        return None
    return plan


def _with_place(groups: FeatureGroups, places: Places | None) -> tuple[FeatureGroups, int | None]:
    """Return the groups with both coordinates in one group, and the number of that group."""
    if places is None or max(places.columns) >= len(groups.feature_names):
        return groups, None
    first, second = (int(groups.group_of_feature[column]) for column in places.columns)
    if first == second:
        return groups, first
    are_alone = len(groups.features(first)) == 1 and len(groups.features(second)) == 1
    if not are_alone or PLACE in groups.names:
        return groups, None
    group_names = list(groups.names)
    group_names[first] = PLACE
    del group_names[second]
    numbers = groups.group_of_feature.copy()
    numbers[numbers == second] = first
    numbers[numbers > second] -= 1
    joined = FeatureGroups(group_names, numbers, groups.feature_names)
    return joined, int(numbers[places.columns[0]])


# -- the grid of one page --------------------------------------------------------------------------


class GridCell(NamedTuple):
    """A cell about one listed row: a value, and an amount with its percentage."""

    label: str  #: the listed row, beside the text on narrow screens
    text: str = ""
    amount: str = ""
    percent: str = ""


@dataclass(frozen=True)
class GridLine:
    """A line of the grid: a feature, or a sum."""

    name: str
    of_query: str  #: the value of the explained row
    cells: list[GridCell]
    is_total: bool = False


@dataclass(frozen=True)
class GridTable:
    """A table of some listed rows side by side."""

    heads: list[str]  #: of the listed rows
    lines: list[GridLine]


def grid_tables(cases: Cases, i: int, words: Words) -> list[GridTable]:
    """Return the grids of a page; none if adjustments are not split."""
    split = cases.split
    lines = cases.lines(i)
    if split is None or not len(lines):
        return []
    groups, other_groups = _groups_with_lines(split, lines, float(cases.values[i]))
    texts = _GroupTexts(cases, i, words)
    amount_text = partial(words.change, beside=float(cases.values[i]))
    tables = []
    n_tables = -(-len(lines) // PER_GRID)
    for positions in np.array_split(np.arange(lines.start, lines.stop), n_tables):
        block_lines = positions.tolist()
        heads = [
            f"{line - lines.start + 1}.\u00a0{row_name(cases.rows[line])}" for line in block_lines
        ]
        prices = [
            GridCell(head, words.amount(cases.targets[line]))
            for head, line in zip(heads, block_lines)
        ]
        table_lines = [GridLine(words.target.capitalize(), "", prices)]
        for group in groups:
            values = [texts.of_row(group, line) for line in block_lines]
            cells = _amount_cells(split, block_lines, [group], heads, values, amount_text)
            table_lines.append(GridLine(texts.name(group), texts.of_query(group), cells))
        if other_groups:
            values = [""] * len(block_lines)
            cells = _amount_cells(split, block_lines, other_groups, heads, values, amount_text)
            table_lines.append(GridLine(f"Other ({len(other_groups)} more)", "", cells))
        table_lines += _totals(cases, i, block_lines, heads, words)
        tables.append(GridTable(heads, table_lines))
    return tables


def _groups_with_lines(split: Split, lines: range, value: float) -> tuple[list[int], list[int]]:
    """Return the groups with a line of their own, largest first, and all other groups."""
    sizes = np.abs(split.amounts[lines.start : lines.stop])
    largest = sizes.max(axis=0)
    order = np.argsort(-sizes.sum(axis=0), kind="stable").tolist()
    groups = [group for group in order if largest[group] > LEAST_SHARE * abs(value)][:MOST_LINES]
    other_groups = [group for group in order if group not in groups and largest[group] > 0]
    if len(other_groups) == 1:  # its own name says more than "other"
        return groups + other_groups, []
    return groups, other_groups


def _amount_cells(
    split: Split,
    lines: Sequence[int],
    groups: Sequence[int],
    heads: Sequence[str],
    values: Sequence[str],
    amount_text: Callable[[float], str],
) -> list[GridCell]:
    """Return the cells with the amount of some groups, for each listed row.

    Parameters
    ----------
    split : Split
    lines, groups : sequence of int
        The listed rows, and the groups whose amounts are added up.
    heads, values : sequence of str
        The names of the listed rows, and what each of them has in these groups.
    amount_text : callable
        Returns an amount as text.
    """
    cells = []
    amounts = split.of_groups(lines, groups)
    for head, value, (amount, amount_percent) in zip(heads, values, amounts):
        if amount:
            cells.append(GridCell(head, value, amount_text(amount), _percent_text(amount_percent)))
        else:
            cells.append(GridCell(head, value))
    return cells


def _percent_text(value: float) -> str:
    """Return a percentage with its sign, or "" if it is unknown."""
    if np.isnan(value):
        return ""
    text = percent(value / 100)
    if value > 0:
        return f"+{text}"
    return text


def _totals(
    cases: Cases, i: int, block: list[int], heads: list[str], words: Words
) -> list[GridLine]:
    """Return the lines below the features: net and gross adjustment, and the adjusted target."""
    split = cases.split
    assert split is not None
    value = cases.values[i]
    net = []
    gross = []
    adjusted = []
    net_percents = in_percent(split.net[block], split.target[block]).tolist()
    gross_percents = in_percent(split.gross[block], split.target[block]).tolist()
    columns = zip(block, heads, net_percents, gross_percents)
    for line, head, net_percent, gross_percent in columns:
        net_text = words.change(split.net[line], value)
        net.append(GridCell(head, "", net_text, _percent_text(net_percent)))
        gross_text = words.amount(split.gross[line], value)
        gross.append(GridCell(head, "", gross_text, _percent_text(gross_percent).removeprefix("+")))
        adjusted.append(GridCell(head, words.amount(cases.adjusted[line])))
    return [
        GridLine("Net adjustment", "", net, is_total=True),
        GridLine("Gross adjustment", "", gross, is_total=True),
        GridLine(f"Adjusted {words.target}", words.amount(value), adjusted, is_total=True),
    ]


@dataclass(frozen=True)
class _GroupTexts:
    """The names and the values of groups on one page."""

    cases: Cases
    page: int
    words: Words

    def name(self, group: int) -> str:
        """Return the name of a group on the page."""
        return self.words.name(self._split.plan.groups.names[group])

    def of_row(self, group: int, line: int) -> str:
        """Return the values of a listed row, or its distance."""
        maps = self.cases.maps
        if group != self._split.plan.place or maps is None:
            return self._values(self._split.row_columns, group, line)
        distance = maps.away[self.page, line - self.cases.lines(self.page).start]
        return f"{site_map.distance_text(distance, maps.unit)} away"

    def of_query(self, group: int) -> str:
        """Return the values of the explained row."""
        if group == self._split.plan.place:
            return ""
        return self._values(self._split.query_columns, group, self.page)

    @property
    def _split(self) -> Split:
        assert self.cases.split is not None
        return self.cases.split

    def _values(self, columns: dict[int, AnyArray | None], group: int, row: int) -> str:
        texts = []
        plan = self._split.plan
        hidden = self.cases.extras.hidden
        for feature in plan.groups.features(group):
            column = columns[feature]
            if column is not None and feature not in hidden:
                texts.append(self.words.cell(column[row], plan.commas_from[feature]))
        return ", ".join(texts)
