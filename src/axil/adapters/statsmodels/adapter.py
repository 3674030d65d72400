"""statsmodels' least squares as linear smoothers: results of OLS, WLS and GLS.

They may come of arrays, frames or formulas.
"""

from __future__ import annotations

import hashlib
import re

import numpy as np

from axil.adapters.contract import FittedSmoother, SmootherModel
from axil.adapters.refusals import not_fitted, refuse
from axil.adapters.statsmodels.refusals import REFUSALS, fitted_by
from axil.adapters.stored_rows import check_rows, check_targets
from axil.aliases import FeatureTable, ForeignModel
from axil.arrays import FloatArray
from axil.errors import InputError

#: Singular values up to this share of the largest are zero to statsmodels (pinv_extended,
#: statsmodels/tools/tools.py).
SMALLEST_SINGULAR_VALUE = 1e-15
SAME_WEIGHT = 1e-6  # relative difference of sample weights and those of the fit


def read(model: ForeignModel) -> LeastSquaresAdapter | None:
    """Return the adapter for fitted results of statsmodels, None for any other object.

    Raise for results that axil refuses.
    """
    if not any(kind.__module__.startswith("statsmodels.") for kind in type(model).__mro__):
        return None
    if not hasattr(model, "params") or not hasattr(model, "model"):
        if hasattr(model, "endog") and hasattr(model, "fit"):
            raise not_fitted(model)
        return None
    refuse(REFUSALS, model)
    return LeastSquaresAdapter(model)


class LeastSquaresAdapter(SmootherModel):
    """Least squares of whitened rows.

    The coefficients are ``pinv(W X) W y`` with W'W the inverse of the errors' covariance. W is one
    for OLS, the roots of the weights for WLS, and what the known sigma leads to for GLS. All are
    read from the model.
    """

    library = "statsmodels"
    tolerance = 1e-9  # least squares in float64

    def __init__(self, results: ForeignModel):
        self._results = results
        self._model = results.model
        self._formula = getattr(self._model, "formula", None)
        self._kind = fitted_by(results)
        self._params = np.array(results.params, dtype=np.float64)
        self.fitted_rows = int(self._model.nobs)
        self._read_columns()
        digest = hashlib.sha256(f"{self._kind} {self._formula}".encode())
        digest.update(self._params.tobytes())
        self.fingerprint = digest.hexdigest()

    def _read_columns(self) -> None:
        if self._formula is not None:
            columns = [str(name) for name in self._model.data.frame.columns]
            self.feature_names = _named(self._formula, columns)
            self.n_features = len(self.feature_names)
            self.takes_text = True
            return
        self.n_features = len(self._params)
        self.feature_names = None
        if hasattr(self._model.data.orig_exog, "columns"):
            self.feature_names = [str(name) for name in self._model.exog_names]

    def coordinates(self, X: FeatureTable, n_threads: int = 1) -> FloatArray:
        """Return the columns of the design matrix, (n, p)."""
        if X.shape[0] == 0:
            return np.zeros((0, len(self._params)))
        if self._formula is None:
            if hasattr(X, "toarray"):
                dense = X.toarray()
            else:
                dense = X
            return np.asarray(dense, dtype=np.float64)
        design, _ = self._results._transform_predict_exog(X, transform=True)
        rows = np.asarray(design, dtype=np.float64)
        if not np.isfinite(rows).all():
            raise InputError(
                "The formula makes missing or infinite values of these rows. Leave such rows out."
            )
        return rows

    def predictions(self, X: FeatureTable) -> FloatArray:
        """Return the predictions of ``predict``, (n, 1)."""
        if self._formula is not None:
            rows = X
        else:
            rows = self.coordinates(X)
        return np.asarray(self._results.predict(rows), dtype=np.float64).reshape(-1, 1)

    def check_kept(self, X: FeatureTable, targets: FloatArray, weights: FloatArray | None) -> None:
        """Raise unless rows and targets are those that the model keeps.

        It keeps none if its data were removed.
        """
        if self._model.exog is None:
            return
        check_rows(np.asarray(self._model.exog), self.coordinates(X))
        fitted_targets = np.asarray(self._model.endog, dtype=np.float64)
        check_targets(fitted_targets.reshape(targets.shape), targets)

    def smoother(self, X: FeatureTable, weights: FloatArray | None) -> FittedSmoother:
        """Return the map from the targets to the coefficients."""
        rows = self.coordinates(X)
        self._check_weights(weights)
        whitened = np.asarray(self._model.whiten(rows), dtype=np.float64)
        solution = np.linalg.pinv(whitened, rcond=SMALLEST_SINGULAR_VALUE)
        root = self._root(len(rows))
        if root.ndim == 1:
            solution = solution * root
        else:
            solution = solution @ root
        return FittedSmoother(rows, solution, weighs_squares=root.ndim == 1)

    def _root(self, n_rows: int) -> FloatArray:
        """Return W: (N,) if errors are independent, otherwise (N, N)."""
        if self._kind == "WLS":
            weights = np.asarray(self._model.weights, dtype=np.float64)
            return np.sqrt(np.broadcast_to(weights, (n_rows,)))
        whitening = getattr(self._model, "cholsigmainv", None)
        if self._kind != "GLS" or whitening is None:
            return np.ones(n_rows)
        return np.asarray(whitening, dtype=np.float64)

    def _check_weights(self, weights: FloatArray | None) -> None:
        """Raise for sample weights that are not those of the fit.

        Without any, those of the model count.
        """
        if weights is None:
            return
        if self._kind != "WLS":
            raise InputError(f"{self._kind} of statsmodels takes no sample_weight: leave it out.")
        fitted = np.broadcast_to(np.asarray(self._model.weights, dtype=np.float64), weights.shape)
        if not np.allclose(weights, fitted, rtol=SAME_WEIGHT, atol=0):
            row = int(np.argmax(np.abs(weights - fitted)))
            raise InputError(
                f"sample_weight of row {row} is {weights[row]:g}; the model was fitted with "
                f"{fitted[row]:g}. Leave sample_weight out: the model keeps its weights."
            )

    def again(
        self, X: FeatureTable, targets: FloatArray, weights: FloatArray | None
    ) -> FloatArray | None:
        """Return predictions of a fit to the same rows, (N, 1)."""
        options = {}
        name = {"WLS": "weights", "GLS": "sigma"}.get(self._kind)
        if name is not None:
            options[name] = getattr(self._model, name)
        rows = self.coordinates(X)
        refitted = type(self._model)(targets[:, 0], rows, **options).fit()
        return np.asarray(refitted.predict(rows)).reshape(-1, 1)

    def causes(self, mismatch: str) -> str:
        """Return the most likely reasons for a disagreement, one per line."""
        return (
            "These are not the rows or targets that the model was fitted on, or not in its order.\n"
            "The column of ones for the intercept is missing (sm.add_constant), or targets were "
            "transformed (a logarithm)."
        )


def _named(formula: str, columns: list[str]) -> list[str]:
    """Return the columns that the right-hand side of a formula names."""
    right_side = formula.split("~", 1)[-1]

    def is_named(column: str) -> bool:
        return re.search(rf"(?<![\w.]){re.escape(column)}(?!\w)", right_side) is not None

    return [column for column in columns if is_named(column)]
