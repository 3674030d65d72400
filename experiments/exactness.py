"""How exact weights are in practice: every configuration that the tests fit, of every library, with its measured errors.

    python experiments/exactness.py     # half a minute; writes experiments/results/exactness.csv and exactness.md

The configurations are those of tests/contract_models.py: real models, one for each setting that decides how leaves are built. The
error is the largest |prediction - weights @ targets - intercept| over the rows, relative to the largest |prediction|; predictions
are asked of the library itself. "leaf values" is how far the values of the leaves, replayed one tree at a time, are from the
model's own. How trees add up and rows are drawn is read from the structure that the weights are made of, not from names.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from paper_setting import PACKAGES, Line, command, furthest, markdown_line, plain_arguments, write
from scipy import sparse

import axil
from axil.methods.method import verified_model
from axil.structure import Structure
from axil.weights.forest import is_forest

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.contract_models import GRID, case_of, offsets_of, predict, predict_from


def measure(library: str, name: str) -> Line:
    """The line of one configuration."""
    case = case_of(library, name)
    offsets = offsets_of(case)
    explainer = axil.Explainer(
        case.model,
        case.X,
        case.y,
        sample_weight=case.sample_weight,
        init_score=offsets,
        n_threads=1,
    )
    proof, structures = explainer.verification, structures_of(explainer)
    known = predict(case, case.X) if offsets is None else predict_from(case, case.X, offsets)
    training = furthest(explainer, case.X, known, offsets)
    new = furthest(explainer, case.X_new, predict(case, case.X_new))
    return {
        "library": verified_model(explainer).adapter.library,
        "configuration": name,
        "kind": kind(verified_model(explainer).adapter.library, structures),
        "with": "; ".join(
            word for word, holds in traits(case, explainer, structures).items() if holds
        ),
        "rows": proof.n_rows,
        "trees": sum(s.n_trees for s in structures),
        "outputs": verified_model(explainer).targets.shape[1],
        "error, training rows": f"{training:.1e}",
        "error, new rows": f"{new:.1e}",
        "error, leaf values": f"{proof.leaf_error:.1e}" if structures else "",
        "largest error": f"{max(training, new):.1e}",
        "tolerance": f"{verified_model(explainer).adapter.tolerance:.1e}",
    }


def structures_of(explainer: axil.Explainer) -> list[Structure]:
    """Of each output that has trees of its own, or of all; of a linear smoother none."""
    return (
        []
        if explainer.verification.n_trees == 0
        else [engine.structure for engine in verified_model(explainer).engines]
    )


def kind(library: str, structures: list[Structure]) -> str:
    """How the trees add up, and which rows each was fitted on."""
    if not structures:
        return "linear smoother"
    structure = structures[0]
    trees, drawn = how_trees_add_up(library, structure), structure.sample_counts
    if structure.counts_by_leaf:  # draws are the shares of the rows that a percentile is taken from
        return f"{trees} of percentiles"
    if structure.leaf_rule.clips_residuals:
        return f"{trees} with Huber's loss"
    if np.isin(drawn, (0.0, 1.0)).all():
        rows = ", rows drawn" if len(drawn) > 1 else ""
    else:
        rows = (
            ", bootstrap" if trees in ("forest", "single tree") else ", GOSS"
        )  # with a factor, in boosting
    return trees + rows


def how_trees_add_up(library: str, structure: Structure) -> str:
    if structure.coefficients is None:
        return "boosting"
    omega = structure.coefficients.omega[:-1]  # what each tree saw of those before it
    if not omega.any():
        return (
            "forest"
            if structure.n_trees > 1
            else "single tree"
            if is_forest(structure)
            else "boosting"
        )
    below = [column[s + 1 :] for s, column in enumerate(omega.T)]
    if all(
        len(set(column[column != 0])) <= 1 for column in below
    ):  # a tree counts as much to all after it that see it
        return "boosting" if all((column != 0).all() for column in below) else "boosted forests"
    return "model shrinkage" if library == "CatBoost" else "DART"


def traits(case: object, explainer: axil.Explainer, structures: list[Structure]) -> dict[str, bool]:
    """What else there is to a configuration, by name."""
    model, X, weights = case.model, case.X, case.sample_weight
    counted = [s.row_weights for s in structures if s.row_weights is not None]
    given = np.ones(len(case.y)) if weights is None else weights
    return {
        "row weights": weights is not None,
        "class weights": any(
            getattr(m, "class_weight", None) for m in (model, getattr(model, "estimator", None))
        ),
        "offsets": offsets_of(case) is not None,
        "categories": has_categories(verified_model(explainer).adapter.library, model),
        "missing values": not sparse.issparse(X) and bool(pd.DataFrame(X).isna().any(axis=None)),
        "several outputs": verified_model(explainer).targets.shape[1] > 1
        and verified_model(explainer).adapter.classes is None,
        "classes": verified_model(explainer).adapter.classes is not None,
        "rows held out": any((own[given > 0] == 0).any() for own in counted),
        "leaves smoothed": any(s.linear_leaves.mixing is not None for s in structures),
        "sparse features": sparse.issparse(X),
        "a pipeline": hasattr(model, "named_steps"),
    }


def has_categories(library: str, model: object) -> bool:
    """Whether the model itself tells columns of categories apart; those of LightGBM, whether it splits by any."""
    if hasattr(model, "named_steps"):
        return False
    if library == "LightGBM":
        trees = getattr(model, "booster_", model).trees_to_dataframe()
        return bool((trees["decision_type"] == "==").any())
    if library == "XGBoost":
        return "c" in (
            (model.get_booster() if hasattr(model, "get_booster") else model).feature_types or []
        )
    if library == "CatBoost":
        return bool(model.get_cat_feature_indices())
    return getattr(model, "is_categorical_", None) is not None


EVERY_KIND = "every kind"  # the line of all configurations of a library


def summary(lines: Iterable[Line]) -> list[Line]:
    """Return one line per library and kind, then one per library and trait, with its largest error."""
    groups: dict[tuple[str, bool, str], list[Line]] = {}
    order = list(dict.fromkeys(line["library"] for line in lines))
    for line in lines:
        groups.setdefault((line["library"], False, line["kind"]), []).append(line)
        groups.setdefault((line["library"], True, EVERY_KIND), []).append(line)
        for trait in filter(None, line["with"].split("; ")):
            groups.setdefault((line["library"], True, f"of all, with {trait}"), []).append(line)
    shown = []
    for library, is_trait, what in sorted(
        groups, key=lambda key: (order.index(key[0]), key[1], key[2].lower())
    ):
        own = groups[library, is_trait, what]
        worst = max(own, key=lambda line: float(line["largest error"]))
        shown.append(
            {
                "library": library,
                "kind": what,
                "configurations": len(own),
                "largest error": worst["largest error"],
            }
            | {"tolerance there": worst["tolerance"], "where": worst["configuration"]}
        )
    return shown


def main() -> None:
    plain_arguments(__doc__).parse_args()
    lines = []
    for library, name in GRID:
        lines.append(measure(library, name))
        print(markdown_line(lines[-1].values()), flush=True)
    packages = [*PACKAGES, "xgboost", "catboost"]
    write("exactness", lines, command("exactness", None), packages, summary(lines))


if __name__ == "__main__":
    main()
