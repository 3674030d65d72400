"""scikit-learn's nearest neighbours, regressors and classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from axil.adapters.contract import FittedSmoother
from axil.adapters.kept_rows import check_rows, check_targets
from axil.adapters.sklearn.smoothers import SmootherAdapter, dense, rounding_of_mean
from axil.adapters.sklearn.solutions import neighbour_weights
from axil.arrays import FloatArray
from axil.errors import InputError, shown
from axil.inputs.copies import owned
from axil.inputs.label_classes import LabelClasses


class NeighboursAdapter(SmootherAdapter):
    """Nearest neighbours, by number or within a radius: means of their targets, or of their one-hot classes."""

    def __init__(self, model: Any):
        classes = getattr(model, "classes_", None)
        if isinstance(classes, list):
            self.label_classes = LabelClasses([owned(np.asarray(own)) for own in classes])
        elif classes is not None:
            self.classes = owned(np.asarray(classes))
        super().__init__(model)
        wanted, self.fitted_rows = getattr(model, "n_neighbors", None), int(model.n_samples_fit_)
        if (
            wanted is not None
            and not hasattr(model, "radius_neighbors")
            and wanted > self.fitted_rows
        ):
            raise InputError(
                f"This {type(model).__name__} has n_neighbors={wanted} and was fitted on {self.fitted_rows} rows: its own "
                f"predict fails. Fit with n_neighbors of at most {self.fitted_rows}."
            )

    def _count_outputs(self, model: Any) -> int:
        if self.label_classes is not None:
            return len(self.label_classes.names)
        if self.classes is not None:
            return len(self.classes)
        return 1 if np.ndim(model._y) == 1 else int(model._y.shape[1])

    def _state(self) -> Any:
        fitted = self._model._fit_X
        return np.asarray(dense(fitted)), np.asarray(self._model._y)

    def _in_single_precision(self) -> bool:
        return False

    def _rounding_of_targets(self) -> float:
        """Return the rounding of the means over neighbours, which are taken in the type of the targets."""
        n_neighbours = getattr(self._model, "n_neighbors", None)
        return rounding_of_mean(self._model._y, n_neighbours or int(self._model.n_samples_fit_))

    def _rows(self, X: Any) -> Any:
        """Rows as they are given: distances between sparse rows, or rows in float32, are rounded otherwise."""
        return self._as_given(X)

    def again(self, X: Any, targets: FloatArray, weights: FloatArray | None) -> FloatArray | None:
        """Nothing: neighbours are found, not solved for."""
        return None

    def check_kept(self, X: Any, targets: FloatArray, weights: FloatArray | None) -> None:
        """Any rows have neighbours, so that predictions would agree for any X."""
        check_rows(self._model._fit_X, self._rows(X))
        kept = np.asarray(self._model._y)
        if self.label_classes is not None:  # kept as their numbers
            sizes = [len(own) for own in self.label_classes.classes]
            parts = [column[:, None] == np.arange(size) for column, size in zip(kept.T, sizes)]
            kept = np.concatenate(parts, axis=1)
        elif self.classes is not None:
            kept = kept.reshape(-1, 1) == np.arange(len(self.classes))
        check_targets(kept.astype(np.float64).reshape(targets.shape), targets)

    def smoother(self, X: Any, weights: FloatArray | None) -> FittedSmoother:
        """The neighbours of the training rows, themselves among them."""
        if weights is not None:
            raise InputError("Neighbours take no sample_weight: leave it out.")
        return FittedSmoother(self.coordinates(X), None)

    def coordinates(self, X: Any, n_threads: int = 1) -> csr_array:
        """(n, N): the weights themselves."""
        n_rows, rows = int(self._model.n_samples_fit_), self._rows(X)
        if rows.shape[0] == 0:
            return csr_array((0, n_rows))
        distances, found = self._neighbours(rows)
        alone = [i for i, own in enumerate(found) if len(own) == 0]
        if alone:
            is_regressor = self.classes is None and self.label_classes is None
            given = "nan" if is_regressor else "its outlier_label, or nothing,"
            raise InputError(
                f"Row {alone[0]} of these ({len(alone)} in all) has no training row within radius={self._model.radius}: "
                f"the model predicts {given} for it, which no row makes. Leave such rows out, or fit with a larger radius."
            )
        weights = neighbour_weights(distances, found, self._model.weights, n_rows)
        if not np.isfinite(weights.data).all():
            row = int(np.flatnonzero(~np.isfinite(weights.sum(axis=1)))[0])
            near = shown(np.asarray(distances[row]).tolist()[:5])
            raise InputError(
                f"The function given as weights makes no shares of the distances {near} of row {row} (from 0): the model "
                "itself predicts nan there. A training row is at distance 0 of itself: fit with a function that is "
                'finite there, such as lambda d: 1 / (d**2 + 1e-9), or with weights="distance".'
            )
        return weights

    def _neighbours(self, rows: FloatArray) -> tuple[Any, Any]:
        find = (
            self._model.radius_neighbors
            if hasattr(self._model, "radius_neighbors")
            else self._model.kneighbors
        )
        try:
            return find(rows)  # type: ignore[no-any-return]
        except ValueError as error:  # haversine distances in three dimensions, say
            raise InputError(f"scikit-learn finds no neighbours of these rows: {error}") from error
