"""Several labels per row, each with classes of its own, as one column of zeros and ones for each class of each label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from axil.arrays import FloatArray, IntArray
from axil.errors import InputError
from axil.inputs.labels import one_hot
from axil.inputs.libraries import as_native


@dataclass(frozen=True)
class LabelClasses:
    """The classes of each of L labels; the columns of targets are those of the first label, then those of the second, ..."""

    classes: Sequence[NDArray[Any]]

    @property
    def names(self) -> NDArray[Any]:
        """Return the name of each column: the number of its label, and its class."""
        return np.array(
            [f"{label}: {name}" for label, own in enumerate(self.classes) for name in own.tolist()]
        )

    def one_hot(self, values: Any, n_rows: int, what: str, rows: str) -> FloatArray:
        """Return (N, K) targets from a table with a column for each label."""
        columns = self._columns(values, what)
        parts = [
            one_hot(column, n_rows, own, what, rows) for column, own in zip(columns, self.classes)
        ]
        return np.concatenate(parts, axis=1)

    def codes(self, targets: FloatArray) -> IntArray:
        """Return (N, L): the number of each row's class among those of each label."""
        ends = np.cumsum([len(own) for own in self.classes])
        parts = np.split(targets, ends[:-1], axis=1)
        return np.stack([part.argmax(axis=1) for part in parts], axis=1)

    def labels(self, targets: FloatArray) -> list[NDArray[Any]]:
        """Return the classes of the rows, label by label."""
        return [own[codes] for own, codes in zip(self.classes, self.codes(targets).T)]

    def _columns(self, values: Any, what: str) -> list[Any]:
        """Return the columns of a table of labels."""
        native = as_native(values)
        found = []
        if isinstance(native, nw.DataFrame):
            found = [native.get_column(name).to_native() for name in native.columns]
        elif hasattr(native, "iloc"):
            if native.ndim == 2:
                found = [native.iloc[:, column] for column in range(native.shape[1])]
            else:
                found = []
        else:
            table = np.asarray(values)
            if table.ndim == 2:
                found = list(table.T)
            else:
                found = []
        if len(found) != len(self.classes):
            raise InputError(
                f"{what} has {len(found) or 'no'} columns; expected {len(self.classes)}, one for each label that the model was "
                "fitted on."
            )
        return found
