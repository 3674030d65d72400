"""device=: what is refused without a GPU, and, where there is one, the same answers from it as from the cores."""

import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

import axil
from axil.errors import InputError
from axil.kernels import choose
from axil.methods.method import verified_model
from axil.replay import build, exact_attribution, recover, walk
from tests import away
from tests.away import Away
from tests.devices import need_gpu

# Weights of order 1e-3 to 1 and sums of some thousand of them, in another order: far less than this apart.
CLOSE = {"rtol": 1e-9, "atol": 1e-12}


@pytest.fixture(scope="module")
def fitted():
    X, y = make_friedman1(600, random_state=0)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(y))
    models = {
        "plain": HistGradientBoostingRegressor(max_iter=40, random_state=0).fit(X, y),
        "weighted": HistGradientBoostingRegressor(max_iter=40, l2_regularization=2.0).fit(
            X, y, weight
        ),
    }
    lightgbm = pytest.importorskip("lightgbm")
    common = {"n_estimators": 40, "verbose": -1, "min_child_samples": 5}
    settings = {
        "lightgbm": {},
        "dart": {"boosting_type": "dart", "xgboost_dart_mode": False},
        "bagged": {"subsample": 0.7, "subsample_freq": 1, "colsample_bytree": 0.8},
        "l1": {"reg_alpha": 1.0, "reg_lambda": 0.5},
    }
    for name, own in settings.items():
        models[name] = lightgbm.LGBMRegressor(**common, **own).fit(X, y)
    return X, y, weight, models


NAMES = ["plain", "weighted", "lightgbm", "dart", "bagged", "l1"]


def test_a_device_that_is_not_known_is_refused(fitted):
    X, y, _, models = fitted
    with pytest.raises(InputError, match="device"):
        axil.Explainer(models["plain"], X, y, device="tpu")


def test_without_a_gpu_cuda_is_refused_and_auto_is_the_cpu(fitted, monkeypatch):
    X, y, _, models = fitted
    monkeypatch.setattr(choose, "why_no_gpu", lambda: "CuPy is not installed")
    with pytest.raises(InputError, match=r"CuPy is not installed\. Install CuPy .*axil\[cuda12\]"):
        axil.Explainer(models["plain"], X, y, device="cuda")
    assert (
        verified_model(axil.Explainer(models["plain"], X, y, device="auto")).limits.device == "cpu"
    )


def test_auto_is_the_device_that_costs_less(fitted, monkeypatch):
    X, y, _, models = fitted
    looked = []
    monkeypatch.setattr(choose, "why_no_gpu", lambda: looked.append("for a GPU"))
    monkeypatch.delitem(
        sys.modules, "axil.kernels.cuda", raising=False
    )  # whose start is then paid for
    few, many = choose.limits_of(2, None, device="auto"), 1e9
    assert choose.settled(few, 600 * 40).device == "cpu"
    assert (
        verified_model(axil.Explainer(models["plain"], X, y, device="auto")).limits.device == "cpu"
    )
    assert not looked  # nor is CuPy loaded
    assert choose.settled(few, many).device == "cuda"
    assert choose.settled(choose.limits_of(64, None, device="auto"), many).device == "cpu"
    assert (
        choose.settled(choose.limits_of(64, None, device="cuda"), many).device == "cuda"
    )  # as the user said
    monkeypatch.setattr(choose, "why_no_gpu", lambda: "CuPy is not installed")
    assert choose.settled(few, many).device == "cpu"


def test_auto_on_a_gpu_has_its_budget_and_its_answers(fitted, monkeypatch, tmp_path):
    X, y, _, models = fitted
    expected = axil.Explainer(models["plain"], X, y)
    expected.save(tmp_path / "saved.npz")
    monkeypatch.setattr(choose, "why_no_gpu", lambda: None)
    monkeypatch.setattr(choose, "_gpu_pays", lambda n_visits, n_threads: True)
    monkeypatch.setattr(choose, "_free_everywhere", lambda: 1 << 30)
    for module in (build, walk, recover, exact_attribution):
        monkeypatch.setattr(module, "backend_of", lambda limits: Away(limits.n_threads))
    for explainer in (
        axil.Explainer(models["plain"], X, y, device="auto"),
        axil.load(tmp_path / "saved.npz", models["plain"], device="auto"),
    ):
        assert verified_model(explainer).limits.device == "cuda"
        assert verified_model(explainer).budget.batch_bytes == choose.GPU_BATCH
        assert verified_model(explainer).engines[0].backend.name == "away"
        np.testing.assert_allclose(explainer(X[:9]).weights, expected(X[:9]).weights, **CLOSE)


def test_a_broken_cupy_is_named(monkeypatch):
    class Broken:
        class cuda:
            class runtime:
                @staticmethod
                def getDeviceCount():
                    raise RuntimeError("driver too old")

    monkeypatch.setitem(sys.modules, "cupy", Broken)
    assert choose.why_no_gpu() == "CuPy finds no GPU (driver too old)"
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert choose.why_no_gpu() == "CuPy is not installed"


def test_importing_axil_loads_no_cupy():
    script = "import sys, axil; axil.Explainer; print('cupy' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


@pytest.mark.parametrize("device", ["away", "cuda"])
@pytest.mark.parametrize("name", NAMES)
def test_the_same_answers_from_a_device(fitted, name, device, monkeypatch):
    X, y, weight, models = fitted
    own = {"sample_weight": weight} if name == "weighted" else {}
    cpu = axil.Explainer(models[name], X, y, **own)
    if device == "away":  # arrays that are as far away as a GPU's
        monkeypatch.setattr(build, "backend_of", lambda limits: Away(limits.n_threads))
        monkeypatch.setattr(walk, "backend_of", lambda limits: Away(limits.n_threads))
        gpu = axil.Explainer(models[name], X, y, **own)
    else:
        need_gpu()
        gpu = axil.Explainer(models[name], X, y, **own, device="cuda")
    queries = X[:300] + 0.01
    for ready in (False, True):
        if ready:
            cpu.precompute(), gpu.precompute()
        np.testing.assert_allclose(gpu(queries).weights, cpu(queries).weights, **CLOSE)
        np.testing.assert_array_equal(gpu(queries).weights, gpu(queries).weights)  # the same bits
        top = [one.top(queries, k=5) for one in (gpu, cpu)]
        np.testing.assert_array_equal(top[0]["row"], top[1]["row"])
        np.testing.assert_allclose(top[0]["weight"], top[1]["weight"], **CLOSE)
    v = np.random.default_rng(1).normal(size=(len(y), 3))
    np.testing.assert_allclose(gpu.jacobian.operator @ v, cpu.jacobian.operator @ v, **CLOSE)
    np.testing.assert_allclose(gpu.jacobian.operator.T @ v, cpu.jacobian.operator.T @ v, **CLOSE)
    np.testing.assert_allclose(gpu.diagnostics.leverage(), cpu.diagnostics.leverage(), **CLOSE)
    np.testing.assert_allclose(
        gpu.jacobian.gradient_contributions(queries[:5]),
        cpu.jacobian.gradient_contributions(queries[:5]),
        **CLOSE,
    )
    if name != "l1":  # whose pattern these targets would change, and which has no removal
        changed = {row: y[row] + 1 for row in range(0, len(y), 7)}
        moved = [one.what_if(queries, changed)["after"] for one in (gpu, cpu)]
        np.testing.assert_allclose(moved[0], moved[1], **CLOSE)
        left_out = [one.diagnostics.leave_one_out()["prediction"] for one in (gpu, cpu)]
        np.testing.assert_allclose(left_out[0], left_out[1], rtol=1e-8, atol=1e-9)
        for method in ("exact", "first-order"):
            effects = [one.removal(queries[:3], method=method) for one in (gpu, cpu)]
            np.testing.assert_allclose(*effects, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("device", ["away", "cuda"])
def test_rows_on_a_device_have_answers_there(fitted, device):
    X, y, _, models = fitted
    if device == "cuda":
        need_gpu()
    there = away if device == "away" else pytest.importorskip("cupy")
    there = {"xp": there, "X": there.asarray(X), "y": there.asarray(y)}
    host = axil.Explainer(models["plain"], X, y)
    explainer = axil.Explainer(models["plain"], there["X"], there["y"])
    queries = there["X"][:5]
    expected, found = host(X[:5]), explainer(queries)
    for name in ("weights", "contributions", "predictions", "intercepts"):
        own = getattr(found, name)
        assert isinstance(own, there["xp"].ndarray)
        assert getattr(found[:2], name).shape[0] == 2
        np.testing.assert_array_equal(own.get(), getattr(expected, name))
    assert isinstance(next(explainer.iter(queries, 2)).weights, there["xp"].ndarray)
    assert isinstance(explainer(X[:5]).weights, np.ndarray)  # of rows of the host
    assert found.top(3).equals(expected.top(3))  # tables are the host's, as are all other answers
    assert explainer.top(queries, 3).equals(host.top(X[:5], 3))
    np.testing.assert_array_equal(
        explainer.jacobian.gradient_contributions(queries),
        host.jacobian.gradient_contributions(X[:5]),
    )


def test_pushes_on_rows_of_a_device_are_there():
    X, y = make_friedman1(200, random_state=0)
    model = HistGradientBoostingClassifier(max_iter=5).fit(X, y > y.mean())
    explainer = axil.Explainer(model, away.asarray(X), y > y.mean(), device="auto")
    assert isinstance(explainer(away.asarray(X[:3])).contributions, away.ndarray)
    assert isinstance(next(explainer.iter(away.asarray(X[:3]))).contributions, away.ndarray)


def test_arrays_on_a_gpu_that_have_no_way_back_are_refused_without_cupy(fitted, monkeypatch):
    class Foreign:
        __cuda_array_interface__ = None

    X, y, _, models = fitted
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(InputError, match=r"X is a Foreign on a GPU, .* Copy it to the host"):
        axil.Explainer(models["plain"], X, y)(Foreign())


def test_wrong_targets_are_caught_on_the_gpu(fitted):
    need_gpu()
    X, y, _, models = fitted
    with pytest.raises(axil.ExactnessError):
        axil.Explainer(models["plain"], X, y[::-1].copy(), device="cuda")


def test_files_are_read_for_either_device(fitted, tmp_path):
    need_gpu()
    X, y, _, models = fitted
    gpu = axil.Explainer(models["plain"], X, y, device="cuda")
    gpu.save(tmp_path / "saved.npz")
    for device in ("cpu", "cuda"):
        loaded = axil.load(tmp_path / "saved.npz", models["plain"], device=device)
        np.testing.assert_allclose(loaded(X[:9]).weights, gpu(X[:9]).weights, **CLOSE)


def test_an_exhausted_gpu_is_a_clear_error_and_the_explainer_stays_usable(fitted, monkeypatch):
    need_gpu()
    import cupy

    X, y, _, models = fitted
    gpu = axil.Explainer(models["plain"], X, y, device="cuda")
    right = gpu(X[:5]).weights
    pool, taken = cupy.get_default_memory_pool(), []
    pool.set_limit(size=pool.used_bytes() + (1 << 20))
    try:
        with pytest.raises(InputError, match="GPU's memory is exhausted"):
            taken.append(gpu(np.repeat(X, 40, axis=0)))
    finally:
        pool.set_limit(size=0)
    np.testing.assert_array_equal(gpu(X[:5]).weights, right)
