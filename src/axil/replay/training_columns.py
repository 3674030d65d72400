"""TrainingColumns: columns of the training rows, as users name them and tables show them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from axil import inputs
from axil.aliases import ArrayLike, FeatureTable, LabelsLike
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.errors import UnseenCategoryWarning, shown, warn
from axil.reductions.choice import Choice

if TYPE_CHECKING:
    from axil.replay.verified_model import InMemory, VerifiedModel

MOST_SHOWN = 5  # categories in a message

#: The group of each row of a shard, and the names of the groups; of a partition not yet computed.
GroupCodes: TypeAlias = Any
#: Which rows of a shard may be listed, an `Allowed`; of a partition not yet computed.
AllowedRows: TypeAlias = Any
#: Positions of training rows, (n,); of rows in partitions a list for each partition.
Positions: TypeAlias = Any
#: `Columns` and `Rules` of axil.output, a layer above this one.
ListedColumns: TypeAlias = Any
ListingRules: TypeAlias = Any


@dataclass(frozen=True, eq=False)
class TrainingColumns(ABC):
    """The columns of the training rows for users and tables, in any place."""

    model: VerifiedModel

    @property
    @abstractmethod
    def table(self) -> FeatureTable | None:
        """The training rows, (N, features); None if they are not in this process."""

    @property
    @abstractmethod
    def by_shard(self) -> Sequence[FeatureTable]:
        """The features of each shard; None for a shard without features."""

    @abstractmethod
    def gathered(self) -> tuple[FloatArray, AnyArray]:
        """Return the targets (N, K) and the labels (N,) of all training rows, in this process."""

    @abstractmethod
    def names(self, rows: FeatureTable) -> list[str]:
        """Return the names of the features of rows to explain."""

    @abstractmethod
    def lookup(
        self, listed: ListedColumns
    ) -> Callable[[IntArray, Sequence[int]], list[AnyArray | None]]:
        """Return a function of positions of rows and of columns, which reads these."""

    @abstractmethod
    def choice(
        self, listed: ListedColumns, k: int, rules: ListingRules
    ) -> tuple[Choice, Sequence[AllowedRows]]:
        """Return the choice of rows to list, and the rows that each shard may list."""

    @abstractmethod
    def positions(self, rows: LabelsLike) -> Positions:
        """Return the positions of the rows that labels name, or that truth values mark."""

    @abstractmethod
    def group_codes(self, labels: LabelsLike, name: str = "groups") -> Sequence[GroupCodes]:
        """Return the group of each row and the names of the groups, shard by shard.

        Parameters
        ----------
        labels : sequence of length N, or str
            A label for each row, or the name of a column.
        name : str
            The parameter that they come from, for messages.
        """

    @abstractmethod
    def gathered_group_codes(
        self, labels: LabelsLike, name: str = "groups"
    ) -> tuple[IntArray, AnyArray]:
        """Return the group of each row, (N,), and the names of the groups, in this process."""

    @abstractmethod
    def most_groups(self, group_codes: Sequence[GroupCodes]) -> int:
        """Return the largest number of groups that there can be in all shards."""

    @abstractmethod
    def ordered_values(self, values: ArrayLike, name: str) -> ArrayLike:
        """Return a user's values of all training rows; refuse labels in another order."""

    @abstractmethod
    def out_of_fold(self, predictions: ArrayLike) -> Any:
        """Return the user's out-of-fold predictions on the scale of the fit, (N, K), checked."""

    @abstractmethod
    def column_for_categories(self, name: str) -> list[Any] | None:
        """Return the distinct values of a column; None if it is not in this process."""

    def warn_of_unseen(self, rows: FeatureTable, parameter: str = "X") -> None:
        """Warn of categories in rows that no training row has, if the library says nothing."""
        action = self.model.adapter.unseen
        frame = None
        if action:
            frame = inputs.as_frame(rows)
        if frame is None:
            return
        for name in inputs.category_columns(frame):
            categories = self.model.kept.get(("categories", name), partial(self._categories, name))
            if categories is not None:
                values = inputs.distinct_values(frame, name)
                new = [value for value in values if str(value) not in categories]
                _warn_of_categories(new, f"Column {shown(name)} of {parameter}", action)

    def _categories(self, name: str) -> frozenset[str] | None:
        """Return the categories of a column, as text; None if neither model nor rows have them."""
        categories = self.model.adapter.categories.get(name)
        if categories is None:
            categories = self.column_for_categories(name)
        if categories is None:
            return None
        return frozenset(map(str, categories))


def _warn_of_categories(new: list[Any], column: str, action: str) -> None:
    """Warn of new categories of a column, if there are any."""
    if not new:
        return
    listed = ", ".join(shown(value) for value in sorted(new, key=str)[:MOST_SHOWN])
    if len(new) > MOST_SHOWN:
        listed += f" and {len(new) - MOST_SHOWN} more"
    number = "a value"
    if len(new) > 1:
        number = f"{len(new):,} values"
    text = f"{column} has {number} that no training row has: {listed}. {action}"
    warn(text, UnseenCategoryWarning)


@dataclass(frozen=True, eq=False)
class ColumnsInMemory(TrainingColumns):
    """The columns of training rows in this process."""

    model: InMemory

    @property
    def table(self) -> FeatureTable | None:
        return self.model.features

    @property
    def by_shard(self) -> Sequence[FeatureTable]:
        return [self.model.features]

    def gathered(self) -> tuple[FloatArray, AnyArray]:
        return self.model.targets, self.model.index

    def names(self, rows: FeatureTable) -> list[str]:
        tables = [rows]
        if self.model.features is not None:
            tables = [self.model.features, rows]
        return inputs.column_names(tuple(tables), self.model.adapter.feature_names, rows.shape[1])

    def lookup(
        self, listed: ListedColumns
    ) -> Callable[[IntArray, Sequence[int]], list[AnyArray | None]]:
        lookup: Callable[[IntArray, Sequence[int]], list[AnyArray | None]] = listed.of_training
        return lookup

    def choice(
        self, listed: ListedColumns, k: int, rules: ListingRules
    ) -> tuple[Choice, Sequence[AllowedRows]]:
        if rules.is_by_query:
            n = listed.queries[0].shape[0]
            n_rows = self.model.shape[0]
            subject = f"A truth value for each of {n} x {n_rows} rows, from among,"
            instead = "Ask about fewer rows at a time."
            self.model.budget.require(n * n_rows // 8, subject, instead)
        choice, allowed = rules.choice(listed, k, self.model.n_threads)
        return choice, [allowed]

    def positions(self, rows: LabelsLike) -> Positions:
        return inputs.named_rows(rows, self.model.index)

    def group_codes(self, labels: LabelsLike, name: str = "groups") -> Sequence[GroupCodes]:
        return [self.gathered_group_codes(labels, name)]

    def gathered_group_codes(
        self, labels: LabelsLike, name: str = "groups"
    ) -> tuple[IntArray, AnyArray]:
        features = self.model.features
        values = inputs.row_values(labels, features, self.model.adapter.feature_names, name)
        return inputs.group_codes(values, self.model.shape[0], name)

    def most_groups(self, group_codes: Sequence[GroupCodes]) -> int:
        return sum(len(names) for _, names in group_codes)

    def ordered_values(self, values: ArrayLike, name: str) -> ArrayLike:
        inputs.refuse_other_order(self.model.features, values, name)
        return values

    def out_of_fold(self, predictions: ArrayLike) -> FloatArray:
        name = "out_of_fold"
        ordered = self.ordered_values(predictions, name)
        table = inputs.as_table(ordered, *self.model.shape, name)
        return self.model.scale.checked_forward(table, name)

    def column_for_categories(self, name: str) -> list[Any] | None:
        if self.model.features is None:
            return None
        frame = inputs.as_frame(self.model.features)
        if frame is None or name not in frame.columns:
            return None
        return inputs.distinct_values(frame, name)
