"""Which results of statsmodels axil does not explain, and why: a table, tried in order, that also makes the documentation."""

from __future__ import annotations

from typing import Any

from axil.adapters.refusals import DAMPED, Refusal, by_name

EXACT = (
    "OLS and WLS, with weights read from the model; method pinv and qr; any cov_type",
    "GLS with a known sigma, held fixed; one that was estimated from residuals is held fixed too",
    "formulas: X_train is a pandas frame of the columns that the right-hand side names; transforms are held fixed",
)

_OLS = "Fit with OLS, WLS or GLS."
_REGRESSION = ("OLS", "WLS", "GLS")
_CLASSES = {  # name: reason, condition
    "QuantReg": ("its predictions are quantiles", "(ii)"),
    "RLM": (DAMPED, "(ii)"),
    "GLSAR": ("its errors' correlation is estimated from residuals, time after time", "(ii)"),
    **dict.fromkeys(
        ("GLM", "Logit", "Probit", "MNLogit", "Poisson", "NegativeBinomial"),
        ("its coefficients are found by iteration through a link", "(ii)"),
    ),
}


def fitted_by(results: Any) -> str:
    """The class of the model that these are the results of; its parent's where it is the user's own."""
    kinds = type(results.model).__mro__
    return next(
        (kind.__name__ for kind in kinds if kind.__module__.startswith("statsmodels.")),
        kinds[0].__name__,
    )


def _regularised(results: Any) -> str:
    inner = getattr(results, "_results", results)
    return type(inner).__name__ if "Regularized" in type(inner).__name__ else ""


def _other(results: Any) -> str:
    return "" if fitted_by(results) in _REGRESSION else fitted_by(results)


def _several(results: Any) -> str:
    shape = getattr(results.params, "shape", ())
    return "" if len(shape) == 1 else str(shape)


REFUSALS: tuple[Refusal[Any], ...] = (
    Refusal(
        "fit_regularized",
        _regularised,
        "its coefficients are shrunk to zero by a threshold",
        "Use fit() instead.",
        "(ii)",
    ),
    *by_name("class", lambda results: [fitted_by(results)], _CLASSES, _OLS),
    Refusal("class", _other, "axil reads OLS, WLS and GLS of statsmodels", _OLS),
    Refusal(
        "params",
        _several,
        "axil reads least squares of one output",
        "Fit one model for each output.",
    ),
)
