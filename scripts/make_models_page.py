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
from axil.adapters.refusals import OTHER_GRADIENTS
from axil.adapters.sklearn import adapter as sklearn_adapters
from axil.adapters.sklearn import refusals as sklearn_refusals
from axil.adapters.sklearn import wrappers as sklearn_wrappers
from axil.adapters.statsmodels import refusals as statsmodels_refusals
from axil.adapters.xgboost import refusals as xgboost_refusals

PAGE = Path(__file__).parent.parent / "docs" / "models.md"
HEAD = """# Supported models

Made from the adapters' tables by `python scripts/make_models_page.py`; a test compares the two.
`axil.supports(model)` reports the same of your model without data; [Refused, and what to
do](faq.md#refused-and-what-to-do) has the commonest cases.

*Exact* means: weights times targets plus the intercept equal the model's predictions, with the
splits kept. The largest error allowed, relative to the largest prediction, is 1e-9; it is 1e-6
for libraries that keep targets or residuals in single precision, and slightly more for XGBoost
with hundreds of trees.

The tables list what is not exact. `axil.Explainer` also takes models that
[contributions](classifiers.md) or [derivatives](derivatives.md) explain. It refuses the rest,
and the error says why and what to do. Settings that are not linear in the targets break one of
two [conditions](how.md#where-exact-weights-end). Those not replayed are linear, but the model
does not record what a replay needs.

A linear smoother is as exact as the solver that fitted it. Where predictions are further from
the exact solution than a tenth of the tolerance, axil runs the solver again on the data given.
If it ends as far away, ten times that error is allowed, up to 1e-6 in double and 1e-5 in single
precision; beyond, the fit is refused by name.
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
SUPPORT = """## Versions and support

**Version numbers** are `major.minor.patch`. Before 1.0 a minor version may change an interface.
The changelog lists each change under "Changed". From 1.0 on, a public name is first deprecated,
with a warning that says what to use. It is removed no earlier than two minor versions and twelve
months later. Public is what [the reference](reference.md) lists.

**Numbers are part of the interface.** A release that changes an answer by more than rounding
says so under "Fixed" and names the models. A setting that was refused may become exact. One that
was exact is never approximated silently.

**Saved explainers.** The next minor version reads a file, or refuses it by name and says what to
do.

**Dependencies.** axil needs NumPy, SciPy, narwhals, threadpoolctl and Jinja2. As [SPEC
0](https://scientific-python.org/specs/spec-0000/) asks, axil supports a version of Python for at
least three years, and one of NumPy, SciPy or pandas for at least two. Every change is tested on
the newest Python with the newest libraries. The contract tests also run on the oldest Python
with all lower bounds (`make test-oldest`). A new version of a model library needs no new version
of axil. If it makes its leaves in another way, axil raises an `ExactnessError`.

**Platforms.** A release builds wheels for Linux (x86-64, aarch64), macOS (arm64, x86-64) and
Windows (x86-64). Elsewhere the source builds with a compiler for C++17. Fixes go to the newest
minor version. SECURITY.md says how to report a vulnerability.
"""
NOTES = {
    "LightGBM": "With L1, `max_delta_step` and `monotone_constraints` a pattern is held besides the splits: [what that "
    "means](meaning.md).",
    "XGBoost": "LightGBM's GOSS weighs the rows that it draws by one constant, so it is exact. XGBoost's gradient-based sampling "
    "weighs each row by its residual, so it is refused.",
    "CatBoost": "Categories beyond `one_hot_max_size` are encoded by the targets of the rows before, in an order drawn from "
    "`random_seed`: pass the rows in the order of the fit. Encodings are [held](meaning.md) besides the splits. MultiRMSE does "
    "not enforce monotone constraints.",
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
    (
        "objective",
        "percentiles of residuals",
    ): "quantile, regression_l1, mape on CUDA or several machines",
    (
        "objective",
        "leaf values are Newton",
    ): "reg:absoluteerror (XGBoost 3.4), reg:quantileerror (XGBoost 3.4)",
    (
        "objective",
        "leaf values are then",
    ): "reg:absoluteerror (exact up to XGBoost 3.3), reg:quantileerror (exact up to XGBoost 3.3)",
    ("objective", "its gradients"): "any other",
    ("loss_function", "a GPU makes"): "MultiClass on a GPU",
    ("loss_function", "linear in the targets"): "MultiRMSEWithMissingValues without Newton",
    ("loss_function", "its gradients"): "a function of your own",
    ("loss_function", "it is not"): "any other",
    ("class", "axil reads"): "any other",
    ("num_tree_per_iteration", ""): "above 1",
    (
        "linear_tree",
        "linear leaves",
    ): "with DART, GOSS, rf, L1, path_smooth, bounds or another loss",
    ("monotone_constraints", "the constraints changed"): "that changed during the fit",
    ("monotone_constraints", "trees for several"): "with multi_output_tree",
    ("monotone_constraints", "a model that was"): "of a continued model",
    ("monotone_constraints_method", "forced"): "with forced splits",
    ("monotone_constraints_method", "splits that"): "intermediate with path_smooth",
    ("monotone_constraints_method", "bounds"): "advanced with missing values",
    ("use_quantized_grad", "leaf values"): "without quant_train_renew_leaf",
    ("use_quantized_grad", "its trees"): "on CUDA",
    ("max_bin", ""): "above 256 on CUDA",
    ("refit_decay_rate", "Booster.refit"): "above 0",
    ("refit_decay_rate", "a refit"): "0 with more than lambda_l2",
    ("forcedsplits_filename", ""): "with path_smooth or categories",
    ("learning_rate", ""): "of a first tree of two leaves that differs",
    ("estimator", ""): "XGBClassifier, XGBRanker with squared error",
    ("scale_pos_weight", ""): "other than 1",
    ("subsample", "where residuals"): "with huber and early stopping",
    ("subsample", ""): "of a model file, which loses it",
    ("multi_strategy", ""): "both in one model",
    ("base_score", ""): "one estimate for several outputs",
    ("params", "the model keeps"): "that are lost",
    ("params", "axil reads"): "of several outputs",
    ("leaf_estimation_method", "with monotone"): "Simple with monotone_constraints",
    ("leaf_estimation_backtracking", ""): "on a GPU",
    ("task_type", ""): "GPU with encoded categories",
    ("init_model", "the fit went"): "with encoded categories",
    ("init_model", "the other trees"): "of another loss or other rows",
    ("target_border", ""): "in a file of JSON",
    ("features", ""): "whose zeros CatBoost parts otherwise",
    ("init", ""): "of a quantile",
    ("random_state", ""): "None with draws or early stopping",
    ("criterion", "medians"): "absolute_error with monotonic_cst",
    ("criterion", "its leaf"): "any other",
    ("warm_start", ""): "on other rows",
    ("ensemble", ""): "True",
    ("positive", ""): "True",
    ("alpha", ""): "several",
}
OWN = "a function of your own"
OTHER = "any other"
ANSWERS = (
    "explained by contributions",
    "explained by derivatives",
    "not linear in the targets",
    "not replayed",
)
SECTIONS = {
    "LightGBM": (
        ("LGBMRegressor", "Booster"),
        lightgbm_refusals.EXACT,
        (*lightgbm_refusals.REFUSALS, *lightgbm_rates.FIRST),
    ),
    "XGBoost": (
        ("XGBRegressor", "XGBRFRegressor", "Booster"),
        xgboost_refusals.EXACT,
        xgboost_refusals.REFUSALS,
    ),
    "CatBoost": (
        ("CatBoostRegressor", "CatBoost"),
        catboost_refusals.EXACT,
        (*catboost_refusals.REFUSALS, *catboost_refusals.DOUBTS),
    ),
    "scikit-learn": (
        (
            *(name for name in sklearn_adapters.BOOSTED if name not in sklearn_refusals.CLASSES),
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
            *sklearn_refusals.SMOOTHERS,
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
    name = str(inspect.getclosurevars(row.find_value).nonlocals.get("name", ""))
    return "" if name == row.setting else name


def value_of(row: Any) -> str:
    """The value that a row is about, empty where it is about the setting."""
    named = (
        value
        for (name, reason), value in VALUES.items()
        if name == row.setting and row.reason.startswith(reason)
    )
    if row.reason.startswith("with other leaves"):
        return f"{looked_for(row)} (leaves not Exact)"
    if row.derivative and row.setting == "objective" and row.reason == OTHER_GRADIENTS:
        return looked_for(row) or OWN
    return looked_for(row) or next(named, "")


def refusals(rows: Iterable[Any], refused: dict[str, Any]) -> list[str]:
    """A line for each answer, with the settings, their values and the classes that have it."""
    merged: dict[str, dict[str, list[str]]] = {why: {} for why in ANSWERS}
    for row in rows:
        why = ANSWERS[0] if row.derivative else ANSWERS[2] if row.condition else ANSWERS[3]
        values, value = merged[why].setdefault(f"`{row.setting}`", []), value_of(row)
        values.extend([value] if value and value not in values else [])
    for name, row in refused.items():
        boosted, unread = "GradientBoosting" in name, row.reason.startswith("axil")
        why = ANSWERS[3 if unread else 2] if not row.derivative else ANSWERS[0 if boosted else 1]
        merged[why][f"`{name}`"] = []
    named = {
        why: [
            " ".join([name, ", ".join(sorted(values, key=OTHER.__eq__))]).strip()
            for name, values in of.items()
        ]
        for why, of in merged.items()
    }
    return [f"| {why} | {'; '.join(listed)} |" for why, listed in named.items() if listed]


def page() -> str:
    lines = [HEAD]
    for library, (models, exact, rows) in SECTIONS.items():
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(models))
        lines += [
            f"## {library}",
            "",
            f"Reads {names}. Exact:",
            "",
            *(f"- {line}" for line in exact),
            "",
        ]
        lines += ["| not exact | settings |", "|---|---|"]
        lines += [
            *refusals(rows, sklearn_refusals.CLASSES if library == "scikit-learn" else {}),
            "",
        ]
        lines += [NOTES[library], ""] if library in NOTES else []
    lines += [GAPS, SUPPORT.rstrip()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"{PAGE.name} written\n")
