"""An independent replay of boosting with a smooth loss and fixed leaves: plain formulas, row by row sums, free running."""

import numpy as np


def sigmoid(F, s=1.0):
    return 1.0 / (1.0 + np.exp(-s * F))


def softmax(F):
    e = np.exp(F - F.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


#: (y, F) (N, K) -> g, h (N, K)
LOSSES = {
    "squared": lambda y, F: (F - y, np.ones_like(F)),
    "logistic": lambda y, F: (sigmoid(F) - y, sigmoid(F) * (1 - sigmoid(F))),
    "logistic2": lambda y, F: (2 * (sigmoid(F, 2) - y), 4 * sigmoid(F, 2) * (1 - sigmoid(F, 2))),
    "gradient": lambda y, F: (sigmoid(F) - y, np.ones_like(F)),
    "softmax gradient": lambda y, F: (softmax(F) - y, np.ones_like(F)),
    "softmax": lambda y, F: (softmax(F) - y, softmax(F) * (1 - softmax(F))),
    "softmax2": lambda y, F: (softmax(F) - y, 2 * softmax(F) * (1 - softmax(F))),
    "softmax3/2": lambda y, F: (softmax(F) - y, 1.5 * softmax(F) * (1 - softmax(F))),
    "poisson": lambda y, F: (np.exp(F) - y, np.exp(F)),
    "poisson0.7": lambda y, F: (np.exp(F) - y, np.exp(F + 0.7)),
    "gamma": lambda y, F: (1 - y * np.exp(-F), y * np.exp(-F)),
    "tweedie1.3": lambda y, F: (
        np.exp(0.7 * F) - y * np.exp(-0.3 * F),
        0.7 * np.exp(0.7 * F) + 0.3 * y * np.exp(-0.3 * F),
    ),
}

#: weighted means (K,) -> (K,)
STARTS = {
    "mean": lambda m: m,
    "zero": lambda m: 0 * m,
    "logit": lambda m: np.log(m / (1 - m)),
    "logit2": lambda m: np.log(m / (1 - m)) / 2,
    "log": np.log,
    "centred": lambda m: np.log(m) - np.log(m).mean(),
    "centred above": lambda m: np.log(m + 1e-6) - np.log(m + 1e-6).mean(),  # XGBoost: no share is 0
    "half": lambda m: 0 * m + 0.5,
}


def first(start, loss, means):
    """(K,): where scores start; "newton": one step from 0."""
    if start == "newton":
        g, h = LOSSES[loss](means[None], np.zeros((1, len(means))))
        return -(g / h)[0]
    return STARTS[start](means)


def replay(
    leaves,
    queries,
    y,
    w,
    loss,
    start,
    rate,
    l2=0.0,
    l1=0.0,
    most=np.inf,
    steps=1,
    lightest=0.0,
    **more,
):
    """(n, K): the scores in the leaves ``queries`` (n, iterations, K) of a fit to y (N, K) in ``leaves`` (N, iterations, K).

    Values whose sum of hessians is below ``lightest`` are 0.
    ``more``: offsets (N, K); factors (N,), in leaves alone or with ``start_factors`` also in the start; bags (N, iterations), or
    a function that draws them by iteration, w g and w h; ``scale_l2``: l2 is multiplied by the
    mean weight of the rows, of which ``n_gone`` are gone; omega
    (iterations + 1, iterations, K or 1) and beta (iterations + 1,): see `added_up`.
    """
    n_rows, n_iterations, n_outputs = leaves.shape
    f = more.get("factors", np.ones(n_rows))
    counted = w * f if more.get("start_factors") else w
    base = first(start, loss, counted @ y / counted.sum())
    offsets, asked = (
        more.get("offsets", 0.0) + np.zeros_like(y),
        base + np.zeros((len(queries), n_outputs)),
    )
    if "query_start" in more:  # of predictions without an offset, where the fit had them
        asked = first(more["query_start"], loss, counted @ y / counted.sum()) + np.zeros_like(asked)
    l2 = l2 * w.sum() / (n_rows - more.get("n_gone", 0)) if more.get("scale_l2") else l2
    grown, answers = [], []
    for t in range(n_iterations):
        F = added_up(t, base, grown, rate, **more) + offsets
        bag = 1.0
        if "bags" in more:
            bags = more["bags"]
            bag = (
                bags(t, *((w * f)[:, None] * each for each in LOSSES[loss](y, F)))
                if callable(bags)
                else bags[:, t]
            )
        total, seen = [{} for _ in range(n_outputs)], F.copy()
        for _ in range(steps):
            if loss == "joint":
                moved = joint(leaves[:, t, 0], y, seen, w, l2, total)
                seen = seen + moved
                continue
            g, h = LOSSES[loss](y, seen)
            moved = np.zeros_like(seen)
            for k in range(n_outputs):
                for leaf in np.unique(leaves[:, t, k]):
                    rows = leaves[:, t, k] == leaf
                    G, H = ((w * f * bag * each[:, k])[rows].sum() for each in (g, h))
                    v = 0.0
                    if lightest <= H and H + l2 > 0:
                        v = -np.sign(G) * max(abs(G) - l1, 0.0) / (H + l2)
                    v = float(np.clip(v, -most, most))
                    total[k][leaf] = total[k].get(leaf, 0.0) + v
                    moved[rows, k] = v
            seen = seen + moved
        for found, rows in ((grown, leaves), (answers, queries)):
            found.append(
                np.stack(
                    [[total[k].get(leaf, 0.0) for leaf in rows[:, t, k]] for k in range(n_outputs)],
                    axis=1,
                )
            )
    return added_up(n_iterations, asked, answers, rate, **more)


def added_up(t, base, grown, rate, omega=None, beta=None, **more):
    """The scores that iteration t sees: a base and the trees so far, as DART has dropped and scaled them."""
    if omega is None:
        return base + rate * sum(grown, np.zeros(1))
    return beta[t] * base + sum((omega[t, s] * grown[s] for s in range(len(grown))), np.zeros(1))


def joint(leaf, y, F, w, l2, total):
    """One step of a tree that all classes share, each leaf solving for all of them."""
    p, moved = softmax(F), np.zeros_like(F)
    for own in np.unique(leaf):
        rows = leaf == own
        H = sum(w[j] * (np.diag(p[j]) - np.outer(p[j], p[j])) for j in np.flatnonzero(rows))
        v = np.linalg.solve(H + l2 * np.eye(F.shape[1]), (w[:, None] * (y - p))[rows].sum(axis=0))
        moved[rows] = v
        for k in range(F.shape[1]):
            total[k][own] = total[k].get(own, 0.0) + v[k]
    return moved


def pushes(
    leaves,
    queries,
    y,
    w,
    loss,
    base,
    rate,
    l2=0.0,
    l1=0.0,
    most=np.inf,
    steps=1,
    lightest=0.0,
    **more,
):
    """(K, n, N): what each row's gradients put into the scores of the queries, by a loop over leaves; see `replay`.

    Scores start from ``base`` (K,) and run freely.
    """
    n_rows, n_iterations, n_outputs = leaves.shape
    f = more.get("factors", np.ones(n_rows))
    offsets, grown = more.get("offsets", 0.0) + np.zeros_like(y), []
    out = np.zeros((n_outputs, len(queries), n_rows))
    l2 = l2 * w.mean() if more.get("scale_l2") else l2
    final = rate * np.ones((n_iterations, n_outputs))
    if "omega" in more:
        final = more["omega"][-1] * np.ones(n_outputs)
    for t in range(n_iterations):
        F = added_up(t, base, grown, rate, **more) + offsets
        bag = more["bags"][:, t] if "bags" in more else 1.0
        seen, total = F.copy(), np.zeros_like(F)
        for _ in range(steps):
            p = softmax(seen)
            g, h = (p - y, None) if loss == "joint" else LOSSES[loss](y, seen)
            moved = np.zeros_like(seen)
            for k in range(n_outputs):
                for leaf in np.unique(leaves[:, t, k]):
                    rows = np.flatnonzero(leaves[:, t, k] == leaf)
                    own = (
                        (w * f * bag)[rows, None] * g[rows]
                        if loss != "joint"
                        else w[rows, None] * g[rows]
                    )
                    if loss == "joint":
                        H = sum(w[j] * (np.diag(p[j]) - np.outer(p[j], p[j])) for j in rows)
                        put = -own @ np.linalg.inv(H + l2 * np.eye(n_outputs))[:, k]
                    else:
                        G, H = own[:, k].sum(), ((w * f * bag) * h[:, k])[rows].sum()
                        v = 0.0
                        if lightest <= H and H + l2 > 0:
                            v = -np.sign(G) * max(abs(G) - l1, 0.0) / (H + l2)
                        put = own[:, k] * (np.clip(v, -most, most) / G if G else 0.0)
                    moved[rows, k] = put.sum()
                    out[k][np.ix_(queries[:, t, k] == leaf, rows)] += final[t, k] * put
            seen, total = seen + moved, total + moved
        grown.append(total)
    return out


def differences(f, v, columns, eps):
    """Central differences of f (any shape) by some entries of v (N,): (len(columns), ...)."""
    found = []
    for j in columns:
        up, down = v.copy(), v.copy()
        up[j] += eps
        down[j] -= eps
        found.append((f(up) - f(down)) / (2 * eps))
    return np.stack(found)
