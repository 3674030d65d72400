"""Write docs/models.md, the page of supported models and settings, from the adapters' own tables."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from axil.adapters.catboost import refusals as catboost_refusals
from axil.adapters.lightgbm import rates as lightgbm_rates
from axil.adapters.lightgbm import refusals as lightgbm_refusals
from axil.adapters.sklearn import adapter as sklearn_adapters
from axil.adapters.sklearn import refusals as sklearn_refusals
from axil.adapters.sklearn import wrappers as sklearn_wrappers
from axil.adapters.statsmodels import refusals as statsmodels_refusals
from axil.adapters.xgboost import refusals as xgboost_refusals

PAGE = Path(__file__).parent.parent / "docs" / "models.md"
HEAD = """# Supported models

Made from the adapters' tables by `python scripts/make_models_page.py`; a test compares the two. `axil.supports(model)`
reports the same for your fitted model and needs no data; [Refused, and what to do](faq.md#refused-and-what-to-do) has the
commonest cases.

*Exact* means: weights times targets plus the intercept equal the model's predictions, with the splits kept. The largest
error allowed, relative to the largest prediction, is 1e-9; it is 1e-6 for libraries that keep targets or residuals in
single precision, and slightly more for XGBoost with hundreds of trees.

The tables have what is not exact. [Pushes](classifiers.md) or [derivatives](derivatives.md) in the last column mean that
`axil.Explainer` takes the model all the same; every other line is a refusal, which the error explains. (i) and (ii) name the
[condition](theory.md#where-exact-weights-end) that is broken: the first prediction is linear in the targets; residuals are
linear in the targets, and leaf values in the residuals. Lines without either are linear in the targets, but axil cannot
replay them.

Linear smoothers are as exact as the solver that fitted them. Where predictions are more than a tenth of the tolerance away
from the exact solution, the solver is run again on the data given: if it stays as far away, ten times that error is
allowed, up to 1e-6 in double and 1e-5 in single precision, and beyond the fit is refused by its solver, `tol`, `cv`, dtype
or condition number; if it comes ten times closer, the data are not those of the fit.
"""
GAPS = """## What a model cannot show

A model is compared with the data in everything that it records. What it does not record, or records wrongly, is left:

- **Weights that change no number of the model**, as where means with and without sample weights are equal, or all targets
  are.
- **LightGBM, constant targets.** Gradients are then rounding: with weights and bagging right data can end in an
  `ExactnessError`.
- **LightGBM, bundled columns** that overlap in a few rows: it can fit on other leaves than it predicts with. The error says
  so: fit with `enable_bundle=False`.
- **CatBoost over Dask.** Encodings of categories are refused, and other categories of a weighted fit may end in an
  `ExactnessError`: use rows in memory, or fit with `has_time=True`.
"""
NOTES = {
    "LightGBM": "With L1, `max_delta_step` and `monotone_constraints` a pattern is held besides the splits: [what that "
    "means](meaning.md).",
    "XGBoost": "Gradient-based sampling is refused and LightGBM's GOSS is exact, although both draw rows by their residuals: "
    "GOSS multiplies the rows that it draws from the rest by one constant, gradient-based sampling gives each row a weight that "
    "depends on its residual.",
    "CatBoost": "Categories beyond `one_hot_max_size` are encoded by the targets of the rows before, in an order drawn from "
    "`random_seed`: pass the rows in the order of the fit. Encodings are [held](meaning.md) besides the splits. MultiRMSE takes "
    "monotone constraints and does not enforce them.",
}
#: Values that the tables do not hold by name, by setting and how the reason begins.
VALUES = {
    ("booster", ""): "gblinear",
    ("sampling_method", ""): "gradient_based",
    ("loss", "predictions pass"): "poisson, gamma",
    ("loss", "its leaf values"): "any other",
    ("boosting", ""): "rf with GOSS",
    ("leaf_estimation_iterations", "CatBoost then adds"): "above 1 with Exact leaves",
    ("leaf_estimation_iterations", "leaves are pooled"): "above 1 with monotone_constraints",
    ("objective", "percentiles of residuals"): "quantile, regression_l1, mape on CUDA or several machines",
    ("objective", "leaf values are then"): "reg:absoluteerror, reg:quantileerror with tree_method=exact or XGBoost 3.4",
    ("objective", "its gradients"): "any other",
    ("loss_function", "a GPU makes"): "MultiClass on a GPU",
    ("loss_function", "its gradients"): "a function of your own",
    ("loss_function", "it is not"): "any other",
    ("class", "axil reads"): "any other",
}
OWN = "a function of your own"
LOSSES = ("objective", "loss_function", "loss", "class")
OTHER = "any other"
NOT_LINEAR = "not linear in the targets"
SECTIONS = {
    "LightGBM": (
        ("LGBMRegressor", "Booster"),
        lightgbm_refusals.EXACT,
        (*lightgbm_refusals.REFUSALS, *lightgbm_rates.FIRST),
    ),
    "XGBoost": (("XGBRegressor", "XGBRFRegressor", "Booster"), xgboost_refusals.EXACT, xgboost_refusals.REFUSALS),
    "CatBoost": (
        ("CatBoostRegressor", "CatBoost"),
        catboost_refusals.EXACT,
        (*catboost_refusals.REFUSALS, *catboost_refusals.DOUBTS),
    ),
    "scikit-learn": (
        (
            *sklearn_adapters.ADAPTERS,
            *(name for name in sklearn_wrappers.WRAPPERS if "Bagging" not in name),
            "Pipeline",
        ),
        sklearn_refusals.EXACT,
        (
            *sklearn_refusals.STAGES,
            *sklearn_refusals.DRAWS,
            *sklearn_refusals.TREES,
            *sklearn_refusals.STEPS,
            *sklearn_refusals.CALIBRATION,
        ),
    ),
    "statsmodels": (
        ("OLS().fit()", "WLS().fit()", "GLS().fit()"),
        statsmodels_refusals.EXACT,
        statsmodels_refusals.REFUSALS,
    ),
}


def looked_for(row: Any) -> str:
    """The value that a refusal's test was made for, where it was made for one."""
    name = str(inspect.getclosurevars(row.found).nonlocals.get("name", ""))
    return "" if name == row.setting else name


def value_of(row: Any) -> str:
    """The value that a row is about, empty where it is about the setting."""
    named = (value for (name, reason), value in VALUES.items() if name == row.setting and row.reason.startswith(reason))
    if row.reason.startswith("with other leaves"):
        return f"{looked_for(row)} (leaves not Exact)"
    return looked_for(row) or (OWN if row.derivative and row.setting == "objective" else next(named, ""))


def refusals(rows: Iterable[Any]) -> list[str]:
    """One line for each setting and reason; losses have one for those that pushes explain, and one for those not linear."""
    merged: dict[tuple[str, str], list[str]] = {}
    for row in sorted(rows, key=lambda row: not row.derivative):
        value, why = value_of(row), row.reason.removeprefix("linear in the targets, but ")
        broken = f"{why} {row.condition}" if row.condition else why
        loss = row.setting in LOSSES and value and row.condition
        key = row.setting, "explained by pushes" if row.derivative else NOT_LINEAR if loss else broken
        values = merged.setdefault(key, [])
        values.extend([value] if value and value not in values else [])
    return [
        f"| {' '.join([f'`{setting}`', ', '.join(sorted(values, key=OTHER.__eq__))]).strip()} | {why} |"
        for (setting, why), values in merged.items()
    ]


def classes(refused: dict[str, Any]) -> list[str]:
    """One line for each answer, with all classes that share it."""
    merged: dict[str, list[str]] = {}
    for name, row in refused.items():
        instead = f"explained by {'pushes' if 'GradientBoosting' in name else 'derivatives'}"
        refused_by = row.reason if row.reason.startswith("axil") else NOT_LINEAR
        merged.setdefault(instead if row.derivative else refused_by, []).append(f"`{name}`")
    return [f"| {', '.join(names)} | {why} |" for why, names in merged.items()]


def page() -> str:
    lines = [HEAD]
    for library, (models, exact, rows) in SECTIONS.items():
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(models))
        lines += [f"## {library}", "", f"Reads {names}. Exact:", "", *(f"- {line}" for line in exact), ""]
        lines += ["| setting | why not exact |", "|---|---|", *refusals(rows)]
        lines += [*(classes(sklearn_refusals.CLASSES) if library == "scikit-learn" else ()), ""]
        lines += [NOTES[library], ""] if library in NOTES else []
    lines += [GAPS.rstrip()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} written\n")
