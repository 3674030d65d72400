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
from axil.adapters.sklearn import solvers as sklearn_solvers
from axil.adapters.sklearn import wrappers as sklearn_wrappers
from axil.adapters.statsmodels import refusals as statsmodels_refusals
from axil.adapters.xgboost import refusals as xgboost_refusals

PAGE = Path(__file__).parent.parent / "docs" / "models.md"
HEAD = """# Supported models

Made from the adapters' tables by `python scripts/make_models_page.py`; a test compares the two.

axil has exact weights of a model, or names the setting in their way. *Exact* means: weights times targets plus
the intercept equal the model's predictions, with the splits kept. The largest error allowed, relative to the largest prediction,
is 1e-9. It is 1e-6 for libraries that keep targets or residuals in single precision, and slightly more for XGBoost with
hundreds of trees, because XGBoost adds them up in single precision.

`axil.supports(model)` reports the same for your fitted model; it needs no data.

How to read the tables of settings without exact weights:

- *value*: the values in the way; empty where the setting itself is.
- *condition broken*: what is needed for exact weights ([theory](theory.md#where-exact-weights-end)). (i) The first prediction is
  linear in the targets. (ii) Residuals are linear in the targets, and leaf values linear in the residuals. "None" means that the
  model is linear in its targets, but axil cannot replay it.
- *explained*: "yes" where `axil.Explainer` takes the model all the same. Scores of boosted trees then add up from
  [pushes](classifiers.md); other models have [derivatives](derivatives.md), for small changes of a target. All others are
  refused.

[Refused, and what to do](faq.md#refused-and-what-to-do) has the commonest cases.

Linear smoothers are as exact as the solver that fitted them. Where predictions are more than a tenth of the tolerance away
from the exact solution, the same solver is run again on the data given. If it stays as far from the solution there, the data
are right, and ten times that error is allowed, up to 1e-6 in double and 1e-5 in single precision; beyond, the fit is refused
with its solver, `tol` and `n_iter_`, its precision or its condition number. If it comes ten times closer, the data are not
those of the fit.
"""
GAPS = """## What a model cannot show

A model is compared with the data in everything that it records. What it does not record, or records wrongly, is left:

- **Weights that change no number of the model.** A model of single leaves is the mean of its targets. Where means with and
  without sample weights are equal, nothing shows that weights were left out. Weights of rows whose targets are all equal are
  such a case too.
- **LightGBM, constant targets.** Gradients are then nothing but rounding, and with weights and bagging the weights that LightGBM
  records of its leaves are too: right data can end in an `ExactnessError`.
- **LightGBM, bundled columns.** Where columns with missing values or zeros overlap in a few rows, LightGBM can fit on other
  leaves than it predicts with. The error says so: fit with `enable_bundle=False`.
- **CatBoost over Dask.** Models with encodings of categories are refused over Dask collections, and other categories of a
  weighted fit may end in an `ExactnessError`, as the fit shuffles rows: use rows in memory, or fit with `has_time=True`.
"""
NOTES = {
    "LightGBM": "With `lambda_l1`, `max_delta_step` and `monotone_constraints` a pattern is held fixed besides the splits: "
    "[what that means](meaning.md).",
    "XGBoost": "`sampling_method=gradient_based` is refused and LightGBM's GOSS is exact, although both draw rows by their "
    "residuals. GOSS multiplies the rows that it draws from the rest by one constant. Gradient-based sampling gives each row a "
    "weight that depends on its residual, so leaf values are no longer linear in the residuals.",
    "CatBoost": "Categories beyond `one_hot_max_size` are encoded by the targets of the rows before, in an order drawn from "
    "`random_seed`: pass the rows in the order of the fit. Encodings, and with `monotone_constraints` a pattern, are held fixed "
    "besides the splits: [what that means](meaning.md). MultiRMSE takes the constraints and does not enforce them.",
}
#: Values that the tables do not hold by name, by setting and whether there is a derivative.
VALUES = {
    ("booster", False): "gblinear",
    ("sampling_method", False): "gradient_based",
    ("ensemble", False): "True",
    ("loss", True): "poisson, gamma",
    ("loss", False): "absolute_error, huber, quantile",
    ("boosting", False): "rf with GOSS",
    ("leaf_estimation_iterations", False): "above 1 with monotone_constraints",
}
OTHER = "any other, also your own"
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
            *sklearn_solvers.SOLVERS,
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


def refusals(rows: Iterable[Any]) -> list[str]:
    """One line for each setting and reason, with all values that share them."""
    rows = list(rows)
    named = {row.setting for row in rows if looked_for(row)}
    merged: dict[tuple[str, str, str, str], list[str]] = {}
    for row in rows:
        key = row.setting, row.reason, row.condition or "none; not replayed", "yes" if row.derivative else ""
        other = OTHER if row.setting in named else ""
        values, new = merged.setdefault(key, []), looked_for(row) or VALUES.get((row.setting, row.derivative), other)
        values.extend([new] if new and new not in values else [])
    return [
        f"| `{setting}` | {', '.join(values)} | {reason} | {condition} | {kind} |"
        for (setting, reason, condition, kind), values in merged.items()
    ]


def page() -> str:
    lines = [HEAD]
    for library, (models, exact, rows) in SECTIONS.items():
        lines += [f"## {library}", "", "Reads " + ", ".join(f"`{name}`" for name in models) + ".", "", "Exact:", ""]
        lines += [f"- {line}" for line in exact]
        lines += [
            "",
            "Without exact weights:",
            "",
            "| setting | value | why | condition broken | explained |",
            "|---|---|---|---|---|",
            *refusals(rows),
            "",
            *([NOTES[library], ""] if library in NOTES else []),
        ]
    lines += ["### Classes of scikit-learn without exact weights", "", "| class | why | explained |", "|---|---|---|"]
    for name, refused in sklearn_refusals.CLASSES.items():
        lines.append(f"| `{name}` | {refused.reason} | {'yes' if refused.derivative else ''} |")
    lines += ["", GAPS.rstrip()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} written\n")
