"""Ranking losses as the libraries define them, in plain loops, and a replay of a fit with them."""

import numpy as np


def slices_of(groups):
    """Return the rows of each group as slices."""
    starts = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], len(groups)])]


def ranked_pairs(labels, order, top):
    """Yield (better, worse, their ranks) of each pair with a row among the first ranks."""
    for upper in range(min(top, len(order))):
        for lower in range(upper + 1, len(order)):
            first = order[upper]
            second = order[lower]
            if labels[first] > labels[second]:
                yield first, second, upper, lower
            elif labels[first] < labels[second]:
                yield second, first, lower, upper


def lambdarank(scores, labels, groups, weights, top=30, sigmoid=1.0, norm=True, gains=None):
    """Return g and h (N,) of LightGBM's lambdarank."""
    if gains is None:
        gains = 2.0 ** np.arange(31) - 1
    gains = np.asarray(gains, float)
    g = np.zeros(len(scores))
    h = np.zeros(len(scores))
    for rows in slices_of(groups):
        s = scores[rows]
        y = labels[rows].astype(int)
        order = np.argsort(-s, kind="stable")
        discounts = 1 / np.log2(2.0 + np.arange(len(s)))
        ideal = (gains[np.sort(y)[::-1]] * discounts)[:top].sum()
        group_g = np.zeros(len(s))
        group_h = np.zeros(len(s))
        total = 0.0
        for i, j, rank_i, rank_j in ranked_pairs(y, order, top):
            delta = (gains[y[i]] - gains[y[j]]) * abs(discounts[rank_i] - discounts[rank_j]) / ideal
            if norm and s.max() != s.min():
                delta /= 0.01 + abs(s[i] - s[j])
            p = 1 / (1 + np.exp(sigmoid * (s[i] - s[j])))
            group_g[i] -= sigmoid * delta * p
            group_g[j] += sigmoid * delta * p
            group_h[[i, j]] += sigmoid**2 * delta * p * (1 - p)
            total += 2 * sigmoid * delta * p
        if norm and total > 0:
            group_g *= np.log2(1 + total) / total
            group_h *= np.log2(1 + total) / total
        g[rows] = group_g
        h[rows] = group_h
    return weights * g, weights * h


class XeNdcg:
    """LightGBM's rank_xendcg, whose generators go on from round to round."""

    def __init__(self, seed, groups):
        self.slices = slices_of(groups)
        self.states = [seed + number for number in range(len(self.slices))]

    def draws(self):
        """Return the numbers that the rows of all groups draw in one round, group by group."""
        numbers = []
        for number, rows in enumerate(self.slices):
            of_group = np.zeros(rows.stop - rows.start)
            if len(of_group) > 1:
                for k in range(len(of_group)):
                    self.states[number] = (214013 * self.states[number] + 2531011) % 2**32
                    of_group[k] = (self.states[number] >> 16) % 2**15 / 32768
            numbers.append(of_group)
        return numbers

    def __call__(self, scores, labels, is_present, weights):
        """Return g and h (N,) of the next round."""
        g = np.zeros(len(scores))
        h = np.zeros(len(scores))
        for rows, numbers in zip(self.slices, self.draws()):
            places = np.arange(rows.start, rows.stop)[is_present[rows]]
            if len(places) < 2:
                continue
            rho = np.exp(scores[places] - scores[places].max())
            rho /= rho.sum()
            phi = 2.0 ** labels[places] - numbers[is_present[rows]]
            term = rho - phi / phi.sum()
            g[places] = term
            for _ in range(2):
                ratio = term / (1 - rho)
                term = rho * (ratio.sum() - ratio)
                g[places] += term
            h[places] = rho * (1 - rho)
        return weights * g, weights * h


def query_rmse(scores, labels, groups, weights):
    """Return g and h (N,) of CatBoost's QueryRMSE."""
    g = np.zeros(len(scores))
    for rows in slices_of(groups):
        residuals = scores[rows] - labels[rows]
        g[rows] = weights[rows] * (residuals - np.average(residuals, weights=weights[rows]))
    return g, weights.copy()


def pair_logit(scores, labels, groups, weights, gradient_steps=False):
    """Return g and h (N,) of CatBoost's PairLogit; gradient steps count the pairs of each row."""
    g = np.zeros(len(scores))
    h = np.zeros(len(scores))
    for rows in slices_of(groups):
        for i in range(rows.start, rows.stop):
            for j in range(rows.start, rows.stop):
                if labels[i] > labels[j]:
                    p = 1 / (1 + np.exp(scores[i] - scores[j]))
                    g[i] -= weights[rows.start] * p
                    g[j] += weights[rows.start] * p
                    curvature = p * (1 - p)
                    if gradient_steps:
                        curvature = 1.0
                    h[[i, j]] += weights[rows.start] * curvature
    return g, h


def replay(
    leaves,
    values,
    gradients,
    rate,
    l2,
    start,
    new_leaves=None,
    *,
    own=False,
    centred_by=None,
    precision=float,
):
    """Walk through a fit of one output, one tree a round.

    Parameters
    ----------
    leaves : int array of shape (N, T)
    values : list of arrays of shape (L_t,)
        The model's leaf values.
    gradients : callable
        From the scores (N,) to g and h (N,) of the next round.
    new_leaves : int array of shape (n, T)
        Of unseen rows.
    own : bool
        Whether scores advance with the replayed values, where these are not the model's.
    precision : type
        In which the library keeps scores, and ties of them.
    centred_by : array of shape (N,), optional
        The weights of the rows in the mean that is taken off the leaf values of each tree.

    Returns
    -------
    contributions : array of shape (n, N), or the replayed scores (n,) with ``own``
    """
    scores = np.full(len(leaves), start, dtype=precision)
    contributions = np.zeros((len(new_leaves), len(leaves)))
    totals = np.full(len(new_leaves), float(start))
    for t, model_values in enumerate(values):
        g, h = gradients(scores)
        if len(model_values) == 1 and model_values[0] == 0:  # a tree without a split
            continue
        leaf = leaves[:, t]
        sums = np.bincount(leaf, h, len(model_values)) + l2
        factors = np.divide(rate, sums, out=np.zeros_like(sums), where=sums > 1e-10)
        replayed = -factors * np.bincount(leaf, g, len(model_values))
        shares = np.zeros(len(model_values))
        if centred_by is not None:
            shares = np.bincount(leaf, centred_by, len(model_values)) / centred_by.sum()
        replayed = np.where(shares > 0, replayed - shares @ replayed, replayed)
        largest = np.abs(model_values).max()
        is_same = np.abs(replayed - model_values) <= 1e-5 * largest
        is_there = (leaf == new_leaves[:, t, None]) - shares[leaf]
        if centred_by is not None:  # leaves without rows are zero
            is_there = is_there * (shares > 0)[new_leaves[:, t, None]]
        contributions += is_there * (-factors[leaf] * g)
        totals += np.where(is_same, model_values, replayed)[new_leaves[:, t]]
        if own:
            scores += np.where(is_same, model_values, replayed)[leaf].astype(precision)
        else:
            scores += model_values[leaf].astype(precision)
    if own:
        return totals
    return contributions


def minstd(state):
    """Return a function that draws a whole number below its argument, as minstd_rand does."""
    modulus = 2**31 - 1
    states = [state % modulus or 1]

    def draw(n):
        size = (modulus - 2) // n
        while True:
            states[0] = states[0] * 48271 % modulus
            if (states[0] - 1) // size < n:
                return (states[0] - 1) // size

    return draw


def drawn_pairs(labels, order, n_pairs, seed):
    """Yield (better, worse, their ranks) of XGBoost's random pairs of one group."""
    draw = minstd(seed)
    ranked = labels[order]
    by_label = np.argsort(-ranked, kind="stable")
    for label in sorted(set(ranked.tolist()), reverse=True):
        same_label = np.flatnonzero(ranked[by_label] == label)
        other_labels = np.flatnonzero(ranked[by_label] != label)
        if not len(other_labels):
            continue
        for _ in range(n_pairs):
            for place in same_label:
                ranks = by_label[place], by_label[other_labels[draw(len(other_labels))]]
                better, worse = sorted(ranks, key=lambda rank: -ranked[rank])
                yield order[better], order[worse], better, worse


def average_precision(ranked_labels):
    """Return the average precision of labels of 0 and 1 in the order of their ranks."""
    hits = np.cumsum(ranked_labels)
    return (ranked_labels * hits / np.arange(1, len(hits) + 1)).sum() / max(hits[-1], 1)


def xgboost_ranking(name, scores, labels, groups, weights, n_pairs, seeds=None, norms=(True, True)):
    """Return g and h (N,) of XGBoost's ranking objectives; `seeds` are those of random pairs."""
    g = np.zeros(len(scores))
    h = np.zeros(len(scores))
    slices = slices_of(groups)
    scale = len(slices) / sum(weights[rows.start] for rows in slices)
    for rows in slices:
        seed = None
        if seeds is not None:
            seed = seeds[groups[rows.start]]
        group = xgboost_group(name, np.float32(scores[rows]), labels[rows], n_pairs, seed, norms)
        g[rows] = weights[rows.start] * scale * group[0]
        h[rows] = weights[rows.start] * scale * group[1]
    return g, h


def xgboost_group(name, s, y, n_pairs, seed, norms):
    """Return g and h of the rows of one group, without its weight."""
    order = np.argsort(-s, kind="stable")
    n_ideal = n_pairs
    if seed is None:
        pairs = ranked_pairs(y, order, n_pairs)
    else:
        pairs = drawn_pairs(y, order, n_pairs, seed)
        n_ideal = len(s)
    g = np.zeros(len(s))
    h = np.zeros(len(s))
    total = 0.0
    for i, j, rank_i, rank_j in pairs:
        delta = change_of_swap(name, y, order, (i, j), (rank_i, rank_j), n_ideal)
        if norms[1] and s.max() != s.min():
            delta /= 0.01 + abs(float(s[i]) - float(s[j]))
        sigmoid = 1 / (1 + np.exp(float(s[j]) - float(s[i])))
        g[i] -= (1 - sigmoid) * delta
        g[j] += (1 - sigmoid) * delta
        h[[i, j]] += 2 * max(sigmoid * (1 - sigmoid), 1e-16) * delta
        total += 2 * (1 - sigmoid) * delta
    factor = 1.0
    if norms[0] and seed is not None:
        factor = 1 / n_pairs
    elif norms[0] and total > 0:
        factor = np.log2(1 + total) / total
    return factor * g, factor * h


def change_of_swap(name, y, order, pair, ranks, n_ideal):
    """Return how far the measure changes if two rows swap their ranks; 1 without a measure."""
    if name == "rank:ndcg":
        discounts = 1 / np.log2(2.0 + np.arange(len(y)))
        gains = 2.0**y - 1
        ideal = (np.sort(gains)[::-1] * discounts)[:n_ideal].sum()
        change = (gains[pair[0]] - gains[pair[1]]) * (discounts[ranks[0]] - discounts[ranks[1]])
        return abs(change) / ideal
    if name == "rank:map":
        swapped = y[order].copy()
        swapped[list(ranks)] = swapped[list(ranks[::-1])]
        return abs(average_precision(swapped) - average_precision(y[order]))
    return 1.0
