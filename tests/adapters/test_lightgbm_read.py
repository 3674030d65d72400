"""The LightGBM adapter against LightGBM: from what it reads, a replay in plain NumPy arrives at the model's leaves."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from scipy import sparse

from axil import Explainer
from axil.adapters import read
from axil.errors import ExactnessError, InputError
from tests.adapters.lightgbm_models import (
    CASES,
    VERSION,
    Case,
    booster,
    read_trees,
    regressor,
    replay,
    table,
    with_targets,
)
from tests.subsets import mostly_slow

Array = NDArray[np.float64]


@pytest.mark.parametrize("name", mostly_slow(2, CASES))
def test_replay_meets_every_leaf(name: str) -> None:
    case = CASES[name]()
    adapter = read(case.model)
    trees = read_trees(case, adapter)
    counts, weights, values, score = replay(case, trees, adapter.leaves(case.X))
    predictions = case.model.predict(case.X)
    scale = np.abs(predictions).max() or 1.0
    offsets = 0 if case.init_score is None else case.init_score
    np.testing.assert_array_equal(counts, trees.table.leaf_counts)
    if trees.table.leaf_weights is not None:  # sums in float64, in another order
        np.testing.assert_allclose(
            weights, trees.table.leaf_weights, rtol=0, atol=1e-14 * weights.sum()
        )
    np.testing.assert_allclose(
        values, trees.table.leaf_values[:, 0], rtol=0, atol=adapter.leaf_tolerance * scale
    )
    np.testing.assert_allclose(score - offsets, predictions, rtol=0, atol=1e-14 * scale)
    np.testing.assert_array_equal(adapter.predictions(case.X), predictions[:, None])


@pytest.mark.parametrize("name", mostly_slow(2, CASES, share=1))
def test_leaf_values_add_up_to_new_predictions(name: str) -> None:
    case = CASES[name]()
    adapter = read(case.model)
    trees = read_trees(case, adapter)
    starts = np.cumsum(trees.table.n_leaves) - trees.table.n_leaves
    beta = 1.0 if trees.schedule.coefficients is None else trees.schedule.coefficients.beta[-1]
    summed = beta * trees.initial.values + trees.table.leaf_values[
        starts + adapter.leaves(case.X_new), 0
    ].sum(axis=1)
    predictions = case.model.predict(case.X_new)
    np.testing.assert_allclose(
        summed, predictions, rtol=0, atol=1e-14 * (np.abs(predictions).max() or 1.0)
    )


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("regressor", None),
        ("mean zero", None),
        ("mean near zero", 0.0),  # not boosted from, and not a rounding error of zero
        ("one leaf boost_from_average=False", None),  # a lone leaf holds the mean all the same
        ("lambda_l2 keeps first tree whole", None),
        ("one leaf scored", 0.0),
        ("boost_from_average=False", 0.0),
        ("scored", 0.0),
        ("continued average then not", None),
        ("continued not then average", 0.0),
        ("learning_rate=1", None),
        ("learning_rate=1 boost_from_average=False", 0.0),
        ("learning_rate=1 scored", 0.0),
    ],
)
def test_base(name: str, base: float | None) -> None:
    case = CASES[name]()
    trees = read_trees(case, read(case.model))
    assert (
        trees.initial.follows_targets
        if base is None
        else trees.initial.constants == np.array([base])
    )
    if base is None:
        assert trees.initial.values[0] == pytest.approx(np.mean(case.y), rel=1e-6, abs=1e-7)


def test_rates() -> None:
    def rates(name: str) -> Array:
        return read_trees(CASES[name](), read(CASES[name]().model)).learning_rates

    assert np.isnan(rates("learning_rate=1/3")[0])  # hidden by the base
    assert set(rates("learning_rate=1/3")[1:]) == {1 / 3}  # not 0.333333
    assert np.isnan(rates("learning_rate=1/3 loaded")).all()
    assert set(rates("boost_from_average=False")) == {0.1}
    assert np.isnan(rates("rate schedule")).all()
    assert np.isnan(
        rates("rate schedule slow")
    ).all()  # begins 0.1 and 0.099999997, both printed 0.1
    assert set(rates("one leaf")) == {0.0}


def test_l2_keeps_the_digits_that_text_loses() -> None:
    exact, text = CASES["lambda_l2=0.1234567"](), CASES["lambda_l2=0.1234567 loaded"]()
    assert set(read_trees(exact, read(exact.model)).leaf_rule.l2) == {0.1234567}
    assert set(read_trees(text, read(text.model)).leaf_rule.l2) == {0.123457}
    assert read(exact.model).leaf_tolerance == 1e-10
    assert 1e-10 < read(text.model).leaf_tolerance < 1e-6
    assert "six digits" in read(text.model).causes("values")
    copy = pickle.loads(pickle.dumps(exact.model))
    assert set(read_trees(exact, read(copy)).leaf_rule.l2) == {0.1234567}


def test_cat_l2_only_below_splits_that_group_categories() -> None:
    expected_by_name = {
        "categorical": {0.0, 10.0},
        "categorical max_cat_to_onehot=20": {0.0},
        "categorical cat_l2=1.2345678 lambda_l2=0.5": {0.5, 1.7345678},
    }
    if VERSION >= (4, 2):  # LightGBM 4.1 aborts on quantised gradients
        expected_by_name["quantized renewed weighted categorical"] = {0.0}
    for name, expected in expected_by_name.items():
        assert set(read_trees(CASES[name](), read(CASES[name]().model)).leaf_rule.l2) == expected, (
            name
        )


def test_best_iteration() -> None:
    case = CASES["early stopping, all trees kept"]()
    adapter, best = read(case.model), case.model.best_iteration
    assert 0 < best < case.model.num_trees()
    assert adapter.leaves(case.X).shape == (len(case.y), best)
    assert len(read_trees(case, adapter).table.n_leaves) == best
    truncated = lgb.Booster(model_str=case.model.model_to_string())
    whole = lgb.Booster(
        model_str=case.model.model_to_string(num_iteration=-1)
    )  # text does not keep best_iteration
    assert read(truncated).fingerprint == adapter.fingerprint
    assert read(whole).leaves(case.X).shape[1] == case.model.num_trees()
    regressor = CASES["early stopping"]().model
    assert read(regressor).leaves(case.X).shape[1] == regressor.best_iteration_


# -- models as they come ----------------------------------------------------------------------------------------------


def test_unfitted_and_foreign_models() -> None:
    with pytest.raises(InputError, match="LGBMRegressor has not been fitted"):
        read(lgb.LGBMRegressor())
    data = table()
    with pytest.raises(InputError, match="no trees"):
        read(lgb.Booster({"verbose": -1}, lgb.Dataset(data.X, data.y)))
    for thing in (None, "model.txt", lgb.Dataset(data.X), pd.DataFrame()):
        with pytest.raises(InputError, match=r"axil reads lightgbm\.LGBMRegressor"):
            read(thing)


@pytest.mark.parametrize(
    "name", ["regressor", "early stopping", "categorical frame", "one leaf", "weighted"]
)
def test_fingerprint_survives_copies(name: str, tmp_path: Any) -> None:
    case = CASES[name]()
    adapter = read(case.model)
    model = getattr(case.model, "booster_", case.model)
    model.save_model(tmp_path / "model.txt")
    loaded = lgb.Booster(model_file=tmp_path / "model.txt")
    for copy in (
        model,
        loaded,
        lgb.Booster(model_str=loaded.model_to_string()),
        pickle.loads(pickle.dumps(case.model)),
    ):
        again = read(copy)
        assert again.fingerprint == adapter.fingerprint
        assert again.feature_names == adapter.feature_names
        assert again.n_features == adapter.n_features
        np.testing.assert_array_equal(again.leaves(case.X), adapter.leaves(case.X))
    assert read(booster(n_trees=4, lambda_l2=0.01).model).fingerprint != adapter.fingerprint


def test_feature_names() -> None:
    assert read(CASES["regressor"]().model).feature_names is None
    assert read(CASES["categorical frame"]().model).feature_names == list("abcdefgh")
    assert read(CASES["float32 frame"]().model).feature_names == [str(i) for i in range(8)]
    assert read(CASES["csr"]().model).n_features == 8


# -- rows as they come ------------------------------------------------------------------------------------------------


def with_holes() -> tuple[Case, Array]:
    """A model and rows of which a fifth of the entries are missing or zero."""
    case = CASES["nan"]()
    X = case.X_new.copy()
    X[::5, ::2] = 0.0
    return case, X


def test_arrays_and_frames_of_all_kinds_give_the_same_leaves(capfd: Any) -> None:
    case, X = with_holes()
    adapter = read(case.model)
    names = [f"Column_{i}" for i in range(8)]
    frame = pl.DataFrame(
        {name: pl.Series(np.where(np.isnan(x), 0, x)) for name, x in zip(names, X.T)}
    )
    frame = frame.with_columns(
        pl.when(pl.Series(~np.isnan(x))).then(pl.col(n)).alias(n) for n, x in zip(names, X.T)
    )
    assert frame.null_count().sum_horizontal()[0] == np.isnan(X).sum()
    kinds: dict[str, Any] = {
        "C": X,
        "F": np.asfortranarray(X),
        "pandas": pd.DataFrame(X, columns=names),
        "pandas Float64": pd.DataFrame(X, columns=names).convert_dtypes(),
        "polars": frame,
        "pyarrow": pa.table(dict(zip(names, X.T))),
        "pyarrow null": frame.to_arrow(),
        **{
            f"{kind} {how}": getattr(sparse, f"{kind}_{how}")(X)
            for kind in ("csr", "csc", "coo")
            for how in ("matrix", "array")
        },
    }
    expected = case.model.predict(X, pred_leaf=True)
    for name, rows in kinds.items():
        before = pickle.dumps(rows)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(adapter.leaves(rows), expected, err_msg=name)
            np.testing.assert_array_equal(
                adapter.predictions(rows)[:, 0], case.model.predict(X), err_msg=name
            )
        assert pickle.dumps(rows) == before, name
    assert capfd.readouterr() == ("", "")


def test_integers_and_booleans_in_frames() -> None:
    data, rng = table(), np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "i": rng.integers(0, 9, 400),
            "b": rng.random(400) < 0.5,
            "x": data.X[:, 0],
            "g": [None if i % 7 == 0 else i % 5 for i in range(400)],
        }
    )
    X = frame.with_columns(pl.all().cast(pl.Float64)).to_numpy()
    model = lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X, data.y), 5)
    for rows in (frame, frame.to_arrow()):
        np.testing.assert_array_equal(read(model).leaves(rows), model.predict(X, pred_leaf=True))


def test_categories_in_frames_of_all_kinds() -> None:
    case = CASES["categorical frame"]()
    adapter, frame = read(case.model), case.X_new
    expected = case.model.predict(frame, pred_leaf=True)
    polars = pl.from_pandas(frame)
    backwards = polars.with_columns(
        pl.col("g").cast(pl.Enum([f"c{i}" for i in reversed(range(12))]))
    )
    strings = polars.with_columns(pl.col("f", "g").cast(pl.String))
    odd = frame.assign(g=frame["g"].cat.reorder_categories([f"c{i}" for i in reversed(range(12))]))
    for rows in (frame, polars, backwards, strings, polars.to_arrow(), odd):
        np.testing.assert_array_equal(adapter.leaves(rows), expected)
    with pytest.raises(InputError, match="2 category columns of a pandas frame, this table has 0"):
        adapter.leaves(pl.DataFrame(np.zeros((3, 8)), schema=list("abcdefgh")))
    with pytest.raises(
        InputError, match=r"0 category columns of a pandas frame, this table has 2 \(f, g\)"
    ):
        read(CASES["regressor"]().model).leaves(polars)


@pytest.mark.parametrize("convert", [np.asarray, pd.DataFrame, pl.DataFrame, sparse.csr_matrix])
def test_no_rows_and_one_tree(convert: Any) -> None:
    case = CASES["one tree"]()
    adapter = read(case.model)
    assert adapter.leaves(convert(case.X[:0])).shape == (0, 1)
    assert adapter.predictions(convert(case.X[:0])).shape == (0, 1)
    assert adapter.leaves(convert(case.X[:1])).shape == (1, 1)
    assert np.issubdtype(adapter.leaves(convert(case.X)).dtype, np.integer)


def test_causes_name_what_to_look_at() -> None:
    adapter = read(CASES["regressor"]().model)
    assert "enable_bundle=False" in adapter.causes("counts")
    assert "enable_bundle" not in read(booster(enable_bundle=False, n_trees=2).model).causes(
        "counts"
    )
    assert "sample_weight" in adapter.causes("weights")
    assert "init_score" in adapter.causes("values")
    assert "digits" not in adapter.causes("values")


def test_reading_imports_no_library_that_is_not_loaded() -> None:
    code = (
        "import sys, axil.adapters as a\n"
        "try: a.read(object())\n"
        "except a.InputError: pass\n"
        "sys.exit('lightgbm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_mistakes_show() -> None:
    """The replay of this file tells right from wrong: one target, one weight, a base or an l2 out of place."""
    case = regressor(weighted=True, reg_lambda=0.7)
    adapter = read(case.model)
    trees = read_trees(case, adapter)
    y, weights = case.y.copy(), np.asarray(case.sample_weight).copy()
    y[3] += 1e-4
    weights[3] *= 1.001
    slack = adapter.leaf_tolerance * np.abs(case.y).max()
    for wrong in (
        Case(case.model, case.X, y, case.sample_weight, None, case.X_new),
        Case(case.model, case.X, case.y, weights, None, case.X_new),
        Case(case.model, case.X, case.y, case.sample_weight, np.full(len(y), 1e-3), case.X_new),
    ):
        values = replay(wrong, read_trees(wrong, adapter), adapter.leaves(case.X))[2]
        assert np.abs(values - trees.table.leaf_values[:, 0]).max() > slack


def test_a_leaf_of_zero_does_not_take_any_targets() -> None:
    """A single leaf holds the mean; that it holds 0 must not let targets of another mean pass."""
    zero = booster(with_targets(lambda y: 0 * y))
    with pytest.raises(ExactnessError):
        Explainer(zero.model, zero.X, zero.y + 0.01)


@pytest.mark.parametrize("heaviest", [1e-6, 1e-8])
def test_weights_next_to_zero(heaviest: float) -> None:
    """LightGBM adds 1e-15 to the weight of a leaf: some 1e-7 of it here."""
    X, y = table(60).X, table(60).y
    weights = heaviest * np.random.default_rng(0).random(len(y))
    model = lgb.LGBMRegressor(n_estimators=5, min_child_weight=0, verbose=-1, n_jobs=1).fit(
        X, y, weights
    )
    np.testing.assert_allclose(
        Explainer(model, X, y, sample_weight=weights)(X).predictions, model.predict(X), rtol=1e-6
    )
    with pytest.raises(ExactnessError):
        Explainer(model, X, y + 1e-4 * np.cos(np.arange(len(y))), sample_weight=weights)
