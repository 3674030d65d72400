"""Weights written to disk in batches, read back with the formats' own libraries."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import xgboost as xgb
import zarr
from lightgbm import LGBMRegressor
from sklearn.ensemble import RandomForestClassifier

import axil
from axil.errors import InputError
from axil.methods.method import verified_model
from tests.methods.method_models import NEW
from tests.methods.method_models import X as ROWS

CLOSE = {"rtol": 0, "atol": 1e-13}  # batches of other sizes add in another order


def data(n=150, outputs=1):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        rng.normal(size=(n, 4)), columns=list("abcd"), index=[f"row {i}" for i in range(n)]
    )
    y = X.to_numpy()[:, :outputs] + rng.normal(size=(n, outputs))
    return X, y[:, 0] if outputs == 1 else y


def explainers():
    X, y = data()
    yield (
        "one output",
        axil.Explainer(LGBMRegressor(n_estimators=10, verbose=-1, n_jobs=1).fit(X, y), X, y),
    )
    X, y = data(outputs=2)
    yield (
        "trees for each output",
        axil.Explainer(xgb.XGBRegressor(n_estimators=5, n_jobs=1, base_score=0.5).fit(X, y), X, y),
    )
    X, y = data()
    labels = np.where(y > 0, "up", "down")
    yield (
        "classes",
        axil.Explainer(RandomForestClassifier(5, random_state=0).fit(X, labels), X, labels),
    )


EXPLAINERS = dict(explainers())


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr("axil.machine.memory.MOST_QUERIES", 4)


@pytest.mark.parametrize("name", EXPLAINERS)
def test_parquet(name, tmp_path):
    explainer, X = EXPLAINERS[name], data()[0].head(11)
    explanation = explainer(X)
    explainer.write(X, tmp_path / "weights.parquet")
    assert pq.ParquetFile(tmp_path / "weights.parquet").num_row_groups == 3
    table = pq.read_table(tmp_path / "weights.parquet").to_pandas()
    n_outputs = 1 if explainer.outputs is None else len(explainer.outputs)
    assert list(table["query"]) == list(np.repeat(X.index, n_outputs))
    if explainer.outputs is not None:
        assert list(table["output"]) == list(np.tile(explainer.outputs, 11))
    np.testing.assert_allclose(table["score"], explanation.predictions.ravel(), **CLOSE)
    np.testing.assert_allclose(table["intercept"], explanation.intercepts.ravel(), **CLOSE)
    weights = explanation.weights
    expected = (
        weights.reshape(-1, 150) if weights.ndim == 3 else np.repeat(weights, n_outputs, axis=0)
    )
    np.testing.assert_allclose(np.stack(table["weights"]), expected, **CLOSE)


@pytest.mark.parametrize("name", EXPLAINERS)
def test_zarr(name, tmp_path):
    explainer, X = EXPLAINERS[name], data()[0].head(11)
    explanation = explainer(X)
    for _ in range(2):  # what is there is replaced
        explainer.write(X, tmp_path / "weights.zarr")
        group = zarr.open_group(str(tmp_path / "weights.zarr"), mode="r")
        for part in ("weights", "predictions", "intercepts"):
            np.testing.assert_allclose(group[part][...], getattr(explanation, part), **CLOSE)
        assert list(group["query_index"][...]) == list(X.index)
        assert list(group["index"][...]) == list(explainer.index)
    assert [path.name for path in tmp_path.iterdir()] == ["weights.zarr"]


def test_bad_paths_and_a_failure_on_the_way_leave_nothing_behind(tmp_path, monkeypatch):
    explainer, X = EXPLAINERS["one output"], data()[0]
    with pytest.raises(InputError, match=r"ends in '\.csv'; expected .* \.parquet or \.zarr"):
        explainer.write(X, tmp_path / "weights.csv")
    with pytest.raises(InputError, match="no directory"):
        explainer.write(X, tmp_path / "nowhere" / "weights.zarr")
    with pytest.raises(InputError, match="nothing to write"):
        explainer.write(X.head(0), tmp_path / "weights.zarr")
    (tmp_path / "weights.parquet").write_text("before")
    predictions = type(verified_model(explainer).adapter).predictions
    monkeypatch.setattr(
        type(verified_model(explainer).adapter),
        "predictions",
        lambda self, X: predictions(self, X) + (X.index[0] != "row 0"),
    )
    for path in ("weights.parquet", "weights.zarr"):
        with pytest.raises(axil.ExactnessError):
            explainer.write(X, tmp_path / path)
    assert [path.name for path in tmp_path.iterdir()] == ["weights.parquet"]
    assert (tmp_path / "weights.parquet").read_text() == "before"


LABELS = {
    "periods": lambda n: pd.period_range("2020-01", periods=n, freq="M"),
    "intervals": lambda n: pd.interval_range(0, n),
    "tuples": lambda n: pd.MultiIndex.from_arrays([np.arange(n), ["a"] * n]),
    "mixed": lambda n: pd.Index([i if i % 2 else f"row {i}" for i in range(n)], dtype=object),
    "huge numbers": lambda n: pd.Index([10**30 + i for i in range(n)], dtype=object),
    "moments of a time zone": lambda n: pd.date_range("2020-01-01", periods=n, tz="Europe/Oslo"),
    "durations": lambda n: pd.timedelta_range("1h", periods=n),
    "truth": lambda n: pd.Index([True, False] * (n // 2)),
}


@pytest.mark.parametrize("suffix", [".parquet", ".zarr"])
@pytest.mark.parametrize("name", LABELS)
def test_odd_labels_are_written_as_text(name, suffix, tmp_path):
    X, y = data()
    X = X.set_axis(LABELS[name](len(X)))
    explainer = axil.Explainer(LGBMRegressor(n_estimators=2, verbose=-1, n_jobs=1).fit(X, y), X, y)
    path = tmp_path / f"weights{suffix}"
    explainer.write(X.head(6), path)
    found = (
        pq.read_table(path)["query"].to_pylist()
        if suffix == ".parquet"
        else zarr.open_group(str(path))["query_index"]
    )
    assert [str(label) for label in found[:]] == [
        str(label) for label in X.index.to_numpy()[:6].tolist()
    ]


@pytest.mark.parametrize(
    ("labels", "parts"),
    [
        (["a", "\ud800"], "half of a character"),
        (["a", "b\0"], "ends in a character of code 0"),
        ([1, "1"], "same as text"),
    ],
)
@pytest.mark.parametrize("suffix", [".parquet", ".zarr"])
def test_labels_that_no_file_keeps_are_refused(labels, parts, suffix, tmp_path):
    explainer, X = EXPLAINERS["one output"], data()[0].head(2)
    with pytest.raises(InputError, match=parts):
        explainer.write(X.set_axis(pd.Index(labels, dtype=object)), tmp_path / f"weights{suffix}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", [5, None, "a\0.zarr", "a" * 300 + ".parquet"])
def test_paths_of_no_file_are_refused(path):
    explainer, X = EXPLAINERS["one output"], data()[0].head(2)
    for write in (
        explainer.write,
        lambda X, path: explainer.save(path),
        explainer.to_html if path else explainer.write,
    ):
        with pytest.raises(InputError, match="path is"):
            write(X, path)
    with pytest.raises(InputError, match="path is"):
        axil.load(path, verified_model(explainer).adapter)


def test_a_directory_is_no_parquet_file(tmp_path):
    (tmp_path / "kept.parquet").mkdir()
    with pytest.raises(InputError, match="a directory"):
        EXPLAINERS["one output"].write(data()[0].head(2), tmp_path / "kept.parquet")
    assert (tmp_path / "kept.parquet").is_dir()


def test_files_of_every_kind_and_place(any_explainer, tmp_path):
    whole = any_explainer(NEW)
    any_explainer.write(NEW, tmp_path / "w.parquet")
    table = pd.read_parquet(tmp_path / "w.parquet")
    n_outputs = 1 if whole.outputs is None else len(whole.outputs)
    name = "contributions" if whole.kind == "additive" else "weights"
    weights, wanted = (
        np.stack(table[name].to_list()),
        getattr(whole, name).reshape(len(NEW) * n_outputs, -1),
    )
    np.testing.assert_allclose(weights, wanted, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(table["score"], whole.predictions.ravel(), rtol=1e-9)
    assert list(table["query"]) == list(np.repeat(NEW.index, n_outputs))
    any_explainer.write(NEW, tmp_path / "w.zarr")
    stored = zarr.open_group(str(tmp_path / "w.zarr"), mode="r")
    np.testing.assert_allclose(stored[name][...], getattr(whole, name), rtol=1e-9, atol=1e-12)
    assert list(stored["index"][...]) == list(ROWS.index)
    with pytest.raises(InputError, match="no rows"):
        any_explainer.write(NEW.head(0), tmp_path / "none.zarr")
