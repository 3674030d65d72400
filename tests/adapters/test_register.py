"""Adapters of the user's own: passed in the model's place, or registered and found by everything that takes a model."""

import pickle
import sys
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import axil
from axil import adapters
from axil.adapters import registration
from axil.adapters.contract import FittedSmoother, OffsetRule, SmootherModel, TreeModel
from axil.cli.program import main

rng = np.random.default_rng(3)
X, Q = rng.normal(size=(60, 4)), rng.normal(size=(5, 4))
Y = X @ [1.0, -2.0, 0.5, 0.0] + rng.normal(size=60)


class Own:
    """Ridge regression without an intercept."""

    def fit(self, X, y):
        self.coefficients = solution(X) @ y
        return self

    def predict(self, X):
        return X @ self.coefficients


def solution(X):
    return np.linalg.solve(X.T @ X + 0.7 * np.eye(X.shape[1]), X.T)


class OwnAdapter(SmootherModel):
    library = "Own"
    tolerance = 1e-9

    def __init__(self, model):
        self.model, self.n_features, self.fingerprint = (
            model,
            len(model.coefficients),
            str(model.coefficients),
        )

    def coordinates(self, X, n_threads=1):
        return np.asarray(X, dtype=float)

    def smoother(self, X, weights):
        return FittedSmoother(self.coordinates(X), solution(self.coordinates(X)))

    def predictions(self, X):
        return self.model.predict(self.coordinates(X))[:, None]

    def causes(self, what):
        return "Other rows."


def read(model):
    return OwnAdapter(model) if isinstance(model, Own) else None


@pytest.fixture
def registered():
    before = dict(registration.registered)
    adapters.register("Own", read)
    yield
    registration.registered.clear()
    registration.registered.update(before)


@pytest.fixture
def model():
    return Own().fit(X, Y)


def expected():
    return (
        Ridge(0.7, fit_intercept=False).fit(X, np.eye(60)).predict(Q)
    )  # one target per row: the weights themselves


def test_a_smoother_of_the_users_own(model):
    explainer = axil.Explainer(OwnAdapter(model), X, Y)
    np.testing.assert_allclose(
        explainer(Q).weights, expected(), atol=1e-12
    )  # solutions of well-conditioned systems
    assert axil.supports(OwnAdapter(model)).exact


def test_wrong_targets_are_noticed(model):
    with pytest.raises(axil.ExactnessError, match="Other rows"):
        axil.Explainer(OwnAdapter(model), X, Y + 1)


def test_a_solver_that_ends_elsewhere_is_refused_by_default(model):
    adapter = OwnAdapter(model)
    assert adapter.again(X, Y, None) is None
    assert "solver" in str(adapter.unsolved(X, None, 0.1))


def test_an_adapter_needs_no_base_class(model):
    inner = OwnAdapter(model)
    names = [name for name in dir(inner) if not name.startswith("_")]
    plain = SimpleNamespace(**{name: getattr(inner, name) for name in names})
    np.testing.assert_allclose(axil.Explainer(plain, X, Y)(Q).weights, expected(), atol=1e-12)


def test_registered_models_are_found(model, registered):
    assert axil.supports(model).exact
    np.testing.assert_allclose(axil.Explainer(model, X, Y)(Q).weights, expected(), atol=1e-12)


def test_registered_models_are_found_in_pipelines(registered):
    pipeline = make_pipeline(StandardScaler(), Own()).fit(X, Y)
    scaled = pipeline[0].transform(Q) @ solution(pipeline[0].transform(X))
    np.testing.assert_allclose(axil.Explainer(pipeline, X, Y)(Q).weights, scaled, atol=1e-12)


def test_a_registered_reader_comes_first(registered):
    ridge = Ridge().fit(X, Y)
    adapters.register(
        "Other", lambda model: OwnAdapter(Own().fit(X, Y)) if model is ridge else None
    )
    assert adapters.read(ridge).library == "Own"


def test_unregistered_models_are_not_known(model):
    assert not axil.supports(model)
    with pytest.raises(
        axil.UnsupportedModelError, match=r"test_register\.Own, is not read: axil reads"
    ):
        axil.Explainer(model, X, Y)


def test_the_command_line_sees_what_the_module_of_a_model_registers(
    tmp_path, monkeypatch, capsys, registered
):
    (tmp_path / "own_models.py").write_text(
        textwrap.dedent("""
            from axil import adapters
            from tests.adapters import test_register

            class Stored(test_register.Own):
                pass

            adapters.register("Stored", lambda m: test_register.OwnAdapter(m) if isinstance(m, Stored) else None)
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    import own_models

    (tmp_path / "model.pkl").write_bytes(pickle.dumps(own_models.Stored().fit(X, Y)))
    monkeypatch.delitem(sys.modules, "own_models")
    registration.registered.clear()
    assert main(["check", str(tmp_path / "model.pkl"), "--trust"]) == 0
    assert "Own model" in capsys.readouterr().out


class HalfSmoother(SmootherModel):
    library, n_features, fingerprint = "Half", 4, ""


class HalfTrees(TreeModel):
    library, n_features, fingerprint = "Half", 4, ""


@pytest.mark.parametrize(
    ("half", "missing"),
    [
        (HalfSmoother(), "tolerance, coordinates, predictions, causes, smoother"),
        (
            HalfTrees(),
            "tolerance, predictions, causes, leaf_tolerance, trees, leaves",
        ),
    ],
)
def test_half_an_adapter_is_refused_by_name(half, missing):
    with pytest.raises(axil.InputError, match=f"lacks {missing}"):
        axil.Explainer(half, X, Y)


def test_an_adapter_is_of_one_kind(model):
    adapter = OwnAdapter(model)
    adapter.trees = lambda rows: []
    with pytest.raises(axil.InputError, match="both trees and a smoother"):
        axil.Explainer(adapter, X, Y)


def test_predictions_take_offsets_in_the_place_of_the_base(model):
    adapter = OwnAdapter(model)
    adapter.offset_rule = OffsetRule.REPLACES_INITIAL
    with pytest.raises(axil.InputError, match=r"lacks predictions\(X, offsets\)"):
        axil.Explainer(adapter, X, Y)


@pytest.mark.parametrize(("name", "reader"), [("", read), (3, read), ("Own", "read")])
def test_register_takes_a_name_and_a_function(name, reader):
    with pytest.raises(axil.InputError, match="expected"):
        adapters.register(name, reader)


def test_a_reader_returns_an_adapter(model, registered):
    adapters.register("Own", lambda model: model)
    with pytest.raises(
        axil.InputError, match=r"registered for Own returned .* expected an adapter"
    ):
        axil.Explainer(model, X, Y)


class Proxy:
    """Answers to any name."""

    def __getattr__(self, name):
        return lambda *arguments: None


def test_an_object_that_answers_to_any_name_is_no_adapter():
    assert adapters.find(Proxy()) is None
