"""Write docs/models.md, the page of supported models and settings, from the adapters' own tables."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from axil.adapters import (
    catboost_refusals,
    lightgbm_refusals,
    sklearn_refusals,
    sklearn_smoothers,
    sklearn_solvers,
    xgboost_refusals,
)
from axil.adapters.sklearn import adapter as sklearn_adapters

PAGE = Path(__file__).parent.parent / "docs" / "models.md"
HEAD = """# Supported models

Made from the adapters by `python scripts/make_models_page.py`; a test compares the two.

A model is explained exactly, or refused by name. *Exact* means that weights times targets plus intercept equal the model's
predictions to 1e-6 of the largest (libraries that keep targets or residuals in single precision; XGBoost with hundreds of trees
to a little more, for its own sum strays) or 1e-9 (the others), with the fitted structure held fixed. Conditions are those of
the linear leaf-update criterion: (i) the first prediction is linear in the targets; (ii) residuals are linear in the targets
and leaf values linear in the residuals. `axil.supports(model)` tells for a fitted model, without its data. Where it says
*derivative*, `axil.JacobianExplainer` takes the model (docs/jacobian.md).

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
- **CatBoost, weights and categories.** Where the fit shuffled the rows to encode categories, the leaf weights that CatBoost
  records belong to other rows, and are not compared; leaf values are. `axil.dask` cannot count the categories, and ends in
  an `ExactnessError`: explain such a model on one machine, or fit with `has_time=True`.
"""
SECTIONS = {
    "LightGBM": (("LGBMRegressor", "Booster"), lightgbm_refusals.EXACT, lightgbm_refusals.REFUSALS),
    "XGBoost": (("XGBRegressor", "XGBRFRegressor", "Booster"), xgboost_refusals.EXACT, xgboost_refusals.REFUSALS),
    "CatBoost": (
        ("CatBoostRegressor", "CatBoost"),
        catboost_refusals.EXACT,
        (*catboost_refusals.REFUSALS, *catboost_refusals.DOUBTS),
    ),
    "scikit-learn": (
        (*sklearn_adapters.ADAPTERS, "Pipeline"),
        sklearn_refusals.EXACT,
        (
            *sklearn_refusals.STAGES,
            *sklearn_refusals.DRAWS,
            *sklearn_refusals.TREES,
            *sklearn_refusals.STEPS,
            *sklearn_solvers.SOLVERS,
        ),
    ),
}


def refusals(rows: Iterable[Any]) -> list[str]:
    """One line for each setting and reason."""
    merged: dict[tuple[str, str, str, str], None] = {}
    for row in rows:
        kind = "yes" if row.derivative else ""
        merged[row.setting, row.reason, row.condition or "none, but not replayed", kind] = None
    return [f"| `{setting}` | {reason} | {condition} | {kind} |" for setting, reason, condition, kind in merged]


def page() -> str:
    lines = [HEAD]
    for library, (models, exact, rows) in SECTIONS.items():
        lines += [f"## {library}", "", "Reads " + ", ".join(f"`{name}`" for name in models) + ".", "", "Exact:", ""]
        lines += [f"- {line}" for line in exact]
        lines += [
            "",
            "Refused:",
            "",
            "| setting | why | condition broken | derivative |",
            "|---|---|---|---|",
            *refusals(rows),
            "",
        ]
    lines += ["### Refused classes of scikit-learn", "", "| class | why | derivative |", "|---|---|---|"]
    for name, refused in sklearn_refusals.CLASSES.items():
        lines.append(f"| `{name}` | {refused.reason} | {'yes' if refused.derivative else ''} |")
    lines += ["", GAPS.rstrip()]
    assert set(sklearn_smoothers.SMOOTHERS) <= set(sklearn_adapters.ADAPTERS)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} written\n")
