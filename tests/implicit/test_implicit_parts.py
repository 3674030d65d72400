"""The parts of implicit differentiation by themselves: losses, links, networks and solvers."""

import numpy as np
import pytest
from scipy.special import expit, logsumexp
from sklearn.linear_model import TweedieRegressor

from axil.implicit import optimum, row_losses, solvers
from axil.implicit.network import Network
from tests.implicit.implicit_models import diabetes, read, slope


def tweedie(power):
    """Half deviances by the book, up to what does not depend on the mean."""
    if power == 1:
        return lambda m, y: m - y * np.log(m)
    if power == 2:
        return lambda m, y: np.log(m) + y / m
    return lambda m, y: m ** (2 - power) / (2 - power) - y * m ** (1 - power) / (1 - power)


LOSSES = {
    **{f"log link, power {p}": (row_losses.deviance(p, True), lambda s, y, p=p: tweedie(p)(np.exp(s), y).sum())
       for p in (0, 1, 1.5, 2, 3)},
    **{f"identity, power {p}": (row_losses.deviance(p, False), lambda s, y, p=p: tweedie(p)(s, y).sum())
       for p in (0, 1, 1.5, 2)},
    "log loss": (row_losses.log_loss, lambda s, y: -(y * np.log(expit(s)) + (1 - y) * np.log(expit(-s))).sum()),
    "softmax": (row_losses.softmax_loss, lambda s, y: logsumexp(s) - (y - y.mean() + 1 / len(y)) @ s),
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_rows_by_differences(name):
    derivatives, loss = LOSSES[name]
    rng = np.random.default_rng(1)
    scores, targets = rng.uniform(0.5, 1.5, (4, 3)), rng.dirichlet(np.ones(3), 4)
    found = derivatives(scores, targets)
    for i, (s, y) in enumerate(zip(scores, targets)):
        check_row(derivatives, loss, s, y, found.gradient[i], found.curvature[i], found.cross[i])


def check_row(derivatives, loss, s, y, gradient, curvature, cross):
    def by_score(s, y, j):
        return slope(lambda s: loss(s, y), s, np.eye(3)[j], 3e-3)

    for j in range(3):
        assert gradient[j] == pytest.approx(by_score(s, y, j), abs=1e-7)
    for k, unit in enumerate(np.eye(3)):
        moved = slope(lambda s: derivatives(s[None], y[None]).gradient[0], s, unit, 3e-3)
        np.testing.assert_allclose(curvature[:, k], moved, atol=1e-6)
        moved = slope(lambda y: np.array([by_score(s, y, j) for j in range(3)]), y, unit, 1e-2)
        np.testing.assert_allclose(cross[:, k], moved, atol=1e-6)


@pytest.mark.parametrize("name", ["identity_link", "exp_link", "sigmoid_link", "softmax_link"])
def test_links_by_differences(name):
    link = getattr(row_losses, name)
    scores = np.random.default_rng(1).normal(size=(4, 3))
    for k, unit in enumerate(np.eye(3)):
        moved = slope(lambda s: link(s)[0], scores, unit, 1e-2)
        np.testing.assert_allclose(link(scores)[1][:, :, k], moved, atol=1e-7)


@pytest.mark.parametrize("activation", ["tanh", "logistic", "relu", "identity"])
def test_networks_by_differences(activation):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(7, 4))
    shapes = [(4, 5), (5, 3), (3, 2)]
    layers = [rng.normal(size=shape) for shape in shapes]
    biases = [rng.normal(size=shape[1]) for shape in shapes]
    sizes = np.cumsum([part.size for part in (*layers, *biases)])[:-1]

    def network(theta):
        parts = np.split(theta, sizes)
        return Network(
            [p.reshape(s) for p, s in zip(parts, shapes)], list(parts[3:]), activation, X
        )

    theta = np.concatenate([part.ravel() for part in (*layers, *biases)])
    here = network(theta)
    directions = rng.normal(size=(len(theta), 3))
    g, D = rng.normal(size=(7, 2)), rng.normal(size=(7, 2, 2))
    D = D + np.swapaxes(D, 1, 2)
    start = here.scores(X)

    def gradient(theta):
        there = network(theta)
        return there.pull(g + np.einsum("ijk,ik->ij", D, there.scores(X) - start))

    product = here.product(directions, g, D)
    for m, direction in enumerate(directions.T):
        moved = slope(lambda theta: network(theta).scores(X), theta, direction, 1e-4)
        np.testing.assert_allclose(here.push(directions)[:, :, m], moved, atol=1e-7)
        np.testing.assert_allclose(here.jacobian(X) @ direction, moved, atol=1e-7)
        np.testing.assert_allclose(
            product[:, m], slope(gradient, theta, direction, 1e-4), atol=1e-6
        )
    np.testing.assert_allclose(
        here.pull(g), np.einsum("ik,ikp->p", g, here.jacobian(X)), atol=1e-12
    )


def matrix(eigenvalues, seed=0):
    Q = np.linalg.qr(np.random.default_rng(seed).normal(size=(len(eigenvalues),) * 2))[0]
    return Q * eigenvalues @ Q.T, Q


def both(hessian, flat=None, may_damp=True):
    n = len(hessian)
    flat = np.zeros((n, 0)) if flat is None else flat
    return (
        solvers.Dense(lambda v: hessian @ v, n, 8 * n, flat, may_damp),
        solvers.ConjugateGradients(lambda v: hessian @ v, n, flat, may_damp),
    )


def test_solvers_agree_on_a_definite_matrix():
    hessian, _ = matrix(np.geomspace(1e-2, 10, 40))
    right = np.random.default_rng(1).normal(size=(40, 3))
    right[:, 1] = 0.0
    for solver in both(hessian):
        np.testing.assert_allclose(
            solver.solve(right), np.linalg.solve(hessian, right), rtol=1e-4, atol=1e-4
        )
        assert solver.damping == 0
        assert solver.residual <= 1e-7


def test_solvers_damp_what_bends_down_and_say_so():
    hessian, _ = matrix(np.r_[-0.5, np.linspace(1, 10, 39)])
    right = np.random.default_rng(1).normal(size=(40, 2))
    for solver in both(hessian):
        assert solver.damping == pytest.approx(1.0, rel=0.05)
        damped = np.linalg.solve(hessian + solver.damping * np.eye(40), right)
        np.testing.assert_allclose(solver.solve(right), damped, rtol=1e-4, atol=1e-5)
    for make in (0, 1):
        with pytest.raises(solvers.Singular):
            both(hessian, may_damp=False)[make]
    hidden, Q = matrix(
        np.r_[-1e-3, np.geomspace(1e-3, 1e3, 399)]
    )  # too small for a few steps of Lanczos to see
    solver = solvers.ConjugateGradients(lambda v: hidden @ v, 400, np.zeros((400, 0)), True)
    found = solver.solve(Q[:, :1] + Q[:, 1:2])
    assert solver.damping > 1e-3
    damped = np.linalg.solve(hidden + solver.damping * np.eye(400), Q[:, :1] + Q[:, 1:2])
    np.testing.assert_allclose(found, damped, rtol=1e-3, atol=1e-3)


def test_solvers_leave_out_flat_directions_and_dead_parameters():
    hessian, Q = matrix(np.r_[0.0, np.linspace(1, 10, 19)])
    right = np.random.default_rng(1).normal(size=(20, 2))
    for solver in both(hessian, Q[:, :1], may_damp=False):
        np.testing.assert_allclose(solver.solve(right), np.linalg.pinv(hessian) @ right, atol=1e-6)
    dead = np.zeros((21, 21))
    dead[:20, :20] = hessian + np.eye(20)
    solver = solvers.Dense(lambda v: dead @ v, 21, 8 * 21, np.zeros((21, 0)), False)
    found = solver.solve(np.ones((21, 1)))
    assert found[20] == 0
    np.testing.assert_allclose(found[:20], np.linalg.solve(dead[:20, :20], np.ones((20, 1))))


def test_a_large_hessian_is_never_written_down(monkeypatch):
    X, y = diabetes()
    model = TweedieRegressor(power=0, alpha=0.05, solver="newton-cholesky").fit(X, y)
    expected = read(model, X, y)
    for change in ({"limit": 1000}, {}):
        if not change:
            monkeypatch.setattr(optimum, "DENSE_PARAMETERS", 5)
        found = read(model, X, y, **change)
        assert found.verification.details["solver"] == "conjugate gradients"
        np.testing.assert_allclose(
            found.target_derivatives(X[:5]), expected.target_derivatives(X[:5]), atol=1e-6
        )
    assert expected.verification.details["solver"] == "cholesky"
    assert expected.bytes_per_query() > 8 * len(y)
