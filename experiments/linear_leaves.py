"""Whether LightGBM's linear leaves (linear_tree) could be replayed: their weights in NumPy, and what stands against them.

    python experiments/linear_leaves.py [--data FOLDER]     # half a minute; writes results/linear_leaves.csv and .md

A leaf of a linear tree is a ridge regression of the residuals on the features of its branch (src/treelearner/
linear_tree_learner.cpp): coefficients (B'B + linear_lambda)^-1 B'r, B the rows' values of p features and a one. K follows by the
recursion of boosting with B (B'B + linear_lambda)^-1 B' in place of means. Where B'B + linear_lambda is singular, to double
precision, the coefficients are what rounding makes of LightGBM's inverse: they are counted, and replayed by least squares.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
from paper_data import read
from paper_setting import SETTINGS, Line, arguments, command, markdown_line, write
from sklearn.model_selection import train_test_split

NAMES = ("diabetes", "concrete", "airfoil", "boston", "cars")
PENALTIES = (0.0, 0.01, 1.0)  # the first is LightGBM's default
SINGULAR = 1e15  # a condition number beyond which double precision has no digit left


def leaves_of(node: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """The leaves below a node of a dumped tree, by number."""
    if "split_index" not in node:
        return {node.get("leaf_index", 0): node}
    return leaves_of(node["left_child"]) | leaves_of(node["right_child"])


def measure(name: str, penalty: float, folder: Path | None) -> Line:
    """How far weights of one model are from its predictions, and how many leaves no solver settles."""
    X, y = (part.to_numpy(float) for part in read(name, folder))
    X, new, y, _ = train_test_split(X, y, test_size=0.2, random_state=42)
    model = lgb.LGBMRegressor(**{**SETTINGS, "min_child_samples": 20}, linear_tree=True, linear_lambda=penalty).fit(
        X, y
    )
    own, asked = (np.asarray(model.predict(rows, pred_leaf=True)) for rows in (X, new))
    K, K_new = (np.full((len(rows), len(y)), 1.0 / len(y)) for rows in (X, new))
    singular, features = [], []
    for t, tree in enumerate(model.booster_.dump_model()["tree_info"]):
        for number, leaf in leaves_of(tree["tree_structure"]).items():
            rows, there = np.flatnonzero(own[:, t] == number), np.flatnonzero(asked[:, t] == number)
            B, B_new = basis(X[rows], leaf["leaf_features"]), basis(new[there], leaf["leaf_features"])
            normal = B.T @ B + penalty * np.diag([1.0] * (B.shape[1] - 1) + [0.0])
            singular.append(np.linalg.cond(normal) > SINGULAR)
            features.append(B.shape[1] - 1)
            residuals = -K[rows]
            residuals[np.arange(len(rows)), rows] += 1.0
            made = SETTINGS["learning_rate"] * np.linalg.lstsq(normal, B.T @ residuals, rcond=None)[0]
            K[rows] += B @ made
            K_new[there] += B_new @ made
    return {
        "data": name,
        "linear_lambda": penalty,
        "rows": len(y),
        "features per leaf": f"{np.mean(features):.1f}",
        "singular leaves": f"{100 * np.mean(singular):.1f} %",
        "training rows off by": off(K @ y, model.predict(X)),
        "new rows off by": off(K_new @ y, model.predict(new)),
    }


def basis(X: np.ndarray, features: list[int]) -> np.ndarray:
    """(n, p + 1): values of the features, in single precision as LightGBM keeps them, and a one."""
    return np.column_stack([X[:, features].astype(np.float32), np.ones(len(X))])


def off(made: np.ndarray, predicted: np.ndarray) -> str:
    return f"{np.abs(made - predicted).max() / np.abs(predicted).max():.0e}"


def main() -> None:
    given = arguments(__doc__.splitlines()[0], NAMES).parse_args()
    lines = []
    for name in given.only:
        for penalty in PENALTIES:
            lines.append(measure(name, penalty, given.data))
            print(markdown_line(lines[-1].values()), flush=True)
    write("linear_leaves", lines, command("linear_leaves", given.data))


if __name__ == "__main__":
    main()
