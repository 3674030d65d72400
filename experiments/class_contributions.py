"""Contributions of LightGBM's binary log-loss by a plain replay of the fit.

This is an independent check of what axil computes.

With g_j = p_j - y_j before tree t and H the sum of p (1 - p) over a leaf, a row's contribution is
what its gradients put into a score:

    s_j(x) = sum over the trees where j is in x's leaf of rate (-w_j g_j) / (H + lambda),    base + sum_j s_j(x) = score of x
"""

from __future__ import annotations

import numpy as np
from scipy.special import expit


def contributions(model, X, y, X_query):
    """(n, N): of every training row on the raw score of every row of X_query; without sample weights, L1 or bagging."""
    leaves, asked = model.predict(X, pred_leaf=True), model.predict(X_query, pred_leaf=True)
    base = np.log(y.mean() / (1 - y.mean()))
    score, out = np.full(len(y), base), np.zeros((len(asked), len(y)))
    for own, new in zip(leaves.T, asked.T):
        p = expit(score)
        below = np.bincount(own, p * (1 - p)) + model.reg_lambda
        each = model.learning_rate * (y - p) / below[own]
        out += np.where(new[:, None] == own, each, 0.0)
        score += np.bincount(own, each)[own]
    raw = model.predict(X_query, raw_score=True)
    apart = np.abs(base + out.sum(axis=1) - raw).max() / max(1.0, np.abs(raw).max())
    if apart > 1e-5:  # LightGBM keeps gradients in float32
        raise RuntimeError(
            f"Contributions and base are {apart:.1e} of the largest score away from the model's."
        )
    return out
