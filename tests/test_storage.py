"""Saving without pickle, and what happens to damaged files."""

import json
import zipfile

import numpy as np
import pandas as pd
import pytest
from lightgbm_models import CASES

import axil
from axil import InputError, storage


@pytest.fixture(scope="module")
def case():
    return CASES["regressor"]()


@pytest.fixture(scope="module")
def explainer(case):
    return axil.Explainer(case.model, case.X, case.y)


@pytest.mark.parametrize("name", ["regressor", "weighted", "scored", "path_smooth=2"])
def test_a_loaded_explainer_gives_the_same_weights(name, tmp_path):
    case = CASES[name]()
    before = axil.Explainer(case.model, case.X, case.y, case.sample_weight, case.init_score)
    before.save(tmp_path / "saved")
    after = axil.load(tmp_path / "saved", case.model)
    np.testing.assert_array_equal(after(case.X_new).weights, before(case.X_new).weights)
    np.testing.assert_array_equal(after(case.X_new).intercepts, before(case.X_new).intercepts)
    assert after.verification == before.verification
    pd.testing.assert_frame_equal(after.top(case.X_new), before.top(case.X_new))


@pytest.mark.parametrize(
    "index",
    [
        list("abcdef"),
        pd.date_range("2020-01-01", periods=6),
        [1.5, 2, 3, 4, 5, 6],
    ],
)
def test_labels_survive(index, tmp_path, explainer, case):
    labels = pd.Index(np.resize(np.array(index, dtype=object), len(case.y))).infer_objects()
    X = pd.DataFrame(np.asarray(case.X), index=labels)
    X.columns = explainer._adapter.feature_names or X.columns
    axil.Explainer(case.model, X, case.y).save(tmp_path / "e")
    assert list(axil.load(tmp_path / "e", case.model).index) == list(labels.to_numpy())


def test_labels_that_need_pickle_are_refused_and_nothing_is_written(tmp_path, explainer):
    labels = np.empty(2, dtype=object)
    labels[:] = [("a", 1), ("b", 2)]
    with pytest.raises(InputError, match="labels are of type tuple"):
        storage.plain_labels(labels)
    with pytest.raises(InputError, match="labels are of type int"):
        storage.plain_labels(np.array(["a", 1], dtype=object))
    assert list(tmp_path.iterdir()) == []


def test_another_model_is_refused(tmp_path, explainer):
    explainer.save(tmp_path / "e")
    with pytest.raises(InputError, match="another model"):
        axil.load(tmp_path / "e", CASES["weighted"]().model)


def test_no_file(tmp_path, case):
    with pytest.raises(InputError, match="There is no file"):
        axil.load(tmp_path / "nothing", case.model)


def test_foreign_files_are_refused(tmp_path, case):
    (tmp_path / "text").write_text("weights,1,2,3")
    np.savez(tmp_path / "other.npz", a=np.arange(3))
    np.save(tmp_path / "single.npy", np.arange(3))
    (tmp_path / "empty").write_bytes(b"")
    np.savez(tmp_path / "pickled.npz", header=np.array([{}], dtype=object))
    for name in ("text", "other.npz", "single.npy", "empty", "pickled.npz"):
        with pytest.raises(InputError, match="not a complete axil explainer"):
            axil.load(tmp_path / name, case.model)


def test_damaged_files_are_refused(tmp_path, explainer, case):
    explainer.save(tmp_path / "whole")
    data = (tmp_path / "whole").read_bytes()
    rng = np.random.default_rng(0)
    (tmp_path / "cut").write_bytes(data[: len(data) // 2])
    with pytest.raises(InputError, match="not a complete axil explainer"):
        axil.load(tmp_path / "cut", case.model)
    for _ in range(20):
        flipped = bytearray(data)
        flipped[rng.integers(len(data) // 10, len(data) * 9 // 10)] ^= 0xFF
        (tmp_path / "flipped").write_bytes(flipped)
        try:
            found = axil.load(tmp_path / "flipped", case.model)
        except InputError:
            continue
        np.testing.assert_array_equal(found(case.X_new).weights, explainer(case.X_new).weights)


def test_missing_or_ill_fitting_parts_are_refused(tmp_path, explainer, case):
    explainer.save(tmp_path / "whole")
    with np.load(tmp_path / "whole") as file:
        arrays = dict(file)
    for name in arrays.keys() - {"0.draws"}:  # without it every row was drawn once
        np.savez(tmp_path / "part.npz", **{key: value for key, value in arrays.items() if key != name})
        with pytest.raises(InputError, match="not a complete axil explainer"):
            axil.load(tmp_path / "part.npz", case.model)
    for name in ("0.cells", "0.n_leaves", "0.leaf_scale", "0.rates", "targets", "index", "0.leaf_weights"):
        np.savez(tmp_path / "part.npz", **{**arrays, name: arrays[name][:-1]})
        with pytest.raises(InputError, match="not a complete axil explainer"):
            axil.load(tmp_path / "part.npz", case.model)


def test_a_newer_format_says_so(tmp_path, explainer, case):
    explainer.save(tmp_path / "whole")
    with np.load(tmp_path / "whole") as file:
        arrays = dict(file)
    header = json.loads(arrays["header"].tobytes())
    header["version"] = 99
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    np.savez(tmp_path / "newer.npz", **arrays)
    with pytest.raises(InputError, match="version 99"):
        axil.load(tmp_path / "newer.npz", case.model)


def test_the_file_is_a_plain_npz(tmp_path, explainer):
    explainer.save(tmp_path / "e.npz")
    assert zipfile.is_zipfile(tmp_path / "e.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["e.npz"]
    with np.load(tmp_path / "e.npz", allow_pickle=False) as file:
        assert all(array.dtype != object for array in file.values())


def test_a_failed_save_keeps_the_old_file(tmp_path, explainer, monkeypatch):
    explainer.save(tmp_path / "e")
    old = (tmp_path / "e").read_bytes()
    monkeypatch.setattr(np, "savez", lambda *_, **__: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        explainer.save(tmp_path / "e")
    assert (tmp_path / "e").read_bytes() == old
    assert [path.name for path in tmp_path.iterdir()] == ["e"]
