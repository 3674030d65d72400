"""The results of statsmodels that axil does not explain, and why.

The table is tried in order and also makes the documentation.
"""

from __future__ import annotations

from axil.adapters.refusals import DAMPED, Refusal, by_name
from axil.aliases import ForeignModel

EXACT = (
    "OLS and WLS by pinv and qr; GLS with its sigma fixed",
    "formulas: pass a pandas frame with the columns that the right-hand side names",
)

_OLS = "Fit with OLS, WLS or GLS."
_REGRESSION = ("OLS", "WLS", "GLS")
_CLASSES = {  # name: reason, condition
    "QuantReg": ("its predictions are quantiles", "(ii)"),
    "RLM": (DAMPED, "(ii)"),
    "GLSAR": (
        "the correlation of its errors is estimated from residuals, iteration after iteration",
        "(ii)",
    ),
    **dict.fromkeys(
        ("GLM", "Logit", "Probit", "MNLogit", "Poisson", "NegativeBinomial"),
        ("its coefficients are found by iteration through a link", "(ii)"),
    ),
}


def fitted_by(results: ForeignModel) -> str:
    """Return the class of the model that these are the results of.

    It is the parent's where the class is the user's own.
    """
    kinds = type(results.model).__mro__
    names = [kind.__name__ for kind in kinds if kind.__module__.startswith("statsmodels.")]
    if names:
        return names[0]
    return kinds[0].__name__


def _regularised(results: ForeignModel) -> str:
    inner = getattr(results, "_results", results)
    name = type(inner).__name__
    if "Regularized" in name:
        return name
    return ""


def _other(results: ForeignModel) -> str:
    kind = fitted_by(results)
    if kind in _REGRESSION:
        return ""
    return kind


def _several(results: ForeignModel) -> str:
    shape = getattr(results.params, "shape", ())
    if len(shape) == 1:
        return ""
    return str(shape)


REFUSALS: tuple[Refusal[ForeignModel], ...] = (
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
