"""The losses of boosting: every slope against difference quotients, and the Tweedie family against its special cases."""

import numpy as np
import pytest

from axil.errors import InputError
from axil.trees.losses import Logistic, Softmax, Squared, gamma, poisson, tweedie

rng = np.random.default_rng(5)
F = rng.normal(size=(40, 3))
Y = rng.uniform(0.1, 0.9, size=(40, 3))
MEANS = np.array([0.2, 0.3, 0.5])
STEP = 1e-6  # central differences: errors of STEP^2 and of rounding / STEP, both below 1e-9

LOSSES = {
    "squared": Squared(),
    "logistic": Logistic(),
    "logistic, scale": Logistic(scale=1.7),
    "logistic, from mean": Logistic(from_mean=True),
    "logistic, newton": Logistic(newton_start=True),
    "softmax": Softmax(),
    "softmax, centred": Softmax(factor=2.0, centred=True),
    "poisson": poisson(1.4),
    "poisson, newton": poisson(newton_start=True),
    "gamma": gamma(),
    "gamma, newton": gamma(newton_start=True),
    "tweedie": tweedie(1.3),
    "tweedie, gradient steps": tweedie(1.3, unit_hessian=True),
}


@pytest.fixture(params=LOSSES)
def loss(request):
    return LOSSES[request.param]


def full(value):
    return np.broadcast_to(value, F.shape)


def difference(function, at):
    """Derivative of column k by column k of the argument."""
    found = np.empty(F.shape)
    for k in range(F.shape[1]):
        up, down = at.copy(), at.copy()
        up[:, k] += STEP
        down[:, k] -= STEP
        found[:, k] = (full(function(up)) - full(function(down)))[:, k] / (2 * STEP)
    return found


def test_slopes_by_score_and_by_target(loss):
    slopes = loss.slopes(Y, F)
    # A coupled loss gives its slopes by the output's own mean.
    own = loss.mean_slopes(F)[:, range(3), range(3)] if loss.coupled else 1.0
    for name in "g", "h":
        by_score = difference(lambda at, name=name: getattr(loss.slopes(Y, at), name), F)
        by_target = difference(lambda at, name=name: getattr(loss.slopes(at, F), name), Y)
        np.testing.assert_allclose(
            full(getattr(slopes, f"{name}_by_score")) * own, by_score, atol=1e-7
        )
        np.testing.assert_allclose(full(getattr(slopes, f"{name}_by_target")), by_target, atol=1e-7)


def test_mean_slopes(loss):
    slopes = loss.mean_slopes(F)
    for m in range(3):
        up, down = F.copy(), F.copy()
        up[:, m] += STEP
        down[:, m] -= STEP
        np.testing.assert_allclose(
            slopes[:, :, m], (loss.mean(up) - loss.mean(down)) / (2 * STEP), atol=1e-7
        )


def test_start_slopes(loss):
    quotients = [
        (loss.start(MEANS + STEP * unit) - loss.start(MEANS - STEP * unit)) / (2 * STEP)
        for unit in np.eye(3)
    ]
    np.testing.assert_allclose(loss.start_slopes(MEANS), np.transpose(quotients), atol=1e-7)


@pytest.mark.parametrize(
    "loss", [Squared(), Logistic(scale=1.7), Softmax(), poisson(), gamma(), tweedie(1.3)]
)
def test_the_link_is_the_inverse_of_the_mean(loss):
    np.testing.assert_allclose(loss.mean(loss.link(MEANS)[None])[0], MEANS, rtol=1e-14)


def test_one_formula_is_poisson_to_the_bit():
    mean, found = np.exp(F), poisson(1.4).slopes(Y, F)
    expected = mean - Y, 1.4 * mean, mean, 1.4 * mean, full(-1.0), full(0.0)
    for name, values in zip(
        ("g", "h", "g_by_score", "h_by_score", "g_by_target", "h_by_target"), expected
    ):
        np.testing.assert_array_equal(full(getattr(found, name)), values, err_msg=name)


def test_one_formula_is_gamma_to_the_bit():
    inverse, found = np.exp(-F), gamma().slopes(Y, F)
    ratio = Y * inverse
    expected = 1 - ratio, ratio, ratio, -ratio, -inverse, inverse
    for name, values in zip(
        ("g", "h", "g_by_score", "h_by_score", "g_by_target", "h_by_target"), expected
    ):
        np.testing.assert_array_equal(full(getattr(found, name)), values, err_msg=name)


@pytest.mark.parametrize(
    ("loss", "y"), [(Logistic(), 1.5), (poisson(), -1.0), (poisson(), 0.0), (gamma(), 0.0)]
)
def test_targets_that_a_loss_does_not_take(loss, y):
    with pytest.raises(InputError, match="takes targets"):
        loss.check(np.array([[y]]))


@pytest.mark.parametrize("loss", [poisson(), tweedie(1.5)])
def test_some_targets_of_a_fit_may_all_be_zero(loss):
    loss.check(np.zeros((2, 1)), "targets", whole=False)
    with pytest.raises(
        InputError, match="targets goes down to -1; this loss takes targets from 0 up"
    ):
        loss.check(np.array([[-1.0]]), "targets", whole=False)


def test_a_loss_has_its_own_name():
    assert [loss.name for loss in (poisson(), gamma(), tweedie(1.0), Softmax())] == [
        "poisson",
        "gamma",
        "tweedie",
        "softmax",
    ]
