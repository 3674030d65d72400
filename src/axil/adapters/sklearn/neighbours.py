"""scikit-learn's nearest neighbours, regressors and classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import csr_array

from axil.adapters.contract import FittedSmoother
from axil.adapters.sklearn.smoothers import SmootherAdapter, dense, rounding_of_mean
from axil.adapters.stored_rows import check_rows, check_targets
from axil.aliases import FeatureTable, ForeignModel, ForeignObject
from axil.arrays import FloatArray
from axil.errors import InputError, shown
from axil.inputs.copies import owned
from axil.inputs.label_classes import LabelClasses


class NeighboursAdapter(SmootherAdapter):
    """Nearest neighbours, by number or within a radius.

    Predictions are means of their targets, or of their one-hot classes.
    """

    def __init__(self, model: ForeignModel):
        classes = getattr(model, "classes_", None)
        if isinstance(classes, list):
            self.label_classes = LabelClasses([owned(np.asarray(names)) for names in classes])
        elif classes is not None:
            self.classes = owned(np.asarray(classes))
        super().__init__(model)
        self._is_radius = hasattr(model, "radius_neighbors")
        self.fitted_rows = int(model.n_samples_fit_)
        n_neighbors = getattr(model, "n_neighbors", None)
        if n_neighbors is not None and not self._is_radius and n_neighbors > self.fitted_rows:
            raise InputError(
                f"This {type(model).__name__} has n_neighbors={n_neighbors} and was fitted on "
                f"{self.fitted_rows} rows: its own predict fails. Fit with n_neighbors of at most "
                f"{self.fitted_rows}."
            )

    def _count_outputs(self, model: ForeignModel) -> int:
        if self.label_classes is not None:
            return len(self.label_classes.names)
        if self.classes is not None:
            return len(self.classes)
        if np.ndim(model._y) == 1:
            return 1
        return int(model._y.shape[1])

    def _state(self) -> ForeignObject:
        return np.asarray(dense(self._model._fit_X)), np.asarray(self._model._y)

    def _in_single_precision(self) -> bool:
        return False

    def _rounding_of_targets(self) -> float:
        """Return the rounding of the means over neighbours, in the type of the targets."""
        n_neighbours = getattr(self._model, "n_neighbors", None)
        return rounding_of_mean(self._model._y, n_neighbours or int(self._model.n_samples_fit_))

    def _rows(self, X: FeatureTable) -> FeatureTable:
        """Return the rows unchanged.

        Distances between sparse rows, or rows in float32, are rounded otherwise.
        """
        return self._as_given(X)

    def again(
        self, X: FeatureTable, targets: FloatArray, weights: FloatArray | None
    ) -> FloatArray | None:
        """Return None: neighbours are found, not solved for."""
        return None

    def check_kept(self, X: FeatureTable, targets: FloatArray, weights: FloatArray | None) -> None:
        """Raise unless rows and targets are those of the fit.

        Any rows have neighbours, so predictions would agree for any X.
        """
        check_rows(self._model._fit_X, self._rows(X))
        check_targets(self._targets_of_fit().astype(np.float64).reshape(targets.shape), targets)

    def _targets_of_fit(self) -> ForeignObject:
        """Return the targets that the model keeps, classes as one-hot columns."""
        targets = np.asarray(self._model._y)
        if self.label_classes is not None:  # kept as their numbers
            sizes = [len(names) for names in self.label_classes.classes]
            one_hot = [codes[:, None] == np.arange(size) for codes, size in zip(targets.T, sizes)]
            return np.concatenate(one_hot, axis=1)
        if self.classes is not None:
            return targets.reshape(-1, 1) == np.arange(len(self.classes))
        return targets

    def smoother(self, X: FeatureTable, weights: FloatArray | None) -> FittedSmoother:
        """Return the neighbours of the training rows, themselves among them."""
        if weights is not None:
            raise InputError("Neighbours take no sample_weight: leave it out.")
        return FittedSmoother(self.coordinates(X), None)

    def coordinates(self, X: FeatureTable, n_threads: int = 1) -> csr_array:
        """Return the weights of the training rows, (n, N)."""
        n_rows = int(self._model.n_samples_fit_)
        rows = self._rows(X)
        if rows.shape[0] == 0:
            return csr_array((0, n_rows))
        distances, neighbours = self._neighbours(rows)
        self._require_neighbours(neighbours)
        weights = [self._weights(distance) for distance in distances]
        ends = np.cumsum([0, *(len(row_weights) for row_weights in weights)])
        columns = np.concatenate(list(neighbours))
        shares = csr_array((np.concatenate(weights), columns, ends), shape=(len(weights), n_rows))
        self._require_finite(shares, distances)
        return shares

    def _neighbours(self, rows: FloatArray) -> tuple[ForeignObject, ForeignObject]:
        """Return distances and numbers of the neighbours of each row."""
        if self._is_radius:
            find = self._model.radius_neighbors
        else:
            find = self._model.kneighbors
        try:
            return find(rows)  # type: ignore[no-any-return]
        except ValueError as error:  # for example haversine distances in three dimensions
            raise InputError(f"scikit-learn finds no neighbours of these rows: {error}") from error

    def _weights(self, distance: Any) -> FloatArray:
        """Return the weights of neighbours at these distances, which sum to one.

        They count equally, by inverse distance, or by the user's function.
        """
        rule = self._model.weights
        # Inverse distances may be infinite, and then the shares are not finite.
        with np.errstate(divide="ignore", invalid="ignore"):
            if rule == "distance":
                is_same = distance == 0
                if is_same.any():
                    weights = is_same.astype(float)
                else:
                    weights = 1.0 / distance
            elif callable(rule):
                weights = np.asarray(rule(distance), dtype=float)
            else:
                weights = np.ones(len(distance))
            if len(weights):
                weights = weights / weights.sum()
        return np.asarray(weights)

    def _require_neighbours(self, neighbours: Any) -> None:
        """Raise for rows without any training row within the radius."""
        isolated_rows = [i for i, numbers in enumerate(neighbours) if len(numbers) == 0]
        if isolated_rows:
            is_regressor = self.classes is None and self.label_classes is None
            if is_regressor:
                predicted = "nan"
            else:
                predicted = "its outlier_label, or nothing,"
            raise InputError(
                f"Row {isolated_rows[0]} of these ({len(isolated_rows)} in all) has no training "
                f"row within radius={self._model.radius}: the model predicts {predicted} for it, "
                "which no row makes. Leave such rows out, or fit with a larger radius."
            )

    def _require_finite(self, shares: csr_array, distances: Any) -> None:
        """Raise if the weights of the user's function are not finite."""
        if np.isfinite(shares.data).all():
            return
        row = int(np.flatnonzero(~np.isfinite(shares.sum(axis=1)))[0])
        near = shown(np.asarray(distances[row]).tolist()[:5])
        raise InputError(
            f"The function given as weights makes no shares of the distances {near} of row {row} "
            "(from 0): the model itself predicts nan there. A training row is at distance 0 of "
            "itself: fit with a function that is finite there, such as "
            'lambda d: 1 / (d**2 + 1e-9), or with weights="distance".'
        )
