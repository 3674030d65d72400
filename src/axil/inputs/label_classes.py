"""The classes of several labels per row, as a column of zeros and ones per class and label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import narwhals.stable.v2 as nw
import numpy as np

from axil.aliases import ForeignObject
from axil.arrays import AnyArray, FloatArray, IntArray
from axil.errors import InputError
from axil.inputs.labels import one_hot
from axil.inputs.libraries import as_native, loaded_pandas


@dataclass(frozen=True)
class LabelClasses:
    """The classes of each of L labels.

    The columns of targets are those of the first label, then those of the second, and so on.
    """

    classes: Sequence[AnyArray]

    @property
    def names(self) -> AnyArray:
        """Return the name of each column: the number of its label, and its class."""
        names = []
        for label, classes in enumerate(self.classes):
            names += [f"{label}: {name}" for name in classes.tolist()]
        return np.array(names)

    def one_hot(self, values: object, n_rows: int, name: str, rows: str) -> FloatArray:
        """Return targets (N, K) from a table with a column for each label."""
        columns = self._columns(values, name)
        targets_by_label = [
            one_hot(column, n_rows, classes, name, rows)
            for column, classes in zip(columns, self.classes)
        ]
        return np.concatenate(targets_by_label, axis=1)

    def codes(self, targets: FloatArray) -> IntArray:
        """Return the number of each row's class among those of each label, (N, L)."""
        ends = np.cumsum([len(classes) for classes in self.classes])
        targets_by_label = np.split(targets, ends[:-1], axis=1)
        return np.stack([hot.argmax(axis=1) for hot in targets_by_label], axis=1)

    def labels(self, targets: FloatArray) -> list[AnyArray]:
        """Return the classes of the rows, label by label."""
        codes_by_label = self.codes(targets).T
        return [classes[codes] for classes, codes in zip(self.classes, codes_by_label)]

    def _columns(self, values: object, name: str) -> list[ForeignObject]:
        """Return the columns of a table of labels."""
        columns = _columns_of(values)
        if len(columns) != len(self.classes):
            raise InputError(
                f"{name} has {len(columns) or 'no'} columns; expected {len(self.classes)}, one for "
                "each label that the model was fitted on."
            )
        return columns


def _columns_of(values: object) -> list[ForeignObject]:
    """Return the columns of a frame or an array; none if it does not have two dimensions."""
    native = as_native(values)
    if isinstance(native, nw.DataFrame):
        return [native.get_column(name).to_native() for name in native.columns]
    pd = loaded_pandas()
    if pd is not None and isinstance(native, pd.DataFrame):
        return [native.iloc[:, column] for column in range(native.shape[1])]
    table = np.asarray(values)
    if table.ndim == 2:
        return list(table.T)
    return []
