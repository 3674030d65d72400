"""Models trained on an NVIDIA H200 with XGBoost 3.2 and 3.4 ("philox"), CatBoost 1.2.10 and LightGBM 4.7: gpu_models.zip.

The first trees of each.
LightGBM's are of both learners for GPUs. The name of a model says what it was fitted with, and on how many rows.
"""

from __future__ import annotations

import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from axil import Explainer
from axil.errors import ExactnessError, UnsupportedModelError
from axil.methods.method import verified_model

MODELS = Path(__file__).with_name("gpu_models.zip")
REFUSED = {
    "catboost/steps3-400.cbm": "leaf_estimation_backtracking=AnyImprovement of 3 steps on a GPU",
    "lightgbm-cuda/bin1000-4000.txt": "max_bin=1000 with device_type=cuda",
    "lightgbm-cuda/quant_renew-400.txt": "use_quantized_grad=True with device_type=cuda",
}
PUSHED = ["lightgbm-cuda/binary_weights-400.txt", "lightgbm-opencl/multiclass-400.txt"]
READ = sorted(set(zipfile.ZipFile(MODELS).namelist()) - set(REFUSED) - set(PUSHED))


@cache
def table(n: int) -> tuple[Any, Any, Any]:
    """The rows, targets and weights that all were fitted on."""
    rng = np.random.default_rng({400: 0, 4000: 1}[n])
    X = rng.normal(size=(n, 8)).astype(np.float32)
    X[:, 5], X[:, 6] = rng.integers(0, 12, n), rng.integers(0, 3, n)
    noise = rng.normal(size=n)
    y = (
        2 * X[:, 0]
        + np.sin(3 * X[:, 1]) * X[:, 2]
        + 0.3 * (X[:, 5] % 4)
        + 0.5 * (X[:, 6] == 1)
        + 0.3 * noise
    )
    rng.random(X.shape)
    return X, y, rng.uniform(0.2, 3, n)


def fitted(name: str, tmp_path: Path) -> tuple[Any, Any, Any, Any]:
    """A model with its rows, targets and weights."""
    library, _, case = name.partition("/")
    setting, _, size = case.partition(".")[0].rpartition("-")
    X, y, w = table(int(size))
    path = tmp_path / case
    path.write_bytes(zipfile.ZipFile(MODELS).read(name))
    model: Any
    if library == "xgboost":
        xgboost = pytest.importorskip("xgboost")
        if xgboost.__version__.startswith("2."):
            pytest.skip("XGBoost 2 does not read base_score of XGBoost 3, and predicts from 0.5")
        model = xgboost.Booster(model_file=path)
        if setting.startswith("sub"):  # which a file does not keep
            model.set_param({"subsample": 0.7, "seed": 3})
    elif library == "catboost":
        model = pytest.importorskip("catboost").CatBoost()
        model.load_model(str(path))
    else:
        lightgbm = pytest.importorskip("lightgbm")
        if lightgbm.__version__.startswith("4.1."):
            pytest.skip("LightGBM 4.1 does not read settings of LightGBM 4.7")
        model = lightgbm.Booster(model_file=path)
    y = {
        "offset": y + 1e4,
        "binary_weights": (y > 0.5).astype(int),
        "multiclass": np.digitize(y, [0, 1.5]),
    }.get(setting, y)
    return model, X, y, w if "weights" in setting else None


@pytest.mark.parametrize("name", READ)
def test_is_read_exactly(name: str, tmp_path: Path) -> None:
    model, X, y, w = fitted(name, tmp_path)
    explainer = Explainer(model, X, y, sample_weight=w)
    explanation = explainer(X[:20])
    own = verified_model(explainer).adapter.predictions(X[:20])[:, 0]
    # Leaf values of float32, so up to 6e-8 of the largest prediction each, of up to 21 trees.
    np.testing.assert_allclose(
        explanation.weights @ y + explanation.intercepts, own, rtol=0, atol=2e-6 * np.abs(own).max()
    )


@pytest.mark.parametrize("name", READ)
def test_one_other_target_is_noticed(name: str, tmp_path: Path) -> None:
    """What single precision excuses is far less than one target that is off by 1 % of the largest."""
    model, X, y, w = fitted(name, tmp_path)
    y = y.copy()
    y[11 if "sub" not in name and "bag" not in name else slice(11, 20)] += (
        0.01 * np.abs(y - y.mean()).max()
    )
    with pytest.raises(ExactnessError):
        Explainer(model, X, y, sample_weight=w)


@pytest.mark.parametrize("name", PUSHED)
def test_pushes_of_classifiers_add_up(name: str, tmp_path: Path) -> None:
    model, X, y, w = fitted(name, tmp_path)
    explainer = Explainer(model, X, y, sample_weight=w)
    found, own = explainer(X[:20]), model.predict(X[:20], raw_score=True)
    sums = found.intercepts + found.contributions.sum(axis=-1)
    # Leaves add up in float32 in the fit, and the pushes to the model's own leaves.
    np.testing.assert_allclose(sums, own, rtol=0, atol=1e-6 * np.abs(own).max())
    y = y.copy()
    y[11] = (y[11] + 1) % (y.max() + 1)
    with pytest.raises(ExactnessError):
        Explainer(model, X, y, sample_weight=w)


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_is_refused_by_name(name: str, tmp_path: Path) -> None:
    model, X, y, w = fitted(name, tmp_path)
    with pytest.raises(UnsupportedModelError, match=REFUSED[name]):
        Explainer(model, X, y, sample_weight=w)


def test_other_draws_than_those_of_a_known_stream_are_refused(
    tmp_path: Path, monkeypatch: Any
) -> None:
    from axil.adapters.xgboost.document import XGBoostSettings

    model, X, y, _ = fitted("xgboost/sub-400.ubj", tmp_path)
    model.set_param({"seed": 4})
    with pytest.raises(
        ExactnessError, match="XGBoost subsample"
    ):  # on a machine without a GPU it says nothing of one
        Explainer(model, X, y)
    monkeypatch.setattr(XGBoostSettings, "device", "cuda:0")
    with pytest.raises(UnsupportedModelError, match=r"subsample=0\.7 with device=cuda:0"):
        Explainer(model, X, y)
