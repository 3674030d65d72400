"""Columns that tables show and options name: the features, and further columns that people give beside them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axil import inputs
from axil.arrays import IntArray
from axil.errors import InputError, shown
from axil.inputs.copies import owned_rows

HINT = (
    " A column that is no feature comes with beside=(columns of the training rows, columns of X)."
)
EXPECTED = "expected two frames, of the training rows and of the rows of X"


@dataclass(frozen=True, eq=False)
class Columns:
    """Columns of the training rows and of the queries, by position in ``names``; either may lack some that are no features."""

    names: list[str]
    n_features: int  #: the first of them
    training: tuple[
        Any, Any
    ]  #: features (N, features) and the frame of further columns, None for none
    queries: tuple[Any, Any]

    def chosen(self, columns: Any, what: str = "columns") -> list[int]:
        """The positions of columns given by name or position; all for None."""
        try:
            return inputs.chosen_columns(columns, self.names, what)
        except InputError as error:
            raise InputError(f"{error}{self.hint}") from None

    def of_training(self, rows: IntArray, chosen: Sequence[int]) -> list[NDArray[Any] | None]:
        """Some columns of some training rows; None for one that only queries have."""
        return self._some(self.training, rows, chosen)

    def of_queries(self, rows: IntArray, chosen: Sequence[int]) -> list[NDArray[Any] | None]:
        """Some columns of some queries; None for one that only the training rows have."""
        return self._some(self.queries, rows, chosen)

    def of_all_training(self, i: int, what: str) -> NDArray[Any]:
        """A column of all training rows, which they must have."""
        (own,) = self.of_training(np.arange(self.training[0].shape[0]), [i])
        if own is None:
            raise InputError(
                f"{what} names {self.names[i]}, which only X has. Add it to the first frame of beside."
            )
        return own

    def of_all_queries(self, i: int, what: str) -> NDArray[Any]:
        """A column of all queries, which they must have."""
        (queried,) = self.of_queries(np.arange(self.queries[0].shape[0]), [i])
        if queried is None:
            raise InputError(
                f"{what} names {self.names[i]}, which only the training rows have. Add it to the second frame of beside."
            )
        return queried

    def training_rows(self) -> Any:
        """The training rows as they were given, a frame with the further columns too; a copy, whatever becomes of it."""
        features, further = self.training
        frame, more = (
            inputs.as_frame(features),
            None if further is None else inputs.as_frame(further),
        )
        if frame is None or more is None or frame.implementation is not more.implementation:
            return owned_rows(features)
        return owned_rows(
            frame.with_columns(
                *(more[name] for name in more.columns if name not in frame.columns)
            ).to_native()
        )

    def each_query(self) -> Iterator[Any]:
        """The queries one by one: of frames a dict from columns to values, with the further ones; else the row itself."""
        rows, n = self.queries[0], self.queries[0].shape[0]
        if inputs.as_frame(rows) is None:
            for i in range(n):
                one = inputs.take_rows(rows, slice(i, i + 1))
                yield (one.toarray() if inputs.is_sparse(one) else np.asarray(one))[0]
            return
        columns = zip(self.names, self.of_queries(np.arange(n), range(len(self.names))))
        known = {name: column.tolist() for name, column in columns if column is not None}
        for i in range(n):
            yield {name: column[i] for name, column in known.items()}

    @property
    def hint(self) -> str:
        """The end of a message about a column that is not there."""
        return "" if self.n_features < len(self.names) else HINT

    def _some(
        self, given: tuple[Any, Any], rows: IntArray, chosen: Sequence[int]
    ) -> list[NDArray[Any] | None]:
        """Return some columns of some rows, None for one that is not there; each table is read once for all of them."""
        features, further = given
        own = [i for i in chosen if i < self.n_features]
        places = {name: place for place, name in enumerate(_names(further))}
        beside = [i for i in chosen if i >= self.n_features and self.names[i] in places]
        values: dict[int, NDArray[Any]] = {}
        if own:
            values |= zip(own, inputs.feature_columns(features, rows, own))
        if beside:
            of_beside = [places[self.names[i]] for i in beside]
            values |= zip(beside, inputs.feature_columns(further, rows, of_beside))
        return [values.get(i) for i in chosen]


def columns_of(features: Any, rows: Any, names: list[str], beside: Any = None) -> Columns:
    """The columns of the training rows, of the queries and of a pair of frames beside them, checked; features are the fit's."""
    further = (None, None) if beside is None else _pair(features, rows, beside)
    new = dict.fromkeys(name for frame in further for name in _names(frame) if name not in names)
    return Columns([*names, *new], len(names), (features, further[0]), (rows, further[1]))


def _pair(features: Any, rows: Any, beside: Any) -> tuple[Any, Any]:
    try:
        first, second = beside
        frames = inputs.as_frame(first), inputs.as_frame(second)
    except InputError:
        raise
    except Exception:  # nothing that can be taken apart
        frames = None, None
    if frames[0] is None or frames[1] is None or isinstance(beside, dict):
        found = (
            shown(beside)
            if inputs.as_frame(beside) is None
            else f"one frame of shape {beside.shape}"
        )
        raise InputError(f"beside is {found}; {EXPECTED}, as beside=(sales, homes).")
    given = zip((first, second), ("first", "second"))
    for (frame, which), (name, own) in zip(given, (("X_train", features), ("X", rows))):
        n = own.shape[0]
        if frame.shape[0] != n:
            raise InputError(
                f"The {which} frame of beside has {frame.shape[0]} rows; expected {n}, those of {name}."
            )
        inputs.refuse_other_order(own, frame, f"The {which} frame of beside", name)
    return owned_rows(first), owned_rows(second)


def _names(table: Any) -> list[str]:
    frame = None if table is None else inputs.as_frame(table)
    return [] if frame is None else [str(name) for name in frame.columns]
