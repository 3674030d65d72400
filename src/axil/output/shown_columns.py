"""Read the columns that tables show and options name.

They are features, and further columns that users pass beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from axil import inputs
from axil.arrays import AnyArray, IntArray
from axil.errors import InputError, shown
from axil.inputs.copies import owned_rows

HINT = (
    " A column that is no feature comes with beside=(columns of the training rows, columns of X)."
)
EXPECTED = "expected two frames, of the training rows and of the rows of X"


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of the training rows and of the explained rows, by position in ``names``.

    Both have all features. A further column may be missing on either side.
    """

    names: list[str]
    n_features: int  #: the first of the columns
    training: tuple[Any, Any]  #: features (N, features), and the frame of further columns or None
    queries: tuple[Any, Any]

    def chosen(self, columns: Any, what: str = "columns") -> list[int]:
        """Return the positions of columns given by name or position; all for None."""
        try:
            return inputs.chosen_columns(columns, self.names, what)
        except InputError as error:
            raise InputError(f"{error}{self.hint}") from None

    def of_training(self, rows: IntArray, chosen: Sequence[int]) -> list[AnyArray | None]:
        """Return some columns of some training rows.

        A column that only the explained rows have is None.
        """
        return self._some(self.training, rows, chosen)

    def of_queries(self, rows: IntArray, chosen: Sequence[int]) -> list[AnyArray | None]:
        """Return some columns of some explained rows.

        A column that only the training rows have is None.
        """
        return self._some(self.queries, rows, chosen)

    def of_all_training(self, i: int, what: str) -> AnyArray:
        """Return a column of all training rows, and raise if they do not have it."""
        (column,) = self.of_training(np.arange(self.training[0].shape[0]), [i])
        if column is None:
            raise InputError(
                f"{what} names {self.names[i]}, which only X has. Add it to the first frame of "
                "beside."
            )
        return column

    def of_all_queries(self, i: int, what: str) -> AnyArray:
        """Return a column of all explained rows, and raise if they do not have it."""
        (column,) = self.of_queries(np.arange(self.queries[0].shape[0]), [i])
        if column is None:
            raise InputError(
                f"{what} names {self.names[i]}, which only the training rows have. Add it to the "
                "second frame of beside."
            )
        return column

    def training_rows(self) -> Any:
        """Return a copy of the training rows, which for a frame also has the further columns."""
        features, further = self.training
        frame = inputs.as_frame(features)
        if frame is None or further is None:
            return owned_rows(features)
        further_frame = inputs.as_frame(further)
        if further_frame is None or inputs.backend_of(further) != inputs.backend_of(features):
            return owned_rows(features)
        new = [further_frame[name] for name in further_frame.columns if name not in frame.columns]
        return owned_rows(frame.with_columns(*new).to_native())

    def each_query(self) -> Iterator[Any]:
        """Yield the explained rows: dicts from columns to values for a frame, else arrays."""
        rows = self.queries[0]
        n = rows.shape[0]
        if inputs.as_frame(rows) is None:
            for i in range(n):
                row = inputs.take_rows(rows, slice(i, i + 1))
                yield (row.toarray() if inputs.is_sparse(row) else np.asarray(row))[0]
            return
        columns = zip(self.names, self.of_queries(np.arange(n), range(len(self.names))))
        values_by_name = {name: column.tolist() for name, column in columns if column is not None}
        for i in range(n):
            yield {name: values[i] for name, values in values_by_name.items()}

    @property
    def hint(self) -> str:
        """The end of a message about a column that does not exist."""
        if self.n_features < len(self.names):
            return ""
        return HINT

    def _some(
        self, tables: tuple[Any, Any], rows: IntArray, chosen: Sequence[int]
    ) -> list[AnyArray | None]:
        """Return some columns of some rows, None for a missing one.

        Each table is read once for all columns.
        """
        features, further = tables
        feature_places = [i for i in chosen if i < self.n_features]
        place_by_name = {name: place for place, name in enumerate(_names(further))}
        further_places = [
            i for i in chosen if i >= self.n_features and self.names[i] in place_by_name
        ]
        columns: dict[int, AnyArray] = {}
        if feature_places:
            columns |= zip(feature_places, inputs.feature_columns(features, rows, feature_places))
        if further_places:
            places = [place_by_name[self.names[i]] for i in further_places]
            columns |= zip(further_places, inputs.feature_columns(further, rows, places))
        return [columns.get(i) for i in chosen]


def columns_of(features: Any, rows: Any, names: list[str], beside: Any = None) -> Columns:
    """Return the columns of the training rows and of the explained rows.

    The function also checks the pair of frames beside them.

    Parameters
    ----------
    features, rows : table
        The features of the training rows, and X.
    names : list of str
        The names of the features.
    beside : pair of frames, optional
        Further columns of the training rows, and of X.
    """
    further: tuple[Any, Any] = (None, None)
    if beside is not None:
        further = _checked_pair(features, rows, beside)
    new = [name for frame in further for name in _names(frame) if name not in names]
    all_names = [*names, *dict.fromkeys(new)]
    return Columns(all_names, len(names), (features, further[0]), (rows, further[1]))


def _checked_pair(features: Any, rows: Any, beside: Any) -> tuple[Any, Any]:
    """Return copies of the frames of ``beside``, a pair with the rows of X_train and of X.

    The function raises for anything else.
    """
    try:
        first, second = beside
        are_frames = inputs.as_frame(first) is not None and inputs.as_frame(second) is not None
    except InputError:
        raise
    except Exception:  # it has no two elements
        are_frames = False
    if not are_frames or isinstance(beside, dict):
        received = shown(beside)
        if inputs.as_frame(beside) is not None:
            received = f"one frame of shape {beside.shape}"
        raise InputError(f"beside is {received}; {EXPECTED}, as beside=(sales, homes).")
    _check_rows(first, "first", features, "X_train")
    _check_rows(second, "second", rows, "X")
    return owned_rows(first), owned_rows(second)


def _check_rows(frame: Any, which: str, table: Any, name: str) -> None:
    """Raise unless a frame has the rows of a table, in their order."""
    n = table.shape[0]
    if frame.shape[0] != n:
        raise InputError(
            f"The {which} frame of beside has {frame.shape[0]} rows; expected {n}, those of {name}."
        )
    inputs.refuse_other_order(table, frame, f"The {which} frame of beside", name)


def _names(table: Any) -> list[str]:
    """Return the names of the columns of a frame; none for None."""
    if table is None:
        frame = None
    else:
        frame = inputs.as_frame(table)
    if frame is None:
        return []
    return [str(name) for name in frame.columns]
