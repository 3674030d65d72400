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
    "CalibrationMethod",
    "DataFrame",
    "Device",
    "FeatureTable",
    "ForeignModel",
    "ForeignObject",
    "IntoDataFrame",
    "LabelsLike",
    "LeverageMethod",
    "ModelKind",
    "OutOfFold",
    "PathLike",
    "Ranking",
    "RemovalMethod",
    "ScoreScale",
    "Series",
    "Sign",
    "SimilarBy",
    "SparseMatrix",
    "Suspects",
    "TableLike",
    "TreeWeighting",
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
#: How training rows are predicted by fits that did not see them.
LeaveOneOut: TypeAlias = Literal["exact", "folds"]
ModelKind: TypeAlias = Literal["exact", "additive", "derivative"]
#: The numbers that rank the training rows of tables and plots.
Ranking: TypeAlias = Literal["weight", "contribution"]
#: What decides which comparables `similar` lists; see there.
SimilarBy: TypeAlias = Literal["leaves", "weight", "contribution", "derivative"]
#: How much each tree counts for the similarity of two rows.
TreeWeighting: TypeAlias = Literal["alike", "variance", "error", "improved"]
#: Whether comparables speak for the prediction, or against it.
Sign: TypeAlias = Literal["any", "for", "against"]
#: What happens to training rows whose targets look wrong: one of these words, the labels or a mask
#: of such rows, or a pair of both.
Suspects: TypeAlias = (
    Literal["keep", "mark", "drop"] | LabelsLike | tuple[Literal["mark", "drop"], LabelsLike]
)
#: Predictions of the training rows by fits that have not seen them, or how axil computes them.
OutOfFold: TypeAlias = Literal["folds", "leave-one-out"] | ArrayLike
#: Whether axil computes leverages exactly, or estimates them from random vectors.
LeverageMethod: TypeAlias = Literal["exact", "estimate"]
#: Whether the effect of a removed row is exact or a first-order approximation.
RemovalMethod: TypeAlias = Literal["exact", "first-order"]
#: How the scale of intervals weighs the calibration errors; see `axil.Explainer.calibrate`.
CalibrationMethod: TypeAlias = Literal["leaves", "exact"]
#: How classes are taken into prediction sets.
SetMethod: TypeAlias = Literal["lac", "aps"]
#: Whether derivatives are of scores, such as log-odds, or of probabilities and means.
ScoreScale: TypeAlias = Literal["raw", "probability"]
