"""device= of additive explainers: the same answers from a device as from the cores, on a GPU where there is one."""

import gc
from functools import cache

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import axil
from axil.errors import InputError
from axil.kernels import choose
from axil.methods.method import verified_model
from tests.away import Away
from tests.devices import need_gpu
from tests.fits import explainer_of_fit

# Sums of at most 200 numbers of size 1 in another order: far less than this apart.
CLOSE = {"rtol": 1e-9, "atol": 1e-12}

RNG = np.random.default_rng(7)
N = 200
X, X_NEW = RNG.normal(size=(N, 4)), RNG.normal(size=(3, 4))
SCORE = X[:, 0] + 0.5 * X[:, 1] ** 2 - 0.5
WEIGHTS = RNG.uniform(0.5, 2.0, N)
BINARY = (SCORE + RNG.logistic(size=N) > 0).astype(int)
CLASSES = np.digitize(SCORE + RNG.normal(0, 0.5, N), [-0.5, 0.6])
DART = {"boosting_type": "dart", "drop_rate": 0.4, "skip_drop": 0.2}
GOSS = {"data_sample_strategy": "goss", "learning_rate": 0.6}
BAGGED = {"subsample": 0.6, "subsample_freq": 2}


def logistic(y, F):
    p = 1 / (1 + np.exp(-F))
    return p - y, p * (1 - p)


def lightgbm(y, weights=None, kind="LGBMClassifier", **settings):
    library = pytest.importorskip("lightgbm")
    common = {
        "n_estimators": 6,
        "num_leaves": 5,
        "min_child_samples": 5,
        "learning_rate": 0.25,
        "verbose": -1,
        "n_jobs": 1,
    }
    model = getattr(library, kind)(**{**common, **settings})
    return model.fit(X, y, sample_weight=weights), y, weights


def xgboost(y, **settings):
    model = pytest.importorskip("xgboost").XGBClassifier(
        n_estimators=6, max_depth=3, n_jobs=1, **settings
    )
    return model.fit(X, y), y, None


def catboost(y, **settings):
    library = pytest.importorskip("catboost")
    model = library.CatBoostClassifier(
        iterations=6, depth=3, verbose=0, thread_count=1, allow_writing_files=False, **settings
    )
    return model.fit(X, y, sample_weight=WEIGHTS), y, WEIGHTS


MODELS = {
    "binary": lambda: lightgbm(BINARY),
    "shared trees": lambda: xgboost(CLASSES, multi_strategy="multi_output_tree"),
    "joint leaves": lambda: catboost(CLASSES),  # they solve for all outputs together
    "steps": lambda: catboost(BINARY, leaf_estimation_iterations=4),  # several terms of one place
    "own objective": lambda: lightgbm(BINARY, objective=logistic),  # gradients are recorded
    "fair": lambda: lightgbm(
        SCORE, kind="LGBMRegressor", objective="fair"
    ),  # no form that the kernel knows
    "poisson": lambda: lightgbm(
        1 + np.digitize(SCORE, [0, 1]), WEIGHTS, "LGBMRegressor", objective="poisson"
    ),
    "dart": lambda: lightgbm(BINARY, WEIGHTS, **DART),
    "goss": lambda: lightgbm(CLASSES, **GOSS),  # draws are factors
    "bagged": lambda: lightgbm(
        CLASSES, WEIGHTS, **BAGGED
    ),  # counts; every output has trees of its own, scores are coupled
}


@cache
def fitted(name):
    """A model, its targets and weights."""
    return MODELS[name]()


def explainers(name, device, monkeypatch):
    """That of the cores and that of a device."""
    if device == "cuda":
        need_gpu()
    else:
        monkeypatch.setattr(
            "axil.contributions.factors.backend_of", lambda limits: Away(limits.n_threads)
        )
    model, y, weights = fitted(name)
    given = model, X, y, weights
    gpu = explainer_of_fit(*given, n_threads=2, device=device if device == "cuda" else "cpu")
    assert verified_model(gpu).boosting.backend.name == device
    monkeypatch.undo()
    cpu = explainer_of_fit(*given, n_threads=2)
    return cpu, gpu


@pytest.mark.parametrize("device", ["away", "cuda"])
@pytest.mark.parametrize("name", MODELS)
def test_the_same_answers_from_a_device(name, device, monkeypatch):
    cpu, gpu = explainers(name, device, monkeypatch)
    assert gpu.verification.details["sum_error"] < 1e-9
    explained = [one(X_NEW) for one in (cpu, gpu)]
    np.testing.assert_allclose(explained[1].contributions, explained[0].contributions, **CLOSE)
    np.testing.assert_array_equal(
        gpu(X_NEW).contributions, explained[1].contributions
    )  # the same bits
    top = [one.top(X, k=4) for one in (cpu, gpu)]
    np.testing.assert_allclose(top[1]["contribution"], top[0]["contribution"], **CLOSE)
    np.testing.assert_allclose(top[1]["prediction"], top[0]["prediction"], **CLOSE)
    groups = np.arange(N) % 3
    sums = [one.group(X_NEW, groups)["contribution"] for one in (cpu, gpu)]
    np.testing.assert_allclose(sums[1], sums[0], **CLOSE)
    sets = [one.removal(X_NEW, 3, by="contribution", same_sign=True) for one in (cpu, gpu)]
    np.testing.assert_allclose(sets[1]["contribution"], sets[0]["contribution"], **CLOSE)
    if verified_model(cpu).boosting.loss.meaning:
        tables = [one.find_label_issues().sort_values("row") for one in (cpu, gpu)]
        np.testing.assert_allclose(*(one.select_dtypes("number") for one in tables), **CLOSE)
    if verified_model(cpu).boosting.underived:
        return
    np.testing.assert_allclose(explained[1].weights, explained[0].weights, **CLOSE)
    np.testing.assert_allclose(
        gpu.jacobian.by_sample_weight(X_NEW), cpu.jacobian.by_sample_weight(X_NEW), **CLOSE
    )
    output = None if cpu.outputs is None else cpu.outputs[0]
    crossed = [one.jacobian.derivatives(X_NEW, output) for one in (cpu, gpu)]
    np.testing.assert_allclose(crossed[1], crossed[0], **CLOSE)
    if verified_model(cpu).boosting.loss.meaning:
        y = fitted(name)[1][: len(X_NEW)]
        gains = [
            one.influence(X_NEW, y).sort_values("row").select_dtypes("number") for one in (cpu, gpu)
        ]
        np.testing.assert_allclose(gains[1], gains[0], **CLOSE)


def test_blocks_of_a_device_follow_its_budget(monkeypatch):
    """A limit so small that rows are walked a few at a time changes nothing."""
    _, away = explainers("bagged", "away", monkeypatch)
    whole, spans = away.jacobian.gradient_contributions(X), []
    monkeypatch.setattr("axil.contributions.contributions.BLOCK_ENTRIES", 1)
    monkeypatch.setattr(verified_model(away).boosting.contributions.limits.budget, "batch_bytes", 1)
    walk = type(verified_model(away).boosting.contributions).factors
    monkeypatch.setattr(
        type(verified_model(away).boosting.contributions),
        "factors",
        lambda self, rows: spans.append(rows.start) or walk(self, rows),
    )
    np.testing.assert_array_equal(away.jacobian.gradient_contributions(X), whole)
    assert spans == [0, 64, 128, 192] * (len(spans) // 4)  # of every batch of rows to explain


def test_files_and_explainers_hand_the_device_on(tmp_path, monkeypatch):
    model, y, _ = fitted("binary")
    axil.Explainer(model, X, y).save(tmp_path / "saved.npz")
    monkeypatch.setattr(choose, "why_no_gpu", lambda: "CuPy is not installed")
    for call in (
        lambda device: axil.Explainer(model, X, y, device=device),
        lambda device: axil.load(tmp_path / "saved.npz", model, device=device),
    ):
        with pytest.raises(InputError, match="CuPy is not installed"):
            call("cuda")
        assert verified_model(call("auto")).boosting.contributions.limits.device == "cpu"
    monkeypatch.setattr(choose, "why_no_gpu", lambda: None)
    monkeypatch.setattr("axil.replay.recover.backend_of", lambda limits: Away(limits.n_threads))
    monkeypatch.setattr(
        "axil.contributions.factors.backend_of", lambda limits: Away(limits.n_threads)
    )
    monkeypatch.setattr(choose, "_free_everywhere", lambda: 1 << 30)
    expected = axil.Explainer(model, X, y).jacobian.gradient_contributions(X_NEW)
    monkeypatch.setattr(choose, "_gpu_pays", lambda n_visits, n_threads: True)
    for explainer in (
        axil.Explainer(model, X, y, device="cuda"),
        axil.Explainer(model, X, y, device="auto"),
        axil.load(tmp_path / "saved.npz", model, device="cuda"),
        axil.load(tmp_path / "saved.npz", model, device="auto"),
    ):
        assert (
            verified_model(explainer).boosting.contributions.limits.device
            == verified_model(explainer).limits.device
            == "cuda"
        )
        np.testing.assert_allclose(
            explainer.jacobian.gradient_contributions(X_NEW), expected, **CLOSE
        )


def test_models_that_are_no_trees_are_worked_out_on_the_cores(monkeypatch):
    """As smoothers and forests of Explainer are."""
    monkeypatch.setattr(choose, "why_no_gpu", lambda: None)
    monkeypatch.setattr(choose, "_free_everywhere", lambda: 1 << 30)
    model = LogisticRegression(tol=1e-10).fit(X, BINARY)
    expected = axil.Explainer(model, X, BINARY)(X_NEW).weights
    np.testing.assert_array_equal(
        axil.Explainer(model, X, BINARY, device="cuda")(X_NEW).weights, expected
    )


def test_an_exhausted_gpu_is_a_clear_error_and_the_explainer_stays_usable(monkeypatch):
    need_gpu()
    import cupy

    _, gpu = explainers("bagged", "cuda", monkeypatch)
    right = gpu.jacobian.gradient_contributions(X_NEW)
    pool = cupy.get_default_memory_pool()
    gc.collect()  # garbage of other tests would make room during this one
    pool.free_all_blocks()
    pool.set_limit(size=pool.used_bytes() + (1 << 12))
    try:
        for ask in (gpu.jacobian.gradient_contributions, gpu.top, gpu.jacobian.by_sample_weight):
            with pytest.raises(InputError, match="GPU's memory is exhausted"):
                ask(np.repeat(X, 20, axis=0))
    finally:
        pool.set_limit(size=0)
    np.testing.assert_array_equal(gpu.jacobian.gradient_contributions(X_NEW), right)
