"""Are axil's rival methods for classifiers what the package of their authors computes? Scores of both, of LightGBM classifiers.

    python experiments/baselines_check_classes.py [--data FOLDER]     # writes results/baselines_check_classes.csv

Runs where `tree_influence` can be imported, as baselines_check.py, and with its columns: the largest difference over all pairs,
over the largest score there is. Two classes: data sets of class_data.py; more: scikit-learn's own. The first 20 rows held out are
scored with their classes. "TREX, optimum": with the package's weights put at the minimum of its own loss, which a general
minimiser finds here; "TREX, r" and "top 10": against its scores as they are, after its gradient descent.
Of three classes 80 trees are fitted, not 100: later on LightGBM has nothing left to split for some class and adds trees of one
leaf whose value is 0. No row made these, but the package takes them for steps as any other (then BoostIn is up to 2e-2 away).
One call of the package is mended: it asks scikit-learn's OneHotEncoder for `sparse`, which is now called `sparse_output`.
"""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
from baselines_check import MOST_ROWS, N_QUERIES
from baselines_tools import apart, r, same_at_the_top
from class_data import read_classes
from paper_setting import PACKAGES, SETTINGS, arguments, command, markdown_line, write
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder

import axil
from axil import baselines

try:
    from tree_influence import explainers as theirs
    from tree_influence.explainers.parsers import util
except ImportError:
    theirs = None
else:
    util.OneHotEncoder = lambda sparse, **settings: OneHotEncoder(sparse_output=sparse, **settings)

SEVERAL = {"iris, 3 classes": load_iris, "wine, 3 classes": load_wine}
TWO = ("autos", "bodyfat", "boston", "yacht", "breast_cancer", "wine")


def optimum(trex):
    """(N, K): alpha as the package takes it, but at the minimum of its loss."""
    features = trex.X_train_
    y = trex.y_train_.reshape(len(features), -1).astype(float)
    several, n = y.shape[1] > 1, len(y)

    def objective(flat):
        W = flat.reshape(-1, y.shape[1])
        f = features @ W
        losses = (
            logsumexp(f, axis=1) - (y * f).sum(axis=1)
            if several
            else (np.logaddexp(0, f) - y * f)[:, 0]
        )
        slope = (
            features.T @ ((softmax(f, axis=1) if several else expit(f)) - y) / n + 2 * trex.lmbd * W
        )
        return losses.mean() + trex.lmbd * (W**2).sum(), slope.ravel()

    start = np.zeros(features.shape[1] * y.shape[1])
    options = {"maxiter": 5000, "maxfun": 10000, "ftol": 0, "gtol": 1e-14, "maxcor": 30}
    f = features @ minimize(
        objective, start, jac=True, method="L-BFGS-B", options=options
    ).x.reshape(-1, y.shape[1])
    return (y - (softmax(f, axis=1) if several else expit(f))) / (2.0 * trex.lmbd * n)


def measure(name, folder):
    if theirs is None:
        raise SystemExit(
            "This experiment needs the package tree_influence, which is not installed."
        )
    X, y = SEVERAL[name](return_X_y=True) if name in SEVERAL else read_classes(name, folder)
    train, new, y_train, y_new = train_test_split(X, y, test_size=0.2, random_state=42, stratify=y)
    new, y_new = new[:N_QUERIES], y_new[:N_QUERIES]
    settings = SETTINGS | {"n_estimators": 80 if name in SEVERAL else SETTINGS["n_estimators"]}
    model = lgb.LGBMClassifier(**settings).fit(train, y_train)
    fit = axil.Explainer(model, train, y_train, n_threads=1)

    def ours(kind):
        return kind(fit).scores(new, y_new)

    def scores(rival):
        return rival.get_local_influence(new, y_new).T

    line = {"data": name, "training rows": len(train), "classes": len(np.unique(y))}
    line["BoostIn"] = apart(
        ours(baselines.BoostIn), scores(theirs.BoostIn().fit(model, train, y_train))
    )
    line["TreeSim"] = apart(
        ours(baselines.TreeSim), scores(theirs.TreeSim().fit(model, train, y_train))
    )
    line["LeafInfluence"] = "-"
    if len(train) <= MOST_ROWS:
        line["LeafInfluence"] = apart(
            ours(baselines.LeafInfluence),
            scores(theirs.LeafInfluence(atol=np.inf).fit(model, train, y_train)),
        )
    found, trex = ours(baselines.TREX), theirs.Trex().fit(model, train, y_train)
    descended, trex.alpha_ = scores(trex), optimum(trex)
    line["TREX, optimum"] = apart(found, scores(trex))
    return line | {"TREX, r": r(found, descended), "top 10": same_at_the_top(found, descended)}


def main():
    given = arguments(__doc__.splitlines()[0], (*TWO, *SEVERAL)).parse_args()
    lines = []
    for name in given.only:
        lines.append(measure(name, given.data))
        print(markdown_line(lines[-1].values()), flush=True)
    packages = (*PACKAGES, "scipy", "tree-influence", "torch")
    write(
        "baselines_check_classes", lines, command("baselines_check_classes", given.data), packages
    )


if __name__ == "__main__":
    main()
