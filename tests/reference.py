"""The oracle: the paper's algorithms line by line, and the same for weighted, regularised and mixed leaves, in dense NumPy."""

import numpy as np

from axil.structure import Structure, leaf_dtype


def leaf_average(v, leaf):
    """Algorithm LeafAverage: every entry becomes the mean over its leaf."""
    a = np.empty_like(v, dtype=float)
    for label in np.unique(leaf):
        members = leaf == label
        a[members] = v[members].mean()
    return a


def axil_forward(v, leaves, rate):
    """Algorithm AXIL-Forward: K v."""
    g = np.full(len(v), v.mean())
    for leaf in leaves:
        g = g + rate * leaf_average(v - g, leaf)
    return g


def axil_backward(u, leaves, rate):
    """Algorithm AXIL-Backward: K'u."""
    h = np.array(u, dtype=float)
    k = np.zeros(len(u))
    for leaf in leaves[::-1]:
        r = rate * leaf_average(h, leaf)
        k = k + r
        h = h - r
    return k + h.mean()


def axil_oos(query, leaves, rate):
    """Algorithm AXIL-OOS: the weights of the prediction in the leaves ``query``, one a tree."""
    p = np.zeros(leaves.shape[1])
    for leaf, own in zip(leaves[::-1], query[::-1]):
        members = leaf == own
        c = np.zeros(len(p))
        if members.any():
            c[members] = 1.0 / members.sum()
        p = rate * c + p - rate * leaf_average(p, leaf)
    return p + (1.0 - p.sum()) / len(p)


def dense_weights(structure, queries):
    """Weights (n, N) and base adjoints (n,) of any structure by the recursion for K itself, in O(T N^2)."""
    n = structure.n_rows
    w = np.ones(n) if structure.row_weights is None else structure.row_weights
    mean = structure.base is None
    start = np.tile(w / w.sum(), (n, 1)) if mean else np.zeros((n, n))
    share = np.ones(n)  # how much of a constant base is left in each training row's prediction
    K = start
    k = np.tile(w / w.sum(), (len(queries), 1)) if mean else np.zeros((len(queries), n))
    left = np.ones(len(queries))
    for t in range(structure.n_trees):
        A = np.eye(structure.n_leaves[t])[structure.leaves[t]]
        own = slice(structure.starts[t], structure.starts[t + 1])
        P = np.diag(structure.leaf_scale[own]) if structure.mixing is None else structure.mixing[t]
        to_values = structure.rates[t] * P @ (A * w[:, None]).T
        of_targets, of_base = to_values @ (np.eye(n) - K), to_values @ share
        k = k + of_targets[queries[:, t]]
        left = left - of_base[queries[:, t]]
        K = K + of_targets[structure.leaves[t]]
        share = share - of_base[structure.leaves[t]]
    return k, left


def random_structure(
    seed, n_rows=40, n_trees=6, most_leaves=7, weighted=False, l2=0.0, base=None, offsets=False, mixed=False
):
    """A structure no library fitted: ragged leaf counts, leaves of one row, leaves without rows."""
    rng = np.random.default_rng(seed)
    n_leaves = rng.integers(1, most_leaves + 1, n_trees)
    leaves = np.stack([rng.integers(0, n, n_rows) for n in n_leaves]).astype(leaf_dtype(most_leaves))
    weights = rng.uniform(0, 2, n_rows) * (rng.random(n_rows) > 0.1) + 1e-3 if weighted else None
    totals = [np.bincount(leaf, weights, n) for leaf, n in zip(leaves, n_leaves)]
    leaf_weights = np.concatenate(totals).astype(float)
    denominator = leaf_weights + l2
    scale = np.divide(1.0, denominator, out=np.zeros_like(denominator), where=denominator > 0)
    mixing = None
    if mixed:
        mixing = tuple(np.diag(1.0 / (total + 1.0)) + rng.normal(0, 0.02, (n, n)) for total, n in zip(totals, n_leaves))
    return Structure(
        leaves=leaves,
        n_leaves=n_leaves,
        leaf_weights=leaf_weights,
        leaf_scale=scale,
        rates=rng.uniform(0.05, 1.0, n_trees),
        base=base,
        row_weights=weights,
        offsets=rng.normal(size=n_rows) if offsets else None,
        mixing=mixing,
    )
