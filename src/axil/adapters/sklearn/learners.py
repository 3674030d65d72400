"""Which settings of scikit-learn's smooth learners have no derivative that axil computes, and why."""

from __future__ import annotations

from typing import Any

import numpy as np

from axil.adapters.pipeline import last_step
from axil.adapters.refusals import ONE_OUTPUT, Refusal, refuse
from axil.adapters.searches import unwrapped
from axil.adapters.sklearn.refusals import POSITIVE

LBFGS = 'Fit with solver="lbfgs", a small tol (1e-8), a large max_iter and max_fun (100000), and alpha well above 0.'


def _multilabel(model: Any) -> bool:
    binarizer = getattr(model, "_label_binarizer", None)
    return binarizer is not None and str(binarizer.y_type_).startswith("multilabel")


def _l1(model: Any) -> str:
    """By the setting penalty, or by l1_ratio alone in versions that drop it."""
    penalty = getattr(model, "penalty", "deprecated")
    given = getattr(
        model, "l1_ratio_", getattr(model, "l1_ratio", None)
    )  # the one that was chosen, or set
    ratios = np.asarray(given, dtype=object).ravel()
    shrunk = any(ratio is not None and ratio > 0 for ratio in ratios)
    if penalty is None or penalty == "l2":
        return ""
    return f"{penalty}, l1_ratio={ratios[0]}" if penalty in ("l1", "elasticnet") or shrunk else ""


def _one_by_one(model: Any) -> str:
    several = hasattr(model, "coef_") and len(getattr(model, "classes_", ())) > 2
    if several and (getattr(model, "multi_class", None) == "ovr" or _has_binary_solver(model)):
        return "one against the rest"
    return ""


def _has_binary_solver(model: Any) -> bool:
    """Whether the solver is for two classes alone, as newton-cholesky was before scikit-learn 1.6."""
    import sklearn

    version = tuple(int(part) for part in sklearn.__version__.split(".")[:2])
    solver = getattr(model, "solver", None)
    return solver == "liblinear" or (solver == "newton-cholesky" and version < (1, 6))


#: Settings of smooth learners that are not differentiated; tried in order.
REFUSALS: tuple[Refusal[Any], ...] = (
    Refusal("penalty", _l1, "an L1 penalty is not smooth", "Fit with an L2 penalty (l1_ratio=0)."),
    Refusal(
        "multi_class",
        _one_by_one,
        "its probabilities are those of several fits put together",
        "Fit one multinomial model, or explain one binary model for each class.",
    ),
    Refusal(
        "refit",
        lambda model: getattr(model, "refit", True) is False and "False",
        "its coefficients are means of those of several fits",
        "Fit with refit=True.",
    ),
    POSITIVE,
    Refusal(
        "early_stopping",
        lambda model: getattr(model, "early_stopping", False),
        "a network stopped on held-out rows is at no stationary point of its training loss",
        LBFGS,
    ),
    Refusal(
        "alpha",
        lambda model: hasattr(model, "coefs_") and not model.alpha > 0 and str(model.alpha),
        "without a penalty a network's training loss is flat along some directions, so the derivative is not determined",
        "Fit with alpha > 0.",
    ),
    Refusal(
        "classes",
        lambda model: (
            (isinstance(getattr(model, "classes_", None), list) or _multilabel(model))
            and "multilabel"
        ),
        ONE_OUTPUT,
        "Fit one classifier for each label.",
    ),
)


def refuse_learners(model: Any) -> None:
    """Raise for a setting of a smooth learner, or of a pipeline's last step, whose derivative axil does not compute."""
    model = unwrapped(model)
    last = last_step(model)
    refuse(REFUSALS, model if last is None else last)
