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
from axil.adapters.sksurv import refusals as sksurv_refusals
from axil.adapters.statsmodels import refusals as statsmodels_refusals
from axil.adapters.xgboost import refusals as xgboost_refusals

PAGE = Path(__file__).parent.parent / "docs" / "models.md"
HEAD = """# Supported models

| models | kind | a prediction is | intervals | deletions, `what_if` |
|---|---|---|---|---|
| boosting with squared error, every library | exact | weights · targets | yes | yes |
| boosting of medians, quantiles, Huber | exact | weights · targets | yes | yes |
| trees, forests, bagging: numbers and classes | exact | weights · targets | yes | yes |
| linear, ridge, kernel ridge; OLS, WLS, GLS | exact | weights · targets | yes | yes |
| Gaussian processes, nearest neighbours | exact | weights · targets | yes | `what_if` |
| boosted classifiers | additive | contributions to a score | sets of classes | yes |
| counts and amounts: Poisson, gamma, Tweedie | additive | contributions to a score | yes | yes |
| rankings | additive | contributions to a score | | yes |
| survival | additive | contributions to a score | | yes |
| logistic regression, GLM, networks, PyTorch | derivative | derivatives by the targets | | |
| pipelines, searches, voting, transformed targets | as the model inside | | | |
| `Lasso`, `SVR`, `AdaBoost`, most stacking | refused | | | |

[What the numbers mean](meaning.md) explains the kinds. `axil.supports(model)` names the kind of
your model without data. [Refused, and what to do](faq.md#refused-and-what-to-do) has the
commonest refusals.

`python scripts/make_models_page.py` makes the tables below from the adapters, and a test
compares them. *Exact* means that weights times targets plus the intercept equal the model's
predictions, with the tree structure fixed. The error allowed is 1e-9 of the largest prediction,
and 1e-6 where a library works in single precision. It is slightly larger for XGBoost with
hundreds of trees. Settings that are not linear in the targets break one of two
[conditions](how.md#where-exact-weights-end). Settings that are not replayed are linear, but the
model does not record what a replay needs.
"""
GAPS = """## What verification cannot see

axil compares everything that a model records with the data. Some things are not recorded:

- **Weights that change no number**, for example where all targets are equal.
- **LightGBM with constant targets.** Its gradients are rounding errors. With weights and
  bagging, the right data may end in an `ExactnessError`.
- **LightGBM with bundled columns** that overlap in a few rows. It may fit on other leaves than
  it predicts with. The error says so: fit with `enable_bundle=False`.
- **CatBoost over Dask.** Encoded categories are refused. Other categories of a weighted fit may
  end in an `ExactnessError`: use rows in memory, or fit with `has_time=True`.
- **Linear models whose solver stopped early.** axil runs the solver again on your data. If it
  ends as far from the exact solution, ten times that distance is allowed, up to 1e-6 in double
  and 1e-5 in single precision.
"""
SUPPORT = """## Versions and support

- **Version numbers** are `major.minor.patch`. Before 1.0 a minor version may change an
  interface, and the changelog says so. From 1.0 on, a public name warns for two minor versions
  and twelve months before it is removed. Public is what [the reference](reference.md) lists.
- **Numbers are part of the interface.** A release that changes an answer by more than rounding
  names the models in the changelog. A setting that was exact is never approximated silently.
- **Saved explainers.** The next minor version reads a file, or refuses it by name.
- **Dependencies** are NumPy, SciPy, narwhals, threadpoolctl and Jinja2. As [SPEC
  0](https://scientific-python.org/specs/spec-0000/) asks, axil supports a version of Python for
  at least three years, and one of NumPy, SciPy or pandas for at least two. Every change is
  tested with the newest libraries, and the contract tests also with the oldest (`make
  test-oldest`). A new version of a model library that makes its leaves in another way ends in an
  `ExactnessError`.
- **Platforms.** A release builds wheels for Linux (x86-64, aarch64), macOS (arm64, x86-64) and
  Windows (x86-64). Elsewhere a compiler for C++17 builds the source. Fixes go to the newest
  minor version. SECURITY.md says how to report a vulnerability.
"""
NOTES = {
    "CatBoost": "CatBoost encodes categories beyond `one_hot_max_size` by the targets of earlier "
    "rows, in an order drawn from `random_seed`. So pass the rows in the order of the fit.",
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
    ("loss_function", "for several classes"): "MultiClass on a GPU",
    ("loss_function", "predictions are linear"): "MultiRMSEWithMissingValues without Newton",
    ("loss_function", "its gradients"): "a function of your own",
    ("loss_function", "it is not"): "any other",
    ("class", "axil reads"): "any other",
    ("num_tree_per_iteration", ""): "above 1",
    (
        "linear_tree",
        "axil replays linear leaves",
    ): "with DART, GOSS, rf, L1, path_smooth, bounds or another loss",
    ("monotone_constraints", "the constraints changed"): "that changed during the fit",
    ("monotone_constraints", "trees for several"): "with multi_output_tree",
    ("monotone_constraints", "a model that was"): "of a continued model",
    ("monotone_constraints_method", "forced"): "with forced splits",
    ("monotone_constraints_method", "LightGBM searches"): "intermediate with path_smooth",
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
    ("subsample", "the clipping threshold"): "with huber and early stopping",
    ("subsample", ""): "of a model file, which loses it",
    ("multi_strategy", ""): "both in one model",
    ("base_score", ""): "one estimate for several outputs",
    ("params", "the model keeps"): "that are lost",
    ("params", "axil reads"): "of several outputs",
    ("leaf_estimation_method", "with monotone"): "Simple with monotone_constraints",
    ("leaf_estimation_backtracking", ""): "on a GPU",
    ("task_type", ""): "GPU with encoded categories",
    ("init_model", "the continued fit"): "with encoded categories",
    ("init_model", "the other trees"): "of another loss or other rows",
    ("target_border", ""): "in a file of JSON",
    ("features", ""): "whose zeros CatBoost splits otherwise",
    ("init", ""): "of a quantile",
    ("random_state", ""): "None with sampling or early stopping",
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
    "scikit-survival": (
        (sksurv_refusals.BOOSTED, *sksurv_refusals.FORESTS),
        sksurv_refusals.EXACT,
        (
            *sksurv_refusals.STAGES,
            *sksurv_refusals.FOREST,
            *sksurv_refusals.STAGES_BY_GRADIENTS,
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
    if row.reason.startswith("unless leaf_estimation_method"):
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
            f"axil reads {names}.",
            "",
            "| | settings |",
            "|---|---|",
            f"| exact | {'; '.join(exact)} |",
        ]
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
