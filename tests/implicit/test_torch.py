"""Torch modules: against scikit-learn's learners with the same parameters, and against other optima."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import root
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neural_network import MLPRegressor

import axil
from axil.errors import ApproximationWarning
from axil.implicit import optimum
from tests.implicit.implicit_models import cancer, diabetes, slope, weights, wine
from tests.implicit.implicit_models import read as read_any

torch = pytest.importorskip("torch", reason="torch is not installed: make test-torch")

from axil.implicit import torch as reader  # noqa: E402
from axil.implicit.torch import TrainingLoss  # noqa: E402


def read(model, X, y, *arguments, **settings):
    return read_any(model, X, y, *arguments, module=reader, **settings)


def linear(coefficients, intercepts=None):
    """A layer in float64 with these parameters."""
    layer = torch.nn.Linear(*np.shape(coefficients)[::-1], bias=intercepts is not None).double()
    with torch.no_grad():
        layer.weight[:] = torch.as_tensor(coefficients)
        if intercepts is not None:
            layer.bias[:] = torch.as_tensor(intercepts)
    return layer


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_linear_module_has_the_exact_weights_of_ridge(reduction):
    X, y = diabetes()
    w = weights(len(y))
    alpha = 3.0 * (w.sum() if reduction == "mean" else 1.0)
    ridge = Ridge(alpha).fit(X, y, w)
    module = linear(ridge.coef_[None], [ridge.intercept_])
    decay = {"weight": 6.0}  # MSELoss has no half
    found = read(module, X, y, w, loss=TrainingLoss(torch.nn.MSELoss(reduction=reduction), decay))
    np.testing.assert_allclose(
        found.target_derivatives(X)[0],
        axil.Explainer(ridge, X, y, sample_weight=w)(X).weights,
        atol=1e-10,
    )
    np.testing.assert_allclose(found.predictions(X)[:, 0], ridge.predict(X))
    if reduction == "sum":
        moved = slope(lambda w: Ridge(alpha).fit(X, y, w).predict(X), w, np.eye(len(y))[7], 0.01)
    else:  # a mean over the rows: the penalty on their sum grows with the weights
        moved = slope(
            lambda w: Ridge(3.0 * w.sum()).fit(X, y, w).predict(X), w, np.eye(len(y))[7], 0.01
        )
    np.testing.assert_allclose(found.weight_derivatives(X)[0][:, 7], moved, atol=1e-8)


def network():
    """A network fitted by scikit-learn, and the same as a module, with its loss."""
    X, y = diabetes(60)
    y = (y - y.mean()) / y.std()
    settings = {
        "activation": "tanh",
        "solver": "lbfgs",
        "max_iter": 50000,
        "max_fun": 500000,
        "random_state": 0,
    }
    model = MLPRegressor(hidden_layer_sizes=(4, 3), alpha=2.0, tol=1e-12, **settings).fit(X, y)
    layers = []
    for W, b in zip(model.coefs_, model.intercepts_):
        layers += [linear(W.T, b), torch.nn.Tanh()]
    module = torch.nn.Sequential(*layers[:-1])
    decay = {name: 2.0 for name, _ in module.named_parameters() if name.endswith("weight")}
    return X, y, model, module, TrainingLoss(lambda s, y: (s - y) ** 2 / 2, decay, "sum")


def test_copies_give_the_same_bits():
    X, y, _, module, loss = network()
    found = read(
        module,
        X,
        y,
        loss=TrainingLoss(torch.nn.MSELoss(reduction="sum"), loss.weight_decay),
        verify=False,
    )
    for again in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):
        np.testing.assert_array_equal(
            again.target_derivatives(X[:5]), found.target_derivatives(X[:5])
        )
        np.testing.assert_array_equal(again.predictions(X[:5]), found.predictions(X[:5]))


def test_a_network_is_differentiated_as_scikit_learns():
    X, y, model, module, loss = network()
    ours, theirs = read(module, X, y, loss=loss), read_any(model, X, y)
    np.testing.assert_allclose(ours.target_derivatives(X), theirs.target_derivatives(X), atol=1e-9)
    np.testing.assert_allclose(ours.weight_derivatives(X), theirs.weight_derivatives(X), atol=1e-9)
    assert ours.verification.details["newton_step"] == pytest.approx(
        theirs.verification.details["newton_step"], rel=1e-4
    )


def test_conjugate_gradients_come_to_the_same(monkeypatch):
    X, y, _, module, loss = network()
    dense = read(module, X, y, loss=loss).target_derivatives(X[:9])
    monkeypatch.setattr(optimum, "DENSE_PARAMETERS", 10)
    found = read(module, X, y, loss=loss)
    assert found.verification.details["solver"] == "conjugate gradients"
    np.testing.assert_allclose(found.target_derivatives(X[:9]), dense, atol=1e-5)


def test_rows_and_targets_may_be_frames_and_tensors():
    X, y, _, module, loss = network()
    expected = read(module, X, y, loss=loss).target_derivatives(X[:3])
    frame, tensor = pd.DataFrame(X), torch.as_tensor(X)
    for rows, targets in (
        (frame, pd.Series(y)),
        (tensor, torch.as_tensor(y)),
        (tensor, torch.as_tensor(y)[:, None]),
    ):
        np.testing.assert_allclose(
            read(module, rows, targets, loss=loss).target_derivatives(rows[:3]), expected
        )


def test_the_module_stays_as_it_was():
    X, y, _, module, loss = network()
    module = module.float().train()
    before = [part.clone() for part in module.parameters()]
    found = read(module, X, y, loss=loss)
    found.target_derivatives(X[:2])
    assert module.training
    for was, part in zip(before, module.parameters()):
        assert part.dtype == torch.float32
        assert part.grad is None
        assert torch.equal(was, part)
    assert found.verification.max_error < 1e-5


@pytest.mark.parametrize("output", ["raw", "probability"])
def test_two_classes_as_logistic_regression(output):
    X, y = cancer()
    model = LogisticRegression(C=0.5, tol=1e-12, solver="newton-cholesky", fit_intercept=False).fit(
        X, y
    )
    loss = TrainingLoss(torch.nn.BCEWithLogitsLoss(), 2.0 / len(y))
    ours, theirs = (
        read(linear(model.coef_), X, y, loss=loss, output=output),
        read_any(model, X, y, output=output),
    )
    np.testing.assert_allclose(ours.target_derivatives(X), theirs.target_derivatives(X), atol=1e-9)
    np.testing.assert_allclose(ours.predictions(X), theirs.predictions(X), atol=1e-12)


def test_cross_entropy_against_other_optima():
    """-sum_k y_k log p_k, by its targets as it stands: a target above one is more weight on its class."""
    X, y = wine()
    Y, C = np.eye(3)[y], 0.5
    model = LogisticRegression(C=C, tol=1e-12, solver="newton-cholesky", fit_intercept=False).fit(
        X, y
    )

    def optimum(Y):
        def gradient(theta):
            p = softmax(X @ theta.reshape(3, -1).T, axis=1)
            return ((p * Y.sum(axis=1, keepdims=True) - Y).T @ X + theta.reshape(3, -1) / C).ravel()

        return softmax(
            X[:6] @ root(gradient, model.coef_.ravel(), tol=1e-13).x.reshape(3, -1).T, axis=1
        )

    module = linear(model.coef_)
    loss = TrainingLoss(torch.nn.CrossEntropyLoss(reduction="sum"), 1 / C)
    found = read(module, X, y, loss=loss, output="probability")  # labels become one-hot targets
    np.testing.assert_array_equal(found.targets, Y)
    derivatives = found.target_derivatives(X[:6])
    for row, k in ((0, 0), (5, 2), (40, 1)):
        one = np.zeros_like(Y)
        one[row, k] = 1.0
        moved = slope(optimum, Y, one, 0.01)
        np.testing.assert_allclose(derivatives[k][:, row], moved[:, k], atol=1e-6)


def test_frozen_layers_are_held_fixed():
    X, y, _, module, _ = network()
    for part in module[0].parameters():
        part.requires_grad_(False)
    features = module[:2](torch.as_tensor(X)).detach().numpy()
    rest = module[2:]
    decay = {
        name: 2.0
        for name, part in module.named_parameters()
        if part.requires_grad and name.endswith("weight")
    }
    inner = {name: 2.0 for name, _ in rest.named_parameters() if name.endswith("weight")}
    ours = read(module, X, y, loss=TrainingLoss(lambda s, y: (s - y) ** 2 / 2, decay, "sum"))
    theirs = read(rest, features, y, loss=TrainingLoss(lambda s, y: (s - y) ** 2 / 2, inner, "sum"))
    np.testing.assert_allclose(
        ours.target_derivatives(X), theirs.target_derivatives(features), atol=1e-9
    )


def test_what_is_refused():
    X, y, _, module, loss = network()
    with pytest.raises(axil.InputError, match="pass loss="):
        read(module, X, y)
    refused = {
        "loss": (module, torch.nn.L1Loss()),
        "layer": (torch.nn.Sequential(module, torch.nn.Dropout(0.1)), loss),
        "parameters": (torch.nn.Tanh(), loss),
    }
    for setting, (model, of) in refused.items():
        with pytest.raises(axil.UnsupportedModelError) as caught:
            read(model, X, y, loss=of)
        assert caught.value.setting == setting
    with pytest.raises(axil.UnsupportedModelError, match="BatchNorm1d"):
        read(torch.nn.Sequential(torch.nn.BatchNorm1d(10), module), X, y, loss=loss)
    with pytest.raises(axil.UnsupportedModelError, match="class weights"):
        read(module, X, y, loss=torch.nn.CrossEntropyLoss(weight=torch.ones(1)))
    for match, arguments in {
        "columns": {"y": np.ones((60, 2)), "loss": loss},
        "probabilities": {"y": y, "loss": loss, "output": "probability"},
        "offsets": {"y": y, "loss": loss, "init_score": y},
        "expected a function": {"y": y, "loss": "mse"},
        "weight_decay": {"y": y, "loss": TrainingLoss(torch.nn.MSELoss(), {"nothing": 1.0})},
    }.items():
        with pytest.raises(axil.InputError, match=match):
            read(module, X, **arguments)
    with pytest.raises(axil.InputError, match="reduction"):
        TrainingLoss(torch.nn.MSELoss(), 0.0, "median")
    with pytest.raises(axil.InputError, match="link"):
        TrainingLoss(torch.nn.MSELoss(), link="probit")
    with pytest.raises(axil.InputError, match="differentiated twice"):
        read(module, X, y, loss=lambda s, y: torch.tensor(s.detach().item()))


def test_a_module_that_was_not_trained_to_the_end_is_refused():
    X, y, _, module, loss = network()
    torch.manual_seed(0)
    fresh = torch.nn.Sequential(torch.nn.Linear(10, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    with pytest.raises(axil.ExactnessError, match="stationary point"):
        read(fresh, X, y, loss=TrainingLoss(torch.nn.MSELoss(), 0.01))
    with torch.no_grad():
        module[0].weight *= 1.05
    with pytest.warns(ApproximationWarning, match="stationary point"):
        read(module, X, y, loss=loss)


def test_supports_names_the_derivative():
    found = axil.supports(torch.nn.Linear(2, 1))
    assert (found.kind, found.exact) == ("derivative", False)
    assert "axil.Explainer" in found.reason
