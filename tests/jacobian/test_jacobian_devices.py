"""device= of JacobianExplainer: the same answers from a device as from the cores, on a GPU where there is one."""

import more_models
import numpy as np
import pytest
import sampled_models
from away import Away
from boosting_models import BINARY, CASES, X_NEW, N, X, case_of
from devices import need_gpu
from sklearn.linear_model import LogisticRegression

import axil
from axil.errors import InputError
from axil.kernels import choose

# Sums of at most 120 numbers of size 1 in another order: far less than this apart.
CLOSE = {"rtol": 1e-9, "atol": 1e-12}
NAMES = [
    "lightgbm binary",
    "lightgbm multiclass",  # every output has trees of its own, scores are coupled
    "xgboost vector leaves",  # outputs share trees
    "catboost multiclass",  # leaves solve for all outputs together
    "catboost binary 4 steps",  # several terms of one place
    "lightgbm custom",  # gradients are recorded
    "lightgbm huber",  # no form that the kernel knows
    "lightgbm dart",
    "lightgbm goss multiclass",  # draws are factors
    "lightgbm bagging multiclass",  # draws are counts
]


def fitted(name):
    if name in CASES:
        return case_of(name)
    return more_models.MODELS[name]().fit() if name in more_models.MODELS else sampled_models.model_of(name)


def explainers(name, device, monkeypatch):
    """That of the cores and that of a device."""
    case = fitted(name)
    given = case.model, X, case.y, case.weights, case.offsets
    cpu = axil.JacobianExplainer(*given, n_threads=2)
    if device == "cuda":
        need_gpu()
    else:
        monkeypatch.setattr("axil.jacobian.factors.backend_of", lambda limits: Away(limits.n_threads))
    gpu = axil.JacobianExplainer(*given, n_threads=2, device=device if device == "cuda" else "cpu")
    assert gpu._model.backend.name == device
    return cpu, gpu


@pytest.mark.parametrize("device", ["away", "cuda"])
@pytest.mark.parametrize("name", NAMES)
def test_the_same_answers_from_a_device(name, device, monkeypatch):
    cpu, gpu = explainers(name, device, monkeypatch)
    assert gpu.verification["sum_error"] < 1e-9
    explained = [one(X_NEW) for one in (cpu, gpu)]
    np.testing.assert_allclose(explained[1].contributions, explained[0].contributions, **CLOSE)
    np.testing.assert_array_equal(gpu(X_NEW).contributions, explained[1].contributions)  # the same bits
    top = [one.top(X, k=4) for one in (cpu, gpu)]
    np.testing.assert_allclose(top[1]["contribution"], top[0]["contribution"], **CLOSE)
    np.testing.assert_allclose(top[1]["prediction"], top[0]["prediction"], **CLOSE)
    groups = np.arange(N) % 3
    sums = [one.group(X_NEW, groups)["contribution"] for one in (cpu, gpu)]
    np.testing.assert_allclose(sums[1], sums[0], **CLOSE)
    sets = [one.removal_set(X_NEW, 3) for one in (cpu, gpu)]
    np.testing.assert_allclose(sets[1]["push"], sets[0]["push"], **CLOSE)
    if cpu._model.meaning:
        audits = [one.audit().sort_values("row") for one in (cpu, gpu)]
        np.testing.assert_allclose(*(one.select_dtypes("number") for one in audits), **CLOSE)
    if cpu._model.underived:
        return
    np.testing.assert_allclose(explained[1].weights, explained[0].weights, **CLOSE)
    np.testing.assert_allclose(gpu.weight_derivatives(X_NEW), cpu.weight_derivatives(X_NEW), **CLOSE)
    output = None if cpu.outputs is None else cpu.outputs[0]
    crossed = [one.derivatives(X_NEW, output) for one in (cpu, gpu)]
    np.testing.assert_allclose(crossed[1], crossed[0], **CLOSE)
    if cpu._model.meaning:
        y = fitted(name).y[: len(X_NEW)]
        gains = [one.blame(X_NEW, y).sort_values("row").select_dtypes("number") for one in (cpu, gpu)]
        np.testing.assert_allclose(gains[1], gains[0], **CLOSE)


def test_blocks_of_a_device_follow_its_budget(monkeypatch):
    """A limit so small that rows are walked a few at a time changes nothing."""
    _, away = explainers("lightgbm multiclass", "away", monkeypatch)
    whole, spans = away.pushes(X), []
    monkeypatch.setattr("axil.jacobian.pushes.BLOCK_ENTRIES", 1)
    monkeypatch.setattr(away._model.pushes.limits.budget, "batch_bytes", 1)
    walk = type(away._model.pushes).factors
    monkeypatch.setattr(
        type(away._model.pushes), "factors", lambda self, rows: spans.append(rows.start) or walk(self, rows)
    )
    np.testing.assert_array_equal(away.pushes(X), whole)
    assert spans == [0, 64]


def test_files_and_entry_hand_the_device_on(tmp_path, monkeypatch):
    case = fitted("lightgbm binary")
    axil.explain(case.model, X, case.y).save(tmp_path / "saved.npz")
    monkeypatch.setattr(choose, "why_no_gpu", lambda: "CuPy is not installed")
    for call in (
        lambda device: axil.explain(case.model, X, case.y, device=device),
        lambda device: axil.JacobianExplainer(case.model, X, case.y, device=device),
        lambda device: axil.load(tmp_path / "saved.npz", case.model, device=device),
    ):
        with pytest.raises(InputError, match="CuPy is not installed"):
            call("cuda")
        assert call("auto")._model.pushes.limits.device == "cpu"
    monkeypatch.setattr(choose, "why_no_gpu", lambda: None)
    monkeypatch.setattr("axil.replay.recover.backend_of", lambda limits: Away(limits.n_threads))
    monkeypatch.setattr("axil.jacobian.factors.backend_of", lambda limits: Away(limits.n_threads))
    monkeypatch.setattr(choose, "_free_everywhere", lambda: 1 << 30)
    expected = axil.JacobianExplainer(case.model, X, case.y).pushes(X_NEW)
    for explainer in (
        axil.explain(case.model, X, case.y, device="cuda"),
        axil.load(tmp_path / "saved.npz", case.model, device="cuda"),
    ):
        assert explainer._model.pushes.limits.device == "cuda"
        np.testing.assert_allclose(explainer.pushes(X_NEW), expected, **CLOSE)


def test_models_that_are_no_trees_are_worked_out_on_the_cores(monkeypatch):
    """As smoothers and forests of Explainer are."""
    monkeypatch.setattr(choose, "why_no_gpu", lambda: None)
    monkeypatch.setattr(choose, "_free_everywhere", lambda: 1 << 30)
    model = LogisticRegression(tol=1e-10).fit(X, BINARY)
    expected = axil.JacobianExplainer(model, X, BINARY)(X_NEW).weights
    np.testing.assert_array_equal(axil.JacobianExplainer(model, X, BINARY, device="cuda")(X_NEW).weights, expected)


def test_an_exhausted_gpu_is_a_clear_error_and_the_explainer_stays_usable(monkeypatch):
    need_gpu()
    import cupy

    _, gpu = explainers("lightgbm multiclass", "cuda", monkeypatch)
    right = gpu.pushes(X_NEW)
    pool = cupy.get_default_memory_pool()
    pool.free_all_blocks()
    pool.set_limit(size=pool.used_bytes() + (1 << 18))
    try:
        for ask in (gpu.pushes, gpu.top, gpu.weight_derivatives):
            with pytest.raises(InputError, match="GPU's memory is exhausted"):
                ask(np.repeat(X, 20, axis=0))
    finally:
        pool.set_limit(size=0)
    np.testing.assert_array_equal(gpu.pushes(X_NEW), right)
