"""CatBoost's own get_object_importance against axil's methods on the same CatBoost model: time, and whether they rank alike.

    python experiments/catboost_importance.py [--data FOLDER]     # writes results/catboost_importance.csv

CatBoostClassifier, 100 trees of depth 6, one Newton step per leaf, plain boosting. 20 rows held out are scored, each by every
training row. CatBoost, whose method is LeafInfluence too, is asked for "AllPoints", as LeafInfluence here, and for its default
"SinglePoint", which lets no row move the gradients that other rows have in later trees. Its scores are taken with the other sign,
so that positive rows lower the loss. "rank": Spearman's correlation with them over training rows, mean over the held-out rows;
"top 10": of the ten largest |scores| of a held-out row how many are the same, on average; "difference" from AllPoints: the
largest, over the largest score. Seconds are with the set-up, one thread each.
"""

from __future__ import annotations

import time

import numpy as np
from baselines_tools import apart, same_at_the_top
from catboost import CatBoostClassifier, Pool
from class_data import read_classes
from paper_setting import PACKAGES, arguments, command, markdown_line, write
from scipy.stats import spearmanr
from sklearn.model_selection import train_test_split

import axil
from axil import baselines

NAMES = ("autos", "boston", "concrete", "red_wine", "breast_cancer", "digits")
N_QUERIES = 20
SETTINGS = {
    "iterations": 100,
    "depth": 6,
    "leaf_estimation_iterations": 1,
    "boosting_type": "Plain",
    "random_seed": 0,
    "thread_count": 1,
    "verbose": 0,
    "allow_writing_files": False,
}


def timed(ask):
    start = time.perf_counter()
    found = ask()
    return found, time.perf_counter() - start


def importance(model, new, train, method):
    """(n, N): CatBoost's scores in the order of the training rows, positive where the row lowers the loss, as axil's."""
    order, scores = model.get_object_importance(
        new, train, type="PerObject", update_method=method, thread_count=1, verbose=False
    )
    found = np.zeros(np.shape(scores))
    np.put_along_axis(found, np.asarray(order), -np.asarray(scores), axis=1)
    return found


def rank(found, expected):
    """Mean of Spearman's correlation over the queries that have one."""
    each = [spearmanr(a, b)[0] for a, b in zip(found, expected) if np.ptp(a) > 0 and np.ptp(b) > 0]
    return f"{np.mean(each):.3f}"


def measure(name, folder):
    X, y = read_classes(name, folder)
    train, new, y_train, y_new = train_test_split(X, y, test_size=0.2, random_state=42, stratify=y)
    new, y_new = new[:N_QUERIES], y_new[:N_QUERIES]
    model = CatBoostClassifier(**SETTINGS).fit(train, y_train)
    pools = Pool(new, y_new), Pool(train, y_train)
    every, seconds = timed(lambda: importance(model, *pools, "AllPoints"))
    single, single_seconds = timed(lambda: importance(model, *pools, "SinglePoint"))
    rows = {
        "CatBoost, AllPoints": (every, seconds),
        "CatBoost, SinglePoint": (single, single_seconds),
    }
    fit, set_up = timed(lambda: axil.Explainer(model, train, y_train, n_threads=1))
    explainer, differentiated = timed(lambda: axil.Explainer(model, train, y_train, n_threads=1))
    methods = {
        "LeafInfluence": lambda: baselines.LeafInfluence(fit).scores(new, y_new),
        "BoostIn": lambda: baselines.BoostIn(fit).scores(new, y_new),
        "weight_derivatives": lambda: (
            -explainer.jacobian.by_sample_weight(new)
            * (model.predict_proba(new)[:, 1] - y_new)[:, None]
        ),
    }
    for method, ask in methods.items():
        found, taken = timed(ask)
        rows[method] = found, taken + (differentiated if method == "weight_derivatives" else set_up)
    for method, (found, taken) in rows.items():
        yield {
            "data": name, "training rows": len(train), "method": method, "seconds": f"{taken:.2f}",
            "rank, AllPoints": rank(found, every), "top 10": same_at_the_top(np.abs(found), np.abs(every)),
            "difference": apart(found, every), "rank, SinglePoint": rank(found, single),
        }  # fmt: skip


def main():
    given = arguments(__doc__.splitlines()[0], NAMES).parse_args()
    lines = []
    for name in given.only:
        for line in measure(name, given.data):
            lines.append(line)
            print(markdown_line(line.values()), flush=True)
    write(
        "catboost_importance",
        lines,
        command("catboost_importance", given.data),
        (*PACKAGES, "catboost"),
    )


if __name__ == "__main__":
    main()
