"""The oracle: the paper's algorithms line by line, and the same for weighted, regularised and mixed leaves, in dense NumPy."""

import numpy as np
from scipy.sparse import csr_array

from axil.structure import Ancestors, Coefficients, LinearLeaves, NewtonRule, Structure, cell_dtype
from axil.weights.huber_rule import HuberRule
from axil.weights.sum_rule import SumRule


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


def drawn(s):
    """(T, N): how often each row counts in each tree; where leaves have percentiles, its share."""
    level = s.cells // s.n_leaves[:, None]
    if s.sample_counts.ndim == 1:
        return s.sample_counts[level]
    return np.stack(
        [
            s.sample_counts[level[t], s.starts[t] + leaf.astype(int)]
            for t, leaf in enumerate(s.leaves())
        ]
    )


def dense_weights(structure, queries):
    """Weights (n, N) and base adjoints (n,) of any structure by the recursion for K itself, in O(T N^2).

    Every tree's leaf values are kept as a matrix from targets, and as a vector from a constant base, to leaf values.
    """
    n, n_trees = structure.n_rows, structure.n_trees
    w = np.ones(n) if structure.row_weights is None else structure.row_weights
    leaves = structure.leaves()
    draw = drawn(structure)
    if structure.coefficients is None:
        omega = np.tril(np.tile(structure.learning_rates, (n_trees + 1, 1)), -1)
        beta = np.ones(n_trees + 1)
    else:
        omega, beta = structure.coefficients.omega, structure.coefficients.beta
    mean = np.tile(w / w.sum(), (n, 1)) if structure.initial is None else np.zeros((n, n))
    of_targets, of_base = [], []
    for t in range(n_trees):
        earlier = np.flatnonzero(omega[t, :t])
        if structure.coefficients is None and t:
            earlier = earlier[earlier == t - 1]  # those before are in what the last tree has seen
        else:
            seen = np.eye(n) - beta[t] * mean
            left = np.full(n, beta[t])  # how much of the base is in the rows' predictions
        for s in earlier:
            seen -= omega[t, s] * of_targets[s][leaves[s]]
            left += omega[t, s] * of_base[s][leaves[s]]
        A = csr_array((w * draw[t], (leaves[t], np.arange(n))), shape=(structure.n_leaves[t], n))
        own = slice(structure.starts[t], structure.starts[t + 1])
        mixing = (
            None if structure.linear_leaves.mixing is None else structure.linear_leaves.mixing[t]
        )
        P = np.diag(structure.linear_leaves.scale[own]) if mixing is None else mixing.toarray()
        of_targets.append(P @ (A @ seen))
        of_base.append(-P @ (A @ left))
    k = beta[-1] * (
        np.tile(w / w.sum(), (len(queries), 1))
        if structure.initial is None
        else np.zeros((len(queries), n))
    )
    left = np.full(len(queries), beta[-1])
    for t in range(n_trees):
        k = k + omega[-1, t] * of_targets[t][queries[:, t]]
        left = left + omega[-1, t] * of_base[t][queries[:, t]]
    return k, left


def replayed_steps(s, y, queries, output=0):
    """(n, N): what every row puts into the steps of the trees at queries in these leaves, (n, T), tree by tree."""
    brought = []
    replay(s, y, queries, brought, output)
    last = s.learning_rates if s.coefficients is None else s.coefficients.omega[-1]
    found = np.zeros((len(queries), s.n_rows))
    for t, leaves in enumerate(s.leaves()):
        for leaf in range(s.n_leaves[t]):
            added, value = brought[t]
            rows = np.flatnonzero(
                leaves == leaf
            )  # of one leaf; with path smoothing others see them
            alone, sums = added[rows], np.zeros((s.n_leaves[t], len(rows)))
            sums[leaf] = alone
            part = s.leaf_values(t, sums)
            if (
                s.linear_leaves.shift is not None
            ):  # in proportion to what the leaf's value is without the shift, or else to its sum
                whole = np.bincount(leaves, added, s.n_leaves[t])
                linear = s.leaf_values(t, whole[:, None])[:, 0]
                with np.errstate(divide="ignore", invalid="ignore"):
                    factor = np.where(linear == 0, 0.0, value / linear)
                    own = np.where((linear == 0) & (whole != 0), value / whole, 0.0)
                part = factor[:, None] * part
                part[leaf] += own[leaf] * alone
            found[:, rows] += last[t] * part[queries[:, t]]
    return found


def replay(s, y, queries, brought=None, output=0):
    """The fit with targets y on structure s, and what it predicts in the leaves ``queries`` (n, T), offsets apart.

    ``brought``: a list that is given, for each tree, what every row adds to its leaf, and the leaf values. ``output``: whose base
    and offsets.
    """
    w = np.ones(s.n_rows) if s.row_weights is None else s.row_weights
    draw, rows = drawn(s), s.leaves()
    plain = Coefficients(
        np.tril(np.tile(s.learning_rates, (s.n_trees + 1, 1)), -1), np.ones(s.n_trees + 1)
    )
    c = plain if s.coefficients is None else s.coefficients
    base = np.average(y, weights=w) if s.initial is None else s.initial[output % len(s.initial)]
    values = []

    def predicted(t, leaves):
        return c.beta[t] * base + sum(
            c.omega[t, u] * values[u][leaves[u]] for u in range(min(t, s.n_trees))
        )

    for t in range(s.n_trees):
        fitted = predicted(t, rows) + (0.0 if s.offsets is None else s.offsets[:, output])
        added = w * draw[t] * (y - fitted)
        shift = (
            0.0
            if s.linear_leaves.shift is None
            else s.linear_leaves.shift[s.starts[t] : s.starts[t + 1]]
        )
        values.append(
            s.leaf_values(t, np.bincount(rows[t], added, s.n_leaves[t])[:, None])[:, 0] + shift
        )
        if brought is not None:
            if isinstance(s.leaf_rule, HuberRule):  # a clipped residual adds the threshold
                delta = s.leaf_rule.cut.delta
                added = w * s.sampled_counts()[t] * np.clip(y - fitted, -delta, delta)
            brought.append((added, values[-1]))
    return predicted(s.n_trees, queries.T)


def reweighted_replay(s, y, w, queries, n_gone=0):
    """The fit with targets y and other row weights w (complex ones too), leaf values by one Newton step after the other.

    ``n_gone`` of the rows are gone: they count in no mean weight. A leaf of an averaged tree without rows has the value of its
    nearest ancestor that has some.
    """
    before = 1.0 if s.row_weights is None else s.row_weights.mean()
    rule = s.leaf_rule.newton
    l2 = rule.l2 * (w.sum() / (s.n_rows - n_gone) / before if rule.by_weight else 1.0)
    draw, rows = drawn(s), s.leaves()
    plain = Coefficients(
        np.tril(np.tile(s.learning_rates, (s.n_trees + 1, 1)), -1), np.ones(s.n_trees + 1)
    )
    c = plain if s.coefficients is None else s.coefficients
    base = w @ y / w.sum() if s.initial is None else s.initial[0]
    values = []

    def predicted(t, leaves):
        return c.beta[t] * base + sum(
            c.omega[t, u] * values[u][leaves[u]] for u in range(min(t, s.n_trees))
        )

    for t in range(s.n_trees):
        residuals = y - predicted(t, rows) - (0.0 if s.offsets is None else s.offsets[:, 0])
        own = slice(s.starts[t], s.starts[t + 1])
        weight, value = np.zeros(s.n_leaves[t], complex), np.zeros(s.n_leaves[t], complex)
        np.add.at(weight, rows[t], w * draw[t])
        denominator = np.where(
            np.isinf(l2[own]), 1.0, weight + np.where(np.isinf(l2[own]), 0.0, l2[own])
        )
        for step in range(int(rule.steps[own].max())):
            sums = np.zeros(s.n_leaves[t], complex)
            np.add.at(sums, rows[t], w * draw[t] * (residuals - value[rows[t]]))
            counts = (denominator != 0) & ~np.isinf(l2[own]) & (step < rule.steps[own])
            value[counts] += sums[counts] / denominator[counts]
        if s.linear_leaves.shift is not None:
            scale, shift = s.linear_leaves.scale[own], s.linear_leaves.shift[own]
            moved = np.divide(shift, scale, out=np.zeros_like(shift), where=scale > 0)  # of the sum
            inverse = np.divide(
                1.0, denominator, out=np.zeros_like(denominator), where=denominator != 0
            )
            value = np.where(scale > 0, np.where(weight != 0, value + moved * inverse, 0.0), shift)
        if s.averages:
            sums = np.zeros(s.n_leaves[t], complex)
            np.add.at(sums, rows[t], w * draw[t] * residuals)
            lost = (weight == 0) & (s.leaf_weights[own] > 0) & (s.linear_leaves.scale[own] > 0)
            for leaf in np.flatnonzero(lost):
                value[leaf] = inherited_value(s, t, leaf, weight, sums, l2[own].min(initial=np.inf))
            if not s.beta.any() and not weight.any() and lost.any():
                value[lost] = w @ y / w.sum()
        values.append(value)
    return predicted(s.n_trees, queries.T)


def inherited_value(s, t, leaf, weight, sums, l2):
    """The value of the nearest ancestor of a leaf of tree t that has rows, from those of its leaves; 0 where there is none."""
    parents, first = s.leaf_rule.ancestors.parents, s.starts[t]
    node = first + leaf
    while (node := parents[node]) >= 0:
        below = [i for i in range(s.n_leaves[t]) if node in path_of(parents, first + i)]
        if weight[below].any():
            return sums[below].sum() / (weight[below].sum() + l2)
    return 0.0


def path_of(parents, node):
    """A node and all above it."""
    path = [node]
    while (node := parents[node]) >= 0:
        path.append(node)
    return path


def random_ancestors(rng, n_leaves, l2):
    """The nodes of trees of these numbers of leaves, whose splits part their leaves anywhere."""

    def split(leaves, found):
        at, cut = len(found), int(rng.integers(1, len(leaves)))
        found.append([0, 0])
        for side, part in enumerate((leaves[:cut], leaves[cut:])):
            found[at][side] = ~int(part[0]) if len(part) == 1 else split(part, found)
        return at

    children = []
    for n in n_leaves:
        found = []
        if n > 1:
            split(rng.permutation(n), found)
        children.append(np.array(found, dtype=np.int64).reshape(-1, 2))
    return Ancestors.of(children, np.full(sum(map(len, children)), float(l2)))


def removal_effects(s, y, queries, rows):
    """(n, rows): the derivatives of predictions by the share of row j that is deleted, by complex steps, which lose no digits."""
    w, found = (np.ones(s.n_rows) if s.row_weights is None else s.row_weights), []
    for j in rows:
        moved = w.astype(complex)
        moved[j] *= 1 - 1e-20j
        found.append(reweighted_replay(s, y, moved, queries, 1e-20j).imag / 1e-20)
    return np.stack(found, axis=1)


def bent_values(l2, l1, max_step, nodes, t, sums, leaf_weights):
    """Leaf values of tree t from the sums and weights of all L leaves, node after node from its root; and those of its splits."""
    found = {}

    def below(node):
        return (
            [nodes.leaf[node]]
            if nodes.leaf[node] >= 0
            else [i for c in nodes.children[node] for i in below(c)]
        )

    def own(node, parent):
        S, W = sums[below(node)].sum(), leaf_weights[below(node)].sum()
        value = np.sign(S) * max(abs(S) - l1, 0.0) / (W + nodes.l2[node])
        value = min(max(value, -max_step), max_step)
        share = 1.0 if nodes.own is None or parent is None else nodes.own[node]
        return value if parent is None else share * value + (1 - share) * found[parent]

    def visit(node, low, high):
        if nodes.leaf[node] >= 0:
            return
        left, right = nodes.children[node]
        for child in (left, right):
            found[child] = min(max(own(child, node), low), high)
        sign, middle = (
            (0 if nodes.signs is None else nodes.signs[node]),
            (found[left] + found[right]) / 2,
        )
        visit(left, middle if sign < 0 else low, middle if sign > 0 else high)
        visit(right, middle if sign > 0 else low, middle if sign < 0 else high)

    root = nodes.starts[t]
    found[root] = own(root, None)
    if nodes.rivals is None:
        visit(root, -np.inf, np.inf)
    for node in range(
        root, 0 if nodes.rivals is None else nodes.starts[t + 1]
    ):  # in the order they were split
        for child in nodes.children[node][nodes.children[node] >= 0]:
            mine = nodes.rivals[nodes.rivals[:, 0] == child]
            low, high = ([found[other] for other in mine[mine[:, 1] == side, 2]] for side in (0, 1))
            found[child] = min(max(own(child, node), *low, -np.inf), *high, np.inf)
    leaves = {nodes.leaf[node]: value for node, value in found.items() if nodes.leaf[node] >= 0}
    return np.array([leaves[leaf] for leaf in sorted(leaves)]), {
        n: v for n, v in found.items() if nodes.leaf[n] < 0
    }


def random_coefficients(rng, kind, n_trees, rates):
    """Tables of the kinds that occur: DART-like drops, shrinkage of the whole model, parallel trees, a forest."""
    omega, beta = np.tril(np.tile(rates, (n_trees + 1, 1)), -1), np.ones(n_trees + 1)
    if kind == "drops":
        omega *= rng.random(omega.shape) > 0.3
        beta[1:] *= rng.random(n_trees) > 0.2
    elif kind == "shrinkage":
        for t in range(1, n_trees + 1):
            omega[t:, :t] *= 0.9
            beta[t:] *= 0.9
    elif kind == "parallel":
        for t in range(n_trees):
            omega[t, t - t % 3 :] = 0.0
    elif kind == "forest":
        omega[:-1] = 0.0
        omega[-1] /= omega[-1].sum()  # a mean, if a weighted one
    return Coefficients(omega, beta)


def random_structure(
    seed,
    n_rows=40,
    n_trees=6,
    most_leaves=7,
    weighted=False,
    l2=0.0,
    base=None,
    offsets=False,
    mixed=False,
    draws=(1.0,),
    coefficients=None,
    steps=1,
    by_weight=False,
    shifted=False,
):
    """A structure no library fitted: ragged leaf counts, leaves of one row, leaves without rows, empty bags."""
    rng = np.random.default_rng(seed)
    n_leaves = rng.integers(1, most_leaves + 1, n_trees)
    leaves = np.stack([rng.integers(0, n, n_rows) for n in n_leaves])
    weights = rng.uniform(0, 2, n_rows) * (rng.random(n_rows) > 0.1) + 1e-3 if weighted else None
    level = rng.integers(0, len(draws), leaves.shape)
    counted = np.asarray(draws)[level] * (1.0 if weights is None else weights)
    totals = [np.bincount(leaf, row, n) for leaf, row, n in zip(leaves, counted, n_leaves)]
    leaf_weights = np.concatenate(totals).astype(float)
    regularisation = NewtonRule(
        np.full_like(leaf_weights, l2), np.full_like(leaf_weights, steps), by_weight
    )
    mixing = None
    if mixed:
        each = [
            np.diag(1.0 / (total + 1.0)) + rng.normal(0, 0.02, (n, n))
            for total, n in zip(totals, n_leaves)
        ]
        mixing = tuple(
            None if t == 1 else csr_array(matrix) for t, matrix in enumerate(each)
        )  # one tree does without
    rates = rng.uniform(0.05, 1.0, n_trees)
    scale, shift = regularisation.scale(leaf_weights), None
    if shifted:  # some sums moved, as l1 does, and some leaves at a constant
        fixed, moved = rng.random(len(scale)) < 0.2, rng.normal(size=len(scale))
        scale, shift = np.where(fixed, 0.0, scale), np.where(fixed, 0.3 * moved, moved * scale)
    known = None if coefficients is None else random_coefficients(rng, coefficients, n_trees, rates)
    ancestors = None
    if known is not None:
        ancestors = random_ancestors(np.random.default_rng(seed), n_leaves, l2)
    return Structure(
        cells=(level * n_leaves[:, None] + leaves).astype(cell_dtype(most_leaves * len(draws))),
        n_leaves=n_leaves,
        leaf_weights=leaf_weights,
        linear_leaves=LinearLeaves(scale, shift, mixing),
        leaf_rule=SumRule(regularisation, ancestors),
        learning_rates=rates,
        initial=None if base is None else np.array([base]),
        row_weights=weights,
        offsets=rng.normal(size=(n_rows, 1)) if offsets else None,
        sample_counts=np.asarray(draws),
        coefficients=known,
    )


def bent_tree(trees, t, sums, leaf_weights):
    """(L_t, K): the values of tree t of `BoostedFit` that have nodes, before the rate; the second of two classes is the rest."""
    start = trees.table.n_leaves[:t].sum()
    padded = np.zeros((2, len(trees.leaf_rule.l2)))
    padded[:, start : start + trees.table.n_leaves[t]] = sums[:, 0], leaf_weights
    first = bent_values(
        trees.leaf_rule.l2,
        trees.leaf_rule.l1,
        trees.leaf_rule.max_step,
        trees.leaf_rule.nodes,
        t,
        *padded,
    )[0]
    return np.stack([first, 1.0 - first][: sums.shape[1]], axis=1)


def predicted_numbers(table):
    """Return the numbers (lines,) that a table predicts: scores, probabilities, or predictions."""
    for name in ("score", "probability", "prediction"):
        if name in table:
            return np.asarray(table[name], dtype=float)
    raise AssertionError(f"no predictions in {list(table.columns)}")
