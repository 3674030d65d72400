"""Types of the public signatures, each defined once, so that editors and type checkers help.

    from axil.aliases import DataFrame, TableLike

    def largest_weights(explainer: axil.Explainer, houses: TableLike) -> DataFrame: ...

Tables that axil returns use the dataframe library of ``X_train``. A type checker takes them for
pandas, the most frequent one. For another library, say so:
``assert isinstance(table, pl.DataFrame)``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from narwhals.stable.v2.typing import IntoDataFrame
from numpy.typing import ArrayLike

__all__ = [
    "ArrayLike",
    "DataFrame",
    "Device",
    "FeatureTable",
    "ForeignModel",
    "ForeignObject",
    "IntoDataFrame",
    "LabelsLike",
    "ModelKind",
    "PathLike",
    "ScoreScale",
    "Series",
    "SparseMatrix",
    "TableLike",
]

if TYPE_CHECKING:
    import pandas as pd

    DataFrame: TypeAlias = pd.DataFrame
    Series: TypeAlias = pd.Series[Any]
else:  # pandas need not be installed
    DataFrame = Any
    Series = Any


class SparseMatrix(Protocol):
    """A matrix or array of scipy.sparse, which has no types of its own."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of rows and columns."""

    def tocsr(self) -> Any:
        """Return the matrix in compressed rows."""


#: Rows with features: an array, a frame of pandas, polars or pyarrow, a sparse matrix, or a
#: Dask collection.
TableLike: TypeAlias = ArrayLike | IntoDataFrame | SparseMatrix
#: Labels of rows, such as text, numbers or dates; where a method says so, the name of a column.
LabelsLike: TypeAlias = ArrayLike | Sequence[Any]
#: Rows that `axil.inputs.as_features` has checked: an array, a sparse matrix, or a frame as its
#: library has it. These share no base class.
FeatureTable: TypeAlias = Any
#: A fitted model or an estimator of another library.
ForeignModel: TypeAlias = Any
#: Any other object or module of another library.
ForeignObject: TypeAlias = Any
PathLike: TypeAlias = str | os.PathLike[str]

Device: TypeAlias = Literal["cpu", "cuda", "auto"]
#: What axil's numbers of training rows are for a model, see `axil.Explainer.kind`.
ModelKind: TypeAlias = Literal["exact", "additive", "derivative"]
#: Whether derivatives are of scores, such as log-odds, or of probabilities and means.
ScoreScale: TypeAlias = Literal["raw", "probability"]
