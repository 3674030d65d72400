"""Are axil's rival methods what the package of their authors computes? Scores of both, of the models of the paper.

    python experiments/baselines_check.py [--data FOLDER]     # some minutes; writes results/baselines_check.csv

Runs where `tree_influence` can be imported (https://github.com/jjbrophy47/tree_influence; it takes Cython and torch). FOLDER
holds the paper's data sets as CSV files; without it they come from OpenML. The first 20 rows held out are scored, with their
targets, by every method with its default settings. A plain column is the largest difference over all pairs, over the largest
score there is.

TREX's package fits its surrogate by gradient descent from random weights, with an early stop, so more is told of it:

- "TREX, optimum": the difference from the package's scores with its weights W put at the minimum of its own loss, solved for here
- "TREX, r", "rank", "top 10": Pearson's and Spearman's correlation with its scores as they are, over all pairs, and how many of
  the ten highest of a query are the same rows, on average
- "seed 2, r": of its own scores from other random weights with those from its default ones
- "whole, r": of what its scores would be if the terms added up to its fit, of which they make half, with its scores as they are

"-": left out, as LeafInfluence of the package takes a sweep in Python for each training row.
"""

from __future__ import annotations

import numpy as np
from baselines_tools import apart, r, same_at_the_top
from paper_setting import PACKAGES, run
from scipy.stats import spearmanr
from target_sensitivity import PAPER

import axil
from axil import baselines

try:
    from tree_influence import explainers as theirs
except ImportError:
    theirs = None

MOST_ROWS = 400  # for LeafInfluence
N_QUERIES = 20


def optimum(trex):
    """(N, 1): alpha as the package takes it, but at the minimum of ``|Phi W - y|^2 / N + lmbd |W|^2``."""
    features, y = trex.X_train_, trex.y_train_
    ridge = trex.lmbd * len(y)
    W = np.linalg.solve(features.T @ features + ridge * np.eye(features.shape[1]), features.T @ y)
    return (y - features @ W)[:, None] / (2.0 * ridge)


def measure(name, fitted):
    if theirs is None:
        raise SystemExit(
            "This experiment needs the package tree_influence, which is not installed."
        )
    new, y_new = fitted.new[:N_QUERIES], fitted.y_new[:N_QUERIES]
    explainer = axil.Explainer(fitted.model, fitted.train, fitted.y_train)

    def ours(kind):
        return kind(explainer).scores(new, y_new)

    def fit(rival):
        return rival.fit(fitted.model, fitted.train, fitted.y_train)

    def scores(rival):
        return rival.get_local_influence(new, y_new).T

    line = {"data": name, "training rows": len(fitted.train)}
    line["BoostIn"] = apart(ours(baselines.BoostIn), scores(fit(theirs.BoostIn())))
    line["TreeSim"] = apart(ours(baselines.TreeSim), scores(fit(theirs.TreeSim())))
    line["LeafInfluence"] = "-"
    if len(fitted.train) <= MOST_ROWS:
        line["LeafInfluence"] = apart(
            ours(baselines.LeafInfluence), scores(fit(theirs.LeafInfluence()))
        )
    found, trex = ours(baselines.TREX), fit(theirs.Trex())
    descended, trex.alpha_ = scores(trex), optimum(trex)
    line["TREX, optimum"] = apart(found, scores(trex))
    line["TREX, r"], line["rank"] = (
        r(found, descended),
        f"{spearmanr(found.ravel(), descended.ravel())[0]:.4f}",
    )
    line["top 10"] = same_at_the_top(found, descended)
    line["seed 2, r"] = r(scores(fit(theirs.Trex(random_state=2))), descended)
    trex.alpha_ = 2.0 * trex.alpha_
    return line | {"whole, r": r(scores(trex), descended)}


if __name__ == "__main__":
    packages = (*PACKAGES, "scipy", "tree-influence", "torch")
    run("baselines_check", __doc__.splitlines()[0], list(PAPER), measure, packages)
