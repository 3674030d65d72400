"""How far the scores of two methods, (queries, training rows) each, agree."""

from __future__ import annotations

import numpy as np

TOP = 10  # rows of a query whose highest scores are compared


def apart(found, expected):
    return f"{np.abs(found - expected).max() / np.abs(expected).max():.1e}"


def r(found, expected):
    return f"{np.corrcoef(found.ravel(), expected.ravel())[0, 1]:.4f}"


def same_at_the_top(found, expected):
    first = [np.argsort(-scores, axis=1, kind="stable")[:, :TOP] for scores in (found, expected)]
    return f"{np.mean([len(np.intersect1d(*pair)) for pair in zip(*first)]):.1f}"
