"""Atoms of full conformal prediction, against a ridge that is fitted again for every candidate error."""

import numpy as np
import pytest

from axil.methods.intervals.conformal import SOFTENED, Conformal, least_rows, order_of

P = 3
PENALTY = np.array([4.0, 1.0, 0.5])


def drawn(n, seed=0):
    """Features, sizes and errors of n rows, exchangeable: errors are larger where the first feature is."""
    draws = np.random.default_rng(seed)
    features = draws.normal(size=(n, P))
    sizes = np.exp(draws.normal(size=n) / 2)
    return features, sizes, sizes * np.exp(0.7 * features[:, 0]) * draws.standard_t(4, n)


def scores(features, sizes, errors):
    """What a ridge with an intercept, fitted to all rows, leaves over of their logarithms; plain NumPy."""
    design = np.column_stack([np.ones(len(features)), features])
    z = np.log(np.abs(errors) / sizes + SOFTENED)
    weights = np.diag(np.concatenate([[0.0], PENALTY]))
    return z - design @ np.linalg.solve(design.T @ design + weights, design.T @ z)


@pytest.mark.parametrize("n", [2, 9, 40])
def test_atoms_are_where_ranks_of_a_refitted_ridge_change(n):
    """Just below its atom a calibration row scores at least as much as the new row, just above it less."""
    features, sizes, errors = drawn(n + 5)
    rows = Conformal(features[:n], sizes[:n], errors[:n], PENALTY)
    found = rows.magnitudes(features[n:], sizes[n:])
    for q in range(5):
        for i in range(n):
            if not 0 < found[q, i] < np.inf:
                continue
            for factor, above in (
                (1 - 1e-6, True),
                (1 + 1e-6, False),
            ):  # rounding is 1e-9 of these at most
                tried = np.append(errors[:n], factor * found[q, i])
                at = np.append(np.arange(n), n + q)
                score = scores(features[at], sizes[at], tried)
                assert (score[i] >= score[n]) == above


def test_atoms_have_the_signs_of_the_rows_and_are_in_order():
    features, sizes, errors = drawn(30)
    errors[3] = 0.0
    rows = Conformal(features[:25], sizes[:25], errors[:25], PENALTY)
    found = rows.atoms(features[25:], sizes[25:])
    assert (np.diff(found, axis=1) >= 0).all()
    assert ((found < 0).sum(axis=1) <= (errors[:25] < 0).sum()).all()
    assert ((found > 0).sum(axis=1) <= (errors[:25] > 0).sum()).all()
    unsigned = np.sort(rows.magnitudes(features[25:], sizes[25:])[:, errors[:25] != 0], axis=1)
    np.testing.assert_array_equal(np.sort(np.abs(found), axis=1)[:, -24:], unsigned)


def test_without_features_atoms_are_the_errors_on_the_new_rows_scale():
    _, sizes, errors = drawn(20)
    none = np.zeros((20, 0))
    rows = Conformal(none, sizes, errors, np.zeros(0))
    doubled = rows.magnitudes(none[:1], np.array([2.0]))
    one = rows.magnitudes(none[:1], np.array([1.0]))
    np.testing.assert_allclose(doubled, 2 * one, rtol=1e-12)
    # g = u = 1 / n for every row, so the only thing that is left is the row's own ratio
    np.testing.assert_allclose(one[0], np.abs(errors) / sizes, rtol=1e-9)


@pytest.mark.parametrize("n", [9, 20, 100])
def test_the_true_error_is_at_every_place_alike(n):
    """Ranks of a new row among the atoms are uniform over 4,000 repetitions: exact, whatever n."""
    repetitions, places = 4000, np.zeros(n + 1)
    for seed in range(repetitions):
        features, sizes, errors = drawn(n + 1, seed + 1)
        rows = Conformal(features[:n], sizes[:n], errors[:n], PENALTY)
        places[(rows.atoms(features[n:], sizes[n:]) < errors[n]).sum()] += 1
    expected = repetitions / (n + 1)
    chi = ((places - expected) ** 2 / expected).sum()
    assert (
        chi < n + 4.5 * np.sqrt(2 * n) + 6
    )  # mean n, variance 2 n: less than one in 10,000 is above


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_ends_hold_errors_of_one_sign_among_features_of_heavy_tails(sign):
    """Some rows turn the inequality round (1 + u <= 0): 0.43 of 0.5 were held while their atoms went to one end only."""
    n, repetitions, held, turned = 7, 4000, 0, 0
    draws, penalty = np.random.default_rng(0), np.full(7, 8.0)
    low, high = n + 1 - order_of(0.75, n), order_of(0.75, n)
    for _ in range(repetitions):
        features = 3 * draws.standard_t(1.2, size=(n + 1, 7))
        errors = sign * draws.exponential(size=n + 1) * np.exp(features[:, 0].clip(-3, 3) / 2)
        rows = Conformal(features[:n], np.ones(n), errors[:n], penalty)
        lower, upper = rows.bounds(features[n:], np.ones(1))
        held += lower[0, low - 1] <= errors[n] <= upper[0, high - 1]
        turned += np.isinf(rows.magnitudes(features[n:], np.ones(1))).any()
    assert turned > repetitions / 10
    assert held / repetitions > 0.5 - 3 * np.sqrt(0.25 / repetitions)


@pytest.mark.parametrize("tails", [1.2, 30.0])
@pytest.mark.parametrize("n", [1, 7, 400])
def test_atoms_at_places_are_those_of_all_atoms_in_order(n, tails):
    """With heavy tails some rows turn the inequality round (1 + u <= 0), and all rows may be at any place."""
    draws = np.random.default_rng(n)
    features, errors = (
        3 * draws.standard_t(tails, size=(n + 50, P)),
        draws.standard_t(2, n) * (draws.random(n) < 0.9),
    )
    rows = Conformal(features[:n], np.exp(draws.normal(size=n)), errors, PENALTY)
    new = features[n:], np.exp(draws.normal(size=50))
    places = sorted({0, n // 2, (9 * n) // 10, n - 1})
    expected = np.sort(rows.magnitudes(*new), axis=1)[:, places]
    np.testing.assert_allclose(rows.at_places(*new, places), expected, rtol=1e-12)
    one_by_one = [rows.at_places(new[0][[q]], new[1][[q]], places)[0] for q in range(50)]
    np.testing.assert_allclose(one_by_one, expected, rtol=1e-12)


def test_few_rows_are_looked_at_for_the_atoms_at_two_places(monkeypatch):
    features, sizes, errors = drawn(3100)
    rows, looked_at, left_of = (
        Conformal(features[:3000], sizes[:3000], errors[:3000], PENALTY),
        [],
        Conformal._left_of,
    )
    monkeypatch.setattr(
        Conformal,
        "_left_of",
        lambda self, *given: looked_at.append(len(given[1])) or left_of(self, *given),
    )
    rows.at_places(features[3000:], sizes[3000:], [1500, 2700])
    assert sum(looked_at) < 300


def test_places_and_least_rows():
    assert [order_of(0.9, n) for n in (9, 10, 19, 99)] == [9, 10, 18, 90]
    assert least_rows(0.9) == 9
    assert least_rows(0.95) == 19
    assert least_rows(0.5) == 1
    for share in np.linspace(0.01, 0.999, 50):
        n = least_rows(share)
        assert order_of(share, n) <= n
        assert n == 1 or order_of(share, n - 1) > n - 1
