"""Weights of LightGBM's linear leaves (linear_tree): how closely they meet the predictions of training rows and of new ones.

    python experiments/linear_leaves.py [--data FOLDER]     # a minute; writes results/linear_leaves.csv and .md

A leaf is a ridge regression of the residuals on the features of its branch. Where its matrix is singular LightGBM leaves
features out, whose coefficients are exactly zero then; such leaves are counted.
"""

from __future__ import annotations

from pathlib import Path

import lightgbm as lgb
import numpy as np
from paper_data import read
from paper_setting import SETTINGS, Line, arguments, command, markdown_line, write
from sklearn.model_selection import train_test_split

from axil import Explainer, Explanation
from axil.adapters.lightgbm.linear import leaves_of
from axil.adapters.lightgbm.text import parse

NAMES = ("diabetes", "concrete", "airfoil", "boston", "cars")
PENALTIES = (0.0, 0.01, 1.0)  # the first is LightGBM's default


def measure(name: str, penalty: float, folder: Path | None) -> Line:
    """How far weights of one model are from its predictions, and how many leaves lack features of their branch."""
    X, y = (part.to_numpy(float) for part in read(name, folder))
    X, new, y, _ = train_test_split(X, y, test_size=0.2, random_state=42)
    settings = {**SETTINGS, "min_child_samples": 20}
    model = lgb.LGBMRegressor(**settings, linear_tree=True, linear_lambda=penalty).fit(X, y)
    text = parse(model.booster_.model_to_string())
    leaves = [
        leaf for tree in text.trees[1:] for leaf in leaves_of(tree, text.n_features)
    ]  # the first tree has values
    explainer = Explainer(model, X, y)
    return {
        "data": name,
        "linear_lambda": penalty,
        "rows": len(y),
        "features per leaf": f"{np.mean([len(leaf.branch) for leaf in leaves]):.1f}",
        "leaves without some": f"{100 * np.mean([len(leaf.columns) <= len(leaf.branch) for leaf in leaves]):.1f} %",
        "training rows off by": off(explainer(X), y, model.predict(X)),
        "new rows off by": off(explainer(new), y, model.predict(new)),
    }


def off(found: Explanation, y: np.ndarray, predicted: np.ndarray) -> str:
    made = found.weights @ y.astype(np.float32).astype(np.float64)
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
