"""Ranking losses as the libraries define them, pair by pair in plain loops, and a replay of a fit with them."""

import numpy as np


def slices_of(groups):
    """Return the rows of each group as slices."""
    starts = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
    return [slice(start, end) for start, end in zip(starts, [*starts[1:], len(groups)])]


def ranked_pairs(labels, order, top):
    """Yield (better, worse, rank of better, rank of worse) of each pair with a row among the first ranks."""
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
    gains = 2.0 ** np.arange(31) - 1 if gains is None else np.asarray(gains, float)
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


def replay(leaves, values, gradients, rate, l2, start, new_leaves=None, own=False):
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

    Returns
    -------
    contributions : array of shape (n, N), or the replayed scores (n,) with ``own``
    """
    scores = np.full(len(leaves), float(start))
    contributions = np.zeros((len(new_leaves), len(leaves)))
    totals = np.full(len(new_leaves), float(start))
    for t, model_values in enumerate(values):
        g, h = gradients(scores)
        leaf = leaves[:, t]
        sums = np.bincount(leaf, h, len(model_values)) + l2
        factors = np.divide(rate, sums, out=np.zeros_like(sums), where=sums > 1e-10)
        replayed = -factors * np.bincount(leaf, g, len(model_values))
        largest = np.abs(model_values).max()
        is_same = np.abs(replayed - model_values) <= 1e-5 * largest
        contributions += (leaf == new_leaves[:, t, None]) * (-factors[leaf] * g)
        totals += np.where(is_same, model_values, replayed)[new_leaves[:, t]]
        if own:
            scores += np.where(is_same, model_values, replayed)[leaf]
        else:
            scores += model_values[leaf]
    return totals if own else contributions
