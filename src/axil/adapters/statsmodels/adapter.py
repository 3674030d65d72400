"""statsmodels' least squares as linear smoothers: the results of OLS, WLS and GLS, from arrays, frames or formulas."""

from __future__ import annotations

import hashlib
import re
from typing import Any

import numpy as np

from axil.adapters.contract import FittedSmoother, SmootherModel
from axil.adapters.kept_rows import check_rows, check_targets
from axil.adapters.refusals import not_fitted, refuse
from axil.adapters.statsmodels.refusals import REFUSALS, fitted_by
from axil.arrays import FloatArray
from axil.errors import InputError

# Of the largest singular value: what statsmodels leaves out (pinv_extended, statsmodels/tools/tools.py)
SMALLEST = 1e-15
SAME = 1e-6  # of a weight: given weights and those of the fit


def read(model: Any) -> LeastSquaresAdapter | None:
    """The adapter for fitted results of statsmodels, None for any other object; raises for what is refused."""
    if not any(kind.__module__.startswith("statsmodels.") for kind in type(model).__mro__):
        return None
    if not hasattr(model, "params") or not hasattr(model, "model"):
        if hasattr(model, "endog") and hasattr(model, "fit"):
            raise not_fitted(model)
        return None
    refuse(REFUSALS, model)
    return LeastSquaresAdapter(model)


class LeastSquaresAdapter(SmootherModel):
    """Least squares of whitened rows: coefficients are ``pinv(W X) W y`` with W'W the inverse of the errors' covariance.

    W is one for OLS, the roots of the weights for WLS, and what the known sigma leads to for GLS. All are read from the model.
    """

    library = "statsmodels"
    tolerance = 1e-9  # least squares in float64

    def __init__(self, results: Any):
        self._results, self._model = results, results.model
        self._formula = getattr(self._model, "formula", None)
        self._kind = fitted_by(results)
        self._params = np.array(results.params, dtype=np.float64)
        self.fitted_rows = int(self._model.nobs)
        if self._formula is not None:
            self.feature_names = _named(
                self._formula, [str(name) for name in self._model.data.frame.columns]
            )
            self.n_features, self.takes_text = len(self.feature_names), True
        else:
            self.n_features = len(self._params)
            framed = hasattr(self._model.data.orig_exog, "columns")
            self.feature_names = [str(name) for name in self._model.exog_names] if framed else None
        self.fingerprint = hashlib.sha256(
            f"{self._kind} {self._formula}".encode() + self._params.tobytes()
        ).hexdigest()

    def coordinates(self, X: Any, n_threads: int = 1) -> FloatArray:
        """(n, p): the columns of the design matrix."""
        if X.shape[0] == 0:
            return np.zeros((0, len(self._params)))
        if self._formula is None:
            return np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
        rows = np.asarray(
            self._results._transform_predict_exog(X, transform=True)[0], dtype=np.float64
        )
        if not np.isfinite(rows).all():
            raise InputError(
                "The formula makes missing or infinite values of these rows. Leave such rows out."
            )
        return rows

    def predictions(self, X: Any) -> FloatArray:
        """(n, 1): what ``predict`` gives."""
        given = X if self._formula is not None else self.coordinates(X)
        return np.asarray(self._results.predict(given), dtype=np.float64).reshape(-1, 1)

    def check_kept(self, X: Any, targets: FloatArray, weights: FloatArray | None) -> None:
        """The model keeps rows and targets, unless its data were removed."""
        if self._model.exog is not None:
            check_rows(np.asarray(self._model.exog), self.coordinates(X))
            check_targets(
                np.asarray(self._model.endog, dtype=np.float64).reshape(targets.shape), targets
            )

    def smoother(self, X: Any, weights: FloatArray | None) -> FittedSmoother:
        """Coefficients from the targets."""
        rows = self.coordinates(X)
        self._check_weights(weights)
        whitened = np.asarray(self._model.whiten(rows), dtype=np.float64)
        solution = np.linalg.pinv(whitened, rcond=SMALLEST)
        root = self._root(len(rows))
        solution = solution * root if root.ndim == 1 else solution @ root
        return FittedSmoother(rows, solution, weighs_squares=root.ndim == 1)

    def _root(self, n_rows: int) -> FloatArray:
        """W: (N,) where errors are independent, else (N, N)."""
        if self._kind == "WLS":
            return np.sqrt(
                np.broadcast_to(np.asarray(self._model.weights, dtype=np.float64), (n_rows,))
            )
        whitening = getattr(self._model, "cholsigmainv", None) if self._kind == "GLS" else None
        return np.ones(n_rows) if whitening is None else np.asarray(whitening, dtype=np.float64)

    def _check_weights(self, weights: FloatArray | None) -> None:
        """Raise for sample weights that are not those of the fit; without any, those of the model are taken."""
        if weights is None:
            return
        if self._kind != "WLS":
            raise InputError(f"{self._kind} of statsmodels takes no sample_weight: leave it out.")
        kept = np.broadcast_to(np.asarray(self._model.weights, dtype=np.float64), weights.shape)
        if not np.allclose(weights, kept, rtol=SAME, atol=0):
            row = int(np.argmax(np.abs(weights - kept)))
            raise InputError(
                f"sample_weight of row {row} is {weights[row]:g}; the model was fitted with {kept[row]:g}. Leave sample_weight "
                "out: the model keeps its weights."
            )

    def again(self, X: Any, targets: FloatArray, weights: FloatArray | None) -> FloatArray | None:
        """(N, 1): predictions of a fit to the same rows."""
        how = {"WLS": "weights", "GLS": "sigma"}.get(self._kind)
        given = {} if how is None else {how: getattr(self._model, how)}
        rows = self.coordinates(X)
        return np.asarray(
            type(self._model)(targets[:, 0], rows, **given).fit().predict(rows)
        ).reshape(-1, 1)

    def causes(self, what: str) -> str:
        """Reasons for a disagreement."""
        return (
            "These are not the rows or targets that the model was fitted on, or not in its order.\n"
            "The column of ones for the intercept is missing (sm.add_constant), or targets were transformed (a logarithm)."
        )


def _named(formula: str, columns: list[str]) -> list[str]:
    """The columns that the right-hand side of a formula names."""
    right = formula.split("~", 1)[-1]
    return [name for name in columns if re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", right)]
