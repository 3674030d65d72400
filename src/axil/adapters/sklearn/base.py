"""What the adapters of all scikit-learn models share: rows as numbers, a safe copy of the model."""

from __future__ import annotations

import copy

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse

from axil.adapters.contract import Defaults, TrainingRows
from axil.adapters.estimators import number_of_features
from axil.adapters.frames import as_frame, floats
from axil.adapters.refusals import OTHER_COLUMNS, OTHER_ROWS, OTHER_TARGETS, OTHER_WEIGHTS
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import FloatArray
from axil.errors import InputError, shown


def numbers(X: FeatureTable, dtype: DTypeLike) -> FeatureTable:
    """Return rows of any container as an array or csr matrix of this type, nulls as nan."""
    if bool(sparse.issparse(X)):
        return _sparse_numbers(X, dtype)
    frame = as_frame(X)
    try:
        if frame is None:
            return np.ascontiguousarray(X, dtype=dtype)
        if not frame.implementation.is_pandas():
            return np.ascontiguousarray(floats(frame, dtype))
        fill_values = [getattr(dtype, "fill_value", None) for dtype in X.dtypes]
        if fill_values and all(value == 0 for value in fill_values):  # as check_array does
            return numbers(X.sparse.to_coo(), dtype)
        return np.ascontiguousarray(X.to_numpy(dtype=dtype, na_value=np.nan))
    except Exception as error:  # each library has its own
        raise InputError(
            f"These rows cannot be read as numbers, which this model takes: {shown(error, 300)}"
        ) from error


def _sparse_numbers(X: FeatureTable, dtype: DTypeLike) -> FeatureTable:
    """Return sparse rows as a csr matrix with C integers as positions, which trees need."""
    rows = sparse.csr_matrix(X, dtype=dtype)
    if rows.indices.dtype == np.intc or rows.nnz > np.iinfo(np.intc).max:
        return rows
    indices = rows.indices.astype(np.intc)
    indptr = rows.indptr.astype(np.intc)
    return sparse.csr_matrix((rows.data, indices, indptr), shape=rows.shape)


def bagged_numbers(X: FeatureTable) -> FeatureTable:
    """Return rows as bagging passes them on: float32 stays, other types become float64."""
    frame = as_frame(X)
    if frame is None:
        is_single = getattr(X, "dtype", None) == np.float32
    else:
        is_single = set(frame.schema.values()) == {nw.Float32}
    if is_single:
        return numbers(X, np.float32)
    return numbers(X, np.float64)


def protected_copy(model: ForeignModel) -> ForeignModel:
    """Return a copy of the model that later fits of it, such as warm_start, do not change.

    What a model has learnt is copied, as it may be kept in the user's own arrays (neighbours). Only
    the lists of trees are copied: trees are large, and no fit changes one. Where someone does
    change a tree, predictions show it.
    """
    protected = copy.copy(model)
    tree_lists = ("estimators_", "_predictors")
    has_trees = any(hasattr(model, name) for name in (*tree_lists, "tree_"))
    for name, value in vars(model).items():
        is_learnt = name.startswith("_") or name.endswith("_")
        if name in tree_lists:
            setattr(protected, name, copy.copy(value))
        # A Gaussian process predicts no mean with its L_.
        elif is_learnt and not has_trees and name != "L_":
            setattr(protected, name, copy.deepcopy(value))
    return protected


def protected_for_arrays(model: ForeignModel) -> ForeignModel:
    """Return a protected copy that takes rows as arrays: it would warn of missing names."""
    protected: ForeignModel = protected_copy(model)
    protected.__dict__.pop("feature_names_in_", None)
    return protected


def require_no_offsets(rows: TrainingRows) -> None:
    """Raise for offsets: scikit-learn's models start from no prediction of the caller's."""
    if rows.totals.offset:
        raise InputError("scikit-learn's models take no offsets (init_score): leave them out.")


class SklearnAdapter(Defaults):
    """Base of all adapters of scikit-learn's models.

    Its trees look at the features in float32 and at targets and weights in float64. Nothing is
    rounded on the way from targets to predictions, so exact weights meet predictions to the
    rounding of sums over many rows, 1e-9. A leaf is a mean of its own rows, summed row after row.
    For a million of them the order of summation shows as 1e-13 of the largest, so leaves may differ
    by 1e-12.
    """

    library = "scikit-learn"
    tolerance = 1e-9
    leaf_tolerance = 1e-12
    fingerprint: str

    def __init__(self, model: ForeignModel):
        self.n_features = number_of_features(model)
        self.feature_names: list[str] | None = None
        if getattr(model, "feature_names_in_", None) is not None:
            self.feature_names = [str(name) for name in model.feature_names_in_]
        self._model = protected_for_arrays(model)

    @property
    def model(self) -> ForeignObject:
        """Return the adapter's own copy of the model, which takes rows as arrays, without names."""
        return self._model

    def predictions(self, X: FeatureTable) -> FloatArray:
        """Return the predictions of ``predict``, or of ``predict_proba`` for classes, (n, K)."""
        return self._predicted(self._model, self._rows(X))

    def _predicted(self, model: ForeignModel, rows: FeatureTable) -> FloatArray:
        """Return the predictions of a model for checked rows, (n, K)."""
        if self.label_classes is not None:
            return np.concatenate(model.predict_proba(rows), axis=1)
        if self.classes is None:
            predict = model.predict
        else:
            predict = model.predict_proba
        predicted = np.asarray(predict(rows), dtype=np.float64)
        return predicted.reshape(rows.shape[0], self.n_outputs)

    def _rows(self, X: FeatureTable) -> FeatureTable:
        return numbers(X, np.float32)

    def causes(self, mismatch: str) -> str:
        """Return the most likely reasons for a disagreement, one per line.

        Parameters
        ----------
        mismatch : str
            What disagrees: "counts", "weights" or "values".
        """
        return "\n".join(_CAUSES.get(mismatch, _CAUSES["values"]))


_CAUSES = {
    "counts": (
        OTHER_ROWS,
        OTHER_COLUMNS,
        "Settings were changed after the fit or between two fits with warm_start.",
        "There are missing values and the model was fitted before scikit-learn 1.8, whose trees "
        "could split such rows otherwise than they predict: fit again.",
    ),
    "weights": (OTHER_WEIGHTS,),
    "values": (
        OTHER_TARGETS,
        "sample_weight is not what the fit was given.",
        "The model was changed after its fit, or fitted in parts with other data or settings "
        "(warm_start).",
    ),
}
